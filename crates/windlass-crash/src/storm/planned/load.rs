//! The load: callers that enqueue, workers, runs, and idle workers. Callers and workers have several store handles, as
//! separate processes have.

use super::meter::Meter;
use super::runs::{NODES, RunFindings, RunLedger, audit_runs, open_runs, start_runs};
use super::wake::IdleWorkers;
use super::worker::Worker;
use crate::Result;
use crate::child::{Dice, open, pass_ms, queue};
use crate::enqueuer::{accept, job};
use crate::hand::Hand;
use crate::parent::{audit_store, counts, waiting};
use crate::recount::{Raw, recount};
use crate::storm::bed::PREFIX;
use crate::storm::crew::{Outcome, none_ended, recovery_ms};
use crate::storm::keep_everything;
use crate::watch::Watch;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use windlass_audit::{Book, Entry};
use windlass_core::id::Ids;
use windlass_core::name::QueueName;
use windlass_core::random::StrongRandom;
use windlass_core::store::Store;
use windlass_core::time::{Clock, SystemClock, Timestamp};

/// Store handles of callers.
const HANDLES: u32 = 4;
/// Callers of one handle that enqueue one job at a time.
const SINGLE_CALLERS: u32 = 5;
/// Jobs of one call of the others; there is one such caller for each handle.
const BATCH: u64 = 8;
/// Workers, each with a handle of its own.
const WORKERS: u32 = 4;
/// Tasks that start runs, each with a handle of its own.
const RUN_STARTERS: u32 = 2;
/// How long a caller waits between two calls when it is not at full speed.
const PACE_MS: u64 = 50;
/// How long the load may take for one step of the storm, on a machine that is busy with other work.
const STEP_MS_MAX: u64 = 90_000;
/// After so long without a completion nothing more will be: longer than any lease.
const STUCK_MS: u64 = 15_000;

/// What became of the load's work.
pub(super) struct LoadOutcome {
    pub(super) jobs: Outcome,
    pub(super) runs: RunFindings,
    pub(super) gap_ms: u64,
}

pub(super) struct Load {
    url: String,
    store: Arc<dyn Store>,
    pub(super) watch: Arc<Watch>,
    pub(super) meter: Arc<Meter>,
    runs: Arc<RunLedger>,
    book: Book,
    callers: JoinSet<Result<()>>,
    workers: JoinSet<Result<()>>,
    pub(super) idle: IdleWorkers,
    seeds: Dice,
    newcomers: u32,
}

impl Load {
    pub(super) async fn start(url: &str, seed: u64) -> Result<Self> {
        let store = open(Path::new(PREFIX), Some(url))?;
        keep_everything(store.as_ref(), vec![queue()?, QueueName::new(NODES)?]).await?;
        let mut load = Self {
            url: url.to_owned(),
            store,
            watch: Arc::default(),
            meter: Arc::default(),
            runs: Arc::default(),
            book: Book::default(),
            callers: JoinSet::new(),
            workers: JoinSet::new(),
            idle: IdleWorkers::start(url)?,
            seeds: Dice::new(seed),
            newcomers: 0,
        };
        for at in 0..WORKERS {
            let hand = load.hand(format!("worker-{at}"), open(Path::new(PREFIX), Some(url))?, load.seeds.seed());
            let worker = Worker { hand, meter: Arc::clone(&load.meter), runs: Arc::clone(&load.runs) };
            load.workers.spawn(worker.work());
        }
        for at in 0..RUN_STARTERS {
            let hand = load.hand(format!("starter-{at}"), open(Path::new(PREFIX), Some(url))?, load.seeds.seed());
            load.callers.spawn(start_runs(hand, Arc::clone(&load.meter), Arc::clone(&load.runs)));
        }
        for handle in 0..HANDLES {
            let store = open(Path::new(PREFIX), Some(url))?;
            for at in 0..=SINGLE_CALLERS {
                let hand = load.hand(format!("caller-{handle}-{at}"), Arc::clone(&store), load.seeds.seed());
                let batch = if at == SINGLE_CALLERS { BATCH } else { 1 };
                load.callers.spawn(enqueue(hand, Arc::clone(&load.meter), batch));
            }
        }
        Ok(load)
    }

    fn hand(&self, name: String, store: Arc<dyn Store>, seed: u64) -> Hand {
        Hand::of_task(name, store, seed, (&self.book, &self.watch))
    }

