//! What an engine remembers of runs, so that a step costs what is new and not what has been.

use super::mind::Mind;
use std::collections::HashMap;
use std::sync::Arc;
use windlass_core::graph::Graph;
use windlass_core::id::RunId;

/// Nodes of all runs that are remembered together.
const NODES_MAX: usize = 500_000;
/// Graphs that are remembered though no run of them is.
const GRAPHS_MAX: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Cache {
    minds: HashMap<RunId, (u64, Mind)>,
    graphs: HashMap<[u8; 16], Arc<Graph>>,
    nodes: usize,
    clock: u64,
}

impl Cache {
    /// What is known of a run. Whoever takes it puts it back when the store agrees.
    pub(super) fn take(&mut self, run: RunId) -> Option<Mind> {
        let (_, mind) = self.minds.remove(&run)?;
        self.nodes -= mind.graph.nodes.len();
        Some(mind)
    }

    pub(super) fn put(&mut self, mind: Mind) {
        self.clock += 1;
        self.nodes += mind.graph.nodes.len();
        if let Some((_, old)) = self.minds.insert(mind.run, (self.clock, mind)) {
            self.nodes -= old.graph.nodes.len();
        }
        if self.nodes > NODES_MAX {
            self.forget_half();
        }
    }

    fn forget_half(&mut self) {
        let mut stamps: Vec<u64> = self.minds.values().map(|(stamp, _)| *stamp).collect();
        let middle = stamps.len() / 2;
        let (_, &mut edge, _) = stamps.select_nth_unstable(middle);
        self.minds.retain(|_, (stamp, _)| *stamp > edge);
        self.nodes = self.minds.values().map(|(_, mind)| mind.graph.nodes.len()).sum();
    }

    pub(super) fn graph(&self, hash: [u8; 16]) -> Option<Arc<Graph>> {
        self.graphs.get(&hash).cloned()
    }

    pub(super) fn put_graph(&mut self, hash: [u8; 16], graph: Arc<Graph>) {
        if self.graphs.len() >= GRAPHS_MAX {
            self.graphs.retain(|_, graph| Arc::strong_count(graph) > 1);
        }
        if self.graphs.len() >= 4 * GRAPHS_MAX {
            self.graphs.clear();
        }
        self.graphs.insert(hash, graph);
    }
}
