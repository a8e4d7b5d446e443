//! The heart of a worker: one task that claims ahead, starts jobs as slots come free, and reports what became of them.
//!
//! At most one call to the store is under way. Whatever ends meanwhile is reported with the next one, so that the busier
//! a worker is, the fewer calls a job costs. When a call fails, it is repeated as it was: the store recognises a claim by
//! its request id and an outcome by its token. A call that the store refuses for good is taken apart, so that one bad
//! outcome does not hold up the others.

mod leave;
mod waits;

use super::execute::Started;
use super::health::now;
use super::runners::{self, Start};
use super::starts;
use super::stop::{Haste, StopWatch};
use super::turns::Turns;
use super::{Ended, Shared};
use futures::FutureExt;
use futures::future::BoxFuture;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;
use tokio::time::Instant;
use waits::{maybe, maybe_sleep, maybe_until, until_work};
use windlass_core::job::{Failure, FailureClass, Retry, State};
use windlass_core::name::Kind;
use windlass_core::store::{
    BATCH_MAX, ClaimRequest, Claimed, ClaimedJob, Kinds, Outcome, OutcomeKind, ReportRequest, Reported, WorkMark,
};
use windlass_core::time::Timestamp;
use windlass_core::{Error, Result};

/// The longest wait between two tries while the store is away: with its jitter, well below the five seconds within which
/// a worker claims again.
const BACKOFF_MAX: Duration = Duration::from_secs(2);
const BACKOFF_MIN: Duration = Duration::from_millis(50);
/// How long a claimed job may wait for a slot. Others may have one free.
const AHEAD_MAX: Duration = Duration::from_secs(1);
/// Claiming ahead begins when jobs are over so soon after they were claimed.
const AHEAD_PAYS: Duration = Duration::from_millis(500);
/// Longer than any poll.
const POLL_MS_MAX: u64 = 60_000;
/// How long jobs may stand still before they get another runner.
const LOOK_AFTER: Duration = Duration::from_millis(10);

pub(super) struct Pump {
    shared: Arc<Shared>,
    ended: UnboundedReceiver<Ended>,
    /// Claimed, and not started.
    ahead: VecDeque<Ahead>,
    /// Jobs are short enough for claiming ahead.
    ahead_pays: bool,
    running: usize,
    /// Of each kind that has a limit.
    limited: Vec<Limited>,
    outcomes: Vec<Outcome>,
    /// So many of the next outcomes go one by one, because the store refused them together.
    singly: usize,
    request_id: u64,
    /// A claim whose answer is not known yet; it has to be repeated as it was.
    claim: Option<ClaimRequest>,
    /// When it was first sent, once an answer to it was lost: it may have been applied, whatever became of it since, and its
    /// leases may run since then.
    lost_sent_at: Option<Duration>,
    turns: Turns,
    seen: Seen,
    backoff: Duration,
    haste: Haste,
}

/// A job at hand, and since when.
struct Ahead {
    job: ClaimedJob,
    since: Instant,
}

/// Jobs of a kind that has a limit.
#[derive(Clone, Copy, Default)]
struct Limited {
    running: usize,
    /// Those and the ones at hand.
    held: usize,
}

/// What the last claim has told.
#[derive(Default)]
struct Seen {
    /// There was less than was asked for: the next one waits for a wake-up.
    dry: bool,
    mark: WorkMark,
    next_at: Option<Timestamp>,
    /// When to look again in any case.
    poll_at: Option<Instant>,
}

/// A call that is under way, and what it is about.
type Call = BoxFuture<'static, Answered>;

struct Answered {
    sent: Vec<Outcome>,
    /// By the clock of leases.
    sent_at: Duration,
    outcome: Result<(Vec<Result<Reported>>, Option<Claimed>)>,
}

impl Pump {
    pub(super) fn new(shared: Arc<Shared>, ended: UnboundedReceiver<Ended>) -> Self {
        let limited = vec![Limited::default(); shared.limits.len()];
        let request_id = starts::begin(shared.world.clock.as_ref());
        let turns = Turns::new(&shared.config.queues);
        Self {
            shared,
            ended,
            ahead: VecDeque::new(),
            ahead_pays: false,
            running: 0,
            limited,
            outcomes: Vec::new(),
            singly: 0,
            request_id,
            claim: None,
            lost_sent_at: None,
            turns,
            seen: Seen::default(),
            backoff: BACKOFF_MIN,
            haste: Haste::No,
        }
    }

