//! Looks at a server and at what a store keeps there, and says what is wrong and what to do about it.
//!
//! Changes nothing. Everything is bounded: containers are looked through a page at a time, and only so far unless the
//! whole is asked for. What the user may not ask is said to be unknown, and is no failure.

mod ask;
mod feed;
mod half;
mod orphans;
mod rights;
mod server;
mod sizes;
mod speed;
mod topology;

use crate::options::Options;
use crate::store::RedisStore;
use ask::{Access, Change};
use windlass_core::{Error, Result};

pub use windlass_core::finding::{Finding, Severity};

/// What came of an examination.
#[derive(Clone, Debug)]
pub struct Examination {
    /// What was found, in a sensible order.
    pub findings: Vec<Finding>,
    /// Whether a store that is opened with the same options works on this server.
    pub usable: bool,
}

/// How far to look.
#[derive(Clone, Copy, Debug, Default)]
pub struct Depth {
    /// Look at every entry of every container, however long it takes, instead of some ten thousand of each.
    pub whole: bool,
}

/// Examines the server and the store of these options. An error means that there is no server to be examined: it cannot be
/// reached, or does not let us in.
pub async fn examine(options: &Options, depth: Depth) -> Result<Examination> {
    // A server that a store would be refused on is examined all the same.
    let store = RedisStore::open_to_examine(Options { allow_eviction: true, ..options.clone() })?;
    let info = match store.server_info().await {
        Ok(info) => info,
        Err(Error::Incompatible { what }) => {
            let (message, hint) = match what.rsplit_once("; ") {
                Some((message, hint)) => (message.to_owned(), hint.to_owned()),
                None => (what, "use another server".to_owned()),
            };
            let findings = vec![Finding::error("server", message).hint(hint)];
            return Ok(Examination { findings, usable: false });
        }
        Err(error) => return Err(error),
    };
    let mut findings = Vec::new();
    let change = Change { config: Access::to(&store.caller.link, &["CONFIG", "GET", "appendfsync"]).await };
    let usable = server::eviction(options, &info, change, &mut findings);
    server::look(&store, options, &info, change, &mut findings).await;
    topology::look(&store, options, &mut findings).await;
    speed::look(&store, &mut findings).await;
    let mut rights = Vec::new();
    rights::look(&store, &mut rights).await;
    let forbidden = rights.iter().any(|one| one.severity == Severity::Error);
    findings.append(&mut rights);
    if sizes::foreign(&store, &mut findings).await {
        return Ok(Examination { findings, usable: false });
    }
    if half::look(&store, &mut findings).await {
        return Ok(Examination { findings, usable: false });
    }
    // What fails here has its cause above, or is worth saying.
    let parts = [
        ("feed", feed::look(&store, &mut findings).await),
        ("memory", sizes::look(&store, depth, &mut findings).await),
        ("orphans", orphans::look(&store, depth, &mut findings).await),
    ];
    for (check, outcome) in parts {
        if let Err(error) = outcome {
            findings.push(Finding::warning(check, format!("could not be looked at: {error}")));
        }
    }
    Ok(Examination { findings, usable: usable && !forbidden })
}

/// Bytes for people.
fn bytes(count: u64) -> String {
    match count {
        0..10_240 => format!("{count} bytes"),
        10_240..10_485_760 => format!("{} KiB", count >> 10),
        10_485_760..10_737_418_240 => format!("{} MiB", count >> 20),
        _ => format!("{} GiB", count >> 30),
    }
}

/// So many of something, for people.
fn count(number: u64, one: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {one}s") }
}

/// A time for people, roughly.
fn about(ms: u64) -> String {
    let (minute, hour, day) = (60_000, 3_600_000, 86_400_000);
    match ms {
        0..10_000 => format!("{ms} ms"),
        10_000..120_000 => format!("{} s", ms / 1_000),
        120_000..7_200_000 => format!("{} min", ms / minute),
        7_200_000..172_800_000 => format!("{} h", ms / hour),
        _ => format!("{} days", ms / day),
    }
}
