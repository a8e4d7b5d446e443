//! Renewals of the leases of runs: how long a run stays with its engine, and which inbox items a renewal returns.

use super::run_help::{
    LEASE_MS, claim_request, claim_run, claim_runs, commit, commit_of, job_of, message, new_run, read, send, step,
};
use crate::ctx::{Ctx, worker_id};
use crate::runner::cases;
use windlass_core::id::{RunId, Token};
use windlass_core::job::Due;
use windlass_core::name::Kind;
use windlass_core::store::{
    BATCH_MAX, ClaimedRun, INBOX_ITEMS_MAX, InboxItem, RunCommit, RunItem, RunLease, RunMessage, RunRead, RunRenewal,
    RunRenewed, RunState, RunStep, SweepKind,
};
use windlass_core::{Error, Result};

cases!("run_renewals":
    a_renewed_run_is_not_claimed_before_the_new_end_of_its_lease,
    a_claim_that_finds_nothing_returns_the_end_of_a_renewed_lease,
    a_renewal_with_a_shorter_lease_ends_the_lease_sooner,
    a_lease_that_ended_is_renewed_while_nobody_has_claimed_the_run,
    renewals_return_the_items_that_arrived_since_once_and_in_order,
    a_renewal_returns_the_ends_of_jobs,
    a_renewal_through_another_handle_returns_the_items_of_both,
    a_commit_takes_the_items_of_the_last_renewal_and_leaves_later_ones,
    a_commit_with_the_number_of_the_claim_leaves_the_items_of_a_renewal,
    a_renewal_from_an_earlier_number_returns_items_again_and_none_that_were_handled,
    a_long_inbox_comes_in_several_renewals,
    a_heavy_inbox_comes_in_several_renewals,
    a_renewal_changes_nothing_but_the_end_of_the_lease,
    a_renewed_run_is_still_woken_at_its_time,
    a_renewal_with_a_wrong_token_is_refused,
    a_renewal_of_an_interrupted_run_is_refused_and_the_next_claim_gets_all_items,
    a_renewal_of_a_run_that_another_engine_has_claimed_is_refused,
    a_renewal_of_a_released_an_ended_and_a_removed_run_is_refused,
    a_renewal_of_a_missing_run_is_refused,
    a_renewal_from_beyond_the_inbox_is_refused,
    a_renewal_with_a_lease_that_is_too_short_or_too_long_is_refused,
    renewals_of_one_call_are_answered_each_on_its_own,
    hundreds_of_runs_are_renewed_in_one_call,
    an_empty_batch_is_answered_and_a_batch_that_is_too_large_is_refused_whole,
);

/// A lease that no case outlives.
const LONG_MS: u64 = 60_000;

/// Creates a run that has something to do at once.
async fn awake(ctx: &Ctx) -> RunId {
    let mut run = new_run(ctx, "build");
    run.step.wake = Some(Due::Now);
    ctx.store.create_runs(vec![run.clone()]).await.unwrap().remove(0).unwrap();
    run.id
}

/// Claims the only run that has something to do, with a long lease.
async fn claim_long(ctx: &Ctx) -> ClaimedRun {
    let mut request = claim_request(10);
    request.lease_ms = LONG_MS;
    let mut runs = ctx.store.claim_runs(request).await.unwrap().runs;
    assert_eq!(runs.len(), 1, "one run has something to do");
    runs.remove(0)
}

fn renewal_of(claimed: &ClaimedRun) -> RunRenewal {
    RunRenewal { lease: claimed.lease, lease_ms: LONG_MS, inbox_from: claimed.inbox_to }
}

async fn renew(ctx: &Ctx, renewal: RunRenewal) -> Result<RunRenewed> {
    let mut answers = ctx.store.renew_runs(vec![renewal]).await.unwrap();
    assert_eq!(answers.len(), 1);
    answers.remove(0)
}

async fn send_all(ctx: &Ctx, run: RunId, bodies: &[&str]) {
    for body in bodies {
        send(ctx, message(run, body)).await.unwrap();
    }
}

fn bodies(items: &[InboxItem]) -> Vec<&str> {
    let bodies = items.iter().map(|found| match &found.item {
        RunItem::Message { body, .. } => body.as_str(),
        other => panic!("{other:?}"),
    });
    bodies.collect()
}

