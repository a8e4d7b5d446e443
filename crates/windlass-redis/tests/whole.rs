//! Half a store is refused, and nothing of it is changed.
//!
//! For this store alone: its keys can be separated by a slot move of a cluster, and by nothing else. The check is in every script
//! (`lua/lib/whole.lua`) and on every new connection (`src/whole.rs`).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use support::{block, claim, enqueue, enqueue_one, fresh_url, job, job_with, open_at, report, virtual_clock};
use windlass_core::Error;
use windlass_core::id::{JobId, RunId};
use windlass_core::job::Due;
use windlass_core::name::{Kind, Labels, ScheduleName, WorkerId};
use windlass_core::schedule::{Rule, Schedule};
use windlass_core::store::{
    Beat, ChangeMany, ChangeManyOp, EnqueueRequest, Filter, JobQueue, Kinds, ListRequest, NewRun, RunStep, RunStore,
    ScheduleStore, Store, Sweep, SweepKind, WorkerRegistry,
};
use windlass_redis::doctor::{Depth, Severity, examine};
use windlass_redis::keys::{NAMES, TYPES, WITHOUT_META};
use windlass_redis::link::{Call, Link, Script, slot_of};
use windlass_redis::{Options, RedisStore, scripts};
use windlass_servers::{Cluster, Redis};

/// The name and the content of every key on a server, as text.
const CONTENT: &str = "local all = {} \
    for _, key in ipairs(redis.call('KEYS', '*')) do all[#all + 1] = key .. ' ' .. redis.sha1hex(redis.call('DUMP', key)) end \
    table.sort(all) return table.concat(all, '\\n')";

fn content(server: &Redis) -> String {
    server.command(&["EVAL", CONTENT, "0"]).unwrap()
}

fn prefix(url: &str) -> String {
    Options::from_url(url).unwrap().prefix
}

fn key(url: &str, name: &str) -> String {
    format!("{{{}}}:{name}", prefix(url))
}

fn beat() -> Beat {
    Beat {
        worker: WorkerId::new("w").unwrap(),
        queues: vec!["q".try_into().unwrap()],
        kinds: Kinds::Any,
        labels: Labels::default(),
        slots: 1,
        running: 0,
        about: String::new(),
        ttl_ms: 60_000,
    }
}

fn run(n: u128) -> NewRun {
    NewRun {
        step: RunStep { wake: Some(Due::Now), ..RunStep::nothing() },
        ..NewRun::new(RunId::from_parts(0, n), Kind::new("graph").unwrap())
    }
}

async fn put_schedule(store: &RedisStore, name: &str) {
    let schedule = Schedule::new(ScheduleName::new(name).unwrap(), Rule::every_ms(60_000), job().spec);
    store.put_schedule(schedule.arm(None, windlass_core::time::Timestamp::from_ms(0)).unwrap()).await.unwrap();
}

/// Writes something into most containers of a store; the jobs that wait.
async fn fill(store: &RedisStore) -> Vec<JobId> {
    enqueue(store, vec![job(), job(), job(), job()]).await;
    let claimed = claim(store, "w", 4).await;
    for ended in &claimed[..2] {
        report(store, "w", ended.lease).await.unwrap();
    }
    let grouped = || job_with(|spec| spec.group = Some("g".try_into().unwrap()));
    let waiting = vec![job(), job(), grouped(), job().due(Due::DelayMs(600_000)), job().due(Due::DelayMs(600_000))];
    let ids = enqueue(store, waiting).await;
    assert!(store.create_runs(vec![run(1), run(2)]).await.unwrap().iter().all(Result::is_ok));
    put_schedule(store, "hourly").await;
    put_schedule(store, "nightly").await;
    store.heartbeat(beat()).await.unwrap();
    ids
}

