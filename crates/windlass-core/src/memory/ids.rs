//! Finds the row of an id in a third of the memory that a map by id would take.
//!
//! The map's key is half of the id; the record itself tells whether it is the right one. Ids are random there, so two of
//! them hardly ever share a half; those that do are kept by their whole id.

use crate::engine::{NumberMap, Row};
use crate::id::JobId;
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(super) struct Ids {
    rows: NumberMap<u64, Row>,
    shared: BTreeMap<JobId, Row>,
}

/// The random half of an id.
fn half(id: JobId) -> u64 {
    let mut low = [0; 8];
    low.copy_from_slice(&id.bits().to_le_bytes()[..8]);
    u64::from_le_bytes(low) ^ u64::from(id.partition())
}

impl Ids {
    /// The row of an id. `is_it` tells whether the record at a row has it.
    pub(super) fn find(&self, id: JobId, is_it: impl FnOnce(Row) -> bool) -> Option<Row> {
        match self.rows.get(&half(id)) {
            Some(row) if is_it(*row) => Some(*row),
            _ if self.shared.is_empty() => None,
            _ => self.shared.get(&id).copied(),
        }
    }

    /// Adds an id that is not there.
    pub(super) fn insert(&mut self, id: JobId, row: Row) {
        let taken = *self.rows.entry(half(id)).or_insert(row);
        if taken != row {
            self.shared.insert(id, row);
        }
    }

    /// Removes an id that is there.
    pub(super) fn remove(&mut self, id: JobId, row: Row) {
        if self.rows.get(&half(id)) == Some(&row) {
            self.rows.remove(&half(id));
        } else {
            self.shared.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_a_map_even_when_halves_are_shared(steps in prop::collection::vec((0u128..4, 0u128..4, any::<bool>()), 0..200)) {
            let (mut ids, mut model, mut records) = (Ids::default(), BTreeMap::new(), BTreeMap::new());
            for (n, (high, low, insert)) in steps.into_iter().enumerate() {
                let id = JobId::from_parts(0, high << 64 | low);
                let found = ids.find(id, |row| records.get(&row) == Some(&id));
                prop_assert_eq!(found, model.get(&id).copied());
                match (insert, found) {
                    (true, None) => {
                        let row = Row(n as u64);
                        ids.insert(id, row);
                        model.insert(id, row);
                        records.insert(row, id);
                    }
                    (false, Some(row)) => {
                        ids.remove(id, row);
                        model.remove(&id);
                        records.remove(&row);
                    }
                    _ => {}
                }
            }
        }
    }
}
