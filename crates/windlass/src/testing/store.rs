//! The store of a test: the memory store, with a record of what was enqueued, and with faults on request.

use super::faults::{Fate, Injected};
use async_trait::async_trait;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use tokio::sync::Notify;
use windlass_core::id::{JobId, RunId};
use windlass_core::job::{Job, Lease, NewJob};
use windlass_core::memory::MemoryStore;
use windlass_core::name::{ScheduleName, WorkerId};
use windlass_core::schedule::Schedule;
use windlass_core::store::{
    Beat, BeatAnswer, Change, ChangeMany, Changed, ChangedMany, ClaimRequest, Claimed, DueSchedule, EnqueueRequest,
    Enqueued, Explanation, Feed, FeedPage, FeedRequest, Fire, FireOutcome, GroupPage, GroupsRequest, JobPage, JobQueue,
    ListRequest, LogAppend, LogPage, LogRequest, LogSink, MetricsRequest, MinuteMetrics, NewRun, QueueStatus,
    RenewRequest, Renewed, ReportRequest, Reported, ReportedAndClaimed, RunClaim, RunCommit, RunCommitted, RunCreated,
    RunList, RunMessage, RunPage, RunRead, RunStore, RunView, RunsClaimed, ScheduleStore, Setting, Store, StoreInfo,
    Sweep, Swept, Timekeeping, WaitFor, WorkerRegistry, WorkerStatus,
};
use windlass_core::time::Timestamp;
use windlass_core::{Error, Result};

pub(super) struct TestStore {
    pub(super) inner: MemoryStore,
    pub(super) faults: Arc<Injected>,
    /// What was enqueued, in order.
    pub(super) sent: Mutex<Vec<NewJob>>,
    /// Rings after every call.
    pub(super) busy: Notify,
    /// Jobs handed out.
    pub(super) claimed: AtomicU64,
    /// Workers that found nothing to claim and wait for more.
    idle_workers: AtomicUsize,
    /// When the last claim expected more.
    next_at: Mutex<Option<Timestamp>>,
}

impl TestStore {
    pub(super) fn new(inner: MemoryStore) -> Self {
        Self {
            inner,
            faults: Arc::default(),
            sent: Mutex::default(),
            busy: Notify::new(),
            claimed: AtomicU64::new(0),
            idle_workers: AtomicUsize::new(0),
            next_at: Mutex::new(None),
        }
    }

    /// A worker has claimed what it may, waits for more, and time alone will not bring it.
    pub(super) fn nothing_to_claim(&self) -> bool {
        self.idle_workers.load(Ordering::SeqCst) > 0 && self.next_at.lock().is_none()
    }

    async fn through<T>(&self, call: impl Future<Output = Result<T>> + Send) -> Result<T> {
        let answer = match self.faults.fate() {
            Fate::Pass => call.await,
            Fate::Unavailable => Err(Error::Unavailable { reason: "away by plan".to_owned() }),
            Fate::LoseAnswer => {
                // An error is lost like any other answer.
                let _ = call.await;
                Err(Error::Unknown { reason: "lost by plan".to_owned() })
            }
        };
        self.busy.notify_one();
        answer
    }

    fn note_claimed(&self, claimed: &Claimed) {
        self.claimed.fetch_add(claimed.jobs.len() as u64, Ordering::SeqCst);
        *self.next_at.lock() = claimed.next_at;
    }

    fn note_sent(&self, jobs: impl Iterator<Item = (NewJob, JobId)>) {
        self.sent.lock().extend(jobs.map(|(job, id)| NewJob { id, ..job }));
    }

    /// Reports, but for leases that were lost by plan: those are refused and the store hears nothing of them.
    async fn report_held(&self, mut report: ReportRequest) -> Result<Vec<Result<Reported>>> {
        let asked: Vec<Lease> = report.outcomes.iter().map(|outcome| outcome.lease).collect();
        report.outcomes.retain(|outcome| !self.faults.is_lost(outcome.lease));
        let answers = self.inner.report(report).await?;
        Ok(self.with_refusals(&asked, answers))
    }

