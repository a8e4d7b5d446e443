//! Dedup: what becomes of a second job with the same key.

use super::snapshot::snapshot;
use crate::ctx::Ctx;
use crate::runner::cases;
use futures::future::join_all;
use windlass_core::Error;
use windlass_core::id::JobId;
use windlass_core::job::{Dedup, DedupBy, DedupMode, Due, NewJob, Retry, State};
use windlass_core::name::{DedupKey, GroupName, Kind};
use windlass_core::payload::Payload;
use windlass_core::store::{ChangeOp, EnqueueRequest, Enqueued, SweepKind};

cases!("dedup":
    every_mode_against_every_state_of_the_holder,
    one_winner_under_a_race,
    a_bulk_is_collapsed_like_single_calls,
    a_key_is_free_when_its_time_has_run_out,
    a_throttle_outlives_its_job,
    a_key_is_freed_only_by_its_holder,
    keys_count_within_queue_and_group,
    payloads_count_within_kind_and_content_type,
    a_job_without_a_key_is_never_deduplicated,
    a_retry_needs_the_key_again,
    a_retry_leaves_a_throttle_alone,
    a_changed_payload_keeps_its_key,
);

/// Long enough that it never runs out by accident.
const LONG_MS: u64 = 3_600_000;

pub(super) fn keyed(ctx: &Ctx, queue: &str, mode: DedupMode, ttl_ms: Option<u64>) -> NewJob {
    let by = DedupBy::Key(DedupKey::new("k").unwrap());
    ctx.job_with(queue, |spec| spec.dedup = Some(Dedup { by, mode, ttl_ms }))
}

fn by_payload(ctx: &Ctx, queue: &str, mode: DedupMode, ttl_ms: Option<u64>) -> NewJob {
    ctx.job_with(queue, |spec| spec.dedup = Some(Dedup { by: DedupBy::Payload, mode, ttl_ms }))
}

/// Where the holder of the key stands when the second job comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    Scheduled,
    BackingOff,
    Ready,
    Active,
    Cancelling,
    Succeeded,
    Failed,
    Cancelled,
    Removed,
}

const HOLDERS: [Holder; 9] = [
    Holder::Scheduled,
    Holder::BackingOff,
    Holder::Ready,
    Holder::Active,
    Holder::Cancelling,
    Holder::Succeeded,
    Holder::Failed,
    Holder::Cancelled,
    Holder::Removed,
];

async fn bring(ctx: &Ctx, job: NewJob, holder: Holder) -> JobId {
    let queue = job.spec.queue.to_string();
    let due = if holder == Holder::Scheduled { Due::DelayMs(LONG_MS) } else { Due::Now };
    let id = ctx.enqueue_all(vec![job.due(due)]).await[0];
    if matches!(holder, Holder::Scheduled | Holder::Ready) {
        return id;
    }
    if holder == Holder::Cancelled {
        ctx.change(id, ChangeOp::Cancel).await.unwrap();
        return id;
    }
    let lease = ctx.claim_one("w1", &queue).await.lease;
    match holder {
        Holder::BackingOff => drop(ctx.fail("w1", lease, Retry::AfterMs(LONG_MS)).await.unwrap()),
        Holder::Cancelling => drop(ctx.change(id, ChangeOp::Cancel).await.unwrap()),
        Holder::Succeeded => drop(ctx.complete("w1", lease).await.unwrap()),
        Holder::Failed => drop(ctx.fail("w1", lease, Retry::Never).await.unwrap()),
        Holder::Removed => {
            ctx.fail("w1", lease, Retry::AfterMs(0)).await.unwrap();
            ctx.change(id, ChangeOp::Remove).await.unwrap();
        }
        _ => {}
    }
    id
}

fn expected(mode: DedupMode, holder: Holder, id: JobId, first: JobId) -> Enqueued {
    use Holder::{Active, BackingOff, Cancelling, Ready, Scheduled};
    match (mode, holder) {
        (DedupMode::Throttle, _) => Enqueued::Deduplicated { by: first },
        (DedupMode::Reject, Scheduled | BackingOff | Ready | Active | Cancelling) => {
            Enqueued::Deduplicated { by: first }
        }
        (DedupMode::Replace | DedupMode::KeepLast, Scheduled | BackingOff | Ready) => {
            Enqueued::Replaced { id, old: first }
        }
        (DedupMode::KeepLast, Active | Cancelling) => Enqueued::Held { id, behind: first },
        _ => Enqueued::Created { id },
    }
}

