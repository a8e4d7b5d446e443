//! Past the store: what its keys hold, and how to damage it.

use super::Options;
use windlass_redis::link::{Command, Link, Value};

/// A store's keys.
pub(crate) struct Raw {
    link: Link,
}

/// One item of a key: the field and value of a hash, the member and score of a sorted set, an entry of a list.
pub(crate) type Item = (Vec<u8>, Vec<u8>);

pub(crate) fn bytes(value: Value) -> Vec<u8> {
    match value {
        Value::BulkString(bytes) => bytes,
        Value::SimpleString(text) => text.into_bytes(),
        Value::Double(number) => number.to_string().into_bytes(),
        Value::Int(number) => number.to_string().into_bytes(),
        Value::Nil => Vec::new(),
        other => panic!("{other:?}"),
    }
}

fn pairs(value: Value) -> Vec<Item> {
    match value {
        Value::Map(pairs) => pairs.into_iter().map(|(field, value)| (bytes(field), bytes(value))).collect(),
        Value::Array(items) => {
            let pair = |item: Value| match item {
                Value::Array(pair) => {
                    let mut pair = pair.into_iter();
                    (bytes(pair.next().unwrap()), bytes(pair.next().unwrap()))
                }
                other => (bytes(other), Vec::new()),
            };
            items.into_iter().map(pair).collect()
        }
        other => panic!("{other:?}"),
    }
}

impl Raw {
    pub(crate) fn open(url: &str) -> Self {
        Self { link: Link::open(Options::from_url(url).unwrap(), &[]).unwrap() }
    }

    pub(crate) fn key(&self, name: &str) -> String {
        format!("{{{}}}:{name}", self.link.options().prefix)
    }

    /// Sends a command about one of the store's keys.
    pub(crate) async fn run(&self, command: &str, name: &str, args: &[&[u8]]) -> Value {
        let mut sent = Command::new(command).arg(self.key(name));
        for arg in args {
            sent = sent.arg(arg);
        }
        self.link.command(&sent).await.unwrap()
    }

    /// The type of a key: `hash`, `zset`, `list`, `stream`, `none`.
    pub(crate) async fn kind(&self, name: &str) -> String {
        String::from_utf8(bytes(self.run("TYPE", name, &[]).await)).unwrap()
    }

    /// All items of a key, in a fixed order.
    pub(crate) async fn items(&self, name: &str) -> Vec<Item> {
        let mut items = match self.kind(name).await.as_str() {
            "hash" => pairs(self.run("HGETALL", name, &[]).await),
            "zset" => pairs(self.run("ZRANGE", name, &[b"0", b"-1", b"WITHSCORES"]).await),
            "list" => pairs(self.run("LRANGE", name, &[b"0", b"-1"]).await),
            _ => Vec::new(),
        };
        items.sort();
        items
    }

    pub(crate) async fn get(&self, name: &str, field: &str) -> Vec<u8> {
        bytes(self.run("HGET", name, &[field.as_bytes()]).await)
    }

    pub(crate) async fn set(&self, name: &str, field: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.run("HSET", name, &[field.as_ref(), value.as_ref()]).await;
    }

    pub(crate) async fn delete(&self, name: &str, field: impl AsRef<[u8]>) {
        let gone = self.run("HDEL", name, &[field.as_ref()]).await;
        assert_eq!(gone, Value::Int(1), "there was nothing to delete in {name}");
    }

    pub(crate) async fn add(&self, name: &str, score: &str, member: impl AsRef<[u8]>) {
        self.run("ZADD", name, &[score.as_bytes(), member.as_ref()]).await;
    }

    /// The members of an index that name a job.
    pub(crate) async fn members(&self, name: &str, of: &str) -> Vec<Vec<u8>> {
        let holds = |member: &[u8]| member.windows(of.len()).any(|window| window == of.as_bytes());
        self.items(name).await.into_iter().map(|(member, _)| member).filter(|member| holds(member)).collect()
    }

    pub(crate) async fn remove(&self, name: &str, member: impl AsRef<[u8]>) {
        self.run("ZREM", name, &[member.as_ref()]).await;
    }

    /// Counts of the six states as the indexes say: scheduled, ready, active, and all that ended.
    pub(crate) async fn recount(&self) -> [u64; 4] {
        let mut counts = [0; 4];
        for (count, name) in counts.iter_mut().zip(["scheduled", "ready", "leases", "ended"]) {
            *count = self.items(name).await.len() as u64;
        }
        counts
    }
}
