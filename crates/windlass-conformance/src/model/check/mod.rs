//! What must be true of one store's own trace, computed without the engine: from what was asked, what was answered, what
//! the feed said and what the jobs looked like afterwards. The numbers are those of the invariants in the project's
//! reliability promise.

mod claims;
mod enqueues;
mod feed;
mod leases;
mod limits;
mod recount;

use super::answer::Answer;
use super::op::{Op, World};
use std::collections::BTreeMap;
use windlass_core::Error;
use windlass_core::id::JobId;
use windlass_core::job::Job;
use windlass_core::store::{ClaimRequest, FeedEvent};
use windlass_core::time::Timestamp;

pub(crate) use feed::Replay;

/// A check that failed, in words.
pub(crate) type Verdict = Result<(), String>;

/// Fails with a text when a condition does not hold.
macro_rules! ensure {
    ($holds:expr, $($text:tt)+) => {
        if !$holds {
            return Err(format!($($text)+));
        }
    };
}
pub(crate) use ensure;

/// One step of the trace.
pub(crate) struct Step<'a> {
    pub(crate) op: &'a Op,
    pub(crate) answer: &'a Answer,
    pub(crate) now: Timestamp,
    /// The world before the step.
    pub(crate) world: &'a World,
    /// The leases that the step spoke for, in its order; `None` is a forged one.
    pub(crate) spoken_for: &'a [Option<usize>],
    /// The claim of the step, and whether its number is new.
    pub(crate) claim: Option<&'a (ClaimRequest, bool)>,
    /// How many leases there were before.
    pub(crate) leases_before: usize,
    pub(crate) before: &'a BTreeMap<JobId, Job>,
    pub(crate) after: &'a BTreeMap<JobId, Job>,
    pub(crate) events: &'a [(Timestamp, FeedEvent)],
}

/// Everything that the checks remember.
#[derive(Debug, Default)]
pub(crate) struct Checker {
    replay: Replay,
    enqueues: enqueues::Enqueues,
    leases: leases::Leases,
    limits: limits::Limits,
    pub(super) counters: recount::Counters,
    /// The clock has jumped back, which may hold a rate longer than needed.
    jumped: bool,
}

impl Checker {
    /// Moments at which a limit lets go.
    pub(crate) fn edges(&self, now: Timestamp) -> Vec<Timestamp> {
        self.limits.edges(now)
    }

    /// Checks one step.
    pub(crate) fn step(&mut self, step: &Step<'_>) -> Verdict {
        self.jumped |= matches!(step.op, Op::JumpBack { .. });
        check_refusal(step)?;
        self.enqueues.check(step, &self.replay)?;
        self.leases.check_outcomes(step)?;
        self.replay.check(step)?;
        self.leases.check_grants(step)?;
        self.limits.note_settings(step);
        claims::check(step, &self.replay, &mut self.limits, self.jumped)?;
        self.leases.settle(step);
        self.enqueues.settle(step);
        self.counters.note(step);
        Ok(())
    }

    /// Checks what can only be seen of the whole: counters, groups, metrics, logs.
    pub(crate) async fn whole(&self, side: &super::side::Side, jobs: &BTreeMap<JobId, Job>) -> Verdict {
        recount::check(side, jobs, self.limits.settings(), &self.counters).await?;
        self.leases.check_logs(side, jobs).await
    }
}

/// A refusal is one that the contract knows, and it changes nothing.
fn check_refusal(step: &Step<'_>) -> Verdict {
    if let Answer::Failed(error) = step.answer {
        let fires = matches!(step.op, Op::Fire(_));
        let known = match error {
            Error::Invalid { .. } | Error::Limit { .. } | Error::NotFound { .. } => true,
            Error::Full { .. } | Error::Duplicate { .. } => fires,
            _ => false,
        };
        ensure!(known, "refused as a whole: {error:?}");
    }
    let refused = match step.answer {
        Answer::Failed(_) => true,
        Answer::Enqueued(answers) => answers.iter().all(Result::is_err),
        Answer::Reported(answers) => answers.iter().all(Result::is_err),
        Answer::Changed(answers) => answers.iter().all(Result::is_err),
        Answer::Renewed(answers) => answers.iter().all(Result::is_err),
        Answer::Appended(answers) => answers.iter().all(Result::is_err),
        _ => false,
    };
    ensure!(!refused || step.events.is_empty(), "refused, and yet the feed says {:?}", step.events);
    ensure!(!refused || step.before == step.after, "refused, and yet the jobs changed");
    Ok(())
}
