//! Enqueue: all or none, the bounds of a queue, and names that want to be something else.

use super::snapshot::snapshot;
use crate::ctx::{Ctx, queue_name, worker_id};
use crate::runner::cases;
use windlass_core::Error;
use windlass_core::job::{Dedup, DedupBy, DedupMode, Due, NewJob, State};
use windlass_core::name::{CustomId, DedupKey, GroupName, Kind, Labels};
use windlass_core::store::{ChangeOp, EnqueueRequest, Enqueued, Filter, Kinds, ListRequest, QueueSettings, Setting};

cases!("enqueue":
    an_atomic_batch_is_all,
    an_atomic_batch_is_none_for_every_reason,
    an_atomic_batch_counts_as_if_nothing_were_deduplicated,
    an_atomic_batch_does_not_count_on_an_empty_lane,
    hostile_names_are_only_names,
    a_full_queue_refuses_and_says_so,
    a_replacement_needs_no_room,
    lanes_are_bounded_and_freed_when_empty,
    lanes_with_labels_leave_room_for_plain_jobs,
    kinds_without_labels_leave_room_for_labels,
);

const LANES_MAX: usize = 1_024;

async fn atomic(ctx: &Ctx, jobs: Vec<NewJob>) -> Vec<windlass_core::Result<Enqueued>> {
    ctx.store.enqueue(EnqueueRequest { jobs, atomic: true }).await.unwrap()
}

async fn limit_length(ctx: &Ctx, queue: &str, len_max: u64) {
    let settings = QueueSettings { len_max: Some(len_max), ..QueueSettings::default() };
    ctx.store.configure(Setting::Queue { queue: queue_name(queue), settings }).await.unwrap();
}

fn replace(key: &str) -> Option<Dedup> {
    Some(Dedup { by: DedupBy::Key(DedupKey::new(key).unwrap()), mode: DedupMode::Replace, ttl_ms: None })
}

async fn an_atomic_batch_is_all(ctx: Ctx) {
    limit_length(&ctx, "one", 3).await;
    let there = ctx.job("one", "work");
    ctx.enqueue(there.clone()).await;
    let (a, b, c) = (ctx.job("one", "a"), ctx.job("two", "b"), ctx.job("one", "c"));
    let answers = atomic(&ctx, vec![a.clone(), there.clone(), b.clone(), a.clone(), c.clone()]).await;
    let created = |job: &NewJob| Ok(Enqueued::Created { id: job.id });
    let existing = |job: &NewJob| Ok(Enqueued::Existing { id: job.id });
    assert_eq!(
        answers,
        [created(&a), existing(&there), created(&b), existing(&a), created(&c)],
        "repeats need no room"
    );
    assert_eq!((ctx.counts("one").await.ready, ctx.counts("two").await.ready), (3, 1));
}

