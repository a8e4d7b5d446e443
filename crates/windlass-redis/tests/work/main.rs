//! A server does nothing else while a script runs, so no change of many jobs may do more than some work in one script.
//!
//! Work is counted and not timed, so that a busy machine changes nothing: every script runs with a counter in front (`work.lua`) of
//! its commands, of their arguments and answers, and of every 4 KiB in them. A script that does more than `WORK_MAX` fails.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed check is a panic")]

mod runs;
#[path = "../support/mod.rs"]
mod support;

use std::sync::Arc;
use support::{block, claim, fresh_url, job_with, keep, open_with_scripts, virtual_clock};
use windlass_core::id::JobId;
use windlass_core::job::{Dedup, DedupBy, DedupMode, Due, JobSpec, KeepFor, NewJob};
use windlass_core::name::{DedupKey, GroupName, Kind, QueueName};
use windlass_core::payload::Payload;
use windlass_core::store::{
    Change, ChangeMany, ChangeManyOp, ChangeOp, EnqueueRequest, Filter, GroupSettings, JobQueue, LogAppend, LogLine,
    LogSink, LogStream, MINUTES_KEPT, QueueSettings, Setting, Sweep, SweepKind,
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

fn very_large(_: usize, spec: &mut JobSpec) {
    spec.payload = Payload::json(&"x".repeat(250_000)).unwrap();
}

/// A group, a dedup key and times to be kept are in the record, so that most changes read it.
fn rich_and_large(i: usize, spec: &mut JobSpec) {
    rich(i, spec);
    very_large(i, spec);
    spec.keep_for = KeepFor { succeeded_ms: Some(DAY_MS), failed_ms: Some(90 * DAY_MS) };
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

/// Claims so many jobs and no more; some at a time, because their payloads together may take a server seconds.
async fn claim_all(store: &RedisStore, count: usize) {
    let mut claimed = 0;
    while claimed < count {
        let some = claim(store, "w", 50).await.len();
        assert!(some > 0, "{claimed} of {count} jobs are there");
        claimed += some;
    }
    assert_eq!(claimed, count);
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

/// Many times what one script may read, in jobs of which each is little.
#[test]
fn slow_changes_of_very_large_jobs_are_bounded_by_work() {
    run_changes(JOBS / 5, very_large);
}

#[test]
fn slow_changes_of_very_large_jobs_with_groups_and_keys_are_bounded_by_work() {
    run_changes(JOBS / 5, rich_and_large);
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
        for job in store.get(ids).await.unwrap() {
            let job = job.unwrap();
            assert!(job.spec.payload == payload && job.spec.priority == 7);
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

/// A server, a store with counted scripts and its clock.
struct Counted {
    server: Redis,
    url: String,
    clock: Arc<VirtualClock>,
    store: RedisStore,
}

impl Counted {
    fn new() -> Self {
        let server = Redis::start().unwrap();
        let (url, clock) = (fresh_url(&server.url()), virtual_clock());
        let store = open_with_scripts(&url, &clock, counted());
        Self { server, url, clock, store }
    }

    fn key(&self, name: &str) -> String {
        format!("{{{}}}:{name}", windlass_redis::Options::from_url(&self.url).unwrap().prefix)
    }

    fn ask(&self, command: &str, name: &str) -> String {
        self.server.command(&[command, &self.key(name)]).unwrap()
    }
}

fn minutes_ms(count: i64) -> u64 {
    u64::try_from(count).unwrap() * 60_000
}

/// Groups with settings of their own stay when they have no jobs; so do the numbers of every minute and of every lane.
#[test]
fn slow_the_removal_of_a_queue_with_many_groups_lanes_and_minutes_is_bounded_by_work() {
    let set = Counted::new();
    block(async {
        let lanes: Edit = |i, spec| spec.kind = Kind::new(format!("k{i}")).unwrap();
        for some in (0..1_000).collect::<Vec<_>>().chunks(100) {
            let jobs = some.iter().map(|i| job_with(|spec| lanes(*i, spec))).collect();
            support::enqueue(&set.store, jobs).await;
        }
        for i in 0..JOBS {
            let settings = GroupSettings { cap: Some(1), weight: Some(2), ..GroupSettings::default() };
            let group = GroupName::new(format!("g{i}")).unwrap();
            set.store.configure(Setting::Group { queue: queue(), group, settings }).await.unwrap();
        }
        // Nothing was pruned for longer than minutes are kept.
        for _ in 0..5 {
            set.clock.advance_ms(minutes_ms(4_999));
            fill(&set.store, 1, plain, Due::Now).await;
        }
        assert_eq!(set.ask("HLEN", "minutes"), "6");
        assert_eq!(change(&set.store, ChangeManyOp::Obliterate { force: false }).await, 1_005);
        for name in ["minutes", "groups", "group_names"] {
            assert_eq!(set.ask("EXISTS", name), "0", "{name}");
        }
        assert!(set.store.queues().await.unwrap().is_empty());
    });
}

/// Of each minute of each queue one number is kept.
#[test]
fn slow_pruning_the_minutes_of_many_queues_is_bounded_by_work() {
    let set = Counted::new();
    block(async {
        for i in 0..20 {
            let named = job_with(|spec| spec.queue = QueueName::new(format!("q{i}")).unwrap());
            support::enqueue(&set.store, vec![named]).await;
        }
        assert_eq!(set.ask("HLEN", "minutes"), "20");
        set.clock.advance_ms(minutes_ms(MINUTES_KEPT + 3_000));
        sweep(&set.store, SweepKind::Prune).await;
        assert_eq!(set.ask("EXISTS", "minutes"), "0");
    });
}

#[test]
fn slow_pruning_dedup_keys_that_ran_out_is_bounded_by_work() {
    let set = Counted::new();
    block(async {
        let throttled: Edit = |i, spec| {
            let by = DedupBy::Key(DedupKey::new(format!("k{i}")).unwrap());
            spec.dedup = Some(Dedup { by, mode: DedupMode::Throttle, ttl_ms: Some(1_000) });
        };
        fill(&set.store, 2 * JOBS, throttled, Due::Now).await;
        assert_eq!(change(&set.store, ChangeManyOp::Drain { scheduled: false }).await, 2 * JOBS);
        assert_eq!(set.ask("HLEN", "dedup"), (2 * JOBS).to_string());
        set.clock.advance_ms(1_000);
        assert_eq!(sweep(&set.store, SweepKind::Prune).await, 2 * JOBS);
        assert_eq!(set.ask("EXISTS", "dedup"), "0");
    });
}

/// A fleet whose processes have new names after each start.
#[test]
fn slow_pruning_workers_that_are_gone_is_bounded_by_work() {
    let set = Counted::new();
    block(async {
        fill(&set.store, 1, plain, Due::Now).await;
        // One that cannot be read is gone, too.
        let fill = "for i = 1, 6000 do redis.call('HSET', KEYS[1], 'w' .. i, '-') end";
        set.server.command(&["EVAL", fill, "1", &set.key("workers")]).unwrap();
        assert_eq!(sweep(&set.store, SweepKind::Prune).await, 6_000);
        assert_eq!(set.ask("EXISTS", "workers"), "0");
    });
}

/// Each lane in which a group has jobs has a ring that the group joins.
#[test]
fn slow_a_setting_of_parked_groups_in_many_lanes_is_bounded_by_work() {
    let set = Counted::new();
    block(async {
        let cap = async |cap| {
            let groups = GroupSettings { cap: Some(cap), ..GroupSettings::default() };
            let settings = QueueSettings { groups, ..QueueSettings::default() };
            set.store.configure(Setting::Queue { queue: queue(), settings }).await.unwrap();
        };
        cap(1).await;
        let edit: Edit = |i, spec| {
            spec.group = Some(GroupName::new(format!("g{}", i % 30)).unwrap());
            spec.kind = Kind::new(format!("k{}", i / 30)).unwrap();
        };
        fill(&set.store, 30 * 200, edit, Due::Now).await;
        claim_all(&set.store, 30).await;
        assert_eq!(set.ask("ZCARD", "parked"), "30");
        cap(2).await;
        assert_eq!(set.ask("EXISTS", "parked"), "0");
        claim_all(&set.store, 30).await;
    });
}

#[test]
fn slow_the_removal_of_many_short_logs_is_bounded_by_work() {
    let set = Counted::new();
    block(async {
        fill(&set.store, JOBS, plain, Due::Now).await;
        let claimed = claim(&set.store, "w", 10_000).await;
        let line = LogLine { at: Timestamp::from_ms(0), stream: LogStream::Log, text: "x".into() };
        let append = |lease| LogAppend { lease, first: 0, lines: vec![line.clone()] };
        for some in claimed.chunks(500) {
            let lines = some.iter().map(|job| append(job.lease)).collect();
            assert!(set.store.append_logs(lines).await.unwrap().iter().all(Result::is_ok));
        }
        for job in claimed {
            support::report(&set.store, "w", job.lease).await.unwrap();
        }
        assert_eq!(change(&set.store, ChangeManyOp::Clean { older_than_ms: 0 }).await, JOBS);
        sweep(&set.store, SweepKind::Prune).await;
        assert_eq!(set.ask("EXISTS", "logs"), "0");
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
