//! Flows: a job that runs after others, its children, and those after theirs.

use super::client::{NewGraphRun, Runs};
use crate::graph::builder::{BuildError, GraphBuilder, NodeRef, bare_node, node_job};
use crate::job::Job;
use std::collections::{BTreeMap, HashSet};
use windlass_core::Result;
use windlass_core::graph::{Accepts, Graph, Need, Node, NodeJob, Work};
use windlass_core::id::RunId;

/// What the failure of a child means for its parent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// The parent is not run, and the run fails.
    #[default]
    Fail,
    /// The parent is run, and the run can succeed: neither the child's failure counts nor what failed below it.
    Ignore,
    /// The parent is run, and then the run has failed all the same.
    Continue,
}

/// A job and those that come before it: any number, of any kind, on any queue, as deep as you like.
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use windlass::Job;
/// use windlass::runs::{Flow, OnFailure};
///
/// #[derive(Serialize, Deserialize, Job)]
/// struct Resize { width: u32 }
/// #[derive(Serialize, Deserialize, Job)]
/// struct Publish { album: String }
///
/// let flow = Flow::new(&Publish { album: "summer".into() })
///     .child(Flow::new(&Resize { width: 320 }).name("small"))
///     .child(Flow::new(&Resize { width: 4096 }).name("print").on_failure(OnFailure::Ignore));
/// assert_eq!(flow.into_run()?.graph.nodes.len(), 3);
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// It is a run like any other: nothing of it lives in a process, a child that ends early is not forgotten, and one that ends
/// twice starts nothing twice. The parent's handler reads how its children ended by [`Ctx::needs`](crate::Ctx::needs).
#[derive(Clone, Debug)]
#[must_use]
pub struct Flow {
    root: Planned,
    /// Those below it; each comes after its own children.
    below: Vec<Planned>,
}

#[derive(Clone, Debug)]
struct Planned {
    name: Option<String>,
    kind: &'static str,
    job: std::result::Result<NodeJob, BuildError>,
    on_failure: OnFailure,
    /// Places in `below`.
    children: Vec<usize>,
}

impl Flow {
    /// Of this job alone. It is treated as its options say, see [`GraphBuilder::job`].
    pub fn new<J: Job>(job: &J) -> Self {
        let (kind, job) = (J::KIND, node_job(J::KIND, job));
        let root = Planned { name: None, kind, job, on_failure: OnFailure::Fail, children: Vec::new() };
        Self { root, below: Vec::new() }
    }

    /// What its parent and people call it; the kind of its job if nobody says, with a number where that is taken.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.root.name = Some(name.into());
        self
    }

    /// What its failure means for its parent. For one without a parent it means nothing.
    pub fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.root.on_failure = on_failure;
        self
    }

    /// The job runs after this one.
    pub fn child(mut self, child: Self) -> Self {
        let Self { mut root, mut below } = child;
        let shift = self.below.len();
        if shift == 0 {
            self.below = below;
        } else {
            below.iter_mut().chain([&mut root]).flat_map(|one| &mut one.children).for_each(|at| *at += shift);
            self.below.append(&mut below);
        }
        self.root.children.push(self.below.len());
        self.below.push(root);
        self
    }

    /// The job runs after these.
    pub fn children(self, children: impl IntoIterator<Item = Self>) -> Self {
        children.into_iter().fold(self, Self::child)
    }

    /// As a run, to be started by [`Runs::start`]: to give it an id, so that it is started once.
    pub fn into_run(self) -> Result<NewGraphRun> {
        Ok(NewGraphRun::new(self.into_graph()?))
    }

    fn into_graph(self) -> std::result::Result<Graph, BuildError> {
        let Self { mut root, below } = self;
        // Nobody is there to whom it would mean something.
        root.on_failure = OnFailure::Fail;
        let mut builder = GraphBuilder::new(root.kind);
        let mut all = below;
        all.push(root);
        let names = names(&all);
        let policies: Vec<(OnFailure, Vec<usize>)> =
            all.iter().map(|one| (one.on_failure, one.children.clone())).collect();
        let mut nodes: Vec<NodeRef> = Vec::with_capacity(all.len());
        for (planned, name) in all.into_iter().zip(&names) {
            let mut node = builder.add(name, planned.job);
            if planned.on_failure == OnFailure::Ignore {
                node = node.continue_on_error();
            }
            for child in planned.children {
                node = match policies[child].0 {
                    OnFailure::Fail => node.after(&nodes[child]),
                    OnFailure::Ignore | OnFailure::Continue => node.after_any(&nodes[child]),
                };
            }
            nodes.push(node.node());
        }
        let mut graph = builder.finish()?;
        forgive(&mut graph, &policies);
        Ok(graph)
    }
}

/// Their names, each once, unless somebody said one twice.
fn names(all: &[Planned]) -> Vec<String> {
    let mut taken: HashSet<String> = all.iter().filter_map(|one| one.name.clone()).collect();
    let mut last: BTreeMap<&str, u64> = BTreeMap::new();
    let mut name = |one: &Planned| {
        if let Some(name) = &one.name {
            return name.clone();
        }
        let fits = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' };
        let mut base: String = one.kind.chars().take(80).map(fits).collect();
        if !base.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
            base.insert(0, '_');
        }
        let count = last.entry(one.kind).or_insert(0);
        // ends because: there are fewer names taken than numbers.
        loop {
            *count += 1;
            let name = if *count == 1 { base.clone() } else { format!("{base}-{count}") };
            if taken.insert(name.clone()) {
                return name;
            }
        }
    };
    all.iter().map(&mut name).collect()
}

/// What is below one whose failure is ignored is as a sub-graph of which the same is said: its exit, which nobody waits for.
fn forgive(graph: &mut Graph, policies: &[(OnFailure, Vec<usize>)]) {
    let mut exits = vec![None; policies.len()];
    // Parents before their children.
    for at in (0..policies.len()).rev() {
        let (on_failure, children) = &policies[at];
        let around: Option<usize> = exits[at];
        graph.nodes[at].inside = around;
        let mut exit = around;
        if *on_failure == OnFailure::Ignore && !children.is_empty() {
            exit = Some(graph.nodes.len());
            // No job can be called so.
            let id = format!("{}.below", graph.nodes[at].id);
            let work = Work::Join { outputs: BTreeMap::new() };
            graph.nodes.push(Node { continue_on_error: true, inside: around, ..bare_node(id, work) });
        }
        for &child in children {
            exits[child] = exit;
        }
    }
    for at in 0..graph.nodes.len() {
        if let Some(exit) = graph.nodes[at].inside {
            graph.nodes[exit].needs.push(Need { node: at, accepts: Accepts::ANY });
        }
    }
}

impl Runs {
    /// Starts a flow. When this returns, its lowest jobs are enqueued.
    pub async fn start_flow(&self, flow: Flow) -> Result<RunId> {
        self.start(flow.into_run()?).await
    }
}
