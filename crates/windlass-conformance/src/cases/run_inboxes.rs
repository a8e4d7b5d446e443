//! What commits take from inboxes: single items, all items before a number, and only after all messages were read.

use super::run_help::{
    LEASE_MS, awake, claim_by_id, commit, commit_of, commit_this, create, job_of, message, refused_commit, send, step,
    texts, views,
};
use crate::ctx::Ctx;
use crate::runner::cases;
use windlass_core::Error;
use windlass_core::id::RunId;
use windlass_core::store::{
    BATCH_MAX, ClaimedRun, INBOX_ITEMS_MAX, NewRun, RunCommit, RunRead, RunRenewal, RunState, RunStep,
};

cases!("run_inboxes":
    a_commit_takes_single_items,
    numbers_that_are_gone_are_ignored,
    an_inbox_begins_with_the_oldest_item_that_is_left,
    an_inbox_of_which_all_single_items_were_taken_is_empty,
    single_items_and_a_prefix_are_taken_together,
    a_repeated_commit_takes_nothing_more,
    wrong_numbers_are_refused,
    what_comes_while_items_are_taken_is_kept,
    a_renewal_passes_over_holes,
    a_commit_that_requires_read_messages_is_refused,
    ends_of_jobs_and_items_that_a_step_brings_are_no_messages,
    a_long_list_is_taken_at_once,
    a_read_returns_items_and_takes_none,
    a_read_passes_over_holes,
    a_long_inbox_comes_in_several_reads,
);

/// A claimed run with messages of one letter each.
async fn with_items(ctx: &Ctx, bodies: &str) -> ClaimedRun {
    let run = NewRun { step: step(&["begun"]), ..awake(ctx) };
    create(ctx, run.clone()).await.unwrap();
    send_all(ctx, run.id, bodies).await;
    let claimed = held(ctx, run.id).await;
    assert_eq!(claimed.inbox_to, bodies.len() as u64);
    claimed
}

async fn send_all(ctx: &Ctx, run: RunId, bodies: &str) {
    for body in bodies.chars() {
        send(ctx, message(run, &body.to_string())).await.unwrap();
    }
}

async fn held(ctx: &Ctx, run: RunId) -> ClaimedRun {
    claim_by_id(ctx, run).await.expect("it is free")
}

/// A commit that takes these items and nothing else.
fn taking(claimed: &ClaimedRun, numbers: &[u64]) -> RunCommit {
    RunCommit { inbox_to: 0, inbox_taken: numbers.to_vec(), ..commit_of(claimed, step(&["a"])) }
}

/// The numbers and the letters of an inbox.
fn shown(claimed: &ClaimedRun) -> (Vec<u64>, String) {
    (claimed.inbox.iter().map(|item| item.number).collect(), texts(&claimed.inbox).concat())
}

async fn inbox_len(ctx: &Ctx, run: RunId) -> u64 {
    views(ctx, &[run]).await[0].as_ref().unwrap().run.inbox_len
}

async fn a_commit_takes_single_items(ctx: Ctx) {
    let claimed = with_items(&ctx, "abcde").await;
    let run = claimed.lease.run;
    assert_eq!(shown(&claimed), (vec![0, 1, 2, 3, 4], "abcde".to_owned()));
    commit_this(&ctx, taking(&claimed, &[1, 3])).await.unwrap();
    let view = views(&ctx, &[run]).await.remove(0).unwrap().run;
    assert_eq!((view.inbox_len, view.unread_messages), (3, 3));
    let claimed = held(&ctx, run).await;
    assert_eq!(shown(&claimed), (vec![0, 2, 4], "ace".to_owned()));
    assert_eq!((claimed.inbox_to, claimed.inbox_taken), (5, 3), "holes are no items");
    commit_this(&ctx, taking(&claimed, &[4])).await.unwrap();
    assert_eq!(shown(&held(&ctx, run).await), (vec![0, 2], "ac".to_owned()));
}

async fn numbers_that_are_gone_are_ignored(ctx: Ctx) {
    let claimed = with_items(&ctx, "abcd").await;
    let run = claimed.lease.run;
    commit_this(&ctx, taking(&claimed, &[0, 2])).await.unwrap();
    let claimed = held(&ctx, run).await;
    commit_this(&ctx, taking(&claimed, &[0, 1, 2])).await.unwrap();
    assert_eq!(inbox_len(&ctx, run).await, 1);
    assert_eq!(shown(&held(&ctx, run).await), (vec![3], "d".to_owned()));
}

