//! Short ways to say things.

use std::collections::BTreeMap;
use std::sync::Arc;
use windlass_core::id::Ids;
use windlass_core::job::{JobSpec, Lease, NewJob};
use windlass_core::name::{Kind, Labels, QueueName, WorkerId};
use windlass_core::payload::Payload;
use windlass_core::random::StrongRandom;
use windlass_core::store::{
    ClaimRequest, EnqueueRequest, JobQueue, Kinds, Outcome, OutcomeKind, QueueCounts, ReportRequest,
};
use windlass_core::time::SystemClock;
use windlass_redis::RedisStore;

pub(crate) const QUEUE: &str = "q";

pub(crate) fn queue() -> QueueName {
    QueueName::new(QUEUE).unwrap()
}

pub(crate) fn worker() -> WorkerId {
    WorkerId::new("w").unwrap()
}

pub(crate) fn spec() -> JobSpec {
    JobSpec::new(queue(), Kind::new("work").unwrap(), Payload::default())
}

/// So many new jobs.
pub(crate) fn jobs(count: usize) -> Vec<NewJob> {
    let ids = Ids::new(Arc::new(SystemClock), Arc::new(StrongRandom::from_system()));
    (0..count).map(|_| NewJob::new(ids.next(), spec())).collect()
}

pub(crate) async fn enqueue(store: &RedisStore, count: usize) {
    for answer in store.enqueue(EnqueueRequest::new(jobs(count))).await.unwrap() {
        answer.unwrap();
    }
}

/// A claim of up to so many jobs, for a minute.
pub(crate) fn claim(request_id: u64, max: u32) -> ClaimRequest {
    ClaimRequest {
        worker: worker(),
        request_id,
        queues: vec![queue()],
        kinds: Kinds::Any,
        labels: Labels::default(),
        max,
        lease_ms: 60_000,
    }
}

/// A report that these are complete.
pub(crate) fn done(leases: impl IntoIterator<Item = Lease>) -> ReportRequest {
    let kind = OutcomeKind::Complete { result: None, outputs: BTreeMap::new() };
    let outcomes = leases.into_iter().map(|lease| Outcome { lease, kind: kind.clone() }).collect();
    ReportRequest { worker: worker(), outcomes }
}

pub(crate) async fn counts(store: &RedisStore) -> QueueCounts {
    let queues = store.queues().await.unwrap();
    queues.into_iter().find(|one| one.name == queue()).map(|one| one.counts).unwrap_or_default()
}

/// Nothing in the store contradicts anything else.
pub(crate) async fn assert_in_accord(url: &str) {
    let discord = windlass_crash::recount::recount(&windlass_crash::recount::Raw::read(url).await.unwrap());
    assert!(discord.is_none(), "{:#?}", discord.named);
}
