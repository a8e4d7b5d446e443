//! Gathers small calls that come at the same time into one: a script costs the server much more than a job, a run or a message.
//!
//! A call that comes while none is under way is sent at once. Those that come meanwhile are sent together when that one is
//! back. A call is made by a task of its own, on the link's thread: a caller that gives up, or whose runtime ends, must not take
//! the others along. A task that ends before its time (a panic, the end of the link) is not counted any more, and those whom no
//! task is left to serve are answered. A caller waits for its turn for as long as one call may take; a call has its own limits.

use super::caller::Caller;
use crate::error::{unavailable, unknown};
use crate::reply::odd;
use async_trait::async_trait;
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::sync::oneshot;
use windlass_core::{Error, Result};

/// Calls under way at once: while one is on its way back, the other is at work.
const UNDER_WAY_MAX: usize = 2;

/// Calls of so few items are gathered with those of others.
pub(super) const GATHERED: usize = 64;

/// What is sent together.
#[async_trait]
pub(super) trait Gather: Send + Sync + Sized + 'static {
    /// The answer for one item.
    type Answer: Send + 'static;
    /// What the items are called in messages.
    const ITEMS: &'static str;

    /// Sends items in as few calls as can be. The answers are in the order of the items.
    async fn send(caller: &Caller, items: &[&Self]) -> Result<Vec<Result<Self::Answer>>>;

    /// How many of these items go into one call, at least one.
    fn piece_of(items: &[&Self]) -> usize;
}

type Answers<T> = Result<Vec<Result<<T as Gather>::Answer>>>;

/// One caller's items.
struct Waiting<T: Gather> {
    number: u64,
    items: Vec<T>,
    answer: oneshot::Sender<Answers<T>>,
}

struct State<T: Gather> {
    under_way: usize,
    waiting: Vec<Waiting<T>>,
    /// The number of the last caller.
    last: u64,
}

/// The calls of one kind that a store makes.
pub(super) struct Gathering<T: Gather> {
    caller: Arc<Caller>,
    state: Arc<Mutex<State<T>>>,
}

impl<T: Gather> Gathering<T> {
    pub(super) fn new(caller: Arc<Caller>) -> Self {
        let state = State { under_way: 0, waiting: Vec::new(), last: 0 };
        Self { caller, state: Arc::new(Mutex::new(state)) }
    }

    /// Sends the sound ones of these items, together with those of other callers that wait. What was refused keeps its place.
    pub(super) async fn send_sound(&self, checked: Vec<Result<T>>) -> Answers<T> {
        let mut places: Vec<Option<Error>> = Vec::with_capacity(checked.len());
        let mut sound = Vec::with_capacity(checked.len());
        for item in checked {
            match item {
                Ok(item) => {
                    sound.push(item);
                    places.push(None);
                }
                Err(error) => places.push(Some(error)),
            }
        }
        let mut answers = if sound.is_empty() { Vec::new() } else { self.send(sound).await? }.into_iter();
        let missing = || Err(odd("an answer is missing"));
        let answer = |refused: Option<Error>| refused.map_or_else(|| answers.next().unwrap_or_else(missing), Err);
        Ok(places.into_iter().map(answer).collect())
    }

    /// Sends items, together with those of other callers that wait.
    async fn send(&self, items: Vec<T>) -> Answers<T> {
        let (answer, mut answered) = oneshot::channel();
        let (number, is_first) = {
            let mut state = self.state.lock();
            state.last += 1;
            let number = state.last;
            state.waiting.push(Waiting { number, items, answer });
            let is_first = state.under_way < UNDER_WAY_MAX;
            state.under_way += usize::from(is_first);
            (number, is_first)
        };
        if is_first {
            let sender = Sender { caller: Arc::clone(&self.caller), state: Arc::clone(&self.state), is_done: false };
            self.caller.link.spawn(sender.send_all());
        }
        let options = self.caller.options();
        let limit = options.connect_timeout + options.response_timeout;
        let answers = match self.caller.link.timeout(limit, &mut answered).await {
            Some(answers) => answers,
            None if self.give_up(number) => {
                let ms = limit.as_millis();
                return Err(unavailable(format!(
                    "the {} could not be sent within {ms} ms: earlier calls are not answered",
                    T::ITEMS
                )));
            }
            // They were sent, and that call has limits of its own.
            None => answered.await,
        };
        answers.unwrap_or_else(|_| Err(unknown("the connection was closed during the call")))
    }

    /// Takes the items of a caller back; false when they were sent.
    fn give_up(&self, number: u64) -> bool {
        let mut state = self.state.lock();
        let before = state.waiting.len();
        state.waiting.retain(|waiting| waiting.number != number);
        state.waiting.len() < before
    }
}

/// A task that is counted in `under_way`.
struct Sender<T: Gather> {
    caller: Arc<Caller>,
    state: Arc<Mutex<State<T>>>,
    /// It has ended in order, and is not counted any more.
    is_done: bool,
}

impl<T: Gather> Drop for Sender<T> {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        let mut state = self.state.lock();
        state.under_way -= 1;
        if state.under_way == 0 {
            // No task is left that would send them.
            state.waiting.clear();
        }
    }
}

impl<T: Gather> Sender<T> {
    /// Sends what waits until nothing does.
    async fn send_all(mut self) {
        loop {
            // Those who have just got their answers come again at once, and can come along.
            tokio::task::yield_now().await;
            let group = {
                let mut state = self.state.lock();
                if state.waiting.is_empty() {
                    // Under the same lock, so that nobody relies on a task that ends.
                    state.under_way -= 1;
                    self.is_done = true;
                    return;
                }
                let count = fitting(&state.waiting);
                state.waiting.drain(..count).collect::<Vec<_>>()
            };
            self.send(group).await;
        }
    }

    /// Sends the items of some callers. When the server refuses the call because something is damaged, each caller's items are
    /// sent in a call of their own: the damage may concern one of them alone.
    async fn send(&self, group: Vec<Waiting<T>>) {
        let items: Vec<&T> = group.iter().flat_map(|waiting| &waiting.items).collect();
        match T::send(&self.caller, &items).await {
            Ok(answers) => {
                let mut answers = answers.into_iter();
                for Waiting { items, answer, .. } in group {
                    // One who has given up does not listen.
                    drop(answer.send(Ok(answers.by_ref().take(items.len()).collect())));
                }
            }
            Err(Error::Corrupt { .. }) if group.len() > 1 => {
                for Waiting { items, answer, .. } in group {
                    let items: Vec<&T> = items.iter().collect();
                    drop(answer.send(T::send(&self.caller, &items).await));
                }
            }
            Err(error) => group.into_iter().for_each(|waiting| drop(waiting.answer.send(Err(error.clone())))),
        }
    }
}

/// How many callers fit into one script, at least one.
fn fitting<T: Gather>(waiting: &[Waiting<T>]) -> usize {
    let items: Vec<&T> = waiting.iter().flat_map(|waiting| &waiting.items).collect();
    let most = T::piece_of(&items);
    let mut sum = 0;
    let fits = |waiting: &&Waiting<T>| {
        sum += waiting.items.len();
        sum <= most
    };
    waiting.iter().take_while(fits).count().max(1)
}
