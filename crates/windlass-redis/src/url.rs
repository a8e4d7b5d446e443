//! Reads a store's URL. Strict: what is not understood is refused, with what to write instead. Nothing of the part that
//! may hold a password is ever repeated in an error.

use crate::options::{Node, Options, Secret, Tls, Topology, WaitReplicas};
use std::path::PathBuf;
use std::time::Duration;
use windlass_core::name::nearest;
use windlass_core::{Error, Result};

const NAMES: [&str; 9] = [
    "prefix",
    "wait_replicas",
    "timeout_ms",
    "connect_timeout_ms",
    "allow_eviction",
    "tls",
    "tls_ca",
    "sentinel_user",
    "sentinel_password",
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Scheme {
    Single { tls: bool },
    Sentinel,
    Cluster,
}

/// What stands before the query.
struct Place<'a> {
    nodes: Vec<(String, Option<u16>)>,
    path: Vec<&'a str>,
}

fn wrong(reason: impl Into<String>) -> Error {
    Error::invalid("store", reason)
}

impl Options {
    /// From `redis://[user[:password]@]host[:port][/db]`, `rediss://…` with encryption,
    /// `redis+sentinel://[user:password@]host[:port],…/service[/db]` or `redis+cluster://host[:port],…`, each with options
    /// in the query: `prefix`, `wait_replicas`, `timeout_ms`, `connect_timeout_ms`, `allow_eviction`, `tls` (for the last
    /// two), `tls_ca`, `sentinel_user`, `sentinel_password`.
    pub fn from_url(url: &str) -> Result<Self> {
        let (scheme, rest) = scheme_of(url)?;
        if rest.contains('#') {
            return Err(wrong("the URL has a `#`; inside a password write it as %23"));
        }
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, tail) = rest.split_at(end);
        if tail.contains('@') {
            // Not split there on purpose: a part of a password would be taken for an option, and shown.
            return Err(wrong(
                "there is an `@` behind the host; inside a password write / as %2F and ? as %3F, elsewhere \
                              write @ as %40",
            ));
        }
        let (path, query) = tail.split_once('?').unwrap_or((tail, ""));
        let (user_info, hosts) =
            authority.rsplit_once('@').map_or((None, authority), |(user, hosts)| (Some(user), hosts));
        let place = Place {
            nodes: hosts.split(',').map(host_and_port).collect::<Result<_>>()?,
            path: path.strip_prefix('/').unwrap_or("").split('/').filter(|part| !part.is_empty()).collect(),
        };
        let mut options = Self::new(topology(scheme, &place)?);
        if let Some(user_info) = user_info {
            options.set_user(user_info)?;
        }
        if scheme == (Scheme::Single { tls: true }) {
            options.tls = Some(Tls::default());
        }
        let mut seen = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            if seen.iter().any(|(other, _)| *other == name) {
                return Err(wrong(format!("the option `{name}` is given twice; leave one out")));
            }
            seen.push((name, value));
            options.set(scheme, name, &decode(value)?)?;
        }
        let value_of = |name: &str| seen.iter().find(|(other, _)| *other == name).map(|(_, value)| *value);
        match scheme {
            Scheme::Single { tls: false } if value_of("tls_ca").is_some() => {
                return Err(wrong("`tls_ca` makes no sense without encryption; write rediss:// instead of redis://"));
            }
            Scheme::Sentinel | Scheme::Cluster if value_of("tls_ca").is_some() && value_of("tls") != Some("true") => {
                return Err(wrong("`tls_ca` makes no sense without encryption; write tls=true beside it"));
            }
            Scheme::Single { .. } | Scheme::Sentinel | Scheme::Cluster => {}
        }
        options.validate()?;
        Ok(options)
    }

    fn set_user(&mut self, user_info: &str) -> Result<()> {
        let (user, password) = user_info.split_once(':').unwrap_or((user_info, ""));
        let (user, password) = (decode(user)?, decode(password)?);
        self.username = (!user.is_empty()).then_some(user);
        self.password = (!password.is_empty()).then(|| Secret::new(password));
        Ok(())
    }

    fn set(&mut self, scheme: Scheme, name: &str, value: &str) -> Result<()> {
        let bad = |allowed: &str| wrong(format!("the option `{name}` is `{value}`; write {allowed}"));
        match name {
            "prefix" => value.clone_into(&mut self.prefix),
            "wait_replicas" if value == "all" => self.wait_replicas = Some(WaitReplicas::All),
            "wait_replicas" => {
                let count = value.parse().map_err(|_| bad("a number of replicas, or all"))?;
                self.wait_replicas = Some(WaitReplicas::Count(count));
            }
            "timeout_ms" => self.response_timeout = millis(value).ok_or_else(|| bad("milliseconds"))?,
            "connect_timeout_ms" => self.connect_timeout = millis(value).ok_or_else(|| bad("milliseconds"))?,
            "allow_eviction" => self.allow_eviction = value.parse().map_err(|_| bad("true or false"))?,
            "tls" if matches!(scheme, Scheme::Single { .. }) => {
                return Err(wrong("`tls` is for Sentinel and Cluster; write rediss:// instead of redis://"));
            }
            "tls" => {
                let on: bool = value.parse().map_err(|_| bad("true or false"))?;
                self.tls = on.then(|| self.tls.take().unwrap_or_default());
            }
            "tls_ca" if value.is_empty() => return Err(bad("the path of a PEM file")),
            "tls_ca" => self.tls.get_or_insert_default().ca = Some(PathBuf::from(value)),
            "tls_insecure" => {
                return Err(wrong("certificates are always verified; name the authority's file with tls_ca=FILE"));
            }
            "sentinel_user" | "sentinel_password" => self.set_sentinel(name, value)?,
            unknown => return Err(unknown_option(unknown)),
        }
        Ok(())
    }

    fn set_sentinel(&mut self, name: &str, value: &str) -> Result<()> {
        let Topology::Sentinel { sentinel_user, sentinel_password, .. } = &mut self.topology else {
            return Err(wrong(format!("the option `{name}` is for redis+sentinel:// URLs; leave it out")));
        };
        match name {
            "sentinel_user" => *sentinel_user = Some(value.to_owned()),
            _ => *sentinel_password = Some(Secret::new(value)),
        }
        Ok(())
    }
}

