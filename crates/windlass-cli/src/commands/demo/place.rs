//! Where the demo takes place: the store, and a directory for ledgers and the workers' words.

use super::args::Demo;
use crate::app::{App, is_store_flag_given};
use crate::failure::Failure;
use std::path::Path;
use tempfile::TempDir;
use windlass_operate::store_url as scheme;
use windlass_operate::store_url::masked;

/// An option of the temporary store. A worker that is frozen while it writes holds up all others: on a busy machine for
/// longer than the usual 5 s.
const PATIENT: &str = "?busy_ms=60000";

#[derive(Debug)]
pub(super) struct Place {
    pub(super) url: String,
    dir: TempDir,
    /// The store is our own.
    temporary: bool,
}

impl Place {
    pub(super) fn find(demo: &Demo, app: &App) -> Result<Self, Failure> {
        let named = app.url().filter(|_| is_store_flag_given());
        named.map(scheme::check).transpose()?;
        if named.is_some_and(|url| url.starts_with("memory")) {
            let hint = "leave --store out for a temporary file, or say --store sqlite://demo.db";
            return Err(Failure::invalid("the demo's workers are processes and cannot share memory://").hint(hint));
        }
        if named.is_some() && demo.keep {
            let hint = "leave --keep out: a store that was named is never removed";
            return Err(Failure::invalid("--keep is for the temporary store").hint(hint));
        }
        let dir = tempfile::Builder::new().prefix("windlass-demo-").tempdir()?;
        let url = match named {
            Some(url) => url.to_owned(),
            None => format!("sqlite://{}{PATIENT}", dir.path().join("jobs.db").display()),
        };
        Ok(Self { url, dir, temporary: named.is_none() })
    }

    pub(super) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// For the user: where it is.
    pub(super) fn words(&self) -> String {
        if self.temporary { format!("{} (temporary)", self.shown_url()) } else { self.shown_url() }
    }

    /// The URL without passwords, and without what only the demo needs.
    pub(super) fn shown_url(&self) -> String {
        masked(self.url.strip_suffix(PATIENT).filter(|_| self.temporary).unwrap_or(&self.url))
    }

    /// Removes what is temporary, or says where it is.
    pub(super) fn leave(mut self, keep: bool) -> Option<String> {
        if !keep {
            return None;
        }
        self.dir.disable_cleanup(true);
        let (dir, url) = (self.dir.path().display(), self.shown_url());
        Some(format!("kept in {dir}; look at it with: windlass jobs list --store {url}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_not_shown_in_the_end_either() {
        let dir = tempfile::tempdir().unwrap();
        let (path, url) = (dir.path().to_owned(), "redis://ada:hunter2@localhost".to_owned());
        let place = Place { url, dir, temporary: false };
        assert_eq!(place.words(), "redis://***@localhost");
        let said = place.leave(true).unwrap();
        std::fs::remove_dir_all(path).unwrap();
        assert!(said.ends_with("--store redis://***@localhost"), "{said}");
    }
}
