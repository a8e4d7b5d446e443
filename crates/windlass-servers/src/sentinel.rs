//! A primary with one or two replicas, watched by three sentinels.

mod failover;

use std::time::Duration;

use crate::error::ServerError;
use crate::redis::{Part, Redis};
use crate::wait;

/// The number of replicas of [`Sentinel::start`].
const REPLICAS: usize = 2;

/// The name under which the sentinels know the primary.
const NAME: &str = "mymaster";
const SENTINELS: usize = 3;
const HEALTHY_WITHIN: Duration = windlass_core::time::HANG_GUARD;

/// A primary, its replicas and three sentinels; two sentinels must agree that the primary is down, which they do after a
/// second.
#[derive(Debug)]
pub struct Sentinel {
    nodes: Vec<Redis>,
    sentinels: Vec<Redis>,
}

impl Sentinel {
    /// Starts them; when this returns every sentinel knows of the replicas and of the other sentinels.
    pub fn start() -> Result<Self, ServerError> {
        Self::start_with_replicas(REPLICAS)
    }

    /// The same with another number of replicas, at least one.
    pub fn start_with_replicas(replicas: usize) -> Result<Self, ServerError> {
        if replicas == 0 {
            return Err(ServerError::NoSuchNode(
                "a set without replicas has nothing to promote; ask for one".to_owned(),
            ));
        }
        let primary = Redis::start()?;
        let port = primary.port();
        let mut nodes = vec![primary];
        for _ in 0..replicas {
            nodes.push(Redis::builder().config("replicaof", &format!("127.0.0.1 {port}")).start()?);
        }
        // First, because a sentinel that sees no replicas looks again only after ten seconds.
        wait::until("the replicas are attached", HEALTHY_WITHIN, || attached(&nodes, port))?;
        let sentinels = (0..SENTINELS).map(|_| Redis::builder().part(Part::Sentinel { primary: port }).start());
        let sentinel = Self { sentinels: sentinels.collect::<Result<_, _>>()?, nodes };
        sentinel.use_short_intervals();
        sentinel.use_short_tilt();
        sentinel.wait_until_healthy()?;
        Ok(sentinel)
    }

    /// `redis+sentinel://127.0.0.1:S1,127.0.0.1:S2,127.0.0.1:S3/mymaster`
    pub fn url(&self) -> String {
        let hosts: Vec<String> =
            self.sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port())).collect();
        format!("redis+sentinel://{}/{NAME}", hosts.join(","))
    }

    /// The servers with data, whatever their part is now.
    pub fn nodes(&self) -> &[Redis] {
        &self.nodes
    }

    /// The sentinels.
    pub fn sentinels(&self) -> &[Redis] {
        &self.sentinels
    }

    /// The node on that port.
    pub fn node(&self, port: u16) -> Result<&Redis, ServerError> {
        let missing = || ServerError::NoSuchNode(format!("no node listens on port {port}"));
        self.nodes.iter().find(|node| node.port() == port).ok_or_else(missing)
    }

    /// The port of the primary, by the word of the first sentinel that is up.
    pub fn primary_port(&self) -> Result<u16, ServerError> {
        let up = self.sentinels.iter().find(|sentinel| sentinel.is_up());
        let up = up.ok_or_else(|| ServerError::NoSuchNode("no sentinel is up".to_owned()))?;
        primary_by(up)
    }

    /// Kills the primary and hands back its port, for [`Sentinel::wait_for_new_primary`] and for
    /// [`Sentinel::node`] to restart it.
    pub fn kill9_primary(&self) -> Result<u16, ServerError> {
        let port = self.primary_port()?;
        self.node(port)?.kill9();
        Ok(port)
    }

    /// Waits until all nodes and sentinels are up and know of each other, as after the start; for instance after a
    /// killed node was restarted.
    pub fn wait_until_healthy(&self) -> Result<(), ServerError> {
        wait::until("the sentinels know of everybody", HEALTHY_WITHIN, || {
            let primary = self.primary_port().map_err(|error| error.to_string())?;
            attached(&self.nodes, primary)?;
            self.sentinels.iter().try_for_each(|sentinel| knows_everybody(sentinel, self.nodes.len() - 1))
        })
    }
}

fn primary_by(sentinel: &Redis) -> Result<u16, ServerError> {
    let answer = sentinel.command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME])?;
    let port = answer.lines().nth(1).and_then(|port| port.parse().ok());
    port.ok_or_else(|| ServerError::NoSuchNode(format!("the sentinel knows no primary: {answer:?}")))
}

/// Whether every node but the primary copies from it.
fn attached(nodes: &[Redis], primary: u16) -> Result<(), String> {
    for node in nodes.iter().filter(|node| node.port() != primary) {
        let info = node.command(&["INFO", "replication"]).map_err(|error| error.to_string())?;
        let wanted = [format!("master_port:{primary}\r"), "master_link_status:up\r".to_owned()];
        if wanted.iter().any(|line| !info.contains(line)) {
            return Err(format!("the replica on {} is not attached: {info}", node.port()));
        }
    }
    Ok(())
}

fn knows_everybody(sentinel: &Redis, replicas: usize) -> Result<(), String> {
    let ask = |words: &[&str]| sentinel.command(words).map_err(|error| error.to_string());
    let primary = ask(&["SENTINEL", "MASTER", NAME])?;
    let listed = ask(&["SENTINEL", "REPLICAS", NAME])?;
    let has = |text: &str, name: &str, value: &str| field(text, name).any(|found| found == value);
    let is_well = has(&primary, "flags", "master")
        && has(&primary, "num-other-sentinels", &(SENTINELS - 1).to_string())
        && field(&listed, "flags").filter(|flags| *flags == "slave").count() == replicas
        && field(&listed, "master-link-status").filter(|status| *status == "ok").count() == replicas
        && ask(&["INFO", "sentinel"])?.contains("sentinel_tilt:0");
    if is_well { Ok(()) } else { Err(format!("the sentinel on {} says: {primary} {listed}", sentinel.port())) }
}

/// The values of a field in an answer of names and values, line by line.
fn field<'a>(answer: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    answer.lines().zip(answer.lines().skip(1)).filter(move |(line, _)| *line == name).map(|(_, value)| value)
}
