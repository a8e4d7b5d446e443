//! How a store is opened: where its server is, who we are there, and how long we wait.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;
use windlass_core::{Error, Result};

/// The longest prefix: it stands in every key and in every argument list.
pub const PREFIX_BYTES_MAX: usize = 100;
/// Waits longer than this are a slip of the unit.
const TIMEOUT_MAX: Duration = Duration::from_secs(600);

/// Something that is never shown: not in `Debug`, not in errors, not in logs.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Takes it in.
    pub fn new(secret: impl Into<String>) -> Self {
        Self(secret.into())
    }

    /// The secret itself, for the server and for nobody else.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// A server's address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    /// A name or an IP address, IPv6 without brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
}

impl Node {
    /// An address.
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self { host: host.into(), port }
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Which servers there are, and how the one to talk to is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Topology {
    /// One server.
    Single {
        /// Where it is.
        node: Node,
        /// The number of its database.
        db: u32,
    },
    /// A primary that Sentinels watch over; they are asked for it on every connection.
    Sentinel {
        /// The Sentinels; any of them may be down.
        nodes: Vec<Node>,
        /// The name under which they know the primary.
        service: String,
        /// The number of its database.
        db: u32,
        /// The user at the Sentinels, who have users of their own.
        sentinel_user: Option<String>,
        /// The password at the Sentinels.
        sentinel_password: Option<Secret>,
    },
    /// A cluster; a store lives on the node that owns the slot of its prefix.
    Cluster {
        /// Some of its nodes; any of them may be down.
        nodes: Vec<Node>,
    },
}

/// Encryption. Certificates are always verified.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// A PEM file of the authorities to trust, instead of the public ones.
    pub ca: Option<PathBuf>,
}

/// The replicas that must have a change before it is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitReplicas {
    /// This many, whichever they are; at least 1.
    Count(u32),
    /// All that the Sentinels do not consider down. With Sentinels only.
    All,
}

impl fmt::Display for WaitReplicas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => write!(f, "{count}"),
            Self::All => f.write_str("all"),
        }
    }
}

/// How to open a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// What every key begins with, as the hash tag `{prefix}`: stores with different prefixes share a server.
    pub prefix: String,
    /// The user of the server's access control list.
    pub username: Option<String>,
    /// The user's password.
    pub password: Option<Secret>,
    /// Encryption; `None` for none.
    pub tls: Option<Tls>,
    /// How long to wait for an answer.
    pub response_timeout: Duration,
    /// How long a call waits for a connection.
    pub connect_timeout: Duration,
    /// The replicas that must have a change before it counts as made; `None` for the primary alone.
    pub wait_replicas: Option<WaitReplicas>,
    /// Accept a server that may throw away keys when its memory is full.
    pub allow_eviction: bool,
    /// Which servers there are.
    pub topology: Topology,
}

impl Options {
    /// A topology, with all defaults.
    pub fn new(topology: Topology) -> Self {
        Self {
            prefix: "windlass".to_owned(),
            username: None,
            password: None,
            tls: None,
            // A connection whose other end has gone silent is given up by then, and workers claim again within five.
            response_timeout: Duration::from_secs(4),
            connect_timeout: Duration::from_secs(5),
            wait_replicas: None,
            allow_eviction: false,
            topology,
        }
    }

    /// One server, with all defaults.
    pub fn single(host: impl Into<String>, port: u16) -> Self {
        Self::new(Topology::Single { node: Node::new(host, port), db: 0 })
    }

    /// Refuses what cannot be meant, whichever way it was written.
    pub fn validate(&self) -> Result<()> {
        let wrong = |reason: &str| Err(Error::invalid("store", reason));
        let prefix = &self.prefix;
        if prefix.is_empty() || prefix.len() > PREFIX_BYTES_MAX {
            return wrong("the prefix must have 1 to 100 bytes; write for example prefix=jobs");
        }
        if prefix.contains(|c: char| c == '{' || c == '}' || c.is_whitespace() || c.is_control()) {
            return wrong(
                "the prefix must have no braces, blanks or control characters; write for example prefix=jobs",
            );
        }
        if self.username.is_some() && self.password.is_none() {
            return wrong("a user needs a password; write user:password@ before the host");
        }
        for (name, timeout) in [("timeout_ms", self.response_timeout), ("connect_timeout_ms", self.connect_timeout)] {
            if timeout < Duration::from_millis(1) || timeout > TIMEOUT_MAX {
                return wrong(&format!("{name} must be 1 to 600000"));
            }
        }
        match self.wait_replicas {
            Some(WaitReplicas::Count(0)) => {
                return wrong("wait_replicas must be at least 1; leave it out to wait for none");
            }
            Some(WaitReplicas::All) if !matches!(self.topology, Topology::Sentinel { .. }) => {
                return wrong("wait_replicas=all is for redis+sentinel:// URLs; write the number of replicas");
            }
            _ => {}
        }
        match &self.topology {
            Topology::Single { .. } => Ok(()),
            Topology::Sentinel { nodes, service, .. } if nodes.is_empty() || service.is_empty() => {
                wrong("name the Sentinels and the service; write redis+sentinel://host:26379/service")
            }
            Topology::Cluster { nodes } if nodes.is_empty() => {
                wrong("name at least one node of the cluster; write redis+cluster://host:6379")
            }
            Topology::Sentinel { .. } | Topology::Cluster { .. } => Ok(()),
        }
    }

    /// The text without any of our secrets, should a server or a library have repeated one.
    pub(crate) fn scrub(&self, text: String) -> String {
        let at_sentinels = match &self.topology {
            Topology::Sentinel { sentinel_password, .. } => sentinel_password.as_ref(),
            Topology::Single { .. } | Topology::Cluster { .. } => None,
        };
        let secrets = [self.password.as_ref(), at_sentinels];
        secrets.into_iter().flatten().map(Secret::reveal).filter(|secret| !secret.is_empty()).fold(
            text,
            |text, secret| {
                if text.contains(secret) { text.replace(secret, "***") } else { text }
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_a_hash_tag() {
        let mut options = Options::single("h", 1);
        for good in ["w", "a:b", "jörg", &"x".repeat(100)] {
            options.prefix = good.to_owned();
            assert_eq!(options.validate(), Ok(()), "{good}");
        }
        for bad in ["", "a{b", "a}b", "a b", "a\nb", "a\u{7f}", &"x".repeat(101)] {
            options.prefix = bad.to_owned();
            assert!(options.validate().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        let mut options = Options::single("h", 1);
        options.password = Some(Secret::new("hunter2"));
        options.topology = Topology::Sentinel {
            nodes: vec![Node::new("h", 1)],
            service: "s".to_owned(),
            db: 0,
            sentinel_user: None,
            sentinel_password: Some(Secret::new("swordfish")),
        };
        let shown = format!("{options:?}");
        assert!(!shown.contains("hunter2") && !shown.contains("swordfish") && shown.contains("***"), "{shown}");
        let text = options.scrub("with args beginning with: 'hunter2' 'swordfish'".to_owned());
        assert_eq!(text, "with args beginning with: '***' '***'");
    }

    #[test]
    fn nodes_are_written_as_in_urls() {
        assert_eq!(Node::new("::1", 7).to_string(), "[::1]:7");
        assert_eq!(Node::new("a", 7).to_string(), "a:7");
    }
}
