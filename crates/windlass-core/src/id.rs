//! Ids and tokens.

use crate::error::{Error, Result};
use crate::name::{CustomId, GroupName, QueueName};
use crate::random::Random;
use crate::time::Clock;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
/// Base-32 digits of 128 bits.
const DIGITS: usize = 26;
/// What each byte is worth as a digit; `NO_DIGIT` when it is none. Ids are read for every job of a claim.
const VALUES: [u8; 256] = values();
const NO_DIGIT: u8 = 0xff;

const fn values() -> [u8; 256] {
    let mut values = [NO_DIGIT; 256];
    let mut digit = 0u8;
    while (digit as usize) < ALPHABET.len() {
        values[ALPHABET[digit as usize] as usize] = digit;
        digit += 1;
    }
    values
}

/// The id of a job: the partition it lives in and 128 bits that its creator chose.
///
/// The creator makes the id, so a repeated enqueue is recognised. An id says nothing about order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct JobId {
    partition: u16,
    /// Two halves, because a whole would be aligned to 16 bytes, and ids are everywhere.
    high: u64,
    low: u64,
}

impl JobId {
    /// From its parts.
    #[expect(clippy::cast_possible_truncation, reason = "that is how halves are made")]
    pub const fn from_parts(partition: u16, bits: u128) -> Self {
        Self { partition, high: (bits >> 64) as u64, low: bits as u64 }
    }

    /// The id of the job that its creator called `custom`: the same name in the same queue and group is the same id.
    pub fn named(queue: &QueueName, group: Option<&GroupName>, custom: &CustomId) -> Self {
        let mut hash = blake3::Hasher::new_derive_key("windlass custom job id v1");
        for part in [queue.as_str(), group.map_or("", GroupName::as_str), custom.as_str()] {
            // Names have no control characters, so this separator cannot stand inside one.
            hash.update(part.as_bytes()).update(b"\0");
        }
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hash.finalize().as_bytes()[..16]);
        Self::from_parts(0, with_version(u128::from_be_bytes(bytes), 8))
    }

    /// The partition the job lives in.
    pub const fn partition(self) -> u16 {
        self.partition
    }

    /// The bits its creator chose.
    pub const fn bits(self) -> u128 {
        (self.high as u128) << 64 | self.low as u128
    }
}

/// Stamps a UUID version and the standard variant over the bits that hold them.
const fn with_version(bits: u128, version: u128) -> u128 {
    let cleared = bits & !(0xf << 76) & !(0b11 << 62);
    cleared | version << 76 | 0b10 << 62
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // By hand, because ids are written for every job: the digits, the dash and at most five more before it.
        let mut text = [b'-'; 5 + 1 + DIGITS];
        let mut rest = self.bits();
        for digit in text[6..].iter_mut().rev() {
            *digit = ALPHABET[(rest & 31) as usize];
            rest >>= 5;
        }
        let (mut from, mut partition) = (5, self.partition);
        loop {
            from -= 1;
            text[from] = ALPHABET[usize::from(partition % 10)];
            partition /= 10;
            if partition == 0 {
                break f.write_str(std::str::from_utf8(&text[from..]).unwrap_or_default());
            }
        }
    }
}

impl std::str::FromStr for JobId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            Error::invalid("job id", format!("`{}` is not one; an id looks like 0-{}", short(text), "0".repeat(DIGITS)))
        };
        let (partition, digits) = text.split_once('-').ok_or_else(wrong)?;
        let plain = partition == "0" || !partition.starts_with(['0', '+']);
        let partition: u16 = partition.parse().ok().filter(|_| plain).ok_or_else(wrong)?;
        if digits.len() != DIGITS || digits.as_bytes()[0] > b'7' {
            return Err(wrong());
        }
        let mut bits = 0u128;
        for byte in digits.bytes() {
            let value = VALUES[usize::from(byte)];
            if value == NO_DIGIT {
                return Err(wrong());
            }
            bits = bits << 5 | u128::from(value);
        }
        Ok(Self::from_parts(partition, bits))
    }
}

/// At most 40 characters of what the user typed, so that an error stays readable.
fn short(text: &str) -> String {
    text.chars().take(40).flat_map(char::escape_debug).collect()
}

/// The id of a run: like that of a job, with an `r` before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RunId(JobId);

impl RunId {
    /// From its parts.
    pub const fn from_parts(partition: u16, bits: u128) -> Self {
        Self(JobId::from_parts(partition, bits))
    }

    /// The id of the run that its creator called `name`: the same name is the same id.
    pub fn named(name: &str) -> Self {
        let hash = blake3::derive_key("windlass custom run id v1", name.as_bytes());
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hash[..16]);
        Self::from_parts(0, with_version(u128::from_be_bytes(bytes), 8))
    }

    /// The partition the run lives in.
    pub const fn partition(self) -> u16 {
        self.0.partition()
    }

    /// The bits its creator chose.
    pub const fn bits(self) -> u128 {
        self.0.bits()
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("r")?;
        fmt::Display::fmt(&self.0, f)
    }
}

impl std::str::FromStr for RunId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let id = text.strip_prefix('r').and_then(|id| id.parse().ok());
        id.map(Self).ok_or_else(|| {
            let zeros = "0".repeat(DIGITS);
            Error::invalid("run id", format!("`{}` is not one; an id looks like r0-{zeros}", short(text)))
        })
    }
}

/// The proof of one claim: random, compared by equality, never ordered.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Token(u64);

