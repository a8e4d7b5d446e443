//! What is counted of a call to the store.

use super::{Asked, Live, Stopwatch, Told};
use std::sync::Arc;
use windlass_core::Result;
use windlass_core::job::{Lease, NewJob};
use windlass_core::store::{Answer, Call, FireOutcome, Method, RunCommitted, RunCreated, SweepKind};

/// A call that is under way.
pub(in crate::observe) struct CallMeter {
    live: Arc<Live>,
    method: Method,
    noted: Noted,
    watch: Stopwatch,
}

impl CallMeter {
    pub(super) fn begin(live: Arc<Live>, call: &Call) -> Self {
        Self { noted: Noted::of(&live, call), live, method: call.method(), watch: Stopwatch::start() }
    }

    /// The call has come back.
    pub(in crate::observe) fn end(self, answer: &Result<Answer>) {
        self.live.called(self.method, self.watch, answer.as_ref().err());
        if let Ok(answer) = answer {
            self.noted.answered(&self.live, answer);
        }
    }
}

/// What is kept of a call to make metrics of its answer.
enum Noted {
    Enqueue(Asked),
    Claim {
        lease_ms: u64,
    },
    Renew(Vec<Lease>),
    Report(Told),
    ReportAndClaim {
        told: Told,
        lease_ms: u64,
    },
    Sweep(SweepKind),
    /// The jobs of one tick.
    Fire(Asked),
    /// The jobs of each step.
    Steps(Vec<StepJobs>),
    /// Nothing.
    Other,
}

/// The jobs that one step of a run creates.
struct StepJobs {
    asked: Asked,
    jobs: u32,
}

impl Noted {
    fn of(live: &Live, call: &Call) -> Self {
        let steps = |jobs: &Vec<NewJob>| StepJobs {
            asked: live.asked(jobs),
            jobs: u32::try_from(jobs.len()).unwrap_or(u32::MAX),
        };
        match call {
            Call::Enqueue { request } => Self::Enqueue(live.asked(&request.jobs)),
            Call::Claim { request } => Self::Claim { lease_ms: request.lease_ms },
            Call::Renew { request } => Self::Renew(request.renewals.iter().map(|renewal| renewal.lease).collect()),
            Call::Report { request } => Self::Report(live.told(&request.outcomes)),
            Call::ReportAndClaim { report, claim } => {
                Self::ReportAndClaim { told: live.told(&report.outcomes), lease_ms: claim.lease_ms }
            }
            Call::Sweep { request } => Self::Sweep(request.kind),
            Call::Fire { request } => Self::Fire(live.asked(&request.jobs)),
            Call::CreateRuns { runs } => Self::Steps(runs.iter().map(|run| steps(&run.step.jobs)).collect()),
            Call::CommitRuns { commits } => {
                Self::Steps(commits.iter().map(|commit| steps(&commit.step.jobs)).collect())
            }
            Call::Heartbeat { beat } => {
                live.beat(beat);
                Self::Other
            }
            Call::Deregister { worker } => {
                live.left(worker);
                Self::Other
            }
            _ => Self::Other,
        }
    }

    fn answered(self, live: &Live, answer: &Answer) {
        match (self, answer) {
            (Self::Enqueue(asked), Answer::Enqueue(answers)) => live.enqueued(&asked, answers),
            (Self::Claim { lease_ms }, Answer::Claim(claimed)) => live.claimed(&claimed.jobs, lease_ms),
            (Self::Renew(leases), Answer::Renew(answers)) => live.renewed(&leases, answers),
            (Self::Report(told), Answer::Report(answers)) => live.reported(Method::Report, &told, answers),
            (Self::ReportAndClaim { told, lease_ms }, Answer::ReportAndClaim(both)) => {
                live.reported(Method::ReportAndClaim, &told, &both.reported);
                live.claimed(&both.claimed.jobs, lease_ms);
            }
            (Self::Sweep(kind), Answer::Sweep(swept)) => live.swept(kind, *swept),
            (Self::Fire(asked), Answer::Fire(FireOutcome::Fired { jobs })) => live.fired(&asked, *jobs),
            (Self::Steps(steps), Answer::CreateRuns(answers)) => {
                note_steps(live, &steps, answers.iter().map(|answer| *answer == Ok(RunCreated::Created)));
            }
            (Self::Steps(steps), Answer::CommitRuns(answers)) => {
                let is_new = |made: &RunCommitted| !made.repeated;
                note_steps(live, &steps, answers.iter().map(|answer| answer.as_ref().is_ok_and(is_new)));
            }
            (_, Answer::Change(answers)) => live.refused(Method::Change, answers),
            (_, Answer::AppendLogs(answers)) => live.refused(Method::AppendLogs, answers),
            _ => {}
        }
    }
}

/// Counts the jobs of the steps that were made.
fn note_steps(live: &Live, steps: &[StepJobs], made: impl Iterator<Item = bool>) {
    for (step, _) in steps.iter().zip(made).filter(|(_, made)| *made) {
        live.fired(&step.asked, step.jobs);
    }
}
