//! Logs of jobs.

use crate::ctx::Ctx;
use crate::runner::cases;
use windlass_core::Error;
use windlass_core::Result;
use windlass_core::id::JobId;
use windlass_core::job::{Lease, Retry};
use windlass_core::store::{
    ChangeOp, LOG_LINE_BYTES_MAX, LOG_LINES_MAX, LogAppend, LogLine, LogPage, LogRequest, LogStream,
};

cases!("logs":
    lines_come_back_as_they_were,
    only_the_current_lease_may_append,
    a_repeated_append_changes_nothing,
    an_overlapping_append_adds_what_is_new,
    a_gap_is_refused,
    attempts_are_kept_apart,
    lines_are_paged,
    a_line_need_not_be_text,
    a_line_has_a_limit,
    slow_beyond_the_limit_the_oldest_lines_go,
    logs_go_with_their_job,
    a_batch_of_appends_is_answered_item_by_item,
    appends_without_lines_tell_the_next_number,
);

fn line(text: &str) -> LogLine {
    bytes_line(text.as_bytes())
}

fn bytes_line(text: &[u8]) -> LogLine {
    let at = windlass_core::time::Timestamp::from_ms(1_700_000_000_123);
    LogLine { at, stream: LogStream::Stdout, text: text.to_vec().into() }
}

async fn append(ctx: &Ctx, lease: Lease, first: u64, lines: Vec<LogLine>) -> Result<u64> {
    ctx.store.append_logs(vec![LogAppend { lease, first, lines }]).await.unwrap().remove(0)
}

async fn read(ctx: &Ctx, job: JobId, from: u64, limit: u32) -> LogPage {
    ctx.store.read_logs(LogRequest { job, from, limit }).await.unwrap()
}

async fn texts(ctx: &Ctx, job: JobId) -> Vec<String> {
    let lines = read(ctx, job, 0, 10_000).await.lines;
    lines.into_iter().map(|(_, line)| String::from_utf8_lossy(&line.text).into_owned()).collect()
}

async fn leased(ctx: &Ctx) -> Lease {
    ctx.enqueue(ctx.job("q", "work")).await;
    ctx.claim_one("w", "q").await.lease
}

async fn lines_come_back_as_they_were(ctx: Ctx) {
    let lease = leased(&ctx).await;
    let at = ctx.now().await;
    let streams = [LogStream::Log, LogStream::Stdout, LogStream::Stderr];
    let lines: Vec<LogLine> = streams.map(|stream| LogLine { at, stream, text: "über 漢字\ttab".into() }).into();
    assert_eq!(append(&ctx, lease, 0, lines.clone()).await.unwrap(), 3);
    let page = read(&ctx, lease.job, 0, 10).await;
    assert_eq!((page.first, page.next), (0, 3));
    assert_eq!(page.lines, lines.into_iter().map(|line| (1, line)).collect::<Vec<_>>());
}

async fn only_the_current_lease_may_append(ctx: Ctx) {
    ctx.enqueue(ctx.job("q", "work")).await;
    let old = ctx.claim_short("w", "q", 50).await.lease;
    append(&ctx, old, 0, vec![line("mine")]).await.unwrap();
    ctx.expire(50).await;
    assert_eq!(append(&ctx, old, 1, vec![line("late")]).await, Err(Error::LeaseLost));
    let new = ctx.claim_one("w2", "q").await.lease;
    let forged = Lease { token: old.token, ..new };
    assert_eq!(append(&ctx, forged, 1, vec![line("forged")]).await, Err(Error::LeaseLost));
    assert_eq!(append(&ctx, old, 1, vec![]).await, Err(Error::LeaseLost), "not even to ask");
    ctx.complete("w2", new).await.unwrap();
    assert_eq!(append(&ctx, new, 1, vec![line("after")]).await, Err(Error::LeaseLost));
    let unknown = Lease { job: ctx.ids.next(), ..new };
    assert_eq!(append(&ctx, unknown, 0, vec![line("nobody")]).await, Err(Error::LeaseLost));
    assert_eq!(texts(&ctx, new.job).await, ["mine"]);
}

