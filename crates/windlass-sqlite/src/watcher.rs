//! Notices what other processes did to the file, while somebody waits for it.

use crate::error::translate;
use crate::writer::Shared;
use parking_lot::{Condvar, Mutex};
use rusqlite::Connection;
use std::sync::atomic::Ordering;
use std::time::Duration;
use windlass_core::Result;

/// How often the file's version is asked for while somebody waits. It is in shared memory: the disk sleeps on.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How many wait, and whether it is all over.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: u64,
    closed: bool,
}

/// Somebody waits for as long as this lives.
#[derive(Debug)]
pub struct Waiting<'w>(&'w Waiters);

impl Waiters {
    pub(crate) fn wait(&self) -> Waiting<'_> {
        self.state.lock().waiting += 1;
        self.changed.notify_one();
        Waiting(self)
    }

    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_all();
    }

    /// Returns after a while if somebody waits, and as soon as somebody does otherwise. False when it is all over.
    fn next_look(&self) -> bool {
        let mut state = self.state.lock();
        while state.waiting == 0 && !state.closed {
            self.changed.wait(&mut state);
        }
        if !state.closed {
            self.changed.wait_for(&mut state, LOOK_EVERY);
        }
        !state.closed
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.state.lock().waiting -= 1;
    }
}

/// Runs until the store is closed.
pub(crate) fn run(conn: &Connection, waiters: &Waiters, shared: &Shared) {
    let mut seen = None;
    while waiters.next_look() {
        // A look that fails is made again; whoever waits looks for itself in any case.
        seen = look(conn, shared, seen).unwrap_or(seen);
    }
}

/// Tells of what others have done since the version `seen`; answers the version of this look.
fn look(conn: &Connection, shared: &Shared, seen: Option<i64>) -> Result<Option<i64>> {
    let version = Some(version(conn)?);
    if seen != version {
        let end = feed_end(conn)?;
        if end != shared.feed_end.load(Ordering::SeqCst) {
            shared.feed_end.fetch_max(end, Ordering::SeqCst);
            shared.signals.announce_all(end);
        }
    }
    Ok(version)
}

fn version(conn: &Connection) -> Result<i64> {
    let outcome = conn.prepare_cached("PRAGMA data_version").and_then(|mut ask| ask.query_row([], |row| row.get(0)));
    outcome.map_err(|error| translate(&error))
}

fn feed_end(conn: &Connection) -> Result<u64> {
    let sql = "SELECT coalesce(max(number), 0) FROM windlass_feed";
    let outcome = conn.prepare_cached(sql).and_then(|mut ask| ask.query_row([], |row| row.get::<_, i64>(0)));
    outcome.map(i64::cast_unsigned).map_err(|error| translate(&error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::Col;

    /// The watcher's connection, and that of another process.
    fn connections(dir: &tempfile::TempDir) -> (Connection, Connection) {
        let open = || Connection::open(dir.path().join("jobs.db")).unwrap();
        let other = open();
        other.execute_batch("PRAGMA journal_mode=WAL").unwrap();
        other.execute_batch(include_str!("../migrations/1.sql")).unwrap();
        (open(), other)
    }

    fn write(other: &Connection, number: u64) {
        let entry = "INSERT INTO windlass_feed(number,first,total,events) VALUES(?1,?1,?1,x'')";
        other.execute(entry, [Col(number)]).unwrap();
    }

    #[test]
    fn what_others_wrote_between_two_looks_is_told_once() {
        let dir = tempfile::tempdir().unwrap();
        let (conn, other) = connections(&dir);
        let shared = Shared::for_test();
        let mut seen = look(&conn, &shared, None).unwrap();
        for number in 1..4 {
            let before = shared.signals.mark();
            write(&other, number);
            for _ in 0..2 {
                seen = look(&conn, &shared, seen).unwrap();
                assert_eq!(shared.signals.mark().0, before.0 + 1, "entry {number}");
            }
            assert_eq!(shared.feed_end.load(Ordering::SeqCst), number);
        }
    }

    #[test]
    fn a_look_that_fails_is_made_again() {
        let dir = tempfile::tempdir().unwrap();
        let (conn, other) = connections(&dir);
        let shared = Shared::for_test();
        let before = shared.signals.mark();
        write(&other, 1);
        // In this connection's eyes the feed cannot be read, which leaves the version of the file as it is.
        conn.execute_batch("CREATE TEMP VIEW windlass_feed AS SELECT 'x' AS number").unwrap();
        let seen = look(&conn, &shared, None).unwrap_or(None);
        assert_eq!(shared.signals.mark(), before);
        conn.execute_batch("DROP VIEW temp.windlass_feed").unwrap();
        look(&conn, &shared, seen).unwrap();
        assert_ne!(shared.signals.mark(), before);
    }
}
