//! The raw contents of a store's keys.

use crate::Result;
use std::collections::BTreeMap;
use windlass_redis::Options;
use windlass_redis::link::{Command, Link, Value};

const HASHES: [&str; 6] = ["meta", "jobs", "groups", "life", "extra", "dedup"];
const SETS: [&str; 11] = [
    "ready",
    "ring",
    "scheduled",
    "wake",
    "leases",
    "ended",
    "removable",
    "cancelling",
    "dedup_until",
    "group_names",
    "parked",
];

/// What the keys of a store hold, as text.
#[derive(Debug, Default)]
pub struct Raw {
    hashes: BTreeMap<&'static str, BTreeMap<String, String>>,
    sets: BTreeMap<&'static str, BTreeMap<String, u64>>,
    /// The first and last entry of the feed, and how many there are.
    pub(super) feed: Option<(u64, u64, u64)>,
}

impl Raw {
    /// Reads all of it, key by key: also in the middle of a slot's migration, when no script could.
    pub async fn read(url: &str) -> Result<Self> {
        let options = Options::from_url(url)?;
        let tag = format!("{{{}}}", options.prefix);
        let link = Link::open(options, &[])?;
        let mut raw = Self::default();
        for name in HASHES {
            let command = Command::new("HGETALL").arg(format!("{tag}:{name}"));
            let items = leaves(link.command(&command).await?);
            raw.hashes.insert(name, pairs(items).collect());
        }
        for name in SETS {
            let key = format!("{tag}:{name}");
            let command = Command::new("ZRANGE").arg(key).arg("0").arg("-1").arg("WITHSCORES");
            let items = leaves(link.command(&command).await?);
            // Scores are whole milliseconds.
            let scored = pairs(items).map(|(member, score)| Ok((member, score.parse::<u64>()?)));
            raw.sets.insert(name, scored.collect::<Result<_>>()?);
        }
        raw.feed = feed(&link, &format!("{tag}:feed")).await?;
        Ok(raw)
    }

    pub(super) fn hash(&self, name: &str) -> &BTreeMap<String, String> {
        static NONE: BTreeMap<String, String> = BTreeMap::new();
        self.hashes.get(name).unwrap_or(&NONE)
    }

    pub(super) fn set(&self, name: &str) -> &BTreeMap<String, u64> {
        static NONE: BTreeMap<String, u64> = BTreeMap::new();
        self.sets.get(name).unwrap_or(&NONE)
    }
}

async fn feed(link: &Link, key: &str) -> Result<Option<(u64, u64, u64)>> {
    let mut ends = Vec::new();
    for (command, from, to) in [("XRANGE", "-", "+"), ("XREVRANGE", "+", "-")] {
        let command = Command::new(command).arg(key).arg(from).arg(to).arg("COUNT").arg("1");
        let found = leaves(link.command(&command).await?);
        let Some(id) = found.first().and_then(|id| id.split('-').next()) else { return Ok(None) };
        ends.push(id.parse()?);
    }
    let count = leaves(link.command(&Command::new("XLEN").arg(key)).await?);
    let count = count.first().ok_or("the feed has no length")?.parse()?;
    Ok(Some((ends[0], ends[1], count)))
}

/// All plain values in an answer, in order.
fn leaves(value: Value) -> Vec<String> {
    match value {
        Value::Nil => Vec::new(),
        Value::Int(number) => vec![number.to_string()],
        Value::Double(number) => vec![number.to_string()],
        Value::BulkString(bytes) => vec![String::from_utf8_lossy(&bytes).into_owned()],
        Value::SimpleString(text) => vec![text],
        Value::Array(items) | Value::Set(items) => items.into_iter().flat_map(leaves).collect(),
        Value::Map(items) => items.into_iter().flat_map(|(key, value)| [leaves(key), leaves(value)].concat()).collect(),
        other => vec![format!("{other:?}")],
    }
}

fn pairs(items: Vec<String>) -> impl Iterator<Item = (String, String)> {
    let mut items = items.into_iter();
    std::iter::from_fn(move || Some((items.next()?, items.next()?)))
}
