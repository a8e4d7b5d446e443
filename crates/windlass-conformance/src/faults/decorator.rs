//! The decorator: every method of the contract, through one door.

use super::plan::{Fault, FaultPlan};
use async_trait::async_trait;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use windlass_core::id::{JobId, RunId};
use windlass_core::job::Job;
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

/// A store whose calls may fail, and which counts them.
pub struct Faulty {
    inner: Arc<dyn Store>,
    plan: FaultPlan,
    calls: Mutex<BTreeMap<Method, u64>>,
}

impl Faulty {
    /// `inner`, failing as planned.
    pub fn new(inner: Arc<dyn Store>, plan: FaultPlan) -> Self {
        Self { inner, plan, calls: Mutex::default() }
    }

    /// From now on everything passes.
    pub fn calm_down(&self) {
        self.plan.calm_down();
    }

    /// How often each method was called.
    pub fn calls(&self) -> BTreeMap<Method, u64> {
        self.calls.lock().clone()
    }

    async fn through<T>(&self, method: Method, call: impl Future<Output = Result<T>> + Send) -> Result<T> {
        *self.calls.lock().entry(method).or_insert(0) += 1;
        match self.plan.next(method) {
            Fault::Pass => call.await,
            Fault::Before => Err(Error::Unavailable { reason: format!("{method:?} was refused by plan") }),
            Fault::Refused(error) => Err(error),
            Fault::Hang => std::future::pending().await,
            Fault::Lost => {
                // An error of the call is lost like any other answer.
                let _answer = call.await;
                Err(Error::Unknown { reason: format!("the reply to {method:?} was lost by plan") })
            }
            Fault::Delay(turns) => {
                overtake_me(turns).await;
                let answer = call.await;
                overtake_me(turns).await;
                answer
            }
        }
    }
}

async fn overtake_me(turns: u32) {
    for _ in 0..turns {
        tokio::task::yield_now().await;
    }
}

impl std::fmt::Debug for Faulty {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Faulty").field("plan", &self.plan).finish_non_exhaustive()
    }
}

/// Writes the traits' methods once: as variants of [`Method`] and as the decorator's bodies.
macro_rules! contract {
    ($($service:ident { $($variant:ident = $method:ident($($arg:ident: $input:ty),*) -> $output:ty;)+ })+) => {
        /// A method of the contract.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[expect(missing_docs, reason = "the names are those of the methods")]
        pub enum Method { $($($variant),+),+ }

        impl Method {
            /// All of them.
            pub const ALL: &'static [Self] = &[$($(Self::$variant),+),+];
        }

        $(#[async_trait]
        impl $service for Faulty {
            $(async fn $method(&self $(, $arg: $input)*) -> Result<$output> {
                self.through(Method::$variant, self.inner.$method($($arg),*)).await
            })+
        })+
    };
}

contract! {
    JobQueue {
        Enqueue = enqueue(request: EnqueueRequest) -> Vec<Result<Enqueued>>;
        Claim = claim(request: ClaimRequest) -> Claimed;
        Renew = renew(request: RenewRequest) -> Vec<Result<Renewed>>;
        Report = report(request: ReportRequest) -> Vec<Result<Reported>>;
        ReportAndClaim = report_and_claim(report: ReportRequest, claim: ClaimRequest) -> ReportedAndClaimed;
        Change = change(changes: Vec<Change>) -> Vec<Result<Changed>>;
        ChangeMany = change_many(request: ChangeMany) -> ChangedMany;
        Get = get(ids: Vec<JobId>) -> Vec<Option<Job>>;
        List = list(request: ListRequest) -> JobPage;
        Configure = configure(setting: Setting) -> ();
        Queues = queues() -> Vec<QueueStatus>;
        Groups = groups(request: GroupsRequest) -> GroupPage;
        Metrics = metrics(request: MetricsRequest) -> Vec<MinuteMetrics>;
        Explain = explain(id: JobId) -> Explanation;
        Sweep = sweep(sweep: Sweep) -> Swept;
    }
    LogSink {
        AppendLogs = append_logs(appends: Vec<LogAppend>) -> Vec<Result<u64>>;
        ReadLogs = read_logs(request: LogRequest) -> LogPage;
    }
    WorkerRegistry {
        Heartbeat = heartbeat(beat: Beat) -> BeatAnswer;
        Deregister = deregister(worker: WorkerId) -> ();
        Workers = workers() -> Vec<WorkerStatus>;
    }
    ScheduleStore {
        PutSchedule = put_schedule(schedule: Schedule) -> ();
        RemoveSchedule = remove_schedule(name: ScheduleName) -> bool;
        Schedules = schedules() -> Vec<Schedule>;
        DueSchedules = due_schedules(max: u32) -> Vec<DueSchedule>;
        Fire = fire(fire: Fire) -> FireOutcome;
    }
    RunStore {
        CreateRuns = create_runs(runs: Vec<NewRun>) -> Vec<Result<RunCreated>>;
        ClaimRuns = claim_runs(request: RunClaim) -> RunsClaimed;
        CommitRuns = commit_runs(commits: Vec<RunCommit>) -> Vec<Result<RunCommitted>>;
        SendToRuns = send_to_runs(messages: Vec<RunMessage>) -> Vec<Result<()>>;
        ReadRuns = read_runs(reads: Vec<RunRead>) -> Vec<Option<RunView>>;
        ListRuns = list_runs(request: RunList) -> RunPage;
        RemoveRuns = remove_runs(runs: Vec<RunId>) -> Vec<Result<()>>;
    }
    Feed {
        ReadFeed = read_feed(request: FeedRequest) -> FeedPage;
        SetFeedEvents = set_feed_events(events: u64) -> ();
        FeedEvents = feed_events() -> u64;
    }
    Store {
        Info = info() -> StoreInfo;
        Now = now() -> Timestamp;
        Wait = wait(what: WaitFor) -> ();
        KeepTime = keep_time(keeper: WorkerId, ttl_ms: u64) -> Timekeeping;
        Close = close() -> ();
    }
}
