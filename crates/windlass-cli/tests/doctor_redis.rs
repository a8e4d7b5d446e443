//! `windlass doctor` and the other commands on real Redis servers: healthy ones, and ones that are not.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use serde_json::Value;
use support::{Said, Scene};
use windlass_servers::{Cluster, Fsync, Redis, Sentinel};

fn doctor(scene: &Scene, url: &str) -> (i32, Vec<Value>) {
    let said = scene.run(&["doctor", "--json", "--store", url]);
    assert!(said.err.is_empty(), "{said:?}");
    (said.code, said.json())
}

fn run(scene: &Scene, url: &str, args: &[&str]) -> Said {
    scene.run(&[&["--store", url], args].concat())
}

fn enqueue(scene: &Scene, url: &str, args: &[&str]) -> String {
    run(scene, url, &[&["enqueue"], args].concat()).ok().out.trim().to_owned()
}

/// The finding of a check that has these words, with its severity.
#[track_caller]
fn finds<'a>(all: &'a [Value], severity: &str, check: &str, words: &str) -> &'a Value {
    let is = |one: &&Value| one["check"] == check && one["message"].as_str().unwrap().contains(words);
    let found = all.iter().find(is).unwrap_or_else(|| panic!("no {check} with `{words}`: {all:#?}"));
    assert_eq!(found["severity"], severity, "{found}");
    if severity == "error" || severity == "warning" {
        assert!(found["hint"].is_string(), "{found}");
    }
    found
}

#[track_caller]
fn hints(finding: &Value, words: &str) {
    assert!(finding["hint"].as_str().unwrap().contains(words), "{finding}");
}

/// No findings of these checks are worse than information.
#[track_caller]
fn is_well(all: &[Value], checks: &[&str]) {
    for check in checks {
        let mut found = all.iter().filter(|one| one["check"] == *check).peekable();
        assert!(found.peek().is_some(), "no {check}: {all:#?}");
        assert!(found.all(|one| one["severity"] == "ok" || one["severity"] == "info"), "{check}: {all:#?}");
    }
}

#[test]
fn a_server_that_is_well() {
    let server = Redis::builder().append_only(Fsync::Always).config("maxmemory", "200mb").start().unwrap();
    let (scene, url) = (Scene::new(), format!("{}?prefix=shop", server.url()));
    for args in [&["mail", "welcome"][..], &["mail", "later", "--delay", "1h"], &["mail", "k", "--group", "acme"]] {
        enqueue(&scene, &url, args);
    }
    run(&scene, &url, &["schedules", "add", "nightly", "mail", "report", "--every", "1h"]).ok();
    let (_, all) = doctor(&scene, &url);
    for (check, words) in [
        ("server", "version 7"),
        ("persistence", "synced before every answer: durability power"),
        ("memory", "of 200 MiB used"),
        ("replicas", "this is the primary, with 0 replicas"),
        ("rights", "`default` may do all that the store does"),
        ("ping", "p99"),
        ("slowlog", "no slow calls"),
        ("size", "`shop` holds about"),
        ("orphans", "index entries fit their jobs, and the counters fit them"),
        ("store", "durability power"),
        ("clock", "the store's clock shows"),
    ] {
        finds(&all, "ok", check, words);
    }
    finds(&all, "info", "age", "oldest job that has not ended");
    // Nobody works on it: that is found as on any other store.
    finds(&all, "error", "workers", "2 jobs ready on `mail`");
    let people = run(&scene, &url, &["doctor", "--deep"]);
    assert_eq!(people.code, 1);
    people.shows(&["ok      orphans", "next: start a worker"]);
}

#[test]
fn who_only_looks_makes_nothing() {
    let server = Redis::start().unwrap();
    let (scene, url) = (Scene::new(), server.url());
    for args in [
        &["jobs", "list"][..],
        &["queues", "list"],
        &["workers"],
        &["schedules", "list"],
        &["groups", "list", "mail"],
        &["doctor"],
        &["doctor", "--deep"],
    ] {
        let said = run(&scene, &url, args);
        assert!(said.code == 0 || said.code == 4, "{args:?}: {said:?}");
        assert_eq!(server.command(&["DBSIZE"]).unwrap(), "0", "{args:?}");
    }
    let (_, all) = doctor(&scene, &url);
    hints(finds(&all, "info", "prefix", "nothing is stored under the prefix `windlass`"), "check prefix=");
}

