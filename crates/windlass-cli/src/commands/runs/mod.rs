//! `windlass runs`: look at runs, and change them.

mod change;
mod list;
mod resume;
mod show;

use crate::app::App;
use crate::failure::Failure;
use clap::Subcommand;
use std::process::ExitCode;

/// Look at runs of workflows, follow, cancel, resume and repeat them.
#[derive(Debug, Subcommand)]
pub(crate) enum Runs {
    List(list::List),
    Show(show::Show),
    Follow(show::Follow),
    Cancel(change::Cancel),
    Rerun(change::Rerun),
    Resume(resume::Resume),
    Fork(change::Fork),
    Remove(change::Remove),
}

impl Runs {
    pub(crate) async fn run(self, app: &App) -> Result<ExitCode, Failure> {
        match self {
            Self::List(list) => list.run(app).await,
            Self::Show(show) => show.run(app).await,
            Self::Follow(follow) => follow.run(app).await,
            Self::Cancel(cancel) => cancel.run(app).await,
            Self::Rerun(rerun) => rerun.run(app).await,
            Self::Resume(resume) => resume.run(app).await,
            Self::Fork(fork) => fork.run(app).await,
            Self::Remove(remove) => remove.run(app).await,
        }
    }
}
