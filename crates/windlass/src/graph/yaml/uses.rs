//! A job that is another workflow.

use super::draw::Problem;
use super::fields::Reader;
use super::tree::Tree;
use super::workflow::{InputKind, Workflow};
use serde_json::{Map, Value as Json};
use std::rc::Rc;
use windlass_core::name::{QueueName, nearest};

/// The other workflow, and what it is given.
pub(super) struct Used {
    pub(super) workflow: Rc<Workflow>,
    pub(super) inputs: Map<String, Json>,
}

pub(super) fn read(
    reader: &Reader<'_>,
    tree: &Tree<'_>,
    with: Option<&Tree<'_>>,
    queue: Option<&QueueName>,
) -> Option<Used> {
    let named = reader.text(tree)?;
    let workflow = match reader.files.open(named, queue) {
        Ok(workflow) => workflow,
        Err((message, help)) => return reader.refuse(tree, &message, &help),
    };
    let inputs = read_with(reader, tree, with, &workflow)?;
    Some(Used { workflow, inputs })
}

fn read_with(
    reader: &Reader<'_>,
    at: &Tree<'_>,
    with: Option<&Tree<'_>>,
    workflow: &Workflow,
) -> Option<Map<String, Json>> {
    let defaults = workflow.inputs.iter().filter_map(|(name, input)| Some((name.clone(), input.default.clone()?)));
    let mut given: Map<String, Json> = defaults.collect();
    for (key, tree) in with.map_or(Some(&[][..]), |tree| reader.map(tree))? {
        let Some(input) = workflow.inputs.get(key.text.as_ref()) else {
            let near = nearest(&key.text, workflow.inputs.keys().map(String::as_str));
            let help = near.map(|near| format!("did you mean `{near}`?"));
            reader.say(Problem { help, ..Problem::new(key.span.clone(), format!("it has no input `{}`", key.text)) });
            continue;
        };
        let Some(value) = reader.json(tree) else { continue };
        let is_template = value.as_str().is_some_and(|text| text.contains("${{"));
        let value = match (input.kind, value) {
            (_, value) if is_template => value,
            (InputKind::Text, value @ (Json::String(_) | Json::Number(_) | Json::Bool(_))) => {
                Json::String(windlass_core::graph::expr::text(&value))
            }
            (InputKind::Number, value @ Json::Number(_)) | (InputKind::Boolean, value @ Json::Bool(_)) => value,
            (kind, _) => {
                let help = match kind {
                    InputKind::Text => "write a text",
                    InputKind::Number => "write a number",
                    InputKind::Boolean => "write true or false",
                };
                reader.say(Problem::new(tree.span.clone(), "this is no value of the input's type").help(help));
                continue;
            }
        };
        given.insert(key.text.to_string(), value);
    }
    let missing = workflow.inputs.iter().filter(|(name, input)| input.required && !given.contains_key(*name));
    for (name, _) in missing {
        if !with.and_then(|tree| reader.map(tree)).is_some_and(|map| map.iter().any(|(key, _)| key.text == **name)) {
            let message = format!("the input `{name}` must be given");
            reader.say(Problem::new(at.span.clone(), message).help(format!("write it under with: {name}")));
        }
    }
    Some(given)
}
