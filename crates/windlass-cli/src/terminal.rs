//! A terminal of our own for as long as a view is open: alternate screen, raw keys, and everything put back in the end,
//! also after a panic.

use crate::failure::Failure;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::{DefaultTerminal, Frame};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// How soon the key reader notices that it is not needed any more.
const LOOK: Duration = Duration::from_millis(50);
/// Keys that nobody has read yet; further ones wait.
const KEYS_MAX: usize = 64;

/// What a user does at a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    Key(KeyEvent),
    Resized,
    /// The terminal is gone, and with it whoever looked.
    Gone,
}

impl Input {
    /// Ctrl-C, which is a key like any other while keys are raw; or nobody is there any more.
    pub(crate) fn is_interrupt(self) -> bool {
        matches!(self, Self::Gone)
            || matches!(self, Self::Key(key)
            if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL))
    }
}

/// An open terminal.
pub(crate) struct Terminal {
    inner: DefaultTerminal,
    inputs: Receiver<Input>,
    closing: Arc<AtomicBool>,
    reader: Option<JoinHandle<()>>,
}

impl Terminal {
    /// True when somebody can look and press keys.
    pub(crate) fn is_there() -> bool {
        std::io::stdout().is_terminal() && std::io::stdin().is_terminal()
    }

    pub(crate) fn open() -> Result<Self, Failure> {
        // It installs a hook that restores the terminal before a panic is printed.
        let inner = ratatui::try_init()?;
        let (sender, inputs) = channel(KEYS_MAX);
        let closing = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&closing);
        let read = move || read_inputs(&sender, &flag);
        let reader = std::thread::Builder::new().name("keys".to_owned()).spawn(read);
        let reader = reader.inspect_err(|_| ratatui::restore())?;
        Ok(Self { inner, inputs, closing, reader: Some(reader) })
    }

    /// The next thing that the user does; waits for ever when there is nothing more to come.
    pub(crate) async fn input(&mut self) -> Input {
        match self.inputs.recv().await {
            Some(input) => input,
            None => std::future::pending().await,
        }
    }

    pub(crate) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> Result<(), Failure> {
        self.inner.draw(draw)?;
        Ok(())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.closing.store(true, Ordering::Relaxed);
        self.inputs.close();
        if let Some(reader) = self.reader.take().filter(|_| !is_gone()) {
            // It has nothing to tell.
            let _ = reader.join();
        }
        ratatui::restore();
    }
}

/// True when the other side of the terminal is closed. Reading from it would be answered with nothing, again and again, and
/// the library that reads keys does not take that for an end.
fn is_gone() -> bool {
    let stdin = std::io::stdin();
    let mut looked_at = [PollFd::new(&stdin, PollFlags::IN)];
    let answered = poll(&mut looked_at, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok();
    answered && looked_at[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL)
}

fn read_inputs(sender: &Sender<Input>, closing: &AtomicBool) {
    while !closing.load(Ordering::Relaxed) {
        if is_gone() {
            // The view may be over already.
            let _ = sender.blocking_send(Input::Gone);
            return;
        }
        let input = match event::poll(LOOK) {
            Ok(true) => event::read(),
            Ok(false) => continue,
            Err(_) => return,
        };
        let input = match input {
            Ok(Event::Key(key)) if key.kind != KeyEventKind::Release => Input::Key(key),
            Ok(Event::Resize(..)) => Input::Resized,
            Ok(_) => continue,
            Err(_) => return,
        };
        if sender.blocking_send(input).is_err() {
            return;
        }
    }
}
