//! The one artifact store: over anything that keeps objects.
//!
//! Nothing here needs a lock or a clock. Objects appear as a whole; content is written before the manifest that names it;
//! manifests are numbered (attempt, edition), and the highest is the artifact. Two uploads that do not know of each other
//! take the same number; a random token decides, the same way for everybody.

use super::parts::{AbortOnDrop, Parts, length};
use super::{
    Artifact, ArtifactError, ArtifactName, ArtifactResult, ArtifactSource, ArtifactStore, Checked, FILES_AT_ONCE,
    FileEntry, FilePieces, Limits, Manifest, PART_BYTES, PIECE_BYTES, Pieces, Put, RunKey, SourceFile, blocking,
    unavailable,
};
use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{GetResultPayload, ObjectStore, ObjectStoreExt, PutPayload};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use windlass_core::random::Random;

/// The largest manifest: every file with the longest path, twice over for escapes.
const MANIFEST_BYTES_MAX: u64 = 32 << 20;
/// Object stores take 10,000 parts of one object.
const PARTS_MAX: u64 = 9_000;

/// Artifacts over an object store.
pub(super) struct ObjectArtifacts {
    pub(super) objects: Arc<dyn ObjectStore>,
    /// Where everything stands within it.
    pub(super) prefix: Path,
    /// The folder, if the objects are its files.
    pub(super) folder: Option<PathBuf>,
    pub(super) random: Arc<dyn Random>,
}

impl fmt::Debug for ObjectArtifacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectArtifacts").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

#[async_trait]
impl ArtifactStore for ObjectArtifacts {
    async fn put(&self, put: &Put, source: &dyn ArtifactSource) -> ArtifactResult<Manifest> {
        let files = source.files();
        put.limits.check_files(files.len())?;
        let budget = Budget { limits: put.limits, used: AtomicU64::new(0) };
        let sent = (0..files.len()).map(|at| self.put_file(&put.artifact, source, &files[at], &budget));
        let entries: Vec<FileEntry> = stream::iter(sent).buffered(FILES_AT_ONCE).try_collect().await?;
        let manifest = Manifest::new(entries)?;
        self.put_manifest(put, &manifest).await?;
        Ok(manifest)
    }

    async fn manifest(&self, artifact: &Artifact) -> ArtifactResult<Manifest> {
        let missing = || ArtifactError::NotFound { what: artifact.to_string() };
        let last = self.editions(artifact).await?.into_iter().max().ok_or_else(missing)?;
        let path = self.home(artifact).join(last.file_name().as_str());
        let found = self.objects.get(&path).await.map_err(|error| told(error, artifact))?;
        if found.meta.size > MANIFEST_BYTES_MAX {
            return Err(ArtifactError::damaged("the manifest", "it is larger than any manifest"));
        }
        Manifest::from_json(&found.bytes().await.map_err(|error| told(error, artifact))?)
    }

    async fn get(&self, artifact: &Artifact, file: &FileEntry) -> ArtifactResult<Checked> {
        let found = self.objects.get(&self.blob(artifact, file)).await.map_err(|error| match error {
            object_store::Error::NotFound { .. } => ArtifactError::damaged(&file.path, "its content is missing"),
            other => told(other, &file.path),
        })?;
        if found.meta.size != file.size {
            return Err(ArtifactError::damaged(&file.path, "its size is another"));
        }
        let path = file.path.to_string();
        let pieces: Box<dyn Pieces> = match found.payload {
            GetResultPayload::File(file, _) => Box::new(FilePieces { file: file.into(), path }),
            GetResultPayload::Stream(stream) => Box::new(StreamPieces { stream, rest: Bytes::new(), path }),
        };
        Ok(Checked::new(file.clone(), pieces))
    }

    async fn list(&self, run: &RunKey) -> ArtifactResult<Vec<ArtifactName>> {
        let found = self.objects.list_with_delimiter(Some(&self.run(run))).await.map_err(|error| told(error, run))?;
        // Other things in the folder are not ours, and no name of ours is left out.
        let name_of = |prefix: &Path| ArtifactName::new(prefix.filename()?).ok();
        let names: Vec<ArtifactName> = found.common_prefixes.iter().filter_map(name_of).collect();
        let looked = names.into_iter().map(|name| async move {
            let artifact = Artifact { run: run.clone(), name };
            let is_whole = !self.editions(&artifact).await?.is_empty();
            Ok(is_whole.then_some(artifact.name))
        });
        let found: Vec<Option<ArtifactName>> = stream::iter(looked).buffered(FILES_AT_ONCE).try_collect().await?;
        let mut names: Vec<ArtifactName> = found.into_iter().flatten().collect();
        names.sort();
        Ok(names)
    }

