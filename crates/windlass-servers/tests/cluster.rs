//! Clusters: slots that move, primaries that change.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use support::wait_until;
use windlass_servers::{Cluster, ServerError};

/// Of the keys `{a}…`, as Redis counts it.
const SLOT: u16 = 15_495;

fn keys(cluster: &Cluster, index: usize) -> usize {
    let slot = SLOT.to_string();
    cluster.nodes()[index].command(&["CLUSTER", "COUNTKEYSINSLOT", &slot]).unwrap().parse().unwrap()
}

fn fill(cluster: &Cluster, count: usize) {
    let primary = cluster.primary_of_slot(SLOT).unwrap();
    for n in 0..count {
        cluster.nodes()[primary].command(&["SET", &format!("{{a}}{n}"), "v"]).unwrap();
    }
}

/// The answer of any other node than the one that serves the slot.
fn redirect(cluster: &Cluster, asked: usize) -> String {
    match cluster.nodes()[asked].command(&["GET", "{a}0"]).unwrap_err() {
        ServerError::Refused { reply, .. } => reply,
        other => panic!("{other}"),
    }
}

#[test]
fn slow_every_slot_is_served_and_every_replica_attached() {
    let cluster = Cluster::start(3, 1).unwrap();
    let ports: Vec<u16> = cluster.nodes().iter().map(windlass_servers::Redis::port).collect();
    assert_eq!(ports.len(), 6);
    let hosts = ports[..3].iter().map(|port| format!("127.0.0.1:{port}")).collect::<Vec<_>>().join(",");
    assert_eq!(cluster.url(), format!("redis+cluster://{hosts}"));
    for (slot, index) in [(0, 0), (5_460, 0), (5_461, 1), (10_921, 1), (10_922, 2), (16_383, 2)] {
        let owner = cluster.primary_of_slot(slot).unwrap();
        assert_eq!(owner, index, "slot {slot}");
    }
    for (index, node) in cluster.nodes().iter().enumerate() {
        let role = node.command(&["ROLE"]).unwrap();
        if index < 3 {
            assert!(role.starts_with("master") && role.contains(&ports[index + 3].to_string()), "{index}: {role}");
        } else {
            assert!(role.starts_with(&format!("slave\n127.0.0.1\n{}\nconnected", ports[index - 3])), "{index}: {role}");
        }
        // A client that asks any node learns of all of them.
        let slots = node.command(&["CLUSTER", "SLOTS"]).unwrap();
        assert!(ports.iter().all(|port| slots.lines().any(|line| line == port.to_string())), "{slots}");
    }
}

#[test]
fn slow_a_slot_moves_with_its_keys_step_by_step() {
    let cluster = Cluster::start(3, 0).unwrap();
    fill(&cluster, 25);
    let slot = cluster.nodes()[0].command(&["CLUSTER", "KEYSLOT", "{a}0"]).unwrap();
    assert_eq!((slot, keys(&cluster, 2)), (SLOT.to_string(), 25));

    let migration = cluster.begin_migration(SLOT, 0).unwrap();
    assert_eq!(migration.step(10).unwrap(), 10);
    assert_eq!((keys(&cluster, 2), keys(&cluster, 0)), (15, 10));
    // In the middle the old node answers for what it has, and sends clients on for the rest.
    let answers: Vec<_> =
        (0..25).map(|n| cluster.nodes()[2].command(&["GET", &format!("{{a}}{n}")])).filter(Result::is_err).collect();
    assert_eq!(answers.len(), 10);
    let ask = format!("ASK {SLOT} 127.0.0.1:{}", cluster.nodes()[0].port());
    assert!(answers.iter().all(|answer| answer.as_ref().unwrap_err().to_string().contains(&ask)));
    migration.finish(10).unwrap();

    assert_eq!((keys(&cluster, 2), keys(&cluster, 0)), (0, 25));
    assert_eq!(cluster.primary_of_slot(SLOT).unwrap(), 0);
    for other in [1, 2] {
        assert_eq!(redirect(&cluster, other), format!("MOVED {SLOT} 127.0.0.1:{}", cluster.nodes()[0].port()));
    }
    cluster.migrate_slot(SLOT, 1, 100).unwrap();
    assert_eq!((keys(&cluster, 0), keys(&cluster, 1)), (0, 25));
}

#[test]
fn slow_a_slot_goes_to_another_primary_only() {
    let cluster = Cluster::start(3, 1).unwrap();
    for (to, why) in [(2, "where it is"), (3, "a replica"), (99, "nobody")] {
        let error = cluster.migrate_slot(SLOT, to, 10).unwrap_err();
        assert!(matches!(error, ServerError::NoSuchNode(_)), "{why}: {error}");
    }
}

#[test]
fn slow_a_replica_takes_over_from_a_killed_primary() {
    let cluster = Cluster::start(3, 1).unwrap();
    fill(&cluster, 10);
    // Replication is asynchronous: what the replica has not got dies with its primary.
    wait_until("the replica has all keys", || keys(&cluster, 5) == 10);
    let (old, new) = cluster.fail_over_slot(SLOT).unwrap();
    assert_eq!((old, new), (2, 5));
    assert!(!cluster.nodes()[old].is_up());
    assert_eq!(cluster.primary_of_slot(SLOT).unwrap(), new);
    assert_eq!(keys(&cluster, new), 10);
    assert_eq!(cluster.nodes()[new].command(&["GET", "{a}0"]).unwrap(), "v");

    cluster.restart(old).unwrap();
    cluster.wait_until_healthy().unwrap();
    let role = cluster.nodes()[old].command(&["ROLE"]).unwrap();
    assert!(role.starts_with(&format!("slave\n127.0.0.1\n{}\n", cluster.nodes()[new].port())), "{role}");
}

#[test]
fn slow_a_manual_failover_swaps_the_two_and_loses_nothing() {
    let cluster = Cluster::start(3, 1).unwrap();
    fill(&cluster, 10);
    assert_eq!(cluster.manual_failover(SLOT).unwrap(), (2, 5));
    assert_eq!(keys(&cluster, 5), 10);
    assert_eq!(cluster.manual_failover(SLOT).unwrap(), (5, 2));
    assert_eq!(keys(&cluster, 2), 10);
    cluster.wait_until_healthy().unwrap();
}
