//! More short ways to say things: settings, groups, listings, the feed, workers, bulk changes.

use crate::ctx::{Ctx, queue_name, worker_id};
use std::collections::BTreeMap;
use windlass_core::Result;
use windlass_core::id::JobId;
use windlass_core::job::{JobSummary, Lease, NewJob, Progress, State};
use windlass_core::name::{GroupName, Kind, Labels};
use windlass_core::store::{
    Beat, ChangeMany, ChangeManyOp, ClaimRequest, ClaimedJob, FeedCursor, FeedEntry, FeedRequest, Filter,
    GroupSettings, GroupStatus, GroupsRequest, Kinds, ListOrder, ListRequest, OutcomeKind, QueueSettings, QueueStatus,
    Reason, RenewRequest, Renewal, Renewed, Setting, SweepKind,
};

/// Rounds after which a loop that should have ended has not.
const ROUNDS_MAX: u32 = 10_000;

impl Ctx {
    /// Sets a queue: the defaults, changed by `edit`.
    pub(crate) async fn set_queue(&self, queue: &str, edit: impl FnOnce(&mut QueueSettings)) {
        let mut settings = QueueSettings::default();
        edit(&mut settings);
        let setting = Setting::Queue { queue: queue_name(queue), settings };
        self.store.configure(setting).await.unwrap();
    }

    /// Sets a group.
    pub(crate) async fn set_group(&self, queue: &str, name: &str, settings: GroupSettings) {
        let setting = Setting::Group { queue: queue_name(queue), group: group(name), settings };
        self.store.configure(setting).await.unwrap();
    }

    /// Pauses or resumes a queue.
    pub(crate) async fn pause(&self, queue: &str, paused: bool) {
        let setting = Setting::Paused { queue: queue_name(queue), paused };
        self.store.configure(setting).await.unwrap();
    }

    /// A job of a group.
    pub(crate) fn grouped(&self, queue: &str, name: &str) -> NewJob {
        self.job_with(queue, |spec| spec.group = Some(group(name)))
    }

    /// A job of a group and a kind.
    pub(crate) fn grouped_kind(&self, queue: &str, name: &str, kind: &str) -> NewJob {
        let mut job = self.job(queue, kind);
        job.spec.group = Some(group(name));
        job
    }

    /// Enqueues `count` jobs of a group.
    pub(crate) async fn enqueue_grouped(&self, queue: &str, name: &str, count: usize) -> Vec<JobId> {
        self.enqueue_all((0..count).map(|_| self.grouped(queue, name)).collect()).await
    }

    /// Enqueues `count` plain jobs.
    pub(crate) async fn enqueue_plain(&self, queue: &str, count: usize) -> Vec<JobId> {
        self.enqueue_all((0..count).map(|_| self.job(queue, "work")).collect()).await
    }

    /// Claims jobs of these kinds only.
    pub(crate) async fn claim_kinds(&self, worker: &str, queue: &str, kinds: &[&str], max: u32) -> Vec<ClaimedJob> {
        let kinds = Kinds::Only(kinds.iter().map(|kind| Kind::new(kind).unwrap()).collect());
        let request = ClaimRequest { kinds, ..self.claim_request(worker, queue, max) };
        self.store.claim(request).await.unwrap().jobs
    }

    /// Claims with labels.
    pub(crate) async fn claim_with(&self, worker: &str, queue: &str, labels: &[&str], max: u32) -> Vec<ClaimedJob> {
        let labels = Labels::parse(labels).unwrap();
        let request = ClaimRequest { labels, ..self.claim_request(worker, queue, max) };
        self.store.claim(request).await.unwrap().jobs
    }

    /// Claims one job under a lease that ends soon.
    pub(crate) async fn claim_short(&self, worker: &str, queue: &str, lease_ms: u64) -> ClaimedJob {
        let request = ClaimRequest { lease_ms, ..self.claim_request(worker, queue, 1) };
        let mut jobs = self.store.claim(request).await.unwrap().jobs;
        assert_eq!(jobs.len(), 1, "nothing to claim on {queue}");
        jobs.remove(0)
    }

    /// Completes all of them.
    pub(crate) async fn complete_all(&self, worker: &str, jobs: &[ClaimedJob]) {
        for job in jobs {
            self.complete(worker, job.lease).await.unwrap();
        }
    }

