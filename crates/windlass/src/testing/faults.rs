//! Faults on request: what a handler, a worker and a store may do to a job.

use crate::context::Ctx;
use crate::error::JobError;
use crate::handler::One;
use crate::job::Job;
use crate::worker::Stop;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use windlass_core::id::JobId;
use windlass_core::job::Lease;
use windlass_core::random::{Random, StrongRandom};

/// What is to go wrong. Give it to [`TestBed::inject`](super::TestBed::inject).
///
/// What concerns attempts happens in front of the handler, or behind it where that is said. What concerns the store
/// happens to every call of workers and clients.
///
/// ```
/// use std::time::Duration;
/// use windlass::testing::Faults;
///
/// let faults = Faults::new()
///     .panic_on_attempt(1)
///     .crash_worker_on_attempt(2)
///     .unavailable_for(Duration::from_secs(10));
/// # let _ = faults;
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "give it to `TestBed::inject`"]
pub struct Faults {
    kind: Option<&'static str>,
    fail_every: Option<u64>,
    on_attempt: Vec<(u32, OnAttempt)>,
    unavailable_for: Option<Duration>,
    lose_answers: Option<(u64, f64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OnAttempt {
    Fail,
    Panic,
    Hang,
    LoseLease,
    CrashWorker,
}

impl Faults {
    /// Nothing goes wrong.
    pub fn new() -> Self {
        Self::default()
    }

    /// Only attempts of this kind of job are concerned. Faults of the store concern all the same.
    pub fn only<J: Job>(mut self) -> Self {
        self.kind = Some(J::KIND);
        self
    }

    /// Every n-th attempt fails, counted over all jobs that are concerned. The handler is not called.
    pub fn fail_every(mut self, n: u64) -> Self {
        self.fail_every = Some(n.max(1));
        self
    }

    /// This attempt of every job fails. The handler is not called.
    pub fn fail_on_attempt(self, attempt: u32) -> Self {
        self.on(attempt, OnAttempt::Fail)
    }

    /// This attempt of every job panics. The handler is not called.
    pub fn panic_on_attempt(self, attempt: u32) -> Self {
        self.on(attempt, OnAttempt::Panic)
    }

    /// This attempt of every job never ends by itself: only its timeout ends it. The handler is not called.
    pub fn hang_on_attempt(self, attempt: u32) -> Self {
        self.on(attempt, OnAttempt::Hang)
    }

    /// The worker loses its lease on this attempt of every job: its renewals and its outcome are refused, the handler
    /// is told with the next renewal, and the job is delivered again when the lease has run out.
    pub fn lose_lease_on_attempt(self, attempt: u32) -> Self {
        self.on(attempt, OnAttempt::LoseLease)
    }

    /// The worker dies at the worst moment of this attempt of every job: the handler has done all its work, and its
    /// outcome never arrives. The lease runs out, and the job is delivered again. Tests that a handler may run twice.
    pub fn crash_worker_on_attempt(self, attempt: u32) -> Self {
        self.on(attempt, OnAttempt::CrashWorker)
    }

    /// From now on and for so long, the store is away: every call is answered `Unavailable` and changes nothing.
    pub fn unavailable_for(mut self, time: Duration) -> Self {
        self.unavailable_for = Some(time);
        self
    }

    /// This share of the calls (from 0 to 1) is carried out, and the answer is lost.
    pub fn lose_answers(mut self, seed: u64, rate: f64) -> Self {
        self.lose_answers = Some((seed, rate.clamp(0.0, 1.0)));
        self
    }

    fn on(mut self, attempt: u32, what: OnAttempt) -> Self {
        self.on_attempt.push((attempt, what));
        self
    }
}

/// What goes wrong at the moment, and what has.
#[derive(Debug, Default)]
pub(super) struct Injected(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    faults: Faults,
    attempts: u64,
    away_until: Option<Instant>,
    dice: Option<(StrongRandom, f64)>,
    /// What has gone wrong already: an attempt that a stall gave back comes again under its number.
    done: HashSet<(JobId, u32)>,
    /// Leases that their holders have lost without knowing it.
    lost: HashSet<Lease>,
}

/// What becomes of a call.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Pass,
    Unavailable,
    LoseAnswer,
}

impl Injected {
    #[expect(clippy::disallowed_methods, reason = "the store is away from now on, by the test's clock")]
    pub(super) fn set(&self, faults: Faults) {
        let mut state = self.0.lock();
        state.attempts = 0;
        state.done.clear();
        state.away_until = faults.unavailable_for.map(|time| Instant::now() + time);
        state.dice = faults.lose_answers.map(|(seed, rate)| (StrongRandom::seeded(seed), rate));
        state.faults = faults;
    }

    pub(super) fn fate(&self) -> Fate {
        if self.away_until().is_some() {
            return Fate::Unavailable;
        }
        let state = self.0.lock();
        match &state.dice {
            Some((dice, rate)) if fraction(dice) < *rate => Fate::LoseAnswer,
            _ => Fate::Pass,
        }
    }

    /// When the store comes back, if it is away.
    #[expect(clippy::disallowed_methods, reason = "by the test's clock")]
    pub(super) fn away_until(&self) -> Option<Instant> {
        self.0.lock().away_until.filter(|until| *until > Instant::now())
    }

    #[cfg(test)]
    pub(super) fn lose(&self, lease: Lease) {
        self.0.lock().lost.insert(lease);
    }

    pub(super) fn is_lost(&self, lease: Lease) -> bool {
        self.0.lock().lost.contains(&lease)
    }

    fn next(&self, ctx: &Ctx) -> Option<OnAttempt> {
        let mut state = self.0.lock();
        if state.faults.kind.is_some_and(|kind| kind != ctx.spec().kind.as_str()) {
            return None;
        }
        state.attempts += 1;
        let every = state.faults.fail_every.filter(|n| state.attempts.is_multiple_of(*n)).map(|_| OnAttempt::Fail);
        let mut planned = state.faults.on_attempt.iter().filter(|(attempt, _)| *attempt == ctx.attempt());
        let planned = planned.next().map(|(_, what)| *what);
        let planned = planned.filter(|_| state.done.insert((ctx.id(), ctx.attempt())));
        let what = planned.or(every);
        if what == Some(OnAttempt::LoseLease) {
            state.lost.insert(ctx.job.lease);
        }
        what
    }

    /// Puts what goes wrong in front of a handler.
    pub(super) fn around(self: Arc<Self>, route: One) -> One {
        Arc::new(move |ctx: Ctx| {
            let (route, what) = (Arc::clone(&route), self.next(&ctx));
            Box::pin(async move {
                match what {
                    None | Some(OnAttempt::LoseLease) => route(ctx).await,
                    Some(OnAttempt::Fail) => Err(JobError::new("failed by plan")),
                    Some(OnAttempt::Panic) => panic_by_plan(),
                    Some(OnAttempt::Hang) => std::future::pending().await,
                    Some(OnAttempt::CrashWorker) => {
                        let active = Arc::clone(&ctx.active);
                        // Whatever it says, nobody hears it.
                        let _ = route(ctx).await;
                        active.tell(Stop::Lost);
                        std::future::pending().await
                    }
                }
            })
        })
    }
}

#[expect(clippy::panic, reason = "a panic is what was asked for")]
fn panic_by_plan() -> ! {
    panic!("panicked by plan")
}

fn fraction(random: &StrongRandom) -> f64 {
    let bits = u32::try_from(random.next_u64() >> 32).unwrap_or(0);
    f64::from(bits) / (f64::from(u32::MAX) + 1.0)
}
