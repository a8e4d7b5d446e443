//! One job, from its start to its outcome: resolve the handler, run it under its limits, say what became of it.

use super::active::{Active, Stop};
use super::health::now;
use super::lines::{paced, pass_on_last};
use super::{Handled, Shared};
use crate::context::Ctx;
use crate::error::{JobError, Then, words_of};
use crate::handler::{Returned, Route};
use crate::job::ms;
use crate::observe::Attempt;
use futures::FutureExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;
use windlass_core::job::{Failure, FailureClass, Retry};
use windlass_core::retry::{RETRY_DELAY_MS_MAX, RetryAdvice};
use windlass_core::store::{ClaimedJob, Outcome, OutcomeKind};

/// When the kind should say how long to wait, and does not.
const BY_DEFAULT: Retry = Retry::AfterMs(1_000);
/// How much longer than it said a handler may take that ends by itself.
const OVER: Duration = Duration::from_secs(2);
/// How long such a handler has when the worker goes, which waits a second for it.
const LEAVING: Duration = Duration::from_millis(800);

/// How a handler ended.
enum End<T> {
    Returned(T),
    Panicked(String),
    TimedOut(Duration),
    /// It has not reported a heartbeat or progress for so long.
    Silent(Duration),
    Stopped,
}

/// A claimed job and what is known about it while it is active.
pub(super) type Started = (ClaimedJob, Arc<Active>);

/// Runs one job and sends its outcome, whatever happens.
pub(super) async fn execute(shared: Arc<Shared>, (job, active): Started) {
    let report = Report::new(&shared, &job, &active);
    let Some(handled) = shared.handlers.get(&job.spec.kind) else {
        // It was claimed for somebody else's handler; claims ask only for kinds that have one.
        return report.send(Some(OutcomeKind::Release { started: false }));
    };
    let Route::One(route) = &handled.route else {
        // The pump hands batches to `execute_many`.
        return report.send(Some(OutcomeKind::Release { started: false }));
    };
    if let Begin::No(outcome) = begin(&shared, &job, &active) {
        return report.send(outcome);
    }
    let job = Arc::new(job);
    let ctx = Ctx { job: Arc::clone(&job), active: Arc::clone(&active), world: Arc::clone(&shared.world), call: None };
    let over = handled.ends_within.map(|time| time + OVER);
    let limit = job.spec.timeout_ms.map(Duration::from_millis).map(|limit| limit + over.unwrap_or_default());
    let stopped = async {
        active.stopped().await;
        let leaving = async {
            active.stopped_for(Stop::Leaving).await;
            if over.is_some() {
                tokio::time::sleep(LEAVING).await;
            }
        };
        // Told to stop, a handler has a moment to do it by itself.
        tokio::select! {
            () = leaving => {}
            () = tokio::time::sleep(over.unwrap_or(shared.config.cancel_grace)) => {}
        }
    };
    let attempt = shared.world.attempts.begin(&job);
    let paced_jobs = [active.as_ref()];
    // A handler that keeps its time itself passes on its lines itself, too.
    let paced_jobs = if handled.ends_within.is_some() { &[] } else { &paced_jobs[..] };
    let handler = paced(&shared.world, paced_jobs, async { route(ctx).await });
    let limits = Limits { time: limit, silence: Silence::of(&[(&job, &active)]) };
    let end = caught(attempt.scope(run(handler, limits, stopped))).await;
    let kind = outcome(&shared, handled, &job, &active, end);
    attempt.end(kind.as_ref());
    if kind.is_some() {
        pass_on_last(&shared, &active).await;
    }
    report.send(kind);
}

/// Whether a handler may be called.
enum Begin {
    Yes,
    /// No; this is reported instead, if anything.
    No(Option<OutcomeKind>),
}

/// Checks, as the last thing before its handler is called, that a job was not cancelled and that its lease has not ended.
fn begin(shared: &Shared, job: &ClaimedJob, active: &Active) -> Begin {
    let outcome = match active.stop() {
        Stop::Cancelled | Stop::Leaving => return Begin::No(Some(OutcomeKind::Release { started: false })),
        Stop::No if !shared.world.lease_is_over(active) => return Begin::Yes,
        // The lease may still stand: the store applied the claim later than it was sent. Then others have it at once.
        Stop::No => Some(OutcomeKind::Release { started: false }),
        // Another lease of this job exists.
        Stop::Lost => None,
    };
    shared.world.attempts.dropped(job);
    tracing::warn!(
        job = %job.lease.job,
        "its lease ended before its handler could start; this process was stopped, or the store answered late"
    );
    Begin::No(outcome)
}

