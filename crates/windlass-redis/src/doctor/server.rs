//! The server itself: version, what its disk keeps, its memory, its replicas. By its own account (`INFO`).

use super::ask::{Change, ask, number as number_of};
use super::{Finding, about, bytes, count};
use crate::eviction::{Eviction, risk};
use crate::options::{Options, Topology, WaitReplicas};
use crate::store::RedisStore;
use crate::store::info::Info;

/// Of the memory allowed, so many hundredths are much, and nearly all.
const MUCH: u64 = 80;
const NEARLY_ALL: u64 = 95;
/// Below this, a server's fragmentation says nothing: the program itself is most of it.
const FRAGMENTATION_BYTES: u64 = 256 << 20;
/// A replica that is further behind than this is not in step.
const LAG_BYTES: u64 = 64 << 20;
const LAG_SECONDS: u64 = 10;

fn number(info: &Info, name: &str) -> u64 {
    info.field(name).and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Whether a store may be opened here for all that the server does when its memory is full.
pub(super) fn eviction(options: &Options, info: &Info, change: Change, findings: &mut Vec<Finding>) -> bool {
    let Some(policy) = info.field("maxmemory_policy") else {
        let text = "the server does not name its maxmemory-policy: whether it deletes keys when its memory is full is not known";
        findings.push(Finding::info("eviction", text).hint("choose noeviction where the server is configured"));
        return true;
    };
    let none = change.advice("maxmemory-policy", "noeviction");
    match Eviction::of(policy) {
        Eviction::Nothing => return true,
        Eviction::ExpiringKeys => {
            let text = format!(
                "maxmemory-policy is {policy}: when its memory is full, the server deletes keys that expire. Jobs are in keys \
                 that do not; the store's one key that does names the timekeeper, and is made again"
            );
            findings.push(
                Finding::info("eviction", text)
                    .hint(format!("nothing needs to be done; if no other program needs the policy: {none}")),
            );
            return true;
        }
        Eviction::AnyKey => {}
    }
    let text = risk(policy);
    findings.push(if options.allow_eviction {
        Finding::warning("eviction", format!("{text}; allow_eviction=true accepts it")).hint(none)
    } else {
        Finding::error("eviction", format!("{text}; a store refuses to start on it"))
            .hint(format!("{none}; or write allow_eviction=true if losing all jobs is acceptable"))
    });
    options.allow_eviction
}

pub(super) async fn look(
    store: &RedisStore,
    options: &Options,
    info: &Info,
    change: Change,
    findings: &mut Vec<Finding>,
) {
    let up = number(info, "uptime_in_seconds");
    findings.push(Finding::ok("server", format!("version {}, up for {}", info.version(), about(up * 1_000))));
    persistence(store, options, info, change, findings).await;
    disk(info, findings);
    memory(info, change, findings);
    replicas(options, info, findings);
    findings.extend(collation(store).await);
}

/// How the server compares texts. Our scripts compare bytes and numbers; scripts of others may be surprised.
async fn collation(store: &RedisStore) -> Option<Finding> {
    const IN_ORDER: &str = "return 'Z' < 'a' and '9' < 'a' and 'aa' < 'b' and 1 or 0";
    let answer = ask(&store.caller.link, &["EVAL", IN_ORDER, "0"]).await?;
    let text = "scripts on this server compare texts by the locale of its host (LC_COLLATE), and not by their bytes; this store \
                does not depend on it";
    let hint = "nothing needs to be done; if scripts of your own sort texts, start the server with LC_ALL=C";
    (number_of(&answer) == Some(0)).then(|| Finding::info("collation", text).hint(hint))
}

async fn persistence(store: &RedisStore, options: &Options, info: &Info, change: Change, findings: &mut Vec<Finding>) {
    let failover = !matches!(options.topology, Topology::Single { .. }) || number(info, "connected_slaves") > 0;
    if info.field("aof_enabled") == Some("1") {
        findings.push(fsync(store, change, failover).await);
        return;
    }
    let turn_on = change.advice("appendonly", "yes");
    let saves = store.server_setting("save").await;
    findings.push(match saves.as_deref() {
        Some("") => Finding::warning(
            "persistence",
            "the server keeps nothing on disk: when it ends, all jobs are gone (durability none)",
        )
        .hint(turn_on),
        Some(rules) => Finding::warning(
            "persistence",
            format!(
                "snapshots only (save {rules}): when the server crashes, all since the last one is gone, now {} \
                 (durability none)",
                count(number(info, "rdb_changes_since_last_save"), "change")
            ),
        )
        .hint(turn_on),
        None => Finding::warning(
            "persistence",
            "no append-only file is reported: when the server crashes, all since the last snapshot is gone, if it makes any \
             (durability none)",
        )
        .hint(format!("{turn_on}; a service with a durable log of its own does not report it here")),
    });
}

/// How often the append-only file is synced, and what that is worth.
async fn fsync(store: &RedisStore, change: Change, failover: bool) -> Finding {
    let promise = if failover { "failover-best-effort" } else { "power" };
    let fsync = store.server_setting("appendfsync").await;
    match fsync.as_deref() {
        Some("always") => {
            Finding::ok("persistence", format!("append-only file, synced before every answer: durability {promise}"))
        }
        Some("everysec") => Finding::info(
            "persistence",
            format!(
                "append-only file, synced once a second (durability process): a crash of the server loses nothing{}, a \
                 power cut of its machine up to two seconds of acknowledged work",
                if failover { " unless it is failed over" } else { "" }
            ),
        )
        .hint(format!("for work that must survive a power cut: {}", change.advice("appendfsync", "always"))),
        Some(other) => Finding::warning(
            "persistence",
            format!("append-only file with appendfsync {other}: a power cut may lose half a minute of work"),
        )
        .hint(change.advice("appendfsync", "always")),
        None => {
            let (why, next) = change.config.refusal("CONFIG GET", "+config|get").unwrap_or_default();
            Finding::info(
                "persistence",
                format!("append-only file; how often it is synced is not known, because {why} (durability process)"),
            )
            .hint(next)
        }
    }
}

/// Whether the server can write what it should.
fn disk(info: &Info, findings: &mut Vec<Finding>) {
    for (field, what) in [
        ("rdb_last_bgsave_status", "its last snapshot"),
        ("aof_last_write_status", "its append-only file"),
        ("aof_last_bgrewrite_status", "its append-only file anew"),
    ] {
        if info.field(field) == Some("err") {
            findings.push(
                Finding::error("persistence", format!("the server could not write {what} ({field} is err)"))
                    .hint("see the server's log; is its disk full or read-only?"),
            );
        }
    }
}

fn memory(info: &Info, change: Change, findings: &mut Vec<Finding>) {
    let (used, most) = (number(info, "used_memory"), number(info, "maxmemory"));
    let peak = bytes(number(info, "used_memory_peak"));
    let advice = "raise maxmemory, add workers, or keep ended jobs for less long (windlass queues set --help)";
    findings.push(match used.saturating_mul(100).checked_div(most) {
        None => Finding::info("memory", format!("{} used (peak {peak}), and no maxmemory", bytes(used))).hint(
            "set maxmemory below the machine's memory: a full server then refuses new jobs, instead of being killed",
        ),
        Some(share) => {
            let text = format!("{} of {} used, {share} % (peak {peak})", bytes(used), bytes(most));
            match share {
                0..MUCH => Finding::ok("memory", text),
                MUCH..NEARLY_ALL => Finding::warning("memory", text).hint(advice),
                _ => Finding::error("memory", format!("{text}; new jobs are refused when it is full")).hint(advice),
            }
        }
    });
    let ratio: f64 = info.field("mem_fragmentation_ratio").and_then(|text| text.parse().ok()).unwrap_or(1.0);
    if used > FRAGMENTATION_BYTES && !(0.9..1.8).contains(&ratio) {
        let (what, advice) = if ratio < 1.0 {
            let advice = "give the machine more memory, or turn its swap off";
            ("part of the server's memory is swapped out", advice.to_owned())
        } else {
            ("the server holds much more memory than it uses", change.advice("activedefrag", "yes"))
        };
        findings.push(Finding::warning("memory", format!("{what}: fragmentation ratio {ratio}")).hint(advice));
    }
}

/// Who copies from this server, and how far behind they are.
fn replicas(options: &Options, info: &Info, findings: &mut Vec<Finding>) {
    let end = number(info, "master_repl_offset");
    let (mut in_step, mut behind) = (0_u32, Vec::new());
    for at in 0..number(info, "connected_slaves") {
        let Some(line) = info.field(&format!("slave{at}")) else { continue };
        let part = |name: &str| line.split(',').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
        let of = |name: &str| part(name).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        let lag = end.saturating_sub(of("offset"));
        let name = format!("{}:{}", part("ip").unwrap_or("?"), part("port").unwrap_or("?"));
        if part("state") == Some("online") && lag <= LAG_BYTES && of("lag") <= LAG_SECONDS {
            in_step += 1;
        } else {
            let (state, silent) = (part("state").unwrap_or("?"), of("lag"));
            behind.push(format!("{name} is {state}, {} behind, last heard of {silent} s ago", bytes(lag)));
        }
    }
    for text in behind {
        findings.push(
            Finding::warning("replicas", text)
                .hint("a failover to it loses what it lacks; see its log and its network"),
        );
    }
    let role = format!("this is the primary, with {} in step", count(u64::from(in_step), "replica"));
    let wanted = match options.wait_replicas {
        None => 0,
        Some(WaitReplicas::Count(count)) => count,
        // Those that the Sentinels do not consider down, so never more than there are.
        Some(WaitReplicas::All) => in_step,
    };
    findings.push(if in_step < wanted {
        Finding::error(
            "replicas",
            format!("{role}; the URL says wait_replicas={wanted}, so changes are refused, or where the store is open already every change ends as `unknown`"),
        )
        .hint("attach replicas, or lower wait_replicas")
    } else if in_step > 0 && options.wait_replicas.is_none() {
        Finding::info(
            "replicas",
            format!("{role}; an answer does not wait for them, so a failover may lose the last of it"),
        )
        .hint(match options.topology {
            Topology::Sentinel { .. } => "wait_replicas=all in the URL waits for all of them".to_owned(),
            _ => format!("wait_replicas={in_step} in the URL waits for all of them; a smaller number does not help"),
        })
    } else if in_step == 0 && !matches!(options.topology, Topology::Single { .. }) {
        Finding::warning("replicas", format!("{role}: there is nobody to fail over to")).hint("attach a replica")
    } else {
        Finding::ok("replicas", role)
    });
}
