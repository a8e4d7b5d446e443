//! The demo from its beginning to its end.

use super::args::Demo;
use super::board::{Board, News, Phase};
use super::desk::Chances;
use super::end;
use super::faults::{Fault, Faults};
use super::fleet::{Fleet, Orders};
use super::follow;
use super::jobs::QUEUES;
use super::place::Place;
use super::produce::{Producer, Valve};
use super::summary::Summary;
use super::view::Screen;
use crate::app::App;
use crate::failure::Failure;
use crate::terminal::Input;
use ratatui::crossterm::event::KeyCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinSet;
use windlass::Client;
use windlass::core::name::QueueName;
use windlass::core::random::{Random, StrongRandom};
use windlass::core::store::{FeedRequest, QueueSettings, Retention, RetentionRule, Setting, Store};
use windlass::core::time::{Clock, SystemClock};
use windlass_operate::text::count;

/// How often time is looked at, and the view is drawn.
const TICK: Duration = Duration::from_millis(100);
const NEWS_MAX: usize = 1_024;

/// Everything that takes part.
pub(super) struct Stage {
    pub(super) store: Arc<dyn Store>,
    pub(super) board: Board,
    pub(super) fleet: Fleet,
    pub(super) news: Receiver<News>,
    pub(super) screen: Screen,
    pub(super) valve: Arc<Valve>,
    /// Ended by its drop.
    pub(super) tasks: JoinSet<()>,
    faults: Faults,
    interrupts: Interrupts,
}

/// What happens next.
pub(super) enum Next {
    News(News),
    Tick,
    Pressed(Input),
    Interrupted,
}

/// How long putting the settings back may take when the demo has failed: the store may be the reason.
const RESTORE_MAX: Duration = Duration::from_secs(5);

pub(super) async fn run(demo: &Demo, app: &App, place: &Place) -> Result<Summary, Failure> {
    let store = windlass::open(&place.url)?;
    let summary = play(demo, app, place, &store).await;
    if summary.is_err() {
        restore(app, &store).await;
    }
    summary
}

/// Gives the demo's queues their usual settings after a demo that did not come to its end.
async fn restore(app: &App, store: &Arc<dyn Store>) {
    let error = match tokio::time::timeout(RESTORE_MAX, open_queues(store, QueueSettings::default())).await {
        Ok(Ok(())) => return,
        Ok(Err(failure)) => failure.to_string(),
        Err(_) => "the store does not answer".to_owned(),
    };
    let days = KEPT_MS / DAY_MS;
    app.ui.note(format_args!("note: the queues demo-… keep jobs for {days} days, and could not be set back: {error}"));
}

async fn play(demo: &Demo, app: &App, place: &Place, store: &Arc<dyn Store>) -> Result<Summary, Failure> {
    let mut stage = Stage::set(demo, app, place, Arc::clone(store)).await?;
    let played = stage.play(demo).await;
    let ended = match played {
        Ok(()) => end::wind_down(&mut stage, demo).await,
        Err(failure) => Err(failure),
    };
    // The terminal is put back before anything is said.
    stage.screen.close();
    for note in ended? {
        app.ui.note(note);
    }
    end::account(&mut stage, place).await
}

