//! `windlass completions`.

use crate::app::App;
use crate::cli::Cli;
use crate::failure::Failure;
use clap::{Args, CommandFactory};
use clap_complete::Shell;

const AFTER: &str = "\
Examples:
  windlass completions bash > ~/.local/share/bash-completion/completions/windlass
  windlass completions zsh > ~/.zfunc/_windlass
  windlass completions fish > ~/.config/fish/completions/windlass.fish";

/// Print completions for a shell.
#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub(crate) struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self, app: &App) -> Result<(), Failure> {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "windlass", &mut text);
        app.ui.bytes(text.trim_ascii_end())
    }
}
