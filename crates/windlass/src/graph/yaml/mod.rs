//! Workflows in YAML, in the style that people know from their CI.
//!
//! Strict: a key that is not known is an error with a suggestion, and every error is drawn into the text. Nothing is made of
//! a file with an error in it.

mod draw;
mod fields;
mod inputs;
mod jobs;
mod names;
mod tree;
mod workflow;

#[cfg(test)]
mod tests;

pub use draw::{Problem, Problems};
pub use inputs::InputError;
pub use workflow::{Input, InputKind, Trigger, Workflow};

/// Reads a workflow; `file` is what it is called in errors.
pub fn read(file: &str, text: &str) -> Result<Workflow, Problems> {
    let failed = |mut all: Vec<Problem>| {
        all.sort_by_key(|problem| problem.span.start);
        Problems { file: file.to_owned(), text: text.to_owned(), all }
    };
    let tree = tree::read(text).map_err(|problem| failed(vec![problem]))?;
    let reader = fields::Reader::new(text);
    let workflow = workflow::read(&reader, &tree, file);
    match (workflow, reader.problems()) {
        (Some(workflow), problems) if problems.is_empty() => Ok(workflow),
        (_, problems) => Err(failed(problems)),
    }
}
