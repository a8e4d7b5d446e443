//! A cluster on loopback: primaries, replicas, fail-overs.

mod migration;
mod view;

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::error::ServerError;
use crate::redis::{Part, Redis};
use crate::wait;

pub use migration::{Migration, SplitSlot};
use view::Line;

/// How many slots a cluster has.
const SLOTS: usize = 16_384;
const HEALTHY_WITHIN: Duration = windlass_core::time::HANG_GUARD;
/// After this the replica is told once more to take over: the nodes give up a failover after five seconds.
const FAILOVER_AGAIN: Duration = Duration::from_secs(10);
const FAILOVERS_MAX: usize = 3;

/// A running cluster. Nodes go by their index: the primaries of the start come first, then the replicas of the first
/// primary, of the second, and so on.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Redis>,
    primaries: usize,
}

/// Settings of a [`Cluster`] to be.
#[derive(Debug, Clone)]
pub struct ClusterBuilder {
    node: crate::RedisBuilder,
    primaries: usize,
    replicas_per_primary: usize,
}

impl ClusterBuilder {
    /// A line of every node's configuration.
    #[must_use]
    pub fn config(mut self, name: &str, value: &str) -> Self {
        self.node = self.node.config(name, value);
        self
    }

    /// Keeps an append-only file on every node, so that a restarted primary brings its data back.
    #[must_use]
    pub fn append_only(mut self, fsync: crate::Fsync) -> Self {
        self.node = self.node.append_only(fsync);
        self
    }

    /// Starts the nodes; when this returns every slot is served and every replica is attached.
    pub fn start(self) -> Result<Cluster, ServerError> {
        let count = self.primaries * (1 + self.replicas_per_primary);
        let nodes = (0..count).map(|_| self.node.clone().part(Part::ClusterNode).start());
        let cluster = Cluster { nodes: nodes.collect::<Result<_, _>>()?, primaries: self.primaries };
        cluster.introduce()?;
        cluster.assign_replicas(self.replicas_per_primary)?;
        cluster.wait_until_healthy()?;
        Ok(cluster)
    }
}

impl Cluster {
    /// A cluster of so many primaries, at least three if any is to be failed over, each with so many replicas.
    pub fn start(primaries: usize, replicas_per_primary: usize) -> Result<Self, ServerError> {
        Self::builder(primaries, replicas_per_primary).start()
    }

    /// A cluster with other settings.
    pub fn builder(primaries: usize, replicas_per_primary: usize) -> ClusterBuilder {
        ClusterBuilder { node: Redis::builder(), primaries: primaries.max(1), replicas_per_primary }
    }

