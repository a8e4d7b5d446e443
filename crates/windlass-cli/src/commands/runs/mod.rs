//! `windlass runs`: look at runs, and change them.

mod change;
pub(super) mod code;
mod discard;
mod export;
mod history;
mod list;
mod message;
mod resume;
mod show;
mod start;

use clap::Subcommand;

/// Start runs of workflows, look at them, follow, signal, cancel, resume, export and repeat them.
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
    Discard(discard::Discard),
    Cancel(change::Cancel),
    Terminate(message::Terminate),
    Rerun(change::Rerun),
    Resume(resume::Resume),
    Fork(change::Fork),
    Export(export::Export),
    Remove(change::Remove),
}

dispatch!(Runs: Start, List, Show, History, Tree, Follow, Signal, Resolve, Discard, Cancel, Terminate, Rerun, Resume, Fork, Export, Remove);
