//! Listing runs by kind, label, parent, time, and whether they are stuck.

use super::run_help::{awake, claim_by_id, commit, create, message, send, step};
use crate::ctx::Ctx;
use crate::runner::cases;
use std::collections::BTreeMap;
use windlass_core::Error;
use windlass_core::id::RunId;
use windlass_core::name::Kind;
use windlass_core::store::{ListOrder, NewRun, RUN_SCAN_MAX, RunLabel, RunList, RunMessage, RunState, RunStep};

cases!("run_filters":
    runs_are_listed_by_kind,
    runs_are_listed_by_label_and_parent,
    runs_are_listed_by_whether_they_are_stuck,
    runs_are_listed_by_the_time_of_their_creation,
    filters_hold_together,
    a_page_with_a_filter_looks_at_a_bounded_number_of_runs,
    a_cursor_answers_no_other_question,
    filters_that_cannot_be_meant_are_refused,
);

async fn create_all(ctx: &Ctx, runs: Vec<NewRun>) -> Vec<RunId> {
    let ids = runs.iter().map(|run| run.id).collect();
    for answer in ctx.store.create_runs(runs).await.unwrap() {
        answer.unwrap();
    }
    ids
}

/// The runs of all pages, and how many pages there were.
async fn pages(ctx: &Ctx, list: RunList) -> (Vec<RunId>, usize) {
    let (mut found, mut cursor, mut count) = (Vec::new(), None, 0);
    loop {
        let page = ctx.store.list_runs(RunList { cursor, ..list.clone() }).await.unwrap();
        assert!(page.runs.len() <= list.limit as usize);
        found.extend(page.runs.iter().map(|run| run.id));
        count += 1;
        cursor = page.cursor;
        if cursor.is_none() {
            return (found, count);
        }
    }
}

async fn found(ctx: &Ctx, list: RunList) -> Vec<RunId> {
    let all = pages(ctx, list.clone()).await.0;
    for limit in [1, 2] {
        assert_eq!(pages(ctx, RunList { limit, ..list.clone() }).await.0, all);
    }
    let mut back = pages(ctx, RunList { order: ListOrder::Descending, ..list }).await.0;
    back.reverse();
    assert_eq!(back, all);
    all
}

fn all() -> RunList {
    RunList::new(100)
}

fn label(name: &str, value: &str) -> Option<RunLabel> {
    Some(RunLabel { name: name.to_owned(), value: value.to_owned() })
}

async fn runs_are_listed_by_kind(ctx: Ctx) {
    let kinds = ["order", "order@1", "order@2", "orders@1", "order2", "@order"];
    let new = kinds.iter().map(|kind| NewRun { kind: Kind::new(*kind).unwrap(), ..awake(&ctx) }).collect();
    let ids = create_all(&ctx, new).await;
    let of = |kind: &str| RunList { kind: Some(kind.to_owned()), ..all() };
    assert_eq!(found(&ctx, of("order")).await, ids[..3]);
    assert_eq!(found(&ctx, of("order@1")).await, ids[1..2]);
    assert_eq!(found(&ctx, of("orders")).await, ids[3..4]);
    assert_eq!(found(&ctx, of("ord")).await, []);
    assert_eq!(found(&ctx, of("order@")).await, []);
}

async fn runs_are_listed_by_label_and_parent(ctx: Ctx) {
    let parent = ctx.ids.next_run();
    let labels = |value: &str| BTreeMap::from([("tenant".to_owned(), value.to_owned())]);
    let ids = create_all(
        &ctx,
        vec![
            NewRun { labels: labels("acme"), ..awake(&ctx) },
            NewRun { labels: labels("acme"), parent: Some(parent), ..awake(&ctx) },
            NewRun { labels: labels("beta"), parent: Some(parent), ..awake(&ctx) },
            awake(&ctx),
        ],
    )
    .await;
    assert_eq!(found(&ctx, RunList { label: label("tenant", "acme"), ..all() }).await, ids[..2]);
    assert_eq!(found(&ctx, RunList { label: label("tenant", "ac"), ..all() }).await, []);
    assert_eq!(found(&ctx, RunList { label: label("acme", "tenant"), ..all() }).await, []);
    assert_eq!(found(&ctx, RunList { parent: Some(parent), ..all() }).await, ids[1..3]);
    let both = RunList { parent: Some(parent), label: label("tenant", "acme"), ..all() };
    assert_eq!(found(&ctx, both).await, ids[1..2]);
    // A step changes where a run is found.
    let claimed = claim_by_id(&ctx, ids[0]).await.unwrap();
    commit(&ctx, &claimed, RunStep { labels: Some(labels("beta")), ..step(&["a"]) }).await.unwrap();
    assert_eq!(found(&ctx, RunList { label: label("tenant", "beta"), ..all() }).await, [ids[0], ids[2]]);
}