/// The messages of a renewal, its `inbox_to` and its `inbox_taken`.
fn shown(renewed: &RunRenewed) -> (Vec<&str>, u64, u64) {
    (bodies(&renewed.inbox), renewed.inbox_to, renewed.inbox_taken)
}

/// Makes a renewal that must be refused, and checks that it changed neither the run nor the end of any lease.
async fn refusal(ctx: &Ctx, renewal: RunRenewal) -> Error {
    let run = renewal.lease.run;
    let state = async || {
        let view = RunRead { history_max: 1_000, ..RunRead::brief(run) };
        let mut nobody = claim_request(1);
        nobody.kinds = vec![Kind::new("none").unwrap()];
        (ctx.store.read_runs(vec![view]).await.unwrap(), ctx.store.claim_runs(nobody).await.unwrap().next_at)
    };
    let (before, feed) = (state().await, ctx.feed_end().await);
    let refused = renew(ctx, renewal).await.expect_err("the renewal is refused");
    assert_eq!(state().await, before, "{refused:?} changes nothing");
    assert_eq!(ctx.feed_after(feed).await, []);
    refused
}

async fn a_renewed_run_is_not_claimed_before_the_new_end_of_its_lease(ctx: Ctx) {
    let (renewed, other) = (awake(&ctx).await, awake(&ctx).await);
    let claimed = claim_runs(&ctx, 2).await;
    assert_eq!(claimed[0].lease.run, renewed);
    let earliest = ctx.now().await.plus_ms(LONG_MS);
    let answer = renew(&ctx, renewal_of(&claimed[0])).await.unwrap();
    let latest = ctx.now().await.plus_ms(LONG_MS);
    assert!((earliest..=latest).contains(&answer.expires_at), "{earliest} to {latest}: {answer:?}");
    ctx.advance_ms(LEASE_MS).await;
    ctx.sweep(SweepKind::Reap).await;
    let mut request = claim_request(10);
    request.engine = worker_id("second");
    let runs = ctx.store.claim_runs(request.clone()).await.unwrap().runs;
    assert_eq!(runs.iter().map(|run| run.lease.run).collect::<Vec<_>>(), [other], "its lease was not renewed");
    request.run = Some(renewed);
    assert_eq!(ctx.store.claim_runs(request.clone()).await.unwrap().runs, []);
    // The lease ends this long after the call, and not after the end of the lease before.
    let last = renew(&ctx, RunRenewal { lease_ms: LEASE_MS, ..renewal_of(&claimed[0]) }).await.unwrap();
    assert!(last.expires_at < answer.expires_at);
    ctx.advance_ms(LEASE_MS).await;
    let again = ctx.store.claim_runs(request).await.unwrap().runs.remove(0);
    assert_ne!(again.lease.token, claimed[0].lease.token);
    assert_eq!(read(&ctx, renewed).await.run.engine, Some(worker_id("second")));
}

async fn a_claim_that_finds_nothing_returns_the_end_of_a_renewed_lease(ctx: Ctx) {
    awake(&ctx).await;
    let claimed = claim_run(&ctx).await;
    let renewed = renew(&ctx, renewal_of(&claimed)).await.unwrap();
    assert!(renewed.expires_at > claimed.expires_at);
    let empty = ctx.store.claim_runs(claim_request(1)).await.unwrap();
    assert_eq!((empty.runs.len(), empty.next_at), (0, Some(renewed.expires_at)));
}

async fn a_renewal_with_a_shorter_lease_ends_the_lease_sooner(ctx: Ctx) {
    let id = awake(&ctx).await;
    let claimed = claim_long(&ctx).await;
    let renewed = renew(&ctx, RunRenewal { lease_ms: LEASE_MS, ..renewal_of(&claimed) }).await.unwrap();
    assert!(renewed.expires_at < claimed.expires_at);
    ctx.advance_ms(LEASE_MS).await;
    assert_eq!(claim_run(&ctx).await.lease.run, id);
    assert_eq!(renew(&ctx, renewal_of(&claimed)).await, Err(Error::LeaseLost));
}

/// As a commit: the token decides, not the clock.
async fn a_lease_that_ended_is_renewed_while_nobody_has_claimed_the_run(ctx: Ctx) {
    awake(&ctx).await;
    let claimed = claim_run(&ctx).await;
    ctx.advance_ms(LEASE_MS).await;
    renew(&ctx, renewal_of(&claimed)).await.unwrap();
    assert_eq!(claim_runs(&ctx, 1).await, []);
    commit(&ctx, &claimed, step(&["a"])).await.unwrap();
}

