//! A job that starts a run: what schedules create.

use super::{NewGraphRun, Runs};
use crate::context::Ctx;
use crate::error::JobError;
use crate::job::Job;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;
use windlass_core::graph::Graph;
use windlass_core::id::RunId;

/// Starts a run of a graph. Workers handle it by [`start_run`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StartRun {
    /// What is run.
    pub graph: Graph,
    /// What it is given, as a map.
    #[serde(default)]
    pub inputs: Value,
}

impl Job for StartRun {
    const KIND: &'static str = "windlass.run";
    type Output = RunId;
}

/// Starts the run of a [`StartRun`]. However often the job is tried, it starts one: the run's id is made of the job's.
pub async fn start_run(job: StartRun, ctx: Ctx) -> Result<RunId, JobError> {
    let id = RunId::named(&format!("job {}", ctx.id()));
    let run = NewGraphRun::new(Arc::new(job.graph)).inputs(job.inputs).id(id);
    let run = Runs::new(Arc::clone(ctx.client().store())).start(run).await?;
    ctx.output("run", run.to_string());
    Ok(run)
}