#[test]
fn what_the_disk_keeps_is_said() {
    let (scene, none) = (Scene::new(), Redis::start().unwrap());
    let (code, all) = doctor(&scene, &none.url());
    assert_eq!(code, 0, "{all:#?}");
    hints(finds(&all, "warning", "persistence", "all jobs are gone (durability none)"), "appendonly yes");
    finds(&all, "info", "memory", "no maxmemory");

    none.command(&["CONFIG", "SET", "save", "3600 1"]).unwrap();
    finds(&doctor(&scene, &none.url()).1, "warning", "persistence", "snapshots only (save 3600 1)");

    none.command(&["CONFIG", "SET", "appendonly", "yes"]).unwrap();
    let (_, all) = doctor(&scene, &none.url());
    hints(finds(&all, "info", "persistence", "up to two seconds"), "appendfsync always");
    finds(&all, "info", "store", "durability process");
    none.command(&["CONFIG", "SET", "appendfsync", "no"]).unwrap();
    finds(&doctor(&scene, &none.url()).1, "warning", "persistence", "appendfsync no");
}

#[test]
fn a_server_that_evicts_is_refused_and_told_what_to_change() {
    let server =
        Redis::builder().config("maxmemory", "100mb").config("maxmemory-policy", "allkeys-lru").start().unwrap();
    let (scene, url) = (Scene::new(), server.url());
    let (code, all) = doctor(&scene, &url);
    assert_eq!(code, 1);
    let refused = finds(&all, "error", "eviction", "a store refuses to start");
    hints(refused, "CONFIG SET maxmemory-policy noeviction");
    finds(&all, "error", "eviction", "maxmemory-policy is allkeys-lru");
    finds(&all, "error", "eviction", "lose all jobs, runs or schedules at once");
    finds(&all, "ok", "memory", "of 100 MiB used");
    run(&scene, &url, &["jobs", "list"]).fails(3, &["maxmemory-policy is allkeys-lru", "windlass doctor"]);

    let (code, all) = doctor(&scene, &format!("{url}?allow_eviction=true"));
    assert_eq!(code, 0, "{all:#?}");
    finds(&all, "warning", "eviction", "allow_eviction=true accepts it");
    is_well(&all, &["clock", "queues"]);
    // The hint is right.
    server.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).unwrap();
    let (_, all) = doctor(&scene, &url);
    assert!(all.iter().all(|one| one["check"] != "eviction"), "{all:#?}");
}

#[test]
fn a_memory_that_fills_up_is_an_alarm() {
    let server = Redis::start().unwrap();
    let scene = Scene::new();
    // The room is set by what is used, which depends on the build of the server.
    let info = server.command(&["INFO", "memory"]).unwrap();
    let used: u64 = info.lines().find_map(|line| line.trim().strip_prefix("used_memory:")).unwrap().parse().unwrap();
    server.command(&["CONFIG", "SET", "maxmemory", &(used * 10 / 9 + 400_000).to_string()]).unwrap();
    let (_, all) = doctor(&scene, &server.url());
    let one = all.iter().find(|one| one["check"] == "memory").unwrap();
    assert!(one["severity"] == "warning" || one["severity"] == "error", "{one}");
    hints(one, "raise maxmemory");
}

#[test]
fn a_replica_is_named_with_its_primary() {
    let primary = Redis::start().unwrap();
    let port = primary.port().to_string();
    let replica = Redis::builder().config("replicaof", &format!("127.0.0.1 {port}")).start().unwrap();
    let scene = Scene::new();
    let (code, all) = doctor(&scene, &replica.url());
    assert_eq!(code, 1);
    hints(finds(&all, "error", "server", &format!("a replica of 127.0.0.1:{port}")), "write the primary's address");
    run(&scene, &replica.url(), &["jobs", "list"]).fails(3, &["is a replica", "windlass doctor"]);

    primary.command(&["WAIT", "1", "10000"]).unwrap();
    let (_, all) = doctor(&scene, &primary.url());
    hints(finds(&all, "info", "replicas", "with 1 replica in step"), "wait_replicas=1");
    let (code, all) = doctor(&scene, &format!("{}?wait_replicas=2&timeout_ms=400", primary.url()));
    assert_eq!(code, 1);
    hints(finds(&all, "error", "replicas", "every change ends as `unknown`"), "lower wait_replicas");
}

