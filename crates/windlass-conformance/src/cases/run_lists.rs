//! Runs in listings, in the feed, and under load.

use super::run_help::{claim_run, commit, inbox_jobs, job_of, new_run, read, step};
use crate::ctx::Ctx;
use crate::runner::cases;
use windlass_core::Error;
use windlass_core::id::RunId;
use windlass_core::job::Due;
use windlass_core::store::{
    BATCH_MAX, FeedCursor, FeedEvent, FeedRequest, INBOX_ITEMS_MAX, ListOrder, NewRun, RUN_ENTRY_BYTES_MAX,
    RUN_READ_BYTES_MAX, RunList, RunRead, RunState, RunStep,
};

cases!("run_lists":
    runs_are_listed_by_age_and_state,
    a_listing_is_paged_and_its_cursor_is_checked,
    history_is_read_in_parts,
    a_large_history_is_read_in_several_reads,
    the_feed_tells_of_runs,
    a_removed_run_leaves_nothing,
    a_long_inbox_is_handed_out_in_parts,
    what_is_too_large_is_refused,
    a_large_step_is_made_at_once,
    definitions_are_told_apart_by_their_hash,
);

async fn create(ctx: &Ctx, name: &str, state: RunState) -> RunId {
    let mut run = new_run(ctx, name);
    run.step.state = state;
    ctx.store.create_runs(vec![run.clone()]).await.unwrap().remove(0).unwrap();
    run.id
}

fn list(state: Option<RunState>, limit: u32) -> RunList {
    RunList { state, ..RunList::new(limit) }
}

async fn names(ctx: &Ctx, request: RunList) -> Vec<String> {
    ctx.store.list_runs(request).await.unwrap().runs.into_iter().map(|run| run.name).collect()
}

async fn runs_are_listed_by_age_and_state(ctx: Ctx) {
    create(&ctx, "a", RunState::Running).await;
    create(&ctx, "b", RunState::Failed).await;
    create(&ctx, "c", RunState::Running).await;
    let d = create(&ctx, "d", RunState::Failed).await;
    assert_eq!(names(&ctx, list(None, 10)).await, ["a", "b", "c", "d"]);
    assert_eq!(names(&ctx, list(Some(RunState::Failed), 10)).await, ["b", "d"]);
    assert_eq!(names(&ctx, list(Some(RunState::Cancelled), 10)).await, Vec::<String>::new());
    let newest = RunList { order: ListOrder::Descending, ..list(None, 2) };
    assert_eq!(names(&ctx, newest).await, ["d", "c"]);
    let again = windlass_core::store::RunMessage { reopens: true, ..windlass_core::store::RunMessage::new(d, "") };
    ctx.store.send_to_runs(vec![again]).await.unwrap().remove(0).unwrap();
    assert_eq!(names(&ctx, list(Some(RunState::Running), 10)).await, ["a", "c", "d"]);
    assert_eq!(names(&ctx, list(Some(RunState::Failed), 10)).await, ["b"]);
}

async fn a_listing_is_paged_and_its_cursor_is_checked(ctx: Ctx) {
    for n in 0..7 {
        create(&ctx, &format!("run {n}"), RunState::Running).await;
    }
    for order in [ListOrder::Ascending, ListOrder::Descending] {
        let mut seen = Vec::new();
        let mut request = RunList { order, ..list(None, 3) };
        loop {
            let page = ctx.store.list_runs(request.clone()).await.unwrap();
            seen.extend(page.runs.into_iter().map(|run| run.name));
            match page.cursor {
                Some(cursor) => request.cursor = Some(cursor),
                None => break,
            }
        }
        let mut all: Vec<String> = (0..7).map(|n| format!("run {n}")).collect();
        if order == ListOrder::Descending {
            all.reverse();
        }
        assert_eq!(seen, all);
    }
    let cursor = ctx.store.list_runs(list(None, 3)).await.unwrap().cursor;
    let of_another = RunList { state: Some(RunState::Running), cursor: cursor.clone(), ..list(None, 3) };
    let nonsense = RunList { cursor: Some("nonsense".to_owned()), ..list(None, 3) };
    let none = list(None, 0);
    let many = list(None, u32::MAX);
    for request in [of_another, nonsense, none, many] {
        let refused = ctx.store.list_runs(request).await;
        assert!(matches!(refused, Err(Error::Invalid { .. } | Error::Limit { .. })), "{refused:?}");
    }
}

