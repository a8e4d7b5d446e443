//! Running a worker until there is nothing left to do, or for a while.

use super::TestBed;
use crate::worker::{Stopper, WorkerBuilder};
use std::fmt;
use std::sync::atomic::Ordering;
use std::time::Duration;
use windlass_core::job::{JobSummary, State, Verb};
use windlass_core::name::QueueName;
use windlass_core::store::{
    Feed, FeedCursor, FeedEvent, FeedRequest, Filter, JobQueue, ListOrder, ListRequest, QueueStatus, Reason,
    Run as RunView, RunList, RunState, RunStore, Transition,
};
use windlass_core::time::Timestamp;

/// The shortest time that passes only when everything else is idle.
const MOMENT: Duration = Duration::from_millis(1);
/// An attempt that takes longer by the virtual clock hangs.
const ATTEMPT_MS_MAX: u64 = 24 * 3_600 * 1_000;
/// Entries of the feed that are read at once.
const FEED_MAX: u32 = 10_000;
/// The most jobs that are listed as left.
const LEFT_MAX: u32 = 100;

/// What a run has done.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Done {
    /// Jobs enqueued meanwhile, by handlers and schedules.
    pub enqueued: u64,
    /// Jobs handed to the worker, each attempt counted.
    pub attempts: u64,
    /// Jobs that ended well.
    pub succeeded: u64,
    /// Jobs that ended badly.
    pub failed: u64,
    /// Jobs that ended on request.
    pub cancelled: u64,
    /// Attempts that failed and were to be tried again.
    pub retried: u64,
    /// Leases that ran out.
    pub stalled: u64,
    /// How much virtual time has passed.
    pub elapsed: Duration,
    /// Jobs that have not ended, and why; at most 100.
    pub left: Vec<Left>,
    /// Runs of durable workflows that have not ended, oldest first; at most 100. [`summary`](RunView::summary) is what a run waits
    /// for, [`stuck`](RunView::stuck) why it cannot go on.
    pub left_runs: Vec<RunView>,
}

/// A job that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// The job.
    pub job: JobSummary,
    /// Why it stands where it stands.
    pub why: Reason,
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let JobSummary { id, kind, queue, state, attempt, .. } = &self.job;
        write!(f, "{kind} {id} on {queue} is {state} after {attempt} attempts: {:?}", self.why)
    }
}

impl Done {
    fn count(&mut self, change: &Transition) {
        let ended = change.to.filter(|to| to.is_terminal());
        match (change.verb, ended) {
            (Verb::Enqueue, _) => self.enqueued += 1,
            (Verb::Claim, _) => self.attempts += 1,
            (Verb::Fail, None) => self.retried += 1,
            (Verb::Reap, _) => self.stalled += 1,
            _ => {}
        }
        match ended {
            Some(State::Succeeded) => self.succeeded += 1,
            Some(State::Failed) => self.failed += 1,
            Some(State::Cancelled) => self.cancelled += 1,
            _ => {}
        }
    }
}

