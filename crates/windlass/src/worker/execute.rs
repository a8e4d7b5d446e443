//! One job, from its start to its outcome: resolve the handler, run it under its limits, say what became of it.

use super::active::{Active, Stop};
use super::{Handled, Shared};
use crate::context::Ctx;
use crate::error::{JobError, Then};
use crate::job::ms;
use futures::FutureExt;
use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use windlass_core::job::{Failure, FailureClass, Lease, Retry};
use windlass_core::payload::Payload;
use windlass_core::retry::RetryAdvice;
use windlass_core::store::{ClaimedJob, LogAppend, LogLine, LogStream, Outcome, OutcomeKind};
use windlass_core::time::Timestamp;

/// How a handler ended.
enum End {
    Returned(Result<Option<Payload>, JobError>),
    Panicked(String),
    TimedOut(Duration),
    Stopped,
}

/// Runs one job and sends its outcome, whatever happens.
pub(super) async fn execute(shared: Arc<Shared>, job: ClaimedJob, active: Arc<Active>) {
    let report =
        Report { shared: &shared, lease: job.lease, kind_at: shared.limited_kind(&job.spec.kind), sent: false };
    let Some(handled) = shared.handlers.get(&job.spec.kind) else {
        // It was claimed for somebody else's handler; claims ask only for kinds that have one.
        return report.send(Some(OutcomeKind::Release { started: false }));
    };
    let job = Arc::new(job);
    let ctx = Ctx { job: Arc::clone(&job), active: Arc::clone(&active), world: Arc::clone(&shared.world) };
    let end = run(handled, ctx, &shared, &active).await;
    let kind = outcome(&shared, handled, &job, &active, end);
    if kind.is_some() {
        pass_on_lines(&shared, &active).await;
    }
    report.send(kind);
}

/// Runs the handler until it returns, panics, takes too long, or has been told to stop and does not.
async fn run(handled: &Handled, ctx: Ctx, shared: &Shared, active: &Active) -> End {
    let limit = ctx.job.spec.timeout_ms.map(Duration::from_millis);
    let returned = AssertUnwindSafe(async { (handled.route)(ctx).await }).catch_unwind();
    let returned = async {
        match returned.await {
            Ok(result) => End::Returned(result),
            Err(panic) => End::Panicked(words_of(panic.as_ref())),
        }
    };
    let too_long = async {
        match limit {
            Some(limit) => tokio::time::sleep(limit).await,
            None => std::future::pending().await,
        }
    };
    // Told to stop, a handler has a moment to do it by itself.
    let stopped = async {
        active.stopped().await;
        tokio::select! {
            () = active.stopped_for(Stop::Leaving) => {}
            () = tokio::time::sleep(shared.config.cancel_grace) => {}
        }
    };
    tokio::select! {
        biased;
        end = returned => end,
        () = stopped => End::Stopped,
        () = too_long => End::TimedOut(limit.unwrap_or_default()),
    }
}

/// What a panic said.
fn words_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "it panicked without words".to_owned())
}

/// What the store is told; nothing when the lease is lost.
fn outcome(shared: &Shared, handled: &Handled, job: &ClaimedJob, active: &Active, end: End) -> Option<OutcomeKind> {
    let fail = |class, message: String, retry| {
        let failure = Failure { class, message, attempt: job.lease.attempt, at: Timestamp::from_ms(0) };
        Some(OutcomeKind::Fail { failure, retry })
    };
    let by_policy = |error: &JobError| retry_of(shared, handled, job, error);
    match (end, active.stop()) {
        (_, Stop::Lost) => None,
        (End::Returned(Ok(result)), _) => {
            let outputs = std::mem::take(&mut active.notes().outputs);
            Some(OutcomeKind::Complete { result, outputs })
        }
        (End::Returned(Err(error)), _) => fail(FailureClass::Error, error.to_string(), by_policy(&error)),
        (End::Panicked(words), _) => {
            let retry = by_policy(&JobError::new(&words));
            fail(FailureClass::Panic, words, retry)
        }
        (End::TimedOut(limit), _) => {
            let words = format!("it took longer than its {} ms", ms(limit));
            let retry = by_policy(&JobError::new(&words));
            fail(FailureClass::Timeout, words, retry)
        }
        (End::Stopped, Stop::Cancelled) => fail(FailureClass::Error, "cancelled".to_owned(), Retry::Never),
        (End::Stopped, Stop::No | Stop::Leaving) => Some(OutcomeKind::Release { started: true }),
    }
}

fn retry_of(shared: &Shared, handled: &Handled, job: &ClaimedJob, error: &JobError) -> Retry {
    match error.then() {
        Then::Never => Retry::Never,
        Then::After(delay) => Retry::AfterMs(ms(delay)),
        Then::Policy => match job.spec.retry.advise(job.lease.attempt, shared.random.next_u64()) {
            RetryAdvice::AfterMs(ms) => Retry::AfterMs(ms),
            RetryAdvice::Never => Retry::Never,
            RetryAdvice::AskKind => match &handled.backoff {
                Some(backoff) => {
                    backoff(job.lease.attempt, error).map_or(Retry::Never, |delay| Retry::AfterMs(ms(delay)))
                }
                None => Retry::AfterMs(1_000),
            },
        },
    }
}

/// Passes on what a handler has logged. A line that the store refuses is not worth the job.
pub(super) async fn pass_on_lines(shared: &Shared, active: &Active) {
    let (first, lines) = {
        let mut notes = active.notes();
        if notes.lines.is_empty() {
            return;
        }
        let first = notes.lines_sent;
        let lines = std::mem::take(&mut notes.lines);
        notes.lines_sent += lines.len() as u64;
        (first, lines)
    };
    let at = shared.clock.now();
    let lines = lines.into_iter().map(|text| LogLine { at, stream: LogStream::Log, text: text.into() }).collect();
    let append = LogAppend { lease: active.lease, first, lines };
    if let Err(error) = shared.store.append_logs(vec![append]).await {
        tracing::warn!(job = %active.lease.job, %error, "log lines were lost");
    }
}

/// Sends what became of a job exactly once, also when its task is dropped.
struct Report<'a> {
    shared: &'a Shared,
    lease: Lease,
    kind_at: Option<usize>,
    sent: bool,
}

impl Report<'_> {
    fn send(mut self, kind: Option<OutcomeKind>) {
        self.tell(kind);
    }

    fn tell(&mut self, kind: Option<OutcomeKind>) {
        self.sent = true;
        let outcome = kind.map(|kind| Outcome { lease: self.lease, kind });
        // The worker may have gone without waiting for it.
        let _ = self.shared.ended.send(super::Ended { lease: self.lease, outcome, kind_at: self.kind_at });
    }
}

impl Drop for Report<'_> {
    fn drop(&mut self) {
        if !self.sent {
            self.tell(Some(OutcomeKind::Release { started: true }));
        }
    }
}
