//! What `windlass demo` and the crash test share: both kill their own workers, and both compare afterwards what was
//! promised with what the store holds.
//!
//! Each process appends what it does to a [`Ledger`], outside the store. A [`Recorder`] around the store of a worker
//! appends which outcomes the store accepted and refused. [`audit()`] compares the ledgers with the store.

mod audit;
mod ledger;
mod recorder;

pub use audit::{Counts, Evidence, Findings, StoredJob, audit};
pub use ledger::{Book, Entry, Ledger, read_ledgers};
pub use recorder::Recorder;

use std::io::Read;

/// Ends this process when its parent ends, in whatever way: standard input is a pipe of which the parent holds the other
/// end.
pub fn end_with_parent() -> std::io::Result<()> {
    let wait = || {
        let mut rest = Vec::new();
        let _ = std::io::stdin().read_to_end(&mut rest);
        std::process::exit(0);
    };
    std::thread::Builder::new().name("parent-watch".to_owned()).spawn(wait)?;
    Ok(())
}
