//! The decorator: every method of the contract, counted, timed and traced, and otherwise left as it is.

use super::meters::{Asked, Live, Meters, Stopwatch};
use super::op::{Op, error_name};
use async_trait::async_trait;
use std::fmt;
use std::sync::Arc;
use tracing::Instrument;
use windlass_core::Result;
use windlass_core::id::{JobId, RunId};
use windlass_core::job::{Job, Lease, NewJob};
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

/// A store that tells what is asked of it: a span for each call, and metrics of calls and jobs.
pub struct Observed {
    inner: Arc<dyn Store>,
    name: &'static str,
    meters: Meters,
}

impl Observed {
    /// `inner`, observed; `name` is the label `store` of its metrics and spans.
    pub fn new(name: &'static str, inner: Arc<dyn Store>) -> Self {
        Self { inner, name, meters: Meters::new(name) }
    }

    /// A call that is about nothing but itself.
    async fn plain<T>(&self, op: Op, items: usize, call: impl Future<Output = Result<T>> + Send) -> Result<T> {
        self.call(Asking { op, items, live: self.meters.current().as_deref() }, call).await
    }

    async fn call<T>(&self, asking: Asking<'_>, call: impl Future<Output = Result<T>> + Send) -> Result<T> {
        let Asking { op, items, live } = asking;
        let span = tracing::debug_span!(
            target: "windlass::store",
            "windlass.store",
            op = op.name(),
            items,
            store = self.name,
            outcome = tracing::field::Empty,
        );
        let watch = live.map(|live| (live, Stopwatch::start()));
        let answer = if span.is_disabled() { call.await } else { call.instrument(span.clone()).await };
        span.record("outcome", answer.as_ref().err().map_or("ok", error_name));
        if let Some((live, watch)) = watch {
            live.called(op, watch, answer.as_ref().err());
        }
        answer
    }
}

/// A call that begins.
struct Asking<'a> {
    op: Op,
    items: usize,
    live: Option<&'a Live>,
}

/// The jobs that a step of a run asks for.
struct Steps<'l> {
    live: &'l Live,
    asked: Asked,
    jobs: u32,
}

impl<'l> Steps<'l> {
    fn of(live: &'l Arc<Live>, jobs: &[NewJob]) -> Self {
        Self { live, asked: live.asked(jobs), jobs: u32::try_from(jobs.len()).unwrap_or(u32::MAX) }
    }

    /// The step was made.
    fn made(&self) {
        self.live.fired(&self.asked, self.jobs);
    }
}

impl fmt::Debug for Observed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observed").field("store", &self.name).finish_non_exhaustive()
    }
}

#[async_trait]
impl JobQueue for Observed {
    async fn enqueue(&self, request: EnqueueRequest) -> Result<Vec<Result<Enqueued>>> {
        let live = self.meters.current();
        let asked = live.as_ref().map(|live| live.asked(&request.jobs));
        let asking = Asking { op: Op::Enqueue, items: request.jobs.len(), live: live.as_deref() };
        let answer = self.call(asking, self.inner.enqueue(request)).await;
        if let (Some(live), Some(asked), Ok(answers)) = (live, asked, &answer) {
            live.enqueued(&asked, answers);
        }
        answer
    }

    async fn claim(&self, request: ClaimRequest) -> Result<Claimed> {
        let live = self.meters.current();
        let lease_ms = request.lease_ms;
        let asking = Asking { op: Op::Claim, items: request.max as usize, live: live.as_deref() };
        let answer = self.call(asking, self.inner.claim(request)).await;
        if let (Some(live), Ok(claimed)) = (live, &answer) {
            live.claimed(&claimed.jobs, lease_ms);
        }
        answer
    }

    async fn renew(&self, request: RenewRequest) -> Result<Vec<Result<Renewed>>> {
        let live = self.meters.current();
        let asking = Asking { op: Op::Renew, items: request.renewals.len(), live: live.as_deref() };
        let leases: Option<Vec<Lease>> =
            live.as_ref().map(|_| request.renewals.iter().map(|renewal| renewal.lease).collect());
        let answer = self.call(asking, self.inner.renew(request)).await;
        if let (Some(live), Some(leases), Ok(answers)) = (live, leases, &answer) {
            live.renewed(&leases, answers);
        }
        answer
    }

    async fn report(&self, request: ReportRequest) -> Result<Vec<Result<Reported>>> {
        let live = self.meters.current();
        let told = live.as_ref().map(|live| live.told(&request.outcomes));
        let asking = Asking { op: Op::Report, items: request.outcomes.len(), live: live.as_deref() };
        let answer = self.call(asking, self.inner.report(request)).await;
        if let (Some(live), Some(told), Ok(answers)) = (live, told, &answer) {
            live.reported(Op::Report, &told, answers);
        }
        answer
    }