async fn an_inbox_begins_with_the_oldest_item_that_is_left(ctx: Ctx) {
    let claimed = with_items(&ctx, "abcde").await;
    let run = claimed.lease.run;
    commit_this(&ctx, taking(&claimed, &[1, 2])).await.unwrap();
    commit_this(&ctx, taking(&held(&ctx, run).await, &[0])).await.unwrap();
    let claimed = held(&ctx, run).await;
    assert_eq!(shown(&claimed), (vec![3, 4], "de".to_owned()));
    assert_eq!((claimed.inbox_to, claimed.inbox_taken), (5, 2));
    // A prefix that ends in front of what is gone takes nothing.
    let nothing = RunCommit { inbox_to: 2, ..commit_of(&claimed, step(&["b"])) };
    commit_this(&ctx, nothing).await.unwrap();
    assert_eq!(inbox_len(&ctx, run).await, 2);
    send_all(&ctx, run, "f").await;
    assert_eq!(shown(&held(&ctx, run).await), (vec![3, 4, 5], "def".to_owned()));
}

async fn an_inbox_of_which_all_single_items_were_taken_is_empty(ctx: Ctx) {
    let claimed = with_items(&ctx, "abc").await;
    let run = claimed.lease.run;
    commit_this(&ctx, taking(&claimed, &[2])).await.unwrap();
    commit_this(&ctx, taking(&held(&ctx, run).await, &[0, 1])).await.unwrap();
    let view = views(&ctx, &[run]).await.remove(0).unwrap().run;
    assert_eq!((view.inbox_len, view.unread_messages), (0, 0));
    assert!(super::run_help::claim_runs(&ctx, 10).await.is_empty(), "it has nothing to do");
    send_all(&ctx, run, "d").await;
    assert_eq!(shown(&super::run_help::claim_run(&ctx).await), (vec![3], "d".to_owned()));
}

async fn single_items_and_a_prefix_are_taken_together(ctx: Ctx) {
    let claimed = with_items(&ctx, "abcdef").await;
    let run = claimed.lease.run;
    // Numbers of the prefix count once.
    let both = RunCommit { inbox_to: 2, ..taking(&claimed, &[0, 1, 3]) };
    commit_this(&ctx, both).await.unwrap();
    let view = views(&ctx, &[run]).await.remove(0).unwrap().run;
    assert_eq!((view.inbox_len, view.unread_messages), (3, 3));
    let claimed = held(&ctx, run).await;
    assert_eq!(shown(&claimed), (vec![2, 4, 5], "cef".to_owned()));
    let over_hole = RunCommit { inbox_to: 5, ..commit_of(&claimed, step(&["b"])) };
    commit_this(&ctx, over_hole).await.unwrap();
    assert_eq!(inbox_len(&ctx, run).await, 1);
    assert_eq!(shown(&held(&ctx, run).await), (vec![5], "f".to_owned()));
}

async fn a_repeated_commit_takes_nothing_more(ctx: Ctx) {
    let claimed = with_items(&ctx, "abc").await;
    let keeps = RunCommit { lease_ms: Some(LEASE_MS), ..taking(&claimed, &[1]) };
    assert!(!commit_this(&ctx, keeps.clone()).await.unwrap().repeated);
    assert!(commit_this(&ctx, keeps).await.unwrap().repeated);
    let made = RunCommit { history_len: claimed.history_len + 1, ..taking(&claimed, &[0]) };
    assert!(!commit_this(&ctx, made.clone()).await.unwrap().repeated);
    assert!(commit_this(&ctx, made).await.unwrap().repeated);
    assert_eq!(shown(&held(&ctx, claimed.lease.run).await), (vec![2], "c".to_owned()));
}

async fn wrong_numbers_are_refused(ctx: Ctx) {
    let claimed = with_items(&ctx, "abc").await;
    for wrong in [&[3][..], &[0, 99], &[u64::MAX], &[1, 0], &[1, 1]] {
        let refused = refused_commit(&ctx, taking(&claimed, wrong)).await;
        assert!(matches!(refused, Error::Invalid { .. }), "{wrong:?}: {refused:?}");
    }
    let many: Vec<u64> = (0..=BATCH_MAX as u64).collect();
    assert!(matches!(refused_commit(&ctx, taking(&claimed, &many)).await, Error::Limit { .. }));
    commit_this(&ctx, taking(&claimed, &[2])).await.unwrap();
}

async fn what_comes_while_items_are_taken_is_kept(ctx: Ctx) {
    let claimed = with_items(&ctx, "ab").await;
    let run = claimed.lease.run;
    send_all(&ctx, run, "c").await;
    let own = RunStep { messages: vec![message(run, "d")], ..step(&["a"]) };
    commit_this(&ctx, RunCommit { inbox_taken: vec![0, 1], inbox_to: 0, ..commit_of(&claimed, own) }).await.unwrap();
    let view = views(&ctx, &[run]).await.remove(0).unwrap().run;
    assert_eq!((view.inbox_len, view.unread_messages), (2, 2));
    assert_eq!(shown(&held(&ctx, run).await), (vec![2, 3], "cd".to_owned()));
}

