//! Files and folders that are nobody else's: payloads are not to be read by others, and nothing is to be written where others
//! have led a name to.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::process::geteuid;

use crate::Error;

/// What only the owner may do.
const FILE: u32 = 0o600;
const FOLDER: u32 = 0o700;
const OTHERS: u32 = 0o077;
/// Whoever may write to a folder may put other files in the place of ours.
const OTHERS_WRITE: u32 = 0o022;

/// Makes a folder with those above it, if it is not there, and its name durable.
pub(crate) fn make_folder(folder: &Path) -> Result<(), Error> {
    let making = |error: io::Error| Error::io(folder, "making the folder", &error);
    let missing: Vec<&Path> = folder.ancestors().take_while(|path| !path.exists()).collect();
    DirBuilder::new().recursive(true).mode(FOLDER).create(folder).map_err(making)?;
    // Also of one that was there: whoever made it may have ended before that.
    let above = missing.into_iter().chain([folder]).filter_map(Path::parent);
    for folder in above {
        match sync(folder) {
            // Where we may not look, we have made nothing.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            synced => synced.map_err(making)?,
        }
    }
    Ok(())
}

/// Checks that only we can change what is in a folder. Its path without links.
pub(crate) fn check_folder(folder: &Path) -> Result<PathBuf, Error> {
    let finding = |error: io::Error| Error::io(folder, "looking at the folder", &error);
    let path = fs::canonicalize(folder).map_err(finding)?;
    let found = fs::metadata(&path).map_err(finding)?;
    if !found.is_dir() {
        return Err(not_private(&path, "it is no folder", "name a folder"));
    }
    check_owner(&path, &found)?;
    if found.mode() & OTHERS_WRITE != 0 {
        let reason = format!("others may write to it (its mode is {:o})", found.mode() & 0o7777);
        let advice = "take that away with `chmod go-w`, or name a folder in it, which is then made for its owner alone";
        return Err(not_private(&path, reason, advice));
    }
    Ok(path)
}

/// Opens a file for reading and writing, and sees to it that only we can. It is made if it is not there and may be made.
pub(crate) fn open(path: &Path, make_it: bool) -> Result<File, Error> {
    let flags = OFlags::NOFOLLOW.bits().cast_signed();
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(make_it).truncate(false).mode(FILE).custom_flags(flags);
    let file = match options.open(path) {
        Ok(file) => file,
        Err(_) if fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink()) => {
            return Err(not_private(path, "it is a symbolic link", "see who has made it, and take another folder"));
        }
        Err(error) => return Err(Error::io(path, "opening the file", &error)),
    };
    let found = file.metadata().map_err(|error| Error::io(path, "looking at the file", &error))?;
    if !found.is_file() {
        return Err(not_private(path, "it is no file", "see who has made it, and take another folder"));
    }
    check_owner(path, &found)?;
    if found.nlink() > 1 {
        let advice = "see where else it is, and take another folder";
        return Err(not_private(path, "it has more than one name (a hard link)", advice));
    }
    if found.mode() & OTHERS != 0 {
        let tightened = file.set_permissions(Permissions::from_mode(FILE));
        tightened.map_err(|error| Error::io(path, "taking the file from others (mode 600)", &error))?;
    }
    Ok(file)
}

/// Makes the names in a folder durable.
pub(crate) fn sync(folder: &Path) -> io::Result<()> {
    match File::open(folder)?.sync_all() {
        // Some network disks have nothing to do for a folder, and say so like this.
        Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => Ok(()),
        synced => synced,
    }
}

fn check_owner(path: &Path, found: &Metadata) -> Result<(), Error> {
    let we = geteuid().as_raw();
    if found.uid() == we {
        return Ok(());
    }
    let owner = found.uid();
    let reason = format!("it belongs to user {owner}, and this is user {we}");
    Err(not_private(path, reason, format!("run this as user {owner}, or take a folder of user {we}")))
}

fn not_private(path: &Path, reason: impl Into<String>, advice: impl Into<String>) -> Error {
    Error::NotPrivate { path: path.to_owned(), reason: reason.into(), advice: advice.into() }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    fn refused<T: std::fmt::Debug>(result: Result<T, Error>, said: &str) {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::NotPrivate { .. }) && error.to_string().contains(said), "{error}");
    }

    #[test]
    fn files_are_for_their_owner_alone_also_those_that_were_not() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("file");
        drop(open(&path, true).unwrap());
        assert_eq!(mode(&path), 0o600);
        fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        drop(open(&path, false).unwrap());
        assert_eq!(mode(&path), 0o600);
        assert!(matches!(open(&home.path().join("none"), false), Err(Error::Io { .. })));
    }

    #[test]
    fn nothing_is_written_where_a_link_leads() {
        let home = tempfile::tempdir().unwrap();
        let victim = home.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        let soft = home.path().join("soft");
        symlink(&victim, &soft).unwrap();
        refused(open(&soft, true), "symbolic link");
        symlink(home.path().join("nowhere"), home.path().join("dangling")).unwrap();
        refused(open(&home.path().join("dangling"), true), "symbolic link");
        assert!(!home.path().join("nowhere").exists());
        let hard = home.path().join("hard");
        fs::hard_link(&victim, &hard).unwrap();
        refused(open(&hard, true), "hard link");
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    }

    #[test]
    fn a_folder_that_others_can_write_to_is_refused_and_one_in_it_is_made_for_its_owner() {
        let home = tempfile::tempdir().unwrap();
        let above = home.path().canonicalize().unwrap();
        for (mode, is_good) in [(0o755, true), (0o700, true), (0o775, false), (0o777, false), (0o1777, false)] {
            fs::set_permissions(&above, Permissions::from_mode(mode)).unwrap();
            let checked = check_folder(&above);
            if is_good {
                assert_eq!(checked.unwrap(), above);
            } else {
                refused(checked, &format!("its mode is {mode:o}"));
            }
        }
        let folder = above.join("a").join("b");
        make_folder(&folder).unwrap();
        assert_eq!(check_folder(&folder).unwrap(), folder);
        assert_eq!(mode(&folder), 0o700);
        symlink(&folder, above.join("link")).unwrap();
        assert_eq!(check_folder(&above.join("link")).unwrap(), folder, "without links");
        fs::write(above.join("file"), "").unwrap();
        refused(check_folder(&above.join("file")), "no folder");
    }
}
