//! Talking to people and to programs. Colours only on a terminal; standard output carries results and nothing else.

use crate::failure::{Failure, say};
use crate::table::{Cell, Table};
use anstyle::{AnsiColor, Style};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use serde_json::json;
use std::fmt::Display;
use std::io::{BufRead, ErrorKind, IsTerminal, Write};

pub(crate) const ERROR: Style = AnsiColor::Red.on_default().bold();
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
pub(crate) const WARNING: Style = AnsiColor::Yellow.on_default().bold();
pub(crate) const STRONG: Style = Style::new().bold();
pub(crate) const DIM: Style = Style::new().dimmed();

/// Where output goes, and in which form.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ui {
    /// For programs.
    pub(crate) json: bool,
    /// What it tells of goes on, whether somebody reads it or not.
    undeterred: bool,
}

impl Ui {
    pub(crate) fn new(json: bool) -> Self {
        Self { json, undeterred: false }
    }

    /// The same for a command whose exit code counts: when nobody reads any more, it goes on in silence.
    pub(crate) fn undeterred(self) -> Self {
        Self { undeterred: true, ..self }
    }

    /// A line of the result. Whoever reads it may have gone: then the command ends quietly.
    pub(crate) fn line(self, text: impl Display) -> Result<(), Failure> {
        match writeln!(anstream::stdout().lock(), "{text}") {
            Err(error) if self.undeterred && error.kind() == ErrorKind::BrokenPipe => Ok(()),
            written => Ok(written?),
        }
    }

    /// One JSON object on a line of its own.
    pub(crate) fn json(self, value: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string(value).map_err(|error| Failure::failed(error.to_string()))?;
        self.line(text)
    }

    /// A result in one line: this object for programs, this text for people.
    pub(crate) fn result(self, value: &impl Serialize, text: impl Display) -> Result<(), Failure> {
        if self.json { self.json(value) } else { self.line(text) }
    }

    /// Something for people beside the result, on standard error.
    pub(crate) fn note(self, text: impl Display) {
        if !self.json {
            say(text);
        }
    }

    /// A table that fits the terminal; as wide as it likes when nobody looks.
    pub(crate) fn table(self, table: &Table) -> Result<(), Failure> {
        self.line(table.render())
    }

    /// Bytes as they are, and the end of a line.
    pub(crate) fn bytes(self, bytes: &[u8]) -> Result<(), Failure> {
        let mut out = anstream::stdout().into_inner().lock();
        out.write_all(bytes)?;
        out.write_all(b"\n")?;
        Ok(())
    }

    /// A progress bar on standard error, for long work; invisible when nobody looks.
    pub(crate) fn bar(self, length: u64, what: &'static str) -> ProgressBar {
        let looked_at = !self.json && std::io::stderr().is_terminal();
        let target = if looked_at { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let style = ProgressStyle::with_template("{msg:>12} [{bar:30}] {human_pos}/{human_len} {per_sec} {eta}");
        let bar = ProgressBar::with_draw_target(Some(length), target).with_message(what);
        match style {
            Ok(style) => bar.with_style(style.progress_chars("=> ")),
            Err(_) => bar,
        }
    }

    /// Asks before something is destroyed. `yes` was said beforehand; nobody to ask is a no.
    pub(crate) fn confirm(self, what: impl Display, yes: bool) -> Result<(), Failure> {
        if yes {
            return Ok(());
        }
        if self.json || !std::io::stdin().is_terminal() {
            return Err(Failure::invalid(format!("{what}? nobody is here to say so")).hint("say --yes"));
        }
        let _ = write!(anstream::stderr().lock(), "{what}? [y/N] ");
        let mut answer = String::new();
        std::io::stdin().lock().read_line(&mut answer)?;
        match answer.trim() {
            "y" | "Y" | "yes" => Ok(()),
            _ => Err(Failure::failed("left as it was")),
        }
    }
}

/// A list: for programs a line for each item as it comes, for people a table in the end.
pub(crate) struct Listing {
    ui: Ui,
    table: Table,
}

impl Listing {
    pub(crate) fn new(ui: Ui, headers: &[&str]) -> Self {
        Self { ui, table: Table::new(headers) }
    }

    /// Adds an item; `cells` are its row of the table.
    pub(crate) fn add(&mut self, item: &impl Serialize, cells: impl FnOnce() -> Vec<Cell>) -> Result<(), Failure> {
        if self.ui.json {
            return self.ui.json(item);
        }
        self.table.row(cells());
        Ok(())
    }

    /// Prints the table, or that there is nothing. A cursor is where the rest begins; `more` says how to ask for it.
    pub(crate) fn end(self, nothing: &str, cursor: Option<String>, more: &str) -> Result<(), Failure> {
        match &cursor {
            Some(cursor) if self.ui.json => return self.ui.json(&json!({ "cursor": cursor })),
            _ if self.ui.json => return Ok(()),
            _ if self.table.is_empty() => self.ui.note(nothing),
            _ => self.ui.table(&self.table)?,
        }
        if let Some(cursor) = cursor {
            self.ui.note(format_args!("there are more: {more}--cursor {cursor}"));
        }
        Ok(())
    }
}
