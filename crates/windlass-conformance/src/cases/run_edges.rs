//! Runs at their edges: refused steps, ends with something left, jobs that were renewed or reaped, heavy inboxes.

use super::run_help::{
    LEASE_MS, claim_request, claim_run, claim_runs, commit, commit_of, entry, inbox_jobs, job_of, message, new_run,
    read, send, step,
};
use crate::ctx::{Ctx, worker_id};
use crate::look::{on_in, release};
use crate::runner::cases;
use windlass_core::Error;
use windlass_core::id::{JobId, RunId};
use windlass_core::job::{Due, JobSpec, NewJob, State};
use windlass_core::name::GroupName;
use windlass_core::store::{
    ChangeOp, InboxItem, RenewRequest, Renewal, RunCommit, RunItem, RunMessage, RunRead, RunState, RunStep, SweepKind,
};

cases!("run_edges":
    a_step_thought_out_on_another_history_is_refused,
    a_step_with_a_job_id_that_is_taken_changes_nothing,
    an_ended_run_forgets_what_it_was_not_told,
    a_job_that_was_renewed_is_told,
    a_job_that_was_reaped_once_is_told,
    an_ended_job_is_told_once,
    a_job_that_goes_at_once_is_told,
    runs_come_in_the_order_in_which_they_got_something_to_do,
    runs_come_in_the_order_in_which_their_jobs_ended,
    a_claim_says_when_to_look_again,
    a_heavy_inbox_is_handed_out_in_parts,
    hundreds_of_runs_are_committed_at_once,
    steps_of_one_call_see_each_other,
    a_commit_whose_repetition_could_not_be_recognised_is_refused,
    a_run_created_again_under_its_id_has_another_number,
    a_step_cancels_the_jobs_that_it_starts,
    a_first_step_cancels_the_jobs_that_it_starts,
    a_step_cancels_jobs_that_no_worker_has_claimed,
    a_commit_cancels_jobs_that_an_earlier_commit_of_the_same_call_starts,
    names_and_texts_come_back_as_they_were,
);

/// A run with `n` jobs that are ready.
async fn begun(ctx: &Ctx, n: usize) -> RunId {
    let mut run = new_run(ctx, "build");
    run.step.jobs = (0..n).map(|_| job_of(ctx, run.id)).collect();
    ctx.store.create_runs(vec![run.clone()]).await.unwrap().remove(0).unwrap();
    run.id
}

/// A run that has something to do at once.
async fn awake(ctx: &Ctx) -> RunId {
    let mut run = new_run(ctx, "build");
    run.step.wake = Some(Due::Now);
    ctx.store.create_runs(vec![run.clone()]).await.unwrap().remove(0).unwrap();
    run.id
}

async fn a_step_thought_out_on_another_history_is_refused(ctx: Ctx) {
    let id = awake(&ctx).await;
    let claimed = claim_run(&ctx).await;
    for history_len in [0, 2, 7, u64::MAX] {
        let wrong = RunCommit { history_len, ..commit_of(&claimed, step(&["a", "b"])) };
        let refused = ctx.store.commit_runs(vec![wrong]).await.unwrap().remove(0);
        assert_eq!(refused, Err(Error::LeaseLost), "{history_len}");
    }
    assert_eq!(read(&ctx, id).await.history, [entry("begun")]);
    commit(&ctx, &claimed, step(&["a"])).await.expect("the lease is still held");
}

async fn a_step_with_a_job_id_that_is_taken_changes_nothing(ctx: Ctx) {
    let taken = ctx.enqueue(ctx.job("other", "work")).await.id();
    let mut run = new_run(&ctx, "build");
    let (good, mut bad) = (job_of(&ctx, run.id), job_of(&ctx, run.id));
    bad.id = taken;
    run.step.jobs = vec![good.clone(), bad.clone()];
    let answers = ctx.store.create_runs(vec![run.clone()]).await.unwrap();
    assert_eq!(answers[0], Err(Error::Duplicate { id: taken }));
    assert_eq!(ctx.store.read_runs(vec![RunRead::brief(run.id)]).await.unwrap(), [None]);
    run.step = RunStep { wake: Some(Due::Now), ..step(&["begun"]) };
    ctx.store.create_runs(vec![run.clone()]).await.unwrap().remove(0).unwrap();
    let claimed = claim_run(&ctx).await;
    let refused = commit(&ctx, &claimed, RunStep { jobs: vec![good.clone(), bad], ..step(&["a"]) }).await;
    assert_eq!(refused, Err(Error::Duplicate { id: taken }));
    assert_eq!(ctx.get(good.id).await, None);
    assert_eq!(read(&ctx, run.id).await.history, [entry("begun")]);
    commit(&ctx, &claimed, step(&["a"])).await.expect("the lease is still held");
}

