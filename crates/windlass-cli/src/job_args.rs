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
    match text.strip_prefix('@') {
        Some(path) => {
            let opened = File::open(path);
            bounded(opened.map_err(|error| Failure::invalid(format!("the payload {path}: {error}")))?)
        }
        None if text == "-" => bounded(std::io::stdin().lock()),
        None => Ok(text.as_bytes().to_vec()),
    }
}

/// All of it, but not more than a payload may be: its source may have no end.
fn bounded(source: impl Read) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    source
        .take(PAYLOAD_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::invalid(format!("the payload: {error}")))?;
    if bytes.len() as u64 > PAYLOAD_BYTES_MAX {
        return Err(Failure::invalid(format!("the payload is larger than {PAYLOAD_BYTES_MAX} bytes"))
            .hint("store it elsewhere and enqueue where it is"));
    }
    Ok(bytes)
}
