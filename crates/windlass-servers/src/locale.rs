//! Locales made for one server: the system may have none but its own, and it is left alone.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::ServerError;

/// A locale in the server's folder.
#[derive(Debug)]
pub(crate) struct Locale {
    /// The folder that holds the folder of the locale.
    folder: PathBuf,
    name: String,
}

impl Locale {
    /// Compiles a locale, from the definitions that Debian has in the package `locales`.
    pub(crate) fn make(folder: &Path, definition: &str) -> Result<Self, ServerError> {
        let locale = Self { folder: folder.join("locales"), name: format!("{definition}.UTF-8") };
        fs::create_dir(&locale.folder).map_err(ServerError::io("make a folder for the locale"))?;
        let mut command = Command::new("localedef");
        // A path with a slash is where it goes; a name would go to the system's archive.
        command.args(["--inputfile", definition, "--charmap", "UTF-8"]).arg(locale.folder.join(&locale.name));
        let output = command.stdin(Stdio::null()).output();
        let output = output.map_err(ServerError::io("run localedef (`cargo xtask test` installs what it needs)"))?;
        if output.status.success() {
            return Ok(locale);
        }
        let output = String::from_utf8_lossy(&output.stderr).into_owned();
        Err(ServerError::Command { command: format!("localedef --inputfile {definition}"), output })
    }

    /// Starts a command under the locale.
    pub(crate) fn apply(&self, command: &mut Command) {
        command.env("LOCPATH", &self.folder).env("LC_ALL", &self.name);
    }
}
