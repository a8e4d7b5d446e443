//! What a run of a workflow would do: its jobs in their order, and those that would be skipped.

use crate::error::OperateError;
use crate::run_view::{NodeState, NodeSummary};
use crate::text::count;
use crate::values::Span;
use serde_json::{Value, json};
use windlass::core::graph::{Accepts, Fault, Graph, Need, Node, Skip, Source, Template, Work, foresee};

/// The kind of jobs that run commands.
const COMMAND_KIND: &str = "windlass.command";

/// What a run of a graph with these inputs would do, as far as that is certain before it runs.
#[derive(Clone, Debug)]
pub struct Plan<'a> {
    graph: &'a Graph,
    inputs: &'a Value,
    levels: Vec<usize>,
    skips: Vec<Option<Skip>>,
}

impl<'a> Plan<'a> {
    /// Evaluates the conditions that read inputs and env alone. Those that depend on how jobs end stay open.
    pub fn new(graph: &'a Graph, inputs: &'a Value) -> Result<Self, OperateError> {
        let failed = |fault: Fault| OperateError::failed(fault.to_string());
        let skips = foresee(graph, inputs).map_err(failed)?;
        Ok(Self { graph, inputs, levels: graph.levels().map_err(failed)?, skips })
    }

    /// How many jobs wait for each other at most.
    pub fn depth(&self) -> usize {
        self.levels.iter().max().map_or(0, |most| most + 1)
    }

    /// How many nodes have a job.
    pub fn jobs(&self) -> usize {
        self.graph.nodes.iter().filter(|node| matches!(node.work, Work::Job(_))).count()
    }

    /// How many nodes would be skipped.
    pub fn skipped(&self) -> usize {
        self.skips.iter().flatten().count()
    }

    /// What a drawing shows of a node.
    pub fn summary(&self, node: usize) -> NodeSummary {
        let state = if self.skips[node].is_some() { NodeState::Skipped } else { NodeState::Waiting };
        let rows = self.graph.nodes[node].matrix.as_ref().map(|matrix| match &matrix.source {
            Source::Rows(rows) => format!("×{}", rows.len()),
            Source::From(_) => "×?".to_owned(),
        });
        NodeSummary { state, note: rows.unwrap_or_default() }
    }

    /// What a node does, in a few words.
    pub fn does(&self, node: usize) -> String {
        does(&self.graph.nodes[node])
    }

    /// The nodes that a node needs, in words; `-` when there are none.
    pub fn needs(&self, node: usize) -> String {
        let one = |need: &Need| {
            let name = &self.graph.nodes[need.node].id;
            match need.accepts == Accepts::default() {
                true => name.clone(),
                false => format!("{name} ({})", accepted(need.accepts).join("/")),
            }
        };
        let all: Vec<String> = self.graph.nodes[node].needs.iter().map(one).collect();
        if all.is_empty() { "-".to_owned() } else { all.join(", ") }
    }

    /// What else matters about a node: its condition, matrix, labels, retries, timeout, group, priority.
    pub fn notes(&self, node: usize) -> Vec<String> {
        let (skip, node) = (self.skips[node].as_ref(), &self.graph.nodes[node]);
        let mut notes = Vec::new();
        match (skip, &node.condition) {
            (Some(skip), _) => notes.push(format!("would be skipped: {}", self.skip_reason(node, skip))),
            (None, Some(condition)) => notes.push(format!("if {}", condition.as_str().trim())),
            (None, None) => {}
        }
        if let Some(matrix) = &node.matrix {
            notes.push(match &matrix.source {
                Source::Rows(rows) => format!("×{}", rows.len()),
                Source::From(expr) => format!("rows worked out from {}", expr.as_str()),
            });
            notes.extend(matrix.parallel_max.map(|most| format!("{most} at once")));
        }
        if let Work::Job(job) = &node.work {
            let labels: Vec<&str> = job.labels.iter().map(Template::as_str).collect();
            if !labels.is_empty() {
                notes.push(format!("labels {}", labels.join(", ")));
            }
            if job.attempts > 1 {
                notes.push(if job.attempts == 2 {
                    "1 retry".to_owned()
                } else {
                    format!("{} retries", job.attempts - 1)
                });
            }
            notes.extend(job.timeout_ms.map(|ms| format!("timeout {}", Span { ms })));
            if let Some(group) = &job.group {
                notes.push(format!("{} of group {} at once", job.group_max.unwrap_or(1), group.as_str()));
            }
            if job.priority != 0 {
                notes.push(format!("priority {}", job.priority));
            }
        }
        if node.continue_on_error {
            notes.push("may fail".to_owned());
        }
        notes
    }

