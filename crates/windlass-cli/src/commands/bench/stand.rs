//! What every scenario stands on: a store that was empty, its floor, and how to measure.

use super::noop::{Noop, QUEUE};
use crate::app::App;
use crate::failure::Failure;
use crate::ui::Ui;
use clap::Args;
use indicatif::ProgressBar;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::RwLock;
use windlass::Client;
use windlass::core::name::QueueName;
use windlass::core::store::{ChangeManyOp, Filter, QueueCounts, QueueSettings, Retention, RetentionRule, Setting};
use windlass_bench::floor::Load;
use windlass_bench::{FloorError, Ground, Spending};
use windlass_operate::ErrorKind;
use windlass_operate::change::change_all;

/// Jobs of one step while a backlog is made.
const FILL: u32 = 10_000;

/// What every scenario takes.
#[derive(Clone, Debug, Args)]
pub(crate) struct Common {
    /// How many jobs; each scenario has a number of its own
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    jobs: Option<u32>,
    /// Measure so often, and show the medians
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// One round, and a tenth of the work unless it is said how much
    #[arg(long)]
    quick: bool,
    /// Measure also on a store that is not empty; only the queue `windlass-bench` is touched
    #[arg(long)]
    force: bool,
    /// Where the temporary SQLite file goes when no store is named
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

impl Common {
    pub(super) fn rounds(&self) -> u32 {
        if self.quick { 1 } else { self.rounds }
    }

    /// As many jobs as were asked for; else `n`, or a tenth of it.
    pub(super) fn jobs(&self, n: u32) -> u32 {
        self.jobs.unwrap_or_else(|| self.less(n))
    }

    pub(super) fn asked(&self) -> Option<u32> {
        self.jobs
    }

    pub(super) fn less(&self, n: u32) -> u32 {
        if self.quick { (n / 10).max(1) } else { n }
    }
}

/// A store that is measured.
pub(super) struct Stand {
    pub(super) ui: Ui,
    pub(super) ground: Ground,
    queue: QueueName,
    /// True when the measurement was broken off. Read-locked by every enqueue that is not awaited by the measurement.
    pub(super) is_over: Arc<RwLock<bool>>,
}

impl Stand {
    /// Opens the store and refuses one that is in use. With none named, it is a file that is gone afterwards.
    pub(super) async fn open(app: &App, common: &Common, durable: bool) -> Result<Self, Failure> {
        let ground = match app.url() {
            Some(url) => Ground::open(url).await?,
            None => Ground::temporary(common.dir.as_deref(), durable)?,
        };
        let stand = Self { ui: app.ui, ground, queue: QueueName::new(QUEUE)?, is_over: Arc::default() };
        if common.force {
            stand.clear().await?;
        } else {
            stand.refuse_what_is_in_use().await?;
        }
        Ok(stand)
    }

    async fn refuse_what_is_in_use(&self) -> Result<(), Failure> {
        let store = &self.ground.store;
        let (queues, schedules) = (store.queues().await?, store.schedules().await?);
        if queues.is_empty() && schedules.is_empty() {
            return Ok(());
        }
        let left_over = schedules.is_empty() && queues.iter().all(|queue| queue.name == self.queue);
        let hint = if left_over {
            format!("the queue `{QUEUE}` was left by a bench that was broken off; --force removes it and goes on")
        } else {
            format!("name another file, leave --store out, or say --force: only the queue `{QUEUE}` is touched")
        };
        let what = format!("the store is not empty: {} queues, {} schedules", queues.len(), schedules.len());
        Err(Failure::conflict(what).hint(hint))
    }

    /// A client of the store.
    pub(super) fn client(&self) -> Client {
        Client::new(self.ground.store.clone())
    }

    /// Waits for enqueues that are under way; those that begin later enqueue nothing.
    pub(super) async fn end(&self) {
        *self.is_over.write().await = true;
    }

