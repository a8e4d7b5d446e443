//! The messages that Sentinels publish about a failover, and the replies that describe the primary.
//!
//! The Sentinel that leads a failover publishes, in this order: `+failover-state-select-slave`, `+selected-slave`,
//! `+failover-state-send-slaveof-noone`; it promotes the replica and publishes `+failover-state-wait-promotion`; when it has
//! seen the promotion, up to a second later, `+promoted-slave`; and when the other replicas follow, `+switch-master`. The other Sentinels publish
//! `+switch-master` when they receive the new configuration. `-failover-abort-…` of the Sentinel that leads ends a failover
//! without a new primary. `-failover-abort-not-elected` is not among them: a Sentinel publishes it before it would select a
//! replica, while another one may lead.

use crate::link::dial::text;
use crate::options::Node;
use redis::Value;

/// The channels to subscribe to.
pub(super) const CHANNELS: [&str; 11] = [
    "+failover-state-select-slave",
    "+selected-slave",
    "+failover-state-send-slaveof-noone",
    "+failover-state-wait-promotion",
    "+promoted-slave",
    "+switch-master",
    "-failover-abort-no-good-slave",
    "-failover-abort-slave-timeout",
    "+slave",
    "+sdown",
    "-sdown",
];

/// The meaning of one published message, for the service of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Announcement {
    /// A replica is about to be promoted. The present primary still accepts writes, and will lose them.
    Promoting { replaced: Node },
    /// This node is the primary now.
    Promoted(Node),
    /// The Sentinel that publishes it promotes no replica of this node any more.
    Aborted { replaced: Node },
    /// A replica was added, went down or came back.
    Replicas,
}

impl Announcement {
    /// Reads a message; `None` if it concerns another service, or nothing that matters here.
    pub(super) fn read(channel: &str, message: &str, service: &str) -> Option<Self> {
        let words: Vec<&str> = message.split(' ').collect();
        match (channel, words.as_slice()) {
            ("+failover-state-select-slave", ["master", name, host, port])
            | (
                "+selected-slave" | "+failover-state-send-slaveof-noone" | "+failover-state-wait-promotion",
                ["slave", _, _, _, "@", name, host, port],
            ) if *name == service => Some(Self::Promoting { replaced: Node::new(*host, port.parse().ok()?) }),
            ("+promoted-slave", ["slave", _, host, port, "@", name, ..]) if *name == service => {
                Some(Self::Promoted(Node::new(*host, port.parse().ok()?)))
            }
            ("+switch-master", [name, _, _, host, port]) if *name == service => {
                Some(Self::Promoted(Node::new(*host, port.parse().ok()?)))
            }
            ("-failover-abort-no-good-slave" | "-failover-abort-slave-timeout", ["master", name, host, port])
                if *name == service =>
            {
                Some(Self::Aborted { replaced: Node::new(*host, port.parse().ok()?) })
            }
            ("+slave" | "+sdown" | "-sdown", ["slave", _, _, _, "@", name, ..]) if *name == service => {
                Some(Self::Replicas)
            }
            _ => None,
        }
    }
}

/// A replica that a Sentinel does not consider down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Replica {
    pub(super) node: Node,
    /// The Sentinel reports that its link to its primary works.
    pub(super) is_attached: bool,
}

/// One Sentinel's description of the service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    /// The id of the Sentinel itself, if it may be asked for.
    pub(super) id: Option<String>,
    /// The primary that it names.
    pub(super) primary: Option<Node>,
    /// The epoch of that configuration: of two that differ, the one with the higher epoch is valid.
    pub(super) epoch: Option<u64>,
    /// A replica was selected and perhaps promoted, and `primary` is still the old one.
    pub(super) is_promoting: bool,
    /// The replicas that it does not consider down, if it may be asked for them.
    pub(super) replicas_up: Option<Vec<Replica>>,
    /// The other Sentinels of the service: id and address.
    pub(super) others: Vec<(String, Node)>,
}

/// The replies to the commands of one question, in their order. A command that was refused is `None`.
pub(super) struct Replies {
    pub(super) id: Option<Value>,
    pub(super) master: Option<Value>,
    pub(super) replicas: Option<Value>,
    pub(super) sentinels: Option<Value>,
}

impl Report {
    /// Describes the service by the address of its primary and what else the Sentinel replied.
    pub(super) fn of(primary: Node, replies: Replies) -> Self {
        let Replies { id, master, replicas, sentinels } = replies;
        let replicas = replicas.map(|value| instances(&value));
        let is_failing_over = master.as_ref().is_some_and(|master| has_flag(master, "failover_in_progress"));
        // After the promotion the Sentinel names the new primary, while its record of the old one lasts a little longer.
        let names_old = master.as_ref().and_then(address).as_ref() == Some(&primary);
        let is_selected = replicas.iter().flatten().any(|replica| has_flag(replica, "promoted"));
        Self {
            id: id.and_then(|value| text(value).ok()),
            epoch: master.as_ref().and_then(|master| field(master, "config-epoch")?.parse().ok()),
            is_promoting: is_failing_over && names_old && is_selected,
            replicas_up: replicas.map(|all| all.iter().filter_map(up).collect()),
            others: sentinels
                .map(|value| instances(&value))
                .unwrap_or_default()
                .iter()
                .filter_map(|one| Some((field(one, "runid")?, address(one)?)))
                .collect(),
            primary: Some(primary),
        }
    }
}

