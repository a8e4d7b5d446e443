//! The state of a graph run, folded from its history, and what is decided from it.

use super::job::{Making, Start};
use super::message::Occurred;
use super::steps::{Drafts, Inbox};
use super::{decode_entry, encode_entry};
use bytes::Bytes;
use serde_json::Value;
use std::sync::Arc;
use windlass_core::Result;
use windlass_core::graph::{End, Event, Graph, Happened, Outcome, Progress, advance, resume, settle};
use windlass_core::id::{Ids, JobId, RunId};
use windlass_core::store::{InboxItem, RunItem, RunState, RunStep};
use windlass_core::time::Timestamp;

/// When a node started and ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeTimes {
    /// When its first job was enqueued.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
}

/// In-memory state of one graph run, rebuilt by replaying its history.
#[derive(Clone, Debug)]
pub struct GraphState {
    pub(in super::super) run: RunId,
    /// The graph of the run.
    pub graph: Arc<Graph>,
    /// The inputs of the run, as a map.
    pub inputs: Arc<Value>,
    /// How far each node is.
    pub progress: Progress,
    /// When each node started and ended.
    pub times: Vec<NodeTimes>,
    /// When the run began, or began once more.
    since: Option<Timestamp>,
    /// True when the writer of the last entries may have crashed between the commits of one decision.
    maybe_partial: bool,
    /// True until the open jobs were looked up in the store. Only a state that was rebuilt from history needs it.
    pub(super) jobs_unchecked: bool,
}

impl GraphState {
    /// The state before the first entry of the history.
    pub(in super::super) fn new(run: RunId, graph: Arc<Graph>, inputs: Arc<Value>) -> Self {
        let (progress, times) = (Progress::new(&graph), vec![NodeTimes::default(); graph.nodes.len()]);
        Self { run, graph, inputs, progress, times, since: None, maybe_partial: false, jobs_unchecked: false }
    }

    /// Applies history entries in order.
    pub(super) fn replay(&mut self, entries: &[Bytes]) -> Result<()> {
        self.jobs_unchecked |= !self.progress.begun;
        for entry in entries {
            let (at, event) = decode_entry(entry)?;
            self.apply(at, &event);
        }
        Ok(())
    }

    /// Applies one event of the history.
    pub(in super::super) fn apply(&mut self, at: Timestamp, event: &Event) {
        self.progress.apply(&self.graph, event);
        self.note_times(at, event);
        self.maybe_partial = true;
    }

    /// Whether every job that has ended is one of this run.
    pub(super) fn has_jobs_of(&self, inbox: &[InboxItem]) -> bool {
        inbox.iter().all(|found| match &found.item {
            RunItem::JobEnded(end) => self.progress.place_of(end.job).is_some(),
            _ => true,
        })
    }

    /// Notes when an event happened that `progress` contains already.
    fn note_times(&mut self, at: Timestamp, event: &Event) {
        match event {
            Event::Started { node, .. } => {
                if let Some(times) = self.times.get_mut(*node) {
                    times.started_at.get_or_insert(at);
                }
            }
            Event::Ended { node, .. } | Event::Settled { node, .. } | Event::Stopping { node } => {
                self.note_end(at, *node..node + 1);
            }
            Event::Cancelled { .. } | Event::TimedOut => self.note_end(at, 0..self.times.len()),
            Event::Begun => self.since = Some(at),
            Event::Rerun { nodes, .. } => {
                self.since = Some(at);
                for &node in nodes {
                    if let Some(times) = self.times.get_mut(node) {
                        *times = NodeTimes::default();
                    }
                }
            }
            Event::Expanded { .. } | Event::Finished { .. } => {}
        }
    }

    fn note_end(&mut self, at: Timestamp, nodes: std::ops::Range<usize>) {
        for node in nodes {
            if let (Some(times), Some(progress)) = (self.times.get_mut(node), self.progress.nodes.get(node))
                && progress.outcome.is_some()
            {
                times.ended_at.get_or_insert(at);
            }
        }
    }

