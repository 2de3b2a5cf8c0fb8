use std::collections::BTreeMap;
use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::SystemTime;

use shardmill_record::UserRecord;
use tokio::sync::oneshot;

use crate::database::{Aside, Selection, Spooled};
use crate::drain::{self, Answer, Batch, Drained};
use crate::folder::Folder;
use crate::job::{Front, Job, Reply, Store, TakenBack, Unstored};
use crate::state::{Depth, State, StreamDepth};
use crate::writer::{Clock, Writer};
use crate::{Error, Id, Metrics, Options, Refused, StoreError};

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

    /// Opens a spool that is there, to look at it or to empty it: it keeps the bound that it was opened with last.
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
                let writer = Writer::open(folder, options.as_ref(), clock, Arc::clone(&of_writer), metrics)?;
                Ok((path, writer))
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
            let Some(writer) = writer else { return };
            let ran = panic::catch_unwind(AssertUnwindSafe(|| writer.run(&queue)));
            of_writer.closes();
            if let Err(panic) = ran {
                let text = panic.downcast_ref::<&str>().copied();
                let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or_default();
                tracing::error!(
                    folder = %path.display(), panic = text,
                    "the spool's thread broke down: nothing is stored in it or sent from it until it is opened again. \
                     What it accepted is on the disk"
                );
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
    /// Each call stands for itself: where one finds no room, the next one, smaller or later, may be stored. Who wants to
    /// store in order what was refused has to wait for each call of a stream before the next.
    ///
    /// The queue has no bound of its own, and the records of a call are in memory until it is answered: who calls without
    /// waiting has to know how much that may be, because a disk can take any time.
    ///
    /// # Errors
    /// With each record that is not stored, and why: one that is too large alone; all behind one for which there is no
    /// room; all that are not durable yet, if the disk fails.
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
            let storing = Some(self.state.storing(&stream, count));
            let (records, refused) = (Arc::clone(&records), Vec::new());
            let store = Store { stream, records, next: 0, refused, storing, done };
            // If the thread is gone, so is the answer.
            let _closed = self.jobs.send(Job::Store(store));
        }
        let (folder, state) = (Arc::clone(&self.folder), Arc::clone(&self.state));
        async move {
            if is_empty {
                return Ok(());
            }
            let unstored = answer.await.unwrap_or_else(|_closed| {
                // Before anybody asks whether the spool holds something.
                state.closes();
                let reason = Arc::new(Error::Closed(PathBuf::from(&*folder)));
                (0..records.len()).map(|index| (index, Arc::clone(&reason))).collect()
            });
            if unstored.is_empty() { Ok(()) } else { Err(StoreError { refused: refused(records, unstored) }) }
        }
    }

    /// The first records of a stream that wait, in the order in which they were stored: at most so many and so many bytes of
    /// keys and payloads, but one at least. They stay until they are removed. A record that is damaged is set aside
    /// and told in the log.
    ///
    /// # Errors
    /// If what [`remove`](Self::remove) could not remove cannot be removed yet; if the files cannot be read.
    pub async fn front(&self, stream: &str, records: usize, bytes: u64) -> Result<Vec<Spooled>, Error> {
        Ok(self.whole_front(stream, records, bytes).await?.records)
    }

    pub(crate) async fn whole_front(&self, stream: &str, records: usize, bytes: u64) -> Result<Front, Error> {
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
    ///
    /// # Cancellation
    /// If this is dropped, some of them wait again, and the others are set aside still.
    pub async fn take_back(&self, stream: Option<&str>) -> Result<u64, Error> {
        let (mut after, mut taken) = (0, 0);
        let stream = stream.map(str::to_owned);
        while let Some(TakenBack { records, last }) =
            self.ask(|done| Job::TakeBack { stream: stream.clone(), after, done }).await?
        {
            (after, taken) = (last, taken + records);
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

    /// What is in it of one stream, without asking the disk.
    pub fn depth_of(&self, stream: &str) -> StreamDepth {
        self.state.depth_of(stream)
    }

    /// The streams of which records wait.
    pub fn streams(&self) -> Vec<String> {
        self.state.streams()
    }

    /// Whether records of a stream wait or are being stored: whoever sends a later one of the same key past them breaks its
    /// order. True from the moment on at which [`store`](Self::store) returned, before it is awaited. A spool that is
    /// closed says no: what is in it waits for whoever opens it next.
    pub fn holds(&self, stream: &str) -> bool {
        self.state.holds(stream)
    }

    /// Whether it was closed, or its thread broke down: whatever is asked for ends with [`Error::Closed`].
    pub fn is_closed(&self) -> bool {
        self.state.is_closed()
    }

    /// Waits until records of a stream wait, or the spool is closed.
    pub async fn until_some(&self, stream: &str) {
        self.state.until_some(stream).await;
    }

    /// Waits until no records of a stream wait, nor are being stored, or the spool is closed.
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
        let closed = || {
            self.state.closes();
            Error::Closed(PathBuf::from(&*self.folder))
        };
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

    /// Sends the first records of the stream once. What is stored in the stream is removed from the spool, what the stream
    /// will never take is set aside, and the rest stays where it is. Without records, `send` is not called, and
    /// everything that comes back is 0; also then some may have been set aside that are damaged.
    ///
    /// `send` has to keep the order of records of a key: where one is not sent, no later one of its key is.
    ///
    /// # Errors
    /// If the spool cannot be read or written. What was sent and could not be removed is not sent again by this process.
    ///
    /// # Cancellation
    /// If this is dropped while `send` is at work, what it sends stays in the spool and is sent again.
    pub async fn drain_once<E, A: Into<Answer<E>>>(
        &self,
        batch: Batch,
        send: impl AsyncFnOnce(Vec<UserRecord>) -> A,
    ) -> Result<Drained<E>, Error> {
        drain::drain_once(&self.spool, &self.stream, batch, send).await
    }

    /// Sets a record aside that cannot be sent; whether it was there.
    pub async fn set_aside(&self, id: Id, reason: impl Into<String>) -> Result<bool, Error> {
        self.spool.set_aside(id, reason).await
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

/// What is not stored of a call's records. Both are in the call's order.
fn refused(records: Arc<Vec<UserRecord>>, unstored: Vec<Unstored>) -> Vec<Refused> {
    let mut unstored = unstored.into_iter().peekable();
    let records = Arc::unwrap_or_clone(records).into_iter().enumerate();
    let refused = records.filter_map(|(index, record)| {
        let (_, reason) = unstored.next_if(|(unstored, _)| *unstored == index)?;
        Some(Refused { index, record, reason })
    });
    refused.collect()
}
