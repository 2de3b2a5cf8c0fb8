//! A disk that fails where the test wants it to.

use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use proptest::prelude::*;
use tracing_subscriber::fmt::MakeWriter;

use super::super::disk::Appended;
use super::*;

/// What goes wrong with a call that can go wrong so; other calls go well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// Nothing.
    None,
    /// The file cannot be made.
    Create(io::ErrorKind),
    /// After so many bytes.
    Append(usize, io::ErrorKind),
    /// The same, and what is there cannot be cut off.
    AppendForGood(usize, io::ErrorKind),
    /// All is written, and perhaps not durable.
    Sync,
}

/// The operating system's disk, without its syncs and with faults. One is used up by each attempt to write.
#[derive(Clone, Default)]
struct Faulty {
    faults: Arc<Mutex<VecDeque<Fault>>>,
    syncs: Arc<AtomicUsize>,
}

struct FaultyFile {
    file: Box<dyn Appended>,
    disk: Faulty,
    now: Fault,
}

impl Faulty {
    fn with(faults: impl IntoIterator<Item = Fault>) -> Self {
        Self { faults: Arc::new(Mutex::new(faults.into_iter().collect())), syncs: Arc::default() }
    }

    fn next(&self) -> Fault {
        self.faults.lock().unwrap().pop_front().unwrap_or(Fault::None)
    }
}

impl Disk for Faulty {
    fn create(&mut self, path: &Path) -> io::Result<Box<dyn Appended>> {
        let mut faults = self.faults.lock().unwrap();
        if let Some(Fault::Create(kind)) = faults.front().copied() {
            faults.pop_front();
            return Err(kind.into());
        }
        drop(faults);
        let file = File::options().append(true).create_new(true).open(path)?;
        Ok(Box::new(FaultyFile { file: Box::new(file), disk: self.clone(), now: Fault::None }))
    }

    fn remove(&mut self, path: &Path) -> io::Result<()> {
        SystemDisk.remove(path)
    }
}

impl Appended for FaultyFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.now = self.disk.next();
        match self.now {
            Fault::Append(written, kind) | Fault::AppendForGood(written, kind) => {
                self.file.append(&bytes[..written.min(bytes.len())])?;
                Err(kind.into())
            }
            Fault::None | Fault::Create(_) | Fault::Sync => self.file.append(bytes),
        }
    }

    fn sync(&mut self) -> io::Result<()> {
        self.disk.syncs.fetch_add(1, SeqCst);
        // A real one takes its time, and there are thousands.
        if self.now == Fault::Sync { Err(io::Error::other("the disk says no")) } else { Ok(()) }
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        if matches!(self.now, Fault::AppendForGood(..)) {
            return Err(io::ErrorKind::StaleNetworkFileHandle.into());
        }
        self.file.truncate(length)
    }

    fn has_name(&self) -> io::Result<bool> {
        self.file.has_name()
    }
}

/// The log of this thread, from `INFO` up.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<u8>>>);

impl Told {
    fn lines(&self) -> Vec<String> {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap().lines().map(str::to_owned).collect()
    }
}

impl MakeWriter<'_> for Told {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

