//! The worker process that is the timekeeper is stopped while it holds leases: its deputy has to take over and reap them.
//!
//! Workers and enqueuers are processes. A round waits until the timekeeper has a deputy and holds leases, stops it at a random
//! moment between two renewals of its hint, measures by how much its leases are reaped after their end, and continues it.
//! What the processes wrote down is compared with the store in the end.

use super::bed::{Bed, PREFIX, aside, at, end};
use super::crew::Outcome;
use super::table::Row;
use super::{JOBS_BETWEEN, Plan, keep_everything};
use crate::args::Config;
use crate::child::{Dice, open, pass_ms, queue};
use crate::fleet::{Fleet, Kind};
use crate::library_worker::keeper_path;
use crate::parent::{active_jobs, audit_store, counts, waiting};
use crate::recount::{Raw, recount};
use crate::watch::Unanswered;
use crate::{Error, Result};
use std::path::PathBuf;
use std::sync::Arc;
use windlass_audit::read_ledgers;
use windlass_core::id::JobId;
use windlass_core::job::LeaseView;
use windlass_core::name::{Labels, WorkerId};
use windlass_core::store::{Beat, Kinds, Store};
use windlass_core::time::{Clock, SystemClock, Timestamp};

const WORKERS: u32 = 3;
const ENQUEUERS: u32 = 2;
/// Workers that are registered and do not exist: processes that are neither timekeeper nor deputy rest for as long as those of
/// a fleet of this size.
const REGISTERED: u32 = 40;
/// Longer than a storm takes.
const REGISTERED_MS: u64 = 24 * 3_600_000;
/// The timekeeper renews its hint about as often.
const RENEWAL_MS: u64 = 750;
/// Within this time after the stop, everything that the process had sent is applied.
const UNDER_WAY_MS: u64 = 50;
/// How long one step of the storm may take.
const STEP_MS_MAX: u64 = 90_000;

/// Runs the storm.
pub(super) async fn run(plan: Plan) -> Result<Row> {
    let Plan { fault, rounds, seed } = plan;
    let began = SystemClock.now();
    let dir = tempfile::tempdir()?;
    let bed = Arc::new(aside(move || Bed::start(fault)).await?);
    let mut storm = TimekeeperStorm::start(bed, dir.path().to_owned(), seed).await?;
    let mut row = Row { fault: fault.name().to_owned(), rounds, ..Row::default() };
    for round in 1..=rounds {
        let late_ms = storm.round().await?;
        eprintln!("  {fault} {round}: the last lease was reaped {late_ms} ms after its end");
        row.reaped_late_ms = row.reaped_late_ms.max(Some(late_ms));
    }
    row.add(storm.finish().await?);
    row.seconds = SystemClock.now().ms_since(began) / 1_000;
    Ok(row)
}

struct TimekeeperStorm {
    bed: Arc<Bed>,
    dir: PathBuf,
    url: String,
    store: Arc<dyn Store>,
    fleet: Fleet,
    dice: Dice,
}

impl TimekeeperStorm {
    async fn start(bed: Arc<Bed>, dir: PathBuf, seed: u64) -> Result<Self> {
        let url = bed.url(PREFIX, "");
        let store = open(&dir, Some(&url))?;
        keep_everything(store.as_ref(), vec![queue()?]).await?;
        for number in 0..REGISTERED {
            store.heartbeat(beat(number)?).await?;
        }
        let mut fleet = Fleet::new(&Config { seed, ..Config::default() }, &dir, Some(&url))?;
        for _ in 0..WORKERS {
            fleet.start(Kind::LibraryWorker)?;
        }
        for _ in 0..ENQUEUERS {
            fleet.start(Kind::Enqueuer)?;
        }
        Ok(Self { bed, dir, url, store, fleet, dice: Dice::new(seed) })
    }

    /// Returns by how many milliseconds the last lease was reaped late.
    async fn round(&mut self) -> Result<u64> {
        let wanted = counts(self.store.as_ref()).await?.succeeded + JOBS_BETWEEN;
        let limit = Limit::new("the workers do not get on");
        while counts(self.store.as_ref()).await?.succeeded < wanted {
            self.fleet.check()?;
            limit.check()?;
            pass_ms(10).await;
        }
        let limit = Limit::new("there is no timekeeper that has a deputy and holds leases");
        loop {
            limit.check()?;
            self.fleet.check()?;
            pass_ms(self.dice.below(RENEWAL_MS)).await;
            let Some(keeper) = self.timekeeper().await? else { continue };
            if self.leases_of(&keeper).await?.is_empty() {
                continue;
            }
            self.fleet.stop(&keeper)?;
            pass_ms(UNDER_WAY_MS).await;
            // Its jobs may have ended just before the stop.
            let held = self.leases_of(&keeper).await?;
            let late_ms = self.reaped_late_ms(&keeper, held).await;
            self.fleet.resume(&keeper)?;
            if let Some(late_ms) = late_ms? {
                return Ok(late_ms);
            }
        }
    }

