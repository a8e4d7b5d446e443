//! `windlass runs`: look at runs, and change them.

mod change;
mod code;
mod history;
mod list;
mod message;
mod resume;
mod show;
mod start;

use clap::Subcommand;

/// Start runs of workflows, look at them, follow, signal, cancel, resume and repeat them.
#[derive(Debug, Subcommand)]
pub(crate) enum Runs {
    Start(Box<start::Start>),
    List(Box<list::List>),
    Show(show::Show),
    History(history::History),
    Tree(history::Tree),
    Follow(show::Follow),
    Signal(message::Signal),
    Resolve(message::Resolve),
    Cancel(change::Cancel),
    Terminate(message::Terminate),
    Rerun(change::Rerun),
    Resume(resume::Resume),
    Fork(change::Fork),
    Remove(change::Remove),
}

dispatch!(Runs: Start, List, Show, History, Tree, Follow, Signal, Resolve, Cancel, Terminate, Rerun, Resume, Fork, Remove);
