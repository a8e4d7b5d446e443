//! Artifacts: files that the jobs of a run hand on.
//!
//! [`open()`] names the place, [`upload`] takes files out of a folder, [`download()`] puts them into one. What an artifact is,
//! and the contract of the store, stands in [`windlass_core::artifact`].
//!
//! ```text
//! runs/<run>/<name>/blobs/<hash>      content, named by its BLAKE3 hash
//! runs/<run>/<name>/manifest-….json   what the artifact consists of, written last
//! ```
//!
//! - **A half upload is never seen**: without a manifest there is no artifact. An upload of the same name writes another
//!   manifest; the content of the one before stays until the run is removed, so who is reading it can go on.
//! - **What is trusted:** the folder or bucket of the store and the path of the target folder. **What is not:** what the store
//!   holds, and what stands in the source and target folders. Below those every step is taken from an open folder and
//!   follows no symlink, so a link that is planted in between leads nowhere.
//! - **Memory:** content goes in parts of 8 MiB, four files at a time.

mod blobs;
mod download;
mod folder;
mod glob;
mod objects;
mod open;
mod parts;
#[cfg(feature = "s3")]
mod s3;
mod source;

pub use download::download;
#[cfg(all(unix, feature = "commands"))]
pub(crate) use download::download_below;
pub use open::{open, open_with};
pub use source::{FolderSource, upload};
pub use windlass_core::artifact::{
    Artifact, ArtifactError, ArtifactName, ArtifactResult, ArtifactSource, ArtifactStore, Checked, FileEntry, FilePath,
    Limits, Manifest, Pieces, Put, RunKey, SourceFile,
};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use tokio::io::AsyncReadExt;

/// The most of a file that is handed on at once.
pub const PIECE_BYTES: usize = 256 * 1024;
/// What is sent at once; object stores take no parts below 5 MiB, and some want all of them alike.
pub const PART_BYTES: usize = 8 * 1024 * 1024;
/// Files that are sent or received at the same time.
const FILES_AT_ONCE: usize = 4;

/// A file, in pieces.
struct FilePieces {
    file: tokio::fs::File,
    /// For errors.
    path: String,
}

#[async_trait]
impl Pieces for FilePieces {
    async fn next(&mut self) -> ArtifactResult<Option<Bytes>> {
        let mut piece = BytesMut::with_capacity(PIECE_BYTES);
        let read = self.file.read_buf(&mut piece).await.map_err(|error| unavailable(&self.path, error))?;
        Ok((read > 0).then(|| piece.freeze()))
    }
}

fn unavailable(path: impl std::fmt::Display, error: impl std::fmt::Display) -> ArtifactError {
    ArtifactError::Unavailable { reason: format!("{path}: {error}") }
}

/// Runs what blocks on a thread where it may.
#[expect(clippy::disallowed_methods, reason = "short work with folders, as tokio's own file functions do it")]
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> ArtifactResult<T> + Send + 'static) -> ArtifactResult<T> {
    tokio::task::spawn_blocking(work).await.map_err(|error| unavailable("file work", error))?
}