    async fn report_and_claim(&self, report: ReportRequest, claim: ClaimRequest) -> Result<ReportedAndClaimed> {
        let live = self.meters.current();
        let told = live.as_ref().map(|live| live.told(&report.outcomes));
        let lease_ms = claim.lease_ms;
        let items = report.outcomes.len() + claim.max as usize;
        let asking = Asking { op: Op::ReportAndClaim, items, live: live.as_deref() };
        let answer = self.call(asking, self.inner.report_and_claim(report, claim)).await;
        if let (Some(live), Some(told), Ok(both)) = (live, told, &answer) {
            live.reported(Op::ReportAndClaim, &told, &both.reported);
            live.claimed(&both.claimed.jobs, lease_ms);
        }
        answer
    }

    async fn change(&self, changes: Vec<Change>) -> Result<Vec<Result<Changed>>> {
        let live = self.meters.current();
        let asking = Asking { op: Op::Change, items: changes.len(), live: live.as_deref() };
        let answer = self.call(asking, self.inner.change(changes)).await;
        if let (Some(live), Ok(answers)) = (live, &answer) {
            live.refused(Op::Change, answers);
        }
        answer
    }

    async fn change_many(&self, request: ChangeMany) -> Result<ChangedMany> {
        self.plain(Op::ChangeMany, request.max as usize, self.inner.change_many(request)).await
    }

    async fn get(&self, ids: Vec<JobId>) -> Result<Vec<Option<Job>>> {
        self.plain(Op::Get, ids.len(), self.inner.get(ids)).await
    }

    async fn list(&self, request: ListRequest) -> Result<JobPage> {
        self.plain(Op::List, request.limit as usize, self.inner.list(request)).await
    }

    async fn configure(&self, setting: Setting) -> Result<()> {
        self.plain(Op::Configure, 1, self.inner.configure(setting)).await
    }

    async fn queues(&self) -> Result<Vec<QueueStatus>> {
        self.plain(Op::Queues, 1, self.inner.queues()).await
    }

    async fn groups(&self, request: GroupsRequest) -> Result<GroupPage> {
        self.plain(Op::Groups, request.limit as usize, self.inner.groups(request)).await
    }

    async fn metrics(&self, request: MetricsRequest) -> Result<Vec<MinuteMetrics>> {
        self.plain(Op::Metrics, 1, self.inner.metrics(request)).await
    }

    async fn explain(&self, id: JobId) -> Result<Explanation> {
        self.plain(Op::Explain, 1, self.inner.explain(id)).await
    }

    async fn sweep(&self, sweep: Sweep) -> Result<Swept> {
        let live = self.meters.current();
        let asking = Asking { op: Op::Sweep, items: sweep.max as usize, live: live.as_deref() };
        let answer = self.call(asking, self.inner.sweep(sweep)).await;
        if let (Some(live), Ok(swept)) = (live, &answer) {
            live.swept(sweep.kind, *swept);
        }
        answer
    }
}

#[async_trait]
impl LogSink for Observed {
    async fn append_logs(&self, appends: Vec<LogAppend>) -> Result<Vec<Result<u64>>> {
        let live = self.meters.current();
        let asking = Asking { op: Op::AppendLogs, items: appends.len(), live: live.as_deref() };
        let answer = self.call(asking, self.inner.append_logs(appends)).await;
        if let (Some(live), Ok(answers)) = (live, &answer) {
            live.refused(Op::AppendLogs, answers);
        }
        answer
    }

    async fn read_logs(&self, request: LogRequest) -> Result<LogPage> {
        self.plain(Op::ReadLogs, request.limit as usize, self.inner.read_logs(request)).await
    }
}

#[async_trait]
impl WorkerRegistry for Observed {
    async fn heartbeat(&self, beat: Beat) -> Result<BeatAnswer> {
        let live = self.meters.current();
        if let Some(live) = &live {
            live.beat(&beat);
        }
        self.call(Asking { op: Op::Heartbeat, items: 1, live: live.as_deref() }, self.inner.heartbeat(beat)).await
    }

    async fn deregister(&self, worker: WorkerId) -> Result<()> {
        let live = self.meters.current();
        if let Some(live) = &live {
            live.left(&worker);
        }
        self.call(Asking { op: Op::Deregister, items: 1, live: live.as_deref() }, self.inner.deregister(worker)).await
    }

    async fn workers(&self) -> Result<Vec<WorkerStatus>> {
        self.plain(Op::Workers, 1, self.inner.workers()).await
    }
}

#[async_trait]
impl ScheduleStore for Observed {
    async fn put_schedule(&self, schedule: Schedule) -> Result<()> {
        self.plain(Op::PutSchedule, 1, self.inner.put_schedule(schedule)).await
    }

    async fn remove_schedule(&self, name: ScheduleName) -> Result<bool> {
        self.plain(Op::RemoveSchedule, 1, self.inner.remove_schedule(name)).await
    }

