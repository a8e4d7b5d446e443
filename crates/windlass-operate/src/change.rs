//! Changes of many jobs, step by step.

use crate::error::OperateError;
use crate::text::count;
use windlass::core::job::State;
use windlass::core::store::{ChangeMany, ChangeManyOp, Filter, QueueStatus, Store};

/// Jobs of one step: few enough that other callers of the store do not wait for long.
const JOBS_PER_STEP: u32 = 1_000;

/// Changes all jobs that match; returns how many were changed. `progress` is called with that number after each step. The
/// error says how many were changed before it.
pub async fn change_all(
    store: &dyn Store,
    op: ChangeManyOp,
    filter: Filter,
    progress: impl Fn(u64),
) -> Result<u64, OperateError> {
    let (mut changed, mut cursor) = (0, None);
    loop {
        let step = ChangeMany { op, filter: filter.clone(), max: JOBS_PER_STEP, cursor };
        let answer = match store.change_many(step).await {
            Ok(answer) => answer,
            Err(error) if changed > 0 => {
                return Err(OperateError::from(error).hint(format!("{} changed before that", count(changed, "job"))));
            }
            Err(error) => return Err(error.into()),
        };
        changed += answer.changed;
        progress(changed);
        cursor = answer.cursor;
        if cursor.is_none() {
            return Ok(changed);
        }
    }
}

/// How many jobs of a queue a change concerns at most.
pub fn expected(op: ChangeManyOp, filter: &Filter, queue: &QueueStatus) -> u64 {
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
