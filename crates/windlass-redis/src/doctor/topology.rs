//! The servers around it: the cluster's nodes, or the Sentinels.

use super::Finding;
use super::ask::{ask, field, list, text};
use crate::link::{Link, Purpose, Value};
use crate::options::{Node, Options, Topology};
use crate::store::RedisStore;

pub(super) async fn look(store: &RedisStore, options: &Options, findings: &mut Vec<Finding>) {
    match &options.topology {
        Topology::Single { .. } => {}
        Topology::Cluster { .. } => cluster(store, findings).await,
        Topology::Sentinel { nodes, service, .. } => sentinels(options, nodes, service, findings).await,
    }
}

async fn cluster(store: &RedisStore, findings: &mut Vec<Finding>) {
    let slot = store.caller.link.slot();
    let unknown = |what: &str| {
        Finding::info("cluster", format!("{what} is not known, because the user may not run CLUSTER {what}"))
            .hint("grant +cluster|info and +cluster|nodes")
    };
    match ask(&store.caller.link, &["CLUSTER", "INFO"]).await.as_ref().and_then(text) {
        None => findings.push(unknown("INFO")),
        Some(info) => {
            let of =
                |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap_or("?");
            let state = of("cluster_state");
            let text = format!(
                "state {state}, {} of 16384 slots served, {} nodes, {} of them primaries with slots",
                of("cluster_slots_ok"),
                of("cluster_known_nodes"),
                of("cluster_size"),
            );
            findings.push(if state == "ok" && of("cluster_slots_ok") == "16384" {
                Finding::ok("cluster", text)
            } else {
                Finding::error("cluster", text).hint("redis-cli --cluster check HOST:PORT, then --cluster fix")
            });
        }
    }
    match ask(&store.caller.link, &["CLUSTER", "NODES"]).await.as_ref().and_then(text) {
        None => findings.push(unknown("NODES")),
        Some(nodes) => findings.push(owner(slot, &nodes)),
    }
}

/// Who owns the slot, by the answer to `CLUSTER NODES`, each line `id address flags primary ping pong epoch link slots…`.
fn owner(slot: u16, nodes: &str) -> Finding {
    let rows: Vec<Vec<&str>> =
        nodes.lines().map(|line| line.split(' ').collect()).filter(|row: &Vec<&str>| row.len() >= 8).collect();
    let Some(owner) = rows.iter().find(|row| row[8..].iter().any(|range| holds(range, slot))) else {
        return Finding::error("slot", format!("no node owns the store's slot {slot}"))
            .hint("redis-cli --cluster check HOST:PORT, then --cluster fix");
    };
    let address = owner[1].split(['@', ',']).next().unwrap_or("?");
    let replicas = rows.iter().filter(|row| row[3] == owner[0] && !row[2].contains("fail")).count();
    let text = format!("all keys are in slot {slot}, owned by {address} with {replicas} healthy replicas");
    if owner[8..].iter().any(|range| range.starts_with(&format!("[{slot}-"))) {
        return Finding::warning("slot", format!("{text}; the slot is being moved"))
            .hint("calls go on meanwhile; while a big container moves, the whole node stands still");
    }
    if replicas == 0 {
        return Finding::warning("slot", text).hint("without a replica the store stops when that node does: add one");
    }
    Finding::ok("slot", text)
}

/// Whether a range such as `7` or `5-9` holds the slot; those in brackets are on their way.
fn holds(range: &str, slot: u16) -> bool {
    let (from, to) = range.split_once('-').unwrap_or((range, range));
    match (from.parse::<u16>(), to.parse::<u16>()) {
        (Ok(from), Ok(to)) => (from..=to).contains(&slot),
        _ => false,
    }
}

