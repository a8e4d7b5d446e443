//! Large files in parts: how their pieces become parts, and the end of an upload that is given up.

use super::blobs::Upload;
use super::{ArtifactResult, Pieces, unavailable};
use bytes::Bytes;

/// Pieces as parts of one size, of which only the last may be smaller.
pub(super) struct Parts {
    pieces: Box<dyn Pieces>,
    rest: Bytes,
    part_bytes: usize,
}

impl Parts {
    pub(super) fn new(pieces: Box<dyn Pieces>, part_bytes: usize) -> Self {
        Self { pieces, rest: Bytes::new(), part_bytes }
    }

    /// The next part; empty at the end.
    pub(super) async fn next(&mut self) -> ArtifactResult<Vec<Bytes>> {
        let (mut part, mut missing) = (Vec::new(), self.part_bytes);
        while missing > 0 {
            if self.rest.is_empty() {
                match self.pieces.next().await? {
                    Some(piece) => self.rest = piece,
                    None => break,
                }
            }
            let taken = self.rest.split_to(self.rest.len().min(missing));
            missing -= taken.len();
            part.push(taken);
        }
        Ok(part)
    }
}

pub(super) fn length(part: &[Bytes]) -> usize {
    part.iter().map(Bytes::len).sum()
}

/// An upload in parts. Dropped before it has ended, as when the job is cancelled, it is aborted by a task of its own: a folder
/// or a bucket keeps, and a bucket charges for, the parts of an upload that was neither completed nor aborted.
pub(super) struct AbortOnDrop(Option<Box<dyn Upload>>);

impl AbortOnDrop {
    pub(super) fn new(upload: Box<dyn Upload>) -> Self {
        Self(Some(upload))
    }

    pub(super) fn get(&mut self) -> ArtifactResult<&mut Box<dyn Upload>> {
        self.0.as_mut().ok_or_else(|| unavailable("the upload", "it has ended"))
    }

    /// It is complete, and not aborted any more.
    pub(super) fn finish(mut self) {
        self.0 = None;
    }

    /// Aborts it and waits for that. If this fails, the bucket keeps parts that belong to no object.
    pub(super) async fn abort(mut self) {
        if let Some(upload) = &mut self.0 {
            let _ = upload.abort().await;
        }
        self.0 = None;
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        if let (Some(mut upload), Ok(runtime)) = (self.0.take(), tokio::runtime::Handle::try_current()) {
            // Nothing waits for the task: one that the end of the process cuts off leaves the parts, as a killed process does.
            drop(runtime.spawn(async move {
                if let Err(error) = upload.abort().await {
                    tracing::warn!(%error, "an upload that was given up could not be aborted; the store may keep its parts");
                }
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::blobs::{Blob, Blobs, Listing, MemoryBlobs, NameTest};
    use super::super::objects::ObjectArtifacts;
    use super::super::{Artifact, PART_BYTES, Put, upload};
    use super::*;
    use async_trait::async_trait;
    use std::sync::Arc;
    use tokio::sync::Notify;
    use windlass_core::random::StrongRandom;
    use windlass_core::time::HANG_GUARD;

    struct Given(Vec<Bytes>);

    #[async_trait]
    impl Pieces for Given {
        async fn next(&mut self) -> ArtifactResult<Option<Bytes>> {
            Ok(if self.0.is_empty() { None } else { Some(self.0.remove(0)) })
        }
    }

    #[tokio::test]
    async fn parts_are_of_one_size_but_the_last() {
        let pieces = ["ab", "", "cdefg", "h", "ijkl", "m"].map(|text| Bytes::from_static(text.as_bytes()));
        let mut parts = Parts::new(Box::new(Given(pieces.to_vec())), 4);
        for expected in ["abcd", "efgh", "ijkl", "m", ""] {
            assert_eq!(parts.next().await.unwrap().concat(), expected.as_bytes());
        }
    }

    /// Objects in memory whose uploads in parts take no part, so that they never end.
    #[derive(Debug, Default)]
    struct TakesNoPart {
        inner: MemoryBlobs,
        calls: Arc<Calls>,
    }

    #[derive(Debug, Default)]
    struct Calls {
        part: Notify,
        abort: Notify,
    }

    #[async_trait]
    impl Blobs for TakesNoPart {
        async fn put(&self, name: &str, content: Vec<Bytes>) -> ArtifactResult<()> {
            self.inner.put(name, content).await
        }

        async fn begin(&self, _: &str) -> ArtifactResult<Box<dyn Upload>> {
            Ok(Box::new(PartlyUploaded(Arc::clone(&self.calls))))
        }

        async fn get(&self, name: &str) -> ArtifactResult<Option<Blob>> {
            self.inner.get(name).await
        }

        async fn list(&self, folder: &str) -> ArtifactResult<Listing> {
            self.inner.list(folder).await
        }

        async fn remove(&self, folder: &str, is_first: NameTest) -> ArtifactResult<()> {
            self.inner.remove(folder, is_first).await
        }
    }

    struct PartlyUploaded(Arc<Calls>);

    #[async_trait]
    impl Upload for PartlyUploaded {
        async fn put_part(&mut self, _: Vec<Bytes>) -> ArtifactResult<()> {
            self.0.part.notify_one();
            std::future::pending().await
        }

        async fn complete(&mut self) -> ArtifactResult<()> {
            std::future::pending().await
        }

        async fn abort(&mut self) -> ArtifactResult<()> {
            self.0.abort.notify_one();
            Ok(())
        }
    }

    #[tokio::test]
    async fn an_upload_in_parts_that_is_dropped_is_aborted() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("large"), vec![0; PART_BYTES]).unwrap();
        let blobs = TakesNoPart::default();
        let calls = Arc::clone(&blobs.calls);
        let store = ObjectArtifacts { blobs: Arc::new(blobs), random: Arc::new(StrongRandom::seeded(1)) };
        let put = Put::new(Artifact::new("run-1", "dist").unwrap());
        tokio::select! {
            done = upload(&store, &put, folder.path(), &["large"]) => panic!("{done:?}"),
            () = calls.part.notified() => {}
        }
        let aborted = tokio::time::timeout(HANG_GUARD, calls.abort.notified()).await;
        assert!(aborted.is_ok(), "its parts stay in the store");
    }
}
