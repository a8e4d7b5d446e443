//! The demo, over the real binary and real processes.

#![cfg(target_os = "linux")]
#![allow(clippy::disallowed_methods, reason = "a test over processes waits for them")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed check is a panic")]

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use windlass::core::store::{JobQueue, QueueSettings, Retention};
use windlass::core::time::HANG_GUARD;
use windlass_sqlite::SqliteStore;

fn windlass(args: &[&str], tmp: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    command.args(args).env("TMPDIR", tmp).env_remove("WINDLASS_STORE").current_dir(tmp);
    command
}

fn run(args: &[&str], tmp: &Path) -> Output {
    windlass(args, tmp).output().unwrap()
}

fn summary(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text.lines().count(), 1, "{text} {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(&text).unwrap()
}

/// Processes whose command line speaks of this directory.
fn processes_of(dir: &Path) -> Vec<u32> {
    let name = dir.to_str().unwrap().as_bytes().to_vec();
    let speaks = |pid: u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.windows(name.len()).any(|part| part == name)
    };
    let entries = std::fs::read_dir("/proc").unwrap();
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(|pid| speaks(*pid)).collect()
}

fn entries(dir: &Path) -> usize {
    std::fs::read_dir(dir).unwrap().count()
}

#[test]
fn slow_nothing_is_lost_while_workers_are_frozen_and_killed() {
    let tmp = tempfile::tempdir().unwrap();
    let output = run(&["demo", "--for", "3s", "--json", "--lease", "300ms", "--hang-rate", "0.05"], tmp.path());
    let summary = summary(&output);
    assert!(output.status.success(), "{summary}");
    for zero in ["lost", "double_completed", "not_enqueued"] {
        assert_eq!(summary[zero], 0, "{zero}: {summary}");
    }
    for some in ["enqueued", "succeeded", "failed", "retried", "timed_out", "reaped", "kills", "freezes", "refused"] {
        assert!(summary[some].as_u64().unwrap() > 0, "{some}: {summary}");
    }
    let number = |name: &str| summary[name].as_u64().unwrap();
    assert_eq!(number("succeeded") + number("failed"), number("enqueued"), "{summary}");
    assert!(number("executed") > number("enqueued"), "{summary}");
    assert_eq!(entries(tmp.path()), 0, "the temporary store is removed");
    assert!(processes_of(tmp.path()).is_empty(), "a worker is left");
}

#[test]
fn slow_a_calm_demo_on_a_named_store_leaves_the_store_and_nothing_else() {
    let tmp = tempfile::tempdir().unwrap();
    // With a lease that a busy machine does not lose: each job is executed once.
    let args = ["demo", "--for", "1s", "--json", "--no-faults", "--fail-rate", "0", "--hang-rate", "0", "--seed", "7"];
    let output = run(&[&args[..], &["--lease", "60s", "--store", "sqlite://demo.db"]].concat(), tmp.path());
    let summary = summary(&output);
    assert!(output.status.success(), "{summary}");
    for zero in ["failed", "retried", "timed_out", "kills", "freezes", "lost", "double_completed"] {
        assert_eq!(summary[zero], 0, "{zero}: {summary}");
    }
    assert_eq!(summary["confirmed"], summary["succeeded"], "the ledgers know each completion: {summary}");
    assert_eq!(summary["executed"], summary["enqueued"], "{summary}");
    assert_eq!((summary["seed"].as_u64(), summary["store"].as_str()), (Some(7), Some("sqlite://demo.db")));
    assert!(tmp.path().join("demo.db").exists());
    let left: Vec<_> = std::fs::read_dir(tmp.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| name.to_string_lossy().starts_with("demo.db")), "{left:?}");
    let seen = self::summary(&run(&["top", "--json", "--store", "sqlite://demo.db"], tmp.path()));
    assert_eq!(
        seen["workers"].as_array().map(Vec::len),
        Some(0),
        "each worker drained and said that it leaves: {seen}"
    );
}

#[test]
fn slow_a_kept_store_can_be_looked_at() {
    let tmp = tempfile::tempdir().unwrap();
    let output = run(&["demo", "--for", "1s", "--no-faults", "--keep"], tmp.path());
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out} {err}");
    assert!(out.contains("nothing lost, nothing completed twice"), "{out}");
    assert!(err.contains("enqueued"), "a line a second: {err}");
    let hint = err.lines().last().unwrap();
    let url = hint.split_once("windlass jobs list --store ").expect(hint).1;
    assert!(Path::new(url.strip_prefix("sqlite://").unwrap()).exists(), "{hint}");
}

