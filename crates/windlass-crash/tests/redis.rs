//! The crash test on Redis: real processes that are killed, stopped beyond their leases, or have a wrong clock.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed check is a panic")]

use std::process::Command;
use windlass_crash::Report;
use windlass_crash::storm::Row;

fn crash(args: &str) -> Report {
    let output = Command::new(env!("CARGO_BIN_EXE_windlass-crash")).args(args.split(' ')).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let report: Result<Report, _> = serde_json::from_str(&text);
    let report = report.unwrap_or_else(|error| panic!("{error}: {text} {}", String::from_utf8_lossy(&output.stderr)));
    assert!(output.status.success() && report.is_clean(), "{report:?}");
    assert!(report.findings.jobs >= 20 && report.findings.executed >= 20, "{report:?}");
    report
}

#[test]
fn slow_nothing_is_lost_or_doubled_when_processes_on_redis_are_killed() {
    let report = crash("--store redis --seconds 4 --kills 5 --workers 2 --seed 20261116");
    assert!(report.kills >= 5 && report.findings.delivered_twice > 0, "{report:?}");
    assert!(report.kills_while_active * 2 > report.kills, "most kills hit active jobs: {report:?}");
}

#[test]
fn slow_a_worker_that_is_stopped_beyond_its_lease_is_told_that_it_was_lost() {
    let report = crash("--store redis --signal stop --seconds 5 --kills 2 --workers 2 --seed 20261116");
    assert!(report.kills >= 2, "{report:?}");
    // Its job was done by another one, and its own report came too late.
    assert!(report.findings.too_late > 0 && report.findings.delivered_twice > 0, "{report:?}");
}

#[test]
fn slow_workers_whose_clocks_are_an_hour_off_work_all_the_same() {
    let report = crash("--store redis --skew-s 3600 --seconds 4 --kills 5 --workers 2 --seed 20261116");
    assert!(report.kills >= 5 && report.clocks_off >= report.kills / 2, "{report:?}");
    // A lease is taken by the server's clock. One that was over at once would show here; one that was an hour long would
    // keep its job from its end, and the run gives up when no job ends for a minute.
    assert!(report.findings.too_late < report.findings.jobs / 4, "{report:?}");
}

#[test]
fn slow_the_leases_of_a_frozen_timekeeper_are_reaped_and_its_jobs_done_once() {
    let args = "storm --fault frozen-timekeeper --rounds 1 --seed 20261118 --json true";
    let output = Command::new(env!("CARGO_BIN_EXE_windlass-crash")).args(args.split(' ')).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let row: Result<Row, _> = serde_json::from_str(&text);
    let row = row.unwrap_or_else(|error| panic!("{error}: {text} {}", String::from_utf8_lossy(&output.stderr)));
    assert_eq!(
        (row.findings.lost, row.findings.double, row.findings.phantom, row.miscounted, row.discord),
        (0, 0, 0, 0, 0),
        "{row:#?}"
    );
    // How late they were is checked by `cargo xtask crash storm`, on a machine that does nothing else.
    assert!(
        row.reaped_late_ms.is_some() && row.findings.jobs >= 20 && row.findings.executed >= row.findings.jobs,
        "{row:#?}"
    );
}
