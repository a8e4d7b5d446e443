//! `windlass man`.

use crate::app::App;
use crate::cli::Cli;
use crate::failure::Failure;
use clap::{Args, Command, CommandFactory};
use serde_json::json;
use std::path::{Path, PathBuf};

const AFTER: &str = "\
Examples:
  windlass man | man -l -
  windlass man --dir ~/.local/share/man/man1";

/// Print the manual page, or write one page for every command.
#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub(crate) struct Man {
    /// Write windlass.1, windlass-enqueue.1 and so on into this folder
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
}

impl Man {
    pub(crate) fn run(self, app: &App) -> Result<(), Failure> {
        let mut root = Cli::command();
        root.build();
        let Some(dir) = self.dir else {
            app.ui.bytes(page(root)?.trim_ascii_end())?;
            return Ok(());
        };
        let cannot = |error: std::io::Error| Failure::invalid(format!("{}: {error}", dir.display()));
        std::fs::create_dir_all(&dir).map_err(cannot)?;
        let mut written = 0;
        write(&root, "windlass", &dir, &mut written).map_err(cannot)?;
        app.ui.result(&json!({ "dir": dir, "pages": written }), format_args!("{written} pages in {}", dir.display()))
    }
}

fn page(command: Command) -> std::io::Result<Vec<u8>> {
    let mut text = Vec::new();
    clap_mangen::Man::new(command).render(&mut text)?;
    Ok(text)
}

/// The page of a command, and those of the commands below it.
fn write(command: &Command, name: &str, dir: &Path, written: &mut u32) -> std::io::Result<()> {
    let named = command.clone().display_name(name.to_owned());
    std::fs::write(dir.join(format!("{name}.1")), page(named)?)?;
    *written += 1;
    let below = command.get_subcommands().filter(|below| below.get_name() != "help" && !below.is_hide_set());
    for below in below {
        write(below, &format!("{name}-{}", below.get_name()), dir, written)?;
    }
    Ok(())
}
