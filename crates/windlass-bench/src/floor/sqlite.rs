//! The floor on SQLite: one table and one index, claim n and complete n as two transactions.

use super::{Bare, Beat, Floor, FloorError, Load, PAYLOAD_BYTES, Way};
use crate::time::{Pace, Samples, Stopwatch};
use rusqlite::{Connection, params};
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use windlass_sqlite::SqliteStore;

const PAYLOAD: &[u8] = &[b'x'; PAYLOAD_BYTES];
/// Rows of a transaction while the table is filled.
const FILL: usize = 10_000;
/// What a small commit writes.
const PAGE: &[u8] = &[0; 4_096];

/// A bare table in a folder of its own, beside the file that is measured.
#[derive(Clone, Debug)]
pub struct SqliteFloor {
    dir: PathBuf,
    synchronous: &'static str,
    store: Option<Arc<SqliteStore>>,
}

impl SqliteFloor {
    /// In this folder, as durable as the store is by default.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), synchronous: "FULL", store: None }
    }

    /// Not waiting for the disk, like a store that does not.
    #[must_use]
    pub fn without_waiting(mut self) -> Self {
        self.synchronous = "NORMAL";
        self
    }

    /// Beside this store, whose commits are counted.
    #[must_use]
    pub fn of(mut self, store: Arc<SqliteStore>) -> Self {
        self.store = Some(store);
        self
    }

    /// Gone when it is dropped.
    fn folder(&self) -> Result<tempfile::TempDir, FloorError> {
        Ok(tempfile::Builder::new().prefix(".windlass-floor-").tempdir_in(&self.dir)?)
    }

    fn open(&self, folder: &Path) -> Result<Connection, FloorError> {
        let conn = Connection::open(folder.join("floor.db"))?;
        conn.execute_batch(&format!(
            "PRAGMA journal_mode=WAL; PRAGMA synchronous={}; PRAGMA cache_size=-65536; PRAGMA wal_autocheckpoint=4096;
             CREATE TABLE jobs (id INTEGER PRIMARY KEY, state INTEGER, ord INTEGER, token INTEGER, payload BLOB);
             CREATE INDEX jobs_ready ON jobs (state, ord);",
            self.synchronous
        ))?;
        Ok(conn)
    }
}

impl Floor for SqliteFloor {
    fn enqueue(&self, load: Load) -> Result<Bare, FloorError> {
        let folder = self.folder()?;
        let conn = self.open(folder.path())?;
        let watch = Stopwatch::start();
        fill(&conn, load)?;
        Ok(Bare::from(load.jobs as f64 / watch.seconds()))
    }

    fn drain(&self, load: Load) -> Result<Bare, FloorError> {
        let folder = self.folder()?;
        let conn = self.open(folder.path())?;
        fill(&conn, Load { batch: FILL, ..load })?;
        let watch = Stopwatch::start();
        let mut done = 0;
        while done < load.jobs {
            let ids = claim(&conn, load.batch, done)?;
            complete(&conn, &ids, done)?;
            done += ids.len();
        }
        Ok(Bare::from(load.jobs as f64 / watch.seconds()))
    }

    /// One commit for the enqueue, one for the claim.
    fn way(&self, beat: Beat) -> Result<Way, FloorError> {
        let folder = self.folder()?;
        let mut file = std::fs::File::create(folder.path().join("synced"))?;
        let pace = Pace::start(beat.rate);
        let mut all = Vec::new();
        for n in 0..beat.count {
            pace.wait(n);
            let watch = Stopwatch::start();
            // In place, like a log that has been written before: a file that grows costs more.
            file.rewind()?;
            file.write_all(PAGE)?;
            file.sync_all()?;
            all.push(watch.seconds() * 1e6);
        }
        Ok(Way { step: "fsync", steps: 2, step_us: Samples::new(all) })
    }

    fn group_commit(&self) -> Option<(u64, u64)> {
        self.store.as_ref().map(|store| store.group_commit())
    }
}

fn fill(conn: &Connection, load: Load) -> Result<(), FloorError> {
    for from in (0..load.jobs).step_by(load.batch) {
        conn.execute_batch("BEGIN IMMEDIATE")?;
        let mut add = conn.prepare_cached("INSERT INTO jobs VALUES (?1, 0, ?1, NULL, ?2)")?;
        for id in from..from + load.batch.min(load.jobs - from) {
            add.execute(params![sql(id), PAYLOAD])?;
        }
        drop(add);
        conn.execute_batch("COMMIT")?;
    }
    Ok(())
}

fn claim(conn: &Connection, batch: usize, token: usize) -> Result<Vec<i64>, FloorError> {
    conn.execute_batch("BEGIN IMMEDIATE")?;
    let mut find = conn.prepare_cached("SELECT id, payload FROM jobs WHERE state = 0 ORDER BY ord LIMIT ?1")?;
    let found = find.query_map([sql(batch)], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let found: Vec<(i64, Vec<u8>)> = found.collect::<Result<_, _>>()?;
    let mut take = conn.prepare_cached("UPDATE jobs SET state = 1, token = ?2 WHERE id = ?1")?;
    for (id, _) in &found {
        take.execute(params![id, sql(token)])?;
    }
    drop((find, take));
    conn.execute_batch("COMMIT")?;
    if found.is_empty() {
        return Err(FloorError::Other("its table ran dry".to_owned()));
    }
    Ok(found.into_iter().map(|(id, _)| id).collect())
}

fn complete(conn: &Connection, ids: &[i64], token: usize) -> Result<(), FloorError> {
    conn.execute_batch("BEGIN IMMEDIATE")?;
    let mut end = conn.prepare_cached("UPDATE jobs SET state = 2 WHERE id = ?1 AND state = 1 AND token = ?2")?;
    for id in ids {
        if end.execute(params![id, sql(token)])? != 1 {
            return Err(FloorError::Other(format!("its job {id} was not leased")));
        }
    }
    drop(end);
    conn.execute_batch("COMMIT")?;
    Ok(())
}

fn sql(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}
