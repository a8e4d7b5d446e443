//! Whether a server is one that a store can live on, by its own account of itself.

use super::Purpose;
use crate::error::incompatible;
use crate::eviction::{self, Eviction};
use crate::options::{Node, Options, Topology, WaitReplicas};
use windlass_core::Error;

/// The oldest major version that has what the scripts need.
const MAJOR_MIN: u32 = 7;

/// What to do with a server.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Ready,
    /// It reads its data from the disk: in a while.
    Loading,
    /// It is a replica, of this node as far as it says, where the primary is wanted.
    Replica {
        primary: Option<Node>,
    },
    Refused(Error),
}

/// Judges by the text of `INFO`, which is allowed more often than `CONFIG GET`.
pub(super) fn judge(info: &str, purpose: Purpose, options: &Options) -> Verdict {
    let field = |name: &str| field(info, name);
    let version = field("redis_version").unwrap_or("unknown");
    let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
    if major.is_none_or(|major| major < MAJOR_MIN) {
        return Verdict::Refused(incompatible(format!(
            "the server's version is {version}; Redis 7.0 or later is needed"
        )));
    }
    // Valkey has another name for it.
    let mode = field("redis_mode").or_else(|| field("server_mode"));
    if mode == Some("sentinel") && purpose != Purpose::AskSentinel {
        return Verdict::Refused(incompatible(
            "this is a Sentinel, which keeps no jobs; write redis+sentinel://host:port/service with the name of its \
             `sentinel monitor` line",
        ));
    }
    if field("loading") == Some("1") {
        return Verdict::Loading;
    }
    if let Some(verdict) = wrong_role(&field, &options.topology) {
        return verdict;
    }
    match field("maxmemory_policy") {
        Some(policy) if Eviction::of(policy) == Eviction::AnyKey => on_evicting(policy, purpose, options),
        _ => Verdict::Ready,
    }
}

/// A server that deletes keys of the store is refused, unless the options accept it; then it is warned about.
fn on_evicting(policy: &str, purpose: Purpose, options: &Options) -> Verdict {
    if !options.allow_eviction {
        return Verdict::Refused(incompatible(format!(
            "the server may delete all jobs: its {}; set maxmemory-policy to noeviction (at a managed service in the parameter \
             group or console), or write allow_eviction=true if losing all jobs is acceptable",
            eviction::risk(policy)
        )));
    }
    if purpose == Purpose::Work {
        eviction::warn_once(policy, options);
    }
    Verdict::Ready
}

/// Why calls that wait for replicas would wait in vain, if they would.
pub(super) fn lacks_replicas(info: &str, options: &Options) -> Option<String> {
    let Some(WaitReplicas::Count(wanted)) = options.wait_replicas else { return None };
    // A service that hides it is believed.
    let there: u32 = field(info, "connected_slaves")?.parse().ok()?;
    (there < wanted).then(|| {
        format!(
            "wait_replicas={wanted} asks for more replicas than the {there} that are connected to the server; attach \
             replicas, or lower wait_replicas"
        )
    })
}

fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim_end)
}

