//! What the store of the guide promises about its file: what was answered is there after a restart, and a step is there
//! as a whole or not at all, wherever the file was cut.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed check of a test is a panic")]

#[path = "../examples/own_store.rs"]
#[allow(dead_code, reason = "the example also has the suite")]
mod own_store;

use own_store::OwnStore;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use windlass_core::Error;
use windlass_core::id::JobId;
use windlass_core::job::{JobSpec, NewJob, State};
use windlass_core::name::{Kind, Labels, QueueName, WorkerId};
use windlass_core::payload::Payload;
use windlass_core::store::{
    ClaimRequest, Durability, EnqueueRequest, JobQueue, Kinds, Outcome, OutcomeKind, ReportRequest, Store,
};
use windlass_core::time::{Timestamp, VirtualClock};

fn open(path: &Path) -> Result<OwnStore, Error> {
    open_with(path, true)
}

fn open_with(path: &Path, sync: bool) -> Result<OwnStore, Error> {
    OwnStore::open(path, sync, Arc::new(VirtualClock::new(Timestamp::from_ms(1_700_000_000_000))))
}

fn jobs(ids: std::ops::Range<u128>) -> EnqueueRequest {
    let spec = JobSpec::new(QueueName::new("q").unwrap(), Kind::new("k").unwrap(), Payload::default());
    EnqueueRequest::new(ids.map(|id| NewJob::new(JobId::from_parts(0, id), spec.clone())).collect())
}

async fn states(store: &OwnStore, ids: std::ops::Range<u128>) -> Vec<Option<State>> {
    let found = store.get(ids.map(|id| JobId::from_parts(0, id)).collect()).await.unwrap();
    found.into_iter().map(|job| job.map(|job| job.state)).collect()
}

/// Enqueues three jobs, claims one, completes it: four steps.
async fn work(store: &OwnStore) {
    store.enqueue(jobs(1..3)).await.unwrap();
    store.enqueue(jobs(3..4)).await.unwrap();
    let worker = WorkerId::new("w").unwrap();
    let request = ClaimRequest {
        worker: worker.clone(),
        request_id: 1,
        queues: vec![QueueName::new("q").unwrap()],
        kinds: Kinds::Any,
        labels: Labels::default(),
        max: 1,
        lease_ms: 30_000,
    };
    let lease = store.claim(request).await.unwrap().jobs[0].lease;
    let kind = OutcomeKind::Complete { result: None, outputs: [].into() };
    let outcomes = vec![Outcome { lease, kind }];
    store.report(ReportRequest { worker, outcomes }).await.unwrap().remove(0).unwrap();
}

#[tokio::test]
async fn what_was_answered_is_there_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.log");
    let store = open(&path).unwrap();
    assert_eq!(store.info().await.unwrap().durability, Durability::Power);
    work(&store).await;
    assert!(matches!(open(&path), Err(Error::Unavailable { .. })), "two on one log");
    store.close().await.unwrap();
    let store = open(&path).unwrap();
    assert_eq!(states(&store, 1..5).await, [Some(State::Succeeded), Some(State::Ready), Some(State::Ready), None]);
}

#[tokio::test]
async fn a_log_that_was_cut_anywhere_holds_the_steps_before_the_cut() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.log");
    let store = open_with(&path, false).unwrap();
    work(&store).await;
    store.close().await.unwrap();
    let whole = fs::read(&path).unwrap();
    let (ready, active, done) = (Some(State::Ready), Some(State::Active), Some(State::Succeeded));
    let stages = [
        vec![None, None, None],
        vec![ready, ready, None],
        vec![ready, ready, ready],
        vec![active, ready, ready],
        vec![done, ready, ready],
    ];
    let mut reached = 0;
    for cut in (0..whole.len()).step_by(17).chain([whole.len()]) {
        // A page that never came is zeros: the tail may have its length already.
        let tail = if cut % 2 == 0 { vec![0; (whole.len() - cut).min(4_096)] } else { Vec::new() };
        fs::write(&path, [&whole[..cut], &tail].concat()).unwrap();
        let store = open_with(&path, false).unwrap();
        let found = states(&store, 1..4).await;
        let stage =
            stages.iter().position(|stage| *stage == found).unwrap_or_else(|| panic!("cut at {cut}: {found:?}"));
        assert!(stage >= reached, "cut at {cut}: a later cut holds less");
        reached = stage;
        // It goes on from there.
        store.enqueue(jobs(9..10)).await.unwrap();
        store.close().await.unwrap();
        assert_eq!(states(&open_with(&path, false).unwrap(), 9..10).await, [ready], "cut at {cut}");
    }
    assert_eq!(reached, stages.len() - 1);
}

#[tokio::test]
async fn a_log_that_is_damaged_before_its_end_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.log");
    let store = open(&path).unwrap();
    work(&store).await;
    store.close().await.unwrap();
    let mut bytes = fs::read(&path).unwrap();
    bytes[40] ^= 1;
    fs::write(&path, bytes).unwrap();
    assert!(matches!(open(&path), Err(Error::Corrupt { .. })));
}

/// Code that is quoted must be code that runs.
#[test]
fn the_guide_quotes_the_example() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let guide = fs::read_to_string(folder.join("../../docs/write-your-own-store.md")).unwrap();
    let example = fs::read_to_string(folder.join("examples/own_store.rs")).unwrap();
    let quotes: Vec<&str> = guide.split("```rust\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(quotes.len() >= 4, "the guide quotes {} pieces", quotes.len());
    for quote in quotes {
        assert!(example.contains(quote), "not in the example:\n{quote}");
    }
}
