//! Where the objects of artifacts are kept: in a folder, in memory, or, with the feature `s3`, in a bucket.

use super::{ArtifactError, ArtifactResult, FilePieces, PIECE_BYTES, Pieces, blocking, unavailable};
use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use windlass_core::random::Random;

/// Selects objects by the last part of their name.
pub(super) type NameTest = fn(&str) -> bool;

/// Objects by name. A name has parts with `/` between them, made of letters, digits, `-`, `_` and `.`. An object is written as a
/// whole or not at all.
#[async_trait]
pub(super) trait Blobs: fmt::Debug + Send + Sync + 'static {
    /// Writes an object, in the place of one of the same name.
    async fn put(&self, name: &str, content: Vec<Bytes>) -> ArtifactResult<()> {
        let mut upload = self.begin(name).await?;
        upload.put_part(content).await?;
        upload.complete().await
    }

    /// Begins an object that is written in parts and appears when it is complete.
    async fn begin(&self, name: &str) -> ArtifactResult<Box<dyn Upload>>;

    /// Opens an object; `None` when there is none.
    async fn get(&self, name: &str) -> ArtifactResult<Option<Blob>>;

    /// What is right below a folder.
    async fn list(&self, folder: &str) -> ArtifactResult<Listing>;

    /// Removes everything below a folder, first the objects that `is_first` names.
    async fn remove(&self, folder: &str, is_first: NameTest) -> ArtifactResult<()>;
}

/// An object that is written in parts.
#[async_trait]
pub(super) trait Upload: Send + 'static {
    /// Adds a part.
    async fn put_part(&mut self, part: Vec<Bytes>) -> ArtifactResult<()>;

    /// Makes the object appear.
    async fn complete(&mut self) -> ArtifactResult<()>;

    /// Removes the parts.
    async fn abort(&mut self) -> ArtifactResult<()>;
}

/// An object that is open.
pub(super) struct Blob {
    pub(super) size: u64,
    pub(super) pieces: Box<dyn Pieces>,
}

impl Blob {
    /// All of it.
    pub(super) async fn read(mut self) -> ArtifactResult<Vec<u8>> {
        let mut content = Vec::new();
        while let Some(piece) = self.pieces.next().await? {
            content.extend_from_slice(&piece);
        }
        Ok(content)
    }
}

/// Names right below a folder, without the folder.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub(super) objects: Vec<String>,
    pub(super) folders: Vec<String>,
}

/// Objects as the files of a folder. Every object is written to a file of its own, synced, and renamed: it survives a power cut
/// once it is acknowledged.
pub(super) struct FileBlobs {
    root: Arc<Path>,
    random: Arc<dyn Random>,
}

/// The prefix of files that are not objects yet. What a killed process left of them goes with the run.
const UNFINISHED: &str = ".unfinished-";

impl FileBlobs {
    pub(super) fn open(path: &str, random: Arc<dyn Random>) -> ArtifactResult<Self> {
        fs::create_dir_all(path).map_err(|error| unavailable(path, error))?;
        let root = std::path::absolute(path).map_err(|error| unavailable(path, error))?;
        Ok(Self { root: root.into(), random })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }
}

impl fmt::Debug for FileBlobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FileBlobs").field(&self.root).finish()
    }
}

#[async_trait]
impl Blobs for FileBlobs {
    async fn begin(&self, name: &str) -> ArtifactResult<Box<dyn Upload>> {
        let path = self.path(name);
        let unfinished = path.with_file_name(format!("{UNFINISHED}{:016x}", self.random.next_u64()));
        Ok(Box::new(FileUpload { root: Arc::clone(&self.root), name: name.to_owned(), path, unfinished, file: None }))
    }

    async fn get(&self, name: &str) -> ArtifactResult<Option<Blob>> {
        let (path, name) = (self.path(name), name.to_owned());
        blocking(move || {
            let file = match File::open(path) {
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
                file => file.map_err(|error| refused(&name, error))?,
            };
            let size = file.metadata().map_err(|error| refused(&name, error))?.len();
            Ok(Some(Blob { size, pieces: Box::new(FilePieces { file: file.into(), path: name }) }))
        })
        .await
    }

