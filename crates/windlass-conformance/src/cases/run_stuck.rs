//! Runs that nobody can advance: they rest, forget nothing, and are opened again, ended or removed.

use super::run_help::{
    claim_request, claim_run, claim_runs, commit, commit_of, job_of, message, new_run, read, send, step,
};
use super::runs::begun;
use crate::ctx::Ctx;
use crate::runner::cases;
use windlass_core::Error;
use windlass_core::id::RunId;
use windlass_core::job::{Due, State};
use windlass_core::name::Kind;
use windlass_core::store::{
    ClaimedRun, FeedEvent, FeedRequest, RUN_NOT_STUCK, RunClaim, RunCommit, RunItem, RunList, RunMessage, RunRead,
    RunState, RunStep,
};

cases!("run_stuck":
    a_stuck_run_rests_until_it_is_opened,
    an_opened_run_can_be_stuck_again_and_forgets_nothing,
    an_opened_run_can_end,
    a_message_for_a_stuck_run_is_refused_by_any_other,
    a_stuck_run_is_opened_by_a_message_of_another_run,
    the_feed_tells_that_a_run_is_stuck_and_that_it_is_open,
    a_stuck_run_is_listed_as_running_and_can_be_removed,
    a_stuck_run_is_claimed_by_those_who_ask_for_stuck_ones,
    only_a_run_that_goes_on_is_claimed_even_if_it_is_stuck,
);

/// A step that takes nothing from the inbox.
async fn park(ctx: &Ctx, claimed: &ClaimedRun, why: &str) {
    let stuck = RunStep { stuck: Some(why.to_owned()), ..step(&[]) };
    let commit = RunCommit { inbox_to: 0, ..commit_of(claimed, stuck) };
    ctx.store.commit_runs(vec![commit]).await.unwrap().remove(0).unwrap();
}

/// A run with one job, which waits, and a message that nobody could handle.
async fn stuck(ctx: &Ctx, why: &str) -> RunId {
    let id = begun(ctx, 1).await;
    send(ctx, message(id, "first")).await.unwrap();
    let claimed = claim_run(ctx).await;
    assert_eq!(claimed.lease.run, id);
    park(ctx, &claimed, why).await;
    id
}

fn open(run: RunId, body: &str) -> RunMessage {
    RunMessage { reopens: true, ..message(run, body) }
}

fn words(claimed: &ClaimedRun) -> Vec<&str> {
    let mut words = Vec::new();
    for item in &claimed.inbox {
        words.push(match &item.item {
            RunItem::Message { body, .. } => body.as_str(),
            _ => "a job",
        });
    }
    words
}

async fn a_stuck_run_rests_until_it_is_opened(ctx: Ctx) {
    let id = begun(&ctx, 2).await;
    let jobs = ctx.claim("w", "q", 2).await;
    ctx.complete("w", jobs[0].lease).await.unwrap();
    let claimed = claim_run(&ctx).await;
    let stuck = RunStep { stuck: Some("its code is gone".to_owned()), ..step(&[]) };
    let commit = RunCommit { inbox_to: 0, ..commit_of(&claimed, stuck) };
    ctx.store.commit_runs(vec![commit]).await.unwrap().remove(0).unwrap();
    let view = read(&ctx, id).await.run;
    assert_eq!((view.state, view.stuck.as_deref()), (RunState::Running, Some("its code is gone")));
    ctx.complete("w", jobs[1].lease).await.unwrap();
    assert!(claim_runs(&ctx, 1).await.is_empty());
    send(&ctx, message(id, "hm")).await.unwrap();
    assert!(claim_runs(&ctx, 1).await.is_empty(), "a message alone does not open it");
    send(&ctx, RunMessage { reopens: true, ..message(id, "go on") }).await.unwrap();
    let claimed = claim_run(&ctx).await;
    assert_eq!(claimed.inbox.len(), 4, "nothing was forgotten");
}

async fn an_opened_run_can_be_stuck_again_and_forgets_nothing(ctx: Ctx) {
    let id = stuck(&ctx, "no room").await;
    let this = || RunClaim { run: Some(id), ..claim_request(1) };
    assert!(ctx.store.claim_runs(this()).await.unwrap().runs.is_empty(), "not even when it is asked for");
    send(&ctx, open(id, "again")).await.unwrap();
    let view = read(&ctx, id).await.run;
    assert_eq!((view.stuck, view.inbox_len, view.history_len), (None, 2, 1));
    let mut claimed = ctx.store.claim_runs(this()).await.unwrap().runs.remove(0);
    park(&ctx, &claimed, "still no room").await;
    let view = read(&ctx, id).await.run;
    assert_eq!((view.state, view.stuck.as_deref()), (RunState::Running, Some("still no room")));
    assert_eq!((view.inbox_len, view.engine), (2, None));
    send(&ctx, open(id, "and again")).await.unwrap();
    // Said to one that is open already, it is one more message.
    send(&ctx, open(id, "once more")).await.unwrap();
    claimed = claim_run(&ctx).await;
    assert_eq!(words(&claimed), ["first", "again", "and again", "once more"]);
    commit(&ctx, &claimed, step(&["a"])).await.unwrap();
    let view = read(&ctx, id).await.run;
    assert_eq!((view.stuck, view.inbox_len, view.history_len), (None, 0, 2));
    assert!(claim_runs(&ctx, 1).await.is_empty(), "it has nothing more to do");
}

