use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::Command;
use std::sync::{Arc, Mutex};

use tracing_subscriber::fmt::MakeWriter;

use super::seal::HEADER_BYTES;
use super::*;

const MAGIC: &[u8] = b"shardmill-code-1";
/// The smallest component there is.
const EMPTY: &[u8] = b"\0asm\x0d\0\x01\0";

/// What that component is compiled to.
fn code(engine: &Engine) -> Sealed {
    Compatibility::of(engine).seal(&Digest::of(EMPTY), &engine.precompile_component(EMPTY).unwrap())
}

fn stored(path: &Path) -> (Engine, Cache, Digest, PathBuf) {
    let engine = Engine::default();
    let cache = Cache::open(path, &engine);
    let guest = Digest::of(EMPTY);
    cache.store(&guest, &code(&engine));
    let file = cache.directory.as_ref().map(|directory| path.join(directory.name(&guest))).unwrap_or_default();
    (engine, cache, guest, file)
}

/// What is logged from level `WARN` up.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<u8>>>);

impl Warnings {
    fn of<T>(work: impl FnOnce() -> T) -> (T, Vec<String>) {
        let warnings = Self::default();
        let level = tracing::Level::WARN;
        let subscriber =
            tracing_subscriber::fmt().with_writer(warnings.clone()).with_ansi(false).with_max_level(level).finish();
        let result = tracing::subscriber::with_default(subscriber, work);
        let text = String::from_utf8(warnings.0.lock().unwrap().clone()).unwrap();
        (result, text.lines().map(str::to_owned).collect())
    }
}

impl MakeWriter<'_> for Warnings {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

impl io::Write for Warnings {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Asserts that there is one warning, which names the directory and says this.
#[track_caller]
fn assert_one(warnings: &[String], directory: &Path, reason: &str) {
    let [warning] = warnings else { panic!("one warning: {warnings:?}") };
    for text in [&directory.display().to_string(), reason] {
        assert!(warning.contains(text), "{text:?} in {warning}");
    }
}

#[test]
fn what_was_stored_is_loaded_by_the_next_process() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("a/b");
    let (engine, cache, guest, file) = stored(&path);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(cache.load(&engine, &guest).is_some());
    let next = Engine::default();
    assert!(Cache::open(&path, &next).load(&next, &guest).is_some());
    assert!(cache.load(&engine, &Digest::of(b"another")).is_none());
}

#[test]
fn a_file_that_is_not_as_it_was_written_is_never_deserialised() {
    let home = tempfile::tempdir().unwrap();
    let (engine, cache, guest, file) = stored(&home.path().join("cache"));
    let whole = fs::read(&file).unwrap();
    let refused = |bytes: &[u8], what: String| {
        fs::write(&file, bytes).unwrap();
        let (loaded, warnings) = Warnings::of(|| cache.load(&engine, &guest));
        assert!(loaded.is_none(), "{what}");
        assert_one(&warnings, file.parent().unwrap(), "damaged");
    };
    for length in [0, 1, HEADER_BYTES - 1, HEADER_BYTES, whole.len() / 2, whole.len() - 1] {
        refused(&whole[..length], format!("cut to {length}"));
    }
    for place in [0, MAGIC.len(), HEADER_BYTES, whole.len() / 2, whole.len() - 1] {
        let mut altered = whole.clone();
        altered[place] ^= 1;
        refused(&altered, format!("altered at {place}"));
    }
    // What is compiled again takes the place of what is damaged.
    cache.store(&guest, &code(&engine));
    let (loaded, warnings) = Warnings::of(|| cache.load(&engine, &guest));
    assert_eq!((loaded.is_some(), warnings), (true, Vec::new()));
    // The code of one guest under the name of another.
    let other = Digest::of(b"another");
    let directory = cache.directory.as_ref().unwrap();
    fs::write(directory.path.join(directory.name(&other)), &whole).unwrap();
    fs::set_permissions(directory.path.join(directory.name(&other)), fs::Permissions::from_mode(0o600)).unwrap();
    assert!(cache.load(&engine, &other).is_none());
    fs::write(&file, &whole).unwrap();
    assert!(cache.load(&engine, &guest).is_some());
}

