//! Enqueue: batches, repeats, ids, and what comes out again.

use super::snapshot::snapshot;
use crate::ctx::{Ctx, queue_name};
use crate::runner::cases;
use std::collections::{BTreeMap, BTreeSet};
use windlass_core::Error;
use windlass_core::id::JobId;
use windlass_core::job::{Dedup, DedupBy, DedupMode, Due, KeepFor, NewJob, State, TraceContext};
use windlass_core::name::{CustomId, DedupKey, GroupName, Kind, Labels};
use windlass_core::payload::Payload;
use windlass_core::retry::RetryPolicy;
use windlass_core::store::{BATCH_MAX, ChangeOp, EnqueueRequest, Enqueued};
use windlass_core::time::Timestamp;

cases!("enqueue":
    bulk_of_none_one_and_ten_thousand,
    one_more_than_the_largest_batch_is_refused_whole,
    answers_come_in_the_order_of_the_input,
    the_same_job_again_is_one_job_whatever_became_of_it,
    another_body_under_the_same_id_is_a_duplicate,
    the_same_job_from_another_span_is_the_same_job,
    a_custom_id_is_one_job_per_queue_and_group,
    a_custom_id_is_free_again_when_its_job_is_gone,
    payloads_come_back_byte_by_byte,
    every_option_comes_back,
    due_times_are_resolved_by_the_stores_clock,
);

async fn bulk_of_none_one_and_ten_thousand(ctx: Ctx) {
    assert!(ctx.store.enqueue(EnqueueRequest::default()).await.unwrap().is_empty());
    let atomic = EnqueueRequest { jobs: vec![], atomic: true };
    assert!(ctx.store.enqueue(atomic).await.unwrap().is_empty());
    assert!(ctx.store.queues().await.unwrap().is_empty(), "nothing was enqueued");
    let one = ctx.job("bulk", "work");
    assert_eq!(ctx.enqueue_all(vec![one.clone()]).await, [one.id]);
    let many: Vec<NewJob> = (0..BATCH_MAX).map(|_| ctx.job("bulk", "work")).collect();
    let ids: Vec<JobId> = many.iter().map(|job| job.id).collect();
    assert_eq!(ctx.enqueue_all(many).await, ids, "one answer per job, in input order");
    assert_eq!(ctx.counts("bulk").await.ready, 10_001);
    let mut claimed = BTreeSet::new();
    for _ in 0..3 {
        claimed.extend(ctx.claim("w1", "bulk", 10_000).await.iter().map(|job| job.lease.job));
    }
    assert_eq!(claimed, ids.into_iter().chain([one.id]).collect());
}

async fn one_more_than_the_largest_batch_is_refused_whole(ctx: Ctx) {
    let before = snapshot(&ctx).await;
    for atomic in [false, true] {
        let jobs: Vec<NewJob> = (0..=BATCH_MAX).map(|_| ctx.job("bulk", "work")).collect();
        let refused = ctx.store.enqueue(EnqueueRequest { jobs, atomic }).await.unwrap_err();
        assert!(matches!(refused, Error::Limit { max: 10_000, got: 10_001, .. }), "{refused:?}");
    }
    assert_eq!(snapshot(&ctx).await, before);
}

async fn answers_come_in_the_order_of_the_input(ctx: Ctx) {
    let there = ctx.job("mail", "work");
    ctx.enqueue(there.clone()).await;
    let held = ctx.job_with("mail", |spec| spec.dedup = Some(reject("k")));
    ctx.enqueue(held.clone()).await;
    let (first, last) = (ctx.job("mail", "work"), ctx.job("other", "work"));
    let wrong = ctx.job_with("mail", |spec| spec.attempts = 0);
    let mut taken = there.clone();
    taken.spec.priority = 9;
    let turned_away = ctx.job_with("mail", |spec| spec.dedup = Some(reject("k")));
    let batch = vec![first.clone(), wrong, there.clone(), taken, turned_away, first.clone(), last.clone()];
    let answers = ctx.store.enqueue(EnqueueRequest::new(batch)).await.unwrap();
    assert_eq!(answers.len(), 7);
    assert_eq!(answers[0], Ok(Enqueued::Created { id: first.id }));
    assert!(matches!(&answers[1], Err(Error::Invalid { field, .. }) if field == "attempts"), "{answers:?}");
    assert_eq!(answers[2], Ok(Enqueued::Existing { id: there.id }));
    assert_eq!(answers[3], Err(Error::Duplicate { id: there.id }));
    assert_eq!(answers[4], Ok(Enqueued::Deduplicated { by: held.id }));
    assert_eq!(answers[5], Ok(Enqueued::Existing { id: first.id }));
    assert_eq!(answers[6], Ok(Enqueued::Created { id: last.id }));
    assert_eq!((ctx.counts("mail").await.ready, ctx.counts("other").await.ready), (3, 1));
}