    async fn schedules(&self) -> Result<Vec<Schedule>> {
        self.plain(Op::Schedules, 1, self.inner.schedules()).await
    }

    async fn due_schedules(&self, max: u32) -> Result<Vec<DueSchedule>> {
        self.plain(Op::DueSchedules, max as usize, self.inner.due_schedules(max)).await
    }

    async fn fire(&self, fire: Fire) -> Result<FireOutcome> {
        let live = self.meters.current();
        let asked = live.as_ref().map(|live| live.asked(&fire.jobs));
        let asking = Asking { op: Op::Fire, items: fire.jobs.len(), live: live.as_deref() };
        let answer = self.call(asking, self.inner.fire(fire)).await;
        if let (Some(live), Some(asked), Ok(FireOutcome::Fired { jobs })) = (live, asked, &answer) {
            live.fired(&asked, *jobs);
        }
        answer
    }
}

#[async_trait]
impl RunStore for Observed {
    async fn create_runs(&self, runs: Vec<NewRun>) -> Result<Vec<Result<RunCreated>>> {
        let live = self.meters.current();
        let asked: Vec<_> =
            live.iter().flat_map(|live| runs.iter().map(|run| Steps::of(live, &run.step.jobs))).collect();
        let asking = Asking { op: Op::CreateRuns, items: runs.len(), live: live.as_deref() };
        let answers = self.call(asking, self.inner.create_runs(runs)).await?;
        for (asked, _) in asked.iter().zip(&answers).filter(|(_, answer)| **answer == Ok(RunCreated::Created)) {
            asked.made();
        }
        Ok(answers)
    }

    async fn claim_runs(&self, request: RunClaim) -> Result<RunsClaimed> {
        self.plain(Op::ClaimRuns, request.max as usize, self.inner.claim_runs(request)).await
    }

    async fn commit_runs(&self, commits: Vec<RunCommit>) -> Result<Vec<Result<RunCommitted>>> {
        let live = self.meters.current();
        let steps = |live| commits.iter().map(move |commit| Steps::of(live, &commit.step.jobs));
        let asked: Vec<_> = live.iter().flat_map(steps).collect();
        let asking = Asking { op: Op::CommitRuns, items: commits.len(), live: live.as_deref() };
        let answers = self.call(asking, self.inner.commit_runs(commits)).await?;
        let made = |answer: &Result<RunCommitted>| answer.as_ref().is_ok_and(|committed| !committed.repeated);
        for (asked, _) in asked.iter().zip(&answers).filter(|(_, answer)| made(answer)) {
            asked.made();
        }
        Ok(answers)
    }

    async fn send_to_runs(&self, messages: Vec<RunMessage>) -> Result<Vec<Result<()>>> {
        self.plain(Op::SendToRuns, messages.len(), self.inner.send_to_runs(messages)).await
    }

    async fn read_runs(&self, reads: Vec<RunRead>) -> Result<Vec<Option<RunView>>> {
        self.plain(Op::ReadRuns, reads.len(), self.inner.read_runs(reads)).await
    }

    async fn list_runs(&self, request: RunList) -> Result<RunPage> {
        self.plain(Op::ListRuns, request.limit as usize, self.inner.list_runs(request)).await
    }

    async fn remove_runs(&self, runs: Vec<RunId>) -> Result<Vec<Result<()>>> {
        self.plain(Op::RemoveRuns, runs.len(), self.inner.remove_runs(runs)).await
    }
}

#[async_trait]
impl Feed for Observed {
    async fn read_feed(&self, request: FeedRequest) -> Result<FeedPage> {
        self.plain(Op::ReadFeed, request.max as usize, self.inner.read_feed(request)).await
    }

    async fn set_feed_events(&self, events: u64) -> Result<()> {
        self.plain(Op::SetFeedEvents, 1, self.inner.set_feed_events(events)).await
    }

    async fn feed_events(&self) -> Result<u64> {
        self.plain(Op::FeedEvents, 1, self.inner.feed_events()).await
    }
}

#[async_trait]
impl Store for Observed {
    async fn info(&self) -> Result<StoreInfo> {
        self.plain(Op::Info, 1, self.inner.info()).await
    }

    async fn now(&self) -> Result<Timestamp> {
        self.plain(Op::Now, 1, self.inner.now()).await
    }

    async fn wait(&self, what: WaitFor) -> Result<()> {
        self.plain(Op::Wait, 1, self.inner.wait(what)).await
    }

    /// A hint among processes, and nothing of the work.
    async fn keep_time(&self, keeper: WorkerId, ttl_ms: u64) -> Result<Timekeeping> {
        self.inner.keep_time(keeper, ttl_ms).await
    }

    async fn close(&self) -> Result<()> {
        self.plain(Op::Close, 1, self.inner.close()).await
    }
}
