//! The thread that owns the database. It does what the handles ask for, in order; what many want to store goes to the
//! disk together.

mod taking;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, mpsc};
use std::time::SystemTime;

use crate::database::{Database, row};
use crate::folder::{Accepted, Folder, Witness};
use crate::group::{Estimate, Group, Part};
use crate::job::Job;
use crate::layout::PAGE;
use crate::state::State;
use crate::{Error, Full, Id, Metrics, Options};

pub(crate) type Clock = Arc<dyn Fn() -> SystemTime + Send + Sync>;

pub(crate) struct Writer {
    folder: Folder,
    database: Database,
    accepted: Accepted,
    when_full: Full,
    clock: Clock,
    waiting: VecDeque<Job>,
    state: Arc<State>,
    metrics: Metrics,
    /// Records that were sent and could not be removed. Given out again, they would be sent twice.
    unremoved: BTreeSet<Id>,
    /// What the log said last.
    told: Told,
    /// Whether something was removed since the file was looked at.
    is_lighter: bool,
}

#[derive(Debug, Default)]
struct Told {
    full: bool,
    failing: bool,
}

// === impl Writer ===

impl Writer {
    /// Opens the database; without options, with the bound that it had last.
    pub(crate) fn open(
        folder: Folder,
        options: Option<&Options>,
        clock: Clock,
        state: Arc<State>,
        metrics: Metrics,
    ) -> Result<Self, Error> {
        let mut accepted = folder.accepted()?;
        let witness = accepted.read()?;
        if witness == Witness::Unreadable {
            let file = accepted.path().display();
            tracing::warn!(%file, "the file does not say any more how far the spool must reach; it is written anew");
        }
        let database = Database::open(&folder, options.map(|options| options.bytes), witness)?;
        let writer = Self {
            when_full: options.map(|options| options.when_full).unwrap_or_default(),
            folder,
            database,
            accepted,
            clock,
            waiting: VecDeque::new(),
            state,
            metrics,
            unremoved: BTreeSet::new(),
            told: Told::default(),
            is_lighter: false,
        };
        if witness == Witness::Unreadable {
            writer.accepted.clear();
        }
        writer.write_accepted();
        writer.metrics.may_take(writer.database.bytes());
        writer.publish();
        Ok(writer)
    }

    /// Works until it is told to close, or until all handles are gone.
    pub(crate) fn run(mut self, jobs: &mpsc::Receiver<Job>) {
        loop {
            if self.waiting.is_empty() {
                match jobs.recv() {
                    Ok(job) => self.waiting.push_back(job),
                    Err(mpsc::RecvError) => break,
                }
            }
            self.waiting.extend(jobs.try_iter());
            match self.waiting.pop_front() {
                Some(Job::Close { done }) => {
                    let closed = self.close();
                    // Nobody may wait for it.
                    let _unheard = done.send(closed);
                    return;
                }
                Some(store @ Job::Store(_)) => {
                    self.waiting.push_front(store);
                    self.store();
                }
                Some(job) => self.serve(job),
                None => {}
            }
            if self.waiting.is_empty() {
                self.tidy();
            }
        }
        if let Err(error) = self.close() {
            tracing::warn!(%error, "the spool was not closed in order; it will be repaired when it is opened");
        }
    }

    fn close(self) -> Result<(), Error> {
        let Self { folder, database, state, .. } = self;
        state.closes();
        let closed = database.close();
        drop(folder);
        closed
    }

    fn store(&mut self) {
        let (path, bytes) = (self.folder.path().to_owned(), self.database.bytes());
        let too_large = |record_bytes| Error::TooLarge { folder: path.clone(), record_bytes, bytes };
        let mut group = Group::take(&mut self.waiting, self.database.layout(), too_large);
        let stored = self.make_room(&group).and_then(|()| self.insert(&mut group));
        if stored.is_ok() {
            self.write_accepted();
            self.told_works();
        }
        self.publish();
        let failure = stored.err().map(Arc::new);
        for part in group.parts.into_iter().rev() {
            self.answer(part, failure.clone());
        }
    }

    /// Says what came of a call, or lets the rest of it wait on.
    fn answer(&mut self, part: Part, failure: Option<Arc<Error>>) {
        if failure.is_none() {
            let stored = part.records().count() as u64;
            if stored > 0 {
                self.metrics.stored(&part.store.stream, stored);
            }
        }
        let Part { mut store, upto, too_large, refusal } = part;
        if failure.is_none() {
            store.next = upto;
            store.refused.extend(too_large);
        }
        match failure.or(refusal) {
            Some(error) => {
                let rest = store.next..store.records.len();
                store.refused.extend(rest.map(|index| (index, Arc::clone(&error))));
            }
            None if store.next < store.records.len() => {
                self.waiting.push_front(Job::Store(store));
                return;
            }
            None => {}
        }
        if let Some((_, error)) = store.refused.last() {
            self.metrics.failed(error.kind());
            self.told_failure(error);
        }
        // What is stored shows in the depth by now.
        drop(store.storing);
        // The caller may be gone.
        let _unheard = store.done.send(store.refused);
    }

    /// Drops the oldest records where that is wanted.
    fn make_room(&mut self, group: &Group) -> Result<(), Error> {
        if self.when_full == Full::Refuse || group.parts.iter().all(|part| part.records().next().is_none()) {
            return Ok(());
        }
        let mut is_reserved = false;
        loop {
            let lacking = self.lacking(group.need.pages())?;
            if lacking == 0 {
                return Ok(());
            }
            // Nothing is dropped for records that the disk then does not take.
            if !std::mem::replace(&mut is_reserved, true) {
                self.database.reserve(group.need.pages())?;
            }
            let dropped = self.database.drop_oldest(lacking * PAGE)?;
            if dropped.is_empty() {
                return Ok(());
            }
            if !std::mem::replace(&mut self.told.full, true) {
                let (folder, bytes) = (self.folder.path().display(), self.database.bytes());
                tracing::warn!(%folder, bytes, "the spool is full: its oldest records are dropped");
            }
            for (stream, records) in dropped {
                self.metrics.dropped(&stream, records);
            }
        }
    }