fn instances(value: &Value) -> Vec<Value> {
    match value {
        Value::Array(items) => items.clone(),
        _ => Vec::new(),
    }
}

fn up(replica: &Value) -> Option<Replica> {
    let is_down = has_flag(replica, "s_down") || has_flag(replica, "o_down");
    let is_attached = field(replica, "master-link-status").is_some_and(|status| status == "ok");
    (!is_down).then_some(Replica { node: address(replica)?, is_attached })
}

fn has_flag(instance: &Value, flag: &str) -> bool {
    field(instance, "flags").is_some_and(|flags| flags.split(',').any(|one| one == flag))
}

fn address(instance: &Value) -> Option<Node> {
    Some(Node::new(field(instance, "ip")?, field(instance, "port")?.parse().ok()?))
}

/// One field of a map, which is an array of names and values in the older protocol.
fn field(value: &Value, name: &str) -> Option<String> {
    let is_name = |key: &Value| matches!(key, Value::BulkString(key) if key == name.as_bytes());
    let found = match value {
        Value::Map(pairs) => pairs.iter().find(|(key, _)| is_name(key)).map(|(_, value)| value),
        Value::Array(items) => items.chunks_exact(2).find(|pair| is_name(&pair[0])).map(|pair| &pair[1]),
        _ => None,
    };
    text(found?.clone()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn map(pairs: &[(&str, &str)]) -> Value {
        Value::Map(pairs.iter().map(|(key, value)| (bulk(key), bulk(value))).collect())
    }

    #[test]
    fn messages_of_a_failover_are_read() {
        let replica = "slave 10.0.0.2:7 10.0.0.2 7 @ main 10.0.0.1 6";
        let primary = "master main 10.0.0.1 6";
        let new = Announcement::Promoted(Node::new("10.0.0.2", 7));
        let promoting = Announcement::Promoting { replaced: Node::new("10.0.0.1", 6) };
        let aborted = Announcement::Aborted { replaced: Node::new("10.0.0.1", 6) };
        for (channel, message, expected) in [
            ("+failover-state-select-slave", primary, promoting.clone()),
            ("+selected-slave", replica, promoting.clone()),
            ("+failover-state-send-slaveof-noone", replica, promoting.clone()),
            ("+failover-state-wait-promotion", replica, promoting),
            ("+promoted-slave", replica, new.clone()),
            ("+switch-master", "main 10.0.0.1 6 10.0.0.2 7", new),
            ("-failover-abort-no-good-slave", primary, aborted.clone()),
            ("-failover-abort-slave-timeout", primary, aborted),
            ("+sdown", replica, Announcement::Replicas),
            ("-sdown", replica, Announcement::Replicas),
            ("+slave", replica, Announcement::Replicas),
        ] {
            assert!(CHANNELS.contains(&channel), "{channel} is not subscribed to");
            assert_eq!(Announcement::read(channel, message, "main"), Some(expected), "{channel}");
            assert_eq!(Announcement::read(channel, message, "mai"), None, "{channel} of another service");
        }
        for (channel, message) in [
            ("+sdown", primary),
            ("-failover-abort-not-elected", primary),
            ("+promoted-slave", "slave 10.0.0.2:x 10.0.0.2 x @ main 10.0.0.1 6"),
            ("+switch-master", "main"),
            ("+selected-slave", ""),
        ] {
            assert_eq!(Announcement::read(channel, message, "main"), None, "{channel} {message}");
        }
    }

    fn report(flags: &str, replicas: &[&str], named: u16) -> Report {
        let master = map(&[("ip", "h"), ("port", "1"), ("flags", flags), ("config-epoch", "3")]);
        let replicas = replicas.iter().map(|flags| map(&[("ip", "h"), ("port", "2"), ("flags", flags)])).collect();
        let other = map(&[("ip", "s"), ("port", "9"), ("runid", "b")]);
        let replies = Replies {
            id: Some(bulk("a")),
            master: Some(master),
            replicas: Some(Value::Array(replicas)),
            sentinels: Some(Value::Array(vec![other])),
        };
        Report::of(Node::new("h", named), replies)
    }

    #[test]
    fn a_sentinel_describes_the_service() {
        let calm = report("master", &["slave", "slave,s_down", "slave,disconnected,o_down"], 1);
        let up = Replica { node: Node::new("h", 2), is_attached: false };
        assert_eq!((calm.epoch, calm.replicas_up, calm.is_promoting), (Some(3), Some(vec![up]), false));
        assert_eq!((calm.id.as_deref(), calm.others), (Some("a"), vec![("b".to_owned(), Node::new("s", 9))]));
        // From the selection of a replica until the Sentinel has seen its promotion.
        assert!(report("master,failover_in_progress", &["slave,promoted", "slave"], 1).is_promoting);
        assert!(!report("master,failover_in_progress", &["slave", "slave"], 1).is_promoting, "none is selected yet");
        assert!(!report("master,failover_in_progress", &["slave,promoted"], 2).is_promoting, "the new one is named");
    }

    #[test]
    fn a_sentinel_that_may_only_name_the_primary_does_so() {
        let none = Replies { id: None, master: None, replicas: None, sentinels: None };
        let said = Report::of(Node::new("h", 1), none);
        assert_eq!(said, Report { primary: Some(Node::new("h", 1)), ..Report::default() });
    }
}
