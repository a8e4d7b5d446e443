//! Races for one thing: one winner, and the losers are told who won.

use super::concurrency::{TASKS, claim_of, race};
use crate::ctx::{Ctx, complete, queue_name, worker_id};
use crate::runner::cases;
use windlass_core::job::{Dedup, DedupBy, DedupMode, JobSpec, Lease, NewJob, State};
use windlass_core::name::{CustomId, DedupKey, ScheduleName};
use windlass_core::schedule::{Rule, Schedule};
use windlass_core::store::{
    Change, ChangeOp, Changed, EnqueueRequest, Enqueued, Fire, FireOutcome, Outcome, QueueSettings, ReportRequest,
    Reported, Setting, Sweep, SweepKind,
};
use windlass_core::{Error, Result};

cases!("concurrency":
    a_dedup_key_has_one_winner,
    a_custom_id_has_one_winner,
    a_custom_id_with_other_contents_has_one_winner,
    the_same_job_at_once_is_one_job,
    a_full_queue_is_never_overfilled,
    an_outcome_twice_at_once_is_new_once,
    a_claim_twice_at_once_is_one_claim,
    a_cancel_and_a_complete_agree,
    sweepers_reap_each_lease_once,
    a_tick_fires_once,
);

/// So often each race is run: the interleaving differs.
const ROUNDS: usize = 20;

/// Enqueues one job per task at once.
async fn enqueue_at_once(ctx: &Ctx, jobs: Vec<NewJob>) -> Vec<Result<Enqueued>> {
    race(ctx, jobs.len(), |store, k| {
        let request = EnqueueRequest::new(vec![jobs[k].clone()]);
        async move { store.enqueue(request).await.unwrap().remove(0) }
    })
    .await
}

fn winner(answers: &[Result<Enqueued>]) -> windlass_core::id::JobId {
    let created =
        answers.iter().filter_map(|answer| if let Ok(Enqueued::Created { id }) = answer { Some(*id) } else { None });
    let created: Vec<_> = created.collect();
    assert_eq!(created.len(), 1, "one winner, please: {answers:?}");
    created[0]
}

async fn a_dedup_key_has_one_winner(ctx: Ctx) {
    for round in 0..ROUNDS {
        let by = DedupBy::Key(DedupKey::new(format!("k{round}")).unwrap());
        let dedup = Dedup { by, mode: DedupMode::Reject, ttl_ms: None };
        let edit = |spec: &mut JobSpec| spec.dedup = Some(dedup.clone());
        let answers = enqueue_at_once(&ctx, (0..TASKS).map(|_| ctx.job_with("mail", edit)).collect()).await;
        let by = winner(&answers);
        let losers = answers.iter().filter(|answer| **answer == Ok(Enqueued::Deduplicated { by })).count();
        assert_eq!(losers, TASKS - 1, "{answers:?}");
    }
    assert_eq!(ctx.counts("mail").await.ready, ROUNDS as u64);
}

async fn a_custom_id_has_one_winner(ctx: Ctx) {
    for round in 0..ROUNDS {
        let edit = |spec: &mut JobSpec| spec.custom_id = Some(CustomId::new(format!("c{round}")).unwrap());
        let answers = enqueue_at_once(&ctx, (0..TASKS).map(|_| ctx.job_with("mail", edit)).collect()).await;
        let id = winner(&answers);
        let losers = answers.iter().filter(|answer| **answer == Ok(Enqueued::Existing { id })).count();
        assert_eq!(losers, TASKS - 1, "{answers:?}");
    }
    assert_eq!(ctx.counts("mail").await.ready, ROUNDS as u64);
}

