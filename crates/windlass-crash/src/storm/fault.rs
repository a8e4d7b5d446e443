//! The faults by name, and what each of them needs and may cost.

use std::fmt;
use std::str::FromStr;

/// What is done to the servers, or to the way to them, while a crew works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The server forgets all scripts, again and again.
    ScriptFlush,
    /// All connections are closed by the server, those of subscribers too, again and again.
    ClientKill,
    /// The same, with two stores under different prefixes on the server.
    Neighbours,
    /// The server stands still for a while (SIGSTOP).
    Pause,
    /// The server is killed and started again; its file is synced with every write.
    RestartAlways,
    /// The same with a file that is synced once a second.
    RestartEverysec,
    /// The same with a server that takes long to load its data.
    Loading,
    /// The same under two hundred workers.
    Reconnect,
    /// The server's memory is full for a while.
    MemoryFull,
    /// Connections are cut before, inside and after requests and replies.
    Cuts,
    /// Replies do not arrive, and then the connections break.
    Swallowed,
    /// Replies to what is under way do not arrive, and the connections stay as if nothing had happened.
    HalfOpen,
    /// Every byte takes its time.
    SlowLink,
    /// The primary of a Sentinel set is killed.
    SentinelKill,
    /// The same with `wait_replicas=1`.
    SentinelKillWait,
    /// The Sentinels are asked to make another node the primary.
    SentinelFailover,
    /// The same with `wait_replicas=1`.
    SentinelFailoverWait,
    /// Planned failovers of a set with one replica under full load, without `wait_replicas`.
    PlannedOneReplica,
    /// Planned failovers of a set with two replicas under full load, with `wait_replicas=1`.
    PlannedWaitOne,
    /// The same with `wait_replicas=all`.
    PlannedWaitAll,
    /// `FAILOVER TO` is sent to the primary under full load, and the Sentinels find out by themselves.
    FailoverTo,
    /// The primary is killed under full load; it has one replica.
    KilledOneReplica,
    /// The same with two replicas and `wait_replicas=1`.
    KilledWaitOne,
    /// The same with two replicas and `wait_replicas=all`.
    KilledWaitAll,
    /// Planned failovers under full load, one replica, and the first Sentinel of the URL is outdated: it names the primary
    /// from before the failover. Processes that start then have its answer first.
    OutdatedSentinel,
    /// The same, and the primary is killed.
    OutdatedSentinelKilled,
    /// Planned failovers under full load, one replica, and one of the three Sentinels is stopped (SIGSTOP).
    FrozenSentinel,
    /// The worker process that is the timekeeper is stopped (SIGSTOP) while it holds leases, and continued later.
    FrozenTimekeeper,
    /// The primary of the store's slot is killed.
    ClusterKill,
    /// The same with `wait_replicas=1`.
    ClusterKillWait,
    /// A replica is asked to take the slot over.
    ClusterFailover,
    /// The store's slot moves to another primary, key by key.
    SlotMigration,
    /// The source of such a move is killed when some keys are moved: half a store is refused, and merged as the guide says.
    HalfStore,
}

/// Each fault in the order of the enum, with its name and a line about it for the help text.
const TABLE: [(Fault, &str, &str); 33] = [
    (Fault::ScriptFlush, "script-flush", "the server deletes all scripts, again and again"),
    (Fault::ClientKill, "client-kill", "the server closes all connections, again and again"),
    (Fault::Neighbours, "neighbours", "the same with two stores on the server"),
    (Fault::Pause, "pause", "the server is stopped for a while (SIGSTOP)"),
    (Fault::RestartAlways, "restart-always", "the server is killed and restarted; appendfsync always"),
    (Fault::RestartEverysec, "restart-everysec", "the same with appendfsync everysec"),
    (Fault::Loading, "loading", "the same with a server that takes long to load its data"),
    (Fault::Reconnect, "reconnect-200", "the same with 200 workers"),
    (Fault::MemoryFull, "memory-full", "the server's memory is full for a while"),
    (Fault::Cuts, "cuts", "connections are cut inside of requests and replies"),
    (Fault::Swallowed, "swallowed", "replies do not arrive, then connections break"),
    (Fault::HalfOpen, "half-open", "replies do not arrive, and connections stay open"),
    (Fault::SlowLink, "slow-link", "every byte is delayed"),
    (Fault::SentinelKill, "sentinel-kill", "Sentinel: kill -9 of the primary"),
    (Fault::SentinelKillWait, "sentinel-kill-wait", "the same with wait_replicas=1"),
    (Fault::SentinelFailover, "sentinel-failover", "Sentinel: SENTINEL FAILOVER"),
    (Fault::SentinelFailoverWait, "sentinel-failover-wait", "the same with wait_replicas=1"),
    (Fault::PlannedOneReplica, "planned-1-replica", "SENTINEL FAILOVER under full load, 1 replica"),
    (Fault::PlannedWaitOne, "planned-2-replicas-wait-1", "the same with 2 replicas and wait_replicas=1"),
    (Fault::PlannedWaitAll, "planned-2-replicas-wait-all", "the same with 2 replicas and wait_replicas=all"),
    (Fault::FailoverTo, "failover-to", "FAILOVER TO under full load: the Sentinels are not involved"),
    (Fault::KilledOneReplica, "killed-1-replica", "kill -9 of the primary under full load, 1 replica"),
    (Fault::KilledWaitOne, "killed-2-replicas-wait-1", "the same with 2 replicas and wait_replicas=1"),
    (Fault::KilledWaitAll, "killed-2-replicas-wait-all", "the same with 2 replicas and wait_replicas=all"),
    (Fault::OutdatedSentinel, "outdated-sentinel", "planned-1-replica with a Sentinel that names the old primary"),
    (Fault::OutdatedSentinelKilled, "outdated-sentinel-killed", "killed-1-replica with such a Sentinel"),
    (Fault::FrozenSentinel, "frozen-sentinel", "planned-1-replica with a Sentinel that is stopped (SIGSTOP)"),
    (Fault::FrozenTimekeeper, "frozen-timekeeper", "the worker process that is the timekeeper is stopped (SIGSTOP)"),
    (Fault::ClusterKill, "cluster-kill", "Cluster: kill -9 of the primary"),
    (Fault::ClusterKillWait, "cluster-kill-wait", "the same with wait_replicas=1"),
    (Fault::ClusterFailover, "cluster-failover", "Cluster: CLUSTER FAILOVER"),
    (Fault::SlotMigration, "slot-migration", "Cluster: the slot moves to another node, key by key"),
    (Fault::HalfStore, "half-store", "Cluster: kill -9 of the source of a slot move, then the repair of the guide"),
];

