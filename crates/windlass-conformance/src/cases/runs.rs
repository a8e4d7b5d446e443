//! Runs: created, claimed, changed by fenced steps, told of the ends of their jobs.

use super::run_help::{
    claim_run, claim_runs, commit, entry, graph, inbox_jobs, job_of, message, new_run, read, send, step,
};
use crate::ctx::{Ctx, complete, fail};
use crate::runner::cases;
use std::collections::BTreeMap;
use windlass_core::Error;
use windlass_core::job::{Due, Retry, State};
use windlass_core::store::{
    ChangeOp, InboxItem, OutcomeKind, RUN_CHANGED, RUN_NOT_ENDED, RunCommit, RunCreated, RunItem, RunMessage, RunState,
    RunStep,
};

cases!("runs":
    a_run_and_its_first_jobs_come_to_be_in_one_step,
    a_run_created_again_is_recognised_and_another_one_is_refused,
    a_refused_job_refuses_its_run,
    the_end_of_a_job_is_in_the_inbox_with_its_outputs,
    every_way_to_end_is_told,
    an_attempt_that_is_tried_again_is_not_told,
    a_commit_takes_the_inbox_and_adds_history_and_jobs,
    what_comes_during_a_lease_is_kept_for_the_next,
    only_the_current_lease_may_commit,
    a_repeated_commit_is_recognised,
    a_refused_job_refuses_the_commit,
    a_lease_can_be_kept_over_steps,
    a_vanished_engine_is_replaced,
    a_run_wakes_when_it_wants_to,
    a_message_interrupts_whoever_does_not_know_it,
    an_ended_run_is_told_nothing_and_can_be_opened_again,
    a_message_for_an_ended_run_is_refused_by_a_run_that_goes_on_or_has_changed,
    a_step_cancels_jobs_of_its_run_only,
    a_step_tells_other_runs,
);

async fn a_run_and_its_first_jobs_come_to_be_in_one_step(ctx: Ctx) {
    let mut run = new_run(&ctx, "build");
    run.input = "{\"a\":1}".into();
    run.step = RunStep { jobs: vec![job_of(&ctx, run.id), job_of(&ctx, run.id)], ..step(&["begun"]) };
    run.step.summary = "0 of 2".to_owned();
    let jobs: Vec<_> = run.step.jobs.iter().map(|job| job.id).collect();
    let created = ctx.store.create_runs(vec![run.clone()]).await.unwrap();
    assert_eq!(created, [Ok(RunCreated::Created)]);
    let view = read(&ctx, run.id).await;
    assert_eq!((view.run.state, view.run.history_len, view.run.inbox_len), (RunState::Running, 1, 0));
    assert_eq!((view.run.name.as_str(), view.run.summary.as_str()), ("build", "0 of 2"));
    assert_eq!(view.run.kind, graph());
    assert_eq!(view.definition.as_deref(), Some(&b"{\"nodes\":[]}"[..]));
    assert_eq!(view.input.as_deref(), Some(&b"{\"a\":1}"[..]));
    assert_eq!(view.history, [entry("begun")]);
    for job in jobs {
        let job = ctx.get(job).await.expect("the job is there");
        assert_eq!((job.state, job.spec.run), (State::Ready, Some(run.id)));
    }
    assert!(claim_runs(&ctx, 10).await.is_empty(), "it has nothing to do");
}

async fn a_run_created_again_is_recognised_and_another_one_is_refused(ctx: Ctx) {
    let run = new_run(&ctx, "build");
    let mut again = run.clone();
    // The ids of jobs are chosen anew by whoever repeats the call.
    again.step.jobs = vec![job_of(&ctx, run.id)];
    let mut other = run.clone();
    other.input = "2".into();
    let answers = ctx.store.create_runs(vec![run.clone(), again.clone(), other]).await.unwrap();
    assert_eq!(answers[..2], [Ok(RunCreated::Created), Ok(RunCreated::Existing)]);
    assert_eq!(answers[2], Err(Error::RunTaken { run: run.id }));
    assert_eq!(ctx.get(again.step.jobs[0].id).await, None);
    assert_eq!(read(&ctx, run.id).await.history.len(), 1);
}

