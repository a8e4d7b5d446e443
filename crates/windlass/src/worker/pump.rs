//! The heart of a worker: one task that claims ahead, starts jobs as slots come free, and reports what became of them.
//!
//! At most one call to the store is under way. Whatever ends meanwhile is reported with the next one, so that the busier
//! a worker is, the fewer calls a job costs. When a call fails, it is repeated as it was: the store recognises a claim by
//! its request id and an outcome by its token.

use super::active::Stop;
use super::execute::execute;
use super::{Ended, Shared};
use futures::FutureExt;
use futures::future::BoxFuture;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;
use windlass_core::job::{Lease, Retry};
use windlass_core::name::QueueName;
use windlass_core::store::{
    BATCH_MAX, ClaimRequest, Claimed, ClaimedJob, Kinds, Outcome, ReportRequest, Reported, WaitFor, WorkMark,
};
use windlass_core::time::Timestamp;
use windlass_core::{Error, Result};

/// The longest wait between two tries while the store is away.
const BACKOFF_MAX: Duration = Duration::from_secs(2);
const BACKOFF_MIN: Duration = Duration::from_millis(50);

pub(super) struct Pump {
    shared: Arc<Shared>,
    ended: UnboundedReceiver<Ended>,
    /// Claimed, and not started.
    ahead: VecDeque<ClaimedJob>,
    running: usize,
    /// Running jobs of each kind that has a limit.
    per_kind: Vec<usize>,
    outcomes: Vec<Outcome>,
    request_id: u64,
    /// A claim whose answer is not known yet; it has to be repeated as it was.
    claim: Option<ClaimRequest>,
    turns: Turns,
    seen: Seen,
    backoff: Duration,
    leaving: bool,
}

/// What the last claim has told.
#[derive(Default)]
struct Seen {
    /// There was less than was asked for: the next one waits for a wake-up.
    dry: bool,
    mark: WorkMark,
    next_at: Option<Timestamp>,
}

/// A call that is under way, and what it is about.
type Call = BoxFuture<'static, Answered>;

struct Answered {
    sent: Vec<Outcome>,
    outcome: Result<(Vec<Result<Reported>>, Option<Claimed>)>,
}

impl Pump {
    pub(super) fn new(shared: Arc<Shared>, ended: UnboundedReceiver<Ended>) -> Self {
        let per_kind = vec![0; shared.limits.len()];
        let turns = Turns::new(&shared.config.queues);
        Self {
            shared,
            ended,
            ahead: VecDeque::new(),
            running: 0,
            per_kind,
            outcomes: Vec::new(),
            request_id: 0,
            claim: None,
            turns,
            seen: Seen::default(),
            backoff: BACKOFF_MIN,
            leaving: false,
        }
    }

    /// Runs until `stop` says so, then until the jobs that were started have ended or `stop` says to give them up.
    pub(super) async fn run(mut self, mut stop: super::StopWatch) {
        let mut call: Option<Call> = None;
        let mut ended = Vec::with_capacity(256);
        let mut pause: Option<std::pin::Pin<Box<tokio::time::Sleep>>> = None;
        loop {
            self.start_what_may();
            if call.is_none() && pause.is_none() {
                call = self.next_call();
            }
            if self.leaving && call.is_none() && self.running == 0 && self.outcomes.is_empty() {
                return;
            }
            let idle = call.is_none() && pause.is_none() && !self.leaving && self.wants() > 0;
            tokio::select! {
                biased;
                () = stop.changed(self.leaving) => self.leave(stop.is_urgent()),
                answered = maybe(&mut call), if call.is_some() => {
                    call = None;
                    pause = self.take_in(answered).map(|time| Box::pin(tokio::time::sleep(time)));
                }
                () = maybe_sleep(&mut pause), if pause.is_some() => pause = None,
                n = self.ended.recv_many(&mut ended, 1_024) => {
                    debug_assert!(n > 0, "the worker holds a sender");
                    self.note_ended(&mut ended);
                }
                () = until_work(&self.shared, &self.seen, &self.turns), if idle => self.seen.dry = false,
            }
        }
    }

    /// Starts claimed jobs while there are slots for them.
    fn start_what_may(&mut self) {
        let mut passed = VecDeque::new();
        while self.running < self.shared.config.slots {
            let Some(job) = self.ahead.pop_front() else { break };
            match self.shared.limited_kind(&job.spec.kind) {
                Some(at) if self.per_kind[at] >= self.shared.limits[at].1 => {
                    passed.push_back(job);
                    continue;
                }
                Some(at) => self.per_kind[at] += 1,
                None => {}
            }
            let Some(active) = self.shared.actives.get(job.lease.job) else { continue };
            self.running += 1;
            let task = execute(Arc::clone(&self.shared), job, active);
            drop(self.shared.runtime.spawn(task));
        }
        // Those of a kind at its limit go on waiting, before all that came later.
        while let Some(job) = passed.pop_back() {
            self.ahead.push_front(job);
        }
    }

