//! What a worker tells about the attempts it makes: a span around each, its trace, and how long it ran.

use super::meters::{Meters, RunMeter};
use super::trace::{self, TraceParent};
use tracing::{Instrument, Span};
use windlass_core::job::TraceContext;
use windlass_core::store::{ClaimedJob, OutcomeKind};

/// The attempts of a worker.
#[derive(Debug)]
pub(crate) struct Attempts(Meters);

impl Attempts {
    pub(crate) const fn new() -> Self {
        Self(Meters::new("worker"))
    }

    /// A job was not started because its lease had ended.
    pub(crate) fn dropped(&self, job: &ClaimedJob) {
        self.0.dropped(job);
    }

    /// An attempt begins: its handler is about to run.
    pub(crate) fn begin(&self, job: &ClaimedJob) -> Attempt {
        let run = self.0.begin_run(job);
        let span = span_of(job);
        let trace = trace_of(&span, job);
        let trace_id = trace.as_ref().filter(|_| !span.is_disabled());
        if let Some(parent) = trace_id.and_then(|trace| trace.parent.parse::<TraceParent>().ok()) {
            span.record("trace_id", tracing::field::display(parent.trace_id()));
        }
        Attempt { span, trace, run }
    }
}

/// An attempt that runs. Whoever drops it before its end has given it up.
pub(crate) struct Attempt {
    span: Span,
    trace: Option<TraceContext>,
    /// `None` when nobody wants to know how long it takes.
    run: Option<RunMeter>,
}

impl Attempt {
    /// Runs what belongs to the attempt in its span and its trace.
    pub(crate) async fn scope<F: Future>(&self, future: F) -> F::Output {
        let future = future.instrument(self.span.clone());
        match &self.trace {
            Some(trace) => trace::with_trace(trace.clone(), future).await,
            None => future.await,
        }
    }

    /// The attempt has ended so; `None` when its lease was lost.
    pub(crate) fn end(mut self, outcome: Option<&OutcomeKind>) {
        self.note(outcome);
    }

    fn note(&mut self, outcome: Option<&OutcomeKind>) {
        if let Some(run) = self.run.take() {
            run.end(outcome);
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        self.note(Some(&OutcomeKind::Release { started: true }));
    }
}

fn span_of(job: &ClaimedJob) -> Span {
    let span = tracing::info_span!(
        target: "windlass::job",
        "windlass.job",
        job.id = %job.lease.job,
        kind = job.spec.kind.as_str(),
        queue = job.spec.queue.as_str(),
        attempt = job.lease.attempt,
        trace_id = tracing::field::Empty,
    );
    #[cfg(feature = "opentelemetry")]
    if let Some(stored) = job.spec.trace.as_ref().filter(|_| !span.is_disabled()) {
        super::otel::set_parent(&span, stored);
    }
    span
}

/// The trace that the attempt hands on: that of its span where somebody exports it, else one made from the job's.
fn trace_of(span: &Span, job: &ClaimedJob) -> Option<TraceContext> {
    #[cfg(feature = "opentelemetry")]
    if let Some(trace) = super::otel::context_of(span) {
        return Some(trace);
    }
    #[cfg(not(feature = "opentelemetry"))]
    let _ = span;
    trace::of_attempt(job.spec.trace.as_ref(), job.lease)
}
