//! The embedded store of Windlass: one SQLite file, durable by default, shared by any number of threads and processes.
//!
//! ```
//! # use windlass_sqlite::SqliteStore;
//! # use windlass_core::store::Store;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> windlass_core::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let url = format!("sqlite://{}/jobs.db", dir.path().display());
//! let store = SqliteStore::open_url(&url)?;
//! assert_eq!(store.info().await?.store, "sqlite");
//! store.close().await?;
//! # Ok(())
//! # }
//! ```

mod db;
mod error;
mod options;
mod reader;
mod schema;
mod tables;
mod transaction;
mod values;
mod watcher;
mod writer;

use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use tokio::sync::oneshot;
use watcher::{Waiters, Waiting};
use windlass_core::engine::{Host, Signals, Step};
use windlass_core::random::{Random, StrongRandom};
use windlass_core::store::StoreInfo;
use windlass_core::time::{Clock, SystemClock, Timestamp};
use windlass_core::{Error, Result};
use writer::{Call, Shared, Work};

pub use options::{Options, Synchronous};
pub use rusqlite;
pub use tables::SqliteTables;

/// Threads that read.
const READERS: usize = 2;

/// The SQLite store: one writer thread, readers apart, and a watcher of what other processes do.
pub struct SqliteStore {
    options: Options,
    shared: Arc<Shared>,
    waiters: Arc<Waiters>,
    /// `None` once closed.
    queues: Mutex<Option<Queues>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// Where work for the threads goes in.
struct Queues {
    write: Sender<Box<dyn Work>>,
    read: Sender<Box<dyn Work>>,
}

impl SqliteStore {
    /// Opens a file with all defaults, and makes it if it is not there.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self> {
        Self::open_with(Options::new(path), Arc::new(SystemClock), Arc::new(StrongRandom::from_system()))
    }

    /// Opens `sqlite://relative.db?options` or `sqlite:///absolute.db?options`.
    pub fn open_url(url: &str) -> Result<Self> {
        Self::open_with(Options::from_url(url)?, Arc::new(SystemClock), Arc::new(StrongRandom::from_system()))
    }

    /// Opens a file on a clock and randomness of the caller's: for tests that can be repeated.
    pub fn open_with(options: Options, clock: Arc<dyn Clock>, random: Arc<dyn Random>) -> Result<Self> {
        let mut conn = schema::connect(&options)?;
        schema::migrate(&mut conn, &options)?;
        let feed_end = AtomicU64::new(SqliteTables::new(&conn).stored_feed_end()?);
        let (commits, steps) = (AtomicU64::new(0), AtomicU64::new(0));
        let shared = Arc::new(Shared { clock, random, signals: Signals::default(), feed_end, commits, steps });
        let waiters = Arc::new(Waiters::default());
        let mut threads = Vec::new();

        let (write, queue) = channel();
        let for_writer = Arc::clone(&shared);
        threads.push(start("windlass-sqlite-writer", move || writer::run(conn, &queue, &for_writer))?);

        let (read, queue) = channel();
        let queue = Arc::new(Mutex::new(queue));
        for _ in 0..READERS {
            let conn = schema::connect(&options)?;
            let (queue, shared) = (Arc::clone(&queue), Arc::clone(&shared));
            threads.push(start("windlass-sqlite-reader", move || reader::run(conn, &queue, &shared))?);
        }

        let conn = schema::connect(&options)?;
        let (of_waiters, of_shared) = (Arc::clone(&waiters), Arc::clone(&shared));
        threads.push(start("windlass-sqlite-watcher", move || watcher::run(&conn, &of_waiters, &of_shared))?);

        let queues = Mutex::new(Some(Queues { write, read }));
        Ok(Self { options, shared, waiters, queues, threads: Mutex::new(threads) })
    }

