//! Workflow files, as they are named on the command line.

use crate::app::App;
use crate::failure::{Failure, say};
use crate::ui::ERROR;
use serde_json::Value;
use std::io::Read;
use std::path::Path;
use windlass::graph::yaml::{self, InputError, Problems, Workflow};
use windlass_operate::text::count;

/// The reader refuses what is longer; it must have seen a little more to say so.
const BYTES_MAX: u64 = (8 << 20) + 1;

/// A file that was read.
#[derive(Debug)]
pub(crate) struct WorkflowFile {
    /// What it is called in errors.
    pub(crate) name: String,
    text: String,
}

impl WorkflowFile {
    /// Reads a file; `-` is standard input.
    pub(crate) fn open(path: &str) -> Result<Self, Failure> {
        let mut bytes = Vec::new();
        let read = match path {
            "-" => std::io::stdin().lock().take(BYTES_MAX).read_to_end(&mut bytes),
            path => std::fs::File::open(path).and_then(|file| file.take(BYTES_MAX).read_to_end(&mut bytes)),
        };
        let name = if path == "-" { "stdin" } else { path };
        read.map_err(|error| {
            Failure::invalid(format!("{name}: {error}")).hint("name a workflow file, or - for standard input")
        })?;
        let text = String::from_utf8(bytes)
            .map_err(|error| Failure::invalid(format!("{name}: {}", error.utf8_error())).hint("save it as UTF-8"))?;
        Ok(Self { name: name.to_owned(), text })
    }

    /// What it says, or what is wrong with it.
    pub(crate) fn read(&self) -> Result<Workflow, Problems> {
        yaml::read_with(&self.name, &self.text, &|path| self.load(path))
    }

    /// A file that this one uses. A link does not lead out of its folder.
    fn load(&self, path: &str) -> Result<String, String> {
        let folder = Path::new(&self.name).parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
        let said = |error: std::io::Error| error.to_string();
        let folder = folder.canonicalize().map_err(said)?;
        let file = folder.join(path).canonicalize().map_err(said)?;
        if !file.starts_with(&folder) {
            return Err("it is a link that leads out of the folder".to_owned());
        }
        let mut bytes = Vec::new();
        std::fs::File::open(&file).and_then(|file| file.take(BYTES_MAX).read_to_end(&mut bytes)).map_err(said)?;
        String::from_utf8(bytes).map_err(|error| error.utf8_error().to_string())
    }

    /// What it says. What is wrong with it is drawn on standard error.
    pub(crate) fn workflow(&self, json: bool) -> Result<Workflow, Failure> {
        self.read().map_err(|problems| {
            if !json {
                say(drawn(&problems));
            }
            let faults = count(problems.count() as u64, "fault");
            let first = problems.all.first().map(|problem| {
                let (line, column) = problems.place(problem);
                format!(": {} at {line}:{column}", problem.message)
            });
            let failure = Failure::failed(format!("{} has {faults}{}", self.name, first.unwrap_or_default()));
            if json { failure.hint("windlass lint --json tells all of them") } else { failure }
        })
    }
}

/// Faults, for people.
pub(crate) fn drawn(problems: &Problems) -> String {
    let line = |line: &str| match line.strip_prefix("error:") {
        Some(rest) => format!("{ERROR}error:{ERROR:#}{rest}\n"),
        None => format!("{line}\n"),
    };
    problems.to_string().lines().map(line).collect()
}

/// Reads a workflow file, and resolves the inputs of a run.
pub(crate) fn read_with_inputs(
    app: &App,
    path: &str,
    inputs: Vec<(String, String)>,
) -> Result<(Workflow, Value), Failure> {
    let workflow = WorkflowFile::open(path)?.workflow(app.ui.json)?;
    let inputs = workflow.resolve_inputs(inputs.into_iter().collect()).map_err(|error| refused(&error))?;
    Ok((workflow, inputs))
}

/// What is wrong with the inputs that were given.
pub(crate) fn refused(error: &InputError) -> Failure {
    let said = error.to_string();
    let (message, hint) = said.split_once("; ").unwrap_or((&said, ""));
    match error {
        InputError::Missing { .. } => Failure::invalid(message).hint("say --input NAME=VALUE"),
        InputError::Unknown { .. } | InputError::Wrong { .. } => Failure::invalid(message).hint(hint),
    }
}
