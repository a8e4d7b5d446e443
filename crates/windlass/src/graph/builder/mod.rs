//! Graphs in Rust: the same model that YAML becomes, of typed jobs.
//!
//! ```
//! use serde::{Deserialize, Serialize};
//! use windlass::graph::GraphBuilder;
//! use windlass::Job;
//!
//! #[derive(Serialize, Deserialize, Job)]
//! struct Build { target: String }
//! #[derive(Serialize, Deserialize, Job)]
//! struct Publish { version: String }
//!
//! # fn main() -> windlass::Result<()> {
//! let mut g = GraphBuilder::new("ship");
//! let build = g.job("build", &Build { target: "x86_64".into() }).node();
//! let lint = g.commands("lint", ["cargo fmt --check", "cargo clippy"]).retries(2).node();
//! g.job("publish", &Publish { version: String::new() })
//!     .after(&build)
//!     .after(&lint)
//!     .with("version", build.output("version"))
//!     .when("needs.build.outputs.channel == 'stable'");
//! let graph = g.finish()?;
//! assert_eq!(graph.nodes.len(), 3);
//! # Ok(())
//! # }
//! ```
//!
//! A job can only wait for one that was there before it, so none waits for itself. What is wrong is told by
//! [`finish`](GraphBuilder::finish). Texts of payloads are what they are: an expression comes in by [`NodeBuilder::with`] and
//! by nothing else.

mod error;
mod names;
mod node;

pub use error::BuildError;
pub use node::NodeBuilder;

use crate::job::{Job, ms};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use windlass_core::Error;
use windlass_core::graph::{Graph, Node, NodeJob, Template, Work};
use windlass_core::job::Due;
use windlass_core::name::{Kind, QueueName};
use windlass_core::payload::Payload;
use windlass_core::retry::RetryPolicy;

/// The queue of commands that name none.
const QUEUE: &str = "default";

/// Builds a graph of typed jobs and commands.
#[derive(Debug)]
pub struct GraphBuilder {
    graph: Graph,
    token: u64,
    /// What went wrong first.
    fault: Option<BuildError>,
}

/// A node of a graph that is being built, for those that come after it.
#[derive(Clone, Debug)]
pub struct NodeRef {
    /// Of its builder.
    token: u64,
    at: usize,
    name: Arc<str>,
}

/// An output of a node, as an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output(String);

impl NodeRef {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// One of its outputs, which its handler says by [`Ctx::output`](crate::Ctx::output): for [`NodeBuilder::with`],
    /// [`NodeBuilder::env_from`] and [`NodeBuilder::matrix_from`].
    pub fn output(&self, key: impl fmt::Display) -> Output {
        Output(format!("needs.{}.outputs.{key}", self.name))
    }

    /// How it ended, as an expression: `succeeded`, `failed`, `skipped` or `cancelled`.
    pub fn result(&self) -> Output {
        Output(format!("needs.{}.result", self.name))
    }
}

impl From<Output> for String {
    fn from(output: Output) -> Self {
        output.0
    }
}

impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl GraphBuilder {
    /// Without nodes; `name` is what people call it.
    pub fn new(name: impl Into<String>) -> Self {
        static TOKENS: AtomicU64 = AtomicU64::new(0);
        let graph = Graph { name: name.into(), nodes: Vec::new(), env: BTreeMap::new(), timeout_ms: None };
        Self { graph, token: TOKENS.fetch_add(1, Ordering::Relaxed), fault: None }
    }

    /// A variable of all its commands, which conditions can read as `env.NAME`.
    pub fn env(&mut self, name: impl Into<String>, value: impl AsRef<str>) -> &mut Self {
        self.graph.env.insert(name.into(), literal(value.as_ref()));
        self
    }

    /// How long a run may take.
    pub fn timeout(&mut self, timeout: Duration) -> &mut Self {
        self.graph.timeout_ms = Some(ms(timeout));
        self
    }

    /// Adds a job. Queue, priority, attempts, back-off, timeout, labels and group are those of its options. What is about a
    /// job on its own is left out: a run starts it once, so `id` and `unique` say nothing more; `lifo`, `stalls`, the times
    /// it is kept, metadata and trace are the run's.
    pub fn job<J: Job>(&mut self, name: &str, job: &J) -> NodeBuilder<'_> {
        let made = node_job(name, job);
        self.add(name, made)
    }

    /// Adds a job that runs these commands, one step after the other, in `sh`. It is tried once, if nobody says otherwise.
    pub fn commands<S: AsRef<str>>(&mut self, name: &str, steps: impl IntoIterator<Item = S>) -> NodeBuilder<'_> {
        let steps: Vec<String> = steps.into_iter().map(|step| step.as_ref().to_owned()).collect();
        let made = command_job(name, &steps);
        self.add(name, made)
    }

    pub(crate) fn add(&mut self, name: &str, made: Result<NodeJob, BuildError>) -> NodeBuilder<'_> {
        if !names::is_name(name) {
            self.refuse(BuildError::Name { name: name.to_owned() });
        }
        let work = match made {
            Ok(job) => Work::Job(Box::new(job)),
            Err(error) => {
                self.refuse(error);
                Work::Join { outputs: BTreeMap::new() }
            }
        };
        self.graph.nodes.push(bare_node(name.to_owned(), work));
        let at = self.graph.nodes.len() - 1;
        NodeBuilder { builder: self, at }
    }

    /// The first fault is told.
    fn refuse(&mut self, error: BuildError) {
        self.fault.get_or_insert(error);
    }

    /// The graph, if it can be run.
    pub fn finish(self) -> Result<Graph, BuildError> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        self.graph.check()?;
        self.graph.nodes.iter().try_for_each(|node| names::check(&self.graph, node))?;
        Ok(self.graph)
    }
}

/// A node of which nothing is said but what it does.
pub(crate) fn bare_node(id: String, work: Work) -> Node {
    Node {
        id,
        title: None,
        needs: Vec::new(),
        condition: None,
        matrix: None,
        continue_on_error: false,
        inside: None,
        entrance: None,
        env: BTreeMap::new(),
        work,
    }
}

/// A text that stays as it is, also where it looks like an expression.
fn literal(text: &str) -> String {
    text.replace("${{", "${{ '${{' }}")
}

fn literal_in(value: Value) -> Value {
    match value {
        Value::String(text) if text.contains("${{") => Value::String(literal(&text)),
        Value::Array(list) => list.into_iter().map(literal_in).collect(),
        Value::Object(map) => Value::Object(map.into_iter().map(|(key, value)| (key, literal_in(value))).collect()),
        other => other,
    }
}

/// A typed job, as a node has it.
pub(crate) fn node_job<J: Job>(name: &str, job: &J) -> Result<NodeJob, BuildError> {
    let failed = |error: Error| BuildError::Job { name: name.to_owned(), error };
    let value = serde_json::to_value(job).map_err(|error| failed(Error::invalid("payload", error.to_string())))?;
    let payload = Payload::json(&Value::Null).map_err(failed)?;
    let (spec, due) = job.options().into_spec(J::QUEUE, J::KIND, payload).map_err(failed)?;
    if due != Due::Now {
        return Err(BuildError::Late { name: name.to_owned() });
    }
    // Labels and groups are names, in which no expression can stand.
    let labels = spec.labels.iter().filter_map(|label| Template::parse(label.as_str()).ok()).collect();
    Ok(NodeJob {
        queue: spec.queue,
        kind: spec.kind,
        payload: literal_in(value),
        labels,
        priority: spec.priority,
        attempts: spec.attempts,
        retry: spec.retry,
        timeout_ms: spec.timeout_ms,
        group: spec.group.and_then(|group| Template::parse(group.as_str()).ok()),
        group_max: None,
    })
}

fn command_job(name: &str, steps: &[String]) -> Result<NodeJob, BuildError> {
    let failed = |error: Error| BuildError::Job { name: name.to_owned(), error };
    if steps.iter().any(|step| step.contains("${{")) {
        return Err(BuildError::Script { name: name.to_owned() });
    }
    if steps.is_empty() {
        return Err(failed(Error::invalid("steps", "there are no commands; give at least one")));
    }
    let steps: Vec<Value> = steps.iter().map(|step| json!({ "run": step })).collect();
    Ok(NodeJob {
        queue: QueueName::new(QUEUE).map_err(failed)?,
        kind: Kind::new(crate::runs::COMMAND_KIND).map_err(failed)?,
        payload: Value::Object(Map::from_iter([("steps".to_owned(), Value::Array(steps))])),
        labels: Vec::new(),
        priority: 0,
        attempts: 1,
        retry: RetryPolicy::default(),
        timeout_ms: None,
        group: None,
        group_max: None,
    })
}
