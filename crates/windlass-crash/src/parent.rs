//! The parent: starts, kills, lets the rest be worked off, and audits.

use crate::args::{Blow, Config, StoreKind};
use crate::child::{Dice, open, pass_ms, queue};
use crate::fleet::{Fleet, Kind};
use crate::recount::{Raw, recount};
use crate::worker::LEASE_MS;
use crate::{QUEUE, Result};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::Arc;
use windlass_audit::{Entry, Evidence, Findings, StoredJob, audit, read_ledgers};
use windlass_core::id::JobId;
use windlass_core::job::State;
use windlass_core::store::{Filter, ListRequest, QueueCounts, Store, Sweep, SweepKind};
use windlass_core::time::{Clock, HANG_GUARD, SystemClock};
use windlass_servers::{Fsync, Redis};
use windlass_sqlite::rusqlite;

/// Processes that enqueue, at any time.
const ENQUEUERS: u32 = 2;
/// Of so many victims one is an enqueuer.
const ENQUEUER_EVERY: u64 = 5;
/// The longest pause before a kill, in ms.
const PAUSE_MS: u64 = 60;
/// How long the rest may be worked off without a job that ends. However long it takes in all: that depends on the load.
const DRAIN_MS: u64 = 60_000;
/// Jobs that have succeeded for each kill that was asked for, before the killing ends.
const JOBS_PER_KILL: u64 = 4;
/// How long a kill waits for somebody to hold a lease.
const PATIENCE_MS: u64 = 1_000;

/// One run, as it is printed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Repeats the moments.
    pub seed: u64,
    /// Processes killed.
    pub kills: u64,
    /// Kills of a worker that held leases, or of an enqueuer while jobs were active.
    pub kills_while_active: u64,
    /// What ledgers and store say.
    #[serde(flatten)]
    pub findings: Findings,
    /// Workers whose clock was off by more than a minute.
    pub clocks_off: u64,
    /// Counters of the queue that differ from a recount.
    pub miscounted: u64,
    /// What SQLite says about the file, or a recount about Redis: `ok`.
    pub integrity: String,
    /// How long it took.
    pub seconds: u64,
}

impl Report {
    /// True when no promise was broken.
    pub fn is_clean(&self) -> bool {
        self.findings.is_clean() && self.miscounted == 0 && self.integrity == "ok"
    }
}

/// Runs the whole test.
pub async fn run(config: &Config) -> Result<Report> {
    eprintln!("seed {}", config.seed);
    let temporary = if config.dir.is_none() { Some(tempfile::tempdir()?) } else { None };
    let dir = config.dir.as_deref().or(temporary.as_ref().map(tempfile::TempDir::path)).ok_or("no folder")?;
    std::fs::create_dir_all(dir)?;
    if std::fs::read_dir(dir)?.next().is_some() {
        return Err(format!("{} is not empty; the audit needs a fresh folder", dir.display()).into());
    }
    let began = SystemClock.now();
    // Ended with this run.
    let server = match config.store {
        StoreKind::Sqlite => None,
        StoreKind::Redis => Some(Redis::builder().append_only(Fsync::EverySec).start()?),
    };
    let url = server.as_ref().map(Redis::url);
    let mut run = Run::new(config, dir, url.as_deref())?;
    run.kill_in_a_loop(config).await?;
    run.work_off().await?;
    let Run { store, kills, kills_while_active, .. } = run;
    let entries = read_ledgers(dir)?;
    let off = |entry: &&Entry| matches!(entry, Entry::ClockAheadMs(ahead_ms) if ahead_ms.abs() > 60_000);
    let clocks_off = entries.iter().filter(off).count() as u64;
    let (findings, miscounted) = audit_store(store.as_ref(), entries).await?;
    store.close().await?;
    let integrity = match &url {
        None => integrity(dir)?,
        Some(url) => match recount(&Raw::read(url).await?) {
            discord if discord.is_none() => "ok".to_owned(),
            discord => discord.named.join("; "),
        },
    };
    let seconds = SystemClock.now().ms_since(began) / 1_000;
    Ok(Report { seed: config.seed, kills, kills_while_active, findings, clocks_off, miscounted, integrity, seconds })
}

