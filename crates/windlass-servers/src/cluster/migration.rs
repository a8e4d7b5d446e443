//! A slot that moves from one primary to another while clients use it.
//!
//! Between its begin and its end both nodes have a part of the slot's keys: the old one answers for those it still has
//! and sends clients with `ASK` to the new one for the others.

use super::Cluster;
use crate::error::ServerError;
use crate::redis::Redis;
use crate::resp::Value;
use crate::wait;

/// How long one batch of keys may take from node to node.
const TIMEOUT_MS: &str = "5000";

/// A slot on its way. Dropped without [`Migration::finish`], it stays on its way.
#[derive(Debug)]
pub struct Migration<'a> {
    cluster: &'a Cluster,
    slot: u16,
    from: usize,
    to: usize,
}

impl Cluster {
    /// Moves a slot to the primary with that index, `batch` keys at a time.
    pub fn migrate_slot(&self, slot: u16, to: usize, batch: usize) -> Result<(), ServerError> {
        self.begin_migration(slot, to)?.finish(batch)
    }

    /// Begins to move a slot to the primary with that index: from now on new keys go there.
    pub fn begin_migration(&self, slot: u16, to: usize) -> Result<Migration<'_>, ServerError> {
        let from = self.primary_of_slot(slot)?;
        let migration = Migration { cluster: self, slot, from, to };
        if from == to || !migration.to()?.command(&["ROLE"])?.starts_with("master") {
            let message =
                format!("slot {slot} cannot go from node {from} to node {to}, which has to be another primary");
            return Err(ServerError::NoSuchNode(message));
        }
        // In this order, or the old node would send clients to one that does not take them.
        let old_id = migration.from()?.command(&["CLUSTER", "MYID"])?;
        migration.set(migration.to()?, &["IMPORTING", &old_id])?;
        let new_id = migration.to()?.command(&["CLUSTER", "MYID"])?;
        migration.set(migration.from()?, &["MIGRATING", &new_id])?;
        Ok(migration)
    }
}

impl Migration<'_> {
    /// Moves up to `batch` keys and says how many there were; with none left there is only [`Migration::finish`] to do.
    pub fn step(&self, batch: usize) -> Result<usize, ServerError> {
        let (slot, count) = (self.slot.to_string(), batch.max(1).to_string());
        let keys = self.from()?.call(&["CLUSTER", "GETKEYSINSLOT", &slot, &count])?;
        let keys: Vec<&[u8]> = keys
            .items()
            .iter()
            .filter_map(|key| if let Value::Text(key) = key { Some(key.as_slice()) } else { None })
            .collect();
        if keys.is_empty() {
            return Ok(0);
        }
        let port = self.to()?.port().to_string();
        let head = ["MIGRATE", "127.0.0.1", &port, "", "0", TIMEOUT_MS, "KEYS"];
        let command: Vec<&[u8]> = head.iter().map(|word| word.as_bytes()).chain(keys.iter().copied()).collect();
        self.from()?.call(&command)?;
        Ok(keys.len())
    }

    /// Moves what is left, gives the slot to its new node, and waits until every node knows.
    pub fn finish(self, batch: usize) -> Result<(), ServerError> {
        // The old node takes no new keys for the slot, so each round leaves fewer.
        while self.step(batch)? > 0 {}
        let new_id = self.to()?.command(&["CLUSTER", "MYID"])?;
        // The new node first: should the others fail, they hear it from that one.
        for node in [self.to()?, self.from()?] {
            self.set(node, &["NODE", &new_id])?;
        }
        for (index, view) in self.cluster.views() {
            let is_primary = view.iter().any(|line| line.is_myself && line.is_primary);
            if is_primary && index != self.to && index != self.from {
                self.set(self.cluster.node(index)?, &["NODE", &new_id])?;
            }
        }
        let what = format!("every node sees slot {} at node {}", self.slot, self.to);
        wait::until(&what, super::HEALTHY_WITHIN, || self.cluster.all_see(self.slot, self.to))
    }

    fn from(&self) -> Result<&Redis, ServerError> {
        self.cluster.node(self.from)
    }

    fn to(&self) -> Result<&Redis, ServerError> {
        self.cluster.node(self.to)
    }

    fn set(&self, node: &Redis, words: &[&str]) -> Result<(), ServerError> {
        let slot = self.slot.to_string();
        node.command(&[&["CLUSTER", "SETSLOT", &slot], words].concat()).map(drop)
    }
}