    /// Steps and commits so far: how many steps a commit carries is what group commit achieves.
    pub fn group_commit(&self) -> (u64, u64) {
        (self.shared.steps.load(Ordering::Relaxed), self.shared.commits.load(Ordering::Relaxed))
    }

    async fn ask<R, F>(&self, to: fn(&Queues) -> &Sender<Box<dyn Work>>, work: F) -> Result<R>
    where
        R: Send + 'static,
        F: FnOnce(&mut Step<'_, SqliteTables>) -> Result<R> + Send + 'static,
    {
        let (call, answer) = Call::new(work);
        let sent = match self.queues.lock().as_ref() {
            Some(queues) => to(queues).send(Box::new(call)),
            None => return Err(Error::store_closed()),
        };
        let reason = "a thread of the store has panicked; open the store again";
        sent.map_err(|_| Error::Unavailable { reason: reason.to_owned() })?;
        receive(answer).await
    }
}

/// A thread that ended without an answer has panicked; what it was doing is rolled back or was never begun, but a commit
/// may just have gone through.
async fn receive<R>(answer: oneshot::Receiver<Result<R>>) -> Result<R> {
    let lost = |_| Error::Unknown { reason: "the store's thread ended before it could answer".to_owned() };
    answer.await.map_err(lost)?
}

/// The store's own threads are named, and joined when it is closed.
fn start(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    let started = std::thread::Builder::new().name(name.to_owned()).spawn(run);
    started.map_err(|error| Error::no_thread(&error))
}

impl Host for SqliteStore {
    type Tables = SqliteTables;
    type Watch<'a> = Waiting<'a>;

    async fn write<R, F>(&self, work: F) -> Result<R>
    where
        R: Send + 'static,
        F: FnOnce(&mut Step<'_, Self::Tables>) -> Result<R> + Send + 'static,
    {
        self.ask(|queues| &queues.write, work).await
    }

    async fn read<R, F>(&self, work: F) -> Result<R>
    where
        R: Send + 'static,
        F: FnOnce(&mut Step<'_, Self::Tables>) -> Result<R> + Send + 'static,
    {
        self.ask(|queues| &queues.read, work).await
    }

    async fn describe(&self) -> Result<StoreInfo> {
        let synchronous = self.options.synchronous;
        let detail = |name: &str, value: String| (name.to_owned(), value);
        Ok(StoreInfo {
            store: "sqlite".to_owned(),
            layout: schema::LAYOUT,
            durability: synchronous.durability(),
            details: vec![
                detail("path", self.options.path.display().to_string()),
                detail("synchronous", synchronous.as_sql().to_lowercase()),
                detail("sqlite", rusqlite::version().to_owned()),
            ],
        })
    }

    fn time(&self) -> Timestamp {
        self.shared.clock.now()
    }

    fn watch(&self) -> Waiting<'_> {
        self.waiters.wait()
    }

    fn signals(&self) -> &Signals {
        &self.shared.signals
    }

    async fn shut_down(&self) -> Result<()> {
        let threads = self.let_go();
        let (done, ended) = oneshot::channel();
        // Waited for elsewhere, because the last commit and the file's tidying up take their time.
        let closer = move || {
            join(threads);
            // Whoever closed the store may not wait any more.
            let _ = done.send(());
        };
        start("windlass-sqlite-closer", closer)?;
        let _ = ended.await;
        Ok(())
    }
}

impl SqliteStore {
    /// Takes no more work; answers the threads, which finish what they have.
    fn let_go(&self) -> Vec<JoinHandle<()>> {
        self.queues.lock().take();
        self.waiters.close();
        std::mem::take(&mut *self.threads.lock())
    }
}

fn join(threads: Vec<JoinHandle<()>>) {
    for thread in threads {
        // A thread that panicked has nothing left to say.
        let _ = thread.join();
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        self.shared.signals.close();
        join(self.let_go());
    }
}

impl std::fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteStore").field("options", &self.options).finish_non_exhaustive()
    }
}
