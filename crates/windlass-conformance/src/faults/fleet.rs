//! A small fleet on a store that fails: jobs are enqueued, claimed, renewed, reported and reaped by tasks that repeat
//! whatever may not have been applied. Afterwards nothing may be lost and nothing done twice.

use super::{FaultPlan, Faulty};
use crate::ctx::{Ctx, complete, fail, worker_id};
use crate::model::Replay;
use crate::runner::cases;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::task::JoinSet;
use windlass_core::id::JobId;
use windlass_core::job::{Job, Lease, NewJob, Retry, State};
use windlass_core::random::{Random, StrongRandom};
use windlass_core::store::{
    CallStore, ClaimRequest, ClaimedJob, EnqueueRequest, Enqueued, FeedCursor, FeedEvent, FeedRequest, JobQueue,
    Outcome, OutcomeKind, QueueCounts, RenewRequest, Renewal, ReportRequest, Reported, Sweep, SweepKind,
};
use windlass_core::{Error, Result};

cases!("faults": invariants_hold, a_calm_fleet_succeeds);

const QUEUE: &str = "fleet";
const ENQUEUERS: usize = 3;
const WORKERS: usize = 4;
const JOBS_EACH: usize = 40;
/// Short, because a store on a real clock waits for it once per round.
const LEASE_MS: u64 = 150;
const ROUNDS_MAX: usize = 40;
const SEEDS: [u64; 4] = [1, 2, 3, 4];

async fn invariants_hold(ctx: Ctx) {
    for seed in SEEDS {
        let fresh = Ctx::open(Arc::clone(&ctx.factory)).await;
        storm(&fresh, FaultPlan::stormy(seed), seed).await;
    }
}

async fn a_calm_fleet_succeeds(ctx: Ctx) {
    storm(&ctx, FaultPlan::calm(), 7).await;
}

/// What the tasks wrote down.
#[derive(Debug, Default)]
struct Ledger {
    /// Answers to the enqueuing of each job.
    enqueued: BTreeMap<JobId, Vec<Enqueued>>,
    /// Every lease that a worker was given.
    granted: BTreeSet<(JobId, u32, u64)>,
    /// Leases that were given back before their job had started.
    released: BTreeSet<(JobId, u64)>,
    /// Every answer to every outcome that was accepted, now or before.
    reported: Vec<(Lease, Reported)>,
    /// Attempts that their worker walked away from.
    abandoned: u64,
}

struct Fleet {
    store: Arc<CallStore<Faulty>>,
    ledger: Mutex<Ledger>,
    seed: u64,
}

async fn storm(ctx: &Ctx, plan: FaultPlan, seed: u64) {
    let store = Arc::new(Faulty::new(Arc::clone(&ctx.store), plan));
    let fleet = Arc::new(Fleet { store, ledger: Mutex::default(), seed });
    let jobs = jobs(ctx, seed);
    let mut over = false;
    for round in 0..ROUNDS_MAX {
        let mut tasks = JoinSet::new();
        if round == 0 {
            for share in jobs.chunks(JOBS_EACH) {
                tasks.spawn(enqueuer(Arc::clone(&fleet), share.to_vec()));
            }
        }
        for k in 0..WORKERS {
            tasks.spawn(worker(Arc::clone(&fleet), round, k));
        }
        tasks.spawn(sweeper(Arc::clone(&fleet)));
        tasks.join_all().await;
        let counts = ctx.counts(QUEUE).await;
        over = counts.scheduled + counts.ready + counts.active == 0;
        if over {
            break;
        }
        // What was abandoned is reaped in the next round.
        ctx.advance_ms(LEASE_MS).await;
    }
    assert!(over, "seed {seed}: after {ROUNDS_MAX} rounds {:?} are left", ctx.counts(QUEUE).await);
    fleet.store.calm_down();
    fleet.check(ctx, &jobs).await;
}

fn jobs(ctx: &Ctx, seed: u64) -> Vec<NewJob> {
    let random = StrongRandom::seeded(seed ^ 0x5eed);
    let make = |_| {
        ctx.job_with(QUEUE, |spec| {
            spec.attempts = u32::try_from(random.next_u64() % 4 + 1).unwrap();
            spec.stalls = u32::try_from(random.next_u64() % 3).unwrap();
            spec.priority = i16::try_from(random.next_u64() % 3).unwrap();
            let group = random.next_u64() % 4;
            spec.group = (group > 0).then(|| windlass_core::name::GroupName::new(format!("g{group}")).unwrap());
        })
    };
    (0..ENQUEUERS * JOBS_EACH).map(make).collect()
}

