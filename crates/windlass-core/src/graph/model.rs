//! What a graph is made of.

use super::expr::Expr;
use super::template::Template;
use crate::name::{Kind, QueueName};
use crate::retry::RetryPolicy;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap};

/// The most nodes of a graph.
pub const NODES_MAX: usize = 10_000;
/// The most needs of all nodes of a graph together.
pub const NEEDS_MAX: usize = 100_000;
/// The most instances of a node.
pub const MATRIX_MAX: usize = 1_000;

/// A workflow: nodes that need each other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Graph {
    /// What people call it.
    pub name: String,
    /// Its nodes. A node may need any other, as long as nothing needs itself in the end.
    pub nodes: Vec<Node>,
    /// Environment of all its nodes, which their conditions can read.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// How long a run may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// A node: one job, or one per row of its matrix.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// Its name in the graph.
    pub id: String,
    /// What people call it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What must have ended before it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<Need>,
    /// Whether it is run, once its needs have ended. Without one: when all of them have ended as accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub condition: Option<Expr>,
    /// Its instances.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matrix: Option<Matrix>,
    /// Its failure is nobody else's: those who need it go on, and the run can succeed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub continue_on_error: bool,
    /// The exit of the sub-graph that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inside: Option<usize>,
    /// The entrance of the sub-graph that it belongs to: its inputs are what that was given, and it is not run unless that
    /// was passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entrance: Option<usize>,
    /// Environment, over that of the graph.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// What it does.
    pub work: Work,
}

/// What a node does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// A job.
    Job(Box<NodeJob>),
    /// Nothing: it is over as soon as it starts. The entrance of a sub-graph, with what that is given.
    Gate {
        /// The inputs of the sub-graph; the texts in them are templates.
        #[serde(default, skip_serializing_if = "Map::is_empty")]
        inputs: Map<String, Value>,
    },
    /// Nothing: it ends as those end that it needs. The exit of a sub-graph, with what others may read of it.
    Join {
        /// Outputs, from those of the nodes inside.
        outputs: BTreeMap<String, Expr>,
    },
}

/// The job of a node, before its texts are filled in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeJob {
    /// The queue it waits on.
    pub queue: QueueName,
    /// What it is; it names the handler.
    pub kind: Kind,
    /// Its input; the texts in it are templates.
    pub payload: Value,
    /// What a worker must offer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<Template>,
    /// Lower first.
    #[serde(default)]
    pub priority: i16,
    /// How often it may be tried.
    pub attempts: u32,
    /// How long to wait between attempts.
    pub retry: RetryPolicy,
    /// How long one attempt may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// The group it belongs to; it is named when the job starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Template>,
    /// How many of that group may run at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_max: Option<u32>,
}

/// One node needs another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Need {
    /// The place of the other one in the graph.
    pub node: usize,
    /// How it may have ended.
    #[serde(default)]
    pub accepts: Accepts,
}

/// Ends of a node that another one accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "one for each end")]
pub struct Accepts {
    /// It succeeded, or its failure does not count.
    pub succeeded: bool,
    /// It failed.
    pub failed: bool,
    /// It was skipped.
    pub skipped: bool,
    /// It was cancelled.
    pub cancelled: bool,
}

impl Accepts {
    /// However it ended.
    pub const ANY: Self = Self { succeeded: true, failed: true, skipped: true, cancelled: true };
}

impl Default for Accepts {
    fn default() -> Self {
        Self { succeeded: true, failed: false, skipped: false, cancelled: false }
    }
}

/// The instances of a node: one per row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Matrix {
    /// Where the rows come from.
    pub source: Source,
    /// One that fails takes the others with it.
    pub fail_fast: bool,
    /// How many may run at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallel_max: Option<u32>,
}

/// Where the rows of a matrix come from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// They are known beforehand.
    Rows(Vec<Map<String, Value>>),
    /// They are worked out when the node starts: a list, or the JSON of one. An entry that is no map is the row
    /// `{"value": entry}`.
    From(Expr),
}

/// What is wrong with a graph. Nodes are named by their places.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// There is nothing to run.
    #[error("the workflow has no jobs")]
    Empty,
    /// Too much of something.
    #[error("the workflow has {count} {what}, and {most} are allowed")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many there are.
        count: usize,
        /// How many there may be.
        most: usize,
    },
    /// Two nodes of one name.
    #[error("two jobs are called `{id}`")]
    Twice {
        /// The name.
        id: String,
        /// The later one.
        node: usize,
    },
    /// A need that is not there.
    #[error("job `{id}` needs job number {need}, and there is none")]
    Missing {
        /// Who needs it.
        id: String,
        /// The place that is not there.
        need: usize,
    },
    /// A node of a sub-graph that is not there.
    #[error("job `{id}` belongs to a sub-graph, and there is none")]
    Outside {
        /// The node.
        id: String,
    },
    /// Nodes that wait for each other for ever.
    #[error("jobs wait for each other: {}", .ids.join(" → "))]
    Cycle {
        /// Their names in turn, the first one once more at the end.
        ids: Vec<String>,
        /// Their places.
        nodes: Vec<usize>,
    },
}

