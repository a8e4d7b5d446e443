//! Ledgers: what a process or a task did, written outside the store before it goes on.

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Result, Write};
use std::path::Path;
use std::sync::Arc;
use windlass_core::id::JobId;
use windlass_core::job::Lease;
use windlass_core::store::Reported;

const EXTENSION: &str = "ledger";

/// One line of a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    /// By how many milliseconds the clock of this process is ahead of the store's; negative when it is behind.
    ClockAheadMs(i64),
    /// An enqueuer is about to enqueue this job.
    Intended(JobId),
    /// The store has acknowledged this job.
    Acknowledged(JobId),
    /// A handler was executed. The demo writes this when the handler starts, the crash test when its work is done.
    Executed {
        /// The job of the handler.
        job: JobId,
        /// The number of the attempt; the first is 1.
        attempt: u32,
    },
    /// The job was claimed by a claim that was sent after the job's completion had been acknowledged.
    Redelivered(JobId),
    /// The store has accepted the outcome of this lease.
    Accepted(Lease, Reported),
    /// The store has refused the outcome of this lease, because the lease was lost.
    Refused(Lease),
    /// The store has refused to renew this lease, because the lease was lost.
    RenewalRefused(Lease),
}

impl Entry {
    /// The handler of this lease was executed.
    pub fn executed(lease: Lease) -> Self {
        Self::Executed { job: lease.job, attempt: lease.attempt }
    }

    /// The store has answered the outcome of this lease; `None` when it was refused because the lease was lost.
    pub fn answered(lease: Lease, reported: Option<Reported>) -> Self {
        reported.map_or(Self::Refused(lease), |reported| Self::Accepted(lease, reported))
    }
}

/// Entries of several tasks of one process.
pub type Book = Arc<Mutex<Vec<Entry>>>;

/// The ledger of one process or task.
#[derive(Debug)]
pub enum Ledger {
    /// A file. A line that was written outlives a process that is killed.
    File(File),
    /// A file that is synced after every write.
    SyncedFile(File),
    /// Memory, for tasks of a process that is not killed.
    Shared(Book),
}

impl Ledger {
    /// Opens the ledger called `name` in a folder, to append to it.
    pub fn open(dir: &Path, name: &str) -> Result<Self> {
        let path = dir.join(format!("{name}.{EXTENSION}"));
        Ok(Self::File(OpenOptions::new().create(true).append(true).open(path)?))
    }

    /// The same ledger, synced after every write.
    #[must_use]
    pub fn synced(self) -> Self {
        match self {
            Self::File(file) => Self::SyncedFile(file),
            synced => synced,
        }
    }

    /// Appends entries in one write. Ends the process if they cannot be written: the audit is worthless without them.
    pub fn note(&self, entries: &[Entry]) {
        if let Err(error) = self.append(entries) {
            eprintln!("the ledger cannot be written: {error}");
            std::process::exit(1);
        }
    }

    fn append(&self, entries: &[Entry]) -> Result<()> {
        let mut lines = Vec::new();
        for entry in entries {
            serde_json::to_writer(&mut lines, entry)?;
            lines.push(b'\n');
        }
        match self {
            Self::File(file) => { file }.write_all(&lines),
            Self::SyncedFile(file) => { file }.write_all(&lines).and_then(|()| file.sync_data()),
            Self::Shared(book) => {
                book.lock().extend_from_slice(entries);
                Ok(())
            }
        }
    }
}

/// Reads all ledgers of a folder.
pub fn read_ledgers(dir: &Path) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for file in std::fs::read_dir(dir)? {
        let path = file?.path();
        if path.extension().is_some_and(|extension| extension == EXTENSION) {
            entries.extend(parse(&std::fs::read(path)?)?);
        }
    }
    Ok(entries)
}

/// Leaves out an unfinished last line: its process was killed while it wrote.
fn parse(bytes: &[u8]) -> Result<Vec<Entry>> {
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let lines = bytes[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let damaged = |error| Error::new(ErrorKind::InvalidData, format!("a ledger is damaged: {error}"));
    lines.map(|line| serde_json::from_slice(line).map_err(damaged)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::id::Token;
    use windlass_core::job::State;

    #[test]
    fn every_kind_of_entry_is_read_as_it_was_written_by_all_writers_of_a_folder() {
        let dir = tempfile::tempdir().unwrap();
        let job = JobId::from_parts(0, 7);
        let lease = Lease { job, attempt: 2, token: Token::from_bits(u64::MAX) };
        let first = [Entry::ClockAheadMs(-3), Entry::Intended(job), Entry::Acknowledged(job)];
        let second = [Entry::Executed { job, attempt: 2 }, Entry::Redelivered(job)];
        let reported = Reported { state: State::Succeeded, repeated: true };
        let third = [Entry::Accepted(lease, reported), Entry::Refused(lease), Entry::RenewalRefused(lease)];
        Ledger::open(dir.path(), "w1-1").unwrap().note(&first);
        Ledger::open(dir.path(), "w1-1").unwrap().synced().note(&second);
        assert_eq!(read_ledgers(dir.path()).unwrap(), [&first[..], &second].concat());
        Ledger::open(dir.path(), "w2").unwrap().note(&third);
        std::fs::write(dir.path().join("w2.log"), "no ledger").unwrap();
        let all = read_ledgers(dir.path()).unwrap();
        assert!(all.len() == 8 && [&first[..], &second, &third].concat().iter().all(|entry| all.contains(entry)));
    }

    #[test]
    fn a_torn_last_line_is_left_out_and_a_torn_middle_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let job = JobId::from_parts(0, 7);
        Ledger::open(dir.path(), "a").unwrap().note(&[Entry::Intended(job), Entry::Acknowledged(job)]);
        let whole = std::fs::read(dir.path().join("a.ledger")).unwrap();
        assert_eq!(parse(&whole[..whole.len() - 3]).unwrap(), [Entry::Intended(job)]);
        let error = parse(&[&whole[5..], &whole[..]].concat()).unwrap_err();
        assert!(error.to_string().starts_with("a ledger is damaged: "), "{error}");
    }
}