async fn a_custom_id_with_other_contents_has_one_winner(ctx: Ctx) {
    for round in 0..ROUNDS {
        let edit = |k: usize| {
            move |spec: &mut JobSpec| {
                spec.custom_id = Some(CustomId::new(format!("c{round}")).unwrap());
                spec.priority = i16::try_from(k).unwrap();
            }
        };
        let answers = enqueue_at_once(&ctx, (0..TASKS).map(|k| ctx.job_with("mail", edit(k))).collect()).await;
        let id = winner(&answers);
        let losers = answers.iter().filter(|answer| **answer == Err(Error::Duplicate { id })).count();
        assert_eq!(losers, TASKS - 1, "{answers:?}");
        let won = answers.iter().position(|answer| *answer == Ok(Enqueued::Created { id })).unwrap();
        let kept = ctx.get(id).await.unwrap().spec.priority;
        assert_eq!(kept, i16::try_from(won).unwrap(), "the content that is kept is the winner's");
    }
}

async fn the_same_job_at_once_is_one_job(ctx: Ctx) {
    for _ in 0..ROUNDS {
        let job = ctx.job("mail", "email");
        let answers = enqueue_at_once(&ctx, vec![job.clone(); TASKS]).await;
        assert_eq!(winner(&answers), job.id);
        let losers = answers.iter().filter(|answer| **answer == Ok(Enqueued::Existing { id: job.id })).count();
        assert_eq!(losers, TASKS - 1, "{answers:?}");
    }
    assert_eq!(ctx.counts("mail").await.ready, ROUNDS as u64);
}

async fn a_full_queue_is_never_overfilled(ctx: Ctx) {
    let settings = QueueSettings { len_max: Some(50), ..QueueSettings::default() };
    ctx.store.configure(Setting::Queue { queue: queue_name("mail"), settings }).await.unwrap();
    let shares: Vec<Vec<NewJob>> = (0..TASKS).map(|_| (0..20).map(|_| ctx.job("mail", "email")).collect()).collect();
    let accepted: usize = race(&ctx, TASKS, |store, k| {
        let jobs = shares[k].clone();
        async move {
            let mut accepted = 0;
            for batch in jobs.chunks(3) {
                for answer in store.enqueue(EnqueueRequest::new(batch.to_vec())).await.unwrap() {
                    match answer {
                        Ok(_) => accepted += 1,
                        Err(error) => assert!(matches!(error, Error::Full { .. }), "{error}"),
                    }
                }
            }
            accepted
        }
    })
    .await
    .into_iter()
    .sum();
    assert_eq!((accepted, ctx.counts("mail").await.ready), (50, 50));
}

/// A job that `w0` has claimed, as number `round`.
async fn claimed(ctx: &Ctx, round: usize) -> Lease {
    let id = ctx.enqueue(ctx.job("mail", "email")).await.id();
    let claimed = ctx.store.claim(claim_of(0, round as u64 + 1, "mail", 1)).await.unwrap().jobs.remove(0);
    assert_eq!(claimed.lease.job, id);
    claimed.lease
}

fn completion(lease: Lease) -> ReportRequest {
    ReportRequest { worker: worker_id("w0"), outcomes: vec![Outcome { lease, kind: complete() }] }
}

async fn an_outcome_twice_at_once_is_new_once(ctx: Ctx) {
    for round in 0..ROUNDS {
        let lease = claimed(&ctx, round).await;
        let answers =
            race(&ctx, TASKS, |store, _| async move { store.report(completion(lease)).await.unwrap().remove(0) }).await;
        let first = Ok(Reported { state: State::Succeeded, repeated: false });
        let again = Ok(Reported { state: State::Succeeded, repeated: true });
        assert_eq!(answers.iter().filter(|answer| **answer == first).count(), 1, "{answers:?}");
        assert_eq!(answers.iter().filter(|answer| **answer == again).count(), TASKS - 1, "{answers:?}");
    }
    assert_eq!(ctx.counts("mail").await.succeeded, ROUNDS as u64);
}

async fn a_claim_twice_at_once_is_one_claim(ctx: Ctx) {
    for round in 1..=ROUNDS as u64 {
        ctx.enqueue_all((0..TASKS * 3).map(|_| ctx.job("mail", "email")).collect()).await;
        let answers = race(&ctx, TASKS, |store, _| async move {
            let claimed = store.claim(claim_of(0, round, "mail", 3)).await.unwrap();
            claimed.jobs.iter().map(|job| job.lease).collect::<Vec<Lease>>()
        })
        .await;
        assert_eq!(answers[0].len(), 3);
        assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
    }
    assert_eq!(ctx.counts("mail").await.active, 3 * ROUNDS as u64);
}

