//! What is said about a Redis server, and what is not: no password is shown to anybody.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;
use support::{Said, Scene, said};
use windlass_servers::{Proxy, Redis};

const SECRET: &str = "hunter2";

/// The command lines of the demo's workers that name this folder.
fn workers_of(folder: &Path) -> Vec<String> {
    let folder = folder.to_str().unwrap();
    let lines = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let line = std::fs::read(entry.ok()?.path().join("cmdline")).ok()?;
        Some(String::from_utf8_lossy(&line).replace('\0', " "))
    });
    lines.filter(|line| line.contains("demo-worker") && line.contains(folder)).collect()
}

#[track_caller]
fn keeps_the_secret(said: &Said) {
    assert!(!said.out.contains(SECRET) && !said.err.contains(SECRET), "{said:?}");
}

#[test]
fn slow_a_demo_keeps_the_password_to_itself() {
    let server = Redis::builder().password(SECRET).start().unwrap();
    let (scene, url) = (Scene::new(), server.url());
    assert!(url.contains(SECRET), "{url}");
    let args = ["demo", "--for", "2s", "--workers", "2", "--no-faults", "--store", &url];
    let mut demo = scene.command(&args).env("TMPDIR", scene.path("")).spawn().unwrap();
    let mut notes = BufReader::new(demo.stderr.take().unwrap());
    let (mut first, mut rest) = (String::new(), String::new());
    notes.read_line(&mut first).unwrap();
    // A process that was just started has the arguments of its parent for a moment.
    let mut workers = workers_of(&scene.path(""));
    while workers.len() < 2 && demo.try_wait().unwrap().is_none() {
        // sleeps because: what another process does is waited for.
        std::thread::park_timeout(Duration::from_millis(5));
        workers = workers_of(&scene.path(""));
    }
    notes.read_to_string(&mut rest).unwrap();
    let mut ended = said(demo.wait_with_output().unwrap());
    ended.err = first + &rest;
    assert_eq!(workers.len(), 2, "{workers:?} {ended:?}");
    assert!(workers.iter().all(|line| !line.contains(SECRET)), "{workers:?}");
    keeps_the_secret(&ended);
    assert!(ended.err.contains("redis://***@127.0.0.1:"), "{ended:?}");
    ended.ok().shows(&["nothing lost, nothing completed twice"]);
    let json = scene.run(&["demo", "--for", "1s", "--no-faults", "--json", "--store", &url]).ok();
    keeps_the_secret(&json);
    assert!(json.one()["store"].as_str().unwrap().starts_with("redis://***@127.0.0.1:"), "{json:?}");
}

#[test]
fn no_error_repeats_a_password() {
    let scene = Scene::new();
    let sentinel = format!("redis+sentinel://127.0.0.1:1/main?sentinel_password={SECRET}&connect_timeout_ms=300");
    for (url, code) in [
        (format!("redis://app:{SECRET}@127.0.0.1:1?connect_timeout_ms=300"), 3),
        (sentinel, 3),
        (format!("redis:/app:{SECRET}@localhost"), 2),
        (format!("redis//app:{SECRET}@localhost"), 2),
        (format!("rediz://app:{SECRET}@localhost"), 2),
        (format!("app:{SECRET}@localhost:6379"), 2),
        (format!("redis://app:{SECRET}@localhost?prefiks=a"), 2),
    ] {
        for args in [
            &["--store", &url, "jobs", "list"][..],
            &["doctor", &url],
            &["doctor", &url, "--json"],
            &["demo", "--store", &url, "--for", "1s"],
        ] {
            keeps_the_secret(&scene.run(args).fails(code, &[]));
        }
        if !url.contains("redi") {
            // Behind a command it could be anything.
            continue;
        }
        for args in [&["top", &url][..], &["top", &url, "--json"], &["jobs", "show", "--deep", &url]] {
            keeps_the_secret(&scene.run(args).fails(2, &[]));
        }
        std::fs::write(scene.path("windlass.toml"), format!("store = \"{url}\n")).unwrap();
        keeps_the_secret(&scene.run(&["jobs", "list"]).fails(2, &["windlass.toml"]));
        std::fs::remove_file(scene.path("windlass.toml")).unwrap();
    }
}

#[test]
fn a_wait_that_breaks_off_says_that_the_job_is_enqueued() {
    let server = Redis::start().unwrap();
    let (scene, url) = (Scene::new(), format!("{}?connect_timeout_ms=500&timeout_ms=500", server.url()));
    for json in [false, true] {
        let args = ["enqueue", "mail", "welcome", "--wait=60s", "--store", &url, "--json"];
        let mut waits = scene.start(if json { &args } else { &args[..6] });
        let mut line = String::new();
        match json {
            true => BufReader::new(waits.stdout.as_mut().unwrap()).read_line(&mut line).unwrap(),
            false => BufReader::new(waits.stderr.as_mut().unwrap()).read_line(&mut line).unwrap(),
        };
        server.kill9();
        let said = said(waits.wait_with_output().unwrap());
        let id = line.split(['"', ' ', '\n']).find(|word| word.starts_with("0-")).unwrap();
        let words = format!("the job {id} is enqueued, but waiting for it failed");
        let watch = format!("windlass jobs watch {id}");
        let said = said.fails(3, &[&words, &watch]);
        assert!(!said.err.contains("nothing was applied"), "{said:?}");
        server.restart().unwrap();
    }
}

