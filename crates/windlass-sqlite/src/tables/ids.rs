//! Which ids are taken, as far as it can be told without asking.
//!
//! New ids rise with time, so they all fall into the same gap between those that are there. A look-up that finds nothing
//! tells where that gap ends, and the next ones need none.

use windlass_core::engine::{NumberMap, Row};
use windlass_core::id::JobId;

/// What is known of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// Nothing.
    No,
    /// It is free.
    Free,
    /// The job stands there.
    At(Row),
}

/// No job of the file has an id between these two.
#[derive(Clone, Copy, Debug)]
struct Gap {
    above: JobId,
    /// `None` when there is none above, in the same partition.
    below: Option<JobId>,
}

impl Gap {
    fn contains(self, id: JobId) -> bool {
        id.partition() == self.above.partition() && self.above < id && self.below.is_none_or(|below| id < below)
    }
}

#[derive(Debug, Default)]
pub(super) struct Ids {
    gap: Option<Gap>,
    /// The jobs that this transaction has added.
    added: NumberMap<JobId, Row>,
}

impl Ids {
    pub(super) fn find(&self, id: JobId) -> Known {
        match self.added.get(&id) {
            Some(row) => Known::At(*row),
            None if self.gap.is_some_and(|gap| gap.contains(id)) => Known::Free,
            None => Known::No,
        }
    }

    /// `free` is not there, and `next` is the one that follows it.
    pub(super) fn learn(&mut self, free: JobId, next: Option<JobId>) {
        let below = next.filter(|next| next.partition() == free.partition());
        let wider = |gap: Gap| match (gap.below, below) {
            (None, Some(_)) => true,
            (Some(old), Some(new)) => old > new,
            (_, None) => false,
        };
        // One that is late must not hide where the others go.
        let keep = self.gap.is_some_and(|gap| gap.above.partition() == free.partition() && wider(gap));
        if !keep {
            self.gap = Some(Gap { above: free, below });
        }
    }

    pub(super) fn note_added(&mut self, id: JobId, row: Row) {
        self.added.insert(id, row);
    }

    pub(super) fn note_removed(&mut self, id: JobId) {
        self.added.remove(&id);
    }

    /// To be called between transactions.
    pub(super) fn end_transaction(&mut self) {
        if let Some(gap) = &mut self.gap {
            let added = self.added.keys().copied().filter(|id| gap.contains(*id)).max();
            gap.above = added.unwrap_or(gap.above);
        }
        self.added.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(bits: u128) -> JobId {
        JobId::from_parts(0, bits)
    }

    #[test]
    fn ids_in_the_gap_are_free_until_they_are_added() {
        let mut ids = Ids::default();
        assert_eq!(ids.find(id(5)), Known::No);
        ids.learn(id(5), Some(id(9)));
        assert_eq!((ids.find(id(5)), ids.find(id(6)), ids.find(id(9))), (Known::No, Known::Free, Known::No));
        assert_eq!(ids.find(JobId::from_parts(1, 6)), Known::No);
        ids.note_added(id(7), Row(1));
        assert_eq!((ids.find(id(6)), ids.find(id(7))), (Known::Free, Known::At(Row(1))));
        ids.end_transaction();
        assert_eq!((ids.find(id(6)), ids.find(id(7)), ids.find(id(8))), (Known::No, Known::No, Known::Free));
    }

    #[test]
    fn one_that_was_removed_again_is_free() {
        let mut ids = Ids::default();
        ids.learn(id(5), None);
        ids.note_added(id(7), Row(1));
        ids.note_removed(id(7));
        assert_eq!(ids.find(id(7)), Known::Free);
    }

    #[test]
    fn the_gap_in_which_new_ids_fall_is_kept() {
        let mut ids = Ids::default();
        ids.learn(id(50), None);
        ids.learn(id(5), Some(id(6)));
        assert_eq!(ids.find(id(51)), Known::Free);
        ids.learn(id(60), None);
        assert_eq!((ids.find(id(51)), ids.find(id(61))), (Known::No, Known::Free));
        // The end of a partition is the end of a gap.
        ids.learn(id(70), Some(JobId::from_parts(1, 0)));
        assert_eq!(ids.find(id(71)), Known::Free);
    }
}
