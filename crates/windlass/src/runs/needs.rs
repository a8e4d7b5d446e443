//! What a job of a run may know of those before it.

use super::RunStatus;
use crate::context::Ctx;
use std::collections::BTreeMap;
use windlass_core::graph::Outcome;
use windlass_core::id::JobId;
use windlass_core::{Error, Result};

/// How the nodes ended that a job has waited for: the children of a flow, the needs of a graph. See [`Ctx::needs`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs(BTreeMap<String, NeedEnd>);

/// How one of them ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeedEnd {
    /// How.
    pub outcome: Outcome,
    /// What it said by [`Ctx::output`].
    pub outputs: BTreeMap<String, String>,
    /// What went wrong; with a matrix, there may be several.
    pub errors: Vec<String>,
    /// Its jobs, whose return values [`Client::wait`](crate::Client::wait) tells as long as they are kept. None if it was
    /// skipped.
    pub jobs: Vec<JobId>,
}

impl NeedEnd {
    /// Whether it went well.
    pub fn succeeded(&self) -> bool {
        self.outcome == Outcome::Succeeded
    }
}

impl Needs {
    /// The one of this name.
    pub fn get(&self, name: &str) -> Option<&NeedEnd> {
        self.0.get(name)
    }

    /// An output of the one of this name.
    pub fn output(&self, name: &str, key: &str) -> Option<&str> {
        self.get(name)?.outputs.get(key).map(String::as_str)
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &NeedEnd)> {
        self.0.iter().map(|(name, end)| (name.as_str(), end))
    }
}

impl Ctx {
    /// How the nodes ended that this job has waited for, and their outputs. Empty for a job that waited for none or is no part
    /// of a run.
    ///
    /// It reads the run's history, so it costs what the run is large: ask once.
    pub async fn needs(&self) -> Result<Needs> {
        let Some(run) = self.spec().run else { return Ok(Needs::default()) };
        let status = RunStatus::read(self.client().store().as_ref(), run).await?;
        let status = status.ok_or_else(|| Error::not_found(format!("the run {run}")))?;
        let (graph, progress) = (&status.graph, &status.progress);
        // One that has been run once more since has another job.
        let gone = || Error::not_found(format!("the job {} in its run, which has gone on without it", self.id()));
        let (node, _) = progress.place_of(self.id()).ok_or_else(gone)?;
        let end = |at: usize| {
            let ended = &progress.nodes[at];
            let end = NeedEnd {
                outcome: ended.outcome?,
                outputs: ended.outputs.clone(),
                errors: ended.instances.iter().filter_map(|one| one.error.clone()).collect(),
                jobs: ended.instances.iter().filter_map(|one| one.job).collect(),
            };
            let id = &graph.nodes[at].id;
            // Inside a sub-graph, names are those of the sub-graph.
            Some((id.rsplit('/').next().unwrap_or(id).to_owned(), end))
        };
        Ok(Needs(graph.nodes[node].needs.iter().filter_map(|need| end(need.node)).collect()))
    }
}