impl TestBed {
    /// Runs a worker until it has nothing to do and nothing to wait for: no job of its queues is active, scheduled or
    /// backing off, and none is ready that it may claim. Time jumps to whatever is due next. Then the worker drains.
    ///
    /// With [`workflow`](WorkerBuilder::workflow) it executes runs, too, and waits for those of its workflows: none is claimed or
    /// about to be, has unread items, or waits for a timer. A run that waits only for messages or for jobs that nobody claims, and a
    /// stuck one, stays, and is in [`Done::left_runs`].
    ///
    /// A job that this worker will never claim (no handler, a paused queue, a label) stays, and is in [`Done::left`]. A
    /// schedule is not waited for, because it never ends; see [`run_for`](Self::run_for).
    ///
    /// # Panics
    ///
    /// When the worker cannot be built, when an attempt hangs for a day, and when the bed's limits are reached.
    pub async fn run_until_idle(&self, worker: WorkerBuilder) -> Done {
        let (queues, kinds) = (worker.queue_names(), worker.workflow_kinds());
        self.run(worker, async |run: &Run<'_>| {
            loop {
                // The moment passes when nobody else has anything to do, so nobody is in the middle of something.
                let quiet = tokio::select! {
                    () = tokio::time::sleep(MOMENT) => true,
                    () = self.store.busy.notified() => false,
                };
                if quiet && run.is_idle(&queues) && self.runs_wait(&kinds) {
                    return;
                }
                run.check_limits();
                if quiet {
                    let rest = self.time_max.saturating_sub(run.elapsed());
                    // Whichever comes first is looked at.
                    let _ = tokio::time::timeout(rest, self.store.busy.notified()).await;
                }
            }
        })
        .await
    }

    /// Runs a worker for so long by the virtual clock, then drains it.
    ///
    /// # Panics
    ///
    /// When the worker cannot be built.
    pub async fn run_for(&self, worker: WorkerBuilder, time: Duration) -> Done {
        self.run(worker, async |_: &Run<'_>| tokio::time::sleep(time).await).await
    }

    #[expect(clippy::panic, reason = "a failed check of a test is a panic")]
    async fn run(&self, worker: WorkerBuilder, until: impl AsyncFnOnce(&Run<'_>)) -> Done {
        let worker = match self.prepare(worker).build() {
            Ok(worker) => worker,
            Err(error) => panic!("the worker cannot be built: {error}"),
        };
        let run = Run::begin(self);
        let stopper: Stopper = worker.stopper();
        let running = worker.run_until_stopped();
        let stop = async {
            until(&run).await;
            stopper.drain();
        };
        let (ended, ()) = tokio::join!(running, stop);
        if let Err(error) = ended {
            panic!("the worker ended: {error}");
        }
        run.done()
    }

    /// No run of these kinds has anything to do, now or later, unless something happens to it.
    fn runs_wait(&self, kinds: &[String]) -> bool {
        let waits = |run: &RunView| {
            run.stuck.is_some() || (run.engine.is_none() && run.wake_at.is_none() && run.inbox_len == 0)
        };
        let is_cleaned_up = |run: &RunView| run.engine.is_none() && run.inbox_len == 0;
        kinds.iter().all(|kind| {
            self.all_runs(Some(kind), RunState::Running, usize::MAX).iter().all(waits)
                && self.all_runs(Some(kind), RunState::Terminated, usize::MAX).iter().all(is_cleaned_up)
        })
    }

    /// At most `max` runs, oldest first.
    fn all_runs(&self, kind: Option<&String>, state: RunState, max: usize) -> Vec<RunView> {
        let mut request = RunList { kind: kind.cloned(), state: Some(state), ..RunList::new(LEFT_MAX) };
        let mut runs = Vec::new();
        loop {
            let page = self.ask(self.store.inner.list_runs(request.clone()));
            runs.extend(page.runs);
            if page.cursor.is_none() || runs.len() >= max {
                runs.truncate(max);
                return runs;
            }
            request.cursor = page.cursor;
        }
    }

    /// Runs of all kinds of workflows that have not ended.
    fn left_runs(&self) -> Vec<RunView> {
        let runs = self.all_runs(None, RunState::Running, LEFT_MAX as usize);
        // The kind of a code run is its workflow and version.
        runs.into_iter().filter(|run| run.kind.as_str().contains('@')).collect()
    }

    /// Jobs of all queues that have not ended.
    fn left(&self) -> Vec<Left> {
        let states = [State::Active, State::Ready, State::Scheduled];
        let listed = states.into_iter().flat_map(|state| {
            let filter = Filter { state: Some(state), ..Filter::default() };
            let request = ListRequest { filter, order: ListOrder::Ascending, cursor: None, limit: LEFT_MAX };
            self.ask(self.store.inner.list(request)).jobs
        });
        let listed: Vec<JobSummary> = listed.take(LEFT_MAX as usize).collect();
        let why = |job: JobSummary| Left { why: self.ask(self.store.inner.explain(job.id)).reason, job };
        listed.into_iter().map(why).collect()
    }
}

/// A run that is under way, and where it began.
struct Run<'b> {
    bed: &'b TestBed,
    begun_at: Duration,
    cursor: FeedCursor,
    claimed: u64,
}