    /// Runs until `stop` says so, then until the jobs that were started have ended or `stop` says to give them up. Each step
    /// of the stop is noted.
    pub(super) async fn run(mut self, mut stop: StopWatch, noted: watch::Sender<Haste>) {
        let mut call: Option<Call> = None;
        let mut ended = Vec::with_capacity(256);
        let mut pause: Option<std::pin::Pin<Box<tokio::time::Sleep>>> = None;
        let mut looks = waits::looks();
        loop {
            if call.is_none()
                && pause.is_none()
                && let Some(mut next) = self.next_call()
            {
                // Sent off before jobs are started, so that the store works while we do.
                match (&mut next).now_or_never() {
                    Some(answered) => {
                        pause = self.take_in(answered).map(|time| Box::pin(tokio::time::sleep(time)));
                        self.start_what_may();
                        continue;
                    }
                    None => call = Some(next),
                }
            }
            self.start_what_may();
            if call.is_none() && self.is_done() {
                return;
            }
            // When there is more to claim and it is not claimed, there is no room: an end makes some.
            let idle = call.is_none() && pause.is_none() && self.haste == Haste::No && self.seen.dry;
            tokio::select! {
                biased;
                haste = stop.changed() => match haste {
                    Haste::Gone => return tracing::warn!(unreported = self.outcomes.len(), "left without the store's answer"),
                    haste => {
                        self.hurry(haste);
                        noted.send_replace(haste);
                        // Those of before may belong to a runtime whose threads are all blocked.
                        (pause, looks) = (None, waits::looks());
                    }
                },
                answered = maybe(&mut call), if call.is_some() => {
                    call = None;
                    pause = self.take_in(answered).map(|time| Box::pin(tokio::time::sleep(time)));
                }
                () = maybe_sleep(&mut pause), if pause.is_some() => pause = None,
                n = self.ended.recv_many(&mut ended, 1_024) => {
                    debug_assert!(n > 0, "the worker holds a sender");
                    self.note_ended(&mut ended);
                }
                () = maybe_until(self.ahead.front().map(|ahead| ahead.since + AHEAD_MAX)), if !self.ahead.is_empty() => {
                    self.give_back_stale();
                }
                _ = looks.tick(), if self.shared.runners.are_behind() => runners::look_after(&self.shared),
                () = until_work(&self.shared, &self.seen, &self.turns), if idle => self.seen.dry = false,
            }
        }
    }

    fn is_done(&self) -> bool {
        self.haste > Haste::No && self.running == 0 && self.outcomes.is_empty() && self.claim.is_none()
    }

    /// Starts claimed jobs while there are slots for them.
    fn start_what_may(&mut self) {
        let mut passed = VecDeque::new();
        let mut starts = Vec::new();
        while self.running < self.shared.config.slots {
            let Some(ahead) = self.ahead.pop_front() else { break };
            if !self.take_slot(&ahead.job.spec.kind) {
                passed.push_back(ahead);
                continue;
            }
            let job = ahead.job;
            let size = self.shared.batch_size(&job.spec.kind);
            let first = self.started(job);
            starts.push(match size {
                Some(size) => Start::Many(self.batch(first, size)),
                None => Start::One(first),
            });
        }
        if !starts.is_empty() {
            runners::start(&self.shared, starts);
        }
        // Those of a kind at its limit go on waiting, before all that came later.
        while let Some(ahead) = passed.pop_back() {
            self.ahead.push_front(ahead);
        }
        self.shared.health.note_load(self.running, !self.has_room());
    }

    /// One job of this kind more runs, if it may.
    fn take_slot(&mut self, kind: &Kind) -> bool {
        if let Some(at) = self.shared.limited_kind(kind) {
            if self.limited[at].running >= self.shared.limits[at].1 {
                return false;
            }
            self.limited[at].running += 1;
        }
        self.running += 1;
        true
    }

    fn started(&self, job: ClaimedJob) -> Started {
        let active = self.shared.actives.get_or_add(job.lease);
        (job, active)
    }

    /// A job together with others of its kind, as many as are at hand and may run.
    fn batch(&mut self, first: Started, size: usize) -> Vec<Started> {
        let kind = first.0.spec.kind.clone();
        let mut batch = vec![first];
        let mut rest = VecDeque::with_capacity(self.ahead.len());
        while let Some(ahead) = self.ahead.pop_front() {
            let fits = batch.len() < size && self.running < self.shared.config.slots && ahead.job.spec.kind == kind;
            if fits && self.take_slot(&kind) {
                batch.push(self.started(ahead.job));
            } else {
                rest.push_back(ahead);
            }
        }
        self.ahead = rest;
        batch
    }

