//! Objects in a bucket of S3, or of what speaks like it.

use super::blobs::{Blob, Blobs, Listing, NameTest, Upload};
use super::{ArtifactError, ArtifactResult, PIECE_BYTES, Pieces, unavailable};
use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{Error, MultipartUpload, ObjectStore, ObjectStoreExt, PutPayload};
use std::fmt;
use std::sync::Arc;

/// Objects below a prefix of a bucket.
#[derive(Debug)]
pub(super) struct BucketBlobs {
    bucket: Arc<dyn ObjectStore>,
    prefix: Path,
}

impl BucketBlobs {
    pub(super) fn open(place: &str) -> ArtifactResult<Self> {
        let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
        let right = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
        if bucket.is_empty() || !bucket.chars().all(right) || prefix.contains(['?', '#']) {
            let why = "write s3://bucket/prefix; credentials, region and endpoint come from AWS_ACCESS_KEY_ID, \
                       AWS_SECRET_ACCESS_KEY, AWS_REGION and AWS_ENDPOINT";
            return Err(ArtifactError::refused("s3://…", why));
        }
        let prefix = Path::parse(prefix.trim_end_matches('/'))
            .map_err(|error| ArtifactError::refused(prefix, format!("no prefix of objects: {error}")))?;
        // The client is built without cryptography. If the program has chosen its own, that one stays.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let s3 = object_store::aws::AmazonS3Builder::from_env().with_bucket_name(bucket).build();
        let bucket = Arc::new(s3.map_err(|error| ArtifactError::refused(bucket, error.to_string()))?);
        Ok(Self { bucket, prefix })
    }

    fn path(&self, name: &str) -> Path {
        name.split('/').fold(self.prefix.clone(), |path, part| path.join(part))
    }
}

#[async_trait]
impl Blobs for BucketBlobs {
    async fn put(&self, name: &str, content: Vec<Bytes>) -> ArtifactResult<()> {
        let put = self.bucket.put(&self.path(name), PutPayload::from_iter(content)).await;
        put.map(drop).map_err(|error| refused(error, name))
    }

    async fn begin(&self, name: &str) -> ArtifactResult<Box<dyn Upload>> {
        let upload = self.bucket.put_multipart(&self.path(name)).await.map_err(|error| refused(error, name))?;
        Ok(Box::new(BucketUpload { upload, name: name.to_owned() }))
    }

    async fn get(&self, name: &str) -> ArtifactResult<Option<Blob>> {
        let found = match self.bucket.get(&self.path(name)).await {
            Err(Error::NotFound { .. }) => return Ok(None),
            found => found.map_err(|error| refused(error, name))?,
        };
        let size = found.meta.size;
        let pieces = StreamPieces { stream: found.into_stream(), rest: Bytes::new(), name: name.to_owned() };
        Ok(Some(Blob { size, pieces: Box::new(pieces) }))
    }

    async fn list(&self, folder: &str) -> ArtifactResult<Listing> {
        let found = self.bucket.list_with_delimiter(Some(&self.path(folder))).await;
        let found = found.map_err(|error| refused(error, folder))?;
        let name_of = |path: &Path| path.filename().map(str::to_owned);
        Ok(Listing {
            objects: found.objects.iter().filter_map(|object| name_of(&object.location)).collect(),
            folders: found.common_prefixes.iter().filter_map(name_of).collect(),
        })
    }

    async fn remove(&self, folder: &str, is_first: NameTest) -> ArtifactResult<()> {
        let all = || self.bucket.list(Some(&self.path(folder))).map_ok(|object| object.location);
        let is_first = move |path: &Path| path.filename().is_some_and(is_first);
        let first = all().try_filter(move |path| std::future::ready(is_first(path))).boxed();
        for locations in [first, all().boxed()] {
            let mut removed = self.bucket.delete_stream(locations);
            while let Some(one) = removed.next().await {
                match one {
                    Ok(_) | Err(Error::NotFound { .. }) => {}
                    Err(error) => return Err(refused(error, folder)),
                }
            }
        }
        Ok(())
    }
}

struct BucketUpload {
    upload: Box<dyn MultipartUpload>,
    /// For errors.
    name: String,
}

#[async_trait]
impl Upload for BucketUpload {
    async fn put_part(&mut self, part: Vec<Bytes>) -> ArtifactResult<()> {
        let put = self.upload.put_part(PutPayload::from_iter(part)).await;
        put.map_err(|error| refused(error, &self.name))
    }

    async fn complete(&mut self) -> ArtifactResult<()> {
        self.upload.complete().await.map(drop).map_err(|error| refused(error, &self.name))
    }

    async fn abort(&mut self) -> ArtifactResult<()> {
        self.upload.abort().await.map_err(|error| refused(error, &self.name))
    }
}

/// What a bucket sends, in pieces that are not larger than others.
struct StreamPieces {
    stream: BoxStream<'static, object_store::Result<Bytes>>,
    rest: Bytes,
    /// For errors.
    name: String,
}

#[async_trait]
impl Pieces for StreamPieces {
    async fn next(&mut self) -> ArtifactResult<Option<Bytes>> {
        while self.rest.is_empty() {
            match self.stream.next().await {
                Some(piece) => self.rest = piece.map_err(|error| refused(error, &self.name))?,
                None => return Ok(None),
            }
        }
        Ok(Some(self.rest.split_to(self.rest.len().min(PIECE_BYTES))))
    }
}

fn refused(error: Error, name: impl fmt::Display) -> ArtifactError {
    match error {
        Error::NotFound { .. } => ArtifactError::NotFound { what: name.to_string() },
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => {
            ArtifactError::refused(name, format!("the store does not permit it ({error}); check its credentials"))
        }
        other => unavailable(name, other),
    }
}