impl<'b> Run<'b> {
    fn begin(bed: &'b TestBed) -> Self {
        let cursor = bed.ask(bed.store.inner.read_feed(FeedRequest { after: None, max: 1 })).next;
        let claimed = bed.store.claimed.load(Ordering::SeqCst);
        Self { bed, begun_at: bed.clock.elapsed(), cursor, claimed }
    }

    fn elapsed(&self) -> Duration {
        self.bed.clock.elapsed().saturating_sub(self.begun_at)
    }

    fn is_idle(&self, served: &[QueueName]) -> bool {
        let queues = self.bed.ask(self.bed.store.inner.queues());
        let ours = |queue: &&QueueStatus| served.contains(&queue.name);
        let quiet = queues.iter().filter(ours).all(|queue| queue.counts.active == 0 && queue.counts.scheduled == 0);
        let empty = queues.iter().filter(ours).all(|queue| queue.counts.ready == 0);
        quiet && (empty || self.bed.store.nothing_to_claim())
    }

    #[expect(clippy::panic, reason = "a failed check of a test is a panic")]
    fn check_limits(&self) {
        let attempts = self.bed.store.claimed.load(Ordering::SeqCst) - self.claimed;
        let wrong = if self.elapsed() >= self.bed.time_max {
            format!("not idle after {:?} of virtual time; say more with `time_limit`", self.elapsed())
        } else if attempts > self.bed.attempts_max {
            format!("not idle after {attempts} attempts; say more with `attempts_limit`")
        } else if let Some(job) = self.hanging() {
            format!("an attempt of `{}` hangs for a day; give the job a timeout", job.kind)
        } else {
            return;
        };
        let left: String = self.bed.left().iter().map(|left| format!("\n  {left}")).collect();
        let runs = self.bed.left_runs();
        let runs: String = runs.iter().map(|run| format!("\n  {} {}: {}", run.kind, run.id, run.summary)).collect();
        let runs = if runs.is_empty() { runs } else { format!("\nRuns that have not ended:{runs}") };
        panic!("{wrong}. Jobs that have not ended:{left}{runs}");
    }

    fn hanging(&self) -> Option<JobSummary> {
        let now = self.bed.now();
        if now < Timestamp::from_ms(0).plus_ms(ATTEMPT_MS_MAX) || self.elapsed() < Duration::from_millis(ATTEMPT_MS_MAX)
        {
            return None;
        }
        let filter = Filter { state: Some(State::Active), ..Filter::default() };
        let request = ListRequest { filter, order: ListOrder::Ascending, cursor: None, limit: 1 };
        let oldest = self.bed.ask(self.bed.store.inner.list(request)).jobs.pop()?;
        oldest.claimed_at.filter(|at| now.ms_since(*at) > ATTEMPT_MS_MAX).map(|_| oldest)
    }

    fn done(self) -> Done {
        let (left, left_runs) = (self.bed.left(), self.bed.left_runs());
        let mut done = Done { elapsed: self.elapsed(), left, left_runs, ..Done::default() };
        let mut cursor = self.cursor;
        loop {
            let page = self.bed.ask(self.bed.store.inner.read_feed(FeedRequest { after: Some(cursor), max: FEED_MAX }));
            let events = page.entries.iter().flat_map(|entry| &entry.events);
            for event in events {
                if let FeedEvent::Job(change) = event {
                    done.count(change);
                }
            }
            if page.entries.is_empty() {
                return done;
            }
            cursor = page.next;
        }
    }
}
