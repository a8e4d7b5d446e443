//! What stands in for the meters where the feature `metrics` is off: there are none, and the compiler knows it.

use std::sync::Arc;
use windlass_core::job::{Lease, NewJob};
use windlass_core::name::{Kind, QueueName, WorkerId};
use windlass_core::store::{
    Beat, ClaimedJob, Enqueued, Method, Outcome, OutcomeKind, Renewed, Reported, SweepKind, Swept,
};
use windlass_core::{Error, Result};

#[derive(Debug)]
pub(crate) struct Meters;

impl Meters {
    pub(super) const fn new(_store: &'static str) -> Self {
        Self
    }

    #[expect(clippy::unused_self, reason = "the real ones have state")]
    pub(super) fn current(&self) -> Option<Arc<Live>> {
        None
    }
}

pub(crate) enum Live {}
pub(crate) enum KindMeters {}
pub(super) struct Ran;
pub(super) struct Stopwatch;

impl Stopwatch {
    pub(super) fn start() -> Self {
        Self
    }
}

pub(super) struct Asked;
pub(super) struct Told;

macro_rules! never {
    ($($name:ident($($arg:ident: $ty:ty),*) $(-> $out:ty)?;)+) => {$(
        pub(super) fn $name(&self $(, $arg: $ty)*) $(-> $out)? {
            $(let _ = $arg;)*
            match *self {}
        }
    )+};
}

impl Live {
    never! {
        called(op: Method, watch: Stopwatch, error: Option<&Error>);
        asked(jobs: &[NewJob]) -> Asked;
        enqueued(asked: &Asked, answers: &[Result<Enqueued>]);
        fired(asked: &Asked, jobs: u32);
        claimed(jobs: &[ClaimedJob], lease_ms: u64);
        told(outcomes: &[Outcome]) -> Told;
        reported(op: Method, told: &Told, answers: &[Result<Reported>]);
        renewed(leases: &[Lease], answers: &[Result<Renewed>]);
        swept(kind: SweepKind, swept: Swept);
        beat(beat: &Beat);
        left(worker: &WorkerId);
        kind(queue: &QueueName, kind: &Kind) -> Arc<KindMeters>;
    }

    pub(super) fn refused<'a, T: 'a>(&self, op: Method, answers: impl IntoIterator<Item = &'a Result<T>>) {
        let _ = (op, answers.into_iter());
        match *self {}
    }
}

impl Ran {
    pub(super) fn of(_outcome: Option<&OutcomeKind>) -> Self {
        Self
    }
}

impl KindMeters {
    never! {
        ran(ran: Ran, watch: Stopwatch);
        dropped();
    }
}
