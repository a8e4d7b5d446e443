//! The lines between columns, in characters. A line that crosses another one is drawn over it.

use super::{Canvas, Label, Line};
use crate::ui::DIM;
use anstyle::Style;
use windlass_operate::layout::{Item, Layout, Net, Placed, nets};

/// The picture. Where lanes would have to go around each other, columns are shifted against each other by half a row.
pub(super) fn draw(layout: &Layout, labels: &[Label], canvas: Canvas) -> Vec<Line> {
    let straight = |row: usize, _: usize| row;
    let shifted = |row: usize, column: usize| 2 * row + column % 2;
    let (nets, rows): (_, &dyn Fn(usize, usize) -> usize) = match nets(layout, &straight) {
        Some(nets) => (nets, &straight),
        None => (nets(layout, &shifted).unwrap_or_default(), &shifted),
    };
    let height = layout.columns.iter().enumerate();
    let height = height.flat_map(|(at, column)| column.iter().map(move |placed| rows(placed.row, at) + 1)).max();
    let mut picture = Picture { lines: vec![Line::default(); height.unwrap_or(0)], canvas };
    for (at, column) in layout.columns.iter().enumerate() {
        let column: Vec<Placed> = column.iter().map(|placed| Placed { row: rows(placed.row, at), ..*placed }).collect();
        picture.column(&column, labels, nets.get(at));
        if let Some(nets) = nets.get(at) {
            picture.gutter(nets);
        }
    }
    let first = picture.lines.iter().position(|line| line.cells.iter().any(|(c, _)| *c != ' ')).unwrap_or(0);
    picture.lines.split_off(first)
}

struct Picture {
    lines: Vec<Line>,
    canvas: Canvas,
}

impl Picture {
    fn column(&mut self, column: &[Placed], labels: &[Label], next: Option<&Vec<Net>>) {
        let width = |placed: &Placed| match placed.item {
            Item::Node(node) => labels[node].width(),
            Item::Pass(_) => 0,
        };
        let widest = column.iter().map(width).max().unwrap_or(0);
        let across = self.glyph([false, true, false, true]);
        for (row, line) in self.lines.iter_mut().enumerate() {
            let end = line.width() + widest + 1;
            let mut fill = ' ';
            if let Some(placed) = column.iter().find(|placed| placed.row == row) {
                match placed.item {
                    Item::Node(node) => {
                        line.cells.extend(&labels[node].cells);
                        line.put(' ', Style::new());
                    }
                    Item::Pass(_) => {
                        // It goes on from where the gutter left a blank before a name.
                        if let Some(last) = line.cells.last_mut() {
                            *last = (across, DIM);
                        }
                    }
                }
                if next.is_some_and(|nets| nets.iter().any(|net| net.from.contains(&row))) {
                    fill = across;
                }
            }
            while line.width() < end {
                line.put(fill, DIM);
            }
        }
    }

    fn gutter(&mut self, nets: &[Net]) {
        let lanes = nets.iter().filter(|net| net.lane.is_some()).count();
        // A lane, a step between two, one step before them and one behind.
        let width = (2 * lanes).saturating_sub(1) + 2;
        for row in 0..self.lines.len() {
            for x in 0..width {
                let glyph = self.glyph(sides(nets, row, x));
                self.lines[row].put(glyph, DIM);
            }
            self.lines[row].put(' ', DIM);
        }
    }

    /// The sign that has these sides: up, right, down, left.
    fn glyph(&self, sides: [bool; 4]) -> char {
        let (sign, plain) = match sides {
            [false, false, false, false] => (' ', ' '),
            [false, _, false, _] => ('─', '-'),
            [_, false, _, false] => ('│', '|'),
            [true, true, false, false] => ('└', '+'),
            [false, true, true, false] => ('┌', '+'),
            [true, false, false, true] => ('┘', '+'),
            [false, false, true, true] => ('┐', '+'),
            [true, true, true, false] => ('├', '+'),
            [true, false, true, true] => ('┤', '+'),
            [false, true, true, true] => ('┬', '+'),
            [true, true, false, true] => ('┴', '+'),
            [true, true, true, true] => ('┼', '+'),
        };
        if self.canvas.ascii { plain } else { sign }
    }
}

/// Which sides of a cell are joined: up, right, down, left.
fn sides(nets: &[Net], row: usize, x: usize) -> [bool; 4] {
    let lane_x = |net: &Net| net.lane.map(|lane| 1 + 2 * lane);
    // Lines along the row at its left and its right.
    let (mut left, mut right) = (false, false);
    for net in nets {
        let (from, to) = (net.from.contains(&row), net.to.contains(&row));
        match lane_x(net) {
            None => {
                left |= from;
                right |= from;
            }
            Some(lane) => {
                left |= from && x <= lane || to && x > lane;
                right |= from && x < lane || to && x >= lane;
            }
        }
    }
    let Some(here) = nets.iter().find(|net| lane_x(net) == Some(x)) else { return [false, right, false, left] };
    let (top, bottom) = here.rows();
    if row < top || row > bottom {
        return [false, right, false, left];
    }
    if !here.from.contains(&row) && !here.to.contains(&row) {
        // It only crosses, and is drawn over what it crosses.
        return [true, false, true, false];
    }
    [row > top, right, row < bottom, left]
}
