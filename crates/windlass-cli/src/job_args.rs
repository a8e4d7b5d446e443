//! A job as flags of `enqueue` and `schedules add`.

use crate::failure::Failure;
use clap::Args;
use std::fs::File;
use std::io::Read;
use windlass::core::job::PAYLOAD_BYTES_MAX;
use windlass_operate::job_input::{JobInput, PayloadInput};

/// A job as flags.
#[derive(Debug, Args)]
pub(crate) struct JobArgs {
    #[command(flatten)]
    input: JobInput,
    /// Its input, JSON: as it stands here, `-` for standard input, `@FILE` for a file; null when it is left out
    #[arg(value_name = "PAYLOAD", allow_negative_numbers = true)]
    payload: Option<String>,
}

impl JobArgs {
    /// The payload's text as something else, if it is that.
    pub(crate) fn payload_as<T: std::str::FromStr>(&self) -> Option<T> {
        self.payload.as_ref()?.parse().ok()
    }

    /// The job, with the payload read from where its argument says.
    pub(crate) fn read(self) -> Result<JobInput, Failure> {
        let payload = self.payload.map(|text| read_payload(&text)).transpose()?.map(PayloadInput::Bytes);
        Ok(JobInput { payload, ..self.input })
    }
}

/// The bytes that an argument stands for: itself, `-` for standard input, `@FILE` for a file.
fn read_payload(text: &str) -> Result<Vec<u8>, Failure> {
    read_argument(text, "payload", PAYLOAD_BYTES_MAX)
}

/// Reads what an argument stands for. `what` is what it is called in errors.
pub(crate) fn read_argument(text: &str, what: &str, bytes_max: u64) -> Result<Vec<u8>, Failure> {
    match text.strip_prefix('@') {
        Some(path) => {
            let opened = File::open(path);
            let opened = opened.map_err(|error| Failure::invalid(format!("the {what} {path}: {error}")))?;
            bounded(opened, what, bytes_max)
        }
        None if text == "-" => bounded(std::io::stdin().lock(), what, bytes_max),
        None => Ok(text.as_bytes().to_vec()),
    }
}

/// All of it, but not more than is allowed: its source may have no end.
fn bounded(source: impl Read, what: &str, bytes_max: u64) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    source
        .take(bytes_max + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::invalid(format!("the {what}: {error}")))?;
    if bytes.len() as u64 > bytes_max {
        return Err(Failure::invalid(format!("the {what} is larger than {bytes_max} bytes"))
            .hint("store it elsewhere and pass where it is"));
    }
    Ok(bytes)
}
