//! Result, outputs and progress of a job.

use super::run_help::{awake, claim_by_id, commit, create, job_of};
use crate::ctx::{Ctx, complete};
use crate::runner::cases;
use std::collections::BTreeMap;
use windlass_core::Error;
use windlass_core::job::{Due, FAILURE_DETAIL_BYTES_MAX, Failure, FailureClass, Lease, RESULT_BYTES_MAX, Retry, State};
use windlass_core::payload::Payload;
use windlass_core::store::{ChangeOp, OutcomeKind, RunItem, RunStep};

cases!("outputs":
    result_and_outputs_come_back,
    no_result_is_none,
    a_result_has_a_limit,
    outputs_have_limits,
    result_and_outputs_share_one_limit,
    a_refused_result_leaves_the_job_active,
    progress_is_kept_and_told,
    progress_has_limits_and_needs_the_lease,
    a_cancelled_job_keeps_no_result,
    a_failed_attempt_keeps_no_result_and_its_progress,
    a_new_life_forgets_the_old_result,
    a_failure_keeps_its_detail,
    a_detail_that_is_too_large_is_left_out,
    the_detail_of_the_last_failure_reaches_the_run,
);

async fn leased(ctx: &Ctx) -> Lease {
    ctx.enqueue(ctx.job("q", "work")).await;
    ctx.claim_one("w", "q").await.lease
}

fn with(result: Option<Payload>, outputs: &[(&str, &str)]) -> OutcomeKind {
    let outputs = outputs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    OutcomeKind::Complete { result, outputs }
}

fn bytes(len: u64) -> Payload {
    Payload::new("application/octet-stream", vec![0xfe; usize::try_from(len).unwrap()])
}

async fn result_and_outputs_come_back(ctx: Ctx) {
    let lease = leased(&ctx).await;
    let result = Payload::json(&serde_json::json!({ "deep": [{ "ünï": "漢字" }, null, 1.5] })).unwrap();
    let outputs = [("path", "/tmp/ä b"), ("empty", ""), ("line", "a\nb")];
    ctx.report("w", lease, with(Some(result.clone()), &outputs)).await.unwrap();
    let job = ctx.get(lease.job).await.unwrap();
    assert_eq!(job.result, Some(result));
    let expected: BTreeMap<_, _> = outputs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    assert_eq!(job.outputs, expected);
}

async fn no_result_is_none(ctx: Ctx) {
    let lease = leased(&ctx).await;
    ctx.complete("w", lease).await.unwrap();
    let job = ctx.get(lease.job).await.unwrap();
    assert_eq!((job.result, job.outputs.len(), job.progress), (None, 0, None));
}

async fn a_result_has_a_limit(ctx: Ctx) {
    let lease = leased(&ctx).await;
    let refused = ctx.report("w", lease, with(Some(bytes(RESULT_BYTES_MAX + 1)), &[])).await;
    assert!(matches!(refused, Err(Error::Limit { max: RESULT_BYTES_MAX, .. })), "{refused:?}");
    ctx.report("w", lease, with(Some(bytes(RESULT_BYTES_MAX)), &[])).await.unwrap();
    assert_eq!(ctx.get(lease.job).await.unwrap().result, Some(bytes(RESULT_BYTES_MAX)));
}

async fn outputs_have_limits(ctx: Ctx) {
    let lease = leased(&ctx).await;
    let many = |count: usize| OutcomeKind::Complete {
        result: None,
        outputs: (0..count).map(|n| (n.to_string(), "v".to_owned())).collect(),
    };
    let large = "x".repeat(usize::try_from(RESULT_BYTES_MAX).unwrap());
    for bad in [many(1_001), with(None, &[("k", &large)]), with(None, &[("", "v")]), with(None, &[("a\0b", "v")])] {
        let refused = ctx.report("w", lease, bad).await;
        assert!(matches!(refused, Err(Error::Limit { .. } | Error::Invalid { .. })), "{refused:?}");
    }
    ctx.report("w", lease, many(1_000)).await.unwrap();
    assert_eq!(ctx.get(lease.job).await.unwrap().outputs.len(), 1_000);
}

