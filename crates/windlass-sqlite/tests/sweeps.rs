//! Sweeps of a store on which nothing is due leave the writer and the disk alone.

#![allow(clippy::unwrap_used, reason = "a failed check is a panic")]

use std::sync::Arc;
use windlass_core::id::Ids;
use windlass_core::job::{Due, JobSpec, NewJob};
use windlass_core::payload::Payload;
use windlass_core::random::StrongRandom;
use windlass_core::store::{EnqueueRequest, JobQueue, Sweep, SweepKind, Swept};
use windlass_core::time::SystemClock;
use windlass_sqlite::SqliteStore;
use windlass_sqlite::rusqlite::Connection;

#[tokio::test]
async fn a_sweep_that_finds_nothing_writes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs.db");
    let store = SqliteStore::open(&path).unwrap();
    let ids = Ids::new(Arc::new(SystemClock), Arc::new(StrongRandom::from_system()));
    let spec = JobSpec::new("q".try_into().unwrap(), "work".try_into().unwrap(), Payload::json(&1).unwrap());
    let enqueue = async |due| {
        let job = NewJob::new(ids.next(), spec.clone()).due(due);
        store.enqueue(EnqueueRequest::new(vec![job])).await.unwrap().remove(0).unwrap();
    };
    enqueue(Due::DelayMs(3_600_000)).await;

    let outside = Connection::open(&path).unwrap();
    let version = || outside.query_row("PRAGMA data_version", [], |row| row.get::<_, i64>(0)).unwrap();
    let (before, (_, commits)) = (version(), store.group_commit());
    for kind in [SweepKind::Reap, SweepKind::Promote].into_iter().cycle().take(20) {
        let swept = store.sweep(Sweep { kind, max: 100 }).await.unwrap();
        assert_eq!((swept.handled, swept.more, swept.next_at.is_some()), (0, false, kind == SweepKind::Promote));
    }
    assert_eq!(store.group_commit().1, commits, "the writer was not asked");
    assert_eq!(store.sweep(Sweep { kind: SweepKind::Prune, max: 100 }).await.unwrap(), Swept::default());
    assert_eq!(version(), before, "nothing was written");
    // The same eyes see a job.
    enqueue(Due::Now).await;
    assert_ne!(version(), before);
}
