//! What can be said of a run before it begins.

use super::expr::Expr;
use super::model::{Fault, Graph, Work};
use super::progress::{Outcome, Progress, Skip};
use super::scope::NodeScope;
use serde_json::Value;

/// The nodes that no run with these inputs will run, and why. What depends on how a job ends is left open.
pub fn foresee(graph: &Graph, inputs: &Value) -> Result<Vec<Option<Skip>>, Fault> {
    let order = graph.order()?;
    let progress = Progress::new(graph);
    let mut skips: Vec<Option<Skip>> = vec![None; graph.nodes.len()];
    for at in order {
        let scope = NodeScope { graph, progress: &progress, inputs, node: at, row: None };
        skips[at] = skip(&scope, &skips);
    }
    Ok(skips)
}

fn skip(scope: &NodeScope<'_>, skips: &[Option<Skip>]) -> Option<Skip> {
    let node = &scope.graph.nodes[scope.node];
    let known = |place: &super::expr::Place| matches!(place.parts[0].as_str(), "inputs" | "env");
    let never = |condition: &Expr| condition.foreseen(scope, &known) == Some(false);
    if node.condition.as_ref().is_some_and(never) {
        return Some(Skip::Condition);
    }
    let mut skipped = node.needs.iter().filter(|need| skips[need.node].is_some());
    let because = |node: usize| Some(Skip::Need { node, outcome: Outcome::Skipped });
    if node.condition.is_none() && matches!(node.work, Work::Join { .. }) {
        // It is skipped when all of it is.
        let first = skipped.next()?.node;
        return if skipped.count() + 1 == node.needs.len() { because(first) } else { None };
    }
    if node.condition.as_ref().is_some_and(Expr::asks_status) {
        return None;
    }
    skipped.find(|need| !need.accepts.skipped).and_then(|need| because(need.node))
}