async fn a_cancel_and_a_complete_agree(ctx: Ctx) {
    for round in 0..ROUNDS {
        let lease = claimed(&ctx, round).await;
        let cancel = move || vec![Change { id: lease.job, op: ChangeOp::Cancel }];
        let answers = race(&ctx, 2, |store, k| async move {
            // By turns, so that each has the chance to be first.
            if (k + round) % 2 == 0 {
                (Some(store.report(completion(lease)).await.unwrap().remove(0)), None)
            } else {
                (None, Some(store.change(cancel()).await.unwrap().remove(0)))
            }
        })
        .await;
        let reported = answers.iter().find_map(|(reported, _)| reported.clone()).unwrap().unwrap();
        let changed = answers.iter().find_map(|(_, changed)| changed.clone()).unwrap();
        assert!(!reported.repeated);
        let cancelled = changed == Ok(Changed { state: Some(State::Active) });
        assert!(
            cancelled || matches!(changed, Err(Error::IllegalTransition { from: State::Succeeded, .. })),
            "{changed:?}"
        );
        let expected = if cancelled { State::Cancelled } else { State::Succeeded };
        assert_eq!((reported.state, ctx.state(lease.job).await), (expected, expected), "whoever came first decides");
    }
}

async fn sweepers_reap_each_lease_once(ctx: Ctx) {
    let ids = ctx.enqueue_all((0..200).map(|_| ctx.job_with("mail", |spec| spec.stalls = 3)).collect()).await;
    let mut request = claim_of(0, 1, "mail", 200);
    request.lease_ms = 100;
    assert_eq!(ctx.store.claim(request).await.unwrap().jobs.len(), 200);
    ctx.advance_ms(100).await;
    let handled: u64 = race(&ctx, TASKS, |store, _| async move {
        let mut handled = 0;
        loop {
            let swept = store.sweep(Sweep { kind: SweepKind::Reap, max: 7 }).await.unwrap();
            handled += swept.handled;
            if !swept.more {
                return handled;
            }
        }
    })
    .await
    .into_iter()
    .sum();
    assert_eq!(handled, 200, "each lease once");
    let jobs = ctx.store.get(ids).await.unwrap();
    assert!(jobs.iter().flatten().all(|job| (job.state, job.stall_count, job.attempt) == (State::Ready, 1, 0)));
    assert_eq!(ctx.counts("mail").await.ready, 200);
}

async fn a_tick_fires_once(ctx: Ctx) {
    let name = ScheduleName::new("nightly").unwrap();
    let mut tick = ctx.now().await;
    let spec = ctx.job("mail", "email").spec;
    let schedule = Schedule { next_tick: Some(tick), ..Schedule::new(name.clone(), Rule::every_ms(1_000), spec) };
    ctx.store.put_schedule(schedule).await.unwrap();
    let revision = ctx.store.schedules().await.unwrap().remove(0).revision;
    for _ in 0..ROUNDS {
        let next = tick.plus_ms(1_000);
        let jobs: Vec<NewJob> = (0..TASKS).map(|_| ctx.job("mail", "email")).collect();
        let outcomes = race(&ctx, TASKS, |store, k| {
            let (name, jobs) = (name.clone(), vec![jobs[k].clone()]);
            let fire =
                Fire { name, expected_tick: Some(tick), revision, jobs, next_tick: Some(next), skip_if_running: false };
            async move { store.fire(fire).await.unwrap() }
        })
        .await;
        let fired = outcomes.iter().filter(|outcome| **outcome == FireOutcome::Fired { jobs: 1 }).count();
        let stale = outcomes.iter().filter(|outcome| **outcome == FireOutcome::Stale).count();
        assert_eq!((fired, stale), (1, TASKS - 1), "{outcomes:?}");
        tick = next;
    }
    assert_eq!(ctx.counts("mail").await.ready, ROUNDS as u64);
}
