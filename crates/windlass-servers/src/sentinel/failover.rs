//! Planned failovers, and sentinels that name an old primary.

use std::time::Duration;

use super::{HEALTHY_WITHIN, NAME, Sentinel, primary_by};
use crate::error::ServerError;
use crate::redis::{Part, Redis, RedisBuilder};
use crate::wait;

const INFO_DEFAULT: &str = "10000";
const PUBLISH_DEFAULT: &str = "2000";
const SHORT: &str = "500";
const TILT: &str = "1000";

impl Sentinel {
    /// Has the sentinels make another node the primary, though nothing is wrong with this one; hands back the port of
    /// the old one. It returns once they agreed to, not once it is done.
    pub fn fail_over(&self) -> Result<u16, ServerError> {
        let old = self.primary_port()?;
        // Refused while the last fail-over is not finished, or for as long as a replica has not been heard of.
        wait::until("the sentinels agree to fail over", HEALTHY_WITHIN, || {
            let up = self.sentinels.iter().find(|sentinel| sentinel.is_up()).ok_or("no sentinel is up")?;
            up.command(&["SENTINEL", "FAILOVER", NAME]).map_err(|error| error.to_string())
        })?;
        Ok(old)
    }

    /// Waits until every sentinel that is up names another primary than the one on `old`, and that node agrees; hands
    /// back its port.
    pub fn wait_for_new_primary(&self, old: u16, within: Duration) -> Result<u16, ServerError> {
        wait::until("there is a new primary", within, || {
            let mut named = Vec::new();
            for sentinel in self.sentinels.iter().filter(|sentinel| sentinel.is_up()) {
                named.push(primary_by(sentinel).map_err(|error| error.to_string())?);
            }
            let new = *named.first().ok_or("no sentinel is up")?;
            if new == old || named.iter().any(|port| *port != new) {
                return Err(format!("the sentinels name {named:?}"));
            }
            let role = self.node(new).and_then(|node| node.command(&["ROLE"])).map_err(|error| error.to_string())?;
            if role.starts_with("master") { Ok(new) } else { Err(format!("{new} says: {role}")) }
        })
    }

    /// Waits until another node than the one on `old` is a primary, and returns its port. The sentinels need not have
    /// noticed, and the old primary may still be one, too.
    pub fn wait_for_promotion(&self, old: u16, within: Duration) -> Result<u16, ServerError> {
        wait::until("a replica has become a primary", within, || {
            for node in self.nodes.iter().filter(|node| node.port() != old && node.is_up()) {
                let role = node.command(&["ROLE"]).map_err(|error| error.to_string())?;
                if role.starts_with("master") {
                    return Ok(node.port());
                }
            }
            Err("all other nodes are replicas".to_owned())
        })
    }

    /// Sends `FAILOVER TO` to the primary: a replica and the primary exchange their roles, and no sentinel is told. Returns the
    /// ports of the old primary and of the new one once the new one has its role.
    ///
    /// The sentinels find out when they next read `INFO`, and name the old primary until then: for up to 35 s with
    /// [`Sentinel::use_default_intervals`].
    pub fn fail_over_without_sentinels(&self) -> Result<(u16, u16), ServerError> {
        let old = self.primary_port()?;
        let missing = || ServerError::NoSuchNode("no replica is up".to_owned());
        let new = self.nodes.iter().find(|node| node.port() != old && node.is_up()).ok_or_else(missing)?;
        self.node(old)?.command(&["FAILOVER", "TO", "127.0.0.1", &new.port().to_string(), "TIMEOUT", "5000"])?;
        Ok((old, self.wait_for_promotion(old, HEALTHY_WITHIN)?))
    }

    /// Has the sentinels read `INFO` of the nodes every ten seconds and publish their view every two, as they do outside of
    /// tests. An old primary then stays one for eight seconds after a failover.
    pub fn use_default_intervals(&self) {
        self.set_intervals(INFO_DEFAULT, PUBLISH_DEFAULT);
    }

    /// Has them do both twice a second, as after the start. A server that has no such switch, or that was restarted and has
    /// forgotten it, is only slower.
    pub fn use_short_intervals(&self) {
        self.set_intervals(SHORT, SHORT);
    }

    /// Has a sentinel that was stopped, or had no time for two seconds, act again after one second instead of thirty.
    pub(super) fn use_short_tilt(&self) {
        for sentinel in &self.sentinels {
            let _ = sentinel.command(&["SENTINEL", "DEBUG", "TILT-PERIOD", TILT]);
        }
    }

    fn set_intervals(&self, info_ms: &str, publish_ms: &str) {
        // A paused one would not answer.
        for sentinel in self.sentinels.iter().filter(|sentinel| sentinel.is_up()) {
            let _ = sentinel.command(&["SENTINEL", "DEBUG", "INFO-PERIOD", info_ms]);
            let _ = sentinel.command(&["SENTINEL", "DEBUG", "PUBLISH-PERIOD", publish_ms]);
        }
    }

    /// Starts one more sentinel, which names the node on `port` as the primary for as long as it runs: it neither hears from
    /// the other sentinels nor publishes anything, and changes the role of no node. It is not part of
    /// [`Sentinel::sentinels`] and [`Sentinel::url`]; put its port into a URL of your own.
    pub fn start_stale_sentinel(&self, port: u16) -> Result<Redis, ServerError> {
        let stale = stale_builder(port).start()?;
        names(&stale, port).map(|()| stale)
    }

    /// Starts a sentinel of [`Sentinel::start_stale_sentinel`] again, on the port that it had. From then on it names the node
    /// on `port`.
    pub fn restart_stale_sentinel(&self, stale: &Redis, port: u16) -> Result<(), ServerError> {
        stale.kill9();
        stale_builder(port).write_config(stale)?;
        stale.restart()?;
        names(stale, port)
    }
}

fn stale_builder(port: u16) -> RedisBuilder {
    // The sentinel sends these commands to the nodes under names that no node has.
    ["SUBSCRIBE", "PUBLISH", "SLAVEOF"]
        .into_iter()
        .fold(Redis::builder().part(Part::Sentinel { primary: port }), |builder, command| {
            builder.config("sentinel", &format!("rename-command {NAME} {command} {command}-DISABLED"))
        })
}

fn names(stale: &Redis, port: u16) -> Result<(), ServerError> {
    let named = primary_by(stale)?;
    if named == port {
        return Ok(());
    }
    Err(ServerError::NoSuchNode(format!("the stale sentinel names {named} and not {port}")))
}
