//! A workflow file as a whole.

use super::Problem;
use super::fields::Reader;
use super::jobs;
use super::names::{Columns, Names};
use super::tree::Tree;
use super::uploads;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use windlass_core::Error;
use windlass_core::graph::Graph;
use windlass_core::graph::expr::Expr;
use windlass_core::name::{QueueName, nearest};
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
    let env = fields.get("env").and_then(|tree| reader.env(tree)).unwrap_or_default();
    let queue = fields.get("queue").and_then(|tree| reader.name::<QueueName, _>(tree)).or_else(|| queue.cloned());
    let timeout_ms = fields.get("timeout").and_then(|tree| reader.ms(tree));
    let Some(jobs_tree) = fields.get("jobs") else {
        let at = fields.key("jobs").unwrap_or(tree.span.start..tree.span.start);
        if !fields.misspells(&KEYS, &["jobs"]) {
            reader.say(Problem::new(at, "a workflow needs jobs").help("write jobs: and under it a name for each"));
        }
        return None;
    };
    let known: BTreeSet<String> = inputs.keys().cloned().collect();
    let outputs =
        fields.get("outputs").and_then(|tree| read_outputs(reader, tree, jobs_tree, &known)).unwrap_or_default();
    let (nodes, places) = jobs::read(reader, jobs_tree, &known, queue.as_ref())?;
    let graph = Graph { name, nodes, env, timeout_ms };
    if let Err(fault) = graph.check() {
        jobs::say_fault(reader, &fault, &places, &fields.key("jobs").unwrap_or(0..0));
        return None;
    }
    uploads::check(reader, jobs_tree, &graph);
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
        let Some(value) = read_value(reader, tree) else { continue };
        let Some(expr) = reader.expr(value) else { continue };
        names.check(reader, value, &expr, 0);
        outputs.insert(key.text.to_string(), expr);
    }
    Some(outputs)
}

fn read_value<'y>(reader: &Reader<'_>, tree: &'y Tree<'y>) -> Option<&'y Tree<'y>> {
    const KEYS: [&str; 2] = ["value", "description"];
    let value = match &tree.value {
        super::tree::Value::Map(_) => {
            let fields = reader.fields(tree, "an output", &KEYS)?;
            if fields.misspells(&KEYS, &["value"]) {
                return None;
            }
            fields.get("value")
        }
        _ => Some(tree).filter(|tree| !tree.is_nothing()),
    };
    value.or_else(|| reader.refuse(tree, "an output needs a value", OUTPUT_HELP))
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
        Some((None, _)) => return None,
        Some((Some(text), tree)) => {
            let near = match text.to_lowercase().as_str() {
                "int" | "integer" | "float" | "double" => Some("number"),
                "bool" => Some("boolean"),
                "str" | "text" => Some("string"),
                _ => nearest(text, ["string", "number", "boolean"]),
            };
            let near = near.map(|near| format!("did you mean `{near}`? ")).unwrap_or_default();
            let help = format!("{near}there are string, number and boolean");
            return reader.refuse(tree, &format!("`{text}` is no type of an input"), &help);
        }
    };
    let default = match fields.get("default") {
        Some(tree) => Some(reader.json(tree)?),
        None => None,
    };
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
        triggers.extend(read_schedule(reader, entry).map(Trigger::Schedule));
    }
    Some(triggers)
}

fn read_schedule(reader: &Reader<'_>, entry: &Tree<'_>) -> Option<Rule> {
    const KEYS: [&str; 2] = ["cron", "timezone"];
    let fields = reader.fields(entry, "a schedule", &KEYS)?;
    let Some(cron) = fields.get("cron") else {
        if fields.misspells(&KEYS, &["cron"]) {
            return None;
        }
        return reader.refuse(entry, "a schedule needs a `cron`", "write cron: '0 4 * * *'");
    };
    let text = reader.text(cron)?;
    let zone = fields.get("timezone");
    let rule = match zone {
        Some(zone) => Rule::cron_in(reader.text(zone)?, text),
        None => Rule::cron(text),
    };
    let error = match rule.check() {
        Ok(()) => return Some(rule),
        Err(error) => error,
    };
    let at = |field: &str| zone.filter(|_| field.starts_with("rule.zone")).unwrap_or(cron).span.clone();
    reader.say(match &error {
        Error::Invalid { field, reason } if field == "rule.zone" => Problem::new(at(field), reason.clone()),
        Error::Invalid { reason, .. } => Problem::new(cron.span.clone(), format!("cron: {reason}")),
        Error::Limit { what, .. } => Problem::new(at(what), error.to_string()),
        _ => Problem::new(cron.span.clone(), error.to_string()),
    });
    None
}
