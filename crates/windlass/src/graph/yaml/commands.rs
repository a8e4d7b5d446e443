//! Jobs that run commands, as the runner of commands takes them.

use super::artifacts;
use super::draw::Problem;
use super::fields::{Fields, Reader};
use super::jobs::check_id;
use super::names::Names;
use super::tree::Tree;
use serde_json::{Map, Value as Json, json};

const STEP_KEYS: [&str; 5] = ["name", "run", "env", "working-directory", "shell"];

/// The payload of a job that runs commands.
pub(super) fn read(reader: &Reader<'_>, fields: &Fields<'_>, names: &Names<'_>) -> Option<Json> {
    let steps = read_steps(reader, fields, names);
    let mut payload = Map::new();
    read_place(reader, fields, &mut payload);
    if let Some(tree) = fields.get("outputs") {
        let outputs = reader.texts(tree).unwrap_or_default();
        outputs.iter().for_each(|(name, tree)| check_id(reader, name, &tree.span, "an output"));
        let outputs: Vec<&str> = outputs.into_iter().map(|(name, _)| name).collect();
        payload.insert("outputs".to_owned(), json!(outputs));
    }
    if let Some(tree) = fields.get("artifacts") {
        payload.insert("artifacts".to_owned(), artifacts::read(reader, tree, names)?);
    }
    payload.insert("steps".to_owned(), Json::Array(steps?));
    Some(Json::Object(payload))
}

fn read_steps(reader: &Reader<'_>, fields: &Fields<'_>, names: &Names<'_>) -> Option<Vec<Json>> {
    let tree = match (fields.get("run"), fields.get("steps")) {
        (Some(run), _) => return Some(vec![json!({ "run": script(reader, run)? })]),
        (None, steps) => steps?,
    };
    // All are looked at.
    let steps: Vec<Option<Json>> = reader.list(tree)?.iter().map(|step| read_step(reader, step, names)).collect();
    if steps.is_empty() {
        return reader.refuse(tree, "there are no steps", "write - run: and a script");
    }
    steps.into_iter().collect()
}

fn read_step(reader: &Reader<'_>, tree: &Tree<'_>, names: &Names<'_>) -> Option<Json> {
    let fields = reader.fields(tree, "a step", &STEP_KEYS)?;
    let run = match fields.get("run") {
        Some(run) => script(reader, run),
        None if fields.misspells(&STEP_KEYS, &["run"]) => None,
        None => reader.refuse(tree, "a step needs a `run`", "write run: and a script"),
    };
    let mut step = Map::new();
    if let Some(text) = fields.get("name").and_then(|tree| reader.text(tree)) {
        step.insert("name".to_owned(), json!(text));
    }
    read_place(reader, &fields, &mut step);
    for tree in ["env", "working-directory", "shell"].into_iter().filter_map(|name| fields.get(name)) {
        names.check_all(reader, tree);
    }
    if let Some(env) = fields.get("env").map(|tree| reader.env(tree)) {
        step.insert("env".to_owned(), json!(env?));
    }
    step.insert("run".to_owned(), json!(run?));
    Some(Json::Object(step))
}

/// Where and by what a script is run.
fn read_place(reader: &Reader<'_>, fields: &Fields<'_>, payload: &mut Map<String, Json>) {
    if let Some(text) = fields.get("working-directory").and_then(|tree| reader.text(tree)) {
        payload.insert("working-directory".to_owned(), json!(text));
    }
    if let Some(text) = fields.get("shell").and_then(|tree| shell(reader, tree)) {
        payload.insert("shell".to_owned(), json!(text));
    }
}

fn shell<'y>(reader: &Reader<'_>, tree: &'y Tree<'y>) -> Option<&'y str> {
    let text = reader.text(tree)?;
    if !tree.json().is_string() || text.trim().is_empty() {
        let help = "write sh, bash, or a program that takes a script's file, like python3";
        return reader.refuse(tree, &format!("`{text}` is no shell"), help);
    }
    Some(text)
}

/// A script, which is never a template: what comes from elsewhere must not become commands.
fn script<'y>(reader: &Reader<'_>, tree: &'y Tree<'y>) -> Option<&'y str> {
    let text = reader.text(tree)?;
    if let Some(at) = text.find("${{") {
        let end = text[at..].find("}}").map_or(at + 3, |end| at + end + 2);
        let problem = Problem::new(reader.inside(tree, text, at..end), "expressions are never put into a script");
        reader.say(problem.help("name it under env, and use \"$NAME\" here"));
        return None;
    }
    Some(text)
}
