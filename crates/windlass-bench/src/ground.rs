//! A store that is measured, and the floor of its kind: the one place that knows which goes with which.

use crate::floor::{Floor, MemoryFloor, SqliteFloor};
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
    /// Gone when this is dropped. Last, so that the store has let go of its files.
    folder: Option<tempfile::TempDir>,
}

impl Ground {
    /// The store that a URL names.
    pub async fn open(url: &str) -> Result<Self> {
        if url.starts_with("sqlite://") {
            return Self::open_sqlite(Options::from_url(url)?, None);
        }
        let store = windlass::open(url)?;
        let kind = store.info().await?.store;
        let floor: Box<dyn Floor> = match kind.as_str() {
            "memory" => Box::new(MemoryFloor),
            other => return Err(Error::invalid("store", format!("no floor is known for `{other}`"))),
        };
        Ok(Self { store, floor, kind, folder: None })
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
        Ok(Self { store, floor, kind: "sqlite".to_owned(), folder })
    }

    /// True when it is gone afterwards.
    pub fn is_temporary(&self) -> bool {
        self.folder.is_some()
    }
}

impl std::fmt::Debug for Ground {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ground").field("kind", &self.kind).field("floor", &self.floor).finish_non_exhaustive()
    }
}