#[test]
fn rights_that_are_missing_are_named() {
    let server = Redis::start().unwrap();
    let scene = Scene::new();
    let grant = |rules: &[&str]| {
        let words =
            [&["ACL", "SETUSER", "app", "reset", "on", ">pw", "~{windlass}:*", "&{windlass}:*"], rules].concat();
        server.command(&words).unwrap();
    };
    let url = format!("redis://app:pw@127.0.0.1:{}", server.port());

    grant(&["+@all", "-xadd", "-subscribe", "-slowlog"]);
    let (code, all) = doctor(&scene, &url);
    assert_eq!(code, 1);
    let one = finds(&all, "error", "rights", "`app` may not run what the store needs: XADD, SUBSCRIBE");
    hints(one, "ACL SETUSER");
    finds(&all, "info", "rights", "may not run SLOWLOG GET");

    // Who may not ask tries, and runs nothing.
    grant(&["+@all", "-acl", "-zadd"]);
    let (code, all) = doctor(&scene, &url);
    assert_eq!(code, 1);
    finds(&all, "error", "rights", "may not run what the store needs: ZADD");
    assert_eq!(server.command(&["DBSIZE"]).unwrap(), "0");

    grant(&["+@all", "-acl", "-multi"]);
    hints(finds(&doctor(&scene, &url).1, "info", "rights", "may neither ask nor try"), "+acl|dryrun");

    // Keys and channels of another prefix.
    grant(&["+@all"]);
    let (code, all) = doctor(&scene, &format!("{url}?prefix=other"));
    assert_eq!(code, 1);
    let said = finds(&all, "error", "rights", "EVALSHA on a key of the store")["message"].as_str().unwrap().to_owned();
    assert!(said.contains("SUBSCRIBE on a channel of the store"), "{said}");
    let (_, all) = doctor(&scene, &url);
    finds(&all, "ok", "rights", "`app` may do all");

    grant(&["+@all", "-info"]);
    run(&scene, &url, &["doctor"]).fails(2, &["access control list", "info"]);
    run(&scene, &format!("redis://app:wrong@127.0.0.1:{}", server.port()), &["doctor"]).fails(2, &["password"]);
}

#[test]
fn damage_is_found_and_named() {
    let server = Redis::start().unwrap();
    let (scene, url) = (Scene::new(), server.url());
    let lost = enqueue(&scene, &url, &["mail", "welcome"]);
    let gone = enqueue(&scene, &url, &["mail", "later", "--delay", "1h"]);
    let broken = enqueue(&scene, &url, &["mail", "k"]);
    enqueue(&scene, &url, &["groups", "k", "--group", "acme"]);
    run(&scene, &url, &["schedules", "add", "torn", "q", "k", "--every", "1h"]).ok();
    let (_, all) = doctor(&scene, &url);
    is_well(&all, &["orphans", "schedules"]);

    let key = |name: &str| format!("{{windlass}}:{name}");
    let place = server.command(&["ZRANGE", &key("ready"), "0", "-1"]).unwrap();
    let place = place.lines().find(|line| line.ends_with(&lost)).unwrap();
    server.cli(&["ZREM", &key("ready"), place]).unwrap();
    server.cli(&["HDEL", &key("jobs"), &gone]).unwrap();
    server.cli(&["HSET", &key("jobs"), &broken, "nonsense"]).unwrap();
    server.cli(&["ZADD", &key("ended"), "0", "nonsense"]).unwrap();
    server.cli(&["ZADD", &key("leases"), "1000", "000000000001x"]).unwrap();
    server.cli(&["HSET", &key("schedules"), "torn", "{"]).unwrap();
    let group = server.command(&["HGET", &key("groups"), "n2 acme"]).unwrap();
    let text = server.command(&["HGET", &key("groups"), &group]).unwrap();
    let spoilt = text.replacen(" 1 0 ", " 7 0 ", 1);
    assert_ne!(text, spoilt);
    server.cli(&["HSET", &key("groups"), &group, &spoilt]).unwrap();

    let (code, all) = doctor(&scene, &url);
    assert_eq!(code, 1);
    hints(finds(&all, "error", "orphans", &format!("{lost} (r, it is in no index)")), "windlass jobs show ID --json");
    finds(&all, "warning", "orphans", &format!("`scheduled` belong to no job there: {gone} (there is no such job)"));
    finds(&all, "warning", "orphans", "`ended` belong to no job there: nonsense (it cannot be read)");
    finds(&all, "warning", "orphans", "`leases` belong to no job there");
    finds(&all, "warning", "quarantine", &format!("{broken} (its record cannot be read)"));
    finds(&all, "warning", "counters", "`mail` counts 2 ready jobs and has 1");
    finds(&all, "warning", "groups", "acme (it counts 7 ready jobs and has 1)");
    hints(finds(&all, "error", "leases", "1 lease ran out more than 5 minutes ago"), "start a worker");
    hints(finds(&all, "error", "schedules", "`torn` is damaged"), "windlass schedules remove torn --yes");
    run(&scene, &url, &["schedules", "remove", "torn", "--yes"]).ok();
}

