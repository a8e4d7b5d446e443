//! What a job costs when there are many of them, many groups, many sets of labels.

use super::load::{Load, Shape};
use super::{Settings, print, real};
use windlass_bench::{Line, median};
use windlass_sqlite::Synchronous;

const BATCH: u32 = 250;

/// Microseconds per job.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    /// For enqueue, claim and complete.
    time: [f64; 3],
    /// Of the server's processor for enqueue, and for claim and complete; 0 where there is no server.
    cpu: [f64; 2],
}

/// The cost at a backlog of `stored` jobs; a small backlog is measured on several fresh stores.
fn cost(open: &dyn Fn() -> Load, stored: usize, jobs: usize, shape: Shape) -> Cost {
    let stores = (jobs / stored).max(1);
    let each = jobs / stores;
    let mut spent = Cost::default();
    for _ in 0..stores {
        let mut load = open();
        load.enqueue(stored, 10_000.min(stored), shape);
        let mut claiming_and_completing = (0.0, 0.0);
        spent.cpu[0] += cpu_us(&mut load, each, |load| spent.time[0] += load.enqueue(each, BATCH as usize, shape));
        spent.cpu[1] += cpu_us(&mut load, each, |load| claiming_and_completing = load.drain(each, BATCH));
        spent.time[1] += claiming_and_completing.0;
        spent.time[2] += claiming_and_completing.1;
    }
    let per_job = |seconds: f64| seconds * 1e6 / real(stores * each);
    Cost { time: spent.time.map(per_job), cpu: spent.cpu.map(|us| us / real(stores)) }
}

/// Microseconds of the server's processor that `work` took for each job.
fn cpu_us(load: &mut Load, jobs: usize, work: impl FnOnce(&mut Load)) -> f64 {
    let Some(ground) = load.ground.clone() else {
        work(load);
        return 0.0;
    };
    let meter = ground.meter().unwrap();
    work(load);
    meter.stop(u32::try_from(jobs).unwrap()).unwrap().map_or(0.0, |spent| spent.cpu_us)
}

/// The median of each cost on its own.
fn median_cost(settings: &Settings, measure: &dyn Fn() -> Cost) -> Cost {
    let all: Vec<Cost> = (0..settings.rounds()).map(|_| measure()).collect();
    let of = |pick: &dyn Fn(&Cost) -> f64| median(all.iter().map(pick).collect());
    Cost { time: [0, 1, 2].map(|i| of(&|cost| cost.time[i])), cpu: [0, 1].map(|i| of(&|cost| cost.cpu[i])) }
}

/// A backlog and what it is made of.
#[derive(Clone, Copy)]
struct Backlog {
    stored: usize,
    shape: Shape,
}

fn compare(settings: &Settings, small: Backlog, large: &[(&str, Backlog)]) {
    let folder = settings.folder();
    let jobs = settings.jobs(20_000);
    // Without the wait for the disk, which would hide what grows.
    let sqlite = || Load::sqlite(folder.path(), Synchronous::Normal);
    let server = settings.wants("redis").then(|| settings.server());
    let redis = || Load::redis(&server.as_ref().unwrap().0);
    let stores: [(&str, &dyn Fn() -> Load); 3] = [("memory", &Load::memory), ("sqlite", &sqlite), ("redis", &redis)];
    for (name, open) in stores.into_iter().filter(|(name, _)| settings.wants(name)) {
        let base = median_cost(settings, &|| cost(open, small.stored, jobs, small.shape));
        for (scenario, large) in large {
            let grown = median_cost(settings, &|| cost(open, large.stored, jobs, large.shape));
            print(&line(scenario, name, &base, &grown));
        }
    }
}

fn line(scenario: &str, store: &str, base: &Cost, grown: &Cost) -> Line {
    let [enqueue, claim, complete] = [0, 1, 2].map(|i| grown.time[i] / base.time[i]);
    let whole = grown.time.iter().sum::<f64>() / base.time.iter().sum::<f64>();
    let line = Line::new(scenario, store).with("enqueue_us", grown.time[0]).with("claim_us", grown.time[1]);
    let line = line.with("complete_us", grown.time[2]).with("enqueue_ratio", enqueue).with("claim_ratio", claim);
    let line = line.with("complete_ratio", complete).with("ratio", whole);
    let cpu = base.cpu.iter().sum::<f64>();
    if cpu <= 0.0 {
        return line;
    }
    let line = line.with("redis_enqueue_cpu_us_per_job", grown.cpu[0]).with("redis_cpu_us_per_job", grown.cpu[1]);
    line.with("redis_cpu_ratio", grown.cpu.iter().sum::<f64>() / cpu)
}

pub(super) fn scale(settings: &Settings) {
    let of = |stored| Backlog { stored, shape: Shape::Plain };
    compare(settings, of(1_000), &[("scale-10^6-against-10^3", of(settings.jobs(1_000_000)))]);
}

pub(super) fn groups(settings: &Settings) {
    let stored = settings.jobs(1_000_000);
    let of = |shape| Backlog { stored, shape };
    let thousand = ("groups-10^3-against-plain", of(Shape::Groups(1_000)));
    let million = ("groups-10^6-against-plain", of(Shape::Groups(stored)));
    compare(settings, of(Shape::Plain), &[thousand, million]);
}

pub(super) fn labels(settings: &Settings) {
    let of = |shape| Backlog { stored: settings.jobs(100_000), shape };
    compare(settings, of(Shape::Plain), &[("labels-10^3-against-plain", of(Shape::LabelSets(1_000)))]);
}
