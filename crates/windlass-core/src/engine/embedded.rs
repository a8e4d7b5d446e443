//! Every host is a whole store: the contract, one method after the other, handed to the engine.

#![allow(
    clippy::redundant_closure_for_method_calls,
    reason = "the method itself is not general enough over the step's lifetime"
)]

use super::{Ended, Prepared, PreparedCommit, PreparedRun, Signals, Step, Tables};
use crate::error::Result;
use crate::id::{JobId, RunId};
use crate::job::Job;
use crate::name::{ScheduleName, WorkerId};
use crate::schedule::Schedule;
use crate::store::{
    BATCH_MAX, Beat, BeatAnswer, Change, ChangeMany, Changed, ChangedMany, ClaimRequest, Claimed, DueSchedule,
    EnqueueRequest, Enqueued, Explanation, Feed, FeedPage, FeedRequest, Fire, FireOutcome, GroupPage, GroupsRequest,
    JobPage, JobQueue, ListRequest, LogAppend, LogPage, LogRequest, LogSink, MaintenanceClaim, MetricsRequest,
    MinuteMetrics, NewRun, QueueStatus, RenewRequest, Renewed, ReportRequest, Reported, ReportedAndClaimed, RunClaim,
    RunCommit, RunCommitted, RunCreated, RunList, RunMessage, RunPage, RunRead, RunRenewal, RunRenewed, RunStore,
    RunView, RunsClaimed, ScheduleStore, Setting, Store, StoreInfo, Sweep, Swept, WaitFor, WorkerRegistry,
    WorkerStatus, check_batch, check_feed_events,
};
use crate::time::Timestamp;
use async_trait::async_trait;