    /// How many jobs may be claimed beside those that are held.
    fn wants(&self) -> usize {
        (2 * self.shared.config.slots).saturating_sub(self.running + self.ahead.len()).min(BATCH_MAX)
    }

    /// The next call to the store, if there is a reason for one.
    fn next_call(&mut self) -> Option<Call> {
        let claim = self.next_claim();
        if self.outcomes.is_empty() && claim.is_none() {
            return None;
        }
        let rest = self.outcomes.split_off(self.outcomes.len().min(BATCH_MAX));
        let outcomes = std::mem::replace(&mut self.outcomes, rest);
        self.claim.clone_from(&claim);
        let (store, worker) = (Arc::clone(&self.shared.store), self.shared.config.id.clone());
        let call = async move {
            let sent = outcomes.clone();
            let report = ReportRequest { worker, outcomes };
            let outcome = match claim {
                Some(claim) if sent.is_empty() => store.claim(claim).await.map(|claimed| (Vec::new(), Some(claimed))),
                Some(claim) => {
                    let both = store.report_and_claim(report, claim).await;
                    both.map(|both| (both.reported, Some(both.claimed)))
                }
                None => store.report(report).await.map(|reported| (reported, None)),
            };
            Answered { sent, outcome }
        };
        Some(call.boxed())
    }

    fn next_claim(&mut self) -> Option<ClaimRequest> {
        if self.leaving {
            return None;
        }
        if let Some(claim) = self.claim.take() {
            return Some(claim);
        }
        let wants = self.wants();
        // Small claims are for those who have nothing to do: as long as there is work at hand, wait until it is worth it.
        let worth = self.ahead.is_empty() || wants >= self.shared.config.slots;
        if wants == 0 || self.seen.dry || !worth {
            return None;
        }
        let kinds = self.kinds_below_limit()?;
        self.request_id += 1;
        let config = &self.shared.config;
        Some(ClaimRequest {
            worker: config.id.clone(),
            request_id: self.request_id,
            queues: self.turns.next(),
            kinds,
            labels: config.labels.clone(),
            max: u32::try_from(wants).unwrap_or(u32::MAX),
            lease_ms: config.lease_ms,
        })
    }

    /// The kinds that have a handler with room; `None` when there is none.
    fn kinds_below_limit(&self) -> Option<Kinds> {
        let at_limit =
            |kind: &_| self.shared.limited_kind(kind).is_some_and(|at| self.per_kind[at] >= self.shared.limits[at].1);
        let kinds: Vec<_> = self.shared.handlers.keys().filter(|kind| !at_limit(kind)).cloned().collect();
        (!kinds.is_empty()).then_some(Kinds::Only(kinds))
    }

    /// Takes in what the store has answered; says how long to leave it alone when it has not.
    fn take_in(&mut self, answered: Answered) -> Option<Duration> {
        let Answered { sent, outcome } = answered;
        match outcome {
            Ok((reported, claimed)) => {
                self.backoff = BACKOFF_MIN;
                self.shared.note_answer();
                self.shared.actives.remove(sent.iter().map(|outcome| outcome.lease));
                let refused: Vec<Outcome> =
                    sent.iter().zip(reported).filter_map(|(o, r)| refused(o.lease, r)).collect();
                self.outcomes.extend(refused);
                if let Some(claimed) = claimed {
                    let asked = self.claim.take().map_or(0, |claim| claim.max as usize);
                    self.take_claimed(claimed, asked);
                }
                None
            }
            Err(error) => {
                tracing::warn!(%error, "the store did not take a call; it is repeated");
                // Nothing may overtake what is to be repeated.
                let later = std::mem::replace(&mut self.outcomes, sent);
                self.outcomes.extend(later);
                if !error.is_retryable() {
                    // It would be refused again; the next one may not.
                    self.claim = None;
                    self.request_id += 1;
                }
                let wait = self.backoff.mul_f64(0.5 + self.shared.fraction());
                self.backoff = (self.backoff * 2).min(BACKOFF_MAX);
                Some(wait)
            }
        }
    }

    fn take_claimed(&mut self, claimed: Claimed, asked: usize) {
        let Claimed { jobs, mark, next_at } = claimed;
        self.seen = Seen { dry: jobs.len() < asked, mark, next_at };
        self.shared.actives.add(jobs.iter().map(|job| job.lease));
        if self.leaving {
            self.outcomes.extend(jobs.iter().map(|job| Outcome::release(job.lease)));
        } else {
            self.ahead.extend(jobs);
        }
    }

