//! Reruns of a matrix.

use super::advance_tests::{Run, matrix, rows, when};
use super::properties::{ended, node};
use super::*;

/// A matrix of four rows, of which the second and the fourth fail, and a node that needs it.
fn half_failed(parallel_max: Option<u32>) -> Run {
    let mut run = Run::new(vec![matrix(rows(4), false, parallel_max, node("a", &[])), node("b", &[0])]);
    for n in 0..4 {
        let outcome = if n % 2 == 0 { Outcome::Succeeded } else { Outcome::Failed };
        let outputs = [("k", "old"), (["k0", "k1", "k2", "k3"][n], "old")];
        run.end("a", outcome, if n % 2 == 0 { &outputs } else { &[] });
    }
    assert_eq!(run.progress.result, Some(Outcome::Failed));
    run
}

/// The rows of `a` that run.
fn running_rows(run: &Run) -> Vec<usize> {
    let instances = run.at("a").instances.iter().enumerate();
    instances.filter(|(_, one)| one.job.is_some() && one.outcome.is_none()).map(|(at, _)| at).collect()
}

#[test]
fn rows_that_succeeded_are_not_run_again_with_those_that_failed() {
    let mut run = half_failed(None);
    let kept = run.at("a").instances[0].job;
    run.advance(vec![Happened::Rerun { nodes: reruns(&run.progress), keep_rows: true }]);
    assert_eq!(running_rows(&run), [1, 3]);
    assert_eq!((run.at("a").instances[0].job, run.at("a").reruns), (kept, 1));
    run.end("a", Outcome::Succeeded, &[("k1", "new")]);
    // What a job of a row that was kept reports once more is of no interest.
    assert!(run.advance(vec![ended(kept.unwrap(), Outcome::Failed)]).is_empty());
    assert_eq!(run.at("b").outcome, None);
    run.end("a", Outcome::Succeeded, &[("k3", "new")]);
    assert_eq!(run.running(), ["b"]);
    let outputs: Vec<(&str, &str)> = run.at("a").outputs.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    assert_eq!(outputs, [("k", "old"), ("k0", "old"), ("k1", "new"), ("k2", "old"), ("k3", "new")]);
    run.succeed("b");
    assert_eq!(run.progress.result, Some(Outcome::Succeeded));
}

#[test]
fn rows_that_failed_are_run_again_one_by_one_if_the_matrix_says_so() {
    let mut run = half_failed(Some(1));
    run.advance(vec![Happened::Rerun { nodes: reruns(&run.progress), keep_rows: true }]);
    assert_eq!(running_rows(&run), [1]);
    run.end("a", Outcome::Failed, &[]);
    assert_eq!(running_rows(&run), [3]);
    run.succeed("a");
    assert_eq!(run.at("a").outcome, Some(Outcome::Failed));
    // And once more: the row that has succeeded meanwhile stays, too.
    run.advance(vec![Happened::Rerun { nodes: reruns(&run.progress), keep_rows: true }]);
    assert_eq!(running_rows(&run), [1]);
    run.succeed("a");
    assert_eq!((run.at("a").outcome, run.at("a").reruns), (Some(Outcome::Succeeded), 2));
}

#[test]
fn all_rows_are_run_again_when_the_node_is_named_or_something_before_it_runs_again() {
    let mut run = half_failed(None);
    run.advance(vec![Happened::Rerun { nodes: vec![0], keep_rows: false }]);
    assert_eq!(running_rows(&run), [0, 1, 2, 3]);

    let after = when("always()", matrix(rows(2), false, None, node("a", &[0])));
    let mut run = Run::new(vec![node("first", &[]), after]);
    run.end("first", Outcome::Failed, &[]);
    run.succeed("a");
    run.end("a", Outcome::Failed, &[]);
    run.advance(vec![Happened::Rerun { nodes: reruns(&run.progress), keep_rows: true }]);
    assert_eq!(run.running(), ["first"]);
    run.succeed("first");
    assert_eq!(running_rows(&run), [0, 1]);
}

/// A rerun that kept all its rows would start none, and would not end.
#[test]
fn a_matrix_of_which_no_row_failed_is_run_again_with_all_its_rows() {
    let mut run = Run::new(vec![matrix(rows(2), false, None, node("a", &[]))]);
    run.succeed("a");
    run.succeed("a");
    assert_eq!(run.progress.result, Some(Outcome::Succeeded));
    run.advance(vec![Happened::Rerun { nodes: vec![0], keep_rows: true }]);
    assert_eq!(running_rows(&run), [0, 1]);
}

#[test]
fn a_matrix_that_gave_up_runs_the_rows_again_that_it_gave_up() {
    let mut run = Run::new(vec![matrix(rows(4), true, Some(1), node("a", &[]))]);
    run.succeed("a");
    run.end("a", Outcome::Failed, &[]);
    assert_eq!(run.progress.result, Some(Outcome::Failed));
    run.advance(vec![Happened::Rerun { nodes: reruns(&run.progress), keep_rows: true }]);
    for row in 1..4 {
        assert_eq!(running_rows(&run), [row]);
        run.succeed("a");
    }
    assert_eq!(run.progress.result, Some(Outcome::Succeeded));
}

#[test]
fn a_rerun_of_an_earlier_version_is_read_as_it_was_meant() {
    let stored = r#"{"event":"rerun","nodes":[0]}"#;
    let event = Event::Rerun { nodes: vec![0], rows_kept: Vec::new() };
    assert_eq!(serde_json::from_str::<Event>(stored).unwrap(), event);
    assert_eq!(serde_json::to_string(&event).unwrap(), stored);
}