async fn a_repeated_append_changes_nothing(ctx: Ctx) {
    let lease = leased(&ctx).await;
    let lines = vec![line("a"), line("b")];
    for _ in 0..3 {
        assert_eq!(append(&ctx, lease, 0, lines.clone()).await.unwrap(), 2);
    }
    assert_eq!(texts(&ctx, lease.job).await, ["a", "b"]);
}

async fn an_overlapping_append_adds_what_is_new(ctx: Ctx) {
    let lease = leased(&ctx).await;
    append(&ctx, lease, 0, vec![line("a"), line("b")]).await.unwrap();
    assert_eq!(append(&ctx, lease, 1, vec![line("other"), line("c"), line("d")]).await.unwrap(), 4);
    assert_eq!(append(&ctx, lease, 0, vec![line("x")]).await.unwrap(), 4);
    assert_eq!(texts(&ctx, lease.job).await, ["a", "b", "c", "d"], "what is there stays");
}

async fn a_gap_is_refused(ctx: Ctx) {
    let lease = leased(&ctx).await;
    for first in [1, 7, u64::MAX] {
        let refused = append(&ctx, lease, first, vec![line("a")]).await;
        assert!(matches!(refused, Err(Error::Invalid { .. })), "{refused:?}");
    }
    assert_eq!(append(&ctx, lease, 0, vec![line("a")]).await.unwrap(), 1);
    assert!(append(&ctx, lease, 2, vec![line("c")]).await.is_err());
    assert_eq!(texts(&ctx, lease.job).await, ["a"]);
}

async fn attempts_are_kept_apart(ctx: Ctx) {
    let first = leased(&ctx).await;
    append(&ctx, first, 0, vec![line("a"), line("b")]).await.unwrap();
    ctx.fail("w", first, Retry::AfterMs(0)).await.unwrap();
    let second = ctx.claim_one("w", "q").await.lease;
    let next = append(&ctx, second, 0, vec![]).await.unwrap();
    assert_eq!(next, 2, "a new attempt goes on where the last one ended");
    append(&ctx, second, next, vec![line("c")]).await.unwrap();
    let page = read(&ctx, first.job, 0, 10).await;
    let lines: Vec<_> = page.lines.iter().map(|(attempt, line)| (*attempt, line.text.to_vec())).collect();
    assert_eq!(lines, [(1, b"a".to_vec()), (1, b"b".to_vec()), (2, b"c".to_vec())]);
}

async fn lines_are_paged(ctx: Ctx) {
    let lease = leased(&ctx).await;
    append(&ctx, lease, 0, (0..25).map(|n| line(&n.to_string())).collect()).await.unwrap();
    let (mut from, mut got) = (0, Vec::new());
    for _ in 0..3 {
        let page = read(&ctx, lease.job, from, 10).await;
        assert_eq!((page.first, page.next), (from, 25));
        from += page.lines.len() as u64;
        got.extend(page.lines.into_iter().map(|(_, line)| String::from_utf8(line.text.to_vec()).unwrap()));
    }
    assert_eq!(got, (0..25).map(|n| n.to_string()).collect::<Vec<_>>());
    let beyond = read(&ctx, lease.job, 100, 10).await;
    assert_eq!((beyond.lines.len(), beyond.next), (0, 25));
    for limit in [0, 10_001] {
        assert!(ctx.store.read_logs(LogRequest { job: lease.job, from: 0, limit }).await.is_err());
    }
    let unknown = LogRequest { job: ctx.ids.next(), from: 0, limit: 10 };
    assert!(ctx.store.read_logs(unknown).await.unwrap_err().is_not_found());
}

async fn a_line_need_not_be_text(ctx: Ctx) {
    let lease = leased(&ctx).await;
    let lines = vec![bytes_line(&[0xff, 0xfe, 0x00, 0x80]), bytes_line(&(0..=255).collect::<Vec<u8>>()), line("")];
    append(&ctx, lease, 0, lines.clone()).await.unwrap();
    let page = read(&ctx, lease.job, 0, 10).await;
    assert_eq!(page.lines.into_iter().map(|(_, line)| line).collect::<Vec<_>>(), lines);
}

