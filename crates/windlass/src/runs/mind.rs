//! What an engine knows of a run, and what follows from what has happened to it.

use super::job::{Making, Start};
use super::message::{Message, Occurred};
use super::{decode_entry, encode_entry};
use bytes::Bytes;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;
use windlass_core::Result;
use windlass_core::graph::{End, Event, Graph, Happened, Outcome, Progress, advance, resume, settle};
use windlass_core::id::{Ids, JobId, RunId};
use windlass_core::job::{Due, NewJob};
use windlass_core::store::{ClaimedRun, RunItem, RunState, RunStep};
use windlass_core::time::Timestamp;

/// The most jobs that one step starts or cancels: a step is everybody's time.
pub(super) const JOBS_MAX: usize = 500;
/// The most entries of one step.
const ENTRIES_MAX: usize = 2_000;

/// What an engine knows of a run.
#[derive(Clone, Debug)]
pub(super) struct Mind {
    pub(super) run: RunId,
    pub(super) graph: Arc<Graph>,
    inputs: Arc<Value>,
    pub(super) progress: Progress,
    pub(super) history_len: u64,
    /// When it began, or began once more.
    since: Option<Timestamp>,
    /// Whoever wrote the last of its history may have had more to say.
    unsure: bool,
    /// True until its open jobs were looked up in the store. Only a state that was rebuilt from history needs it.
    pub(super) jobs_unchecked: bool,
    /// The number of the run in its store and the time of its creation: another run may have had its id before.
    created: Option<(u64, Timestamp)>,
}

/// What has happened to a run since its last step.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    /// In the order in which it happened.
    pub(super) items: Vec<Occurred>,
    /// The next claim may hand out more that happened before now.
    pub(super) has_more: bool,
    /// The engine of the next claim has to look the open jobs up.
    pub(super) check_again: bool,
}

impl Mind {
    /// Of a run that has not begun.
    pub(super) fn new(run: RunId, graph: Arc<Graph>, inputs: Arc<Value>) -> Self {
        let progress = Progress::new(&graph);
        Self {
            run,
            graph,
            inputs,
            progress,
            history_len: 0,
            since: None,
            unsure: false,
            jobs_unchecked: false,
            created: None,
        }
    }

    /// Of the run that was claimed, before its first entry.
    pub(super) fn of(claimed: &ClaimedRun, graph: Arc<Graph>, inputs: Arc<Value>) -> Self {
        let created = Some((claimed.number, claimed.created_at));
        Self { created, ..Self::new(claimed.lease.run, graph, inputs) }
    }

    /// Whether the history of the claimed run begins with what this state was made of.
    pub(super) fn precedes(&self, claimed: &ClaimedRun) -> bool {
        self.created == Some((claimed.number, claimed.created_at)) && self.history_len <= claimed.history_len
    }

    /// Whether this is the state of the claimed run. A commit that a store acknowledged and lost in a failover leaves a history of
    /// the same length with other jobs, and the ends of those must not be dropped as unknown.
    pub(super) fn is_current(&self, claimed: &ClaimedRun) -> bool {
        let has_job = |item: &RunItem| match item {
            RunItem::JobEnded(end) => self.progress.place_of(end.job).is_some(),
            RunItem::Message { .. } => true,
        };
        self.history_len == claimed.history_len && claimed.inbox.iter().all(has_job)
    }

    /// Takes entries of the history in.
    pub(super) fn learn(&mut self, entries: &[Bytes]) -> Result<()> {
        self.jobs_unchecked |= self.history_len == 0;
        for entry in entries {
            let (at, event) = decode_entry(entry)?;
            self.note(at, &event);
            self.progress.apply(&self.graph, &event);
            self.history_len += 1;
            self.unsure = true;
        }
        Ok(())
    }

    fn note(&mut self, at: Timestamp, event: &Event) {
        if matches!(event, Event::Begun | Event::Rerun { .. }) {
            self.since = Some(at);
        }
    }

    /// When its time runs out.
    fn deadline(&self) -> Option<Timestamp> {
        let open = self.progress.result.is_none() && !self.progress.is_stopping();
        let timeout = self.graph.timeout_ms.filter(|_| open)?;
        Some(self.since?.plus_ms(timeout))
    }

    /// Whether its time has run out.
    pub(super) fn is_late(&self, now: Timestamp) -> bool {
        self.deadline().is_some_and(|deadline| deadline <= now)
    }

