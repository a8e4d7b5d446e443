//! What is wrong with a graph that was built.

use windlass_core::Error;
use windlass_core::graph::Fault;
use windlass_core::graph::expr::ExprError;

/// Why there is no graph. Jobs are named as the builder was told.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A name that no job can have.
    #[error("`{name}` is no name for a job; begin with a letter, go on with letters, digits, - and _, at most 100")]
    Name {
        /// The name.
        name: String,
    },
    /// A job that no store would take.
    #[error("job `{name}`: {error}")]
    Job {
        /// The job.
        name: String,
        /// Why.
        error: Error,
    },
    /// A job that asks to be late. A graph says after what it runs, not when.
    #[error(
        "job `{name}` asks for a delay or a time, which a graph cannot keep; leave `delay` and `run_at` out of its options"
    )]
    Late {
        /// The job.
        name: String,
    },
    /// An expression that cannot be read.
    #[error("job `{name}`, in `{text}`: {error}{}", .error.help.as_ref().map(|help| format!("; {help}")).unwrap_or_default())]
    Expr {
        /// The job.
        name: String,
        /// The expression.
        text: String,
        /// What is wrong with it.
        error: ExprError,
    },
    /// It reads what it does not wait for.
    #[error("job `{name}` reads `needs.{read}` and does not wait for it; say after(&…) of that job")]
    NotNeeded {
        /// The job.
        name: String,
        /// What it reads.
        read: String,
    },
    /// It waits for a job of another graph.
    #[error("job `{name}` is to come after `{need}`, which is of another graph")]
    Elsewhere {
        /// The job.
        name: String,
        /// The other one.
        need: String,
    },
    /// A script with an expression in it.
    #[error("job `{name}`: expressions are never put into a script; name it with env_from, and use \"$NAME\" there")]
    Script {
        /// The job.
        name: String,
    },
    /// Something that only commands have, or only jobs with a map as their payload.
    #[error("job `{name}` has no `{what}`; {why}")]
    Without {
        /// The job.
        name: String,
        /// What was said of it.
        what: String,
        /// Why it makes no sense.
        why: &'static str,
    },
    /// Too much of something, or two of one name.
    #[error(transparent)]
    Graph(#[from] Fault),
}

impl From<BuildError> for Error {
    fn from(error: BuildError) -> Self {
        Self::invalid("graph", error.to_string())
    }
}
