//! A server does nothing else while a script runs, so no change of many jobs may do more than some work in one script.
//!
//! Work is counted and not timed, so that a busy machine changes nothing: every script runs with a counter in front (`work.lua`) of
//! its commands, of their arguments and answers, and of every 4 KiB in them. A script that does more than `WORK_MAX` fails.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use support::{block, claim, fresh_url, job_with, keep, open_with_scripts, virtual_clock};
use windlass_core::id::JobId;
use windlass_core::job::{Dedup, DedupBy, DedupMode, Due, JobSpec, NewJob};
use windlass_core::name::{DedupKey, GroupName, QueueName};
use windlass_core::payload::Payload;
use windlass_core::store::{
    Change, ChangeMany, ChangeManyOp, ChangeOp, EnqueueRequest, Filter, GroupSettings, JobQueue, LogAppend, LogLine,
    LogSink, LogStream, QueueSettings, Setting, Sweep, SweepKind,
};
use windlass_core::time::{Timestamp, VirtualClock};
use windlass_redis::link::Script;
use windlass_redis::{RedisStore, scripts};
use windlass_servers::Redis;

/// What one script may do.
const WORK_MAX: u32 = 12_000;
/// Jobs of one scenario; more than one script may change, whatever they are.
const JOBS: usize = 1_500;
const DAY_MS: u64 = 86_400_000;

/// The scripts with the counter in front.
fn counted() -> &'static [Script] {
    let counter = format!("local WORK_MAX = {WORK_MAX}\n{}", include_str!("work.lua"));
    let with = |script: &Script| {
        let (flags, rest) = script.text().split_once('\n').unwrap();
        // Claims and reports are as long as their authors ask for.
        let counter = if matches!(script.name(), "claim" | "report") { "" } else { &counter };
        Script::new(script.name(), format!("{flags}\n{counter}\n{rest}"))
    };
    keep(scripts::all().iter().map(with).collect())
}

fn queue() -> QueueName {
    "q".try_into().unwrap()
}

type Edit = fn(usize, &mut JobSpec);

fn plain(_: usize, _: &mut JobSpec) {}

/// A group and a dedup key of its own.
fn rich(i: usize, spec: &mut JobSpec) {
    spec.group = Some(GroupName::new(format!("g{i}")).unwrap());
    let by = DedupBy::Key(DedupKey::new(format!("k{i}")).unwrap());
    spec.dedup = Some(Dedup { by, mode: DedupMode::Reject, ttl_ms: None });
}

fn large(_: usize, spec: &mut JobSpec) {
    spec.payload = Payload::json(&"x".repeat(50_000)).unwrap();
}

async fn fill(store: &RedisStore, count: usize, edit: Edit, due: Due) -> Vec<JobId> {
    let mut ids = Vec::with_capacity(count);
    for from in (0..count).step_by(1_000) {
        let new = |i| job_with(|spec| edit(i, spec)).due(due);
        let jobs: Vec<NewJob> = (from..count.min(from + 1_000)).map(new).collect();
        for answer in store.enqueue(EnqueueRequest::new(jobs)).await.unwrap() {
            ids.push(answer.unwrap().id());
        }
    }
    ids
}

/// Changes all jobs of the queue; how many were changed.
async fn change(store: &RedisStore, op: ChangeManyOp) -> usize {
    let mut request = ChangeMany { filter: Filter::queue(queue()), op, max: 10_000, cursor: None };
    let mut changed = 0;
    loop {
        let done = store.change_many(request.clone()).await.unwrap();
        changed += usize::try_from(done.changed).unwrap();
        if done.cursor.is_none() {
            return changed;
        }
        request.cursor = done.cursor;
    }
}

async fn sweep(store: &RedisStore, kind: SweepKind) -> usize {
    let swept = store.sweep(Sweep { kind, max: 10_000 }).await.unwrap();
    assert!(!swept.more, "{swept:?}");
    usize::try_from(swept.handled).unwrap()
}

async fn claim_all(store: &RedisStore, count: usize) {
    assert_eq!(claim(store, "w", 10_000).await.len(), count);
}

/// Every change of many jobs, on jobs of one form.
async fn changes(store: &RedisStore, clock: &VirtualClock, count: usize, edit: Edit) {
    fill(store, count, edit, Due::Now).await;
    assert_eq!(change(store, ChangeManyOp::CancelAll).await, count);
    assert_eq!(change(store, ChangeManyOp::Clean { older_than_ms: 0 }).await, count);
    fill(store, count, edit, Due::DelayMs(60_000)).await;
    assert_eq!(change(store, ChangeManyOp::PromoteAll).await, count);
    assert_eq!(change(store, ChangeManyOp::Drain { scheduled: true }).await, count);
    fill(store, count, edit, Due::DelayMs(1_000)).await;
    clock.advance_ms(1_000);
    assert_eq!(sweep(store, SweepKind::Promote).await, count);
    for _ in 0..2 {
        claim_all(store, count).await;
        clock.advance_ms(DAY_MS);
        assert_eq!(sweep(store, SweepKind::Reap).await, count);
    }
    assert_eq!(change(store, ChangeManyOp::RetryFailed).await, count);
    assert_eq!(change(store, ChangeManyOp::CancelAll).await, count);
    clock.advance_ms(100 * DAY_MS);
    assert!(sweep(store, SweepKind::Prune).await >= count);
    fill(store, count, edit, Due::Now).await;
    assert_eq!(change(store, ChangeManyOp::Obliterate { force: false }).await, count);
}

fn run_changes(count: usize, edit: Edit) {
    let server = Redis::start().unwrap();
    let clock = virtual_clock();
    let store = open_with_scripts(&fresh_url(&server.url()), &clock, counted());
    block(changes(&store, &clock, count, edit));
}

