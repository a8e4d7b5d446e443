//! Jobs that run commands: the steps of a workflow's job, each a process of its own.
//!
//! ```no_run
//! use windlass::Worker;
//! use windlass::command::Commands;
//!
//! # async fn example() -> windlass::Result<()> {
//! let store = windlass::open("sqlite://jobs.db")?;
//! let commands = Commands::new().secret("DEPLOY_KEY", std::env::var("DEPLOY_KEY").unwrap_or_default());
//! Worker::builder(store).commands(commands).build()?.run().await
//! # }
//! ```
//!
//! A step runs until its shell ends. Then, and when the job is cancelled, its time is over, its lease is lost or the worker
//! goes, its whole process group is ended; when the worker itself is killed, a watcher does it (`group.rs`), and the job's
//! folder is removed (`sweeper.rs`). What is trusted:
//! that nothing leaves its group. A step that calls `setsid` does, and may outlive its job; it cannot hold it up.

#[cfg(feature = "artifacts")]
mod artifacts;
mod environment;
mod error;
mod folder;
mod group;
mod mask;
mod output;
mod outputs;
mod payload;
mod run;
mod shell;
mod step;
mod sweeper;

use crate::handler::One;
use mask::Mask;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use windlass_core::{Error, Result};

/// The kind of jobs that run commands.
pub const KIND: &str = "windlass.command";

/// How commands are run; give it to [`WorkerBuilder::commands`](crate::WorkerBuilder::commands).
#[derive(Clone)]
#[must_use]
pub struct Commands {
    place: Place,
    grace: Duration,
    secrets: BTreeMap<String, String>,
    passed: BTreeSet<String>,
    limits: Limits,
    error_lines: usize,
    #[cfg(feature = "artifacts")]
    artifacts: Option<Arc<dyn crate::artifacts::ArtifactStore>>,
}

/// Where they run.
#[derive(Clone, Debug)]
enum Place {
    /// Each job in a fresh folder under this one, or under the system's for temporary files.
    Fresh(Option<PathBuf>),
    /// All jobs in this one.
    Fixed(PathBuf),
}

/// What a command may use; each process of a step by itself, except where it says otherwise. Nothing is limited by default,
/// and no command dumps core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Seconds of processor time.
    pub cpu_seconds: Option<u64>,
    /// Bytes of address space.
    pub address_space: Option<u64>,
    /// Bytes of a file that it writes.
    pub file_size: Option<u64>,
    /// Open files.
    pub open_files: Option<u64>,
    /// Processes of the same user, all of them counted, on the whole machine.
    pub processes: Option<u64>,
}

impl Default for Commands {
    fn default() -> Self {
        Self::new()
    }
}

impl Commands {
    /// In fresh folders, without secrets or limits.
    pub fn new() -> Self {
        Self {
            place: Place::Fresh(None),
            grace: Duration::from_secs(5),
            secrets: BTreeMap::new(),
            passed: BTreeSet::new(),
            limits: Limits::default(),
            error_lines: 20,
            #[cfg(feature = "artifacts")]
            artifacts: None,
        }
    }

    /// Each job has a fresh folder under this one, which is removed when it ends. By default they are made where the system
    /// keeps temporary files.
    pub fn work_dir(mut self, base: impl Into<PathBuf>) -> Self {
        self.place = Place::Fresh(Some(base.into()));
        self
    }

    /// All jobs run in this folder, which is left as it is. Then `HOME` is the worker's own, and a `working-directory` may
    /// lead anywhere. For runs on a developer's machine.
    pub fn in_folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.place = Place::Fixed(folder.into());
        self
    }

    /// How long commands that are told to end (SIGTERM) have until they are killed (SIGKILL). 5 s when not said; at most
    /// half a second when the worker goes or the lease is lost.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// A value that commands have in their environment, and nobody sees: it is `***` in logs and errors, and an output that
    /// contains it is refused. Of a value with several lines each line of more than three bytes is hidden.
    pub fn secret(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.secrets.insert(name.into(), value.into());
        self
    }

    /// Passes this variable of the worker's own environment on, if it is set. Otherwise commands see none but `PATH`, `LANG`
    /// and `LC_ALL`.
    pub fn pass(mut self, name: impl Into<String>) -> Self {
        self.passed.insert(name.into());
        self
    }

    /// What a command may use.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// How many of its last lines the error of a failed step tells. 20 when not said.
    pub fn error_lines(mut self, lines: usize) -> Self {
        self.error_lines = lines;
        self
    }

    /// Where the files are kept that jobs hand on, see [`artifacts::open`](crate::artifacts::open): the same place for all
    /// workers. Without one, a job that names artifacts fails.
    #[cfg(feature = "artifacts")]
    pub fn artifacts(mut self, store: Arc<dyn crate::artifacts::ArtifactStore>) -> Self {
        self.artifacts = Some(store);
        self
    }

    pub(crate) fn grace_time(&self) -> Duration {
        self.grace
    }

    /// Refuses what can never work.
    pub(crate) fn check(&self) -> Result<()> {
        let names =
            self.secrets.keys().map(|name| ("secret", name)).chain(self.passed.iter().map(|name| ("pass", name)));
        for (field, name) in names {
            if !environment::is_name(name) {
                let name = name.escape_debug();
                return Err(Error::invalid(field, format!("`{name}` is no name for a variable; use A-Z, 0-9 and _")));
            }
        }
        match self.secrets.iter().find(|(_, value)| value.contains('\0')) {
            Some((name, _)) => Err(Error::invalid("secret", format!("`{name}` holds a NUL, which no variable can"))),
            None => Ok(()),
        }
    }

    pub(crate) fn into_route(self) -> One {
        let mask = Mask::of(self.secrets.values().map(String::as_str));
        let commands = Arc::new((self, mask));
        Arc::new(move |ctx| {
            let commands = Arc::clone(&commands);
            Box::pin(async move { run::run(&commands.0, &commands.1, &ctx).await })
        })
    }
}

impl fmt::Debug for Commands {
    /// Without the secrets' values.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Commands");
        shown
            .field("place", &self.place)
            .field("grace", &self.grace)
            .field("secrets", &self.secrets.keys())
            .field("passed", &self.passed)
            .field("limits", &self.limits)
            .field("error_lines", &self.error_lines);
        #[cfg(feature = "artifacts")]
        shown.field("artifacts", &self.artifacts);
        shown.finish()
    }
}
