//! A store that is measured, and the floor of its kind: the one place that knows which goes with which.

use crate::floor::{Floor, FloorError, MemoryFloor, RedisFloor, SqliteFloor};
use crate::meter::Meter;
use crate::server::{Server, own_name};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use windlass_core::store::{Durability, Store};
use windlass_core::{Error, Result};
use windlass_sqlite::{Options, SqliteStore};

/// A store and the floor of its kind.
pub struct Ground {
    /// The store.
    pub store: Arc<dyn Store>,
    /// What it costs at least.
    pub floor: Box<dyn Floor>,
    /// Which kind of store it is.
    pub kind: String,
    /// What stands behind it, where that is a server.
    server: Option<Arc<Server>>,
    /// Gone when this is dropped. Last, so that the store has let go of them.
    _keys: Option<OwnKeys>,
    _folder: Option<tempfile::TempDir>,
}

/// Keys under a prefix of our own, which go when this is dropped.
struct OwnKeys {
    server: Arc<Server>,
    prefix: String,
}

impl Ground {
    /// The store that a URL names.
    pub async fn open(url: &str) -> Result<Self> {
        if url.starts_with("sqlite://") {
            return Self::open_sqlite(Options::from_url(url)?, None);
        }
        if url.starts_with("redis") {
            return Self::open_redis(url);
        }
        let store = windlass::open(url)?;
        let kind = store.info().await?.store;
        let floor: Box<dyn Floor> = match kind.as_str() {
            "memory" => Box::new(MemoryFloor),
            other => return Err(Error::invalid("store", format!("no floor is known for `{other}`"))),
        };
        Ok(Self { store, floor, kind, server: None, _keys: None, _folder: None })
    }

    /// A SQLite file that is gone afterwards, in a folder below `dir` or among the system's temporary files.
    pub fn temporary(dir: Option<&Path>, durable: bool) -> Result<Self> {
        let mut builder = tempfile::Builder::new();
        builder.prefix("windlass-bench-");
        let made = match dir {
            Some(dir) => builder.tempdir_in(dir),
            None => builder.tempdir(),
        };
        let folder = made.map_err(|error| Error::Unavailable { reason: format!("no temporary folder: {error}") })?;
        let mut options = Options::new(folder.path().join("bench.db"));
        if !durable {
            options.synchronous = windlass_sqlite::Synchronous::Normal;
        }
        Self::open_sqlite(options, Some(folder))
    }

    fn open_sqlite(options: Options, folder: Option<tempfile::TempDir>) -> Result<Self> {
        let beside = options.path.parent().filter(|dir| !dir.as_os_str().is_empty());
        let floor = SqliteFloor::new(beside.map_or_else(|| PathBuf::from("."), Path::to_path_buf));
        let floor = if options.synchronous.durability() == Durability::Power { floor } else { floor.without_waiting() };
        let clock = Arc::new(windlass_core::time::SystemClock);
        let random = Arc::new(windlass_core::random::StrongRandom::from_system());
        let store = Arc::new(SqliteStore::open_with(options, clock, random)?);
        let floor = Box::new(floor.of(Arc::clone(&store)));
        Ok(Self { store, floor, kind: "sqlite".to_owned(), server: None, _keys: None, _folder: folder })
    }

    /// A prefix that the URL names is somebody's store and stays; without one, it is our own and goes afterwards.
    fn open_redis(url: &str) -> Result<Self> {
        if !url.starts_with("redis://") && !url.starts_with("rediss://") {
            let reason = "is more than one server, and a floor has only one; name one of them as redis://HOST:PORT";
            return Err(Error::invalid("store", reason));
        }
        let own = own_prefix(url);
        let store = windlass::open(own.as_ref().map_or(url, |(url, _)| url.as_str()))?;
        let server = Server::connect(url).map_err(|error| Error::Unavailable { reason: error.to_string() })?;
        let server = Arc::new(server);
        let keys = own.map(|(_, prefix)| OwnKeys { server: Arc::clone(&server), prefix });
        let floor = Box::new(RedisFloor::new(Arc::clone(&server)));
        Ok(Self { store, floor, kind: "redis".to_owned(), server: Some(server), _keys: keys, _folder: None })
    }

    /// Reads from now on what the server spends.
    pub fn meter(&self) -> Result<Meter<'_>, FloorError> {
        Meter::start(self.server.as_deref())
    }

    /// Bytes that the server holds, where there is one.
    pub fn memory(&self) -> Result<Option<u64>, FloorError> {
        self.server.as_ref().map(|server| server.memory()).transpose()
    }
}

impl std::fmt::Debug for Ground {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ground").field("kind", &self.kind).field("floor", &self.floor).finish_non_exhaustive()
    }
}

impl Drop for OwnKeys {
    fn drop(&mut self) {
        // A server that has gone away meanwhile holds nothing that matters.
        let _ = self.server.remove(&self.prefix);
    }
}

/// The URL with a prefix of our own, and that prefix; nothing when it has one.
fn own_prefix(url: &str) -> Option<(String, String)> {
    let (_, options) = url.split_once('?').unwrap_or((url, ""));
    if options.split('&').any(|option| option.starts_with("prefix=")) {
        return None;
    }
    let prefix = own_name("windlass-bench");
    let with = if url.contains('?') { '&' } else { '?' };
    Some((format!("{url}{with}prefix={prefix}"), prefix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_servers::Redis;

    #[test]
    fn a_prefix_that_is_named_is_kept_and_else_it_is_our_own() {
        assert_eq!(own_prefix("redis://h:1/?prefix=mine"), None);
        assert_eq!(own_prefix("redis://h:1/0?pool=2&prefix=mine"), None);
        let (url, prefix) = own_prefix("redis://h:1/").unwrap();
        assert_eq!(url, format!("redis://h:1/?prefix={prefix}"));
        let (url, prefix) = own_prefix("redis://h:1/0?pool=2").unwrap();
        assert_eq!(url, format!("redis://h:1/0?pool=2&prefix={prefix}"));
        assert!(prefix.starts_with("windlass-bench-"));
    }

    #[test]
    fn our_own_keys_go_and_others_stay() {
        let redis = Redis::start().unwrap();
        let server = Arc::new(Server::connect(&redis.url()).unwrap());
        let mut other = server.connection().unwrap();
        let (_, prefix) = own_prefix(&redis.url()).unwrap();
        for key in [format!("{{{prefix}}}:jobs"), format!("{prefix}:{{0}}:live"), "windlass-bench:jobs".to_owned()] {
            redis::cmd("SET").arg(key).arg(1).exec(&mut other).unwrap();
        }
        drop(OwnKeys { server, prefix });
        let left: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut other).unwrap();
        assert_eq!(left, ["windlass-bench:jobs"]);
    }

    #[tokio::test]
    async fn several_servers_are_refused_with_advice() {
        let error = Ground::open("redis+cluster://h:1").await.err().unwrap();
        assert!(error.to_string().contains("redis://HOST:PORT"), "{error}");
    }
}
