//! JSON as an argument of a command.

use crate::failure::Failure;
use crate::job_args::read_argument;
use serde_json::value::RawValue;
use windlass::core::store::RUN_PART_BYTES_MAX;
use windlass_operate::strict_json;

/// The JSON that an argument stands for: itself, `-` for standard input, `@FILE` for a file; `null` when it is left out.
/// `what` is what it is called in errors.
pub(crate) fn read_json(text: Option<&str>, what: &str) -> Result<Box<RawValue>, Failure> {
    let Some(text) = text else { return Ok(RawValue::NULL.to_owned()) };
    let bytes = read_argument(text, what, RUN_PART_BYTES_MAX as u64)?;
    let invalid = |error: serde_json::Error| {
        Failure::invalid(format!("the {what} is not JSON: {error}")).hint("quote text as '\"text\"'")
    };
    strict_json::check(&bytes).map_err(invalid)?;
    serde_json::from_slice(&bytes).map_err(invalid)
}