async fn a_refused_job_refuses_its_run(ctx: Ctx) {
    let mut run = new_run(&ctx, "build");
    let good = job_of(&ctx, run.id);
    let mut bad = job_of(&ctx, run.id);
    bad.spec.attempts = 0;
    run.step.jobs = vec![good.clone(), bad];
    let answers = ctx.store.create_runs(vec![run.clone()]).await.unwrap();
    assert!(matches!(answers[0], Err(Error::Invalid { .. })), "{answers:?}");
    let mut stranger = new_run(&ctx, "build");
    stranger.step.jobs = vec![job_of(&ctx, run.id)];
    let answers = ctx.store.create_runs(vec![stranger.clone()]).await.unwrap();
    assert!(matches!(answers[0], Err(Error::Invalid { .. })), "{answers:?}");
    for id in [run.id, stranger.id] {
        assert_eq!(ctx.store.read_runs(vec![windlass_core::store::RunRead::brief(id)]).await.unwrap(), [None]);
    }
    assert_eq!(ctx.get(good.id).await, None);
}

/// A run with `n` jobs that are ready.
pub(super) async fn begun(ctx: &Ctx, n: usize) -> windlass_core::id::RunId {
    let mut run = new_run(ctx, "build");
    run.step.jobs = (0..n).map(|_| job_of(ctx, run.id)).collect();
    ctx.store.create_runs(vec![run.clone()]).await.unwrap().remove(0).unwrap();
    run.id
}

async fn the_end_of_a_job_is_in_the_inbox_with_its_outputs(ctx: Ctx) {
    let id = begun(&ctx, 1).await;
    let job = ctx.claim_one("w", "q").await;
    assert!(claim_runs(&ctx, 10).await.is_empty());
    let outputs = BTreeMap::from([("version".to_owned(), "1.2 \"x\" \u{e9}\n".to_owned())]);
    ctx.report("w", job.lease, OutcomeKind::Complete { result: None, outputs: outputs.clone() }).await.unwrap();
    let claimed = claim_runs(&ctx, 10).await.remove(0);
    assert_eq!((claimed.lease.run, claimed.history_len, claimed.woken), (id, 1, false));
    assert_eq!((claimed.name.as_str(), claimed.inbox_to), ("build", 1));
    let [InboxItem { item: RunItem::JobEnded(end), .. }] = &claimed.inbox[..] else { panic!("{:?}", claimed.inbox) };
    assert_eq!((end.job, end.state, end.attempt), (job.lease.job, Some(State::Succeeded), 1));
    assert_eq!((&end.outputs, &end.error), (&outputs, &None));
    assert!(end.claimed_at.is_some() && end.claimed_at <= Some(end.at));
}