async fn every_mode_against_every_state_of_the_holder(ctx: Ctx) {
    type Make = fn(&Ctx, &str, DedupMode, Option<u64>) -> NewJob;
    let modes = [DedupMode::Reject, DedupMode::Replace, DedupMode::Throttle, DedupMode::KeepLast];
    for (by, make) in [("key", keyed as Make), ("payload", by_payload as Make)] {
        for mode in modes {
            for holder in HOLDERS {
                let name = format!("{by} {mode:?} {holder:?}");
                let ttl_ms = (mode == DedupMode::Throttle).then_some(LONG_MS);
                let first = bring(&ctx, make(&ctx, &name, mode, ttl_ms), holder).await;
                let before = ctx.get(first).await;
                let second = make(&ctx, &name, mode, ttl_ms);
                let answer = ctx.enqueue(second.clone()).await;
                assert_eq!(answer, expected(mode, holder, second.id, first), "{name}");
                let replaced = matches!(answer, Enqueued::Replaced { .. });
                assert_eq!(ctx.get(first).await, before.filter(|_| !replaced), "{name}: the first one");
                let state = ctx.get(second.id).await.map(|job| job.state);
                let there = match answer {
                    Enqueued::Deduplicated { .. } => None,
                    Enqueued::Held { .. } => Some(State::Scheduled),
                    _ => Some(State::Ready),
                };
                assert_eq!(state, there, "{name}: the second one");
                let counts = ctx.counts(&name).await;
                let all = counts.scheduled
                    + counts.ready
                    + counts.active
                    + counts.succeeded
                    + counts.failed
                    + counts.cancelled;
                let jobs = [first, second.id].map(|id| ctx.get(id));
                let live = join_all(jobs).await.into_iter().flatten().count();
                assert_eq!(all, live as u64, "{name}: {counts:?}");
            }
        }
    }
}

async fn one_winner_under_a_race(ctx: Ctx) {
    for mode in [DedupMode::Reject, DedupMode::Throttle] {
        let queue = format!("{mode:?}");
        let jobs: Vec<NewJob> = (0..16).map(|_| keyed(&ctx, &queue, mode, Some(LONG_MS))).collect();
        let answers = join_all(jobs.into_iter().map(|job| ctx.enqueue(job))).await;
        let winners: Vec<JobId> = answers
            .iter()
            .filter_map(|answer| if let Enqueued::Created { id } = answer { Some(*id) } else { None })
            .collect();
        assert_eq!(winners.len(), 1, "{queue}: {answers:?}");
        assert!(answers.iter().all(|answer| answer.id() == winners[0]), "{queue}: all name the winner");
        assert_eq!(ctx.counts(&queue).await.ready, 1);
    }
    let jobs: Vec<NewJob> = (0..16).map(|_| keyed(&ctx, "debounce", DedupMode::Replace, None)).collect();
    join_all(jobs.into_iter().map(|job| ctx.enqueue(job))).await;
    assert_eq!(ctx.counts("debounce").await.ready, 1);
}

async fn a_bulk_is_collapsed_like_single_calls(ctx: Ctx) {
    for atomic in [false, true] {
        for mode in [DedupMode::Reject, DedupMode::Throttle, DedupMode::Replace, DedupMode::KeepLast] {
            let queue = format!("{mode:?} {atomic}");
            let jobs: Vec<NewJob> = (0..3).map(|_| keyed(&ctx, &queue, mode, Some(LONG_MS))).collect();
            let [a, b, c] = [jobs[0].id, jobs[1].id, jobs[2].id];
            let answers = ctx.store.enqueue(EnqueueRequest { jobs, atomic }).await.unwrap();
            let answers: Vec<Enqueued> = answers.into_iter().map(Result::unwrap).collect();
            let (expected, last) = match mode {
                DedupMode::Reject | DedupMode::Throttle => (
                    [Enqueued::Created { id: a }, Enqueued::Deduplicated { by: a }, Enqueued::Deduplicated { by: a }],
                    a,
                ),
                DedupMode::Replace | DedupMode::KeepLast => {
                    let replaced = [Enqueued::Replaced { id: b, old: a }, Enqueued::Replaced { id: c, old: b }];
                    ([Enqueued::Created { id: a }, replaced[0], replaced[1]], c)
                }
            };
            assert_eq!(answers, expected, "{queue}");
            assert_eq!(ctx.counts(&queue).await.ready, 1, "{queue}");
            assert_eq!(ctx.claim_one("w1", &queue).await.lease.job, last, "{queue}");
        }
    }
}

