//! Files that the jobs of a run hand on: taken before the first step, sent after the last.

use super::error::CommandError;
use super::payload::Payload;
use super::step::Around;
use crate::artifacts::{
    Artifact, ArtifactError, ArtifactResult, ArtifactStore, Limits, Manifest, Put, RunKey, download_below, upload,
};
use std::path::Path;

/// The most names that an error tells.
const NAMES_SHOWN: usize = 10;
/// Bits of an upload's number below the rerun of the node, for the claims of its job: the uploads of a node that is run once
/// more have higher numbers than those before.
const CLAIM_NUMBER_BITS: u32 = 40;

/// What a job takes and hands on.
pub(super) struct Handing<'h> {
    around: Around<'h>,
    payload: &'h Payload,
    store: &'h dyn ArtifactStore,
    run: &'h str,
}

impl<'h> Handing<'h> {
    /// `None` if there is nothing to hand on.
    pub(super) fn of(around: Around<'h>, payload: &'h Payload) -> Result<Option<Self>, CommandError> {
        let Some(name) = payload.artifacts.any() else { return Ok(None) };
        let store = around.commands.artifacts.as_deref();
        let store = store.ok_or_else(|| CommandError::NoArtifacts(name.to_owned()))?;
        let run = payload.run.id.as_deref().ok_or_else(|| CommandError::NoRun(name.to_owned()))?;
        Ok(Some(Self { around, payload, store, run }))
    }

    /// Puts what it takes into the folders that are named, below `work`.
    pub(super) async fn download_all(&self, work: &Path) -> Result<(), CommandError> {
        for (name, folder) in &self.payload.artifacts.download {
            let manifest = match self.download(name, work, folder).await {
                Err(error @ ArtifactError::NotFound { .. }) => return Err(self.missing(name, error).await),
                done => {
                    done.map_err(|error| CommandError::Artifact { name: name.clone(), done: "downloaded", error })?
                }
            };
            self.say(name, &manifest, &format!(", put into `{folder}`"));
        }
        Ok(())
    }

    async fn download(&self, name: &str, work: &Path, folder: &str) -> ArtifactResult<Manifest> {
        let artifact = Artifact::new(self.run, name)?;
        // As people write the folder itself, and folders.
        let folder = folder.strip_prefix("./").unwrap_or(folder);
        let folder = if folder == "." { "" } else { folder.strip_suffix('/').unwrap_or(folder) };
        download_below(self.store, &artifact, (work, folder), Limits::default()).await
    }

    /// Hands on what the patterns find below `work`.
    pub(super) async fn upload_all(&self, work: &Path) -> Result<(), CommandError> {
        for (name, patterns) in &self.payload.artifacts.upload {
            let done = self.upload(name, work, patterns).await;
            let manifest =
                done.map_err(|error| CommandError::Artifact { name: name.clone(), done: "uploaded", error })?;
            self.say(name, &manifest, "");
        }
        Ok(())
    }

    async fn upload(&self, name: &str, work: &Path, patterns: &[String]) -> ArtifactResult<Manifest> {
        let attempt = upload_number(self.payload.run.rerun, self.around.ctx.job.claim_number());
        let put = Put { attempt, ..Put::new(Artifact::new(self.run, name)?) };
        upload(self.store, &put, work, patterns).await
    }

    /// What can be said of an artifact that is not there.
    async fn missing(&self, name: &str, error: ArtifactError) -> CommandError {
        let listed = match RunKey::new(self.run) {
            Ok(run) => self.store.list(&run).await,
            Err(error) => Err(error),
        };
        let name = name.to_owned();
        match listed {
            Ok(names) if names.iter().all(|there| there.as_str() != name) => {
                let shown: Vec<String> = names.iter().take(NAMES_SHOWN).map(|there| format!("`{there}`")).collect();
                let more = if names.len() > NAMES_SHOWN { " and more" } else { "" };
                let known = match &shown[..] {
                    [] => "which has none".to_owned(),
                    some => format!("only {}{more}", some.join(", ")),
                };
                CommandError::NoArtifact { name, known }
            }
            _ => CommandError::Artifact { name, done: "downloaded", error },
        }
    }

    fn say(&self, name: &str, manifest: &Manifest, where_to: &str) {
        let files = manifest.files().len();
        let noun = if files == 1 { "file" } else { "files" };
        let line = format!("▸ artifact {name}: {files} {noun}, {}{where_to}", size(manifest.bytes()));
        self.around.ctx.log(self.around.mask.hide_text(line));
    }
}

/// Rises from rerun to rerun of a node, and from claim to claim of its job: an upload replaces those with lower numbers.
fn upload_number(rerun: u32, claim: u64) -> u64 {
    let reruns_max = u64::MAX >> CLAIM_NUMBER_BITS;
    (u64::from(rerun).min(reruns_max) << CLAIM_NUMBER_BITS) | claim.min((1 << CLAIM_NUMBER_BITS) - 1)
}

/// For people: `1.2 MB`.
fn size(bytes: u64) -> String {
    let mut tenths = bytes.saturating_mul(10);
    for unit in ["B", "kB", "MB"] {
        if tenths < 10_000 {
            return if unit == "B" { format!("{bytes} B") } else { format!("{}.{} {unit}", tenths / 10, tenths % 10) };
        }
        tenths /= 1_000;
    }
    format!("{}.{} GB", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_uploads_rise_with_claims_and_then_with_reruns() {
        let claims =
            |rerun| [0, 1, 20_000, 1 << 20, u64::from(u32::MAX) << 20].map(|claim| upload_number(rerun, claim));
        let rising = [claims(0), claims(1), claims(0xFF_FFFF)].concat();
        assert!(rising.is_sorted_by(|a, b| a < b), "{rising:?}");
        assert_eq!(upload_number(u32::MAX, u64::MAX), u64::MAX, "nothing overflows");
    }

    #[test]
    fn sizes_are_for_people() {
        let sizes = [0, 999, 1_000, 1_234_567, 2_147_483_648, 5_000_000_000_000].map(size);
        assert_eq!(sizes, ["0 B", "999 B", "1.0 kB", "1.2 MB", "2.1 GB", "5000.0 GB"]);
    }
}
