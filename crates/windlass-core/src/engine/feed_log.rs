//! Reading the feed, and its packed form for stores that keep bytes.

use super::Step;
use super::tables::Tables;
use crate::error::{Error, Result};
use crate::id::{JobId, RunId};
use crate::job::{State, Verb};
use crate::name::QueueName;
use crate::store::{
    FEED_EVENTS_DEFAULT, FeedCursor, FeedEvent, FeedPage, FeedRequest, RunChange, RunState, Transition,
    check_feed_events,
};

impl<T: Tables> Step<'_, T> {
    /// See [`Feed::set_feed_events`](crate::store::Feed::set_feed_events).
    pub fn set_feed_events(&mut self, events: u64) -> Result<()> {
        check_feed_events(events)?;
        self.tables.set_feed_events(events)
    }

    /// See [`Feed::feed_events`](crate::store::Feed::feed_events).
    pub fn feed_events(&mut self) -> Result<u64> {
        Ok(self.tables.feed_events()?.unwrap_or(FEED_EVENTS_DEFAULT))
    }

    /// See [`Feed::read_feed`](crate::store::Feed::read_feed).
    pub fn read_feed(&mut self, request: FeedRequest) -> Result<FeedPage> {
        request.check()?;
        let max = request.max as usize;
        let end = self.tables.feed_end()?;
        let Some(FeedCursor(after)) = request.after else {
            return Ok(FeedPage { next: FeedCursor(end), ..FeedPage::default() });
        };
        if after > end {
            return Err(Error::invalid("after", format!("{after} is not in this feed, which ends at {end}")));
        }
        if after + 1 < self.tables.feed_begin()? {
            return Ok(FeedPage { gap: true, entries: Vec::new(), next: FeedCursor(end) });
        }
        let entries = self.tables.feed(after, max)?;
        let next = entries.last().map_or(FeedCursor(after), |entry| entry.cursor);
        Ok(FeedPage { gap: false, entries, next })
    }
}

const VERSION: u8 = 1;
const TAG_JOB: u8 = 0;
const TAG_OTHER: u8 = 1;
const TAG_RUN: u8 = 2;
/// Stands for "no state".
const NONE: u8 = 0xff;

/// The events of one entry, packed: a queue's name is written once, a transition takes 28 bytes, and so does the change of a
/// run.
pub fn encode_events(events: &[FeedEvent]) -> Result<Vec<u8>> {
    let mut names: Vec<&QueueName> = Vec::new();
    let mut body = Vec::with_capacity(events.len() * 28);
    for event in events {
        match event {
            FeedEvent::Job(job) => {
                let last = names.iter().rposition(|name| **name == job.queue);
                let name = last.unwrap_or_else(|| {
                    names.push(&job.queue);
                    names.len() - 1
                });
                body.push(TAG_JOB);
                body.extend(u16::try_from(name).map_err(|_| too_many())?.to_le_bytes());
                body.extend(job.job.partition().to_le_bytes());
                body.extend(job.job.bits().to_le_bytes());
                body.extend([verb_code(job.verb), state_code(job.from), state_code(job.to)]);
                body.extend(job.attempt.to_le_bytes());
            }
            FeedEvent::Run(run) => {
                body.push(TAG_RUN);
                body.extend(run.run.partition().to_le_bytes());
                body.extend(run.run.bits().to_le_bytes());
                body.push(run_state_code(run.state));
                body.extend(run.history_len.to_le_bytes());
            }
            other => {
                let text = serde_json::to_vec(other).map_err(|e| Error::corrupt(e.to_string()))?;
                body.push(TAG_OTHER);
                body.extend(u32::try_from(text.len()).map_err(|_| too_many())?.to_le_bytes());
                body.extend(text);
            }
        }
    }
    let mut bytes = vec![VERSION];
    bytes.extend(u16::try_from(names.len()).map_err(|_| too_many())?.to_le_bytes());
    for name in names {
        bytes.push(u8::try_from(name.as_str().len()).map_err(|_| too_many())?);
        bytes.extend(name.as_str().as_bytes());
    }
    bytes.extend(body);
    Ok(bytes)
}

fn too_many() -> Error {
    Error::limit("queues of one step", u64::from(u16::MAX), u64::from(u16::MAX) + 1)
}

/// The events that [`encode_events`] packed. Whatever else comes is `Corrupt`, never a panic.
pub fn decode_events(bytes: &[u8]) -> Result<Vec<FeedEvent>> {
    let mut reader = Reader(bytes);
    if reader.byte()? != VERSION {
        return Err(damaged());
    }
    let count = u16::from_le_bytes(reader.take()?);
    let mut names = Vec::new();
    for _ in 0..count {
        let len = reader.byte()?;
        let text = std::str::from_utf8(reader.slice(usize::from(len))?).map_err(|_| damaged())?;
        names.push(QueueName::new(text).map_err(|_| damaged())?);
    }
    let mut events = Vec::new();
    while !reader.0.is_empty() {
        events.push(reader.event(&names)?);
    }
    Ok(events)
}

fn damaged() -> Error {
    Error::corrupt("a feed entry cannot be read")
}

