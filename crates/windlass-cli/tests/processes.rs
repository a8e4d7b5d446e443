//! What only a real process shows: interrupts, pipes that close, and waiting for what another process does.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use serde_json::json;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use support::{Scene, claim, fail, report, said, wait};
use windlass::core::job::Progress;
use windlass::core::payload::Payload;
use windlass::core::store::{JobQueue, LogAppend, LogLine, LogSink, LogStream, Outcome, RenewRequest, Renewal};
use windlass::core::time::Timestamp;

/// As somebody would with Ctrl-C.
fn interrupt(pid: u32) {
    assert!(Command::new("kill").args(["-INT", &pid.to_string()]).status().unwrap().success());
}

#[test]
fn a_watch_shows_what_another_process_does() {
    let scene = Scene::new();
    scene.enqueue(&["mail", "welcome"]);
    let mut watch = scene.start(&["jobs", "watch", "--queue", "mail", "--state", "ready"]);
    let mut notes = BufReader::new(watch.stderr.take().unwrap()).lines();
    assert!(notes.next().unwrap().unwrap().contains("watching from now on"));
    scene.enqueue(&["other", "welcome"]);
    scene.enqueue(&["mail", "welcome", "--delay", "1h"]);
    let id = scene.enqueue(&["mail", "welcome"]).to_string();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let line = lines.next().unwrap().unwrap();
    assert!(line.contains(&format!("{id} mail: enqueued")), "{line}");
    interrupt(watch.id());
    assert_eq!(watch.wait().unwrap().code(), Some(130));
}

#[test]
fn a_watch_of_one_job_ends_with_it_and_says_how() {
    let scene = Scene::new();
    for (ends_well, code) in [(true, 0), (false, 1)] {
        let id = scene.enqueue(&["mail", "welcome"]).to_string();
        let mut watch = scene.start(&["jobs", "watch", &id, "--json"]);
        wait(async {
            let store = scene.store();
            if ends_well {
                let job = claim(&store, "mail", 60_000).await;
                report(&store, &job, Outcome::complete(job.lease)).await;
            } else {
                fail(&store, "mail", "no").await;
            }
        });
        let mut text = String::new();
        watch.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(watch.wait().unwrap().code(), Some(code), "{text}");
        let last: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        assert_eq!((&last["job"], &last["to"]), (&json!(id), &json!(if ends_well { "succeeded" } else { "failed" })));
        // When it has ended already, it says so at once.
        let again = scene.run(&["jobs", "watch", &id, "--json"]);
        assert_eq!((again.code, &again.one()["to"]), (code, &json!(if ends_well { "succeeded" } else { "failed" })));
    }
    let id = scene.enqueue(&["mail", "welcome"]).to_string();
    scene.run(&["jobs", "watch", &id, "--for", "50ms"]).fails(1, &["has not ended within 50ms", "windlass explain"]);
    scene.run(&["jobs", "watch", "--for", "50ms"]).ok();
}

#[test]
fn an_enqueue_waits_for_the_result() {
    let scene = Scene::new();
    scene.run(&["queues", "set", "sums", "--cap", "5"]).ok();
    for (result, code) in [(Some(json!({ "sum": 3 })), 0), (None, 1)] {
        let waiting = scene.start(&["enqueue", "sums", "add", "[1,2]", "--wait"]);
        let asked = scene.start(&["enqueue", "sums", "add", "[1,2]", "--wait=60s", "--json"]);
        wait(async {
            let store = scene.store();
            for _ in 0..2 {
                ready(&store).await;
                let job = claim(&store, "sums", 60_000).await;
                let outcome = match &result {
                    Some(value) => Outcome::complete_with(job.lease, Payload::json(value).unwrap()),
                    None => Outcome::fail(job.lease, "cannot add", windlass::core::job::Retry::Never),
                };
                report(&store, &job, outcome).await;
            }
        });
        let (people, program) = (said(waiting.wait_with_output().unwrap()), said(asked.wait_with_output().unwrap()));
        assert_eq!((people.code, program.code), (code, code), "{people:?} {program:?}");
        let last = program.json().remove(1);
        match result {
            Some(result) => {
                assert_eq!(people.out, "{\"sum\":3}\n");
                assert_eq!((&last["state"], &last["result"]), (&json!("succeeded"), &result));
            }
            None => {
                assert!(
                    people.err.contains("is failed: cannot add") && people.err.contains("windlass jobs show"),
                    "{people:?}"
                );
                assert_eq!((&last["state"], &last["failure"]["message"]), (&json!("failed"), &json!("cannot add")));
            }
        }
    }
    scene.run(&["enqueue", "sums", "add", "--wait=50ms"]).fails(1, &["has not ended within 50ms", "windlass explain"]);
}

#[test]
fn an_empty_bulk_is_no_mistake() {
    let scene = Scene::new();
    assert_eq!(scene.run_with(&["enqueue", "--bulk", "-", "--json"], b"\n\n").ok().one()["created"], 0);
    scene.run_with(&["enqueue", "--bulk", "-"], b"").ok().shows(&["0 created"]);
}

