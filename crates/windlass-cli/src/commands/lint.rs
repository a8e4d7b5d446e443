//! `windlass lint`: what is wrong with workflow files.

use crate::app::App;
use crate::failure::Failure;
use crate::ui::GOOD;
use crate::workflow_file::{WorkflowFile, drawn};
use clap::Args;
use serde_json::json;
use std::process::ExitCode;
use windlass::graph::yaml::{Problem, Problems};
use windlass_operate::text::count;

const AFTER: &str = "\
No store is needed. Exit code 1: a file has faults. With --json: one object for each fault, with file, line and column \
(from 1), end (line and column behind it), message and help; nothing for a file without faults.

Examples:
  windlass lint ci.yml
  windlass lint .windlass/*.yml --json | jq -r '\"\\(.file):\\(.line): \\(.message)\"'
  cat ci.yml | windlass lint -";

/// Look for faults in workflow files; each is drawn into the text.
#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub(crate) struct Lint {
    /// The files; - is standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<String>,
}

impl Lint {
    pub(crate) fn run(self, app: &App) -> Result<ExitCode, Failure> {
        let (mut faults, mut faulty) = (0, 0);
        let files = self.files.iter().map(|path| WorkflowFile::open(path)).collect::<Result<Vec<_>, _>>()?;
        for file in &files {
            match file.read() {
                Ok(workflow) if !app.ui.json => {
                    let jobs = count(workflow.graph.nodes.len() as u64, "job");
                    app.ui.line(format_args!("{GOOD}ok{GOOD:#} {} ({jobs})", file.name))?;
                }
                Ok(_) => {}
                Err(problems) => {
                    faults += problems.count() as u64;
                    faulty += 1 + problems.used.len() as u64;
                    show(app, &problems)?;
                }
            }
        }
        if faults == 0 {
            return Ok(ExitCode::SUCCESS);
        }
        app.ui.note(format_args!("{} in {}", count(faults, "fault"), count(faulty, "file")));
        Ok(ExitCode::FAILURE)
    }
}

fn show(app: &App, problems: &Problems) -> Result<(), Failure> {
    if !app.ui.json {
        return app.ui.line(drawn(problems));
    }
    for problem in &problems.all {
        let (line, column) = problems.place(problem);
        let behind = Problem { span: problem.span.end..problem.span.end, ..problem.clone() };
        let (end_line, end_column) = problems.place(&behind);
        app.ui.json(&json!({
            "file": problems.file,
            "line": line,
            "column": column,
            "end": { "line": end_line, "column": end_column },
            "message": problem.message,
            "help": problem.help,
        }))?;
    }
    problems.used.iter().try_for_each(|used| show(app, used))
}