async fn a_key_is_free_when_its_time_has_run_out(ctx: Ctx) {
    for mode in [DedupMode::Reject, DedupMode::Replace, DedupMode::KeepLast, DedupMode::Throttle] {
        for prune in [false, true] {
            let queue = format!("{mode:?} {prune}");
            let first = ctx.enqueue(keyed(&ctx, &queue, mode, Some(50))).await.id();
            ctx.advance_ms(50).await;
            if prune {
                ctx.sweep(SweepKind::Prune).await;
            }
            let second = keyed(&ctx, &queue, mode, Some(LONG_MS));
            assert_eq!(ctx.enqueue(second.clone()).await, Enqueued::Created { id: second.id }, "{queue}");
            assert_eq!(ctx.counts(&queue).await.ready, 2, "{queue}: the first one is as it was");
            ctx.change(first, ChangeOp::Cancel).await.unwrap();
            let third = ctx.enqueue(keyed(&ctx, &queue, DedupMode::Reject, None)).await;
            assert_eq!(third, Enqueued::Deduplicated { by: second.id }, "{queue}: the key is the second one's now");
        }
    }
}

async fn a_throttle_outlives_its_job(ctx: Ctx) {
    let throttled = |queue: &str| keyed(&ctx, queue, DedupMode::Throttle, Some(400));
    for (queue, remove) in [("ended", false), ("gone", true)] {
        let first = ctx.enqueue(throttled(queue)).await.id();
        let lease = ctx.claim_one("w1", queue).await.lease;
        ctx.complete("w1", lease).await.unwrap();
        if remove {
            ctx.change(first, ChangeOp::Remove).await.unwrap();
        }
        ctx.sweep(SweepKind::Prune).await;
        for mode in [DedupMode::Throttle, DedupMode::Reject, DedupMode::Replace, DedupMode::KeepLast] {
            let answer = ctx.enqueue(keyed(&ctx, queue, mode, Some(400))).await;
            assert_eq!(answer, Enqueued::Deduplicated { by: first }, "{queue}: {mode:?}");
        }
    }
    ctx.advance_ms(400).await;
    for queue in ["ended", "gone"] {
        let answer = ctx.enqueue(throttled(queue)).await;
        assert!(matches!(answer, Enqueued::Created { .. }), "{queue}: {answer:?}");
    }
}

async fn a_key_is_freed_only_by_its_holder(ctx: Ctx) {
    // A `Replace` job takes the key over from the active one and runs beside it.
    let first = ctx.enqueue(keyed(&ctx, "q", DedupMode::Replace, None)).await.id();
    let lease = ctx.claim_one("w1", "q").await.lease;
    let second = ctx.enqueue(keyed(&ctx, "q", DedupMode::Replace, None)).await.id();
    let taken = Enqueued::Deduplicated { by: second };
    assert_eq!(ctx.enqueue(keyed(&ctx, "q", DedupMode::Reject, None)).await, taken);
    ctx.complete("w1", lease).await.unwrap();
    assert_eq!(ctx.enqueue(keyed(&ctx, "q", DedupMode::Reject, None)).await, taken, "its end frees nothing");
    ctx.change(first, ChangeOp::Remove).await.unwrap();
    assert_eq!(ctx.enqueue(keyed(&ctx, "q", DedupMode::Reject, None)).await, taken, "nor does its removal");
    ctx.change(second, ChangeOp::Cancel).await.unwrap();
    let third = ctx.enqueue(keyed(&ctx, "q", DedupMode::Reject, None)).await;
    assert!(matches!(third, Enqueued::Created { .. }), "{third:?}");
}

async fn keys_count_within_queue_and_group(ctx: Ctx) {
    for (queue, group) in [("a", None), ("b", None), ("a", Some("x")), ("a", Some("y")), ("b", Some("x"))] {
        let make = || {
            let mut job = keyed(&ctx, queue, DedupMode::Reject, None);
            job.spec.group = group.map(|name| GroupName::new(name).unwrap());
            // A key counts for every kind of its queue and group.
            job.spec.kind = Kind::new(format!("{}", job.id)).unwrap();
            job
        };
        let first = make();
        assert_eq!(ctx.enqueue(first.clone()).await, Enqueued::Created { id: first.id }, "{queue} {group:?}");
        assert_eq!(ctx.enqueue(make()).await, Enqueued::Deduplicated { by: first.id }, "{queue} {group:?}");
    }
}