#[track_caller]
fn assert_half<T: std::fmt::Debug>(what: &str, answer: Result<T, Error>, missing: &str) {
    let refused = answer.expect_err(what);
    let said = refused.to_string();
    assert!(matches!(refused, Error::Corrupt { .. }), "{what}: {refused:?}");
    assert!(said.contains("a part of the store is missing") && said.contains(missing), "{what}: {said}");
    assert!(said.contains("nothing was changed") && said.contains("windlass doctor"), "{what}: {said}");
}

/// Arguments behind the first three: those that a script reads before it looks at the store.
fn arguments(script: &Script) -> &'static [&'static str] {
    match script.name() {
        "claim" => &["w", "1", "0", "0", "1000", "1", "", "0"],
        "report" => &["0", "w", "0"],
        "enqueue" => &["0", "0", "0"],
        _ => &[],
    }
}

#[test]
fn every_script_refuses_a_store_without_meta_and_changes_nothing() {
    let server = Redis::start().unwrap();
    let url = fresh_url(&server.url());
    block(async {
        fill(&open_at(&url, &virtual_clock())).await;
        server.command(&["DEL", &key(&url, "meta")]).unwrap();
        let before = content(&server);
        // A link without scripts of its own does not look at the store when it connects.
        let link = Link::open(Options::from_url(&url).unwrap(), &[]).unwrap();
        let keys: Vec<String> = NAMES.iter().map(|name| key(&url, name)).collect();
        for script in scripts::all() {
            let mut call = Call::new(script, &keys);
            call.arg("").arg(key(&url, "bell:")).arg("PUBLISH");
            for argument in arguments(script) {
                call.arg(argument);
            }
            assert_half(script.name(), link.call(&call).await, "(meta)");
            assert_eq!(content(&server), before, "{}", script.name());
        }
        // Plain jobs are sent with some of the keys, and then with all.
        let plain: Vec<&String> = keys.iter().take(10).collect();
        let mut call = Call::new(&scripts::all()[0], &plain);
        call.arg("").arg(key(&url, "bell:")).arg("PUBLISH").arg("0").arg("0").arg("0");
        assert_eq!(format!("{:?}", link.call(&call).await.unwrap()), "array([bulk-string('\"keys\"')])");
        assert_eq!(content(&server), before);
    });
}

/// A handle that was connected before, and one that connects afterwards.
#[test]
fn calls_on_a_store_without_meta_are_refused() {
    let server = Redis::start().unwrap();
    let (url, clock) = (fresh_url(&server.url()), virtual_clock());
    block(async {
        let connected = open_at(&url, &clock);
        let id = fill(&connected).await[0];
        server.command(&["DEL", &key(&url, "meta")]).unwrap();
        let before = content(&server);
        let new = open_at(&url, &clock);
        for store in [&connected, &new] {
            assert_half("enqueue", store.enqueue(EnqueueRequest::new(vec![job()])).await, "meta");
            let grouped = job_with(|spec| spec.group = Some("g".try_into().unwrap()));
            assert_half("enqueue", store.enqueue(EnqueueRequest::new(vec![grouped])).await, "meta");
            assert_half("claim", store.claim(support::claim_request("w", 1)).await, "meta");
            assert_half("heartbeat", store.heartbeat(beat()).await, "meta");
        }
        for kind in SweepKind::ALL {
            assert_half("sweep", connected.sweep(Sweep { kind, max: 10 }).await, "meta");
        }
        assert_half("create_runs", connected.create_runs(vec![run(3)]).await, "meta");
        assert_half("queues", connected.queues().await, "meta");
        assert_half("get", connected.get(vec![id]).await, "meta");
        assert_half("list", connected.list(ListRequest { limit: 1, ..ListRequest::default() }).await, "meta");
        assert_eq!(content(&server), before);
    });
}

