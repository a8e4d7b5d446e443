//! The contract as data: every call and every answer as one value, and stores that are made of one function.
//!
//! The list at the end of this file names every method of the storage traits once. Everything that has to treat all of them
//! alike is generated from it: [`Method`], [`Call`] and [`Answer`], the dispatch of a call to a store, and the two ways to put
//! a store in front of another one ([`Wrap`] and [`HandleCall`]).

use super::wire::{self, items};
use super::{
    Beat, BeatAnswer, Change, ChangeMany, Changed, ChangedMany, ClaimRequest, Claimed, DueSchedule, EnqueueRequest,
    Enqueued, Explanation, Feed, FeedPage, FeedRequest, Fire, FireOutcome, GroupPage, GroupsRequest, JobPage, JobQueue,
    ListRequest, LogAppend, LogPage, LogRequest, LogSink, MaintenanceClaim, MetricsRequest, MinuteMetrics, NewRun,
    QueueStatus, RenewRequest, Renewed, ReportRequest, Reported, ReportedAndClaimed, RunClaim, RunCommit, RunCommitted,
    RunCreated, RunList, RunMessage, RunPage, RunRead, RunRenewal, RunRenewed, RunStore, RunView, RunsClaimed,
    ScheduleStore, Setting, Store, StoreInfo, Sweep, Swept, WaitFor, WorkerRegistry, WorkerStatus,
};
use crate::error::{Error, Result};
use crate::id::{JobId, RunId};
use crate::job::Job;
use crate::name::{ScheduleName, WorkerId};
use crate::schedule::Schedule;
use crate::time::Timestamp;
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Deref;

