//! The one place that names concrete stores.

use crate::observe::observe;
use std::sync::Arc;
use windlass_core::memory::MemoryStore;
use windlass_core::store::Store;
use windlass_core::{Error, Result};

/// Opens a store by its URL: `sqlite://jobs.db`, `sqlite:///var/lib/app/jobs.db`, `memory://`, and with the feature
/// `redis` also `redis://host:6379`, `rediss://…`, `redis+sentinel://…` and `redis+cluster://…`.
///
/// What is asked of it can be [observed](crate::observe).
///
/// ```
/// # async fn example() -> windlass::Result<()> {
/// let store = windlass::open("memory://")?;
/// assert_eq!(store.info().await?.store, "memory");
/// # Ok(())
/// # }
/// ```
pub fn open(url: &str) -> Result<Arc<dyn Store>> {
    let scheme = url.split_once("://").map_or(url, |(scheme, _)| scheme);
    match scheme {
        "memory" => open_memory(url),
        #[cfg(feature = "sqlite")]
        "sqlite" => Ok(observe("sqlite", Arc::new(windlass_sqlite::SqliteStore::open_url(url)?))),
        #[cfg(not(feature = "sqlite"))]
        "sqlite" => Err(Error::invalid("store", "is built without the feature `sqlite`")),
        #[cfg(feature = "redis")]
        "redis" | "rediss" | "redis+sentinel" | "redis+cluster" => {
            Ok(observe("redis", Arc::new(windlass_redis::RedisStore::open_url(url)?)))
        }
        #[cfg(not(feature = "redis"))]
        "redis" | "rediss" | "redis+sentinel" | "redis+cluster" => {
            Err(Error::invalid("store", "is built without the feature `redis`"))
        }
        other => Err(Error::invalid(
            "store",
            format!(
                "`{other}` is no kind of store; write sqlite://jobs.db, redis://localhost or memory://{}",
                suggest(other)
            ),
        )),
    }
}

fn open_memory(url: &str) -> Result<Arc<dyn Store>> {
    match url {
        "memory" | "memory://" => Ok(observe("memory", Arc::new(MemoryStore::new()))),
        _ => Err(Error::invalid("store", format!("`{url}` names more than a memory store has; write memory://"))),
    }
}

fn suggest(scheme: &str) -> &'static str {
    let is_path = scheme.contains(['/', '.']) && !scheme.contains(':');
    if is_path { " (a file is named as sqlite://FILE)" } else { "" }
}

#[cfg(test)]
mod tests {
    use super::open;

    #[test]
    fn what_cannot_be_opened_says_what_would_be_right() {
        for (url, hint) in [
            ("jobs.db", "sqlite://FILE"),
            ("redis//localhost", "no kind of store"),
            ("memory://x", "write memory://"),
            ("", "sqlite://jobs.db"),
        ] {
            let error = open(url).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains(hint), "{url}: {error}");
        }
        assert!(open("memory://").is_ok());
    }
}
