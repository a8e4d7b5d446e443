//! What a run is given, by the types of its workflow.

use super::workflow::{Input, InputKind, Workflow};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use windlass_core::graph::expr::{NumberError, parse_number};
use windlass_core::name::nearest;

/// Why a run cannot be given these inputs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InputError {
    /// The workflow has none of this name.
    #[error("there is no input `{name}`; {help}")]
    Unknown {
        /// The name.
        name: String,
        /// What there is.
        help: String,
    },
    /// Some must be given.
    #[error("{}", missing(names))]
    Missing {
        /// Their names.
        names: Vec<String>,
    },
    /// A value of another type.
    #[error("`{value}` is no value for the input `{name}`; write {wanted}")]
    Wrong {
        /// The input.
        name: String,
        /// What was given.
        value: String,
        /// What it takes.
        wanted: &'static str,
    },
}

fn missing(names: &[String]) -> String {
    match names {
        [name] => format!("the input `{name}` must be given; it is required"),
        _ => format!("the inputs `{}` must be given; they are required", names.join("`, `")),
    }
}

impl Workflow {
    /// The inputs of a run: what is given, by the types of the workflow, and the defaults of what is not. What has neither
    /// is not there.
    pub fn resolve_inputs(&self, given: BTreeMap<String, String>) -> Result<Value, InputError> {
        let mut resolved: Map<String, Value> = Map::new();
        for (name, input) in &self.inputs {
            resolved.extend(input.default.clone().map(|value| (name.clone(), value)));
        }
        for (name, text) in given {
            let Some(input) = self.inputs.get(&name) else { return Err(self.unknown(name)) };
            let value = typed(input, &name, text)?;
            resolved.insert(name, value);
        }
        let is_missing = |(name, input): &(&String, &Input)| input.required && !resolved.contains_key(*name);
        let names: Vec<String> = self.inputs.iter().filter(is_missing).map(|(name, _)| name.clone()).collect();
        if names.is_empty() { Ok(Value::Object(resolved)) } else { Err(InputError::Missing { names }) }
    }

    fn unknown(&self, name: String) -> InputError {
        let help = match nearest(&name, self.inputs.keys().map(String::as_str)) {
            Some(near) => format!("did you mean `{near}`?"),
            None if self.inputs.is_empty() => "the workflow takes none".to_owned(),
            None => format!("there are {}", self.inputs.keys().map(String::as_str).collect::<Vec<_>>().join(", ")),
        };
        InputError::Unknown { name, help }
    }
}

fn typed(input: &Input, name: &str, text: String) -> Result<Value, InputError> {
    let (value, wanted) = match input.kind {
        InputKind::Text => return Ok(Value::String(text)),
        InputKind::Number => match parse_number(&text) {
            Ok(number) => (Some(Value::Number(number)), ""),
            Err(NumberError::NoNumber(_)) => (None, "a number"),
            Err(NumberError::TooLarge(_)) => (
                None,
                "a whole number from -9223372036854775808 to 18446744073709551615; a larger one would lose digits",
            ),
        },
        InputKind::Boolean => (text.parse::<bool>().ok().map(Value::Bool), "true or false"),
    };
    value.ok_or_else(|| InputError::Wrong { name: name.to_owned(), value: text, wanted })
}