    /// How many jobs may be claimed beside those that are held: as many again as there are slots while jobs are short, so that
    /// no slot waits for the store; none beyond the slots while they are long, so that no job waits beside an idle worker.
    fn wants(&self) -> usize {
        let most = self.shared.config.slots * if self.ahead_pays { 2 } else { 1 };
        most.saturating_sub(self.running + self.ahead.len()).min(BATCH_MAX)
    }

    /// The next call to the store, if there is a reason for one.
    fn next_call(&mut self) -> Option<Call> {
        let claim = self.next_claim();
        if self.outcomes.is_empty() && claim.is_none() {
            return None;
        }
        let most = if self.singly > 0 { 1 } else { BATCH_MAX };
        let rest = self.outcomes.split_off(self.outcomes.len().min(most));
        let outcomes = std::mem::replace(&mut self.outcomes, rest);
        self.claim.clone_from(&claim);
        let (shared, worker) = (Arc::clone(&self.shared), self.shared.config.id.clone());
        let call = async move {
            let sent = outcomes.clone();
            let report = ReportRequest { worker, outcomes };
            let (store, sent_at) = (&shared.store, shared.world.lease_clock.now());
            let outcome = match claim {
                Some(claim) if sent.is_empty() => store.claim(claim).await.map(|claimed| (Vec::new(), Some(claimed))),
                Some(claim) => {
                    let both = store.report_and_claim(report, claim).await;
                    both.map(|both| (both.reported, Some(both.claimed)))
                }
                None => store.report(report).await.map(|reported| (reported, None)),
            };
            Answered { sent, sent_at, outcome }
        };
        Some(call.boxed())
    }

    fn next_claim(&mut self) -> Option<ClaimRequest> {
        if self.singly > 0 {
            return None;
        }
        if let Some(claim) = self.claim.take()
            // Once it leaves, only a claim that may have been applied is repeated: to give back what it brought.
            && (self.haste == Haste::No || self.lost_sent_at.is_some())
        {
            return Some(claim);
        }
        if self.haste > Haste::No || self.seen.dry || !self.has_room() {
            return None;
        }
        self.request_id += 1;
        self.lost_sent_at = None;
        let (kinds, max) = (self.kinds_with_room(), u32::try_from(self.wants()).unwrap_or(u32::MAX));
        Some(self.shared.config.claim(self.request_id, self.turns.next(), Kinds::Only(kinds), max))
    }

    /// True when more jobs may be held. Small claims are for those who have nothing to do: as long as there is work at hand,
    /// a worker waits until it is worth it.
    fn has_room(&self) -> bool {
        let wants = self.wants();
        let worth = self.ahead.is_empty() || wants >= self.shared.config.slots;
        wants > 0 && worth && self.shared.handlers.keys().any(|kind| self.has_room_for(kind))
    }

    /// A kind that is held as often as it may run is not claimed: what it would take away from the others, it could not use.
    fn has_room_for(&self, kind: &Kind) -> bool {
        self.shared.limited_kind(kind).is_none_or(|at| self.limited[at].held < self.shared.limits[at].1)
    }

    fn kinds_with_room(&self) -> Vec<Kind> {
        self.shared.handlers.keys().filter(|kind| self.has_room_for(kind)).cloned().collect()
    }

    /// Takes in what the store has answered; says how long to leave it alone when it has not.
    fn take_in(&mut self, answered: Answered) -> Option<Duration> {
        let Answered { sent, sent_at, outcome } = answered;
        match outcome {
            Ok((reported, claimed)) => {
                self.backoff = BACKOFF_MIN;
                self.singly = self.singly.saturating_sub(sent.len());
                self.shared.actives.remove(sent.iter().map(|outcome| outcome.lease));
                // What was put off may be due before anything that the last claim knew of.
                if reported.iter().flatten().any(|reported| reported.state == State::Scheduled) {
                    self.seen.dry = false;
                }
                let refused =
                    sent.iter().zip(reported).filter_map(|(outcome, answer)| in_place_of(outcome, answer.err()?));
                self.outcomes.extend(refused);
                if let Some(claimed) = claimed {
                    self.shared.health.note_claim();
                    let claim = self.claim.take();
                    let sent_at = self.lost_sent_at.take().unwrap_or(sent_at);
                    self.take_claimed(claimed, claim.as_ref(), sent_at);
                }
                None
            }
            Err(error) => {
                if error.is_outcome_unknown() && self.claim.is_some() {
                    self.lost_sent_at.get_or_insert(sent_at);
                }
                self.note_failed_call(sent, &error);
                let wait = self.backoff.mul_f64(0.5 + self.shared.fraction());
                self.backoff = (self.backoff * 2).min(BACKOFF_MAX);
                Some(wait)
            }
        }
    }

