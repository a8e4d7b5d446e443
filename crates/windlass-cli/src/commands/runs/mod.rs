//! `windlass runs`: look at runs, and change them.

mod change;
mod list;
mod resume;
mod show;

use clap::Subcommand;

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

dispatch!(Runs: List, Show, Follow, Cancel, Rerun, Resume, Fork, Remove);
