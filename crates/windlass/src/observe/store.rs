//! Telemetry of the contract: every call is counted, timed and traced, and otherwise passed on as it is.

use super::meters::{Asked, Live, Meters, Stopwatch, Told};
use std::fmt;
use std::sync::Arc;
use tracing::Instrument;
use windlass_core::Result;
use windlass_core::job::{Lease, NewJob};
use windlass_core::store::{Answer, Call, FireOutcome, HandleCall, Method, RunCommitted, RunCreated, Store, SweepKind};

/// Traces and counts the calls to a store: a span for each call, and metrics of calls and jobs.
pub struct Observed {
    inner: Arc<dyn Store>,
    name: &'static str,
    meters: Meters,
}

impl Observed {
    /// Observes `inner`; `name` is the label `store` of its metrics and spans.
    pub fn new(name: &'static str, inner: Arc<dyn Store>) -> Self {
        Self { inner, name, meters: Meters::new(name) }
    }
}

impl fmt::Debug for Observed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observed").field("store", &self.name).finish_non_exhaustive()
    }
}

impl HandleCall for Observed {
    async fn call(&self, call: Call) -> Result<Answer> {
        let method = call.method();
        // A hint among processes is not work.
        if method == Method::KeepTime {
            return call.send(self.inner.as_ref()).await;
        }
        let span = tracing::debug_span!(
            target: "windlass::store",
            "windlass.store",
            op = method.name(),
            items = items(&call),
            store = self.name,
            outcome = tracing::field::Empty,
        );
        let live = self.meters.current();
        let watch = live.as_deref().map(|live| (live, Noted::of(live, &call), Stopwatch::start()));
        let answer = call.send(self.inner.as_ref());
        let answer = if span.is_disabled() { answer.await } else { answer.instrument(span.clone()).await };
        span.record("outcome", answer.as_ref().err().map_or("ok", windlass_core::Error::code));
        if let Some((live, noted, watch)) = watch {
            live.called(method, watch, answer.as_ref().err());
            if let Ok(answer) = &answer {
                noted.answered(live, answer);
            }
        }
        answer
    }
}

/// The number of items that a call is about.
fn items(call: &Call) -> usize {
    match call {
        Call::Enqueue { request } => request.jobs.len(),
        Call::Claim { request } => request.max as usize,
        Call::Renew { request } => request.renewals.len(),
        Call::Report { request } => request.outcomes.len(),
        Call::ReportAndClaim { report, claim } => report.outcomes.len() + claim.max as usize,
        Call::Change { changes } => changes.len(),
        Call::ChangeMany { request } => request.max as usize,
        Call::Get { ids } => ids.len(),
        Call::List { request } => request.limit as usize,
        Call::Groups { request } => request.limit as usize,
        Call::Sweep { request } => request.max as usize,
        Call::AppendLogs { appends } => appends.len(),
        Call::ReadLogs { request } => request.limit as usize,
        Call::DueSchedules { max } => *max as usize,
        Call::Fire { request } => request.jobs.len(),
        Call::CreateRuns { runs } => runs.len(),
        Call::ClaimRuns { request } => request.max as usize,
        Call::RenewRuns { renewals } => renewals.len(),
        Call::CommitRuns { commits } => commits.len(),
        Call::SendToRuns { messages } => messages.len(),
        Call::ReadRuns { reads } => reads.len(),
        Call::ListRuns { request } => request.limit as usize,
        Call::RemoveRuns { runs } => runs.len(),
        Call::ReadFeed { request } => request.max as usize,
        Call::Configure { .. }
        | Call::Queues {}
        | Call::Metrics { .. }
        | Call::Explain { .. }
        | Call::Heartbeat { .. }
        | Call::Deregister { .. }
        | Call::Workers {}
        | Call::PutSchedule { .. }
        | Call::RemoveSchedule { .. }
        | Call::Schedules {}
        | Call::SetFeedEvents { .. }
        | Call::FeedEvents {}
        | Call::Info {}
        | Call::Now {}
        | Call::Wait { .. }
        | Call::KeepTime { .. }
        | Call::Close {} => 1,
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
