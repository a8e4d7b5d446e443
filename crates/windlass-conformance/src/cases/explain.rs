//! Explain: one exact reason per cause. `Quarantined` needs damaged bytes and is a matter of each store's own tests.

use crate::ctx::{Ctx, queue_name, worker_id};
use crate::look::{beat, cap, group};
use crate::runner::cases;
use windlass_core::id::JobId;
use windlass_core::job::{Dedup, DedupBy, DedupMode, Due, NewJob, Retry, State};
use windlass_core::name::{DedupKey, Kind, Label, Labels};
use windlass_core::rate::Rate;
use windlass_core::store::{Beat, ChangeOp, Enqueued, GroupSettings, Kinds, Reason, Setting};

cases!("explain":
    delayed,
    backing_off,
    due,
    held_behind,
    queue_paused,
    kind_paused,
    queue_at_cap,
    queue_rate_limited,
    group_at_cap,
    group_rate_limited,
    no_worker_for_queue,
    no_worker_for_kind,
    no_worker_with_labels,
    waits_its_turn,
    running,
    cancelling,
    lease_expired,
    ended,
    what_must_be_mended_first_is_named,
    an_unknown_job_is_not_found,
);

/// A job that waits, and a worker that could take it.
async fn waiting(ctx: &Ctx, job: NewJob) -> JobId {
    ctx.store.heartbeat(beat("w", "q")).await.unwrap();
    ctx.enqueue(job).await.id()
}

async fn delayed(ctx: Ctx) {
    let id = waiting(&ctx, ctx.job("q", "work").due(Due::DelayMs(60_000))).await;
    let until = ctx.get(id).await.unwrap().due_at.unwrap();
    assert_eq!(ctx.reason(id).await, Reason::Delayed { until });
}

async fn backing_off(ctx: Ctx) {
    let id = waiting(&ctx, ctx.job("q", "work")).await;
    let job = ctx.claim_one("w", "q").await;
    ctx.fail("w", job.lease, Retry::AfterMs(60_000)).await.unwrap();
    let until = ctx.get(id).await.unwrap().due_at.unwrap();
    assert_eq!(ctx.reason(id).await, Reason::BackingOff { until, attempt: 1, error: "boom".to_owned() });
    ctx.change(id, ChangeOp::Promote).await.unwrap();
    let job = ctx.claim_one("w", "q").await;
    ctx.fail("w", job.lease, Retry::Never).await.unwrap();
    ctx.change(id, ChangeOp::Retry(Due::DelayMs(60_000))).await.unwrap();
    let until = ctx.get(id).await.unwrap().due_at.unwrap();
    assert_eq!(ctx.reason(id).await, Reason::Delayed { until }, "a new life has no failed attempt");
}

async fn due(ctx: Ctx) {
    let id = waiting(&ctx, ctx.job("q", "work").due(Due::DelayMs(50))).await;
    ctx.advance_ms(50).await;
    assert_eq!(ctx.reason(id).await, Reason::Due);
}

async fn held_behind(ctx: Ctx) {
    let job = || {
        let by = DedupBy::Key(DedupKey::new("k").unwrap());
        ctx.job_with("q", |spec| spec.dedup = Some(Dedup { by, mode: DedupMode::KeepLast, ttl_ms: None }))
    };
    let first = waiting(&ctx, job()).await;
    ctx.claim_one("w", "q").await;
    let Enqueued::Held { id, .. } = ctx.enqueue(job()).await else { panic!("not held") };
    assert_eq!(ctx.reason(id).await, Reason::HeldBehind { job: first });
}

async fn queue_paused(ctx: Ctx) {
    let id = waiting(&ctx, ctx.job("q", "work")).await;
    ctx.pause("q", true).await;
    assert_eq!(ctx.reason(id).await, Reason::QueuePaused);
    ctx.pause("q", false).await;
    assert_eq!(ctx.reason(id).await, Reason::WaitsItsTurn);
}

async fn kind_paused(ctx: Ctx) {
    let kind = Kind::new("mail").unwrap();
    let id = waiting(&ctx, ctx.job("q", "mail")).await;
    let other = waiting(&ctx, ctx.job("q", "sms")).await;
    let setting = Setting::KindPaused { queue: queue_name("q"), kind: kind.clone(), paused: true };
    ctx.store.configure(setting).await.unwrap();
    assert_eq!(ctx.reason(id).await, Reason::KindPaused { kind });
    assert_eq!(ctx.reason(other).await, Reason::WaitsItsTurn);
}

async fn queue_at_cap(ctx: Ctx) {
    ctx.set_queue("q", |settings| settings.cap = Some(1)).await;
    waiting(&ctx, ctx.job("q", "work")).await;
    let id = waiting(&ctx, ctx.job("q", "work")).await;
    assert_eq!(ctx.reason(id).await, Reason::WaitsItsTurn);
    let job = ctx.claim_one("w", "q").await;
    assert_eq!(ctx.reason(id).await, Reason::QueueAtCap { cap: 1 });
    ctx.complete("w", job.lease).await.unwrap();
    assert_eq!(ctx.reason(id).await, Reason::WaitsItsTurn);
}

