//! What the store says about itself: checked against the live settings of the server, never assumed.

use super::RedisStore;
use crate::link::Command;
use crate::options::Topology;
use crate::reply::one;
use windlass_core::Result;
use windlass_core::store::{Durability, Feed as _, StoreInfo};

/// What `INFO` says, by name.
pub(crate) struct Info(String);

impl Info {
    /// A field; nothing when the server does not have it.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let value = |line: &'_ str| line.strip_prefix(name)?.strip_prefix(':').map(str::len);
        self.0.lines().find_map(|line| value(line).map(|len| &line[line.len() - len..]))
    }
}

impl Info {
    /// The server's version, for people: that of Redis, or that of Valkey and of the Redis it is compatible with.
    pub(crate) fn version(&self) -> String {
        let redis = self.field("redis_version").unwrap_or("unknown");
        match self.field("valkey_version") {
            Some(valkey) => format!("Valkey {valkey} (compatible with Redis {redis})"),
            None => redis.to_owned(),
        }
    }
}

impl RedisStore {
    pub(crate) async fn server_info(&self) -> Result<Info> {
        let value = self.caller.link.command(&Command::new("INFO").arg("everything")).await?;
        Ok(Info(text_of(value)?))
    }

    /// A setting of the server; nothing when we may not ask.
    pub(crate) async fn server_setting(&self, name: &str) -> Option<String> {
        let value = self.caller.link.command(&Command::new("CONFIG").arg("GET").arg(name)).await.ok()?;
        let mut items = crate::reply::Items::of_map(value).ok()?;
        items.text().ok()?;
        items.text().ok()
    }

    pub(super) async fn describe(&self) -> Result<StoreInfo> {
        let info = self.server_info().await?;
        let replicas: u32 = info.field("connected_slaves").and_then(|count| count.parse().ok()).unwrap_or(0);
        let (topology, failover) = match &self.options().topology {
            Topology::Single { .. } => ("single", replicas > 0),
            Topology::Sentinel { .. } => ("sentinel", true),
            Topology::Cluster { .. } => ("cluster", true),
        };
        let append_only = info.field("aof_enabled") == Some("1");
        let append_only_text = match info.field("aof_enabled") {
            Some("1") => "yes",
            Some(_) => "no",
            // Some services leave it out. What is not known is not promised.
            None => "unknown",
        };
        // Without the right to ask, the weaker promise is the true one.
        let fsync = self.server_setting("appendfsync").await.unwrap_or_else(|| "unknown".to_owned());
        let durability = match (append_only, fsync.as_str(), failover) {
            (false, ..) => Durability::None,
            (true, "always", true) => Durability::FailoverBestEffort,
            (true, "always", false) => Durability::Power,
            // Where there is a failover, too: a power cut of the one server loses what it has not synced.
            (true, ..) => Durability::Process,
        };
        let detail = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let details = vec![
            detail("topology", topology),
            detail("server", &info.version()),
            detail("prefix", &self.options().prefix),
            detail("append-only file", append_only_text),
            detail("fsync", if append_only { &fsync } else { "-" }),
            detail("replicas", &replicas.to_string()),
        ];
        let info = StoreInfo { store: "redis".to_owned(), layout: crate::scripts::LAYOUT, durability, details };
        Ok(info.with_feed_events(self.feed_events().await?))
    }
}

fn text_of(value: crate::link::Value) -> Result<String> {
    match value {
        crate::link::Value::VerbatimString { text, .. } => Ok(text),
        other => one(other),
    }
}
