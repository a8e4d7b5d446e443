//! The keys of a store: all there are, in the one order in which every script has them.
//!
//! All carry one hash tag, so that on a cluster a store lives in one slot and every step is atomic. There is no key per job,
//! per queue, per group or per run: while a slot moves, Redis stops a script half-way that meets a key it did not declare.

/// How many there are.
pub const COUNT: usize = 35;

/// What the keys hold, in the order of the scripts (`lua/lib/base.lua`).
pub const NAMES: [&str; COUNT] = [
    "meta",
    "jobs",
    "ready",
    "ring",
    "groups",
    "minutes",
    "feed",
    "bells",
    "idle",
    "life",
    "scheduled",
    "wake",
    "leases",
    "claims",
    "extra",
    "ended",
    "watch",
    "removable",
    "cancelling",
    "dedup",
    "dedup_until",
    "group_names",
    "parked",
    "logs",
    "trash",
    "workers",
    "schedules",
    "ticks",
    "runs",
    "inbox",
    "run_ready",
    "run_wake",
    "history",
    "run_list",
    "run_removable",
];

/// The type of each key, in the same order: `h` hash, `z` sorted set, `x` stream, `l` list.
pub const TYPES: &str = "hhzzhhxzhhzzzhhzhzzhzzzhlhhzhhzzhzz";

/// Keys that may exist while `meta` does not: workers register and wait before anything is written. So may the timekeeper,
/// which is none of [`NAMES`]. With any other key present, a store without `meta` is damaged.
pub const WITHOUT_META: [&str; 3] = ["bells", "idle", "workers"];

/// The first of them are all that enqueuing plain jobs touches.
pub(crate) const PLAIN: usize = 10;

/// The keys of one store.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    all: [String; COUNT],
    bell: String,
    with_timekeeper: [String; COUNT + 1],
}

impl Keys {
    /// Those under a prefix, which has been checked: it has no braces.
    pub(crate) fn new(prefix: &str) -> Self {
        let key = |name: &str| format!("{{{prefix}}}:{name}");
        let with_timekeeper = std::array::from_fn(|at| key(NAMES.get(at).unwrap_or(&"timekeeper")));
        Self { all: NAMES.map(key), bell: key("bell:"), with_timekeeper }
    }

    /// All.
    pub(crate) fn all(&self) -> &[String] {
        &self.all
    }

    /// Those that enqueuing plain jobs touches.
    pub(crate) fn plain(&self) -> &[String] {
        &self.all[..PLAIN]
    }

    /// That of counters, queues and lanes.
    pub(crate) fn meta(&self) -> &str {
        &self.all[0]
    }

    /// The feed's.
    pub(crate) fn feed(&self) -> &str {
        &self.all[6]
    }

    /// That of the workers.
    pub(crate) fn workers(&self) -> &str {
        &self.all[25]
    }

    /// That of the schedules.
    pub(crate) fn schedules(&self) -> &str {
        &self.all[26]
    }

    /// The key that names the process which keeps time.
    pub(crate) fn timekeeper(&self) -> &str {
        &self.with_timekeeper[COUNT]
    }

    /// All, and behind them that of the timekeeper, which `keep_time.lua` alone uses.
    pub(crate) fn with_timekeeper(&self) -> &[String] {
        &self.with_timekeeper
    }

    /// How the channels of bells begin.
    pub(crate) fn bell(&self) -> &str {
        &self.bell
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_key_and_channel_has_the_hash_tag_of_the_store_and_no_two_are_the_same() {
        let keys = Keys::new("shop");
        assert!(keys.all().iter().all(|key| key.starts_with("{shop}:")));
        assert!(keys.bell().starts_with("{shop}:"));
        assert_eq!(keys.all().iter().collect::<BTreeSet<_>>().len(), COUNT);
        assert_eq!((keys.meta(), keys.feed()), ("{shop}:meta", "{shop}:feed"));
        assert_eq!((keys.workers(), keys.schedules()), ("{shop}:workers", "{shop}:schedules"));
        assert_eq!(keys.plain().len(), PLAIN);
        assert_eq!((&keys.with_timekeeper()[..COUNT], keys.timekeeper()), (keys.all(), "{shop}:timekeeper"));
    }

    #[test]
    fn the_scripts_name_as_many_keys_in_the_same_order() {
        let base = include_str!("../lua/lib/base.lua");
        for (i, _) in NAMES.iter().enumerate() {
            assert!(base.contains(&format!("KEYS[{}]", i + 1)), "key {}", i + 1);
        }
        assert!(!base.contains(&format!("KEYS[{}]", COUNT + 1)));
    }

    #[test]
    fn the_scripts_use_the_same_types_and_exceptions() {
        assert_eq!(TYPES.len(), COUNT);
        let types = TYPES.chars().zip(NAMES).map(|(kind, name)| match name {
            "meta" => '-',
            name if WITHOUT_META.contains(&name) => '-',
            _ => kind,
        });
        let line = format!("local TYPES = '{}'", types.collect::<String>());
        assert!(include_str!("../lua/lib/whole.lua").contains(&line), "{line}");
    }
}