async fn every_way_to_end_is_told(ctx: Ctx) {
    let mut run = new_run(&ctx, "build");
    run.step.jobs = (0..6).map(|_| job_of(&ctx, run.id)).collect();
    let last = run.step.jobs[5].id;
    ctx.store.create_runs(vec![run]).await.unwrap().remove(0).unwrap();
    let jobs = ctx.claim("w", "q", 4).await;
    ctx.complete("w", jobs[0].lease).await.unwrap();
    ctx.fail("w", jobs[1].lease, Retry::Never).await.unwrap();
    ctx.change(jobs[2].lease.job, ChangeOp::Cancel).await.unwrap();
    assert_eq!(claim_runs(&ctx, 1).await[0].inbox.len(), 2, "the cancelled one has not ended yet");
    ctx.complete("w", jobs[2].lease).await.unwrap();
    let short = ctx.claim_short("w2", "q", 50).await;
    ctx.change(last, ChangeOp::Remove).await.unwrap();
    ctx.change(jobs[3].lease.job, ChangeOp::Cancel).await.unwrap();
    ctx.report("w", jobs[3].lease, fail("too late", Retry::Never)).await.unwrap();
    ctx.expire(50).await;
    let again = ctx.claim_short("w2", "q", 50).await;
    assert_eq!(again.lease.job, short.lease.job, "a first stall is forgiven");
    ctx.expire(50).await;
    // The lease of the run has not ended; whoever asks for it anyway waits for that.
    ctx.advance_ms(super::run_help::LEASE_MS).await;
    let inbox = claim_runs(&ctx, 1).await.remove(0).inbox;
    let ends = inbox.iter().map(|found| match &found.item {
        RunItem::JobEnded(end) => (end.job, end.state, end.error.clone()),
        other => panic!("{other:?}"),
    });
    let ends = ends.collect::<Vec<_>>();
    let of = |at: usize| jobs[at].lease.job;
    assert_eq!(ends[0], (of(0), Some(State::Succeeded), None));
    assert_eq!(ends[1], (of(1), Some(State::Failed), Some("boom".to_owned())));
    assert_eq!(ends[2], (of(2), Some(State::Cancelled), None));
    assert_eq!(ends[3], (last, None, None));
    assert_eq!(ends[4], (of(3), Some(State::Cancelled), None));
    assert_eq!((ends[5].0, ends[5].1), (short.lease.job, Some(State::Failed)));
    assert!(ends[5].2.as_ref().is_some_and(|error| error.contains("lease")), "{:?}", ends[5].2);
    assert_eq!(ends.len(), 6);
}

async fn an_attempt_that_is_tried_again_is_not_told(ctx: Ctx) {
    begun(&ctx, 1).await;
    let job = ctx.claim_one("w", "q").await;
    ctx.fail("w", job.lease, Retry::AfterMs(0)).await.unwrap();
    assert!(claim_runs(&ctx, 1).await.is_empty());
    let job = ctx.claim_one("w", "q").await;
    ctx.report("w", job.lease, OutcomeKind::Release { started: false }).await.unwrap();
    assert!(claim_runs(&ctx, 1).await.is_empty());
    let job = ctx.claim_one("w", "q").await;
    ctx.complete("w", job.lease).await.unwrap();
    assert_eq!(inbox_jobs(&claim_runs(&ctx, 1).await[0]), [job.lease.job]);
}

async fn a_commit_takes_the_inbox_and_adds_history_and_jobs(ctx: Ctx) {
    let id = begun(&ctx, 1).await;
    ctx.complete("w", ctx.claim_one("w", "q").await.lease).await.unwrap();
    let claimed = claim_run(&ctx).await;
    let next = job_of(&ctx, id);
    let committed =
        commit(&ctx, &claimed, RunStep { jobs: vec![next.clone()], summary: "half".to_owned(), ..step(&["a", "b"]) })
            .await;
    let committed = committed.unwrap();
    assert_eq!((committed.history_len, committed.repeated), (3, false));
    let view = read(&ctx, id).await;
    assert_eq!(view.history, [entry("begun"), entry("a"), entry("b")]);
    assert_eq!((view.run.summary.as_str(), view.run.inbox_len, view.run.engine), ("half", 0, None));
    assert!(claim_runs(&ctx, 1).await.is_empty());
    ctx.complete("w", ctx.claim_one("w", "q").await.lease).await.unwrap();
    let claimed = claim_run(&ctx).await;
    assert_eq!((claimed.history_len, inbox_jobs(&claimed)), (3, vec![next.id]));
    commit(&ctx, &claimed, RunStep { state: RunState::Succeeded, ..step(&["end"]) }).await.unwrap();
    let view = read(&ctx, id).await;
    assert_eq!((view.run.state, view.run.history_len), (RunState::Succeeded, 4));
    assert!(view.run.finished_at.is_some());
    assert!(claim_runs(&ctx, 1).await.is_empty());
}

