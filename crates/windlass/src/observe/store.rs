//! Telemetry of the contract: every call is counted, timed and traced, and otherwise passed on as it is.

use super::meters::Meters;
use std::fmt;
use std::sync::Arc;
use tracing::Instrument;
use windlass_core::Result;
use windlass_core::store::{Answer, Call, HandleCall, Method, Store};

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
        if method == Method::ClaimMaintenance {
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
        let meter = self.meters.begin_call(&call);
        let answer = call.send(self.inner.as_ref());
        let answer = if span.is_disabled() { answer.await } else { answer.instrument(span.clone()).await };
        span.record("outcome", answer.as_ref().err().map_or("ok", windlass_core::Error::code));
        if let Some(meter) = meter {
            meter.end(&answer);
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
        | Call::ClaimMaintenance { .. }
        | Call::Close {} => 1,
    }
}