impl Graph {
    /// Looks whether a graph can be run.
    pub fn check(&self) -> Result<(), Fault> {
        if self.nodes.is_empty() {
            return Err(Fault::Empty);
        }
        let needs: usize = self.nodes.iter().map(|node| node.needs.len()).sum();
        let rows = |node: &Node| match &node.matrix {
            Some(Matrix { source: Source::Rows(rows), .. }) => rows.len(),
            _ => 1,
        };
        let widest = self.nodes.iter().map(rows).max().unwrap_or(1);
        let all: usize = self.nodes.iter().map(rows).sum();
        for (what, count, most) in [
            ("jobs", self.nodes.len(), NODES_MAX),
            ("needs", needs, NEEDS_MAX),
            ("rows in one matrix", widest, MATRIX_MAX),
            ("jobs with all rows of their matrices", all, NODES_MAX),
        ] {
            if count > most {
                return Err(Fault::TooMany { what, count, most });
            }
        }
        let mut places = HashMap::with_capacity(self.nodes.len());
        for (at, node) in self.nodes.iter().enumerate() {
            if places.insert(node.id.as_str(), at).is_some() {
                return Err(Fault::Twice { id: node.id.clone(), node: at });
            }
            let gate = node.entrance.map(|at| self.nodes.get(at).map(|node| &node.work));
            let exit = node.inside.map(|at| self.nodes.get(at).map(|node| &node.work));
            if !matches!(gate, None | Some(Some(Work::Gate { .. })))
                || !matches!(exit, None | Some(Some(Work::Join { .. })))
            {
                return Err(Fault::Outside { id: node.id.clone() });
            }
            if let Some(need) = node.needs.iter().find(|need| need.node >= self.nodes.len()) {
                return Err(Fault::Missing { id: node.id.clone(), need: need.node });
            }
        }
        self.order().map(|_| ())
    }

    /// The nodes in an order in which everybody comes after those it needs.
    pub fn order(&self) -> Result<Vec<usize>, Fault> {
        let mut left: Vec<usize> = self.nodes.iter().map(|node| node.needs.len()).collect();
        let dependents = self.dependents();
        let mut order: Vec<usize> = (0..self.nodes.len()).filter(|&at| left[at] == 0).collect();
        let mut next = 0;
        while let Some(&at) = order.get(next) {
            next += 1;
            for &later in &dependents[at] {
                left[later] -= 1;
                if left[later] == 0 {
                    order.push(later);
                }
            }
        }
        if order.len() == self.nodes.len() { Ok(order) } else { Err(self.cycle(&left)) }
    }

    /// How many nodes must have ended one after the other before each may start.
    pub fn levels(&self) -> Result<Vec<usize>, Fault> {
        let mut levels = vec![0; self.nodes.len()];
        for at in self.order()? {
            levels[at] = self.nodes[at].needs.iter().map(|need| levels[need.node] + 1).max().unwrap_or(0);
        }
        Ok(levels)
    }

    /// Who needs each node. One that is needed twice by another stands there twice.
    pub fn dependents(&self) -> Vec<Vec<usize>> {
        let mut dependents = vec![Vec::new(); self.nodes.len()];
        for (at, node) in self.nodes.iter().enumerate() {
            for need in &node.needs {
                dependents[need.node].push(at);
            }
        }
        dependents
    }

    /// One of the circles among nodes that are never reached.
    fn cycle(&self, left: &[usize]) -> Fault {
        let start = left.iter().position(|&left| left > 0).unwrap_or(0);
        let (mut at, mut seen, mut path) = (start, HashMap::new(), Vec::new());
        // Every unreached node needs an unreached one, so a walk along the needs comes back to itself.
        while !seen.contains_key(&at) {
            seen.insert(at, path.len());
            path.push(at);
            let next = self.nodes[at].needs.iter().map(|need| need.node).find(|&need| left[need] > 0);
            at = next.unwrap_or(at);
        }
        let mut nodes = path.split_off(seen.get(&at).copied().unwrap_or(0));
        nodes.push(at);
        // In the order in which they would run.
        nodes.reverse();
        Fault::Cycle { ids: nodes.iter().map(|&node| self.nodes[node].id.clone()).collect(), nodes }
    }

    /// Whether the failure of a node is nobody else's: its own, or that of a sub-graph around it.
    pub fn forgives(&self, node: usize) -> bool {
        let mut at = Some(node);
        // As deep as sub-graphs lie in each other; a circle among them ends it, too.
        for _ in 0..self.nodes.len() {
            let Some(node) = at.and_then(|at| self.nodes.get(at)) else { return false };
            if node.continue_on_error {
                return true;
            }
            at = node.inside;
        }
        false
    }

    /// What stands before the names that a node speaks of: those in a sub-graph speak of each other.
    pub(super) fn prefix(&self, node: usize) -> String {
        let Some(node) = self.nodes.get(node) else { return String::new() };
        let around = |id: &str| id.rfind('/').map_or(String::new(), |slash| id[..=slash].to_owned());
        match node.work {
            Work::Job(_) => around(&node.id),
            // It is named after its sub-graph, and given what those outside know.
            Work::Gate { .. } => around(around(&node.id).trim_end_matches('/')),
            // It tells what those inside know.
            Work::Join { .. } => format!("{}/", node.id),
        }
    }

    /// The place of a node. Whoever looks for many asks for [`Graph::places`].
    pub fn find(&self, id: &str) -> Option<usize> {
        self.nodes.iter().position(|node| node.id == id)
    }

    /// The places of all nodes by name.
    pub fn places(&self) -> HashMap<&str, usize> {
        self.nodes.iter().enumerate().map(|(at, node)| (node.id.as_str(), at)).collect()
    }
}