/// Runs several jobs of one kind together and sends the outcome of each, whatever happens.
pub(super) async fn execute_many(shared: Arc<Shared>, started: Vec<Started>) {
    let may_begin = |(job, active): Started| match begin(&shared, &job, &active) {
        Begin::Yes => Some((job, active)),
        Begin::No(outcome) => {
            Report::new(&shared, &job, &active).send(outcome);
            None
        }
    };
    let started: Vec<Started> = started.into_iter().filter_map(may_begin).collect();
    if started.is_empty() {
        return;
    }
    let reports: Vec<Report<'_>> = started.iter().map(|(job, active)| Report::new(&shared, job, active)).collect();
    let handled = started.first().and_then(|(job, _)| shared.handlers.get(&job.spec.kind));
    let Some((handled, Route::Many { run: route, .. })) = handled.map(|handled| (handled, &handled.route)) else {
        return reports.into_iter().for_each(|report| report.send(Some(OutcomeKind::Release { started: false })));
    };
    let jobs: Vec<(Arc<ClaimedJob>, &Arc<Active>)> =
        started.iter().map(|(job, active)| (Arc::new(job.clone()), active)).collect();
    let ctx = |(job, active): &(Arc<ClaimedJob>, &Arc<Active>)| Ctx {
        job: Arc::clone(job),
        active: Arc::clone(active),
        world: Arc::clone(&shared.world),
        call: None,
    };
    let contexts = jobs.iter().map(ctx).collect();
    // The strictest of them counts for all.
    let limit = jobs.iter().filter_map(|(job, _)| job.spec.timeout_ms).min().map(Duration::from_millis);
    let stopped = async {
        // A worker that leaves concerns all of them; that one is cancelled or lost does not concern the others.
        let leaving = futures::future::select_all(jobs.iter().map(|(_, active)| Box::pin(active.left())));
        let all = async {
            futures::future::join_all(jobs.iter().map(|(_, active)| active.stopped())).await;
            tokio::time::sleep(shared.config.cancel_grace).await;
        };
        tokio::select! {
            _ = leaving => {}
            () = all => {}
        }
    };
    let attempts: Vec<Attempt> = jobs.iter().map(|(job, _)| shared.world.attempts.begin(job)).collect();
    let actives: Vec<&Active> = jobs.iter().map(|(_, active)| active.as_ref()).collect();
    // A heartbeat of one of them counts for all.
    let watched: Vec<(&ClaimedJob, &Active)> =
        jobs.iter().map(|(job, active)| (job.as_ref(), active.as_ref())).collect();
    let limits = Limits { time: limit, silence: Silence::of(&watched) };
    let handler = run(paced(&shared.world, &actives, async { route(contexts).await }), limits, stopped);
    // They share a span; it cannot be but that of one of them.
    let end = match attempts.first() {
        Some(attempt) => caught(attempt.scope(handler)).await,
        None => caught(handler).await,
    };
    let ends = apart(end, jobs.len()).into_iter().zip(attempts);
    for (((job, active), report), (end, attempt)) in jobs.iter().zip(reports).zip(ends) {
        let kind = outcome(&shared, handled, job, active, end);
        attempt.end(kind.as_ref());
        if kind.is_some() {
            pass_on_last(&shared, active).await;
        }
        report.send(kind);
    }
}

/// A handler that has ended otherwise may panic as it is dropped.
async fn caught<T>(end: impl Future<Output = End<T>>) -> End<T> {
    AssertUnwindSafe(end).catch_unwind().await.unwrap_or_else(|panic| End::Panicked(words_of(panic.as_ref())))
}

/// The end of each job of a batch.
fn apart(end: End<Vec<Returned>>, jobs: usize) -> Vec<End<Returned>> {
    match end {
        End::Returned(answers) => answers.into_iter().map(End::Returned).collect(),
        End::Panicked(words) => (0..jobs).map(|_| End::Panicked(words.clone())).collect(),
        End::TimedOut(limit) => (0..jobs).map(|_| End::TimedOut(limit)).collect(),
        End::Silent(limit) => (0..jobs).map(|_| End::Silent(limit)).collect(),
        End::Stopped => (0..jobs).map(|_| End::Stopped).collect(),
    }
}

/// What ends an attempt that goes on for too long.
struct Limits<'a> {
    /// How long it may take.
    time: Option<Duration>,
    silence: Option<Silence<'a>>,
}

/// How long a handler may run without a heartbeat.
struct Silence<'a> {
    limit: Duration,
    actives: Vec<&'a Active>,
}