    /// Removes the jobs and the queue.
    pub(super) async fn clear(&self) -> Result<(), Failure> {
        let filter = Filter { queue: Some(self.queue.clone()), ..Filter::default() };
        let op = ChangeManyOp::Obliterate { force: true };
        match change_all(self.ground.store.as_ref(), op, filter, |_| {}).await {
            Err(error) if error.kind != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// An empty queue that keeps what has ended, so that it can be counted.
    pub(super) async fn fresh_queue(&self) -> Result<(), Failure> {
        self.clear().await?;
        let keep = RetentionRule::default();
        let retention = Retention { succeeded: keep, failed: keep, cancelled: keep };
        let settings = QueueSettings { retention, ..QueueSettings::default() };
        Ok(self.ground.store.configure(Setting::Queue { queue: self.queue.clone(), settings }).await?)
    }

    /// Enqueues what does nothing, many at a time.
    pub(super) async fn fill(&self, jobs: u32) -> Result<Option<f64>, Failure> {
        self.fill_with(jobs, Noop::new).await
    }

    /// Answers how many bytes of the server each job takes while it waits, where there is a server.
    pub(super) async fn fill_with<J: windlass::Job>(
        &self,
        jobs: u32,
        make: impl Fn(u32) -> J,
    ) -> Result<Option<f64>, Failure> {
        let before = self.ground.memory().map_err(unmeasured)?;
        let bar = self.ui.bar(jobs.into(), "backlog");
        self.enqueue_all(jobs, FILL, &bar, make).await?;
        self.bytes_per_job(before, jobs)
    }

    /// What each of the jobs that were enqueued since takes.
    pub(super) fn bytes_per_job(&self, before: Option<u64>, jobs: u32) -> Result<Option<f64>, Failure> {
        let per_job = |(before, after): (u64, u64)| after.saturating_sub(before) as f64 / f64::from(jobs);
        Ok(before.zip(self.ground.memory().map_err(unmeasured)?).map(per_job))
    }

    /// Enqueues so many jobs, `batch` in one call.
    pub(super) async fn enqueue_all<J: windlass::Job>(
        &self,
        jobs: u32,
        batch: u32,
        bar: &ProgressBar,
        make: impl Fn(u32) -> J,
    ) -> Result<(), Failure> {
        let (client, mut from) = (self.client(), 0);
        while from < jobs {
            let to = jobs.min(from.saturating_add(batch));
            for answer in client.enqueue_all((from..to).map(&make)).await? {
                answer?;
            }
            bar.set_position(to.into());
            from = to;
        }
        bar.finish_and_clear();
        Ok(())
    }

    /// What the store counts on the queue.
    pub(super) async fn counts(&self) -> Result<QueueCounts, Failure> {
        let queues = self.ground.store.queues().await?;
        let queue = queues.into_iter().find(|queue| queue.name == self.queue);
        Ok(queue.map(|queue| queue.counts).unwrap_or_default())
    }

    /// Refuses a measurement after which the store does not say that all jobs have succeeded.
    pub(super) async fn check_succeeded(&self, jobs: u32) -> Result<(), Failure> {
        let counts = self.counts().await?;
        if counts.succeeded == u64::from(jobs) {
            return Ok(());
        }
        Err(Failure::failed(format!("{jobs} jobs were enqueued, and the store says {counts:?}")))
    }

    /// The floor's claim and complete; `None` is the batch that it is known by.
    pub(super) fn floor_drain(&self, jobs: u32, batch: Option<u32>, spending: &mut Spending) -> Result<f64, Failure> {
        let batch = batch.map_or(self.ground.floor.batch(), |batch| batch as usize);
        Ok(spending.note_floor(self.ground.floor.drain(Load::new(jobs as usize, batch)).map_err(unmeasured)?))
    }

    /// The floor's enqueue.
    pub(super) fn floor_enqueue(&self, load: Load, spending: &mut Spending) -> Result<f64, Failure> {
        Ok(spending.note_floor(self.ground.floor.enqueue(load).map_err(unmeasured)?))
    }
}

/// The floor, or what the server spends, could not be measured.
#[expect(clippy::needless_pass_by_value, reason = "as `map_err` wants it")]
pub(super) fn unmeasured(error: FloorError) -> Failure {
    Failure::failed(error.to_string())
}
