//! A change to all jobs that match, step by step, with a progress bar.

use crate::app::App;
use crate::failure::Failure;
use serde_json::json;
use windlass::core::job::State;
use windlass::core::store::{ChangeMany, ChangeManyOp, Filter, QueueStatus, Store};

/// Jobs of one step: short enough that nobody else waits for long.
const STEP: u32 = 1_000;

/// A change to all jobs that match.
pub(crate) struct Many<'a> {
    pub(crate) app: &'a App,
    pub(crate) store: &'a dyn Store,
    pub(crate) what: &'static str,
    /// How many there may be.
    pub(crate) total: u64,
}

impl Many<'_> {
    /// Goes on until all is done; answers how many were changed.
    pub(crate) async fn run(&self, op: ChangeManyOp, filter: Filter) -> Result<u64, Failure> {
        let bar = self.app.ui.bar(self.total, self.what);
        let (mut changed, mut cursor) = (0, None);
        loop {
            let step = ChangeMany { op, filter: filter.clone(), max: STEP, cursor };
            let answer = match self.store.change_many(step).await {
                Ok(answer) => answer,
                Err(error) if changed > 0 => {
                    return Err(Failure::from(error)
                        .hint(format!("{} changed before that", windlass_operate::text::count(changed, "job"))));
                }
                Err(error) => return Err(error.into()),
            };
            changed += answer.changed;
            bar.set_position(changed);
            cursor = answer.cursor;
            if cursor.is_none() {
                bar.finish_and_clear();
                return Ok(changed);
            }
        }
    }
}

/// How many jobs it may concern, for the bar.
pub(crate) fn expected(op: ChangeManyOp, filter: &Filter, queue: &QueueStatus) -> u64 {
    let counts = &queue.counts;
    let of = |state: State| match state {
        State::Scheduled => counts.scheduled,
        State::Ready => counts.ready,
        State::Active => counts.active,
        State::Succeeded => counts.succeeded,
        State::Failed => counts.failed,
        State::Cancelled => counts.cancelled,
    };
    let states: &[State] = match op {
        _ if filter.state.is_some() => filter.state.as_slice(),
        ChangeManyOp::Drain { scheduled: true } => &[State::Scheduled, State::Ready],
        ChangeManyOp::Drain { scheduled: false } => &[State::Ready],
        ChangeManyOp::Clean { .. } => &[State::Succeeded, State::Failed, State::Cancelled],
        ChangeManyOp::Obliterate { .. } => &State::ALL,
        ChangeManyOp::RetryFailed => &[State::Failed],
        ChangeManyOp::PromoteAll => &[State::Scheduled],
        ChangeManyOp::CancelAll => &[State::Scheduled, State::Ready, State::Active],
    };
    states.iter().map(|state| of(*state)).sum()
}

/// Says how many.
pub(crate) fn report(app: &App, done: &str, changed: u64) -> Result<(), Failure> {
    if app.ui.json {
        return app.ui.json(&json!({ "changed": changed }));
    }
    app.ui.line(format_args!("{} {done}", windlass_operate::text::count(changed, "job")))
}
