//! Enqueue inside the caller's own transaction.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use std::path::Path;
use std::time::Duration;
use support::{block, claim, counts, enqueue, job, job_with, quick, raw, report, try_open};
use windlass_core::Error;
use windlass_core::job::{Dedup, DedupBy, DedupMode, NewJob};
use windlass_core::store::{EnqueueRequest, Enqueued, JobQueue, Store, WaitFor};
use windlass_core::time::HANG_GUARD;
use windlass_sqlite::rusqlite::{Connection, TransactionBehavior};
use windlass_sqlite::{Options, SqliteStore};

/// An application's database with a table of its own, and a store beside it.
fn application(path: &Path) -> (Connection, SqliteStore) {
    let conn = raw(path);
    conn.execute_batch("CREATE TABLE orders (item TEXT)").unwrap();
    let store = try_open(Options { adopt: true, ..quick(path) }).unwrap();
    (conn, store)
}

fn orders(conn: &Connection) -> u32 {
    conn.query_row("SELECT count(*) FROM orders", [], |row| row.get(0)).unwrap()
}

fn one(job: NewJob) -> EnqueueRequest {
    EnqueueRequest::new(vec![job])
}

#[test]
fn a_job_is_there_when_and_only_when_the_callers_rows_are() {
    let dir = tempfile::tempdir().unwrap();
    let (mut conn, store) = application(&dir.path().join("app.db"));
    block(async {
        let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        tx.execute("INSERT INTO orders VALUES ('rope')", []).unwrap();
        let answers = store.enqueue_in(&tx, one(job())).unwrap();
        assert!(matches!(answers[..], [Ok(Enqueued::Created { .. })]));
        assert_eq!(counts(&store).await.ready, 0, "nobody sees it before the commit");
        tx.commit().unwrap();
        assert_eq!((orders(&conn), counts(&store).await.ready), (1, 1));

        let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        tx.execute("INSERT INTO orders VALUES ('sail')", []).unwrap();
        store.enqueue_in(&tx, one(job())).unwrap().remove(0).unwrap();
        tx.rollback().unwrap();
        assert_eq!((orders(&conn), counts(&store).await.ready), (1, 1));

        // The store goes on as if nothing had been: its own numbers are those of the file.
        enqueue(&store, vec![job()]).await;
        for job in claim(&store, "w", 10).await {
            report(&store, "w", job.lease).await.unwrap();
        }
        assert_eq!(counts(&store).await.succeeded, 2);
        assert_eq!(counts(&store).await, support::recount(&dir.path().join("app.db")));
    });
}

#[test]
fn keys_count_inside_the_transaction_too() {
    let dir = tempfile::tempdir().unwrap();
    let (mut conn, store) = application(&dir.path().join("app.db"));
    let keyed = || {
        job_with(|spec| {
            let by = DedupBy::Key("order-7".try_into().unwrap());
            spec.dedup = Some(Dedup { by, mode: DedupMode::Reject, ttl_ms: None });
        })
    };
    block(async {
        let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        let (first, second) = (keyed(), keyed());
        let id = first.id;
        let answers = store.enqueue_in(&tx, EnqueueRequest::new(vec![first.clone(), second])).unwrap();
        assert_eq!(answers, vec![Ok(Enqueued::Created { id }), Ok(Enqueued::Deduplicated { by: id })]);
        tx.commit().unwrap();
        let outside = support::enqueue_one(&store, keyed()).await;
        assert_eq!(outside, Ok(Enqueued::Deduplicated { by: id }));

        // The same job again is the same job; the key that a rolled back job took is free.
        let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        assert_eq!(store.enqueue_in(&tx, one(first)).unwrap(), vec![Ok(Enqueued::Existing { id })]);
        tx.commit().unwrap();
        let leased = claim(&store, "w", 1).await.remove(0);
        report(&store, "w", leased.lease).await.unwrap();
        let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        store.enqueue_in(&tx, one(keyed())).unwrap().remove(0).unwrap();
        tx.rollback().unwrap();
        assert!(matches!(support::enqueue_one(&store, keyed()).await, Ok(Enqueued::Created { .. })));
    });
}

#[test]
fn whoever_waits_for_work_is_woken() {
    let dir = tempfile::tempdir().unwrap();
    let (mut conn, store) = application(&dir.path().join("app.db"));
    block(async {
        let claimed = store.claim(support::claim_request("w", 1)).await.unwrap();
        let wait = store.wait(WaitFor::Work { queues: vec!["q".try_into().unwrap()], mark: claimed.mark });
        let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        store.enqueue_in(&tx, one(job())).unwrap().remove(0).unwrap();
        tx.commit().unwrap();
        // Only the signal ends the wait; the time is there for a run that would hang.
        tokio::time::timeout(HANG_GUARD, wait).await.expect("woken").unwrap();
        assert_eq!(claim(&store, "w", 1).await.len(), 1);
    });
}

