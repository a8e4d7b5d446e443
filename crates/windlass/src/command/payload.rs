//! What a job that runs commands is told.

use serde::Deserialize;
use serde_json::{Map, Value as Json};
use std::collections::BTreeMap;

/// The payload. What it holds beside this is for others.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Payload {
    pub(super) steps: Vec<Step>,
    shell: Option<String>,
    working_directory: Option<String>,
    /// The outputs that it is to have; none are declared when there are none.
    #[serde(default)]
    pub(super) outputs: Vec<String>,
    #[serde(default)]
    pub(super) env: BTreeMap<String, Json>,
    /// The jobs before it, as they are: how they ended, and their outputs.
    #[serde(default)]
    pub(super) needs: Map<String, Json>,
    #[serde(default)]
    pub(super) run: Run,
    #[serde(default)]
    pub(super) artifacts: Artifacts,
}

/// Files that it takes from other jobs of its run, and those that it hands on.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Artifacts {
    /// Patterns by name.
    #[serde(default)]
    pub(super) upload: BTreeMap<String, Vec<String>>,
    /// Folders by name.
    #[serde(default)]
    pub(super) download: BTreeMap<String, String>,
}

impl Artifacts {
    /// One that it names.
    pub(super) fn any(&self) -> Option<&str> {
        self.download.keys().chain(self.upload.keys()).next().map(String::as_str)
    }
}

/// A script and how it is run.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Step {
    pub(super) run: String,
    name: Option<String>,
    #[serde(default)]
    pub(super) env: BTreeMap<String, Json>,
    shell: Option<String>,
    working_directory: Option<String>,
}

/// The run of a workflow that it belongs to.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Run {
    pub(super) id: Option<String>,
    pub(super) workflow: Option<String>,
    pub(super) node: Option<String>,
    #[serde(default)]
    pub(super) matrix: Option<Map<String, Json>>,
    /// How often its node was run before, in this run.
    #[serde(default)]
    #[cfg_attr(not(feature = "artifacts"), expect(dead_code, reason = "it orders uploads"))]
    pub(super) rerun: u32,
}

/// The longest name that is made of a script.
const NAME_CHARS_MAX: usize = 60;

impl Payload {
    pub(super) fn shell<'p>(&'p self, step: &'p Step) -> &'p str {
        step.shell.as_deref().or(self.shell.as_deref()).unwrap_or("sh")
    }

    pub(super) fn folder<'p>(&'p self, step: &'p Step) -> Option<&'p str> {
        step.working_directory.as_deref().or(self.working_directory.as_deref())
    }
}

impl Step {
    /// Its name; without one, its first line.
    pub(super) fn title(&self) -> String {
        match &self.name {
            Some(name) => name.clone(),
            None => {
                let line = self.run.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("(empty)");
                match line.char_indices().nth(NAME_CHARS_MAX) {
                    Some((end, _)) => format!("{}…", &line[..end]),
                    None => line.to_owned(),
                }
            }
        }
    }
}

/// A value as text: what is a text already stays what it is.
pub(super) fn text_of(value: &Json) -> String {
    match value {
        Json::String(text) => text.clone(),
        Json::Null => String::new(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_says_more_than_its_job_and_unknown_things_are_left_alone() {
        let text = r#"{ "steps": [{ "run": "\n  make all\n", "shell": "bash" }, { "run": "x", "name": "second" }],
            "shell": "sh", "working-directory": "src", "cache": { "key": [] } }"#;
        let payload: Payload = serde_json::from_str(text).unwrap();
        let [first, second] = &payload.steps[..] else { panic!("two steps") };
        assert_eq!((payload.shell(first), payload.shell(second)), ("bash", "sh"));
        assert_eq!(payload.folder(first), Some("src"));
        assert_eq!((first.title().as_str(), second.title().as_str()), ("make all", "second"));
    }

    #[test]
    fn values_become_text() {
        let texts: Vec<String> =
            [Json::from("a b"), Json::from(1), Json::from(true), Json::Null].iter().map(text_of).collect();
        assert_eq!(texts, ["a b", "1", "true", ""]);
    }
}
