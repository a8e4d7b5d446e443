//! Messages to runs: their ids, how many an inbox holds, and messages to runs that are stuck or have ended.

use super::run_help::{
    awake, claim_by_id, claim_runs, claimed, commit, commit_of, create, graph, job_of, message, refused_message, send,
    step, texts, views,
};
use crate::ctx::Ctx;
use crate::runner::cases;
use windlass_core::Error;
use windlass_core::id::{RunId, Token};
use windlass_core::job::Due;
use windlass_core::store::{
    MESSAGE_IDS_KEPT, NewRun, RunCommit, RunCreated, RunItem, RunMessage, RunReuse, RunState, RunStep,
    UNREAD_MESSAGES_MAX,
};

cases!("run_messages":
    a_message_keeps_its_id,
    a_repeated_message_is_dropped,
    a_repeated_message_is_dropped_whatever_has_become_of_the_run,
    the_last_thousand_ids_are_kept,
    ids_of_one_run_do_not_count_for_another,
    a_full_inbox_refuses_messages_and_nothing_else,
    a_full_inbox_takes_the_messages_of_steps,
    a_message_that_cannot_be_meant_is_refused,
    messages_to_runs_that_are_missing_or_have_ended_are_refused,
    unread_messages_are_counted,
    a_run_is_created_with_messages,
    a_creation_with_messages_signals_a_run_that_goes_on,
    a_repeated_creation_delivers_its_messages_once,
    two_creations_with_messages_make_one_run,
    an_ended_run_starts_again_with_messages,
    messages_of_a_creation_that_cannot_be_meant_are_refused,
    a_full_inbox_refuses_a_creation_with_messages,
);

fn with_id(run: RunId, id: &str, body: &str) -> RunMessage {
    RunMessage { id: Some(id.to_owned()), ..message(run, body) }
}

async fn new_one(ctx: &Ctx) -> RunId {
    let run = NewRun { step: step(&["begun"]), ..awake(ctx) };
    create(ctx, run.clone()).await.unwrap();
    run.id
}

async fn send_many(ctx: &Ctx, messages: Vec<RunMessage>) {
    for messages in messages.chunks(1_000) {
        for answer in ctx.store.send_to_runs(messages.to_vec()).await.unwrap() {
            answer.unwrap();
        }
    }
}

/// Claims a run, takes all that is in its inbox, and lets go of it. Returns what was there.
async fn take(ctx: &Ctx, run: RunId) -> Vec<String> {
    let claimed = claim_by_id(ctx, run).await.expect("it is free");
    commit(ctx, &claimed, step(&["taken"])).await.unwrap();
    texts(&claimed.inbox)
}

async fn a_message_keeps_its_id(ctx: Ctx) {
    let run = new_one(&ctx).await;
    let now = ctx.now().await;
    send(&ctx, with_id(run, "é \"1\"", "hello")).await.unwrap();
    send(&ctx, message(run, "no id")).await.unwrap();
    let claimed = claim_by_id(&ctx, run).await.unwrap();
    let found: Vec<_> = claimed.inbox.into_iter().map(|found| (found.number, found.item)).collect();
    let item =
        |id: Option<&str>, body: &str| RunItem::Message { at: now, id: id.map(str::to_owned), body: body.to_owned() };
    assert_eq!(found, [(0, item(Some("é \"1\""), "hello")), (1, item(None, "no id"))]);
}

