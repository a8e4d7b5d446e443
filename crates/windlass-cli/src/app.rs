//! What every command has at hand.

use crate::cli::Cli;
use crate::config::Config;
use crate::failure::Failure;
use crate::ui::Ui;
use parking_lot::Mutex;
use std::sync::Arc;
use windlass::Error;
use windlass::core::store::Store;
use windlass_operate::{ErrorKind, store_url};
use windlass_sqlite::Options;

/// What every command has at hand.
pub(crate) struct App {
    pub(crate) ui: Ui,
    store: Option<String>,
    /// The store that was opened last.
    opened: Mutex<Option<Arc<dyn Store>>>,
    /// It is `doctor` that runs.
    examines: bool,
}

impl App {
    /// What is said on the command line comes before the environment, the environment before `windlass.toml`.
    pub(crate) fn new(cli: &Cli) -> Result<Self, Failure> {
        let config = Config::read()?;
        let (global, doctor) = (&cli.global, cli.command.doctor());
        let named = doctor.and_then(|doctor| doctor.url.as_ref());
        if named.is_some_and(|url| is_store_flag_given() && global.store.as_ref() != Some(url)) {
            return Err(Failure::invalid("two stores are named").hint("leave --store out, or the URL behind `doctor`"));
        }
        Ok(Self {
            ui: Ui::new(global.json),
            store: named.or(global.store.as_ref()).filter(|url| !url.is_empty()).cloned().or(config.store),
            opened: Mutex::default(),
            examines: doctor.is_some(),
        })
    }

    /// The URL that was given, if one was.
    pub(crate) fn url(&self) -> Option<&str> {
        self.store.as_deref()
    }

    /// The same without a store, for a command that uses one of its own: no advice names the other one.
    pub(crate) fn without_store(&self) -> Self {
        Self { ui: self.ui, store: None, opened: Mutex::default(), examines: self.examines }
    }

    /// Opens the store that was named. An embedded one is made if it is not there.
    pub(crate) fn store(&self) -> Result<Arc<dyn Store>, Failure> {
        self.open(true)
    }

    /// Opens the store that was named, if it is there: who only looks must leave no empty file behind.
    pub(crate) fn existing(&self) -> Result<Arc<dyn Store>, Failure> {
        self.open(false)
    }

    /// Closes the store, if one was opened: what it has acknowledged is on disk then.
    pub(crate) async fn close(&self) -> Result<(), Failure> {
        let opened = self.opened.lock().take();
        match opened {
            Some(store) => Ok(store.close().await?),
            None => Ok(()),
        }
    }

    /// How the store is opened, if it is one on Redis.
    pub(crate) fn redis(&self) -> Result<Option<windlass_redis::Options>, Failure> {
        let url = self.url().filter(|url| is_redis(url));
        Ok(url.map(windlass_redis::Options::from_url).transpose()?)
    }

    /// What to do about it, where the store is a server that may be elsewhere, down, or not what it should be.
    pub(crate) fn advise(&self, failure: Failure) -> Failure {
        if !self.url().is_some_and(is_redis) || failure.hint.is_some() {
            return failure;
        }
        // Whoever has just asked the doctor is not sent to it again.
        let doctor = if self.examines { "" } else { "; then: windlass doctor" };
        match &failure.cause {
            Some(Error::Unavailable { reason }) if reason.contains("busy with a script") => {
                failure.hint("wait until it is done, or end it: redis-cli SCRIPT KILL")
            }
            // It says itself what to write.
            Some(Error::Unavailable { reason }) if reason.contains("rediss://") => failure,
            Some(Error::Unavailable { .. }) => failure.hint(format!(
                "is the server up, and is its address right? try: redis-cli -h HOST -p PORT ping{doctor}"
            )),
            Some(Error::Timeout { .. }) => failure
                .hint(format!("the server hangs or is far away; try again, or timeout_ms=30000 in the URL{doctor}")),
            Some(Error::Unknown { .. }) => {
                failure.hint("it may have happened or not: look before you repeat it, as with windlass jobs list")
            }
            // The server is there, and no store can live on it as it is.
            Some(Error::Incompatible { .. }) if self.examines => unavailable(failure),
            Some(Error::Incompatible { .. }) => unavailable(failure).hint("windlass doctor says what to change"),
            _ => failure,
        }
    }

    fn open(&self, create: bool) -> Result<Arc<dyn Store>, Failure> {
        let url = self.url().ok_or_else(|| {
            Failure::invalid("no store is named")
                .hint("say --store sqlite://jobs.db, set WINDLASS_STORE, or write `store = \"…\"` into windlass.toml")
        })?;
        store_url::check(url)?;
        if url.starts_with("memory") {
            self.ui.note("note: memory:// is empty at the start of every command and gone at its end");
        }
        if self.redis()?.is_some_and(|options| options.allow_eviction) && !self.examines {
            self.ui.note(
                "note: allow_eviction=true: a server that deletes keys when its memory is full may lose all jobs at once; \
                 windlass doctor says whether this one does",
            );
        }
        let sqlite = url.starts_with("sqlite://");
        if sqlite {
            Options::from_url(url)?;
        }
        let opened = match create || !sqlite || says_create(url) {
            true => windlass::open(url),
            false => windlass::open(&format!("{url}{}create=false", if url.contains('?') { '&' } else { '?' })),
        };
        let opened = opened.map_err(if sqlite { cannot_open } else { Failure::from })?;
        *self.opened.lock() = Some(Arc::clone(&opened));
        Ok(opened)
    }
}

/// Whether the URL names a server of that kind.
fn is_redis(url: &str) -> bool {
    url.starts_with("redis://") || url.starts_with("rediss://") || url.starts_with("redis+")
}

/// The URL decides itself.
fn says_create(url: &str) -> bool {
    url.split_once('?').is_some_and(|(_, query)| query.split('&').any(|pair| pair.starts_with("create=")))
}

/// Whether `--store` stands on the command line: what the environment or a file says was not named for this command.
pub(crate) fn is_store_flag_given() -> bool {
    let mut before_the_rest = std::env::args_os().take_while(|arg| arg != "--");
    before_the_rest.any(|arg| arg == "--store" || arg.to_string_lossy().starts_with("--store="))
}

/// The same, as a matter of the store.
fn unavailable(failure: Failure) -> Failure {
    Failure { kind: ErrorKind::Unavailable, ..failure }
}

/// Whatever keeps a store from being opened, it is the store that is not available, and not the command that is wrong.
fn cannot_open(error: Error) -> Failure {
    match error {
        Error::NotFound { what } => {
            unavailable(Failure::failed(format!("no such file: {}", what.trim_start_matches("the file "))))
                .hint("check --store; the first `windlass enqueue` or `windlass run` makes the file")
        }
        Error::Invalid { reason, .. } => unavailable(Failure::failed(format!("the store cannot be opened: {reason}"))),
        other => unavailable(other.into()),
    }
}
