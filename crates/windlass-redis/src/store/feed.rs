//! The feed. An entry is one step: lines `verb from to attempt queue:id,id,…`, other events as JSON.

use super::RedisStore;
use crate::link::{Command, Value};
use crate::reply::{Items, number, odd, one, state, text, time, verb};
use crate::scripts::AT;
use async_trait::async_trait;
use std::collections::HashMap;
use windlass_core::name::{QueueName, ScheduleName};
use windlass_core::store::{
    FEED_EVENTS_DEFAULT, Feed, FeedCursor, FeedEntry, FeedEvent, FeedPage, FeedRequest, RunChange, Transition,
    check_feed_events,
};
use windlass_core::{Error, Result};

/// How many calls shorten a feed at most, each by up to 8,192 entries.
const SHORTEN_CALLS_MAX: u32 = 2_000;

#[async_trait]
impl Feed for RedisStore {
    async fn read_feed(&self, request: FeedRequest) -> Result<FeedPage> {
        request.check()?;
        let mut call = self.caller.script(AT.read_feed);
        match request.after {
            Some(after) => call.arg_fmt(after.0),
            None => call.arg("-"),
        };
        call.arg_fmt(request.max);
        let mut items = self.caller.items(call).await?;
        let end = items.number()?;
        let Some(FeedCursor(after)) = request.after else {
            return Ok(FeedPage { next: FeedCursor(end), ..FeedPage::default() });
        };
        if after > end {
            let reason = format!(
                "{after} is not in this feed, which ends at {end}; if the store was restored from a backup, read its end, \
                 look at everything once, and follow from there"
            );
            return Err(Error::invalid("after", reason));
        }
        if after + 1 < items.number()? {
            return Ok(FeedPage { gap: true, entries: Vec::new(), next: FeedCursor(end) });
        }
        let entries = items.all(|items| entry(items.list()?))?;
        let next = entries.last().map_or(FeedCursor(after), |entry| entry.cursor);
        Ok(FeedPage { gap: false, entries, next })
    }

    async fn set_feed_events(&self, events: u64) -> Result<()> {
        check_feed_events(events)?;
        // The longest feed is shortened in 1,220 calls, of which each leaves time for others.
        for _ in 0..SHORTEN_CALLS_MAX {
            let mut call = self.caller.script(AT.set_feed_events);
            call.arg_fmt(events);
            match one(self.caller.run_durably(call).await?)?.as_str() {
                "done" => return Ok(()),
                "more" => {}
                other => return Err(odd(other)),
            }
        }
        // Entries came faster than they were forgotten; later steps forget the rest.
        Ok(())
    }

    async fn feed_events(&self) -> Result<u64> {
        self.caller.signals.check_open()?;
        let command = Command::new("HGET").arg(self.caller.keys.meta()).arg("feed_events");
        let stored: Option<u64> = match self.caller.link.command(&command).await? {
            Value::Nil => None,
            other => one(other)?.parse().ok(),
        };
        Ok(stored.filter(|events| check_feed_events(*events).is_ok()).unwrap_or(FEED_EVENTS_DEFAULT))
    }
}

/// An entry of the stream: its id, then names and values.
fn entry(mut item: Items) -> Result<FeedEntry> {
    let id = item.text()?;
    let cursor = FeedCursor(number(id.split('-').next().unwrap_or_default())?);
    let mut fields = item.list()?;
    let (mut at, mut names, mut lines) = (None, HashMap::new(), None);
    while fields.left() > 0 {
        let (name, value) = (fields.text()?, fields.bytes()?);
        match name.as_str() {
            "t" => at = Some(time(text(&value)?)?),
            "q" => names = queue_names(text(&value)?)?,
            "e" => lines = Some(value),
            _ => {}
        }
    }
    let mut events = Vec::new();
    for line in text(&lines.unwrap_or_default())?.lines() {
        if line.starts_with('{') {
            events.push(serde_json::from_str(line).map_err(|e| odd(&format!("an event: {e}")))?);
        } else if let Some(rest) = line.strip_prefix("fired ") {
            events.push(fired(rest)?);
        } else if let Some(rest) = line.strip_prefix("run ") {
            events.push(run_change(rest)?);
        } else {
            transitions(line, &names, &mut events)?;
        }
    }
    Ok(FeedEntry { cursor, at: at.ok_or_else(|| odd("an entry without a time"))?, events })
}

/// `tick name`, the name as JSON.
fn fired(line: &str) -> Result<FeedEvent> {
    let (tick, name) = line.split_once(' ').ok_or_else(|| odd(line))?;
    let schedule: ScheduleName = serde_json::from_str(name).map_err(|e| odd(&format!("an event: {e}")))?;
    Ok(FeedEvent::ScheduleFired { schedule, tick: time(tick)? })
}

/// `run state length`; a dash for one that is gone.
fn run_change(line: &str) -> Result<FeedEvent> {
    let parts: Vec<&str> = line.split(' ').collect();
    let [run, state, len] = parts[..] else { return Err(odd(line)) };
    let state = if state == "-" { None } else { Some(super::runs::text::state(state)?) };
    Ok(FeedEvent::Run(RunChange { run: run.parse()?, state, history_len: number(len)? }))
}

fn queue_names(stored: &str) -> Result<HashMap<String, QueueName>> {
    let name = |line: &str| {
        let (id, name) = line.split_once(' ').ok_or_else(|| odd(line))?;
        Ok((id.to_owned(), QueueName::new(name)?))
    };
    stored.lines().map(name).collect()
}

fn transitions(line: &str, names: &HashMap<String, QueueName>, events: &mut Vec<FeedEvent>) -> Result<()> {
    let (head, ids) = line.split_once(':').ok_or_else(|| odd(line))?;
    let parts: Vec<&str> = head.split(' ').collect();
    let [what, from, to, attempt, queue] = parts[..] else { return Err(odd(line)) };
    let maybe_state = |letter: &str| if letter == "-" { Ok(None) } else { state(letter).map(Some) };
    let (verb, from, to, attempt) = (verb(what)?, maybe_state(from)?, maybe_state(to)?, number(attempt)?);
    let queue = names.get(queue).ok_or_else(|| odd("an entry without the name of its queue"))?;
    for id in ids.split(',') {
        let job = id.parse()?;
        events.push(FeedEvent::Job(Transition { job, queue: queue.clone(), verb, from, to, attempt }));
    }
    Ok(())
}

/// True when a read of the stream found something.
pub(super) fn has_news(value: &Value) -> bool {
    !matches!(value, Value::Nil)
}
