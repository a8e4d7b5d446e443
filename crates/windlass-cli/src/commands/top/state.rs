//! What the view knows and where the user is in it. `update` is the only thing that changes it, and does nothing else.

use ratatui::crossterm::event::KeyEvent;
use windlass::core::id::JobId;
use windlass::core::name::QueueName;
use windlass_operate::overview::{FailureLine, QueueLine, Snapshot, WorkerLine};

/// Something that the view is told.
#[derive(Clone, Debug)]
pub(super) enum Event {
    Key(KeyEvent),
    Looked(Box<Snapshot>),
    /// The answer to an inspection.
    Inspected {
        title: String,
        lines: Vec<String>,
    },
    /// The answer to any other wish.
    Said(String),
    /// The store did not do it.
    Trouble(String),
}

/// What the user wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Quit,
    Pause { queue: QueueName, paused: bool },
    RetryJob(JobId),
    RetryAll(QueueName),
    InspectJob(JobId),
    InspectQueue(QueueName),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Pane {
    #[default]
    Queues,
    Workers,
    Failures,
}

impl Pane {
    pub(super) const ALL: [Self; 3] = [Self::Queues, Self::Workers, Self::Failures];

    pub(super) fn index(self) -> usize {
        self as usize
    }
}

/// What lies over the panes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Over {
    #[default]
    Nothing,
    Help,
    /// Something to read.
    Text {
        title: String,
        lines: Vec<String>,
        /// Lines above the first that is shown.
        from: usize,
    },
    /// Something to confirm.
    Ask {
        question: String,
        then: Action,
    },
}

/// What is said in the last line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Word {
    #[default]
    Nothing,
    Said(String),
    Trouble(String),
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) snapshot: Option<Snapshot>,
    pub(super) pane: Pane,
    /// Where the user is in each pane.
    pub(super) at: [usize; 3],
    pub(super) filter: String,
    /// The user is writing the filter.
    pub(super) typing: bool,
    pub(super) over: Over,
    pub(super) word: Word,
    /// The last look failed: what is shown is old.
    pub(super) stale: bool,
}

impl State {
    pub(super) fn update(&mut self, event: Event) -> Vec<Action> {
        match event {
            Event::Key(key) => return self.key(key).into_iter().collect(),
            Event::Looked(snapshot) => {
                self.snapshot = Some(*snapshot);
                if std::mem::take(&mut self.stale) {
                    self.word = Word::Nothing;
                }
                self.stay_inside();
            }
            Event::Inspected { title, lines } => self.over = Over::Text { title, lines, from: 0 },
            Event::Said(words) => self.word = Word::Said(words),
            Event::Trouble(words) => {
                self.stale = true;
                self.word = Word::Trouble(words);
            }
        }
        Vec::new()
    }

    fn passes(&self, texts: &[&str]) -> bool {
        self.filter.is_empty() || texts.iter().any(|text| text.to_lowercase().contains(&self.filter.to_lowercase()))
    }

    pub(super) fn queues(&self) -> Vec<&QueueLine> {
        let all = self.snapshot.iter().flat_map(|snapshot| &snapshot.queues);
        all.filter(|queue| self.passes(&[queue.name.as_str()])).collect()
    }

    pub(super) fn workers(&self) -> Vec<&WorkerLine> {
        let all = self.snapshot.iter().flat_map(|snapshot| &snapshot.workers);
        all.filter(|worker| self.passes(&[&worker.id])).collect()
    }

    pub(super) fn failures(&self) -> Vec<&FailureLine> {
        let all = self.snapshot.iter().flat_map(|snapshot| &snapshot.failures);
        all.filter(|line| self.passes(&[line.queue.as_str(), &line.kind, &line.error])).collect()
    }

    pub(super) fn rows(&self, pane: Pane) -> usize {
        match pane {
            Pane::Queues => self.queues().len(),
            Pane::Workers => self.workers().len(),
            Pane::Failures => self.failures().len(),
        }
    }

    /// Rows may have gone under the user.
    pub(super) fn stay_inside(&mut self) {
        for pane in Pane::ALL {
            let last = self.rows(pane).saturating_sub(1);
            self.at[pane.index()] = self.at[pane.index()].min(last);
        }
    }

    pub(super) fn selected_queue(&self) -> Option<&QueueLine> {
        self.queues().get(self.at[Pane::Queues.index()]).copied()
    }

    pub(super) fn selected_worker(&self) -> Option<&WorkerLine> {
        self.workers().get(self.at[Pane::Workers.index()]).copied()
    }

    pub(super) fn selected_failure(&self) -> Option<&FailureLine> {
        self.failures().get(self.at[Pane::Failures.index()]).copied()
    }
}