async fn history_is_read_in_parts(ctx: Ctx) {
    let mut run = new_run(&ctx, "long");
    let texts: Vec<String> = (0..2_500).map(|n| format!("e{n}")).collect();
    run.step = step(&texts.iter().map(String::as_str).collect::<Vec<_>>());
    ctx.store.create_runs(vec![run.clone()]).await.unwrap().remove(0).unwrap();
    let part = |history_from, history_max| RunRead { history_from, history_max, ..RunRead::brief(run.id) };
    let reads = vec![part(0, 2), part(2_498, 10), part(2_500, 10), part(9_999, 1), part(0, 0), part(1_000, 1_200)];
    let answers = ctx.store.read_runs(reads).await.unwrap();
    let histories: Vec<_> = answers.into_iter().map(|view| view.unwrap().history).collect();
    assert_eq!(histories[0], run.step.history[..2]);
    assert_eq!(histories[1], run.step.history[2_498..]);
    assert!(histories[2..5].iter().all(Vec::is_empty));
    assert_eq!(histories[5], run.step.history[1_000..2_200]);
    let too_many = ctx.store.read_runs(vec![part(0, u32::MAX)]).await;
    assert!(matches!(too_many, Err(Error::Limit { .. })), "{too_many:?}");
}

async fn a_large_history_is_read_in_several_reads(ctx: Ctx) {
    let mut run = new_run(&ctx, "large");
    run.step.wake = Some(Due::Now);
    ctx.store.create_runs(vec![run.clone()]).await.unwrap().remove(0).unwrap();
    let (large, small) = ("x".repeat(RUN_READ_BYTES_MAX / 5), "y");
    for n in 0..6 {
        let claimed = claim_run(&ctx).await;
        let history = vec![format!("{n}{large}").into(), small.into()];
        let next = RunStep { history, wake: Some(Due::Now), ..RunStep::nothing() };
        commit(&ctx, &claimed, next).await.unwrap();
    }
    let part = |history_from| RunRead { history_from, history_max: 1_000, ..RunRead::brief(run.id) };
    let (mut parts, mut from) = (Vec::new(), 0);
    while from < 13 {
        let view = ctx.store.read_runs(vec![part(from)]).await.unwrap().remove(0).unwrap();
        let bytes: usize = view.history.iter().map(bytes::Bytes::len).sum();
        assert!(bytes <= RUN_READ_BYTES_MAX && !view.history.is_empty(), "{bytes} bytes");
        from += view.history.len() as u64;
        parts.push(view.history.len());
    }
    assert_eq!(parts, [9, 4], "the first entry, and pairs of large and small ones");
    let view = ctx.store.read_runs(vec![part(9)]).await.unwrap().remove(0).unwrap();
    assert!(view.history[0].starts_with(b"4xx"), "{:?}", &view.history[0][..9]);
}

async fn the_feed_tells_of_runs(ctx: Ctx) {
    let start = ctx.store.read_feed(FeedRequest { after: None, max: 1 }).await.unwrap().next;
    let mut run = new_run(&ctx, "build");
    run.step.wake = Some(Due::Now);
    ctx.store.create_runs(vec![run.clone()]).await.unwrap().remove(0).unwrap();
    let claimed = claim_run(&ctx).await;
    commit(&ctx, &claimed, RunStep { state: RunState::Succeeded, ..step(&["a", "b"]) }).await.unwrap();
    ctx.store.remove_runs(vec![run.id]).await.unwrap().remove(0).unwrap();
    let told = changes(&ctx, start).await;
    let expected = [(Some(RunState::Running), 1), (Some(RunState::Succeeded), 3), (None, 3)]
        .map(|(state, len)| (run.id, state, len));
    assert_eq!(told, expected);
}

async fn changes(ctx: &Ctx, after: FeedCursor) -> Vec<(RunId, Option<RunState>, u64)> {
    let page = ctx.store.read_feed(FeedRequest { after: Some(after), max: 100 }).await.unwrap();
    let events = page.entries.into_iter().flat_map(|entry| entry.events);
    let change = |event| match event {
        FeedEvent::Run(change) => Some((change.run, change.state, change.history_len)),
        _ => None,
    };
    events.filter_map(change).collect()
}

