//! Artifacts: files that the jobs of a run hand on. The words, the rules for names and paths, and the contract of what
//! keeps them; nothing here reads or writes a file.
//!
//! What is trusted: nothing that came from a store. A manifest is checked before anything is done with it, and content can
//! only be had through [`Checked`], which holds it against the manifest's size and checksum.

use crate::name::text_type;
use async_trait::async_trait;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The most files of an artifact.
pub const FILES_MAX: usize = 10_000;
/// The longest path of a file within its artifact, in bytes.
pub const PATH_BYTES_MAX: usize = 1_024;
/// The longest part of a path, in bytes: what file systems take.
const PART_BYTES_MAX: usize = 255;
/// The bytes of an artifact unless the limits say otherwise: 2 GiB.
pub const BYTES_MAX: u64 = 2 << 30;
/// The version of the manifests that are written and read.
const VERSION: u32 = 1;

/// The result of everything that artifacts can fail at.
pub type ArtifactResult<T> = Result<T, ArtifactError>;

/// What went wrong with an artifact.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArtifactError {
    /// There is no such artifact, or a pattern matched nothing.
    #[error("not found: {what}")]
    NotFound {
        /// What was looked for.
        what: String,
    },
    /// A path that must not be followed, or a name, a pattern or a URL that makes no sense.
    #[error("refused `{path}`: {why}")]
    Refused {
        /// The path as it was given.
        path: String,
        /// Why, and what would be right.
        why: String,
    },
    /// A limit was exceeded.
    #[error("{what} is {got}, at most {max} is allowed")]
    TooLarge {
        /// What exceeds its limit.
        what: String,
        /// The limit.
        max: u64,
        /// What there is, at least.
        got: u64,
    },
    /// What is stored is not what was uploaded.
    #[error("`{path}` is damaged: {why}; upload the artifact again")]
    Damaged {
        /// The file, or the manifest.
        path: String,
        /// How.
        why: String,
    },
    /// The store or the disk cannot be reached or is full. Nothing is visible of what was not finished.
    #[error("the artifact store is unavailable: {reason}; try again")]
    Unavailable {
        /// What it said.
        reason: String,
    },
}

impl ArtifactError {
    /// A path that is refused.
    pub fn refused(path: impl fmt::Display, why: impl Into<String>) -> Self {
        Self::Refused { path: shown(&path.to_string()), why: why.into() }
    }

    /// Content that is not what was uploaded.
    pub fn damaged(path: impl fmt::Display, why: impl Into<String>) -> Self {
        Self::Damaged { path: shown(&path.to_string()), why: why.into() }
    }

    /// True when the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }
}

/// At most 200 characters and no control characters: names come from elsewhere, and errors go to terminals.
fn shown(text: &str) -> String {
    let plain = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().take(200).map(plain).collect()
}

text_type!(
    /// The run that an artifact belongs to, as the artifact store knows it: 1 to 64 of `A-Z a-z 0-9 _ -`.
    RunKey,
    ArtifactError,
    |text| check_run(text).map_err(|why| ArtifactError::refused(text, why))
);
text_type!(
    /// The name of an artifact within its run: 1 to 100 of `A-Z a-z 0-9 - _ .`, not `.` or `..`.
    ArtifactName,
    ArtifactError,
    |text| check_name(text).map_err(|why| ArtifactError::refused(text, why))
);
text_type!(
    /// Where a file stands within its artifact: parts with `/` between them, never upwards, never from the root.
    FilePath,
    ArtifactError,
    |text| check_path(text).map_err(|why| ArtifactError::refused(text, why))
);

fn check_run(text: &str) -> Result<(), String> {
    let right = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let fits = (1..=64).contains(&text.len()) && text.chars().all(right);
    if fits { Ok(()) } else { Err("a run is named by 1 to 64 letters, digits, `_` and `-`".into()) }
}

fn check_name(text: &str) -> Result<(), String> {
    let right = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let fits = (1..=100).contains(&text.len()) && text.chars().all(right) && !matches!(text, "." | "..");
    if fits { Ok(()) } else { Err("an artifact is named by 1 to 100 letters, digits, `-`, `_` and `.`".into()) }
}