type Edit = (&'static str, fn(&mut NewJob));

async fn payloads_count_within_kind_and_content_type(ctx: Ctx) {
    let make = |edit: fn(&mut NewJob)| {
        let mut job = by_payload(&ctx, "q", DedupMode::Reject, None);
        edit(&mut job);
        job
    };
    let first = make(|_| {});
    ctx.enqueue(first.clone()).await;
    let by = first.id;
    assert_eq!(ctx.enqueue(make(|_| {})).await, Enqueued::Deduplicated { by });
    assert_eq!(
        ctx.enqueue(make(|job| job.spec.priority = 3)).await,
        Enqueued::Deduplicated { by },
        "options do not count"
    );
    let others: [Edit; 4] = [
        ("kind", |job| job.spec.kind = Kind::new("other").unwrap()),
        ("payload", |job| job.spec.payload = Payload::json("other").unwrap()),
        ("content type", |job| job.spec.payload.content_type = "text/plain".into()),
        ("a key", |job| job.spec.dedup.as_mut().unwrap().by = DedupBy::Key(DedupKey::new("k").unwrap())),
    ];
    for (what, edit) in others {
        let answer = ctx.enqueue(make(edit)).await;
        assert!(matches!(answer, Enqueued::Created { .. }), "another {what}: {answer:?}");
    }
}

async fn a_job_without_a_key_is_never_deduplicated(ctx: Ctx) {
    ctx.enqueue(by_payload(&ctx, "q", DedupMode::Reject, None)).await;
    for _ in 0..3 {
        let answer = ctx.enqueue(ctx.job("q", "work")).await;
        assert!(matches!(answer, Enqueued::Created { .. }), "{answer:?}");
    }
}

async fn a_retry_needs_the_key_again(ctx: Ctx) {
    for mode in [DedupMode::Reject, DedupMode::Replace, DedupMode::KeepLast] {
        let queue = format!("{mode:?}");
        let first = bring(&ctx, keyed(&ctx, &queue, mode, None), Holder::Failed).await;
        let second = ctx.enqueue(keyed(&ctx, &queue, mode, None)).await.id();
        let before = snapshot(&ctx).await;
        let retry = ChangeOp::Retry(Due::Now);
        assert_eq!(ctx.change(first, retry.clone()).await, Err(Error::KeyTaken { by: second }), "{queue}");
        assert_eq!(snapshot(&ctx).await, before, "{queue}");
        let lease = ctx.claim_one("w1", &queue).await.lease;
        assert_eq!(
            ctx.change(first, retry.clone()).await,
            Err(Error::KeyTaken { by: second }),
            "{queue}: while it runs"
        );
        ctx.complete("w1", lease).await.unwrap();
        ctx.change(first, retry.clone()).await.unwrap();
        let third = ctx.enqueue(keyed(&ctx, &queue, DedupMode::Reject, None)).await;
        assert_eq!(third, Enqueued::Deduplicated { by: first }, "{queue}: it holds its key again");
        assert_eq!(ctx.change(second, retry).await, Err(Error::KeyTaken { by: first }), "{queue}");
    }
}

async fn a_retry_leaves_a_throttle_alone(ctx: Ctx) {
    let plain = bring(&ctx, keyed(&ctx, "q", DedupMode::Reject, None), Holder::Failed).await;
    let throttle = bring(&ctx, keyed(&ctx, "q", DedupMode::Throttle, Some(600)), Holder::Failed).await;
    ctx.advance_ms(300).await;
    let again = || keyed(&ctx, "q", DedupMode::Throttle, Some(600));
    for id in [plain, throttle] {
        ctx.change(id, ChangeOp::Retry(Due::Now)).await.unwrap();
        assert_eq!(ctx.enqueue(again()).await, Enqueued::Deduplicated { by: throttle });
        let lease = ctx.claim_one("w1", "q").await.lease;
        assert_eq!(lease.job, id);
        ctx.complete("w1", lease).await.unwrap();
        assert_eq!(ctx.enqueue(again()).await, Enqueued::Deduplicated { by: throttle }, "whoever came back and ended");
    }
    ctx.advance_ms(300).await;
    let answer = ctx.enqueue(again()).await;
    assert!(matches!(answer, Enqueued::Created { .. }), "its time was not begun anew: {answer:?}");
}

async fn a_changed_payload_keeps_its_key(ctx: Ctx) {
    let first = by_payload(&ctx, "q", DedupMode::Reject, None);
    ctx.enqueue(first.clone()).await;
    ctx.change(first.id, ChangeOp::UpdatePayload(Payload::json("other").unwrap())).await.unwrap();
    let same = ctx.enqueue(by_payload(&ctx, "q", DedupMode::Reject, None)).await;
    assert_eq!(same, Enqueued::Deduplicated { by: first.id }, "it was taken when the job was enqueued");
    ctx.change(first.id, ChangeOp::Cancel).await.unwrap();
    let next = ctx.enqueue(by_payload(&ctx, "q", DedupMode::Reject, None)).await;
    assert!(matches!(next, Enqueued::Created { .. }), "and is freed when it ends: {next:?}");
}