async fn an_ended_run_forgets_what_it_was_not_told(ctx: Ctx) {
    let id = awake(&ctx).await;
    for body in ["one", "two"] {
        send(&ctx, message(id, body)).await.unwrap();
    }
    let claimed = claim_run(&ctx).await;
    let ends = RunStep { state: RunState::Failed, wake: Some(Due::Now), ..step(&["end"]) };
    let unheard = RunCommit { inbox_to: 0, ..commit_of(&claimed, ends) };
    ctx.store.commit_runs(vec![unheard]).await.unwrap().remove(0).unwrap();
    let ended = read(&ctx, id).await.run;
    assert_eq!((ended.inbox_len, ended.wake_at, ended.engine), (0, None, None));
    send(&ctx, RunMessage { reopens: true, ..message(id, "again") }).await.unwrap();
    let claimed = claim_run(&ctx).await;
    assert!(!claimed.woken);
    assert!(
        matches!(&claimed.inbox[..], [InboxItem { item: RunItem::Message { body, .. }, .. }] if body == "again"),
        "{:?}",
        claimed.inbox
    );
}

async fn a_job_that_was_renewed_is_told(ctx: Ctx) {
    begun(&ctx, 1).await;
    renewed_and_told(&ctx).await;
    let mut run = new_run(&ctx, "build");
    let grouped = ctx.job_with("q", |spec| {
        spec.run = Some(run.id);
        spec.group = Some(GroupName::new("g").unwrap());
    });
    run.step.jobs = vec![grouped];
    ctx.store.create_runs(vec![run.clone()]).await.unwrap().remove(0).unwrap();
    renewed_and_told(&ctx).await;
}

async fn renewed_and_told(ctx: &Ctx) {
    let job = ctx.claim_one("w", "q").await;
    let renewal = Renewal { lease: job.lease, lease_ms: Some(60_000), progress: None };
    ctx.store.renew(RenewRequest { renewals: vec![renewal] }).await.unwrap().remove(0).unwrap();
    ctx.complete("w", job.lease).await.unwrap();
    assert_eq!(inbox_jobs(&claim_run(ctx).await), [job.lease.job]);
}

async fn a_job_that_was_reaped_once_is_told(ctx: Ctx) {
    begun(&ctx, 1).await;
    ctx.claim_short("w", "q", 50).await;
    ctx.expire(50).await;
    assert!(claim_runs(&ctx, 1).await.is_empty());
    let job = ctx.claim_one("w2", "q").await;
    ctx.complete("w2", job.lease).await.unwrap();
    assert_eq!(inbox_jobs(&claim_run(&ctx).await), [job.lease.job]);
}

async fn an_ended_job_is_told_once(ctx: Ctx) {
    begun(&ctx, 1).await;
    let job = ctx.claim_one("w", "q").await;
    ctx.complete("w", job.lease).await.unwrap();
    assert!(ctx.complete("w", job.lease).await.unwrap().repeated);
    ctx.change(job.lease.job, ChangeOp::Remove).await.unwrap();
    assert_eq!(inbox_jobs(&claim_run(&ctx).await), [job.lease.job]);
}

async fn a_job_that_goes_at_once_is_told(ctx: Ctx) {
    let mut run = new_run(&ctx, "build");
    let mut job = job_of(&ctx, run.id);
    job.spec.keep_for.succeeded_ms = Some(0);
    run.step.jobs = vec![job.clone()];
    ctx.store.create_runs(vec![run]).await.unwrap().remove(0).unwrap();
    ctx.complete("w", ctx.claim_one("w", "q").await.lease).await.unwrap();
    ctx.sweep(SweepKind::Prune).await;
    assert_eq!(ctx.get(job.id).await, None);
    let claimed = claim_run(&ctx).await;
    let [InboxItem { item: RunItem::JobEnded(end), .. }] = &claimed.inbox[..] else { panic!("{:?}", claimed.inbox) };
    assert_eq!((end.job, end.state), (job.id, Some(State::Succeeded)));
}

async fn runs_come_in_the_order_in_which_they_got_something_to_do(ctx: Ctx) {
    let (one, two, three) = (begun(&ctx, 0).await, begun(&ctx, 0).await, begun(&ctx, 0).await);
    for run in [two, three, two, one, two] {
        send(&ctx, message(run, "hello")).await.unwrap();
    }
    let mut order = Vec::new();
    for _ in 0..3 {
        let claimed = claim_runs(&ctx, 1).await;
        assert_eq!(claimed.len(), 1, "no more than were asked for");
        order.push(claimed[0].lease.run);
    }
    assert_eq!(order, [two, three, one]);
}

