use super::super::board::{Hand, News};
use super::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use windlass::core::id::JobId;
use windlass::core::store::FeedCursor;
use windlass::core::time::Timestamp;

fn board() -> Board {
    let start = Timestamp::from_ms(1_000_000);
    let mut board = Board::new(start, FeedCursor(0), "sqlite:///tmp/demo.db".to_owned(), 7);
    board.now = start.plus_ms(12_300);
    board.events.now_ms = 12_300;
    board.take(News::Acknowledged { id: JobId::from_parts(0, 1), kind: Kind::Invoice });
    let hand = |number, condition, lives| Hand { number, condition, lives, held: 5 };
    board.crew = vec![
        hand(1, Condition::Running, 1),
        hand(2, Condition::Frozen { until: start }, 1),
        hand(3, Condition::Killed { restart_at: start }, 2),
    ];
    board.events.fault("worker 3 was killed while it held 5 jobs");
    board.ended = [3, 4, 5, 1].into();
    board
}

fn screen(width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let board = board();
    terminal.draw(|frame| draw(frame, &board)).unwrap();
    let cells = terminal.backend().buffer().content();
    let rows = cells.chunks(usize::from(width));
    rows.map(|row| row.iter().map(ratatui::buffer::Cell::symbol).collect::<String>() + "\n").collect()
}

#[test]
fn a_small_terminal_shows_it_all() {
    let text = screen(80, 24);
    for words in [
        "windlass demo  12.3 s  running",
        "jobs ended per second: 5 (at most 5)",
        "queued   done failed retried timeouts reaped",
        "invoice         1      0",
        "running     5",
        "frozen      -",
        "killed      -     2",
        "12.3 worker 3 was killed while it held 5 jobs",
        "q quit",
        "p pause/resume it",
    ] {
        assert!(text.contains(words), "{words}:\n{text}");
    }
}

#[test]
fn no_size_breaks_it() {
    for (width, height) in [(1, 1), (10, 3), (40, 10), (120, 40), (300, 100)] {
        assert_eq!(screen(width, height).lines().count(), usize::from(height));
    }
}

#[test]
fn a_line_says_the_same_where_there_is_no_terminal() {
    let line = line(&board());
    assert!(line.starts_with("  12 s  enqueued 1  succeeded 0"), "{line}");
    assert!(line.ends_with("| worker 3 was killed while it held 5 jobs"), "{line}");
}
