//! The executions of one test: the first one, other orders of simultaneous events, and crashes.

use super::mock::mixed;
use super::report::{duration, end_text, history};
use super::simulation::{CallMade, Fault, Mode, Setup, Simulation, Stop};
use std::sync::Arc;
use windlass_durable::{Entry, ItemBody};

/// Prefixes that are replayed after an execution in another order.
const SPREAD_OF_ORDERS: usize = 8;

/// What a test checks beside the first execution.
#[derive(Clone, Copy, Debug)]
pub(super) struct Checks {
    pub(super) seed: u64,
    pub(super) shadows: bool,
    pub(super) pokes: bool,
    /// How many other orders of simultaneous events are tried.
    pub(super) orders: u64,
    /// The result may depend on that order.
    pub(super) order_matters: bool,
    pub(super) crashes: bool,
}

/// What the executions of a test showed.
pub(super) struct Observed {
    pub(super) stop: Stop,
    pub(super) waits_for: Vec<String>,
    pub(super) calls: Vec<CallMade>,
    pub(super) history: String,
    pub(super) elapsed_ms: u64,
    /// Messages that were planned for a later time.
    pub(super) undelivered: Vec<String>,
    pub(super) crashes: u64,
    pub(super) orders: u64,
}

/// A failure as the message of a panic.
fn failure(checks: &Checks, simulation: &Simulation, during: &str, what: &str) -> String {
    let kind = simulation.setup.workflow.kind();
    let (seed, history) = (checks.seed, history(simulation));
    format!("the test of workflow `{kind}` failed{during} (seed {seed}):\n{what}\nhistory:\n{history}")
}

/// Executes the workflow as often as the checks demand. An error is the text of a failed test.
pub(super) fn execute(setup: &Arc<Setup>, checks: &Checks) -> Result<Observed, String> {
    let mode = Mode { pokes: checks.pokes, shadows: checks.shadows, ..Mode::default() };
    let mut first = Simulation::new(Arc::clone(setup), mode);
    let failed = |simulation: &Simulation, fault: &Fault| failure(checks, simulation, "", &fault.0);
    let stop = first.go().map_err(|fault| failed(&first, &fault))?;
    if checks.shadows {
        first.check_long_segments().map_err(|fault| failed(&first, &fault))?;
    }
    let mut observed = observe(&first, stop);
    if first.schedule.has_simultaneous {
        for order in 1..=checks.orders {
            try_order(&first, checks, order, &observed.stop)?;
            observed.orders = order;
        }
    }
    if checks.crashes {
        for commits in 0..first.commits() {
            try_crash(&first, checks, commits, &observed.stop)?;
        }
        observed.crashes = first.commits();
    }
    Ok(observed)
}

fn observe(simulation: &Simulation, stop: Stop) -> Observed {
    let root = &simulation.runs[0];
    let message = |(at, body): (i64, &ItemBody)| {
        let what = match body {
            ItemBody::Signal { name, .. } => format!("signal `{name}`"),
            ItemBody::Resolved { .. } => "the value of a promise".to_owned(),
            _ => "a request to cancel".to_owned(),
        };
        let begin = simulation.setup.begin.as_ms();
        format!("{what} at {}", duration(u64::try_from(at - begin).unwrap_or(0)))
    };
    Observed {
        waits_for: root.waits_for(),
        calls: simulation.calls.clone(),
        history: history(simulation),
        elapsed_ms: simulation.elapsed_ms(),
        undelivered: simulation.schedule.open_messages(root.id).map(message).collect(),
        crashes: 0,
        orders: 0,
        stop,
    }
}

fn stop_text(stop: &Stop) -> String {
    match stop {
        Stop::Ended(end) => end_text(end),
        Stop::Waiting => "had not ended".to_owned(),
    }
}

/// Executes the workflow with simultaneous events in another order.
fn try_order(first: &Simulation, checks: &Checks, order: u64, expected: &Stop) -> Result<(), String> {
    let mode =
        Mode { order_seed: Some(mixed(checks.seed, order)), pokes: checks.pokes, shadows: false, reuses_steps: true };
    let mut other = Simulation::new(Arc::clone(&first.setup), mode);
    let during = format!(" with simultaneous events in order {order} of {}", checks.orders);
    let failed = |other: &Simulation, what: &str| failure(checks, other, &during, what);
    let stop = other.go().map_err(|fault| failed(&other, &fault.0))?;
    if checks.shadows {
        let checked = other.check_spread(SPREAD_OF_ORDERS, |_, _| true);
        checked.map_err(|fault| failed(&other, &fault.0))?;
    }
    if stop == *expected || checks.order_matters {
        return Ok(());
    }
    let what = format!(
        "the result depends on the order of events of the same time: the run {}, and at first it {}\n\
         make the code independent of that order, give mocks different times (`.takes(\"2s\")`), or allow it with \
         `.order_matters()`\nfirst history:\n{}",
        stop_text(&stop),
        stop_text(expected),
        history(first)
    );
    Err(failed(&other, &what))
}

/// Executes the rest of the workflow after a crash that follows commit number `commits`.
fn try_crash(first: &Simulation, checks: &Checks, commits: u64, expected: &Stop) -> Result<(), String> {
    let mut again = first.after_crash(commits);
    let during = format!(" after a crash behind commit {commits} of {}", first.commits());
    let survived: Vec<usize> = again.runs.iter().map(|run| run.records.len()).collect();
    let survived = format!("records that survived the crash: {survived:?}");
    let failed = |again: &Simulation, what: &str| failure(checks, again, &during, &format!("{what}\n{survived}"));
    let stop = again.go().map_err(|fault| failed(&again, &fault.0))?;
    if stop != *expected {
        let what = format!(
            "the run {}, and without the crash it {}\n\
             what is not recorded is executed again after a crash: a local step must not depend on what an earlier one left in \
             memory, and its repetition must return the same; such a step can be mocked with `.mock_step(\"name\", || Ok(..))`",
            stop_text(&stop),
            stop_text(expected)
        );
        return Err(failed(&again, &what));
    }
    // Local steps that are executed anew may take another time.
    if first.real_steps > 0 {
        return Ok(());
    }
    match difference(first, &again) {
        None => Ok(()),
        Some(what) => Err(failed(&again, &what)),
    }
}

/// The first difference between two executions.
fn difference(first: &Simulation, again: &Simulation) -> Option<String> {
    let describe = |entry: Option<&Entry>| entry.map_or_else(|| "nothing".to_owned(), |entry| format!("{entry:?}"));
    for (index, run) in first.runs.iter().enumerate() {
        let other = again.runs.get(index).map(|run| run.records.as_slice()).unwrap_or_default();
        for at in 0..run.records.len().max(other.len()) {
            let (was, is) = (run.records.get(at).map(|r| &r.entry), other.get(at).map(|r| &r.entry));
            if was != is {
                let (is, was) = (describe(is), describe(was));
                return Some(format!("record {at} is {is}\nand without the crash it was {was}"));
            }
        }
    }
    None
}
