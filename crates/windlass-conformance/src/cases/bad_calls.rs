//! Bad input: calls. A typed error, no panic, and nothing has changed.

use super::bad_input::Wrong;
use super::snapshot::snapshot;
use crate::ctx::{Ctx, LEASE_MS, complete, fail, queue_name, worker_id};
use crate::runner::cases;
use futures::future::BoxFuture;
use std::collections::BTreeMap;
use windlass_core::Error;
use windlass_core::id::JobId;
use windlass_core::job::{Due, Lease, Progress, Retry};
use windlass_core::name::{Kind, Labels};
use windlass_core::payload::Payload;
use windlass_core::rate::Rate;
use windlass_core::store::{
    Beat, Change, ChangeMany, ChangeManyOp, ChangeOp, ClaimRequest, EnqueueRequest, FeedCursor, FeedRequest, Filter,
    GroupSettings, GroupsRequest, Kinds, ListRequest, LogAppend, LogLine, LogRequest, LogStream, MetricsRequest,
    Outcome, OutcomeKind, QueueSettings, RenewRequest, Renewal, ReportRequest, Setting, Sweep, SweepKind,
};
use windlass_core::time::Timestamp;

cases!("bad_input": claims, renewals, reports, logs, listings, changes, settings, batches, others);

/// A store in which something is going on.
struct Stage {
    ctx: Ctx,
    /// A ready job on the queue `q`.
    ready: JobId,
    /// An active one.
    lease: Lease,
    /// A lease that was lost.
    stale: Lease,
    /// The last claim of the worker `w1`.
    claim: ClaimRequest,
    /// A cursor of a listing of `q`, one job per page.
    cursor: String,
}

impl Stage {
    async fn new(ctx: Ctx) -> Self {
        let ids = ctx.enqueue_all((0..4).map(|_| ctx.job("q", "work")).collect()).await;
        let stale = ctx.claim_one("w0", "q").await.lease;
        ctx.fail("w0", stale, Retry::AfterMs(3_600_000)).await.unwrap();
        // Overwrites what the store would answer again.
        let other = ctx.claim_one("w0", "q").await.lease;
        ctx.complete("w0", other).await.unwrap();
        ctx.change(stale.job, ChangeOp::Promote).await.unwrap();
        ctx.change(stale.job, ChangeOp::Reprioritise(-1)).await.unwrap();
        let again = ctx.claim_one("w2", "q").await.lease;
        ctx.complete("w2", again).await.unwrap();
        let claim = ctx.claim_request("w1", "q", 1);
        let lease = ctx.store.claim(claim.clone()).await.unwrap().jobs[0].lease;
        let cursor = ctx.store.list(listing()).await.unwrap().cursor.unwrap();
        Self { ctx, ready: ids[3], lease, stale, claim, cursor }
    }

    async fn claim(&self, edit: fn(&mut ClaimRequest)) -> Error {
        let mut request = self.ctx.claim_request("w1", "q", 1);
        edit(&mut request);
        self.ctx.store.claim(request).await.unwrap_err()
    }

    async fn renew(&self, lease: Lease, lease_ms: Option<u64>, progress: Option<Progress>) -> Error {
        let renewals = vec![Renewal { lease, lease_ms, progress }];
        self.ctx.store.renew(RenewRequest { renewals }).await.unwrap().remove(0).unwrap_err()
    }

    async fn report(&self, kind: OutcomeKind) -> Error {
        self.ctx.report("w1", self.lease, kind).await.unwrap_err()
    }

    async fn list(&self, edit: impl FnOnce(&mut ListRequest)) -> Error {
        let mut request = listing();
        edit(&mut request);
        self.ctx.store.list(request).await.unwrap_err()
    }

    async fn change(&self, op: ChangeOp) -> Error {
        self.ctx.change(self.ready, op).await.unwrap_err()
    }

    async fn many(&self, op: ChangeManyOp, edit: fn(&mut ChangeMany)) -> Error {
        let mut request = ChangeMany { op, filter: on_q(), max: 10, cursor: None };
        edit(&mut request);
        self.ctx.store.change_many(request).await.unwrap_err()
    }

    async fn log(&self, lease: Lease, first: u64, bytes: usize) -> Error {
        let line =
            LogLine { at: Timestamp::from_ms(i64::MIN), stream: LogStream::Stderr, text: vec![b'x'; bytes].into() };
        let append = LogAppend { lease, first, lines: vec![line] };
        self.ctx.store.append_logs(vec![append]).await.unwrap().remove(0).unwrap_err()
    }

