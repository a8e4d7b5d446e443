//! A store in front of another one: to count, to write down, to refuse.

use super::{
    Beat, BeatAnswer, Change, ChangeMany, Changed, ChangedMany, ClaimRequest, Claimed, DueSchedule, EnqueueRequest,
    Enqueued, Explanation, Feed, FeedPage, FeedRequest, Fire, FireOutcome, GroupPage, GroupsRequest, JobPage, JobQueue,
    ListRequest, LogAppend, LogPage, LogRequest, LogSink, MetricsRequest, MinuteMetrics, NewRun, QueueStatus,
    RenewRequest, Renewed, ReportRequest, Reported, ReportedAndClaimed, RunClaim, RunCommit, RunCommitted, RunCreated,
    RunList, RunMessage, RunPage, RunRead, RunStore, RunView, RunsClaimed, ScheduleStore, Setting, Store, StoreInfo,
    Sweep, Swept, Timekeeping, WaitFor, WorkerRegistry, WorkerStatus,
};
use crate::error::Result;
use crate::id::{JobId, RunId};
use crate::job::Job;
use crate::name::{ScheduleName, WorkerId};
use crate::schedule::Schedule;
use crate::time::Timestamp;
use async_trait::async_trait;
use std::fmt;
use std::ops::Deref;

/// Writes the contract once: as methods of [`Wrap`] that pass on, and as those of [`Wrapped`] that ask it.
macro_rules! contract {
    ($($service:ident { $($method:ident($($arg:ident: $input:ty),*) -> $output:ty;)+ })+) => {
        /// A store in front of another one: what it does not say itself is passed on. [`Wrapped`] makes a [`Store`] of it.
        ///
        /// ```
        /// use std::sync::Arc;
        /// use std::sync::atomic::{AtomicU64, Ordering};
        /// use windlass_core::store::{ClaimRequest, Claimed, Store, Wrap, Wrapped};
        ///
        /// struct CountClaims { inner: Arc<dyn Store>, claims: AtomicU64 }
        ///
        /// #[async_trait::async_trait]
        /// impl Wrap for CountClaims {
        ///     fn inner(&self) -> &dyn Store { self.inner.as_ref() }
        ///
        ///     async fn claim(&self, request: ClaimRequest) -> windlass_core::Result<Claimed> {
        ///         self.claims.fetch_add(1, Ordering::Relaxed);
        ///         self.inner.claim(request).await
        ///     }
        /// }
        ///
        /// let inner: Arc<dyn Store> = Arc::new(windlass_core::memory::MemoryStore::new());
        /// let counted = Arc::new(Wrapped(CountClaims { inner, claims: AtomicU64::new(0) }));
        /// let store: Arc<dyn Store> = counted.clone();
        /// # let _ = (store, counted.claims.load(Ordering::Relaxed));
        /// ```
        #[async_trait]
        #[expect(missing_docs, reason = "the methods are those of the contract")]
        pub trait Wrap: Send + Sync + 'static {
            /// The store behind it.
            fn inner(&self) -> &dyn Store;

            $($(async fn $method(&self $(, $arg: $input)*) -> Result<$output> {
                self.inner().$method($($arg),*).await
            })+)+
        }

        $(#[async_trait]
        impl<W: Wrap> $service for Wrapped<W> {
            $(async fn $method(&self $(, $arg: $input)*) -> Result<$output> {
                self.0.$method($($arg),*).await
            })+
        })+
    };
}

/// A [`Wrap`] as a store.
pub struct Wrapped<W>(pub W);

impl<W> Deref for Wrapped<W> {
    type Target = W;
    fn deref(&self) -> &W {
        &self.0
    }
}

impl<W> fmt::Debug for Wrapped<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wrapped")
    }
}

contract! {
    JobQueue {
        enqueue(request: EnqueueRequest) -> Vec<Result<Enqueued>>;
        claim(request: ClaimRequest) -> Claimed;
        renew(request: RenewRequest) -> Vec<Result<Renewed>>;
        report(request: ReportRequest) -> Vec<Result<Reported>>;
        report_and_claim(report: ReportRequest, claim: ClaimRequest) -> ReportedAndClaimed;
        change(changes: Vec<Change>) -> Vec<Result<Changed>>;
        change_many(request: ChangeMany) -> ChangedMany;
        get(ids: Vec<JobId>) -> Vec<Option<Job>>;
        list(request: ListRequest) -> JobPage;
        configure(setting: Setting) -> ();
        queues() -> Vec<QueueStatus>;
        groups(request: GroupsRequest) -> GroupPage;
        metrics(request: MetricsRequest) -> Vec<MinuteMetrics>;
        explain(id: JobId) -> Explanation;
        sweep(sweep: Sweep) -> Swept;
    }
    LogSink {
        append_logs(appends: Vec<LogAppend>) -> Vec<Result<u64>>;
        read_logs(request: LogRequest) -> LogPage;
    }
    WorkerRegistry {
        heartbeat(beat: Beat) -> BeatAnswer;
        deregister(worker: WorkerId) -> ();
        workers() -> Vec<WorkerStatus>;
    }
    ScheduleStore {
        put_schedule(schedule: Schedule) -> ();
        remove_schedule(name: ScheduleName) -> bool;
        schedules() -> Vec<Schedule>;
        due_schedules(max: u32) -> Vec<DueSchedule>;
        fire(fire: Fire) -> FireOutcome;
    }
    RunStore {
        create_runs(runs: Vec<NewRun>) -> Vec<Result<RunCreated>>;
        claim_runs(request: RunClaim) -> RunsClaimed;
        commit_runs(commits: Vec<RunCommit>) -> Vec<Result<RunCommitted>>;
        send_to_runs(messages: Vec<RunMessage>) -> Vec<Result<()>>;
        read_runs(reads: Vec<RunRead>) -> Vec<Option<RunView>>;
        list_runs(request: RunList) -> RunPage;
        remove_runs(runs: Vec<RunId>) -> Vec<Result<()>>;
    }
    Feed {
        read_feed(request: FeedRequest) -> FeedPage;
        set_feed_events(events: u64) -> ();
        feed_events() -> u64;
    }
    Store {
        info() -> StoreInfo;
        now() -> Timestamp;
        wait(what: WaitFor) -> ();
        keep_time(keeper: WorkerId, ttl_ms: u64) -> Timekeeping;
        close() -> ();
    }
}
