//! `windlass bench`, the real binary: what it prints, how it ends, and that the store is left as it was.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops where it stands")]

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;
use windlass::core::job::{JobSpec, NewJob};
use windlass::core::store::{EnqueueRequest, QueueStatus, RunList, Store};

fn windlass(dir: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    command.current_dir(dir).env_remove("WINDLASS_STORE").env("TMPDIR", dir).args(arguments);
    command
}

fn run(dir: &Path, arguments: &[&str]) -> Output {
    windlass(dir, arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The lines that it printed; nothing but JSON may stand there.
fn lines(output: &Output) -> Vec<Value> {
    assert!(output.status.success(), "{}", text(&output.stderr));
    let lines: Vec<Value> = text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let scenarios = lines.iter().filter(|line| line.get("about").is_none());
    scenarios.for_each(|line| assert_eq!(line["profile"], PROFILE));
    lines
}

/// The profile that tests are built with.
const PROFILE: &str = "debug";

#[test]
fn ratios_of_another_build_than_that_of_a_release_are_marked() {
    let dir = tempfile::tempdir().unwrap();
    let arguments = ["bench", "drain", "--quick", "--jobs", "50", "--store", "memory://"];
    let output = run(dir.path(), &arguments);
    let said = text(&output.stderr);
    assert!(said.contains("cannot be compared") && said.contains("--profile dist"), "{said}");
}

fn number(line: &Value, name: &str) -> f64 {
    line[name].as_f64().unwrap_or_else(|| panic!("{name} is missing in {line}"))
}

fn open(dir: &Path) -> std::sync::Arc<dyn Store> {
    windlass::open(&format!("sqlite://{}/jobs.db", dir.display())).unwrap()
}

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

fn queues(dir: &Path) -> Vec<QueueStatus> {
    block_on(async { open(dir).queues().await.unwrap() })
}

fn runs(dir: &Path) -> usize {
    let list = RunList::new(100);
    block_on(async { open(dir).list_runs(list).await.unwrap().runs.len() })
}

/// Puts one job into the store.
fn put_job(dir: &Path, queue: &str) {
    let spec = JobSpec::new(queue.try_into().unwrap(), "welcome".try_into().unwrap(), Default::default());
    let job = NewJob::new(windlass::core::id::JobId::from_parts(0, 7), spec);
    block_on(async { open(dir).enqueue(EnqueueRequest::new(vec![job])).await.unwrap().remove(0).unwrap() });
}

/// The scenarios, made small.
const SMALL: [(&str, &[&str]); 8] = [
    ("enqueue", &["--jobs", "70", "--tasks", "3"]),
    ("enqueue", &["--jobs", "70", "--bulk", "--batch", "30"]),
    ("drain", &["--jobs", "70", "--slots", "10"]),
    ("drain", &["--jobs", "70", "--direct", "--batch", "16", "--floor-batch", "256"]),
    ("latency", &["--jobs", "20", "--rate", "500"]),
    ("mixed", &["--jobs", "70"]),
    ("scale", &["--jobs", "70"]),
    ("groups", &["--jobs", "70"]),
];

fn check_line(line: &Value, scenario: &str, store: &str) {
    assert_eq!(line["scenario"], scenario, "{line}");
    assert_eq!(line["store"], store, "{line}");
    assert!(number(line, "jobs") >= 20.0, "{line}");
    let ratio = if scenario == "latency" {
        let [p50, p90, p99, max] = ["p50_us", "p90_us", "p99_us", "max_us"].map(|name| number(line, name));
        assert!(0.0 < p50 && p50 <= p90 && p90 <= p99 && p99 <= max, "{line}");
        assert!(number(line, "floor_per_s") > 0.0, "{line}");
        number(line, "floor_us") / p99
    } else {
        number(line, "jobs_per_s") / number(line, "floor_per_s")
    };
    let told = number(line, "ratio");
    assert!((told - ratio).abs() <= ratio * 0.02 + 1e-8, "{told} is not {ratio}: {line}");
}

#[test]
fn every_scenario_prints_one_line_on_every_store_and_leaves_it_as_it_was() {
    for (store, url) in [("memory", "memory://"), ("sqlite", "sqlite://jobs.db")] {
        let dir = tempfile::tempdir().unwrap();
        for (scenario, more) in SMALL {
            let arguments = [&["bench", scenario, "--quick", "--json", "--store", url], more].concat();
            let lines = lines(&run(dir.path(), &arguments));
            assert_eq!(lines.len(), 1, "{scenario}");
            check_line(&lines[0], scenario, store);
            // The next one would be refused if anything were left.
        }
        if store == "sqlite" {
            assert_eq!(queues(dir.path()), [], "the queue is gone");
        }
        let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(left.iter().all(|name| name.to_str().unwrap().starts_with("jobs.db")), "{left:?}");
    }
}

#[test]
fn the_figures_that_only_one_scenario_has_are_there() {
    let dir = tempfile::tempdir().unwrap();
    let of = |arguments: &[&str]| lines(&run(dir.path(), &[&["bench"], arguments, &["--quick", "--json"]].concat()));
    let drain = &of(&["drain", "--jobs", "100", "--slots", "10"])[0];
    let batch = number(drain, "batch_mean");
    assert!((1.0..=100.0).contains(&batch), "{drain}");
    let share = number(drain, "store_share");
    assert!((0.0..=1.0).contains(&share) && share > 0.0, "{drain}");
    assert_eq!(drain["store"], "sqlite", "a file of its own when no store is named");
    let latency = &of(&["latency", "--jobs", "20", "--rate", "500"])[0];
    let over = number(latency, "p99_us") - 2.0 * number(latency, "fsync_p99_us");
    assert!((number(latency, "over_two_fsyncs_us") - over).abs() <= 3.0, "{latency}");
    assert!(number(latency, "fsync_us") > 0.0, "{latency}");
    let scale = &of(&["scale", "--jobs", "1100"])[0];
    assert_eq!(scale["stored"], serde_json::json!([1000, 1100]));
    assert_eq!(scale["claim_and_complete_us"].as_array().map(Vec::len), Some(2), "{scale}");
    assert!(number(scale, "growth") > 0.0);
    let groups = &of(&["groups", "--jobs", "1100"])[0];
    assert_eq!(groups["groups"], serde_json::json!([0, 1000, 1100]));
    assert_eq!(groups["claim_and_complete_us"].as_array().map(Vec::len), Some(3), "{groups}");
    let direct = &of(&["drain", "--jobs", "100", "--direct", "--batch", "30"])[0];
    assert_eq!((&direct["mode"], &direct["batch"]), (&"direct".into(), &30.into()), "{direct}");
    assert!(direct.get("slots").is_none() && direct.get("redis_cpu_us_per_job").is_none(), "{direct}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "temporary files are gone");
}

#[test]
fn graphs_are_run_to_their_end_beside_drain_and_are_gone_afterwards() {
    for (store, url) in [("memory", "memory://"), ("sqlite", "sqlite://jobs.db")] {
        let dir = tempfile::tempdir().unwrap();
        let lines = lines(&run(dir.path(), &["bench", "graph", "--quick", "--json", "--jobs", "120", "--store", url]));
        let wanted = [("diamond", 120, 1), ("chains", 10, 12), ("flows", 11, 10)];
        assert_eq!(lines.len(), wanted.len() + 2, "{lines:?}");
        for (line, (part, nodes, runs)) in lines.iter().zip(wanted) {
            assert_eq!(
                (&line["scenario"], &line["store"], &line["part"]),
                (&"graph".into(), &store.into(), &part.into())
            );
            assert_eq!(
                (&line["nodes"], &line["runs"], &line["jobs"]),
                (&nodes.into(), &runs.into(), &(nodes * runs).into())
            );
            let (per_s, ratio) = (number(line, "jobs_per_s"), number(line, "ratio"));
            assert!((ratio - per_s / number(line, "drain_per_s")).abs() <= ratio * 0.02, "{line}");
            assert!((number(line, "node_us") * per_s / 1e6 - 1.0).abs() <= 0.02, "{line}");
        }
        assert!(number(&lines[0], "alone_per_s") > 0.0, "{}", lines[0]);
        let (size, plan) = (&lines[3], &lines[4]);
        assert_eq!((&size["part"], &size["nodes"]), (&"size".into(), &serde_json::json!([10, 100, 120])));
        let costs: Vec<f64> = size["node_us"].as_array().unwrap().iter().map(|cost| cost.as_f64().unwrap()).collect();
        assert_eq!(costs.len(), 3);
        assert!((number(size, "growth") * costs[0] / costs[2] - 1.0).abs() <= 0.02, "{size}");
        assert_eq!((&plan["part"], &plan["jobs"], &plan["needs"]), (&"plan".into(), &120.into(), &600.into()));
        assert!(number(plan, "read_ms") > 0.0 && number(plan, "check_ms") > 0.0, "{plan}");
        if store == "sqlite" {
            assert_eq!(queues(dir.path()), [], "the queue is gone");
            assert_eq!(runs(dir.path()), 0, "and so are the runs");
        }
    }
}

#[test]
#[cfg(unix)]
fn a_bench_of_graphs_that_is_interrupted_clears_up() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let arguments = ["bench", "graph", "chains", "--store", "sqlite://jobs.db", "--jobs", "1000000"];
    let mut child = windlass(dir.path(), &arguments).stderr(std::process::Stdio::null()).spawn().unwrap();
    block_on(async {
        while !store.queues().await.unwrap().iter().any(|queue| queue.counts.succeeded > 25) {
            // sleeps because: what another process does is waited for.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!((queues(dir.path()), runs(dir.path())), (vec![], 0), "its jobs and its runs are gone");
}

#[test]
fn all_of_them_print_a_line_each() {
    let dir = tempfile::tempdir().unwrap();
    let lines = lines(&run(dir.path(), &["bench", "all", "--quick", "--jobs", "50", "--store", "memory://", "--json"]));
    let names: Vec<_> = lines.iter().map(|line| line["scenario"].as_str().unwrap()).collect();
    assert_eq!(names[..7], ["enqueue", "enqueue", "drain", "latency", "mixed", "scale", "groups"]);
    assert_eq!(names[7..12], ["graph"; 5]);
    assert_eq!(names[12..], ["durable"]);
    assert_eq!([&lines[0]["mode"], &lines[1]["mode"]], ["one-by-one", "bulk"]);
}

#[test]
fn people_get_a_table_and_a_list() {
    let dir = tempfile::tempdir().unwrap();
    let output = run(dir.path(), &["bench", "drain", "--jobs", "1000", "--quick", "--store", "memory://"]);
    let table = text(&output.stdout);
    assert!(output.status.success() && !table.contains('{'), "{table}");
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert!(rows.contains(&vec!["jobs", "1,000"]), "{table}");

    let output = run(dir.path(), &["bench"]);
    let list = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0));
    for name in ["enqueue", "drain", "latency", "mixed", "scale", "groups", "graph", "all"] {
        assert!(list.lines().any(|line| line.split_whitespace().next() == Some(name)), "{name}: {list}");
    }
}

#[test]
fn a_store_in_use_is_refused_and_with_force_only_the_own_queue_is_touched() {
    let dir = tempfile::tempdir().unwrap();
    put_job(dir.path(), "mail");
    let before = queues(dir.path());
    let arguments = ["bench", "drain", "--store", "sqlite://jobs.db", "--jobs", "50", "--quick"];
    let output = run(dir.path(), &arguments);
    assert_eq!(output.status.code(), Some(5));
    let told = text(&output.stderr);
    assert!(told.contains("not empty") && told.contains("--force"), "{told}");
    assert!(output.stdout.is_empty());
    assert_eq!(queues(dir.path()), before);

    let output = run(dir.path(), &[&arguments[..], &["--force", "--json"]].concat());
    assert_eq!(lines(&output).len(), 1);
    assert_eq!(queues(dir.path()), before);
}

#[test]
fn what_a_bench_that_was_killed_has_left_goes_with_force() {
    let dir = tempfile::tempdir().unwrap();
    put_job(dir.path(), "windlass-bench");
    let arguments = ["bench", "enqueue", "--store", "sqlite://jobs.db", "--jobs", "50", "--quick"];
    let output = run(dir.path(), &arguments);
    assert_eq!(output.status.code(), Some(5));
    assert!(text(&output.stderr).contains("broken off"), "{}", text(&output.stderr));
    assert!(run(dir.path(), &[&arguments[..], &["--force"]].concat()).status.success());
    assert_eq!(queues(dir.path()), []);
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_is_done() {
    let dir = tempfile::tempdir().unwrap();
    for (arguments, said) in [
        (&["drian"][..], "drain"),
        (&["drain", "--jobs", "0"], "--jobs"),
        (&["drain", "--jobs", "many"], "--jobs"),
        (&["drain", "--jobs", "4294967296"], "--jobs"),
        (&["drain", "--slots", "0"], "--slots"),
        (&["drain", "--direct", "--slots", "5"], "--slots"),
        (&["drain", "--batch", "5"], "--direct"),
        (&["drain", "--floor-batch", "1001"], "--floor-batch"),
        (&["drain", "--store", "redis+cluster://h:1"], "redis://HOST:PORT"),
        (&["drain", "--rounds", "0"], "--rounds"),
        (&["drain", "--rate", "5"], "--rate"),
        (&["latency", "--rate", "0"], "--rate"),
        (&["latency", "--seconds", "0"], "--seconds"),
        (&["enqueue", "--tasks", "0"], "--tasks"),
        (&["enqueue", "--bulk", "--batch", "0"], "--batch"),
        (&["enqueue", "--bulk", "--batch", "10001"], "--batch"),
        (&["enqueue", "--batch", "10"], "--bulk"),
        (&["scale", "--huge", "--jobs", "5"], "--jobs"),
        (&["graph", "chians"], "chains"),
        (&["graph", "--slots", "0"], "--slots"),
        (&["drain", "--store", "jobs.db"], "sqlite://FILE"),
    ] {
        let output = run(dir.path(), &[&["bench"], arguments].concat());
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {told}");
        assert!(told.contains(said), "{arguments:?}: {told}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing was made");
}

#[test]
#[cfg(unix)]
fn a_bench_that_is_interrupted_clears_up() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let arguments = ["bench", "latency", "--store", "sqlite://jobs.db", "--seconds", "600", "--rate", "50"];
    let mut child = windlass(dir.path(), &arguments).stderr(std::process::Stdio::null()).spawn().unwrap();
    block_on(async {
        // Past the warm-up: the measurement is under way.
        while !store.queues().await.unwrap().iter().any(|queue| queue.counts.succeeded > 25) {
            // sleeps because: what another process does is waited for.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(block_on(store.queues()).unwrap(), [], "its jobs are gone");
}
