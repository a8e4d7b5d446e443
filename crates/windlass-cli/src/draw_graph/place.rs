//! Where everything stands: columns by level, rows near those they belong to.

use windlass::core::graph::Graph;

/// Parts of a row, to tell wishes apart.
const PARTS: usize = 64;

/// The row to begin with: there is room above it. Rows at the top in which nothing stands are not drawn.
const FIRST: usize = 64;

/// What stands at one place of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Item {
    /// A node.
    Node(usize),
    /// The line of a node on its way past a column.
    Pass(usize),
}

impl Item {
    /// The node whose line leaves here.
    pub(super) fn source(self) -> usize {
        match self {
            Self::Node(node) | Self::Pass(node) => node,
        }
    }
}

/// An item and the row it stands in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed {
    pub(super) item: Item,
    pub(super) row: usize,
}

/// Columns, and who is drawn behind each node.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) columns: Vec<Vec<Placed>>,
    pub(super) later: Vec<Vec<usize>>,
    pub(super) levels: Vec<usize>,
}

impl Layout {
    /// What an item of a column is joined to in the next one.
    pub(super) fn joins(&self, from: Item, column: usize, to: Item) -> bool {
        let source = from.source();
        match to {
            Item::Node(node) => self.later[source].contains(&node),
            Item::Pass(node) => node == source && self.last(source) > column + 1,
        }
    }

    /// The last column that the line of a node leads to.
    fn last(&self, node: usize) -> usize {
        self.later[node].iter().map(|&later| self.levels[later]).max().unwrap_or(0)
    }
}

pub(super) fn place(graph: &Graph, levels: &[usize]) -> Layout {
    let mut layout = Layout { columns: Vec::new(), later: reduced(graph, levels), levels: levels.to_vec() };
    let count = levels.iter().max().map_or(0, |most| most + 1);
    for column in 0..count {
        let nodes = (0..levels.len()).filter(|&node| levels[node] == column).map(Item::Node);
        let passes =
            (0..levels.len()).filter(|&node| levels[node] < column && layout.last(node) > column).map(Item::Pass);
        layout.columns.push(nodes.chain(passes).zip(FIRST..).map(|(item, row)| Placed { item, row }).collect());
    }
    for column in 1..count {
        settle(&mut layout, column, column - 1, true);
    }
    for column in (0..count.saturating_sub(1)).rev() {
        settle(&mut layout, column, column + 1, false);
    }
    for column in 1..count {
        settle(&mut layout, column, column - 1, false);
    }
    layout
}

/// Moves the items of a column next to those of another that they are joined to. Their order is theirs to choose once.
fn settle(layout: &mut Layout, column: usize, other: usize, reorder: bool) {
    let wish = |item: Item| {
        let joined = |to: &&Placed| match other < column {
            true => layout.joins(to.item, other, item),
            false => layout.joins(item, column, to.item),
        };
        let rows: Vec<usize> = layout.columns[other].iter().filter(joined).map(|to| to.row).collect();
        (!rows.is_empty()).then(|| rows.iter().sum::<usize>() * PARTS / rows.len())
    };
    let own = |placed: &Placed| placed.row * PARTS;
    let mut wished: Vec<(usize, Placed)> = layout.columns[column]
        .iter()
        .map(|placed| (wish(placed.item).unwrap_or_else(|| own(placed)), *placed))
        .collect();
    if reorder {
        wished.sort_by_key(|(wish, _)| *wish);
    }
    let mut next = 0;
    let mut rows = Vec::with_capacity(wished.len());
    // Those that wish for the same row stand around it.
    for alike in wished.chunk_by(|a, b| a.0 == b.0) {
        next = (alike[0].0 / PARTS).saturating_sub((alike.len() - 1) / 2).max(next);
        rows.extend(alike.iter().zip(next..).map(|((_, placed), row)| Placed { row, ..*placed }));
        next += alike.len();
    }
    layout.columns[column] = rows;
}

/// Who is needed by whom, without what follows from the rest: a line that goes round is not drawn beside it.
fn reduced(graph: &Graph, levels: &[usize]) -> Vec<Vec<usize>> {
    let count = graph.nodes.len();
    // As many as are drawn fit into the bits.
    let mut before = vec![0_u64; count];
    let mut later = vec![Vec::new(); count];
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by_key(|&node| levels[node]);
    for at in order {
        let mut needs: Vec<usize> = graph.nodes[at].needs.iter().map(|need| need.node).collect();
        needs.retain(|&need| levels[need] < levels[at]);
        needs.sort_unstable();
        needs.dedup();
        let around = needs.iter().fold(0, |bits, &need| bits | before[need]);
        before[at] = needs.iter().fold(around, |bits, &need| bits | 1 << need);
        needs.retain(|&need| around & (1 << need) == 0);
        needs.into_iter().for_each(|need| later[need].push(at));
    }
    later
}
