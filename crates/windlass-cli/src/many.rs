//! A change to all jobs that match, step by step, with a progress bar.

use crate::app::App;
use crate::failure::Failure;
use serde_json::json;
use windlass::core::store::{ChangeManyOp, Filter, Store};
use windlass_operate::change::change_all;

/// A change to all jobs that match.
pub(crate) struct Many<'a> {
    pub(crate) app: &'a App,
    pub(crate) store: &'a dyn Store,
    pub(crate) what: &'static str,
    /// How many there may be.
    pub(crate) total: u64,
}

impl Many<'_> {
    /// Changes all of them; returns how many were changed.
    pub(crate) async fn run(&self, op: ChangeManyOp, filter: Filter) -> Result<u64, Failure> {
        let bar = self.app.ui.bar(self.total, self.what);
        let changed = change_all(self.store, op, filter, |changed| bar.set_position(changed)).await?;
        bar.finish_and_clear();
        Ok(changed)
    }
}

/// Says how many.
pub(crate) fn report(app: &App, done: &str, changed: u64) -> Result<(), Failure> {
    if app.ui.json {
        return app.ui.json(&json!({ "changed": changed }));
    }
    app.ui.line(format_args!("{} {done}", windlass_operate::text::count(changed, "job")))
}
