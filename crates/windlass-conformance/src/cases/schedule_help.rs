//! Short ways to say things about schedules.

use crate::ctx::{Ctx, queue_name};
use crate::look::on;
use windlass_core::job::JobSpec;
use windlass_core::name::{Kind, ScheduleName};
use windlass_core::payload::Payload;
use windlass_core::schedule::{METADATA_SCHEDULE, METADATA_TICK, Rule, Schedule};
use windlass_core::time::Timestamp;

pub(super) fn named(name: &str) -> ScheduleName {
    ScheduleName::new(name).unwrap()
}

pub(super) fn spec(queue: &str) -> JobSpec {
    JobSpec::new(queue_name(queue), Kind::new("work").unwrap(), Payload::default())
}

/// A schedule on the queue `q`, not armed.
pub(super) fn every(name: &str, ms: u64) -> Schedule {
    Schedule::new(named(name), Rule::every_ms(ms), spec("q"))
}

pub(super) async fn put(ctx: &Ctx, schedule: Schedule) {
    ctx.store.put_schedule(schedule).await.unwrap();
}

/// A schedule that exists.
pub(super) async fn find(ctx: &Ctx, name: &str) -> Schedule {
    let all = ctx.store.schedules().await.unwrap();
    all.into_iter().find(|schedule| schedule.name.as_str() == name).expect("the schedule exists")
}

/// The ticks of the jobs that a schedule has created on the queue `q`, in order.
pub(super) async fn job_ticks(ctx: &Ctx, name: &str) -> Vec<Timestamp> {
    let mut ticks = Vec::new();
    for id in ctx.ids_where(on("q")).await {
        let spec = ctx.get(id).await.unwrap().spec;
        if spec.metadata.get(METADATA_SCHEDULE).is_some_and(|of| of == name) {
            ticks.extend(spec.metadata.get(METADATA_TICK).map(|text| text.parse::<Timestamp>().unwrap()));
        }
    }
    ticks.sort();
    ticks
}