/// What runs steps: makes each of them atomic and, once it has answered, as durable as the store promises.
pub trait Host: Send + Sync + 'static {
    /// Its tables.
    type Tables: Tables;

    /// Runs a step that may change something, and announces its effects when they are durable.
    fn write<R, F>(&self, work: F) -> impl Future<Output = Result<R>> + Send
    where
        R: Send + 'static,
        F: FnOnce(&mut Step<'_, Self::Tables>) -> Result<R> + Send + 'static;

    /// Runs a step that changes nothing, over one consistent state.
    fn read<R, F>(&self, work: F) -> impl Future<Output = Result<R>> + Send
    where
        R: Send + 'static,
        F: FnOnce(&mut Step<'_, Self::Tables>) -> Result<R> + Send + 'static;

    /// What it is and what it promises.
    fn describe(&self) -> impl Future<Output = Result<StoreInfo>> + Send;

    /// Its clock.
    fn time(&self) -> Timestamp;

    /// Held while somebody waits for a wake-up.
    type Watch<'a>: Send
    where
        Self: 'a;

    /// Somebody waits: a host whose data others may change looks out for that until the answer is dropped.
    fn watch(&self) -> Self::Watch<'_>;

    /// Its wake-ups.
    fn signals(&self) -> &Signals;

    /// Lets go of everything; safe to call twice.
    fn shut_down(&self) -> impl Future<Output = Result<()>> + Send;
}

#[async_trait]
impl<H: Host> JobQueue for H {
    async fn enqueue(&self, request: EnqueueRequest) -> Result<Vec<Result<Enqueued>>> {
        let EnqueueRequest { jobs, atomic } = request;
        let jobs = Prepared::outside(jobs)?;
        self.write(move |step| step.enqueue_prepared(jobs, atomic)).await
    }

    async fn claim(&self, request: ClaimRequest) -> Result<Claimed> {
        // Taken before the claim looks, so that the next wait notices whatever the claim could not see.
        let mark = self.signals().mark();
        let claimed = self.write(move |step| step.claim(&request)).await?;
        Ok(Claimed { mark, ..claimed })
    }

    async fn renew(&self, request: RenewRequest) -> Result<Vec<Result<Renewed>>> {
        self.write(move |step| step.renew(request)).await
    }

    async fn report(&self, request: ReportRequest) -> Result<Vec<Result<Reported>>> {
        self.write(move |step| step.report(request)).await
    }

    async fn report_and_claim(&self, report: ReportRequest, claim: ClaimRequest) -> Result<ReportedAndClaimed> {
        let mark = self.signals().mark();
        let mut both = self.write(move |step| step.report_and_claim(report, &claim)).await?;
        both.claimed.mark = mark;
        Ok(both)
    }

    async fn change(&self, changes: Vec<Change>) -> Result<Vec<Result<Changed>>> {
        self.write(move |step| step.change(changes)).await
    }

    async fn change_many(&self, request: ChangeMany) -> Result<ChangedMany> {
        self.write(move |step| step.change_many(&request)).await
    }

    async fn get(&self, ids: Vec<JobId>) -> Result<Vec<Option<Job>>> {
        self.read(move |step| step.get(&ids)).await
    }

    async fn list(&self, request: ListRequest) -> Result<JobPage> {
        self.read(move |step| step.list(&request)).await
    }

    async fn configure(&self, setting: Setting) -> Result<()> {
        self.write(move |step| step.configure(setting)).await
    }

    async fn queues(&self) -> Result<Vec<QueueStatus>> {
        self.read(|step| step.queue_statuses()).await
    }

    async fn groups(&self, request: GroupsRequest) -> Result<GroupPage> {
        self.read(move |step| step.groups(&request)).await
    }

    async fn metrics(&self, request: MetricsRequest) -> Result<Vec<MinuteMetrics>> {
        self.read(move |step| step.metrics(&request)).await
    }

    async fn explain(&self, id: JobId) -> Result<Explanation> {
        self.read(move |step| step.explain(id)).await
    }

    async fn sweep(&self, sweep: Sweep) -> Result<Swept> {
        // Most sweeps find nothing, and those need neither the writer nor the disk. One that asks for nothing sensible is
        // refused by the other.
        if (1..=BATCH_MAX).contains(&(sweep.max as usize))
            && let Some(swept) = self.read(move |step| step.empty_sweep(sweep.kind)).await?
        {
            return Ok(swept);
        }
        self.write(move |step| step.sweep(sweep)).await
    }
}

#[async_trait]
impl<H: Host> LogSink for H {
    async fn append_logs(&self, appends: Vec<LogAppend>) -> Result<Vec<Result<u64>>> {
        self.write(move |step| step.append_logs(appends)).await
    }

    async fn read_logs(&self, request: LogRequest) -> Result<LogPage> {
        self.read(move |step| step.read_logs(request)).await
    }
}

#[async_trait]
impl<H: Host> WorkerRegistry for H {
    async fn heartbeat(&self, beat: Beat) -> Result<BeatAnswer> {
        self.write(move |step| step.heartbeat(beat)).await
    }

    async fn deregister(&self, worker: WorkerId) -> Result<()> {
        self.write(move |step| step.deregister(&worker)).await
    }

    async fn workers(&self) -> Result<Vec<WorkerStatus>> {
        self.read(|step| step.worker_statuses()).await
    }
}

#[async_trait]
impl<H: Host> ScheduleStore for H {
    async fn put_schedule(&self, schedule: Schedule) -> Result<()> {
        self.write(move |step| step.put_schedule(schedule)).await
    }

    async fn remove_schedule(&self, name: ScheduleName) -> Result<bool> {
        self.write(move |step| step.remove_schedule(&name)).await
    }

    async fn schedules(&self) -> Result<Vec<Schedule>> {
        self.read(|step| step.schedules()).await
    }

    async fn due_schedules(&self, max: u32) -> Result<Vec<DueSchedule>> {
        self.read(move |step| step.due_schedules(max)).await
    }

    async fn fire(&self, fire: Fire) -> Result<FireOutcome> {
        self.write(move |step| step.fire(fire)).await
    }
}

#[async_trait]
impl<H: Host> RunStore for H {
    async fn create_runs(&self, runs: Vec<NewRun>) -> Result<Vec<Result<RunCreated>>> {
        let runs = PreparedRun::batch(runs)?;
        self.write(move |step| step.create_runs(runs)).await
    }

    async fn claim_runs(&self, request: RunClaim) -> Result<RunsClaimed> {
        request.check()?;
        let mark = self.signals().mark();
        // A look alone is cheap, and most claims find nothing.
        let asked = request.clone();
        if let Some(empty) = self.read(move |step| step.no_runs(&asked)).await? {
            return Ok(RunsClaimed { mark, ..empty });
        }
        let claimed = self.write(move |step| step.claim_runs(&request)).await?;
        Ok(RunsClaimed { mark, ..claimed })
    }

    async fn renew_runs(&self, renewals: Vec<RunRenewal>) -> Result<Vec<Result<RunRenewed>>> {
        check_batch(renewals.len())?;
        self.write(move |step| step.renew_runs(&renewals)).await
    }

    async fn commit_runs(&self, commits: Vec<RunCommit>) -> Result<Vec<Result<RunCommitted>>> {
        let commits = PreparedCommit::batch(commits)?;
        self.write(move |step| step.commit_runs(commits)).await
    }

    async fn send_to_runs(&self, messages: Vec<RunMessage>) -> Result<Vec<Result<()>>> {
        check_batch(messages.len())?;
        self.write(move |step| step.send_to_runs(messages)).await
    }

    async fn read_runs(&self, reads: Vec<RunRead>) -> Result<Vec<Option<RunView>>> {
        check_batch(reads.len())?;
        self.read(move |step| step.read_runs(&reads)).await
    }

    async fn list_runs(&self, request: RunList) -> Result<RunPage> {
        self.read(move |step| step.list_runs(&request)).await
    }

    async fn remove_runs(&self, runs: Vec<RunId>) -> Result<Vec<Result<()>>> {
        check_batch(runs.len())?;
        self.write(move |step| step.remove_runs(&runs)).await
    }
}

#[async_trait]
impl<H: Host> Feed for H {
    async fn read_feed(&self, request: FeedRequest) -> Result<FeedPage> {
        self.read(move |step| step.read_feed(request)).await
    }

    async fn set_feed_events(&self, events: u64) -> Result<()> {
        check_feed_events(events)?;
        self.write(move |step| step.set_feed_events(events)).await
    }

    async fn feed_events(&self) -> Result<u64> {
        self.read(|step| step.feed_events()).await
    }
}

#[async_trait]
impl<H: Host> Store for H {
    async fn info(&self) -> Result<StoreInfo> {
        self.signals().check_open()?;
        let info = self.describe().await?;
        let events = self.read(|step| step.feed_events()).await?;
        Ok(info.with_feed_events(events))
    }

    async fn now(&self) -> Result<Timestamp> {
        self.signals().check_open()?;
        Ok(self.time())
    }

    async fn wait(&self, what: WaitFor) -> Result<()> {
        let signals = self.signals();
        signals.check_open()?;
        let _watch = self.watch();
        match what {
            WaitFor::Work { queues, mark } => signals.work(&queues, mark).await,
            WaitFor::Runs(mark) => signals.runs(mark).await,
            WaitFor::Feed(cursor) => {
                let end = self.read(move |step| step.read_feed(FeedRequest { after: None, max: 1 })).await?;
                if end.next <= cursor {
                    signals.feed(cursor).await;
                }
            }
            WaitFor::Job(id) => {
                let is_open = async {
                    let job = self.read(move |step| step.get(&[id])).await?;
                    Ok(job.into_iter().flatten().any(|job| !job.state.is_terminal()))
                };
                signals.end(Ended::Job(id), is_open).await?;
            }
            WaitFor::Run(id) => signals.end(Ended::Run(id), self.read(move |step| step.is_open_run(id))).await?,
        }
        signals.check_open()
    }

    async fn claim_maintenance(&self, _: WorkerId, _: u64) -> Result<MaintenanceClaim> {
        self.signals().check_open()?;
        Ok(MaintenanceClaim::Granted)
    }

    async fn close(&self) -> Result<()> {
        self.signals().close();
        self.shut_down().await
    }
}
