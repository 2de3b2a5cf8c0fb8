use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::SystemTime;

use shardmill_record::UserRecord;
use tokio::sync::oneshot;

use crate::database::{Aside, Selection, Spooled};
use crate::folder::Folder;
use crate::job::{Job, Reply, Store};
use crate::state::{Depth, State};
use crate::writer::{Clock, Writer};
use crate::{Error, Id, Metrics, Options, StoreError};

/// A folder with records that wait for their streams. Cheap to clone; all clones are one. It needs no particular async
/// runtime: a thread of its own does the work.
#[derive(Clone)]
pub struct Spool {
    folder: Arc<Path>,
    jobs: mpsc::Sender<Job>,
    state: Arc<State>,
}

/// How many records of a stream something is about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counted {
    /// Records.
    pub records: u64,
    /// Their partition keys and payloads.
    pub bytes: u64,
}

/// The right to send what a spool holds of one stream: there is one at a time, so that nothing is sent twice or out of order
/// while all goes well. It ends when this is dropped.
#[derive(Debug)]
pub struct Sender {
    spool: Spool,
    stream: Arc<str>,
}

// === impl Spool ===

impl Spool {
    /// Opens the spool of a folder, which is made if it is not there, and checks it: that takes time with its size. What is
    /// in it from before comes first.
    ///
    /// # Errors
    /// [`Error::InUse`] with the other process' id; [`Error::Damaged`] if a file does not hold what was written to it.
    pub async fn open(folder: impl AsRef<Path>, options: Options, metrics: Metrics) -> Result<Self, Error> {
        options.check()?;
        Self::start(folder.as_ref(), Some(options), metrics, Arc::new(SystemTime::now)).await
    }

    /// Opens a spool that is there, to look at it or to empty it: it has no bound, and nothing should be stored in it.
    ///
    /// # Errors
    /// [`Error::NotThere`], and those of [`open`](Self::open).
    pub async fn open_existing(folder: impl AsRef<Path>) -> Result<Self, Error> {
        Self::start(folder.as_ref(), None, Metrics::default(), Arc::new(SystemTime::now)).await
    }

    pub(crate) async fn start(
        folder: &Path,
        options: Option<Options>,
        metrics: Metrics,
        clock: Clock,
    ) -> Result<Self, Error> {
        let state = Arc::new(State::default());
        let (jobs, queue) = mpsc::channel();
        let (opened, answer) = oneshot::channel();
        let (path, of_writer) = (folder.to_owned(), Arc::clone(&state));
        let work = move || {
            let writer = Folder::take(&path, options.is_some()).and_then(|folder| {
                let path: Arc<Path> = folder.path().into();
                Ok((path, Writer::open(folder, options.as_ref(), clock, of_writer, metrics)?))
            });
            let writer = match writer {
                Ok((path, writer)) => opened.send(Ok(path)).is_ok().then_some(writer),
                Err(error) => {
                    // The caller may be gone.
                    let _unheard = opened.send(Err(error));
                    None
                }
            };
            // Without a writer nobody has a handle.
            if let Some(writer) = writer {
                writer.run(&queue);
            }
        };
        let thread = thread::Builder::new().name("spool".to_owned()).spawn(work);
        thread.map_err(|error| Error::io(folder, "starting the spool's thread", &error))?;
        let folder = answer.await.map_err(|_| Error::Closed(folder.to_owned()))??;
        Ok(Self { folder, jobs, state })
    }

    /// The folder, as an absolute path.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Stores records of a stream behind all others. They are in the queue when this returns, so that calls keep their order,
    /// and they are durable when the future is ready. A call that is larger than what the database takes at once is
    /// stored bit by bit, in order.
    ///
    /// # Errors
    /// With the records that are not stored: all, or where there was room for some of them, the last ones.
    ///
    /// # Cancellation
    /// If the future is dropped, the records may be stored or not.
    pub fn store(
        &self,
        stream: &str,
        records: Vec<UserRecord>,
    ) -> impl Future<Output = Result<(), StoreError>> + Send + use<> {
        let (stream, records): (Arc<str>, _) = (stream.into(), Arc::new(records));
        let (done, answer) = oneshot::channel();
        let count = records.len() as u64;
        let is_empty = records.is_empty();
        if !is_empty {
            self.state.begins(&stream, count);
            let store = Store { stream: Arc::clone(&stream), records: Arc::clone(&records), next: 0, done };
            // If the thread is gone, so is the answer.
            let _closed = self.jobs.send(Job::Store(store));
        }
        let folder = Arc::clone(&self.folder);
        async move {
            if is_empty {
                return Ok(());
            }
            match answer.await {
                Ok(Ok(())) => Ok(()),
                Ok(Err((stored, source))) => Err(StoreError { records: rest(records, stored), source }),
                Err(_closed) => {
                    let source = Error::Closed(PathBuf::from(&*folder));
                    Err(StoreError { records: rest(records, 0), source })
                }
            }
        }
    }