/// Only keys that are written before a store exists may exist without `meta`.
#[test]
fn each_key_without_meta_is_allowed_or_refused() {
    let server = Redis::start().unwrap();
    block(async {
        for (name, kind) in NAMES.iter().zip(TYPES.chars()).skip(1) {
            let url = fresh_url(&server.url());
            let key = key(&url, name);
            let command = match kind {
                'h' => vec!["HSET", &key, "x", "1"],
                'z' => vec!["ZADD", &key, "1", "x"],
                'l' => vec!["RPUSH", &key, "x"],
                _ => vec!["XADD", &key, "1-0", "n", "1"],
            };
            server.command(&command).unwrap();
            let answer = open_at(&url, &virtual_clock()).enqueue(EnqueueRequest::new(vec![job()])).await;
            if WITHOUT_META.contains(name) {
                answer.unwrap()[0].as_ref().unwrap();
            } else {
                assert_half(name, answer, "(meta)");
            }
        }
    });
}

/// The keys of idle workers, of the timekeeper and of pruning are there before the first job.
#[test]
fn workers_may_wait_on_a_store_that_does_not_exist_yet() {
    let server = Redis::start().unwrap();
    let (url, clock) = (fresh_url(&server.url()), virtual_clock());
    block(async {
        let store = open_at(&url, &clock);
        store.heartbeat(beat()).await.unwrap();
        assert!(claim(&store, "w", 1).await.is_empty());
        let kept = store.claim_maintenance(WorkerId::new("w").unwrap(), 60_000).await.unwrap();
        assert!(kept.is_granted());
        for kind in SweepKind::ALL {
            store.sweep(Sweep { kind, max: 10 }).await.unwrap();
        }
        let found = server.command(&["KEYS", &key(&url, "*")]).unwrap();
        for name in ["workers", "timekeeper", "meta"] {
            assert!(found.contains(&key(&url, name)), "{name}: {found}");
        }
        assert_eq!(server.command(&["HGET", &key(&url, "meta"), "layout"]).unwrap(), "");
        // Another process, and the one that was there.
        enqueue_one(&open_at(&url, &clock), job()).await.unwrap();
        enqueue_one(&store, job()).await.unwrap();
        assert_eq!(claim(&store, "w", 2).await.len(), 2);
    });
}

/// The containers that the counters of `meta` and other containers imply.
#[test]
fn a_new_connection_refuses_a_store_that_lacks_a_container() {
    let server = Redis::start().unwrap();
    let (url, clock) = (fresh_url(&server.url()), virtual_clock());
    block(async {
        fill(&open_at(&url, &clock)).await;
        let needed = [
            "jobs",
            "ready",
            "groups",
            "feed",
            "life",
            "scheduled",
            "leases",
            "ended",
            "schedules",
            "runs",
            "run_list",
        ];
        for name in needed {
            server.command(&["RENAME", &key(&url, name), "aside"]).unwrap();
            let before = content(&server);
            let answer = open_at(&url, &clock).enqueue(EnqueueRequest::new(vec![job()])).await;
            assert_half(name, answer, &format!("({name})"));
            assert_eq!(content(&server), before, "{name}");
            server.command(&["RENAME", "aside", &key(&url, name)]).unwrap();
            open_at(&url, &clock).queues().await.unwrap();
        }
        // What nothing implies may be empty at any time.
        for name in NAMES.iter().filter(|name| !needed.contains(name) && **name != "meta") {
            server.command(&["DEL", &key(&url, name)]).unwrap();
            open_at(&url, &clock).queues().await.unwrap();
        }
    });
}

/// One lost entry is damage of that entry, and not a lost container.
#[test]
fn a_store_that_lost_its_only_schedule_opens_and_the_tick_can_be_removed() {
    let server = Redis::start().unwrap();
    let (url, clock) = (fresh_url(&server.url()), virtual_clock());
    block(async {
        let store = open_at(&url, &clock);
        enqueue_one(&store, job()).await.unwrap();
        put_schedule(&store, "nightly").await;
        assert_eq!(server.command(&["HDEL", &key(&url, "schedules"), "nightly"]).unwrap(), "1");
        let store = open_at(&url, &clock);
        assert!(store.schedules().await.unwrap().is_empty());
        assert_eq!(server.command(&["ZCARD", &key(&url, "ticks")]).unwrap(), "1");
        assert!(store.remove_schedule(ScheduleName::new("nightly").unwrap()).await.unwrap());
        assert_eq!(server.command(&["ZCARD", &key(&url, "ticks")]).unwrap(), "0");
        assert!(!store.remove_schedule(ScheduleName::new("nightly").unwrap()).await.unwrap());
    });
}