#[test]
fn a_large_payload_is_named() {
    let server = Redis::start().unwrap();
    let (scene, url) = (Scene::new(), server.url());
    let id = enqueue(&scene, &url, &["mail", "welcome"]);
    // As one that a later version, or another hand, has made so.
    let record = server.command(&["HGET", "{windlass}:jobs", &id]).unwrap();
    let large = format!("{record}{}", "x".repeat(1_100_000));
    server.command(&["HSET", "{windlass}:jobs", &id, &large]).unwrap();
    hints(
        finds(&doctor(&scene, &url).1, "warning", "payloads", &format!("1 job over 1 MiB, such as {id}")),
        "elsewhere",
    );
}

#[test]
fn slow_calls_of_the_store_are_named() {
    let server = Redis::builder().config("slowlog-log-slower-than", "0").start().unwrap();
    let (scene, url) = (Scene::new(), server.url());
    enqueue(&scene, &url, &["mail", "welcome"]);
    finds(&doctor(&scene, &url).1, "info", "slowlog", "of this store, the longest");
    // What others were slow with is none of this store's. (With a bound of 0 the doctor's own calls would be.)
    server.command(&["CONFIG", "SET", "slowlog-log-slower-than", "10000000"]).unwrap();
    let (_, others) = doctor(&scene, &format!("{url}?prefix=other"));
    let said = finds(&others, "ok", "slowlog", "no slow calls");
    assert!(said["hint"].is_null());
}

#[test]
fn slow_a_server_that_is_down_or_hangs_ends_with_3_and_says_what_to_do() {
    let server = Redis::start().unwrap();
    let (scene, url) = (Scene::new(), server.url());
    server.pause().unwrap();
    let hangs = format!("{url}?connect_timeout_ms=300&timeout_ms=300");
    run(&scene, &hangs, &["doctor"]).fails(3, &["no connection within 300 ms", "hint: is the server up"]);
    server.resume().unwrap();
    server.kill9();
    for args in [&["doctor"][..], &["jobs", "list"], &["enqueue", "q", "k"], &["queues", "list"]] {
        run(&scene, &url, args).fails(3, &["Connection refused", "hint: is the server up", "redis-cli"]);
    }
    let said = run(&scene, &url, &["doctor", "--json"]).fails(3, &[]);
    let error: Value = serde_json::from_str(said.err.trim()).unwrap();
    assert!(error["hint"].as_str().unwrap().contains("redis-cli") && error["exit_code"] == 3, "{error}");
}