async fn a_line_has_a_limit(ctx: Ctx) {
    let lease = leased(&ctx).await;
    let long = bytes_line(&vec![b'x'; LOG_LINE_BYTES_MAX]);
    assert_eq!(append(&ctx, lease, 0, vec![long.clone()]).await.unwrap(), 1);
    let too_long = bytes_line(&vec![b'x'; LOG_LINE_BYTES_MAX + 1]);
    let refused = append(&ctx, lease, 1, vec![line("short"), too_long]).await;
    assert!(matches!(refused, Err(Error::Limit { .. })), "{refused:?}");
    let page = read(&ctx, lease.job, 0, 10).await;
    assert_eq!(page.lines, [(1, long)], "nothing of a refused append is kept");
}

async fn slow_beyond_the_limit_the_oldest_lines_go(ctx: Ctx) {
    let lease = leased(&ctx).await;
    let total = LOG_LINES_MAX + 5_000;
    let mut next = 0;
    while next < total {
        let count = 10_000.min(total - next);
        next = append(&ctx, lease, next, (next..next + count).map(|n| line(&n.to_string())).collect()).await.unwrap();
    }
    assert_eq!(next, total);
    let page = read(&ctx, lease.job, 0, 2).await;
    assert_eq!((page.first, page.next), (total - LOG_LINES_MAX, total), "the answer says where it begins");
    assert_eq!(page.lines[0].1, line(&page.first.to_string()));
    let end = read(&ctx, lease.job, total - 1, 10).await;
    assert_eq!(end.lines, [(1, line(&(total - 1).to_string()))]);
    assert_eq!(append(&ctx, lease, 0, vec![line("0")]).await.unwrap(), total, "a late repetition is still recognised");
}

async fn logs_go_with_their_job(ctx: Ctx) {
    let lease = leased(&ctx).await;
    append(&ctx, lease, 0, vec![line("a")]).await.unwrap();
    ctx.complete("w", lease).await.unwrap();
    assert_eq!(texts(&ctx, lease.job).await, ["a"], "they stay as long as the job");
    ctx.change(lease.job, ChangeOp::Remove).await.unwrap();
    let gone = ctx.store.read_logs(LogRequest { job: lease.job, from: 0, limit: 10 }).await;
    assert!(gone.unwrap_err().is_not_found());
}

async fn a_batch_of_appends_is_answered_item_by_item(ctx: Ctx) {
    ctx.enqueue_plain("q", 2).await;
    let jobs = ctx.claim("w", "q", 2).await;
    let one = |lease, first| LogAppend { lease, first, lines: vec![line("x")] };
    let lost = Lease { job: ctx.ids.next(), ..jobs[0].lease };
    let appends = vec![one(jobs[0].lease, 0), one(lost, 0), one(jobs[1].lease, 5), one(jobs[0].lease, 1)];
    let answers = ctx.store.append_logs(appends).await.unwrap();
    assert_eq!((answers[0].clone(), answers[1].clone(), answers[3].clone()), (Ok(1), Err(Error::LeaseLost), Ok(2)));
    assert!(matches!(answers[2], Err(Error::Invalid { .. })));
    let too_many = vec![LogAppend { lease: jobs[0].lease, first: 2, lines: vec![line("x"); 10_001] }];
    assert!(matches!(ctx.store.append_logs(too_many).await, Err(Error::Limit { .. })));
    assert_eq!(ctx.store.append_logs(vec![]).await.unwrap(), []);
}

async fn appends_without_lines_tell_the_next_number(ctx: Ctx) {
    let lease = leased(&ctx).await;
    assert_eq!(append(&ctx, lease, 99, vec![]).await.unwrap(), 0);
    append(&ctx, lease, 0, vec![line("a")]).await.unwrap();
    assert_eq!(append(&ctx, lease, 0, vec![]).await.unwrap(), 1);
}