async fn a_repeated_message_is_dropped(ctx: Ctx) {
    let run = new_one(&ctx).await;
    send(&ctx, with_id(run, "1", "one")).await.unwrap();
    let (before, feed) = (views(&ctx, &[run]).await, ctx.feed_end().await);
    send(&ctx, with_id(run, "1", "one")).await.unwrap();
    send(&ctx, RunMessage { interrupts: true, ..with_id(run, "1", "another text") }).await.unwrap();
    assert_eq!((views(&ctx, &[run]).await, ctx.feed_after(feed).await), (before, vec![]));
    let both = vec![with_id(run, "2", "two"), with_id(run, "2", "two"), with_id(run, "12", "twelve")];
    send_many(&ctx, both).await;
    assert_eq!(take(&ctx, run).await, ["one", "two", "twelve"]);
    send(&ctx, with_id(run, "2", "two")).await.unwrap();
    assert!(claim_by_id(&ctx, run).await.unwrap().inbox.is_empty(), "one that was read is dropped, too");
}

async fn a_repeated_message_is_dropped_whatever_has_become_of_the_run(ctx: Ctx) {
    let new = NewRun { reuse: RunReuse::IfEnded, ..awake(&ctx) };
    create(&ctx, new.clone()).await.unwrap();
    let run = new.id;
    send(&ctx, with_id(run, "1", "one")).await.unwrap();
    let held = claim_by_id(&ctx, run).await.unwrap();
    commit(&ctx, &held, RunStep { state: RunState::Succeeded, ..step(&["end"]) }).await.unwrap();
    send(&ctx, with_id(run, "1", "one")).await.unwrap();
    let opens = RunMessage { reopens: true, ..with_id(run, "1", "one") };
    send(&ctx, opens).await.unwrap();
    assert_eq!(views(&ctx, &[run]).await[0].as_ref().unwrap().run.state, RunState::Succeeded);
    let again = NewRun { input: "2".into(), ..new };
    assert_eq!(create(&ctx, again).await, Ok(RunCreated::Restarted));
    send(&ctx, with_id(run, "1", "one")).await.unwrap();
    assert!(claim_by_id(&ctx, run).await.unwrap().inbox.is_empty(), "ids are kept over segments");
}

async fn the_last_thousand_ids_are_kept(ctx: Ctx) {
    let run = new_one(&ctx).await;
    let ids = 0..MESSAGE_IDS_KEPT;
    send_many(&ctx, ids.map(|n| with_id(run, &format!("id {n}"), "x")).collect()).await;
    // A refused message and one without an id leave no id.
    send(&ctx, message(run, "plain")).await.unwrap();
    let len = async || views(&ctx, &[run]).await[0].as_ref().unwrap().run.inbox_len;
    let before = len().await;
    send(&ctx, with_id(run, "id 0", "again")).await.unwrap();
    assert_eq!(len().await, before);
    send(&ctx, with_id(run, "new", "x")).await.unwrap();
    send(&ctx, with_id(run, "id 1", "again")).await.unwrap();
    assert_eq!(len().await, before + 1, "the second is among the last thousand");
    send(&ctx, with_id(run, "id 0", "again")).await.unwrap();
    assert_eq!(len().await, before + 2, "the first is not any more");
    send(&ctx, with_id(run, "id 0", "again")).await.unwrap();
    send(&ctx, with_id(run, "id 1", "again")).await.unwrap();
    assert_eq!(len().await, before + 3, "its return took the place of the second");
}

async fn ids_of_one_run_do_not_count_for_another(ctx: Ctx) {
    let (one, two) = (new_one(&ctx).await, new_one(&ctx).await);
    send_many(&ctx, vec![with_id(one, "1", "a"), with_id(two, "1", "b")]).await;
    assert_eq!((take(&ctx, one).await, take(&ctx, two).await), (vec!["a".to_owned()], vec!["b".to_owned()]));
    // Nor those of a run that is gone for a new one under its id.
    let held = claim_by_id(&ctx, one).await.unwrap();
    commit(&ctx, &held, RunStep { state: RunState::Succeeded, ..step(&["end"]) }).await.unwrap();
    ctx.store.remove_runs(vec![one]).await.unwrap().remove(0).unwrap();
    create(&ctx, NewRun { id: one, ..awake(&ctx) }).await.unwrap();
    send(&ctx, with_id(one, "1", "new")).await.unwrap();
    assert_eq!(take(&ctx, one).await, ["new"]);
}

