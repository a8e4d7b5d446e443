//! The lines between columns. Items that lead to the same ones share a lane; a line that only crosses another is drawn over it.

use super::place::{Item, Layout, Placed};
use super::{Canvas, Label, Line};
use crate::ui::DIM;
use anstyle::Style;
use std::collections::BTreeSet;

/// Rows that are joined by one line from top to bottom.
#[derive(Debug)]
struct Net {
    from: BTreeSet<usize>,
    to: BTreeSet<usize>,
    /// Which lane it takes; one that goes straight ahead takes none.
    lane: Option<usize>,
}

impl Net {
    fn reach(&self) -> (usize, usize) {
        let rows = || self.from.iter().chain(&self.to).copied();
        (rows().min().unwrap_or(0), rows().max().unwrap_or(0))
    }
}

/// The picture. Where lanes would have to go around each other, columns are shifted against each other by half a row.
pub(super) fn draw(layout: &Layout, labels: &[Label], canvas: Canvas) -> Vec<Line> {
    let straight = |row: usize, _: usize| row;
    let shifted = |row: usize, column: usize| 2 * row + column % 2;
    let nets = gutters(layout, &straight);
    let (nets, rows): (_, &dyn Fn(usize, usize) -> usize) = match nets {
        Some(nets) => (nets, &straight),
        None => (gutters(layout, &shifted).unwrap_or_default(), &shifted),
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

/// The nets between each column and the next one; nothing when some would have to go around each other.
fn gutters(layout: &Layout, rows: &dyn Fn(usize, usize) -> usize) -> Option<Vec<Vec<Net>>> {
    let between = |at: usize| {
        let mut nets: Vec<Net> = Vec::new();
        for from in &layout.columns[at] {
            let next = layout.columns.get(at + 1)?;
            let joined = next.iter().filter(|to| layout.joins(from.item, at, to.item));
            let to: BTreeSet<usize> = joined.map(|to| rows(to.row, at + 1)).collect();
            let row = rows(from.row, at);
            match nets.iter_mut().find(|net| net.to == to) {
                _ if to.is_empty() => {}
                Some(net) => drop(net.from.insert(row)),
                None => nets.push(Net { from: BTreeSet::from([row]), to, lane: None }),
            }
        }
        laned(nets)
    };
    (0..layout.columns.len().saturating_sub(1)).map(between).collect()
}

/// Gives each net its lane: where one begins in a row in which another ends, it must turn off first.
fn laned(mut nets: Vec<Net>) -> Option<Vec<Net>> {
    let bent: Vec<usize> = (0..nets.len()).filter(|&at| nets[at].reach().0 < nets[at].reach().1).collect();
    let first = |a: usize, b: usize| a != b && nets[a].from.iter().any(|row| nets[b].to.contains(row));
    let mut left = bent;
    let mut order = Vec::new();
    while !left.is_empty() {
        let free = left.iter().position(|&at| left.iter().all(|&other| !first(other, at)))?;
        order.push(left.remove(free));
    }
    for (lane, at) in order.into_iter().enumerate() {
        nets[at].lane = Some(lane);
    }
    Some(nets)
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
    let (top, bottom) = here.reach();
    if row < top || row > bottom {
        return [false, right, false, left];
    }
    if !here.from.contains(&row) && !here.to.contains(&row) {
        // It only crosses, and is drawn over what it crosses.
        return [true, false, true, false];
    }
    [row > top, right, row < bottom, left]
}
