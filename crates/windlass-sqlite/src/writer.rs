//! The one writer of a store: takes whatever has queued while the last commit waited for the disk, runs it in one
//! transaction, commits, and only then answers.
//!
//! It trusts nothing of the others on the file: a transaction begins by asking whether somebody else has written. When
//! a statement fails, the whole transaction is taken back and everybody in it is told so.

use crate::db::Kept;
use crate::tables::SqliteTables;
use rusqlite::Connection;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Duration;
use tokio::sync::oneshot;
use windlass_core::engine::{Effects, Signals, Step};
use windlass_core::random::Random;
use windlass_core::time::Clock;
use windlass_core::{Error, Result};

/// Steps that one transaction takes at most, so that the first of them does not wait for ever.
const STEPS_MAX: usize = 4_096;
/// How long the file is left to others after a commit, when there are others.
const YIELD: Duration = Duration::from_millis(1);

/// A step to run, and whoever waits for its answer.
pub(crate) trait Work: Send {
    /// Runs the step.
    fn run(&mut self, step: &mut Step<'_, SqliteTables>);
    /// Tells what became of it: its outcome, or why nothing came of it.
    fn answer(self: Box<Self>, committed: Result<()>);
}

/// A step as a function.
pub(crate) struct Call<F, R> {
    work: Option<F>,
    outcome: Option<Result<R>>,
    reply: oneshot::Sender<Result<R>>,
}

impl<F, R> Call<F, R> {
    pub(crate) fn new(work: F) -> (Self, oneshot::Receiver<Result<R>>) {
        let (reply, answer) = oneshot::channel();
        (Self { work: Some(work), outcome: None, reply }, answer)
    }
}

impl<F, R> Work for Call<F, R>
where
    F: FnOnce(&mut Step<'_, SqliteTables>) -> Result<R> + Send,
    R: Send,
{
    fn run(&mut self, step: &mut Step<'_, SqliteTables>) {
        self.outcome = self.work.take().map(|work| work(step));
    }

    fn answer(self: Box<Self>, committed: Result<()>) {
        let nothing = || Err(Error::Unavailable { reason: "the step was not run".to_owned() });
        let Self { outcome, reply, .. } = *self;
        let answer = committed.and_then(|()| outcome.unwrap_or_else(nothing));
        // Nobody may wait any more; what is done is done.
        let _ = reply.send(answer);
    }
}

/// What the threads of a store share.
pub(crate) struct Shared {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn Random>,
    pub(crate) signals: Signals,
    /// The end of the feed as this process has written it.
    pub(crate) feed_end: AtomicU64,
    /// Commits, and steps in them: what group commit achieves.
    pub(crate) commits: AtomicU64,
    pub(crate) steps: AtomicU64,
}

/// Runs until nobody can ask any more.
pub(crate) fn run(conn: Connection, queue: &Receiver<Box<dyn Work>>, shared: &Shared) {
    let mut tables = SqliteTables::new(Kept::over(conn));
    while let Ok(first) = queue.recv() {
        let others = match begin(&mut tables) {
            Ok(others) => others,
            Err(error) => {
                // Whoever waits behind it would wait as long for the same answer; but one that asks again because of it
                // is a new one, hence all of them at once.
                let waiting: Vec<_> = std::iter::from_fn(|| queue.try_recv().ok()).collect();
                std::iter::once(first).chain(waiting).for_each(|work| work.answer(Err(error.clone())));
                continue;
            }
        };
        let mut batch = Batch::default();
        let more = std::iter::from_fn(|| queue.try_recv().ok());
        for work in std::iter::once(first).chain(more) {
            batch.run(work, &mut tables, shared);
            if batch.steps.len() >= STEPS_MAX || batch.failure.is_some() {
                break;
            }
        }
        batch.end(&mut tables, shared);
        if others {
            // Here and not only in the watcher, which cannot tell their entries of the feed from ours that came after.
            shared.signals.announce_all(shared.feed_end.load(Ordering::SeqCst));
            pause(YIELD);
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "SQLite's lock is not fair: another process waits for it")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// Begins a transaction; answers whether somebody else has written since the last one.
fn begin(tables: &mut SqliteTables) -> Result<bool> {
    tables.db.others().begin("BEGIN IMMEDIATE")?;
    tables.refresh().inspect_err(|_| roll_back(tables))
}

fn roll_back(tables: &mut SqliteTables) {
    tables.db.others().roll_back();
    tables.forget();
}

/// The steps of one transaction.
#[derive(Default)]
struct Batch {
    steps: Vec<Box<dyn Work>>,
    effects: Effects,
    failure: Option<Error>,
}

impl Batch {
    fn run(&mut self, mut work: Box<dyn Work>, tables: &mut SqliteTables, shared: &Shared) {
        let mut step = Step::new(tables, shared.random.as_ref(), shared.clock.now());
        work.run(&mut step);
        match step.finish() {
            Ok(effects) => self.effects.merge(effects),
            Err(error) => self.failure = Some(error),
        }
        self.failure = tables.db.others().failure().or(self.failure.take());
        self.steps.push(work);
    }

    /// Commits and answers, or takes everything back and says so.
    fn end(self, tables: &mut SqliteTables, shared: &Shared) {
        let committed = match self.failure {
            Some(error) => Err(error),
            None => commit(tables),
        };
        if committed.is_err() {
            roll_back(tables);
        } else {
            shared.commits.fetch_add(1, Ordering::Relaxed);
            shared.steps.fetch_add(self.steps.len() as u64, Ordering::Relaxed);
            if let Some(end) = self.effects.feed {
                shared.feed_end.fetch_max(end.0, Ordering::SeqCst);
            }
            shared.signals.announce(&self.effects);
        }
        for work in self.steps {
            work.answer(committed.clone());
        }
    }
}

fn commit(tables: &mut SqliteTables) -> Result<()> {
    tables.flush()?;
    tables.db.others().commit()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;
    use crate::schema;
    use parking_lot::Mutex;
    use std::sync::mpsc::channel;
    use windlass_core::random::StrongRandom;
    use windlass_core::time::{Timestamp, VirtualClock};

    impl Shared {
        pub(crate) fn for_test() -> Self {
            Self {
                clock: Arc::new(VirtualClock::new(Timestamp::from_ms(0))),
                random: Arc::new(StrongRandom::seeded(1)),
                signals: Signals::default(),
                feed_end: AtomicU64::new(0),
                commits: AtomicU64::new(0),
                steps: AtomicU64::new(0),
            }
        }
    }

    type Told = Arc<Mutex<Vec<(&'static str, Result<()>)>>>;

    /// Does nothing, notes what it is told, and does something then.
    struct Asked<F> {
        name: &'static str,
        told: Told,
        then: F,
    }

    impl<F: FnOnce() + Send> Work for Asked<F> {
        fn run(&mut self, _: &mut Step<'_, SqliteTables>) {}

        fn answer(self: Box<Self>, committed: Result<()>) {
            self.told.lock().push((self.name, committed));
            (self.then)();
        }
    }

    #[test]
    fn those_behind_one_that_waited_for_the_file_in_vain_are_told_the_same_and_nobody_else() {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { busy_ms: 0, ..Options::new(dir.path().join("jobs.db")) };
        let mut conn = schema::connect(&options).unwrap();
        schema::migrate(&mut conn, &options).unwrap();
        let holder = schema::connect(&options).unwrap();
        holder.execute_batch("BEGIN IMMEDIATE").unwrap();

        let (send, queue) = channel::<Box<dyn Work>>();
        let told = Told::default();
        let nothing = |name| Asked { name, told: Arc::clone(&told), then: || {} };
        let (again, to_writer) = (nothing("again"), send.clone());
        // The file is free from the first answer on, and whoever got it asks again.
        let then = move || {
            holder.execute_batch("COMMIT").unwrap();
            to_writer.send(Box::new(again)).unwrap();
        };
        send.send(Box::new(Asked { name: "first", told: Arc::clone(&told), then })).unwrap();
        send.send(Box::new(nothing("second"))).unwrap();
        send.send(Box::new(nothing("third"))).unwrap();
        drop(send);
        run(conn, &queue, &Shared::for_test());

        let told = std::mem::take(&mut *told.lock());
        let busy = told[0].1.clone().unwrap_err();
        assert!(matches!(&busy, Error::Unavailable { reason } if reason.contains("another process")), "{busy}");
        let all =
            [("first", Err(busy.clone())), ("second", Err(busy.clone())), ("third", Err(busy)), ("again", Ok(()))];
        assert_eq!(told, all);
    }
}
