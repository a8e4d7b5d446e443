//! The steps that a decision about a graph run is committed in.

use super::message::{Message, Occurred};
use super::state::GraphState;
use bytes::Bytes;
use std::collections::HashMap;
use windlass_core::graph::Event;
use windlass_core::id::JobId;
use windlass_core::job::{Due, NewJob};
use windlass_core::store::{BATCH_MAX, RunState, RunStep};

/// The most jobs that one step starts or cancels: a store does nothing else while it applies a step.
pub(super) const JOBS_MAX: usize = 500;
/// The most history entries of one step.
pub(super) const ENTRIES_MAX: usize = 2_000;

/// The step that cleans up after a run that was terminated: its open jobs are cancelled.
pub(super) fn terminated(state: &GraphState) -> RunStep {
    let cancel = state.progress.running_jobs().take(BATCH_MAX).collect();
    RunStep { cancel, state: RunState::Terminated, summary: state.summary(), ..RunStep::nothing() }
}

/// What has happened to a run since its last step.
#[derive(Debug, Default)]
pub(in super::super) struct Inbox {
    /// In the order in which it happened.
    pub(super) items: Vec<Occurred>,
    /// The next claim may return more that happened before now.
    pub(super) has_more: bool,
    /// The open jobs have to be looked up after the next claim.
    pub(super) check_again: bool,
}

/// What is to be committed.
#[derive(Debug, Default)]
pub(super) struct Drafts {
    pub(super) units: Vec<Unit>,
    /// The units of instances that were started and whose job cannot be made, by node and instance.
    pub(super) unmade: HashMap<(usize, usize), usize>,
    pub(super) cancels: Vec<JobId>,
    /// The run gets a message that asks for its open jobs to be looked up.
    pub(super) check_again: bool,
}

/// What one commit contains together: a history entry, the job that it starts, or the end of the instance that it starts if the
/// job cannot be made.
#[derive(Debug)]
pub(super) struct Unit {
    entry: Bytes,
    job: Option<NewJob>,
    end: Option<Bytes>,
}

impl Drafts {
    /// Adds an event. The end of an instance whose job cannot be made goes next to its start: between two commits the engine may
    /// die, and an instance that is started, not ended and without a job would never end.
    pub(super) fn push(&mut self, event: &Event, entry: Bytes, job: Option<NewJob>) {
        let start = match event {
            Event::Ended { node, instance, .. } => self.unmade.remove(&(*node, *instance)),
            _ => None,
        };
        match start.and_then(|start| self.units.get_mut(start)) {
            Some(unit) => unit.end = Some(entry),
            None => self.units.push(Unit { entry, job, end: None }),
        }
    }

    /// Splits the drafts into steps within the bounds. There is at least one; the last one contains the state of the run.
    pub(super) fn steps(&mut self, state: &GraphState) -> Vec<RunStep> {
        let mut steps = Vec::new();
        let mut step = RunStep::nothing();
        for unit in std::mem::take(&mut self.units) {
            let entries = 1 + usize::from(unit.end.is_some());
            if step.jobs.len() >= JOBS_MAX || step.history.len() + entries > ENTRIES_MAX {
                steps.push(std::mem::replace(&mut step, RunStep::nothing()));
            }
            step.history.push(unit.entry);
            step.history.extend(unit.end);
            step.jobs.extend(unit.job);
        }
        for cancels in self.cancels.chunks(JOBS_MAX) {
            if !step.cancel.is_empty() {
                steps.push(std::mem::replace(&mut step, RunStep::nothing()));
            }
            step.cancel = cancels.to_vec();
        }
        step.state = state.run_state();
        step.wake = state.deadline().map(Due::At);
        step.messages.extend(self.check_again.then(|| Message::CheckJobs.to(state.run)));
        steps.push(step);
        steps
    }
}