    async fn set(&self, settings: QueueSettings) -> Error {
        self.ctx.store.configure(Setting::Queue { queue: queue_name("new queue"), settings }).await.unwrap_err()
    }

    async fn set_groups(&self, groups: GroupSettings) -> Error {
        self.set(QueueSettings { groups, ..QueueSettings::default() }).await
    }

    async fn beat(&self, edit: fn(&mut Beat)) -> Error {
        let (labels, about) = (Labels::default(), String::new());
        let queues = vec![queue_name("q")];
        let mut beat = Beat {
            worker: worker_id("new"),
            queues,
            kinds: Kinds::Any,
            labels,
            slots: 1,
            running: 0,
            about,
            ttl_ms: 1_000,
        };
        edit(&mut beat);
        self.ctx.store.heartbeat(beat).await.unwrap_err()
    }
}

fn on_q() -> Filter {
    Filter { queue: Some(queue_name("q")), ..Filter::default() }
}

fn listing() -> ListRequest {
    ListRequest { filter: on_q(), limit: 1, ..ListRequest::default() }
}

fn result(result: usize, outputs: &[(&str, usize)]) -> OutcomeKind {
    let outputs = outputs.iter().map(|(name, bytes)| ((*name).to_owned(), "x".repeat(*bytes))).collect();
    OutcomeKind::Complete { result: Some(Payload::new("text/plain", vec![0; result])), outputs }
}