    /// When the timeout of the run ends; `None` when it has none, has ended or is stopping.
    pub(super) fn deadline(&self) -> Option<Timestamp> {
        let open = self.progress.result.is_none() && !self.progress.is_stopping();
        let timeout = self.graph.timeout_ms.filter(|_| open)?;
        Some(self.since?.plus_ms(timeout))
    }

    /// Whether the timeout of the run has ended.
    pub(super) fn is_late(&self, now: Timestamp) -> bool {
        self.deadline().is_some_and(|deadline| deadline <= now)
    }

    /// Returns the steps to commit. Afterwards `self` is the state as if all of them had been committed.
    pub(in super::super) fn decide(&mut self, inbox: Inbox, now: Timestamp, ids: &Ids) -> Result<Vec<RunStep>> {
        let mut drafts = Drafts { check_again: inbox.check_again, ..Drafts::default() };
        let maybe_partial = std::mem::take(&mut self.maybe_partial);
        if maybe_partial {
            drafts.cancels.extend(self.unwanted_jobs());
        }
        let mut happened = self.judge_deadline(inbox, now, &mut drafts)?;
        // A run that is to stop starts nothing more.
        let stops = |one: &Happened| matches!(one, Happened::Cancel { .. } | Happened::TimedOut);
        if maybe_partial && !self.maybe_partial && !happened.iter().any(stops) {
            let mut new_job = || ids.next();
            let events = resume(&self.graph, &mut self.progress, &self.inputs, &mut new_job);
            happened.extend(self.draft(events, now, &mut drafts)?);
        }
        // A job that cannot be made counts as failed, and something may follow from that.
        loop {
            let mut new_job = || ids.next();
            let events = advance(&self.graph, &mut self.progress, &self.inputs, happened, &mut new_job);
            happened = self.draft(events, now, &mut drafts)?;
            if happened.is_empty() {
                break;
            }
        }
        Ok(drafts.steps(self))
    }

    /// Applies the ends of jobs that came before the deadline, and returns the rest of the inbox, with the timeout if the run has
    /// not ended. A run that was finished in time has not timed out, however late its engine is. Nothing starts after the
    /// deadline.
    fn judge_deadline(&mut self, inbox: Inbox, now: Timestamp, drafts: &mut Drafts) -> Result<Vec<Happened>> {
        let Inbox { items, has_more, .. } = inbox;
        let Some(deadline) = self.deadline().filter(|deadline| *deadline <= now) else {
            return Ok(items.into_iter().map(|(_, what)| what).collect());
        };
        let more_in_time = has_more && items.iter().all(|(at, _)| *at <= deadline);
        let in_time = |(at, what): &Occurred| *at <= deadline && matches!(what, Happened::JobEnded { .. });
        let (ends, others): (Vec<Occurred>, Vec<Occurred>) = items.into_iter().partition(in_time);
        let ends = ends.into_iter().map(|(_, what)| what);
        let events = settle(&self.graph, &mut self.progress, &self.inputs, ends);
        // No job starts, so none fails to be made.
        self.draft(events, now, drafts)?;
        let mut happened: Vec<Happened> = others.into_iter().map(|(_, what)| what).collect();
        if self.progress.result.is_none() && !more_in_time {
            happened.push(Happened::TimedOut);
        }
        // The next claim hands out more ends before the deadline, and then the run has ended or timed out.
        self.maybe_partial = self.progress.result.is_none() && more_in_time;
        Ok(happened)
    }

    /// Jobs that were to be cancelled by a decision that may have been cut off.
    fn unwanted_jobs(&self) -> Vec<JobId> {
        if self.progress.is_stopping() {
            return self.progress.running_jobs().collect();
        }
        let stopping = self.progress.nodes.iter().filter(|node| node.stopping).flat_map(|node| &node.instances);
        stopping.filter(|one| one.outcome.is_none()).filter_map(|one| one.job).collect()
    }