fn crowd(run: RunId) -> Vec<RunMessage> {
    (0..UNREAD_MESSAGES_MAX).map(|n| message(run, &format!("{n}"))).collect()
}

async fn a_full_inbox_refuses_messages_and_nothing_else(ctx: Ctx) {
    let run = NewRun { step: step(&["begun"]), ..awake(&ctx) };
    let mut run = run;
    run.step.jobs = vec![job_of(&ctx, run.id)];
    create(&ctx, run.clone()).await.unwrap();
    send_many(&ctx, crowd(run.id)).await;
    let full = refused_message(&ctx, with_id(run.id, "id", "one more")).await;
    assert!(matches!(full, Error::Full { .. }), "{full:?}");
    let job = ctx.claim_one("w", "q").await;
    ctx.complete("w", job.lease).await.unwrap();
    let child = NewRun {
        parent: Some(run.id),
        step: RunStep { state: RunState::Succeeded, ..step(&["end"]) },
        ..NewRun::new(ctx.ids.next_run(), graph())
    };
    create(&ctx, child).await.unwrap();
    send(&ctx, RunMessage { interrupts: true, ..message(run.id, "stop") }).await.unwrap();
    send(&ctx, RunMessage { reopens: true, ..message(run.id, "go on") }).await.unwrap();
    let view = views(&ctx, &[run.id]).await.remove(0).unwrap().run;
    assert_eq!((view.unread_messages, view.inbox_len), (UNREAD_MESSAGES_MAX + 2, UNREAD_MESSAGES_MAX + 4));
    // There is room again when enough was read.
    let held = claim_by_id(&ctx, run.id).await.unwrap();
    let takes = RunCommit { inbox_to: 3, ..commit_of(&held, step(&["a"])) };
    ctx.store.commit_runs(vec![takes]).await.unwrap().remove(0).unwrap();
    send(&ctx, with_id(run.id, "id", "one more")).await.unwrap();
    let full = refused_message(&ctx, message(run.id, "and another")).await;
    assert!(matches!(full, Error::Full { .. }), "{full:?}");
    send(&ctx, RunMessage { terminates: true, ..message(run.id, "end") }).await.unwrap();
    assert_eq!(views(&ctx, &[run.id]).await[0].as_ref().unwrap().run.state, RunState::Terminated);
}

async fn a_full_inbox_takes_the_messages_of_steps(ctx: Ctx) {
    let full = new_one(&ctx).await;
    send_many(&ctx, crowd(full)).await;
    let other = claimed(&ctx).await;
    let job = job_of(&ctx, other.lease.run);
    let made = RunStep { messages: vec![message(full, "cancel")], jobs: vec![job.clone()], ..step(&["sent"]) };
    commit(&ctx, &other, made).await.unwrap();
    assert!(ctx.get(job.id).await.is_some(), "the rest of the step is made");
    assert_eq!(views(&ctx, &[full]).await[0].as_ref().unwrap().run.inbox_len, UNREAD_MESSAGES_MAX + 1);
    let refused = refused_message(&ctx, message(full, "one more")).await;
    assert!(matches!(refused, Error::Full { .. }), "{refused:?}");
}