impl io::Write for Told {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn writer() -> Writer {
    Writer { processor: "enrich".to_owned(), worker: "w".to_owned(), run: 1 }
}

fn faults() -> impl Strategy<Value = Fault> {
    use io::ErrorKind::{FileTooLarge, PermissionDenied, StorageFull};
    let kind = prop::sample::select(vec![StorageFull, FileTooLarge, PermissionDenied]);
    prop_oneof![
        3 => Just(Fault::None),
        1 => kind.clone().prop_map(Fault::Create),
        2 => (0usize..200, kind.clone()).prop_map(|(written, kind)| Fault::Append(written, kind)),
        2 => (0usize..200, kind).prop_map(|(written, kind)| Fault::AppendForGood(written, kind)),
        1 => Just(Fault::Sync),
    ]
}

proptest! {
    #[test]
    fn whatever_fails_each_line_is_there_once_it_is_said_to_be_and_none_is_spoilt(
        faults in prop::collection::vec(faults(), 0..30),
        sizes in prop::collection::vec(1usize..120, 1..20),
    ) {
        let home = tempfile::tempdir().unwrap();
        let disk = Faulty::with(faults);
        let mut lines = Lines::new(Box::new(disk), home.path().to_owned(), writer(), 300);
        let mut stored = Vec::new();
        for (number, size) in sizes.into_iter().enumerate() {
            let line = format!("{number:03}{}\n", "x".repeat(size));
            // For as long as it takes, as the queue does.
            while lines.append(line.as_bytes(), SystemTime::UNIX_EPOCH).is_err() {}
            stored.push(line);
        }
        let mut found = BTreeSet::new();
        for file in files(home.path()) {
            let text = fs::read_to_string(home.path().join(file)).unwrap();
            // What is left of a failed attempt can only be the end of a file.
            let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
            found.extend(whole.map(str::to_owned));
        }
        prop_assert_eq!(found.into_iter().collect::<Vec<_>>(), stored);
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_is_waited_for_and_told_once_until_there_is_room() {
    // Alone: what one thread's log is told depends on whether another thread without a log came to the line first.
    let test = "faults::a_full_disk_is_waited_for_and_told_once_until_there_is_room";
    let Some(folder) = alone(test) else { return };
    let told = Told::default();
    let subscriber = tracing_subscriber::fmt().with_writer(told.clone()).with_ansi(false).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let held = lease().await;
    let disk = Faulty::default();
    let metrics = Metrics::default().of_place("enrich", "folder");
    let place = Folder::on(Box::new(disk.clone()), &folder, FILE_BYTES, writer(), metrics.clone());
    place.store(letters([1]), &held.fence()).await.unwrap();
    // So that another file has to be made.
    fs::remove_file(folder.join(&files(&folder)[0])).unwrap();
    let full = |written| Fault::Append(written, io::ErrorKind::StorageFull);
    let faults = [Fault::Create(io::ErrorKind::PermissionDenied), full(10), full(0), full(700)];
    disk.faults.lock().unwrap().extend(faults);
    place.store(letters([2, 3]), &held.fence()).await.unwrap();
    place.store(letters([4]), &held.fence()).await.unwrap();
    assert_eq!(found(&folder).await, letters([2, 3, 4]));
    assert_eq!(metrics.counts(), (4, 4, 0));
    let told = told.lines();
    let about = |text: &str| told.iter().filter(|line| line.contains(text)).count();
    assert_eq!(about("cannot be stored; trying on"), 2, "once for each reason: {told:?}");
    assert_eq!((about("Make room on the disk"), about("Let this process write")), (1, 1), "{told:?}");
    assert_eq!(about("stored again"), 1, "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_lost_while_the_disk_is_full_writes_nothing_later() {
    let home = tempfile::tempdir().unwrap();
    let (held, other) = (lease().await, lease().await);
    let disk = Faulty::with(vec![Fault::Append(5, io::ErrorKind::StorageFull); 8]);
    let metrics = Metrics::default().of_place("enrich", "folder");
    let place = Folder::on(Box::new(disk), home.path(), FILE_BYTES, writer(), metrics.clone());
    let (fence, others) = (held.fence(), other.fence());
    let (lost, stored, ()) =
        tokio::join!(place.store(letters([1]), &fence), place.store(letters([2]), &others), async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            let (stored, failures, waiting) = metrics.counts();
            assert_eq!((stored, failures > 0, waiting), (0, true, 2), "both wait");
            held.release().await.unwrap();
        });
    assert!(matches!(lost, Err(DeadLetterError::Fenced)), "{lost:?}");
    stored.unwrap();
    assert_eq!(found(home.path()).await, letters([2]));
    assert_eq!((metrics.counts().0, metrics.counts().2), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn what_nobody_can_mend_from_outside_is_refused_with_the_place() {
    let home = tempfile::tempdir().unwrap();
    let held = lease().await;
    let disk = Faulty::with([Fault::Create(io::ErrorKind::NotADirectory)]);
    let metrics = Metrics::default().of_place("enrich", "folder");
    let place = Folder::on(Box::new(disk), home.path(), FILE_BYTES, writer(), metrics);
    let error = place.store(letters([1]), &held.fence()).await.unwrap_err().to_string();
    for part in ["the folder", &home.path().display().to_string(), "[processors.enrich.dead-letters]"] {
        assert!(error.contains(part), "{part} in {error}");
    }
    place.store(letters([2]), &held.fence()).await.unwrap();
    assert_eq!(found(home.path()).await, letters([2]));
}

#[tokio::test]
async fn shards_that_give_up_together_share_a_sync() {
    const SHARDS: u64 = 300;
    let home = tempfile::tempdir().unwrap();
    let held = lease().await;
    let disk = Faulty::default();
    let metrics = Metrics::default().of_place("enrich", "folder");
    let place = Folder::on(Box::new(disk.clone()), home.path(), FILE_BYTES, writer(), metrics);
    let fence = held.fence();
    place.store(letters([SHARDS + 1]), &fence).await.unwrap();
    assert_eq!(disk.syncs.load(SeqCst), 1, "it is durable when it is stored");
    let stores = (1..=SHARDS).map(|number| place.store(letters([number]), &fence));
    futures::future::try_join_all(stores).await.unwrap();
    assert_eq!(found(home.path()).await, letters(1..=SHARDS + 1));
    let syncs = disk.syncs.load(SeqCst);
    assert!(syncs <= 30, "{syncs} syncs for {SHARDS} shards");
}

#[test]
fn a_file_without_a_name_is_noticed() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("a");
    let file: Box<dyn Appended> = Box::new(File::create(&path).unwrap());
    assert!(file.has_name().unwrap());
    fs::remove_file(&path).unwrap();
    assert!(!file.has_name().unwrap());
}