/// Generates [`Method`], [`Call`], [`Answer`], [`Wrap`], and the storage traits for [`Wrapped`] and [`CallStore`].
///
/// An attribute before a method is put on the field of its answer.
macro_rules! contract {
    ($($service:ident { $(
        $(#[$wire:meta])*
        $variant:ident = $method:ident($($arg:ident: $input:ty),*) -> $output:ty;
    )+ })+) => {
        /// A method of the contract.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[expect(missing_docs, reason = "the names are those of the methods")]
        pub enum Method { $($($variant),+),+ }

        impl Method {
            /// All methods, in the order of the contract.
            pub const ALL: &'static [Self] = &[$($(Self::$variant),+),+];

            /// The name of the method in Rust and in JSON.
            pub const fn name(self) -> &'static str {
                match self { $($(Self::$variant => stringify!($method)),+),+ }
            }
        }

        /// A call of the contract: the method and its arguments as one value.
        ///
        /// Its JSON form is an object with one member, the name of the method, which holds the arguments by name:
        /// `{"explain":{"id":"0-…"}}`.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        #[expect(missing_docs, reason = "the variants are the methods, the fields their arguments")]
        #[expect(clippy::large_enum_variant, reason = "a schedule is large and rarely put; a box would complicate every match")]
        pub enum Call { $($($variant { $($arg: $input),* }),+),+ }

        impl Call {
            /// The method that is called.
            pub const fn method(&self) -> Method {
                match self { $($(Self::$variant { .. } => Method::$variant),+),+ }
            }

            /// Makes the call to `store`.
            pub async fn send(self, store: &dyn Store) -> Result<Answer> {
                match self {
                    $($(Self::$variant { $($arg),* } => store.$method($($arg),*).await.map(Answer::$variant)),+),+
                }
            }
        }

        /// The answer to a [`Call`], without the error of a call that failed as a whole.
        ///
        /// Its JSON form is an object with one member, the name of the method, which holds the answer.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        #[expect(missing_docs, reason = "the variants are the methods")]
        pub enum Answer { $($($variant($(#[$wire])* $output)),+),+ }

        impl Answer {
            /// The method that was called.
            pub const fn method(&self) -> Method {
                match self { $($(Self::$variant(_) => Method::$variant),+),+ }
            }
        }

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

        $(#[async_trait]
        impl<H: HandleCall> $service for CallStore<H> {
            $(async fn $method(&self $(, $arg: $input)*) -> Result<$output> {
                match self.0.call(Call::$variant { $($arg),* }).await? {
                    Answer::$variant(answer) => Ok(answer),
                    other => Err(wrong_answer(Method::$variant, other.method())),
                }
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

/// One function that answers every call of the contract. [`CallStore`] makes a [`Store`] of it: to send the calls elsewhere,
/// or to do the same with each of them before it is passed on by [`Call::send`].
///
/// ```
/// use std::sync::Arc;
/// use windlass_core::store::{Answer, Call, CallStore, HandleCall, Store};
///
/// struct Printed(Arc<dyn Store>);
///
/// impl HandleCall for Printed {
///     async fn call(&self, call: Call) -> windlass_core::Result<Answer> {
///         println!("{}", call.method().name());
///         call.send(self.0.as_ref()).await
///     }
/// }
///
/// let inner: Arc<dyn Store> = Arc::new(windlass_core::memory::MemoryStore::new());
/// let store: Arc<dyn Store> = Arc::new(CallStore(Printed(inner)));
/// # let _ = store;
/// ```
pub trait HandleCall: Send + Sync + 'static {
    /// Answers a call. An answer to another method than the one that was called is reported to the caller as
    /// [`Error::Unknown`].
    fn call(&self, call: Call) -> impl Future<Output = Result<Answer>> + Send;
}

/// A [`HandleCall`] as a store.
pub struct CallStore<H>(pub H);

impl<H> Deref for CallStore<H> {
    type Target = H;
    fn deref(&self) -> &H {
        &self.0
    }
}

impl<H> fmt::Debug for CallStore<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CallStore")
    }
}

fn wrong_answer(called: Method, answered: Method) -> Error {
    Error::Unknown { reason: format!("the answer to {} is one to {}", called.name(), answered.name()) }
}

impl Call {
    /// The call as JSON.
    pub fn to_json(&self) -> Result<Vec<u8>> {
        wire::to_json("call", self)
    }

    /// Reads a call. A field that this version does not have is refused, because the caller relies on it.
    pub fn from_json(text: &[u8]) -> Result<Self> {
        wire::from_json_strict("call", text)
    }
}

impl Answer {
    /// The answer as JSON.
    pub fn to_json(&self) -> Result<Vec<u8>> {
        wire::to_json("answer", self)
    }

    /// Reads an answer. Fields that this version does not have are ignored.
    pub fn from_json(text: &[u8]) -> Result<Self> {
        serde_json::from_slice(text)
            .map_err(|error| Error::Unknown { reason: format!("an unreadable answer: {error}") })
    }
}

contract! {
    JobQueue {
        #[serde(with = "items")]
        Enqueue = enqueue(request: EnqueueRequest) -> Vec<Result<Enqueued>>;
        Claim = claim(request: ClaimRequest) -> Claimed;
        #[serde(with = "items")]
        Renew = renew(request: RenewRequest) -> Vec<Result<Renewed>>;
        #[serde(with = "items")]
        Report = report(request: ReportRequest) -> Vec<Result<Reported>>;
        ReportAndClaim = report_and_claim(report: ReportRequest, claim: ClaimRequest) -> ReportedAndClaimed;
        #[serde(with = "items")]
        Change = change(changes: Vec<Change>) -> Vec<Result<Changed>>;
        ChangeMany = change_many(request: ChangeMany) -> ChangedMany;
        Get = get(ids: Vec<JobId>) -> Vec<Option<Job>>;
        List = list(request: ListRequest) -> JobPage;
        Configure = configure(setting: Setting) -> ();
        Queues = queues() -> Vec<QueueStatus>;
        Groups = groups(request: GroupsRequest) -> GroupPage;
        Metrics = metrics(request: MetricsRequest) -> Vec<MinuteMetrics>;
        Explain = explain(id: JobId) -> Explanation;
        Sweep = sweep(request: Sweep) -> Swept;
    }
    LogSink {
        #[serde(with = "items")]
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
        Fire = fire(request: Fire) -> FireOutcome;
    }
    RunStore {
        #[serde(with = "items")]
        CreateRuns = create_runs(runs: Vec<NewRun>) -> Vec<Result<RunCreated>>;
        ClaimRuns = claim_runs(request: RunClaim) -> RunsClaimed;
        #[serde(with = "items")]
        RenewRuns = renew_runs(renewals: Vec<RunRenewal>) -> Vec<Result<RunRenewed>>;
        #[serde(with = "items")]
        CommitRuns = commit_runs(commits: Vec<RunCommit>) -> Vec<Result<RunCommitted>>;
        #[serde(with = "items")]
        SendToRuns = send_to_runs(messages: Vec<RunMessage>) -> Vec<Result<()>>;
        ReadRuns = read_runs(reads: Vec<RunRead>) -> Vec<Option<RunView>>;
        ListRuns = list_runs(request: RunList) -> RunPage;
        #[serde(with = "items")]
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
        Wait = wait(target: WaitFor) -> ();
        ClaimMaintenance = claim_maintenance(worker: WorkerId, ttl_ms: u64) -> MaintenanceClaim;
        Close = close() -> ();
    }
}
