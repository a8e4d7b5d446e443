//! Problems, drawn into the text.

use std::borrow::Cow;
use std::fmt::{self, Write};
use std::ops::Range;

/// How much of a line is drawn, in characters.
const WIDTH: usize = 100;

/// Something that is wrong with a workflow, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
    /// Where, in bytes of the text.
    pub span: Range<usize>,
}

impl Problem {
    pub(super) fn new(span: Range<usize>, message: impl Into<String>) -> Self {
        Self { message: message.into(), help: None, span }
    }

    pub(super) fn help(self, help: impl Into<String>) -> Self {
        Self { help: Some(help.into()), ..self }
    }

    pub(super) fn shifted(self, by: usize) -> Self {
        Self { span: self.span.start + by..self.span.end + by, ..self }
    }
}

/// All that is wrong with a workflow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems {
    /// The name of the file.
    pub file: String,
    /// Its text.
    pub text: String,
    /// What is wrong, in the order of the text.
    pub all: Vec<Problem>,
    /// What is wrong with files that it uses.
    pub used: Vec<Self>,
}

impl std::error::Error for Problems {}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, problem) in self.all.iter().enumerate() {
            if n > 0 {
                f.write_char('\n')?;
            }
            self.draw(problem, f)?;
        }
        for used in &self.used {
            write!(f, "\n{used}")?;
        }
        Ok(())
    }
}

impl Problems {
    /// How many problems there are in all files.
    pub fn count(&self) -> usize {
        self.all.len() + self.used.iter().map(Self::count).sum::<usize>()
    }

    /// Line and column of a problem, from 1.
    pub fn place(&self, problem: &Problem) -> (usize, usize) {
        let (line, start) = self.line_of(problem.span.start);
        (line, self.text[start..problem.span.start.min(self.text.len())].chars().count() + 1)
    }

    /// The number of the line that a byte stands in, and where that line begins.
    fn line_of(&self, at: usize) -> (usize, usize) {
        let before = &self.text[..self.text.floor_char_boundary(at)];
        let start = before.rfind('\n').map_or(0, |end| end + 1);
        (before.bytes().filter(|byte| *byte == b'\n').count() + 1, start)
    }

    fn draw(&self, problem: &Problem, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (line, column) = self.place(problem);
        let (_, start) = self.line_of(problem.span.start);
        let whole = self.text[start..].lines().next().unwrap_or("");
        let end = problem.span.end.min(start + whole.len());
        let marked = self.text.get(problem.span.start..end).map_or(0, |text| text.chars().count()).max(1);
        let (shown, before, marked) = cut(whole, column - 1, marked);
        let margin = " ".repeat(line.to_string().len());
        let before: String = shown.chars().take(before).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
        writeln!(f, "error: {}", problem.message)?;
        writeln!(f, "{margin} --> {}:{line}:{column}", self.file)?;
        writeln!(f, "{margin} |")?;
        writeln!(f, "{line} | {shown}")?;
        write!(f, "{margin} | {before}{}", "^".repeat(marked))?;
        match &problem.help {
            Some(help) => writeln!(f, " {help}"),
            None => writeln!(f),
        }
    }
}

/// A line, or what stands around its mark if it is long; where the mark begins in that, and how long it is there.
fn cut(line: &str, before: usize, marked: usize) -> (Cow<'_, str>, usize, usize) {
    let length = line.chars().count();
    if length <= WIDTH {
        return (line.into(), before, marked);
    }
    // The mark in the middle, as far as there is something around it.
    let room = WIDTH.saturating_sub(marked) / 2;
    let first = before.saturating_sub(room).min(length.saturating_sub(WIDTH));
    let shown: String = line.chars().skip(first).take(WIDTH).collect();
    let open = if first > 0 { "…" } else { "" };
    let more = if first + WIDTH < length { "…" } else { "" };
    let at = before - first.min(before);
    (format!("{open}{shown}{more}").into(), at + open.chars().count(), marked.min(WIDTH - at.min(WIDTH - 1)))
}
