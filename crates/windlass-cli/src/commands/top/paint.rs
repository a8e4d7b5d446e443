//! Colours, frames, and numbers that fit.

use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Cell, Row};

pub(super) const QUIET: Style = Style::new().fg(Color::DarkGray);
pub(super) const GOOD: Style = Style::new().fg(Color::Green);
pub(super) const BAD: Style = Style::new().fg(Color::Red);
pub(super) const ODD: Style = Style::new().fg(Color::Yellow);
pub(super) const BUSY: Style = Style::new().fg(Color::Cyan);

/// A pane with a line above it.
pub(super) fn block(title: &str, focused: bool) -> Block<'_> {
    let style = if focused { BUSY.bold() } else { Style::new().bold() };
    let border = if focused { BUSY } else { QUIET };
    Block::new().borders(Borders::TOP).border_style(border).title(Span::styled(title, style))
}

/// Column names; the first is on the left, and numbers are on the right.
pub(super) fn header(names: &[&'static str], left: &[usize]) -> Row<'static> {
    let cell = |(at, name): (usize, &&'static str)| {
        let line = Line::from(*name);
        Cell::from(if left.contains(&at) { line } else { line.right_aligned() })
    };
    Row::new(names.iter().enumerate().map(cell).collect::<Vec<_>>()).style(QUIET)
}

pub(super) fn right(text: String, style: Style) -> Cell<'static> {
    Cell::from(Line::from(text).right_aligned()).style(style)
}

/// A count in at most five characters; nothing is quiet.
pub(super) fn count(value: u64, style: Style) -> Cell<'static> {
    right(short(value), if value == 0 { QUIET } else { style })
}

pub(super) fn short(value: u64) -> String {
    let scaled = |unit: u64, name: &str| {
        let (whole, tenth) = (value / unit, value % unit * 10 / unit);
        if whole < 100 { format!("{whole}.{tenth}{name}") } else { format!("{whole}{name}") }
    };
    match value {
        0..10_000 => value.to_string(),
        10_000..1_000_000 => scaled(1_000, "k"),
        1_000_000..1_000_000_000 => scaled(1_000_000, "M"),
        _ => scaled(1_000_000_000, "G"),
    }
}

pub(super) fn rate(value: f64, style: Style) -> Cell<'static> {
    let text = if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.1}") };
    right(text, if value == 0.0 { QUIET } else { style })
}

/// How long ago, in one unit.
pub(super) fn ago(ms: u64) -> String {
    match ms / 1_000 {
        seconds @ 0..120 => format!("{seconds}s"),
        seconds @ 120..7_200 => format!("{}m", seconds / 60),
        seconds @ 7_200..172_800 => format!("{}h", seconds / 3_600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_fit_into_five_characters() {
        let numbers = [0, 9_999, 10_000, 99_999, 123_456, 999_999, 1_234_567, 12_000_000_000];
        assert_eq!(numbers.map(short), ["0", "9999", "10.0k", "99.9k", "123k", "999k", "1.2M", "12.0G"]);
        assert_eq!([0, 119_000, 120_000, 7_200_000, 200_000_000].map(ago), ["0s", "119s", "2m", "2h", "2d"]);
    }
}