#[test]
fn slow_the_workers_die_with_their_parent_also_a_frozen_one() {
    let tmp = tempfile::tempdir().unwrap();
    let mut parent =
        windlass(&["demo", "--lease", "60s"], tmp.path()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(parent.stderr.take().unwrap()).lines();
    // The lease is long: whoever is frozen stays so.
    let frozen = lines.map_while(Result::ok).find(|line| line.contains("was frozen"));
    assert!(frozen.is_some(), "nobody was frozen");
    assert!(processes_of(tmp.path()).len() >= 4);
    parent.kill().unwrap();
    parent.wait().unwrap();
    let left = || processes_of(tmp.path());
    let step = Duration::from_millis(50);
    let gone = (0..HANG_GUARD.as_millis() / step.as_millis()).any(|_| {
        // sleeps because: nobody but the kernel is told of the end of a process that is not our child
        std::thread::sleep(step);
        left().is_empty()
    });
    assert!(gone, "still there: {:?}", left());
}

#[test]
fn slow_a_signal_ends_it_as_a_key_does() {
    let tmp = tempfile::tempdir().unwrap();
    let mut demo = windlass(&["demo"], tmp.path()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(demo.stderr.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("enqueued")), "a line a second");
    let pid = rustix::process::Pid::from_child(&demo);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    lines.for_each(drop);
    let output = demo.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("nothing lost, nothing completed twice"), "{output:?}");
    assert_eq!(entries(tmp.path()), 0);
    assert!(processes_of(tmp.path()).is_empty());
}

/// A demo on a named store whose jobs take a minute, and that has enqueued some of them.
fn long_demo(tmp: &Path) -> std::process::Child {
    let args = ["demo", "--store", "sqlite://demo.db", "--latency", "60s", "--lease", "60s", "--no-faults"];
    let mut demo = windlass(&args, tmp).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(demo.stderr.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("enqueued")), "a line a second");
    std::thread::spawn(move || lines.for_each(drop));
    demo
}

fn settings(tmp: &Path) -> Vec<QueueSettings> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let store = SqliteStore::open(tmp.join("demo.db")).unwrap();
    let queues = runtime.block_on(store.queues()).unwrap();
    assert_eq!(queues.len(), 4, "{queues:?}");
    queues.into_iter().map(|queue| queue.settings).collect()
}

#[test]
fn slow_a_demo_that_is_broken_off_puts_the_settings_of_its_queues_back() {
    let tmp = tempfile::tempdir().unwrap();
    let mut demo = long_demo(tmp.path());
    let pid = rustix::process::Pid::from_child(&demo);
    // The first signal lets the jobs come to their end, which takes a minute; another breaks that off.
    let status = loop {
        if let Some(status) = demo.try_wait().unwrap() {
            break status;
        }
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        // sleeps because: signals that are sent at once may arrive as one
        std::thread::sleep(Duration::from_millis(50));
    };
    assert_eq!(status.code(), Some(130));
    for settings in settings(tmp.path()) {
        assert_eq!(settings, QueueSettings::default());
    }
}

#[test]
fn slow_the_jobs_of_a_demo_that_was_killed_are_not_kept_for_ever() {
    let tmp = tempfile::tempdir().unwrap();
    let mut demo = long_demo(tmp.path());
    demo.kill().unwrap();
    demo.wait().unwrap();
    for settings in settings(tmp.path()) {
        let Retention { succeeded, failed, cancelled } = settings.retention;
        assert!([succeeded, failed, cancelled].iter().all(|rule| rule.age_ms.is_some()), "{settings:?}");
    }
}

#[test]
fn what_cannot_be_meant_is_refused_in_words() {
    let tmp = tempfile::tempdir().unwrap();
    for (args, words) in [
        (&["--rate", "0"][..], "0 is not in 1..=5000"),
        (&["--fail-rate", "2"], "from 0 to 1"),
        (&["--hang-rate", "x"], "from 0 to 1"),
        (&["--lease", "10ms"], "from 300ms to 60s"),
        (&["--lease", "soon"], "500ms, 30s"),
        (&["--workers", "0"], "0 is not in 1..=64"),
        (&["--slots", "0"], "0 is not in 1..=1000"),
        (&["--for", "0s"], "from 1s"),
        (&["--store", "memory://"], "cannot share memory://"),
        (&["--store", "sqlite://x.db", "--keep"], "--keep is for the temporary store"),
        (&["--store", "redis//x"], "did you mean `redis://x`?"),
    ] {
        let output = run(&[&["demo"], args].concat(), tmp.path());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains(words), "{args:?}: {said}");
        assert_eq!(entries(tmp.path()), 0, "{args:?} left something behind");
    }
}