fn scheme_of(url: &str) -> Result<(Scheme, &str)> {
    const SCHEMES: [(&str, Scheme); 4] = [
        ("redis://", Scheme::Single { tls: false }),
        ("rediss://", Scheme::Single { tls: true }),
        ("redis+sentinel://", Scheme::Sentinel),
        ("redis+cluster://", Scheme::Cluster),
    ];
    for (start, scheme) in SCHEMES {
        if let Some(rest) = url.strip_prefix(start) {
            return Ok((scheme, rest));
        }
    }
    Err(wrong(
        "this is no Redis URL; write redis://host:6379, rediss://host:6379, redis+sentinel://host:26379/service or \
         redis+cluster://host:6379",
    ))
}

fn topology(scheme: Scheme, place: &Place<'_>) -> Result<Topology> {
    let with_port = |default: u16| -> Vec<Node> {
        place.nodes.iter().map(|(host, port)| Node::new(host.clone(), port.unwrap_or(default))).collect()
    };
    match (scheme, place.path.as_slice()) {
        (Scheme::Single { .. }, path) => {
            let mut nodes = with_port(6379);
            let (Some(node), true) = (nodes.pop(), nodes.is_empty()) else {
                return Err(wrong("several hosts are for redis+sentinel:// and redis+cluster:// URLs; name one"));
            };
            match path {
                [] => Ok(Topology::Single { node, db: 0 }),
                [db] => Ok(Topology::Single { node, db: db_number(db)? }),
                _ => Err(wrong("behind the host stands one database number; write redis://host:6379/0")),
            }
        }
        (Scheme::Sentinel, [service, db @ ..]) if db.len() <= 1 => Ok(Topology::Sentinel {
            nodes: with_port(26379),
            service: decode(service)?,
            db: db.first().map_or(Ok(0), |db| db_number(db))?,
            sentinel_user: None,
            sentinel_password: None,
        }),
        (Scheme::Sentinel, _) => Err(wrong(
            "name the service that the Sentinels watch; write redis+sentinel://host:26379/service or …/service/db",
        )),
        (Scheme::Cluster, []) => Ok(Topology::Cluster { nodes: with_port(6379) }),
        (Scheme::Cluster, _) => Err(wrong("a cluster has one database; leave out what stands behind the hosts")),
    }
}

fn db_number(text: &str) -> Result<u32> {
    text.parse().map_err(|_| wrong("the database is not a number; write for example redis://host:6379/0"))
}