async fn a_message_that_cannot_be_meant_is_refused(ctx: Ctx) {
    let run = new_one(&ctx).await;
    for id in ["", "a\nb", "a\u{7f}"] {
        let refused = refused_message(&ctx, with_id(run, id, "x")).await;
        assert!(matches!(refused, Error::Invalid { .. }), "{id:?}: {refused:?}");
    }
    let long = refused_message(&ctx, with_id(run, &"x".repeat(256), "x")).await;
    assert!(matches!(long, Error::Limit { .. }), "{long:?}");
    send(&ctx, with_id(run, &"x".repeat(255), "x")).await.unwrap();
    let both = RunMessage { terminates: true, reopens: true, ..message(run, "x") };
    assert!(matches!(refused_message(&ctx, both).await, Error::Invalid { .. }));
    let of_end = RunMessage { terminates: true, expected_history_len: Some(1), ..message(run, "x") };
    assert!(matches!(refused_message(&ctx, of_end).await, Error::Invalid { .. }));
    // In a step it refuses the step, and so does a step that terminates its own run.
    let held = claim_by_id(&ctx, run).await.unwrap();
    for wrong in [with_id(run, "", "x"), RunMessage { terminates: true, ..message(run, "x") }] {
        let made = commit_of(&held, RunStep { messages: vec![wrong], ..step(&["a"]) });
        let refused = super::run_help::refused_commit(&ctx, made).await;
        assert!(matches!(refused, Error::Invalid { .. }), "{refused:?}");
    }
}

async fn messages_to_runs_that_are_missing_or_have_ended_are_refused(ctx: Ctx) {
    let missing = ctx.ids.next_run();
    let refused = refused_message(&ctx, with_id(missing, "1", "x")).await;
    assert!(matches!(refused, Error::NotFound { .. }), "{refused:?}");
    for state in [RunState::Succeeded, RunState::TimedOut] {
        let ended = NewRun { step: RunStep { state, ..step(&["end"]) }, ..awake(&ctx) };
        create(&ctx, ended.clone()).await.unwrap();
        let refused = refused_message(&ctx, with_id(ended.id, "1", "x")).await;
        assert!(matches!(refused, Error::RunRefused { .. }), "{refused:?}");
        // A message that was refused was not delivered, so its id is still free.
        send(&ctx, RunMessage { reopens: true, ..with_id(ended.id, "1", "open") }).await.unwrap();
        assert_eq!(take(&ctx, ended.id).await, ["open"]);
    }
}

async fn unread_messages_are_counted(ctx: Ctx) {
    let mut run = awake(&ctx);
    run.step = RunStep { jobs: vec![job_of(&ctx, run.id)], wake: Some(Due::Now), ..step(&["begun"]) };
    create(&ctx, run.clone()).await.unwrap();
    let unread = async || views(&ctx, &[run.id]).await[0].as_ref().unwrap().run.unread_messages;
    assert_eq!(unread().await, 0);
    let job = ctx.claim_one("w", "q").await;
    ctx.complete("w", job.lease).await.unwrap();
    assert_eq!(unread().await, 0, "the end of a job is no message");
    send_many(&ctx, vec![message(run.id, "a"), message(run.id, "b")]).await;
    assert_eq!(unread().await, 2);
    let held = claim_by_id(&ctx, run.id).await.unwrap();
    send(&ctx, message(run.id, "c")).await.unwrap();
    commit(&ctx, &held, step(&["a"])).await.unwrap();
    assert_eq!(unread().await, 1, "the commit took what it knew of");
    let held = claim_by_id(&ctx, run.id).await.unwrap();
    commit(&ctx, &held, RunStep { state: RunState::Failed, ..step(&["end"]) }).await.unwrap();
    assert_eq!(unread().await, 0);
}

/// A start of a run, unlike every other, with these messages, whose ids are their texts.
fn signalled(ctx: &Ctx, run: RunId, nonce: u64, texts: &[&str]) -> NewRun {
    let messages = texts.iter().map(|text| with_id(run, text, text)).collect();
    NewRun { id: run, nonce: Some(Token::from_bits(nonce)), messages, ..awake(ctx) }
}