#[test]
fn what_others_could_have_written_is_not_used() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("cache");
    let (engine, cache, guest, file) = stored(&path);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o620)).unwrap();
    assert!(cache.load(&engine, &guest).is_none());
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let elsewhere = home.path().join("elsewhere");
    fs::rename(&file, &elsewhere).unwrap();
    symlink(&elsewhere, &file).unwrap();
    assert!(cache.load(&engine, &guest).is_none());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o770)).unwrap();
    assert!(Cache::open(&path, &engine).directory.is_none());
}

#[test]
fn what_belongs_to_somebody_else_is_not_used() {
    if !rustix::process::geteuid().is_root() {
        // Nobody else can give a file away.
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("cache");
    let (engine, cache, guest, file) = stored(&path);
    std::os::unix::fs::chown(&file, Some(65_534), None).unwrap();
    let (loaded, warnings) = Warnings::of(|| cache.load(&engine, &guest));
    assert!(loaded.is_none());
    assert_one(&warnings, &path, "others could have written it");
    // What is compiled again takes its place.
    cache.store(&guest, &code(&engine));
    assert!(cache.load(&engine, &guest).is_some());
    std::os::unix::fs::chown(&path, Some(65_534), None).unwrap();
    let (cache, warnings) = Warnings::of(|| Cache::open(&path, &engine));
    assert!(cache.directory.is_none());
    assert_one(&warnings, &path, "belongs to somebody else");
}

#[test]
fn code_of_another_version_is_another_file_and_never_loaded_as_this_ones() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("cache");
    let (engine, cache, guest, file) = stored(&path);
    let other = Engine::new(wasmtime::Config::new().epoch_interruption(true)).unwrap();
    let other_cache = Cache::open(&path, &other);
    assert!(other_cache.load(&other, &guest).is_none());
    other_cache.store(&guest, &code(&other));
    assert!(other_cache.load(&other, &guest).is_some());
    let other_file = path.join(other_cache.directory.as_ref().unwrap().name(&guest));
    assert_ne!(other_file, file);
    // Under this one's name, as who has renamed it.
    fs::rename(&other_file, &file).unwrap();
    let (loaded, warnings) = Warnings::of(|| cache.load(&engine, &guest));
    assert!(loaded.is_none());
    assert_one(&warnings, &path, "damaged");
    // And with a seal that fits, as an error in ours would make it: wasmtime itself looks.
    let sealed = Compatibility::of(&engine).seal(&guest, &other.precompile_component(EMPTY).unwrap());
    cache.store(&guest, &sealed);
    assert!(cache.load(&engine, &guest).is_none());
}

/// Processes share a cache: each reads what is whole, and leaves what is whole.
#[test]
fn several_processes_store_and_load_at_once() {
    const HERE: &str = "SHARDMILL_TEST_SHARED_CACHE";
    if let Some(path) = std::env::var_os(HERE) {
        let ((), warnings) = Warnings::of(|| {
            for _ in 0..40 {
                let (engine, cache, guest, _) = stored(Path::new(&path));
                assert!(cache.load(&engine, &guest).is_some());
            }
        });
        assert_eq!(warnings, Vec::<String>::new());
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("cache");
    let test = "cache::tests::several_processes_store_and_load_at_once";
    let start = |_| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", test, "--nocapture"]).env(HERE, &path).stdout(std::process::Stdio::piped());
        command.spawn().unwrap()
    };
    let processes: Vec<_> = (0..4).map(start).collect();
    for process in processes {
        let output = process.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{output:?}");
    }
    assert_eq!(fs::read_dir(&path).unwrap().count(), 1);
}

/// As two processes with one id, each in a container of its own: their files that are not finished yet do not meet.
#[test]
fn two_of_one_id_do_not_write_into_each_others_files() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("cache");
    let engine = Engine::default();
    let caches = [Cache::open(&path, &engine), Cache::open(&path, &engine)];
    let code = Compatibility::of(&engine).seal(&Digest::of(EMPTY), &vec![7; 1 << 20]);
    let (code, barrier) = (&code, &std::sync::Barrier::new(2));
    std::thread::scope(|scope| {
        for cache in &caches {
            scope.spawn(move || {
                let directory = cache.directory.as_ref().unwrap();
                for _ in 0..50 {
                    barrier.wait();
                    directory.write(&Digest::of(EMPTY), code).unwrap();
                    assert!(
                        directory.try_read(&directory.name(&Digest::of(EMPTY)), &Digest::of(EMPTY)).unwrap().is_some()
                    );
                }
            });
        }
    });
}

