//! `windlass plan`: what a run of a workflow would do.

use crate::app::App;
use crate::draw_graph::{self, Canvas};
use crate::failure::Failure;
use crate::table::{Table, text, whole};
use crate::ui::STRONG;
use crate::workflow_file::{WorkflowFile, refused};
use clap::Args;
use serde_json::{Value, json};
use std::process::ExitCode;
use windlass::core::graph::{Accepts, Graph, Node, Skip, Source, Work, foresee};
use windlass::core::schedule::Rule;
use windlass::graph::yaml::{Trigger, Workflow};
use windlass_operate::run_view::{NodeState, NodeSummary, node_title};
use windlass_operate::text::{count, printable};
use windlass_operate::values::{Span, pair};

const AFTER: &str = "\
No store is needed, and nothing is run. A condition that reads only inputs and env is worked out; what depends on how \
jobs end is left open. With --json: one object, with name, inputs, levels and jobs.

Examples:
  windlass plan ci.yml
  windlass plan deploy.yml --input version=1.2 --input dry=true
  windlass plan ci.yml --json | jq '.jobs[] | select(.skipped) | .job'";

/// Show what a workflow would run, in which order, and what it would skip.
#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub(crate) struct Plan {
    /// The file; - is standard input
    file: String,
    /// An input of the run; may be repeated
    #[arg(long = "input", value_name = "NAME=VALUE", value_parser = pair)]
    inputs: Vec<(String, String)>,
    /// Draw with ASCII alone, as in a terminal that is not UTF-8
    #[arg(long)]
    ascii: bool,
}