    /// Claims and completes one job.
    pub(crate) async fn work_one(&self, worker: &str, queue: &str) -> JobId {
        let job = self.claim_one(worker, queue).await;
        self.complete(worker, job.lease).await.unwrap();
        job.lease.job
    }

    /// Lets a lease of `lease_ms` end, and reaps it.
    pub(crate) async fn expire(&self, lease_ms: u64) {
        self.advance_ms(lease_ms + 1).await;
        self.sweep(SweepKind::Reap).await;
    }

    /// Notes progress.
    pub(crate) async fn progress(&self, lease: Lease, percent: u8, message: &str) -> Result<Renewed> {
        let progress = Some(Progress { percent, message: message.to_owned() });
        let renewals = vec![Renewal { lease, lease_ms: None, progress }];
        self.store.renew(RenewRequest { renewals }).await.unwrap().remove(0)
    }

    /// A queue that exists.
    pub(crate) async fn status(&self, queue: &str) -> QueueStatus {
        let all = self.store.queues().await.unwrap();
        all.into_iter().find(|status| status.name.as_str() == queue).expect("the queue exists")
    }

    /// All groups of a queue.
    pub(crate) async fn groups(&self, queue: &str) -> Vec<GroupStatus> {
        let mut all: Vec<GroupStatus> = Vec::new();
        for _ in 0..ROUNDS_MAX {
            let after = all.last().map(|status| status.name.clone());
            let request = GroupsRequest { queue: queue_name(queue), after, limit: 1_000 };
            let page = self.store.groups(request).await.unwrap();
            all.extend(page.groups);
            if !page.more {
                return all;
            }
        }
        panic!("the groups of {queue} never end");
    }

    /// One group of a queue, if it is listed.
    pub(crate) async fn group_status(&self, queue: &str, name: &str) -> Option<GroupStatus> {
        self.groups(queue).await.into_iter().find(|status| status.name.as_str() == name)
    }

    /// All jobs that match, page by page.
    pub(crate) async fn list_all(&self, filter: Filter) -> Vec<JobSummary> {
        let mut all = Vec::new();
        let mut cursor = None;
        for _ in 0..ROUNDS_MAX {
            let request = ListRequest { filter: filter.clone(), order: ListOrder::Ascending, cursor, limit: 1_000 };
            let page = self.store.list(request).await.unwrap();
            all.extend(page.jobs);
            cursor = page.cursor;
            if cursor.is_none() {
                return all;
            }
        }
        panic!("the listing of {filter:?} never ends");
    }

    /// The ids of all jobs that match, sorted.
    pub(crate) async fn ids_where(&self, filter: Filter) -> Vec<JobId> {
        let mut ids: Vec<JobId> = self.list_all(filter).await.into_iter().map(|job| job.id).collect();
        ids.sort();
        ids
    }

    /// Where the feed ends.
    pub(crate) async fn feed_end(&self) -> FeedCursor {
        self.store.read_feed(FeedRequest { after: None, max: 1 }).await.unwrap().next
    }

    /// All entries after a cursor.
    pub(crate) async fn feed_after(&self, mut after: FeedCursor) -> Vec<FeedEntry> {
        let mut all = Vec::new();
        for _ in 0..ROUNDS_MAX {
            let page = self.store.read_feed(FeedRequest { after: Some(after), max: 10_000 }).await.unwrap();
            assert!(!page.gap, "entries after {after:?} are missing");
            if page.entries.is_empty() {
                return all;
            }
            all.extend(page.entries);
            after = page.next;
        }
        panic!("the feed never ends");
    }

    /// Why a job stands where it stands.
    pub(crate) async fn reason(&self, id: JobId) -> Reason {
        let explanation = self.store.explain(id).await.unwrap();
        assert_eq!((explanation.id, explanation.state), (id, self.state(id).await));
        explanation.reason
    }