#[test]
fn an_enqueue_whose_answer_is_lost_names_its_job_and_says_what_to_do() {
    let primary = Redis::start().unwrap();
    let replica = Redis::builder().config("replicaof", &format!("127.0.0.1 {}", primary.port())).start().unwrap();
    assert_eq!(primary.command(&["WAIT", "1", "60000"]).unwrap(), "1");
    let (scene, url) = (Scene::new(), format!("{}?wait_replicas=1&timeout_ms=1000", primary.url()));
    scene.run(&["enqueue", "mail", "welcome", "--store", &url]).ok();
    // From now on changes are made, and nobody confirms them.
    replica.pause().unwrap();
    let said = scene.run(&["enqueue", "mail", "welcome", "--store", &url]).fails(3, &["whether the job 0-"]);
    assert!(!said.err.contains("same ids"), "{said:?}");
    let id = said.err.split([' ', '`']).find(|word| word.starts_with("0-")).unwrap();
    assert!(said.err.contains(&format!("windlass jobs show {id}")), "{said:?}");
    scene.run(&["jobs", "show", id, "--store", &primary.url()]).ok();
    let args = ["enqueue", "mail", "welcome", "--id", "mine", "--store", &url];
    scene.run(&args).fails(3, &["whether the job 0-", "repeat the command", "--id"]);
    let bulk = ["enqueue", "--bulk", "-", "--store", &url];
    let said = scene.run_with(&bulk, b"{\"queue\":\"mail\",\"kind\":\"k\"}\n");
    said.fails(3, &["whether line 1 is enqueued", "enqueued before that: 0 jobs"]);
    let said = scene.run(&["queues", "pause", "mail", "--store", &url]).fails(3, &["answer was lost", "look before"]);
    assert!(!said.err.contains("same ids"), "{said:?}");
}

#[test]
fn a_store_that_may_be_evicted_is_warned_about() {
    let server = Redis::builder().config("maxmemory-policy", "allkeys-lru").start().unwrap();
    let (scene, url) = (Scene::new(), format!("{}?allow_eviction=true", server.url()));
    let said = scene.run(&["enqueue", "mail", "welcome", "--store", &url]).ok();
    assert!(said.err.contains("allow_eviction=true") && said.err.contains("windlass doctor"), "{said:?}");
    assert_eq!(scene.run(&["jobs", "list", "--store", &url, "--json"]).ok().err, "");
}

#[test]
fn the_doctor_takes_a_url_and_sends_nobody_to_itself() {
    let server = Redis::start().unwrap();
    let (scene, url) = (Scene::new(), format!("{}?connect_timeout_ms=300", server.url()));
    scene.run(&["doctor", &url]).ok().shows(&["redis, layout"]);
    scene.run(&["doctor", &url, "--store", &url]).ok().shows(&["redis, layout"]);
    server.kill9();
    let said = scene.run(&["doctor", &url]).fails(3, &["hint: is the server up"]);
    assert!(!said.err.contains("windlass doctor"), "{said:?}");
    scene.run(&["jobs", "list", "--store", &url]).fails(3, &["hint: is the server up", "windlass doctor"]);
}

/// The repetition of a call finds the jobs of the first one, whose answer was lost.
#[test]
fn a_bulk_enqueue_whose_answer_was_lost_counts_its_jobs_as_created() {
    let server = Redis::start().unwrap();
    let proxy = Proxy::start(SocketAddr::from((Ipv4Addr::LOCALHOST, server.port()))).unwrap();
    let (scene, url) = (Scene::new(), format!("redis://127.0.0.1:{}", proxy.port()));
    let bulk = ["enqueue", "--bulk", "-", "--json", "--store", &url];
    let mine = "{\"queue\":\"mail\",\"kind\":\"k\",\"id\":\"mine\"}\n";
    assert_eq!(scene.run_with(&bulk, mine.as_bytes()).ok().one()["created"], 1);
    let lines = format!("{mine}{}", "{\"queue\":\"mail\",\"kind\":\"k\"}\n".repeat(2));
    proxy.faults().cut_before_reply_to("EVALSHA", 1);
    let summary = scene.run_with(&bulk, lines.as_bytes()).ok().one();
    assert!(!proxy.faults().is_armed(), "no answer was lost");
    assert_eq!((&summary["created"], &summary["existing"]), (&2.into(), &1.into()), "{summary}");
    let listed = scene.run(&["jobs", "list", "--json", "--store", &url]).ok().json();
    assert_eq!(listed.len(), 3, "{listed:?}");
}
