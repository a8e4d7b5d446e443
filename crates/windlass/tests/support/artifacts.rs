//! A place for artifacts, and sources of files that are made up.

use async_trait::async_trait;
use bytes::Bytes;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tempfile::TempDir;
use windlass::artifacts::{
    Artifact, ArtifactError, ArtifactResult, ArtifactSource, ArtifactStore, FilePath, Limits, Manifest, Pieces, Put,
    SourceFile, download, open, upload,
};

/// A folder to take from, one to put into, and one for the store.
pub(crate) struct Place {
    dir: TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        let place = Self { dir: tempfile::tempdir().unwrap() };
        fs::create_dir(place.source()).unwrap();
        place
    }

    pub(crate) fn source(&self) -> PathBuf {
        self.dir.path().join("source")
    }

    pub(crate) fn target(&self) -> PathBuf {
        self.dir.path().join("target")
    }

    pub(crate) fn outside(&self) -> PathBuf {
        self.dir.path().join("outside")
    }

    pub(crate) fn kept(&self) -> PathBuf {
        self.dir.path().join("store")
    }

    pub(crate) fn write(&self, path: &str, content: &[u8]) {
        let path = self.source().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub(crate) fn folder_store(&self) -> Arc<dyn ArtifactStore> {
        open(self.kept().to_str().unwrap()).unwrap()
    }

    pub(crate) fn stores(&self) -> [Arc<dyn ArtifactStore>; 2] {
        [self.folder_store(), open("memory://").unwrap()]
    }

    pub(crate) async fn upload(&self, store: &Arc<dyn ArtifactStore>, patterns: &[&str]) -> ArtifactResult<Manifest> {
        upload(store.as_ref(), &put(), &self.source(), patterns).await
    }

    pub(crate) async fn download(&self, store: &Arc<dyn ArtifactStore>) -> ArtifactResult<Manifest> {
        download(store.as_ref(), &artifact(), &self.target(), Limits::default()).await
    }

    /// Where the folder store keeps the artifact.
    pub(crate) fn home(&self) -> PathBuf {
        self.kept().join("runs/run-1/dist")
    }

    /// Writes a manifest past everything that checks it.
    pub(crate) fn plant_manifest(&self, path: &str, content: &[u8]) {
        let hash = blake3::hash(content);
        fs::create_dir_all(self.home().join("blobs")).unwrap();
        fs::write(self.home().join("blobs").join(hash.to_hex().as_str()), content).unwrap();
        let path = serde_json::to_string(path).unwrap();
        let size = content.len();
        let text = format!(r#"{{"version":1,"files":[{{"path":{path},"size":{size},"blake3":"{hash}"}}]}}"#);
        fs::write(self.home().join("manifest-0000000009-0000000000-0000000000000000.json"), text).unwrap();
    }
}

pub(crate) fn artifact() -> Artifact {
    Artifact::new("run-1", "dist").unwrap()
}

pub(crate) fn put() -> Put {
    Put::new(artifact())
}

/// Every file below a folder with its content, and every folder that is empty.
pub(crate) fn tree(root: &Path) -> Vec<(String, Vec<u8>)> {
    let (mut found, mut folders) = (Vec::new(), vec![root.to_owned()]);
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        let entries: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        if entries.is_empty() && folder != root {
            found.push((format!("{}/", folder.strip_prefix(root).unwrap().display()), Vec::new()));
        }
        for path in entries {
            if path.is_dir() && !path.is_symlink() {
                folders.push(path);
            } else {
                let shown = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
                found.push((shown, fs::read(&path).unwrap_or_default()));
            }
        }
    }
    found.sort();
    found
}

pub(crate) fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o111
}

#[track_caller]
pub(crate) fn assert_refused<T: std::fmt::Debug>(result: ArtifactResult<T>, name: &str) {
    match result {
        Err(ArtifactError::Refused { path, .. }) => assert!(path.contains(name), "{path} instead of {name}"),
        other => panic!("not refused: {other:?}"),
    }
}

/// Files that are made up as they are read.
pub(crate) struct MadeUp {
    files: Vec<SourceFile>,
    /// What each piece of a file is, the number of the opening given.
    piece: Box<dyn Fn(usize) -> ArtifactResult<Bytes> + Send + Sync>,
    pieces: usize,
    opened: AtomicUsize,
}

impl MadeUp {
    pub(crate) fn new(
        paths: &[&str],
        pieces: usize,
        piece: impl Fn(usize) -> ArtifactResult<Bytes> + Send + Sync + 'static,
    ) -> Self {
        let file = |path: &&str| SourceFile { path: FilePath::new(path).unwrap(), executable: false };
        let files = paths.iter().map(file).collect();
        Self { files, piece: Box::new(piece), pieces, opened: AtomicUsize::new(0) }
    }
}

pub(crate) struct MadeUpPieces(pub(crate) Box<dyn FnMut() -> ArtifactResult<Option<Bytes>> + Send>);

#[async_trait]
impl Pieces for MadeUpPieces {
    async fn next(&mut self) -> ArtifactResult<Option<Bytes>> {
        (self.0)()
    }
}

#[async_trait]
impl ArtifactSource for MadeUp {
    fn files(&self) -> &[SourceFile] {
        &self.files
    }

    async fn open(&self, _: &SourceFile) -> ArtifactResult<Box<dyn Pieces>> {
        let number = self.opened.fetch_add(1, Ordering::SeqCst);
        let mut pieces: Vec<ArtifactResult<Bytes>> = (0..self.pieces).map(|_| (self.piece)(number)).collect();
        Ok(Box::new(MadeUpPieces(Box::new(move || pieces.pop().transpose()))))
    }
}

pub(crate) fn broken() -> ArtifactError {
    ArtifactError::Unavailable { reason: "the disk is gone".into() }
}
