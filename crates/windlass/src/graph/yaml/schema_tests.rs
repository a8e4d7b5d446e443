//! The schema for editors takes what the reader takes, and refuses much of what it refuses.

use super::tests::FAULTS;
use super::*;
use std::sync::LazyLock;

pub(super) fn schema() -> &'static jsonschema::Validator {
    static SCHEMA_READ: LazyLock<jsonschema::Validator> =
        LazyLock::new(|| jsonschema::draft7::new(&serde_json::from_str(SCHEMA).unwrap()).unwrap());
    &SCHEMA_READ
}

/// Every good text of the other tests is looked at.
pub(super) fn assert_fits(text: &str) {
    let json = tree::read(text).unwrap().0.json();
    let errors: Vec<String> = schema().iter_errors(&json).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{text}\n{errors:?}");
}

#[test]
fn the_documents_carry_the_same_schema() {
    let shown = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/workflow.schema.json"));
    assert_eq!(shown.unwrap(), SCHEMA, "copy crates/windlass/src/graph/yaml/schema.json to docs/workflow.schema.json");
}

/// What a schema cannot know: names that refer to each other, expressions, circles.
const BEYOND: &[&str] = &[
    "there is no job `b`",
    "there is no job `tset`",
    "jobs wait for each other",
    "the job does not need",
    "there is no input",
    "`=` assigns",
    "there is no matrix here",
    "the matrix has no",
    "longer than nothing",
    "control character",
    "no input `x`",
    "a workflow needs nothing",
    "cannot be read",
    "for the outputs of a workflow",
    "a default is no template",
    "there is no time zone",
    "every row of the matrix",
    "two rows of the matrix",
    "for one row of the matrix",
    "one would replace the other",
];

#[test]
fn what_cannot_be_read_is_refused_where_a_schema_can() {
    let mut refused = 0;
    for (text, message, ..) in FAULTS {
        let Ok((tree, twice)) = tree::read(text) else { continue };
        if !twice.is_empty() {
            continue;
        }
        if !schema().is_valid(&tree.json()) {
            refused += 1;
        } else {
            // The one without words is about cron.
            let beyond = message.is_empty() || BEYOND.iter().any(|beyond| message.contains(beyond));
            assert!(beyond, "{text}: {message}");
        }
    }
    assert!(refused > 20, "{refused}");
}
