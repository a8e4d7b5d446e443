//! The job machine through the contract: every edge of its table, and every pair that is none.

use super::snapshot::snapshot;
use crate::ctx::{Ctx, LEASE_MS, complete, fail};
use crate::runner::cases;
use std::collections::BTreeSet;
use windlass_core::Error;
use windlass_core::id::{JobId, Token};
use windlass_core::job::{Due, Lease, Progress, Retry, State, Verb, targets};
use windlass_core::payload::Payload;
use windlass_core::store::{
    ChangeOp, LogAppend, LogLine, LogStream, OutcomeKind, QueueCounts, RenewRequest, Renewal, SweepKind,
};
use windlass_core::time::Timestamp;

cases!("machine":
    every_edge_leads_where_the_table_says,
    every_edge_of_the_table_has_its_row,
    every_illegal_change_is_refused_and_changes_nothing,
    no_state_lets_a_foreign_lease_speak,
    only_ready_jobs_are_claimed,
    only_expired_leases_are_reaped,
    only_scheduled_jobs_are_promoted_by_a_sweep,
);

const LATER: Due = Due::DelayMs(3_600_000);

/// What is done to a job.
#[derive(Clone, Copy, Debug)]
enum Act {
    Promote,
    Claim,
    Renew,
    Progress,
    Log,
    Complete,
    Fail(Retry),
    Release { started: bool },
    Cancel,
    Reap,
    Retry(Due),
    Reschedule(Due),
    Reprioritise,
    UpdatePayload,
    Remove,
}

impl Act {
    fn verb(self) -> Verb {
        match self {
            Self::Promote => Verb::Promote,
            Self::Claim => Verb::Claim,
            Self::Renew => Verb::Renew,
            Self::Progress => Verb::Progress,
            Self::Log => Verb::Log,
            Self::Complete => Verb::Complete,
            Self::Fail(_) => Verb::Fail,
            Self::Release { .. } => Verb::Release,
            Self::Cancel => Verb::Cancel,
            Self::Reap => Verb::Reap,
            Self::Retry(_) => Verb::Retry,
            Self::Reschedule(_) => Verb::Reschedule,
            Self::Reprioritise => Verb::Reprioritise,
            Self::UpdatePayload => Verb::UpdatePayload,
            Self::Remove => Verb::Remove,
        }
    }

    /// The change that it is, if it needs no lease.
    fn change(self) -> Option<ChangeOp> {
        Some(match self {
            Self::Promote => ChangeOp::Promote,
            Self::Cancel => ChangeOp::Cancel,
            Self::Retry(due) => ChangeOp::Retry(due),
            Self::Reschedule(due) => ChangeOp::Reschedule(due),
            Self::Reprioritise => ChangeOp::Reprioritise(5),
            Self::UpdatePayload => ChangeOp::UpdatePayload(Payload::json("changed").unwrap()),
            Self::Remove => ChangeOp::Remove,
            _ => return None,
        })
    }
}

/// How the job is before the act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Prep {
    Plain,
    /// No attempt and no stall is left after this one.
    LastChance,
    /// Its cancel was asked for.
    Cancelled,
}

struct Edge(State, Prep, Act, Option<State>);

use Prep::{Cancelled as Told, LastChance, Plain};
use State::{Active, Cancelled, Failed, Ready, Scheduled, Succeeded};

const SOON: Retry = Retry::AfterMs(0);
const IN_AN_HOUR: Retry = Retry::AfterMs(3_600_000);