#[test]
fn jobs_that_come_one_by_one_are_not_kept_waiting() {
    let scene = Scene::new();
    let mut bulk = scene.command(&["enqueue", "--bulk", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut input = bulk.stdin.take().unwrap();
    scene.run(&["queues", "set", "slow", "--cap", "1"]).ok();
    for n in 1..=3 {
        input.write_all(b"{\"queue\":\"slow\",\"kind\":\"k\"}\n").unwrap();
        while scene.run(&["queues", "list", "--json"]).ok().one()["counts"]["ready"] != n {}
    }
    drop(input);
    said(bulk.wait_with_output().unwrap()).ok().shows(&["3 created"]);
}

/// Returns when a job is ready on `sums`.
async fn ready(store: &windlass_sqlite::SqliteStore) {
    while store.queues().await.unwrap().iter().all(|queue| queue.counts.ready == 0) {
        tokio::task::yield_now().await;
    }
}

#[test]
fn an_interrupt_ends_it_with_130() {
    let scene = Scene::new();
    let id = scene.enqueue(&["mail", "welcome"]).to_string();
    scene.run(&["jobs", "logs", &id]).ok();
    // A bulk that waits for its input: it says how far it came.
    let mut bulk = scene.command(&["enqueue", "--bulk", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut input = bulk.stdin.take().unwrap();
    input.write_all("{\"queue\":\"bulk\",\"kind\":\"k\"}\n".repeat(1_000).as_bytes()).unwrap();
    let counted =
        || scene.run(&["queues", "list", "--json"]).ok().json().iter().any(|queue| queue["counts"]["ready"] == 1_000);
    while !counted() {}
    interrupt(bulk.id());
    let ended = said(bulk.wait_with_output().unwrap()).fails(130, &["interrupted", "enqueued before that: 1000 jobs"]);
    assert!(ended.out.contains("1000 created"), "{ended:?}");
    drop(input);
    // One that waits for a job, and for standard input at a place where nothing else is read.
    let waiting = scene.command(&["enqueue", "mail", "welcome", "--wait"]).spawn().unwrap();
    let before = 2;
    while scene.run(&["jobs", "list", "--queue", "mail", "--json"]).ok().json().len() < before {}
    interrupt(waiting.id());
    said(waiting.wait_with_output().unwrap()).fails(130, &["interrupted"]);
}

#[test]
fn a_reader_that_has_gone_is_no_disaster() {
    let scene = Scene::new();
    let lines = "{\"queue\":\"q\",\"kind\":\"k\"}\n".repeat(3_000);
    scene.run_with(&["enqueue", "--bulk", "-"], lines.as_bytes()).ok();
    for args in [
        &["jobs", "list", "--all", "--json"][..],
        &["jobs", "list", "--all"],
        &["completions", "zsh"],
        &["man"],
        &["--help"],
        &["doctor"],
    ] {
        let mut child = scene.start(args);
        let mut first = [0; 1];
        let mut out = child.stdout.take().unwrap();
        out.read_exact(&mut first).unwrap();
        drop(out);
        let ended = said(child.wait_with_output().unwrap());
        assert!(ended.code == 0 || args[0] == "doctor", "{args:?}: {ended:?}");
        assert_eq!(ended.err, "", "{args:?}");
    }
    // Nobody to complain to, either.
    let mut child = scene.command(&["jobs", "show", "x"]).spawn().unwrap();
    drop(child.stderr.take());
    assert_eq!(child.wait().unwrap().code(), Some(4));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "reads what another process writes while the test goes on")]
fn a_job_that_is_removed_at_its_end_was_followed_to_its_end() {
    let scene = Scene::new();
    let id = scene.enqueue(&["mail", "welcome"]).to_string();
    let store = scene.store();
    let job = wait(claim(&store, "mail", 600_000));
    let line = LogLine { at: Timestamp::from_ms(0), stream: LogStream::Stdout, text: "first".into() };
    let append = LogAppend { lease: job.lease, first: 0, lines: vec![line] };
    wait(store.append_logs(vec![append])).unwrap().remove(0).unwrap();
    // Both have seen the job before it ends, and look again when it is gone.
    let mut logs = scene.start(&["jobs", "logs", &id, "--follow"]);
    let mut lines = BufReader::new(logs.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().ends_with("#1 first"));
    let mut watch = scene.start(&["jobs", "watch", &id]);
    let mut events = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut percent = 0;
    let first = std::thread::spawn(move || (events.next().unwrap().unwrap(), events));
    while !first.is_finished() {
        // Until the watcher has begun: it shows what happens from then on.
        percent = (percent + 1) % 100;
        let progress = Some(Progress { percent, message: String::new() });
        let renewal = Renewal { lease: job.lease, lease_ms: None, progress };
        wait(store.renew(RenewRequest { renewals: vec![renewal] })).unwrap().remove(0).unwrap();
    }
    let (_, events) = first.join().unwrap();
    let rest = std::thread::spawn(move || events.map(Result::unwrap).collect::<Vec<_>>());
    let signal = |name: &str| {
        for process in [&logs, &watch] {
            assert!(Command::new("kill").args([name, &process.id().to_string()]).status().unwrap().success());
        }
    };
    signal("-STOP");
    wait(report(&store, &job, Outcome::complete(job.lease)));
    scene.run(&["jobs", "remove", &id, "--yes"]).ok();
    signal("-CONT");
    said(logs.wait_with_output().unwrap()).fails(0, &["was removed", "last lines may be missing"]);
    said(watch.wait_with_output().unwrap()).ok();
    assert!(rest.join().unwrap().iter().any(|line| line.ends_with("succeeded")));
}