async fn renewals_return_the_items_that_arrived_since_once_and_in_order(ctx: Ctx) {
    let id = awake(&ctx).await;
    send_all(&ctx, id, &["before"]).await;
    let claimed = claim_long(&ctx).await;
    assert_eq!((bodies(&claimed.inbox), claimed.inbox_to), (vec!["before"], 1));
    let first = renew(&ctx, renewal_of(&claimed)).await.unwrap();
    assert_eq!(shown(&first), (vec![], 1, 0), "nothing has arrived yet");
    send_all(&ctx, id, &["one", "two"]).await;
    let second = renew(&ctx, RunRenewal { inbox_from: first.inbox_to, ..renewal_of(&claimed) }).await.unwrap();
    assert_eq!(shown(&second), (vec!["one", "two"], 3, 2));
    send_all(&ctx, id, &["three"]).await;
    let third = renew(&ctx, RunRenewal { inbox_from: second.inbox_to, ..renewal_of(&claimed) }).await.unwrap();
    assert_eq!(shown(&third), (vec!["three"], 4, 1));
    let last = renew(&ctx, RunRenewal { inbox_from: third.inbox_to, ..renewal_of(&claimed) }).await.unwrap();
    assert_eq!(shown(&last), (vec![], 4, 0));
    assert_eq!(read(&ctx, id).await.run.inbox_len, 4, "only a commit takes items out of the inbox");
}

async fn a_renewal_returns_the_ends_of_jobs(ctx: Ctx) {
    let mut run = new_run(&ctx, "build");
    run.step = RunStep { jobs: vec![job_of(&ctx, run.id), job_of(&ctx, run.id)], ..step(&["begun"]) };
    run.step.wake = Some(Due::Now);
    ctx.store.create_runs(vec![run]).await.unwrap().remove(0).unwrap();
    let claimed = claim_long(&ctx).await;
    let jobs = ctx.claim("w", "q", 2).await;
    ctx.complete("w", jobs[1].lease).await.unwrap();
    ctx.complete("w", jobs[0].lease).await.unwrap();
    let renewed = renew(&ctx, renewal_of(&claimed)).await.unwrap();
    let ended = renewed.inbox.iter().map(|found| match &found.item {
        RunItem::JobEnded(end) => end.job,
        other => panic!("{other:?}"),
    });
    assert_eq!(ended.collect::<Vec<_>>(), [jobs[1].lease.job, jobs[0].lease.job]);
}

async fn a_renewal_through_another_handle_returns_the_items_of_both(ctx: Ctx) {
    let id = awake(&ctx).await;
    let handles = ctx.handles(2).await;
    let claimed = claim_long(&ctx).await;
    for (handle, body) in handles.iter().zip(["one", "two"]) {
        handle.send_to_runs(vec![message(id, body)]).await.unwrap().remove(0).unwrap();
    }
    for handle in &handles {
        let renewed = handle.renew_runs(vec![renewal_of(&claimed)]).await.unwrap().remove(0).unwrap();
        assert_eq!(shown(&renewed), (vec!["one", "two"], 2, 2));
    }
    let later = RunRenewal { inbox_from: 2, ..renewal_of(&claimed) };
    send_all(&ctx, id, &["three"]).await;
    for handle in &handles {
        let renewed = handle.renew_runs(vec![later]).await.unwrap().remove(0).unwrap();
        assert_eq!(shown(&renewed), (vec!["three"], 3, 1));
    }
}

async fn a_commit_takes_the_items_of_the_last_renewal_and_leaves_later_ones(ctx: Ctx) {
    let id = awake(&ctx).await;
    send_all(&ctx, id, &["one"]).await;
    let claimed = claim_long(&ctx).await;
    send_all(&ctx, id, &["two"]).await;
    let renewed = renew(&ctx, renewal_of(&claimed)).await.unwrap();
    assert_eq!(bodies(&renewed.inbox), ["two"]);
    send_all(&ctx, id, &["three"]).await;
    let made = RunCommit { inbox_to: renewed.inbox_to, ..commit_of(&claimed, step(&["a"])) };
    ctx.store.commit_runs(vec![made]).await.unwrap().remove(0).unwrap();
    assert_eq!(read(&ctx, id).await.run.inbox_len, 1);
    let next = claim_long(&ctx).await;
    assert_eq!((bodies(&next.inbox), next.inbox_to), (vec!["three"], 3));
    send_all(&ctx, id, &["four"]).await;
    let renewed = renew(&ctx, renewal_of(&next)).await.unwrap();
    assert_eq!(shown(&renewed), (vec!["four"], 4, 1), "the numbers go on");
}