    async fn list(&self, folder: &str) -> ArtifactResult<Listing> {
        let (path, folder) = (self.path(folder), folder.to_owned());
        blocking(move || list_folder(&path).map_err(|error| refused(&folder, error))).await
    }

    /// The folder goes in one step, and what is in it after that; what a killed removal left goes with the next one.
    async fn remove(&self, folder: &str, _: NameTest) -> ArtifactResult<()> {
        let (from, removed) = (self.path(folder), self.path("removed"));
        let (to, folder) = (removed.join(format!("{:016x}", self.random.next_u64())), folder.to_owned());
        blocking(move || {
            let work = || {
                fs::create_dir_all(&removed)?;
                if_there(fs::rename(&from, &to))?;
                for old in fs::read_dir(&removed)? {
                    if_there(fs::remove_dir_all(old?.path()))?;
                }
                Ok(())
            };
            work().map_err(|error| refused(&folder, error))
        })
        .await
    }
}

fn list_folder(path: &Path) -> io::Result<Listing> {
    let mut found = Listing::default();
    let entries = match fs::read_dir(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(found),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        // Names that are not UTF-8 are not ours.
        let Ok(name) = entry.file_name().into_string() else { continue };
        let kind = entry.file_type()?;
        if kind.is_dir() {
            found.folders.push(name);
        } else if kind.is_file() && !name.starts_with(UNFINISHED) {
            found.objects.push(name);
        }
    }
    Ok(found)
}

/// What is not there any more was removed by another.
fn if_there(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn refused(name: &str, error: io::Error) -> ArtifactError {
    match error.kind() {
        ErrorKind::PermissionDenied => ArtifactError::refused(name, format!("the folder does not permit it ({error})")),
        _ => unavailable(name, error),
    }
}

/// A file that is renamed when it is complete.
struct FileUpload {
    root: Arc<Path>,
    /// For errors.
    name: String,
    path: PathBuf,
    unfinished: PathBuf,
    file: Option<File>,
}

#[async_trait]
impl Upload for FileUpload {
    async fn put_part(&mut self, part: Vec<Bytes>) -> ArtifactResult<()> {
        let (file, unfinished, name) = (self.file.take(), self.unfinished.clone(), self.name.clone());
        let written = blocking(move || {
            let write = || {
                let mut file = match file {
                    Some(file) => file,
                    None => create(&unfinished)?,
                };
                part.iter().try_for_each(|piece| file.write_all(piece))?;
                Ok(file)
            };
            write().map_err(|error| refused(&name, error))
        });
        self.file = Some(written.await?);
        Ok(())
    }

    async fn complete(&mut self) -> ArtifactResult<()> {
        let Some(file) = self.file.take() else { return Err(unavailable(&self.name, "it has no content")) };
        let (root, path, unfinished) = (Arc::clone(&self.root), self.path.clone(), self.unfinished.clone());
        let name = self.name.clone();
        blocking(move || {
            let finish = || {
                file.sync_all()?;
                fs::rename(&unfinished, &path)?;
                sync_folders(&root, &path)
            };
            finish().map_err(|error| refused(&name, error))
        })
        .await
    }

    async fn abort(&mut self) -> ArtifactResult<()> {
        self.file = None;
        let (unfinished, name) = (self.unfinished.clone(), self.name.clone());
        blocking(move || if_there(fs::remove_file(unfinished)).map_err(|error| refused(&name, error))).await
    }
}

/// A new file, and the folders that lead to it. The folders may be removed with their run at any time.
fn create(path: &Path) -> io::Result<File> {
    let make = || File::options().write(true).create_new(true).open(path);
    match make() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            path.parent().map_or(Ok(()), fs::create_dir_all)?;
            make()
        }
        made => made,
    }
}