async fn an_opened_run_can_end(ctx: Ctx) {
    let id = stuck(&ctx, "no room").await;
    let stop = RunMessage { interrupts: true, ..message(id, "stop") };
    send(&ctx, stop.clone()).await.unwrap();
    assert!(claim_runs(&ctx, 1).await.is_empty(), "it takes more than an interrupt");
    send(&ctx, RunMessage { reopens: true, ..stop }).await.unwrap();
    let claimed = claim_run(&ctx).await;
    assert_eq!(words(&claimed), ["first", "stop", "stop"]);
    let job = ctx.claim_one("w", "q").await.lease.job;
    let ends = RunStep { state: RunState::Cancelled, cancel: vec![job], ..step(&["end"]) };
    commit(&ctx, &claimed, ends).await.unwrap();
    let view = read(&ctx, id).await.run;
    assert_eq!((view.state, view.stuck, view.inbox_len), (RunState::Cancelled, None, 0));
    assert!(view.finished_at.is_some());
    assert!(ctx.get(job).await.unwrap().cancel_requested);
}

async fn a_message_for_a_stuck_run_is_refused_by_any_other(ctx: Ctx) {
    let id = stuck(&ctx, "no room").await;
    let resume = |name: &str| RunMessage { only_if_stuck: true, id: Some(name.to_owned()), ..open(id, name) };
    let refusal = |answer| match answer {
        Err(Error::RunRefused { why, .. }) => why,
        other => panic!("{other:?}"),
    };
    send(&ctx, resume("one")).await.unwrap();
    send(&ctx, resume("one")).await.unwrap();
    assert_eq!(refusal(send(&ctx, resume("two")).await), RUN_NOT_STUCK, "it goes on");
    let claimed = claim_run(&ctx).await;
    assert_eq!(words(&claimed), ["first", "one"]);
    park(&ctx, &claimed, "no room").await;

    // Stuck when it was read, and terminated since.
    send(&ctx, RunMessage { terminates: true, ..message(id, "enough") }).await.unwrap();
    let before = read(&ctx, id).await.run;
    assert_eq!(refusal(send(&ctx, resume("two")).await), RUN_NOT_STUCK);
    assert_eq!(read(&ctx, id).await.run, before, "what was refused changes nothing");
    commit(&ctx, &claim_run(&ctx).await, RunStep { state: RunState::Terminated, ..step(&["end"]) }).await.unwrap();
    assert_eq!(refusal(send(&ctx, resume("two")).await), RUN_NOT_STUCK);
    let unmeant = send(&ctx, RunMessage { reopens: false, ..resume("two") }).await;
    assert!(matches!(unmeant, Err(Error::Invalid { ref field, .. }) if field == "only_if_stuck"), "{unmeant:?}");
}

async fn a_stuck_run_is_opened_by_a_message_of_another_run(ctx: Ctx) {
    let id = stuck(&ctx, "no room").await;
    let other = begun(&ctx, 0).await;
    send(&ctx, message(other, "go")).await.unwrap();
    let claimed = claim_run(&ctx).await;
    assert_eq!(claimed.lease.run, other);
    let messages = vec![message(id, "opens nothing"), open(id, "opens it")];
    commit(&ctx, &claimed, RunStep { messages, ..step(&["sent"]) }).await.unwrap();
    assert_eq!(read(&ctx, id).await.run.stuck, None);
    assert_eq!(words(&claim_run(&ctx).await), ["first", "opens nothing", "opens it"]);
}

async fn the_feed_tells_that_a_run_is_stuck_and_that_it_is_open(ctx: Ctx) {
    let id = begun(&ctx, 1).await;
    send(&ctx, message(id, "first")).await.unwrap();
    let claimed = claim_run(&ctx).await;
    let start = ctx.store.read_feed(FeedRequest { after: None, max: 1 }).await.unwrap().next;
    park(&ctx, &claimed, "no room").await;
    send(&ctx, open(id, "again")).await.unwrap();
    let page = ctx.store.read_feed(FeedRequest { after: Some(start), max: 100 }).await.unwrap();
    let told = page.entries.iter().flat_map(|entry| &entry.events);
    let told = told.filter(|event| matches!(event, FeedEvent::Run(change) if change.run == id)).count();
    assert_eq!(told, 2, "whoever follows it looks each time");
}

