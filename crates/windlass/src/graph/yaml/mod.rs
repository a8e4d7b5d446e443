//! Workflows in YAML, in the style that people know from their CI.
//!
//! Strict: a key that is not known is an error with a suggestion, and every error is drawn into the text. Nothing is made of
//! a file with an error in it.

mod artifacts;
mod chars;
mod commands;
mod draw;
mod fields;
mod files;
mod inputs;
mod jobs;
mod matrix;
mod names;
mod splice;
mod tree;
mod uploads;
mod uses;
mod workflow;

#[cfg(test)]
mod docs_tests;
#[cfg(test)]
mod large_tests;
#[cfg(test)]
mod schema_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod uses_tests;

use files::Files;
use windlass_core::name::QueueName;

pub use draw::{Problem, Problems};
pub use inputs::InputError;
pub use workflow::{Input, InputKind, Trigger, Workflow};

/// The JSON schema of workflow files, for editors. It takes what [`read`] takes, and more.
pub const SCHEMA: &str = include_str!("schema.json");

/// Reads a workflow; `file` is what it is called in errors. One that uses other files is refused.
pub fn read(file: &str, text: &str) -> Result<Workflow, Problems> {
    read_all(&Files::new(file, None), file, text)
}

/// Reads a workflow and those that it uses. The loader is asked for files by their paths from the folder of the first one,
/// which they never leave, and says why one cannot be read.
pub fn read_with(
    file: &str,
    text: &str,
    loader: &dyn Fn(&str) -> Result<String, String>,
) -> Result<Workflow, Problems> {
    read_all(&Files::new(file, Some(loader)), file, text)
}

fn read_all(files: &Files<'_>, file: &str, text: &str) -> Result<Workflow, Problems> {
    read_one(files, file, text, None).map_err(|problems| Problems { used: files.faulty(), ..problems })
}

fn read_one(files: &Files<'_>, file: &str, text: &str, queue: Option<&QueueName>) -> Result<Workflow, Problems> {
    let failed = |mut all: Vec<Problem>| {
        all.sort_by_key(|problem| problem.span.start);
        Problems { file: file.to_owned(), text: text.to_owned(), all, used: Vec::new() }
    };
    let (tree, twice) = tree::read(text).map_err(|problem| failed(vec![problem]))?;
    let reader = fields::Reader::new(text, files, twice);
    let workflow = workflow::read(&reader, &tree, file, queue);
    match (workflow, reader.problems()) {
        (Some(workflow), problems) if problems.is_empty() => Ok(workflow),
        (_, problems) => Err(failed(problems)),
    }
}