/// Syncs the folders from that of `path` up to `root`: some of them may be new.
fn sync_folders(root: &Path, path: &Path) -> io::Result<()> {
    for folder in path.ancestors().skip(1).take_while(|folder| folder.starts_with(root)) {
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

/// Objects in memory.
#[derive(Default)]
pub(super) struct MemoryBlobs(Arc<Mutex<BTreeMap<String, Bytes>>>);

opaque_debug!(MemoryBlobs);

#[async_trait]
impl Blobs for MemoryBlobs {
    async fn begin(&self, name: &str) -> ArtifactResult<Box<dyn Upload>> {
        Ok(Box::new(MemoryUpload { objects: Arc::clone(&self.0), name: name.to_owned(), content: Vec::new() }))
    }

    async fn get(&self, name: &str) -> ArtifactResult<Option<Blob>> {
        let found = self.0.lock().get(name).cloned();
        Ok(found.map(|rest| Blob { size: rest.len() as u64, pieces: Box::new(MemoryPieces(rest)) }))
    }

    async fn list(&self, folder: &str) -> ArtifactResult<Listing> {
        let mut found = Listing::default();
        let objects = self.0.lock();
        for name in objects.keys().filter_map(|name| name.strip_prefix(folder)?.strip_prefix('/')) {
            match name.split_once('/') {
                None => found.objects.push(name.to_owned()),
                Some((folder, _)) if found.folders.last().is_none_or(|last| last != folder) => {
                    found.folders.push(folder.to_owned());
                }
                Some(_) => {}
            }
        }
        Ok(found)
    }

    async fn remove(&self, folder: &str, _: NameTest) -> ArtifactResult<()> {
        let is_below = |name: &str| name.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
        self.0.lock().retain(|name, _| !is_below(name));
        Ok(())
    }
}

struct MemoryUpload {
    objects: Arc<Mutex<BTreeMap<String, Bytes>>>,
    name: String,
    content: Vec<u8>,
}

#[async_trait]
impl Upload for MemoryUpload {
    async fn put_part(&mut self, part: Vec<Bytes>) -> ArtifactResult<()> {
        part.iter().for_each(|piece| self.content.extend_from_slice(piece));
        Ok(())
    }

    async fn complete(&mut self) -> ArtifactResult<()> {
        self.objects.lock().insert(self.name.clone(), std::mem::take(&mut self.content).into());
        Ok(())
    }

    async fn abort(&mut self) -> ArtifactResult<()> {
        Ok(())
    }
}

struct MemoryPieces(Bytes);

#[async_trait]
impl Pieces for MemoryPieces {
    async fn next(&mut self) -> ArtifactResult<Option<Bytes>> {
        let piece = self.0.split_to(self.0.len().min(PIECE_BYTES));
        Ok((!piece.is_empty()).then_some(piece))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::random::StrongRandom;

    async fn names(blobs: &dyn Blobs) -> (Vec<String>, Vec<String>) {
        let Listing { objects, folders } = blobs.list("runs/a").await.unwrap();
        (objects, folders)
    }

    #[tokio::test]
    async fn an_object_in_parts_appears_when_it_is_complete_and_leaves_nothing_when_it_is_aborted() {
        let folder = tempfile::tempdir().unwrap();
        let files = FileBlobs::open(folder.path().to_str().unwrap(), Arc::new(StrongRandom::seeded(1))).unwrap();
        for blobs in [&files as &dyn Blobs, &MemoryBlobs::default()] {
            let mut upload = blobs.begin("runs/a/large").await.unwrap();
            upload.put_part(vec![Bytes::from_static(b"one ")]).await.unwrap();
            assert_eq!(names(blobs).await, (vec![], vec![]), "it is not complete");
            upload.put_part(vec![Bytes::from_static(b"two")]).await.unwrap();
            upload.complete().await.unwrap();
            blobs.put("runs/a/x/small", vec![Bytes::from_static(b"s")]).await.unwrap();
            assert_eq!(names(blobs).await, (vec!["large".to_owned()], vec!["x".to_owned()]));
            assert_eq!(blobs.get("runs/a/large").await.unwrap().unwrap().read().await.unwrap(), b"one two");
            let mut given_up = blobs.begin("runs/a/other").await.unwrap();
            given_up.put_part(vec![Bytes::from_static(b"x")]).await.unwrap();
            given_up.abort().await.unwrap();
            assert!(blobs.get("runs/a/other").await.unwrap().is_none());
        }
        let left = fs::read_dir(folder.path().join("runs/a")).unwrap().count();
        assert_eq!(left, 2, "the object and the folder, and nothing of the upload that was given up");
    }
}
