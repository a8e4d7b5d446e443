//! Finds the server that a store lives on: the one that is named, the primary that the Sentinels know, or the node of the
//! cluster that owns the store's slot. All who may know are asked at once, and the first answer counts: one that hangs
//! holds up nobody.

use super::Shared;
use super::dial::{Login, ask, client, open};
use crate::error::{self, unavailable};
use crate::options::{Node, Topology};
use futures::FutureExt;
use futures::future::{BoxFuture, select_ok};
use redis::Value;
use redis::aio::MultiplexedConnection;
use windlass_core::{Error, Result};

/// The number of the database, where there are several.
pub(super) fn db(topology: &Topology) -> u32 {
    match topology {
        Topology::Single { db, .. } | Topology::Sentinel { db, .. } => *db,
        Topology::Cluster { .. } => 0,
    }
}

/// The server that the store lives on.
pub(super) async fn find(shared: &Shared) -> Result<Node> {
    match &shared.options.topology {
        Topology::Single { node, .. } => Ok(node.clone()),
        Topology::Sentinel { nodes, .. } => {
            // The new primary, if a Sentinel has just told us: the others may not know yet. It is believed once.
            let told = shared.told.lock().take();
            if let Some(node) = told {
                return Ok(node);
            }
            first(nodes.iter().map(|node| ask_sentinel(shared, node).boxed())).await
        }
        Topology::Cluster { nodes } => {
            // Where the slot went, if a node has just told us. It is believed once.
            let told = shared.told.lock().take();
            if let Some(node) = told {
                return Ok(node);
            }
            let mut all = shared.known.lock().clone();
            all.extend(nodes.iter().filter(|node| !all.contains(node)).cloned().collect::<Vec<_>>());
            first(all.iter().map(|node| ask_cluster(shared, node).boxed())).await
        }
    }
}

/// The first good answer; the last refusal when there is none.
async fn first(asked: impl Iterator<Item = BoxFuture<'_, Result<Node>>>) -> Result<Node> {
    let asked: Vec<_> = asked.collect();
    if asked.is_empty() {
        return Err(unavailable("there is nobody to ask for the server"));
    }
    select_ok(asked).await.map(|(node, _others)| node)
}

async fn ask_sentinel(shared: &Shared, node: &Node) -> Result<Node> {
    let Topology::Sentinel { sentinel_user, sentinel_password, .. } = &shared.options.topology else {
        return Err(unavailable("no Sentinels"));
    };
    let login = Login { username: sentinel_user.as_deref(), password: sentinel_password.as_ref(), db: 0 };
    let client = client(node, &login, shared.options.tls.as_ref())?;
    let asked = async {
        let mut conn = open(&client, node.clone(), None).await?;
        primary(shared, &mut conn.mux, node).await
    };
    asked.await.map_err(|error| error::at_sentinel(node, error))
}

/// The Sentinels.
pub(super) fn sentinels(shared: &Shared) -> std::slice::Iter<'_, Node> {
    match &shared.options.topology {
        Topology::Sentinel { nodes, .. } => nodes.iter(),
        Topology::Single { .. } | Topology::Cluster { .. } => [].iter(),
    }
}

/// The primary that this Sentinel names.
pub(super) async fn primary(shared: &Shared, mux: &mut MultiplexedConnection, node: &Node) -> Result<Node> {
    let Topology::Sentinel { service, .. } = &shared.options.topology else {
        return Err(unavailable("no Sentinels"));
    };
    let mut question = redis::cmd("SENTINEL");
    question.arg("GET-MASTER-ADDR-BY-NAME").arg(service);
    let answer = ask(mux, &question, node).await.map_err(|error| match error {
        // No other server knows the command.
        Error::Incompatible { .. } => error::incompatible(format!(
            "{node} is not a Sentinel; write redis://{node} if the jobs are to be there, or the address of a Sentinel"
        )),
        other => other,
    })?;
    match answer {
        Value::Array(address) => match address.as_slice() {
            [Value::BulkString(host), Value::BulkString(port)] => node_of(host, port),
            _ => Err(Error::corrupt(format!("the Sentinel {node} names no address"))),
        },
        Value::Nil => Err(Error::invalid(
            "store",
            format!("the Sentinel {node} knows no service `{service}`; write the name of its `sentinel monitor` line"),
        )),
        _ => Err(Error::corrupt(format!("the Sentinel {node} names no address"))),
    }
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

/// The owner of a slot, and all primaries, by the answer to `CLUSTER SLOTS`.
fn read_slots(map: &Value, slot: u16, asked: &Node) -> (Option<Node>, Vec<Node>) {
    let mut owner = None;
    let mut all = Vec::new();
    let Value::Array(ranges) = map else { return (None, all) };
    for range in ranges {
        let Value::Array(range) = range else { continue };
        let [Value::Int(from), Value::Int(to), Value::Array(primary), ..] = range.as_slice() else { continue };
        let [host, Value::Int(port), ..] = primary.as_slice() else { continue };
        let host = match host {
            Value::BulkString(host) if !host.is_empty() && host.as_slice() != b"?" => {
                String::from_utf8_lossy(host).into_owned()
            }
            // A node that does not know its own address means the one under which it was asked.
            _ => asked.host.clone(),
        };
        let Ok(port) = u16::try_from(*port) else { continue };
        let node = Node::new(host, port);
        if (*from..=*to).contains(&i64::from(slot)) {
            owner = Some(node.clone());
        }
        if !all.contains(&node) {
            all.push(node);
        }
    }
    (owner, all)
}

fn node_of(host: &[u8], port: &[u8]) -> Result<Node> {
    let port = std::str::from_utf8(port).ok().and_then(|port| port.parse().ok());
    let port = port.ok_or_else(|| Error::corrupt("the Sentinel names no port"))?;
    Ok(Node::new(String::from_utf8_lossy(host), port))
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
        let range = |from, to, host: Value, port| {
            let node = Value::Array(vec![host, Value::Int(port), bulk("id"), Value::Array(vec![])]);
            Value::Array(vec![Value::Int(from), Value::Int(to), node])
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
        assert_eq!(all, [Node::new("a", 1), Node::new("self", 2), Node::new("self", 3)]);
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
