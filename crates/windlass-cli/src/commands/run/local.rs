//! A run that needs nobody else: a worker in this process, and a store that is forgotten unless one was named.

use crate::app::{App, is_store_flag_given};
use crate::failure::Failure;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use windlass::command::Commands;
use windlass::core::graph::{Graph, NodeScope, Progress, Source, Template, Work};
use windlass::core::store::Store;
use windlass::{Stopper, Worker};

/// The store that was named for this very run. Others are of the environment, and whoever works there takes what it finds:
/// other people's commands have no business in this folder.
fn named(app: &App) -> Option<&str> {
    app.url().filter(|_| is_store_flag_given())
}

/// What a local run needs.
pub(super) struct Local {
    folder: PathBuf,
    /// Where the store is that nobody named.
    temporary: Option<tempfile::TempDir>,
    queues: BTreeSet<String>,
    labels: BTreeSet<String>,
}

impl Local {
    /// Refuses what nobody here could run.
    pub(super) fn prepare(app: &App, graph: &Graph) -> Result<Self, Failure> {
        let (mut queues, mut labels) = (BTreeSet::new(), BTreeSet::new());
        for (at, node) in graph.nodes.iter().enumerate() {
            let Work::Job(job) = &node.work else { continue };
            if job.kind.as_str() != windlass::command::KIND && named(app).is_none() {
                return Err(Failure::failed(format!(
                    "the job `{}` is of the kind `{}`, and only commands can be run here",
                    node.id, job.kind
                ))
                .hint("name the store of the workers that handle it: --store URL"));
            }
            queues.insert(job.queue.to_string());
            labels.extend(offered(graph, at, &job.labels));
        }
        let temporary = match named(app) {
            Some(_) => None,
            None => Some(tempfile::Builder::new().prefix("windlass-run-").tempdir()?),
        };
        Ok(Self { folder: std::env::current_dir()?, temporary, queues, labels })
    }

    pub(super) fn store(&self, app: &App) -> Result<Arc<dyn Store>, Failure> {
        match &self.temporary {
            None => app.store(),
            Some(folder) => Ok(windlass::open(&format!("sqlite://{}", folder.path().join("run.db").display()))?),
        }
    }

    /// Where artifacts go that are forgotten with the store.
    pub(super) fn artifacts(&self) -> Option<String> {
        self.temporary.as_ref().map(|folder| folder.path().join("artifacts").display().to_string())
    }

    #[expect(clippy::disallowed_methods, reason = "the worker of the run, which is waited for")]
    pub(super) fn work(&self, store: &Arc<dyn Store>, commands: Commands, slots: usize) -> Result<Working, Failure> {
        let mut builder = Worker::builder(Arc::clone(store)).slots(slots);
        for queue in &self.queues {
            builder = builder.queue(queue);
        }
        for label in &self.labels {
            builder = builder.label(label);
        }
        let worker = builder.commands(commands.in_folder(&self.folder)).build()?;
        let stopper = worker.stopper();
        Ok(Working { stopper, done: tokio::spawn(worker.run_until_stopped()) })
    }
}

/// What a worker must offer to run all of a node, as far as that is known beforehand.
fn offered(graph: &Graph, node: usize, labels: &[Template]) -> Vec<String> {
    let (progress, inputs) = (Progress::new(graph), serde_json::Value::Null);
    let rows = match graph.nodes[node].matrix.as_ref().map(|matrix| &matrix.source) {
        Some(Source::Rows(rows)) => rows.iter().map(Some).collect(),
        _ => vec![None],
    };
    let fill = |row| {
        let scope = NodeScope { graph, progress: &progress, inputs: &inputs, node, row };
        labels.iter().map(|label| label.fill(&scope)).filter(|label| !label.is_empty()).collect::<Vec<_>>()
    };
    rows.into_iter().flat_map(fill).collect()
}

/// The worker of the run.
pub(super) struct Working {
    stopper: Stopper,
    done: tokio::task::JoinHandle<windlass::Result<()>>,
}

impl Working {
    pub(super) async fn end(self) {
        self.stopper.drain();
        match self.done.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => crate::failure::say(format_args!("note: the worker ended badly: {error}")),
            Err(error) => crate::failure::say(format_args!("note: the worker ended badly: {error}")),
        }
    }
}