async fn what_comes_during_a_lease_is_kept_for_the_next(ctx: Ctx) {
    begun(&ctx, 3).await;
    let jobs = ctx.claim("w", "q", 3).await;
    ctx.complete("w", jobs[0].lease).await.unwrap();
    let claimed = claim_run(&ctx).await;
    ctx.complete("w", jobs[1].lease).await.unwrap();
    assert!(claim_runs(&ctx, 1).await.is_empty(), "somebody holds it");
    commit(&ctx, &claimed, step(&["a"])).await.unwrap();
    let claimed = claim_run(&ctx).await;
    assert_eq!(inbox_jobs(&claimed), [jobs[1].lease.job]);
    // Nothing of it was handled: it stays.
    ctx.complete("w", jobs[2].lease).await.unwrap();
    let nothing = RunCommit { inbox_to: 0, ..super::run_help::commit_of(&claimed, step(&[])) };
    ctx.store.commit_runs(vec![nothing]).await.unwrap().remove(0).unwrap();
    assert_eq!(inbox_jobs(&claim_run(&ctx).await), [jobs[1].lease.job, jobs[2].lease.job]);
}

async fn only_the_current_lease_may_commit(ctx: Ctx) {
    let id = begun(&ctx, 1).await;
    ctx.complete("w", ctx.claim_one("w", "q").await.lease).await.unwrap();
    let old = claim_run(&ctx).await;
    ctx.advance_ms(super::run_help::LEASE_MS).await;
    let new = claim_run(&ctx).await;
    assert_ne!(old.lease.token, new.lease.token);
    let job = job_of(&ctx, id);
    let refused = commit(&ctx, &old, RunStep { jobs: vec![job.clone()], ..step(&["old"]) }).await;
    assert_eq!(refused, Err(Error::LeaseLost));
    assert_eq!(ctx.get(job.id).await, None);
    assert_eq!(read(&ctx, id).await.history, [entry("begun")]);
    commit(&ctx, &new, step(&["new"])).await.unwrap();
    assert_eq!(commit(&ctx, &old, step(&["old"])).await, Err(Error::LeaseLost));
    let mut stranger = super::run_help::commit_of(&new, step(&[]));
    stranger.lease.run = ctx.ids.next_run();
    let answer = ctx.store.commit_runs(vec![stranger]).await.unwrap().remove(0);
    assert!(matches!(answer, Err(Error::NotFound { .. })), "{answer:?}");
}

async fn a_repeated_commit_is_recognised(ctx: Ctx) {
    let id = begun(&ctx, 1).await;
    ctx.complete("w", ctx.claim_one("w", "q").await.lease).await.unwrap();
    let claimed = claim_run(&ctx).await;
    let made = RunStep { jobs: vec![job_of(&ctx, id)], ..step(&["a"]) };
    assert!(!commit(&ctx, &claimed, made.clone()).await.unwrap().repeated);
    let again = commit(&ctx, &claimed, made).await.unwrap();
    assert_eq!((again.repeated, again.history_len), (true, 2));
    assert_eq!(read(&ctx, id).await.history, [entry("begun"), entry("a")]);
    assert_eq!(ctx.counts("q").await.ready, 1);
}

async fn a_refused_job_refuses_the_commit(ctx: Ctx) {
    let id = begun(&ctx, 1).await;
    ctx.complete("w", ctx.claim_one("w", "q").await.lease).await.unwrap();
    let claimed = claim_run(&ctx).await;
    let (good, mut bad, mut dedup) = (job_of(&ctx, id), job_of(&ctx, id), job_of(&ctx, id));
    bad.spec.timeout_ms = Some(0);
    dedup.spec.custom_id = Some(windlass_core::name::CustomId::new("mine").unwrap());
    for bad in [bad, dedup] {
        let refused = commit(&ctx, &claimed, RunStep { jobs: vec![good.clone(), bad], ..step(&["a"]) }).await;
        assert!(matches!(refused, Err(Error::Invalid { .. })), "{refused:?}");
    }
    let ends = RunStep { jobs: vec![good.clone()], state: RunState::Succeeded, ..step(&["a"]) };
    assert!(matches!(commit(&ctx, &claimed, ends).await, Err(Error::Invalid { .. })));
    let beyond = RunCommit { inbox_to: 99, ..super::run_help::commit_of(&claimed, step(&["a"])) };
    let refused = ctx.store.commit_runs(vec![beyond]).await.unwrap().remove(0);
    assert!(matches!(refused, Err(Error::Invalid { .. })), "{refused:?}");
    assert_eq!(ctx.get(good.id).await, None);
    assert_eq!(read(&ctx, id).await.history.len(), 1);
    commit(&ctx, &claimed, step(&["a"])).await.expect("the lease is still held");
}