impl Token {
    /// From its bits.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Its bits.
    pub const fn bits(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl std::str::FromStr for Token {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let bits = u64::from_str_radix(text, 16).ok().filter(|_| text.len() == 16 && !text.starts_with('+'));
        bits.map(Self).ok_or_else(|| Error::invalid("token", "a token is 16 hexadecimal digits"))
    }
}

/// Everywhere as its text: in JSON, and for people who debug.
macro_rules! as_text {
    ($($id:ident),+) => {$(
        impl fmt::Debug for $id {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl TryFrom<String> for $id {
            type Error = Error;
            fn try_from(text: String) -> Result<Self> {
                text.parse()
            }
        }

        impl From<$id> for String {
            fn from(id: $id) -> String {
                id.to_string()
            }
        }
    )+};
}
as_text!(JobId, RunId, Token);

/// Makes ids: UUID version 7 from an injected clock, a counter and injected randomness.
///
/// Those of one maker (and its clones) rise, whatever the clock does, so that they stand side by side in an index.
#[derive(Clone)]
pub struct Ids {
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    /// Milliseconds and count of the last one.
    last: Arc<AtomicU64>,
}

/// Bits of the count within one millisecond; when they are used up, the next millisecond is begun early.
const COUNT_BITS: u32 = 12;

impl Ids {
    /// From a clock and randomness.
    pub fn new(clock: Arc<dyn Clock>, random: Arc<dyn Random>) -> Self {
        Self { clock, random, last: Arc::default() }
    }

    /// A fresh id of a run.
    pub fn next_run(&self) -> RunId {
        RunId(self.next())
    }

    /// A fresh id.
    pub fn next(&self) -> JobId {
        let now = (self.clock.now().as_ms().max(0).cast_unsigned() & 0xffff_ffff_ffff) << COUNT_BITS;
        let after = |last: u64| now.max(last.wrapping_add(1));
        let last = self.last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(after(last)));
        let stamp = u128::from(after(last.unwrap_or_else(|last| last)));
        let (ms, count) = (stamp >> COUNT_BITS, stamp & ((1 << COUNT_BITS) - 1));
        let bits = ms << 80 | count << 64 | u128::from(self.random.next_u64());
        JobId::from_parts(0, with_version(bits, 7))
    }
}

impl fmt::Debug for Ids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ids")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::StrongRandom;
    use crate::time::{Timestamp, VirtualClock};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_id_comes_back_from_its_text(partition: u16, bits: u128) {
            let id = JobId::from_parts(partition, bits);
            prop_assert_eq!(id.to_string().parse::<JobId>().unwrap(), id);
        }

        #[test]
        fn no_text_panics_and_what_parses_is_canonical(text in ".{0,40}") {
            if let Ok(id) = text.parse::<JobId>() {
                prop_assert_eq!(id.to_string(), text);
            }
        }

        #[test]
        fn tokens_come_back(bits: u64) {
            let token = Token::from_bits(bits);
            prop_assert_eq!(token.to_string().parse::<Token>().unwrap(), token);
        }
    }

    #[test]
    fn other_spellings_of_an_id_are_refused() {
        let id = JobId::from_parts(3, u128::MAX).to_string();
        assert_eq!(id, format!("3-7{}", "z".repeat(25)));
        for bad in ["", "3", "3-", "../../etc/passwd", "03-70000000000000000000000000", "+3-70000000000000000000000000"]
        {
            assert!(bad.parse::<JobId>().is_err(), "{bad}");
        }
        assert!(format!("3-8{}", "0".repeat(25)).parse::<JobId>().is_err(), "more than 128 bits");
    }

    #[test]
    fn made_ids_are_uuid_v7_and_differ() {
        let clock = Arc::new(VirtualClock::new(Timestamp::from_ms(1_763_236_800_123)));
        let ids = Ids::new(clock, Arc::new(StrongRandom::seeded(7)));
        let (a, b) = (ids.next(), ids.next());
        assert_ne!(a, b);
        assert_eq!(a.bits() >> 80, 1_763_236_800_123);
        assert_eq!(a.bits() >> 76 & 0xf, 7);
        assert_eq!(a.bits() >> 62 & 0b11, 0b10);
    }

    #[test]
    fn the_ids_of_one_maker_rise_whatever_the_clock_does() {
        let clock = Arc::new(VirtualClock::new(Timestamp::from_ms(1_763_236_800_123)));
        let ids = Ids::new(clock.clone(), Arc::new(StrongRandom::seeded(7)));
        let mut last = ids.next();
        for i in 0..10_000 {
            match i {
                5_000 => clock.set(Timestamp::from_ms(1_763_236_799_000)),
                6_000 => clock.set(Timestamp::from_ms(1_763_236_900_000)),
                _ => {}
            }
            let next = ids.clone().next();
            assert!(next > last, "{next} after {last}");
            last = next;
        }
        assert_eq!(last.bits() >> 80, 1_763_236_900_000, "4,000 in one millisecond need no other");
    }

    #[test]
    fn a_custom_id_is_unique_within_queue_and_group_only() {
        let q = |s| QueueName::new(s).unwrap();
        let g = GroupName::new("g").unwrap();
        let c = |s| CustomId::new(s).unwrap();
        let id = JobId::named(&q("a"), None, &c("x"));
        assert_eq!(id, JobId::named(&q("a"), None, &c("x")));
        assert_ne!(id, JobId::named(&q("b"), None, &c("x")));
        assert_ne!(id, JobId::named(&q("a"), Some(&g), &c("x")));
        assert_ne!(id, JobId::named(&q("a"), None, &c("y")));
    }
}
