//! Showing the state. What does not fit is left out; nothing is computed here but places.

use super::paint::{self, BAD, BUSY, GOOD, ODD, QUIET, block, count, header, rate, right};
use super::state::{Over, Pane, State, Word};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Clear, Paragraph, Row, Sparkline, Table, TableState};
use windlass_operate::overview::Snapshot;

/// Below this height one pane has to do.
const LOW: u16 = 14;
/// Below this width some columns have to go.
const NARROW: u16 = 70;

const HELP: [&str; 12] = [
    "up, down, j, k   move",
    "PgUp, PgDn       move by ten",
    "Tab, left, right to another pane",
    "Enter            inspect a queue, a worker, or the last job of a failure",
    "p                pause or resume the queue",
    "r                retry the last job of the failure",
    "R                retry all failed jobs of the queue, after a question",
    "/                show only lines with a text; Esc shows all",
    "?                this help",
    "q, Ctrl-C        quit",
    "",
    "Rates are those of the last five whole seconds.",
];

pub(super) fn draw(frame: &mut Frame<'_>, state: &State) {
    let [title, panes, footer] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)]).areas(frame.area());
    draw_title(frame, title, state);
    draw_panes(frame, panes, state);
    draw_footer(frame, footer, state);
    match &state.over {
        Over::Nothing => {}
        Over::Help => draw_text(frame, " help ", HELP.map(str::to_owned).as_slice()),
        Over::Text { title, lines, from } => {
            draw_text(frame, &format!(" {title} "), &lines[(*from).min(lines.len())..]);
        }
        Over::Ask { question, .. } => draw_text(frame, " really? ", std::slice::from_ref(question)),
    }
}

fn draw_title(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let mut spans = vec![Span::from(" windlass top ").bold().style(BUSY)];
    if let Some(snapshot) = &state.snapshot {
        let rates = snapshot.rates;
        spans.push(Span::from(format!(" {:.1}/s in  {:.1}/s out  ", rates.enqueued, rates.succeeded)));
        if rates.went_wrong > 0.0 {
            spans.push(Span::styled(format!("{:.1}/s wrong  ", rates.went_wrong), ODD));
        }
        spans.push(Span::styled(format!("{}  {}", snapshot.store, snapshot.durability), QUIET));
    } else {
        spans.push(Span::styled(" looking...", QUIET));
    }
    frame.render_widget(Paragraph::new(Line::from(spans)), area);
}

fn draw_panes(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let Some(snapshot) = &state.snapshot else { return };
    if area.height < LOW - 2 {
        return draw_pane(frame, area, state, state.pane);
    }
    let chart = if area.height > 30 { 6 } else { 3 };
    let share = area.height.saturating_sub(chart) / 3;
    // Each pane has two lines above its rows. None takes more than its share as long as another needs it.
    let needed = |pane: Pane| u16::try_from(state.rows(pane).max(1)).unwrap_or(u16::MAX).saturating_add(2);
    let room = area.height.saturating_sub(chart);
    let failures = needed(Pane::Failures).min(share + 1);
    let queues = needed(Pane::Queues).min(room.saturating_sub(needed(Pane::Workers).min(share) + failures));
    let workers = needed(Pane::Workers).min(room.saturating_sub(queues + failures));
    let heights = [chart, queues, workers].map(Constraint::Length);
    let [chart, queues, workers, failures] =
        Layout::vertical(heights.into_iter().chain([Constraint::Min(0)])).areas(area);
    draw_chart(frame, chart, snapshot);
    draw_pane(frame, queues, state, Pane::Queues);
    draw_pane(frame, workers, state, Pane::Workers);
    draw_pane(frame, failures, state, Pane::Failures);
}

fn draw_chart(frame: &mut Frame<'_>, area: Rect, snapshot: &Snapshot) {
    let from = snapshot.ended.len().saturating_sub(usize::from(area.width));
    let data = &snapshot.ended[from..];
    let (last, most) = (data.last().copied().unwrap_or(0), data.iter().max().copied().unwrap_or(0));
    let title = format!(" jobs ended per second: {last} (at most {most}) ");
    frame.render_widget(Sparkline::default().block(block(&title, false)).data(data).style(BUSY), area);
}