/// The table at the top of the machine, edge by edge.
const EDGES: &[Edge] = &[
    Edge(Scheduled, Plain, Act::Promote, Some(Ready)),
    Edge(Scheduled, Plain, Act::Cancel, Some(Cancelled)),
    Edge(Scheduled, Plain, Act::Reschedule(LATER), Some(Scheduled)),
    Edge(Scheduled, Plain, Act::Reschedule(Due::Now), Some(Ready)),
    Edge(Scheduled, Plain, Act::Reprioritise, Some(Scheduled)),
    Edge(Scheduled, Plain, Act::UpdatePayload, Some(Scheduled)),
    Edge(Scheduled, Plain, Act::Remove, None),
    Edge(Ready, Plain, Act::Claim, Some(Active)),
    Edge(Ready, Plain, Act::Cancel, Some(Cancelled)),
    Edge(Ready, Plain, Act::Reschedule(LATER), Some(Scheduled)),
    Edge(Ready, Plain, Act::Reschedule(Due::Now), Some(Ready)),
    Edge(Ready, Plain, Act::Reprioritise, Some(Ready)),
    Edge(Ready, Plain, Act::UpdatePayload, Some(Ready)),
    Edge(Ready, Plain, Act::Remove, None),
    Edge(Active, Plain, Act::Renew, Some(Active)),
    Edge(Active, Plain, Act::Progress, Some(Active)),
    Edge(Active, Plain, Act::Log, Some(Active)),
    Edge(Active, Plain, Act::Cancel, Some(Active)),
    Edge(Active, Plain, Act::Complete, Some(Succeeded)),
    Edge(Active, Told, Act::Complete, Some(Cancelled)),
    Edge(Active, Plain, Act::Fail(SOON), Some(Ready)),
    Edge(Active, Plain, Act::Fail(IN_AN_HOUR), Some(Scheduled)),
    Edge(Active, Plain, Act::Fail(Retry::Never), Some(Failed)),
    Edge(Active, LastChance, Act::Fail(SOON), Some(Failed)),
    Edge(Active, LastChance, Act::Fail(IN_AN_HOUR), Some(Failed)),
    Edge(Active, Told, Act::Fail(SOON), Some(Cancelled)),
    Edge(Active, Told, Act::Fail(Retry::Never), Some(Cancelled)),
    Edge(Active, Plain, Act::Release { started: false }, Some(Ready)),
    Edge(Active, Plain, Act::Release { started: true }, Some(Ready)),
    Edge(Active, LastChance, Act::Release { started: false }, Some(Ready)),
    Edge(Active, LastChance, Act::Release { started: true }, Some(Failed)),
    Edge(Active, Told, Act::Release { started: false }, Some(Cancelled)),
    Edge(Active, Told, Act::Release { started: true }, Some(Cancelled)),
    Edge(Active, Plain, Act::Reap, Some(Ready)),
    Edge(Active, LastChance, Act::Reap, Some(Failed)),
    Edge(Active, Told, Act::Reap, Some(Cancelled)),
    Edge(Succeeded, Plain, Act::Retry(Due::Now), Some(Ready)),
    Edge(Succeeded, Plain, Act::Retry(LATER), Some(Scheduled)),
    Edge(Succeeded, Plain, Act::Remove, None),
    Edge(Failed, Plain, Act::Retry(Due::Now), Some(Ready)),
    Edge(Failed, Plain, Act::Retry(LATER), Some(Scheduled)),
    Edge(Failed, Plain, Act::UpdatePayload, Some(Failed)),
    Edge(Failed, Plain, Act::Remove, None),
    Edge(Cancelled, Plain, Act::Retry(Due::Now), Some(Ready)),
    Edge(Cancelled, Plain, Act::Retry(LATER), Some(Scheduled)),
    Edge(Cancelled, Plain, Act::Remove, None),
];

/// A job in `state` on a queue of its own, and its lease if it has one.
async fn arrange(ctx: &Ctx, queue: &str, state: State, prep: Prep, lease_ms: u64) -> (JobId, Lease) {
    let mut job = ctx.job(queue, "work");
    if state == Scheduled {
        job.due = LATER;
    }
    if prep == LastChance {
        (job.spec.attempts, job.spec.stalls) = (1, 0);
    }
    let id = ctx.enqueue(job).await.id();
    let mut lease = Lease { job: id, attempt: 1, token: Token::from_bits(7) };
    if matches!(state, Active | Succeeded | Failed) {
        let mut request = ctx.claim_request("w1", queue, 1);
        request.lease_ms = lease_ms;
        lease = ctx.store.claim(request).await.unwrap().jobs.remove(0).lease;
    }
    match state {
        Succeeded => drop(ctx.complete("w1", lease).await.unwrap()),
        Failed => drop(ctx.fail("w1", lease, Retry::Never).await.unwrap()),
        Cancelled => drop(ctx.change(id, ChangeOp::Cancel).await.unwrap()),
        Scheduled | Ready | Active => {}
    }
    if prep == Told {
        ctx.change(id, ChangeOp::Cancel).await.unwrap();
    }
    assert_eq!(ctx.state(id).await, state);
    (id, lease)
}