/// Repeats a call until it is answered.
async fn insist<T, F: Future<Output = Result<T>>>(call: impl Fn() -> F) -> T {
    for _ in 0..1_000 {
        match call().await {
            Ok(answer) => return answer,
            Err(error) if error.is_retryable() => tokio::task::yield_now().await,
            Err(error) => panic!("the call was refused: {error}"),
        }
    }
    panic!("a call was never answered")
}

async fn enqueuer(fleet: Arc<Fleet>, jobs: Vec<NewJob>) {
    for batch in jobs.chunks(3) {
        let answers = insist(|| fleet.store.enqueue(EnqueueRequest::new(batch.to_vec()))).await;
        let mut ledger = fleet.ledger.lock();
        for (job, answer) in batch.iter().zip(answers) {
            ledger.enqueued.entry(job.id).or_default().push(answer.unwrap());
        }
    }
}

/// Reaps and promotes, as any number of others may at the same time.
async fn sweeper(fleet: Arc<Fleet>) {
    for kind in [SweepKind::Reap, SweepKind::Promote, SweepKind::Reap] {
        loop {
            if !insist(|| fleet.store.sweep(Sweep { kind, max: 7 })).await.more {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
}

/// Works until there is nothing to claim, several times in a row.
async fn worker(fleet: Arc<Fleet>, round: usize, k: usize) {
    let random = StrongRandom::seeded(fleet.seed * 1_000 + (round * WORKERS + k) as u64);
    let name = format!("w{k}");
    let (mut number, mut idle) = (round as u64 * 100_000, 0);
    while idle < 3 {
        number += 1;
        let request = ClaimRequest {
            worker: worker_id(&name),
            request_id: number,
            queues: vec![crate::ctx::queue_name(QUEUE)],
            kinds: windlass_core::store::Kinds::Any,
            labels: windlass_core::name::Labels::default(),
            max: u32::try_from(random.next_u64() % 5 + 1).unwrap(),
            lease_ms: LEASE_MS,
        };
        let claimed = insist(|| fleet.store.claim(request.clone())).await;
        idle = if claimed.jobs.is_empty() { idle + 1 } else { 0 };
        let mut outcomes = Vec::new();
        for job in claimed.jobs {
            outcomes.extend(fleet.work(&random, job).await);
        }
        fleet.report(&name, outcomes).await;
    }
}

impl Fleet {
    /// Runs one job; `None` when its worker walks away from it.
    async fn work(&self, random: &StrongRandom, job: ClaimedJob) -> Option<Outcome> {
        let lease = job.lease;
        self.ledger.lock().granted.insert((lease.job, lease.attempt, lease.token.bits()));
        if random.next_u64().is_multiple_of(4) {
            let request = RenewRequest { renewals: vec![Renewal { lease, lease_ms: Some(LEASE_MS), progress: None }] };
            let renewed = insist(|| self.store.renew(request.clone())).await.remove(0);
            if renewed == Err(Error::LeaseLost) {
                return None;
            }
        }
        let kind = match random.next_u64() % 20 {
            0 => {
                self.ledger.lock().abandoned += 1;
                return None;
            }
            1 | 2 => OutcomeKind::Release { started: false },
            3 => OutcomeKind::Release { started: true },
            4..=7 => fail("boom", Retry::AfterMs(0)),
            8 => fail("final", Retry::Never),
            _ => complete(),
        };
        Some(Outcome { lease, kind })
    }

    /// Reports, and now and then once more, as a worker does that does not trust its network.
    async fn report(&self, worker: &str, outcomes: Vec<Outcome>) {
        if outcomes.is_empty() {
            return;
        }
        let request = ReportRequest { worker: worker_id(worker), outcomes };
        for _ in 0..2 {
            let answers = insist(|| self.store.report(request.clone())).await;
            let mut ledger = self.ledger.lock();
            for (outcome, answer) in request.outcomes.iter().zip(answers) {
                let lease = outcome.lease;
                match answer {
                    Ok(reported) => ledger.reported.push((lease, reported)),
                    // On a real clock the lease may have run out.
                    Err(Error::LeaseLost) => continue,
                    Err(error) => panic!("{error}"),
                }
                if outcome.kind == (OutcomeKind::Release { started: false }) {
                    ledger.released.insert((lease.job, lease.token.bits()));
                }
            }
        }
    }

    fn check_ledger(&self, jobs: &[NewJob], ended: &BTreeMap<JobId, State>) {
        let seed = self.seed;
        let ledger = self.ledger.lock();
        for job in jobs {
            let answers = &ledger.enqueued[&job.id];
            assert!(answers.iter().all(|answer| answer.id() == job.id), "seed {seed}: {answers:?}");
            assert!(ended[&job.id].is_terminal(), "seed {seed}: {} is {}", job.id, ended[&job.id]);
            check_deliveries(&ledger, job, seed);
        }
        check_completions(&ledger, ended, seed);
        let executed: BTreeSet<JobId> = ledger.granted.iter().map(|(job, ..)| *job).collect();
        assert!(executed.iter().all(|id| ended.contains_key(id)), "seed {seed}: a job out of nothing was executed");
    }

    async fn check(&self, ctx: &Ctx, jobs: &[NewJob]) {
        let seed = self.seed;
        let found = ctx.store.get(jobs.iter().map(|job| job.id).collect()).await.unwrap();
        let present = |job: Option<Job>| job.unwrap_or_else(|| panic!("seed {seed}: an acknowledged job is lost"));
        let ended: BTreeMap<JobId, State> = found.into_iter().map(present).map(|job| (job.id, job.state)).collect();
        self.check_ledger(jobs, &ended);
        check_counters(ctx, &ended).await;
        check_feed(ctx, jobs).await;
    }
}

/// Released ones excepted, a job is delivered at most as often as it may be tried and may stall.
fn check_deliveries(ledger: &Ledger, job: &NewJob, seed: u64) {
    let mine = ledger.granted.iter().filter(|(id, ..)| *id == job.id);
    let delivered = mine.filter(|(id, _, token)| !ledger.released.contains(&(*id, *token))).count();
    let allowed = (job.spec.attempts + job.spec.stalls) as usize;
    assert!(delivered <= allowed, "seed {seed}: {} was delivered {delivered} times, allowed are {allowed}", job.id);
}

/// A job that succeeded did so by exactly one lease, whose outcome was new at most once; any other job by none.
fn check_completions(ledger: &Ledger, ended: &BTreeMap<JobId, State>, seed: u64) {
    let mut wins: BTreeMap<JobId, BTreeSet<u64>> = BTreeMap::new();
    let mut firsts: BTreeMap<(JobId, u64), u32> = BTreeMap::new();
    for (lease, reported) in &ledger.reported {
        if reported.state == State::Succeeded {
            wins.entry(lease.job).or_default().insert(lease.token.bits());
        }
        *firsts.entry((lease.job, lease.token.bits())).or_insert(0) += u32::from(!reported.repeated);
    }
    assert!(firsts.values().all(|count| *count <= 1), "seed {seed}: an outcome was new twice: {firsts:?}");
    for (id, state) in ended {
        let count = wins.get(id).map_or(0, BTreeSet::len);
        let expected = usize::from(*state == State::Succeeded);
        assert_eq!(count, expected, "seed {seed}: {id} is {state} and was completed {count} times");
    }
    let outcomes: BTreeSet<State> = ended.values().copied().collect();
    assert!(outcomes.contains(&State::Succeeded) && outcomes.contains(&State::Failed), "seed {seed}: a lame fleet");
    assert!(ledger.abandoned > 0, "seed {seed}: nothing was abandoned");
}

async fn check_counters(ctx: &Ctx, ended: &BTreeMap<JobId, State>) {
    let mut recount = [0; 6];
    ended.values().for_each(|state| recount[state.index()] += 1);
    assert_eq!(ctx.counts(QUEUE).await, QueueCounts::from_array(recount), "counters differ from a recount");
}

/// The feed has no gap, whatever was lost or repeated, and tells the state.
async fn check_feed(ctx: &Ctx, jobs: &[NewJob]) {
    let mut replay = Replay::default();
    let mut after = FeedCursor(0);
    loop {
        let page = ctx.store.read_feed(FeedRequest { after: Some(after), max: 50 }).await.unwrap();
        assert!(!page.gap, "a gap in a short feed");
        for event in page.entries.iter().flat_map(|entry| &entry.events) {
            if let FeedEvent::Job(job) = event {
                replay.take(job).unwrap();
            }
        }
        if page.entries.is_empty() {
            break;
        }
        after = page.next;
    }
    let found = ctx.store.get(jobs.iter().map(|job| job.id).collect()).await.unwrap();
    let found = found.into_iter().flatten().map(|job| (job.id, job)).collect();
    replay.agrees_with(&found).unwrap();
}
