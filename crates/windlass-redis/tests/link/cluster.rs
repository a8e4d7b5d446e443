//! A cluster of three, and a store whose slot is on one of them.

use crate::server::Server;
use std::process::Command as Program;
use std::sync::LazyLock;
use std::time::{Duration, Instant};
use windlass_core::Error;
use windlass_redis::link::{Call, Command, Event, Link, Script, Value, slot_of};
use windlass_redis::options::Options;

static SCRIPTS: LazyLock<Vec<Script>> = LazyLock::new(|| {
    vec![
        Script::new("incr", "return redis.call('INCRBY', KEYS[1], ARGV[1])"),
        Script::new("both", "redis.call('INCR', KEYS[1]) return redis.call('INCR', KEYS[2])"),
    ]
});

struct Cluster {
    nodes: Vec<Server>,
}

impl Cluster {
    fn start() -> Self {
        Self::start_with(0)
    }

    /// Three primaries, each with so many replicas.
    fn start_with(replicas: usize) -> Self {
        let count = 3 * (1 + replicas);
        let node = || Server::start(&["--cluster-enabled", "yes", "--cluster-node-timeout", "2000"]);
        let nodes: Vec<Server> = (0..count).map(|_| node()).collect();
        let addresses: Vec<String> = nodes.iter().map(|node| format!("127.0.0.1:{}", node.port)).collect();
        let made = Program::new("redis-cli")
            .args(["--cluster", "create"])
            .args(&addresses)
            .arg("--cluster-yes")
            .args(["--cluster-replicas", &replicas.to_string()])
            .output();
        let made = made.unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stdout));
        let cluster = Self { nodes };
        cluster.wait_until(|node| node.cli(&["CLUSTER", "INFO"]).contains("cluster_state:ok"));
        cluster
    }

    fn wait_until(&self, is_so: impl Fn(&Server) -> bool) {
        let until = Instant::now() + Duration::from_secs(20);
        while !self.nodes.iter().all(&is_so) {
            assert!(Instant::now() < until, "the cluster does not agree");
            // sleeps because: nodes tell each other in their own time
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn owner(&self, slot: u16) -> usize {
        // `create` gives each of three nodes a third.
        let ids: Vec<String> = self.nodes.iter().map(|node| node.cli(&["CLUSTER", "MYID"])).collect();
        let shown = self.nodes[0].cli(&["CLUSTER", "NODES"]);
        let owns = |line: &str| {
            line.split(' ').skip(8).filter_map(|range| range.split_once('-')).any(|(from, to)| {
                matches!((from.parse::<u16>(), to.parse::<u16>()), (Ok(from), Ok(to)) if (from..=to).contains(&slot))
            })
        };
        let line = shown.lines().find(|line| owns(line)).expect("somebody owns it");
        ids.iter().position(|id| line.starts_with(id.as_str())).unwrap()
    }

    /// Tells both sides that the slot is on its way.
    fn migrate(&self, slot: u16, from: usize, to: usize) {
        let (slot, ids) = (slot.to_string(), [from, to].map(|n| self.nodes[n].cli(&["CLUSTER", "MYID"])));
        assert_eq!(self.nodes[to].cli(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &ids[0]]), "OK");
        assert_eq!(self.nodes[from].cli(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &ids[1]]), "OK");
    }

    fn carry(&self, key: &str, from: usize, to: usize) {
        let port = self.nodes[to].port.to_string();
        assert_eq!(self.nodes[from].cli(&["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]), "OK");
    }

    fn settle(&self, slot: u16, to: usize) {
        let id = self.nodes[to].cli(&["CLUSTER", "MYID"]);
        for n in [to, (to + 1) % 3, (to + 2) % 3] {
            assert_eq!(self.nodes[n].cli(&["CLUSTER", "SETSLOT", &slot.to_string(), "NODE", &id]), "OK");
        }
    }

    fn url(&self, through: usize, prefix: &str) -> String {
        format!("redis+cluster://127.0.0.1:{}?prefix={prefix}", self.nodes[through].port)
    }
}

async fn incr(link: &Link, prefix: &str) -> Result<Value, Error> {
    let mut call = Call::new(&SCRIPTS[0], &[format!("{{{prefix}}}:n")]);
    call.arg_fmt(1);
    link.call(&call).await
}

#[tokio::test]
async fn slow_a_store_is_found_on_whichever_node_and_followed() {
    let cluster = Cluster::start();
    for prefix in ["a", "b", "c", "windlass"] {
        let slot = slot_of(prefix);
        assert_eq!(cluster.nodes[0].cli(&["CLUSTER", "KEYSLOT", &format!("{{{prefix}}}:n")]), slot.to_string());
        for through in 0..3 {
            let link = Link::open(Options::from_url(&cluster.url(through, prefix)).unwrap(), &SCRIPTS).unwrap();
            assert!(incr(&link, prefix).await.is_ok(), "{prefix} through {through}");
        }
    }
    let error =
        incr(&Link::open(Options::from_url(&cluster.nodes[0].url()).unwrap(), &SCRIPTS).unwrap(), "windlass").await;
    assert!(matches!(&error, Err(Error::Incompatible { what }) if what.contains("redis+cluster://")), "{error:?}");

    // The slot moves while a link and a subscription are there.
    let slot = slot_of("mover");
    let (from, to) = (cluster.owner(slot), (cluster.owner(slot) + 1) % 3);
    let link = Link::open(Options::from_url(&cluster.url(from, "mover")).unwrap(), &SCRIPTS).unwrap();
    let mut events = link.subscribe("{mover}:bell");
    assert_eq!(events.next().await, Some(Event::Subscribed));
    assert_eq!(incr(&link, "mover").await, Ok(Value::Int(1)));
    assert_eq!(link.command(&Command::new("SET").arg("{mover}:m").arg("5")).await, Ok(Value::Okay));

    cluster.migrate(slot, from, to);
    cluster.carry("{mover}:n", from, to);
    // One key here, one there: neither side can do it.
    let both = Call::new(&SCRIPTS[1], &["{mover}:n", "{mover}:m"]);
    let error = link.call(&both).await.unwrap_err();
    assert!(matches!(&error, Error::Unavailable { reason } if reason.contains("moves")), "{error:?}");
    assert_eq!(cluster.nodes[from].cli(&["GET", "{mover}:m"]), "5", "and nothing was done");
    // Those whose keys have gone are asked there.
    assert_eq!(incr(&link, "mover").await, Ok(Value::Int(2)));
    assert_eq!(cluster.nodes[to].cli(&["SCRIPT", "FLUSH"]), "OK");
    assert_eq!(incr(&link, "mover").await, Ok(Value::Int(3)));
    cluster.carry("{mover}:m", from, to);
    assert_eq!(link.call(&both).await, Ok(Value::Int(6)));

    cluster.settle(slot, to);
    assert_eq!(incr(&link, "mover").await, Ok(Value::Int(5)));
    assert_eq!(events.next().await, Some(Event::Lost));
    let again = tokio::time::timeout(Duration::from_secs(10), events.next()).await.expect("the subscription follows");
    assert_eq!(again, Some(Event::Subscribed));
    let until = Instant::now() + Duration::from_secs(5);
    while cluster.nodes[to].cli(&["SPUBLISH", "{mover}:bell", "x"]) != "1" {
        assert!(Instant::now() < until, "it listens to the new owner");
    }
    assert_eq!(events.next().await, Some(Event::Message("x".into())));
}

#[tokio::test]
async fn a_server_without_a_cluster_is_refused() {
    let server = Server::start(&[]);
    let url = format!("redis+cluster://127.0.0.1:{}", server.port);
    let error = incr(&Link::open(Options::from_url(&url).unwrap(), &SCRIPTS).unwrap(), "windlass").await.unwrap_err();
    assert!(matches!(&error, Error::Incompatible { what } if what.contains("redis://")), "{error:?}");
}

/// A node that has not heard of a failover names an owner that is dead. The other nodes are asked, too.
#[tokio::test]
async fn slow_a_node_that_names_a_dead_owner_does_not_keep_the_store_from_its_slot() {
    let mut cluster = Cluster::start_with(1);
    let prefix = "windlass";
    let owner = cluster.owner(slot_of(prefix));
    let id = |node: &Server| node.cli(&["CLUSTER", "MYID"]);
    let owner_id = id(&cluster.nodes[owner]);
    let is_replica =
        |node: &Server, line: &str| line.starts_with(&id(node)) && line.contains(&format!("slave {owner_id} "));
    let replica = (0..6).find(|n| {
        let node = &cluster.nodes[*n];
        node.cli(&["CLUSTER", "NODES"]).lines().any(|line| is_replica(node, line))
    });
    let replica = replica.expect("the owner has a replica");
    let others: Vec<usize> = (0..6).filter(|n| *n != owner && *n != replica).collect();
    let link = Link::open(Options::from_url(&cluster.url(others[0], prefix)).unwrap(), &SCRIPTS).unwrap();
    assert_eq!(incr(&link, prefix).await, Ok(Value::Int(1)));
    crate::server::wait_until("the replica has the change", || {
        cluster.nodes[replica].cli(&["INFO", "replication"]).contains("master_link_status:up")
    });
    // For a minute this node takes no notice of the replica, and so not of its promotion.
    let outdated = others[0];
    let replica_id = id(&cluster.nodes[replica]);
    assert_eq!(cluster.nodes[outdated].cli(&["CLUSTER", "FORGET", &replica_id]), "OK");
    cluster.nodes[owner].kill();
    assert_eq!(cluster.nodes[replica].cli(&["CLUSTER", "FAILOVER", "TAKEOVER"]), "OK");
    let current = *others.iter().find(|n| **n != outdated).unwrap();
    let slots = |n: usize| cluster.nodes[n].cli(&["CLUSTER", "SLOTS"]);
    let dead_port = cluster.nodes[owner].port.to_string();
    crate::server::wait_until("another node names the new owner", || !slots(current).contains(&dead_port));
    let [outdated_port, current_port] = [outdated, current].map(|n| cluster.nodes[n].port);
    let url = format!("redis+cluster://127.0.0.1:{outdated_port},127.0.0.1:{current_port}?prefix={prefix}");
    for round in 0..10 {
        let link = Link::open(Options::from_url(&url).unwrap(), &SCRIPTS).unwrap();
        assert!(incr(&link, prefix).await.is_ok(), "round {round}");
    }
    assert!(slots(outdated).contains(&dead_port), "the node is no longer outdated, so this shows nothing");
    // One that was open before finds it, too: of the nodes in its URL none has the right answer.
    let until = Instant::now() + Duration::from_secs(60);
    while let Err(error) = incr(&link, prefix).await {
        assert!(error.is_retryable() && Instant::now() < until, "{error:?}");
    }
}
