//! A slot that moves from one primary to another while clients use it.
//!
//! Between its begin and its end both nodes have a part of the slot's keys: the old one answers for those it still has
//! and sends clients with `ASK` to the new one for the others.
//!
//! If the old node dies before the end, its replica is promoted without a record of the move, and each of the two nodes
//! keeps its part of the keys ([`Migration::kill_source`], [`Cluster::merge_slot`]).

use super::Cluster;
use crate::error::ServerError;
use crate::redis::Redis;
use crate::resp::Value;
use crate::wait;

/// How long one batch of keys may take from node to node.
const TIMEOUT_MS: &str = "5000";
/// More keys than a test has in one slot.
const KEYS_MAX: &str = "1000";

/// A slot whose keys are on two nodes, because the source of a migration has died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SplitSlot {
    /// The slot.
    pub slot: u16,
    /// The node that died.
    pub source: usize,
    /// Its replica, which was promoted and owns the slot.
    pub owner: usize,
    /// The node that has the keys that were moved.
    pub target: usize,
}

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

    /// Starts a dead primary whose replica was promoted, and waits until it is a replica. Until then it has a record of the moves
    /// of its slots, and `fix` would ask it to go on with them. Targets of such moves have to accept the new owner before.
    pub fn restart_as_replica(&self, index: usize) -> Result<(), ServerError> {
        self.restart(index)?;
        wait::until("the dead node is a replica", super::HEALTHY_WITHIN, || {
            let role = self.node(index).and_then(|node| node.command(&["ROLE"])).map_err(|error| error.to_string())?;
            if role.starts_with("slave") { Ok(()) } else { Err(format!("its role is {role}")) }
        })
    }

    /// Brings the keys of a split slot to its owner: names the owner at the target, starts the dead node, which joins as a
    /// replica, runs `redis-cli --cluster fix`, and waits until the cluster is in order.
    pub fn merge_slot(&self, split: SplitSlot) -> Result<(), ServerError> {
        let SplitSlot { slot, source, owner, target } = split;
        // First, because nodes with `cluster-allow-replica-migration no` become replicas only if one message takes all of their
        // slots. The target imports the slot, so its messages about the owner's slots would leave that one out.
        let (target, id) = (self.node(target)?, self.node(owner)?.command(&["CLUSTER", "MYID"])?);
        target.command(&["CLUSTER", "SETSLOT", &slot.to_string(), "NODE", &id])?;
        self.restart_as_replica(source)?;
        // Until the target accepts the owner it considers the slot as not served.
        wait::until("the target is in order", super::HEALTHY_WITHIN, || super::is_in_order(target))?;
        self.fix()?;
        self.wait_until_healthy()
    }
}

impl<'a> Migration<'a> {
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
        self.move_keys(&keys)?;
        Ok(keys.len())
    }

    /// The names of all keys of the slot that have not been moved yet.
    pub fn keys_left(&self) -> Result<Vec<String>, ServerError> {
        let keys = self.from()?.command(&["CLUSTER", "GETKEYSINSLOT", &self.slot.to_string(), KEYS_MAX])?;
        Ok(keys.lines().map(str::to_owned).collect())
    }

    /// Moves these keys.
    pub fn move_keys<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<(), ServerError> {
        let port = self.to()?.port().to_string();
        let head = ["MIGRATE", "127.0.0.1", &port, "", "0", TIMEOUT_MS, "KEYS"];
        let command: Vec<&[u8]> =
            head.iter().map(|word| word.as_bytes()).chain(keys.iter().map(AsRef::as_ref)).collect();
        self.from()?.call(&command).map(drop)
    }

    /// Kills the source when its replica has all that the source has, and waits until the replica is promoted. The target
    /// does not accept the new owner while it imports the slot, so it is not asked.
    pub fn kill_source(self) -> Result<SplitSlot, ServerError> {
        let Self { cluster, slot, from: source, to: target } = self;
        let replica = cluster.replica_of(source)?;
        let sent = offset(self.from()?, "master_repl_offset").map_err(ServerError::NoSuchNode)?;
        wait::until("the replica has the keys", super::HEALTHY_WITHIN, || {
            let has = offset(replica, "slave_repl_offset")?;
            if has >= sent { Ok(()) } else { Err(format!("it has {has} of {sent} bytes")) }
        })?;
        cluster.kill9(source)?;
        let owner = wait::until("the replica is promoted", super::HEALTHY_WITHIN, || {
            let owner = cluster.primary_of_slot(slot).map_err(|error| error.to_string())?;
            cluster.all_see_besides(slot, owner, Some(target)).map(|()| owner)
        })?;
        Ok(SplitSlot { slot, source, owner, target })
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

    fn from(&self) -> Result<&'a Redis, ServerError> {
        self.cluster.node(self.from)
    }

    fn to(&self) -> Result<&'a Redis, ServerError> {
        self.cluster.node(self.to)
    }

    fn set(&self, node: &Redis, words: &[&str]) -> Result<(), ServerError> {
        let slot = self.slot.to_string();
        node.command(&[&["CLUSTER", "SETSLOT", &slot], words].concat()).map(drop)
    }
}

/// A replication offset that a node reports.
fn offset(node: &Redis, name: &str) -> Result<u64, String> {
    let info = node.command(&["INFO", "replication"]).map_err(|error| error.to_string())?;
    let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.trim_end().parse().ok());
    value.ok_or_else(|| format!("{} reports no {name}", node.port()))
}
