//! Workflows within workflows: their jobs become jobs of the one around them, between an entrance and an exit.

use super::workflow::Workflow;
use serde::Serialize;
use std::ops::Range;
use std::rc::Rc;
use windlass_core::graph::{Accepts, Need, Node, Work};

/// The name of an entrance behind that of its job: no job can have it.
const ENTRANCE: &str = "/>";

/// One entry under `jobs`, with needs that count entries.
pub(super) struct Part {
    /// The job, or the entrance of a workflow.
    pub(super) node: Node,
    /// The workflow that it is.
    pub(super) inner: Option<Rc<Workflow>>,
}

impl Part {
    /// How many nodes it comes to.
    pub(super) fn size(&self) -> usize {
        self.inner.as_ref().map_or(1, |inner| inner.graph.nodes.len() + 2)
    }

    /// At least so many bytes it comes to in the definition of a run.
    pub(super) fn bytes(&self) -> usize {
        let inner = self.inner.as_ref().map_or(0, |inner| {
            // Each of its nodes gets a copy of its environment.
            let env = json_bytes(&inner.graph.env).saturating_mul(inner.graph.nodes.len() + 1);
            json_bytes(&inner.graph.nodes).saturating_add(env)
        });
        inner.saturating_add(json_bytes(&self.node))
    }
}

/// The length of a value as JSON.
fn json_bytes(value: &impl Serialize) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // A value that has no JSON is refused where it is stored.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}

/// All nodes, with needs that count nodes, and where each says what it needs.
pub(super) fn splice(parts: Vec<Part>, spans: Vec<Range<usize>>) -> (Vec<Node>, Vec<Range<usize>>) {
    let mut ends = Vec::with_capacity(parts.len());
    let mut size = 0;
    for part in &parts {
        size += part.size();
        ends.push(size - 1);
    }
    let mut nodes = Vec::with_capacity(size);
    let mut places = Vec::with_capacity(size);
    for (Part { mut node, inner }, span) in parts.into_iter().zip(spans) {
        node.needs.iter_mut().for_each(|need| need.node = ends[need.node]);
        match inner {
            None => nodes.push(node),
            Some(inner) => enclose(&mut nodes, node, &inner),
        }
        places.resize(nodes.len(), span);
    }
    (nodes, places)
}

/// Adds a workflow: its entrance, its jobs, its exit.
fn enclose(nodes: &mut Vec<Node>, mut gate: Node, inner: &Workflow) {
    let (id, title, entrance) = (gate.id.clone(), gate.title.take(), nodes.len());
    let first = entrance + 1;
    let exit = first + inner.graph.nodes.len();
    let forgiven = std::mem::take(&mut gate.continue_on_error);
    gate.id += ENTRANCE;
    nodes.push(gate);
    let mut needs = Vec::new();
    for (at, node) in inner.graph.nodes.iter().enumerate() {
        let mut node = node.clone();
        node.id = format!("{id}/{}", node.id);
        node.needs.iter_mut().for_each(|need| need.node += first);
        if node.needs.is_empty() {
            node.needs.push(Need { node: entrance, accepts: Accepts::default() });
        }
        // What is deeper inside is told by its own exit.
        if node.inside.is_none() && !matches!(node.work, Work::Gate { .. }) {
            needs.push(Need { node: first + at, accepts: Accepts::ANY });
        }
        node.inside = Some(node.inside.map_or(exit, |inside| inside + first));
        node.entrance = Some(node.entrance.map_or(entrance, |gate| gate + first));
        let mut env = inner.graph.env.clone();
        env.append(&mut node.env);
        node.env = env;
        nodes.push(node);
    }
    nodes.push(Node {
        id,
        title,
        needs,
        condition: None,
        matrix: None,
        continue_on_error: forgiven,
        inside: None,
        entrance: Some(entrance),
        env: inner.graph.env.clone(),
        work: Work::Join { outputs: inner.outputs.clone() },
    });
}
