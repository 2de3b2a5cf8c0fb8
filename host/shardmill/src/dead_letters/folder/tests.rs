//! Folders on disks that fail, under processes that are killed, and with several writers.

mod faults;
mod processes;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use shardmill_engine::DeadLetter;

use super::super::letter::tests::letter;
use super::super::metrics::Metrics;
use super::super::read::Place;
use super::super::tests::{lease, read_back};
use super::*;

const FILE_BYTES: u64 = 64 << 20;

/// What a test that runs itself again as another process does there.
const HERE: &str = "SHARDMILL_TEST_DEAD_LETTERS";

/// The folder of a test that has been run again as another process; `None` in the first one.
fn is_child() -> Option<PathBuf> {
    std::env::var_os(HERE).map(Into::into)
}

/// This program, with one test.
fn again(test: &str, folder: &Path) -> Command {
    with(Command::new(std::env::current_exe().unwrap()), test, folder)
}

fn with(mut program: Command, test: &str, folder: &Path) -> Command {
    program.args(["--exact", "--nocapture"]).arg(format!("dead_letters::folder::tests::{test}")).env(HERE, folder);
    program
}

/// Runs a test again in a process of its own, with a folder; there it is that folder.
fn alone(test: &str) -> Option<PathBuf> {
    let folder = is_child();
    if folder.is_none() {
        let home = tempfile::tempdir().unwrap();
        let output = again(test, home.path()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{output:?}");
    }
    folder
}

async fn found(folder: &Path) -> Vec<DeadLetter> {
    read_back(Place::Folder(folder.to_owned())).await
}

fn letters(numbers: impl IntoIterator<Item = u64>) -> Vec<DeadLetter> {
    numbers.into_iter().map(letter).collect()
}

fn opened(folder: &Path, run: u64) -> Folder {
    Folder::open(folder, FILE_BYTES, "enrich", "host/1 é", run, Metrics::default().of_place("enrich", "folder"))
        .unwrap()
}

fn files(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn letters_are_in_the_folder_when_they_are_stored_one_a_line() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("below").join("letters");
    let held = lease().await;
    let metrics = Metrics::default().of_place("enrich", "folder");
    let place = Folder::open(&folder, FILE_BYTES, "enrich", "host/1 é", 0xab, metrics.clone()).unwrap();
    assert_eq!(files(&folder), [""; 0], "there is no file without a letter");
    place.store(Vec::new(), &held.fence()).await.unwrap();
    assert_eq!(files(&folder), [""; 0]);
    place.store(letters([1, 2]), &held.fence()).await.unwrap();
    assert_eq!(found(&folder).await, letters([1, 2]));
    place.store(letters([3]), &held.fence()).await.unwrap();
    assert_eq!(found(&folder).await, letters([1, 2, 3]));
    let [file] = &files(&folder)[..] else { panic!("{:?}", files(&folder)) };
    assert!(file.starts_with("enrich-2") && file.ends_with("Z-host_1__-00000000000000ab-0001.jsonl"), "{file}");
    let text = fs::read_to_string(folder.join(file)).unwrap();
    assert_eq!(text.lines().count(), 3);
    let mode = fs::metadata(folder.join(file)).unwrap().permissions().mode();
    assert_eq!(mode & 0o137, 0, "it is not for everybody: {mode:o}");
    assert_eq!(metrics.counts(), (3, 0, 0));
}

#[tokio::test]
async fn two_workers_in_one_folder_do_not_meet() {
    let home = tempfile::tempdir().unwrap();
    let held = lease().await;
    // Even with one id, by a mistake.
    let places = [1, 2].map(|run| opened(home.path(), run));
    let store = async |place: &Folder, first: u64| {
        for number in (first..first + 100).step_by(5) {
            place.store(letters(number..number + 5), &held.fence()).await.unwrap();
        }
    };
    tokio::join!(store(&places[0], 1), store(&places[1], 101), store(&places[0], 201));
    assert_eq!(files(home.path()).len(), 2);
    assert_eq!(found(home.path()).await, letters(1..=300));
}

#[tokio::test]
async fn a_file_that_somebody_removed_is_followed_by_another_one() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("letters");
    let held = lease().await;
    let place = opened(&folder, 1);
    place.store(letters([1]), &held.fence()).await.unwrap();
    fs::remove_file(folder.join(&files(&folder)[0])).unwrap();
    place.store(letters([2]), &held.fence()).await.unwrap();
    assert_eq!(found(&folder).await, letters([2]));
    // With the folder.
    fs::remove_dir_all(&folder).unwrap();
    place.store(letters([3]), &held.fence()).await.unwrap();
    assert_eq!(found(&folder).await, letters([3]));
}

