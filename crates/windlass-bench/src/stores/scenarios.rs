//! What is measured.

use super::load::{Load, Shape};
use super::{Settings, print, real, seconds};
use std::sync::Arc;
use windlass_bench::floor::{self, Floor, SqliteFloor};
use windlass_bench::{Line, median};
use windlass_core::job::NewJob;
use windlass_core::store::EnqueueRequest;
use windlass_sqlite::Synchronous;

type Scenario = (&'static str, fn(&Settings));

pub(crate) const ALL: [Scenario; 6] = [
    ("sqlite-drain", sqlite_drain),
    ("sqlite-enqueue", sqlite_enqueue),
    ("memory-drain", memory_drain),
    ("scale", scale),
    ("groups", groups),
    ("labels", labels),
];

fn sqlite_drain(settings: &Settings) {
    let (jobs, batch) = (settings.jobs(100_000), 1_000);
    let folder = settings.folder();
    let bare = SqliteFloor::new(folder.path());
    let floor = settings.median(|| bare.drain(floor::Load { jobs, batch }).unwrap());
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
        let spent = one_by_one(&load, jobs, tasks);
        let (steps, commits) = load.sqlite.as_ref().unwrap().group_commit();
        batch = real(usize::try_from(steps).unwrap()) / real(usize::try_from(commits).unwrap());
        real(jobs) / spent
    });
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a batch size")]
    let reached = batch.round() as usize;
    let bare = SqliteFloor::new(folder.path());
    let floor = settings.median(|| bare.enqueue(floor::Load { jobs, batch: reached }).unwrap());
    let line = Line::new("enqueue-one-by-one", "sqlite").with("jobs", jobs).with("tasks", tasks);
    print(&line.with("batch_mean", batch).beside(ours, floor));
}

/// Each of `tasks` tasks enqueues one job at a time and waits for its answer.
#[expect(clippy::disallowed_methods, reason = "the benchmark's own tasks")]
fn one_by_one(load: &Load, jobs: usize, tasks: usize) -> f64 {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
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

/// Microseconds per job for enqueue, claim and complete.
#[derive(Clone, Copy, Debug, Default)]
struct Cost([f64; 3]);

/// The cost at a backlog of `stored` jobs; a small backlog is measured on several fresh stores.
fn cost(open: &dyn Fn() -> Load, stored: usize, jobs: usize, shape: Shape) -> Cost {
    let batch = 250;
    let stores = (jobs / stored).max(1);
    let each = jobs / stores;
    let mut spent = [0.0; 3];
    for _ in 0..stores {
        let mut load = open();
        load.enqueue(stored, 10_000.min(stored), shape);
        spent[0] += load.enqueue(each, batch, shape);
        let (claiming, completing) = load.drain(each, 250);
        spent[1] += claiming;
        spent[2] += completing;
    }
    Cost(spent.map(|s| s * 1e6 / real(stores * each)))
}

/// The median of each cost on its own.
fn median_cost(settings: &Settings, measure: &dyn Fn() -> Cost) -> Cost {
    let all: Vec<Cost> = (0..settings.rounds()).map(|_| measure()).collect();
    Cost([0, 1, 2].map(|i| median(all.iter().map(|cost| cost.0[i]).collect())))
}

fn compare(scenario: &str, settings: &Settings, small: (usize, Shape), large: (usize, Shape)) {
    let folder = settings.folder();
    let jobs = settings.jobs(20_000);
    // Without the wait for the disk, which would hide what grows.
    let sqlite = || Load::sqlite(folder.path(), Synchronous::Normal);
    let stores: [(&str, &dyn Fn() -> Load); 2] = [("memory", &Load::memory), ("sqlite", &sqlite)];
    for (name, open) in stores {
        let base = median_cost(settings, &|| cost(open, small.0, jobs, small.1));
        let grown = median_cost(settings, &|| cost(open, large.0, jobs, large.1));
        let [enqueue, claim, complete] = [0, 1, 2].map(|i| grown.0[i] / base.0[i]);
        let whole = grown.0.iter().sum::<f64>() / base.0.iter().sum::<f64>();
        let line = Line::new(scenario, name).with("enqueue_us", grown.0[0]).with("claim_us", grown.0[1]);
        let line = line.with("complete_us", grown.0[2]).with("enqueue_ratio", enqueue).with("claim_ratio", claim);
        print(&line.with("complete_ratio", complete).with("ratio", whole));
    }
}

fn scale(settings: &Settings) {
    compare("scale-10^6-against-10^3", settings, (1_000, Shape::Plain), (settings.jobs(1_000_000), Shape::Plain));
}

fn groups(settings: &Settings) {
    let many = settings.jobs(100_000);
    compare("groups-10^5-against-plain", settings, (many, Shape::Plain), (many, Shape::Groups(many)));
}

fn labels(settings: &Settings) {
    let many = settings.jobs(100_000);
    compare("labels-10^3-against-plain", settings, (many, Shape::Plain), (many, Shape::LabelSets(1_000)));
}