#[test]
fn the_store_that_writes_next_hides_no_work() {
    let dir = tempfile::tempdir().unwrap();
    let (mut conn, store) = application(&dir.path().join("app.db"));
    block(async {
        let claimed = store.claim(support::claim_request("w", 1)).await.unwrap();
        let wait = store.wait(WaitFor::Work { queues: vec!["q".try_into().unwrap()], mark: claimed.mark });
        let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        store.enqueue_in(&tx, one(job())).unwrap().remove(0).unwrap();
        tx.commit().unwrap();
        // An entry of our own in the feed, before anybody can have noticed the other one.
        let elsewhere = job_with(|spec| spec.queue = "elsewhere".try_into().unwrap());
        enqueue(&store, vec![elsewhere]).await;
        // Only the signal ends the wait; the time is there for a run that would hang.
        tokio::time::timeout(HANG_GUARD, wait).await.expect("woken").unwrap();
        assert_eq!(claim(&store, "w", 1).await.len(), 1);
    });
}

#[test]
fn a_job_that_is_refused_leaves_the_transaction_usable() {
    let dir = tempfile::tempdir().unwrap();
    let (mut conn, store) = application(&dir.path().join("app.db"));
    block(async {
        let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        let bad = job_with(|spec| spec.attempts = 0);
        let answers = store.enqueue_in(&tx, EnqueueRequest::new(vec![bad, job()])).unwrap();
        assert!(matches!(&answers[..], [Err(Error::Invalid { .. }), Ok(Enqueued::Created { .. })]), "{answers:?}");
        tx.execute("INSERT INTO orders VALUES ('rope')", []).unwrap();
        tx.commit().unwrap();
        assert_eq!((orders(&conn), counts(&store).await.ready), (1, 1));
    });
}

#[test]
fn while_somebody_else_writes_the_caller_is_told_that_the_file_is_busy() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("app.db");
    let (mut conn, store) = application(&path);
    conn.busy_timeout(Duration::from_millis(20)).unwrap();
    let holder = raw(&path);
    block(async {
        // Begun without `Immediate`, the transaction learns only when it writes that somebody else does.
        let tx = conn.transaction().unwrap();
        holder.execute_batch("BEGIN IMMEDIATE").unwrap();
        let error = store.enqueue_in(&tx, one(job())).unwrap_err();
        assert!(matches!(&error, Error::Unavailable { .. }), "{error}");
        assert!(error.is_retryable());
        holder.execute_batch("COMMIT").unwrap();
        tx.rollback().unwrap();
        assert_eq!(counts(&store).await.ready, 0);
    });
}

#[test]
fn a_transaction_on_another_file_is_refused_and_left_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let (_, store) = application(&dir.path().join("app.db"));
    // One that has no tables of ours, one that has them, and one that is no file.
    let (other_conn, _other) = application(&dir.path().join("other.db"));
    let mut conns = [raw(&dir.path().join("plain.db")), other_conn, Connection::open_in_memory().unwrap()];
    for conn in &mut conns {
        let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        let error = store.enqueue_in(&tx, one(job())).unwrap_err();
        assert!(matches!(&error, Error::Invalid { field, .. } if field == "transaction"), "{error}");
        assert!(!error.is_retryable());
        tx.execute_batch("CREATE TABLE still_usable (x)").unwrap();
        tx.commit().unwrap();
    }
    // The same file by another way is the same file.
    let by_link = dir.path().join("link.db");
    std::os::unix::fs::symlink(dir.path().join("app.db"), &by_link).unwrap();
    let mut conn = raw(&by_link);
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    store.enqueue_in(&tx, one(job())).unwrap().remove(0).unwrap();
    tx.commit().unwrap();
    block(async { assert_eq!(counts(&store).await.ready, 1) });
}

#[test]
fn a_transaction_that_sqlite_has_rolled_back_is_refused_and_nothing_is_stored() {
    let dir = tempfile::tempdir().unwrap();
    let (mut conn, store) = application(&dir.path().join("app.db"));
    block(async {
        let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        tx.execute("INSERT INTO orders VALUES ('rope')", []).unwrap();
        // As SQLite does by itself after an I/O error.
        tx.execute_batch("ROLLBACK").unwrap();
        for _ in 0..2 {
            let error = store.enqueue_in(&tx, one(job())).unwrap_err();
            assert!(matches!(&error, Error::Invalid { field, .. } if field == "transaction"), "{error}");
        }
        assert!(tx.commit().is_err());
        assert_eq!((orders(&conn), counts(&store).await.ready), (0, 0));
    });
}