    async fn remove(&self, run: &RunKey) -> ArtifactResult<()> {
        match &self.folder {
            Some(folder) => self.remove_folder(folder.clone(), run).await,
            None => self.remove_objects(run).await,
        }
    }
}

impl ObjectArtifacts {
    fn run(&self, run: &RunKey) -> Path {
        self.prefix.clone().join("runs").join(run.as_str())
    }

    fn home(&self, artifact: &Artifact) -> Path {
        self.run(&artifact.run).join(artifact.name.as_str())
    }

    fn blob(&self, artifact: &Artifact, file: &FileEntry) -> Path {
        self.home(artifact).join("blobs").join(file.blake3.to_string().as_str())
    }

    /// Sends one file. What fits into one part is read once.
    async fn put_file(
        &self,
        artifact: &Artifact,
        source: &dyn ArtifactSource,
        file: &SourceFile,
        budget: &Budget,
    ) -> ArtifactResult<FileEntry> {
        let mut parts = Parts::new(source.open(file).await?, PART_BYTES);
        let (mut hasher, mut size) = (blake3::Hasher::new(), 0);
        let mut add = |part: &[Bytes]| {
            let bytes = part.iter().map(|piece| piece.len() as u64).sum::<u64>();
            for piece in part {
                hasher.update(piece);
            }
            size += bytes;
            budget.spend(bytes)
        };
        let first = parts.next().await?;
        add(&first)?;
        let whole = (length(&first) < PART_BYTES).then_some(first);
        // ends because: an empty part is the end, and the budget runs out before anything is endless.
        while whole.is_none() {
            let part = parts.next().await?;
            if part.is_empty() {
                break;
            }
            add(&part)?;
        }
        let entry =
            FileEntry { path: file.path.clone(), size, blake3: hasher.finalize().into(), executable: file.executable };
        match whole {
            Some(content) => {
                let payload = PutPayload::from_iter(content);
                let put = self.objects.put(&self.blob(artifact, &entry), payload).await;
                put.map_err(|error| told(error, &entry.path))?;
            }
            None => self.send_parts(artifact, source.open(file).await?, &entry).await?,
        }
        Ok(entry)
    }

    /// Sends a large file, whose checksum is known, in parts.
    async fn send_parts(&self, artifact: &Artifact, pieces: Box<dyn Pieces>, entry: &FileEntry) -> ArtifactResult<()> {
        let to = self.blob(artifact, entry);
        let part_bytes = usize::try_from(entry.size / PARTS_MAX).unwrap_or(usize::MAX).max(PART_BYTES);
        let mut parts = Parts::new(Box::new(Checked::new(entry.clone(), pieces)), part_bytes);
        let upload = self.objects.put_multipart(&to).await.map_err(|error| told(error, &entry.path))?;
        let mut upload = AbortOnDrop::new(upload);
        let sent = async {
            loop {
                let part = parts.next().await.map_err(changed)?;
                if part.is_empty() {
                    break;
                }
                let put = upload.get()?.put_part(PutPayload::from_iter(part)).await;
                put.map_err(|error| told(error, &entry.path))?;
            }
            upload.get()?.complete().await.map_err(|error| told(error, &entry.path))
        };
        match sent.await {
            Ok(_) => {
                upload.finish();
                Ok(())
            }
            Err(error) => {
                upload.abort().await;
                Err(error)
            }
        }
    }

    async fn put_manifest(&self, put: &Put, manifest: &Manifest) -> ArtifactResult<()> {
        let last = self.editions(&put.artifact).await?.into_iter().map(|edition| edition.number).max();
        let number = last.map_or(0, |last| last.saturating_add(1));
        let edition = Edition { attempt: put.attempt, number, token: self.random.next_u64() };
        let text = manifest.to_json()?;
        if text.len() as u64 > MANIFEST_BYTES_MAX {
            let (max, got) = (MANIFEST_BYTES_MAX, text.len() as u64);
            return Err(ArtifactError::TooLarge { what: "the manifest in bytes".into(), max, got });
        }
        let path = self.home(&put.artifact).join(edition.file_name().as_str());
        self.objects.put(&path, text.into()).await.map_err(|error| told(error, &put.artifact))?;
        Ok(())
    }

    /// The manifests of an artifact.
    async fn editions(&self, artifact: &Artifact) -> ArtifactResult<Vec<Edition>> {
        let found = self.objects.list_with_delimiter(Some(&self.home(artifact))).await;
        let found = found.map_err(|error| told(error, artifact))?;
        Ok(found.objects.iter().filter_map(|object| Edition::parse(object.location.filename()?)).collect())
    }