async fn runs_are_listed_by_whether_they_are_stuck(ctx: Ctx) {
    let parked = |ctx: &Ctx| NewRun { step: RunStep { stuck: Some("odd".to_owned()), ..step(&[]) }, ..awake(ctx) };
    let ids = create_all(&ctx, vec![awake(&ctx), parked(&ctx), awake(&ctx), parked(&ctx)]).await;
    let by = |stuck| RunList { stuck: Some(stuck), ..all() };
    assert_eq!(found(&ctx, by(true)).await, [ids[1], ids[3]]);
    assert_eq!(found(&ctx, by(false)).await, [ids[0], ids[2]]);
    send(&ctx, RunMessage { reopens: true, ..message(ids[1], "go on") }).await.unwrap();
    assert_eq!(found(&ctx, by(true)).await, [ids[3]]);
}

async fn runs_are_listed_by_the_time_of_their_creation(ctx: Ctx) {
    let mut ids = Vec::new();
    let mut times = Vec::new();
    for _ in 0..3 {
        times.push(ctx.now().await);
        ids.extend(create_all(&ctx, vec![awake(&ctx)]).await);
        ctx.advance_ms(10).await;
    }
    let from = |at| RunList { created_from: Some(at), ..all() };
    let before = |at| RunList { created_before: Some(at), ..all() };
    assert_eq!(found(&ctx, from(times[1])).await, ids[1..]);
    assert_eq!(found(&ctx, before(times[1])).await, ids[..1]);
    let between = RunList { created_before: Some(times[2]), ..from(times[1]) };
    assert_eq!(found(&ctx, between).await, ids[1..2]);
}

async fn filters_hold_together(ctx: Ctx) {
    let ended = |ctx: &Ctx| NewRun { step: RunStep { state: RunState::TimedOut, ..step(&[]) }, ..awake(ctx) };
    let other = Kind::new("other").unwrap();
    let new = vec![awake(&ctx), ended(&ctx), NewRun { kind: other, ..ended(&ctx) }];
    let ids = create_all(&ctx, new).await;
    let list = RunList { state: Some(RunState::TimedOut), kind: Some("graph".to_owned()), ..all() };
    assert_eq!(found(&ctx, list).await, [ids[1]]);
    let list = RunList { state: Some(RunState::TimedOut), ..all() };
    assert_eq!(found(&ctx, list).await, ids[1..]);
}

async fn a_page_with_a_filter_looks_at_a_bounded_number_of_runs(ctx: Ctx) {
    let labels = BTreeMap::from([("rare".to_owned(), "yes".to_owned())]);
    let many = RUN_SCAN_MAX + 500;
    let mut ids = Vec::new();
    for first in (0..many).step_by(500) {
        let rare = |n: usize| if n + 1 == many { labels.clone() } else { BTreeMap::new() };
        let new = (first..first + 500).map(|n| NewRun { labels: rare(n), ..awake(&ctx) }).collect();
        ids.extend(create_all(&ctx, new).await);
    }
    let list = RunList { label: label("rare", "yes"), ..all() };
    let first = ctx.store.list_runs(list.clone()).await.unwrap();
    assert!(first.runs.is_empty() && first.cursor.is_some(), "a short page carries a cursor");
    assert_eq!(pages(&ctx, list.clone()).await, (vec![ids[many - 1]], 2));
    let back = RunList { order: ListOrder::Descending, limit: 1, ..list };
    let first = ctx.store.list_runs(back).await.unwrap();
    assert_eq!(first.runs.len(), 1);
    assert!(first.cursor.is_some(), "there are more runs behind it");
}

async fn a_cursor_answers_no_other_question(ctx: Ctx) {
    create_all(&ctx, vec![awake(&ctx), awake(&ctx), awake(&ctx)]).await;
    let list = RunList { kind: Some("graph".to_owned()), limit: 1, ..all() };
    let cursor = ctx.store.list_runs(list.clone()).await.unwrap().cursor;
    assert!(cursor.is_some());
    let parent = Some(ctx.ids.next_run());
    let at = Some(ctx.now().await);
    let others = [
        RunList { kind: Some("other".to_owned()), ..list.clone() },
        RunList { kind: None, ..list.clone() },
        RunList { stuck: Some(false), ..list.clone() },
        RunList { parent, ..list.clone() },
        RunList { label: label("a", "b"), ..list.clone() },
        RunList { created_from: at, ..list.clone() },
        RunList { created_before: at, ..list.clone() },
        RunList { state: Some(RunState::Running), ..list.clone() },
        RunList { order: ListOrder::Descending, ..list.clone() },
    ];
    for other in others {
        let refused = ctx.store.list_runs(RunList { cursor: cursor.clone(), ..other }).await;
        assert!(matches!(refused, Err(Error::Invalid { .. })), "{refused:?}");
    }
    ctx.store.list_runs(RunList { cursor, ..list }).await.unwrap();
}

async fn filters_that_cannot_be_meant_are_refused(ctx: Ctx) {
    let wrong = [
        RunList { kind: Some(String::new()), ..all() },
        RunList { kind: Some("a\nb".to_owned()), ..all() },
        RunList { label: label("", "x"), ..all() },
        RunList { label: label(&"x".repeat(65), "x"), ..all() },
        RunList { label: label("a", "\u{1}"), ..all() },
        RunList { limit: 0, ..all() },
    ];
    for wrong in wrong {
        let refused = ctx.store.list_runs(wrong).await;
        assert!(matches!(refused, Err(Error::Invalid { .. } | Error::Limit { .. })), "{refused:?}");
    }
    let run = awake(&ctx);
    create(&ctx, run).await.unwrap();
}