async fn a_commit_with_the_number_of_the_claim_leaves_the_items_of_a_renewal(ctx: Ctx) {
    let id = awake(&ctx).await;
    send_all(&ctx, id, &["one"]).await;
    let claimed = claim_long(&ctx).await;
    send_all(&ctx, id, &["two"]).await;
    renew(&ctx, renewal_of(&claimed)).await.unwrap();
    commit(&ctx, &claimed, step(&["a"])).await.unwrap();
    assert_eq!(bodies(&claim_run(&ctx).await.inbox), ["two"]);
}

async fn a_renewal_from_an_earlier_number_returns_items_again_and_none_that_were_handled(ctx: Ctx) {
    let id = awake(&ctx).await;
    send_all(&ctx, id, &["one", "two"]).await;
    let claimed = claim_long(&ctx).await;
    send_all(&ctx, id, &["three", "four"]).await;
    let from = |inbox_from| RunRenewal { inbox_from, ..renewal_of(&claimed) };
    let all = renew(&ctx, from(0)).await.unwrap();
    assert_eq!(shown(&all), (vec!["one", "two", "three", "four"], 4, 4));
    assert_eq!(shown(&renew(&ctx, from(1)).await.unwrap()), (vec!["two", "three", "four"], 4, 3));
    assert_eq!(shown(&renew(&ctx, from(4)).await.unwrap()), (vec![], 4, 0));
    let keeps = RunCommit { inbox_to: 3, lease_ms: Some(LONG_MS), ..commit_of(&claimed, step(&["a"])) };
    ctx.store.commit_runs(vec![keeps]).await.unwrap().remove(0).unwrap();
    for inbox_from in 0..=3 {
        assert_eq!(shown(&renew(&ctx, from(inbox_from)).await.unwrap()), (vec!["four"], 4, 1), "{inbox_from}");
    }
}

async fn a_long_inbox_comes_in_several_renewals(ctx: Ctx) {
    let id = awake(&ctx).await;
    let claimed = claim_long(&ctx).await;
    let count = 2 * INBOX_ITEMS_MAX + 7;
    let sent: Vec<String> = (0..count).map(|n| n.to_string()).collect();
    let messages = sent.iter().map(|body| message(id, body)).collect();
    assert!(ctx.store.send_to_runs(messages).await.unwrap().iter().all(Result::is_ok));
    let (mut renewal, mut lengths, mut found) = (renewal_of(&claimed), Vec::new(), Vec::new());
    for _ in 0..4 {
        let renewed = renew(&ctx, renewal).await.unwrap();
        assert_eq!(renewed.inbox_to - renewal.inbox_from, renewed.inbox_taken);
        renewal.inbox_from = renewed.inbox_to;
        lengths.push((renewed.inbox.len(), renewed.inbox_taken));
        found.extend(bodies(&renewed.inbox).into_iter().map(str::to_owned));
    }
    assert_eq!(lengths, [(INBOX_ITEMS_MAX, 1_000), (INBOX_ITEMS_MAX, 1_000), (7, 7), (0, 0)]);
    assert_eq!(found, sent);
    let made = RunCommit { inbox_to: renewal.inbox_from, ..commit_of(&claimed, step(&["a"])) };
    ctx.store.commit_runs(vec![made]).await.unwrap().remove(0).unwrap();
    assert_eq!(read(&ctx, id).await.run.inbox_len, 0);
}

async fn a_heavy_inbox_comes_in_several_renewals(ctx: Ctx) {
    let id = awake(&ctx).await;
    let claimed = claim_long(&ctx).await;
    for n in 0..3 {
        send(&ctx, message(id, &n.to_string().repeat(3 << 20))).await.unwrap();
    }
    let mut renewal = renewal_of(&claimed);
    for n in 0..3 {
        let renewed = renew(&ctx, renewal).await.unwrap();
        assert_eq!((renewed.inbox.len(), renewed.inbox_taken, renewed.inbox_to), (1, 1, n + 1));
        let body = bodies(&renewed.inbox)[0];
        assert!(body.starts_with(&n.to_string()) && body.len() == 3 << 20);
        renewal.inbox_from = renewed.inbox_to;
    }
    assert_eq!(shown(&renew(&ctx, renewal).await.unwrap()), (vec![], 3, 0));
}