fn wrong_role<'a>(field: &impl Fn(&str) -> Option<&'a str>, topology: &Topology) -> Option<Verdict> {
    let refused = |text: &str| Some(Verdict::Refused(incompatible(text)));
    let is_cluster = field("cluster_enabled") == Some("1");
    let is_replica = field("role").is_some_and(|role| role != "master");
    match topology {
        Topology::Single { .. } if is_cluster => {
            refused("the server is a node of a cluster; write redis+cluster://host:port")
        }
        Topology::Cluster { .. } if !is_cluster => {
            refused("the server is not part of a cluster; write redis://host:port")
        }
        Topology::Single { .. } if is_replica => {
            let primary = match (field("master_host"), field("master_port")) {
                (Some(host), Some(port)) => format!(" of {host}:{port}"),
                _ => String::new(),
            };
            refused(&format!("the server is a replica{primary}, which takes no jobs; write the primary's address"))
        }
        // Its address came from a Sentinel or a node with an outdated configuration.
        Topology::Sentinel { .. } | Topology::Cluster { .. } if is_replica => {
            let port = field("master_port").and_then(|port| port.parse().ok());
            Some(Verdict::Replica { primary: field("master_host").zip(port).map(|(host, port)| Node::new(host, port)) })
        }
        Topology::Single { .. } | Topology::Sentinel { .. } | Topology::Cluster { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(version: &str, rest: &str) -> String {
        format!("# Server\r\nredis_version:{version}\r\nredis_mode:standalone\r\n# Memory\r\n{rest}\r\n")
    }

    fn judge_for_work(info: &str, options: &Options) -> Verdict {
        judge(info, Purpose::Work, options)
    }

    fn refusal(info: &str, options: &Options) -> String {
        match judge_for_work(info, options) {
            Verdict::Refused(error) => error.to_string(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn servers_that_fit() {
        let options = Options::single("h", 1);
        let ready = "role:master\r\nloading:0\r\nmaxmemory_policy:noeviction\r\ncluster_enabled:0";
        assert_eq!(judge_for_work(&info("7.0.15", ready), &options), Verdict::Ready);
        assert_eq!(judge_for_work(&info("255.255.255", ready), &options), Verdict::Ready);
        assert_eq!(judge_for_work(&info("7.0.15", "loading:1\r\nrole:master"), &options), Verdict::Loading);
        // A service that hides its memory settings is believed.
        assert_eq!(judge_for_work(&info("7.0.15", "role:master"), &options), Verdict::Ready);
    }

    #[test]
    fn servers_that_do_not_fit_say_what_to_do() {
        let mut options = Options::single("h", 1);
        assert!(refusal(&info("6.2.14", "role:master"), &options).contains("7.0 or later"));
        assert!(refusal("nonsense", &options).contains("7.0 or later"));
        let replica = info("7.0.15", "role:slave\r\nmaster_host:10.0.0.1\r\nmaster_port:6379");
        assert!(refusal(&replica, &options).contains("10.0.0.1:6379"));
        let expires = info("7.0.15", "role:master\r\nmaxmemory_policy:volatile-lru");
        assert_eq!(judge_for_work(&expires, &options), Verdict::Ready);
        let evicts = info("7.0.15", "role:master\r\nmaxmemory_policy:allkeys-lru");
        assert!(refusal(&evicts, &options).contains("allow_eviction=true"));
        assert!(refusal(&info("7.0.15", "role:master\r\ncluster_enabled:1"), &options).contains("redis+cluster://"));
        options.allow_eviction = true;
        assert_eq!(judge_for_work(&evicts, &options), Verdict::Ready);
        options.topology = Topology::Cluster { nodes: vec![Node::new("h", 1)] };
        assert!(refusal(&info("7.0.15", "role:master\r\ncluster_enabled:0"), &options).contains("redis://"));
        let demoted = info("7.0.15", "role:slave\r\nmaster_host:h\r\nmaster_port:7\r\ncluster_enabled:1");
        assert_eq!(judge_for_work(&demoted, &options), Verdict::Replica { primary: Some(Node::new("h", 7)) });
    }

    /// Fields as Valkey 9.1.2 answers them: the version that it is compatible with, then its own.
    #[test]
    fn valkey_is_judged_by_the_version_that_it_is_compatible_with() {
        let valkey = "# Server\r\nredis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.1.2\r\n\
                      valkey_release_stage:ga\r\nserver_mode:standalone\r\nrole:master\r\n\
                      loading:0\r\nmaxmemory_policy:noeviction\r\ncluster_enabled:0\r\n";
        assert_eq!(judge_for_work(valkey, &Options::single("h", 1)), Verdict::Ready);
    }

    #[test]
    fn a_sentinel_is_no_server_for_jobs() {
        let options = Options::single("h", 1);
        let sentinel = "redis_version:7.0.15\r\nredis_mode:sentinel\r\n";
        assert!(refusal(sentinel, &options).contains("redis+sentinel://"));
        assert!(matches!(judge(sentinel, Purpose::Examine, &options), Verdict::Refused(_)));
        assert_eq!(judge(sentinel, Purpose::AskSentinel, &options), Verdict::Ready);
        let of_valkey = "redis_version:7.2.4\r\nserver_name:valkey\r\nserver_mode:sentinel\r\n";
        assert!(refusal(of_valkey, &options).contains("redis+sentinel://"));
    }

    #[test]
    fn too_few_replicas_are_counted() {
        let mut options = Options::single("h", 1);
        assert_eq!(lacks_replicas("connected_slaves:0\r\n", &options), None);
        options.wait_replicas = Some(WaitReplicas::Count(2));
        let said = lacks_replicas("connected_slaves:1\r\n", &options).unwrap_or_default();
        assert!(said.contains("the 1 that"), "{said}");
        assert_eq!(lacks_replicas("connected_slaves:2\r\n", &options), None);
        assert_eq!(lacks_replicas("role:master\r\n", &options), None);
    }
}