/// What servers a fault needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ground {
    Single,
    AppendOnly { always: bool },
    Proxied,
    Sentinel { replicas: usize },
    Cluster,
}

/// What is wrong with one Sentinel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BrokenSentinel {
    /// It names the primary from before the failover, and answers before the others.
    Outdated,
    /// It is stopped, and its connections stay open.
    Frozen,
}

impl Fault {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.into_iter().map(|(fault, ..)| fault)
    }

    /// Its name on the command line and in the table.
    pub fn name(self) -> &'static str {
        TABLE[self as usize].1
    }

    /// A line about it for the help text.
    pub fn about(self) -> &'static str {
        TABLE[self as usize].2
    }

    /// Whether acknowledged work may be lost or done again: another node takes over that need not have everything. With
    /// one replica that confirms every write there is no such node; of two, the other one may be chosen.
    pub fn may_lose(self) -> bool {
        matches!(
            self,
            Self::SentinelKill
                | Self::KilledOneReplica
                | Self::KilledWaitOne
                | Self::OutdatedSentinelKilled
                | Self::ClusterKill
        )
    }

    /// Whether the storm is the one of [`planned`](super::planned): failovers under full load.
    pub(super) fn is_under_full_load(self) -> bool {
        matches!(self, Self::PlannedOneReplica | Self::PlannedWaitOne | Self::PlannedWaitAll | Self::FailoverTo)
            || self.kills_primary()
            || self.broken_sentinel().is_some()
    }

    /// Whether the primary is killed under full load.
    pub(super) fn kills_primary(self) -> bool {
        matches!(
            self,
            Self::KilledOneReplica | Self::KilledWaitOne | Self::KilledWaitAll | Self::OutdatedSentinelKilled
        )
    }

    /// What is wrong with a Sentinel during the failovers.
    pub(super) fn broken_sentinel(self) -> Option<BrokenSentinel> {
        match self {
            Self::OutdatedSentinel | Self::OutdatedSentinelKilled => Some(BrokenSentinel::Outdated),
            Self::FrozenSentinel => Some(BrokenSentinel::Frozen),
            _ => None,
        }
    }

    pub(super) fn ground(self) -> Ground {
        match self {
            Self::ScriptFlush | Self::ClientKill | Self::Neighbours | Self::Pause | Self::MemoryFull => Ground::Single,
            Self::FrozenTimekeeper => Ground::Single,
            Self::RestartAlways => Ground::AppendOnly { always: true },
            Self::RestartEverysec | Self::Loading | Self::Reconnect => Ground::AppendOnly { always: false },
            Self::Cuts | Self::Swallowed | Self::HalfOpen | Self::SlowLink => Ground::Proxied,
            Self::SentinelKill | Self::SentinelKillWait | Self::SentinelFailover | Self::SentinelFailoverWait => {
                Ground::Sentinel { replicas: 2 }
            }
            Self::PlannedOneReplica
            | Self::FailoverTo
            | Self::KilledOneReplica
            | Self::OutdatedSentinel
            | Self::OutdatedSentinelKilled
            | Self::FrozenSentinel => Ground::Sentinel { replicas: 1 },
            Self::PlannedWaitOne | Self::PlannedWaitAll | Self::KilledWaitOne | Self::KilledWaitAll => {
                Ground::Sentinel { replicas: 2 }
            }
            Self::ClusterKill
            | Self::ClusterKillWait
            | Self::ClusterFailover
            | Self::SlotMigration
            | Self::HalfStore => Ground::Cluster,
        }
    }

    /// What the URL of the store says beyond its servers.
    pub(super) fn options(self) -> &'static str {
        match self {
            Self::SentinelKillWait
            | Self::SentinelFailoverWait
            | Self::PlannedWaitOne
            | Self::KilledWaitOne
            | Self::ClusterKillWait => "&wait_replicas=1",
            Self::PlannedWaitAll | Self::KilledWaitAll => "&wait_replicas=all",
            // Shorter than the replies stay away.
            Self::Swallowed => "&timeout_ms=300",
            // Nothing but this tells that a connection is dead, so whoever needs the five seconds sets it.
            Self::HalfOpen => "&timeout_ms=3000",
            _ => "",
        }
    }

    pub(super) fn workers(self) -> u32 {
        if self == Self::Reconnect { 200 } else { 4 }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Fault {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::all().find(|fault| fault.name() == text);
        let all = || TABLE.map(|(_, name, _)| name).join(", ");
        found.ok_or_else(|| format!("`{text}` is no fault; there are {}", all()))
    }
}

#[cfg(test)]
mod tests {
    use super::TABLE;

    #[test]
    fn the_table_has_the_order_of_the_enum() {
        assert!(TABLE.iter().enumerate().all(|(at, (fault, ..))| *fault as usize == at));
    }
}
