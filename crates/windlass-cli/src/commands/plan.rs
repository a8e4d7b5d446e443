//! `windlass plan`: what a run of a workflow would do.

use crate::app::App;
use crate::draw_graph::{self, Canvas};
use crate::failure::Failure;
use crate::table::{Table, text, whole};
use crate::ui::STRONG;
use crate::workflow_file::read_with_inputs;
use clap::Args;
use serde_json::Value;
use windlass::core::graph::{Graph, Work};
use windlass::core::schedule::Rule;
use windlass::graph::yaml::{Trigger, Workflow};
use windlass_operate::plan::Plan as Planned;
use windlass_operate::run_view::{inputs_text, node_title};
use windlass_operate::schedule_view::rule_text;
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
    pub(crate) fn run(self, app: &App) -> Result<(), Failure> {
        let (workflow, inputs) = read_with_inputs(app, &self.file, self.inputs)?;
        let graph = &workflow.graph;
        let plan = Planned::new(graph, &inputs)?;
        if app.ui.json {
            app.ui.json(&plan.view())?;
            return Ok(());
        }
        app.ui.line(headline(&workflow, &inputs, &plan))?;
        app.ui.line("")?;
        app.ui.line(draw_graph::draw(graph, Canvas::of_terminal(self.ascii), &|node| plan.summary(node)))?;
        app.ui.line("")?;
        if graph.nodes.len() > draw_graph::NODES_MAX {
            app.ui.note("too many to list here; --json has all of them");
        } else {
            app.ui.table(&table(graph, &plan))?;
        }
        Ok(())
    }
}

fn headline(workflow: &Workflow, inputs: &Value, plan: &Planned<'_>) -> String {
    let graph = &workflow.graph;
    let mut line = format!(
        "{STRONG}{}{STRONG:#}: {} in {}",
        printable(&graph.name),
        count(plan.jobs() as u64, "job"),
        count(plan.depth() as u64, "level")
    );
    if plan.skipped() > 0 {
        line += &format!(", {} would be skipped", plan.skipped());
    }
    if let Some(ms) = graph.timeout_ms {
        line += &format!(", at most {}", Span { ms });
    }
    for Trigger::Schedule(rule) in &workflow.triggers {
        line += &format!("; starts by itself: {}", rule_words(rule));
    }
    if let Some(inputs) = inputs_text(inputs) {
        line += &format!("\ninputs: {inputs}");
    }
    line
}

fn rule_words(rule: &Rule) -> String {
    match rule {
        Rule::Cron { expression, zone } => format!("{} ({})", printable(expression), printable(zone)),
        Rule::Every { .. } => rule_text(rule),
    }
}

fn table(graph: &Graph, plan: &Planned<'_>) -> Table {
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
            text(plan.does(at)),
            text(plan.needs(at)),
            text(queue),
            text(plan.notes(at).join("; ")),
        ];
        if titled {
            cells.insert(1, text(node_title(node).unwrap_or("")));
        }
        table.row(cells);
    }
    table
}