#[test]
fn without_a_usable_directory_everything_still_works() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("file");
    fs::write(&file, b"").unwrap();
    for path in [file.clone(), file.join("below"), "/dev/null/below".into()] {
        let ((engine, cache, guest, _), warnings) = Warnings::of(|| stored(&path));
        assert_one(&warnings, &path, "the directory cannot be made");
        let (loaded, warnings) = Warnings::of(|| cache.load(&engine, &guest));
        assert_eq!((loaded.is_none(), warnings), (true, Vec::new()));
    }
    // The directory is removed while it is in use: one warning, however many guests there are.
    let path = home.path().join("cache");
    let (engine, cache, guest, _) = stored(&path);
    fs::remove_dir_all(&path).unwrap();
    let code = code(&engine);
    let ((), warnings) = Warnings::of(|| (0..3).for_each(|_| cache.store(&guest, &code)));
    assert_one(&warnings, &path, "compiled code cannot be kept");
    assert!(cache.load(&engine, &guest).is_none());
    // What has the file's name and is none.
    let path = home.path().join("strange");
    let (engine, cache, guest, file) = stored(&path);
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    let (loaded, warnings) = Warnings::of(|| cache.load(&engine, &guest));
    assert!(loaded.is_none());
    assert_one(&warnings, &path, "compiled code is not used");
}

/// A limit on the size of files stands for a full disk: what is written is cut off in the middle.
#[test]
fn a_disk_that_is_full_leaves_nothing_behind() {
    const HERE: &str = "SHARDMILL_TEST_FULL_DISK";
    if std::env::var_os(HERE).is_none() {
        // The limit holds for a whole process, and its signal has to be ignored before it begins.
        let test = "cache::tests::a_disk_that_is_full_leaves_nothing_behind";
        let mut limited = Command::new("sh");
        limited.args(["-c", r#"trap '' XFSZ; ulimit -f 1; exec "$0" --exact "$1""#]);
        let output = limited.arg(std::env::current_exe().unwrap()).arg(test).env(HERE, "1").output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{output:?}");
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("cache");
    let ((engine, cache, guest, _), warnings) = Warnings::of(|| stored(&path));
    assert_one(&warnings, &path, "too large");
    assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
    let (loaded, warnings) = Warnings::of(|| {
        cache.store(&guest, &code(&engine));
        cache.load(&engine, &guest)
    });
    assert_eq!((loaded.is_none(), warnings), (true, Vec::new()));
}

#[test]
fn what_a_killed_process_left_is_removed_in_time() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("cache");
    let (engine, cache, guest, file) = stored(&path);
    let (old, new, other) = (path.join(".1-0.tmp"), path.join(".2-0.tmp"), path.join("notes"));
    let hours = |file: &Path, hours: u64| {
        let time = fs::metadata(file).unwrap().modified().unwrap() - std::time::Duration::from_secs(hours * 3600);
        File::options().write(true).open(file).unwrap().set_modified(time).unwrap();
    };
    for (file, age) in [(&old, 2), (&new, 0), (&other, 2)] {
        fs::write(file, b"half").unwrap();
        hours(file, age);
    }
    cache.store(&guest, &code(&engine));
    let left = [&file, &new, &other, &old].map(|file| file.exists());
    assert_eq!(left, [true, true, true, false]);
}

#[test]
fn the_number_of_files_is_bounded() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("cache");
    let engine = Engine::default();
    let cache = Cache::open(&path, &engine);
    let directory = cache.directory.as_ref().unwrap();
    let code = code(&engine);
    for number in 0..FILES + 5 {
        directory.write(&Digest::of(&number.to_le_bytes()), &code).unwrap();
    }
    directory.prune();
    assert_eq!(fs::read_dir(&path).unwrap().count(), FILES);
}