async fn a_renewal_passes_over_holes(ctx: Ctx) {
    let claimed = with_items(&ctx, "abcde").await;
    let keeps = RunCommit { lease_ms: Some(60_000), ..taking(&claimed, &[1, 2]) };
    commit_this(&ctx, keeps).await.unwrap();
    let renewal = RunRenewal { lease: claimed.lease, lease_ms: 60_000, inbox_from: 0 };
    let renewed = ctx.store.renew_runs(vec![renewal]).await.unwrap().remove(0).unwrap();
    let numbers: Vec<u64> = renewed.inbox.iter().map(|item| item.number).collect();
    assert_eq!((numbers, renewed.inbox_to, renewed.inbox_taken), (vec![0, 3, 4], 5, 3));
    let later = RunRenewal { inbox_from: 2, ..renewal };
    let renewed = ctx.store.renew_runs(vec![later]).await.unwrap().remove(0).unwrap();
    assert_eq!((texts(&renewed.inbox).concat(), renewed.inbox_to, renewed.inbox_taken), ("de".to_owned(), 5, 2));
}

async fn a_commit_that_requires_read_messages_is_refused(ctx: Ctx) {
    let claimed = with_items(&ctx, "ab").await;
    let run = claimed.lease.run;
    send_all(&ctx, run, "cd").await;
    let ends = RunStep { state: RunState::Succeeded, ..step(&["end"]) };
    let ends = RunCommit { requires_read_messages: true, ..commit_of(&claimed, ends) };
    let refused = refused_commit(&ctx, ends.clone()).await;
    assert_eq!(refused, Error::UnreadMessages { run, unread: 2 });
    assert!(!refused.is_retryable());
    let some = RunCommit { inbox_to: 1, inbox_taken: vec![2], ..ends.clone() };
    assert_eq!(refused_commit(&ctx, some).await, Error::UnreadMessages { run, unread: 2 });
    // The lease is still held: it renews, and the messages come with the renewal.
    let renewal = RunRenewal { lease: claimed.lease, lease_ms: 60_000, inbox_from: claimed.inbox_to };
    let renewed = ctx.store.renew_runs(vec![renewal]).await.unwrap().remove(0).unwrap();
    assert_eq!(texts(&renewed.inbox), ["c", "d"]);
    let all = RunCommit { inbox_to: 1, inbox_taken: vec![1, 2, 3], ..ends };
    assert!(!commit_this(&ctx, all.clone()).await.unwrap().repeated);
    assert!(commit_this(&ctx, all).await.unwrap().repeated);
    let view = views(&ctx, &[run]).await.remove(0).unwrap().run;
    assert_eq!((view.state, view.inbox_len), (RunState::Succeeded, 0));
    // Without it, the end of a run takes what nobody has read.
    let claimed = with_items(&ctx, "a").await;
    let unread =
        RunCommit { inbox_to: 0, ..commit_of(&claimed, RunStep { state: RunState::Failed, ..step(&["end"]) }) };
    commit_this(&ctx, unread).await.unwrap();
}

async fn ends_of_jobs_and_items_that_a_step_brings_are_no_messages(ctx: Ctx) {
    let mut run = awake(&ctx);
    run.step.jobs = vec![job_of(&ctx, run.id), job_of(&ctx, run.id)];
    create(&ctx, run.clone()).await.unwrap();
    let claimed = held(&ctx, run.id).await;
    let job = ctx.claim_one("w", "q").await;
    ctx.complete("w", job.lease).await.unwrap();
    let cancel = vec![run.step.jobs[1].id];
    let requires = |step| RunCommit { requires_read_messages: true, ..commit_of(&claimed, step) };
    commit_this(&ctx, requires(RunStep { cancel, ..step(&["a"]) })).await.unwrap();
    assert_eq!(texts(&held(&ctx, run.id).await.inbox), ["job ended", "job ended"]);
    // A commit that goes on is refused for the same reason.
    let claimed = with_items(&ctx, "a").await;
    let goes_on = RunCommit { requires_read_messages: true, ..taking(&claimed, &[]) };
    assert!(matches!(refused_commit(&ctx, goes_on).await, Error::UnreadMessages { unread: 1, .. }));
    commit(&ctx, &claimed, step(&["a"])).await.unwrap();
}

