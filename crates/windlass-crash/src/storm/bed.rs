//! The servers of a storm.

use super::fault::{BrokenSentinel, Fault, Ground};
use crate::Result;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use tokio::sync::oneshot;
use windlass_redis::link::slot_of;
use windlass_servers::{Cluster, Fsync, Proxy, Redis, Sentinel};

/// The prefix of the store, which says its slot.
pub(super) const PREFIX: &str = "storm";

pub(super) enum Servers {
    Single(Redis),
    Proxied(Redis, Proxy),
    Sentinel(Sentinel),
    Cluster(Cluster),
}

/// Private servers, ended with this.
pub(super) struct Bed {
    pub(super) servers: Servers,
    /// One more Sentinel, which names an old primary and comes first in the URL.
    outdated: Option<Redis>,
}

impl Bed {
    pub(super) fn start(fault: Fault) -> Result<Self> {
        let servers = match fault.ground() {
            Ground::Single => Servers::Single(Redis::start()?),
            Ground::AppendOnly { always } => {
                let fsync = if always { Fsync::Always } else { Fsync::EverySec };
                let mut builder = Redis::builder().append_only(fsync);
                if fault == Fault::Loading {
                    // A tenth of a second for each key, during which clients are answered now and then.
                    builder = builder.config("key-load-delay", "100000");
                    builder = builder.config("loading-process-events-interval-bytes", "1024");
                }
                Servers::Single(builder.start()?)
            }
            Ground::Proxied => {
                let redis = Redis::start()?;
                let proxy = Proxy::start(SocketAddr::from((Ipv4Addr::LOCALHOST, redis.port())))?;
                Servers::Proxied(redis, proxy)
            }
            Ground::Sentinel { replicas } => Servers::Sentinel(Sentinel::start_with_replicas(replicas)?),
            Ground::Cluster => {
                // For `DEBUG DIGEST`: whether anything was written.
                Servers::Cluster(Cluster::builder(3, 1).config("enable-debug-command", "yes").start()?)
            }
        };
        let outdated = match &servers {
            Servers::Sentinel(sentinel) if fault.broken_sentinel() == Some(BrokenSentinel::Outdated) => {
                Some(sentinel.start_stale_sentinel(sentinel.primary_port()?)?)
            }
            _ => None,
        };
        Ok(Self { servers, outdated })
    }

    /// The URL of a store on them.
    pub(super) fn url(&self, prefix: &str, options: &str) -> String {
        let base = match &self.servers {
            Servers::Single(redis) => redis.url(),
            Servers::Proxied(_, proxy) => format!("redis://127.0.0.1:{}", proxy.port()),
            Servers::Sentinel(sentinel) => match &self.outdated {
                Some(outdated) => {
                    let first = format!("redis+sentinel://127.0.0.1:{},", outdated.port());
                    sentinel.url().replacen("redis+sentinel://", &first, 1)
                }
                None => sentinel.url(),
            },
            Servers::Cluster(cluster) => cluster.url(),
        };
        format!("{base}?prefix={prefix}{options}")
    }

    pub(super) fn slot() -> u16 {
        slot_of(PREFIX)
    }

    pub(super) fn single(&self) -> Result<&Redis> {
        match &self.servers {
            Servers::Single(redis) | Servers::Proxied(redis, _) => Ok(redis),
            Servers::Sentinel(_) | Servers::Cluster(_) => Err("there is more than one server".into()),
        }
    }

    pub(super) fn proxy(&self) -> Result<&Proxy> {
        match &self.servers {
            Servers::Proxied(_, proxy) => Ok(proxy),
            _ => Err("there is no proxy".into()),
        }
    }

    pub(super) fn sentinel(&self) -> Result<&Sentinel> {
        match &self.servers {
            Servers::Sentinel(sentinel) => Ok(sentinel),
            _ => Err("there are no sentinels".into()),
        }
    }

    pub(super) fn outdated(&self) -> Result<&Redis> {
        self.outdated.as_ref().ok_or_else(|| "there is no outdated sentinel".into())
    }

    pub(super) fn cluster(&self) -> Result<&Cluster> {
        match &self.servers {
            Servers::Cluster(cluster) => Ok(cluster),
            _ => Err("there is no cluster".into()),
        }
    }
}

impl Bed {
    /// A primary of the cluster that does not own the slot.
    pub(super) fn other_primary(&self, slot: u16) -> Result<usize> {
        let cluster = self.cluster()?;
        let owner = cluster.primary_of_slot(slot)?;
        let is_primary = |index: &usize| {
            let role = cluster.node(*index).and_then(|node| node.command(&["ROLE"]));
            *index != owner && role.is_ok_and(|role| role.starts_with("master"))
        };
        (0..cluster.nodes().len()).find(is_primary).ok_or_else(|| "there is no other primary".into())
    }
}

/// Runs what blocks on a thread of its own, while the crew goes on.
pub(super) async fn aside<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let (done, result) = oneshot::channel();
    let thread = std::thread::Builder::new().name("storm-servers".to_owned());
    // Joined by its answer; if nobody waits for that any more, nobody needs it.
    thread.spawn(move || drop(done.send(work())))?;
    result.await?
}

/// Ends the servers.
pub(super) async fn end(bed: Arc<Bed>) -> Result<()> {
    let drop_bed = move || {
        drop(bed);
        Ok(())
    };
    aside(drop_bed).await
}

/// The same with the servers.
pub(super) async fn at<T: Send + 'static>(
    bed: &Arc<Bed>,
    work: impl FnOnce(&Bed) -> Result<T> + Send + 'static,
) -> Result<T> {
    let bed = Arc::clone(bed);
    aside(move || work(&bed)).await
}
