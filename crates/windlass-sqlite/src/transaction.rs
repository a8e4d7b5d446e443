//! Enqueue inside a transaction of the caller's.

use crate::SqliteStore;
use crate::error::translate;
use crate::tables::SqliteTables;
use rusqlite::Transaction;
use windlass_core::engine::Step;
use windlass_core::store::{EnqueueRequest, Enqueued};
use windlass_core::{Error, Result};

impl SqliteStore {
    /// Enqueues jobs as a part of the caller's own transaction on the same file: they exist if and when it commits.
    ///
    /// The connection is the caller's, and so is its `PRAGMA synchronous`, which says what the commit survives. Begin the
    /// transaction as `Immediate`, so that it does not fail half-way because the store has written in between. Workers of
    /// other processes find the jobs like any others; those of this one are woken within 20 ms.
    ///
    /// Drop the transaction after an error, and begin again. After `Unknown` and `Full` SQLite may have rolled all of it
    /// back, the caller's rows included; what the caller runs next would then commit on its own.
    ///
    /// ```
    /// # use windlass_core::{id::Ids, job::{JobSpec, NewJob}, payload::Payload, store::EnqueueRequest};
    /// # use windlass_core::{random::StrongRandom, time::SystemClock};
    /// # use windlass_sqlite::{Options, SqliteStore, rusqlite};
    /// # use std::sync::Arc;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("app.db");
    /// let mut conn = rusqlite::Connection::open(&path)?;
    /// conn.execute_batch("CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT)")?;
    /// let options = Options { adopt: true, ..Options::new(&path) };
    /// # let clock = Arc::new(SystemClock);
    /// # let random = Arc::new(StrongRandom::from_system());
    /// # let ids = Ids::new(clock.clone(), random.clone());
    /// let store = SqliteStore::open_with(options, clock, random)?;
    ///
    /// let tx = conn.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    /// tx.execute("INSERT INTO orders (item) VALUES ('rope')", [])?;
    /// let spec = JobSpec::new("orders".try_into()?, "confirm".try_into()?, Payload::json(&"rope")?);
    /// store.enqueue_in(&tx, EnqueueRequest::new(vec![NewJob::new(ids.next(), spec)]))?;
    /// tx.commit()?; // The order and its job are there, or neither is.
    /// # Ok(())
    /// # }
    /// ```
    pub fn enqueue_in(&self, tx: &Transaction<'_>, request: EnqueueRequest) -> Result<Vec<Result<Enqueued>>> {
        self.check_same_file(tx)?;
        check_open(tx)?;
        // Whatever goes wrong is taken back to here, so that a caller who commits all the same commits none of it.
        let mark = |sql: &str| tx.execute_batch(sql).map_err(|error| translate(&error));
        mark("SAVEPOINT windlass_enqueue")?;
        let outcome = self.enqueue_over(tx, request);
        if tx.is_autocommit() {
            // The savepoint is gone with the transaction.
            return outcome.and(Err(ended()));
        }
        if outcome.is_err() {
            mark("ROLLBACK TO windlass_enqueue")?;
        }
        mark("RELEASE windlass_enqueue")?;
        outcome
    }

    /// Jobs in another file would be nobody's.
    fn check_same_file(&self, tx: &Transaction<'_>) -> Result<()> {
        let theirs = tx.path().and_then(|path| std::fs::canonicalize(path).ok());
        let ours = std::fs::canonicalize(&self.options.path).ok();
        if theirs.is_some() && theirs == ours {
            return Ok(());
        }
        let path = self.options.path.display();
        Err(Error::invalid("transaction", format!("is on another database; open its connection on {path}")))
    }

    fn enqueue_over(&self, tx: &Transaction<'_>, request: EnqueueRequest) -> Result<Vec<Result<Enqueued>>> {
        let mut tables = SqliteTables::new(&**tx);
        let mut step = Step::new(&mut tables, self.shared.random.as_ref(), self.shared.clock.now());
        let answers = step.enqueue(request);
        step.finish()?;
        if let Some(error) = tables.db.others().failure() {
            return Err(error);
        }
        tables.flush()?;
        answers
    }
}

/// Refuses a transaction that SQLite has rolled back by itself: a savepoint would begin another one, and its release
/// would commit that.
fn check_open(tx: &Transaction<'_>) -> Result<()> {
    if tx.is_autocommit() { Err(ended()) } else { Ok(()) }
}

fn ended() -> Error {
    Error::invalid("transaction", "has ended: SQLite rolls it back after some errors; begin another one")
}
