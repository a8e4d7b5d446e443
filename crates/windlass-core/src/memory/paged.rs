//! A map from rows to values that keeps neighbours together.
//!
//! Rows are numbers of one rising sequence, and jobs are mostly used in the order in which they came. So a page of
//! neighbouring rows is one array: finding the next job touches memory that the last one has just warmed.

use crate::engine::{NumberMap, Row};

const PAGE: u64 = 256;

#[derive(Debug)]
pub(super) struct Paged<V> {
    pages: NumberMap<u64, Page<V>>,
}

#[derive(Debug)]
struct Page<V> {
    slots: Box<[Option<Box<V>>]>,
    used: usize,
}

impl<V> Default for Paged<V> {
    fn default() -> Self {
        Self { pages: NumberMap::default() }
    }
}

/// A row's page, and its place there.
fn place(row: Row) -> (u64, usize) {
    (row.0 / PAGE, usize::try_from(row.0 % PAGE).unwrap_or(0))
}

impl<V> Paged<V> {
    pub(super) fn get(&self, row: Row) -> Option<&V> {
        let (page, slot) = place(row);
        self.pages.get(&page)?.slots.get(slot)?.as_deref()
    }

    pub(super) fn get_mut(&mut self, row: Row) -> Option<&mut V> {
        let (page, slot) = place(row);
        self.pages.get_mut(&page)?.slots.get_mut(slot)?.as_deref_mut()
    }

    pub(super) fn insert(&mut self, row: Row, value: V) {
        let (page, slot) = place(row);
        let empty = || Page { slots: (0..PAGE).map(|_| None).collect(), used: 0 };
        let page = self.pages.entry(page).or_insert_with(empty);
        if let Some(slot) = page.slots.get_mut(slot)
            && slot.replace(Box::new(value)).is_none()
        {
            page.used += 1;
        }
    }

    pub(super) fn remove(&mut self, row: Row) {
        let (number, slot) = place(row);
        let Some(page) = self.pages.get_mut(&number) else { return };
        if page.slots.get_mut(slot).and_then(Option::take).is_some() {
            page.used -= 1;
        }
        if page.used == 0 {
            self.pages.remove(&number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn it_is_a_map_and_keeps_no_empty_page(steps in prop::collection::vec((0u64..2_000, any::<bool>()), 0..400)) {
            let (mut paged, mut model) = (Paged::default(), BTreeMap::new());
            for (n, (row, insert)) in steps.into_iter().enumerate() {
                if insert {
                    paged.insert(Row(row), n);
                    model.insert(row, n);
                } else {
                    paged.remove(Row(row));
                    model.remove(&row);
                }
                prop_assert_eq!(paged.get(Row(row)), model.get(&row));
                prop_assert_eq!(paged.get_mut(Row(row)).map(|v| *v), model.get(&row).copied());
            }
            let pages: std::collections::BTreeSet<u64> = model.keys().map(|row| row / PAGE).collect();
            prop_assert_eq!(paged.pages.len(), pages.len());
        }
    }
}
