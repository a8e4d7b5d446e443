//! Planned failovers of a Redis primary under full load, a short version of `cargo xtask crash storm`.

#![allow(clippy::unwrap_used, reason = "a failed check is a panic")]

use windlass_crash::storm::{Fault, Plan, Row, run};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_planned_failovers_lose_nothing_that_was_acknowledged() {
    let row = run(Plan { fault: Fault::PlannedOneReplica, rounds: 2, seed: 20_261_118 }).await.unwrap();
    println!("{}\n{row}", Row::HEAD);
    assert_eq!(
        (row.findings.lost, row.runs_lost, row.findings.forgotten, row.findings.double),
        (0, 0, 0, 0),
        "{row:#?}"
    );
    // How long callers waited is checked by `cargo xtask crash storm`, on a machine that does nothing else.
    assert_eq!((row.findings.phantom, row.miscounted, row.discord), (0, 0, 0), "{row:#?}");
}
