//! Files that a configuration or an operator names.

use std::fs::File;
use std::io;
use std::path::Path;

/// Opens a file to read it. A pipe, which would keep who opens it waiting until somebody writes, and a device, which may have
/// no end, are refused.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let kind = std::fs::metadata(path)?.file_type();
    if kind.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !kind.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is a pipe, a socket or a device, and no file"));
    }
    File::open(path)
}

/// The same, without a thread of the runtime.
pub(crate) async fn open_async(path: &Path) -> io::Result<tokio::fs::File> {
    let path = path.to_owned();
    let opening = tokio::task::spawn_blocking(move || open(&path));
    opening.await.map_err(io::Error::other)?.map(tokio::fs::File::from_std)
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, Mode};

    use super::*;

    #[test]
    fn a_pipe_that_nobody_writes_to_a_device_and_a_folder_are_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        rustix::fs::mkfifoat(CWD, &pipe, Mode::RUSR | Mode::WUSR).unwrap();
        assert_eq!(open(&pipe).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(open(Path::new("/dev/zero")).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(open(folder.path()).unwrap_err().kind(), io::ErrorKind::IsADirectory);
        assert_eq!(open(&folder.path().join("nothing")).unwrap_err().kind(), io::ErrorKind::NotFound);
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        std::fs::write(&file, "text").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!(io::read_to_string(open(&link).unwrap()).unwrap(), "text");
    }
}