async fn result_and_outputs_share_one_limit(ctx: Ctx) {
    let lease = leased(&ctx).await;
    let refused = ctx.report("w", lease, with(Some(bytes(RESULT_BYTES_MAX - 1)), &[("k", "v")])).await;
    assert!(matches!(refused, Err(Error::Limit { .. })), "{refused:?}");
    ctx.report("w", lease, with(Some(bytes(RESULT_BYTES_MAX - 2)), &[("k", "v")])).await.unwrap();
}

async fn a_refused_result_leaves_the_job_active(ctx: Ctx) {
    let lease = leased(&ctx).await;
    ctx.report("w", lease, with(Some(bytes(RESULT_BYTES_MAX + 1)), &[])).await.unwrap_err();
    let job = ctx.get(lease.job).await.unwrap();
    assert_eq!((job.state, job.result), (State::Active, None));
    let reported = ctx.report("w", lease, complete()).await.unwrap();
    assert_eq!((reported.state, reported.repeated), (State::Succeeded, false));
}

async fn progress_is_kept_and_told(ctx: Ctx) {
    let lease = leased(&ctx).await;
    let before = ctx.get(lease.job).await.unwrap().lease.unwrap().expires_at;
    for (percent, message) in [(0, ""), (40, "vierzig"), (100, "fertig ✓")] {
        let renewed = ctx.progress(lease, percent, message).await.unwrap();
        assert_eq!((renewed.expires_at, renewed.cancel_requested), (before, false), "progress alone moves no lease");
        let progress = ctx.get(lease.job).await.unwrap().progress.unwrap();
        assert_eq!((progress.percent, progress.message.as_str()), (percent, message));
    }
    ctx.change(lease.job, ChangeOp::Cancel).await.unwrap();
    assert!(ctx.progress(lease, 100, "").await.unwrap().cancel_requested);
}

async fn progress_has_limits_and_needs_the_lease(ctx: Ctx) {
    let lease = leased(&ctx).await;
    ctx.progress(lease, 10, "ten").await.unwrap();
    assert!(matches!(ctx.progress(lease, 101, "").await, Err(Error::Limit { .. })));
    assert!(matches!(ctx.progress(lease, 1, &"x".repeat(4_097)).await, Err(Error::Limit { .. })));
    let stale = Lease { token: windlass_core::id::Token::from_bits(lease.token.bits() ^ 1), ..lease };
    assert_eq!(ctx.progress(stale, 50, "").await, Err(Error::LeaseLost));
    ctx.progress(lease, 11, &"x".repeat(4_096)).await.unwrap();
    ctx.complete("w", lease).await.unwrap();
    assert_eq!(ctx.progress(lease, 99, "").await, Err(Error::LeaseLost));
    assert_eq!(ctx.get(lease.job).await.unwrap().progress.unwrap().percent, 11);
}

async fn a_cancelled_job_keeps_no_result(ctx: Ctx) {
    let lease = leased(&ctx).await;
    ctx.change(lease.job, ChangeOp::Cancel).await.unwrap();
    let reported = ctx.report("w", lease, with(Some(bytes(3)), &[("k", "v")])).await.unwrap();
    assert_eq!(reported.state, State::Cancelled);
    let job = ctx.get(lease.job).await.unwrap();
    assert_eq!((job.result, job.outputs.len()), (None, 0));
}

async fn a_failed_attempt_keeps_no_result_and_its_progress(ctx: Ctx) {
    let lease = leased(&ctx).await;
    ctx.progress(lease, 70, "nearly").await.unwrap();
    ctx.fail("w", lease, Retry::Never).await.unwrap();
    let job = ctx.get(lease.job).await.unwrap();
    assert_eq!((job.result, job.progress.unwrap().percent), (None, 70), "how far it came helps to see what failed");
}