/// `host`, `host:port`, `[ipv6]` or `[ipv6]:port`. Never repeats the text: it may be a password that was not encoded.
fn host_and_port(text: &str) -> Result<(String, Option<u16>)> {
    let advice = "inside a password write @ as %40, : as %3A, / as %2F";
    if !text.starts_with('[') && text.matches(':').count() > 1 {
        return Err(wrong(format!(
            "there are several `:` in a host; write an IPv6 address as [::1]:6379, and {advice}"
        )));
    }
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (host, behind) =
            rest.split_once(']').ok_or_else(|| wrong("an IPv6 address is not closed; write [::1]:6379"))?;
        if host.parse::<std::net::Ipv6Addr>().is_err() {
            return Err(wrong("what stands in brackets is no IPv6 address; write [::1]:6379"));
        }
        match behind {
            "" => (host, None),
            _ => {
                (host, Some(behind.strip_prefix(':').ok_or_else(|| wrong("behind ] stands :port; write [::1]:6379"))?))
            }
        }
    } else {
        text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port)))
    };
    if host.is_empty() {
        return Err(wrong("the URL names no host; write redis://host:6379"));
    }
    if host.contains(|c: char| c.is_whitespace() || c.is_control() || matches!(c, '%' | '\\')) {
        return Err(wrong(format!("the host has characters that no host has; {advice}")));
    }
    let port = match port {
        None => None,
        Some(port) => match port.parse::<u16>() {
            Ok(port) if port > 0 => Some(port),
            _ => return Err(wrong(format!("the port is not a number from 1 to 65535; {advice}"))),
        },
    };
    Ok((host.to_owned(), port))
}

fn millis(value: &str) -> Option<Duration> {
    value.parse().ok().map(Duration::from_millis)
}

fn unknown_option(unknown: &str) -> Error {
    let hint = match nearest(unknown, NAMES) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("there are: {}", NAMES.join(", ")),
    };
    wrong(format!("unknown option `{unknown}`; {hint}"))
}