struct Run {
    store: Arc<dyn Store>,
    fleet: Fleet,
    dice: Dice,
    kills: u64,
    kills_while_active: u64,
}

impl Run {
    fn new(config: &Config, dir: &Path, url: Option<&str>) -> Result<Self> {
        let store = open(dir, url)?;
        let mut fleet = Fleet::new(config, dir, url)?;
        for _ in 0..config.workers {
            fleet.start(Kind::Worker)?;
        }
        for _ in 0..ENQUEUERS {
            fleet.start(Kind::Enqueuer)?;
        }
        Ok(Self { store, fleet, dice: Dice::new(config.seed), kills: 0, kills_while_active: 0 })
    }

    async fn kill_in_a_loop(&mut self, config: &Config) -> Result<()> {
        let mut killed_at = SystemClock.now();
        let end = killed_at.plus_ms(config.seconds.saturating_mul(1_000));
        let mut enqueueing = true;
        loop {
            self.fleet.check()?;
            pass_ms(self.dice.below(PAUSE_MS)).await;
            let counts = counts(self.store.as_ref()).await?;
            let enough = self.kills >= config.kills && counts.succeeded >= config.kills.saturating_mul(JOBS_PER_KILL);
            if enough && SystemClock.now() >= end {
                return Ok(());
            }
            if enqueueing && total(&counts) >= config.jobs {
                self.fleet.kill_all(Kind::Enqueuer)?;
                enqueueing = false;
            }
            if !enqueueing && waiting(&counts) == 0 {
                return Ok(());
            }
            let before = self.kills;
            self.kill_one(config.blow, enqueueing).await?;
            if self.kills > before {
                killed_at = SystemClock.now();
            } else if SystemClock.now() >= killed_at.plus_ms(HANG_GUARD.as_secs() * 1_000) {
                return Err(format!("nobody has held a lease for {} s", HANG_GUARD.as_secs()).into());
            }
        }
    }

    /// Waits until somebody holds a lease, then kills: a holder, or now and then an enqueuer.
    async fn kill_one(&mut self, blow: Blow, enqueueing: bool) -> Result<()> {
        let holders = self.holders().await?;
        if holders.is_empty() {
            return Ok(());
        }
        let pick = |names: &[String], dice: &Dice| {
            let place = dice.below(names.len().max(1) as u64);
            usize::try_from(place).ok().and_then(|place| names.get(place).cloned())
        };
        let victim = if enqueueing && self.dice.below(ENQUEUER_EVERY) == 0 {
            let names: Vec<String> = self.fleet.names(Kind::Enqueuer).map(str::to_owned).collect();
            pick(&names, &self.dice)
        } else {
            pick(&holders, &self.dice)
        };
        let Some(victim) = victim else { return Ok(()) };
        match blow {
            Blow::Kill => self.fleet.replace(&victim)?,
            Blow::Stop => self.fleet.freeze(&victim, LEASE_MS * 2).await?,
        }
        self.kills += 1;
        // Asked again after its death: only now is it certain that it had not just finished.
        let left = self.active_workers().await?;
        let was_worker = holders.contains(&victim);
        self.kills_while_active += u64::from(if was_worker { left.contains(&victim) } else { !left.is_empty() });
        Ok(())
    }

    /// Workers that run and hold leases. Waits a while for the first one.
    async fn holders(&self) -> Result<Vec<String>> {
        let end = SystemClock.now().plus_ms(PATIENCE_MS);
        loop {
            let active = self.active_workers().await?;
            let here = |name: &&String| self.fleet.names(Kind::Worker).any(|running| running == name.as_str());
            let holders: Vec<String> = active.iter().filter(here).cloned().collect();
            if !holders.is_empty() || SystemClock.now() >= end {
                return Ok(holders);
            }
            pass_ms(1).await;
        }
    }