impl Stage {
    async fn set(demo: &Demo, app: &App, place: &Place, store: Arc<dyn Store>) -> Result<Self, Failure> {
        let random = StrongRandom::from_system();
        // Small enough to be typed again.
        let seed = demo.seed.unwrap_or_else(|| random.next_u64() % 1_000_000);
        let run = format!("{:08x}", random.next_u64() >> 32);
        open_queues(&store, long_kept()).await?;
        let cursor = store.read_feed(FeedRequest { after: None, max: 1 }).await?.next;
        let interrupts = Interrupts::listen()?;
        let orders = Orders {
            url: place.url.clone(),
            dir: place.dir().to_owned(),
            run: run.clone(),
            slots: demo.slots,
            lease: demo.lease,
            latency: demo.latency,
            chances: Chances { seed, fail_rate: demo.fail_rate, hang_rate: demo.hang_rate },
        };
        let fleet = Fleet::start(orders, demo.workers)?;
        let (sender, news) = channel(NEWS_MAX);
        let backlog_max = u64::from(demo.workers) * u64::from(demo.slots) * 10;
        let valve = Arc::new(Valve { backlog_max, ..Valve::default() });
        let producer = Producer {
            client: Client::new(Arc::clone(&store)),
            news: sender.clone(),
            rate: demo.rate,
            timeout: demo.timeout(),
            run,
            valve: Arc::clone(&valve),
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(producer.run());
        tasks.spawn(follow::feed(Arc::clone(&store), cursor, Sender::clone(&sender)));
        tasks.spawn(follow::status(Arc::clone(&store), sender));
        let now = SystemClock.now();
        let board = Board::new(now, cursor, place.words(), seed);
        let faults = Faults::new(now, demo.lease, demo.duration, seed);
        app.ui.note(format_args!("{} over {}", count(u64::from(demo.workers), "worker"), place.words()));
        let screen = Screen::open(app.ui)?;
        Ok(Self { store, board, fleet, news, screen, valve, tasks, faults, interrupts })
    }

    /// Until its time is over or somebody says so.
    async fn play(&mut self, demo: &Demo) -> Result<(), Failure> {
        let end_ms = demo.duration.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        loop {
            match self.next().await? {
                Next::Tick => {
                    if end_ms.is_some_and(|end_ms| self.board.elapsed_ms() >= end_ms) {
                        return Ok(());
                    }
                    let turns = self.fleet.tend(self.board.now)?;
                    self.board.note_turns(turns);
                    let due = self.faults.due(self.board.now).filter(|_| !demo.no_faults);
                    if let Some(fault) = due {
                        self.strike(fault).await;
                    }
                }
                Next::Pressed(input) if self.pressed(input).await? => return Ok(()),
                Next::Interrupted => return Ok(()),
                Next::Pressed(_) | Next::News(_) => {}
            }
        }
    }

    /// Waits for the next thing to happen, takes it in, and shows it.
    pub(super) async fn next(&mut self) -> Result<Next, Failure> {
        let tick = tokio::time::sleep_until(self.screen.tick_at());
        let next = tokio::select! {
            biased;
            () = self.interrupts.heard() => Next::Interrupted,
            input = self.screen.input() => Next::Pressed(input),
            () = tick => Next::Tick,
            Some(news) = self.news.recv() => Next::News(news),
        };
        match next {
            Next::Tick => {
                self.screen.tick_in(TICK);
                self.board.tick(SystemClock.now(), &self.fleet);
                self.valve.backlog.store(self.board.backlog(), Ordering::Relaxed);
                self.screen.show(&self.board)?;
                Ok(Next::Tick)
            }
            Next::News(News::NoMore) => Ok(Next::News(News::NoMore)),
            Next::News(news) => {
                self.board.take(news);
                Ok(Next::News(News::Deduplicated))
            }
            Next::Pressed(_) | Next::Interrupted => Ok(next),
        }
    }

    async fn strike(&mut self, fault: Fault) {
        self.faults.strike(fault, &mut self.fleet, &mut self.board, &self.store).await;
    }

    /// Does what a key asks for; true when it asks for the end.
    async fn pressed(&mut self, input: Input) -> Result<bool, Failure> {
        if input.is_interrupt() {
            return Ok(true);
        }
        let Input::Key(key) = input else { return Ok(false) };
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return Ok(true),
            KeyCode::Char('k') => self.strike(Fault::Kill).await,
            KeyCode::Char('f') => self.strike(Fault::Freeze).await,
            KeyCode::Char('p') => self.pause_or_resume().await?,
            KeyCode::Up => self.board.selected = self.board.selected.saturating_sub(1),
            KeyCode::Down => self.board.selected = (self.board.selected + 1).min(QUEUES.len() - 1),
            _ => {}
        }
        Ok(false)
    }

    async fn pause_or_resume(&mut self) -> Result<(), Failure> {
        let Some(queue) = self.board.queues.get_mut(self.board.selected) else { return Ok(()) };
        let paused = !queue.settings.paused;
        self.store.configure(Setting::Paused { queue: queue.name.clone(), paused }).await?;
        // Shown at once; the next look says the same.
        queue.settings.paused = paused;
        let words = if paused { "is paused" } else { "goes on" };
        self.board.events.say(format!("queue {} {words}", queue.name));
        Ok(())
    }

    pub(super) fn enter(&mut self, phase: Phase) {
        self.board.phase = phase;
    }
}

const DAY_MS: u64 = 24 * 3_600 * 1_000;
/// How long jobs are kept during a demo: longer than any takes, and not for ever, because a demo that is killed cannot set
/// its queues back.
const KEPT_MS: u64 = 14 * DAY_MS;

/// No job of the demo may be removed before it is counted, however many there are.
pub(super) fn long_kept() -> QueueSettings {
    let rule = RetentionRule { age_ms: Some(KEPT_MS), count: None };
    let retention = Retention { succeeded: rule, failed: rule, cancelled: rule };
    QueueSettings { retention, ..QueueSettings::default() }
}

/// Sets all queues of the demo; none of them is paused afterwards.
pub(super) async fn open_queues(store: &Arc<dyn Store>, settings: QueueSettings) -> Result<(), Failure> {
    for queue in QUEUES {
        let queue = QueueName::new(queue)?;
        store.configure(Setting::Queue { queue, settings: settings.clone() }).await?;
    }
    Ok(())
}

/// Ctrl-C where keys are not raw, and SIGTERM.
struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Interrupts {
    fn listen() -> Result<Self, Failure> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn heard(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}