    /// What follows. The mind is then that of a run for which all of it was committed.
    pub(super) fn think(&mut self, inbox: Inbox, now: Timestamp, ids: &Ids) -> Result<Vec<RunStep>> {
        let mut drafts = Drafts { check_again: inbox.check_again, ..Drafts::default() };
        let unsure = std::mem::take(&mut self.unsure);
        if unsure {
            drafts.cancels.extend(self.unwanted_jobs());
        }
        let mut happened = self.judge_deadline(inbox, now, &mut drafts)?;
        // Whatever was about to start stays where it is when the run is to stop.
        let stops = |one: &Happened| matches!(one, Happened::Cancel { .. } | Happened::TimedOut);
        if unsure && !self.unsure && !happened.iter().any(stops) {
            let mut new_job = || ids.next();
            let events = resume(&self.graph, &mut self.progress, &self.inputs, &mut new_job);
            happened.extend(self.draft(events, now, &mut drafts)?);
        }
        // A job that cannot be made has failed, and that is something that has happened.
        loop {
            let mut new_job = || ids.next();
            let events = advance(&self.graph, &mut self.progress, &self.inputs, happened, &mut new_job);
            happened = self.draft(events, now, &mut drafts)?;
            if happened.is_empty() {
                break;
            }
        }
        let steps = drafts.steps(self);
        self.history_len += steps.iter().map(|step| step.history.len() as u64).sum::<u64>();
        Ok(steps)
    }

    /// What is to be decided of an inbox, and whether the run has timed out. Ends before the deadline are taken in here: a run that
    /// they finish has not timed out, however late its engine is. Nothing starts after the deadline.
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
        self.unsure = self.progress.result.is_none() && more_in_time;
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

    /// Writes events down, and makes the jobs that they start. Answers those that cannot be made.
    fn draft(&mut self, events: Vec<Event>, now: Timestamp, drafts: &mut Drafts) -> Result<Vec<Happened>> {
        let mut failed = Vec::new();
        for event in events {
            self.note(now, &event);
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

    pub(super) fn state(&self) -> RunState {
        self.progress.result.map_or(RunState::Running, RunState::from)
    }

    fn summary(&self) -> String {
        let all = self.progress.nodes.len();
        format!("{} of {all} done", all - self.progress.left)
    }
}

/// What is to be committed.
#[derive(Debug, Default)]
struct Drafts {
    units: Vec<Unit>,
    /// The units of instances that were started and whose job cannot be made, by node and instance.
    unmade: HashMap<(usize, usize), usize>,
    cancels: Vec<JobId>,
    /// The run gets a message that asks for its open jobs to be looked up.
    check_again: bool,
}

/// History entries that one commit contains together, and the job that they start.
#[derive(Debug)]
struct Unit {
    entries: Vec<Bytes>,
    job: Option<NewJob>,
}

impl Drafts {
    /// Adds an event. The end of an instance whose job cannot be made goes next to its start: between two commits the engine may
    /// die, and an instance that is started, not ended and without a job would never end.
    fn push(&mut self, event: &Event, entry: Bytes, job: Option<NewJob>) {
        let start = match event {
            Event::Ended { node, instance, .. } => self.unmade.remove(&(*node, *instance)),
            _ => None,
        };
        match start.and_then(|start| self.units.get_mut(start)) {
            Some(unit) => unit.entries.push(entry),
            None => self.units.push(Unit { entries: vec![entry], job }),
        }
    }

    /// As steps that are not too large. The last one says where the run stands; there always is one.
    fn steps(&mut self, mind: &Mind) -> Vec<RunStep> {
        let mut steps = Vec::new();
        let mut step = RunStep::nothing();
        for unit in std::mem::take(&mut self.units) {
            if step.jobs.len() >= JOBS_MAX || step.history.len() + unit.entries.len() > ENTRIES_MAX {
                steps.push(std::mem::replace(&mut step, RunStep::nothing()));
            }
            step.history.extend(unit.entries);
            step.jobs.extend(unit.job);
        }
        for cancels in self.cancels.chunks(JOBS_MAX) {
            if !step.cancel.is_empty() {
                steps.push(std::mem::replace(&mut step, RunStep::nothing()));
            }
            step.cancel = cancels.to_vec();
        }
        step.state = mind.state();
        step.wake = mind.deadline().map(Due::At);
        step.messages.extend(self.check_again.then(|| Message::CheckJobs.to(mind.run)));
        steps.push(step);
        let summary = mind.summary();
        steps.iter_mut().for_each(|step| step.summary.clone_from(&summary));
        steps
    }
}

#[cfg(test)]
mod tests {
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
        let mut mind = Mind::new(ids.next_run(), Arc::clone(&graph), Arc::clone(&inputs));
        let mut replayed = mind.clone();
        let steps = mind.think(Inbox::default(), Timestamp::from_ms(0), &ids).unwrap();
        assert!(steps.len() > 2, "{} commits", steps.len());
        let mut made = HashSet::new();
        for step in steps {
            assert!(step.jobs.len() <= JOBS_MAX && step.history.len() <= ENTRIES_MAX);
            made.extend(step.jobs.iter().map(|job| job.id));
            replayed.learn(&step.history).unwrap();
            assert_eq!(replayed.progress.running_jobs().find(|job| !made.contains(job)), None);
        }
        assert_eq!(replayed.progress, mind.progress);
        assert_eq!(replayed.history_len, mind.history_len);
        assert_eq!(mind.progress.nodes[0].outcome, None, "the jobs of its other rows are being cancelled");
        assert_eq!(mind.progress.nodes.last().unwrap().running(), 1);
    }
}