#[tokio::test]
async fn what_is_no_folder_is_told_before_anything_runs() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("file");
    fs::write(&file, "").unwrap();
    let open = |path: &Path| {
        Folder::open(path, FILE_BYTES, "enrich", "w", 1, Metrics::default().of_place("enrich", "folder")).err()
    };
    assert!(open(&file).is_some() && open(&file.join("below")).is_some());
    assert!(open(&home.path().join("letters")).is_none());
}

/// For root every folder may be written: this runs again as somebody else then.
#[test]
fn a_folder_that_may_not_be_written_or_read_is_told_before_anything_runs() {
    const TEST: &str = "a_folder_that_may_not_be_written_or_read_is_told_before_anything_runs";
    let look = |home: &Path| {
        let open = |mode: &str| {
            let place = Metrics::default().of_place("enrich", "folder");
            Folder::open(&home.join(mode), FILE_BYTES, "enrich", "w", 1, place).map(drop)
        };
        processes::runtime().block_on(async {
            // The names of files in a folder are synced by opening it for reading.
            for mode in ["555", "333"] {
                assert_eq!(open(mode).unwrap_err().kind(), io::ErrorKind::PermissionDenied, "{mode}");
            }
            open("777").unwrap();
        });
    };
    if let Some(home) = is_child() {
        return look(&home);
    }
    let home = tempfile::tempdir().unwrap();
    let allow = |path: &Path, mode: u32| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    allow(home.path(), 0o755);
    for (name, mode) in [("555", 0o555), ("333", 0o333), ("777", 0o777)] {
        fs::create_dir(home.path().join(name)).unwrap();
        allow(&home.path().join(name), mode);
    }
    if !rustix::process::geteuid().is_root() {
        return look(home.path());
    }
    let nobody = || {
        let mut nobody = Command::new("setpriv");
        nobody.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(std::env::current_exe().unwrap());
        nobody
    };
    if !nobody().arg("--list").output().is_ok_and(|output| output.status.success()) {
        println!("skipped: nobody else can run this program");
        return;
    }
    let output = with(nobody(), TEST, home.path()).output().unwrap();
    assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).contains("1 passed"), "{output:?}");
}

#[test]
fn what_is_written_and_the_names_of_files_and_folders_are_synced() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("below").join("letters");
    let ((), folders) = synced(|| disk::make(&folder).unwrap());
    assert_eq!(folders, [&home.path().join("below"), home.path()]);
    let (_file, folders) = synced(|| SystemDisk.create(&folder.join("a.jsonl")).unwrap());
    assert_eq!(folders, [&*folder]);
    assert!(disk::sync_folder(&home.path().join("nowhere")).is_err());
    // What has nothing to sync says so when it is asked.
    let mut null: Box<dyn disk::Appended> = Box::new(fs::File::open("/dev/null").unwrap());
    assert_eq!(null.sync().unwrap_err().kind(), io::ErrorKind::InvalidInput);
}

#[test]
fn a_file_is_followed_by_another_one_when_it_is_large_or_its_day_is_over() {
    let home = tempfile::tempdir().unwrap();
    let writer = Writer { processor: "enrich".to_owned(), worker: "w".to_owned(), run: 7 };
    let mut lines = Lines::new(Box::new(SystemDisk), home.path().to_owned(), writer, 100);
    let at = |seconds: u64| std::time::UNIX_EPOCH + Duration::from_secs(1_790_000_000 + seconds);
    for (line, seconds) in [(60, 0), (40, 1), (1, 2), (500, 3), (500, 4), (10, 5), (10, 86_405), (10, 86_406)] {
        lines.append(&vec![b'x'; line], at(seconds)).unwrap();
    }
    let sizes: Vec<u64> =
        files(home.path()).iter().map(|file| fs::metadata(home.path().join(file)).unwrap().len()).collect();
    assert_eq!(sizes, [100, 1, 500, 500, 10, 20]);
    let names = files(home.path());
    assert_eq!(names[0], "enrich-20260921T141320Z-w-0000000000000007-0001.jsonl");
    assert!(names[5].starts_with("enrich-20260922T"), "{names:?}");
}