    /// Manifests first, so that nobody sees an artifact whose content is going.
    async fn remove_objects(&self, run: &RunKey) -> ArtifactResult<()> {
        let all = || self.objects.list(Some(&self.run(run))).map_ok(|object| object.location);
        let is_manifest = |path: &Path| path.filename().is_some_and(|name| Edition::parse(name).is_some());
        let manifests = all().try_filter(move |path| std::future::ready(is_manifest(path))).boxed();
        for locations in [manifests, all().boxed()] {
            let mut removed = self.objects.delete_stream(locations);
            while let Some(one) = removed.next().await {
                match one {
                    Ok(_) | Err(object_store::Error::NotFound { .. }) => {}
                    Err(error) => return Err(told(error, run)),
                }
            }
        }
        Ok(())
    }

    /// In a folder there may be more than objects: files that a killed process had begun. The run's folder goes in one step,
    /// and what is in it after that; what a killed removal left goes with the next one.
    async fn remove_folder(&self, folder: PathBuf, run: &RunKey) -> ArtifactResult<()> {
        let (from, removed) = (folder.join("runs").join(run.as_str()), folder.join("removed"));
        let to = removed.join(format!("{:016x}", self.random.next_u64()));
        let shown = run.to_string();
        blocking(move || {
            let work = || {
                std::fs::create_dir_all(&removed)?;
                there(std::fs::rename(&from, &to))?;
                for old in std::fs::read_dir(&removed)? {
                    there(std::fs::remove_dir_all(old?.path()))?;
                }
                Ok(())
            };
            work().map_err(|error: std::io::Error| unavailable(shown, error))
        })
        .await
    }
}

/// What is not there any more was removed by another.
fn there(result: std::io::Result<()>) -> std::io::Result<()> {
    match result {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Which manifest of an artifact; the highest counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Edition {
    attempt: u64,
    number: u32,
    token: u64,
}

impl Edition {
    fn file_name(self) -> String {
        format!("manifest-{:010}-{:010}-{:016x}.json", self.attempt, self.number, self.token)
    }

    fn parse(name: &str) -> Option<Self> {
        let mut parts = name.strip_prefix("manifest-")?.strip_suffix(".json")?.split('-');
        let (attempt, number) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let edition = Self { attempt, number, token: u64::from_str_radix(parts.next()?, 16).ok()? };
        // Only what we write ourselves.
        (edition.file_name() == name).then_some(edition)
    }
}

/// The bytes that the files of an upload share.
struct Budget {
    limits: Limits,
    used: AtomicU64,
}

impl Budget {
    fn spend(&self, bytes: u64) -> ArtifactResult<()> {
        let before = self.used.fetch_add(bytes, Ordering::Relaxed);
        self.limits.check_bytes(before.saturating_add(bytes))
    }
}

/// What a store sends, in pieces that are not larger than others.
struct StreamPieces {
    stream: BoxStream<'static, object_store::Result<Bytes>>,
    rest: Bytes,
    /// For errors.
    path: String,
}

#[async_trait]
impl Pieces for StreamPieces {
    async fn next(&mut self) -> ArtifactResult<Option<Bytes>> {
        while self.rest.is_empty() {
            match self.stream.next().await {
                Some(piece) => self.rest = piece.map_err(|error| told(error, &self.path))?,
                None => return Ok(None),
            }
        }
        Ok(Some(self.rest.split_to(self.rest.len().min(PIECE_BYTES))))
    }
}

/// A file that is another when it is read again.
fn changed(error: ArtifactError) -> ArtifactError {
    match error {
        ArtifactError::Damaged { path, .. } => {
            ArtifactError::refused(path, "it was changed while it was read; upload it when nobody writes to it")
        }
        other => other,
    }
}

/// An error of the store in our words.
fn told(error: object_store::Error, what: impl fmt::Display) -> ArtifactError {
    match error {
        object_store::Error::NotFound { .. } => ArtifactError::NotFound { what: what.to_string() },
        object_store::Error::PermissionDenied { .. } | object_store::Error::Unauthenticated { .. } => {
            ArtifactError::refused(what, format!("the store does not permit it ({error}); check its credentials"))
        }
        other => unavailable(what, other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_attempt_wins_then_a_later_edition() {
        let edition = |attempt, number, token| Edition { attempt, number, token };
        let rising = [edition(0, 0, 9), edition(0, 1, 1), edition(0, 10, 0), edition(1, 0, 0), edition(u64::MAX, 0, 0)];
        assert!(rising.is_sorted());
        for one in rising {
            assert_eq!(Edition::parse(&one.file_name()), Some(one));
        }
        for name in ["manifest.json", "manifest-1-0-0.json", "manifest-+000000001-0000000000-0000000000000000.json", ""]
        {
            assert_eq!(Edition::parse(name), None, "{name}");
        }
    }
}