    async fn active_workers(&self) -> Result<Vec<String>> {
        let active = active_jobs(self.store.as_ref()).await?;
        let mut workers: Vec<String> = active.into_iter().map(|(_, worker)| worker).collect();
        workers.sort();
        workers.dedup();
        Ok(workers)
    }

    /// Nobody is killed and nobody enqueues any more: everything must come to its end.
    async fn work_off(&mut self) -> Result<()> {
        self.fleet.kill_all(Kind::Enqueuer)?;
        let (mut ended, mut ended_at) = (0, SystemClock.now());
        loop {
            let counts = counts(self.store.as_ref()).await?;
            let now_ended = total(&counts) - waiting(&counts);
            if now_ended > ended {
                (ended, ended_at) = (now_ended, SystemClock.now());
            }
            if waiting(&counts) == 0 || SystemClock.now() >= ended_at.plus_ms(DRAIN_MS) {
                break;
            }
            self.fleet.check()?;
            for kind in [SweepKind::Reap, SweepKind::Promote] {
                // Whatever stands in the way of a sweep now is tried again in a moment.
                let _ = self.store.sweep(Sweep { kind, max: 1_000 }).await;
            }
            pass_ms(20).await;
        }
        self.fleet.kill_all(Kind::Worker)
    }
}

/// The first thousand active jobs, each with its worker.
pub(crate) async fn active_jobs(store: &dyn Store) -> Result<Vec<(JobId, String)>> {
    let filter = Filter { queue: Some(queue()?), state: Some(State::Active), ..Filter::default() };
    let page = store.list(ListRequest { filter, limit: 1_000, ..ListRequest::default() }).await?;
    Ok(page.jobs.into_iter().filter_map(|job| Some((job.id, job.worker?.as_str().to_owned()))).collect())
}

pub(crate) async fn counts(store: &dyn Store) -> Result<QueueCounts> {
    let queues = store.queues().await?;
    Ok(queues.into_iter().find(|queue| queue.name.as_str() == QUEUE).map(|queue| queue.counts).unwrap_or_default())
}

pub(crate) fn waiting(counts: &QueueCounts) -> u64 {
    counts.scheduled + counts.ready + counts.active
}

fn total(counts: &QueueCounts) -> u64 {
    waiting(counts) + counts.succeeded + counts.failed + counts.cancelled
}

/// All jobs of [`QUEUE`], read as anybody would read them.
async fn stored_jobs(store: &dyn Store) -> Result<Vec<StoredJob>> {
    let mut stored = Vec::new();
    let filter = Filter { queue: Some(queue()?), ..Filter::default() };
    let mut request = ListRequest { filter, limit: 1_000, ..ListRequest::default() };
    loop {
        let page = store.list(request.clone()).await?;
        let ids: Vec<JobId> = page.jobs.iter().map(|job| job.id).collect();
        stored.extend(store.get(ids).await?.iter().flatten().map(StoredJob::from));
        match page.cursor {
            Some(cursor) => request.cursor = Some(cursor),
            None => return Ok(stored),
        }
    }
}

/// Compares the ledgers with the store. Returns the findings, and 1 when the counters of the queue differ from a recount, else 0.
pub(crate) async fn audit_store(store: &dyn Store, entries: Vec<Entry>) -> Result<(Findings, u64)> {
    let jobs = stored_jobs(store).await?;
    let mut recount = [0; 6];
    for job in &jobs {
        recount[job.state.index()] += 1;
    }
    let miscounted = u64::from(QueueCounts::from_array(recount) != counts(store).await?);
    Ok((audit(&Evidence { entries, jobs, ..Evidence::default() }), miscounted))
}

fn integrity(dir: &Path) -> Result<String> {
    let conn = rusqlite::Connection::open(dir.join("jobs.db"))?;
    Ok(conn.query_row("PRAGMA integrity_check", [], |row| row.get(0))?)
}