struct Reader<'b>(&'b [u8]);

impl<'b> Reader<'b> {
    fn slice(&mut self, len: usize) -> Result<&'b [u8]> {
        let (head, tail) = self.0.split_at_checked(len).ok_or_else(damaged)?;
        self.0 = tail;
        Ok(head)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        self.slice(N)?.try_into().map_err(|_| damaged())
    }

    fn byte(&mut self) -> Result<u8> {
        Ok(u8::from_le_bytes(self.take()?))
    }

    fn event(&mut self, names: &[QueueName]) -> Result<FeedEvent> {
        match self.byte()? {
            TAG_JOB => {
                let name = u16::from_le_bytes(self.take()?);
                let partition = u16::from_le_bytes(self.take()?);
                let bits = u128::from_le_bytes(self.take()?);
                let [verb, from, to] = self.take()?;
                let attempt = u32::from_le_bytes(self.take()?);
                Ok(FeedEvent::Job(Transition {
                    job: JobId::from_parts(partition, bits),
                    queue: names.get(usize::from(name)).ok_or_else(damaged)?.clone(),
                    verb: verb_of(verb)?,
                    from: state_of(from)?,
                    to: state_of(to)?,
                    attempt,
                }))
            }
            TAG_RUN => {
                let partition = u16::from_le_bytes(self.take()?);
                let bits = u128::from_le_bytes(self.take()?);
                let state = run_state_of(self.byte()?)?;
                let history_len = u64::from_le_bytes(self.take()?);
                Ok(FeedEvent::Run(RunChange { run: RunId::from_parts(partition, bits), state, history_len }))
            }
            TAG_OTHER => {
                let len = u32::from_le_bytes(self.take()?);
                let text = self.slice(usize::try_from(len).map_err(|_| damaged())?)?;
                serde_json::from_slice(text).map_err(|_| damaged())
            }
            _ => Err(damaged()),
        }
    }
}

fn verb_code(verb: Verb) -> u8 {
    match Verb::ALL.iter().position(|known| *known == verb) {
        Some(place) => u8::try_from(place + 1).unwrap_or(0),
        None => 0,
    }
}

fn verb_of(code: u8) -> Result<Verb> {
    match code {
        0 => Ok(Verb::Enqueue),
        code => Verb::ALL.get(usize::from(code) - 1).copied().ok_or_else(damaged),
    }
}

fn state_code(state: Option<State>) -> u8 {
    state.map_or(NONE, |state| u8::try_from(state.index()).unwrap_or(NONE))
}

fn state_of(code: u8) -> Result<Option<State>> {
    match code {
        NONE => Ok(None),
        code => State::ALL.get(usize::from(code)).copied().map(Some).ok_or_else(damaged),
    }
}

fn run_state_code(state: Option<RunState>) -> u8 {
    let place = state.and_then(|state| RunState::ALL.iter().position(|known| *known == state));
    place.and_then(|place| u8::try_from(place).ok()).unwrap_or(NONE)
}

fn run_state_of(code: u8) -> Result<Option<RunState>> {
    match code {
        NONE => Ok(None),
        code => RunState::ALL.get(usize::from(code)).copied().map(Some).ok_or_else(damaged),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::ScheduleName;
    use crate::time::Timestamp;
    use proptest::prelude::*;

    fn event() -> impl Strategy<Value = FeedEvent> {
        let job = (any::<u16>(), any::<u128>(), 0usize..4, 0usize..16, 0usize..7, 0usize..7, any::<u32>());
        prop_oneof![
            job.prop_map(|(partition, bits, queue, verb, from, to, attempt)| FeedEvent::Job(Transition {
                job: JobId::from_parts(partition, bits),
                queue: QueueName::new(["a", "b", "é*", "q}{"][queue]).unwrap(),
                verb: if verb == 0 { Verb::Enqueue } else { Verb::ALL[verb - 1] },
                from: State::ALL.get(from).copied(),
                to: State::ALL.get(to).copied(),
                attempt,
            })),
            (any::<u16>(), any::<u128>(), 0usize..5, any::<u64>()).prop_map(|(partition, bits, state, history_len)| {
                let (run, state) = (RunId::from_parts(partition, bits), RunState::ALL.get(state).copied());
                FeedEvent::Run(RunChange { run, state, history_len })
            }),
            Just(FeedEvent::ScheduleFired {
                schedule: ScheduleName::new("nightly").unwrap(),
                tick: Timestamp::from_ms(1_000)
            }),
        ]
    }

    proptest! {
        #[test]
        fn events_come_back(events in prop::collection::vec(event(), 0..20)) {
            prop_assert_eq!(decode_events(&encode_events(&events).unwrap()).unwrap(), events);
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode_events(&bytes);
        }

        #[test]
        fn cut_short_is_an_error(events in prop::collection::vec(event(), 1..5), cut in 1usize..20) {
            let bytes = encode_events(&events).unwrap();
            let whole = decode_events(&bytes[..bytes.len() - cut.min(bytes.len())]);
            prop_assert!(whole.map_or(true, |some| some.len() < events.len()));
        }
    }
}