/// Does it, and answers the state that the store says it led to.
async fn act(ctx: &Ctx, queue: &str, lease: Lease, act: Act) -> Option<State> {
    if let Some(op) = act.change() {
        return ctx.change(lease.job, op).await.unwrap().state;
    }
    let renewal = |progress| RenewRequest { renewals: vec![Renewal { lease, lease_ms: Some(LEASE_MS), progress }] };
    let outcome = match act {
        Act::Complete => complete(),
        Act::Fail(retry) => fail("boom", retry),
        Act::Release { started } => OutcomeKind::Release { started },
        Act::Claim => {
            assert_eq!(ctx.claim_one("w2", queue).await.lease.job, lease.job);
            return Some(ctx.state(lease.job).await);
        }
        Act::Renew | Act::Progress => {
            let progress = Progress { percent: 10, message: String::new() };
            let request = renewal(matches!(act, Act::Progress).then_some(progress));
            ctx.store.renew(request).await.unwrap().remove(0).unwrap();
            return Some(ctx.state(lease.job).await);
        }
        Act::Log => {
            let line = LogLine { at: Timestamp::from_ms(0), stream: LogStream::Log, text: b"x".to_vec().into() };
            let append = LogAppend { lease, first: 0, lines: vec![line] };
            assert_eq!(ctx.store.append_logs(vec![append]).await.unwrap(), [Ok(1)]);
            return Some(ctx.state(lease.job).await);
        }
        Act::Reap => {
            ctx.advance_ms(10).await;
            assert_eq!(ctx.sweep(SweepKind::Reap).await, 1);
            return Some(ctx.state(lease.job).await);
        }
        _ => unreachable!("a change"),
    };
    Some(ctx.report("w1", lease, outcome).await.unwrap().state)
}

async fn every_edge_leads_where_the_table_says(ctx: Ctx) {
    for (i, Edge(from, prep, what, to)) in EDGES.iter().enumerate() {
        let name = format!("{from} {prep:?} {what:?}");
        let queue = format!("edge {i}");
        let lease_ms = if matches!(what, Act::Reap) { 10 } else { LEASE_MS };
        let (id, lease) = arrange(&ctx, &queue, *from, *prep, lease_ms).await;
        assert_eq!(act(&ctx, &queue, lease, *what).await, *to, "{name}");
        let job = ctx.get(id).await;
        assert_eq!(job.as_ref().map(|job| job.state), *to, "{name}");
        let mut counts = [0; 6];
        if let Some(job) = job {
            counts[job.state.index()] = 1;
            assert_eq!(job.finished_at.is_some(), job.state.is_terminal(), "{name}");
            assert_eq!(job.lease.is_some(), job.state == Active, "{name}");
            assert_eq!(job.due_at.is_some(), job.state == Scheduled, "{name}");
        }
        assert_eq!(ctx.counts(&queue).await, QueueCounts::from_array(counts), "{name}");
        ctx.sweep(SweepKind::Promote).await;
    }
}

/// A new edge of the machine must not go unseen.
async fn every_edge_of_the_table_has_its_row(_ctx: Ctx) {
    let rows: BTreeSet<(State, Verb, Option<State>)> =
        EDGES.iter().map(|Edge(from, _, what, to)| (*from, what.verb(), *to)).collect();
    let all = State::ALL.into_iter().flat_map(|from| Verb::ALL.map(|verb| (from, verb)));
    let table: BTreeSet<(State, Verb, Option<State>)> =
        all.flat_map(|(from, verb)| targets(from, verb).iter().map(move |to| (from, verb, *to))).collect();
    assert_eq!(rows, table);
}

