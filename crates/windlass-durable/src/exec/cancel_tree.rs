//! Scopes of cancellation: a tree with the run as its root.

use super::OpId;
use std::collections::BTreeSet;

/// The number of a scope of cancellation; 0 is the run.
pub(crate) type NodeId = u32;

#[derive(Default)]
struct Node {
    parent: NodeId,
    /// Cancellation from above stops here.
    shield: bool,
    cancelled: bool,
    open: BTreeSet<OpId>,
    below: Vec<NodeId>,
}

pub(crate) struct CancelTree {
    nodes: Vec<Node>,
    free: Vec<NodeId>,
}

impl Default for CancelTree {
    fn default() -> Self {
        Self { nodes: vec![Node::default()], free: Vec::new() }
    }
}

impl CancelTree {
    fn node(&mut self, id: NodeId) -> &mut Node {
        let id = id as usize;
        &mut self.nodes[id]
    }

    pub(crate) fn add(&mut self, parent: NodeId, shield: bool) -> NodeId {
        let node = Node { parent, shield, ..Node::default() };
        let id = match self.free.pop() {
            Some(id) => {
                *self.node(id) = node;
                id
            }
            None => {
                self.nodes.push(node);
                NodeId::try_from(self.nodes.len() - 1).unwrap_or(NodeId::MAX)
            }
        };
        self.node(parent).below.push(id);
        id
    }

    /// Frees the slot of a scope whose future is gone. A scope that a spawned task still uses keeps its slot.
    pub(crate) fn remove(&mut self, id: NodeId) {
        let node = self.node(id);
        if node.open.is_empty() && node.below.is_empty() {
            let parent = node.parent;
            self.node(parent).below.retain(|below| *below != id);
            self.free.push(id);
        }
    }

    pub(super) fn insert_op(&mut self, node: NodeId, op: OpId) {
        self.node(node).open.insert(op);
    }

    pub(super) fn remove_op(&mut self, node: NodeId, op: OpId) {
        self.node(node).open.remove(&op);
    }

    /// True when the scope, or one above it within the same shield, is cancelled.
    pub(crate) fn is_cancelled(&self, node: NodeId) -> bool {
        let mut next = node;
        loop {
            let node = &self.nodes[next as usize];
            if node.cancelled {
                return true;
            }
            if node.shield || next == 0 {
                return false;
            }
            next = node.parent;
        }
    }

    /// Marks a scope as cancelled. Returns the operations in it and below it, outside of shields, in no order. A second call
    /// returns none.
    pub(super) fn cancel(&mut self, node: NodeId) -> Vec<OpId> {
        let mut ops = Vec::new();
        if std::mem::replace(&mut self.node(node).cancelled, true) {
            return ops;
        }
        let mut todo = vec![node];
        while let Some(next) = todo.pop() {
            let node = &self.nodes[next as usize];
            ops.extend(node.open.iter().copied());
            todo.extend(node.below.iter().copied().filter(|below| !self.nodes[*below as usize].shield));
        }
        ops
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.nodes.capacity() * size_of::<Node>()
    }
}