async fn runs_come_in_the_order_in_which_their_jobs_ended(ctx: Ctx) {
    let runs = [begun(&ctx, 1).await, begun(&ctx, 1).await, begun(&ctx, 1).await];
    let jobs = ctx.claim("w", "q", 3).await;
    for at in [2, 0, 1] {
        ctx.complete("w", jobs[at].lease).await.unwrap();
    }
    let order: Vec<RunId> = claim_runs(&ctx, 3).await.iter().map(|run| run.lease.run).collect();
    assert_eq!(order, [2, 0, 1].map(|at: usize| runs[at]));
}

async fn a_claim_says_when_to_look_again(ctx: Ctx) {
    awake(&ctx).await;
    let first = ctx.store.claim_runs(claim_request(10)).await.unwrap();
    assert_eq!(first.next_at, Some(first.runs[0].expires_at), "its own lease ends then");
    let mut later = new_run(&ctx, "later");
    later.step.wake = Some(Due::DelayMs(60_000));
    let id = later.id;
    ctx.store.create_runs(vec![later]).await.unwrap().remove(0).unwrap();
    commit(&ctx, &first.runs[0], step(&["a"])).await.unwrap();
    let empty = ctx.store.claim_runs(claim_request(10)).await.unwrap();
    assert_eq!((empty.runs.len(), empty.next_at), (0, read(&ctx, id).await.run.wake_at), "no lease is held any more");
    send(&ctx, message(id, "sooner")).await.unwrap();
    let claimed = claim_run(&ctx).await;
    commit(&ctx, &claimed, RunStep { state: RunState::Cancelled, ..step(&["end"]) }).await.unwrap();
    assert_eq!(ctx.store.claim_runs(claim_request(10)).await.unwrap().next_at, None, "nobody waits for anything");
}

async fn a_heavy_inbox_is_handed_out_in_parts(ctx: Ctx) {
    let id = begun(&ctx, 0).await;
    for n in 0..3 {
        send(&ctx, message(id, &n.to_string().repeat(3 << 20))).await.unwrap();
    }
    for n in 0..3 {
        let claimed = claim_run(&ctx).await;
        assert_eq!((claimed.inbox.len(), claimed.inbox_taken, claimed.inbox_to), (1, 1, n + 1));
        let RunItem::Message { body, .. } = &claimed.inbox[0].item else { panic!("no message") };
        assert!(body.starts_with(&n.to_string()) && body.len() == 3 << 20);
        commit(&ctx, &claimed, step(&["a"])).await.unwrap();
    }
    assert!(claim_runs(&ctx, 1).await.is_empty());
}

async fn hundreds_of_runs_are_committed_at_once(ctx: Ctx) {
    let runs = (0..600).map(|n| {
        let mut run = new_run(&ctx, &format!("run {n}"));
        run.step.wake = Some(Due::Now);
        run
    });
    assert!(ctx.store.create_runs(runs.collect()).await.unwrap().iter().all(Result::is_ok));
    let mut request = claim_request(600);
    (request.engine, request.lease_ms) = (worker_id("engine"), 60_000);
    let claimed = ctx.store.claim_runs(request).await.unwrap().runs;
    assert_eq!(claimed.len(), 600);
    let of = |n: usize| {
        let run = &claimed[n];
        let jobs = vec![job_of(&ctx, run.lease.run)];
        let made = commit_of(run, RunStep { jobs, ..step(&["a"]) });
        // One of them is too late; that is nobody else's fault.
        if n == 300 { RunCommit { history_len: 9, ..made } } else { made }
    };
    let answers = ctx.store.commit_runs((0..600).map(of).collect()).await.unwrap();
    let refused: Vec<usize> = (0..600).filter(|n| answers[*n].is_err()).collect();
    assert_eq!(refused, [300]);
    assert_eq!(ctx.counts("q").await.ready, 599);
}

