//! What can be said of a run before it begins.

use super::expr::{Expr, Place};
use super::model::{Fault, Graph, Work};
use super::progress::{Outcome, Progress, Skip};
use super::scope::NodeScope;
use super::template::Template;
use serde_json::Value;

/// The nodes that no run with these inputs will run, and why. What depends on how a job ends is left open.
pub fn foresee(graph: &Graph, inputs: &Value) -> Result<Vec<Option<Skip>>, Fault> {
    let order = graph.order()?;
    let mut progress = Progress::new(graph);
    let mut skips: Vec<Option<Skip>> = vec![None; graph.nodes.len()];
    for at in order {
        let scope = NodeScope { graph, progress: &progress, inputs, node: at, row: None };
        skips[at] = skip(&scope, &skips);
        if let Work::Gate { inputs } = &graph.nodes[at].work {
            let given = inputs.iter().filter(|(_, value)| is_settled(&scope, value));
            let given =
                given.map(|(key, value)| (key.clone(), Template::fill_all(value, &scope).to_string())).collect();
            progress.nodes[at].outputs = given;
        }
    }
    Ok(skips)
}

/// Whether a place is there before anything has run.
fn is_known(scope: &NodeScope<'_>, place: &Place) -> bool {
    let parts: Vec<&str> = place.parts.iter().map(String::as_str).collect();
    match (parts[..].split_first(), scope.graph.nodes[scope.node].entrance) {
        (Some((&"inputs", [name, ..])), Some(gate)) => scope.progress.nodes[gate].outputs.contains_key(*name),
        (Some((&("inputs" | "env"), _)), _) => true,
        _ => false,
    }
}

/// Whether all texts of a value can be filled in before anything has run.
fn is_settled(scope: &NodeScope<'_>, value: &Value) -> bool {
    match value {
        Value::String(text) => Template::parse(text).is_ok_and(|template| {
            template
                .exprs()
                .all(|expr| !expr.asks_status() && expr.paths().into_iter().all(|place| is_known(scope, place)))
        }),
        Value::Array(list) => list.iter().all(|one| is_settled(scope, one)),
        Value::Object(map) => map.values().all(|one| is_settled(scope, one)),
        Value::Null | Value::Bool(_) | Value::Number(_) => true,
    }
}

fn skip(scope: &NodeScope<'_>, skips: &[Option<Skip>]) -> Option<Skip> {
    let node = &scope.graph.nodes[scope.node];
    let never = |condition: &Expr| condition.foreseen(scope, &|place| is_known(scope, place)) == Some(false);
    if let Some(gate) = node.entrance.filter(|&gate| skips[gate].is_some()) {
        return Some(Skip::Need { node: gate, outcome: Outcome::Skipped });
    }
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