async fn a_run_is_created_with_messages(ctx: Ctx) {
    let run = signalled(&ctx, ctx.ids.next_run(), 1, &["a", "b"]);
    assert_eq!(create(&ctx, run.clone()).await, Ok(RunCreated::Created));
    let view = views(&ctx, &[run.id]).await.remove(0).unwrap().run;
    assert_eq!((view.inbox_len, view.unread_messages, view.state), (2, 2, RunState::Running));
    // Also one that nothing else wakes.
    let quiet = NewRun { step: step(&["begun"]), ..signalled(&ctx, ctx.ids.next_run(), 1, &["c"]) };
    assert_eq!(create(&ctx, quiet.clone()).await, Ok(RunCreated::Created));
    let claimed = claim_runs(&ctx, 10).await;
    let inboxes: Vec<_> = claimed.iter().map(|claimed| texts(&claimed.inbox)).collect();
    assert_eq!(inboxes, [vec!["a", "b"], vec!["c"]]);
    send(&ctx, with_id(run.id, "a", "again")).await.unwrap();
    assert_eq!(views(&ctx, &[run.id]).await.remove(0).unwrap().run.inbox_len, 2, "its ids are kept");
}

async fn a_creation_with_messages_signals_a_run_that_goes_on(ctx: Ctx) {
    let run = new_one(&ctx).await;
    let before = views(&ctx, &[run]).await.remove(0).unwrap();
    let other = NewRun { kind: graph(), input: "another".into(), ..signalled(&ctx, run, 7, &["a"]) };
    assert_eq!(create(&ctx, other).await, Ok(RunCreated::Existing));
    let after = views(&ctx, &[run]).await.remove(0).unwrap();
    assert_eq!((&after.input, &after.history), (&before.input, &before.history), "the run is the one that was there");
    assert_eq!(take(&ctx, run).await, ["a"]);
    // Without messages, the id is taken.
    let taken = create(&ctx, signalled(&ctx, run, 8, &[])).await;
    assert!(matches!(taken, Err(Error::RunTaken { .. })), "{taken:?}");
    // A stuck one keeps them.
    let held = claim_by_id(&ctx, run).await.unwrap();
    commit(&ctx, &held, RunStep { stuck: Some("no code".into()), ..step(&["stuck"]) }).await.unwrap();
    assert_eq!(create(&ctx, signalled(&ctx, run, 9, &["b"])).await, Ok(RunCreated::Existing));
    let stuck = views(&ctx, &[run]).await.remove(0).unwrap().run;
    assert_eq!((stuck.unread_messages, stuck.stuck.as_deref()), (1, Some("no code")));
}

async fn a_repeated_creation_delivers_its_messages_once(ctx: Ctx) {
    let run = ctx.ids.next_run();
    let (first, second) = (signalled(&ctx, run, 1, &["a"]), signalled(&ctx, run, 2, &["b"]));
    let second = NewRun { reuse: RunReuse::IfEnded, ..second };
    for expected in [RunCreated::Created, RunCreated::Existing] {
        assert_eq!(create(&ctx, first.clone()).await, Ok(expected));
    }
    for _ in 0..2 {
        assert_eq!(create(&ctx, second.clone()).await, Ok(RunCreated::Existing));
    }
    assert_eq!(take(&ctx, run).await, ["a", "b"]);
    let held = claim_by_id(&ctx, run).await.unwrap();
    commit(&ctx, &held, RunStep { state: RunState::Succeeded, ..step(&["end"]) }).await.unwrap();
    let (before, feed) = (views(&ctx, &[run]).await, ctx.feed_end().await);
    for repeated in [first, second] {
        assert_eq!(create(&ctx, repeated).await, Ok(RunCreated::Existing), "it was done before the run ended");
    }
    assert_eq!((views(&ctx, &[run]).await, ctx.feed_after(feed).await), (before, vec![]));
}

