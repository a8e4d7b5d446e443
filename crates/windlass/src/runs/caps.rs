//! Caps of groups that workflows set.

use std::collections::HashSet;
use windlass_core::name::{GroupName, QueueName};
use windlass_core::store::Setting;

/// Caps of one generation that are remembered.
const CAPS_MAX: usize = 4_096;

/// How many jobs of a group may be active at once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct GroupCap {
    pub(super) queue: QueueName,
    pub(super) group: GroupName,
    pub(super) max: u32,
}

impl GroupCap {
    pub(super) fn setting(&self) -> Setting {
        Setting::GroupCap { queue: self.queue.clone(), group: self.group.clone(), cap: self.max }
    }
}

/// Caps that an engine has configured. The oldest are forgotten, because names of groups may contain inputs of runs: it holds at
/// most two generations.
#[derive(Debug, Default)]
pub(super) struct ConfiguredCaps {
    newer: HashSet<GroupCap>,
    older: HashSet<GroupCap>,
}

impl ConfiguredCaps {
    pub(super) fn contains(&self, cap: &GroupCap) -> bool {
        self.newer.contains(cap) || self.older.contains(cap)
    }

    pub(super) fn insert(&mut self, cap: GroupCap) {
        if self.newer.len() >= CAPS_MAX {
            self.older = std::mem::take(&mut self.newer);
        }
        self.newer.insert(cap);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cap(n: usize) -> GroupCap {
        let (queue, group) = (QueueName::new("q").unwrap(), GroupName::new(format!("g{n}")).unwrap());
        GroupCap { queue, group, max: 1 }
    }

    #[test]
    fn a_bounded_number_of_caps_is_remembered_and_the_latest_are_among_them() {
        let mut caps = ConfiguredCaps::default();
        for n in 0..5 * CAPS_MAX {
            caps.insert(cap(n));
            assert!((n.saturating_sub(CAPS_MAX - 1)..=n).step_by(CAPS_MAX / 4).all(|known| caps.contains(&cap(known))));
            assert!(caps.newer.len() + caps.older.len() <= 2 * CAPS_MAX);
        }
        assert!(!caps.contains(&cap(0)));
        assert!(!caps.contains(&GroupCap { max: 2, ..cap(5 * CAPS_MAX - 1) }), "another cap of the same group");
    }
}