async fn the_same_job_again_is_one_job_whatever_became_of_it(ctx: Ctx) {
    let job = ctx.job_with("mail", |spec| spec.priority = 3);
    let again = Enqueued::Existing { id: job.id };
    ctx.enqueue(job.clone()).await;
    ctx.change(job.id, ChangeOp::Reprioritise(-3)).await.unwrap();
    ctx.change(job.id, ChangeOp::UpdatePayload(Payload::json("new").unwrap())).await.unwrap();
    let changed = snapshot(&ctx).await;
    assert_eq!(ctx.enqueue(job.clone()).await, again);
    assert_eq!(snapshot(&ctx).await, changed, "a repeat brings nothing back to what it was");
    let claimed = ctx.claim_one("w1", "mail").await;
    let active = snapshot(&ctx).await;
    assert_eq!(ctx.enqueue(job.clone()).await, again);
    assert_eq!(snapshot(&ctx).await, active);
    ctx.complete("w1", claimed.lease).await.unwrap();
    let ended = snapshot(&ctx).await;
    assert_eq!(ctx.enqueue(job.clone()).await, again);
    assert_eq!(snapshot(&ctx).await, ended, "terminal states change only by an explicit retry");
    assert!(ctx.claim("w1", "mail", 1).await.is_empty());
}

/// A handler that is tried again enqueues what it has enqueued before, from the span of another attempt.
async fn the_same_job_from_another_span_is_the_same_job(ctx: Ctx) {
    let trace = |n: u8| {
        Some(TraceContext { parent: format!("00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b{n}-01"), state: None })
    };
    let mut job = ctx.job_with("mail", |spec| spec.trace = trace(1));
    ctx.enqueue(job.clone()).await;
    for other in [trace(2), None] {
        job.spec.trace = other;
        assert_eq!(ctx.enqueue(job.clone()).await, Enqueued::Existing { id: job.id });
    }
    assert_eq!(ctx.get(job.id).await.unwrap().spec.trace, trace(1), "it keeps the trace that it came with");
}

