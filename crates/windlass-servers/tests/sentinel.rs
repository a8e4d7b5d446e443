//! Sentinels: the primary changes, and they say so.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed check is a panic")]

mod support;

use std::time::Duration;

use support::wait_until;
use windlass_servers::{Redis, Sentinel};

const LONG: Duration = windlass_core::time::HANG_GUARD;

#[test]
#[expect(clippy::disallowed_methods, reason = "the servers take their time")]
fn slow_sentinels_fail_over_when_told_and_when_the_primary_dies() {
    let sentinel = Sentinel::start().unwrap();
    let hosts: Vec<String> = sentinel.sentinels().iter().map(|one| format!("127.0.0.1:{}", one.port())).collect();
    assert_eq!(sentinel.url(), format!("redis+sentinel://{}/mymaster", hosts.join(",")));
    let first = sentinel.primary_port().unwrap();
    assert_eq!(first, sentinel.nodes()[0].port());
    sentinel.node(first).unwrap().command(&["SET", "k", "v"]).unwrap();
    // What a replica has not got when it becomes the primary is lost.
    wait_until("all have the key", || sentinel.nodes().iter().all(|node| node.command(&["GET", "k"]).unwrap() == "v"));

    assert_eq!(sentinel.fail_over().unwrap(), first);
    let second = sentinel.wait_for_new_primary(first, LONG).unwrap();
    assert_ne!(second, first);
    assert_eq!(sentinel.primary_port().unwrap(), second);
    let primary = sentinel.node(second).unwrap();
    assert_eq!(primary.command(&["GET", "k"]).unwrap(), "v");
    sentinel.wait_until_healthy().unwrap();

    assert_eq!(sentinel.kill9_primary().unwrap(), second);
    assert!(!primary.is_up());
    let third = sentinel.wait_for_new_primary(second, LONG).unwrap();
    assert_ne!(third, second);
    assert_eq!(sentinel.node(third).unwrap().command(&["GET", "k"]).unwrap(), "v");
    assert_eq!(sentinel.node(third).unwrap().command(&["SET", "k", "w"]).unwrap(), "OK");

    // The one that was killed comes back as a replica.
    primary.restart().unwrap();
    sentinel.wait_until_healthy().unwrap();
    // A sentinel tells it so when it next looks around; on a busy machine they may have changed their mind again about
    // who the primary is.
    let is_replica = || {
        let wanted = format!("slave\n127.0.0.1\n{}\n", sentinel.primary_port().unwrap());
        primary.command(&["ROLE"]).is_ok_and(|role| role.starts_with(&wanted))
    };
    let told = (0..LONG.as_millis() / 50).any(|_| {
        // sleeps because: the sentinels look around every second
        std::thread::sleep(Duration::from_millis(50));
        is_replica()
    });
    assert!(told, "{:?}", primary.command(&["ROLE"]));
    assert_eq!(sentinel.nodes().iter().filter(|node| is_primary(node)).count(), 1);
}

fn is_primary(node: &Redis) -> bool {
    node.command(&["ROLE"]).unwrap().starts_with("master")
}

#[test]
fn slow_failover_to_leaves_the_sentinels_with_the_old_primary() {
    let sentinel = Sentinel::start_with_replicas(1).unwrap();
    assert_eq!(sentinel.nodes().len(), 2);
    sentinel.use_default_intervals();
    let (old, new) = sentinel.fail_over_without_sentinels().unwrap();
    assert_ne!(old, new);
    assert!(is_primary(sentinel.node(new).unwrap()) && !is_primary(sentinel.node(old).unwrap()));
    assert_eq!(sentinel.primary_port().unwrap(), old, "the sentinels have not read INFO since");
    sentinel.use_short_intervals();
    assert_eq!(sentinel.wait_for_new_primary(old, LONG).unwrap(), new);
    sentinel.wait_until_healthy().unwrap();
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the sentinels publish in real time")]
fn slow_a_stale_sentinel_keeps_naming_the_old_primary() {
    let sentinel = Sentinel::start_with_replicas(1).unwrap();
    let old = sentinel.fail_over().unwrap();
    let new = sentinel.wait_for_promotion(old, LONG).unwrap();
    let stale = sentinel.start_stale_sentinel(old).unwrap();
    assert_eq!(sentinel.wait_for_new_primary(old, LONG).unwrap(), new);
    // The others do not hear of it either: they would count it.
    sentinel.wait_until_healthy().unwrap();
    // sleeps because: the others publish what they know twice a second, and none of it may arrive.
    std::thread::sleep(Duration::from_secs(2));
    let named = stale.command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mymaster"]).unwrap();
    assert_eq!(named, format!("127.0.0.1\n{old}"));
    sentinel.wait_until_healthy().unwrap();
}

#[test]
fn a_set_without_replicas_is_refused() {
    assert!(Sentinel::start_with_replicas(0).is_err());
}
