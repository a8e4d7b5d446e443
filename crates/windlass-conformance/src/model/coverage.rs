//! What the sequences have reached: every method, every outcome, every state, every reason. The lists are exhaustive
//! matches, so that a new variant does not compile until it is listed, and a listed one that is never reached fails the
//! test below. Enums that may grow without notice have a last arm, which must never be reached.

use super::answer::Answer;
use super::op::Op;
use crate::faults::Method;
use std::collections::{BTreeMap, BTreeSet};
use windlass_core::job::{Job, State, Verb, targets};
use windlass_core::store::{
    ChangeManyOp, ChangeOp, Enqueued, FeedEvent, FireOutcome, OutcomeKind, Reason, Reported, Setting, SweepKind,
};
use windlass_core::{Error, Result};

/// A function from a value to the name of its variant, and the names of all variants that must be reached.
macro_rules! variants {
    ($name:ident, $all:ident, $value:ty { $($text:literal = $pattern:pat),+ $(,)? } $(unreached { $($none:pat),+ })?) => {
        const $all: &[&str] = &[$(concat!(stringify!($name), " ", $text)),+];

        fn $name(value: &$value) -> &'static str {
            match value {
                $($pattern => concat!(stringify!($name), " ", $text),)+
                $($($none)|+ => concat!(stringify!($name), " of another kind"),)?
            }
        }
    };
}

variants!(enqueued, ENQUEUED, Enqueued {
    "created" = Enqueued::Created { .. },
    "existing" = Enqueued::Existing { .. },
    "deduplicated" = Enqueued::Deduplicated { .. },
    "replaced" = Enqueued::Replaced { .. },
    "held" = Enqueued::Held { .. },
});
variants!(reported, REPORTED, Reported {
    "first" = Reported { repeated: false, .. },
    "repeated" = Reported { repeated: true, .. },
});
variants!(outcome, OUTCOMES, OutcomeKind {
    "complete" = OutcomeKind::Complete { .. },
    "fail" = OutcomeKind::Fail { .. },
    "release started" = OutcomeKind::Release { started: true },
    "release unstarted" = OutcomeKind::Release { started: false },
});
variants!(change, CHANGES, ChangeOp {
    "cancel" = ChangeOp::Cancel,
    "promote" = ChangeOp::Promote,
    "reschedule" = ChangeOp::Reschedule(_),
    "reprioritise" = ChangeOp::Reprioritise(_),
    "update payload" = ChangeOp::UpdatePayload(_),
    "retry" = ChangeOp::Retry(_),
    "remove" = ChangeOp::Remove,
});
variants!(change_many, CHANGES_MANY, ChangeManyOp {
    "drain" = ChangeManyOp::Drain { scheduled: false },
    "drain scheduled" = ChangeManyOp::Drain { scheduled: true },
    "clean" = ChangeManyOp::Clean { .. },
    "obliterate" = ChangeManyOp::Obliterate { force: false },
    "obliterate by force" = ChangeManyOp::Obliterate { force: true },
    "retry failed" = ChangeManyOp::RetryFailed,
    "promote all" = ChangeManyOp::PromoteAll,
    "cancel all" = ChangeManyOp::CancelAll,
});
variants!(setting, SETTINGS, Setting {
    "queue" = Setting::Queue { .. },
    "paused" = Setting::Paused { .. },
    "kind paused" = Setting::KindPaused { .. },
    "group" = Setting::Group { .. },
});
variants!(sweep, SWEEPS, SweepKind {
    "reap" = SweepKind::Reap,
    "promote" = SweepKind::Promote,
    "prune" = SweepKind::Prune,
});
variants!(fired, FIRED, FireOutcome {
    "fired" = FireOutcome::Fired { .. },
    "skipped" = FireOutcome::Skipped,
    "stale" = FireOutcome::Stale,
});
variants!(state, STATES, State {
    "scheduled" = State::Scheduled,
    "ready" = State::Ready,
    "active" = State::Active,
    "succeeded" = State::Succeeded,
    "failed" = State::Failed,
    "cancelled" = State::Cancelled,
});
// A calm store loses no reply and a fresh one is neither damaged nor too new: those come with the faults.
variants!(error, ERRORS, Error {
    "unavailable" = Error::Unavailable { .. },
    "full" = Error::Full { .. },
    "invalid" = Error::Invalid { .. },
    "not found" = Error::NotFound { .. },
    "lease lost" = Error::LeaseLost,
    "illegal transition" = Error::IllegalTransition { .. },
    "duplicate" = Error::Duplicate { .. },
    "key taken" = Error::KeyTaken { .. },
    "limit" = Error::Limit { .. },
} unreached { Error::Unknown { .. }, Error::Timeout { .. }, Error::Corrupt { .. }, Error::Incompatible { .. }, _ });
variants!(reason, REASONS, Reason {
    "delayed" = Reason::Delayed { .. },
    "backing off" = Reason::BackingOff { .. },
    "due" = Reason::Due,
    "held behind" = Reason::HeldBehind { .. },
    "queue paused" = Reason::QueuePaused,
    "kind paused" = Reason::KindPaused { .. },
    "queue at cap" = Reason::QueueAtCap { .. },
    "queue rate limited" = Reason::QueueRateLimited { .. },
    "group at cap" = Reason::GroupAtCap { .. },
    "group rate limited" = Reason::GroupRateLimited { .. },
    "no worker for queue" = Reason::NoWorkerForQueue,
    "no worker for kind" = Reason::NoWorkerForKind { .. },
    "no worker with labels" = Reason::NoWorkerWithLabels { .. },
    "waits its turn" = Reason::WaitsItsTurn,
    "running" = Reason::Running { .. },
    "cancelling" = Reason::Cancelling { .. },
    "lease expired" = Reason::LeaseExpired { .. },
    "ended" = Reason::Ended { .. },
} unreached { Reason::Quarantined { .. }, _ });
variants!(feed, FEED, FeedEvent {
    "job" = FeedEvent::Job(_),
    "settings" = FeedEvent::Settings(_),
    "queue removed" = FeedEvent::QueueRemoved { .. },
    "schedule put" = FeedEvent::SchedulePut { .. },
    "schedule removed" = FeedEvent::ScheduleRemoved { .. },
    "schedule fired" = FeedEvent::ScheduleFired { .. },
    "run" = FeedEvent::Run(_),
} unreached { _ });