fn check_path(text: &str) -> Result<(), String> {
    if text.is_empty() || text.len() > PATH_BYTES_MAX {
        return Err(format!("a path has 1 to {PATH_BYTES_MAX} bytes"));
    }
    if text.chars().any(char::is_control) {
        return Err("a path has no control characters".into());
    }
    if text.starts_with('/') {
        return Err("a path is relative; leave out the `/` at its beginning".into());
    }
    text.split('/').try_for_each(|part| match part {
        "" => Err("a path has no empty parts".into()),
        "." | ".." => Err("a path has no `.` or `..`".into()),
        _ if part.len() > PART_BYTES_MAX => Err(format!("a part of a path has at most {PART_BYTES_MAX} bytes")),
        _ => Ok(()),
    })
}

/// Which artifact.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Artifact {
    /// The run it belongs to.
    pub run: RunKey,
    /// Its name there.
    pub name: ArtifactName,
}

impl Artifact {
    /// Checks both.
    pub fn new(run: impl AsRef<str>, name: impl AsRef<str>) -> ArtifactResult<Self> {
        Ok(Self { run: RunKey::new(run)?, name: ArtifactName::new(name)? })
    }
}

impl fmt::Display for Artifact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the artifact {} of the run {}", self.name, self.run)
    }
}

/// What an artifact may be, when it is uploaded and when it is downloaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most files; never more than [`FILES_MAX`].
    pub files: usize,
    /// The most bytes of all files together.
    pub bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { files: FILES_MAX, bytes: BYTES_MAX }
    }
}

impl Limits {
    /// Whether so many files may be.
    pub fn check_files(&self, files: usize) -> ArtifactResult<()> {
        let max = self.files.min(FILES_MAX);
        if files <= max {
            return Ok(());
        }
        Err(ArtifactError::TooLarge { what: "the number of files".into(), max: max as u64, got: files as u64 })
    }

    /// Whether so many bytes may be.
    pub fn check_bytes(&self, bytes: u64) -> ArtifactResult<()> {
        if bytes <= self.bytes {
            return Ok(());
        }
        Err(ArtifactError::TooLarge { what: "the size in bytes".into(), max: self.bytes, got: bytes })
    }
}

/// One file of an artifact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Where it stands.
    pub path: FilePath,
    /// Its size in bytes.
    pub size: u64,
    /// The BLAKE3 hash of its content, which is also the name that it is stored under.
    pub blake3: Digest,
    /// Whether it may be executed; nothing else of its mode is kept.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub executable: bool,
}

/// A BLAKE3 hash; 64 hexadecimal digits as text.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(blake3::Hash);

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.to_hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<blake3::Hash> for Digest {
    fn from(hash: blake3::Hash) -> Self {
        Self(hash)
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> String {
        digest.to_string()
    }
}

impl TryFrom<String> for Digest {
    type Error = ArtifactError;
    fn try_from(text: String) -> ArtifactResult<Self> {
        let hash = blake3::Hash::from_hex(&text).map_err(|_| ArtifactError::refused(&text, "no BLAKE3 hash"))?;
        Ok(Self(hash))
    }
}

/// What an artifact consists of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    version: u32,
    files: Vec<FileEntry>,
}

impl Manifest {
    /// Of these files. No two may have the same path, and none may be the folder of another.
    pub fn new(mut files: Vec<FileEntry>) -> ArtifactResult<Self> {
        Limits::default().check_files(files.len())?;
        // By parts, so that what is below a path stands right behind it.
        files.sort_by(|a, b| a.path.as_str().split('/').cmp(b.path.as_str().split('/')));
        for pair in files.windows(2) {
            let (first, second) = (pair[0].path.as_str(), pair[1].path.as_str());
            let rest = second.strip_prefix(first);
            if rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) {
                return Err(ArtifactError::refused(second, "its path is taken by another file"));
            }
        }
        Ok(Self { version: VERSION, files })
    }

    /// From its stored text, which is checked like everything that comes from elsewhere.
    pub fn from_json(text: &[u8]) -> ArtifactResult<Self> {
        let damaged = |why: String| ArtifactError::damaged("the manifest", why);
        let read: Self = serde_json::from_slice(text).map_err(|error| damaged(shown(&error.to_string())))?;
        if read.version != VERSION {
            return Err(damaged(format!("it has version {}, this program reads {VERSION}", read.version)));
        }
        Self::new(read.files).map_err(|error| damaged(error.to_string()))
    }

    /// The text that is stored.
    pub fn to_json(&self) -> ArtifactResult<Vec<u8>> {
        serde_json::to_vec(self).map_err(|error| ArtifactError::damaged("the manifest", error.to_string()))
    }

    /// The files, ordered by path.
    pub fn files(&self) -> &[FileEntry] {
        &self.files
    }

    /// The bytes of all files together.
    pub fn bytes(&self) -> u64 {
        self.files.iter().fold(0, |sum, file| sum.saturating_add(file.size))
    }
}