#[test]
fn a_store_that_lost_the_list_entries_or_the_record_of_its_only_run_opens() {
    let server = Redis::start().unwrap();
    block(async {
        for lost in ["run_list", "runs"] {
            let (url, clock) = (fresh_url(&server.url()), virtual_clock());
            let store = open_at(&url, &clock);
            enqueue_one(&store, job()).await.unwrap();
            assert!(store.create_runs(vec![run(1)]).await.unwrap()[0].is_ok());
            assert_eq!(server.command(&["DEL", &key(&url, lost)]).unwrap(), "1");
            open_at(&url, &clock).queues().await.unwrap_or_else(|error| panic!("without {lost}: {error}"));
        }
    });
}

/// A lease does not name its queue, so the queue goes on counting an active job of which nothing is left but the lease.
#[test]
fn a_store_opens_after_active_jobs_lost_their_records_and_lives() {
    let server = Redis::start().unwrap();
    block(async {
        for others in [0, 3] {
            let (url, clock) = (fresh_url(&server.url()), virtual_clock());
            let store = open_at(&url, &clock);
            enqueue(&store, vec![job(), job()]).await;
            let claimed = claim(&store, "w", 2).await;
            assert_eq!(claimed.len(), 2);
            enqueue(&store, (0..others).map(|_| job()).collect()).await;
            for lost in &claimed {
                for name in ["jobs", "life"] {
                    let id = lost.lease.job.to_string();
                    assert_eq!(server.command(&["HDEL", &key(&url, name), &id]).unwrap(), "1", "{name}");
                }
            }
            clock.advance_ms(10 * support::LEASE_MS);
            store.sweep(Sweep { kind: SweepKind::Reap, max: 10 }).await.unwrap();
            assert_eq!(server.command(&["EXISTS", &key(&url, "leases")]).unwrap(), "0");
            assert_eq!(support::counts(&store).await.active, 2, "the counter is wrong from now on");
            let new = open_at(&url, &clock);
            new.queues().await.unwrap_or_else(|error| panic!("{others} other jobs: {error}"));
            assert_eq!(claim(&new, "w", 10).await.len(), others);
        }
    });
}

/// Jobs that were set aside because their records are gone do not make the store half a store; other jobs without records do.
#[test]
fn a_store_opens_whose_only_jobs_were_set_aside_without_records() {
    let server = Redis::start().unwrap();
    let (url, clock) = (fresh_url(&server.url()), virtual_clock());
    block(async {
        let store = open_at(&url, &clock);
        enqueue(&store, vec![job(), job(), job()]).await;
        assert_eq!(claim(&store, "w", 3).await.len(), 3);
        clock.advance_ms(10 * support::LEASE_MS);
        store.sweep(Sweep { kind: SweepKind::Reap, max: 10 }).await.unwrap();
        server.command(&["DEL", &key(&url, "jobs")]).unwrap();
        assert!(claim(&store, "w", 3).await.is_empty());
        assert_eq!(support::counts(&store).await.failed, 3);
        open_at(&url, &clock).queues().await.unwrap();
        enqueue(&store, vec![job(), job()]).await;
        server.command(&["DEL", &key(&url, "jobs")]).unwrap();
        assert_half("two jobs", open_at(&url, &clock).queues().await, "(jobs)");
    });
}