/// What was reached, and how often.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen(BTreeMap<String, u64>);

impl Seen {
    fn note(&mut self, what: impl Into<String>) {
        *self.0.entry(what.into()).or_insert(0) += 1;
    }

    fn note_all<'v, T: 'v>(
        &mut self,
        answers: impl IntoIterator<Item = &'v Result<T>>,
        name: impl Fn(&T) -> &'static str,
    ) {
        for answer in answers {
            self.note(match answer {
                Ok(value) => name(value),
                Err(problem) => error(problem),
            });
        }
    }

    pub(crate) fn note_method(&mut self, method: Method) {
        self.note(format!("method {method:?}"));
    }

    pub(crate) fn note_op(&mut self, op: &Op) {
        match op {
            Op::Change(plans) => plans.iter().for_each(|plan| self.note(change(&plan.op))),
            Op::ChangeMany { op, .. } => self.note(change_many(op)),
            Op::Configure(what) => self.note(setting(what)),
            Op::Sweep { kind, .. } => self.note(sweep(kind)),
            Op::Report(plan) | Op::ReportAndClaim(plan, _) => {
                plan.outcomes.iter().for_each(|(_, kind)| self.note(outcome(kind)));
            }
            _ => {}
        }
    }

    pub(crate) fn note_answer(&mut self, answer: &Answer) {
        match answer {
            Answer::Failed(problem) => self.note(error(problem)),
            Answer::Enqueued(answers) => self.note_all(answers, enqueued),
            Answer::Reported(answers) | Answer::ReportedAndClaimed(answers, _) => self.note_all(answers, reported),
            Answer::Changed(answers) => self.note_all(answers, |_| "changed"),
            Answer::Renewed(answers) => self.note_all(answers, |_| "renewed"),
            Answer::Appended(answers) => self.note_all(answers, |_| "appended"),
            Answer::Explained(explanation) => self.note(reason(&explanation.reason)),
            Answer::Fired(what) => self.note(fired(what)),
            Answer::Runs(answers) => self.note_all(answers, |_| "run created"),
            Answer::RunStepped(_, answers) => self.note_all(answers, |_| "run committed"),
            _ => {}
        }
    }

    pub(crate) fn note_event(&mut self, event: &FeedEvent) {
        self.note(feed(event));
        if let FeedEvent::Job(job) = event
            && let Some(from) = job.from
        {
            self.note(edge(from, job.verb, job.to));
        }
    }

    pub(crate) fn note_job(&mut self, job: &Job) {
        self.note(state(&job.state));
    }

    /// What the sequences should have reached and did not.
    pub(crate) fn missing(&self) -> Vec<String> {
        required().into_iter().filter(|what| !self.0.contains_key(what)).collect()
    }

    /// What nobody has listed.
    pub(crate) fn unlisted(&self) -> Vec<&String> {
        self.0.keys().filter(|what| what.ends_with("of another kind")).collect()
    }

    /// How many of the things that must be reached there are.
    pub(crate) fn required_count() -> usize {
        required().len()
    }
}

fn edge(from: State, verb: Verb, to: Option<State>) -> String {
    format!("edge {from} {verb:?} {}", to.map_or("gone", State::as_str))
}

fn required() -> BTreeSet<String> {
    let lists =
        [ENQUEUED, REPORTED, OUTCOMES, CHANGES, CHANGES_MANY, SETTINGS, SWEEPS, FIRED, STATES, ERRORS, REASONS, FEED];
    let mut all: BTreeSet<String> = lists.into_iter().flatten().map(|text| (*text).to_owned()).collect();
    // Who keeps the time is a hint among processes: each store may answer as it likes.
    // What else there is about runs has sequences of its own (`run_model`).
    let left_out =
        [Method::ClaimMaintenance, Method::RenewRuns, Method::SendToRuns, Method::ListRuns, Method::RemoveRuns];
    let compared = Method::ALL.iter().filter(|method| !left_out.contains(method));
    all.extend(compared.map(|method| format!("method {method:?}")));
    for from in State::ALL {
        // A renewal and a log line change no job that anybody watches, so the feed leaves them out.
        for verb in Verb::ALL.into_iter().filter(|verb| !matches!(verb, Verb::Renew | Verb::Log)) {
            all.extend(targets(from, verb).iter().map(|to| edge(from, verb, *to)));
        }
    }
    all
}