    /// Starts callers with a handle each, as processes that start now. Each enqueues one job.
    pub(super) fn start_newcomers(&mut self, count: u32) -> Result<Newcomers> {
        let mut newcomers = JoinSet::new();
        for _ in 0..count {
            self.newcomers += 1;
            let store = open(Path::new(PREFIX), Some(&self.url))?;
            let hand = self.hand(format!("newcomer-{}", self.newcomers), store, self.seeds.seed());
            let meter = Arc::clone(&self.meter);
            newcomers.spawn(async move {
                let began = SystemClock.now();
                let ids = Ids::new(Arc::new(SystemClock), Arc::new(StrongRandom::seeded(hand.dice.seed())));
                enqueue_once(&hand, &ids, &meter, 1).await?;
                Ok(SystemClock.now().ms_since(began))
            });
        }
        Ok(Newcomers(newcomers))
    }

    /// No caller or worker ends by itself.
    fn check(&mut self) -> Result<()> {
        none_ended([&mut self.callers, &mut self.workers], "a caller or worker")
    }

    /// Waits until so many jobs are acknowledged since the start of the load.
    pub(super) async fn acknowledged(&mut self, jobs: u64) -> Result<()> {
        let end = SystemClock.now().plus_ms(STEP_MS_MAX);
        while self.meter.acknowledged() < jobs {
            self.check()?;
            if SystemClock.now() >= end {
                let error = self.watch.last_error();
                return Err(format!("the callers get no acknowledgements after {STEP_MS_MAX} ms: {error}").into());
            }
            pass_ms(2).await;
        }
        Ok(())
    }

    /// How long it takes after `since` until a claim of each worker is answered.
    pub(super) async fn recovery_ms(&mut self, since: Timestamp) -> Result<u64> {
        let watch = Arc::clone(&self.watch);
        recovery_ms(&watch, since, STEP_MS_MAX, || self.check()).await
    }

    /// Stops the callers, lets the workers do the rest, stops them, and compares the ledgers with the store.
    pub(super) async fn finish(mut self) -> Result<LoadOutcome> {
        let gap_ms = self.meter.gap_ms();
        self.callers.shutdown().await;
        self.drain().await?;
        self.idle.stop().await?;
        self.workers.shutdown().await;
        let store = self.store;
        let runs = audit_runs(Arc::clone(&store), &self.runs).await?;
        let discord = recount(&Raw::read(&self.url).await?);
        let entries = self.book.lock().clone();
        let (findings, miscounted) = audit_store(store.as_ref(), entries).await?;
        let jobs = Outcome { findings, miscounted, discord, unanswered: self.watch.unanswered() };
        Ok(LoadOutcome { jobs, runs, gap_ms })
    }

    /// Waits until nothing is left to do, or until nothing is done any more.
    async fn drain(&mut self) -> Result<()> {
        let (mut completed, mut since) = (self.meter.completed(), SystemClock.now());
        loop {
            self.check()?;
            let open = match (counts(self.store.as_ref()).await, open_runs(self.store.as_ref()).await) {
                (Ok(counts), Ok(runs)) => Some((waiting(&counts), runs)),
                _ => None,
            };
            if open == Some((0, 0)) {
                return Ok(());
            }
            let now = SystemClock.now();
            if self.meter.completed() != completed {
                (completed, since) = (self.meter.completed(), now);
            }
            if now.ms_since(since) > STUCK_MS {
                return Ok(());
            }
            pass_ms(20).await;
        }
    }
}

/// Enqueues until it is aborted; an answer that got lost is asked for again with the same jobs.
async fn enqueue(hand: Hand, meter: Arc<Meter>, batch: u64) -> Result<()> {
    let ids = Ids::new(Arc::new(SystemClock), Arc::new(StrongRandom::seeded(hand.dice.seed())));
    loop {
        if meter.is_paced() {
            pass_ms(PACE_MS).await;
        }
        enqueue_once(&hand, &ids, &meter, batch).await?;
    }
}

async fn enqueue_once(hand: &Hand, ids: &Ids, meter: &Meter, batch: u64) -> Result<()> {
    let jobs = (0..batch).map(|_| job(ids, &hand.dice)).collect::<Result<Vec<_>>>()?;
    let intended: Vec<_> = jobs.iter().map(|job| Entry::Intended(job.id)).collect();
    let acknowledged: Vec<_> = jobs.iter().map(|job| Entry::Acknowledged(job.id)).collect();
    hand.ledger.note(&intended);
    meter.in_flight(accept(hand, jobs)).await?;
    hand.ledger.note(&acknowledged);
    meter.acknowledge(batch);
    Ok(())
}

/// Callers that enqueue one job each.
pub(super) struct Newcomers(JoinSet<Result<u64>>);

impl Newcomers {
    /// The longest time from the start of one to its acknowledgement.
    pub(super) async fn longest_ms(mut self) -> Result<u64> {
        let all = async {
            let mut longest = 0;
            while let Some(ended) = self.0.join_next().await {
                longest = longest.max(ended??);
            }
            Ok(longest)
        };
        let limit = Duration::from_millis(STEP_MS_MAX);
        tokio::time::timeout(limit, all).await.map_err(|_| "a new caller gets no acknowledgement")?
    }
}
