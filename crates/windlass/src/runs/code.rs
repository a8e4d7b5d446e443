//! Durable workflows of an engine.

use super::engine::Engine;
use crate::durable::{CodeRuns, Executor, Resumer, UNWINDS, check_unwinds};
use std::sync::Arc;
use tokio::runtime::Handle;
use windlass_core::Result;
use windlass_core::name::Kind;
use windlass_durable::AnyWorkflow;

impl Engine {
    /// Executes the runs of durable workflows, too. `build` names the code in histories and messages; by default it is a hash of the
    /// executable. When the engine starts, it resumes runs of these workflows that are stuck under another build. Call it within a
    /// tokio runtime, in which the local steps of the workflows run.
    pub fn workflows(self, workflows: Vec<Arc<dyn AnyWorkflow>>, build: Option<String>) -> Result<Self> {
        self.workflows_on(workflows, build, &Handle::current())
    }

    pub(crate) fn workflows_on(
        mut self,
        workflows: Vec<Arc<dyn AnyWorkflow>>,
        build: Option<String>,
        runtime: &Handle,
    ) -> Result<Self> {
        if workflows.is_empty() {
            return Ok(self);
        }
        check_unwinds(UNWINDS)?;
        let executor = Executor::start(build, runtime)?;
        let (store, build) = (Arc::clone(&self.calls.store), executor.build());
        let kinds = workflows.iter().map(|workflow| Kind::new(workflow.kind().as_ref())).collect::<Result<_>>()?;
        self.resumer = Some(Resumer { store, kinds, build: Arc::clone(&build) });
        self.calls.build = Some(build);
        for workflow in workflows {
            self.kinds.add(CodeRuns::new(workflow, &executor))?;
        }
        Ok(self)
    }

    /// The most records of a segment of a code run; 100,000 by default. See
    /// [`WorkerBuilder::history_cap`](crate::WorkerBuilder::history_cap).
    #[must_use]
    pub fn history_cap(mut self, records: u64) -> Self {
        self.calls.history_cap = records.max(1);
        self
    }

    /// Resumes the runs that are stuck under another build. It does not return.
    pub(super) fn resume_of_other_builds(&mut self) -> impl Future<Output = ()> + use<> {
        let resumer = self.resumer.take();
        async move {
            if let Some(resumer) = resumer {
                resumer.run().await;
            }
            std::future::pending::<()>().await;
        }
    }
}
