//! A graph, drawn: levels from the left to the right, what needs what between them, and a mark for where each node stands.
//!
//! One that is too wide for the terminal is listed by level with its needs, one that is too large is counted by level. Who
//! draws says what to show of each node, so that a plan and a run that is under way look alike.

mod lanes;
mod list;
#[cfg(test)]
mod tests;

use crate::ui::{DIM, ERROR, GOOD, STRONG, WARNING};
use anstyle::{AnsiColor, Style};
use std::io::IsTerminal;
use windlass::core::graph::{Graph, Node, Work};
use windlass_operate::layout::place;
use windlass_operate::run_view::{NodeState, NodeSummary};
use windlass_operate::text::printable;

/// Larger graphs are counted and not drawn.
pub(crate) const NODES_MAX: usize = 60;
/// Names are cut to these lengths, one after the other, until the picture fits.
const CUTS: [usize; 3] = [40, 24, 14];

/// The character of a state.
pub(crate) fn sign(state: NodeState, ascii: bool) -> char {
    let (sign, plain) = match state {
        NodeState::Waiting => ('○', 'o'),
        NodeState::Running => ('●', '*'),
        NodeState::Succeeded => ('✓', '+'),
        NodeState::Failed => ('✗', 'x'),
        NodeState::Skipped => ('–', '-'),
        NodeState::Cancelled => ('⊘', '/'),
    };
    if ascii { plain } else { sign }
}

/// The colour of a state.
pub(crate) fn style(state: NodeState) -> Style {
    match state {
        NodeState::Waiting => Style::new(),
        NodeState::Running => AnsiColor::Cyan.on_default().bold(),
        NodeState::Succeeded => GOOD,
        NodeState::Failed => ERROR,
        NodeState::Skipped => DIM,
        NodeState::Cancelled => WARNING,
    }
}

/// What it is drawn on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Canvas {
    /// Characters of a line.
    pub(crate) width: usize,
    /// Nothing but ASCII.
    pub(crate) ascii: bool,
}

impl Canvas {
    /// The terminal. Elsewhere lines are as long as is common.
    pub(crate) fn of_terminal(ascii: bool) -> Self {
        const WIDTH: usize = 100;
        let columns = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
        let terminal = comfy_table::Table::new().width().filter(|_| std::io::stdout().is_terminal());
        let width = terminal.map(usize::from).or(columns).unwrap_or(WIDTH);
        Self { width, ascii: ascii || !speaks_utf8() }
    }
}

/// Whether the locale is one that has more than ASCII.
fn speaks_utf8() -> bool {
    let said = ["LC_ALL", "LC_CTYPE", "LANG"].map(std::env::var);
    let locale = said.into_iter().flatten().find(|text| !text.is_empty()).unwrap_or_default().to_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

/// Draws a graph. One that waits for itself is listed without levels.
pub(crate) fn draw(graph: &Graph, canvas: Canvas, summary: &dyn Fn(usize) -> NodeSummary) -> String {
    let levels = graph.levels().unwrap_or_else(|_| vec![0; graph.nodes.len()]);
    if graph.nodes.len() > NODES_MAX {
        return list::counted(graph, &levels, canvas, summary);
    }
    let summaries: Vec<NodeSummary> = (0..graph.nodes.len()).map(summary).collect();
    let placed = place(graph, &levels);
    let pictures = CUTS.into_iter().map(|cut| {
        let labels: Vec<Label> =
            graph.nodes.iter().zip(&summaries).map(|(node, summary)| label(node, summary, cut, canvas)).collect();
        lanes::draw(&placed, &labels, canvas)
    });
    let fits = |lines: &Vec<Line>| lines.iter().all(|line| line.width() <= canvas.width);
    let picture = pictures.into_iter().find(fits);
    let lines = picture.unwrap_or_else(|| list::listed(graph, &levels, &summaries, canvas));
    let texts: Vec<String> = lines.iter().map(Line::render).collect();
    texts.join("\n")
}

/// The text of a node, with its mark.
type Label = Line;

fn label(node: &Node, summary: &NodeSummary, cut: usize, canvas: Canvas) -> Label {
    let mut line = Line::default();
    line.put(sign(summary.state, canvas.ascii), style(summary.state));
    let name = match node.work {
        // Doors of a sub-graph.
        Work::Gate { .. } | Work::Join { .. } => STRONG,
        Work::Job(_) => Style::new(),
    };
    line.text(" ", Style::new());
    line.text(
        &shortened(&printable(&node.id), cut, canvas.ascii),
        if summary.state == NodeState::Skipped { DIM } else { name },
    );
    if !summary.note.is_empty() {
        line.text(" ", Style::new());
        line.text(&plain(&printable(&summary.note), canvas.ascii), DIM);
    }
    line
}

/// Cut in the middle: names that are alike differ at their ends.
fn shortened(text: &str, most: usize, ascii: bool) -> String {
    let text = plain(text, ascii);
    let length = text.chars().count();
    if length <= most {
        return text;
    }
    let (head, tail) = ((most - 1) / 2, most / 2);
    let dots = if ascii { '~' } else { '…' };
    text.chars().take(head).chain([dots]).chain(text.chars().skip(length - tail)).collect()
}

fn plain(text: &str, ascii: bool) -> String {
    if !ascii {
        return text.to_owned();
    }
    text.chars()
        .map(|c| match c {
            '×' => 'x',
            c if c.is_ascii() => c,
            _ => '?',
        })
        .collect()
}

/// Characters with their styles.
#[derive(Clone, Debug, Default)]
pub(crate) struct Line {
    cells: Vec<(char, Style)>,
}

impl Line {
    fn put(&mut self, c: char, style: Style) {
        self.cells.push((c, style));
    }

    fn text(&mut self, text: &str, style: Style) {
        self.cells.extend(text.chars().map(|c| (c, style)));
    }

    fn width(&self) -> usize {
        self.cells.len()
    }

    /// With the codes of its colours, which are taken out again where nobody looks.
    fn render(&self) -> String {
        let end = self.cells.iter().rposition(|(c, _)| *c != ' ').map_or(0, |at| at + 1);
        let mut text = String::new();
        for run in self.cells[..end].chunk_by(|a, b| a.1 == b.1) {
            let (style, word): (Style, String) = (run[0].1, run.iter().map(|(c, _)| c).collect());
            text += &if style.is_plain() { word } else { format!("{style}{word}{style:#}") };
        }
        text
    }
}
