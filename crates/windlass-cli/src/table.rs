//! Tables that fit: on a terminal long texts are cut, and columns at the right are left out when even that is not enough.
//! Elsewhere nothing is cut.

use comfy_table::presets::NOTHING;
use comfy_table::{Attribute, CellAlignment, Color, ContentArrangement};
use std::io::IsTerminal;
use windlass::core::job::State;
use windlass_operate::text::printable;

/// Blanks between two columns.
const GAP: usize = 2;
/// A text is not cut to less.
const TEXT_MIN: usize = 8;

/// A table for people.
#[derive(Debug)]
pub(crate) struct Table {
    headers: Vec<String>,
    rows: Vec<Vec<Cell>>,
}

/// One cell of it.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    text: String,
    /// May be cut: an id or a number that is cut is of no use to anybody.
    long: bool,
    right: bool,
    color: Option<Color>,
}

impl Table {
    pub(crate) fn new(headers: &[&str]) -> Self {
        Self { headers: headers.iter().map(|&name| name.to_owned()).collect(), rows: Vec::new() }
    }

    /// One more line.
    pub(crate) fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// For whoever looks.
    pub(crate) fn render(&self) -> String {
        let terminal = comfy_table::Table::new().width().filter(|_| std::io::stdout().is_terminal());
        self.fit(terminal.map_or(usize::MAX, usize::from))
    }

    /// No line is longer than `total`, as far as that is possible.
    fn fit(&self, total: usize) -> String {
        let widths = self.widths(total);
        let mut table = comfy_table::Table::new();
        table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        let header =
            |(name, width): (&String, &usize)| comfy_table::Cell::new(cut(name, *width)).add_attribute(Attribute::Bold);
        table.set_header(self.headers.iter().zip(&widths).map(header).collect::<Vec<_>>());
        for row in &self.rows {
            table.add_row(row.iter().zip(&widths).map(|(cell, width)| cell.drawn(*width)).collect::<Vec<_>>());
        }
        for (at, column) in table.column_iter_mut().enumerate() {
            let gap = if at + 1 == widths.len() { 0 } else { GAP };
            column.set_padding((0, u16::try_from(gap).unwrap_or(1)));
        }
        let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
        lines.join("\n")
    }

    /// How wide each column is; those at the right that find no room have no width.
    fn widths(&self, total: usize) -> Vec<usize> {
        let natural = |at: usize| self.rows.iter().filter_map(|row| row.get(at)).map(|cell| length(&cell.text)).max();
        let mut widths: Vec<usize> =
            (0..self.headers.len()).map(|at| natural(at).unwrap_or(0).max(length(&self.headers[at]))).collect();
        let is_long = |at: usize| self.rows.iter().any(|row| row.get(at).is_some_and(|cell| cell.long));
        let least: Vec<usize> = self.headers.iter().map(|name| length(name).max(TEXT_MIN)).collect();
        while widths.len() > 1 && taken(&widths) > total {
            let widest =
                (0..widths.len()).filter(|at| is_long(*at) && widths[*at] > least[*at]).max_by_key(|at| widths[*at]);
            match widest {
                Some(at) => widths[at] -= 1,
                None => drop(widths.pop()),
            }
        }
        widths
    }
}

fn taken(widths: &[usize]) -> usize {
    widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1)
}

fn length(text: &str) -> usize {
    text.chars().count()
}

fn cut(text: &str, width: usize) -> String {
    if length(text) <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

impl Cell {
    fn drawn(&self, width: usize) -> comfy_table::Cell {
        let mut cell = comfy_table::Cell::new(cut(&self.text, width));
        if self.right {
            cell = cell.set_alignment(CellAlignment::Right);
        }
        match self.color {
            Some(color) => cell.fg(color),
            None => cell,
        }
    }

    pub(crate) fn color(self, color: Color) -> Self {
        Self { color: Some(color), ..self }
    }
}

/// Some text, which may be cut.
#[expect(clippy::needless_pass_by_value, reason = "a table is filled with whatever is at hand")]
pub(crate) fn text(value: impl ToString) -> Cell {
    Cell { text: printable(&value.to_string()), long: true, right: false, color: None }
}

/// Some text that is never cut.
pub(crate) fn whole(value: impl ToString) -> Cell {
    Cell { long: false, ..text(value) }
}

/// Some text, or a dash.
pub(crate) fn maybe(value: Option<impl ToString>) -> Cell {
    value.map_or_else(|| text("-"), text)
}

/// A number, at the right of its column.
pub(crate) fn number(value: impl ToString) -> Cell {
    Cell { right: true, ..whole(value) }
}

/// A state in its colour.
pub(crate) fn state(state: State) -> Cell {
    let cell = whole(state);
    match state {
        State::Succeeded => cell.color(Color::Green),
        State::Failed => cell.color(Color::Red),
        State::Active => cell.color(Color::Cyan),
        State::Scheduled | State::Cancelled => cell.color(Color::DarkGrey),
        State::Ready => cell,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_first_and_columns_at_the_right_go_last() {
        let mut table = Table::new(&["ID", "QUEUE", "N", "NOTE"]);
        table.row(vec![whole("0-0123456789"), text("a-queue-with-a-long-name"), number(7), text("x\ny ".repeat(10))]);
        let longest = |total| table.fit(total).lines().map(length).max().unwrap();
        assert!(table.fit(usize::MAX).contains("a-queue-with-a-long-name"));
        for total in [14, 20, 30, 40, 60, 90] {
            let drawn = table.fit(total);
            assert!(longest(total) <= total, "{total}:\n{drawn}");
            assert!(drawn.contains("0-0123456789"), "an id is never cut:\n{drawn}");
            assert_eq!(drawn.lines().count(), 2, "{drawn}");
        }
        assert!(table.fit(40).contains("a-queue-…") || table.fit(40).contains('…'));
        assert!(!table.fit(25).contains("NOTE"), "there is no room for it");
    }
}