    /// Adds events to the drafts, and makes the jobs that they start. Returns the ends of jobs that cannot be made.
    fn draft(&mut self, events: Vec<Event>, now: Timestamp, drafts: &mut Drafts) -> Result<Vec<Happened>> {
        let mut failed = Vec::new();
        for event in events {
            self.note_times(now, &event);
            let job = match &event {
                &Event::Started { node, instance, job } => match self.making().job(Start { node, instance, job }) {
                    Ok(job) => Some(job),
                    Err(error) => {
                        drafts.unmade.insert((node, instance), drafts.units.len());
                        let error = Some(format!("its job could not be made: {error}"));
                        let end = End { outcome: Outcome::Failed, error, outputs: Default::default() };
                        failed.push(Happened::JobEnded { job, end });
                        None
                    }
                },
                Event::Stopping { node } => {
                    let running = self.progress.nodes[*node].instances.iter().filter(|one| one.outcome.is_none());
                    drafts.cancels.extend(running.filter_map(|one| one.job));
                    None
                }
                Event::Cancelled { .. } | Event::TimedOut => {
                    drafts.cancels.extend(self.progress.running_jobs());
                    None
                }
                _ => None,
            };
            drafts.push(&event, Bytes::from(encode_entry(now, &event)?), job);
        }
        Ok(failed)
    }

    fn making(&self) -> Making<'_> {
        Making { run: self.run, graph: &self.graph, progress: &self.progress, inputs: &self.inputs }
    }

    /// The state of the run in the store.
    pub(super) fn run_state(&self) -> RunState {
        self.progress.result.map_or(RunState::Running, RunState::from)
    }

    /// A short text for listings.
    pub(in super::super) fn summary(&self) -> String {
        let all = self.progress.nodes.len();
        format!("{} of {all} done", all - self.progress.left)
    }
}

#[cfg(test)]
mod tests {
    use super::super::steps::{ENTRIES_MAX, JOBS_MAX};
    use super::*;
    use crate::graph::yaml;
    use std::collections::HashSet;
    use windlass_core::random::StrongRandom;
    use windlass_core::time::VirtualClock;

    /// Two nodes and a row of a matrix whose jobs cannot be made, in a graph that takes several commits to start.
    fn graph() -> Arc<Graph> {
        let mut text = "inputs: { label: {} }\njobs:\n".to_owned();
        text.push_str(
            "  each: { strategy: { matrix: { label: [gpu, '', arm] } }, kind: k, labels: ['${{ matrix.label }}'] }\n",
        );
        for n in 0..1_200 {
            let label = if n % 700 == 3 { "labels: ['${{ inputs.label }}'], " } else { "" };
            text.push_str(&format!("  n{n}: {{ {label}kind: k }}\n"));
        }
        text.push_str("  after: { needs: n3, if: failure(), kind: k }\n");
        Arc::new(yaml::read("test.yml", &text).unwrap().graph)
    }

    #[test]
    fn every_commit_of_a_decision_has_the_job_or_the_end_of_each_instance_that_it_starts() {
        let clock = Arc::new(VirtualClock::new(Timestamp::from_ms(0)));
        let ids = Ids::new(clock, Arc::new(StrongRandom::seeded(1)));
        let (graph, inputs) = (graph(), Arc::new(serde_json::json!({ "label": "" })));
        let mut state = GraphState::new(ids.next_run(), Arc::clone(&graph), Arc::clone(&inputs));
        let mut replayed = state.clone();
        let steps = state.decide(Inbox::default(), Timestamp::from_ms(0), &ids).unwrap();
        assert!(steps.len() > 2, "{} commits", steps.len());
        let mut made = HashSet::new();
        for step in steps {
            assert!(step.jobs.len() <= JOBS_MAX && step.history.len() <= ENTRIES_MAX);
            made.extend(step.jobs.iter().map(|job| job.id));
            replayed.replay(&step.history).unwrap();
            assert_eq!(replayed.progress.running_jobs().find(|job| !made.contains(job)), None);
        }
        assert_eq!(replayed.progress, state.progress);
        assert_eq!(state.progress.nodes[0].outcome, None, "the jobs of its other rows are being cancelled");
        assert_eq!(state.progress.nodes.last().unwrap().running(), 1);
    }
}
