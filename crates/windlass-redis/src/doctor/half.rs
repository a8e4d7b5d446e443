//! Whether the store is whole: an interrupted slot move leaves its keys on two nodes.

use super::Finding;
use super::ask::ask;
use crate::keys::WITHOUT_META;
use crate::link::slot_of;
use crate::options::Topology;
use crate::store::RedisStore;
use crate::whole;

/// Reports a store of which keys are missing. Answers whether there are any.
pub(super) async fn look(store: &RedisStore, findings: &mut Vec<Finding>) -> bool {
    let words = whole::question(&store.caller.keys);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let found = whole::answer(ask(&store.caller.link, &words).await.as_ref()).unwrap_or_default();
    // A first change that was stopped half-way has written the feed alone, which is another finding and has another repair.
    let single = !matches!(store.options().topology, Topology::Cluster { .. });
    let feed_alone = found.present.iter().all(|name| name == "feed" || WITHOUT_META.contains(&name.as_str()));
    if found.missing.is_empty() || single && feed_alone {
        return false;
    }
    let prefix = &store.options().prefix;
    let text = format!(
        "half of the store `{prefix}` is missing, and every change is refused: {} should exist and do not; {} exist",
        found.missing.join(", "),
        found.present.join(", ")
    );
    findings.push(Finding::error("half", text).hint(steps(prefix, &store.options().topology)));
    true
}

/// What to do about it. Clients are stopped first: a write between two steps of a repair would create a missing key again.
fn steps(prefix: &str, topology: &Topology) -> String {
    let give_up = format!(
        "to give up what is left instead, and begin with an empty store: redis-cli --scan --pattern '{{{prefix}}}:*' | xargs \
         redis-cli UNLINK"
    );
    match topology {
        Topology::Cluster { .. } => {
            let slot = slot_of(prefix);
            format!(
                "stop all workers and clients of the store; the other keys are probably on the node that slot {slot} was being \
                 moved to or from (CLUSTER COUNTKEYSINSLOT {slot} shows which nodes have keys): on a node where CLUSTER INFO says \
                 cluster_state:fail, CLUSTER SETSLOT {slot} NODE <id of the owner>; start the other node again if it is down, \
                 and wait until ROLE says slave there; then redis-cli --cluster fix HOST:PORT merges them, and windlass doctor shows whether the store is whole; if \
                 that node is lost, restore a backup; {give_up}, on the node that owns the slot"
            )
        }
        Topology::Single { .. } | Topology::Sentinel { .. } => format!(
            "stop all workers and clients of the store, and find out what removed the keys (eviction, DEL, a restore of a part); \
             restore a backup of the whole store; {give_up}"
        ),
    }
}
