//! Enqueueing many jobs: they are read from lines of JSON and sent in batches; a summary counts what became of them.

use crate::error::OperateError;
use crate::job_input::JobInput;
use crate::text::unknown_field_hint;
use serde::Serialize;
use std::io::{BufRead, BufReader, Read};
use std::sync::Arc;
use windlass::Error;
use windlass::core::id::Ids;
use windlass::core::job::{NewJob, PAYLOAD_BYTES_MAX};
use windlass::core::random::StrongRandom;
use windlass::core::store::Enqueued;
use windlass::core::time::SystemClock;

/// Jobs of one batch.
pub const BATCH_JOBS: usize = 1_000;
/// Bytes of lines after which a batch is full.
const BATCH_BYTES: usize = 8 << 20;
/// The longest line: the largest payload, and room for the other fields.
const LINE_BYTES_MAX: u64 = PAYLOAD_BYTES_MAX + (1 << 20);

/// A source of new ids, by the clock and the randomness of the system.
pub fn ids() -> Ids {
    Ids::new(Arc::new(SystemClock), Arc::new(StrongRandom::from_system()))
}

/// The cause of a lost answer; `None` for errors after which it is certain that nothing was enqueued.
pub fn lost_answer(error: &Error) -> Option<String> {
    match error {
        Error::Unknown { reason } | Error::Timeout { reason } => Some(reason.clone()),
        _ => None,
    }
}

/// What became of the jobs of a bulk enqueue.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct BulkSummary {
    /// Jobs that are new.
    pub created: u64,
    /// Jobs that existed already.
    pub existing: u64,
    /// Jobs for which another job with their dedup key stands.
    pub deduplicated: u64,
    /// Jobs that replaced another one.
    pub replaced: u64,
    /// Jobs that wait behind another one.
    pub held: u64,
    /// Jobs that the store refused.
    pub refused: u64,
}

impl BulkSummary {
    /// How many jobs were accepted.
    pub fn accepted(&self) -> u64 {
        self.created + self.existing + self.deduplicated + self.replaced + self.held
    }

    /// Counts an accepted job.
    pub fn add(&mut self, enqueued: &Enqueued) {
        let counter = match enqueued {
            Enqueued::Created { .. } => &mut self.created,
            Enqueued::Existing { .. } => &mut self.existing,
            Enqueued::Deduplicated { .. } => &mut self.deduplicated,
            Enqueued::Replaced { .. } => &mut self.replaced,
            Enqueued::Held { .. } => &mut self.held,
        };
        *counter += 1;
    }

    /// The summary in words: `2 created, 1 refused`.
    pub fn text(&self) -> String {
        let parts = [
            (self.created, "created"),
            (self.existing, "there already"),
            (self.deduplicated, "deduplicated"),
            (self.replaced, "replaced another"),
            (self.held, "held behind another"),
            (self.refused, "refused"),
        ];
        let shown = parts.iter().filter(|(count, name)| *count > 0 || *name == "created");
        shown.map(|(count, name)| format!("{count} {name}")).collect::<Vec<_>>().join(", ")
    }
}

/// A job of a bulk file.
#[derive(Clone, Debug)]
pub struct JobLine {
    /// The number of its line, from 1.
    pub number: u64,
    /// The job.
    pub job: NewJob,
    /// The length of its line.
    pub bytes: usize,
}

/// Jobs that are enqueued in one call.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// The jobs.
    pub jobs: Vec<NewJob>,
    /// The numbers of their lines.
    pub numbers: Vec<u64>,
    /// The length of their lines.
    pub bytes: usize,
}

impl Batch {
    /// Adds a job.
    pub fn add(&mut self, line: JobLine) {
        self.jobs.push(line.job);
        self.numbers.push(line.number);
        self.bytes += line.bytes;
    }

    /// Whether it is time to send it.
    pub fn is_full(&self) -> bool {
        self.jobs.len() >= BATCH_JOBS || self.bytes >= BATCH_BYTES
    }
}

/// The jobs of a bulk file, one JSON object a line; empty lines are skipped. An error comes with the number of its line.
#[derive(Debug)]
pub struct JobLines<R> {
    source: BufReader<R>,
    number: u64,
    ids: Ids,
    /// The source cannot be read any further.
    broken: bool,
}

impl<R: Read> JobLines<R> {
    /// Reads from a file or any other source.
    pub fn new(source: R) -> Self {
        Self { source: BufReader::new(source), number: 0, ids: ids(), broken: false }
    }

    fn read(&mut self, line: &mut Vec<u8>) -> Result<(), OperateError> {
        let broken = &mut self.broken;
        let mut cannot = |error: std::io::Error| {
            *broken = true;
            OperateError::failed(format!("cannot be read: {error}"))
        };
        (&mut self.source).take(LINE_BYTES_MAX).read_until(b'\n', line).map_err(&mut cannot)?;
        if line.len() as u64 == LINE_BYTES_MAX && line.last() != Some(&b'\n') {
            self.source.skip_until(b'\n').map_err(cannot)?;
            return Err(OperateError::invalid(format!("is longer than {LINE_BYTES_MAX} bytes")));
        }
        Ok(())
    }

    fn parse(&self, line: &[u8]) -> Result<NewJob, OperateError> {
        let input: JobInput = serde_json::from_slice(line).map_err(|error| {
            let text = error.to_string().replace(&format!(" at line {} column", error.line()), " at column");
            match unknown_field_hint(&text) {
                // The list of all fields would hide the one that was meant.
                Some(hint) => OperateError::invalid(text.split(", expected").next().unwrap_or(&text)).hint(hint),
                None => OperateError::invalid(text),
            }
        })?;
        let (spec, due) = input.into_spec()?;
        Ok(NewJob::new(self.ids.next(), spec).due(due))
    }
}

impl<R: Read> Iterator for JobLines<R> {
    type Item = Result<JobLine, (u64, OperateError)>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if self.broken {
                return None;
            }
            let mut line = Vec::new();
            self.number += 1;
            if let Err(error) = self.read(&mut line) {
                return Some(Err((self.number, error)));
            }
            if line.is_empty() {
                return None;
            }
            if !line.trim_ascii().is_empty() {
                let (number, bytes) = (self.number, line.len());
                let job = self.parse(line.trim_ascii_end());
                return Some(job.map(|job| JobLine { number, job, bytes }).map_err(|error| (number, error)));
            }
        }
    }
}
