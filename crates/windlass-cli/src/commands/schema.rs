//! `windlass schema`.

use crate::app::App;
use crate::failure::Failure;
use clap::Args;
use windlass::graph::yaml::SCHEMA;

const AFTER: &str = "\
Editors complete and check workflow files with it. Those with the YAML language server take it from the first line of \
the file: # yaml-language-server: $schema=workflow.schema.json

Examples:
  windlass schema > workflow.schema.json";

/// Print the JSON schema of workflow files, for editors.
#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub(crate) struct Schema {}

impl Schema {
    #[expect(clippy::unused_self, reason = "as the other commands")]
    pub(crate) fn run(self, app: &App) -> Result<(), Failure> {
        app.ui.bytes(SCHEMA.trim_end().as_bytes())
    }
}
