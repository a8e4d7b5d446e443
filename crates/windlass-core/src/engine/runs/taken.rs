//! What commits take from inboxes: all items before a number, and single ones behind it. An inbox may have holes afterwards; it
//! begins with the oldest item that is left.
//!
//! The row of a run counts its messages and its holes. Items are only read while there are any, so a commit that takes a whole
//! inbox of job ends reads nothing.

use super::super::Step;
use super::super::rows::RunRow;
use super::super::tables::Tables;
use crate::error::{Error, Result};
use crate::store::{INBOX_ITEMS_MAX, RunItem};

/// What a commit takes, and what it leaves.
pub(super) struct Taken {
    /// All items before this number are taken.
    to: u64,
    /// Numbers of further items that are taken, rising.
    listed: Vec<u64>,
    /// Items that are taken.
    count: u64,
    /// Messages that are left.
    unread: u64,
}

impl Taken {
    /// Messages that the commit leaves in the inbox.
    pub(super) fn unread_left(&self) -> u64 {
        self.unread
    }
}

/// The inbox of a run after a commit has taken items, but for those that the commit itself brings.
pub(super) struct InboxLeft {
    first: u64,
    holes: u64,
    /// Messages that are gone.
    read: u64,
}

impl InboxLeft {
    pub(super) fn settle(&self, row: &mut RunRow) {
        row.inbox_first = self.first;
        row.inbox_holes = self.holes;
        row.unread_messages = row.unread_messages.saturating_sub(self.read);
    }
}

/// Items that were counted.
#[derive(Default)]
struct Counted {
    items: u64,
    messages: u64,
    unreadable: u64,
}

impl Counted {
    fn add(&mut self, item: Option<&RunItem>) {
        self.items += 1;
        self.messages += u64::from(item.is_some_and(RunItem::is_message));
        self.unreadable += u64::from(item.is_none());
    }
}

impl<T: Tables> Step<'_, T> {
    /// Works out what a commit takes. Changes nothing. `exactly` counts the messages that are left anew if there seem to be any:
    /// one that cannot be read does not count.
    pub(super) fn taken(&mut self, row: &RunRow, inbox_to: u64, listed: Vec<u64>, exactly: bool) -> Result<Taken> {
        if inbox_to > row.inbox_next {
            return Err(Error::beyond_inbox("inbox_to"));
        }
        if listed.last().is_some_and(|last| *last >= row.inbox_next) {
            return Err(Error::beyond_inbox("inbox_taken"));
        }
        let to = inbox_to.max(row.inbox_first);
        let listed: Vec<u64> = listed.into_iter().filter(|number| *number >= to).collect();
        if row.unread_messages == 0 && row.inbox_holes == 0 {
            let count = to - row.inbox_first + listed.len() as u64;
            return Ok(Taken { to, listed, count, unread: 0 });
        }
        let mut counted = Counted::default();
        self.each_item(row, row.inbox_first, to, |_, item| counted.add(item))?;
        for (from, to) in ranges(&listed) {
            self.each_item(row, from, to, |_, item| counted.add(item))?;
        }
        let mut unread = row.unread_messages.saturating_sub(counted.messages);
        if unread > 0 && (exactly || counted.unreadable > 0) {
            let mut left = Counted::default();
            self.each_item(row, to, row.inbox_next, |number, item| {
                if listed.binary_search(&number).is_err() {
                    left.add(item);
                }
            })?;
            unread = left.messages;
        }
        Ok(Taken { to, listed, count: counted.items, unread })
    }

    /// Takes items from an inbox.
    pub(super) fn take(&mut self, row: &RunRow, taken: Taken) -> Result<InboxLeft> {
        let Taken { to, listed, count, unread } = taken;
        let read = row.unread_messages.saturating_sub(unread);
        self.tables.trim_inbox(row.id, row.inbox_first, to)?;
        if row.inbox_holes == 0 && listed.is_empty() {
            let read = if to == row.inbox_next { row.unread_messages } else { read };
            return Ok(InboxLeft { first: to, holes: 0, read });
        }
        self.tables.remove_inbox_items(row.id, &listed)?;
        let first = self.tables.inbox(row.id, to, 1)?.first().map_or(row.inbox_next, |(number, _)| *number);
        if first >= row.inbox_next {
            return Ok(InboxLeft { first: row.inbox_next, holes: 0, read: row.unread_messages });
        }
        let left = row.inbox_len().saturating_sub(count);
        Ok(InboxLeft { first, holes: (row.inbox_next - first).saturating_sub(left), read })
    }

    /// Visits the items of an inbox from one number on and before another one.
    fn each_item(
        &mut self,
        row: &RunRow,
        from: u64,
        to: u64,
        mut visit: impl FnMut(u64, Option<&RunItem>),
    ) -> Result<()> {
        let mut next = from;
        while next < to {
            let limit = usize::try_from(to - next).unwrap_or(usize::MAX).min(INBOX_ITEMS_MAX);
            let found = self.tables.inbox(row.id, next, limit)?;
            for (number, item) in found.iter().filter(|(number, _)| *number < to) {
                visit(*number, item.as_ref());
            }
            match found.last() {
                Some((number, _)) if found.len() == limit => next = number + 1,
                _ => return Ok(()),
            }
        }
        Ok(())
    }
}

/// Rising numbers as ranges of consecutive ones: first, and one behind the last.
fn ranges(numbers: &[u64]) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, end)) if *end == *number => *end += 1,
            _ => ranges.push((*number, number + 1)),
        }
    }
    ranges
}