impl<'a> Silence<'a> {
    /// The shortest limit of these jobs; a heartbeat of any of them counts.
    fn of(jobs: &[(&ClaimedJob, &'a Active)]) -> Option<Self> {
        let limit = jobs.iter().filter_map(|(job, _)| job.spec.heartbeat_ms).min().map(Duration::from_millis)?;
        let actives: Vec<&Active> = jobs.iter().map(|(_, active)| *active).collect();
        Some(Self { limit, actives })
    }

    /// Returns when no heartbeat has come for too long.
    async fn passed(&self) {
        // The time before the handler was called does not count.
        self.actives.iter().for_each(|active| active.beat());
        loop {
            let Some(last) = self.actives.iter().filter_map(|active| active.last_beat()).max() else { return };
            if now() >= last + self.limit {
                return;
            }
            tokio::time::sleep_until(last + self.limit).await;
        }
    }
}

/// Runs a handler until it returns, panics, takes too long, is silent for too long, or has been told to stop and does not.
async fn run<T>(handler: impl Future<Output = T>, limits: Limits<'_>, stopped: impl Future<Output = ()>) -> End<T> {
    let Limits { time: limit, silence } = limits;
    let returned = async {
        match AssertUnwindSafe(handler).catch_unwind().await {
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
    let silent = async {
        match &silence {
            Some(silence) => silence.passed().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        end = returned => end,
        () = stopped => End::Stopped,
        () = too_long => End::TimedOut(limit.unwrap_or_default()),
        () = silent => End::Silent(silence.as_ref().map(|silence| silence.limit).unwrap_or_default()),
    }
}

/// What the store is told; nothing when the lease is lost.
fn outcome(
    shared: &Shared,
    handled: &Handled,
    job: &ClaimedJob,
    active: &Active,
    end: End<Returned>,
) -> Option<OutcomeKind> {
    let fail = |class, message: String, retry| {
        let failure = Failure { attempt: job.lease.attempt, ..Failure::new(class, message) };
        Some(OutcomeKind::Fail { failure, retry })
    };
    let by_policy = |error: &JobError| retry_of(shared, handled, job, error);
    let stop = active.stop();
    let end = match end {
        End::Returned(Err(error)) if error.is_of_stop() => End::Stopped,
        end => end,
    };
    if !matches!(end, End::Returned(_)) {
        // Whatever the handler has left running, a thread perhaps, learns that nobody waits for it.
        active.tell(Stop::Lost);
    }
    match (end, stop) {
        (_, Stop::Lost) => None,
        (End::Returned(Ok(result)), _) => {
            let outputs = std::mem::take(&mut active.notes().outputs);
            Some(OutcomeKind::Complete { result, outputs })
        }
        (End::Returned(Err(error)), _) => {
            let detail = error.detail_value().cloned();
            let failure =
                Failure { attempt: job.lease.attempt, detail, ..Failure::new(error.class(), error.to_string()) };
            Some(OutcomeKind::Fail { failure, retry: by_policy(&error) })
        }
        (End::Panicked(words), _) => {
            let retry = by_policy(&JobError::new(&words));
            fail(FailureClass::Panic, words, retry)
        }
        (End::TimedOut(limit), _) => {
            let words = format!("it took longer than its {} ms", ms(limit));
            let retry = by_policy(&JobError::new(&words));
            fail(FailureClass::Timeout, words, retry)
        }
        (End::Silent(limit), _) => {
            let words = format!("no heartbeat and no progress for {} ms", ms(limit));
            let retry = by_policy(&JobError::new(&words));
            fail(FailureClass::Timeout, words, retry)
        }
        (End::Stopped, Stop::Cancelled) => fail(FailureClass::Error, "cancelled".to_owned(), Retry::Never),
        (End::Stopped, Stop::No | Stop::Leaving) => Some(OutcomeKind::Release { started: true }),
    }
}

fn retry_of(shared: &Shared, handled: &Handled, job: &ClaimedJob, error: &JobError) -> Retry {
    let after = |delay| Retry::AfterMs(ms(delay).min(RETRY_DELAY_MS_MAX));
    match error.then() {
        Then::Never => Retry::Never,
        Then::After(delay) => after(delay),
        Then::Policy => match job.spec.retry.advise(job.lease.attempt, shared.random.next_u64()) {
            RetryAdvice::AfterMs(ms) => Retry::AfterMs(ms),
            RetryAdvice::Never => Retry::Never,
            RetryAdvice::AskKind => match &handled.backoff {
                Some(backoff) => {
                    let asked = catch_unwind(AssertUnwindSafe(|| backoff(job.lease.attempt, error)));
                    asked.map_or(BY_DEFAULT, |delay| delay.map_or(Retry::Never, after))
                }
                None => BY_DEFAULT,
            },
        },
    }
}

/// Sends what became of a job exactly once, also when its task is dropped.
struct Report<'a> {
    shared: &'a Shared,
    active: Arc<Active>,
    kind_at: Option<usize>,
    sent: bool,
}

impl<'a> Report<'a> {
    fn new(shared: &'a Shared, job: &ClaimedJob, active: &Arc<Active>) -> Self {
        Self { shared, active: Arc::clone(active), kind_at: shared.limited_kind(&job.spec.kind), sent: false }
    }

    fn send(mut self, kind: Option<OutcomeKind>) {
        self.tell(kind);
    }

    fn tell(&mut self, kind: Option<OutcomeKind>) {
        self.sent = true;
        if !self.active.note_ended() {
            // The worker has not waited for it, and has given the job back.
            return;
        }
        let lease = self.active.lease;
        let outcome = kind.map(|kind| Outcome { lease, kind });
        // The worker may have gone without waiting for it.
        let _ =
            self.shared.ended.send(super::Ended { lease, outcome, kind_at: self.kind_at, since: self.active.since });
    }
}

impl Drop for Report<'_> {
    fn drop(&mut self) {
        if !self.sent {
            // A thread that its handler has left running, perhaps.
            self.active.tell(Stop::Lost);
            self.tell(Some(OutcomeKind::Release { started: true }));
        }
    }
}