async fn a_lease_can_be_kept_over_steps(ctx: Ctx) {
    let id = begun(&ctx, 1).await;
    ctx.complete("w", ctx.claim_one("w", "q").await.lease).await.unwrap();
    let claimed = claim_run(&ctx).await;
    let keeps = RunCommit { inbox_to: 0, lease_ms: Some(30_000), ..super::run_help::commit_of(&claimed, step(&["a"])) };
    for repeated in [false, true] {
        let answer = ctx.store.commit_runs(vec![keeps.clone()]).await.unwrap().remove(0).unwrap();
        assert_eq!((answer.repeated, answer.history_len), (repeated, 2));
    }
    assert!(claim_runs(&ctx, 1).await.is_empty());
    let ends = RunStep { state: RunState::Failed, ..step(&["b"]) };
    let refused =
        RunCommit { lease_ms: Some(30_000), history_len: 2, ..super::run_help::commit_of(&claimed, ends.clone()) };
    let refused = ctx.store.commit_runs(vec![refused]).await.unwrap().remove(0);
    assert!(matches!(refused, Err(Error::Invalid { .. })), "{refused:?}");
    let last = RunCommit { history_len: 2, ..super::run_help::commit_of(&claimed, ends) };
    assert_eq!(ctx.store.commit_runs(vec![last]).await.unwrap().remove(0).unwrap().history_len, 3);
    assert_eq!(read(&ctx, id).await.run.state, RunState::Failed);
}

async fn a_vanished_engine_is_replaced(ctx: Ctx) {
    let id = begun(&ctx, 1).await;
    ctx.complete("w", ctx.claim_one("w", "q").await.lease).await.unwrap();
    let gone = claim_run(&ctx).await;
    let held = read(&ctx, id).await.run;
    assert!(held.engine.is_some());
    let request = super::run_help::claim_request(1);
    let empty = ctx.store.claim_runs(request).await.unwrap();
    assert!(empty.runs.is_empty());
    assert_eq!(empty.next_at, Some(gone.expires_at), "then its lease ends");
    ctx.advance_ms(super::run_help::LEASE_MS).await;
    let claimed = claim_run(&ctx).await;
    assert_eq!(claimed.inbox, gone.inbox);
    // Also when nothing was in its inbox any more.
    let keeps =
        RunCommit { lease_ms: Some(super::run_help::LEASE_MS), ..super::run_help::commit_of(&claimed, step(&["a"])) };
    ctx.store.commit_runs(vec![keeps]).await.unwrap().remove(0).unwrap();
    ctx.advance_ms(super::run_help::LEASE_MS).await;
    let claimed = claim_run(&ctx).await;
    assert_eq!((claimed.inbox.len(), claimed.history_len), (0, 2));
}