async fn a_renewal_changes_nothing_but_the_end_of_the_lease(ctx: Ctx) {
    let mut run = new_run(&ctx, "build");
    run.step = RunStep { wake: Some(Due::DelayMs(LONG_MS)), summary: "1 of 2".to_owned(), ..step(&["begun"]) };
    ctx.store.create_runs(vec![run.clone()]).await.unwrap().remove(0).unwrap();
    send_all(&ctx, run.id, &["one"]).await;
    let claimed = claim_long(&ctx).await;
    send_all(&ctx, run.id, &["two"]).await;
    let (before, feed) = (read(&ctx, run.id).await, ctx.feed_end().await);
    // A clock that has moved shows a renewal that counts as a change.
    ctx.advance_ms(5).await;
    renew(&ctx, renewal_of(&claimed)).await.unwrap();
    assert_eq!(read(&ctx, run.id).await, before);
    assert_eq!(ctx.feed_after(feed).await, []);
    assert_eq!(claim_runs(&ctx, 1).await, []);
    commit(&ctx, &claimed, step(&["a"])).await.expect("the history is as long as the claim said");
}

async fn a_renewed_run_is_still_woken_at_its_time(ctx: Ctx) {
    let mut run = new_run(&ctx, "build");
    run.step.wake = Some(Due::DelayMs(LONG_MS));
    ctx.store.create_runs(vec![run.clone()]).await.unwrap().remove(0).unwrap();
    let wake_at = read(&ctx, run.id).await.run.wake_at;
    let mut request = claim_request(1);
    request.run = Some(run.id);
    let claimed = ctx.store.claim_runs(request).await.unwrap().runs.remove(0);
    assert!(!claimed.woken);
    renew(&ctx, renewal_of(&claimed)).await.unwrap();
    let kept = RunStep { wake: wake_at.map(Due::At), ..step(&["a"]) };
    commit(&ctx, &claimed, kept).await.unwrap();
    let empty = ctx.store.claim_runs(claim_request(1)).await.unwrap();
    assert_eq!((empty.runs.len(), empty.next_at), (0, wake_at));

    // Its time comes during the lease, and its engine vanishes.
    let mut run = new_run(&ctx, "build");
    run.step.wake = Some(Due::DelayMs(LEASE_MS));
    ctx.store.create_runs(vec![run.clone()]).await.unwrap().remove(0).unwrap();
    let mut request = claim_request(1);
    (request.run, request.lease_ms) = (Some(run.id), LONG_MS);
    let claimed = ctx.store.claim_runs(request).await.unwrap().runs.remove(0);
    renew(&ctx, renewal_of(&claimed)).await.unwrap();
    ctx.advance_ms(LEASE_MS).await;
    assert_eq!(claim_runs(&ctx, 1).await, [], "its engine holds it");
    renew(&ctx, RunRenewal { lease_ms: LEASE_MS, ..renewal_of(&claimed) }).await.unwrap();
    ctx.advance_ms(LEASE_MS).await;
    let woken = claim_run(&ctx).await;
    assert_eq!((woken.lease.run, woken.woken), (run.id, true));
}

async fn a_renewal_with_a_wrong_token_is_refused(ctx: Ctx) {
    let id = awake(&ctx).await;
    let mine = Token::from_bits(7);
    let forged = RunRenewal { lease: RunLease { run: id, token: mine }, lease_ms: LONG_MS, inbox_from: 0 };
    assert_eq!(refusal(&ctx, forged).await, Error::LeaseLost, "nobody holds the run");
    let claimed = claim_long(&ctx).await;
    send_all(&ctx, id, &["one"]).await;
    assert_eq!(refusal(&ctx, forged).await, Error::LeaseLost);
    assert_eq!(refusal(&ctx, RunRenewal { inbox_from: u64::MAX, ..forged }).await, Error::LeaseLost);
    renew(&ctx, renewal_of(&claimed)).await.unwrap();
}

