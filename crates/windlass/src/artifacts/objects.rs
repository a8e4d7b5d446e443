//! The one artifact store, over anything that keeps objects.
//!
//! Nothing here needs a lock or a clock. Objects appear as a whole; content is written before the manifest that names it;
//! manifests are numbered (attempt, edition), and the highest is the artifact. Two uploads that do not know of each other
//! take the same number; a random token decides, the same way for everybody.

use super::blobs::Blobs;
use super::parts::{AbortOnDrop, Parts, length};
use super::{
    Artifact, ArtifactError, ArtifactName, ArtifactResult, ArtifactSource, ArtifactStore, Checked, FILES_AT_ONCE,
    FileEntry, Limits, Manifest, PART_BYTES, Pieces, Put, RunKey, SourceFile,
};
use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use windlass_core::random::Random;

/// The largest manifest: every file with the longest path, twice over for escapes.
const MANIFEST_BYTES_MAX: u64 = 32 << 20;
/// Object stores take 10,000 parts of one object.
const PARTS_MAX: u64 = 9_000;

/// Artifacts over objects.
pub(super) struct ObjectArtifacts {
    pub(super) blobs: Arc<dyn Blobs>,
    pub(super) random: Arc<dyn Random>,
}

impl fmt::Debug for ObjectArtifacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ObjectArtifacts").field(&self.blobs).finish()
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
        let name = format!("{}/{}", home(artifact), last.file_name());
        let found = self.blobs.get(&name).await?.ok_or_else(missing)?;
        if found.size > MANIFEST_BYTES_MAX {
            return Err(ArtifactError::damaged("the manifest", "it is larger than any manifest"));
        }
        Manifest::from_json(&found.read().await?)
    }

    async fn get(&self, artifact: &Artifact, file: &FileEntry) -> ArtifactResult<Checked> {
        let missing = || ArtifactError::damaged(&file.path, "its content is missing");
        let found = self.blobs.get(&blob(artifact, file)).await?.ok_or_else(missing)?;
        if found.size != file.size {
            return Err(ArtifactError::damaged(&file.path, "its size is another"));
        }
        Ok(Checked::new(file.clone(), found.pieces))
    }

    async fn list(&self, run: &RunKey) -> ArtifactResult<Vec<ArtifactName>> {
        let found = self.blobs.list(&folder(run)).await?;
        // Other things in the folder are not ours, and no name of ours is left out.
        let names: Vec<ArtifactName> = found.folders.iter().filter_map(|name| ArtifactName::new(name).ok()).collect();
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

    /// Manifests first, so that nobody sees an artifact whose content is going.
    async fn remove(&self, run: &RunKey) -> ArtifactResult<()> {
        self.blobs.remove(&folder(run), |name| Edition::parse(name).is_some()).await
    }
}

fn folder(run: &RunKey) -> String {
    format!("runs/{run}")
}

fn home(artifact: &Artifact) -> String {
    format!("{}/{}", folder(&artifact.run), artifact.name)
}

fn blob(artifact: &Artifact, file: &FileEntry) -> String {
    format!("{}/blobs/{}", home(artifact), file.blake3)
}

impl ObjectArtifacts {
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
            Some(content) => self.blobs.put(&blob(artifact, &entry), content).await?,
            None => self.send_parts(artifact, source.open(file).await?, &entry).await?,
        }
        Ok(entry)
    }

    /// Sends a large file, whose checksum is known, in parts.
    async fn send_parts(&self, artifact: &Artifact, pieces: Box<dyn Pieces>, entry: &FileEntry) -> ArtifactResult<()> {
        let part_bytes = usize::try_from(entry.size / PARTS_MAX).unwrap_or(usize::MAX).max(PART_BYTES);
        let mut parts = Parts::new(Box::new(Checked::new(entry.clone(), pieces)), part_bytes);
        let mut upload = AbortOnDrop::new(self.blobs.begin(&blob(artifact, entry)).await?);
        let sent = async {
            loop {
                let part = parts.next().await.map_err(changed)?;
                if part.is_empty() {
                    break;
                }
                upload.get()?.put_part(part).await?;
            }
            upload.get()?.complete().await
        };
        match sent.await {
            Ok(()) => {
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
        let name = format!("{}/{}", home(&put.artifact), edition.file_name());
        self.blobs.put(&name, vec![text.into()]).await
    }

    /// The manifests of an artifact.
    async fn editions(&self, artifact: &Artifact) -> ArtifactResult<Vec<Edition>> {
        let found = self.blobs.list(&home(artifact)).await?;
        Ok(found.objects.iter().filter_map(|name| Edition::parse(name)).collect())
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

/// A file that is another when it is read again.
fn changed(error: ArtifactError) -> ArtifactError {
    match error {
        ArtifactError::Damaged { path, .. } => {
            ArtifactError::refused(path, "it was changed while it was read; upload it when nobody writes to it")
        }
        other => other,
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