const CHANGES: [Act; 8] = [
    Act::Promote,
    Act::Cancel,
    Act::Retry(Due::Now),
    Act::Retry(LATER),
    Act::Reschedule(LATER),
    Act::Reprioritise,
    Act::UpdatePayload,
    Act::Remove,
];

async fn every_illegal_change_is_refused_and_changes_nothing(ctx: Ctx) {
    for state in State::ALL {
        let (id, _) = arrange(&ctx, state.as_str(), state, Plain, LEASE_MS).await;
        let before = snapshot(&ctx).await;
        for what in CHANGES {
            if EDGES.iter().any(|Edge(from, _, edge, _)| *from == state && edge.verb() == what.verb()) {
                continue;
            }
            let answer = ctx.change(id, what.change().unwrap()).await;
            if state == Cancelled && what.verb() == Verb::Cancel {
                assert_eq!(answer.unwrap().state, Some(Cancelled), "cancelling twice is fine");
            } else {
                assert_eq!(
                    answer,
                    Err(Error::IllegalTransition { from: state, verb: what.verb() }),
                    "{state} {what:?}"
                );
            }
            assert_eq!(snapshot(&ctx).await, before, "{state} {what:?}");
        }
    }
}

async fn no_state_lets_a_foreign_lease_speak(ctx: Ctx) {
    for state in State::ALL {
        let (id, _) = arrange(&ctx, state.as_str(), state, Plain, LEASE_MS).await;
        let lease = Lease { job: id, attempt: 1, token: Token::from_bits(8) };
        let before = snapshot(&ctx).await;
        let outcomes = [complete(), fail("x", SOON), fail("x", Retry::Never), OutcomeKind::Release { started: true }];
        for outcome in outcomes {
            let answer = ctx.report("w1", lease, outcome.clone()).await;
            assert_eq!(answer, Err(Error::LeaseLost), "{state} {outcome:?}");
        }
        let renewals = vec![Renewal { lease, lease_ms: Some(LEASE_MS), progress: None }];
        assert_eq!(ctx.store.renew(RenewRequest { renewals }).await.unwrap(), [Err(Error::LeaseLost)], "{state}");
        let append = LogAppend { lease, first: 0, lines: vec![] };
        assert_eq!(ctx.store.append_logs(vec![append]).await.unwrap(), [Err(Error::LeaseLost)], "{state}");
        assert_eq!(snapshot(&ctx).await, before, "{state}");
    }
}

async fn only_ready_jobs_are_claimed(ctx: Ctx) {
    for state in State::ALL {
        let (id, _) = arrange(&ctx, state.as_str(), state, Plain, LEASE_MS).await;
        let before = ctx.get(id).await;
        let claimed = ctx.claim("w2", state.as_str(), 10).await;
        assert_eq!(claimed.len(), usize::from(state == Ready), "{state}");
        assert_eq!(ctx.get(id).await == before, state != Ready, "{state}");
    }
}

async fn only_expired_leases_are_reaped(ctx: Ctx) {
    for state in State::ALL {
        arrange(&ctx, state.as_str(), state, Plain, LEASE_MS).await;
    }
    let before = snapshot(&ctx).await;
    assert_eq!(ctx.sweep(SweepKind::Reap).await, 0);
    assert_eq!(snapshot(&ctx).await, before);
}

async fn only_scheduled_jobs_are_promoted_by_a_sweep(ctx: Ctx) {
    for state in State::ALL {
        arrange(&ctx, state.as_str(), state, Plain, LEASE_MS).await;
    }
    let due = ctx.enqueue(ctx.job("due", "work").due(Due::DelayMs(50))).await.id();
    let before = snapshot(&ctx).await;
    assert_eq!(ctx.sweep(SweepKind::Promote).await, 0, "nothing is due");
    assert_eq!(snapshot(&ctx).await, before);
    ctx.advance_ms(50).await;
    assert_eq!(ctx.sweep(SweepKind::Promote).await, 1);
    assert_eq!(ctx.state(due).await, Ready);
}
