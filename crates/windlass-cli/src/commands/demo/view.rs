//! What the user sees while the demo runs: a live view on a terminal, a line a second elsewhere, nothing for programs.

use super::board::{Board, Phase, Tally};
use super::events::{Event, Weight};
use super::fleet::Condition;
use super::jobs::Kind;
use crate::failure::Failure;
use crate::terminal::{Input, Terminal};
use crate::ui::Ui;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row, Sparkline, Table};
use std::time::Duration;
use tokio::time::Instant;

const LINE_MS: u64 = 1_000;

/// Where it is shown.
pub(super) struct Screen {
    form: Form,
    tick_at: Instant,
}

enum Form {
    Live(Box<Terminal>),
    Lines { next_ms: u64 },
    Silent,
}

impl Screen {
    pub(super) fn open(ui: Ui) -> Result<Self, Failure> {
        let form = if ui.json {
            Form::Silent
        } else if Terminal::is_there() {
            Form::Live(Box::new(Terminal::open()?))
        } else {
            Form::Lines { next_ms: LINE_MS }
        };
        Ok(Self { form, tick_at: now() })
    }

    /// Puts the terminal back.
    pub(super) fn close(&mut self) {
        self.form = Form::Silent;
    }

    pub(super) async fn input(&mut self) -> Input {
        match &mut self.form {
            Form::Live(terminal) => terminal.input().await,
            Form::Lines { .. } | Form::Silent => std::future::pending().await,
        }
    }

    pub(super) fn tick_at(&self) -> Instant {
        self.tick_at
    }

    pub(super) fn tick_in(&mut self, time: Duration) {
        self.tick_at = now() + time;
    }

    pub(super) fn show(&mut self, board: &Board) -> Result<(), Failure> {
        match &mut self.form {
            Form::Live(terminal) => terminal.draw(|frame| draw(frame, board)),
            Form::Lines { next_ms } if board.elapsed_ms() >= *next_ms => {
                *next_ms += LINE_MS;
                anstream::eprintln!("{}", line(board));
                Ok(())
            }
            Form::Lines { .. } | Form::Silent => Ok(()),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "paces the view; nothing is decided by it")]
fn now() -> Instant {
    Instant::now()
}

/// All of it in one line.
fn line(board: &Board) -> String {
    let Tally { enqueued, succeeded, failed, retried, timed_out, reaped } = board.total;
    let mut line = format!(
        "{:>4} s  enqueued {enqueued}  succeeded {succeeded}  failed {failed}  retried {retried}  timed out {timed_out}  \
         reaped {reaped}  open {}",
        board.elapsed_ms() / 1_000,
        board.open(),
    );
    let since = board.elapsed_ms().saturating_sub(LINE_MS);
    let fault = board.events.last.iter().find(|event| event.weight == Weight::Fault && event.at_ms >= since);
    if let Some(fault) = fault {
        line.push_str("  | ");
        line.push_str(&fault.words);
    }
    line
}

const FRAME: Style = Style::new().fg(Color::DarkGray);

fn block(title: &str) -> Block<'_> {
    // A line above is enough; a frame would cost every pane two lines and two columns of a small terminal.
    Block::new().borders(Borders::TOP).border_style(FRAME).title(Span::styled(title, Style::new().bold()))
}

pub(super) fn draw(frame: &mut Frame<'_>, board: &Board) {
    let [title, rest, footer] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)]).areas(frame.area());
    let chart = Constraint::Length(if rest.height > 26 { 6 } else { 3 });
    let [chart, middle, events] = Layout::vertical([chart, Constraint::Length(12), Constraint::Min(2)]).areas(rest);
    let [left, right] = Layout::horizontal([Constraint::Length(57), Constraint::Length(22)]).spacing(1).areas(middle);
    let [kinds, queues] = Layout::vertical([Constraint::Length(6), Constraint::Length(6)]).areas(left);
    draw_title(frame, title, board);
    draw_chart(frame, chart, board);
    draw_kinds(frame, kinds, board);
    draw_queues(frame, queues, board);
    draw_workers(frame, right, board);
    draw_events(frame, events, board);
    let keys = match board.phase {
        Phase::Running => " q quit  k kill a worker  f freeze one  up/down queue  p pause/resume it",
        Phase::Finishing | Phase::Stopping => " the last jobs come to their end; Ctrl-C breaks it off",
    };
    frame.render_widget(Paragraph::new(keys).style(FRAME), footer);
}

fn draw_title(frame: &mut Frame<'_>, area: Rect, board: &Board) {
    let phase = match board.phase {
        Phase::Running => Span::from("running").green(),
        Phase::Finishing => Span::from(format!("finishing, {} jobs to go", board.open())).yellow(),
        Phase::Stopping => Span::from("stopping the workers").yellow(),
    };
    let (seconds, tenths) = (board.elapsed_ms() / 1_000, board.elapsed_ms() / 100 % 10);
    let line = Line::from(vec![
        Span::from(" windlass demo ").bold().cyan(),
        Span::from(format!(" {seconds}.{tenths} s  ")),
        phase,
        Span::styled(format!("  seed {}  {}", board.seed, board.store), FRAME),
    ]);
    frame.render_widget(Paragraph::new(line), area);
}

