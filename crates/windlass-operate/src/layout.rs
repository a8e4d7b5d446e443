//! The layout of a graph: a column for each level, rows near what they are joined to, and lanes for the lines between
//! columns. A drawing adds characters or shapes.

use std::collections::BTreeSet;
use windlass::core::graph::Graph;

/// Parts of a row: means of rows are computed in these units.
const PARTS: usize = 64;

/// The first row; items may be moved above it.
const FIRST: usize = 64;

/// What has a place in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// A node, by its number.
    Node(usize),
    /// The line of a node that passes the column.
    Pass(usize),
}

impl Item {
    /// The node whose line leaves from here.
    pub fn source(self) -> usize {
        match self {
            Self::Node(node) | Self::Pass(node) => node,
        }
    }
}

/// An item and its row.
#[derive(Clone, Copy, Debug)]
pub struct Placed {
    /// The item.
    pub item: Item,
    /// Its row. Rows at the top may be empty.
    pub row: usize,
}

/// Where the nodes of a graph are drawn.
#[derive(Debug)]
pub struct Layout {
    /// The items of each column, from the top.
    pub columns: Vec<Vec<Placed>>,
    /// For each node those that need it, without those that follow from the rest.
    later: Vec<Vec<usize>>,
    levels: Vec<usize>,
}

impl Layout {
    /// Whether a line leads from an item of a column to one of the next column.
    pub fn joins(&self, from: Item, column: usize, to: Item) -> bool {
        let source = from.source();
        match to {
            Item::Node(node) => self.later[source].contains(&node),
            Item::Pass(node) => node == source && self.last(source) > column + 1,
        }
    }

    /// The last column to which a line of the node leads.
    fn last(&self, node: usize) -> usize {
        self.later[node].iter().map(|&later| self.levels[later]).max().unwrap_or(0)
    }
}

/// Lays a graph out; `levels` are the columns of its nodes, see [`Graph::levels`].
pub fn place(graph: &Graph, levels: &[usize]) -> Layout {
    let mut layout = Layout { columns: Vec::new(), later: reduced(graph, levels), levels: levels.to_vec() };
    let count = levels.iter().max().map_or(0, |most| most + 1);
    for column in 0..count {
        let nodes = (0..levels.len()).filter(|&node| levels[node] == column).map(Item::Node);
        let passes =
            (0..levels.len()).filter(|&node| levels[node] < column && layout.last(node) > column).map(Item::Pass);
        layout.columns.push(nodes.chain(passes).zip(FIRST..).map(|(item, row)| Placed { item, row }).collect());
    }
    for column in 1..count {
        align(&mut layout, column, column - 1, true);
    }
    for column in (0..count.saturating_sub(1)).rev() {
        align(&mut layout, column, column + 1, false);
    }
    for column in 1..count {
        align(&mut layout, column, column - 1, false);
    }
    layout
}

/// Moves the items of a column next to those of another column that they are joined to.
fn align(layout: &mut Layout, column: usize, other: usize, reorder: bool) {
    let mean_row = |item: Item| {
        let joined = |to: &&Placed| match other < column {
            true => layout.joins(to.item, other, item),
            false => layout.joins(item, column, to.item),
        };
        let rows: Vec<usize> = layout.columns[other].iter().filter(joined).map(|to| to.row).collect();
        (!rows.is_empty()).then(|| rows.iter().sum::<usize>() * PARTS / rows.len())
    };
    let own = |placed: &Placed| placed.row * PARTS;
    let mut wanted: Vec<(usize, Placed)> = layout.columns[column]
        .iter()
        .map(|placed| (mean_row(placed.item).unwrap_or_else(|| own(placed)), *placed))
        .collect();
    if reorder {
        wanted.sort_by_key(|(row, _)| *row);
    }
    let mut next = 0;
    let mut rows = Vec::with_capacity(wanted.len());
    // Items that want the same row are placed around it.
    for alike in wanted.chunk_by(|a, b| a.0 == b.0) {
        next = (alike[0].0 / PARTS).saturating_sub((alike.len() - 1) / 2).max(next);
        rows.extend(alike.iter().zip(next..).map(|((_, placed), row)| Placed { row, ..*placed }));
        next += alike.len();
    }
    layout.columns[column] = rows;
}

