//! Whether a node reads only what it waits for.

use super::BuildError;
use serde_json::Value;
use windlass_core::graph::expr::Expr;
use windlass_core::graph::{Graph, Matrix, Node, Source, Template, Work};

/// The rule of YAML.
pub(super) fn is_name(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && name.chars().all(fits) && name.len() <= 100
}

pub(super) fn check(graph: &Graph, node: &Node) -> Result<(), BuildError> {
    let check_expr = |expr: &Expr| check_expr(graph, node, expr);
    let check_text = |text: &str| match Template::parse(text) {
        Ok(template) => template.exprs().try_for_each(check_expr),
        Err(error) => Err(BuildError::Expr { name: node.id.clone(), text: text.to_owned(), error }),
    };
    if let Some(condition) = &node.condition {
        check_expr(condition)?;
    }
    if let Some(Matrix { source: Source::From(expr), .. }) = &node.matrix {
        check_expr(expr)?;
    }
    node.env.values().try_for_each(|text| check_text(text))?;
    match &node.work {
        Work::Job(job) => each_text(&job.payload, &check_text),
        _ => Ok(()),
    }
}

fn check_expr(graph: &Graph, node: &Node, expr: &Expr) -> Result<(), BuildError> {
    for place in expr.paths() {
        let [root, read, ..] = &place.parts[..] else { continue };
        if root == "needs" && node.needs.iter().all(|need| graph.nodes[need.node].id != *read) {
            return Err(BuildError::NotNeeded { name: node.id.clone(), read: read.clone() });
        }
    }
    Ok(())
}

fn each_text(value: &Value, check: &impl Fn(&str) -> Result<(), BuildError>) -> Result<(), BuildError> {
    match value {
        Value::String(text) if text.contains("${{") => check(text),
        Value::Array(list) => list.iter().try_for_each(|one| each_text(one, check)),
        Value::Object(map) => map.values().try_for_each(|one| each_text(one, check)),
        _ => Ok(()),
    }
}