async fn a_renewal_of_an_interrupted_run_is_refused_and_the_next_claim_gets_all_items(ctx: Ctx) {
    let id = awake(&ctx).await;
    send_all(&ctx, id, &["one"]).await;
    let claimed = claim_long(&ctx).await;
    send_all(&ctx, id, &["two"]).await;
    let renewed = renew(&ctx, renewal_of(&claimed)).await.unwrap();
    send(&ctx, RunMessage { interrupts: true, ..message(id, "stop") }).await.unwrap();
    let next = RunRenewal { inbox_from: renewed.inbox_to, ..renewal_of(&claimed) };
    assert_eq!(refusal(&ctx, next).await, Error::LeaseLost);
    assert_eq!(bodies(&claim_run(&ctx).await.inbox), ["one", "two", "stop"]);
}

async fn a_renewal_of_a_run_that_another_engine_has_claimed_is_refused(ctx: Ctx) {
    awake(&ctx).await;
    let old = claim_run(&ctx).await;
    renew(&ctx, RunRenewal { lease_ms: LEASE_MS, ..renewal_of(&old) }).await.unwrap();
    ctx.advance_ms(LEASE_MS).await;
    let mut request = claim_request(1);
    (request.engine, request.lease_ms) = (worker_id("second"), LONG_MS);
    let new = ctx.store.claim_runs(request).await.unwrap().runs.remove(0);
    assert_eq!(refusal(&ctx, renewal_of(&old)).await, Error::LeaseLost);
    renew(&ctx, renewal_of(&new)).await.unwrap();
}

async fn a_renewal_of_a_released_an_ended_and_a_removed_run_is_refused(ctx: Ctx) {
    let id = awake(&ctx).await;
    let released = claim_run(&ctx).await;
    commit(&ctx, &released, RunStep { wake: Some(Due::Now), ..step(&["a"]) }).await.unwrap();
    assert_eq!(refusal(&ctx, renewal_of(&released)).await, Error::LeaseLost);
    let ended = claim_run(&ctx).await;
    commit(&ctx, &ended, RunStep { state: RunState::Succeeded, ..step(&["end"]) }).await.unwrap();
    assert_eq!(refusal(&ctx, renewal_of(&ended)).await, Error::LeaseLost);
    ctx.store.remove_runs(vec![id]).await.unwrap().remove(0).unwrap();
    let missing = refusal(&ctx, renewal_of(&ended)).await;
    assert!(matches!(&missing, Error::NotFound { .. }), "{missing:?}");
}

async fn a_renewal_of_a_missing_run_is_refused(ctx: Ctx) {
    let lease = RunLease { run: ctx.ids.next_run(), token: Token::from_bits(7) };
    let missing = refusal(&ctx, RunRenewal { lease, lease_ms: LONG_MS, inbox_from: 0 }).await;
    assert!(matches!(&missing, Error::NotFound { .. }) && missing.to_string().contains(&lease.run.to_string()));
}

async fn a_renewal_from_beyond_the_inbox_is_refused(ctx: Ctx) {
    let id = awake(&ctx).await;
    send_all(&ctx, id, &["one"]).await;
    let claimed = claim_long(&ctx).await;
    for inbox_from in [2, 1_000_000, u64::MAX] {
        let refused = refusal(&ctx, RunRenewal { inbox_from, ..renewal_of(&claimed) }).await;
        assert_eq!(refused, Error::beyond_inbox("inbox_from"), "{inbox_from}");
    }
    send_all(&ctx, id, &["two"]).await;
    let renewed = renew(&ctx, RunRenewal { inbox_from: 2, ..renewal_of(&claimed) }).await.unwrap();
    assert_eq!(shown(&renewed), (vec![], 2, 0), "the number of the next item is not beyond the inbox");
}

async fn a_renewal_with_a_lease_that_is_too_short_or_too_long_is_refused(ctx: Ctx) {
    awake(&ctx).await;
    let claimed = claim_long(&ctx).await;
    let short = refusal(&ctx, RunRenewal { lease_ms: 0, ..renewal_of(&claimed) }).await;
    assert!(matches!(&short, Error::Invalid { field, .. } if field == "lease_ms"), "{short:?}");
    let long = refusal(&ctx, RunRenewal { lease_ms: u64::MAX, ..renewal_of(&claimed) }).await;
    assert!(matches!(&long, Error::Limit { .. }) && long.to_string().contains("lease_ms"), "{long:?}");
    renew(&ctx, renewal_of(&claimed)).await.unwrap();
}

