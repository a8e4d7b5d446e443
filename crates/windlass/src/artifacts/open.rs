//! The one place that names where artifacts can be kept.

use super::blobs::{Blobs, FileBlobs, MemoryBlobs};
use super::objects::ObjectArtifacts;
use super::{ArtifactError, ArtifactResult, ArtifactStore};
use std::sync::Arc;
use windlass_core::random::{Random, StrongRandom};

const POSSIBLE: &str =
    "write a folder as /var/lib/app/artifacts or file:///var/lib/app/artifacts, s3://bucket/prefix, or memory://";

/// Opens the place where artifacts are kept: a folder (`/var/lib/app/artifacts`, `artifacts`,
/// `file:///var/lib/app/artifacts`), which is made if it is missing, `memory://`, and with the feature `s3` also
/// `s3://bucket/prefix`, whose credentials, region and endpoint come from the usual `AWS_…` variables.
///
/// ```
/// # async fn example() -> windlass::artifacts::ArtifactResult<()> {
/// let store = windlass::artifacts::open("memory://")?;
/// assert!(store.list(&"run-1".try_into()?).await?.is_empty());
/// # Ok(())
/// # }
/// ```
pub fn open(url: &str) -> ArtifactResult<Arc<dyn ArtifactStore>> {
    open_with(url, Arc::new(StrongRandom::from_system()))
}

/// The same, with randomness of one's own, for tests that can be repeated.
pub fn open_with(url: &str, random: Arc<dyn Random>) -> ArtifactResult<Arc<dyn ArtifactStore>> {
    let blobs: Arc<dyn Blobs> = match url.split_once("://") {
        None if url.is_empty() => return Err(ArtifactError::refused(url, format!("it names nothing; {POSSIBLE}"))),
        None => Arc::new(FileBlobs::open(url, Arc::clone(&random))?),
        Some(("file", path)) if path.starts_with('/') && !path.contains(['%', '?', '#']) => {
            Arc::new(FileBlobs::open(path, Arc::clone(&random))?)
        }
        Some(("file", _)) => {
            let why = format!("file:// is followed by an absolute path, without `%`, `?` and `#`; {POSSIBLE}");
            return Err(ArtifactError::refused(url, why));
        }
        Some(("memory", "")) => Arc::new(MemoryBlobs::default()),
        Some(("memory", _)) => {
            return Err(ArtifactError::refused("memory://…", "it names more than memory has; write memory://"));
        }
        Some(("s3", place)) => open_s3(place)?,
        // Nothing is repeated that may hold a password.
        Some((scheme, _)) => {
            let shown = if scheme.contains(['@', ':']) { "this" } else { scheme };
            return Err(ArtifactError::refused(shown, format!("artifacts cannot be kept there; {POSSIBLE}")));
        }
    };
    Ok(Arc::new(ObjectArtifacts { blobs, random }))
}

#[cfg(feature = "s3")]
fn open_s3(place: &str) -> ArtifactResult<Arc<dyn Blobs>> {
    Ok(Arc::new(super::s3::BucketBlobs::open(place)?))
}

#[cfg(not(feature = "s3"))]
fn open_s3(_place: &str) -> ArtifactResult<Arc<dyn Blobs>> {
    Err(ArtifactError::refused(
        "s3",
        "this program is built without the feature `s3`; write in its Cargo.toml: \
         windlass = { path = \"path/to/windlass/crates/windlass\", features = [\"s3\"] }",
    ))
}

#[cfg(test)]
mod tests {
    use super::open;

    #[test]
    fn what_cannot_be_opened_says_what_would_be_right() {
        for (url, hint) in [
            ("", "s3://bucket/prefix"),
            ("gs://bucket", "s3://bucket/prefix"),
            ("file://relative", "absolute path"),
            ("file:///a%20b", "absolute path"),
            ("memory://x", "write memory://"),
            #[cfg(not(feature = "s3"))]
            ("s3://bucket", "features = [\"s3\"]"),
            #[cfg(feature = "s3")]
            ("s3://", "AWS_REGION"),
            #[cfg(feature = "s3")]
            ("s3://bucket/../x", "no prefix"),
        ] {
            let error = open(url).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains(hint), "{url}: {error}");
        }
        for url in ["https:u:hunter2@h://x", "u:hunter2@h://x", "memory://u:hunter2@h", "s3://u:hunter2@h"] {
            let error = open(url).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(!error.is_empty() && !error.contains("hunter2"), "{url}: {error}");
        }
        assert!(open("memory://").is_ok());
    }

    #[cfg(feature = "s3")]
    #[test]
    fn a_bucket_can_be_opened_without_being_asked() {
        assert!(open("s3://bucket").is_ok());
        assert!(open("s3://bucket/some/prefix/").is_ok());
    }
}
