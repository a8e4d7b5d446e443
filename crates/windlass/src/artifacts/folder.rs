//! A folder that nothing leads out of: every step below it starts from an open folder and follows no symlink.

use super::{ArtifactError, ArtifactResult, unavailable};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, mkdirat, openat, renameat, statat, unlinkat};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::Path;

/// What stands at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    File { size: u64, executable: bool },
    Folder,
    Link,
    Other,
}

impl Kind {
    fn of(stat: &Stat) -> Self {
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {
                let executable = Mode::from_raw_mode(stat.st_mode).contains(Mode::XUSR);
                Self::File { size: u64::try_from(stat.st_size).unwrap_or(0), executable }
            }
            FileType::Directory => Self::Folder,
            FileType::Symlink => Self::Link,
            _ => Self::Other,
        }
    }
}

/// An open folder. Paths below it have been checked: no empty parts, no `..`.
#[derive(Debug)]
pub(super) struct Folder(OwnedFd);

const ENTER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

impl Folder {
    /// Opens the folder itself, whose path is the caller's and may go over links.
    pub(super) fn open(path: &Path) -> ArtifactResult<Self> {
        let flags = ENTER.difference(OFlags::NOFOLLOW);
        let fd = openat(CWD, path, flags, Mode::empty()).map_err(|errno| match errno {
            Errno::NOENT | Errno::NOTDIR => ArtifactError::NotFound { what: format!("the folder {}", path.display()) },
            Errno::ACCESS | Errno::PERM => ArtifactError::refused(path.display(), "no right to look into this folder"),
            _ => unavailable(path.display(), errno),
        })?;
        Ok(Self(fd))
    }

    /// The folder at this path; the empty path is this folder.
    pub(super) fn enter(&self, path: &str) -> ArtifactResult<Self> {
        let mut at = Self(openat(&self.0, ".", ENTER, Mode::empty()).map_err(|errno| unavailable(path, errno))?);
        for (part, upto) in parts(path) {
            let next = openat(&at.0, part, ENTER, Mode::empty());
            at = Self(next.map_err(|errno| at.refusal(part, upto, errno))?);
        }
        Ok(at)
    }

    /// The same, making the folders that are missing.
    pub(super) fn enter_or_make(&self, path: &str) -> ArtifactResult<Self> {
        let mut at = self.enter("")?;
        for (part, upto) in parts(path) {
            match mkdirat(&at.0, part, Mode::from_raw_mode(0o777)) {
                Ok(()) | Err(Errno::EXIST) => at = at.enter(part).map_err(|error| renamed(error, upto))?,
                Err(errno) => return Err(at.refusal(part, upto, errno)),
            }
        }
        Ok(at)
    }

    /// A new folder of this name, that only its owner may enter; `None` if the name is taken.
    pub(super) fn make(&self, name: &str) -> ArtifactResult<Option<Self>> {
        match mkdirat(&self.0, name, Mode::RWXU) {
            Ok(()) => self.enter(name).map(Some),
            Err(Errno::EXIST) => Ok(None),
            Err(errno) => Err(self.refusal(name, name, errno)),
        }
    }

    /// What stands at this path, if anything. A link on the way is refused.
    pub(super) fn kind(&self, path: &str) -> ArtifactResult<Option<Kind>> {
        let (folder, name) = split(path);
        let at = match self.enter(folder) {
            Ok(at) => at,
            Err(ArtifactError::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        match statat(&at.0, if name.is_empty() { "." } else { name }, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(Kind::of(&stat))),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(at.refusal(name, path, errno)),
        }
    }

    /// Opens a file for reading. What is no plain file is refused, also if it became so just now.
    pub(super) fn read(&self, path: &str) -> ArtifactResult<std::fs::File> {
        let (folder, name) = split(path);
        let at = self.enter(folder)?;
        // Without waiting: a pipe would wait for a writer.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fd = openat(&at.0, name, flags, Mode::empty()).map_err(|errno| at.refusal(name, path, errno))?;
        let stat = rustix::fs::fstat(&fd).map_err(|errno| unavailable(path, errno))?;
        match Kind::of(&stat) {
            Kind::File { .. } => Ok(fd.into()),
            _ => Err(ArtifactError::refused(path, NO_FILE)),
        }
    }

    /// A new file right here.
    pub(super) fn create(&self, name: &str, executable: bool) -> ArtifactResult<std::fs::File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(if executable { 0o777 } else { 0o666 });
        Ok(openat(&self.0, name, flags, mode).map_err(|errno| self.refusal(name, name, errno))?.into())
    }

