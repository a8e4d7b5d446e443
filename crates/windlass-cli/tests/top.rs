//! `windlass top`, over the real binary.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed check is a panic")]

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};
use windlass::{Client, Job, Options};

#[derive(serde::Serialize, serde::Deserialize, Job)]
#[job(kind = "welcome", queue = "mail")]
struct Welcome {}

fn top(args: &[&str], dir: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    command.arg("top").args(args).env_remove("WINDLASS_STORE").current_dir(dir).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A store with one ready and one scheduled job.
fn fill(dir: &Path) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = Client::open(&format!("sqlite://{}", dir.join("jobs.db").display())).unwrap();
        client.enqueue(Welcome {}).await.unwrap();
        let later = Options::new().delay(std::time::Duration::from_secs(3_600));
        client.enqueue_with(Welcome {}, later).await.unwrap();
        client.store().close().await.unwrap();
    });
}

#[test]
fn one_frame_as_text() {
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path());
    let output = top(&["--once", "--store", "sqlite://jobs.db", "--width", "80", "--height", "24"], dir.path());
    let frame = text(&output);
    assert!(output.status.success(), "{frame}");
    assert!(frame.contains("queues (1)") && frame.contains("workers (0 live of 0)"), "{frame}");
    let row = frame.lines().find(|line| line.starts_with("mail")).unwrap();
    let columns: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(columns[..4], ["mail", "1", "1", "0"], "scheduled, ready, active: {row}");
    assert!(!frame.contains('\u{1b}'), "no colours: {frame}");
    assert!(frame.lines().all(|line| line.chars().count() <= 80), "{frame}");
}

#[test]
fn one_snapshot_for_programs() {
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path());
    let output = top(&["--json", "--store", "sqlite://jobs.db"], dir.path());
    let snapshot: Value = serde_json::from_str(&text(&output)).unwrap();
    assert_eq!(snapshot["queues"][0]["name"], "mail");
    assert_eq!(snapshot["queues"][0]["counts"]["ready"], 1);
    assert_eq!(snapshot["store"], "sqlite://jobs.db");
}

#[test]
fn what_cannot_be_shown_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    for (args, words) in [
        (&["--store", "sqlite://jobs.db"][..], "say --once"),
        (&["--once"], "say --store"),
        (&["--once", "--store", "sqlite://jobs.db", "--width", "3"], "3 is not in 20..=500"),
    ] {
        let output = top(args, dir.path());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains(words), "{args:?}: {said}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing was made");
}
