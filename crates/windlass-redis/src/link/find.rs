//! Finds the node of a cluster that owns the store's slot.
//!
//! A node that has not yet received the latest configuration may name an owner that is dead or was replaced. So all nodes that
//! may know are asked at once, every owner that one of them names is connected to, and the first connection to a primary counts. If
//! that node does not own the slot any more, it answers the call with a redirection.

use super::dial::{Errand, Login, ask, client, greet_at, open};
use super::{Conn, Shared};
use crate::error::{self, unavailable};
use crate::options::{Node, Topology};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use redis::Value;
use windlass_core::{Error, Result};

/// The number of the database, where there are several.
pub(super) fn db(topology: &Topology) -> u32 {
    match topology {
        Topology::Single { db, .. } | Topology::Sentinel { db, .. } => *db,
        Topology::Cluster { .. } => 0,
    }
}

/// Connects to the owner of the store's slot. The caller bounds the time.
pub(super) async fn dial_owner(shared: &Shared, nodes: &[Node], errand: &Errand<'_>) -> Result<Conn> {
    let redirect = shared.redirect.lock().take();
    let mut tried: Vec<Node> = Vec::new();
    if let Some(node) = redirect {
        // A node that does not answer must leave time for asking the others.
        let limit = shared.options.connect_timeout / 3;
        if let Ok(Ok(conn)) = tokio::time::timeout(limit, dial_ready(shared, node, errand)).await {
            return Ok(conn);
        }
    }
    let mut all = shared.known.lock().clone();
    all.extend(nodes.iter().filter(|node| !all.contains(node)).cloned().collect::<Vec<_>>());
    let mut asked: FuturesUnordered<_> = all.iter().map(|node| ask_cluster(shared, node)).collect();
    let mut dialed = FuturesUnordered::new();
    let mut last = unavailable("there is no node to ask for the owner of the store's slot");
    loop {
        tokio::select! {
            Some(owner) = asked.next() => match owner {
                Ok(owner) if !tried.contains(&owner) => {
                    tried.push(owner.clone());
                    dialed.push(dial_ready(shared, owner, errand));
                }
                Ok(_) => {}
                Err(error) => last = more_actionable(last, error),
            },
            Some(conn) = dialed.next() => match conn {
                Ok(conn) => return Ok(conn),
                Err(error) => last = more_actionable(last, error),
            },
            else => return Err(last),
        }
    }
}

/// The error to report of two: one that the user can correct.
pub(super) fn more_actionable(first: Error, second: Error) -> Error {
    if second.is_retryable() && !first.is_retryable() { first } else { second }
}

async fn dial_ready(shared: &Shared, node: Node, errand: &Errand<'_>) -> Result<Conn> {
    greet_at(shared, node, errand).await?.ready()
}

async fn ask_cluster(shared: &Shared, node: &Node) -> Result<Node> {
    let options = &shared.options;
    let login = Login { username: options.username.as_deref(), password: options.password.as_ref(), db: 0 };
    let client = client(node, &login, options.tls.as_ref())?;
    let mut conn = open(&client, node.clone(), None).await?;
    let mut question = redis::cmd("CLUSTER");
    question.arg("SLOTS");
    let map = match ask(&mut conn.mux, &question, node).await {
        Err(Error::Corrupt { what }) if what.contains("cluster support disabled") => {
            return Err(error::incompatible(format!("{node} is not part of a cluster; write redis://{node}")));
        }
        Err(Error::Incompatible { .. }) => {
            return Err(error::incompatible(format!(
                "{node} is not part of a cluster; write redis://{node}, or redis+sentinel://{node}/service if it is a \
                 Sentinel"
            )));
        }
        answer => answer?,
    };
    let (owner, all) = read_slots(&map, shared.slot, node);
    if !all.is_empty() {
        *shared.known.lock() = all;
    }
    owner.ok_or_else(|| unavailable(format!("no node of the cluster serves the slot {}", shared.slot)))
}

/// The owner of a slot; and all primaries, with the replicas of that slot, by the answer to `CLUSTER SLOTS`.
fn read_slots(map: &Value, slot: u16, asked: &Node) -> (Option<Node>, Vec<Node>) {
    let mut owner = None;
    let mut all = Vec::new();
    let Value::Array(ranges) = map else { return (None, all) };
    for range in ranges {
        let Value::Array(range) = range else { continue };
        let [Value::Int(from), Value::Int(to), nodes @ ..] = range.as_slice() else { continue };
        let is_ours = (*from..=*to).contains(&i64::from(slot));
        let mut nodes = nodes.iter().filter_map(|node| read_node(node, asked));
        let Some(primary) = nodes.next() else { continue };
        if is_ours {
            owner = Some(primary.clone());
        }
        let of_slot = nodes.take_while(|_| is_ours);
        for node in std::iter::once(primary).chain(of_slot) {
            if !all.contains(&node) {
                all.push(node);
            }
        }
    }
    (owner, all)
}

fn read_node(node: &Value, asked: &Node) -> Option<Node> {
    let Value::Array(node) = node else { return None };
    let [host, Value::Int(port), ..] = node.as_slice() else { return None };
    let host = match host {
        Value::BulkString(host) if !host.is_empty() && host.as_slice() != b"?" => {
            String::from_utf8_lossy(host).into_owned()
        }
        // A node that does not know its own address means the one under which it was asked.
        _ => asked.host.clone(),
    };
    Some(Node::new(host, u16::try_from(*port).ok()?))
}

/// The address of a redirection: `host:port`, where an IPv6 address has no brackets and an empty host means the same one.
pub(super) fn redirected(text: &str, from: &Node) -> Option<Node> {
    let (host, port) = text.rsplit_once(':')?;
    let host = if host.is_empty() { from.host.as_str() } else { host };
    Some(Node::new(host, port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_of_a_slot_is_read_from_the_map() {
        let bulk = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let node = |host: Value, port| Value::Array(vec![host, Value::Int(port), bulk("id"), Value::Array(vec![])]);
        let range = |from, to, host: Value, port| {
            let replica = node(bulk("r"), port + 100);
            Value::Array(vec![Value::Int(from), Value::Int(to), node(host, port), replica])
        };
        let map = Value::Array(vec![
            range(0, 99, bulk("a"), 1),
            range(100, 199, bulk(""), 2),
            range(200, 16383, Value::Nil, 3),
            range(300, 301, bulk("a"), 1),
        ]);
        let asked = Node::new("self", 9);
        let (owner, all) = read_slots(&map, 99, &asked);
        assert_eq!(owner, Some(Node::new("a", 1)));
        let replica = Node::new("r", 101);
        assert_eq!(all, [Node::new("a", 1), replica, Node::new("self", 2), Node::new("self", 3)]);
        assert_eq!(read_slots(&map, 150, &asked).0, Some(Node::new("self", 2)));
        assert_eq!(read_slots(&map, 200, &asked).0, Some(Node::new("self", 3)));
        assert_eq!(read_slots(&Value::Array(vec![]), 1, &asked).0, None);
    }

    #[test]
    fn redirections_are_read() {
        let from = Node::new("here", 1);
        assert_eq!(redirected("10.0.0.1:7", &from), Some(Node::new("10.0.0.1", 7)));
        assert_eq!(redirected("::1:7", &from), Some(Node::new("::1", 7)));
        assert_eq!(redirected(":7", &from), Some(Node::new("here", 7)));
        assert_eq!(redirected("nonsense", &from), None);
    }
}
