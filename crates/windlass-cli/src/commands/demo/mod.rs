//! `windlass demo`: everything at work, live, with real processes that are frozen and killed, and an audit in the end.
//!
//! The parent enqueues, looks after its children and follows the feed; each child is a worker in a process of its own,
//! over the same store. What is trusted: the parent's memory of what the store acknowledged, the children's ledgers, and
//! the store's own records and feed. The summary is made by comparing them, see [`windlass_audit`].

mod args;
mod board;
mod child;
mod desk;
mod end;
mod events;
mod faults;
mod fleet;
mod follow;
mod jobs;
mod place;
mod produce;
mod run;
mod summary;
mod view;

use crate::app::App;
use crate::failure::Failure;
use std::process::ExitCode;

pub(crate) use args::Demo;
pub(crate) use child::DemoWorker;

impl Demo {
    pub(crate) async fn run(self, app: &App) -> Result<ExitCode, Failure> {
        let place = place::Place::find(&self, app)?;
        let summary = run::run(&self, app, &place).await;
        // What went wrong can be looked at afterwards.
        let keep = self.keep || summary.as_ref().is_ok_and(|summary| !summary.is_clean());
        let left = place.leave(keep);
        let summary = summary?;
        summary.print(app.ui)?;
        if let Some(left) = left {
            app.ui.note(left);
        }
        Ok(if summary.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
