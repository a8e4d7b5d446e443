//! Puts an artifact into a folder.
//!
//! Everything is received and checked in a folder of its own inside the target, and only then moved to where it belongs, so
//! that a damaged artifact leaves nothing behind. The last step moves file by file; if that is interrupted, some are there.

use super::folder::{Folder, Kind, LINK, split};
use super::{
    Artifact, ArtifactError, ArtifactResult, ArtifactStore, FILES_AT_ONCE, FileEntry, Limits, Manifest, Pieces,
    blocking, unavailable,
};
use futures::stream::{StreamExt, TryStreamExt};
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;
use tokio::io::AsyncWriteExt;

/// How the names of the folders begin that are received into. An upload skips what is called so: a download that was killed
/// leaves its folder behind.
const STAGE_PREFIX: &str = ".windlass-download-";
/// More downloads into one folder at the same time, or killed ones, there are not.
const STAGES_MAX: usize = 1_000;

/// Downloads an artifact into a folder, which is made if it is missing. Files that stand there are replaced; links that stand
/// in the way are refused.
pub async fn download(
    store: &dyn ArtifactStore,
    artifact: &Artifact,
    into_dir: &Path,
    limits: Limits,
) -> ArtifactResult<Manifest> {
    let into_dir = into_dir.to_owned();
    receive_all(store, artifact, limits, move || {
        std::fs::create_dir_all(&into_dir).map_err(|error| unavailable(into_dir.display(), error))?;
        Folder::open(&into_dir)
    })
    .await
}

/// The same into a folder below `base`, where no link is followed on the way; the empty path is `base` itself.
#[cfg(all(unix, feature = "commands"))]
pub(crate) async fn download_below(
    store: &dyn ArtifactStore,
    artifact: &Artifact,
    (base, folder): (&Path, &str),
    limits: Limits,
) -> ArtifactResult<Manifest> {
    if !folder.is_empty() {
        super::FilePath::new(folder)?;
    }
    let (base, folder) = (base.to_owned(), folder.to_owned());
    receive_all(store, artifact, limits, move || Folder::open(&base)?.enter_or_make(&folder)).await
}

async fn receive_all(
    store: &dyn ArtifactStore,
    artifact: &Artifact,
    limits: Limits,
    target: impl FnOnce() -> ArtifactResult<Folder> + Send + 'static,
) -> ArtifactResult<Manifest> {
    let manifest = store.manifest(artifact).await?;
    limits.check_files(manifest.files().len())?;
    limits.check_bytes(manifest.bytes())?;
    let files = Arc::new(manifest.files().to_vec());
    let stage = blocking({
        let files = Arc::clone(&files);
        move || Ok(Cleared(Arc::new(Stage::new(target()?, files)?)))
    })
    .await?;

    let received = (0..files.len()).map(|at| receive(store, artifact, &stage.0, (at, &files[at])));
    futures::stream::iter(received).buffer_unordered(FILES_AT_ONCE).try_collect::<()>().await?;
    blocking(move || stage.0.publish()).await?;
    Ok(manifest)
}

async fn receive(
    store: &dyn ArtifactStore,
    artifact: &Artifact,
    stage: &Arc<Stage>,
    (at, file): (usize, &FileEntry),
) -> ArtifactResult<()> {
    let mut content = store.get(artifact, file).await?;
    let (stage, executable) = (Arc::clone(stage), file.executable);
    let created = blocking(move || stage.create(at, executable)).await?;
    let mut target = tokio::fs::File::from_std(created);
    while let Some(piece) = content.next().await? {
        target.write_all(&piece).await.map_err(|error| unavailable(&file.path, error))?;
    }
    target.flush().await.map_err(|error| unavailable(&file.path, error))
}

/// True for a path with a part that only a download may use.
pub(super) fn is_staged(path: &str) -> bool {
    path.split('/').any(|part| part.starts_with(STAGE_PREFIX))
}

/// The refusal of such a path.
pub(super) fn staged(path: &str) -> ArtifactError {
    ArtifactError::refused(path, format!("names that begin with {STAGE_PREFIX} are taken; give it another"))
}

/// Where files are received, by number.
struct Stage {
    target: Folder,
    folder: Folder,
    name: String,
    files: Arc<Vec<FileEntry>>,
    /// Once it is cleared, nothing is created any more: work that was given up may still run on its thread.
    is_cleared: Mutex<bool>,
}

impl Stage {
    fn new(target: Folder, files: Arc<Vec<FileEntry>>) -> ArtifactResult<Self> {
        files.iter().try_for_each(|file| check(&target, file.path.as_str()))?;
        for number in 0..STAGES_MAX {
            let name = format!("{STAGE_PREFIX}{number}");
            if let Some(folder) = target.make(&name)? {
                return Ok(Self { target, folder, name, files, is_cleared: Mutex::new(false) });
            }
        }
        let why = format!("there are {STAGES_MAX} downloads into it; remove what is called {STAGE_PREFIX}… there");
        Err(ArtifactError::refused("the folder", why))
    }

    fn create(&self, at: usize, executable: bool) -> ArtifactResult<std::fs::File> {
        let is_cleared = self.is_cleared.lock();
        match *is_cleared {
            true => Err(unavailable(&self.name, "the download was given up")),
            false => self.folder.create(&at.to_string(), executable),
        }
    }

    /// Moves every file to where it belongs.
    fn publish(&self) -> ArtifactResult<()> {
        for (at, file) in self.files.iter().enumerate() {
            let (folder, name) = split(file.path.as_str());
            let folder = self.target.enter_or_make(folder)?;
            // A link at the end would only be replaced, never followed; it is refused so that it is seen.
            check_end(&folder, name, file.path.as_str())?;
            self.folder.move_to(&at.to_string(), &folder, name)?;
        }
        Ok(())
    }
}

/// A stage that goes away with everything in it, however the download ends.
struct Cleared(Arc<Stage>);

impl Drop for Cleared {
    fn drop(&mut self) {
        let stage = &self.0;
        let mut is_cleared = stage.is_cleared.lock();
        *is_cleared = true;
        for at in 0..stage.files.len() {
            stage.folder.remove_file(&at.to_string());
        }
        stage.target.remove_folder(&stage.name);
    }
}

/// Refuses, before anything is received, what could not be put into its place.
fn check(target: &Folder, path: &str) -> ArtifactResult<()> {
    // Deeper ones are in no download's way, and older uploads may have them.
    if path.starts_with(STAGE_PREFIX) {
        return Err(staged(path));
    }
    check_end(target, path, path)
}

fn check_end(folder: &Folder, path: &str, shown: &str) -> ArtifactResult<()> {
    match folder.kind(path)? {
        None | Some(Kind::File { .. }) => Ok(()),
        Some(Kind::Link) => Err(ArtifactError::refused(shown, LINK)),
        Some(Kind::Folder | Kind::Other) => {
            Err(ArtifactError::refused(shown, "something else stands there; remove it"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that is created between the last removal and that of the folder would keep the folder.
    #[test]
    fn after_it_is_cleared_nothing_is_created() {
        let target = tempfile::tempdir().unwrap();
        let cleared = Cleared(Arc::new(Stage::new(Folder::open(target.path()).unwrap(), Arc::default()).unwrap()));
        let stage = Arc::clone(&cleared.0);
        assert!(target.path().join(&stage.name).exists());
        drop(cleared);
        assert!(!target.path().join(&stage.name).exists());
        let late = stage.create(0, false);
        assert!(matches!(late, Err(ArtifactError::Unavailable { .. })), "{late:?}");
    }
}