#[test]
fn slow_changes_of_many_plain_jobs_are_bounded_by_work() {
    run_changes(JOBS, plain);
}

#[test]
fn slow_changes_of_many_jobs_with_groups_and_keys_are_bounded_by_work() {
    run_changes(JOBS, rich);
}

#[test]
fn slow_changes_of_many_large_jobs_are_bounded_by_work() {
    run_changes(JOBS / 2, large);
}

/// Each of these reads and writes a whole record. Of jobs that were claimed once nothing else reads it.
#[test]
fn slow_changes_of_large_records_one_by_one_are_bounded_by_work() {
    let server = Redis::start().unwrap();
    let clock = virtual_clock();
    let store = open_with_scripts(&fresh_url(&server.url()), &clock, counted());
    block(async {
        let count = 500;
        let ids = fill(&store, count, large, Due::Now).await;
        for _ in 0..2 {
            claim_all(&store, count).await;
            clock.advance_ms(DAY_MS);
            assert_eq!(sweep(&store, SweepKind::Reap).await, count);
        }
        let change_each = async |op: ChangeOp| {
            let changes = ids.iter().map(|id| Change { id: *id, op: op.clone() }).collect();
            for answer in store.change(changes).await.unwrap() {
                answer.unwrap();
            }
        };
        let payload = Payload::json(&"y".repeat(50_000)).unwrap();
        change_each(ChangeOp::UpdatePayload(payload)).await;
        // A change of the priority sends no payload, so that nothing but the script bounds it.
        let payload = Payload::json(&"z".repeat(250_000)).unwrap();
        change_each(ChangeOp::UpdatePayload(payload.clone())).await;
        change_each(ChangeOp::Retry(Due::Now)).await;
        change_each(ChangeOp::Reprioritise(7)).await;
        for some in ids.chunks(50) {
            for job in store.get(some.to_vec()).await.unwrap() {
                let job = job.unwrap();
                assert!(job.spec.payload == payload && job.spec.priority == 7);
            }
        }
    });
}

/// A process may die between two steps of a review. The call is then repeated with the same settings.
#[test]
fn a_review_of_parked_groups_is_repeated_with_the_call() {
    let server = Redis::start().unwrap();
    let url = fresh_url(&server.url());
    let store = open_with_scripts(&url, &virtual_clock(), counted());
    block(async {
        let cap = async |cap| {
            let groups = GroupSettings { cap: Some(cap), ..GroupSettings::default() };
            let settings = QueueSettings { groups, ..QueueSettings::default() };
            store.configure(Setting::Queue { queue: queue(), settings }).await.unwrap();
        };
        let meta = format!("{{{}}}:meta", windlass_redis::Options::from_url(&url).unwrap().prefix);
        cap(2).await;
        let two = server.command(&["HGET", &meta, "s1"]).unwrap();
        assert!(!two.is_empty());
        cap(1).await;
        let one_group: Edit = |_, spec| spec.group = Some(GroupName::new("g").unwrap());
        fill(&store, 2, one_group, Due::Now).await;
        claim_all(&store, 1).await;
        assert!(claim(&store, "w", 1).await.is_empty(), "the group is at its cap");
        // The settings were written, and the group was not reviewed.
        server.command(&["HSET", &meta, "s1", &two]).unwrap();
        assert!(claim(&store, "w", 1).await.is_empty(), "the group is parked");
        cap(2).await;
        claim_all(&store, 1).await;
    });
}

/// A setting of all groups concerns every parked group.
#[test]
fn slow_a_setting_of_many_parked_groups_is_bounded_by_work() {
    let server = Redis::start().unwrap();
    let store = open_with_scripts(&fresh_url(&server.url()), &virtual_clock(), counted());
    block(async {
        let cap = async |cap| {
            let groups = GroupSettings { cap: Some(cap), ..GroupSettings::default() };
            let settings = QueueSettings { groups, ..QueueSettings::default() };
            store.configure(Setting::Queue { queue: queue(), settings }).await.unwrap();
        };
        cap(1).await;
        let two_each: Edit = |i, spec| spec.group = Some(GroupName::new(format!("g{}", i / 2)).unwrap());
        fill(&store, 2 * JOBS, two_each, Due::Now).await;
        claim_all(&store, JOBS).await;
        assert!(claim(&store, "w", 1).await.is_empty(), "every group is at its cap");
        cap(2).await;
        claim_all(&store, JOBS).await;
    });
}

/// Logs of removed jobs go bit by bit.
#[test]
fn slow_the_removal_of_long_logs_is_bounded_by_work() {
    let server = Redis::start().unwrap();
    let (url, clock) = (fresh_url(&server.url()), virtual_clock());
    let store = open_with_scripts(&url, &clock, counted());
    block(async {
        fill(&store, 1, plain, Due::Now).await;
        let lease = claim(&store, "w", 1).await[0].lease;
        for first in (0..30_000).step_by(1_000) {
            let line = LogLine { at: Timestamp::from_ms(0), stream: LogStream::Log, text: "x".into() };
            let append = LogAppend { lease, first, lines: vec![line; 1_000] };
            store.append_logs(vec![append]).await.unwrap()[0].as_ref().unwrap();
        }
        support::report(&store, "w", lease).await.unwrap();
        assert_eq!(change(&store, ChangeManyOp::Clean { older_than_ms: 0 }).await, 1);
        sweep(&store, SweepKind::Prune).await;
        let logs = format!("{{{}}}:logs", windlass_redis::Options::from_url(&url).unwrap().prefix);
        assert_eq!(server.command(&["HLEN", &logs]).unwrap(), "0");
    });
}