    /// The first records of a stream that wait, in the order in which they were stored: at most so many and so many bytes of
    /// keys and payloads, but one at least. They stay until they are removed. A record that is damaged is set aside
    /// and told in the log.
    ///
    /// # Errors
    /// If what [`remove`](Self::remove) could not remove cannot be removed yet; if the files cannot be read.
    pub async fn front(&self, stream: &str, records: usize, bytes: u64) -> Result<Vec<Spooled>, Error> {
        self.ask(|done| Job::Front { stream: stream.to_owned(), records, bytes, done }).await
    }

    /// Removes records that were sent; how many there were. Those that are not there any more are passed over.
    ///
    /// # Errors
    /// If the files cannot be written. The records are not given out any more all the same, for as long as this process has
    /// the spool: they are removed before anything else is given out.
    pub async fn remove(&self, ids: impl IntoIterator<Item = Id>) -> Result<u64, Error> {
        let ids = ids.into_iter().collect();
        self.ask(|done| Job::Remove { ids, done }).await
    }

    /// Sets a record aside that cannot be sent, so that it does not stand before others; whether it was there.
    pub async fn set_aside(&self, id: Id, reason: impl Into<String>) -> Result<bool, Error> {
        let reason = reason.into();
        self.ask(|done| Job::SetAside { id, reason, done }).await
    }

    /// Lets records that were set aside wait in their old places again, those of one stream or all; how many.
    pub async fn take_back(&self, stream: Option<&str>) -> Result<u64, Error> {
        let (mut after, mut taken) = (0, 0);
        let stream = stream.map(str::to_owned);
        while let Some(number) = self.ask(|done| Job::TakeBack { stream: stream.clone(), after, done }).await? {
            after = number;
            taken += 1;
        }
        Ok(taken)
    }

    /// Records that are set aside, the first so many with a larger number than this one.
    pub async fn aside(&self, after: u64, limit: usize) -> Result<Vec<Aside>, Error> {
        self.ask(|done| Job::Aside { after, limit, done }).await
    }

    /// How many records of each stream are selected.
    pub async fn count(&self, selection: Selection) -> Result<BTreeMap<String, Counted>, Error> {
        let counts = self.ask(|done| Job::Count { selection, done }).await?;
        Ok(counts.into_iter().map(|(stream, (records, bytes))| (stream, Counted { records, bytes })).collect())
    }

    /// Drops some hundred of the records that are selected, unsent: how many of each stream. Nothing if none is left.
    pub async fn discard(&self, selection: Selection) -> Result<BTreeMap<String, u64>, Error> {
        self.ask(|done| Job::Discard { selection, done }).await
    }

    /// What is in it, without asking the disk.
    pub fn depth(&self) -> Depth {
        self.state.depth()
    }

    /// The streams of which records wait.
    pub fn streams(&self) -> Vec<String> {
        let waiting = self.depth().streams.into_iter().filter(|(_, depth)| depth.records > 0);
        waiting.map(|(stream, _)| stream).collect()
    }

    /// Whether records of a stream wait or are being stored: whoever sends a later one of the same key past them breaks its
    /// order. True from the moment on at which [`store`](Self::store) returned, before it is awaited.
    pub fn holds(&self, stream: &str) -> bool {
        self.state.holds(stream)
    }

    /// Waits until records of a stream wait.
    pub async fn until_some(&self, stream: &str) {
        self.state.until_some(stream).await;
    }

    /// Waits until no records of a stream wait, nor are being stored.
    pub async fn until_none(&self, stream: &str) {
        self.state.until_none(stream).await;
    }

    /// The right to send the records of a stream.
    ///
    /// # Errors
    /// [`Error::Taken`] if somebody has it.
    pub fn sender(&self, stream: &str) -> Result<Sender, Error> {
        let stream: Arc<str> = stream.into();
        if self.state.takes(&stream) {
            return Ok(Sender { spool: self.clone(), stream });
        }
        Err(Error::Taken { folder: PathBuf::from(&*self.folder), stream: stream.to_string() })
    }

    /// Does what was asked for before, closes the files and gives the folder free. Whatever is asked for later, also by
    /// clones, ends with [`Error::Closed`]. A spool that is only dropped closes too, a little later.
    pub async fn close(self) -> Result<(), Error> {
        match self.ask(|done| Job::Close { done }).await {
            // Somebody has closed it already.
            Err(Error::Closed(_)) => Ok(()),
            closed => closed,
        }
    }

    async fn ask<T>(&self, job: impl FnOnce(Reply<T>) -> Job) -> Result<T, Error> {
        let (done, answer) = oneshot::channel();
        let closed = || Error::Closed(PathBuf::from(&*self.folder));
        self.jobs.send(job(done)).map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }
}

// === impl Sender ===

impl Sender {
    /// The spool.
    pub fn spool(&self) -> &Spool {
        &self.spool
    }

    /// The stream, as it was named.
    pub fn stream(&self) -> &str {
        &self.stream
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.spool.state.gives_back(&self.stream);
    }
}

impl fmt::Debug for Spool {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Spool").field("folder", &self.folder).finish_non_exhaustive()
    }
}

/// What is not stored of a call's records.
fn rest(records: Arc<Vec<UserRecord>>, stored: usize) -> Vec<UserRecord> {
    match Arc::try_unwrap(records) {
        Ok(mut records) => records.split_off(stored),
        Err(shared) => shared[stored..].to_vec(),
    }
}