    /// Runs a bulk change to its end, `max` jobs at a time; answers how many it changed.
    pub(crate) async fn change_all(&self, op: ChangeManyOp, filter: Filter, max: u32) -> u64 {
        let (mut changed, mut cursor) = (0, None);
        for _ in 0..ROUNDS_MAX {
            let request = ChangeMany { op, filter: filter.clone(), max, cursor };
            let step = self.store.change_many(request).await.unwrap();
            assert!(step.changed <= u64::from(max), "{op:?} changed {} jobs in a step of {max}", step.changed);
            changed += step.changed;
            cursor = step.cursor;
            if cursor.is_none() {
                return changed;
            }
        }
        panic!("{op:?} never ends");
    }

    /// A job on `queue` that the worker `maker` has just claimed.
    pub(crate) async fn active_on(&self, queue: &str) -> ClaimedJob {
        // Ahead of all others, so that the claim takes this one.
        let id = self.enqueue(self.job_with(queue, |spec| spec.priority = i16::MIN)).await.id();
        let claimed = self.claim_one("maker", queue).await;
        assert_eq!(claimed.lease.job, id);
        claimed
    }

    /// A job on `queue` that stands in `state`.
    pub(crate) async fn job_in(&self, queue: &str, state: State) -> JobId {
        use windlass_core::job::{Due, Retry};
        use windlass_core::store::ChangeOp;
        let job = self.job(queue, "work");
        match state {
            State::Scheduled => return self.enqueue(job.due(Due::DelayMs(3_600_000))).await.id(),
            State::Ready => return self.enqueue(job).await.id(),
            _ => {}
        }
        if state == State::Cancelled {
            let id = self.enqueue(job).await.id();
            self.change(id, ChangeOp::Cancel).await.unwrap();
            return id;
        }
        let claimed = self.active_on(queue).await;
        let id = claimed.lease.job;
        match state {
            State::Succeeded => drop(self.complete("maker", claimed.lease).await.unwrap()),
            State::Failed => drop(self.fail("maker", claimed.lease, Retry::Never).await.unwrap()),
            _ => {}
        }
        id
    }
}

pub(crate) fn group(name: &str) -> GroupName {
    GroupName::new(name).unwrap()
}

pub(crate) fn cap(cap: u32) -> GroupSettings {
    GroupSettings { cap: Some(cap), ..GroupSettings::default() }
}

pub(crate) fn weight(weight: u32) -> GroupSettings {
    GroupSettings { weight: Some(weight), ..GroupSettings::default() }
}

/// All jobs of a queue.
pub(crate) fn on(queue: &str) -> Filter {
    Filter { queue: Some(queue_name(queue)), ..Filter::default() }
}

/// All jobs of a queue in one state.
pub(crate) fn on_in(queue: &str, state: State) -> Filter {
    Filter { state: Some(state), ..on(queue) }
}

/// The ids of claimed jobs, in order.
pub(crate) fn ids(jobs: &[ClaimedJob]) -> Vec<JobId> {
    jobs.iter().map(|job| job.lease.job).collect()
}

/// How many of the claimed jobs belong to each group; those without one count under "".
pub(crate) fn by_group<'j>(jobs: impl IntoIterator<Item = &'j ClaimedJob>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for job in jobs {
        *counts.entry(group_of(job)).or_insert(0) += 1;
    }
    counts
}

/// The group of a claimed job; "" when it has none.
pub(crate) fn group_of(job: &ClaimedJob) -> String {
    job.spec.group.as_ref().map_or(String::new(), |name| name.as_str().to_owned())
}

/// A worker that can do anything on one queue.
pub(crate) fn beat(worker: &str, queue: &str) -> Beat {
    Beat {
        worker: worker_id(worker),
        queues: vec![queue_name(queue)],
        kinds: Kinds::Any,
        labels: Labels::default(),
        slots: 4,
        running: 0,
        about: "host, 42, 0.1.0".to_owned(),
        ttl_ms: 600_000,
    }
}

/// Gives a job back.
pub(crate) fn release(started: bool) -> OutcomeKind {
    OutcomeKind::Release { started }
}

/// No window of `per_ms` may hold more than `limit` of these starts.
pub(crate) fn assert_rate(mut starts: Vec<i64>, limit: usize, per_ms: i64) {
    starts.sort_unstable();
    for window in starts.windows(limit + 1) {
        let took = window[limit] - window[0];
        assert!(took >= per_ms, "{} starts within {took} ms, {limit} are allowed in {per_ms}: {starts:?}", limit + 1);
    }
}