#[test]
fn a_store_that_was_emptied_works() {
    let server = Redis::start().unwrap();
    let (url, clock) = (fresh_url(&server.url()), virtual_clock());
    block(async {
        let store = open_at(&url, &clock);
        fill(&store).await;
        let all = ChangeMany {
            filter: Filter::queue("q".try_into().unwrap()),
            op: ChangeManyOp::Obliterate { force: true },
            max: 1_000,
            cursor: None,
        };
        assert_eq!(store.change_many(all.clone()).await.unwrap().cursor, None);
        enqueue_one(&open_at(&url, &clock), job()).await.unwrap();
        assert_eq!(store.change_many(all).await.unwrap().cursor, None);
        open_at(&url, &clock).queues().await.unwrap();
        // The guide's way to get rid of a store.
        for name in NAMES {
            server.command(&["UNLINK", &key(&url, name)]).unwrap();
        }
        enqueue_one(&store, job()).await.unwrap();
        assert_eq!(claim(&open_at(&url, &clock), "w", 1).await.len(), 1);
    });
}

#[test]
fn doctor_lists_the_keys_of_half_a_store_and_the_steps() {
    let server = Redis::start().unwrap();
    let url = fresh_url(&server.url());
    block(async {
        fill(&open_at(&url, &virtual_clock())).await;
        server.command(&["DEL", &key(&url, "meta"), &key(&url, "life")]).unwrap();
        let found = examine(&Options::from_url(&url).unwrap(), Depth::default()).await.unwrap();
        assert!(!found.usable, "{found:#?}");
        let half = found.findings.iter().find(|one| one.check == "half").expect("a finding");
        assert_eq!(half.severity, Severity::Error);
        assert!(half.message.contains("meta should exist") && half.message.contains("jobs, ready"), "{half:?}");
        let hint = half.hint.as_deref().unwrap_or_default();
        assert!(hint.contains("stop all workers") && hint.contains("backup") && hint.contains("UNLINK"), "{hint}");
    });
}

/// A prefix of which the slot is served by that node.
fn prefix_at(cluster: &Cluster, node: usize, name: &str) -> String {
    let mut all = (0..10_000).map(|n| format!("{name}-{n}"));
    all.find(|prefix| cluster.primary_of_slot(slot_of(prefix)).unwrap() == node).expect("a prefix for each node")
}

/// Begins to move the slot of a prefix to another node, and moves these keys.
fn move_keys(cluster: &Cluster, prefix: &str, to: usize, names: &[&str]) {
    let slot = slot_of(prefix);
    let from = cluster.primary_of_slot(slot).unwrap();
    let _migration = cluster.begin_migration(slot, to).unwrap();
    let port = cluster.node(to).unwrap().port().to_string();
    for name in names {
        let key = format!("{{{prefix}}}:{name}");
        let moved = cluster.node(from).unwrap().command(&["MIGRATE", "127.0.0.1", &port, &key, "0", "5000"]).unwrap();
        assert_eq!(moved, "OK", "{key}");
    }
}