    fn note_ended(&mut self, ended: &mut Vec<Ended>) {
        let before = self.running;
        for Ended { lease, outcome, kind_at } in ended.drain(..) {
            self.running = self.running.saturating_sub(1);
            if let Some(at) = kind_at {
                self.per_kind[at] = self.per_kind[at].saturating_sub(1);
            }
            match outcome {
                Some(outcome) => self.outcomes.push(outcome),
                None => self.shared.actives.remove(std::iter::once(lease)),
            }
        }
        if before >= self.shared.config.slots && !self.shared.limits.is_empty() {
            // A kind that was at its limit has room again.
            self.seen.dry = false;
        }
    }

    /// No more claims. What was not started goes back; what was has until the deadline, or no time when it is urgent.
    fn leave(&mut self, urgent: bool) {
        self.leaving = true;
        self.claim = None;
        let unstarted = self.ahead.drain(..);
        self.outcomes.extend(unstarted.map(|job| Outcome::release(job.lease)));
        if urgent {
            for active in self.shared.actives.all() {
                active.tell(Stop::Leaving);
            }
        }
    }
}

/// What is to be reported in place of an outcome that the store has refused.
fn refused(lease: Lease, answer: Result<Reported>) -> Option<Outcome> {
    match answer {
        Ok(_) => None,
        Err(Error::LeaseLost) => {
            tracing::warn!(job = %lease.job, "its lease was lost before its outcome came");
            None
        }
        Err(error) => {
            tracing::error!(job = %lease.job, %error, "the store refused its outcome");
            Some(Outcome::fail(lease, format!("its outcome was refused: {error}"), Retry::Never))
        }
    }
}

async fn maybe(call: &mut Option<Call>) -> Answered {
    match call {
        Some(call) => call.await,
        None => std::future::pending().await,
    }
}

async fn maybe_sleep(pause: &mut Option<std::pin::Pin<Box<tokio::time::Sleep>>>) {
    match pause {
        Some(pause) => pause.await,
        None => std::future::pending().await,
    }
}

/// Returns when there may be something to claim.
async fn until_work(shared: &Shared, seen: &Seen, turns: &Turns) {
    if !seen.dry {
        return;
    }
    let poll = shared.config.poll;
    let soon = match seen.next_at {
        Some(at) => match shared.store.now().await {
            Ok(now) => Duration::from_millis(at.ms_since(now)).min(poll),
            Err(_) => poll,
        },
        None => poll,
    };
    let wait = WaitFor::Work { queues: turns.queues.clone(), mark: seen.mark };
    tokio::select! {
        // A store that cannot say waits as long as the others.
        answer = shared.store.wait(wait) => if answer.is_err() { tokio::time::sleep(poll).await },
        () = tokio::time::sleep(soon) => {}
    }
}

/// Whose turn it is to be asked first: each queue as often as its weight says.
struct Turns {
    queues: Vec<QueueName>,
    weights: Vec<i64>,
    credit: Vec<i64>,
}

impl Turns {
    fn new(queues: &[(QueueName, u32)]) -> Self {
        let weights: Vec<i64> = queues.iter().map(|(_, weight)| i64::from((*weight).max(1))).collect();
        let credit = vec![0; weights.len()];
        Self { queues: queues.iter().map(|(name, _)| name.clone()).collect(), weights, credit }
    }

    /// The queues, the one whose turn it is first. Those that follow are for what it leaves over.
    fn next(&mut self) -> Vec<QueueName> {
        for (credit, weight) in self.credit.iter_mut().zip(&self.weights) {
            *credit += weight;
        }
        let mut order: Vec<usize> = (0..self.queues.len()).collect();
        order.sort_by_key(|&at| std::cmp::Reverse(self.credit[at]));
        if let Some(&first) = order.first() {
            self.credit[first] -= self.weights.iter().sum::<i64>();
        }
        order.into_iter().map(|at| self.queues[at].clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Turns;

    #[test]
    fn each_queue_is_first_as_often_as_its_weight_says() {
        let names = ["a", "b", "c"].map(|name| name.try_into().unwrap());
        let queues: Vec<_> = names.into_iter().zip([5, 3, 1]).collect();
        let mut turns = Turns::new(&queues);
        let mut first = [0; 3];
        for _ in 0..90 {
            let order = turns.next();
            assert_eq!(order.len(), 3);
            first[queues.iter().position(|(name, _)| *name == order[0]).unwrap()] += 1;
        }
        assert_eq!(first, [50, 30, 10]);
    }
}
