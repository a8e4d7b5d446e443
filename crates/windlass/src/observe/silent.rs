//! What stands in for the meters where the feature `metrics` is off: there are none, and the compiler knows it.

use windlass_core::Result;
use windlass_core::store::{Answer, Call, ClaimedJob, OutcomeKind};

#[derive(Debug)]
pub(crate) struct Meters;
pub(super) enum CallMeter {}
pub(super) enum RunMeter {}

#[expect(clippy::unused_self, reason = "the real ones have state")]
impl Meters {
    pub(super) const fn new(_store: &'static str) -> Self {
        Self
    }

    pub(super) fn begin_call(&self, _call: &Call) -> Option<CallMeter> {
        None
    }

    pub(super) fn begin_run(&self, _job: &ClaimedJob) -> Option<RunMeter> {
        None
    }

    pub(super) fn dropped(&self, _job: &ClaimedJob) {}
}

impl CallMeter {
    pub(super) fn end(self, _answer: &Result<Answer>) {
        match self {}
    }
}

impl RunMeter {
    pub(super) fn end(self, _outcome: Option<&OutcomeKind>) {
        match self {}
    }
}