type Row = (&'static str, Wrong, for<'a> fn(&'a Stage) -> BoxFuture<'a, Error>);

async fn check(ctx: Ctx, rows: &[Row]) {
    let stage = Stage::new(ctx).await;
    let before = snapshot(&stage.ctx).await;
    for (row, wrong, call) in rows {
        wrong.assert(row, &call(&stage).await);
        assert_eq!(snapshot(&stage.ctx).await, before, "{row}");
    }
    assert!(stage.ctx.complete("w1", stage.lease).await.is_ok(), "and the store works on");
}

async fn claims(ctx: Ctx) {
    let rows: &[Row] = &[
        ("max 0", Wrong::Invalid("max"), |s| Box::pin(s.claim(|r| r.max = 0))),
        ("max u32::MAX", Wrong::Limit("max"), |s| Box::pin(s.claim(|r| r.max = u32::MAX))),
        ("lease_ms 0", Wrong::Invalid("lease_ms"), |s| Box::pin(s.claim(|r| r.lease_ms = 0))),
        ("lease_ms 9", Wrong::Invalid("lease_ms"), |s| Box::pin(s.claim(|r| r.lease_ms = 9))),
        ("lease_ms u64::MAX", Wrong::Limit("lease_ms"), |s| Box::pin(s.claim(|r| r.lease_ms = u64::MAX))),
        ("no queues", Wrong::Invalid("queues"), |s| Box::pin(s.claim(|r| r.queues.clear()))),
        ("10,000 queues", Wrong::Limit("queues"), |s| {
            Box::pin(s.claim(|r| r.queues = (0..10_000).map(|i| queue_name(&format!("q{i}"))).collect()))
        }),
        ("10,000 labels", Wrong::Limit("labels"), |s| {
            Box::pin(s.claim(|r| r.labels = Labels::parse((0..10_000).map(|i| format!("l{i}"))).unwrap()))
        }),
        ("100,000 kinds", Wrong::Limit("kinds"), |s| {
            Box::pin(s.claim(|r| r.kinds = Kinds::Only(vec![Kind::new("work").unwrap(); 100_000])))
        }),
        ("the same request id with another body", Wrong::Invalid("request_id"), |s| {
            let claim = ClaimRequest { max: 2, ..s.claim.clone() };
            Box::pin(async move { s.ctx.store.claim(claim).await.unwrap_err() })
        }),
        ("request id 0", Wrong::Invalid("request_id"), |s| Box::pin(s.claim(|r| r.request_id = 0))),
    ];
    check(ctx, rows).await;
}

async fn renewals(ctx: Ctx) {
    let rows: &[Row] = &[
        ("lease_ms 0", Wrong::Invalid("lease_ms"), |s| Box::pin(s.renew(s.lease, Some(0), None))),
        ("lease_ms u64::MAX", Wrong::Limit("lease_ms"), |s| Box::pin(s.renew(s.lease, Some(u64::MAX), None))),
        ("101 percent", Wrong::Limit("progress.percent"), |s| {
            Box::pin(s.renew(s.lease, Some(LEASE_MS), Some(Progress { percent: 101, message: String::new() })))
        }),
        ("progress message of 1 MB", Wrong::Limit("progress.message"), |s| {
            Box::pin(s.renew(s.lease, Some(LEASE_MS), Some(Progress { percent: 1, message: "x".repeat(1_000_000) })))
        }),
        ("stale lease", Wrong::LeaseLost, |s| Box::pin(s.renew(s.stale, Some(LEASE_MS), None))),
    ];
    check(ctx, rows).await;
}

async fn reports(ctx: Ctx) {
    let rows: &[Row] = &[
        ("result of 1 MiB and a byte", Wrong::Limit("result"), |s| Box::pin(s.report(result((1 << 20) + 1, &[])))),
        ("outputs of more than 1 MiB", Wrong::Limit("result and outputs"), |s| {
            Box::pin(s.report(result(0, &[("a", 1 << 19), ("b", 1 << 19)])))
        }),
        ("result and outputs of more than 1 MiB", Wrong::Limit("result and outputs"), |s| {
            Box::pin(s.report(result(1 << 19, &[("a", 1 << 19)])))
        }),
        ("10,000 outputs", Wrong::Limit("outputs"), |s| {
            let outputs = (0..10_000).map(|i| (format!("{i}"), String::new())).collect();
            Box::pin(s.report(OutcomeKind::Complete { result: None, outputs }))
        }),
        ("output without a name", Wrong::Invalid("outputs"), |s| Box::pin(s.report(result(0, &[("", 1)])))),
        ("output with CRLF in its name", Wrong::Invalid("outputs"), |s| {
            Box::pin(s.report(result(0, &[("a\r\nb", 1)])))
        }),
        ("result without a content type", Wrong::Invalid("result.content_type"), |s| {
            let result = Some(Payload::new("", vec![]));
            Box::pin(s.report(OutcomeKind::Complete { result, outputs: BTreeMap::new() }))
        }),
        ("retry after u64::MAX", Wrong::Limit("retry"), |s| Box::pin(s.report(fail("x", Retry::AfterMs(u64::MAX))))),
        ("stale lease", Wrong::LeaseLost, |s| Box::pin(async { s.ctx.complete("w0", s.stale).await.unwrap_err() })),
        ("stale lease of a job that nobody knows", Wrong::LeaseLost, |s| {
            Box::pin(async { s.ctx.complete("w0", Lease { job: s.ctx.ids.next(), ..s.lease }).await.unwrap_err() })
        }),
    ];
    check(ctx, rows).await;
}

async fn logs(ctx: Ctx) {
    let rows: &[Row] = &[
        ("line of 50 MB", Wrong::Limit("a log line"), |s| Box::pin(s.log(s.lease, 0, 50_000_000))),
        ("line of 64 KiB and a byte", Wrong::Limit("a log line"), |s| Box::pin(s.log(s.lease, 0, (64 << 10) + 1))),
        ("a gap", Wrong::Invalid("first"), |s| Box::pin(s.log(s.lease, 1, 1))),
        ("a gap up to u64::MAX", Wrong::Invalid("first"), |s| Box::pin(s.log(s.lease, u64::MAX, 1))),
        ("stale lease", Wrong::LeaseLost, |s| Box::pin(s.log(s.stale, 0, 1))),
        ("limit 0", Wrong::Invalid("limit"), |s| {
            Box::pin(async { s.ctx.store.read_logs(LogRequest { job: s.ready, from: 0, limit: 0 }).await.unwrap_err() })
        }),
        ("limit u32::MAX", Wrong::Invalid("limit"), |s| {
            Box::pin(async {
                s.ctx.store.read_logs(LogRequest { job: s.ready, from: 0, limit: u32::MAX }).await.unwrap_err()
            })
        }),
        ("unknown job", Wrong::NotFound, |s| {
            Box::pin(async {
                s.ctx.store.read_logs(LogRequest { job: s.ctx.ids.next(), from: 0, limit: 1 }).await.unwrap_err()
            })
        }),
    ];
    check(ctx, rows).await;
}

async fn listings(ctx: Ctx) {
    let rows: &[Row] = &[
        ("limit 0", Wrong::Invalid("limit"), |s| Box::pin(s.list(|r| r.limit = 0))),
        ("limit u32::MAX", Wrong::Invalid("limit"), |s| Box::pin(s.list(|r| r.limit = u32::MAX))),
        ("empty cursor", Wrong::Invalid("cursor"), |s| Box::pin(s.list(|r| r.cursor = Some(String::new())))),
        ("cursor of markup", Wrong::Invalid("cursor"), |s| Box::pin(s.list(|r| r.cursor = Some("<b>é\0".to_owned())))),
        ("cursor of 1 MB", Wrong::Invalid("cursor"), |s| Box::pin(s.list(|r| r.cursor = Some("0".repeat(1_000_000))))),
        ("shortened cursor", Wrong::Invalid("cursor"), |s| {
            Box::pin(s.list(|r| r.cursor = Some(s.cursor[1..].to_owned())))
        }),
        ("tampered cursor", Wrong::Invalid("cursor"), |s| {
            let first = if s.cursor.starts_with('1') { "2" } else { "1" };
            Box::pin(s.list(move |r| r.cursor = Some(format!("{first}{}", &s.cursor[1..]))))
        }),
        ("cursor of another filter", Wrong::Invalid("cursor"), |s| {
            Box::pin(s.list(|r| (r.cursor, r.filter.kind) = (Some(s.cursor.clone()), Some(Kind::new("work").unwrap()))))
        }),
        ("cursor of the other order", Wrong::Invalid("cursor"), |s| {
            let other = windlass_core::store::ListOrder::Descending;
            Box::pin(s.list(move |r| (r.cursor, r.order) = (Some(s.cursor.clone()), other)))
        }),
        ("empty text", Wrong::Invalid("text"), |s| Box::pin(s.list(|r| r.filter.text = Some(String::new())))),
        ("text of 1 MB", Wrong::Limit("text"), |s| Box::pin(s.list(|r| r.filter.text = Some("x".repeat(1_000_000))))),
    ];
    check(ctx, rows).await;
}

async fn changes(ctx: Ctx) {
    let rows: &[Row] = &[
        ("payload of 4 MiB and a byte", Wrong::Limit("payload"), |s| {
            Box::pin(s.change(ChangeOp::UpdatePayload(Payload::new("a/b", vec![0; (4 << 20) + 1]))))
        }),
        ("payload without a content type", Wrong::Invalid("payload.content_type"), |s| {
            Box::pin(s.change(ChangeOp::UpdatePayload(Payload::new("", vec![]))))
        }),
        ("run_at in year 9999", Wrong::Invalid("run_at"), |s| {
            Box::pin(s.change(ChangeOp::Reschedule(Due::At(Timestamp::from_ms(253_402_300_799_000)))))
        }),
        ("run_at -1", Wrong::Invalid("run_at"), |s| {
            Box::pin(s.change(ChangeOp::Reschedule(Due::At(Timestamp::from_ms(-1)))))
        }),
        ("delay u64::MAX", Wrong::Limit("delay_ms"), |s| Box::pin(s.change(ChangeOp::Retry(Due::DelayMs(u64::MAX))))),
        ("unknown job", Wrong::NotFound, |s| {
            Box::pin(async { s.ctx.change(s.ctx.ids.next(), ChangeOp::Remove).await.unwrap_err() })
        }),
        ("many: max 0", Wrong::Invalid("max"), |s| Box::pin(s.many(ChangeManyOp::RetryFailed, |r| r.max = 0))),
        ("many: max u32::MAX", Wrong::Invalid("max"), |s| {
            Box::pin(s.many(ChangeManyOp::RetryFailed, |r| r.max = u32::MAX))
        }),
        ("many: no queue", Wrong::Invalid("filter.queue"), |s| {
            Box::pin(s.many(ChangeManyOp::Drain { scheduled: true }, |r| r.filter.queue = None))
        }),
        ("many: tampered cursor", Wrong::Invalid("cursor"), |s| {
            Box::pin(s.many(ChangeManyOp::CancelAll, |r| r.cursor = Some("00".to_owned())))
        }),
        ("many: obliterate while jobs are active", Wrong::Invalid("force"), |s| {
            Box::pin(s.many(ChangeManyOp::Obliterate { force: false }, |_| {}))
        }),
        ("explain an unknown job", Wrong::NotFound, |s| {
            Box::pin(async { s.ctx.store.explain(s.ctx.ids.next()).await.unwrap_err() })
        }),
    ];
    check(ctx, rows).await;
}

async fn settings(ctx: Ctx) {
    let rows: &[Row] = &[
        ("cap 0", Wrong::Invalid("cap"), |s| {
            Box::pin(s.set(QueueSettings { cap: Some(0), ..QueueSettings::default() }))
        }),
        ("rate 0", Wrong::Invalid("rate.limit"), |s| {
            Box::pin(s.set(QueueSettings { rate: Some(Rate { limit: 0, per_ms: 1 }), ..QueueSettings::default() }))
        }),
        ("rate per 0 ms", Wrong::Invalid("rate.per_ms"), |s| {
            Box::pin(s.set(QueueSettings { rate: Some(Rate { limit: 1, per_ms: 0 }), ..QueueSettings::default() }))
        }),
        ("rate per u64::MAX ms", Wrong::Limit("rate.per_ms"), |s| {
            Box::pin(
                s.set(QueueSettings { rate: Some(Rate { limit: 1, per_ms: u64::MAX }), ..QueueSettings::default() }),
            )
        }),
        ("10,000 paused kinds", Wrong::Limit("paused_kinds"), |s| {
            let paused_kinds = (0..10_000).map(|i| Kind::new(format!("{i}")).unwrap()).collect();
            Box::pin(s.set(QueueSettings { paused_kinds, ..QueueSettings::default() }))
        }),
        ("group cap 0", Wrong::Invalid("group.cap"), |s| {
            Box::pin(s.set_groups(GroupSettings { cap: Some(0), ..GroupSettings::default() }))
        }),
        ("group weight 0", Wrong::Invalid("group.weight"), |s| {
            Box::pin(s.set_groups(GroupSettings { weight: Some(0), ..GroupSettings::default() }))
        }),
        ("group weight u32::MAX", Wrong::Limit("group.weight"), |s| {
            Box::pin(s.set_groups(GroupSettings { weight: Some(u32::MAX), ..GroupSettings::default() }))
        }),
        ("one group with weight 0", Wrong::Invalid("group.weight"), |s| {
            let group = windlass_core::name::GroupName::new("g").unwrap();
            let settings = GroupSettings { weight: Some(0), ..GroupSettings::default() };
            let setting = Setting::Group { queue: queue_name("new queue"), group, settings };
            Box::pin(async move { s.ctx.store.configure(setting).await.unwrap_err() })
        }),
    ];
    check(ctx, rows).await;
}

async fn batches(ctx: Ctx) {
    const MANY: usize = 100_000;
    let rows: &[Row] = &[
        ("enqueue 100,000", Wrong::Limit("the batch"), |s| {
            let job = s.ctx.job("new queue", "work");
            Box::pin(async move { s.ctx.store.enqueue(EnqueueRequest::new(vec![job; MANY])).await.unwrap_err() })
        }),
        ("get 100,000", Wrong::Limit("the batch"), |s| {
            Box::pin(async { s.ctx.store.get(vec![s.ready; MANY]).await.unwrap_err() })
        }),
        ("change 100,000", Wrong::Limit("the batch"), |s| {
            let change = Change { id: s.ready, op: ChangeOp::Remove };
            Box::pin(async move { s.ctx.store.change(vec![change; MANY]).await.unwrap_err() })
        }),
        ("renew 100,000", Wrong::Limit("the batch"), |s| {
            let renewal = Renewal { lease: s.lease, lease_ms: Some(LEASE_MS), progress: None };
            Box::pin(
                async move { s.ctx.store.renew(RenewRequest { renewals: vec![renewal; MANY] }).await.unwrap_err() },
            )
        }),
        ("report 100,000", Wrong::Limit("the batch"), |s| {
            let outcomes = vec![Outcome { lease: s.lease, kind: complete() }; MANY];
            let request = ReportRequest { worker: worker_id("w1"), outcomes };
            Box::pin(async move { s.ctx.store.report(request).await.unwrap_err() })
        }),
        ("report 100,000 and claim", Wrong::Limit("the batch"), |s| {
            let outcomes = vec![Outcome { lease: s.lease, kind: complete() }; MANY];
            let request = ReportRequest { worker: worker_id("w1"), outcomes };
            let claim = s.ctx.claim_request("w1", "q", 1);
            Box::pin(async move { s.ctx.store.report_and_claim(request, claim).await.unwrap_err() })
        }),
        ("append 100,000 times", Wrong::Limit("the batch"), |s| {
            let appends = vec![LogAppend { lease: s.lease, first: 0, lines: vec![] }; MANY];
            Box::pin(async move { s.ctx.store.append_logs(appends).await.unwrap_err() })
        }),
        ("append 100,000 lines", Wrong::Limit("the batch"), |s| {
            let line = LogLine { at: Timestamp::from_ms(0), stream: LogStream::Log, text: vec![].into() };
            let append = LogAppend { lease: s.lease, first: 0, lines: vec![line; MANY] };
            Box::pin(async move { s.ctx.store.append_logs(vec![append]).await.unwrap_err() })
        }),
    ];
    check(ctx, rows).await;
}

fn metrics(queue: &str, from: i64, to: i64) -> MetricsRequest {
    MetricsRequest { queue: queue_name(queue), from: Timestamp::from_ms(from), to: Timestamp::from_ms(to) }
}

async fn others(ctx: Ctx) {
    let rows: &[Row] = &[
        ("sweep 0", Wrong::Invalid("max"), |s| {
            Box::pin(async { s.ctx.store.sweep(Sweep { kind: SweepKind::Reap, max: 0 }).await.unwrap_err() })
        }),
        ("sweep u32::MAX", Wrong::Invalid("max"), |s| {
            Box::pin(async { s.ctx.store.sweep(Sweep { kind: SweepKind::Prune, max: u32::MAX }).await.unwrap_err() })
        }),
        ("feed: max 0", Wrong::Invalid("max"), |s| {
            Box::pin(async {
                s.ctx.store.read_feed(FeedRequest { after: Some(Default::default()), max: 0 }).await.unwrap_err()
            })
        }),
        ("feed: max u32::MAX", Wrong::Invalid("max"), |s| {
            Box::pin(async {
                s.ctx.store.read_feed(FeedRequest { after: Some(Default::default()), max: u32::MAX }).await.unwrap_err()
            })
        }),
        ("feed: a cursor that was never given", Wrong::Invalid("after"), |s| {
            Box::pin(async {
                s.ctx.store.read_feed(FeedRequest { after: Some(FeedCursor(u64::MAX)), max: 1 }).await.unwrap_err()
            })
        }),
        ("groups: limit 0", Wrong::Invalid("limit"), |s| {
            let request = GroupsRequest { queue: queue_name("q"), after: None, limit: 0 };
            Box::pin(async { s.ctx.store.groups(request).await.unwrap_err() })
        }),
        ("groups: limit u32::MAX", Wrong::Invalid("limit"), |s| {
            let request = GroupsRequest { queue: queue_name("q"), after: None, limit: u32::MAX };
            Box::pin(async { s.ctx.store.groups(request).await.unwrap_err() })
        }),
        ("groups of an unknown queue", Wrong::NotFound, |s| {
            let request = GroupsRequest { queue: queue_name("nobody"), after: None, limit: 1 };
            Box::pin(async { s.ctx.store.groups(request).await.unwrap_err() })
        }),
        ("metrics of an unknown queue", Wrong::NotFound, |s| {
            Box::pin(async { s.ctx.store.metrics(metrics("nobody", 0, 1)).await.unwrap_err() })
        }),
        ("metrics from after to", Wrong::Invalid("to"), |s| {
            Box::pin(async { s.ctx.store.metrics(metrics("q", 1, 0)).await.unwrap_err() })
        }),
        ("metrics of all time", Wrong::Limit("minutes"), |s| {
            Box::pin(async { s.ctx.store.metrics(metrics("q", i64::MIN, i64::MAX)).await.unwrap_err() })
        }),
        ("beat: ttl 0", Wrong::Invalid("ttl_ms"), |s| Box::pin(s.beat(|b| b.ttl_ms = 0))),
        ("beat: ttl u64::MAX", Wrong::Limit("ttl_ms"), |s| Box::pin(s.beat(|b| b.ttl_ms = u64::MAX))),
        ("beat: 10,000 labels", Wrong::Limit("labels"), |s| {
            Box::pin(s.beat(|b| b.labels = Labels::parse((0..10_000).map(|i| format!("l{i}"))).unwrap()))
        }),
        ("beat: about 1 MB", Wrong::Limit("about"), |s| Box::pin(s.beat(|b| b.about = "x".repeat(1_000_000)))),
    ];
    check(ctx, rows).await;
}
