//! The server itself: version, what its disk keeps, its memory, its replicas. By its own account (`INFO`).

use super::{Finding, about, bytes, count};
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
pub(super) fn eviction(options: &Options, info: &Info, findings: &mut Vec<Finding>) -> bool {
    let policy = info.field("maxmemory_policy").unwrap_or("unknown");
    if policy == "noeviction" || policy == "unknown" {
        return true;
    }
    let text = format!("the server may throw away jobs when its memory is full: its maxmemory-policy is {policy}");
    let change = "redis-cli CONFIG SET maxmemory-policy noeviction, and the same line in redis.conf";
    findings.push(if options.allow_eviction {
        Finding::warning("eviction", format!("{text}, and allow_eviction=true accepts it")).hint(change)
    } else {
        Finding::error("eviction", format!("{text}; a store refuses to start on it"))
            .hint(format!("{change}; or write allow_eviction=true if losing jobs does not matter"))
    });
    options.allow_eviction
}

pub(super) async fn look(store: &RedisStore, options: &Options, info: &Info, findings: &mut Vec<Finding>) {
    let version = info.field("redis_version").unwrap_or("unknown");
    let up = number(info, "uptime_in_seconds");
    findings.push(Finding::ok("server", format!("version {version}, up for {}", about(up * 1_000))));
    persistence(store, options, info, findings).await;
    disk(info, findings);
    memory(info, findings);
    replicas(options, info, findings);
}

async fn persistence(store: &RedisStore, options: &Options, info: &Info, findings: &mut Vec<Finding>) {
    let failover = !matches!(options.topology, Topology::Single { .. }) || number(info, "connected_slaves") > 0;
    let promise = if failover { "failover-best-effort" } else { "power" };
    let turn_on = "redis-cli CONFIG SET appendonly yes, and the same line in redis.conf";
    if info.field("aof_enabled") == Some("1") {
        let fsync = store.server_setting("appendfsync").await;
        findings.push(match fsync.as_deref() {
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
            .hint("for work that must survive a power cut: redis-cli CONFIG SET appendfsync always"),
            Some(other) => Finding::warning(
                "persistence",
                format!("append-only file with appendfsync {other}: a power cut may lose half a minute of work"),
            )
            .hint("redis-cli CONFIG SET appendfsync always (or everysec)"),
            None => Finding::info(
                "persistence",
                "append-only file; how often it is synced is not known, because the user may not run CONFIG GET",
            )
            .hint("grant +config|get, or look for appendfsync in redis.conf"),
        });
        return;
    }
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
            "no append-only file: when the server crashes, all since the last snapshot is gone, if it makes any \
             (durability none)",
        )
        .hint(turn_on),
    });
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

fn memory(info: &Info, findings: &mut Vec<Finding>) {
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
            ("part of the server's memory is swapped out", "give the machine more memory, or turn its swap off")
        } else {
            ("the server holds much more memory than it uses", "redis-cli CONFIG SET activedefrag yes, or MEMORY PURGE")
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
        .hint(format!("wait_replicas={in_step} in the URL waits for all of them, and loses less"))
    } else if in_step == 0 && !matches!(options.topology, Topology::Single { .. }) {
        Finding::warning("replicas", format!("{role}: there is nobody to fail over to")).hint("attach a replica")
    } else {
        Finding::ok("replicas", role)
    });
}
