//! Runs, looked at and changed from the command line: rows of a matrix, names, inputs of a fork, what was logged.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use serde_json::{Value, json};
use support::{Scene, claim, report, said, until, wait};
use windlass::core::store::{Outcome, OutcomeKind};

fn scene(text: &str) -> Scene {
    let scene = Scene::new();
    std::fs::write(scene.path("ci.yml"), text).unwrap();
    scene
}

/// Runs it here, in the scene's store.
fn local(scene: &Scene, code: i32) {
    let said = scene.run(&["run", "ci.yml", "--local", "--quiet", "--store", "sqlite://jobs.db"]);
    assert_eq!(said.code, code, "{said:?}");
}

fn shown(scene: &Scene, run: &str) -> Value {
    scene.run(&["runs", "show", run, "--json"]).ok().one()
}

/// The line of a table that begins with this.
fn line(text: &str, begins: &str) -> String {
    let begins = format!("{begins} ");
    let line = text.lines().find(|line| line.starts_with(&begins));
    line.unwrap_or_else(|| panic!("no line begins with `{begins}`:\n{text}")).to_owned()
}

#[test]
fn each_row_of_a_matrix_is_shown_with_its_job() {
    let scene = scene(
        "
jobs:
  test:
    strategy: { fail-fast: false, matrix: { os: [debian, alpine, mac] } }
    run: 'echo on $MATRIX_OS; test $MATRIX_OS != alpine'
",
    );
    local(&scene, 1);
    let said = scene.run(&["runs", "show", "latest"]).ok();
    assert!(line(&said.out, "test").contains("3 of 3 done"), "{said:?}");
    for (row, state) in [("debian", "succeeded"), ("alpine", "failed"), ("mac", "succeeded")] {
        let line = line(&said.out, &format!("test ({row})"));
        assert!(line.contains(state), "{line}");
        let job = line.split_whitespace().nth(4).unwrap();
        scene.run(&["jobs", "logs", job]).ok().shows(&[&format!("on {row}\n")]);
    }
    let jobs = shown(&scene, "latest")["nodes"][0]["jobs"].clone();
    assert_eq!((&jobs[1]["row"], &jobs[1]["state"]), (&json!({ "os": "alpine" }), &json!("failed")));
    assert!(jobs[1]["claimed_at"].is_string() && jobs[1]["ended_at"].is_string(), "{jobs}");
}

#[test]
fn of_very_many_rows_those_that_failed_are_shown() {
    let rows: Vec<String> = (1..=25).map(|row| row.to_string()).collect();
    let matrix = format!("{{ fail-fast: false, matrix: {{ n: [{}] }} }}", rows.join(", "));
    let scene = scene(&format!("jobs: {{ test: {{ strategy: {matrix}, run: 'test $MATRIX_N != 7' }} }}"));
    local(&scene, 1);
    let said = scene.run(&["runs", "show", "latest"]).ok();
    assert!(line(&said.out, "test (7)").contains("failed"), "{said:?}");
    assert!(line(&said.out, "test (24 more)").contains("24 succeeded; --all shows them"), "{said:?}");
    assert!(!said.out.contains("test (8)"), "{said:?}");
    let said = scene.run(&["runs", "show", "latest", "--all"]).ok().shows(&["test (8)", "test (7)", "test (25)"]);
    assert!(!said.out.contains("more)"), "{said:?}");
}

#[test]
fn slow_a_node_waits_until_it_is_claimed_and_its_time_counts_from_there() {
    let scene = scene("jobs: { a: { strategy: { matrix: { n: [1] } }, run: x }, b: { run: x, needs: a } }");
    scene.run(&["run", "ci.yml", "--detach"]).ok();
    let said = scene.run(&["runs", "show", "latest"]).ok();
    assert_eq!(line(&said.out, "a").split_whitespace().take(3).collect::<Vec<_>>(), ["a", "waiting", "-"]);
    assert!(line(&said.out, "a (1)").contains("queued, nobody has claimed it yet"), "{said:?}");
    let run = shown(&scene, "latest");
    assert_eq!(run["nodes"][0]["state"], "waiting");
    assert_eq!(run["nodes"][0]["jobs"][0]["state"], "waiting");

    // A second in the queue is not a second of work.
    let started_at: windlass::core::time::Timestamp = run["nodes"][0]["started_at"].as_str().unwrap().parse().unwrap();
    until(started_at.plus_ms(1_100));
    wait(async {
        let store = scene.store();
        let job = claim(&store, "default", 60_000).await;
        let running = shown(&scene, "latest");
        assert_eq!(running["nodes"][0]["state"], "running", "{running}");
        assert_eq!(running["nodes"][0]["jobs"][0]["state"], "running", "{running}");
        let kind = OutcomeKind::Complete { result: None, outputs: std::collections::BTreeMap::new() };
        report(&store, &job, Outcome { lease: job.lease, kind }).await;
    });
    let said = scene.run(&["runs", "show", "latest"]).ok();
    assert!(line(&said.out, "a (1)").split_whitespace().nth(3).unwrap().ends_with("ms"), "{said:?}");
}

