//! The job that does nothing.

use serde::{Deserialize, Serialize};
use windlass::{Job, Options};
use windlass_bench::floor::PAYLOAD_BYTES;

/// The queue that all measurements use, and nothing else does.
pub(super) const QUEUE: &str = "windlass-bench";

/// A job that does nothing, as large as most are.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Noop {
    pub(super) n: u32,
    pad: String,
    /// It belongs to one of so many groups.
    #[serde(skip)]
    groups: Option<u32>,
}

impl Noop {
    pub(super) fn new(n: u32) -> Self {
        Self { n, pad: pad(n), groups: None }
    }

    /// In one of so many groups, one after the other; in none of them when there are none.
    pub(super) fn grouped(n: u32, groups: Option<u32>) -> Self {
        Self { groups, ..Self::new(n) }
    }
}

impl Job for Noop {
    const KIND: &'static str = "windlass-bench-noop";
    const QUEUE: &'static str = QUEUE;
    type Output = ();

    fn options(&self) -> Options {
        match self.groups {
            Some(groups) => Options::new().group(format!("group-{}", self.n % groups.max(1))),
            None => Options::new(),
        }
    }
}

/// Fills the payload up.
pub(super) fn pad(n: u32) -> String {
    let around = r#"{"n":,"pad":""}"#.len();
    let digits = n.checked_ilog10().map_or(1, |log| log as usize + 1);
    "x".repeat(PAYLOAD_BYTES - around - digits)
}

#[cfg(test)]
mod tests {
    use super::Noop;

    #[test]
    fn every_payload_has_100_bytes() {
        for n in [0, 9, 10, 4_294_967_295] {
            assert_eq!(serde_json::to_vec(&Noop::new(n)).unwrap().len(), 100, "{n}");
            assert_eq!(serde_json::to_vec(&Noop::grouped(n, Some(7))).unwrap().len(), 100, "{n}");
        }
    }
}
