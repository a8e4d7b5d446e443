//! The floor: the least that a leased queue costs on SQLite, with nothing around it.
//!
//! One table and one index, `synchronous=FULL`, claim n and complete n as two transactions. No groups, no counters, no
//! feed, no retries.

use crate::report::{real, seconds};
use rusqlite::{Connection, params};
use std::path::Path;

const PAYLOAD: &[u8] = &[b'x'; 100];

fn open(dir: &Path) -> Connection {
    let conn = Connection::open(dir.join("floor.db")).unwrap();
    conn.execute_batch(
        "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA cache_size=-65536; PRAGMA wal_autocheckpoint=4096;
         DROP TABLE IF EXISTS jobs;
         CREATE TABLE jobs (id INTEGER PRIMARY KEY, state INTEGER, ord INTEGER, token INTEGER, payload BLOB);
         CREATE INDEX jobs_ready ON jobs (state, ord);",
    )
    .unwrap();
    conn
}

fn insert(conn: &Connection, from: usize, n: usize) {
    conn.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut add = conn.prepare_cached("INSERT INTO jobs VALUES (?1, 0, ?1, NULL, ?2)").unwrap();
    for id in from..from + n {
        add.execute(params![sql(id), PAYLOAD]).unwrap();
    }
    drop(add);
    conn.execute_batch("COMMIT").unwrap();
}

/// Jobs per second, claim and complete, `batch` at a time.
pub(crate) fn drain(dir: &Path, jobs: usize, batch: usize) -> f64 {
    let conn = open(dir);
    for from in (0..jobs).step_by(10_000) {
        insert(&conn, from, 10_000.min(jobs - from));
    }
    let spent = seconds(|| {
        let mut done = 0;
        while done < jobs {
            let ids = claim(&conn, batch, done);
            complete(&conn, &ids, done);
            done += ids.len();
        }
    });
    real(jobs) / spent
}

fn claim(conn: &Connection, batch: usize, token: usize) -> Vec<i64> {
    conn.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut find = conn.prepare_cached("SELECT id, payload FROM jobs WHERE state = 0 ORDER BY ord LIMIT ?1").unwrap();
    let found = find.query_map([sql(batch)], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    let found: Vec<(i64, Vec<u8>)> = found.map(Result::unwrap).collect();
    let mut take = conn.prepare_cached("UPDATE jobs SET state = 1, token = ?2 WHERE id = ?1").unwrap();
    for (id, _) in &found {
        take.execute(params![id, sql(token)]).unwrap();
    }
    drop((find, take));
    conn.execute_batch("COMMIT").unwrap();
    found.into_iter().map(|(id, _)| id).collect()
}

fn complete(conn: &Connection, ids: &[i64], token: usize) {
    conn.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut end = conn.prepare_cached("UPDATE jobs SET state = 2 WHERE id = ?1 AND state = 1 AND token = ?2").unwrap();
    for id in ids {
        assert_eq!(end.execute(params![id, sql(token)]).unwrap(), 1);
    }
    drop(end);
    conn.execute_batch("COMMIT").unwrap();
}

/// Jobs per second, enqueued `batch` at a time.
pub(crate) fn enqueue(dir: &Path, jobs: usize, batch: usize) -> f64 {
    let conn = open(dir);
    let spent = seconds(|| {
        for from in (0..jobs).step_by(batch) {
            insert(&conn, from, batch.min(jobs - from));
        }
    });
    real(jobs) / spent
}

fn sql(n: usize) -> i64 {
    i64::try_from(n).unwrap()
}
