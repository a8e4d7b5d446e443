//! What keys mean. Pure: they change where the user is, and answer what the user wants.

use super::state::{Action, Over, Pane, State, Word};
use ratatui::crossterm::event::{KeyCode, KeyEvent};

/// Lines of a page.
const PAGE: usize = 10;
/// The longest filter.
const FILTER_MAX: usize = 100;

impl State {
    pub(super) fn key(&mut self, key: KeyEvent) -> Option<Action> {
        if self.typing {
            self.type_filter(key.code);
            return None;
        }
        match std::mem::take(&mut self.over) {
            Over::Nothing => self.pane_key(key.code),
            Over::Help => None,
            Over::Ask { then, .. } => match key.code {
                KeyCode::Char('y' | 'Y') => Some(then),
                _ => self.say("left as it was"),
            },
            Over::Text { title, lines, from } => {
                self.over = scrolled(key.code, title, lines, from);
                None
            }
        }
    }

    fn say(&mut self, words: &str) -> Option<Action> {
        self.word = Word::Said(words.to_owned());
        None
    }

    fn type_filter(&mut self, key: KeyCode) {
        match key {
            KeyCode::Enter => self.typing = false,
            KeyCode::Esc => {
                self.typing = false;
                self.filter.clear();
            }
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Char(letter) if self.filter.len() < FILTER_MAX => self.filter.push(letter),
            _ => {}
        }
        self.stay_inside();
    }

    fn pane_key(&mut self, key: KeyCode) -> Option<Action> {
        self.word = Word::Nothing;
        match key {
            KeyCode::Char('q') => return Some(Action::Quit),
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Char('?') => self.over = Over::Help,
            KeyCode::Char('/') => self.typing = true,
            KeyCode::Tab | KeyCode::Right => self.turn(1),
            KeyCode::BackTab | KeyCode::Left => self.turn(2),
            KeyCode::Char('j') | KeyCode::Down => self.step(1),
            KeyCode::Char('k') | KeyCode::Up => self.step(-1),
            KeyCode::PageDown => self.step(10),
            KeyCode::PageUp => self.step(-10),
            KeyCode::Enter => return self.inspect(),
            KeyCode::Char('p') => return self.pause(),
            KeyCode::Char('r') => return self.retry(),
            KeyCode::Char('R') => return self.ask_to_retry_all(),
            _ => {}
        }
        None
    }

    fn turn(&mut self, by: usize) {
        self.pane = Pane::ALL[(self.pane.index() + by) % Pane::ALL.len()];
    }

    fn step(&mut self, by: isize) {
        let at = &mut self.at[self.pane.index()];
        *at = at.saturating_add_signed(by);
        self.stay_inside();
    }

    fn inspect(&mut self) -> Option<Action> {
        match self.pane {
            Pane::Queues => self.selected_queue().map(|queue| Action::InspectQueue(queue.name.clone())),
            Pane::Failures => self.selected_failure().map(|line| Action::InspectJob(line.last_job)),
            Pane::Workers => {
                // All that is known of a worker is here already.
                let worker = self.selected_worker()?;
                let lines = vec![
                    format!("about    {}", worker.about),
                    format!("running  {} of {} slots", worker.running, worker.slots),
                    format!("queues   {}", worker.queues.join(", ")),
                    format!("labels   {}", worker.labels.join(", ")),
                ];
                self.over = Over::Text { title: format!("worker {}", worker.id), lines, from: 0 };
                None
            }
        }
    }

    fn pause(&mut self) -> Option<Action> {
        if self.pane != Pane::Queues {
            return self.say("p pauses a queue: go there with Tab");
        }
        let queue = self.selected_queue()?;
        Some(Action::Pause { queue: queue.name.clone(), paused: !queue.settings.paused })
    }

    fn retry(&mut self) -> Option<Action> {
        if self.pane != Pane::Failures {
            return self.say("r retries a failed job: go to the failures with Tab");
        }
        self.selected_failure().map(|line| Action::RetryJob(line.last_job))
    }

    fn ask_to_retry_all(&mut self) -> Option<Action> {
        let queue = match self.pane {
            Pane::Queues => self.selected_queue().map(|queue| queue.name.clone()),
            Pane::Failures => self.selected_failure().map(|line| line.queue.clone()),
            Pane::Workers => return self.say("R retries all failed jobs of a queue: go there with Tab"),
        };
        let queue = queue?;
        let lines = self.snapshot.iter().flat_map(|snapshot| &snapshot.queues);
        let failed = lines.filter(|line| line.name == queue).map(|line| line.counts.failed).sum::<u64>();
        if failed == 0 {
            return self.say("this queue has no failed jobs");
        }
        self.over = Over::Ask {
            question: format!("try all {failed} failed jobs of {queue} again? y/n"),
            then: Action::RetryAll(queue),
        };
        None
    }
}

fn scrolled(key: KeyCode, title: String, lines: Vec<String>, from: usize) -> Over {
    let last = lines.len().saturating_sub(1);
    let from = match key {
        KeyCode::Char('j') | KeyCode::Down => from + 1,
        KeyCode::Char('k') | KeyCode::Up => from.saturating_sub(1),
        KeyCode::PageDown => from + PAGE,
        KeyCode::PageUp => from.saturating_sub(PAGE),
        _ => return Over::Nothing,
    };
    Over::Text { title, lines, from: from.min(last) }
}

#[cfg(test)]
#[path = "keys_tests.rs"]
mod tests;
