//! What a server's `maxmemory-policy` puts at risk.

use crate::keys::Keys;
use crate::options::Options;
use parking_lot::Mutex;
use std::collections::BTreeSet;

/// How many stores are remembered as warned about; a process that opens more warns again.
const WARNED_MAX: usize = 1_000;

/// What a server deletes when its memory is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Eviction {
    /// Nothing: it refuses what needs memory.
    Nothing,
    /// Keys that expire. Of a store that is the timekeeper's key alone, which holds no data. Without such a key the server
    /// refuses what needs memory.
    ExpiringKeys,
    /// Any key.
    AnyKey,
}

impl Eviction {
    /// What a policy deletes. One that is not known counts as the worst.
    pub(crate) fn of(policy: &str) -> Self {
        match policy {
            "noeviction" => Self::Nothing,
            _ if policy.starts_with("volatile-") => Self::ExpiringKeys,
            _ => Self::AnyKey,
        }
    }
}

/// What is at risk on a server that deletes any key.
pub(crate) fn risk(policy: &str) -> String {
    format!(
        "maxmemory-policy is {policy}: when its memory is full, the server deletes keys of the store. A store has all its jobs \
         in a few large keys, so one deletion may lose all jobs, runs or schedules at once, without an error"
    )
}

/// Warns about a server that deletes any key, once per process and store.
pub(crate) fn warn_once(policy: &str, options: &Options) {
    static WARNED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let store = format!("{:?} {}", options.topology, Keys::new(&options.prefix).meta());
    let mut warned = WARNED.lock();
    if warned.len() >= WARNED_MAX {
        warned.clear();
    }
    if warned.insert(store) {
        tracing::warn!(
            policy,
            prefix = options.prefix,
            "jobs may be lost: {}. allow_eviction=true accepts this; maxmemory-policy noeviction prevents it",
            risk(policy)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_that_is_not_known_counts_as_one_that_deletes_any_key() {
        assert_eq!(Eviction::of("noeviction"), Eviction::Nothing);
        for policy in ["volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl"] {
            assert_eq!(Eviction::of(policy), Eviction::ExpiringKeys, "{policy}");
        }
        for policy in ["allkeys-lru", "allkeys-lfu", "allkeys-random", "something-new", ""] {
            assert_eq!(Eviction::of(policy), Eviction::AnyKey, "{policy}");
        }
    }
}