async fn a_removed_run_leaves_nothing(ctx: Ctx) {
    let id = create(&ctx, "a", RunState::Failed).await;
    ctx.store.remove_runs(vec![id]).await.unwrap().remove(0).unwrap();
    assert_eq!(ctx.store.read_runs(vec![RunRead::brief(id)]).await.unwrap(), [None]);
    assert!(names(&ctx, list(None, 10)).await.is_empty());
    assert!(names(&ctx, list(Some(RunState::Failed), 10)).await.is_empty());
    // The same id is free for another one, which inherits nothing.
    let other = NewRun { id, input: "other".into(), ..new_run(&ctx, "b") };
    ctx.store.create_runs(vec![other]).await.unwrap().remove(0).unwrap();
    let view = read(&ctx, id).await;
    assert_eq!((view.history.len(), view.run.inbox_len), (1, 0));
}

async fn a_long_inbox_is_handed_out_in_parts(ctx: Ctx) {
    let mut run = new_run(&ctx, "wide");
    let n = INBOX_ITEMS_MAX + 200;
    run.step.jobs = (0..n).map(|_| job_of(&ctx, run.id)).collect();
    ctx.store.create_runs(vec![run.clone()]).await.unwrap().remove(0).unwrap();
    let mut done = Vec::new();
    while done.len() < n {
        for job in ctx.claim("w", "q", 500).await {
            ctx.complete("w", job.lease).await.unwrap();
            done.push(job.lease.job);
        }
    }
    let claimed = claim_run(&ctx).await;
    let mut told = inbox_jobs(&claimed);
    assert_eq!(told.len(), INBOX_ITEMS_MAX);
    commit(&ctx, &claimed, step(&["a"])).await.unwrap();
    let claimed = claim_run(&ctx).await;
    told.extend(inbox_jobs(&claimed));
    assert_eq!(told, done, "in their order");
}

async fn what_is_too_large_is_refused(ctx: Ctx) {
    let big = |bytes: usize| "x".repeat(bytes);
    let mut runs: Vec<NewRun> = (0..5).map(|_| new_run(&ctx, "a")).collect();
    runs[0].definition = big((16 << 20) + 1).into();
    runs[1].input = big((4 << 20) + 1).into();
    runs[2].name = big(4_097);
    runs[3].step.history = vec![big(RUN_ENTRY_BYTES_MAX + 1).into()];
    runs[4].step.summary = big(4_097);
    let ids: Vec<RunId> = runs.iter().map(|run| run.id).collect();
    for answer in ctx.store.create_runs(runs).await.unwrap() {
        assert!(matches!(answer, Err(Error::Limit { .. })), "{answer:?}");
    }
    let reads = ids.into_iter().map(RunRead::brief).collect();
    assert!(ctx.store.read_runs(reads).await.unwrap().iter().all(Option::is_none));
    let run = new_run(&ctx, "a");
    let many = ctx.store.create_runs(vec![run; BATCH_MAX + 1]).await;
    assert!(matches!(many, Err(Error::Limit { .. })), "{many:?}");
}

async fn a_large_step_is_made_at_once(ctx: Ctx) {
    let mut run = new_run(&ctx, "large");
    run.definition = "d".repeat(1 << 20).into();
    run.step.jobs = (0..1_500).map(|_| job_of(&ctx, run.id)).collect();
    ctx.store.create_runs(vec![run.clone()]).await.unwrap().remove(0).unwrap();
    assert_eq!(ctx.counts("q").await.ready, 1_500);
    assert_eq!(read(&ctx, run.id).await.definition, Some(run.definition));
}

async fn definitions_are_told_apart_by_their_hash(ctx: Ctx) {
    let mut runs: Vec<NewRun> = (0..3).map(|_| new_run(&ctx, "a")).collect();
    runs[2].definition = "{}".into();
    runs.iter_mut().for_each(|run| run.step.wake = Some(Due::Now));
    let hashes: Vec<[u8; 16]> = runs.iter().map(NewRun::definition_hash).collect();
    ctx.store.create_runs(runs).await.unwrap();
    let claimed = super::run_help::claim_runs(&ctx, 3).await;
    let told: Vec<[u8; 16]> = claimed.iter().map(|run| run.definition_hash).collect();
    assert_eq!(told, hashes, "in the order of their creation");
    assert_eq!(hashes[0], hashes[1]);
    assert_ne!(hashes[0], hashes[2]);
}