async fn sentinels(options: &Options, nodes: &[Node], service: &str, findings: &mut Vec<Finding>) {
    let (mut silent, mut heard) = (Vec::new(), None);
    for node in nodes {
        match primary_by(options, node, service).await {
            Some((link, said)) => heard = heard.or(Some((link, said))),
            None => silent.push(node.to_string()),
        }
    }
    if !silent.is_empty() {
        findings.push(
            Finding::warning("sentinel", format!("no answer from {}", silent.join(", ")))
                .hint("start it, or take it out of the URL; check sentinel_password, too"),
        );
    }
    let Some((link, said)) = heard else { return };
    let of = |name: &str| field(&said, name).unwrap_or_else(|| "?".to_owned());
    let known = of("num-other-sentinels").parse::<u32>().map_or(0, |others| others + 1);
    let quorum = of("quorum");
    let text = format!(
        "`{service}` is at {}:{} ({}), {known} sentinels know each other, {quorum} must agree, {} replicas",
        of("ip"),
        of("port"),
        of("flags"),
        of("num-slaves"),
    );
    let agreed = ask(&link, &["SENTINEL", "CKQUORUM", service]).await.as_ref().and_then(super::ask::text);
    findings.push(if of("flags") != "master" {
        Finding::error("sentinel", text).hint("the sentinels take the primary for down; see their logs")
    } else if agreed.is_none() {
        Finding::error("sentinel", format!("{text}; too few can be reached for a failover"))
            .hint(format!("redis-cli -p 26379 SENTINEL CKQUORUM {service} says which are missing"))
    } else if known < 3 {
        Finding::warning("sentinel", text)
            .hint("run three: with fewer, the loss of one machine may keep the others from acting")
    } else {
        Finding::ok("sentinel", text)
    });
    let down = unhealthy(&link, service).await;
    if !down.is_empty() {
        findings.push(
            Finding::warning("sentinel", format!("replicas that cannot take over: {}", down.join(", ")))
                .hint("see their logs and their links to the primary"),
        );
    }
}

/// Asks a Sentinel, which has users of its own.
async fn primary_by(options: &Options, node: &Node, service: &str) -> Option<(Link, Value)> {
    let Topology::Sentinel { sentinel_user, sentinel_password, .. } = &options.topology else { return None };
    let there = Options {
        username: sentinel_user.clone(),
        password: sentinel_password.clone(),
        topology: Topology::Single { node: node.clone(), db: 0 },
        wait_replicas: None,
        ..options.clone()
    };
    let link = Link::open_for(Purpose::AskSentinel, there, &[]).ok()?;
    let said = ask(&link, &["SENTINEL", "MASTER", service]).await?;
    Some((link, said))
}

async fn unhealthy(link: &Link, service: &str) -> Vec<String> {
    let Some(replicas) = ask(link, &["SENTINEL", "REPLICAS", service]).await else { return Vec::new() };
    let of = |one: &Value, name: &str| field(one, name).unwrap_or_default();
    let bad = list(&replicas).iter().filter(|one| of(one, "flags") != "slave" || of(one, "master-link-status") != "ok");
    bad.map(|one| format!("{}:{} ({})", of(one, "ip"), of(one, "port"), of(one, "flags"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Severity;

    const NODES: &str = "aa 127.0.0.1:1@11 myself,master - 0 0 1 connected 0-99 200\n\
                         bb 127.0.0.1:2@12,host master - 0 0 2 connected 100-199 201-16383 [150->-aa]\n\
                         cc 127.0.0.1:3@13 slave bb 0 0 2 connected\n";

    #[test]
    fn the_owner_is_read_with_its_replicas_and_moves() {
        let says = |slot: u16| owner(slot, NODES);
        assert_eq!(says(300).message, "all keys are in slot 300, owned by 127.0.0.1:2 with 1 healthy replicas");
        assert_eq!(says(300).severity, Severity::Ok);
        assert!(says(150).message.ends_with("the slot is being moved"), "{:?}", says(150));
        assert_eq!(says(200).severity, Severity::Warning);
        assert!(says(200).message.contains("127.0.0.1:1 with 0"), "{:?}", says(200));
        let failed = NODES.replace("slave bb", "slave,fail bb");
        assert_eq!(owner(300, &failed).severity, Severity::Warning);
        assert_eq!(owner(7, "").severity, Severity::Error);
    }
}