async fn two_creations_with_messages_make_one_run(ctx: Ctx) {
    let run = ctx.ids.next_run();
    let both = vec![signalled(&ctx, run, 1, &["a"]), signalled(&ctx, run, 2, &["b", "c"])];
    let answers = ctx.store.create_runs(both).await.unwrap();
    assert_eq!(answers, [Ok(RunCreated::Created), Ok(RunCreated::Existing)]);
    assert_eq!(take(&ctx, run).await, ["a", "b", "c"]);
    let run = ctx.ids.next_run();
    let create_one = |nonce: u64, text: &'static str| create(&ctx, signalled(&ctx, run, nonce, &[text]));
    let answers = <[_; 3]>::from(futures::join!(create_one(1, "a"), create_one(2, "b"), create_one(3, "c")));
    let created = answers.iter().filter(|answer| **answer == Ok(RunCreated::Created)).count();
    let existing = answers.iter().filter(|answer| **answer == Ok(RunCreated::Existing)).count();
    assert_eq!((created, existing), (1, 2), "{answers:?}");
    let mut told = take(&ctx, run).await;
    told.sort();
    assert_eq!(told, ["a", "b", "c"]);
}

async fn an_ended_run_starts_again_with_messages(ctx: Ctx) {
    let run = ctx.ids.next_run();
    create(&ctx, signalled(&ctx, run, 1, &["a"])).await.unwrap();
    take(&ctx, run).await;
    let held = claim_by_id(&ctx, run).await.unwrap();
    commit(&ctx, &held, RunStep { state: RunState::Failed, ..step(&["end"]) }).await.unwrap();
    let again = signalled(&ctx, run, 2, &["b"]);
    let taken = create(&ctx, again.clone()).await;
    assert!(matches!(taken, Err(Error::RunTaken { .. })), "{taken:?}");
    let again = NewRun { reuse: RunReuse::IfNotSucceeded, ..again };
    assert_eq!(create(&ctx, again).await, Ok(RunCreated::Restarted));
    assert_eq!(take(&ctx, run).await, ["b"]);
}

async fn messages_of_a_creation_that_cannot_be_meant_are_refused(ctx: Ctx) {
    let run = ctx.ids.next_run();
    let good = signalled(&ctx, run, 1, &["a"]);
    let with = |messages: Vec<RunMessage>| NewRun { messages, ..good.clone() };
    let plain = good.messages[0].clone();
    let many = (0..17).map(|n| with_id(run, &format!("id {n}"), "x")).collect();
    let heavy = (0..2).map(|n| with_id(run, &format!("id {n}"), &"x".repeat(3 << 20))).collect();
    let wrong = [
        with(vec![RunMessage { run: ctx.ids.next_run(), ..plain.clone() }]),
        with(vec![RunMessage { id: None, ..plain.clone() }]),
        with(vec![RunMessage { interrupts: true, ..plain.clone() }]),
        with(vec![RunMessage { reopens: true, ..plain.clone() }]),
        with(vec![RunMessage { terminates: true, ..plain }]),
        with(many),
        with(heavy),
        NewRun { step: RunStep { state: RunState::Succeeded, ..step(&["end"]) }, ..good.clone() },
    ];
    for run in wrong {
        let refused = create(&ctx, run.clone()).await;
        assert!(matches!(refused, Err(Error::Invalid { .. } | Error::Limit { .. })), "{refused:?}: {run:?}");
    }
    assert_eq!(views(&ctx, &[run]).await, [None]);
}

async fn a_full_inbox_refuses_a_creation_with_messages(ctx: Ctx) {
    let run = new_one(&ctx).await;
    let most = usize::try_from(UNREAD_MESSAGES_MAX).unwrap();
    send_many(&ctx, vec![message(run, "x"); most - 1]).await;
    let before = views(&ctx, &[run]).await;
    let full = create(&ctx, signalled(&ctx, run, 1, &["a", "b"])).await;
    assert_eq!(full, Err(Error::inbox_full(run, UNREAD_MESSAGES_MAX)), "all of them or none");
    assert_eq!(views(&ctx, &[run]).await, before);
    assert_eq!(create(&ctx, signalled(&ctx, run, 1, &["a"])).await, Ok(RunCreated::Existing));
}
