//! Attempts of mocked jobs and of mocked children.

use super::mock::{Attempt, AttemptError, AttemptPath, OpPath};
use super::schedule::Action;
use super::simulation::{JobMade, Simulation};
use crate::error::Then;
use bytes::Bytes;
use windlass_core::id::{JobId, RunId};
use windlass_core::name::Kind;
use windlass_core::retry::{RetryAdvice, RetryPolicy};
use windlass_core::time::Timestamp;
use windlass_durable::{CallError, ErrorClass, ItemBody, RunRetry};

/// A child that has a mock.
pub(super) struct MockedChild {
    /// The index of its parent.
    pub(super) parent: usize,
    pub(super) op: OpPath,
    pub(super) kind: Kind,
    pub(super) input: Bytes,
    pub(super) retry: RunRetry,
    pub(super) deadline: Option<Timestamp>,
}

impl Simulation {
    /// Calls the mock of a job, and plans its end or the next attempt.
    pub(super) fn start_attempt(&mut self, job: JobId, number: u32) {
        let Some(made) = self.jobs.get(&job).cloned() else { return };
        let JobMade { run, op, spec } = &*made;
        let path = AttemptPath { op: op.clone(), attempt: number, input: spec.payload.bytes.clone() };
        let attempt = self.setup.mocks.lock().job(spec.kind.as_str(), path);
        let Some(Attempt { takes_ms, result, effects }) = attempt else { return };
        self.plan_effects(*run, effects);
        let late = spec.timeout_ms.filter(|timeout| *timeout < takes_ms);
        let result = match late {
            Some(ms) => Err(AttemptError {
                error: CallError::new(ErrorClass::TimedOut, format!("it took longer than its {ms} ms")),
                then: Then::Policy,
            }),
            None => result,
        };
        let ended = self.time().plus_ms(late.unwrap_or(takes_ms));
        let pause = match &result {
            Err(failed) if number < spec.attempts => pause_ms(failed.then, &spec.retry, number),
            _ => None,
        };
        let (at, action) = match (pause, result) {
            (Some(ms), _) => (ended.plus_ms(ms), Action::Attempt { job, number: number + 1 }),
            (None, result) => {
                let outcome = result.map_err(|failed| CallError { attempts: number, ..failed.error });
                (ended, Action::Item { run: self.runs[*run].id, body: ItemBody::JobEnded { job, outcome } })
            }
        };
        self.schedule.add(self.commit_number(), at.as_ms(), action);
    }

    /// Calls the mock of a child, and plans its end or the next attempt.
    pub(super) fn start_child_attempt(&mut self, child: RunId, number: u32) {
        let Some(made) = self.mocked_children.get(&child).cloned() else { return };
        let MockedChild { parent, op, kind, input, retry, deadline } = &*made;
        let path = AttemptPath { op: op.clone(), attempt: number, input: input.clone() };
        let attempt = self.setup.mocks.lock().workflow(kind.as_str(), path);
        let Some(Attempt { takes_ms, result, effects }) = attempt else { return };
        self.plan_effects(*parent, effects);
        let pause = match &result {
            Err(failed) if number < retry.attempts_max() => {
                pause_ms(failed.then, &retry.policy.clone().unwrap_or_default(), number)
            }
            _ => None,
        };
        let at = self.time().plus_ms(takes_ms).plus_ms(pause.unwrap_or(0));
        if let Some(deadline) = deadline.filter(|deadline| *deadline < at) {
            let error = CallError { attempts: 1, ..CallError::new(ErrorClass::TimedOut, "the child timed out") };
            self.plan_end_of_child(*parent, child, deadline, Err(error));
        } else if pause.is_some() {
            let action = Action::ChildAttempt { run: child, number: number + 1 };
            self.schedule.add(self.commit_number(), at.as_ms(), action);
        } else {
            self.plan_end_of_child(*parent, child, at, result.map_err(|failed| failed.error));
        }
    }
}

/// The pause after attempt number `number` has failed, without jitter: the longest one that the policy allows. `None` when no further
/// attempt is made.
fn pause_ms(then: Then, policy: &RetryPolicy, number: u32) -> Option<u64> {
    match then {
        Then::Never => None,
        Then::After(time) => Some(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
        Then::Policy => match policy.advise(number, 0) {
            RetryAdvice::AfterMs(ms) => Some(ms),
            RetryAdvice::AskKind => Some(1_000),
            RetryAdvice::Never => None,
        },
    }
}

/// The retries of a run without jitter, like those of jobs.
pub(super) fn without_jitter(retry: &RunRetry) -> RunRetry {
    if retry.is_none() {
        return RunRetry::default();
    }
    let mut policy = retry.policy.clone().unwrap_or_default();
    if let RetryPolicy::Exponential { jitter_percent, .. } = &mut policy {
        *jitter_percent = 0;
    }
    RunRetry { attempts: Some(retry.attempts_max()), policy: Some(policy) }
}