/// For each node those that need it. A need that follows from other needs is left out: its line would say nothing new.
fn reduced(graph: &Graph, levels: &[usize]) -> Vec<Vec<usize>> {
    let count = graph.nodes.len();
    // For each node a bit for each node that must end before it.
    let words = count.div_ceil(64);
    let mut before = vec![vec![0_u64; words]; count];
    let mut later = vec![Vec::new(); count];
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by_key(|&node| levels[node]);
    for at in order {
        let mut needs: Vec<usize> = graph.nodes[at].needs.iter().map(|need| need.node).collect();
        needs.retain(|&need| levels[need] < levels[at]);
        needs.sort_unstable();
        needs.dedup();
        let mut ended = vec![0; words];
        for &need in &needs {
            ended.iter_mut().zip(&before[need]).for_each(|(word, bits)| *word |= bits);
        }
        needs.retain(|&need| ended[need / 64] & (1 << (need % 64)) == 0);
        needs.iter().for_each(|&need| ended[need / 64] |= 1 << (need % 64));
        before[at] = ended;
        needs.into_iter().for_each(|need| later[need].push(at));
    }
    later
}

/// Rows of two neighbouring columns that are joined by one line.
#[derive(Clone, Debug)]
pub struct Net {
    /// Rows of the left column.
    pub from: BTreeSet<usize>,
    /// Rows of the right column.
    pub to: BTreeSet<usize>,
    /// The lane of its vertical part, from the left; `None` when the line is straight.
    pub lane: Option<usize>,
}

impl Net {
    /// The first and the last row of its vertical part.
    pub fn rows(&self) -> (usize, usize) {
        let rows = || self.from.iter().chain(&self.to).copied();
        (rows().min().unwrap_or(0), rows().max().unwrap_or(0))
    }
}

/// The nets between each column and the next one; `rows` turns the row of an item and its column into the drawn row. `None`
/// when nets would have to go around each other.
pub fn nets(layout: &Layout, rows: &dyn Fn(usize, usize) -> usize) -> Option<Vec<Vec<Net>>> {
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
        with_lanes(nets)
    };
    (0..layout.columns.len().saturating_sub(1)).map(between).collect()
}

/// Gives each net its lane. A net that begins in the row in which another one ends must turn off before it.
fn with_lanes(mut nets: Vec<Net>) -> Option<Vec<Net>> {
    let bent: Vec<usize> = (0..nets.len()).filter(|&at| nets[at].rows().0 < nets[at].rows().1).collect();
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

#[cfg(test)]
mod tests {
    use super::*;
    use windlass::graph::yaml;

    #[test]
    fn a_long_chain_has_no_lines_for_needs_that_follow_from_others() {
        let needs = |node: usize| match node {
            0 => String::new(),
            1 => "j0".to_owned(),
            node => format!("j{}, j0", node - 1),
        };
        let jobs: String = (0..70).map(|node| format!("  j{node}: {{ run: x, needs: [{}] }}\n", needs(node))).collect();
        let graph = yaml::read("g.yml", &format!("jobs:\n{jobs}")).unwrap().graph;
        let layout = place(&graph, &graph.levels().unwrap());
        assert_eq!(layout.columns.len(), 70);
        assert!(layout.columns.iter().all(|column| matches!(column[..], [Placed { item: Item::Node(_), .. }])));
        let nets = nets(&layout, &|row, _| row).unwrap();
        assert!(nets.iter().all(|nets| nets.len() == 1 && nets[0].lane.is_none()), "every line is straight");
    }
}