fn draw_chart(frame: &mut Frame<'_>, area: Rect, board: &Board) {
    let width = usize::from(area.width);
    // The present second is not over, and would look like a breakdown.
    let whole: Vec<u64> = board.ended.iter().rev().skip(1).take(width).copied().collect();
    let last = whole.first().copied().unwrap_or(0);
    let most = whole.iter().max().copied().unwrap_or(0);
    let title = format!(" jobs ended per second: {last} (at most {most}) ");
    let data: Vec<u64> = whole.into_iter().rev().collect();
    let chart = Sparkline::default().block(block(&title)).data(data).style(Style::new().fg(Color::Cyan));
    frame.render_widget(chart, area);
}

fn header(names: &[&'static str]) -> Row<'static> {
    let cell = |(at, name): (usize, &&'static str)| {
        let line = Line::from(*name);
        Cell::from(if at == 0 { line } else { line.right_aligned() })
    };
    Row::new(names.iter().enumerate().map(cell).collect::<Vec<_>>()).style(FRAME)
}

fn number(value: u64, style: Style) -> Cell<'static> {
    let style = if value == 0 { FRAME } else { style };
    Cell::from(Line::from(value.to_string()).right_aligned()).style(style)
}

fn draw_kinds(frame: &mut Frame<'_>, area: Rect, board: &Board) {
    let (plain, good, bad, odd) =
        (Style::new(), Style::new().fg(Color::Green), Style::new().fg(Color::Red), Style::new().fg(Color::Yellow));
    let rows = Kind::ALL.map(|kind| {
        let tally = board.kinds[kind.index()];
        Row::new([
            Cell::from(kind.as_str()),
            number(tally.enqueued, plain),
            number(tally.succeeded, good),
            number(tally.failed, bad),
            number(tally.retried, odd),
            number(tally.timed_out, odd),
            number(tally.reaped, odd),
        ])
    });
    let widths = [Constraint::Length(10), Constraint::Length(6), Constraint::Length(6)];
    let widths = widths.into_iter().chain([6, 7, 8, 6].map(Constraint::Length));
    let names = ["", "queued", "done", "failed", "retried", "timeouts", "reaped"];
    let table = Table::new(rows, widths.collect::<Vec<_>>()).header(header(&names)).block(block(" jobs "));
    frame.render_widget(table, area);
}

fn draw_queues(frame: &mut Frame<'_>, area: Rect, board: &Board) {
    let plain = Style::new();
    let rows = board.queues.iter().enumerate().map(|(at, queue)| {
        let counts = queue.counts;
        let mark = if at == board.selected { "> " } else { "  " };
        let paused = if queue.settings.paused { "  paused" } else { "" };
        Row::new([
            Cell::from(Line::from(vec![
                Span::from(format!("{mark}{}", queue.name.as_str())),
                Span::from(paused).yellow().add_modifier(Modifier::BOLD),
            ])),
            number(counts.scheduled, plain),
            number(counts.ready, plain),
            number(counts.active, Style::new().fg(Color::Cyan)),
        ])
    });
    let widths = [Constraint::Length(24), Constraint::Length(9), Constraint::Length(6), Constraint::Length(6)];
    let names = ["  queue", "scheduled", "ready", "active"];
    let table = Table::new(rows, widths).header(header(&names)).block(block(" queues "));
    frame.render_widget(table, area);
}

fn draw_workers(frame: &mut Frame<'_>, area: Rect, board: &Board) {
    let rows = board.crew.iter().map(|hand| {
        let (words, style) = match hand.condition {
            Condition::Running => ("running".to_owned(), Style::new().fg(Color::Green)),
            Condition::Frozen { .. } => ("frozen".to_owned(), Style::new().fg(Color::Blue).bold()),
            Condition::Killed { .. } => ("killed".to_owned(), Style::new().fg(Color::Red).bold()),
            Condition::Left => ("left".to_owned(), FRAME),
        };
        let held = if hand.condition == Condition::Running { hand.held.to_string() } else { "-".to_owned() };
        let life = if hand.lives > 1 { hand.lives.to_string() } else { String::new() };
        Row::new([
            Cell::from(hand.number.to_string()),
            Cell::from(words).style(style),
            Cell::from(Line::from(held).right_aligned()),
            Cell::from(Line::from(life).right_aligned()).style(FRAME),
        ])
    });
    let widths = [Constraint::Length(2), Constraint::Length(8), Constraint::Length(4), Constraint::Length(5)];
    let table = Table::new(rows, widths).header(header(&["", "", "jobs", "life"])).block(block(" workers "));
    frame.render_widget(table, area);
}

fn draw_events(frame: &mut Frame<'_>, area: Rect, board: &Board) {
    let line = |event: &Event| {
        let style = match event.weight {
            Weight::Plain => Style::new(),
            Weight::Bad => Style::new().fg(Color::Yellow),
            Weight::Fault => Style::new().fg(Color::Magenta).bold(),
        };
        let (seconds, tenths) = (event.at_ms / 1_000, event.at_ms / 100 % 10);
        Line::from(vec![
            Span::styled(format!("{seconds:>4}.{tenths} "), FRAME),
            Span::styled(event.words.clone(), style),
        ])
    };
    let lines: Vec<Line<'_>> = board.events.last.iter().take(usize::from(area.height)).map(line).collect();
    frame.render_widget(Paragraph::new(lines).block(block(" what happened, newest first ")), area);
}

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;
