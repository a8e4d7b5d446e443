//! The jobs of a run: which row each one is, who works and who waits, and how long it took.

use crate::draw_graph::{Look, Mark};
use crate::failure::Failure;
use crate::run_view;
use crate::values::{about, clean};
use serde_json::{Value, json};
use std::collections::HashMap;
use windlass::core::graph::{Outcome, expr};
use windlass::core::id::JobId;
use windlass::core::store::Store;
use windlass::core::time::Timestamp;
use windlass::runs::RunStatus;

/// Jobs that are asked for at once; they come with their payloads.
const ASKED: usize = 500;

const QUEUED: &str = "queued, nobody has claimed it yet";

/// What the store knows of the jobs of a run beside its history. Those that were removed meanwhile are not there.
#[derive(Debug, Default)]
pub(crate) struct RunJobs {
    seen: HashMap<JobId, Seen>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    claimed_at: Option<Timestamp>,
    finished_at: Option<Timestamp>,
    /// It was claimed once, so that it is known since when it has been worked on.
    once: bool,
}

/// One job of a node.
#[derive(Debug)]
pub(crate) struct Row {
    /// The node, with the values of the row.
    pub(crate) label: String,
    pub(crate) mark: Mark,
    pub(crate) job: Option<JobId>,
    pub(crate) took_ms: Option<u64>,
    pub(crate) note: String,
}

impl RunJobs {
    pub(crate) async fn read(store: &dyn Store, status: &RunStatus) -> Result<Self, Failure> {
        let nodes = status.progress.nodes.iter();
        let jobs: Vec<JobId> = nodes.flat_map(|node| &node.instances).filter_map(|one| one.job).collect();
        let mut seen = HashMap::with_capacity(jobs.len());
        for some in jobs.chunks(ASKED) {
            for job in store.get(some.to_vec()).await?.into_iter().flatten() {
                let once = job.attempt <= 1 && job.stalls == 0 && job.retries == 0;
                seen.insert(job.id, Seen { claimed_at: job.claimed_at, finished_at: job.finished_at, once });
            }
        }
        Ok(Self { seen })
    }

    /// Nobody has claimed it. One that is not there any more was claimed, for all that is known.
    fn is_queued(&self, job: JobId) -> bool {
        self.seen.get(&job).is_some_and(|seen| seen.claimed_at.is_none())
    }

    /// Where a node stands: it waits until one of its jobs is claimed.
    pub(crate) fn mark(&self, status: &RunStatus, node: usize) -> Mark {
        let this = &status.progress.nodes[node];
        let begun = |one: &windlass::core::graph::Instance| {
            one.outcome.is_some() || one.job.is_some_and(|job| !self.is_queued(job))
        };
        match run_view::mark(status, node) {
            Mark::Running if !this.instances.iter().any(begun) => Mark::Waiting,
            mark => mark,
        }
    }

    /// How long a node has been worked on: from the first claim, or from when it was enqueued if that is all that is known.
    pub(crate) fn took_ms(&self, status: &RunStatus, node: usize, now: Timestamp) -> Option<u64> {
        let times = status.times[node];
        let jobs: Vec<JobId> = status.progress.nodes[node].instances.iter().filter_map(|one| one.job).collect();
        let known = jobs.iter().all(|job| self.seen.get(job).is_some_and(|seen| seen.once));
        let from = if known && !jobs.is_empty() { self.claimed_at(&jobs)? } else { times.started_at? };
        Some(times.ended_at.unwrap_or(now).ms_since(from))
    }

    fn claimed_at(&self, jobs: &[JobId]) -> Option<Timestamp> {
        jobs.iter().filter_map(|job| self.seen.get(job)?.claimed_at).min()
    }

    /// Why a node stands where it stands.
    pub(crate) fn reason(&self, status: &RunStatus, node: usize) -> Option<String> {
        let queued = || self.mark(status, node) == Mark::Waiting && status.progress.nodes[node].has_begun();
        run_view::reason(status, node).or_else(|| queued().then(|| QUEUED.to_owned()))
    }

