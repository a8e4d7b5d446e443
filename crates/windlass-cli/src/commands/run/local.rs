//! A run that needs nobody else: a worker in this process, and a store that is forgotten unless one was named.

use crate::app::{App, is_store_flag_given};
use crate::failure::Failure;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use windlass::command::Commands;
use windlass::core::graph::{Graph, Template, Work, foresee_labels};
use windlass::core::store::Store;
use windlass::{Stopper, Worker};
use windlass_operate::text::printable;

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
    pub(super) fn prepare(app: &App, graph: &Graph, inputs: &serde_json::Value) -> Result<Self, Failure> {
        let (mut queues, mut labels) = (BTreeSet::new(), BTreeSet::new());
        let foreseen = foresee_labels(graph, inputs).map_err(|fault| Failure::failed(fault.to_string()))?;
        for (node, foreseen) in graph.nodes.iter().zip(foreseen) {
            let Work::Job(job) = &node.work else { continue };
            let is_command = job.kind.as_str() == windlass::command::KIND;
            if !is_command && named(app).is_none() {
                return Err(Failure::failed(format!(
                    "the job `{}` is of the kind `{}`, and only commands can be run here",
                    node.id, job.kind
                ))
                .hint("name the store of the workers that handle it: --store URL"));
            }
            queues.insert(job.queue.to_string());
            // Jobs of other kinds are left to other workers, with their labels.
            if let Some(label) = foreseen.open.first().filter(|_| is_command) {
                return Err(unknown_label(&node.id, label));
            }
            labels.extend(foreseen.known);
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

    /// Whether the run is gone when this process is.
    pub(super) fn is_forgotten(&self, app: &App) -> bool {
        self.temporary.is_some() || app.url().is_some_and(|url| url.starts_with("memory"))
    }

    /// The worker of the run, not started.
    pub(super) fn worker(&self, store: &Arc<dyn Store>, commands: Commands, slots: usize) -> Result<Worker, Failure> {
        let mut builder = Worker::builder(Arc::clone(store)).slots(slots);
        for queue in &self.queues {
            builder = builder.queue(queue);
        }
        for label in &self.labels {
            builder = builder.label(label);
        }
        Ok(builder.commands(commands.in_folder(&self.folder)).build()?)
    }
}

/// A worker says what it offers when it starts, so a label that a job of the run decides would never be offered.
fn unknown_label(node: &str, label: &Template) -> Failure {
    let (node, label) = (printable(node), printable(label.as_str()));
    Failure::failed(format!(
        "the label `{label}` of the job `{node}` depends on other jobs, and a local run must offer all labels from its start"
    ))
    .hint("start workers that offer it: windlass worker --allow-commands --labels …; then run it without --local")
}

/// The worker of the run.
pub(super) struct Working {
    stopper: Stopper,
    done: tokio::task::JoinHandle<windlass::Result<()>>,
}

impl Working {
    #[expect(clippy::disallowed_methods, reason = "the worker of the run, which is waited for")]
    pub(super) fn start(worker: Worker) -> Self {
        Self { stopper: worker.stopper(), done: tokio::spawn(worker.run_until_stopped()) }
    }

    pub(super) async fn end(self) {
        self.stopper.drain();
        match self.done.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => crate::failure::say(format_args!("note: the worker ended badly: {error}")),
            Err(error) => crate::failure::say(format_args!("note: the worker ended badly: {error}")),
        }
    }
}
