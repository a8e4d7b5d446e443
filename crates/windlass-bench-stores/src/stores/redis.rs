//! Redis: beside its floor on the same server, with what the server spent.

use super::load::{Load, Shape};
use super::scenarios::one_by_one;
use super::{Settings, print, real};
use std::sync::Arc;
use windlass_bench::floor;
use windlass_bench::{Ground, Line, Spending, median};

/// Jobs of a call while a backlog is made.
const FILL: usize = 1_000;
/// The batch that the floor of Redis is known by.
const BATCH: usize = 64;

/// What the rounds have found out.
#[derive(Default)]
struct Found {
    ours: Vec<f64>,
    floor: Vec<f64>,
    spending: Spending,
}

impl Found {
    fn onto(self, line: Line) -> Line {
        line.beside(median(self.ours), median(self.floor)).spending(&self.spending)
    }
}

pub(super) fn drain(settings: &Settings) {
    let (server, jobs) = (settings.server(), settings.jobs(200_000));
    let (mut found, mut larger) = (Found::default(), Vec::new());
    for _ in 0..settings.rounds() {
        let mut load = Load::redis(&server.0);
        found.spending.note_bytes(bytes_per_job(&mut load, jobs));
        let meter = ground(&load).meter().unwrap();
        found.ours.push(real(jobs) / load.drain_in_two(jobs, 64));
        let spent = meter.stop(u32::try_from(jobs).unwrap()).unwrap();
        found.spending.note(spent);
        let bare = ground(&load).floor.drain(floor::Load::new(jobs, BATCH)).unwrap();
        found.floor.push(found.spending.note_floor(bare));
        larger.push(ground(&load).floor.drain(floor::Load::new(jobs, 4 * BATCH)).unwrap().per_s);
    }
    let line = Line::new("drain", "redis").with("jobs", jobs).with("batch", BATCH).with("tasks", 2_u32);
    print(&found.onto(line).with("floor_256_per_s", median(larger)));
}

/// Fills it; answers what a job that waits takes.
fn bytes_per_job(load: &mut Load, jobs: usize) -> Option<f64> {
    let before = ground(load).memory().unwrap();
    load.enqueue(jobs, FILL, Shape::Plain);
    let after = ground(load).memory().unwrap();
    before.zip(after).map(|(before, after)| after.saturating_sub(before) as f64 / real(jobs))
}

pub(super) fn enqueue(settings: &Settings) {
    let (server, jobs, tasks) = (settings.server(), settings.jobs(100_000), 16);
    let mut found = Found::default();
    for _ in 0..settings.rounds() {
        let load = Load::redis(&server.0);
        let meter = ground(&load).meter().unwrap();
        found.ours.push(real(jobs) / one_by_one(&load, &load.runtime, jobs, tasks));
        let spent = meter.stop(u32::try_from(jobs).unwrap()).unwrap();
        found.spending.note(spent);
        let bare = ground(&load).floor.enqueue(floor::Load { jobs, batch: 1, in_flight: tasks }).unwrap();
        found.floor.push(found.spending.note_floor(bare));
    }
    print(&found.onto(Line::new("enqueue-one-by-one", "redis").with("jobs", jobs).with("tasks", tasks)));
}

pub(super) fn bulk(settings: &Settings) {
    let (server, jobs) = (settings.server(), settings.jobs(200_000));
    let mut found = Found::default();
    for _ in 0..settings.rounds() {
        let mut load = Load::redis(&server.0);
        let before = ground(&load).memory().unwrap();
        let on = Arc::clone(ground(&load));
        let meter = on.meter().unwrap();
        let seconds = load.enqueue(jobs, FILL, Shape::Plain);
        let spent = meter.stop(u32::try_from(jobs).unwrap()).unwrap();
        found.ours.push(real(jobs) / seconds);
        found.spending.note(spent);
        let after = ground(&load).memory().unwrap();
        found.spending.note_bytes(before.zip(after).map(|(from, to)| to.saturating_sub(from) as f64 / real(jobs)));
        let bare = ground(&load).floor.enqueue(floor::Load::new(jobs, FILL)).unwrap();
        found.floor.push(found.spending.note_floor(bare));
    }
    print(&found.onto(Line::new("enqueue-bulk", "redis").with("jobs", jobs).with("batch", FILL)));
}

fn ground(load: &Load) -> &Arc<Ground> {
    load.ground.as_ref().unwrap()
}
