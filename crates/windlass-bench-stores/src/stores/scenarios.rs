//! What is measured.

use super::load::{Load, Shape};
use super::{Settings, growth, print, real, redis, seconds};
use std::sync::Arc;
use tokio::runtime::Runtime;
use windlass_bench::Line;
use windlass_bench::floor::{self, Floor, SqliteFloor};
use windlass_core::job::NewJob;
use windlass_core::store::EnqueueRequest;
use windlass_sqlite::Synchronous;

type Scenario = (&'static str, fn(&Settings));

pub(crate) const ALL: [Scenario; 9] = [
    ("sqlite-drain", sqlite_drain),
    ("sqlite-enqueue", sqlite_enqueue),
    ("memory-drain", memory_drain),
    ("redis-drain", redis::drain),
    ("redis-enqueue", redis::enqueue),
    ("redis-bulk", redis::bulk),
    ("scale", growth::scale),
    ("groups", growth::groups),
    ("labels", growth::labels),
];

fn sqlite_drain(settings: &Settings) {
    let (jobs, batch) = (settings.jobs(100_000), 1_000);
    let folder = settings.folder();
    let bare = SqliteFloor::new(folder.path());
    let floor = settings.median(|| bare.drain(floor::Load::new(jobs, batch)).unwrap().per_s);
    let ours = settings.median(|| {
        let mut load = Load::sqlite(folder.path(), Synchronous::Full);
        load.enqueue(jobs, 10_000, Shape::Plain);
        let (claiming, completing) = load.drain(jobs, 1_000);
        real(jobs) / (claiming + completing)
    });
    print(&Line::new("drain", "sqlite").with("jobs", jobs).with("batch", batch).beside(ours, floor));
}

fn sqlite_enqueue(settings: &Settings) {
    let (jobs, tasks) = (settings.jobs(40_000), 256);
    let folder = settings.folder();
    let mut batch = 1.0;
    let ours = settings.median(|| {
        let load = Load::sqlite(folder.path(), Synchronous::Full);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let spent = one_by_one(&load, &runtime, jobs, tasks);
        let (steps, commits) = load.sqlite.as_ref().unwrap().group_commit();
        batch = real(usize::try_from(steps).unwrap()) / real(usize::try_from(commits).unwrap());
        real(jobs) / spent
    });
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a batch size")]
    let reached = batch.round() as usize;
    let bare = SqliteFloor::new(folder.path());
    let floor = settings.median(|| bare.enqueue(floor::Load::new(jobs, reached)).unwrap().per_s);
    let line = Line::new("enqueue-one-by-one", "sqlite").with("jobs", jobs).with("tasks", tasks);
    print(&line.with("batch_mean", batch).beside(ours, floor));
}

/// Each of `tasks` tasks enqueues one job at a time and waits for its answer.
#[expect(clippy::disallowed_methods, reason = "the benchmark's own tasks")]
pub(super) fn one_by_one(load: &Load, runtime: &Runtime, jobs: usize, tasks: usize) -> f64 {
    let store = &load.store;
    seconds(|| {
        runtime.block_on(async {
            let running: Vec<_> = (0..tasks)
                .map(|_| {
                    let (store, ids, spec) = (Arc::clone(store), load.ids.clone(), load.template.clone());
                    tokio::spawn(async move {
                        for _ in 0..jobs / tasks {
                            let job = NewJob::new(ids.next(), spec.clone());
                            store.enqueue(EnqueueRequest::new(vec![job])).await.unwrap().remove(0).unwrap();
                        }
                    })
                })
                .collect();
            for task in running {
                task.await.unwrap();
            }
        });
    })
}

fn memory_drain(settings: &Settings) {
    let jobs = settings.jobs(500_000);
    let ours = settings.median(|| {
        let mut load = Load::memory();
        load.enqueue(jobs, 10_000, Shape::Plain);
        let (claiming, completing) = load.drain(jobs, 64);
        real(jobs) / (claiming + completing)
    });
    print(&Line::new("drain", "memory").with("jobs", jobs).with("batch", 64_u32).with("jobs_per_s", ours));
}