fn draw_pane(frame: &mut Frame<'_>, area: Rect, state: &State, pane: Pane) {
    let narrow = area.width < NARROW;
    let shown = match pane {
        Pane::Queues => queues(state, narrow),
        Pane::Workers => workers(state, narrow),
        Pane::Failures => failures(state, narrow),
    };
    let focused = state.pane == pane;
    let highlight = if focused { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
    let title = shown.title.clone();
    let table = Table::new(shown.rows, shown.widths).header(shown.header).block(block(&title, focused));
    let table = table.row_highlight_style(highlight);
    let mut place = TableState::new().with_selected(Some(state.at[pane.index()]));
    frame.render_stateful_widget(table, area, &mut place);
}

struct Shown {
    title: String,
    header: Row<'static>,
    rows: Vec<Row<'static>>,
    widths: Vec<Constraint>,
}

fn fill_and(columns: &[u16]) -> Vec<Constraint> {
    let rest = columns.iter().map(|width| Constraint::Length(*width));
    std::iter::once(Constraint::Fill(1)).chain(rest).collect()
}

fn queues(state: &State, narrow: bool) -> Shown {
    let plain = Style::new();
    let row = |queue: &&windlass_operate::overview::QueueLine| {
        let (counts, settings) = (queue.counts, &queue.settings);
        let mut limits = Vec::new();
        limits.extend(settings.paused.then(|| "paused".to_owned()));
        limits
            .extend((!settings.paused_kinds.is_empty()).then(|| format!("{} kinds off", settings.paused_kinds.len())));
        limits.extend(settings.cap.map(|cap| format!("cap {cap}")));
        limits.extend(settings.rate.map(|rate| format!("{}/{}", rate.limit, paint::ago(rate.per_ms))));
        let mut cells = vec![
            Cell::from(queue.name.to_string()),
            count(counts.scheduled, plain),
            count(counts.ready, plain),
            count(counts.active, BUSY),
            count(counts.failed, BAD),
        ];
        if !narrow {
            cells.insert(4, count(counts.succeeded, GOOD));
            cells.push(rate(queue.rates.enqueued, plain));
            cells.push(rate(queue.rates.succeeded, GOOD));
        }
        cells.push(Cell::from(limits.join(" ")).style(ODD));
        Row::new(cells)
    };
    let lines = state.queues();
    let (header, widths) = if narrow {
        (header(&["queue", "sched", "ready", "active", "failed", ""], &[0, 5]), fill_and(&[5, 5, 6, 6, 6]))
    } else {
        let names = ["queue", "sched", "ready", "active", "done", "failed", "in/s", "out/s", ""];
        (header(&names, &[0, 8]), fill_and(&[5, 5, 6, 6, 6, 6, 6, 14]))
    };
    Shown { title: format!(" queues ({}) ", lines.len()), header, rows: lines.iter().map(row).collect(), widths }
}

fn workers(state: &State, narrow: bool) -> Shown {
    let row = |worker: &&windlass_operate::overview::WorkerLine| {
        let (word, style) = if worker.live { ("live", GOOD) } else { ("silent", BAD) };
        let mut cells = vec![
            Cell::from(worker.id.clone()),
            Cell::from(word).style(style),
            right(format!("{}/{}", worker.running, worker.slots), Style::new()),
            right(paint::ago(worker.seen_ms_ago), QUIET),
        ];
        if !narrow {
            cells.push(Cell::from(worker.queues.join(" ")).style(QUIET));
        }
        Row::new(cells)
    };
    let lines = state.workers();
    let live = lines.iter().filter(|worker| worker.live).count();
    let (header, widths) = if narrow {
        (header(&["worker", "", "jobs", "seen"], &[0, 1]), fill_and(&[6, 7, 5]))
    } else {
        (header(&["worker", "", "jobs", "seen", "queues"], &[0, 1, 4]), fill_and(&[6, 9, 5, 30]))
    };
    let title = format!(" workers ({live} live of {}) ", lines.len());
    Shown { title, header, rows: lines.iter().map(row).collect(), widths }
}

fn failures(state: &State, narrow: bool) -> Shown {
    let row = |line: &&windlass_operate::overview::FailureLine| {
        let mut cells = vec![
            Cell::from(if line.error.is_empty() { "(no words)".to_owned() } else { line.error.clone() }).style(BAD),
            count(line.count, Style::new()),
            right(paint::ago(line.last_ms_ago), QUIET),
        ];
        if !narrow {
            cells.insert(0, Cell::from(line.kind.clone()));
            cells.insert(1, Cell::from(line.queue.to_string()).style(QUIET));
        }
        Row::new(cells)
    };
    let lines = state.failures();
    let seen = state.snapshot.as_ref().map_or(0, |snapshot| snapshot.failures_seen);
    let title = format!(" failures (the last {seen}, by what went wrong) ");
    let (header, widths) = if narrow {
        (header(&["error", "jobs", "last"], &[0]), fill_and(&[5, 5]))
    } else {
        let widths = vec![Constraint::Length(16), Constraint::Length(16)];
        let widths = widths.into_iter().chain(fill_and(&[5, 5])).collect();
        (header(&["kind", "queue", "error", "jobs", "last"], &[0, 1, 2]), widths)
    };
    Shown { title, header, rows: lines.iter().map(row).collect(), widths }
}

fn draw_footer(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let keys = "q quit  ? help  Tab pane  Enter inspect  p pause  r retry  R all  / filter";
    let line = match &state.word {
        _ if matches!(state.over, Over::Text { .. }) => Line::from(" j k scroll, any other key closes").style(QUIET),
        _ if state.typing => Line::from(format!(" filter: {}_", state.filter)).style(ODD),
        Word::Trouble(words) => Line::from(format!(" {words}")).style(BAD),
        Word::Said(words) => Line::from(format!(" {words}")).style(GOOD),
        Word::Nothing if !state.filter.is_empty() => {
            Line::from(format!(" only lines with `{}`; Esc shows all", state.filter)).style(ODD)
        }
        Word::Nothing => Line::from(format!(" {keys}")).style(QUIET),
    };
    frame.render_widget(Paragraph::new(line), area);
}

/// Something over the panes, in the middle.
fn draw_text(frame: &mut Frame<'_>, title: &str, lines: &[String]) {
    let whole = frame.area();
    let longest = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0);
    let longest = u16::try_from(longest).unwrap_or(u16::MAX);
    let width = longest.saturating_add(4).max(30).min(whole.width.saturating_sub(4));
    let inner = usize::from(width.saturating_sub(4)).max(1);
    let text: Vec<Line<'_>> = lines.iter().flat_map(|line| cut(line, inner)).map(Line::from).collect();
    let height = u16::try_from(text.len()).unwrap_or(u16::MAX).saturating_add(2).min(whole.height.saturating_sub(2));
    let area = whole.centered(Constraint::Length(width), Constraint::Length(height));
    let frame_around = Block::bordered().title(Span::from(title.to_owned()).bold()).border_style(BUSY);
    let frame_around = frame_around.padding(ratatui::widgets::Padding::horizontal(1));
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(text).block(frame_around), area);
}

/// A line in pieces that fit; what follows the first is a little further in.
fn cut(line: &str, width: usize) -> Vec<String> {
    let letters: Vec<char> = line.chars().collect();
    let (first, rest) = letters.split_at(letters.len().min(width));
    let further = rest.chunks(width.saturating_sub(2).max(1)).map(|piece| format!("  {}", String::from_iter(piece)));
    std::iter::once(String::from_iter(first)).chain(further).collect()
}

#[cfg(test)]
#[path = "draw_tests.rs"]
pub(super) mod tests;
