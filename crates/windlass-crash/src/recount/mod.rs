//! A recount of everything that a Redis store keeps about its jobs, over its raw keys and without its scripts: every index
//! against the records, every counter against the indexes.
//!
//! The layout is that of the comments at the top of `windlass-redis/lua/lib/*.lua`; what is an index there must be a
//! function of the jobs here. Nobody may change the store meanwhile.

mod groups;
mod jobs;
mod raw;

pub use raw::Raw;

use jobs::Jobs;
use std::collections::BTreeMap;
use std::fmt::Display;

/// Faults that are named; the rest is only counted.
const NAMED_MAX: usize = 20;

/// What does not fit together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Discord {
    /// How much it is.
    pub count: u64,
    /// Some of it.
    pub named: Vec<String>,
}

impl Discord {
    /// True when everything fits.
    pub fn is_none(&self) -> bool {
        self.count == 0
    }

    pub(crate) fn say(&mut self, what: impl Display) {
        self.count += 1;
        if self.named.len() < NAMED_MAX {
            self.named.push(what.to_string());
        }
    }

    /// Two tables that should be the same: what is, and what the records ask for.
    fn compare<V: PartialEq + std::fmt::Debug>(
        &mut self,
        name: &str,
        is: &BTreeMap<String, V>,
        should: &BTreeMap<String, V>,
    ) {
        for (key, value) in is {
            match should.get(key) {
                None => self.say(format_args!("{name}: {key:?} stands for nothing")),
                Some(wanted) if wanted != value => {
                    self.say(format_args!("{name}: {key:?} is {value:?} and should be {wanted:?}"));
                }
                Some(_) => {}
            }
        }
        for key in should.keys().filter(|key| !is.contains_key(*key)) {
            self.say(format_args!("{name}: {key:?} is missing"));
        }
    }
}

/// Recounts everything.
pub fn recount(raw: &Raw) -> Discord {
    let mut discord = Discord::default();
    let jobs = Jobs::read(raw, &mut discord);
    jobs.check_indexes(raw, &mut discord);
    jobs.check_queues(raw, &mut discord);
    jobs.check_attached(raw, &mut discord);
    groups::check(raw, &jobs, &mut discord);
    check_feed(raw, &mut discord);
    discord
}

/// The feed has no gap, and ends where the store says.
fn check_feed(raw: &Raw, discord: &mut Discord) {
    let Some((first, last, count)) = raw.feed else { return };
    let counted = raw.hash("meta").get("feed").and_then(|text| text.parse().ok()).unwrap_or(0_u64);
    if last != counted {
        discord.say(format_args!("feed: ends at {last}, the store says {counted}"));
    }
    if last + 1 - first != count {
        discord.say(format_args!("feed: {count} entries from {first} to {last}"));
    }
}

/// A number as the indexes write it: its length, then its digits, so that the text sorts like the number.
fn enc(number: u64) -> String {
    let digits = format!("{number:x}");
    let length = u8::try_from(digits.len()).unwrap_or(0);
    format!("{}{digits}", char::from(96 + length))
}

fn hex12(number: u64) -> String {
    format!("{number:012x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_sort_as_texts() {
        assert_eq!((enc(0), enc(15), enc(16)), ("a0".to_owned(), "af".to_owned(), "b10".to_owned()));
        assert!(enc(255) < enc(256) && enc(9) < enc(10));
    }
}
