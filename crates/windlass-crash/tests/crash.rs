//! A short crash test, and proof that the audit notices what it is there to notice.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed check is a panic")]

use std::process::{Command, Output};
use windlass_crash::Report;

fn crash(args: &str) -> (Output, Report) {
    let output = Command::new(env!("CARGO_BIN_EXE_windlass-crash")).args(args.split(' ')).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let report = serde_json::from_str(&text);
    let report = report.unwrap_or_else(|error| panic!("{error}: {text} {}", String::from_utf8_lossy(&output.stderr)));
    (output, report)
}

#[test]
fn slow_nothing_is_lost_or_doubled_when_processes_are_killed() {
    let (output, report) = crash("--seconds 4 --kills 5 --workers 2 --seed 20261115");
    assert!(output.status.success(), "{report:?}");
    assert!(report.is_clean(), "{report:?}");
    assert!(report.kills >= 5 && report.findings.jobs >= 20 && report.findings.executed >= 20, "{report:?}");
    assert!(report.kills_while_active * 2 > report.kills, "most kills hit active jobs: {report:?}");
}

#[test]
fn slow_the_audit_notices_work_that_was_reported_before_it_was_done() {
    let (output, report) = crash("--seconds 3 --kills 40 --workers 2 --seed 1 --bug report-first");
    assert_eq!(output.status.code(), Some(1), "{report:?}");
    assert!(report.findings.lost > 0, "{report:?}");
}

#[test]
fn slow_the_audit_notices_an_acknowledgement_without_an_enqueue() {
    let (output, report) = crash("--seconds 12 --kills 100 --workers 2 --seed 2 --bug acknowledge-first");
    assert_eq!(output.status.code(), Some(1), "{report:?}");
    assert!(report.findings.lost > 0, "{report:?}");
}

#[test]
fn a_flag_that_is_not_known_is_refused() {
    let output = Command::new(env!("CARGO_BIN_EXE_windlass-crash")).arg("--secods").arg("1").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("usage:"));
}
