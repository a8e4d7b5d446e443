//! What goes wrong with commands.

use crate::error::JobError;
use std::io;
use std::path::PathBuf;
#[cfg(feature = "artifacts")]
use windlass_core::artifact::ArtifactError;
use windlass_core::job::FailureClass;

#[derive(Debug, thiserror::Error)]
pub(super) enum CommandError {
    #[error("its payload is not one that this worker can read: {0}")]
    Payload(String),
    #[error("`{0}` is no name for a variable; begin with a letter or _, go on with letters, digits and _")]
    VariableName(String),
    #[error("the variable `{0}` holds a NUL, which no command can be given; encode the value, as base64 perhaps")]
    VariableNul(String),
    #[error("the script of step `{0}` holds a NUL; scripts are text")]
    ScriptNul(String),
    #[error(
        "there is no shell `{0}` on this worker; write sh, bash, or a program on its PATH that takes a script's file, like \
         python3"
    )]
    Shell(String),
    #[error("the working-directory `{0}` leads out of the job's folder; give one inside of it")]
    Outside(String),
    #[error("there is no folder `{0}`, which is said to be the working-directory; make it in an earlier step")]
    NoFolder(String),
    #[error("`{path}` cannot be used: {error}")]
    File { path: PathBuf, error: io::Error },
    #[error("step `{step}` cannot be started: {error}")]
    Start { step: String, error: io::Error },
    #[error(
        "step `{0}` cannot be started: its environment is larger than the system allows; read large outputs from the file \
         that WINDLASS_NEEDS names, and write only small ones"
    )]
    TooMuchEnvironment(String),
    #[error("step `{step}` {end}{tail}")]
    Failed { step: String, end: String, tail: String },
    #[error("it took longer than its {limit_ms} ms, in {place}{tail}")]
    TimedOut { place: String, limit_ms: u64, tail: String },
    #[error(
        "it names the artifact `{0}`, and this worker has nowhere to keep artifacts; start the worker with \
         `--artifacts DIR` (in Rust: `Commands::artifacts`), the same place for all workers"
    )]
    NoArtifacts(String),
    #[cfg(feature = "artifacts")]
    #[error("it names the artifact `{0}` and belongs to no run; only jobs of a run hand files on")]
    NoRun(String),
    #[cfg(feature = "artifacts")]
    #[error("the artifact `{name}` cannot be {done}: {error}")]
    Artifact { name: String, done: &'static str, error: ArtifactError },
    #[cfg(feature = "artifacts")]
    #[error("there is no artifact `{name}` in this run, {known}; a job that uploads it must have succeeded before")]
    NoArtifact { name: String, known: String },
    #[error("line {line} of WINDLASS_OUTPUT {reason}")]
    Output { line: usize, reason: String },
    #[error("WINDLASS_OUTPUT {0}")]
    Outputs(String),
    #[error("it was told to stop")]
    Stopped,
}

impl CommandError {
    pub(super) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |error| Self::File { path, error }
    }

    /// What no further attempt can mend is not tried again.
    pub(super) fn into_job_error(self) -> JobError {
        match self {
            Self::VariableName(_)
            | Self::VariableNul(_)
            | Self::ScriptNul(_)
            | Self::Shell(_)
            | Self::Outside(_)
            | Self::TooMuchEnvironment(_) => JobError::fatal(self),
            #[cfg(feature = "artifacts")]
            Self::NoRun(_) | Self::NoArtifact { .. } => JobError::fatal(self),
            // Of an upload the next attempt may leave something else.
            #[cfg(feature = "artifacts")]
            Self::Artifact { .. } => JobError::new(self),
            Self::TimedOut { .. } => JobError::classed(FailureClass::Timeout, self),
            Self::Stopped => JobError::of_stop(),
            Self::Payload(_)
            | Self::NoFolder(_)
            | Self::File { .. }
            | Self::Start { .. }
            | Self::Failed { .. }
            | Self::NoArtifacts(_)
            | Self::Output { .. }
            | Self::Outputs(_) => JobError::new(self),
        }
    }
}