    fn note_failed_call(&mut self, sent: Vec<Outcome>, error: &Error) {
        tracing::warn!(%error, "the store did not take a call");
        let alone = sent.len() == 1 && self.claim.is_none();
        let again = if error.is_retryable() {
            sent
        } else if alone {
            self.singly = self.singly.saturating_sub(1);
            self.shared.actives.remove(sent.iter().map(|outcome| outcome.lease));
            sent.iter().filter_map(|outcome| in_place_of(outcome, error.clone())).collect()
        } else {
            // One of them is at fault, or the claim is: they are sent without it, one by one.
            self.singly = sent.len();
            sent
        };
        // Nothing may overtake what is to be repeated.
        let later = std::mem::replace(&mut self.outcomes, again);
        self.outcomes.extend(later);
        if !error.is_retryable() && self.claim.take().is_some() {
            // It would be refused again. Perhaps for its number: a clock may have been set back since this id was last used.
            self.request_id = self.request_id.saturating_add(1 << 52);
        }
    }

    fn take_claimed(&mut self, claimed: Claimed, claim: Option<&ClaimRequest>, sent_at: Duration) {
        let Claimed { jobs, mark, next_at, poll_after_ms } = claimed;
        let got_all = claim.is_some_and(|claim| jobs.len() >= claim.max as usize);
        self.shared.actives.add(jobs.iter().map(|job| job.lease), sent_at, self.shared.config.lease_ms);
        let since = now();
        for job in jobs {
            self.hold(job, since);
        }
        // A kind that had no room then and has now was not looked for.
        let looked_for = |kind: &Kind| claim.is_some_and(|claim| claim.kinds.contain(kind));
        let looked_for_all = self.kinds_with_room().iter().all(looked_for);
        let poll = poll_after_ms.map_or(self.shared.config.poll, Duration::from_millis);
        let poll_at = since + poll.max(self.shared.config.poll);
        self.seen = Seen { dry: !got_all && looked_for_all, mark, next_at, poll_at: Some(poll_at) };
        if self.haste > Haste::No {
            self.give_back_ahead();
        }
    }

    /// Keeps a claimed job at hand, unless there are as many of its kind as will run for a while: others may have it.
    fn hold(&mut self, job: ClaimedJob, since: Instant) {
        if let Some(at) = self.shared.limited_kind(&job.spec.kind) {
            if self.limited[at].held >= 2 * self.shared.limits[at].1 {
                return self.give_back(job.lease);
            }
            self.limited[at].held += 1;
        }
        self.ahead.push_back(Ahead { job, since });
    }

    fn note_ended(&mut self, ended: &mut Vec<Ended>) {
        if let Some(last) = ended.last() {
            // Enough to know: one of many that ended together.
            let took = now().duration_since(last.since);
            self.ahead_pays = took < if self.ahead_pays { AHEAD_MAX } else { AHEAD_PAYS };
        }
        for Ended { lease, outcome, kind_at, since: _ } in ended.drain(..) {
            self.running = self.running.saturating_sub(1);
            if let Some(at) = kind_at {
                let limited = &mut self.limited[at];
                limited.running = limited.running.saturating_sub(1);
                limited.held = limited.held.saturating_sub(1);
                // A kind that had no room may be claimed again.
                self.seen.dry &= limited.held + 1 != self.shared.limits[at].1;
            }
            match outcome {
                Some(outcome) => self.outcomes.push(outcome),
                None => self.shared.actives.remove(std::iter::once(lease)),
            }
        }
    }
}

/// What is to be reported in place of an outcome that the store has refused; nothing when it would not help.
fn in_place_of(outcome: &Outcome, error: Error) -> Option<Outcome> {
    let lease = outcome.lease;
    match (error, &outcome.kind) {
        // Its handler was never called.
        (Error::LeaseLost, OutcomeKind::Release { started: false }) => {}
        (Error::LeaseLost, _) => tracing::warn!(job = %lease.job, "its lease was lost before its outcome came"),
        (error, OutcomeKind::Complete { .. }) => {
            tracing::error!(job = %lease.job, %error, "the store refused its outcome");
            let message = format!("its outcome was refused: {error}");
            // A workflow that waits for the job gets an error of a class of its own.
            let detail = matches!(error, Error::Limit { .. }).then(crate::error::too_large_detail);
            let failure = Failure { detail, ..Failure::new(FailureClass::Error, message) };
            return Some(Outcome { lease, kind: OutcomeKind::Fail { failure, retry: Retry::Never } });
        }
        (error, OutcomeKind::Fail { .. } | OutcomeKind::Release { .. }) => {
            tracing::error!(job = %lease.job, %error, "the store refused its outcome; its lease will run out");
        }
    }
    None
}
