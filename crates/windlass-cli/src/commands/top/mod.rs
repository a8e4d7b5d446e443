//! `windlass top`: a live view of a store.
//!
//! Three parts that know little of each other: a gatherer looks at the store (bounded, however large it is) and sends
//! snapshots; [`state`] is a pure function of snapshots and keys and answers with actions; [`draw`] shows the state.

mod act;
mod draw;
mod keys;
mod paint;
mod state;

use crate::app::App;
use crate::failure::Failure;
use crate::terminal::{Input, Terminal};
use clap::Args;
use ratatui::backend::TestBackend;
use state::{Action, Event, State};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::channel;
use tokio::sync::{Notify, mpsc::Sender};
use tokio::task::JoinSet;
use windlass::core::store::Store;
use windlass_operate::overview::Monitor;

const AFTER: &str = "\
Keys: arrows or j k move, Tab goes to the next pane, Enter inspects, p pauses or resumes a queue, r retries a failed job,
R all of its queue, / filters, ? helps, q quits

Examples:
  windlass top --store sqlite://jobs.db             watch
  windlass top --store sqlite://jobs.db --once      one frame as text
  windlass top --store sqlite://jobs.db --json      one snapshot for programs";

/// The shortest time between two snapshots.
const PAUSE: Duration = Duration::from_millis(250);
/// Events that nobody has looked at yet.
const EVENTS_MAX: usize = 64;
/// Actions that may be under way at once; a key that is held down must not pile them up.
const ACTIONS_MAX: usize = 8;

/// Watch queues, workers, rates and failures of a store
#[derive(Clone, Debug, Args)]
#[command(after_help = AFTER)]
pub(crate) struct Top {
    /// Print one frame as plain text and end
    #[arg(long)]
    once: bool,
    /// The width of that frame
    #[arg(long, default_value_t = 100, value_name = "COLUMNS", requires = "once", value_parser = clap::value_parser!(u16).range(20..=500))]
    width: u16,
    /// The height of that frame
    #[arg(long, default_value_t = 30, value_name = "LINES", requires = "once", value_parser = clap::value_parser!(u16).range(5..=500))]
    height: u16,
}

impl Top {
    pub(crate) async fn run(self, app: &App) -> Result<ExitCode, Failure> {
        if !self.once && !app.ui.json && !Terminal::is_there() {
            let hint = "say --once for one frame as text, or --json for a snapshot";
            return Err(Failure::invalid("`top` needs a terminal to draw on and to read keys from").hint(hint));
        }
        let store = app.existing()?;
        let url = app.url().unwrap_or_default().to_owned();
        let mut monitor = Monitor::start(Arc::clone(&store), url).await?;
        if app.ui.json {
            app.ui.json(&monitor.snapshot().await?)?;
        } else if self.once {
            let mut state = State::default();
            state.update(Event::Looked(Box::new(monitor.snapshot().await?)));
            app.ui.line(frame_as_text(&state, self.width, self.height)?)?;
        } else {
            watch(store, monitor).await?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// One frame, without colours and without the spaces at the ends of its lines.
fn frame_as_text(state: &State, width: u16, height: u16) -> Result<String, Failure> {
    let Ok(mut terminal) = ratatui::Terminal::new(TestBackend::new(width, height));
    let Ok(_) = terminal.draw(|frame| draw::draw(frame, state));
    let cells = terminal.backend().buffer().content();
    let line = |row: &[ratatui::buffer::Cell]| {
        let text: String = row.iter().map(ratatui::buffer::Cell::symbol).collect();
        text.trim_end().to_owned()
    };
    let lines: Vec<String> = cells.chunks(usize::from(width)).map(line).collect();
    Ok(lines.join("\n").trim_end().to_owned())
}

/// The live view, until the user leaves.
async fn watch(store: Arc<dyn Store>, monitor: Monitor) -> Result<(), Failure> {
    let (sender, mut events) = channel(EVENTS_MAX);
    let again = Arc::new(Notify::new());
    let mut tasks = JoinSet::new();
    tasks.spawn(take_snapshots(monitor, sender.clone(), Arc::clone(&again)));
    // The terminal is put back also when somebody else ends the view.
    let (mut terminate, mut hangup) = (signal(SignalKind::terminate())?, signal(SignalKind::hangup())?);
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminal = Terminal::open()?;
    let mut state = State::default();
    loop {
        terminal.draw(|frame| draw::draw(frame, &state))?;
        let event = tokio::select! {
            biased;
            input = terminal.input() => match input {
                input if input.is_interrupt() => return Ok(()),
                Input::Key(key) => Event::Key(key),
                Input::Resized | Input::Gone => continue,
            },
            _ = terminate.recv() => return Ok(()),
            _ = hangup.recv() => return Ok(()),
            _ = interrupt.recv() => return Err(Failure::interrupted()),
            Some(event) = events.recv() => event,
        };
        // Whatever has ended makes room.
        while tasks.try_join_next().is_some() {}
        for action in state.update(event) {
            if action == Action::Quit {
                return Ok(());
            }
            if tasks.len() <= ACTIONS_MAX {
                tasks.spawn(perform(Arc::clone(&store), action, sender.clone(), Arc::clone(&again)));
            }
        }
    }
}

/// Sends snapshots until nobody wants them any more. An action that was done asks for one at once.
async fn take_snapshots(mut monitor: Monitor, events: Sender<Event>, again: Arc<Notify>) {
    loop {
        let event = match monitor.snapshot().await {
            Ok(snapshot) => Event::Looked(Box::new(snapshot)),
            Err(error) => Event::Trouble(error.to_string()),
        };
        if events.send(event).await.is_err() {
            return;
        }
        tokio::time::sleep(PAUSE).await;
        tokio::select! {
            () = monitor.changed() => {}
            () = again.notified() => {}
        }
    }
}

async fn perform(store: Arc<dyn Store>, action: Action, events: Sender<Event>, again: Arc<Notify>) {
    let event = act::act(&store, action).await.unwrap_or_else(|error| Event::Trouble(error.to_string()));
    // The user may have left.
    let _ = events.send(event).await;
    again.notify_one();
}