    /// What is drawn of a node: its mark, how far its rows are, and how long it took or takes.
    pub(crate) fn look(&self, status: &RunStatus, node: usize, now: Timestamp) -> Look {
        let progress = &status.progress.nodes[node];
        let mut notes = Vec::new();
        if progress.instances.len() > 1 {
            notes.push(format!("{}/{}", progress.ended, progress.instances.len()));
        }
        notes.extend(self.took_ms(status, node, now).map(about));
        Look { mark: self.mark(status, node), note: notes.join(" ") }
    }

    /// Every job of a node that has a matrix.
    pub(crate) fn rows(&self, status: &RunStatus, node: usize, now: Timestamp) -> Vec<Row> {
        let this = &status.progress.nodes[node];
        let instances = if this.rows.is_empty() { &[][..] } else { &this.instances };
        (0..instances.len()).map(|instance| self.row(status, (node, instance), now)).collect()
    }

    fn row(&self, status: &RunStatus, (node, instance): (usize, usize), now: Timestamp) -> Row {
        let one = &status.progress.nodes[node].instances[instance];
        let (mark, note) = match (one.outcome, one.job) {
            (Some(Outcome::Succeeded), _) => (Mark::Succeeded, ""),
            (Some(Outcome::Failed), _) => (Mark::Failed, ""),
            (Some(Outcome::Cancelled), _) => (Mark::Cancelled, ""),
            (Some(Outcome::Skipped), _) => (Mark::Skipped, ""),
            (None, None) => (Mark::Waiting, "waits for others of its matrix"),
            (None, Some(job)) if self.is_queued(job) => (Mark::Waiting, QUEUED),
            (None, Some(_)) => (Mark::Running, ""),
        };
        let seen = one.job.and_then(|job| self.seen.get(&job));
        let took_ms = seen.and_then(|seen| Some(seen.finished_at.unwrap_or(now).ms_since(seen.claimed_at?)));
        let error = one.error.as_deref().and_then(|error| error.lines().next());
        Row {
            label: label(status, node, instance),
            mark,
            job: one.job,
            took_ms,
            note: error.unwrap_or(note).to_owned(),
        }
    }

    /// All there is to know about a run.
    pub(crate) fn json(&self, status: &RunStatus) -> Value {
        let mut value = run_view::run_json(&status.run);
        let nodes: Vec<Value> = (0..status.graph.nodes.len()).map(|node| self.node_json(status, node)).collect();
        value["inputs"] = Value::clone(&status.inputs);
        value["nodes"] = Value::Array(nodes);
        value["cancelled"] = json!(status.progress.cancelled);
        value["timed_out"] = json!(status.progress.timed_out);
        value
    }

    fn node_json(&self, status: &RunStatus, node: usize) -> Value {
        let (this, progress) = (&status.graph.nodes[node], &status.progress.nodes[node]);
        let job = |instance: usize| {
            let one = &progress.instances[instance];
            let seen = one.job.and_then(|job| self.seen.get(&job));
            json!({
                "job": one.job,
                "row": progress.rows.get(instance),
                "state": self.row(status, (node, instance), Timestamp::default()).mark.word(),
                "outcome": one.outcome,
                "error": one.error,
                "claimed_at": seen.and_then(|seen| seen.claimed_at),
                "ended_at": seen.and_then(|seen| seen.finished_at),
            })
        };
        json!({
            "node": this.id,
            "title": this.title,
            "state": self.mark(status, node).word(),
            "reason": self.reason(status, node),
            "outputs": progress.outputs,
            "jobs": (0..progress.instances.len()).map(job).collect::<Vec<_>>(),
            "started_at": status.times[node].started_at,
            "ended_at": status.times[node].ended_at,
            "reruns": progress.reruns,
        })
    }
}

/// A node, with the values of one of its rows.
pub(crate) fn label(status: &RunStatus, node: usize, instance: usize) -> String {
    let id = clean(&status.graph.nodes[node].id);
    match status.progress.nodes[node].rows.get(instance) {
        None => id,
        Some(row) => {
            let values: Vec<String> = row.values().map(expr::text).collect();
            format!("{id} ({})", clean(&values.join(", ")))
        }
    }
}
