//! What the expressions of a node can read.

use super::expr::Scope;
use super::model::Graph;
use super::progress::{Outcome, Progress};
use serde_json::{Map, Value};

/// The data of one node, or of one instance of it.
#[derive(Debug)]
pub struct NodeScope<'s> {
    /// The graph.
    pub graph: &'s Graph,
    /// Where its run stands.
    pub progress: &'s Progress,
    /// The inputs of the run.
    pub inputs: &'s Value,
    /// The node.
    pub node: usize,
    /// The row of its matrix.
    pub row: Option<&'s Map<String, Value>>,
}

impl NodeScope<'_> {
    /// The node of this name among those that are needed. Inside a sub-graph, names are those of the sub-graph.
    fn needed(&self, name: &str) -> Option<usize> {
        let prefix = self.graph.prefix(self.node);
        let is_named = |id: &str| id.strip_prefix(&prefix) == Some(name) || id == name;
        self.graph.nodes[self.node].needs.iter().map(|need| need.node).find(|&at| is_named(&self.graph.nodes[at].id))
    }

    /// The entrance of the sub-graph around it and how that ended, unless it was passed.
    pub fn shut(&self) -> Option<(usize, Outcome)> {
        let gate = self.graph.nodes[self.node].entrance?;
        match self.progress.nodes.get(gate)?.outcome {
            Some(Outcome::Succeeded) => None,
            outcome => Some((gate, outcome.unwrap_or(Outcome::Skipped))),
        }
    }

    /// The inputs that it reads: those of the run, or what the sub-graph around it was given.
    fn input(&self, path: &[String]) -> Option<Value> {
        let Some(gate) = self.graph.nodes[self.node].entrance else { return inside(self.inputs, path) };
        let (name, rest) = path.split_first()?;
        let text = self.progress.nodes.get(gate)?.outputs.get(name)?;
        inside(&serde_json::from_str(text).ok()?, rest)
    }

    /// The first need that ended in a way that is not accepted.
    pub fn refused(&self) -> Option<(usize, Outcome)> {
        self.graph.nodes[self.node].needs.iter().find_map(|need| {
            let outcome = self.progress.nodes[need.node].outcome.unwrap_or(Outcome::Skipped);
            let accepted = match outcome {
                Outcome::Succeeded => need.accepts.succeeded,
                Outcome::Failed => {
                    need.accepts.failed || need.accepts.succeeded && self.graph.nodes[need.node].continue_on_error
                }
                Outcome::Skipped => need.accepts.skipped,
                Outcome::Cancelled => need.accepts.cancelled,
            };
            (!accepted).then_some((need.node, outcome))
        })
    }
}

impl Scope for NodeScope<'_> {
    fn at(&self, path: &[String]) -> Option<Value> {
        let (root, rest) = path.split_first()?;
        let of = |map: &std::collections::BTreeMap<String, String>, key: &str| map.get(key).cloned().map(Value::String);
        match (root.as_str(), rest) {
            ("needs" | "jobs", [name, field]) if field == "result" => {
                let outcome = self.progress.nodes[self.needed(name)?].outcome?;
                Some(Value::String(outcome.name().to_owned()))
            }
            ("needs" | "jobs", [name, field, key]) if field == "outputs" => {
                of(&self.progress.nodes[self.needed(name)?].outputs, key)
            }
            ("env", [key]) => of(&self.graph.nodes[self.node].env, key).or_else(|| of(&self.graph.env, key)),
            ("inputs", rest) => self.input(rest),
            ("matrix", [key, rest @ ..]) => inside(self.row?.get(key)?, rest),
            _ => None,
        }
    }

    fn success(&self) -> bool {
        self.refused().is_none()
    }

    fn failure(&self) -> bool {
        self.graph.nodes[self.node].needs.iter().any(|need| self.progress.nodes[need.node].failed_so_far)
    }
}

fn inside(value: &Value, path: &[String]) -> Option<Value> {
    let found = path.iter().try_fold(value, |value, part| match value {
        Value::Array(list) => list.get(part.parse::<usize>().ok()?),
        value => value.get(part),
    });
    found.cloned()
}
