//! Logs of jobs: lines per attempt, numbered by their writer, so that a repeated append is recognised.

use super::queue::{check_batch, check_max};
use super::wire;
use crate::error::{Error, Result};
use crate::id::JobId;
use crate::job::Lease;
use crate::time::Timestamp;
use async_trait::async_trait;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// The longest line; a longer one is refused, and writers cut it into several.
pub const LOG_LINE_BYTES_MAX: usize = 64 << 10;
/// The most lines that are kept of one job; the oldest go first.
pub const LOG_LINES_MAX: u64 = 1_000_000;

/// Append-only logs of jobs.
#[async_trait]
pub trait LogSink: Send + Sync + 'static {
    /// Appends lines, with the current lease only. Lines that are there already are skipped; a gap is refused.
    /// Answers the number that the next line will have.
    async fn append_logs(&self, appends: Vec<LogAppend>) -> Result<Vec<Result<u64>>>;

    /// Reads lines, oldest first.
    async fn read_logs(&self, request: LogRequest) -> Result<LogPage>;
}

/// Where a line came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogStream {
    /// The handler's own words.
    Log,
    /// A command's standard output.
    Stdout,
    /// A command's standard error.
    Stderr,
}

/// One line, without its end. It need not be UTF-8.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    /// When it was written, by its writer's clock.
    pub at: Timestamp,
    /// Where it came from.
    pub stream: LogStream,
    /// The line.
    #[serde(with = "wire::text")]
    pub text: Bytes,
}

/// Lines to append.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogAppend {
    /// Whose.
    pub lease: Lease,
    /// The number of the first of these lines; the job's first line ever has number 0. A new attempt goes on where the
    /// last one ended, and learns that number by appending nothing.
    pub first: u64,
    /// The lines.
    #[serde(default)]
    pub lines: Vec<LogLine>,
}

impl LogAppend {
    /// Refuses a call with too many lines.
    pub fn check_batch(appends: &[Self]) -> Result<()> {
        check_batch(appends.iter().map(|append| append.lines.len()).sum::<usize>().max(appends.len()))
    }

    /// Refuses a line that is too long.
    pub fn check(&self) -> Result<()> {
        match self.lines.iter().find(|line| line.text.len() > LOG_LINE_BYTES_MAX) {
            Some(line) => Err(Error::limit("a log line, in bytes,", LOG_LINE_BYTES_MAX as u64, line.text.len() as u64)),
            None => Ok(()),
        }
    }
}

/// Lines to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogRequest {
    /// Of this job.
    pub job: JobId,
    /// From this number.
    #[serde(default)]
    pub from: u64,
    /// From 1 to 10,000.
    pub limit: u32,
}

impl LogRequest {
    /// Refuses what cannot be meant.
    pub fn check(&self) -> Result<()> {
        check_max("limit", self.limit)
    }
}

/// Lines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogPage {
    /// The number of the first line here; more than was asked for when older ones are gone.
    pub first: u64,
    /// The lines: attempt and line.
    #[serde(default, with = "wire::attempt_lines")]
    pub lines: Vec<(u32, LogLine)>,
    /// The number that the job's next line will have.
    pub next: u64,
}