#[test]
fn slow_a_cluster_names_its_slot_and_who_owns_it() {
    let cluster = Cluster::start(3, 1).unwrap();
    let (scene, url) = (Scene::new(), cluster.url());
    enqueue(&scene, &url, &["mail", "welcome"]);
    let (_, all) = doctor(&scene, &url);
    finds(&all, "ok", "cluster", "state ok, 16384 of 16384 slots served, 6 nodes, 3 of them primaries");
    let slot = windlass_redis::link::slot_of("windlass");
    let owner = cluster.primary_of_slot(slot).unwrap();
    let address = format!("in slot {slot}, owned by 127.0.0.1:{} with 1 healthy", cluster.node(owner).unwrap().port());
    finds(&all, "ok", "slot", &address);
    finds(&all, "ok", "rights", "may do all");
    is_well(&all, &["orphans", "replicas", "size"]);

    // A node by its own address is not the store.
    let (code, all) = doctor(&scene, &cluster.node(0).unwrap().url());
    assert_eq!(code, 1);
    hints(finds(&all, "error", "server", "a node of a cluster"), "redis+cluster://");

    let to = (0..3).find(|node| *node != owner).unwrap();
    let migration = cluster.begin_migration(slot, to).unwrap();
    let (_, all) = doctor(&scene, &url);
    hints(finds(&all, "warning", "slot", "the slot is being moved"), "stands still");
    migration.finish(100).unwrap();
    let (_, all) = doctor(&scene, &url);
    finds(&all, "ok", "slot", &format!("owned by 127.0.0.1:{}", cluster.node(to).unwrap().port()));
}

#[test]
fn slow_sentinels_are_asked_for_their_quorum() {
    let sentinel = Sentinel::start().unwrap();
    let (scene, url) = (Scene::new(), sentinel.url());
    enqueue(&scene, &url, &["mail", "welcome"]);
    let (_, all) = doctor(&scene, &url);
    let words = format!("`mymaster` is at 127.0.0.1:{}", sentinel.primary_port().unwrap());
    let said = finds(&all, "ok", "sentinel", &words)["message"].as_str().unwrap().to_owned();
    assert!(said.contains("3 sentinels know each other, 2 must agree, 2 replicas"), "{said}");
    hints(finds(&all, "info", "replicas", "with 2 replicas in step"), "wait_replicas=all");

    sentinel.sentinels()[0].kill9();
    let (_, all) = doctor(&scene, &url);
    hints(finds(&all, "warning", "sentinel", "no answer from"), "start it");
    for one in sentinel.sentinels() {
        one.kill9();
    }
    run(&scene, &url, &["doctor"]).fails(3, &["hint: is the server up"]);
    let unknown = Sentinel::start().unwrap();
    let url = unknown.url().replace("/mymaster", "/nobody");
    run(&scene, &url, &["doctor"]).fails(2, &["knows no service `nobody`"]);
}

/// The words of every `redis-cli` line in the guide's shell blocks; a line that ends in a backslash goes on in the next.
fn lines_of_the_guide() -> Vec<Vec<String>> {
    let guide = include_str!("../../../docs/redis.md");
    let blocks = guide.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap().replace("\\\n", " "));
    let all: Vec<String> = blocks.flat_map(|block| block.lines().map(str::to_owned).collect::<Vec<_>>()).collect();
    let plain = |word: &str| word.trim_matches('\'').replace('\\', "");
    let words = |line: &String| {
        let said = line.strip_prefix("redis-cli ")?.split(" # ").next()?.split(" | ").next()?;
        Some(said.split_whitespace().map(plain).collect())
    };
    all.iter().filter_map(words).collect()
}

#[test]
fn every_redis_cli_line_of_the_guide_is_taken() {
    let server = Redis::start().unwrap();
    let (scene, url) = (Scene::new(), server.url());
    enqueue(&scene, &url, &["mail", "welcome"]);
    let id = enqueue(&scene, &url, &["mail", "welcome", "--delay", "1h"]);
    run(&scene, &url, &["jobs", "cancel", &id]).ok();
    let lines = lines_of_the_guide();
    assert!(lines.len() > 10, "{lines:?}");
    for line in lines {
        let words: Vec<String> = line.iter().map(|word| word.replace("ID", &id).replace("<number>", "1")).collect();
        // An answer that is an error is an error here.
        let answer = server.cli(&words.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
        let may_be_empty = ["leases", "idle", "workers", "extra", "runs", "run_ready", "SLOWLOG"];
        let says = !answer.is_empty() || may_be_empty.iter().any(|name| line.iter().any(|word| word.contains(name)));
        assert!(says, "{line:?}");
    }
}