async fn renewals_of_one_call_are_answered_each_on_its_own(ctx: Ctx) {
    let (one, two) = (awake(&ctx).await, awake(&ctx).await);
    let claimed = claim_runs(&ctx, 2).await;
    send_all(&ctx, one, &["a", "b"]).await;
    send_all(&ctx, two, &["c"]).await;
    let (first, second) = (renewal_of(&claimed[0]), renewal_of(&claimed[1]));
    let stranger = RunRenewal { lease: RunLease { run: ctx.ids.next_run(), ..first.lease }, ..first };
    let answers = ctx
        .store
        .renew_runs(vec![
            RunRenewal { lease_ms: LEASE_MS, ..first },
            RunRenewal { lease_ms: 0, ..first },
            stranger,
            second,
            RunRenewal { lease: RunLease { token: Token::from_bits(7), ..second.lease }, ..second },
            RunRenewal { inbox_from: 1, ..first },
            RunRenewal { inbox_from: 9, ..second },
        ])
        .await
        .unwrap();
    let [whole, short, missing, other, lost, again, beyond] = <[_; 7]>::try_from(answers).unwrap();
    assert_eq!(shown(&whole.unwrap()), (vec!["a", "b"], 2, 2));
    assert!(matches!(&short, Err(Error::Invalid { .. })), "{short:?}");
    assert!(matches!(&missing, Err(Error::NotFound { .. })), "{missing:?}");
    assert_eq!(shown(&other.unwrap()), (vec!["c"], 1, 1));
    assert_eq!(lost, Err(Error::LeaseLost));
    assert_eq!(shown(&again.unwrap()), (vec!["b"], 2, 1), "the same run again");
    assert_eq!(beyond, Err(Error::beyond_inbox("inbox_from")));
    ctx.advance_ms(LEASE_MS).await;
    assert_eq!(claim_runs(&ctx, 2).await, [], "the last renewal of a run decides when its lease ends");
}

async fn hundreds_of_runs_are_renewed_in_one_call(ctx: Ctx) {
    let runs = (0..600).map(|n| {
        let mut run = new_run(&ctx, &format!("run {n}"));
        run.step.wake = Some(Due::Now);
        run
    });
    assert!(ctx.store.create_runs(runs.collect()).await.unwrap().iter().all(Result::is_ok));
    let mut request = claim_request(600);
    request.lease_ms = LONG_MS;
    let claimed = ctx.store.claim_runs(request).await.unwrap().runs;
    assert_eq!(claimed.len(), 600);
    let messages = claimed.iter().map(|run| message(run.lease.run, &run.lease.run.to_string())).collect();
    assert!(ctx.store.send_to_runs(messages).await.unwrap().iter().all(Result::is_ok));
    let of = |n: usize| match n {
        5 => RunRenewal { lease_ms: 0, ..renewal_of(&claimed[n]) },
        550 => RunRenewal { inbox_from: 2, ..renewal_of(&claimed[n]) },
        _ => renewal_of(&claimed[n]),
    };
    let answers = ctx.store.renew_runs((0..600).map(of).collect()).await.unwrap();
    assert_eq!(answers.len(), 600);
    let refused: Vec<usize> = (0..600).filter(|n| answers[*n].is_err()).collect();
    assert_eq!(refused, [5, 550]);
    for (run, renewed) in claimed.iter().zip(&answers).filter_map(|(run, answer)| Some((run, answer.as_ref().ok()?))) {
        assert_eq!(shown(renewed), (vec![run.lease.run.to_string().as_str()], 1, 1), "each answer is that of its run");
    }
}

async fn an_empty_batch_is_answered_and_a_batch_that_is_too_large_is_refused_whole(ctx: Ctx) {
    let id = awake(&ctx).await;
    let claimed = claim_long(&ctx).await;
    assert_eq!(ctx.store.renew_runs(Vec::new()).await, Ok(Vec::new()));
    let before = ctx.store.claim_runs(claim_request(1)).await.unwrap().next_at;
    let refused = ctx.store.renew_runs(vec![renewal_of(&claimed); BATCH_MAX + 1]).await;
    assert!(matches!(&refused, Err(Error::Limit { max: 10_000, got: 10_001, .. })), "{refused:?}");
    assert_eq!(ctx.store.claim_runs(claim_request(1)).await.unwrap().next_at, before);
    assert_eq!(before, Some(claimed.expires_at));
    assert_eq!(read(&ctx, id).await.run.engine, Some(worker_id("engine")));
}
