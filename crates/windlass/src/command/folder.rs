//! The folders of a job: the one that its commands run in, and one beside it for what we put there.
//!
//! ```text
//! windlass-…/          removed when the job ends; nobody else may look into it
//!   work/              where commands run, unless that is a folder of the user's
//!   tmp/               TMPDIR
//!   outputs            WINDLASS_OUTPUT
//!   needs.json         WINDLASS_NEEDS
//!   step-1             the script
//! ```

use super::error::CommandError;
use super::sweeper::Sweeper;
use super::{Commands, Place};
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};
use tempfile::TempDir;

/// How often a folder is tried to be removed: somebody may still write into it.
const TRIES: u32 = 3;

/// Removed when it is dropped.
#[derive(Debug)]
pub(super) struct Folder {
    root: PathBuf,
    work: PathBuf,
    fixed: bool,
    /// For the case that nobody is there to drop it.
    _sweeper: Option<Sweeper>,
}

impl Folder {
    pub(super) fn make(commands: &Commands) -> Result<Self, CommandError> {
        let base = match &commands.place {
            Place::Fresh(Some(base)) => base.clone(),
            Place::Fresh(None) | Place::Fixed(_) => std::env::temp_dir(),
        };
        fs::create_dir_all(&base).map_err(CommandError::file(&base))?;
        // Commands run elsewhere than the worker does.
        let base = base.canonicalize().map_err(CommandError::file(&base))?;
        let own = fs::Permissions::from_mode(0o700);
        let made = tempfile::Builder::new().prefix("windlass-").permissions(own).tempdir_in(&base);
        let root = made.map(TempDir::keep).map_err(CommandError::file(&base))?;
        let (work, fixed) = match &commands.place {
            Place::Fresh(_) => (root.join("work"), false),
            Place::Fixed(folder) => (folder.clone(), true),
        };
        // It is told of the folder that was made here, never of one that was there before.
        let sweeper = Sweeper::start(&root).inspect_err(|error| {
            tracing::warn!(folder = %root.display(), %error, "a job's folder stays if its worker is killed");
        });
        let mut this = Self { root, work, fixed, _sweeper: sweeper.ok() };
        fs::create_dir(this.temporary()).map_err(CommandError::file(&this.root))?;
        fs::write(this.outputs(), "").map_err(CommandError::file(this.outputs()))?;
        if !fixed {
            fs::create_dir(&this.work).map_err(CommandError::file(&this.work))?;
        }
        this.work = this.work.canonicalize().map_err(CommandError::file(&this.work))?;
        Ok(this)
    }

    pub(super) fn work(&self) -> &Path {
        &self.work
    }

    pub(super) fn temporary(&self) -> PathBuf {
        self.root.join("tmp")
    }

    pub(super) fn outputs(&self) -> PathBuf {
        self.root.join("outputs")
    }

    pub(super) fn needs(&self) -> PathBuf {
        self.root.join("needs.json")
    }

    /// Puts a script where its shell finds it.
    pub(super) fn put_script(&self, step: usize, script: &str) -> Result<PathBuf, CommandError> {
        let path = self.root.join(format!("step-{step}"));
        fs::write(&path, script).map_err(CommandError::file(&path))?;
        Ok(path)
    }

    /// Where a step runs.
    pub(super) fn working(&self, asked: Option<&str>) -> Result<PathBuf, CommandError> {
        let Some(asked) = asked else { return Ok(self.work.clone()) };
        let outside = || CommandError::Outside(asked.to_owned());
        if !self.fixed && climbs_out(Path::new(asked)) {
            return Err(outside());
        }
        let missing = || CommandError::NoFolder(asked.to_owned());
        let path = self.work.join(asked).canonicalize().map_err(|_| missing())?;
        if !path.is_dir() {
            return Err(missing());
        }
        // A link may lead out as well.
        if !self.fixed && !path.starts_with(&self.work) {
            return Err(outside());
        }
        Ok(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.root) {
            tracing::warn!(folder = %self.root.display(), %error, "a job's folder could not be removed");
        }
    }
}

fn climbs_out(path: &Path) -> bool {
    let mut depth = 0_i64;
    path.components().any(|part| {
        depth += match part {
            Component::Normal(_) => 1,
            Component::CurDir => 0,
            Component::ParentDir => -1,
            Component::RootDir | Component::Prefix(_) => return true,
        };
        depth < 0
    })
}

fn remove(folder: &Path) -> io::Result<()> {
    let mut last = Ok(());
    for _ in 0..TRIES {
        last = match fs::remove_dir_all(folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                // Some tools take the right to write from the folders they make.
                give_rights(folder);
                Err(error)
            }
            _ => return Ok(()),
        };
    }
    last
}

/// Follows no links. What cannot be changed shows when it cannot be removed.
fn give_rights(folder: &Path) {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let _ = fs::set_permissions(&folder, fs::Permissions::from_mode(0o700));
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(entry.path());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_climbs_out_is_known_by_its_looks() {
        assert!(["..", "a/../..", "/etc", "a/../../b"].iter().all(|path| climbs_out(Path::new(path))));
        assert!(!["a", "a/..", "./a/../b", ""].iter().any(|path| climbs_out(Path::new(path))));
    }

    #[test]
    fn nobody_else_may_look_into_it() {
        let (base, fixed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for commands in [Commands::new().work_dir(base.path()), Commands::new().in_folder(fixed.path())] {
            let folder = Folder::make(&commands).unwrap();
            assert_eq!(folder.root.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        }
    }

    #[test]
    fn a_folder_is_removed_although_nothing_may_be_written_in_it() {
        let base = tempfile::tempdir().unwrap();
        let folder = Folder::make(&Commands::new().work_dir(base.path())).unwrap();
        let closed = folder.work().join("closed");
        fs::create_dir(&closed).unwrap();
        fs::write(closed.join("file"), "x").unwrap();
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o500)).unwrap();
        drop(folder);
        assert_eq!(fs::read_dir(base.path()).unwrap().count(), 0);
    }
}
