//! `windlass runs history` and `windlass runs tree`.

use crate::app::App;
use crate::draw_graph::Canvas;
use crate::failure::Failure;
use crate::follow_code::print_record;
use crate::ui::{DIM, STRONG, Ui};
use clap::Args;
use windlass_operate::code_run::{RunTree, is_code, read_brief, read_history, read_tree};
use windlass_operate::graph_history::{read_graph_history, read_node_names};
use windlass_operate::names::RunName;
use windlass_operate::text::printable;

const HISTORY_AFTER: &str = "\
Each record is a line: what the code asked for, and what became of it; of a run of a graph, what became of its nodes. With --json: {number, kind, at, text, place, build, \
body, stored}; `stored` is the record as the store has it.

Examples:
  windlass runs history order-7
  windlass runs history latest --json | jq -c 'select(.kind == \"signal\") | .body'";

/// Print the history of a run, one record a line.
#[derive(Debug, Args)]
#[command(after_help = HISTORY_AFTER)]
pub(crate) struct History {
    /// The run's id, `latest`, or the name that it was given with --id
    run: RunName,
    /// Begin with the record of this number
    #[arg(long, value_name = "N", default_value_t = 0)]
    from: u64,
}

impl History {
    pub(crate) async fn run(self, app: &App) -> Result<(), Failure> {
        let store = app.existing()?;
        let run = self.run.find(store.as_ref()).await?;
        let brief = read_brief(store.as_ref(), run).await?;
        let is_graph = !is_code(&brief) && brief.damaged.is_none();
        let nodes = if is_graph { read_node_names(&store, run).await? } else { Vec::new() };
        let mut from = self.from;
        loop {
            let page = match is_graph {
                true => read_graph_history(store.as_ref(), run, &nodes, from).await?,
                false => read_history(store.as_ref(), run, from).await?,
            };
            page.records.iter().try_for_each(|record| print_record(app.ui, record))?;
            if !page.has_more() {
                if page.run.history_len == 0 {
                    app.ui.note("no records: no worker has executed it yet");
                }
                return Ok(());
            }
            from = page.next;
        }
    }
}

const TREE_AFTER: &str = "\
At most 1,000 runs on 16 levels are shown. With --json: one object, {run, name, kind, state, stuck, summary, children, omitted}.

Examples:
  windlass runs tree order-7";

/// Print a run and the runs that it has started, and those that they have.
#[derive(Debug, Args)]
#[command(after_help = TREE_AFTER)]
pub(crate) struct Tree {
    /// The run's id, `latest`, or the name that it was given with --id
    run: RunName,
    /// Draw with ASCII alone
    #[arg(long)]
    ascii: bool,
}

impl Tree {
    pub(crate) async fn run(self, app: &App) -> Result<(), Failure> {
        let store = app.existing()?;
        let run = self.run.find(store.as_ref()).await?;
        let tree = read_tree(store.as_ref(), run).await?;
        if app.ui.json {
            return app.ui.json(&tree);
        }
        let lines = if Canvas::of_terminal(self.ascii).ascii { &ASCII } else { &LINES };
        draw(app.ui, &tree, lines, "", "")
    }
}

/// How a tree is drawn: before a child, before the last child, and below each.
struct Lines {
    child: &'static str,
    last: &'static str,
    below_child: &'static str,
    below_last: &'static str,
}

const LINES: Lines = Lines { child: "├─ ", last: "└─ ", below_child: "│  ", below_last: "   " };
const ASCII: Lines = Lines { child: "|- ", last: "`- ", below_child: "|  ", below_last: "   " };

/// Draws a run and those below it. The depth of the tree is bounded where it is read.
fn draw(ui: Ui, tree: &RunTree, lines: &Lines, before: &str, below: &str) -> Result<(), Failure> {
    let state = if tree.stuck.is_some() { "stuck" } else { tree.state.name() };
    let (name, kind, run) = (printable(&tree.name), printable(&tree.kind), tree.run);
    let summary = tree.stuck.as_ref().unwrap_or(&tree.summary);
    let summary = printable(summary.lines().next().unwrap_or_default());
    ui.line(format_args!("{before}{STRONG}{name}{STRONG:#} {kind} {state} {run}  {DIM}{summary}{DIM:#}"))?;
    for (at, child) in tree.children.iter().enumerate() {
        let is_last = at + 1 == tree.children.len() && tree.omitted == 0;
        let (sign, under) = if is_last { (lines.last, lines.below_last) } else { (lines.child, lines.below_child) };
        draw(ui, child, lines, &format!("{below}{sign}"), &format!("{below}{under}"))?;
    }
    if tree.omitted > 0 {
        ui.line(format_args!("{below}{}{} more, or not in the store any more", lines.last, tree.omitted))?;
    }
    Ok(())
}