    /// How many pages are missing for so many.
    fn lacking(&self, pages: u64) -> Result<u64, Error> {
        Ok((self.database.pages_in_use()? + pages).saturating_sub(self.database.layout().room()))
    }

    /// Stores a group, each call of it as far as there is room.
    fn insert(&mut self, group: &mut Group) -> Result<(), Error> {
        let now = row::milliseconds((self.clock)());
        let room = self.database.layout().room();
        let full = Error::Full { folder: self.folder.path().to_owned(), bytes: self.database.bytes() };
        let full = Arc::new(full);
        let Group { parts, need } = group;
        if parts.iter().all(|part| part.records().next().is_none()) {
            return Ok(());
        }
        let change = self.database.change("storing records", need.pages(), |database| {
            let (mut used, mut estimate) = (database.pages_in_use()?, Estimate::default());
            for part in parts {
                let (stream, mut full_at) = (&part.store.stream, None);
                for (index, record) in part.records() {
                    let bytes = row::size(record);
                    if used + estimate.with(stream, bytes).pages() > room {
                        // From what it takes really.
                        (used, estimate) = (database.pages_in_use()?, Estimate::default());
                        if used + estimate.with(stream, bytes).pages() > room {
                            full_at = Some(index);
                            break;
                        }
                    }
                    estimate.add(stream, bytes);
                    database.insert(stream, record, now)?;
                }
                if let Some(index) = full_at {
                    part.ends_at(index, Arc::clone(&full));
                }
            }
            Ok(())
        });
        change.inspect(|()| self.metrics.committed())
    }

    fn serve(&mut self, job: Job) {
        match job {
            Job::Front { stream, records, bytes, done } => {
                let front = self.front(&stream, records, bytes);
                self.reply(done, front);
            }
            Job::Remove { ids, done } => {
                let removed = self.remove(ids);
                self.reply(done, removed);
            }
            Job::SetAside { id, reason, done } => {
                let was_there = self.lightly(1, |database, _| database.set_aside(id, &reason));
                self.is_lighter = true;
                self.reply(done, was_there);
            }
            Job::TakeBack { stream, after, done } => {
                let most = self.database.layout().removed_at_once();
                let taken = self.lightly(most, |database, most| database.take_back(stream.as_deref(), after, most));
                self.reply(done, taken);
            }
            Job::Aside { after, limit, done } => {
                let aside = self.database.aside(after, limit);
                self.reply(done, aside);
            }
            Job::Count { selection, done } => {
                let counts = self.database.count_selected(&selection);
                self.reply(done, counts);
            }
            Job::Discard { selection, done } => {
                let most = self.database.layout().removed_at_once();
                let discarded = self.lightly(most, |database, most| database.discard(&selection, most));
                let discarded = discarded.map(|discarded| {
                    let told = |(stream, records): (Arc<str>, u64)| {
                        self.metrics.dropped(&stream, records);
                        (stream.to_string(), records)
                    };
                    discarded.into_iter().map(told).collect::<BTreeMap<String, u64>>()
                });
                self.is_lighter = true;
                self.reply(done, discarded);
            }
            Job::Store(_) | Job::Close { .. } => unreachable!("it is dealt with by whoever called"),
        }
    }

    fn reply<T>(&mut self, done: tokio::sync::oneshot::Sender<Result<T, Error>>, result: Result<T, Error>) {
        match &result {
            Ok(_) => self.told_works(),
            Err(error) => {
                self.metrics.failed(error.kind());
                self.told_failure(error);
            }
        }
        self.publish();
        // The caller may be gone.
        let _unheard = done.send(result);
    }

    /// When nothing else is to be done.
    fn tidy(&mut self) {
        if !std::mem::take(&mut self.is_lighter) {
            return;
        }
        if self.told.full {
            /// Of the room, in percent.
            const LIGHT: u64 = 90;

            let room = self.database.layout().room();
            if self.database.pages_in_use().is_ok_and(|used| used * 100 < room * LIGHT) {
                self.told.full = false;
                tracing::info!(folder = %self.folder.path().display(), "the spool has room again");
            }
        }
        if let Err(error) = self.database.shrink() {
            // It goes on as it is.
            tracing::debug!(%error, "the spool's files stay as large as they are");
        }
        self.publish();
    }

    fn publish(&self) {
        let disk_bytes = self.folder.bytes();
        for (stream, depth) in self.state.set(self.database.streams(), disk_bytes) {
            self.metrics.show(&stream, &depth);
        }
        self.metrics.takes(disk_bytes);
    }

    fn write_accepted(&self) {
        if let Err(error) = self.accepted.write(self.database.last_id()) {
            // It then says less than it could.
            tracing::debug!(%error, file = %self.accepted.path().display(), "the file cannot be written");
        }
    }

    fn told_failure(&mut self, error: &Error) {
        let folder = self.folder.path().display();
        if error.is_full() {
            if !std::mem::replace(&mut self.told.full, true) {
                tracing::warn!(%folder, %error, "records are refused");
            }
        } else if !std::mem::replace(&mut self.told.failing, true) {
            tracing::error!(%folder, %error, "the spool does not work");
        }
    }

    fn told_works(&mut self) {
        if std::mem::take(&mut self.told.failing) {
            tracing::info!(folder = %self.folder.path().display(), "the spool works again");
        }
    }
}