async fn a_run_wakes_when_it_wants_to(ctx: Ctx) {
    let mut run = new_run(&ctx, "build");
    run.step.wake = Some(Due::DelayMs(300));
    ctx.store.create_runs(vec![run.clone()]).await.unwrap().remove(0).unwrap();
    let empty = ctx.store.claim_runs(super::run_help::claim_request(1)).await.unwrap();
    assert!(empty.runs.is_empty());
    assert_eq!(empty.next_at, read(&ctx, run.id).await.run.wake_at);
    ctx.advance_ms(300).await;
    let claimed = claim_run(&ctx).await;
    assert!(claimed.woken && claimed.inbox.is_empty());
    commit(&ctx, &claimed, RunStep { wake: Some(Due::Now), ..step(&["once"]) }).await.unwrap();
    let claimed = claim_run(&ctx).await;
    assert!(claimed.woken, "at once");
    commit(&ctx, &claimed, step(&["twice"])).await.unwrap();
    ctx.advance_ms(300).await;
    assert!(claim_runs(&ctx, 1).await.is_empty(), "it does not want to be woken any more");
    assert_eq!(read(&ctx, run.id).await.run.wake_at, None);
}

async fn a_message_interrupts_whoever_does_not_know_it(ctx: Ctx) {
    let id = begun(&ctx, 1).await;
    ctx.complete("w", ctx.claim_one("w", "q").await.lease).await.unwrap();
    let claimed = claim_run(&ctx).await;
    send(&ctx, message(id, "gently")).await.unwrap();
    assert!(claim_runs(&ctx, 1).await.is_empty());
    send(&ctx, RunMessage { interrupts: true, ..message(id, "stop") }).await.unwrap();
    let refused = commit(&ctx, &claimed, RunStep { jobs: vec![job_of(&ctx, id)], ..step(&["a"]) }).await;
    assert_eq!(refused, Err(Error::LeaseLost));
    let claimed = claim_run(&ctx).await;
    let words: Vec<&str> = claimed.inbox[1..]
        .iter()
        .map(|found| match &found.item {
            RunItem::Message { body, .. } => body.as_str(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(words, ["gently", "stop"], "in the order in which they came");
}

async fn an_ended_run_is_told_nothing_and_can_be_opened_again(ctx: Ctx) {
    let id = begun(&ctx, 2).await;
    let jobs = ctx.claim("w", "q", 2).await;
    ctx.complete("w", jobs[0].lease).await.unwrap();
    let claimed = claim_run(&ctx).await;
    commit(&ctx, &claimed, RunStep { state: RunState::Cancelled, ..step(&["end"]) }).await.unwrap();
    ctx.complete("w", jobs[1].lease).await.unwrap();
    assert_eq!(read(&ctx, id).await.run.inbox_len, 0);
    let refused = send(&ctx, message(id, "hello?")).await;
    assert!(matches!(refused, Err(Error::RunRefused { .. })), "{refused:?}");
    let missing = send(&ctx, message(ctx.ids.next_run(), "hello?")).await;
    assert!(matches!(missing, Err(Error::NotFound { .. })), "{missing:?}");
    assert!(claim_runs(&ctx, 1).await.is_empty());
    send(&ctx, RunMessage { reopens: true, ..message(id, "again") }).await.unwrap();
    let view = read(&ctx, id).await.run;
    assert_eq!((view.state, view.finished_at, view.inbox_len), (RunState::Running, None, 1));
    assert_eq!(claim_run(&ctx).await.inbox.len(), 1);
}

async fn a_message_for_an_ended_run_is_refused_by_a_run_that_goes_on_or_has_changed(ctx: Ctx) {
    let id = begun(&ctx, 0).await;
    let again = |len| RunMessage { reopens: true, expected_history_len: Some(len), ..message(id, "again") };
    let refusal = |answer: Result<(), Error>| match answer {
        Err(Error::RunRefused { why, .. }) => why,
        other => panic!("{other:?}"),
    };
    assert_eq!(refusal(send(&ctx, again(1)).await), RUN_NOT_ENDED);
    send(&ctx, message(id, "end")).await.unwrap();
    let stuck = RunStep { stuck: Some("odd".to_owned()), ..RunStep::nothing() };
    commit(&ctx, &claim_run(&ctx).await, stuck).await.unwrap();
    assert_eq!(refusal(send(&ctx, again(1)).await), RUN_NOT_ENDED, "a stuck run has not ended");
    send(&ctx, RunMessage { reopens: true, ..message(id, "end") }).await.unwrap();
    let ends = |entry| RunStep { state: RunState::Failed, ..step(&[entry]) };
    commit(&ctx, &claim_run(&ctx).await, ends("end")).await.unwrap();

    let before = read(&ctx, id).await.run;
    for len in [0, 1, 3, u64::MAX] {
        assert_eq!(refusal(send(&ctx, again(len)).await), RUN_CHANGED);
    }
    let unmeant = send(&ctx, RunMessage { reopens: false, ..again(2) }).await;
    assert!(matches!(unmeant, Err(Error::Invalid { ref field, .. }) if field == "expected_history_len"), "{unmeant:?}");
    assert_eq!(read(&ctx, id).await.run, before, "what was refused changes nothing");

    // Both have seen the same end: the first one opens the run.
    let answers = ctx.store.send_to_runs(vec![again(2), again(2)]).await.unwrap();
    let [first, second] = <[_; 2]>::try_from(answers).unwrap();
    assert_eq!((first, refusal(second).as_str()), (Ok(()), RUN_NOT_ENDED));
    let claimed = claim_run(&ctx).await;
    assert_eq!(claimed.inbox.len(), 1);
    commit(&ctx, &claimed, ends("once more")).await.unwrap();
    assert_eq!(refusal(send(&ctx, again(2)).await), RUN_CHANGED);
    send(&ctx, again(3)).await.unwrap();
}

async fn a_step_cancels_jobs_of_its_run_only(ctx: Ctx) {
    let mut run = new_run(&ctx, "build");
    let id = run.id;
    run.step.jobs = (0..3).map(|_| job_of(&ctx, id)).collect();
    let ready = run.step.jobs[2].id;
    ctx.store.create_runs(vec![run]).await.unwrap().remove(0).unwrap();
    let stranger = ctx.enqueue(ctx.job("other", "work")).await.id();
    let jobs = ctx.claim("w", "q", 2).await;
    ctx.complete("w", jobs[0].lease).await.unwrap();
    let claimed = claim_run(&ctx).await;
    let cancel = vec![jobs[0].lease.job, jobs[1].lease.job, ready, stranger, ctx.ids.next()];
    commit(&ctx, &claimed, RunStep { cancel, ..step(&["stop"]) }).await.unwrap();
    assert_eq!(ctx.state(jobs[0].lease.job).await, State::Succeeded);
    assert_eq!(ctx.state(ready).await, State::Cancelled);
    assert!(ctx.get(jobs[1].lease.job).await.unwrap().cancel_requested);
    assert_eq!(ctx.state(stranger).await, State::Ready);
    let claimed = claim_run(&ctx).await;
    assert_eq!(inbox_jobs(&claimed), [ready], "what the step ended is told to the next");
    ctx.report("w", jobs[1].lease, complete()).await.unwrap();
    commit(&ctx, &claimed, step(&["a"])).await.unwrap();
    assert_eq!(inbox_jobs(&claim_run(&ctx).await), [jobs[1].lease.job]);
}

async fn a_step_tells_other_runs(ctx: Ctx) {
    let (one, two) = (begun(&ctx, 1).await, begun(&ctx, 0).await);
    ctx.complete("w", ctx.claim_one("w", "q").await.lease).await.unwrap();
    let claimed = claim_run(&ctx).await;
    assert_eq!(claimed.lease.run, one);
    let messages = vec![message(two, "from one"), message(ctx.ids.next_run(), "to nobody")];
    commit(&ctx, &claimed, RunStep { messages, ..step(&["sent"]) }).await.unwrap();
    let claimed = claim_run(&ctx).await;
    assert_eq!(claimed.lease.run, two);
    assert!(
        matches!(&claimed.inbox[..], [InboxItem { item: RunItem::Message { body, .. }, .. }] if body == "from one")
    );
}
