//! What to upload: files of a folder, chosen by patterns.

use super::download::{is_staged, staged};
use super::folder::{Folder, Kind, LINK, NO_FILE};
use super::glob::Pattern;
use super::{
    ArtifactError, ArtifactResult, ArtifactSource, ArtifactStore, FilePath, FilePieces, Limits, Manifest, Pieces, Put,
    SourceFile, blocking,
};
use async_trait::async_trait;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// The most patterns of an upload.
const PATTERNS_MAX: usize = 100;
/// The most files and folders that are looked at to find those to upload.
const ENTRIES_MAX: usize = 1_000_000;

/// Uploads the files of a folder that the patterns choose.
///
/// A pattern is a path below the folder, in which `*` and `?` stand for letters and `**` for any number of folders; without
/// them it names a file, or a folder with everything in it (`.` is all). Hidden files count like others. A pattern that
/// matches nothing is an error, and so is a symlink among the files. The folders of downloads that were killed
/// (`.windlass-download-…`) are left out.
pub async fn upload(
    store: &dyn ArtifactStore,
    put: &Put,
    base_dir: &Path,
    patterns: &[impl AsRef<str> + Sync],
) -> ArtifactResult<Manifest> {
    let source = FolderSource::open(base_dir, patterns, put.limits).await?;
    store.put(put, &source).await
}

/// Files of a folder.
#[derive(Debug)]
pub struct FolderSource {
    folder: Arc<Folder>,
    files: Vec<SourceFile>,
}

impl FolderSource {
    /// Looks for the files that the patterns choose, see [`upload`].
    pub async fn open(base_dir: &Path, patterns: &[impl AsRef<str> + Sync], limits: Limits) -> ArtifactResult<Self> {
        if patterns.is_empty() || patterns.len() > PATTERNS_MAX {
            let why =
                format!("an artifact is chosen by 1 to {PATTERNS_MAX} patterns; `.` means everything in the folder");
            return Err(ArtifactError::refused(base_dir.display(), why));
        }
        let patterns: Vec<Pattern> =
            patterns.iter().map(|pattern| Pattern::new(pattern.as_ref())).collect::<Result<_, _>>()?;
        let base_dir = base_dir.to_owned();
        blocking(move || {
            let folder = Folder::open(&base_dir)?;
            let mut search = Search { folder: &folder, limits, found: BTreeMap::new(), bytes: 0, looked_at: 0 };
            patterns.iter().try_for_each(|pattern| search.add(pattern))?;
            let found = std::mem::take(&mut search.found);
            let files = found.into_iter().map(|(path, executable)| SourceFile { path, executable }).collect();
            Ok(Self { folder: Arc::new(folder), files })
        })
        .await
    }
}

#[async_trait]
impl ArtifactSource for FolderSource {
    fn files(&self) -> &[SourceFile] {
        &self.files
    }

    async fn open(&self, file: &SourceFile) -> ArtifactResult<Box<dyn Pieces>> {
        let (folder, path) = (Arc::clone(&self.folder), file.path.to_string());
        let opened = blocking(move || folder.read(&path)).await?;
        Ok(Box::new(FilePieces { file: opened.into(), path: file.path.to_string() }))
    }
}

struct Search<'f> {
    folder: &'f Folder,
    limits: Limits,
    /// Path, and whether it is executable.
    found: BTreeMap<FilePath, bool>,
    bytes: u64,
    looked_at: usize,
}

impl Search<'_> {
    fn add(&mut self, pattern: &Pattern) -> ArtifactResult<()> {
        let root = pattern.root();
        if is_staged(&root) {
            return Err(staged(&root));
        }
        let is_plain = pattern.is_plain();
        let matched = match self.folder.kind(&root)? {
            None => 0,
            Some(Kind::Folder) => self.walk(root, |path, kind| match kind {
                Kind::Folder => is_plain || pattern.may_match_below(path),
                _ => is_plain || pattern.matches(path),
            })?,
            // A pattern goes on below its root, a plain path does not.
            Some(Kind::File { .. }) if !is_plain => 0,
            Some(kind) => self.take(&root, kind).map(|()| 1)?,
        };
        if matched > 0 {
            return Ok(());
        }
        let what = format!(
            "no file matches `{}`; a path starts at the artifact's folder, and only `*`, `**` and `?` stand for others",
            pattern.text
        );
        Err(ArtifactError::NotFound { what })
    }

    /// Looks through a folder and takes what is wanted; tells how many.
    fn walk(&mut self, root: String, wanted: impl Fn(&str, Kind) -> bool) -> ArtifactResult<usize> {
        let (mut matched, mut folders) = (0, vec![root]);
        // ends because: every folder is entered once, no link is followed, and ENTRIES_MAX bounds them all.
        while let Some(folder) = folders.pop() {
            let entries = self.folder.entries(&folder, ENTRIES_MAX - self.looked_at)?;
            self.looked_at += entries.len();
            for entry in entries {
                if is_staged(&entry.name) {
                    continue;
                }
                let path = if folder.is_empty() { entry.name } else { format!("{folder}/{}", entry.name) };
                if !wanted(&path, entry.kind) {
                    continue;
                }
                if !entry.is_text {
                    return Err(ArtifactError::refused(path, "its name is not UTF-8; give it another"));
                }
                if entry.kind == Kind::Folder {
                    // A path that is too long is found too long before it is opened.
                    FilePath::new(&path)?;
                    folders.push(path);
                } else {
                    self.take(&path, entry.kind)?;
                    matched += 1;
                }
            }
        }
        Ok(matched)
    }

    fn take(&mut self, path: &str, kind: Kind) -> ArtifactResult<()> {
        match kind {
            Kind::File { size, executable } => {
                if self.found.insert(FilePath::new(path)?, executable).is_none() {
                    self.bytes = self.bytes.saturating_add(size);
                }
                self.limits.check_files(self.found.len())?;
                self.limits.check_bytes(self.bytes)
            }
            Kind::Link => Err(ArtifactError::refused(path, LINK)),
            Kind::Folder | Kind::Other => Err(ArtifactError::refused(path, NO_FILE)),
        }
    }
}
