//! Those who work while the servers break: workers and enqueuers, each with a store handle of its own, as processes have.

use super::bed::PREFIX;
use crate::child::{Dice, open, pass_ms};
use crate::hand::Hand;
use crate::parent::{audit_store, counts, waiting};
use crate::recount::{Discord, Raw, recount};
use crate::watch::{Unanswered, Watch};
use crate::{Result, enqueuer, worker};
use std::path::Path;
use std::sync::Arc;
use tokio::task::JoinSet;
use windlass_audit::{Book, Findings};
use windlass_core::store::Store;
use windlass_core::time::{Clock, SystemClock, Timestamp};

const ENQUEUERS: u32 = 2;
/// How long the rest may take to be worked off.
const DRAIN_MS: u64 = 60_000;
/// How long a recovery is waited for; the promise is half of it.
const RECOVERY_MS_MAX: u64 = 10_000;
/// How long a crew may take between two blows, on a machine that is busy with others.
const PROGRESS_MS_MAX: u64 = 30_000;

/// What became of a crew's work.
pub(super) struct Outcome {
    pub(super) findings: Findings,
    pub(super) miscounted: u64,
    pub(super) discord: Discord,
    pub(super) unanswered: Unanswered,
}

pub(super) struct Crew {
    pub(super) url: String,
    store: Arc<dyn Store>,
    pub(super) watch: Arc<Watch>,
    book: Book,
    workers: JoinSet<Result<()>>,
    enqueuers: JoinSet<Result<()>>,
}

impl Crew {
    pub(super) fn start(url: &str, count: u32, seed: u64) -> Result<Self> {
        let mut crew = Self {
            url: url.to_owned(),
            store: open(Path::new(PREFIX), Some(url))?,
            watch: Arc::default(),
            book: Book::default(),
            workers: JoinSet::new(),
            enqueuers: JoinSet::new(),
        };
        let seeds = Dice::new(seed);
        for k in 0..count {
            let hand = crew.hand(format!("w{k}"), seeds.seed(), u64::from(count))?;
            crew.workers.spawn(worker::work(hand));
        }
        for k in 0..ENQUEUERS {
            let hand = crew.hand(format!("e{k}"), seeds.seed(), 1)?;
            crew.enqueuers.spawn(enqueuer::enqueue(hand));
        }
        Ok(crew)
    }

    fn hand(&self, name: String, seed: u64, of: u64) -> Result<Hand> {
        let store = open(Path::new(PREFIX), Some(&self.url))?;
        let hand = Hand::of_task(name, store, seed, (&self.book, &self.watch));
        Ok(Hand { idle_ms: worker::IDLE_MS.max(of * 2), ..hand })
    }

    /// How many workers and enqueuers it has.
    pub(super) fn size(&self) -> u64 {
        (self.workers.len() + self.enqueuers.len()) as u64
    }

    /// Nobody of a crew ends by itself.
    pub(super) fn check(&mut self) -> Result<()> {
        none_ended([&mut self.workers, &mut self.enqueuers], "one of the crew")
    }

    /// Waits until so many more jobs are completed.
    pub(super) async fn progress(&mut self, jobs: u64) -> Result<()> {
        let (from, end) = (self.watch.completions(), SystemClock.now().plus_ms(PROGRESS_MS_MAX));
        while self.watch.completions() < from + jobs {
            self.check()?;
            if SystemClock.now() >= end {
                return Err(format!("nothing goes on; the last error is: {}", self.watch.last_error()).into());
            }
            pass_ms(5).await;
        }
        Ok(())
    }

    /// How long it takes until each worker's claim is answered again, from the store's return on.
    pub(super) async fn recovery_ms(&mut self, since: Timestamp) -> Result<u64> {
        let watch = Arc::clone(&self.watch);
        recovery_ms(&watch, since, RECOVERY_MS_MAX, || self.check()).await
    }

    /// Recounts the store while everybody holds still.
    pub(super) async fn recount(&self) -> Result<Discord> {
        let _still = self.watch.still().await;
        let end = SystemClock.now().plus_ms(RECOVERY_MS_MAX);
        loop {
            match Raw::read(&self.url).await {
                Ok(raw) => return Ok(recount(&raw)),
                Err(error) if SystemClock.now() >= end => return Err(error),
                Err(_) => pass_ms(20).await,
            }
        }
    }

    /// Jobs that have not ended; `None` when the store does not say.
    pub(super) async fn waiting(&self) -> Option<u64> {
        counts(self.store.as_ref()).await.ok().map(|counts| waiting(&counts))
    }

    /// Nobody enqueues any more; the rest is worked off, and then counted.
    pub(super) async fn finish(mut self) -> Result<Outcome> {
        self.enqueuers.shutdown().await;
        let end = SystemClock.now().plus_ms(DRAIN_MS);
        while self.waiting().await != Some(0) && SystemClock.now() < end {
            self.check()?;
            pass_ms(10).await;
        }
        self.workers.shutdown().await;
        let discord = self.recount().await?;
        let entries = self.book.lock().clone();
        let (findings, miscounted) = audit_store(self.store.as_ref(), entries).await?;
        Ok(Outcome { findings, miscounted, discord, unanswered: self.watch.unanswered() })
    }
}

/// How long it takes after `since` until a claim of each worker is answered. `check` fails when there is no use in waiting on.
pub(super) async fn recovery_ms(
    watch: &Watch,
    since: Timestamp,
    ms_max: u64,
    mut check: impl FnMut() -> Result<()>,
) -> Result<u64> {
    loop {
        check()?;
        if let Some(at) = watch.all_claimed_since(since) {
            return Ok(at.ms_since(since));
        }
        if SystemClock.now() >= since.plus_ms(ms_max) {
            return Err(format!("not every worker claims again after {ms_max} ms: {}", watch.last_error()).into());
        }
        pass_ms(2).await;
    }
}

/// Fails when a task has ended: none of these ends by itself. `who` is the subject of the message.
pub(super) fn none_ended(sets: [&mut JoinSet<Result<()>>; 2], who: &str) -> Result<()> {
    match sets.into_iter().find_map(JoinSet::try_join_next) {
        None => Ok(()),
        Some(ended) => {
            let error = ended.map_or_else(|error| error.to_string(), |end| format!("{:?}", end.err()));
            Err(format!("{who} has ended by itself: {error}").into())
        }
    }
}