    /// The process that is the timekeeper, if it has a deputy.
    async fn timekeeper(&self) -> Result<Option<String>> {
        let read = |bed: &Bed| Ok(bed.single()?.command(&["GET", &format!("{{{PREFIX}}}:timekeeper")])?);
        let hint = at(&self.bed, read).await?;
        let mut lines = hint.lines().map(|line| line.split(' ').nth(2));
        let (Some(Some(keeper)), Some(Some(_))) = (lines.next(), lines.next()) else { return Ok(None) };
        let is_keeper =
            |name: &&str| std::fs::read_to_string(keeper_path(&self.dir, name)).is_ok_and(|text| text == keeper);
        Ok(self.fleet.names(Kind::LibraryWorker).find(is_keeper).map(str::to_owned))
    }

    /// The jobs that a worker holds, and when its leases end.
    async fn leases_of(&self, worker: &str) -> Result<Vec<(JobId, Timestamp)>> {
        let ids = active_jobs(self.store.as_ref()).await?.into_iter();
        let ids: Vec<JobId> = ids.filter(|(_, holder)| holder == worker).map(|(id, _)| id).collect();
        let jobs = self.store.get(ids).await?.into_iter().flatten();
        Ok(jobs.filter_map(|job| Some((job.id, end_of(job.lease.as_ref(), worker)?))).collect())
    }

    /// Waits until none of these leases is held. Returns by how much the last one was reaped late; `None` without leases.
    async fn reaped_late_ms(&self, worker: &str, held: Vec<(JobId, Timestamp)>) -> Result<Option<u64>> {
        let (mut held, mut latest) = (held, None);
        let limit = Limit::new("the leases of the frozen process are not reaped");
        while !held.is_empty() {
            limit.check()?;
            let jobs = self.store.get(held.iter().map(|(id, _)| *id).collect()).await?;
            let now = self.store.now().await?;
            let mut left = Vec::new();
            for ((id, ends_at), job) in held.into_iter().zip(jobs) {
                if job.is_some_and(|job| end_of(job.lease.as_ref(), worker) == Some(ends_at)) {
                    left.push((id, ends_at));
                } else {
                    latest = latest.max(Some(now.ms_since(ends_at)));
                }
            }
            held = left;
            pass_ms(5).await;
        }
        Ok(latest)
    }

    /// Ends the enqueuers, lets the workers do the rest, and compares the ledgers with the store.
    async fn finish(mut self) -> Result<Outcome> {
        self.fleet.kill_all(Kind::Enqueuer)?;
        let limit = Limit::new("the rest is not worked off");
        while waiting(&counts(self.store.as_ref()).await?) > 0 {
            self.fleet.check()?;
            limit.check()?;
            pass_ms(20).await;
        }
        // They report before they are told to claim no more, so the last answers are written down.
        pass_ms(UNDER_WAY_MS).await;
        self.fleet.kill_all(Kind::LibraryWorker)?;
        let discord = recount(&Raw::read(&self.url).await?);
        let (findings, miscounted) = audit_store(self.store.as_ref(), read_ledgers(&self.dir)?).await?;
        end(self.bed).await?;
        Ok(Outcome { findings, miscounted, discord, unanswered: Unanswered::default() })
    }
}

/// When a lease ends, if this worker holds it.
fn end_of(lease: Option<&LeaseView>, worker: &str) -> Option<Timestamp> {
    lease.filter(|lease| lease.worker.as_str() == worker).map(|lease| lease.expires_at)
}

fn beat(number: u32) -> Result<Beat> {
    Ok(Beat {
        worker: WorkerId::new(format!("registered-{number}"))?,
        queues: vec![queue()?],
        kinds: Kinds::Any,
        labels: Labels::default(),
        slots: 1,
        running: 0,
        about: String::new(),
        ttl_ms: REGISTERED_MS,
    })
}

/// How long a step may take.
struct Limit {
    ends_at: Timestamp,
    what: &'static str,
}

impl Limit {
    fn new(what: &'static str) -> Self {
        Self { ends_at: SystemClock.now().plus_ms(STEP_MS_MAX), what }
    }

    fn check(&self) -> Result<()> {
        if SystemClock.now() < self.ends_at {
            return Ok(());
        }
        Err(Error::from(format!("{} after {STEP_MS_MAX} ms", self.what)))
    }
}