#[test]
fn what_people_call_a_job_stands_beside_its_id() {
    let scene = scene("jobs: { a: { name: All the tests, run: 'true' }, b: { name: b, run: 'true' } }");
    let said = scene.run(&["plan", "ci.yml"]).ok();
    assert!(line(&said.out, "a").contains("All the tests"), "{said:?}");
    assert_eq!(line(&said.out, "b").split_whitespace().nth(1), Some("commands"), "{said:?}");
    local(&scene, 0);
    let said = scene.run(&["runs", "show", "latest"]).ok();
    assert!(line(&said.out, "a").contains("All the tests"), "{said:?}");
    assert_eq!(shown(&scene, "latest")["nodes"][0]["title"], "All the tests");
    // Where nobody has another name, there is no place for it.
    std::fs::write(scene.path("ci.yml"), "jobs: { a: { run: 'true' } }").unwrap();
    let said = scene.run(&["plan", "ci.yml"]).ok();
    assert!(!said.out.contains("NAME"), "{said:?}");
}

#[test]
fn the_inputs_of_a_fork_are_checked_as_those_of_a_run() {
    let scene = scene(
        "
inputs:
  f: { type: boolean, default: true }
  n: { type: number, default: 4 }
  t: { default: word }
jobs: { a: { run: x } }
",
    );
    scene.run(&["run", "ci.yml", "--detach"]).ok();
    for (input, words) in [
        ("f=maybe", &["`maybe` is no value for the input `f`", "true or false"][..]),
        ("n=many", &["`many` is no value for the input `n`", "a number"]),
        ("zebra=1", &["there is no input `zebra`", "f, n, t"]),
    ] {
        scene.run(&["runs", "fork", "latest", "--input", input]).fails(2, words);
    }
    assert_eq!(scene.run(&["runs", "list", "--json"]).ok().json().len(), 1, "nothing was created");
    let inputs = ["--input", "f=false", "--input", "t=true", "--input", "n=5"];
    scene.run(&[&["runs", "fork", "latest"], &inputs[..]].concat()).ok();
    assert_eq!(shown(&scene, "latest")["inputs"], json!({ "f": false, "n": 5, "t": "true" }));
}

#[test]
fn a_run_is_found_by_the_name_that_it_was_given() {
    let scene = scene("jobs: { a: { run: x } }");
    let id = scene.run(&["run", "ci.yml", "--detach", "--id", "nightly"]).ok().out.trim().to_owned();
    scene.run(&["runs", "show", "nightly"]).ok().shows(&[&id]);
    for name in ["nightly", "latest", &id] {
        scene.run(&["explain", name]).ok().shows(&["running", "a: job "]);
    }
    scene.run(&["runs", "cancel", "nightly"]).ok().shows(&[&id]);
    scene.run(&["runs", "rerun", "nightly", "--all"]).ok().shows(&[&id]);
    for command in [&["runs", "show"][..], &["runs", "cancel"], &["runs", "remove"], &["runs", "resume"]] {
        let args: Vec<&str> = command.iter().copied().chain(["nobody"]).collect();
        scene.run(&args).fails(4, &["there is no run `nobody`", "an id looks like r0-"]);
    }
    scene.run(&["explain", "nobody"]).fails(4, &["nobody"]);
    // A job of this name comes first.
    let job = scene.enqueue(&["mail", "welcome", "--id", "nightly"]).to_string();
    let explained = scene.run(&["explain", "nightly", "--json"]).ok().one();
    assert_eq!(explained["id"], json!(job));
}

#[test]
fn what_a_command_wrote_comes_out_as_it_was() {
    let scene = scene(r#"jobs: { a: { run: 'printf "a\377\376b\n"; printf "\033[31mred\033[0m\n"' } }"#);
    local(&scene, 0);
    let job = shown(&scene, "latest")["nodes"][0]["jobs"][0]["job"].as_str().unwrap().to_owned();
    let out = scene.command(&["jobs", "logs", &job]).output().unwrap();
    let has = |bytes: &[u8]| out.stdout.windows(bytes.len()).any(|some| some == bytes);
    assert!(has(b" #1 a\xff\xfeb\n"), "{out:?}");
    assert!(has(b" #1 \x1b[31mred\x1b[0m\n"), "{out:?}");
    let lines = said(scene.command(&["jobs", "logs", &job, "--json"]).output().unwrap()).ok().json();
    assert_eq!((&lines[0]["text"], &lines[0]["bytes"]), (&json!("a\u{fffd}\u{fffd}b"), &json!("Yf/+Yg==")));
    assert_eq!(lines[1].get("bytes"), None);
}

#[test]
fn whoever_misses_the_store_is_told_what_makes_it() {
    Scene::new().run(&["runs", "list"]).fails(3, &["no such file", "`windlass run`"]);
}

#[test]
fn of_several_runs_each_is_removed_or_refused_for_itself() {
    let scene = scene("jobs: { a: { run: 'true' } }");
    let run = |id: &str| scene.run(&["run", "ci.yml", "--detach", "--id", id]);
    run("goes-on").ok();
    run("waits").ok();
    run("ends").ok();
    scene.run(&["runs", "cancel", "ends"]).ok();
    let said = scene.run(&["runs", "remove", "goes-on", "ends", "waits"]);
    assert_ne!(said.code, 0, "{said:?}");
    assert_eq!((said.out.matches("removed").count(), said.err.matches("has not ended").count()), (1, 2), "{said:?}");
    scene.run(&["runs", "show", "ends"]).fails(4, &["ends"]);
    shown(&scene, "waits");
}