async fn a_new_life_forgets_the_old_result(ctx: Ctx) {
    let lease = leased(&ctx).await;
    ctx.progress(lease, 100, "done").await.unwrap();
    ctx.report("w", lease, with(Some(bytes(3)), &[("k", "v")])).await.unwrap();
    ctx.change(lease.job, ChangeOp::Retry(Due::Now)).await.unwrap();
    let job = ctx.get(lease.job).await.unwrap();
    assert_eq!((job.result, job.outputs.len(), job.progress), (None, 0, None));
    ctx.work_one("w", "q").await;
    let job = ctx.get(lease.job).await.unwrap();
    assert_eq!((job.state, job.result, job.outputs.len()), (State::Succeeded, None, 0));
}

fn detailed(message: &str, detail: serde_json::Value, retry: Retry) -> OutcomeKind {
    let failure = Failure { detail: Some(detail), ..Failure::new(FailureClass::Error, message) };
    OutcomeKind::Fail { failure, retry }
}

async fn a_failure_keeps_its_detail(ctx: Ctx) {
    let lease = leased(&ctx).await;
    let odd = serde_json::json!({ "code": 5, "ünï \\ \n \"": ["\\", "\\ ", "\u{1}", null, 1.5] });
    let message = "no \\ {\"a\": 1} \\\\ \n";
    ctx.report("w", lease, detailed(message, odd.clone(), Retry::AfterMs(0))).await.unwrap();
    let lease = ctx.claim_one("w", "q").await.lease;
    ctx.report("w", lease, crate::ctx::fail("plain \\ [1]", Retry::Never)).await.unwrap();
    let failures = ctx.get(lease.job).await.unwrap().failures;
    let found: Vec<_> = failures.iter().map(|failure| (failure.message.as_str(), failure.detail.as_ref())).collect();
    assert_eq!(found, [(message, Some(&odd)), ("plain \\ [1]", None)]);
}

async fn a_detail_that_is_too_large_is_left_out(ctx: Ctx) {
    let text = |bytes: usize| serde_json::Value::String("x".repeat(bytes - 2));
    let lease = leased(&ctx).await;
    let (most, more) = (text(FAILURE_DETAIL_BYTES_MAX), text(FAILURE_DETAIL_BYTES_MAX + 1));
    ctx.report("w", lease, detailed("a", more, Retry::AfterMs(0))).await.unwrap();
    let lease = ctx.claim_one("w", "q").await.lease;
    ctx.report("w", lease, detailed("b", most.clone(), Retry::Never)).await.unwrap();
    let failures = ctx.get(lease.job).await.unwrap().failures;
    assert_eq!((&failures[0].detail, &failures[1].detail), (&None, &Some(most)));
    assert!(failures[0].message.starts_with("a (its detail of 16385 bytes was left out"), "{}", failures[0].message);
    assert_eq!(failures[1].message, "b");
}

async fn the_detail_of_the_last_failure_reaches_the_run(ctx: Ctx) {
    let run = awake(&ctx);
    let id = run.id;
    create(&ctx, run).await.unwrap();
    let held = claim_by_id(&ctx, id).await.unwrap();
    let jobs = vec![job_of(&ctx, id), job_of(&ctx, id)];
    commit(&ctx, &held, RunStep { jobs, ..RunStep::nothing() }).await.unwrap();
    let jobs = ctx.claim("w", "q", 2).await;
    let detail = serde_json::json!({ "code": [5, "\\ \n"] });
    ctx.report("w", jobs[0].lease, detailed("a \n b", detail.clone(), Retry::Never)).await.unwrap();
    ctx.report("w", jobs[1].lease, crate::ctx::fail("c", Retry::Never)).await.unwrap();
    let claimed = claim_by_id(&ctx, id).await.unwrap();
    let ends = claimed.inbox.iter().map(|item| match &item.item {
        RunItem::JobEnded(end) => (end.error.as_deref(), end.detail.clone()),
        other => panic!("{other:?}"),
    });
    assert_eq!(ends.collect::<Vec<_>>(), [(Some("a \n b"), Some(detail)), (Some("c"), None)]);
}