    fn skip_reason(&self, node: &Node, skip: &Skip) -> String {
        match skip {
            Skip::Need { node, .. } => format!("`{}` is skipped", self.graph.nodes[*node].id),
            _ => {
                format!(
                    "`{}` does not hold",
                    node.condition.as_ref().map_or("its condition", |expr| expr.as_str().trim())
                )
            }
        }
    }

    /// The plan as `windlass plan --json` prints it.
    pub fn view(&self) -> Value {
        let jobs: Vec<Value> = (0..self.graph.nodes.len()).map(|at| self.job_view(at)).collect();
        json!({ "name": self.graph.name, "inputs": self.inputs, "levels": self.depth(), "jobs": jobs })
    }

    fn job_view(&self, at: usize) -> Value {
        let (graph, node) = (self.graph, &self.graph.nodes[at]);
        let need = |need: &Need| json!({ "job": graph.nodes[need.node].id, "accepts": accepted(need.accepts) });
        let matrix = node.matrix.as_ref().map(|matrix| {
            let (name, rows) = match &matrix.source {
                Source::Rows(rows) => ("rows", json!(rows)),
                Source::From(expr) => ("from", json!(expr.as_str())),
            };
            json!({ name: rows, "fail_fast": matrix.fail_fast, "parallel_max": matrix.parallel_max })
        });
        let mut shown = json!({
            "job": node.id,
            "title": node.title,
            "level": self.levels[at] + 1,
            "does": does(node),
            "needs": node.needs.iter().map(need).collect::<Vec<_>>(),
            "if": node.condition,
            "matrix": matrix,
            "continue_on_error": node.continue_on_error,
            "skipped": self.skips[at].as_ref().map(|skip| self.skip_reason(node, skip)),
        });
        if let (Work::Job(job), Some(shown)) = (&node.work, shown.as_object_mut()) {
            shown.insert("kind".to_owned(), json!(job.kind));
            shown.insert("queue".to_owned(), json!(job.queue));
            shown.insert("labels".to_owned(), json!(job.labels));
            shown.insert("retries".to_owned(), json!(job.attempts.saturating_sub(1)));
            shown.insert("timeout_ms".to_owned(), json!(job.timeout_ms));
            shown.insert("priority".to_owned(), json!(job.priority));
            shown.insert("group".to_owned(), json!(job.group));
            shown.insert("group_max".to_owned(), json!(job.group_max));
        }
        shown
    }
}

fn does(node: &Node) -> String {
    match &node.work {
        Work::Job(job) => match job.payload.get("steps").and_then(Value::as_array) {
            Some(steps) if job.kind.as_str() == COMMAND_KIND => {
                format!("commands ({})", count(steps.len() as u64, "step"))
            }
            _ => job.kind.to_string(),
        },
        Work::Gate { .. } => "enters a workflow".to_owned(),
        Work::Join { .. } => "leaves a workflow".to_owned(),
    }
}

fn accepted(accepts: Accepts) -> Vec<&'static str> {
    if accepts == Accepts::ANY {
        return vec!["any"];
    }
    let ends = [
        (accepts.succeeded, "succeeded"),
        (accepts.failed, "failed"),
        (accepts.skipped, "skipped"),
        (accepts.cancelled, "cancelled"),
    ];
    ends.into_iter().filter_map(|(is, name)| is.then_some(name)).collect()
}
