//! Subscriptions that outlive their connections.

use crate::server::Server;
use std::time::Duration;
use windlass_redis::link::{Event, Link, Subscription};
use windlass_redis::options::Options;

fn open(server: &Server) -> Link {
    Link::open(Options::from_url(&server.url()).unwrap(), &[]).unwrap()
}

async fn next(events: &mut Subscription) -> Event {
    tokio::time::timeout(Duration::from_secs(10), events.next()).await.expect("nothing is heard").expect("it has ended")
}

#[tokio::test]
async fn messages_arrive_and_end_with_the_handle() {
    let server = Server::start(&[]);
    let link = open(&server);
    let mut events = link.subscribe("{windlass}:bell");
    assert_eq!(next(&mut events).await, Event::Subscribed);
    assert_eq!(server.cli(&["PUBLISH", "{windlass}:bell", "one"]), "1");
    assert_eq!(server.cli(&["PUBLISH", "{windlass}:other", "no"]), "0");
    server.cli(&["PUBLISH", "{windlass}:bell", "two"]);
    assert_eq!(next(&mut events).await, Event::Message("one".into()));
    assert_eq!(next(&mut events).await, Event::Message("two".into()));
    drop(link);
    server.cli(&["PUBLISH", "{windlass}:bell", "three"]);
    assert_eq!(next(&mut events).await, Event::Message("three".into()), "a subscription keeps its link");
    drop(events);
    let until = std::time::Instant::now() + Duration::from_secs(5);
    while server.cli(&["PUBLISH", "{windlass}:bell", "four"]) != "0" {
        assert!(std::time::Instant::now() < until, "nobody listens and the subscription goes on");
    }
}

#[tokio::test]
async fn a_killed_subscription_is_reported_as_lost_and_begins_again() {
    let server = Server::start(&[]);
    let link = open(&server);
    let mut events = link.subscribe("{windlass}:bell");
    for _ in 0..3 {
        assert_eq!(next(&mut events).await, Event::Subscribed);
        assert_eq!(server.cli(&["CLIENT", "KILL", "TYPE", "pubsub"]), "1");
        assert_eq!(next(&mut events).await, Event::Lost);
    }
    assert_eq!(next(&mut events).await, Event::Subscribed);
    server.cli(&["PUBLISH", "{windlass}:bell", "x"]);
    assert_eq!(next(&mut events).await, Event::Message("x".into()));
}

#[tokio::test]
async fn slow_a_subscription_survives_a_restart() {
    let mut server = Server::start(&[]);
    let link = open(&server);
    let mut events = link.subscribe("{windlass}:bell");
    assert_eq!(next(&mut events).await, Event::Subscribed);
    server.kill();
    // sleeps because: several attempts are to fail
    tokio::time::sleep(Duration::from_millis(500)).await;
    server.restart();
    assert_eq!(next(&mut events).await, Event::Lost);
    assert_eq!(next(&mut events).await, Event::Subscribed);
    server.cli(&["PUBLISH", "{windlass}:bell", "x"]);
    assert_eq!(next(&mut events).await, Event::Message("x".into()));
}

/// A peer that is silent without closing the connection is noticed.
#[tokio::test]
async fn slow_a_dead_peer_is_noticed() {
    let server = Server::start(&[]);
    let link = open(&server);
    let mut events = link.subscribe("{windlass}:bell");
    assert_eq!(next(&mut events).await, Event::Subscribed);
    server.signal("-STOP");
    // sleeps because: that is how long the peer may be silent
    tokio::time::sleep(Duration::from_secs(15)).await;
    server.signal("-CONT");
    assert_eq!(next(&mut events).await, Event::Lost);
    assert_eq!(next(&mut events).await, Event::Subscribed);
}

#[tokio::test]
async fn a_listener_that_is_too_slow_learns_that_it_missed_something() {
    let server = Server::start(&[]);
    let link = open(&server);
    let mut events = link.subscribe("{windlass}:bell");
    assert_eq!(next(&mut events).await, Event::Subscribed);
    let ring = "for i = 1, 10000 do redis.call('PUBLISH', '{windlass}:bell', i) end";
    server.cli(&["EVAL", ring, "0"]);
    let mut heard = 0;
    while let Event::Message(_) = next(&mut events).await {
        heard += 1;
    }
    assert!(heard < 10_000, "the queue has an end: {heard}");
}
