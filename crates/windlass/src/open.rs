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
        "sqlite" => Err(built_without("sqlite")),
        #[cfg(feature = "redis")]
        "redis" | "rediss" | "redis+sentinel" | "redis+cluster" => {
            Ok(observe("redis", Arc::new(windlass_redis::RedisStore::open_url(url)?)))
        }
        #[cfg(not(feature = "redis"))]
        "redis" | "rediss" | "redis+sentinel" | "redis+cluster" => Err(built_without("redis")),
        other => Err(Error::invalid("store", unknown(other))),
    }
}

/// With the line that mends it.
#[cfg(any(test, not(feature = "sqlite"), not(feature = "redis")))]
fn built_without(feature: &str) -> Error {
    Error::invalid(
        "store",
        format!(
            "this program is built without the feature `{feature}`; write in its Cargo.toml: \
             windlass = {{ path = \"path/to/windlass/crates/windlass\", features = [\"{feature}\"] }}"
        ),
    )
}

/// Nothing is repeated that may hold a password.
fn unknown(scheme: &str) -> String {
    let shown = if scheme.contains('@') { "this".to_owned() } else { format!("`{scheme}`") };
    format!(
        "{shown} is no kind of store; write sqlite://jobs.db, redis://host:6379, rediss://host:6379, \
         redis+sentinel://host:26379/service, redis+cluster://host:6379 or memory://{}",
        suggest(scheme)
    )
}

fn open_memory(url: &str) -> Result<Arc<dyn Store>> {
    match url {
        "memory" | "memory://" => Ok(observe("memory", Arc::new(MemoryStore::new()))),
        _ => Err(Error::invalid("store", "the URL names more than a memory store has; write memory://")),
    }
}

fn suggest(scheme: &str) -> &'static str {
    let is_path = scheme.contains(['/', '.']) && !scheme.contains(':');
    if is_path { " (a file is named as sqlite://FILE)" } else { "" }
}

#[cfg(test)]
mod tests {
    use super::{built_without, open};

    #[test]
    fn what_cannot_be_opened_says_what_would_be_right() {
        for (url, hint) in [
            ("jobs.db", "sqlite://FILE"),
            ("redis//localhost", "no kind of store"),
            ("mongo://localhost", "redis+sentinel://host:26379/service"),
            ("memory://x", "write memory://"),
            ("", "sqlite://jobs.db"),
        ] {
            let error = open(url).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains(hint), "{url}: {error}");
        }
        assert!(open("memory://").is_ok());
    }

    #[test]
    fn a_password_is_not_repeated() {
        for url in ["redis//u:hunter2@h", "u:hunter2@h", "u:hunter2@h://x", "memory://u:hunter2@h"] {
            let error = open(url).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(!error.is_empty() && !error.contains("hunter2"), "{url}: {error}");
        }
    }

    #[test]
    fn a_feature_that_is_missing_is_shown_as_a_line_to_write() {
        let error = built_without("redis").to_string();
        assert!(error.contains(r#"features = ["redis"] }"#) && error.contains("Cargo.toml"), "{error}");
    }
}
