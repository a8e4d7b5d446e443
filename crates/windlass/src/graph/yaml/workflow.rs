//! A workflow file as a whole.

use super::Problem;
use super::fields::Reader;
use super::jobs;
use super::names::{Columns, Names};
use super::tree::Tree;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use windlass_core::graph::expr::Expr;
use windlass_core::graph::{Fault, Graph};
use windlass_core::name::QueueName;
use windlass_core::schedule::Rule;

pub(super) const KEYS: [&str; 8] = ["name", "on", "inputs", "outputs", "env", "queue", "timeout", "jobs"];

/// What a file says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Workflow {
    /// What is to be run.
    pub graph: Graph,
    /// What a run may be given.
    pub inputs: BTreeMap<String, Input>,
    /// What starts it by itself.
    pub triggers: Vec<Trigger>,
    /// What those who use it may read.
    #[serde(default)]
    pub outputs: BTreeMap<String, Expr>,
}

/// One input of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Input {
    /// What it is.
    pub kind: InputKind,
    /// What it is for.
    pub description: Option<String>,
    /// What it is when nobody says.
    pub default: Option<Value>,
    /// It must be given.
    pub required: bool,
}

/// What an input is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InputKind {
    /// A text.
    Text,
    /// A number.
    Number,
    /// True or false.
    Boolean,
}

/// What starts a workflow by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// A schedule.
    Schedule(Rule),
}

/// Reads a workflow. Its jobs wait on `queue` where nobody says.
pub(super) fn read(reader: &Reader<'_>, tree: &Tree<'_>, file: &str, queue: Option<&QueueName>) -> Option<Workflow> {
    let fields = reader.fields(tree, "a workflow", &KEYS)?;
    let stem = std::path::Path::new(file).file_stem().map_or("workflow".into(), |stem| stem.to_string_lossy());
    let name = fields.get("name").and_then(|tree| reader.text(tree)).unwrap_or(&stem).to_owned();
    let inputs = fields.get("inputs").map_or_else(|| Some(BTreeMap::new()), |tree| read_inputs(reader, tree));
    let inputs = inputs.unwrap_or_default();
    let triggers = fields.get("on").and_then(|tree| read_triggers(reader, tree)).unwrap_or_default();
    let env = fields.get("env").and_then(|tree| reader.text_map(tree)).unwrap_or_default();
    let queue = fields.get("queue").and_then(|tree| reader.name::<QueueName, _>(tree)).or_else(|| queue.cloned());
    let timeout_ms = fields.get("timeout").and_then(|tree| reader.ms(tree));
    let Some(jobs_tree) = fields.get("jobs") else {
        let at = fields.key("jobs").unwrap_or(tree.span.start..tree.span.start);
        reader.say(Problem::new(at, "a workflow needs jobs").help("write jobs: and under it a name for each"));
        return None;
    };
    let known: BTreeSet<String> = inputs.keys().cloned().collect();
    let outputs =
        fields.get("outputs").and_then(|tree| read_outputs(reader, tree, jobs_tree, &known)).unwrap_or_default();
    let (nodes, places) = jobs::read(reader, jobs_tree, &known, queue.as_ref())?;
    let graph = Graph { name, nodes, env, timeout_ms };
    if let Err(fault) = graph.check() {
        let at = match &fault {
            Fault::Cycle { nodes, .. } => nodes.last().and_then(|&node| places.get(node)).cloned(),
            _ => fields.key("jobs"),
        };
        reader.say(Problem::new(at.unwrap_or(0..0), fault.to_string()));
        return None;
    }
    Some(Workflow { graph, inputs, triggers, outputs })
}