    async fn renew_held(&self, mut request: RenewRequest) -> Result<Vec<Result<Renewed>>> {
        let asked: Vec<Lease> = request.renewals.iter().map(|renewal| renewal.lease).collect();
        request.renewals.retain(|renewal| !self.faults.is_lost(renewal.lease));
        let answers = self.inner.renew(request).await?;
        Ok(self.with_refusals(&asked, answers))
    }

    /// The answers of those that were passed on, and `LeaseLost` for the others.
    fn with_refusals<T>(&self, asked: &[Lease], answers: Vec<Result<T>>) -> Vec<Result<T>> {
        let mut answers = answers.into_iter();
        let answer = |lease: &Lease| match self.faults.is_lost(*lease) {
            true => Err(Error::LeaseLost),
            false => answers.next().unwrap_or(Err(Error::LeaseLost)),
        };
        asked.iter().map(answer).collect()
    }

    async fn enqueue_noted(&self, request: EnqueueRequest) -> Result<Vec<Result<Enqueued>>> {
        let jobs = request.jobs.clone();
        let answers = self.inner.enqueue(request).await?;
        let created = jobs.into_iter().zip(&answers).filter_map(|(job, answer)| match answer {
            Ok(Enqueued::Created { id } | Enqueued::Replaced { id, .. } | Enqueued::Held { id, .. }) => {
                Some((job, *id))
            }
            Ok(Enqueued::Existing { .. } | Enqueued::Deduplicated { .. }) | Err(_) => None,
        });
        self.note_sent(created);
        Ok(answers)
    }

    async fn fire_noted(&self, fire: Fire) -> Result<FireOutcome> {
        let jobs = fire.jobs.clone();
        let outcome = self.inner.fire(fire).await?;
        if let FireOutcome::Fired { jobs: created @ 1.. } = outcome {
            let created = usize::try_from(created).unwrap_or(usize::MAX);
            self.note_sent(jobs.into_iter().take(created).map(|job| (job.clone(), job.id)));
        }
        Ok(outcome)
    }

    async fn claim_noted(&self, request: ClaimRequest) -> Result<Claimed> {
        let claimed = self.inner.claim(request).await?;
        self.note_claimed(&claimed);
        Ok(claimed)
    }

    async fn report_and_claim_held(&self, report: ReportRequest, claim: ClaimRequest) -> Result<ReportedAndClaimed> {
        let asked: Vec<Lease> = report.outcomes.iter().map(|outcome| outcome.lease).collect();
        let mut held = report;
        held.outcomes.retain(|outcome| !self.faults.is_lost(outcome.lease));
        let both = self.inner.report_and_claim(held, claim).await?;
        self.note_claimed(&both.claimed);
        Ok(ReportedAndClaimed { reported: self.with_refusals(&asked, both.reported), claimed: both.claimed })
    }

    async fn wait_noted(&self, what: WaitFor) -> Result<()> {
        if let Some(until) = self.faults.away_until() {
            tokio::time::sleep_until(until).await;
            return Ok(());
        }
        let _idle = matches!(what, WaitFor::Work { .. }).then(|| Idle::new(&self.idle_workers));
        self.inner.wait(what).await
    }
}

/// Counts a worker as idle for as long as it waits.
struct Idle<'s>(&'s AtomicUsize);

impl<'s> Idle<'s> {
    fn new(count: &'s AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for Idle<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl std::fmt::Debug for TestStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TestStore")
    }
}

/// The methods through which faults come, and where they lead.
macro_rules! contract {
    ($($service:ident { $($method:ident($($arg:ident: $input:ty),*) -> $output:ty, $($inner:ident).+;)+ })+) => {
        $(#[async_trait]
        impl $service for TestStore {
            $(async fn $method(&self $(, $arg: $input)*) -> Result<$output> {
                self.through(self.$($inner).+($($arg),*)).await
            })+
        })+
    };
}