/// Undoes percent-encoding. Does not repeat the text, which may be a password.
fn decode(text: &str) -> Result<String> {
    let bad = || wrong("the URL has a % that begins no code such as %20; write % itself as %25");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        if *first == b'%' {
            let (code, after) = tail.split_at_checked(2).ok_or_else(bad)?;
            let code = std::str::from_utf8(code).map_err(|_| bad())?;
            // `from_str_radix` would take a sign.
            if !code.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                return Err(bad());
            }
            bytes.push(u8::from_str_radix(code, 16).map_err(|_| bad())?);
            rest = after;
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    String::from_utf8(bytes).map_err(|_| wrong("what the URL encodes with % is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Options {
        Options::from_url(url).unwrap_or_else(|error| panic!("{url}: {error}"))
    }

    fn refusal(url: &str) -> String {
        match Options::from_url(url) {
            Err(Error::Invalid { field, reason }) if field == "store" => reason,
            other => panic!("{url}: {other:?}"),
        }
    }

    #[test]
    fn a_single_server() {
        assert_eq!(read("redis://h"), Options::single("h", 6379));
        let options = read(
            "redis://u:p%40%3A%2F@h:7000/3?prefix=jobs&wait_replicas=1&timeout_ms=1500&connect_timeout_ms=250&allow_eviction=true",
        );
        assert_eq!(options.topology, Topology::Single { node: Node::new("h", 7000), db: 3 });
        assert_eq!((options.username.as_deref(), options.password), (Some("u"), Some(Secret::new("p@:/"))));
        assert_eq!(
            (options.prefix.as_str(), options.wait_replicas, options.allow_eviction),
            ("jobs", Some(WaitReplicas::Count(1)), true)
        );
        assert_eq!(options.response_timeout, Duration::from_millis(1500));
        assert_eq!(options.connect_timeout, Duration::from_millis(250));
        // A password alone belongs to the default user; a second @ or : can only be part of the password.
        let options = read("redis://:a@b:c@h/");
        assert_eq!((options.username, options.password), (None, Some(Secret::new("a@b:c"))));
        assert_eq!(read("redis://[::1]:7").topology, Topology::Single { node: Node::new("::1", 7), db: 0 });
        assert_eq!(read("redis://[fe80::1]").topology, Topology::Single { node: Node::new("fe80::1", 6379), db: 0 });
    }

    #[test]
    fn encryption() {
        assert_eq!(read("rediss://h").tls, Some(Tls::default()));
        assert_eq!(read("rediss://h?tls_ca=%2Fca.pem").tls, Some(Tls { ca: Some("/ca.pem".into()) }));
        assert_eq!(read("redis+cluster://h?tls=true&tls_ca=a").tls, Some(Tls { ca: Some("a".into()) }));
        assert_eq!(read("redis+cluster://h?tls_ca=a&tls=true").tls, Some(Tls { ca: Some("a".into()) }));
        assert_eq!(read("redis+cluster://h?tls=false").tls, None);
        assert!(refusal("redis://h?tls=true").contains("rediss://"));
        assert!(refusal("rediss://h?tls_insecure=true").contains("tls_ca=FILE"));
        assert!(refusal("redis+cluster://h?tls_ca=a").contains("tls=true"));
        assert!(refusal("redis+cluster://h?tls=false&tls_ca=a").contains("tls=true"));
        assert!(refusal("redis://h?tls_ca=a").contains("rediss://"));
    }

    #[test]
    fn sentinels_and_clusters() {
        let options = read("redis+sentinel://u:p@a,b:7/main/2?sentinel_user=s&sentinel_password=t%40");
        assert_eq!(
            options.topology,
            Topology::Sentinel {
                nodes: vec![Node::new("a", 26379), Node::new("b", 7)],
                service: "main".to_owned(),
                db: 2,
                sentinel_user: Some("s".to_owned()),
                sentinel_password: Some(Secret::new("t@")),
            }
        );
        assert_eq!(
            read("redis+cluster://a:1,[::1]:2,c").topology,
            Topology::Cluster { nodes: vec![Node::new("a", 1), Node::new("::1", 2), Node::new("c", 6379)] }
        );
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_advice() {
        for (url, advice) in [
            ("sqlite://a", "write redis://"),
            ("redis://", "names no host"),
            ("redis://:1", "names no host"),
            ("redis://h:port", "1 to 65535"),
            ("redis://h:0", "1 to 65535"),
            ("redis://::1", "[::1]:6379"),
            ("redis://[x]:1", "[::1]:6379"),
            ("redis://a,b", "redis+cluster://"),
            ("redis://h/x", "not a number"),
            ("redis://h/0/1", "one database number"),
            ("redis://u@h", "user:password@"),
            ("redis://h?prefix=", "1 to 100"),
            ("redis://h?prefix=%7Ba%7D", "no braces"),
            ("redis://h?timeout_ms=1s", "milliseconds"),
            ("redis://h?timeout_ms=0", "1 to 600000"),
            ("redis://h?wait_replicas=0", "at least 1"),
            ("redis://h?wait_replicas=most", "or all"),
            ("redis://h?wait_replicas=all", "is for redis+sentinel:// URLs"),
            ("redis+cluster://h?wait_replicas=all", "is for redis+sentinel:// URLs"),
            ("redis://h?allow_eviction=1", "true or false"),
            ("redis://h?prefix=a&prefix=b", "twice"),
            ("redis://h?prefix=%zz", "%25"),
            ("redis://h?prefix=%+1", "%25"),
            ("redis://h?sentinel_user=a", "redis+sentinel://"),
            ("redis+sentinel://h", "/service"),
            ("redis+sentinel://h/a/1/2", "/service"),
            ("redis+cluster://h/0", "one database"),
            ("redis://h?timout_ms=1", "did you mean `timeout_ms`?"),
            ("redis://h?wait_replica=1", "did you mean `wait_replicas`?"),
            ("redis://h?nonsense=1", "there are: prefix, wait_replicas"),
        ] {
            let reason = refusal(url);
            assert!(reason.contains(advice), "{url}: {reason}");
        }
    }

    /// Whatever is wrong with a URL, the error does not show the password, nor a part of it.
    #[test]
    fn a_password_is_never_repeated() {
        for url in [
            "redis://u:hunter2@h:x",
            "redis://:hunter2/x@h",
            "redis://:x/hunter2@h",
            "redis://:x?hunter2@h",
            "redis://:x?hunter2=1@h",
            "redis://:x#hunter2@h",
            "redis://:hunter2%zz@h",
            "redis://u:hunter2@",
            "redis://u:hunter2@h?prefiks=1",
            "redis://u:hunter2@h/x",
            "rediz://u:hunter2@h",
            "redis://hunter2 x",
            "redis://h:hunter2",
            "redis+sentinel://h/s?sentinel_password=hunter2&x=1",
            "redis+sentinel://h/s?sentinel_password=hunter2&sentinel_password=hunter2",
        ] {
            let reason = refusal(url);
            assert!(!reason.contains("hunter2"), "{url}: {reason}");
        }
    }
}