impl Plan {
    pub(crate) fn run(self, app: &App) -> Result<ExitCode, Failure> {
        let workflow = WorkflowFile::open(&self.file)?.workflow(app.ui.json)?;
        let inputs = workflow.resolve_inputs(self.inputs.into_iter().collect()).map_err(|error| refused(&error))?;
        let graph = &workflow.graph;
        let fault = |error: windlass::core::graph::Fault| Failure::failed(error.to_string());
        let skips = foresee(graph, &inputs).map_err(fault)?;
        let levels = graph.levels().map_err(fault)?;
        if app.ui.json {
            let jobs: Vec<Value> = (0..graph.nodes.len()).map(|at| job_json(graph, at, &levels, &skips)).collect();
            let all = levels.iter().max().map_or(0, |most| most + 1);
            app.ui.json(&json!({ "name": graph.name, "inputs": inputs, "levels": all, "jobs": jobs }))?;
            return Ok(ExitCode::SUCCESS);
        }
        app.ui.line(headline(&workflow, &inputs, &levels, &skips))?;
        let look = |at: usize| NodeSummary {
            state: if skips[at].is_some() { NodeState::Skipped } else { NodeState::Waiting },
            note: rows(&graph.nodes[at]).unwrap_or_default(),
        };
        app.ui.line("")?;
        app.ui.line(draw_graph::draw(graph, Canvas::of_terminal(self.ascii), &look))?;
        app.ui.line("")?;
        if graph.nodes.len() > draw_graph::NODES_MAX {
            app.ui.note("too many to list here; --json has all of them");
        } else {
            app.ui.table(&table(graph, &skips))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn headline(workflow: &Workflow, inputs: &Value, levels: &[usize], skips: &[Option<Skip>]) -> String {
    let graph = &workflow.graph;
    let jobs = graph.nodes.iter().filter(|node| matches!(node.work, Work::Job(_))).count();
    let deep = levels.iter().max().map_or(0, |most| most + 1);
    let mut line = format!(
        "{STRONG}{}{STRONG:#}: {} in {}",
        printable(&graph.name),
        count(jobs as u64, "job"),
        count(deep as u64, "level")
    );
    let skipped = skips.iter().filter(|skip| skip.is_some()).count();
    if skipped > 0 {
        line += &format!(", {skipped} would be skipped");
    }
    if let Some(ms) = graph.timeout_ms {
        line += &format!(", at most {}", Span { ms });
    }
    for Trigger::Schedule(rule) in &workflow.triggers {
        line += &format!("; starts by itself: {}", rule_text(rule));
    }
    if let Some(map) = inputs.as_object().filter(|map| !map.is_empty()) {
        let pairs: Vec<String> =
            map.iter().map(|(name, value)| format!("{name}={}", printable(&value_text(value)))).collect();
        line += &format!("\ninputs: {}", pairs.join(", "));
    }
    line
}

fn rule_text(rule: &Rule) -> String {
    match rule {
        Rule::Cron { expression, zone } => format!("{} ({})", printable(expression), printable(zone)),
        Rule::Every { ms } => format!("every {}", Span { ms: *ms }),
    }
}

fn value_text(value: &Value) -> String {
    windlass::core::graph::expr::text(value)
}

/// The rows of its matrix, in a word.
fn rows(node: &Node) -> Option<String> {
    node.matrix.as_ref().map(|matrix| match &matrix.source {
        Source::Rows(rows) => format!("×{}", rows.len()),
        Source::From(_) => "×?".to_owned(),
    })
}

fn table(graph: &Graph, skips: &[Option<Skip>]) -> Table {
    let titled = graph.nodes.iter().any(|node| node_title(node).is_some());
    let mut table = match titled {
        true => Table::new(&["JOB", "NAME", "DOES", "NEEDS", "QUEUE", "NOTES"]),
        false => Table::new(&["JOB", "DOES", "NEEDS", "QUEUE", "NOTES"]),
    };
    for (at, node) in graph.nodes.iter().enumerate() {
        let queue = match &node.work {
            Work::Job(job) => job.queue.to_string(),
            Work::Gate { .. } | Work::Join { .. } => "-".to_owned(),
        };
        let mut cells = vec![
            whole(&node.id),
            text(does(node)),
            text(needs(graph, node)),
            text(queue),
            text(notes(graph, node, skips[at].as_ref()).join("; ")),
        ];
        if titled {
            cells.insert(1, text(node_title(node).unwrap_or("")));
        }
        table.row(cells);
    }
    table
}

fn does(node: &Node) -> String {
    match &node.work {
        Work::Job(job) => match job.payload.get("steps").and_then(Value::as_array) {
            Some(steps) if job.kind.as_str() == "windlass.command" => {
                format!("commands ({})", count(steps.len() as u64, "step"))
            }
            _ => job.kind.to_string(),
        },
        Work::Gate { .. } => "enters a workflow".to_owned(),
        Work::Join { .. } => "leaves a workflow".to_owned(),
    }
}

fn needs(graph: &Graph, node: &Node) -> String {
    let one = |need: &windlass::core::graph::Need| {
        let name = &graph.nodes[need.node].id;
        if need.accepts == Accepts::default() {
            name.clone()
        } else {
            format!("{name} ({})", accepted(need.accepts).join("/"))
        }
    };
    let all: Vec<String> = node.needs.iter().map(one).collect();
    if all.is_empty() { "-".to_owned() } else { all.join(", ") }
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

/// Why it would not be run.
fn why(graph: &Graph, node: &Node, skip: &Skip) -> String {
    match skip {
        Skip::Need { node, .. } => format!("`{}` is skipped", graph.nodes[*node].id),
        _ => {
            format!("`{}` does not hold", node.condition.as_ref().map_or("its condition", |expr| expr.as_str().trim()))
        }
    }
}

/// All that matters beside what it does.
fn notes(graph: &Graph, node: &Node, skip: Option<&Skip>) -> Vec<String> {
    let mut notes = Vec::new();
    match (skip, &node.condition) {
        (Some(skip), _) => notes.push(format!("would be skipped: {}", why(graph, node, skip))),
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
        let labels: Vec<&str> = job.labels.iter().map(windlass::core::graph::Template::as_str).collect();
        if !labels.is_empty() {
            notes.push(format!("labels {}", labels.join(", ")));
        }
        if job.attempts > 1 {
            notes.push(if job.attempts == 2 { "1 retry".to_owned() } else { format!("{} retries", job.attempts - 1) });
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

fn job_json(graph: &Graph, at: usize, levels: &[usize], skips: &[Option<Skip>]) -> Value {
    let node = &graph.nodes[at];
    let need = |need: &windlass::core::graph::Need| json!({ "job": graph.nodes[need.node].id, "accepts": accepted(need.accepts) });
    let matrix = node.matrix.as_ref().map(|matrix| match &matrix.source {
        Source::Rows(rows) => {
            json!({ "rows": rows, "fail_fast": matrix.fail_fast, "parallel_max": matrix.parallel_max })
        }
        Source::From(expr) => {
            json!({ "from": expr.as_str(), "fail_fast": matrix.fail_fast, "parallel_max": matrix.parallel_max })
        }
    });
    let mut shown = json!({
        "job": node.id,
        "title": node.title,
        "level": levels[at] + 1,
        "does": does(node),
        "needs": node.needs.iter().map(need).collect::<Vec<_>>(),
        "if": node.condition,
        "matrix": matrix,
        "continue_on_error": node.continue_on_error,
        "skipped": skips[at].as_ref().map(|skip| why(graph, node, skip)),
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