async fn a_long_list_is_taken_at_once(ctx: Ctx) {
    let run = NewRun { step: step(&["begun"]), ..awake(&ctx) };
    create(&ctx, run.clone()).await.unwrap();
    let messages = (0..3_000).map(|n| message(run.id, &n.to_string())).collect();
    ctx.store.send_to_runs(messages).await.unwrap().into_iter().for_each(|answer| answer.unwrap());
    let claimed = held(&ctx, run.id).await;
    let odd: Vec<u64> = (0..1_500).map(|n| 2 * n + 1).collect();
    commit_this(&ctx, taking(&claimed, &odd)).await.unwrap();
    let view = views(&ctx, &[run.id]).await.remove(0).unwrap().run;
    assert_eq!((view.inbox_len, view.unread_messages), (1_500, 1_500));
    let claimed = held(&ctx, run.id).await;
    let numbers: Vec<u64> = claimed.inbox.iter().map(|item| item.number).collect();
    assert_eq!(numbers, (0..1_000).map(|n| 2 * n).collect::<Vec<_>>());
    assert_eq!((claimed.inbox_to, claimed.inbox_taken), (1_999, 1_000));
    commit(&ctx, &claimed, step(&["b"])).await.unwrap();
    let view = views(&ctx, &[run.id]).await.remove(0).unwrap().run;
    assert_eq!((view.inbox_len, view.unread_messages), (500, 500));
}

/// Reads the items of an inbox from a number on, as [`shown`], with the number behind the last one.
async fn read_items(ctx: &Ctx, run: RunId, from: u64) -> (Vec<u64>, String, u64) {
    let read = RunRead { inbox_from: Some(from), ..RunRead::brief(run) };
    let view = ctx.store.read_runs(vec![read]).await.unwrap().remove(0).expect("the run is there");
    (view.inbox.iter().map(|item| item.number).collect(), texts(&view.inbox).concat(), view.inbox_to)
}

async fn a_read_returns_items_and_takes_none(ctx: Ctx) {
    let run = with_items(&ctx, "abc").await.lease.run;
    for _ in 0..2 {
        assert_eq!(read_items(&ctx, run, 0).await, (vec![0, 1, 2], "abc".to_owned(), 3));
    }
    assert_eq!(read_items(&ctx, run, 2).await, (vec![2], "c".to_owned(), 3));
    for beyond in [3, 4, u64::MAX] {
        assert_eq!(read_items(&ctx, run, beyond).await, (vec![], String::new(), 3), "{beyond}");
    }
    assert_eq!(inbox_len(&ctx, run).await, 3);
    let plain = views(&ctx, &[run]).await.remove(0).unwrap();
    assert_eq!((plain.inbox, plain.inbox_to), (Vec::new(), 0), "it was not asked for items");
    // Each run of one call with its own, and one of them twice.
    let other = with_items(&ctx, "x").await.lease.run;
    let read = |run, from| RunRead { inbox_from: Some(from), ..RunRead::brief(run) };
    let reads = vec![read(run, 1), read(ctx.ids.next_run(), 0), read(other, 0), read(run, 2)];
    let found = ctx.store.read_runs(reads).await.unwrap();
    let found: Vec<_> = found.iter().map(|view| view.as_ref().map(|view| texts(&view.inbox).concat())).collect();
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(found, [some("bc"), None, some("x"), some("c")]);
}

async fn a_read_passes_over_holes(ctx: Ctx) {
    let claimed = with_items(&ctx, "abcde").await;
    let run = claimed.lease.run;
    commit_this(&ctx, taking(&claimed, &[0, 2, 3])).await.unwrap();
    assert_eq!(read_items(&ctx, run, 0).await, (vec![1, 4], "be".to_owned(), 5));
    assert_eq!(read_items(&ctx, run, 2).await, (vec![4], "e".to_owned(), 5));
}

async fn a_long_inbox_comes_in_several_reads(ctx: Ctx) {
    let run = awake(&ctx);
    create(&ctx, run.clone()).await.unwrap();
    let count = INBOX_ITEMS_MAX as u64 + 1;
    let messages = (0..count).map(|n| message(run.id, &format!("{n} "))).collect();
    assert!(ctx.store.send_to_runs(messages).await.unwrap().iter().all(Result::is_ok));
    let (mut from, mut numbers) = (0, Vec::new());
    while from < count {
        let (some, _, to) = read_items(&ctx, run.id, from).await;
        assert!(to > from && some.len() <= INBOX_ITEMS_MAX, "{from} to {to}");
        numbers.extend(some);
        from = to;
    }
    assert_eq!(numbers, (0..count).collect::<Vec<_>>());
}
