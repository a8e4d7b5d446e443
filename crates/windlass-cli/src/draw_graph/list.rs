//! Graphs that are too wide or too large for a picture.

use super::{Canvas, Line, label, plain, shortened, sign, style};
use crate::ui::{DIM, STRONG};
use anstyle::Style;
use windlass::core::graph::Graph;
use windlass_operate::run_view::{NodeState, NodeSummary};
use windlass_operate::text::printable;

/// A name is cut to this.
const NAME_MAX: usize = 40;
/// So many needs are named.
const NEEDS_SHOWN: usize = 5;
/// So many levels are counted one by one.
const LEVELS_SHOWN: usize = 40;

/// Every node on a line of its own, by level, with what it needs.
pub(super) fn listed(graph: &Graph, levels: &[usize], summaries: &[NodeSummary], canvas: Canvas) -> Vec<Line> {
    let mut order: Vec<usize> = (0..graph.nodes.len()).collect();
    order.sort_by_key(|&node| levels[node]);
    let number_width = levels.iter().max().map_or(1, |most| (most + 1).to_string().len());
    let mut lines = Vec::new();
    let mut shown = None;
    for node in order {
        let mut line = Line::default();
        let level = levels[node] + 1;
        let number = if shown == Some(level) { String::new() } else { level.to_string() };
        shown = Some(level);
        line.text(&format!("{number:>number_width$}  "), STRONG);
        line.cells.extend(label(&graph.nodes[node], &summaries[node], NAME_MAX, canvas).cells);
        let needs = &graph.nodes[node].needs;
        if !needs.is_empty() {
            let name = |at: usize| shortened(&printable(&graph.nodes[at].id), NAME_MAX, canvas.ascii);
            let mut names: Vec<String> = needs.iter().take(NEEDS_SHOWN).map(|need| name(need.node)).collect();
            if needs.len() > NEEDS_SHOWN {
                names.push(format!("{} more", needs.len() - NEEDS_SHOWN));
            }
            let arrow = if canvas.ascii { "<-" } else { "←" };
            line.text(&format!("  {arrow} {}", names.join(", ")), DIM);
        }
        line.cells.truncate(canvas.width.max(20));
        lines.push(line);
    }
    lines
}

/// How many of each level stand where.
pub(super) fn counted(
    graph: &Graph,
    levels: &[usize],
    canvas: Canvas,
    summary: &dyn Fn(usize) -> NodeSummary,
) -> String {
    let count = levels.iter().max().map_or(0, |most| most + 1);
    let mut tallies = vec![[0_usize; NodeState::ALL.len()]; count];
    let mut firsts = vec![None; count];
    for (node, &level) in levels.iter().enumerate() {
        let state = summary(node).state;
        let at = NodeState::ALL.iter().position(|one| *one == state).unwrap_or(0);
        tallies[level][at] += 1;
        firsts[level].get_or_insert(node);
    }
    let mut lines: Vec<String> = Vec::new();
    let width = count.to_string().len();
    for (level, tally) in tallies.iter().enumerate().take(LEVELS_SHOWN) {
        let all: usize = tally.iter().sum();
        let mut line = Line::default();
        line.text(&format!("level {:>width$}  ", level + 1), STRONG);
        line.text(&format!("{all:>6} {}", if all == 1 { "job " } else { "jobs" }), Style::new());
        tell(&mut line, tally, canvas);
        if let Some(first) = firsts[level].filter(|_| all > 0) {
            let name = shortened(&printable(&graph.nodes[first].id), NAME_MAX, canvas.ascii);
            line.text(&plain(&format!("  {name}{}", if all > 1 { ", …" } else { "" }), false), DIM);
        }
        if canvas.ascii {
            line.cells.iter_mut().filter(|(c, _)| *c == '…').for_each(|(c, _)| *c = '~');
        }
        lines.push(line.render());
    }
    if count > LEVELS_SHOWN {
        let rest: usize = tallies[LEVELS_SHOWN..].iter().flatten().sum();
        lines.push(format!("and {rest} jobs in {} more levels", count - LEVELS_SHOWN));
    }
    lines.join("\n")
}

/// The marks of a level and how often each is there.
fn tell(line: &mut Line, tally: &[usize; NodeState::ALL.len()], canvas: Canvas) {
    for (&state, &count) in NodeState::ALL.iter().zip(tally) {
        if count > 0 {
            line.text("  ", Style::new());
            line.put(sign(state, canvas.ascii), style(state));
            line.text(&format!(" {count} {}", state.name()), Style::new());
        }
    }
}