async fn a_commit_whose_repetition_could_not_be_recognised_is_refused(ctx: Ctx) {
    let (run, other) = (awake(&ctx).await, awake(&ctx).await);
    let claimed = claim_runs(&ctx, 2).await.into_iter().find(|claimed| claimed.lease.run == run).unwrap();
    let keeps = |step: RunStep| RunCommit { lease_ms: Some(LEASE_MS), inbox_to: 0, ..commit_of(&claimed, step) };
    // With the same length of the history and the same lease, the second one would be made as well.
    let starts = keeps(RunStep { jobs: vec![job_of(&ctx, run)], ..step(&[]) });
    let sends = keeps(RunStep { messages: vec![message(other, "hi")], ..step(&[]) });
    for answer in ctx.store.commit_runs(vec![starts, sends]).await.unwrap() {
        assert!(matches!(&answer, Err(Error::Invalid { field, .. }) if field == "history"), "{answer:?}");
    }
    let inboxes = read(&ctx, other).await.run.inbox_len;
    assert_eq!((ctx.counts("q").await.ready, inboxes), (0, read(&ctx, run).await.run.inbox_len));
    // What changes nothing when it is made twice needs no entry.
    let cancels = keeps(RunStep { cancel: vec![ctx.ids.next()], ..step(&[]) });
    ctx.store.commit_runs(vec![cancels]).await.unwrap().remove(0).unwrap();
}

async fn steps_of_one_call_see_each_other(ctx: Ctx) {
    let (one, two) = (awake(&ctx).await, awake(&ctx).await);
    let claimed = claim_runs(&ctx, 2).await;
    let job = job_of(&ctx, one);
    let made = RunCommit {
        lease_ms: Some(LEASE_MS),
        ..commit_of(
            &claimed[0],
            RunStep { jobs: vec![job.clone()], messages: vec![message(two, "hi")], ..step(&["a"]) },
        )
    };
    let cancels = RunCommit {
        history_len: 2,
        inbox_to: 0,
        ..commit_of(&claimed[0], RunStep { cancel: vec![job.id], ..step(&["b"]) })
    };
    let other = RunCommit { inbox_to: 1, ..commit_of(&claimed[1], step(&["c"])) };
    let answers = ctx.store.commit_runs(vec![made, cancels, other]).await.unwrap();
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    assert_eq!(ctx.state(job.id).await, State::Cancelled);
    assert_eq!(read(&ctx, one).await.history, [entry("begun"), entry("a"), entry("b")]);
    assert_eq!(read(&ctx, two).await.run.inbox_len, 0, "it has handled the message of the same call");
    assert_eq!(inbox_jobs(&claim_run(&ctx).await), [job.id]);
}

async fn a_run_created_again_under_its_id_has_another_number(ctx: Ctx) {
    let mut run = new_run(&ctx, "build");
    run.step.wake = Some(Due::Now);
    let mut numbers = Vec::new();
    for _ in 0..3 {
        ctx.store.create_runs(vec![run.clone()]).await.unwrap().remove(0).unwrap();
        let first = claim_run(&ctx).await;
        commit(&ctx, &first, RunStep { wake: Some(Due::Now), ..step(&["a"]) }).await.unwrap();
        let claimed = claim_run(&ctx).await;
        assert_eq!(claimed.number, first.number, "it stays the same run");
        commit(&ctx, &claimed, RunStep { state: RunState::Succeeded, ..step(&["end"]) }).await.unwrap();
        ctx.store.remove_runs(vec![run.id]).await.unwrap().remove(0).unwrap();
        numbers.push(claimed.number);
    }
    assert!(numbers.is_sorted_by(|earlier, later| earlier < later), "{numbers:?}");
}

/// Jobs of every form of a new job that a store may treat on its own: with defaults alone, with a priority, with a group, due later,
/// and in a queue that is not there yet.
fn new_jobs(ctx: &Ctx, run: RunId) -> Vec<NewJob> {
    let job = |queue: &str, change: &dyn Fn(&mut JobSpec)| {
        ctx.job_with(queue, |spec| {
            spec.run = Some(run);
            change(spec);
        })
    };
    vec![
        job("q", &|_| {}),
        job("q", &|spec| spec.priority = -3),
        job("q", &|spec| spec.group = Some(GroupName::new("g").unwrap())),
        job("q", &|_| {}).due(Due::DelayMs(60_000)),
        job("new", &|_| {}),
        job("q", &|_| {}),
    ]
}

/// Checks that these jobs were cancelled, that no claim gets them, and that their run is notified of each.
async fn check_cancelled(ctx: &Ctx, jobs: &[JobId]) {
    for job in jobs {
        assert_eq!(ctx.state(*job).await, State::Cancelled);
    }
    for queue in ["q", "new"] {
        let counts = ctx.counts(queue).await;
        assert_eq!((counts.ready, counts.scheduled), (0, 0), "{queue}");
        assert!(ctx.claim("w", queue, 10).await.is_empty());
    }
    assert_eq!(inbox_jobs(&claim_run(ctx).await), jobs);
}

