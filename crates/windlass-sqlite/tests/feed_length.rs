//! The length of the feed in an SQLite file: bounded work per step, and what is stored. The suite has the rest.

#![allow(clippy::unwrap_used, reason = "a failed check is a panic")]

use std::path::Path;
use std::sync::Arc;
use windlass_core::id::Ids;
use windlass_core::job::{JobSpec, NewJob};
use windlass_core::payload::Payload;
use windlass_core::random::StrongRandom;
use windlass_core::store::{EnqueueRequest, Feed as _, JobQueue as _};
use windlass_core::time::SystemClock;
use windlass_sqlite::SqliteStore;
use windlass_sqlite::rusqlite::Connection;

async fn enqueue(store: &SqliteStore) {
    let ids = Ids::new(Arc::new(SystemClock), Arc::new(StrongRandom::from_system()));
    let spec = JobSpec::new("q".try_into().unwrap(), "work".try_into().unwrap(), Payload::default());
    store.enqueue(EnqueueRequest::new(vec![NewJob::new(ids.next(), spec)])).await.unwrap().remove(0).unwrap();
}

fn rows(path: &Path) -> i64 {
    Connection::open(path).unwrap().query_row("SELECT count(*) FROM windlass_feed", [], |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn a_step_deletes_a_bounded_number_of_rows() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs.db");
    drop(SqliteStore::open(&path).unwrap());
    // A row and an event per entry.
    let fill = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<3500)
                INSERT INTO windlass_feed(number,first,total,events) SELECT i,i,i,x'' FROM n";
    Connection::open(&path).unwrap().execute_batch(fill).unwrap();
    let store = SqliteStore::open(&path).unwrap();
    store.set_feed_events(1_000).await.unwrap();
    for left in [2_501, 1_502, 1_000, 1_000] {
        enqueue(&store).await;
        assert_eq!(rows(&path), left);
    }
}

#[tokio::test]
async fn a_length_that_cannot_be_read_is_the_default() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs.db");
    let store = SqliteStore::open(&path).unwrap();
    store.set_feed_events(2_000).await.unwrap();
    drop(store);
    assert_eq!(SqliteStore::open(&path).unwrap().feed_events().await.unwrap(), 2_000, "it is stored");
    for stored in ["'nonsense'", "x'00ff'", "-5", "0", "999", "10000001", "1.5"] {
        let sql = format!("UPDATE windlass_meta SET value={stored} WHERE key='feed_events'");
        Connection::open(&path).unwrap().execute_batch(&sql).unwrap();
        let store = SqliteStore::open(&path).unwrap();
        assert_eq!(store.feed_events().await.unwrap(), 100_000, "{stored}");
        enqueue(&store).await;
    }
}
