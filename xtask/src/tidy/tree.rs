//! The project as text: what git tracks or would track, or all files where there is no git.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

/// A text file, with its path from the root and `/` between its parts.
#[derive(Debug)]
pub(super) struct SourceFile {
    pub(super) path: String,
    pub(super) text: String,
}

impl SourceFile {
    pub(super) fn has_extension(&self, extensions: &[&str]) -> bool {
        let extension = Path::new(&self.path).extension().unwrap_or_default();
        extensions.iter().any(|wanted| extension == *wanted)
    }

    pub(super) fn is_rust(&self) -> bool {
        self.has_extension(&["rs"])
    }
}

/// All files of the project.
#[derive(Debug, Default)]
pub(super) struct Tree {
    /// Those that are text.
    pub(super) files: Vec<SourceFile>,
    /// All files and the folders they are in, for links.
    paths: BTreeSet<String>,
}

impl Tree {
    pub(super) fn read(root: &Path) -> io::Result<Self> {
        let paths = match git_files(root) {
            Some(paths) => paths,
            None => walk(root)?,
        };
        let mut tree = Self::default();
        for path in paths {
            // Listed by git but deleted in the work tree.
            let Ok(bytes) = fs::read(root.join(&path)) else {
                continue;
            };
            tree.insert_path(&path);
            if bytes.contains(&0) {
                continue;
            }
            if let Ok(text) = String::from_utf8(bytes) {
                tree.files.push(SourceFile { path, text });
            }
        }
        Ok(tree)
    }

    #[cfg(test)]
    pub(super) fn of(files: &[(&str, &str)]) -> Self {
        let mut tree = Self::default();
        for (path, text) in files {
            tree.insert_path(path);
            tree.files.push(SourceFile { path: (*path).to_owned(), text: (*text).to_owned() });
        }
        tree
    }

    /// Whether this is a file or a folder of the project.
    pub(super) fn contains(&self, path: &str) -> bool {
        path.is_empty() || self.paths.contains(path)
    }

    fn insert_path(&mut self, path: &str) {
        for (end, _) in path.match_indices('/') {
            self.paths.insert(path[..end].to_owned());
        }
        self.paths.insert(path.to_owned());
    }
}

fn git_files(root: &Path) -> Option<Vec<String>> {
    let output = Command::new("git")
        .current_dir(root)
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .output()
        .ok()?;
    // An empty answer is that of a folder which some other repository ignores.
    if !output.status.success() || output.stdout.is_empty() {
        return None;
    }
    let listing = String::from_utf8(output.stdout).ok()?;
    let paths: BTreeSet<&str> = listing.split('\0').filter(|path| !path.is_empty()).collect();
    Some(paths.into_iter().map(str::to_owned).collect())
}

fn walk(root: &Path) -> io::Result<Vec<String>> {
    let mut paths = Vec::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root.join(&folder))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
            if !entry.file_type()?.is_dir() {
                paths.push(path);
            } else if !matches!(name.as_str(), "target" | ".git" | "node_modules" | "mutants.out") {
                folders.push(path);
            }
        }
    }
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::{Tree, walk};

    #[test]
    fn folders_of_files_are_known() {
        let tree = Tree::of(&[("docs/guide/store.md", "")]);
        assert!(tree.contains("docs"));
        assert!(tree.contains("docs/guide"));
        assert!(tree.contains("docs/guide/store.md"));
        assert!(!tree.contains("docs/guide/queue.md"));
        assert!(!tree.contains("ocs"));
    }

    #[test]
    fn reading_and_walking_find_this_file_and_no_build_output() {
        let root = crate::shell::root();
        let tree = Tree::read(&root).unwrap();
        assert!(tree.files.iter().any(|file| file.path == "xtask/src/tidy/tree.rs"));
        let walked = walk(&root).unwrap();
        assert!(walked.iter().any(|path| path == "xtask/src/tidy/tree.rs"));
        assert!(!walked.iter().any(|path| path.starts_with("target/")));
    }
}
