//! `windlass.toml` in the working directory: what flags and environment leave open.

use crate::failure::Failure;
use serde::Deserialize;
use std::io::ErrorKind;
use windlass_operate::text::unknown_field_hint;

const FILE: &str = "windlass.toml";

/// What may stand in it.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// The store's URL.
    pub(crate) store: Option<String>,
}

impl Config {
    /// Reads it; a missing file says nothing.
    pub(crate) fn read() -> Result<Self, Failure> {
        match std::fs::read_to_string(FILE) {
            Ok(text) => toml::from_str(&text).map_err(|error| wrong(&error)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(Failure::invalid(format!("{FILE} cannot be read: {error}"))),
        }
    }
}

/// The parser shows the line; a near miss is named.
fn wrong(error: &toml::de::Error) -> Failure {
    let failure = Failure::invalid(format!("{FILE}: {}", error.to_string().trim_end()));
    match unknown_field_hint(error.message()) {
        Some(advice) => failure.hint(advice),
        None => failure.hint(format!("{FILE} may hold one line: store = \"sqlite://jobs.db\"")),
    }
}