async fn a_stuck_run_is_listed_as_running_and_can_be_removed(ctx: Ctx) {
    let id = stuck(&ctx, "no room").await;
    let list = RunList { state: Some(RunState::Running), ..RunList::new(10) };
    let listed = ctx.store.list_runs(list.clone()).await.unwrap().runs;
    assert_eq!(listed.iter().map(|run| (run.id, run.stuck.as_deref())).collect::<Vec<_>>(), [(id, Some("no room"))]);
    let open_one = begun(&ctx, 0).await;
    let removed = ctx.store.remove_runs(vec![id, open_one]).await.unwrap();
    assert_eq!(removed[0], Ok(()));
    assert!(matches!(removed[1], Err(Error::RunRefused { .. })), "{removed:?}");
    assert_eq!(ctx.store.read_runs(vec![RunRead::brief(id)]).await.unwrap(), [None]);
    assert!(matches!(send(&ctx, open(id, "again")).await, Err(Error::NotFound { .. })));
    let listed = ctx.store.list_runs(list).await.unwrap().runs;
    assert_eq!(listed.iter().map(|run| run.id).collect::<Vec<_>>(), [open_one]);
    // Its job is left alone, and has nobody to tell of its end.
    let job = ctx.claim_one("w", "q").await;
    ctx.complete("w", job.lease).await.unwrap();
    assert_eq!(ctx.state(job.lease.job).await, State::Succeeded);
    // The same id inherits nothing: neither the word nor the inbox.
    let mut next = new_run(&ctx, "next");
    next.id = id;
    next.step.jobs = vec![job_of(&ctx, id)];
    ctx.store.create_runs(vec![next]).await.unwrap().remove(0).unwrap();
    let view = read(&ctx, id).await.run;
    assert_eq!((view.stuck, view.inbox_len), (None, 0));
}

async fn a_stuck_run_is_claimed_by_those_who_ask_for_stuck_ones(ctx: Ctx) {
    let id = stuck(&ctx, "no room").await;
    send(&ctx, message(id, "second")).await.unwrap();
    let this = RunClaim { run: Some(id), even_stuck: true, ..claim_request(1) };
    let claimed = ctx.store.claim_runs(this.clone()).await.unwrap().runs.remove(0);
    assert_eq!((claimed.stuck.as_deref(), words(&claimed)), (Some("no room"), vec!["first", "second"]));
    assert!(ctx.store.claim_runs(this.clone()).await.unwrap().runs.is_empty(), "it is held");
    // It is still stuck: what is taken and why it goes on is in one commit.
    assert_eq!(read(&ctx, id).await.run.stuck.as_deref(), Some("no room"));
    let step = RunStep { wake: Some(Due::Now), ..step(&["first dropped"]) };
    let commit = RunCommit { inbox_to: 0, inbox_taken: vec![0], ..commit_of(&claimed, step) };
    ctx.store.commit_runs(vec![commit]).await.unwrap().remove(0).unwrap();
    let view = read(&ctx, id).await.run;
    assert_eq!((view.stuck, view.inbox_len, view.history_len, view.engine), (None, 1, 2, None));
    assert_eq!(words(&claim_run(&ctx).await), ["second"]);
}

async fn only_a_run_that_goes_on_is_claimed_even_if_it_is_stuck(ctx: Ctx) {
    let nameless = RunClaim { even_stuck: true, ..claim_request(1) };
    let refused = ctx.store.claim_runs(nameless).await;
    assert!(matches!(&refused, Err(Error::Invalid { field, .. }) if field == "even_stuck"), "{refused:?}");
    let id = stuck(&ctx, "no room").await;
    let this = RunClaim { run: Some(id), even_stuck: true, ..claim_request(1) };
    let other = RunClaim { kinds: vec![Kind::new("other").unwrap()], ..this.clone() };
    assert!(ctx.store.claim_runs(other).await.unwrap().runs.is_empty(), "it is of another kind");
    send(&ctx, open(id, "go on")).await.unwrap();
    let claimed = ctx.store.claim_runs(this.clone()).await.unwrap().runs.remove(0);
    assert_eq!(claimed.stuck, None, "one that is not stuck is claimed as ever");
    commit(&ctx, &claimed, RunStep { state: RunState::Succeeded, ..step(&["end"]) }).await.unwrap();
    assert!(ctx.store.claim_runs(this).await.unwrap().runs.is_empty(), "it has ended");
}