    /// Moves what is right here to that name in another folder, in the place of a file that stands there.
    pub(super) fn move_to(&self, name: &str, folder: &Folder, new_name: &str) -> ArtifactResult<()> {
        renameat(&self.0, name, &folder.0, new_name).map_err(|errno| folder.refusal(new_name, new_name, errno))
    }

    /// Removes a file right here; what is not there is as good.
    pub(super) fn remove_file(&self, name: &str) {
        let _ = unlinkat(&self.0, name, AtFlags::empty());
    }

    /// Removes an empty folder right here.
    pub(super) fn remove_folder(&self, name: &str) {
        let _ = unlinkat(&self.0, name, AtFlags::REMOVEDIR);
    }

    /// What is in the folder at this path, with at most so many entries. A name that is no UTF-8 is shown as near as can be.
    pub(super) fn entries(&self, path: &str, max: usize) -> ArtifactResult<Vec<Entry>> {
        let at = self.enter(path)?;
        let mut entries = Vec::new();
        for entry in Dir::read_from(&at.0).map_err(|errno| unavailable(path, errno))? {
            let entry = entry.map_err(|errno| unavailable(path, errno))?;
            let bytes = entry.file_name().to_bytes();
            if matches!(bytes, b"." | b"..") {
                continue;
            }
            if entries.len() == max {
                return Err(ArtifactError::refused(path, "there is too much in this folder; name a smaller one"));
            }
            match statat(&at.0, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => {
                    let name = String::from_utf8_lossy(bytes).into_owned();
                    entries.push(Entry { name, is_text: std::str::from_utf8(bytes).is_ok(), kind: Kind::of(&stat) });
                }
                // It went away in between.
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(unavailable(path, errno)),
            }
        }
        Ok(entries)
    }

    /// Why `name` in this folder could not be used; `path` is how the caller knows it.
    fn refusal(&self, name: &str, path: &str, errno: Errno) -> ArtifactError {
        match errno {
            Errno::NOENT => ArtifactError::NotFound { what: path.to_owned() },
            Errno::LOOP | Errno::MLINK | Errno::NOTDIR | Errno::ISDIR | Errno::NXIO => {
                let is_link =
                    statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|stat| Kind::of(&stat) == Kind::Link);
                ArtifactError::refused(
                    path,
                    if is_link { LINK } else { "a folder and a file stand in each other's place" },
                )
            }
            Errno::ACCESS | Errno::PERM => ArtifactError::refused(path, "the file system does not permit it"),
            _ => unavailable(path, errno),
        }
    }
}

/// Why links are refused.
pub(super) const LINK: &str = "it is a symlink, and none is followed; put the file itself there";
/// Why pipes, sockets and devices are refused.
pub(super) const NO_FILE: &str = "it is neither a file nor a folder";

/// One thing in a folder.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: String,
    /// False if the name is no UTF-8.
    pub(super) is_text: bool,
    pub(super) kind: Kind,
}

/// Folder and name of a path.
pub(super) fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

/// The parts of a path, each with the path up to it.
fn parts(path: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut end = 0;
    path.split('/').filter(|part| !part.is_empty()).map(move |part| {
        let begin = if end == 0 { 0 } else { end + 1 };
        end = begin + part.len();
        (part, &path[..end])
    })
}

/// The same error, about the whole path.
fn renamed(error: ArtifactError, path: &str) -> ArtifactError {
    match error {
        ArtifactError::Refused { why, .. } => ArtifactError::refused(path, why),
        other => other,
    }
}