fn read_outputs(
    reader: &Reader<'_>,
    tree: &Tree<'_>,
    jobs: &Tree<'_>,
    inputs: &BTreeSet<String>,
) -> Option<BTreeMap<String, Expr>> {
    let ids: BTreeSet<String> = reader.map(jobs)?.iter().map(|(key, _)| key.text.to_string()).collect();
    let names = Names { needs: &[], inputs, matrix: Columns::None, jobs: Some(&ids) };
    let mut outputs = BTreeMap::new();
    for (key, tree) in reader.map(tree)? {
        jobs::check_id(reader, &key.text, &key.span, "an output");
        let value = match &tree.value {
            super::tree::Value::Map(_) => {
                let fields = reader.fields(tree, "an output", &["value", "description"])?;
                match fields.get("value") {
                    Some(value) => value,
                    None => return reader.refuse(tree, "an output needs a value", OUTPUT_HELP),
                }
            }
            _ if tree.is_nothing() => return reader.refuse(tree, "an output needs a value", OUTPUT_HELP),
            _ => tree,
        };
        let expr = reader.expr(value)?;
        names.check(reader, value, &expr, 0);
        outputs.insert(key.text.to_string(), expr);
    }
    Some(outputs)
}

const OUTPUT_HELP: &str = "write ${{ jobs.<job>.outputs.<key> }}";

fn read_inputs(reader: &Reader<'_>, tree: &Tree<'_>) -> Option<BTreeMap<String, Input>> {
    let mut inputs = BTreeMap::new();
    for (key, tree) in reader.map(tree)? {
        let plain = Input { kind: InputKind::Text, description: None, default: None, required: false };
        let input = if tree.is_nothing() { Some(plain) } else { read_input(reader, tree) };
        inputs.extend(input.map(|input| (key.text.to_string(), input)));
    }
    Some(inputs)
}

fn read_input(reader: &Reader<'_>, tree: &Tree<'_>) -> Option<Input> {
    let fields = reader.fields(tree, "an input", &["type", "description", "default", "required"])?;
    let kind = match fields.get("type").map(|tree| (reader.text(tree), tree)) {
        None | Some((Some("string"), _)) => InputKind::Text,
        Some((Some("number"), _)) => InputKind::Number,
        Some((Some("boolean"), _)) => InputKind::Boolean,
        Some((_, tree)) => return reader.refuse(tree, "an input is no such thing", "write string, number or boolean"),
    };
    let default = fields.get("default").map(Tree::json);
    let fits = default.as_ref().is_none_or(|value| match kind {
        InputKind::Text => !matches!(value, Value::Array(_) | Value::Object(_) | Value::Null),
        InputKind::Number => value.is_number(),
        InputKind::Boolean => value.is_boolean(),
    });
    if !fits {
        return reader.refuse(fields.get("default")?, "this is no value of the input's type", "change one of them");
    }
    let default = default.map(|value| {
        if kind == InputKind::Text { Value::String(windlass_core::graph::expr::text(&value)) } else { value }
    });
    if default.as_ref().and_then(Value::as_str).is_some_and(|text| text.contains("${{")) {
        return reader.refuse(fields.get("default")?, "a default is no template", "write the value itself");
    }
    let description = fields.get("description").and_then(|tree| reader.text(tree)).map(str::to_owned);
    let required = fields.get("required").and_then(|tree| reader.bool(tree)).unwrap_or(false);
    Some(Input { kind, description, default, required })
}

fn read_triggers(reader: &Reader<'_>, tree: &Tree<'_>) -> Option<Vec<Trigger>> {
    let fields = reader.fields(tree, "`on`", &["schedule"])?;
    let mut triggers = Vec::new();
    for entry in fields.get("schedule").map_or(Some(&[][..]), |tree| reader.list(tree))? {
        let fields = reader.fields(entry, "a schedule", &["cron", "timezone"])?;
        let Some(cron) = fields.get("cron") else {
            return reader.refuse(entry, "a schedule needs a `cron`", "write cron: '0 4 * * *'");
        };
        let text = reader.text(cron)?;
        let rule = match fields.get("timezone") {
            Some(zone) => Rule::cron_in(reader.text(zone)?, text),
            None => Rule::cron(text),
        };
        match rule.check() {
            Ok(()) => triggers.push(Trigger::Schedule(rule)),
            Err(error) => reader.say(Problem::new(cron.span.clone(), error.to_string())),
        }
    }
    Some(triggers)
}