contract! {
    JobQueue {
        enqueue(request: EnqueueRequest) -> Vec<Result<Enqueued>>, enqueue_noted;
        claim(request: ClaimRequest) -> Claimed, claim_noted;
        renew(request: RenewRequest) -> Vec<Result<Renewed>>, renew_held;
        report(request: ReportRequest) -> Vec<Result<Reported>>, report_held;
        report_and_claim(report: ReportRequest, claim: ClaimRequest) -> ReportedAndClaimed, report_and_claim_held;
        change(changes: Vec<Change>) -> Vec<Result<Changed>>, inner.change;
        change_many(request: ChangeMany) -> ChangedMany, inner.change_many;
        get(ids: Vec<JobId>) -> Vec<Option<Job>>, inner.get;
        list(request: ListRequest) -> JobPage, inner.list;
        configure(setting: Setting) -> (), inner.configure;
        queues() -> Vec<QueueStatus>, inner.queues;
        groups(request: GroupsRequest) -> GroupPage, inner.groups;
        metrics(request: MetricsRequest) -> Vec<MinuteMetrics>, inner.metrics;
        explain(id: JobId) -> Explanation, inner.explain;
        sweep(sweep: Sweep) -> Swept, inner.sweep;
    }
    LogSink {
        append_logs(appends: Vec<LogAppend>) -> Vec<Result<u64>>, inner.append_logs;
        read_logs(request: LogRequest) -> LogPage, inner.read_logs;
    }
    WorkerRegistry {
        heartbeat(beat: Beat) -> BeatAnswer, inner.heartbeat;
        deregister(worker: WorkerId) -> (), inner.deregister;
        workers() -> Vec<WorkerStatus>, inner.workers;
    }
    ScheduleStore {
        put_schedule(schedule: Schedule) -> (), inner.put_schedule;
        remove_schedule(name: ScheduleName) -> bool, inner.remove_schedule;
        schedules() -> Vec<Schedule>, inner.schedules;
        due_schedules(max: u32) -> Vec<DueSchedule>, inner.due_schedules;
        fire(fire: Fire) -> FireOutcome, fire_noted;
    }
    RunStore {
        create_runs(runs: Vec<NewRun>) -> Vec<Result<RunCreated>>, inner.create_runs;
        claim_runs(request: RunClaim) -> RunsClaimed, inner.claim_runs;
        commit_runs(commits: Vec<RunCommit>) -> Vec<Result<RunCommitted>>, inner.commit_runs;
        send_to_runs(messages: Vec<RunMessage>) -> Vec<Result<()>>, inner.send_to_runs;
        read_runs(reads: Vec<RunRead>) -> Vec<Option<RunView>>, inner.read_runs;
        list_runs(request: RunList) -> RunPage, inner.list_runs;
        remove_runs(runs: Vec<RunId>) -> Vec<Result<()>>, inner.remove_runs;
    }
    Feed {
        read_feed(request: FeedRequest) -> FeedPage, inner.read_feed;
        set_feed_events(events: u64) -> (), inner.set_feed_events;
        feed_events() -> u64, inner.feed_events;
    }
}

/// Whatever is wrong with the store, a program can look at its own clock and wait.
#[async_trait]
impl Store for TestStore {
    async fn info(&self) -> Result<StoreInfo> {
        self.inner.info().await
    }

    async fn now(&self) -> Result<Timestamp> {
        self.inner.now().await
    }

    async fn wait(&self, what: WaitFor) -> Result<()> {
        self.wait_noted(what).await
    }

    async fn keep_time(&self, keeper: WorkerId, ttl_ms: u64) -> Result<Timekeeping> {
        self.inner.keep_time(keeper, ttl_ms).await
    }

    async fn close(&self) -> Result<()> {
        self.inner.close().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::id::Token;

    #[test]
    fn each_lease_gets_its_own_answer_though_some_are_lost() {
        let store = TestStore::new(MemoryStore::new());
        let lease =
            |n: u8| Lease { job: JobId::from_parts(0, n.into()), attempt: 1, token: Token::from_bits(n.into()) };
        let asked = [1, 2, 3, 4].map(lease);
        store.faults.lose(lease(1));
        store.faults.lose(lease(3));
        let answers = store.with_refusals(&asked, vec![Ok(2), Ok(4)]);
        assert_eq!(answers, [Err(Error::LeaseLost), Ok(2), Err(Error::LeaseLost), Ok(4)]);
    }
}
