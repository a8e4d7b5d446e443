//! What can be said of a run before it begins.

use super::advance::rows_of;
use super::expr::{Expr, Place};
use super::model::{Fault, Graph, Source, Work};
use super::progress::{Outcome, Progress, Skip};
use super::scope::NodeScope;
use super::template::Template;
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// The nodes that no run with these inputs will run, and why. What depends on how a job ends is left open.
pub fn foresee(graph: &Graph, inputs: &Value) -> Result<Vec<Option<Skip>>, Fault> {
    Ok(look_ahead(graph, inputs)?.skips)
}

/// The labels that the jobs of one node require.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ForeseenLabels {
    /// Those that follow from the workflow and the inputs of the run.
    pub known: BTreeSet<String>,
    /// Those that depend on how jobs end, as they were written.
    pub open: Vec<Template>,
}

/// The labels that the jobs of each node will require in a run with these inputs. A node that is never run has none.
pub fn foresee_labels(graph: &Graph, inputs: &Value) -> Result<Vec<ForeseenLabels>, Fault> {
    let Foreseen { progress, skips } = look_ahead(graph, inputs)?;
    let of = |(node, skip): (usize, &Option<Skip>)| match skip {
        None => labels(&NodeScope { graph, progress: &progress, inputs, node, row: None }),
        Some(_) => ForeseenLabels::default(),
    };
    Ok(skips.iter().enumerate().map(of).collect())
}

/// A run before anything has happened.
struct Foreseen {
    /// The gates have the outputs that are known, nothing else has any.
    progress: Progress,
    skips: Vec<Option<Skip>>,
}

fn look_ahead(graph: &Graph, inputs: &Value) -> Result<Foreseen, Fault> {
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
    Ok(Foreseen { progress, skips })
}

fn labels(scope: &NodeScope<'_>) -> ForeseenLabels {
    let mut labels = ForeseenLabels::default();
    let node = &scope.graph.nodes[scope.node];
    let Work::Job(job) = &node.work else { return labels };
    // The rows of the matrix. `None`: they depend on how jobs end.
    let rows = match node.matrix.as_ref().map(|matrix| &matrix.source) {
        None => Some(vec![Map::new()]),
        Some(Source::Rows(rows)) => Some(rows.clone()),
        // A node whose rows cannot be read fails without a job.
        Some(Source::From(expr)) => is_fixed(expr, scope, false).then(|| rows_of(expr, scope).unwrap_or_default()),
    };
    for label in &job.labels {
        if label.exprs().all(|expr| is_fixed(expr, scope, rows.is_some())) {
            // Where the rows are not known, the label reads none of them.
            let rows = rows.as_ref().map_or_else(|| vec![None], |rows| rows.iter().map(Some).collect());
            labels.known.extend(rows.into_iter().map(|row| label.fill(&NodeScope { row, ..*scope })));
        } else {
            labels.open.push(label.clone());
        }
    }
    // A job with an empty label is refused and never waits for a worker.
    labels.known.remove("");
    labels
}

/// Whether an expression has its value before anything has run; `with_matrix` when the rows of the matrix are known.
fn is_fixed(expr: &Expr, scope: &NodeScope<'_>, with_matrix: bool) -> bool {
    let is_row = |place: &Place| place.parts.first().is_some_and(|root| root == "matrix");
    !expr.asks_status() && expr.paths().into_iter().all(|place| is_known(scope, place) || with_matrix && is_row(place))
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
        Value::String(text) => {
            Template::parse(text).is_ok_and(|template| template.exprs().all(|expr| is_fixed(expr, scope, false)))
        }
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
