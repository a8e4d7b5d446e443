//! The job of a node that starts.

use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use windlass_core::artifact::ArtifactName;
use windlass_core::graph::{Graph, Node, NodeJob, NodeScope, Progress, Template, Work};
use windlass_core::id::{JobId, RunId};
use windlass_core::job::{JobSpec, NewJob};
use windlass_core::name::{GroupName, Labels};
use windlass_core::payload::Payload;

/// The kind of jobs that run commands.
pub const COMMAND_KIND: &str = "windlass.command";

/// How often the worker of a node's job may vanish: machines go for reasons that are not the job's.
const STALLS: u32 = 3;

/// A node, one instance of it, and its job's id.
#[derive(Clone, Copy)]
pub(super) struct Start {
    pub(super) node: usize,
    pub(super) instance: usize,
    pub(super) job: JobId,
}

/// What a job is made from.
pub(super) struct Making<'m> {
    pub(super) run: RunId,
    pub(super) graph: &'m Graph,
    pub(super) progress: &'m Progress,
    pub(super) inputs: &'m Value,
}

impl Making<'_> {
    /// The job; why it cannot be made.
    pub(super) fn job(&self, start: Start) -> Result<NewJob, String> {
        let node = &self.graph.nodes[start.node];
        let Work::Job(work) = &node.work else { return Err("it has no job".to_owned()) };
        let progress = &self.progress.nodes[start.node];
        let row = progress.rows.get(start.instance);
        let scope =
            NodeScope { graph: self.graph, progress: self.progress, inputs: self.inputs, node: start.node, row };
        let mut payload = Template::fill_all(&work.payload, &scope);
        if work.kind.as_str() == COMMAND_KIND {
            name_artifacts(&mut payload, &scope)?;
            self.add_surroundings(&mut payload, start, &scope);
        }
        let job = NewJob::new(start.job, self.spec(node, work, &payload, &scope)?);
        job.check().map_err(|error| error.to_string())?;
        Ok(job)
    }

    fn spec(&self, node: &Node, work: &NodeJob, payload: &Value, scope: &NodeScope<'_>) -> Result<JobSpec, String> {
        let payload = Payload::json(payload).map_err(|error| error.to_string())?;
        let labels: Vec<String> = work.labels.iter().map(|label| label.fill(scope)).collect();
        let mut spec = JobSpec::new(work.queue.clone(), work.kind.clone(), payload);
        spec.labels = Labels::parse(labels.iter().map(String::as_str)).map_err(|error| error.to_string())?;
        spec.priority = work.priority;
        spec.attempts = work.attempts;
        spec.stalls = STALLS;
        spec.retry = work.retry.clone();
        spec.timeout_ms = work.timeout_ms;
        if let Some(group) = &work.group {
            spec.group = Some(GroupName::new(group.fill(scope)).map_err(|error| error.to_string())?);
            spec.group_cap = work.group_max;
        }
        spec.run = Some(self.run);
        spec.metadata = BTreeMap::from([("node".to_owned(), node.id.clone())]);
        Ok(spec)
    }

    /// What commands are told: their environment, what those before them left, and where they are.
    fn add_surroundings(&self, payload: &mut Value, start: Start, scope: &NodeScope<'_>) {
        let Value::Object(payload) = payload else { return };
        let node = &self.graph.nodes[start.node];
        let env: Map<String, Value> = (self.graph.env.iter().chain(&node.env))
            .map(|(name, text)| (name.clone(), Value::String(text.clone())))
            .collect();
        let as_text = |value: Value| Value::String(windlass_core::graph::expr::text(&value));
        let env: Map<String, Value> = match Template::fill_all(&Value::Object(env), scope) {
            Value::Object(env) => env.into_iter().map(|(name, value)| (name, as_text(value))).collect(),
            _ => Map::new(),
        };
        if !env.is_empty() {
            payload.insert("env".to_owned(), Value::Object(env));
        }
        let needs: Map<String, Value> = node.needs.iter().map(|need| self.needed(need.node)).collect();
        if !needs.is_empty() {
            payload.insert("needs".to_owned(), Value::Object(needs));
        }
        let mut run = json!({
            "id": self.run,
            "workflow": self.graph.name,
            "node": node.id,
            "instance": start.instance,
        });
        if let (Value::Object(run), Some(row)) = (&mut run, scope.row) {
            run.insert("matrix".to_owned(), Value::Object(row.clone()));
        }
        let reruns = self.progress.nodes[start.node].reruns;
        if let (Value::Object(run), true) = (&mut run, reruns > 0) {
            run.insert("rerun".to_owned(), json!(reruns));
        }
        payload.insert("run".to_owned(), run);
    }

    fn needed(&self, at: usize) -> (String, Value) {
        let progress = &self.progress.nodes[at];
        let id = &self.graph.nodes[at].id;
        // Inside a sub-graph, names are those of the sub-graph.
        let name = id.rsplit('/').next().unwrap_or(id).to_owned();
        let result = progress.outcome.map(windlass_core::graph::Outcome::name);
        (name, json!({ "result": result, "outputs": progress.outputs }))
    }
}

/// Fills in the names of artifacts, which are keys; why one of them is none.
fn name_artifacts(payload: &mut Value, scope: &NodeScope<'_>) -> Result<(), String> {
    for way in ["upload", "download"] {
        let Some(Value::Object(map)) = payload.pointer_mut(&format!("/artifacts/{way}")) else { continue };
        if !map.keys().any(|name| name.contains("${{")) {
            continue;
        }
        let mut filled = Map::new();
        for (written, value) in std::mem::take(map) {
            let name = Template::parse(&written).map_err(|error| error.to_string())?.fill(scope);
            ArtifactName::new(&name).map_err(|error| format!("`{written}` names no artifact: {error}"))?;
            if filled.insert(name.clone(), value).is_some() {
                return Err(format!("it names the artifact `{name}` twice under {way}, once as `{written}`"));
            }
        }
        *map = filled;
    }
    Ok(())
}