/// One thing that a creator may say otherwise.
type Edit = (&'static str, fn(&mut NewJob));

const EDITS: &[Edit] = &[
    ("queue", |job| job.spec.queue = queue_name("elsewhere")),
    ("kind", |job| job.spec.kind = Kind::new("other").unwrap()),
    ("payload", |job| job.spec.payload = Payload::json("other").unwrap()),
    ("content type", |job| job.spec.payload.content_type = "text/plain".into()),
    ("priority", |job| job.spec.priority = 1),
    ("lifo", |job| job.spec.lifo = true),
    ("attempts", |job| job.spec.attempts = 4),
    ("stalls", |job| job.spec.stalls = 2),
    ("timeout", |job| job.spec.timeout_ms = Some(1_000)),
    ("retry", |job| job.spec.retry = RetryPolicy::None),
    ("labels", |job| job.spec.labels = Labels::parse(["gpu"]).unwrap()),
    ("group", |job| job.spec.group = Some(GroupName::new("acme").unwrap())),
    ("dedup", |job| job.spec.dedup = Some(reject("k"))),
    ("keep_for", |job| job.spec.keep_for.failed_ms = Some(1)),
    ("metadata", |job| job.spec.metadata = BTreeMap::from([("a".to_owned(), "b".to_owned())])),
    ("delay", |job| job.due = Due::DelayMs(60_000)),
    ("run_at", |job| job.due = Due::At(Timestamp::MAX)),
];

async fn another_body_under_the_same_id_is_a_duplicate(ctx: Ctx) {
    let plain = ctx.job("mail", "work");
    // One whose rare options are set already, so that each of them must count by itself.
    let mut rich = ctx.job_with("mail", |spec| spec.timeout_ms = Some(5));
    rich.due = Due::DelayMs(5);
    rich.spec.metadata = BTreeMap::from([("c".to_owned(), "d".to_owned())]);
    for job in [plain, rich] {
        ctx.enqueue(job.clone()).await;
        let before = snapshot(&ctx).await;
        for (what, edit) in EDITS {
            let mut other = job.clone();
            edit(&mut other);
            assert_eq!(ctx.try_enqueue(other).await, Err(Error::Duplicate { id: job.id }), "another {what}");
        }
        assert_eq!(snapshot(&ctx).await, before);
    }
}

async fn a_custom_id_is_one_job_per_queue_and_group(ctx: Ctx) {
    let named = |queue: &str, group: Option<&str>| {
        let mut job = ctx.job(queue, "work");
        job.spec.custom_id = Some(CustomId::new("invoice-7").unwrap());
        job.spec.group = group.map(|name| GroupName::new(name).unwrap());
        job
    };
    let first = named("mail", None);
    let id = JobId::named(&first.spec.queue, None, &CustomId::new("invoice-7").unwrap());
    assert_eq!(ctx.enqueue(first.clone()).await, Enqueued::Created { id });
    assert_eq!(ctx.enqueue(named("mail", None)).await, Enqueued::Existing { id }, "made under another id of its own");
    let mut other = named("mail", None);
    other.spec.payload = Payload::json("other").unwrap();
    assert_eq!(ctx.try_enqueue(other).await, Err(Error::Duplicate { id }));
    let mut ids = BTreeSet::from([id]);
    for (queue, group) in [("mail", Some("a")), ("mail", Some("b")), ("post", None), ("post", Some("a"))] {
        let answer = ctx.enqueue(named(queue, group)).await;
        assert!(matches!(answer, Enqueued::Created { .. }), "{queue} {group:?}: {answer:?}");
        assert!(ids.insert(answer.id()), "{queue} {group:?} has an id of its own");
    }
    let batch = vec![named("bulk", None), named("bulk", None)];
    let answers = ctx.store.enqueue(EnqueueRequest::new(batch)).await.unwrap();
    assert!(matches!(answers[..], [Ok(Enqueued::Created { .. }), Ok(Enqueued::Existing { .. })]), "{answers:?}");
    assert_eq!(ctx.get(id).await.unwrap().spec.custom_id, first.spec.custom_id);
}

async fn a_custom_id_is_free_again_when_its_job_is_gone(ctx: Ctx) {
    let named = |priority| {
        ctx.job_with("mail", |spec| {
            spec.custom_id = Some(CustomId::new("report").unwrap());
            spec.priority = priority;
        })
    };
    let id = ctx.enqueue(named(0)).await.id();
    let claimed = ctx.claim_one("w1", "mail").await;
    ctx.complete("w1", claimed.lease).await.unwrap();
    assert_eq!(ctx.try_enqueue(named(1)).await, Err(Error::Duplicate { id }), "ended, but still there");
    ctx.change(id, ChangeOp::Remove).await.unwrap();
    assert_eq!(ctx.enqueue(named(1)).await, Enqueued::Created { id });
    assert_eq!(ctx.state(id).await, State::Ready);
}

async fn payloads_come_back_byte_by_byte(ctx: Ctx) {
    let deep = format!("{}{}", "[".repeat(500), "]".repeat(500));
    let nested = serde_json::json!({"a": [{"b": {"c": [1, 2.5, null, true, "x"]}}, []], "": {}});
    let unicode = serde_json::json!({"ключ": "日本語 🦀 \u{202e} é \u{0000} \u{10ffff}"});
    let payloads = [
        Payload::json(&nested).unwrap(),
        Payload::json(&unicode).unwrap(),
        Payload::new("application/json", deep.into_bytes()),
        Payload::new("application/octet-stream", (0..=255u8).collect::<Vec<u8>>()),
        Payload::new("application/octet-stream", vec![]),
        Payload::new("text/plain; charset=\"utf-8\"", b"\r\n\0'\";--\xff".to_vec()),
        Payload::new("application/octet-stream", (0..4_096).flat_map(|_| 0..=255u8).collect::<Vec<u8>>()),
        Payload::new("application/octet-stream", vec![b'x'; 4 << 20]),
    ];
    for payload in payloads {
        let id = ctx.enqueue(ctx.job_with("bytes", |spec| spec.payload = payload.clone())).await.id();
        assert!(ctx.get(id).await.unwrap().spec.payload == payload, "{} bytes, looked up", payload.bytes.len());
        let claimed = ctx.claim_one("w1", "bytes").await;
        assert!(claimed.spec.payload == payload, "{} bytes, claimed", payload.bytes.len());
        ctx.complete("w1", claimed.lease).await.unwrap();
    }
}

async fn every_option_comes_back(ctx: Ctx) {
    let job = ctx.job_with("all", |spec| {
        spec.priority = -7;
        spec.lifo = true;
        spec.attempts = 9;
        spec.stalls = 4;
        spec.timeout_ms = Some(12_345);
        spec.retry = RetryPolicy::Delays { delays_ms: vec![1, 20, 300] };
        spec.labels = Labels::parse(["gpu", "eu west", "ü"]).unwrap();
        spec.group = Some(GroupName::new("tenant 1").unwrap());
        spec.custom_id = Some(CustomId::new("so-and-so").unwrap());
        let by = DedupBy::Key(DedupKey::new("once").unwrap());
        spec.dedup = Some(Dedup { by, mode: DedupMode::KeepLast, ttl_ms: Some(60_000) });
        spec.keep_for = KeepFor { succeeded_ms: Some(5_000), failed_ms: Some(6_000) };
        spec.metadata =
            BTreeMap::from([("who".to_owned(), "ü \u{0} \n 🦀".to_owned()), (String::new(), String::new())]);
        let state = Some("vendor=1".to_owned());
        spec.trace =
            Some(TraceContext { parent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned(), state });
    });
    let id = ctx.enqueue(job.clone()).await.id();
    let seen = ctx.get(id).await.unwrap();
    assert_eq!(*seen.spec, job.spec);
    assert_eq!((seen.id, seen.state, seen.attempt, seen.stall_count, seen.retry_count), (id, State::Ready, 0, 0, 0));
    assert_eq!((seen.lease, seen.claimed_at, seen.finished_at, seen.due_at), (None, None, None, None));
    let mut request = ctx.claim_request("w1", "all", 1);
    request.labels = Labels::parse(["ü", "gpu", "eu west", "more"]).unwrap();
    let claimed = ctx.store.claim(request).await.unwrap().jobs.remove(0);
    assert_eq!(*claimed.spec, job.spec);
    assert_eq!((claimed.lease.job, claimed.created_at), (id, seen.created_at));
}

async fn due_times_are_resolved_by_the_stores_clock(ctx: Ctx) {
    let now = ctx.now().await;
    let past = ctx.enqueue(ctx.job("later", "work").due(Due::At(now.minus_ms(1)))).await.id();
    assert_eq!(ctx.state(past).await, State::Ready, "a time that has passed is now");
    let epoch = ctx.enqueue(ctx.job("later", "work").due(Due::At(Timestamp::from_ms(0)))).await.id();
    assert_eq!(ctx.state(epoch).await, State::Ready);
    let none = ctx.enqueue(ctx.job("later", "work").due(Due::DelayMs(0))).await.id();
    assert_eq!(ctx.state(none).await, State::Ready);
    let at = now.plus_ms(3_600_000);
    let fixed = ctx.enqueue(ctx.job("later", "work").due(Due::At(at))).await.id();
    assert_eq!(ctx.get(fixed).await.unwrap().due_at, Some(at), "to the millisecond");
    let delayed = ctx.enqueue(ctx.job("later", "work").due(Due::DelayMs(300))).await.id();
    let due_at = ctx.get(delayed).await.unwrap().due_at.unwrap();
    assert!(due_at >= now.plus_ms(300) && due_at <= ctx.now().await.plus_ms(300), "{due_at} after {now}");
    assert_eq!(ctx.claim("w1", "later", 10).await.len(), 3, "nothing before its time");
    ctx.advance_ms(300).await;
    assert_eq!(ctx.claim_one("w1", "later").await.lease.job, delayed, "a claim finds what is due without a sweep");
    let latest = ctx.enqueue(ctx.job("later", "work").due(Due::At(Timestamp::MAX))).await.id();
    assert_eq!(ctx.get(latest).await.unwrap().due_at, Some(Timestamp::MAX));
}

fn reject(key: &str) -> Dedup {
    Dedup { by: DedupBy::Key(DedupKey::new(key).unwrap()), mode: DedupMode::Reject, ttl_ms: None }
}
