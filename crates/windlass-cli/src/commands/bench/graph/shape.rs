//! The graphs that are run, as the texts that people would write.

use super::super::noop::{Noop, QUEUE, pad};
use crate::failure::Failure;
use std::fmt::Write as _;
use std::sync::Arc;
use windlass::Job as _;
use windlass::core::graph::Graph;
use windlass::graph::yaml;

/// What all graphs of the bench are called: what a bench left is known by it.
pub(super) const NAME: &str = "windlass-bench";

/// Needs of a node of the graph that is only read; the first ones have fewer, which so many of the last make up for.
const EDGES: u32 = 5;
const MADE_UP: u32 = 15;

/// How nodes need each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// One, then all but two at once, then one.
    Diamond,
    /// One after the other.
    Chain,
    /// One after all of the others.
    Flow,
    /// Each after five of those before it.
    Dense,
}

impl Shape {
    /// The workflow with so many nodes, none of which does anything.
    pub(super) fn text(self, nodes: u32) -> String {
        let mut text = format!("name: {NAME}\njobs:\n");
        for n in 0..nodes {
            let needs: Vec<String> = self.needs(n, nodes).map(|need| format!("n{need}")).collect();
            let (kind, pad) = (Noop::KIND, pad(n));
            // A text that takes anything in cannot fail.
            let _ = write!(text, "  n{n}:\n    kind: {kind}\n    queue: {QUEUE}\n    with: {{ n: {n}, pad: {pad} }}\n");
            if !needs.is_empty() {
                let _ = writeln!(text, "    needs: [{}]", needs.join(", "));
            }
        }
        text
    }

    fn needs(self, n: u32, nodes: u32) -> std::ops::Range<u32> {
        let last = n + 1 == nodes;
        match self {
            Self::Diamond if last && nodes > 2 => 1..n,
            Self::Diamond => 0..n.min(1),
            Self::Chain => n.saturating_sub(1)..n,
            Self::Flow if last => 0..n,
            Self::Flow => 0..0,
            Self::Dense => n.saturating_sub(EDGES + u32::from(nodes - n <= MADE_UP))..n,
        }
    }

    /// The graph with so many nodes.
    pub(super) fn graph(self, nodes: u32) -> Result<Arc<Graph>, Failure> {
        Ok(Arc::new(read(&self.text(nodes))?))
    }
}

/// Reads what was written here.
pub(super) fn read(text: &str) -> Result<Graph, Failure> {
    let workflow = yaml::read("bench.yml", text).map_err(|problems| Failure::failed(problems.to_string()))?;
    Ok(workflow.graph)
}

#[cfg(test)]
mod tests {
    use super::Shape;

    fn needs(shape: Shape, nodes: u32) -> Vec<Vec<usize>> {
        let graph = shape.graph(nodes).unwrap();
        graph.check().unwrap();
        graph.nodes.iter().map(|node| node.needs.iter().map(|need| need.node).collect()).collect()
    }

    #[test]
    fn shapes_are_what_they_are_called() {
        assert_eq!(needs(Shape::Diamond, 4), [vec![], vec![0], vec![0], vec![1, 2]]);
        assert_eq!(needs(Shape::Diamond, 2), [vec![], vec![0]]);
        assert_eq!(needs(Shape::Chain, 3), [vec![], vec![0], vec![1]]);
        assert_eq!(needs(Shape::Flow, 3), [vec![], vec![], vec![0, 1]]);
        assert_eq!(needs(Shape::Dense, 100)[6], [1, 2, 3, 4, 5]);
        assert_eq!(needs(Shape::Dense, 100).concat().len(), 500);
        assert_eq!(needs(Shape::Diamond, 1_000).concat().len(), 998 + 998);
    }

    #[test]
    fn a_node_has_the_payload_of_every_other_bench() {
        let graph = Shape::Chain.graph(11).unwrap();
        let windlass::core::graph::Work::Job(job) = &graph.nodes[10].work else { panic!("it has a job") };
        assert_eq!(job.payload.to_string().len(), 100);
    }
}
