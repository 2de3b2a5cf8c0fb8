use tokio::sync::oneshot;

/// Those who wait until everything is resolved that was accepted before they asked.
#[derive(Debug, Default)]
pub(super) struct Flushes(Vec<Flush>);

#[derive(Debug)]
struct Flush {
    below: u64,
    unresolved: usize,
    done: oneshot::Sender<()>,
}

// === impl Flushes ===

impl Flushes {
    /// Somebody waits for the records with ids below this one, of which so many are unresolved.
    pub(super) fn add(&mut self, below: u64, unresolved: usize, done: oneshot::Sender<()>) {
        self.0.retain(|flush| !flush.done.is_closed());
        self.0.push(Flush { below, unresolved, done });
        self.tell();
    }

    /// A record is resolved. [`tell`](Self::tell) says so.
    pub(super) fn resolved(&mut self, id: u64) {
        for flush in self.0.iter_mut().filter(|flush| id < flush.below) {
            flush.unresolved -= 1;
        }
    }

    /// Tells those who have waited for long enough.
    pub(super) fn tell(&mut self) {
        for flush in self.0.extract_if(.., |flush| flush.unresolved == 0) {
            // Who asked may have gone.
            let _ = flush.done.send(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_waits_for_what_came_before_it() {
        let mut flushes = Flushes::default();
        let [(first, mut first_told), (second, mut second_told), (idle, mut idle_told)] =
            std::array::from_fn(|_| oneshot::channel());
        flushes.add(0, 0, idle);
        assert_eq!(idle_told.try_recv(), Ok(()), "nothing came before it");
        flushes.add(2, 2, first);
        flushes.add(4, 3, second);
        for id in [0, 5] {
            flushes.resolved(id);
            flushes.tell();
            assert!(first_told.try_recv().is_err() && second_told.try_recv().is_err());
        }
        flushes.resolved(1);
        flushes.tell();
        assert_eq!(first_told.try_recv(), Ok(()));
        assert!(second_told.try_recv().is_err());
        flushes.resolved(3);
        flushes.tell();
        assert_eq!(second_told.try_recv(), Ok(()));
    }
}