async fn queue_rate_limited(ctx: Ctx) {
    ctx.set_queue("q", |settings| settings.rate = Some(Rate { limit: 1, per_ms: 1_500 })).await;
    waiting(&ctx, ctx.job("q", "work")).await;
    let id = waiting(&ctx, ctx.job("q", "work")).await;
    let first = ctx.claim_one("w", "q").await.lease.job;
    let until = ctx.get(first).await.unwrap().claimed_at.unwrap().plus_ms(1_500);
    assert_eq!(ctx.reason(id).await, Reason::QueueRateLimited { until });
    ctx.advance_ms(1_500).await;
    assert_eq!(ctx.reason(id).await, Reason::WaitsItsTurn);
}

async fn group_at_cap(ctx: Ctx) {
    ctx.set_queue("q", |settings| settings.groups = cap(1)).await;
    waiting(&ctx, ctx.grouped_kind("q", "g", "first")).await;
    let id = waiting(&ctx, ctx.grouped("q", "g")).await;
    let other = waiting(&ctx, ctx.grouped("q", "h")).await;
    let plain = waiting(&ctx, ctx.job("q", "work")).await;
    assert_eq!(ctx.claim_kinds("w", "q", &["first"], 1).await.len(), 1);
    assert_eq!(ctx.reason(id).await, Reason::GroupAtCap { group: group("g"), cap: 1 });
    assert_eq!(ctx.reason(other).await, Reason::WaitsItsTurn);
    assert_eq!(ctx.reason(plain).await, Reason::WaitsItsTurn);
}

async fn group_rate_limited(ctx: Ctx) {
    let rate = Some(Rate { limit: 1, per_ms: 1_500 });
    ctx.set_group("q", "g", GroupSettings { rate, ..GroupSettings::default() }).await;
    waiting(&ctx, ctx.grouped("q", "g")).await;
    let first = ctx.claim_one("w", "q").await;
    let until = ctx.get(first.lease.job).await.unwrap().claimed_at.unwrap().plus_ms(1_500);
    ctx.complete("w", first.lease).await.unwrap();
    let id = waiting(&ctx, ctx.grouped("q", "g")).await;
    assert_eq!(ctx.reason(id).await, Reason::GroupRateLimited { group: group("g"), until });
    ctx.advance_ms(1_500).await;
    assert_eq!(ctx.reason(id).await, Reason::WaitsItsTurn);
}

async fn no_worker_for_queue(ctx: Ctx) {
    let id = ctx.enqueue(ctx.job("q", "work")).await.id();
    assert_eq!(ctx.reason(id).await, Reason::NoWorkerForQueue, "nobody is there");
    ctx.store.heartbeat(beat("w", "other")).await.unwrap();
    assert_eq!(ctx.reason(id).await, Reason::NoWorkerForQueue, "it looks elsewhere");
    ctx.store.heartbeat(Beat { ttl_ms: 50, ..beat("x", "q") }).await.unwrap();
    ctx.advance_ms(51).await;
    assert_eq!(ctx.reason(id).await, Reason::NoWorkerForQueue, "it is dead");
    ctx.store.heartbeat(beat("y", "q")).await.unwrap();
    assert_eq!(ctx.reason(id).await, Reason::WaitsItsTurn);
    ctx.store.deregister(worker_id("y")).await.unwrap();
    assert_eq!(ctx.reason(id).await, Reason::NoWorkerForQueue, "it has left");
}

async fn no_worker_for_kind(ctx: Ctx) {
    let kind = |name: &str| Kind::new(name).unwrap();
    let id = ctx.enqueue(ctx.job("q", "mail")).await.id();
    ctx.store.heartbeat(Beat { kinds: Kinds::Only(vec![kind("sms")]), ..beat("w", "q") }).await.unwrap();
    ctx.store.heartbeat(beat("any", "other")).await.unwrap();
    assert_eq!(ctx.reason(id).await, Reason::NoWorkerForKind { kind: kind("mail") });
    let both = Kinds::Only(vec![kind("sms"), kind("mail")]);
    ctx.store.heartbeat(Beat { kinds: both, ..beat("w", "q") }).await.unwrap();
    assert_eq!(ctx.reason(id).await, Reason::WaitsItsTurn);
}

