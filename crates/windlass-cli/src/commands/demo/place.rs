//! Where the demo takes place: the store, and a directory for ledgers and the workers' words.

use super::args::Demo;
use crate::app::App;
use crate::failure::Failure;
use std::path::Path;
use tempfile::TempDir;

#[derive(Debug)]
pub(super) struct Place {
    pub(super) url: String,
    dir: TempDir,
    /// The store is our own.
    temporary: bool,
}

impl Place {
    pub(super) fn find(demo: &Demo, app: &App) -> Result<Self, Failure> {
        let named = app.url().filter(|_| is_named_on_the_command_line());
        if named.is_some_and(|url| url.starts_with("memory")) {
            let hint = "leave --store out for a temporary file, or say --store sqlite://demo.db";
            return Err(Failure::usage("the demo's workers are processes and cannot share memory://").hint(hint));
        }
        if named.is_some() && demo.keep {
            let hint = "leave --keep out: a store that was named is never removed";
            return Err(Failure::usage("--keep is for the temporary store").hint(hint));
        }
        let dir = tempfile::Builder::new().prefix("windlass-demo-").tempdir()?;
        let url = match named {
            Some(url) => url.to_owned(),
            None => format!("sqlite://{}", dir.path().join("jobs.db").display()),
        };
        Ok(Self { url, dir, temporary: named.is_none() })
    }

    pub(super) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// For the user: where it is.
    pub(super) fn words(&self) -> String {
        if self.temporary { format!("{} (temporary)", self.url) } else { self.url.clone() }
    }

    /// Removes what is temporary, or says where it is.
    pub(super) fn leave(mut self, keep: bool) -> Option<String> {
        if !keep {
            return None;
        }
        self.dir.disable_cleanup(true);
        let dir = self.dir.path().display();
        Some(format!("kept in {dir}; look at it with: windlass jobs list --store {}", self.url))
    }
}

/// A store from the environment or from a file is for real work, and was not named for a demo.
fn is_named_on_the_command_line() -> bool {
    std::env::args_os().any(|arg| arg == "--store" || arg.to_string_lossy().starts_with("--store="))
}
