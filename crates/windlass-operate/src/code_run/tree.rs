//! A code run and the runs below it. Children are found by the histories of their parents.

use super::history::{numbered, read_part};
use super::{is_code, read_brief};
use crate::error::OperateError;
use serde::Serialize;
use std::collections::HashSet;
use windlass::core::id::RunId;
use windlass::core::store::{BATCH_MAX, Run, RunRead, RunState, Store};
use windlass::durable::record::{Entry, Request};

/// Levels of a tree below its root.
pub const DEPTH_MAX: usize = 16;
/// Runs of a tree, without its root.
pub const CHILDREN_MAX: usize = 1_000;

/// A run with its children, as `windlass runs tree --json` prints it.
#[derive(Clone, Debug, Serialize)]
pub struct RunTree {
    /// The run.
    pub run: RunId,
    /// The name of the run: its custom id, or the name of its workflow.
    pub name: String,
    /// The kind of the run.
    pub kind: String,
    /// The state of the run.
    pub state: RunState,
    /// Why no engine can advance it.
    pub stuck: Option<String>,
    /// What it waits for, in short.
    pub summary: String,
    /// Its children, in the order in which it created them.
    pub children: Vec<RunTree>,
    /// Children that are left out: too many, too deep, or not in the store any more.
    pub omitted: u64,
}

impl RunTree {
    fn new(run: Run) -> Self {
        let Run { id, name, kind, state, stuck, summary, .. } = run;
        Self { run: id, name, kind: kind.to_string(), state, stuck, summary, children: Vec::new(), omitted: 0 }
    }
}

/// A run whose children are read; the parent is an index of the same list.
struct Node {
    tree: RunTree,
    parent: usize,
    level: usize,
}

/// Reads a run and the runs below it, at most [`CHILDREN_MAX`] on [`DEPTH_MAX`] levels.
pub async fn read_tree(store: &dyn Store, root: RunId) -> Result<RunTree, OperateError> {
    let root = read_brief(store, root).await?;
    let mut found = HashSet::from([root.id]);
    let mut is_open = vec![is_code(&root)];
    let mut nodes = vec![Node { tree: RunTree::new(root), parent: 0, level: 0 }];
    let mut next = 0;
    while next < nodes.len() {
        let (run, level) = (nodes[next].tree.run, nodes[next].level);
        let mut children = if is_open[next] { child_ids(store, run).await? } else { Vec::new() };
        children.retain(|child| found.insert(*child));
        let room = if level == DEPTH_MAX { 0 } else { (CHILDREN_MAX + 1).saturating_sub(nodes.len()) };
        let wanted = children.len();
        children.truncate(room);
        let runs = read_children(store, run, &children).await?;
        nodes[next].tree.omitted = (wanted - runs.len()) as u64;
        for run in runs {
            is_open.push(is_code(&run));
            nodes.push(Node { tree: RunTree::new(run), parent: next, level: level + 1 });
        }
        next += 1;
    }
    Ok(nested(nodes))
}

/// The children that a run has requested in all its segments.
async fn child_ids(store: &dyn Store, run: RunId) -> Result<Vec<RunId>, OperateError> {
    let (mut ids, mut from) = (Vec::new(), 0);
    while ids.len() <= CHILDREN_MAX && from < super::RECORDS_MAX {
        let part = read_part(store, run, from).await?;
        let records = numbered(&part, from)?;
        if records.is_empty() {
            break;
        }
        from += records.len() as u64;
        ids.extend(records.iter().filter_map(|numbered| match &numbered.record.entry {
            Entry::Command(command) => match command.request {
                Request::Child { run, .. } => Some(run),
                _ => None,
            },
            _ => None,
        }));
        if from >= part.run.history_len {
            break;
        }
    }
    Ok(ids)
}

/// The children that the store has. A run of another parent under the same id is none of them.
async fn read_children(store: &dyn Store, parent: RunId, ids: &[RunId]) -> Result<Vec<Run>, OperateError> {
    let mut runs = Vec::with_capacity(ids.len());
    for some in ids.chunks(BATCH_MAX) {
        let views = store.read_runs(some.iter().map(|id| RunRead::brief(*id)).collect()).await?;
        let views = views.into_iter().flatten().map(|view| view.run);
        runs.extend(views.filter(|run| run.parent == Some(parent)));
    }
    Ok(runs)
}

/// Moves each run below its parent. Parents stand before their children in the list.
fn nested(mut nodes: Vec<Node>) -> RunTree {
    while nodes.len() > 1 {
        let Some(Node { mut tree, parent, .. }) = nodes.pop() else { break };
        tree.children.reverse();
        nodes[parent].tree.children.push(tree);
    }
    let mut root = nodes.swap_remove(0).tree;
    root.children.reverse();
    root
}
