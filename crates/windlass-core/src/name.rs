//! Validated names. A name that exists is valid: it is checked once, when it is made, and never again.

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The longest name, in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// Rejects a text that is empty, longer than [`NAME_BYTES_MAX`], or contains control characters.
pub fn check(field: &'static str, text: &str) -> Result<()> {
    if text.is_empty() {
        return Err(Error::invalid(field, "is empty; give it 1 to 255 bytes"));
    }
    if text.len() > NAME_BYTES_MAX {
        return Err(Error::limit(field, NAME_BYTES_MAX as u64, text.len() as u64));
    }
    match text.chars().find(|c| c.is_control()) {
        Some(c) => Err(Error::invalid(field, format!("contains the control character U+{:04X}; remove it", c as u32))),
        None => Ok(()),
    }
}

/// The one of these names that was probably meant.
pub fn nearest<'n>(typed: &str, known: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    // Nobody means a name of another length.
    let alike = known.into_iter().filter(|name| name.len().abs_diff(typed.len()) <= 3 && name.len() <= NAME_BYTES_MAX);
    let typed = typed.to_lowercase().into_bytes();
    let mut rows = [Vec::new(), Vec::new(), Vec::new()];
    let near = alike.map(|name| (distance(name, &typed, &mut rows), name)).min_by_key(|(distance, _)| *distance);
    near.filter(|(distance, name)| *distance <= (name.len() / 3).max(1)).map(|(_, name)| name)
}

/// How many letters differ, are missing or have changed places: enough to suggest a name. The rows are room to work in.
fn distance(known: &str, typed: &[u8], rows: &mut [Vec<usize>; 3]) -> usize {
    let known = known.to_lowercase();
    let known = known.as_bytes();
    rows[1].clear();
    rows[1].extend(0..=typed.len());
    for (i, a) in known.iter().enumerate() {
        // The row before the last one, the last one, and the one that is made.
        let [older, last, row] = rows;
        row.clear();
        row.push(i + 1);
        for (j, b) in typed.iter().enumerate() {
            let mut least = (last[j] + usize::from(a != b)).min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && known[i - 1] == *b && typed[j - 1] == *a {
                least = least.min(older[j - 1] + 1);
            }
            row.push(least);
        }
        rows.rotate_left(1);
    }
    rows[1][typed.len()]
}

/// A type of text that is checked when it is made: `$check` refuses what is no such text.
macro_rules! text_type {
    ($(#[$doc:meta])* $name:ident, $error:ty, $check:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(std::sync::Arc<str>);

        impl $name {
            /// Checks a text.
            pub fn new(text: impl AsRef<str>) -> Result<Self, $error> {
                let text = text.as_ref();
                let check: fn(&str) -> Result<(), $error> = $check;
                check(text)?;
                Ok(Self(text.into()))
            }

            /// As text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Debug::fmt(&self.0, f)
            }
        }

        impl std::str::FromStr for $name {
            type Err = $error;
            fn from_str(text: &str) -> Result<Self, $error> {
                Self::new(text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = $error;
            fn try_from(text: String) -> Result<Self, $error> {
                Self::new(text)
            }
        }

        impl TryFrom<&str> for $name {
            type Error = $error;
            fn try_from(text: &str) -> Result<Self, $error> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(text: $name) -> String {
                text.0.as_ref().to_owned()
            }
        }
    };
}
pub(crate) use text_type;

macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident, $field:literal) => {
        text_type!(
            $(#[$doc])*
            ///
            /// 1 to 255 bytes of UTF-8 without control characters; cheap to clone.
            $name,
            Error,
            |text| check($field, text)
        );

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}

name_type!(
    /// The name of a queue.
    QueueName,
    "queue"
);
name_type!(
    /// The kind of a job; it names the handler. A version is part of it, by convention as `name@2`.
    Kind,
    "kind"
);
name_type!(
    /// A group inside a queue: a tenant, an account, anything that wants its own cap, rate and fair share.
    GroupName,
    "group"
);
name_type!(
    /// Something a worker offers and a job may require.
    Label,
    "label"
);
name_type!(
    /// The id of one worker process; a restarted worker takes a new one.
    WorkerId,
    "worker"
);
name_type!(
    /// An id that the caller chose for a job, unique within its queue and group.
    CustomId,
    "custom_id"
);
name_type!(
    /// The key under which jobs count as the same work.
    DedupKey,
    "dedup.key"
);
name_type!(
    /// The name of a schedule.
    ScheduleName,
    "schedule"
);

/// The most labels a job may require.
pub const JOB_LABELS_MAX: usize = 16;
/// The most labels a worker may offer.
pub const WORKER_LABELS_MAX: usize = 64;

/// A canonical set of labels: sorted, each once.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "Vec<Label>", into = "Vec<Label>")]
pub struct Labels(Arc<[Label]>);

impl Labels {
    /// Makes the canonical set.
    pub fn new(labels: impl IntoIterator<Item = Label>) -> Self {
        let mut all: Vec<Label> = labels.into_iter().collect();
        all.sort();
        all.dedup();
        Self(all.into())
    }

    /// Checks every text and makes the canonical set.
    pub fn parse<S: AsRef<str>>(labels: impl IntoIterator<Item = S>) -> Result<Self> {
        let all: Result<Vec<Label>> = labels.into_iter().map(Label::new).collect();
        Ok(Self::new(all?))
    }

    /// True when every label of `self` is in `offered`.
    pub fn is_subset_of(&self, offered: &Labels) -> bool {
        // Both are sorted, so one walk is enough: a claim asks this of every lane.
        let mut offered = offered.0.iter();
        self.0.iter().all(|label| offered.any(|other| other == label))
    }

    /// The labels of `self` that `offered` lacks.
    pub fn missing_from(&self, offered: &Labels) -> Vec<Label> {
        self.0.iter().filter(|label| offered.0.binary_search(label).is_err()).cloned().collect()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True when there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True when `label` is one of them.
    pub fn contains(&self, label: &Label) -> bool {
        self.0.binary_search(label).is_ok()
    }

    /// In order.
    pub fn iter(&self) -> impl Iterator<Item = &Label> {
        self.0.iter()
    }
}

impl From<Vec<Label>> for Labels {
    fn from(labels: Vec<Label>) -> Self {
        Self::new(labels)
    }
}

impl From<Labels> for Vec<Label> {
    fn from(labels: Labels) -> Self {
        labels.0.to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_names_are_names_and_control_characters_are_not() {
        for good in ["a*", "a}b{c", "..", "../../etc/passwd", "%2e%2e%2f", "é", &"x".repeat(255)] {
            assert_eq!(QueueName::new(good).unwrap().as_str(), good);
        }
        for bad in ["", "a\0b", "a\r\nb", "\u{85}", &"x".repeat(256), &"é".repeat(128)] {
            assert!(QueueName::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn labels_are_canonical_and_subset_is_by_value() {
        let job = Labels::parse(["gpu", "aws", "gpu"]).unwrap();
        assert_eq!(job.len(), 2);
        assert_eq!(job, Labels::parse(["aws", "gpu"]).unwrap());
        assert!(job.is_subset_of(&Labels::parse(["gpu", "linux", "aws"]).unwrap()));
        assert!(!job.is_subset_of(&Labels::parse(["gpu"]).unwrap()));
        assert_eq!(job.missing_from(&Labels::parse(["gpu"]).unwrap()), vec![Label::new("aws").unwrap()]);
        assert!(Labels::default().is_subset_of(&Labels::default()));
    }
}