/// Content, piece by piece.
#[async_trait]
pub trait Pieces: Send {
    /// The next piece; `None` at the end.
    async fn next(&mut self) -> ArtifactResult<Option<Bytes>>;
}

/// Content that is held against its manifest while it is read: the end is only reached if size and checksum are right.
pub struct Checked {
    pieces: Box<dyn Pieces>,
    expected: FileEntry,
    hasher: blake3::Hasher,
    size: u64,
}

impl Checked {
    /// Holds these pieces against that file.
    pub fn new(expected: FileEntry, pieces: Box<dyn Pieces>) -> Self {
        Self { pieces, expected, hasher: blake3::Hasher::new(), size: 0 }
    }
}

#[async_trait]
impl Pieces for Checked {
    async fn next(&mut self) -> ArtifactResult<Option<Bytes>> {
        let damaged = |why: &str| Err(ArtifactError::damaged(&self.expected.path, why));
        let Some(piece) = self.pieces.next().await? else {
            return match self.size == self.expected.size {
                false => damaged("it is shorter than it was"),
                true if Digest(self.hasher.finalize()) != self.expected.blake3 => damaged("its checksum is another"),
                true => Ok(None),
            };
        };
        self.size = self.size.saturating_add(piece.len() as u64);
        if self.size > self.expected.size {
            return damaged("it is longer than it was");
        }
        self.hasher.update(&piece);
        Ok(Some(piece))
    }
}

impl fmt::Debug for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checked").field("expected", &self.expected).field("size", &self.size).finish_non_exhaustive()
    }
}

/// A file to upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// Where it shall stand.
    pub path: FilePath,
    /// Whether it may be executed.
    pub executable: bool,
}

/// Where the files of an upload come from.
#[async_trait]
pub trait ArtifactSource: Send + Sync {
    /// All of them.
    fn files(&self) -> &[SourceFile];

    /// The content of one. A large file is read twice: for the checksum that names it, and to send it.
    async fn open(&self, file: &SourceFile) -> ArtifactResult<Box<dyn Pieces>>;
}

/// An upload, as a store is asked for it.
#[derive(Clone, Debug)]
pub struct Put {
    /// What becomes of it.
    pub artifact: Artifact,
    /// The attempt that uploads: a later one wins over an earlier one, however late that one arrives. Of the same attempt
    /// the last upload wins. A job takes [`ClaimedJob::claim_number`](crate::store::ClaimedJob::claim_number), because the
    /// numbers of its attempts repeat.
    pub attempt: u64,
    /// What it may be.
    pub limits: Limits,
}

impl Put {
    /// Of a first attempt, within the usual limits.
    pub fn new(artifact: Artifact) -> Self {
        Self { artifact, attempt: 0, limits: Limits::default() }
    }
}

/// What keeps artifacts.
#[async_trait]
pub trait ArtifactStore: fmt::Debug + Send + Sync + 'static {
    /// Uploads an artifact. It is seen as a whole when this returns, and not at all before; an upload of the same name
    /// takes the place of the one before.
    async fn put(&self, put: &Put, source: &dyn ArtifactSource) -> ArtifactResult<Manifest>;

    /// What the artifact consists of.
    async fn manifest(&self, artifact: &Artifact) -> ArtifactResult<Manifest>;

    /// The content of one of its files.
    async fn get(&self, artifact: &Artifact, file: &FileEntry) -> ArtifactResult<Checked>;

    /// The artifacts of a run, by name.
    async fn list(&self, run: &RunKey) -> ArtifactResult<Vec<ArtifactName>>;

    /// Removes everything of a run, also what was never finished. A run without artifacts is no error.
    async fn remove(&self, run: &RunKey) -> ArtifactResult<()>;
}

#[cfg(test)]
#[path = "artifact_tests.rs"]
mod tests;