/// A reason, the jobs that give it to the last of them, and the error that it must be.
type Refusal = (&'static str, Vec<NewJob>, fn(&Error) -> bool);

async fn an_atomic_batch_is_none_for_every_reason(ctx: Ctx) {
    limit_length(&ctx, "short", 2).await;
    ctx.enqueue(ctx.job("short", "work")).await;
    let taken = ctx.job("mail", "work");
    ctx.enqueue(taken.clone()).await;
    let full_of_lanes = (0..LANES_MAX).map(|i| ctx.job("wide", &format!("kind{i}"))).collect();
    ctx.enqueue_all(full_of_lanes).await;
    let mut other_body = taken;
    other_body.spec.priority = 5;
    let twin = ctx.job("mail", "work");
    let mut other_twin = twin.clone();
    other_twin.spec.priority = 5;
    let rows: Vec<Refusal> = vec![
        (
            "invalid",
            vec![ctx.job_with("mail", |spec| spec.attempts = 0)],
            |e| matches!(e, Error::Invalid { field, .. } if field == "attempts"),
        ),
        ("limit", vec![ctx.job_with("mail", |spec| spec.timeout_ms = Some(u64::MAX))], |e| {
            matches!(e, Error::Limit { .. })
        }),
        ("taken id", vec![other_body], |e| matches!(e, Error::Duplicate { .. })),
        ("taken id within the batch", vec![twin, other_twin], |e| matches!(e, Error::Duplicate { .. })),
        ("full", vec![ctx.job("short", "work"), ctx.job("short", "work")], |e| matches!(e, Error::Full { .. })),
        ("lanes", vec![ctx.job("wide", "one more kind")], |e| matches!(e, Error::Limit { max: 1_024, got: 1_025, .. })),
    ];
    for (name, bad, right) in rows {
        let before = snapshot(&ctx).await;
        let at = bad.len();
        let jobs: Vec<NewJob> =
            [ctx.job("fresh", "work")].into_iter().chain(bad).chain([ctx.job("mail", "work")]).collect();
        let answers = atomic(&ctx, jobs).await;
        assert!(answers.iter().all(Result::is_err), "{name}: {answers:?}");
        let wrong = answers[at].as_ref().unwrap_err();
        assert!(right(wrong), "{name}: {wrong:?}");
        for (i, bystander) in answers.iter().enumerate().filter(|(i, _)| *i != at) {
            let told = matches!(bystander, Err(Error::Invalid { field, .. }) if field == "atomic");
            assert!(told, "{name}, item {i}: {bystander:?}");
        }
        assert_eq!(snapshot(&ctx).await, before, "{name}");
    }
}

async fn an_atomic_batch_counts_as_if_nothing_were_deduplicated(ctx: Ctx) {
    limit_length(&ctx, "short", 1).await;
    let debounced = |ctx: &Ctx| ctx.job_with("short", |spec| spec.dedup = replace("k"));
    let first = ctx.enqueue(debounced(&ctx)).await.id();
    let before = snapshot(&ctx).await;
    let answers = atomic(&ctx, vec![debounced(&ctx)]).await;
    assert!(matches!(answers[..], [Err(Error::Full { .. })]), "{answers:?}");
    assert_eq!(snapshot(&ctx).await, before);
    limit_length(&ctx, "short", 3).await;
    let (a, b) = (debounced(&ctx), debounced(&ctx));
    let answers = atomic(&ctx, vec![a.clone(), b.clone()]).await;
    let replaced = [Ok(Enqueued::Replaced { id: a.id, old: first }), Ok(Enqueued::Replaced { id: b.id, old: a.id })];
    assert_eq!(answers, replaced, "with room for all, dedup does its work as ever");
    assert_eq!(ctx.counts("short").await.ready, 1);
}

async fn an_atomic_batch_does_not_count_on_an_empty_lane(ctx: Ctx) {
    let jobs = (0..LANES_MAX).map(|i| ctx.job("wide", &format!("kind{i}"))).collect();
    let ids = ctx.enqueue_all(jobs).await;
    ctx.change(ids[0], ChangeOp::Remove).await.unwrap();
    let before = snapshot(&ctx).await;
    // The first takes the place of the lane that the second would need.
    let answers = atomic(&ctx, vec![ctx.job("wide", "new"), ctx.job("wide", "kind0")]).await;
    assert!(matches!(answers[..], [Err(_), Err(Error::Limit { .. })]), "{answers:?}");
    assert_eq!(snapshot(&ctx).await, before);
    let answers = atomic(&ctx, vec![ctx.job("wide", "kind0"), ctx.job("wide", "kind0")]).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
}

/// Names that mean something to a shell, a pattern, a path, a page, a statement or a person.
const HOSTILE: [&str; 27] = [
    "a*",
    "a?",
    "[a]",
    "a}b{c",
    "{a}",
    "..",
    "../../etc/passwd",
    "%00",
    "%2e%2e%2f",
    "\\0",
    "'; drop table jobs;--",
    "\"",
    "`a`",
    "$1",
    ":a:",
    "a b",
    " ",
    "a,b|c",
    "<script>alert(1)</script>",
    "null",
    "0",
    "-1",
    "É",
    "E\u{301}",
    "\u{202e}a",
    "A",
    "a",
];

async fn hostile_names_are_only_names(ctx: Ctx) {
    let (long, emoji) = ("x".repeat(255), "🦀".repeat(63));
    let names: Vec<&str> = HOSTILE.into_iter().chain([long.as_str(), emoji.as_str()]).collect();
    let mut ids = Vec::new();
    for name in &names {
        let mut job = ctx.job(name, name);
        job.spec.group = Some(GroupName::new(name).unwrap());
        job.spec.labels = Labels::parse([*name]).unwrap();
        job.spec.custom_id = Some(CustomId::new(name).unwrap());
        let by = DedupBy::Key(DedupKey::new(name).unwrap());
        job.spec.dedup = Some(Dedup { by, mode: DedupMode::Reject, ttl_ms: None });
        ids.push(ctx.enqueue_all(vec![job]).await.remove(0));
    }
    let queues: Vec<String> = ctx.store.queues().await.unwrap().into_iter().map(|queue| queue.name.into()).collect();
    let mut sorted: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    sorted.sort();
    assert_eq!(queues, sorted, "all of them, by name, none of them twice");
    for (name, id) in names.iter().zip(ids) {
        let filter = Filter {
            queue: Some(queue_name(name)),
            kind: Some(Kind::new(name).unwrap()),
            group: Some(GroupName::new(name).unwrap()),
            ..Filter::default()
        };
        let page = ctx.store.list(ListRequest { filter, limit: 10, ..ListRequest::default() }).await.unwrap();
        assert_eq!(
            page.jobs.iter().map(|job| job.id).collect::<Vec<_>>(),
            [id],
            "{name:?} finds itself and nothing else"
        );
        let mut request = ctx.claim_request("any", name, 10);
        request.worker = worker_id(name);
        request.kinds = Kinds::Only(vec![Kind::new(name).unwrap()]);
        request.labels = Labels::parse([*name]).unwrap();
        let jobs = ctx.store.claim(request).await.unwrap().jobs;
        assert_eq!(jobs.iter().map(|job| job.lease.job).collect::<Vec<_>>(), [id], "{name:?}");
        assert_eq!(ctx.complete(name, jobs[0].lease).await.unwrap().state, State::Succeeded);
        assert_eq!(ctx.counts(name).await.succeeded, 1, "{name:?}");
    }
}

async fn a_full_queue_refuses_and_says_so(ctx: Ctx) {
    limit_length(&ctx, "short", 2).await;
    let first = ctx.job("short", "work");
    let later = ctx.job("short", "work").due(Due::DelayMs(3_600_000));
    let batch = vec![first.clone(), later.clone(), ctx.job("short", "work")];
    let answers = ctx.store.enqueue(EnqueueRequest::new(batch)).await.unwrap();
    assert!(matches!(answers[..], [Ok(_), Ok(_), Err(Error::Full { .. })]), "scheduled ones count: {answers:?}");
    let before = snapshot(&ctx).await;
    let refused = ctx.try_enqueue(ctx.job("short", "other kind")).await.unwrap_err();
    assert!(matches!(refused, Error::Full { .. }) && refused.is_retryable(), "{refused:?}");
    assert_eq!(ctx.enqueue(first.clone()).await, Enqueued::Existing { id: first.id }, "a repeat is no new job");
    assert_eq!(snapshot(&ctx).await, before);
    ctx.enqueue(ctx.job("long", "work")).await;
    let claimed = ctx.claim_one("w1", "short").await;
    let next = ctx.enqueue(ctx.job("short", "work")).await;
    assert!(matches!(next, Enqueued::Created { .. }), "an active job waits no more: {next:?}");
    assert!(ctx.try_enqueue(ctx.job("short", "work")).await.is_err());
    ctx.complete("w1", claimed.lease).await.unwrap();
    assert!(ctx.try_enqueue(ctx.job("short", "work")).await.is_err(), "ended ones never counted");
    ctx.change(later.id, ChangeOp::Cancel).await.unwrap();
    ctx.enqueue(ctx.job("short", "work")).await;
}

async fn a_replacement_needs_no_room(ctx: Ctx) {
    limit_length(&ctx, "short", 1).await;
    let job = |ctx: &Ctx, mode| {
        ctx.job_with("short", |spec| {
            spec.dedup = Some(Dedup { by: DedupBy::Payload, mode, ttl_ms: None });
        })
    };
    let old = ctx.enqueue(job(&ctx, DedupMode::KeepLast)).await.id();
    let new = job(&ctx, DedupMode::KeepLast);
    assert_eq!(ctx.enqueue(new.clone()).await, Enqueued::Replaced { id: new.id, old });
    ctx.claim_one("w1", "short").await;
    let held = job(&ctx, DedupMode::KeepLast);
    assert_eq!(ctx.enqueue(held.clone()).await, Enqueued::Held { id: held.id, behind: new.id });
    let refused = ctx.try_enqueue(ctx.job("short", "other")).await;
    assert!(matches!(refused, Err(Error::Full { .. })), "the held one waits: {refused:?}");
    let last = job(&ctx, DedupMode::KeepLast);
    assert_eq!(ctx.enqueue(last.clone()).await, Enqueued::Replaced { id: last.id, old: held.id });
    assert_eq!(ctx.counts("short").await.scheduled, 1);
}

async fn lanes_are_bounded_and_freed_when_empty(ctx: Ctx) {
    let lane = |i: usize| {
        ctx.job_with("wide", |spec| {
            // Half of them by kind, half by labels.
            if i.is_multiple_of(2) {
                spec.kind = Kind::new(format!("kind{i}")).unwrap();
                spec.labels = Labels::parse(["label"]).unwrap();
            } else {
                spec.labels = Labels::parse([format!("label{i}")]).unwrap();
            }
        })
    };
    let ids = ctx.enqueue_all((0..LANES_MAX).map(lane).collect()).await;
    let lanes = |all: Vec<windlass_core::store::QueueStatus>| all.into_iter().map(|queue| queue.lanes).max();
    assert_eq!(lanes(ctx.store.queues().await.unwrap()), Some(1_024));
    // A lane is in use while it has a job in any state.
    ctx.change(ids[40], ChangeOp::Reschedule(Due::DelayMs(3_600_000))).await.unwrap();
    ctx.change(ids[41], ChangeOp::Cancel).await.unwrap();
    let before = snapshot(&ctx).await;
    let refused = ctx.try_enqueue(lane(LANES_MAX)).await.unwrap_err();
    assert!(matches!(refused, Error::Limit { max: 1_024, got: 1_025, .. }), "{refused:?}");
    assert_eq!(snapshot(&ctx).await, before);
    ctx.enqueue(lane(17)).await;
    ctx.enqueue(ctx.job("elsewhere", "a kind of its own")).await;
    ctx.change(ids[17], ChangeOp::Remove).await.unwrap();
    assert!(ctx.try_enqueue(lane(LANES_MAX)).await.is_err(), "lane 17 has a job yet");
    ctx.change(ids[18], ChangeOp::Remove).await.unwrap();
    ctx.enqueue(lane(LANES_MAX)).await;
    assert!(ctx.try_enqueue(lane(LANES_MAX + 1)).await.is_err(), "one was freed, and one was taken");
    assert_eq!(lanes(ctx.store.queues().await.unwrap()), Some(1_024));
}

/// Jobs of a queue, each in a lane of its own.
fn labelled(ctx: &Ctx, i: usize) -> NewJob {
    ctx.job_with("wide", |spec| spec.labels = Labels::parse([format!("label{i}")]).unwrap())
}

async fn lanes_with_labels_leave_room_for_plain_jobs(ctx: Ctx) {
    ctx.enqueue_all((0..LANES_MAX).map(|i| labelled(&ctx, i)).collect()).await;
    // One by one, and all or none.
    ctx.enqueue(ctx.job("wide", "plain")).await;
    let answers = atomic(&ctx, vec![ctx.job("wide", "other"), ctx.job("wide", "third"), labelled(&ctx, 3)]).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    let before = snapshot(&ctx).await;
    let refused = ctx.try_enqueue(labelled(&ctx, LANES_MAX)).await.unwrap_err();
    assert!(matches!(refused, Error::Limit { max: 1_024, got: 1_025, .. }), "{refused:?}");
    let answers = atomic(&ctx, vec![ctx.job("wide", "fourth"), labelled(&ctx, LANES_MAX)]).await;
    assert!(matches!(answers[..], [Err(_), Err(Error::Limit { max: 1_024, got: 1_025, .. })]), "{answers:?}");
    assert_eq!(snapshot(&ctx).await, before);
    // A worker without labels gets the plain jobs.
    let jobs = ctx.claim("w1", "wide", 10).await;
    let mut kinds: Vec<String> = jobs.iter().map(|job| job.spec.kind.to_string()).collect();
    kinds.sort();
    assert_eq!(kinds, ["other", "plain", "third"]);
}

async fn kinds_without_labels_leave_room_for_labels(ctx: Ctx) {
    let kind = |i: usize| ctx.job("wide", &format!("kind{i}"));
    let ids = ctx.enqueue_all((0..LANES_MAX).map(kind).collect()).await;
    ctx.enqueue(labelled(&ctx, 0)).await;
    let answers = atomic(&ctx, vec![labelled(&ctx, 1), kind(0)]).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    let refused = ctx.try_enqueue(kind(LANES_MAX)).await.unwrap_err();
    assert!(matches!(refused, Error::Limit { max: 1_024, got: 1_025, .. }), "{refused:?}");
    // An empty lane makes room for one of its own kind.
    let gone = ctx.enqueue(labelled(&ctx, 2)).await.id();
    ctx.change(gone, ChangeOp::Remove).await.unwrap();
    assert!(ctx.try_enqueue(kind(LANES_MAX)).await.is_err(), "a lane with labels is no room for a kind");
    ctx.change(ids[5], ChangeOp::Remove).await.unwrap();
    ctx.enqueue(kind(LANES_MAX)).await;
    assert!(ctx.try_enqueue(kind(5)).await.is_err(), "one was freed, and one was taken");
}