async fn a_step_cancels_the_jobs_that_it_starts(ctx: Ctx) {
    let id = begun(&ctx, 1).await;
    ctx.complete("w", ctx.claim_one("w", "q").await.lease).await.unwrap();
    let jobs = new_jobs(&ctx, id);
    let ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
    let claimed = claim_run(&ctx).await;
    commit(&ctx, &claimed, RunStep { jobs, cancel: ids.clone(), ..step(&["a"]) }).await.unwrap();
    check_cancelled(&ctx, &ids).await;
}

async fn a_step_cancels_jobs_that_no_worker_has_claimed(ctx: Ctx) {
    let id = begun(&ctx, 4).await;
    let held = ctx.claim("w", "q", 3).await;
    let (active, returned, done) = (held[0].lease, held[1].lease, held[2].lease);
    let left = ctx.ids_where(on_in("q", State::Ready)).await;
    ctx.report("w", returned, release(true)).await.unwrap();
    ctx.complete("w", done).await.unwrap();
    let jobs = new_jobs(&ctx, id);
    let mut ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
    let stranger = ctx.enqueue(ctx.job("other", "work")).await.id();
    ids.extend([active.job, returned.job, done.job, stranger, ctx.ids.next()]);
    ids.extend(left);
    let claimed = claim_run(&ctx).await;
    let commit_step = RunStep { jobs, cancel_unclaimed: ids.clone(), ..step(&["a"]) };
    commit(&ctx, &claimed, commit_step).await.unwrap();
    assert!(!ctx.get(active.job).await.unwrap().cancel_requested, "it was claimed");
    assert_eq!(ctx.state(active.job).await, State::Active);
    assert_eq!(ctx.state(returned.job).await, State::Ready, "it was claimed once");
    assert_eq!(ctx.state(done.job).await, State::Succeeded);
    assert_eq!(ctx.state(stranger).await, State::Ready);
    let ended = inbox_jobs(&claim_run(&ctx).await);
    assert_eq!(ended.len(), 7, "six new jobs, and the one that was left: {ended:?}");
    for job in ended {
        assert_eq!((ctx.state(job).await, ctx.get(job).await.unwrap().claimed_at), (State::Cancelled, None));
    }
}

async fn a_first_step_cancels_the_jobs_that_it_starts(ctx: Ctx) {
    let mut run = new_run(&ctx, "build");
    let jobs = new_jobs(&ctx, run.id);
    let ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
    run.step = RunStep { jobs, cancel: ids.clone(), ..step(&["begun"]) };
    ctx.store.create_runs(vec![run]).await.unwrap().remove(0).unwrap();
    check_cancelled(&ctx, &ids).await;
}

async fn a_commit_cancels_jobs_that_an_earlier_commit_of_the_same_call_starts(ctx: Ctx) {
    let id = begun(&ctx, 1).await;
    ctx.complete("w", ctx.claim_one("w", "q").await.lease).await.unwrap();
    let jobs = new_jobs(&ctx, id);
    let ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
    let claimed = claim_run(&ctx).await;
    let starts = RunCommit { lease_ms: Some(LEASE_MS), ..commit_of(&claimed, RunStep { jobs, ..step(&["a"]) }) };
    let stop = RunStep { cancel: ids.clone(), ..step(&["b"]) };
    let stops = RunCommit { history_len: claimed.history_len + 1, ..commit_of(&claimed, stop) };
    for answer in ctx.store.commit_runs(vec![starts, stops]).await.unwrap() {
        answer.unwrap();
    }
    check_cancelled(&ctx, &ids).await;
}

async fn names_and_texts_come_back_as_they_were(ctx: Ctx) {
    let odd = "a \"b\"\\n\n\r\t\u{e9} - + @ \\";
    let mut run = new_run(&ctx, odd);
    run.input = vec![0, 10, 255, 13].into();
    run.step.summary = odd.to_owned();
    run.step.stuck = Some(odd.to_owned());
    run.step.history = vec![vec![10, 0, 255].into(), "".into(), odd.into()];
    ctx.store.create_runs(vec![run.clone()]).await.unwrap().remove(0).unwrap();
    let view = read(&ctx, run.id).await;
    assert_eq!((view.run.name.as_str(), view.run.summary.as_str(), view.run.stuck.as_deref()), (odd, odd, Some(odd)));
    assert_eq!((view.input.as_ref(), &view.history), (Some(&run.input), &run.step.history));
    send(&ctx, RunMessage { reopens: true, ..message(run.id, odd) }).await.unwrap();
    let claimed = claim_run(&ctx).await;
    assert!(
        matches!(&claimed.inbox[..], [InboxItem { item: RunItem::Message { body, .. }, .. }] if body == odd),
        "{:?}",
        claimed.inbox
    );
}