async fn no_worker_with_labels(ctx: Ctx) {
    let labels = |names: &[&str]| Labels::parse(names).unwrap();
    let id = ctx.enqueue(ctx.job_with("q", |spec| spec.labels = labels(&["a", "b", "c"]))).await.id();
    ctx.store.heartbeat(Beat { labels: labels(&["a", "x"]), ..beat("one", "q") }).await.unwrap();
    ctx.store.heartbeat(Beat { labels: labels(&["a", "c"]), ..beat("two", "q") }).await.unwrap();
    ctx.store.heartbeat(Beat { labels: labels(&["a", "b", "c"]), ..beat("far", "other") }).await.unwrap();
    let missing = vec![Label::new("b").unwrap()];
    assert_eq!(ctx.reason(id).await, Reason::NoWorkerWithLabels { missing }, "what the best of them lacks");
    ctx.store.heartbeat(Beat { labels: labels(&["a", "b", "c", "d"]), ..beat("two", "q") }).await.unwrap();
    assert_eq!(ctx.reason(id).await, Reason::WaitsItsTurn);
}

async fn waits_its_turn(ctx: Ctx) {
    let id = waiting(&ctx, ctx.job("q", "work")).await;
    assert_eq!(ctx.reason(id).await, Reason::WaitsItsTurn);
}

async fn running(ctx: Ctx) {
    let id = waiting(&ctx, ctx.job("q", "work")).await;
    let job = ctx.claim_one("w", "q").await;
    assert_eq!(ctx.reason(id).await, Reason::Running { worker: worker_id("w"), until: job.expires_at });
}

async fn cancelling(ctx: Ctx) {
    let id = waiting(&ctx, ctx.job("q", "work")).await;
    ctx.claim_one("w", "q").await;
    ctx.change(id, ChangeOp::Cancel).await.unwrap();
    assert_eq!(ctx.reason(id).await, Reason::Cancelling { worker: worker_id("w") });
}

async fn lease_expired(ctx: Ctx) {
    let id = waiting(&ctx, ctx.job("q", "work")).await;
    ctx.claim_short("w", "q", 50).await;
    ctx.advance_ms(51).await;
    assert_eq!(ctx.reason(id).await, Reason::LeaseExpired { worker: worker_id("w") });
}

async fn ended(ctx: Ctx) {
    for (state, error) in [(State::Succeeded, None), (State::Failed, Some("boom".to_owned())), (State::Cancelled, None)]
    {
        let id = ctx.job_in("q", state).await;
        assert_eq!(ctx.reason(id).await, Reason::Ended { error });
    }
    let id = ctx.enqueue(ctx.job_with("r", |spec| spec.attempts = 2)).await.id();
    let job = ctx.claim_one("w", "r").await;
    ctx.fail("w", job.lease, Retry::AfterMs(0)).await.unwrap();
    ctx.work_one("w", "r").await;
    assert_eq!(ctx.reason(id).await, Reason::Ended { error: None }, "it went well in the end");
}

async fn what_must_be_mended_first_is_named(ctx: Ctx) {
    let mut job = ctx.grouped_kind("q", "g", "mail");
    job.spec.labels = Labels::parse(["gpu"]).unwrap();
    let id = ctx.enqueue(job).await.id();
    let kind = Kind::new("mail").unwrap();
    ctx.enqueue(ctx.grouped("q", "g")).await;
    ctx.set_queue("q", |settings| {
        settings.paused = true;
        settings.paused_kinds = [kind.clone()].into();
        settings.cap = Some(1);
    })
    .await;
    assert_eq!(ctx.reason(id).await, Reason::QueuePaused);
    ctx.pause("q", false).await;
    assert_eq!(ctx.reason(id).await, Reason::KindPaused { kind: kind.clone() });
    let resume = Setting::KindPaused { queue: queue_name("q"), kind: kind.clone(), paused: false };
    ctx.store.configure(resume).await.unwrap();
    ctx.set_group("q", "g", cap(1)).await;
    let job = ctx.claim_one("w", "q").await;
    assert_eq!(ctx.reason(id).await, Reason::QueueAtCap { cap: 1 });
    ctx.set_queue("q", |_| {}).await;
    assert_eq!(ctx.reason(id).await, Reason::GroupAtCap { group: group("g"), cap: 1 });
    ctx.complete("w", job.lease).await.unwrap();
    assert_eq!(ctx.reason(id).await, Reason::NoWorkerForQueue);
    let sms = Kinds::Only(vec![Kind::new("sms").unwrap()]);
    ctx.store.heartbeat(Beat { kinds: sms, ..beat("w", "q") }).await.unwrap();
    assert_eq!(ctx.reason(id).await, Reason::NoWorkerForKind { kind });
    ctx.store.heartbeat(beat("w", "q")).await.unwrap();
    assert_eq!(ctx.reason(id).await, Reason::NoWorkerWithLabels { missing: vec![Label::new("gpu").unwrap()] });
}

async fn an_unknown_job_is_not_found(ctx: Ctx) {
    assert!(ctx.store.explain(ctx.ids.next()).await.unwrap_err().is_not_found());
}