    /// Gives the primaries their slots and makes all nodes known to each other.
    fn introduce(&self) -> Result<(), ServerError> {
        for (index, node) in self.nodes.iter().enumerate() {
            // Different ones from the start, or the nodes would settle it among themselves, one collision at a time.
            node.command(&["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()])?;
        }
        for (node, slots) in self.nodes.iter().zip(shares(self.primaries)) {
            let (first, last) = (slots.start().to_string(), slots.end().to_string());
            node.command(&["CLUSTER", "ADDSLOTSRANGE", &first, &last])?;
        }
        let (first, others) = self.nodes.split_at(1);
        for (node, other) in first.iter().flat_map(|first| others.iter().map(move |other| (first, other))) {
            let bus = other.bus_port().unwrap_or_default().to_string();
            node.command(&["CLUSTER", "MEET", "127.0.0.1", &other.port().to_string(), &bus])?;
        }
        wait::until("every node knows the others", HEALTHY_WITHIN, || {
            self.nodes.iter().try_for_each(|node| {
                let known = read_view(node)?.iter().filter(|line| line.is_settled()).count();
                if known == self.nodes.len() { Ok(()) } else { Err(format!("{} knows {known}", node.port())) }
            })
        })
    }

    fn assign_replicas(&self, replicas_per_primary: usize) -> Result<(), ServerError> {
        let (primaries, replicas) = self.nodes.split_at(self.primaries);
        for (primary, replicas) in primaries.iter().zip(replicas.chunks(replicas_per_primary.max(1))) {
            let id = primary.command(&["CLUSTER", "MYID"])?;
            for replica in replicas {
                replica.command(&["CLUSTER", "REPLICATE", &id])?;
            }
        }
        Ok(())
    }

    /// `redis+cluster://127.0.0.1:P1,127.0.0.1:P2,…`: the primaries of the start.
    pub fn url(&self) -> String {
        let hosts: Vec<String> =
            self.nodes.iter().take(self.primaries).map(|node| format!("127.0.0.1:{}", node.port())).collect();
        format!("redis+cluster://{}", hosts.join(","))
    }

    /// All nodes.
    pub fn nodes(&self) -> &[Redis] {
        &self.nodes
    }

    /// The node with that index.
    pub fn node(&self, index: usize) -> Result<&Redis, ServerError> {
        self.nodes.get(index).ok_or_else(|| ServerError::NoSuchNode(format!("there is no node {index}")))
    }

    /// Kills a node as a crash would.
    pub fn kill9(&self, index: usize) -> Result<(), ServerError> {
        self.node(index)?.kill9();
        Ok(())
    }

    /// Starts a node again, with its port and its folder; [`Cluster::wait_until_healthy`] waits for it to be back.
    pub fn restart(&self, index: usize) -> Result<(), ServerError> {
        self.node(index)?.restart()
    }

    /// The index of the node that serves the slot, by its own word. Of two that claim it (one was away and has not
    /// heard) it is the one with the higher epoch.
    pub fn primary_of_slot(&self, slot: u16) -> Result<usize, ServerError> {
        let owner = self.views().into_iter().filter_map(|(index, view)| {
            let own = view.into_iter().find(|line| line.is_myself && line.is_primary && line.owns(slot))?;
            Some((own.epoch, index))
        });
        let owner = owner.max().map(|(_, index)| index);
        owner.ok_or_else(|| ServerError::NoSuchNode(format!("no node that is up serves slot {slot}")))
    }

    /// Kills the primary of the slot and waits until a replica has taken over, as every node sees it; hands back the
    /// indexes of the old and the new one.
    pub fn fail_over_slot(&self, slot: u16) -> Result<(usize, usize), ServerError> {
        let old = self.primary_of_slot(slot)?;
        self.kill9(old)?;
        Ok((old, self.wait_for_other_primary(slot, old, HEALTHY_WITHIN)?))
    }

    /// Has a replica take over the slot from its primary, which becomes its replica; nothing is lost. Hands back the
    /// indexes of the old and the new primary.
    pub fn manual_failover(&self, slot: u16) -> Result<(usize, usize), ServerError> {
        let old = self.primary_of_slot(slot)?;
        // The old one gives up after five seconds if the two do not come to terms.
        for _ in 1..FAILOVERS_MAX {
            self.replica_of(old)?.command(&["CLUSTER", "FAILOVER"])?;
            if let Ok(new) = self.wait_for_other_primary(slot, old, FAILOVER_AGAIN) {
                return Ok((old, new));
            }
        }
        self.replica_of(old)?.command(&["CLUSTER", "FAILOVER"])?;
        Ok((old, self.wait_for_other_primary(slot, old, HEALTHY_WITHIN)?))
    }

    /// A replica of the primary that is up and attached. All nodes have to see it so, which takes a while for one that
    /// was a primary until now: they neither hear nor vote for a replica that they take for a primary.
    fn replica_of(&self, primary: usize) -> Result<&Redis, ServerError> {
        let id = self.node(primary)?.command(&["CLUSTER", "MYID"])?;
        let copies = |line: &Line| line.copies_from.as_ref() == Some(&id) && line.is_settled();
        wait::until("the primary has a replica that is attached", HEALTHY_WITHIN, || {
            let views = self.views();
            let is_known =
                |port: u16| views.iter().all(|(_, view)| view.iter().any(|line| line.port == port && copies(line)));
            let mut up = views.iter().map(|(index, _)| &self.nodes[*index]);
            let replica = up.find(|node| is_known(node.port())).ok_or("not all nodes know of one")?;
            is_attached(replica).map(|()| replica)
        })
    }

    fn wait_for_other_primary(&self, slot: u16, old: usize, within: Duration) -> Result<usize, ServerError> {
        wait::until(&format!("another node serves slot {slot}"), within, || {
            let new = self.primary_of_slot(slot).map_err(|error| error.to_string())?;
            if new == old {
                return Err(format!("node {old} still serves it"));
            }
            self.all_see(slot, new)?;
            Ok(new)
        })
    }

    /// Whether every node that is up sees the slot at that node, and the cluster in order.
    fn all_see(&self, slot: u16, owner: usize) -> Result<(), String> {
        self.all_see_besides(slot, owner, None)
    }

    /// The same without one node.
    fn all_see_besides(&self, slot: u16, owner: usize, besides: Option<usize>) -> Result<(), String> {
        let owner = self.nodes.get(owner).map(Redis::port);
        for (index, view) in self.views().into_iter().filter(|(index, _)| Some(*index) != besides) {
            let seen = view.iter().find(|line| line.is_primary && line.owns(slot)).map(|line| line.port);
            if seen != owner {
                return Err(format!("node {index} sees slot {slot} at port {seen:?}"));
            }
            is_in_order(&self.nodes[index])?;
        }
        Ok(())
    }

    /// Waits until every node that is up serves, all of them see each other as what they are, and replicas are attached
    /// and listed to clients.
    pub fn wait_until_healthy(&self) -> Result<(), ServerError> {
        wait::until("the cluster is in order", HEALTHY_WITHIN, || {
            let views = self.views();
            let own = views.iter().filter_map(|(_, view)| view.iter().find(|line| line.is_myself));
            let own: Vec<&Line> = own.collect();
            if own.len() != self.nodes.iter().filter(|node| node.is_up()).count() {
                return Err("a node does not answer".to_owned());
            }
            views.iter().try_for_each(|(index, view)| {
                let node = &self.nodes[*index];
                is_in_order(node)?;
                sees_all(node, view, &own)?;
                is_attached(node)
            })
        })
    }

    /// Runs `redis-cli --cluster fix` against a node that is up, which brings the keys of slots whose move was interrupted
    /// together, and hands back what it printed.
    pub fn fix(&self) -> Result<String, ServerError> {
        let node = self.nodes.iter().find(|node| node.is_up());
        let node = node.ok_or_else(|| ServerError::NoSuchNode("no node is up".to_owned()))?;
        node.cli(&["--cluster", "fix", &format!("127.0.0.1:{}", node.port()), "--cluster-yes"])
    }

    /// What each node that is up says about all of them. One that does not answer says nothing.
    fn views(&self) -> Vec<(usize, Vec<Line>)> {
        let up = self.nodes.iter().enumerate().filter(|(_, node)| node.is_up());
        up.filter_map(|(index, node)| Some((index, read_view(node).ok()?))).collect()
    }
}

/// The slots of each primary: equal shares of all of them.
fn shares(primaries: usize) -> impl Iterator<Item = RangeInclusive<usize>> {
    (0..primaries).map(move |at| SLOTS * at / primaries..=SLOTS * (at + 1) / primaries - 1)
}

fn read_view(node: &Redis) -> Result<Vec<Line>, String> {
    let text = node.command(&["CLUSTER", "NODES"]).map_err(|error| error.to_string())?;
    Line::parse_all(&text)
}

/// Whether the node sees the others as they see themselves, and tells its clients of them.
fn sees_all(node: &Redis, view: &[Line], own: &[&Line]) -> Result<(), String> {
    let slots = node.command(&["CLUSTER", "SLOTS"]).map_err(|error| error.to_string())?;
    own.iter().try_for_each(|own| {
        let seen = view.iter().find(|line| line.port == own.port);
        let is_seen = seen.is_some_and(|line| line.is_settled() && line.copies_from == own.copies_from);
        // A primary without slots is in no list.
        let is_idle = own.is_primary && own.slots.is_empty();
        let is_listed = is_idle || slots.lines().any(|text| text == own.port.to_string());
        if is_seen && is_listed { Ok(()) } else { Err(format!("{} does not see {own:?} yet: {seen:?}", node.port())) }
    })
}

fn is_in_order(node: &Redis) -> Result<(), String> {
    let info = node.command(&["CLUSTER", "INFO"]).map_err(|error| error.to_string())?;
    let is_ok = info.contains("cluster_state:ok\r") && info.contains("cluster_slots_ok:16384\r");
    if is_ok { Ok(()) } else { Err(format!("{} says: {info}", node.port())) }
}

fn is_attached(node: &Redis) -> Result<(), String> {
    let info = node.command(&["INFO", "replication"]).map_err(|error| error.to_string())?;
    let is_attached = info.contains("role:master\r") || info.contains("master_link_status:up\r");
    if is_attached { Ok(()) } else { Err(format!("the replica on {} is not attached", node.port())) }
}

#[cfg(test)]
mod tests {
    use super::shares;

    #[test]
    fn shares_cover_every_slot_once() {
        for primaries in [1, 3, 5, 7] {
            let slots: Vec<usize> = shares(primaries).flatten().collect();
            assert_eq!(slots, (0..16_384).collect::<Vec<_>>());
        }
    }
}
