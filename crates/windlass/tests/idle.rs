//! A worker that has nothing to do leaves the disk and the processor alone.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed check is a panic")]

use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use windlass::core::store::Store;
use windlass::core::time::HANG_GUARD;
use windlass::{Client, Job, JobError, Options, Worker};
use windlass_sqlite::SqliteStore;
use windlass_sqlite::rusqlite::Connection;

#[derive(Serialize, Deserialize)]
struct Task;
impl Job for Task {
    const KIND: &'static str = "task";
    type Output = ();
}

async fn task(_job: Task) -> Result<(), JobError> {
    Ok(())
}

/// What the disk has seen: what others may have committed, and the files' lengths and times.
#[derive(Debug, PartialEq, Eq)]
struct Disk {
    version: i64,
    files: Vec<(String, u64, SystemTime)>,
}

impl Disk {
    fn look(dir: &Path, outside: &Connection) -> Self {
        let version = outside.query_row("PRAGMA data_version", [], |row| row.get(0)).unwrap();
        let files = std::fs::read_dir(dir).unwrap().map(|entry| {
            let entry = entry.unwrap();
            let about = entry.metadata().unwrap();
            (entry.file_name().into_string().unwrap(), about.len(), about.modified().unwrap())
        });
        // The index of the log is shared memory, which readers write to as well.
        let mut files: Vec<_> = files.filter(|(name, ..)| !name.ends_with("-shm")).collect();
        files.sort();
        Self { version, files }
    }
}

/// How long all threads of this process have run.
fn cpu_time() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let ns = tasks.filter_map(|task| {
        let text = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(ns.sum())
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "the test's own task")]
async fn slow_an_idle_worker_writes_nothing_and_hardly_runs() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs.db");
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&path).unwrap());
    let client = Client::new(Arc::clone(&store));
    let worker = Worker::builder(Arc::clone(&store)).handle(task).build().unwrap();
    let stopper = worker.stopper();
    let running = tokio::spawn(worker.run_until_stopped());
    // It has worked, and there is something to come, much later.
    client.enqueue_with(Task, Options::new().delay(Duration::from_secs(3_600))).await.unwrap();
    client.enqueue(Task).await.unwrap().wait(HANG_GUARD).await.unwrap().success().unwrap();
    let told = async {
        while store.workers().await.unwrap().first().is_none_or(|worker| worker.beat.running > 0) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(HANG_GUARD, told).await.expect("it says that it is idle");
    let outside = Connection::open(&path).unwrap();
    // The keeper may just have taken note of the last job; then its next look says that the worker is idle.
    let rests = async {
        let mut last = Disk::look(dir.path(), &outside);
        loop {
            // sleeps because: that is longer than the time between two looks of the keeper
            tokio::time::sleep(Duration::from_millis(1_200)).await;
            let now = Disk::look(dir.path(), &outside);
            if now == last {
                return;
            }
            last = now;
        }
    };
    tokio::time::timeout(HANG_GUARD, rests).await.expect("it comes to rest");
    let (before, ran) = (Disk::look(dir.path(), &outside), cpu_time());
    let watched = Duration::from_secs(5);
    // sleeps because: nothing may happen meanwhile
    tokio::time::sleep(watched).await;
    let (after, ran) = (Disk::look(dir.path(), &outside), cpu_time() - ran);
    assert_eq!(before, after, "an idle worker has written");
    assert!(before.files.iter().any(|(name, ..)| name.ends_with("-wal")), "{before:?}");
    // Under 1% when optimised; what a debug build and this test itself take comes on top.
    println!("an idle worker took {ran:?} of {watched:?}");
    assert!(ran < watched / 50, "an idle worker took {ran:?} of {watched:?}");
    // The same eyes see a job.
    client.enqueue(Task).await.unwrap();
    assert_ne!(after, Disk::look(dir.path(), &outside));
    stopper.drain();
    running.await.unwrap().unwrap();
}