/// Waits until another node than that one serves a slot, and the third primary names it; the node.
async fn promoted(cluster: &Cluster, slot: u16, old: usize) -> usize {
    for _ in 0..6_000 {
        let new = cluster.primary_of_slot(slot).ok().filter(|new| *new != old);
        if let Some(new) = new {
            let port = format!(":{}@", cluster.node(new).unwrap().port());
            let view = cluster.node(2).unwrap().command(&["CLUSTER", "NODES"]).unwrap();
            let line = view.lines().find(|line| line.contains(&port)).unwrap_or_default();
            let state = cluster.node(2).unwrap().command(&["CLUSTER", "INFO"]).unwrap();
            if line.contains(" 0-") && state.contains("cluster_state:ok") {
                return new;
            }
        }
        // sleeps because: a cluster gives no signal when a replica was promoted.
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("no replica was promoted for slot {slot}");
}

/// Waits until a node answers for the cluster again.
async fn until_in_order(node: &Redis) {
    for _ in 0..6_000 {
        if node.command(&["CLUSTER", "INFO"]).unwrap().contains("cluster_state:ok") {
            return;
        }
        // sleeps because: a cluster gives no signal when a node is back.
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("the node on port {} is not in order", node.port());
}

/// Repeats a call while the store is unavailable: the importing node names the dead owner until the slot is repaired.
async fn answered<T>(call: impl AsyncFn() -> Result<T, Error>) -> Result<T, Error> {
    for _ in 0..1_000 {
        match call().await {
            Err(Error::Unavailable { .. }) => {}
            answer => return answer,
        }
    }
    call().await
}

#[test]
fn slow_half_a_store_on_a_cluster_is_refused_and_can_be_merged() {
    let cluster = Cluster::start(3, 1).unwrap();
    let (from, to) = (0, 1);
    // Of one store `meta` goes, of the other one it stays.
    let (goes, stays) = (prefix_at(&cluster, from, "goes"), prefix_at(&cluster, from, "stays"));
    let port = cluster.node(2).unwrap().port();
    let url = |prefix: &str| format!("redis+cluster://127.0.0.1:{port}?prefix={prefix}");
    block(async {
        let mut ids = Vec::new();
        for prefix in [&goes, &stays] {
            ids.push(fill(&RedisStore::open_url(&url(prefix)).unwrap()).await);
        }
        let nine = ["meta", "jobs", "ready", "feed", "groups", "life", "ring", "minutes", "leases"];
        move_keys(&cluster, &goes, to, &nine);
        move_keys(&cluster, &stays, to, &nine[1..]);
        assert_eq!(cluster.node(from).unwrap().command(&["WAIT", "1", "5000"]).unwrap(), "1");
        cluster.kill9(from).unwrap();
        let new = promoted(&cluster, slot_of(&goes), from).await;
        let node = cluster.node(new).unwrap();
        let before = content(node);
        for (prefix, missing) in [(&goes, "meta"), (&stays, "jobs")] {
            let store = RedisStore::open_url(&url(prefix)).unwrap();
            let prune = Sweep { kind: SweepKind::Prune, max: 10 };
            let enqueued = answered(async || store.enqueue(EnqueueRequest::new(vec![job()])).await).await;
            assert_half(prefix, enqueued, missing);
            assert_half(prefix, answered(async || store.claim(support::claim_request("w", 1)).await).await, missing);
            assert_half(prefix, answered(async || store.sweep(prune).await).await, missing);
            assert_half(prefix, answered(async || store.queues().await).await, missing);
            let options = Options::from_url(&url(prefix)).unwrap();
            let found = answered(async || examine(&options, Depth::default()).await).await.unwrap();
            let half = found.findings.iter().find(|one| one.check == "half").expect("a finding");
            let hint = half.hint.as_deref().unwrap_or_default();
            assert!(hint.contains("--cluster fix") && hint.contains(&slot_of(prefix).to_string()), "{hint}");
        }
        assert_eq!(content(node), before, "nothing was written");
        // What `doctor` advises.
        let owner = node.command(&["CLUSTER", "MYID"]).unwrap();
        for prefix in [&goes, &stays] {
            let slot = slot_of(prefix).to_string();
            cluster.node(to).unwrap().command(&["CLUSTER", "SETSLOT", &slot, "NODE", &owner]).unwrap();
        }
        cluster.restart_as_replica(from).unwrap();
        until_in_order(cluster.node(to).unwrap()).await;
        println!("{}", cluster.fix().unwrap());
        cluster.wait_until_healthy().unwrap();
        for (prefix, ids) in [&goes, &stays].into_iter().zip(ids) {
            let store = RedisStore::open_url(&url(prefix)).unwrap();
            assert!(store.get(ids).await.unwrap().iter().all(Option::is_some), "{prefix}");
            enqueue_one(&store, job()).await.unwrap();
            let discord = windlass_crash::recount::Raw::read(&url(prefix)).await.unwrap();
            let discord = windlass_crash::recount::recount(&discord);
            assert!(discord.is_none(), "{:#?}", discord.named);
        }
    });
}
