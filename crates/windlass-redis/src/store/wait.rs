//! Waiting, what the store says about itself, and its end.
//!
//! Work and ends of jobs are told over a channel of this process alone: the scripts publish to it whatever this process has
//! registered for. A message can be lost with its connection, so whenever the subscription begins anew everybody looks.

use super::RedisStore;
use super::caller::Caller;
use super::feed::has_news;
use crate::link::{Blocking, Command, Event, Link};
use crate::reply::{odd, one};
use crate::scripts::AT;
use async_trait::async_trait;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::task::AbortHandle;
use windlass_core::Result;
use windlass_core::engine::{Effects, Ended, Signals};
use windlass_core::id::{JobId, RunId};
use windlass_core::name::{QueueName, WorkerId};
use windlass_core::store::{Feed as _, FeedCursor, FeedRequest, MaintenanceClaim, Store, StoreInfo, WaitFor};
use windlass_core::time::Timestamp;

/// How long one wait for the feed stays at the server.
const FEED_BLOCK: Duration = Duration::from_secs(5);
/// Connections that are kept for waiting.
const LINES_KEPT: usize = 4;

/// Hears the bells of this process, once somebody waits.
#[derive(Debug, Default)]
pub(super) struct Listener {
    on: Arc<AtomicBool>,
    task: Mutex<Option<AbortHandle>>,
}

impl Listener {
    /// True when a bell would be heard.
    pub(super) fn is_on(&self) -> bool {
        self.on.load(Ordering::Acquire)
    }

    /// Listens, if it does not yet.
    fn start(&self, caller: &Arc<Caller>, channel: String) {
        let mut task = self.task.lock();
        if task.as_ref().is_some_and(|task| !task.is_finished()) {
            return;
        }
        let (caller, on) = (Arc::clone(caller), Arc::clone(&self.on));
        // On the link's thread: a runtime that ends must not leave those of others waiting.
        let mut messages = caller.link.subscribe(channel);
        let link = caller.link.clone();
        *task = Some(link.spawn(async move {
            while let Some(event) = messages.next().await {
                match event {
                    Event::Subscribed => {
                        on.store(true, Ordering::Release);
                        // Whatever was rung meanwhile was not heard.
                        caller.signals.announce_all(0);
                    }
                    Event::Lost => {
                        on.store(false, Ordering::Release);
                        // Those who wait rely on a bell for seconds. They look, and wait for a shorter time then.
                        caller.signals.announce_all(0);
                    }
                    Event::Message(message) => hear(&caller.signals, &message),
                }
            }
            on.store(false, Ordering::Release);
        }));
    }

    fn stop(&self) {
        self.on.store(false, Ordering::Release);
        let task = self.task.lock().take();
        if let Some(task) = task {
            task.abort();
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop();
    }
}

/// `work\n<queue>`, `runs\n` or `job\n<id of a job or run>`.
fn hear(signals: &Signals, message: &[u8]) {
    let mut effects = Effects::default();
    match std::str::from_utf8(message).ok().and_then(|text| text.split_once('\n')) {
        Some(("work", queue)) => effects.work.extend(QueueName::new(queue)),
        Some(("runs", _)) => effects.runs = true,
        Some(("job", id)) => {
            let run = || id.parse::<RunId>().map(Ended::Run);
            effects.ended.extend(id.parse::<JobId>().map(Ended::Job).or_else(|_| run()));
        }
        // A question whether anybody is there.
        None if message == b"here" => return,
        _ => return signals.announce_all(0),
    }
    signals.announce(&effects);
}

/// Connections for those who wait for the feed, kept for the next who does.
#[derive(Debug, Default)]
pub(super) struct Lines(Mutex<Vec<Blocking>>);

impl Lines {
    fn take(&self, link: &Link) -> Blocking {
        let kept = self.0.lock().pop();
        kept.unwrap_or_else(|| link.blocking())
    }

    fn put(&self, line: Blocking) {
        let mut lines = self.0.lock();
        if lines.len() < LINES_KEPT {
            lines.push(line);
        }
    }
}

impl RedisStore {
    fn listen(&self) {
        let channel = format!("{}{}", self.caller.keys.bell(), self.handle);
        self.listener.start(&self.caller, channel);
    }

    async fn wait_for_end(&self, of: Ended) -> Result<()> {
        self.listen();
        let is_open = async {
            let mut call = self.caller.script(AT.watch);
            match of {
                Ended::Job(job) => call.arg_fmt(job),
                Ended::Run(run) => call.arg_fmt(run),
            };
            call.arg(&self.handle);
            Ok(one(self.caller.run(call).await?)? == "waits")
        };
        self.caller.signals.end(of, is_open).await
    }

    async fn wait_for_feed(&self, cursor: FeedCursor) -> Result<()> {
        let end = self.read_feed(FeedRequest { after: None, max: 1 }).await?.next;
        if end != cursor {
            // There is more; or the feed is not the one that was read, and the next read says so.
            return Ok(());
        }
        let mut line = self.lines.take(&self.caller.link);
        loop {
            self.caller.signals.check_open()?;
            let command = Command::new("XREAD").arg("BLOCK").arg(FEED_BLOCK.as_millis().to_string());
            let command = command.arg("STREAMS").arg(self.caller.keys.feed()).arg(format!("{}-0", cursor.0));
            if has_news(&line.command(&command, FEED_BLOCK).await?) {
                self.lines.put(line);
                return Ok(());
            }
        }
    }
}

#[async_trait]
impl Store for RedisStore {
    async fn info(&self) -> Result<StoreInfo> {
        self.caller.signals.check_open()?;
        self.describe().await
    }

    async fn now(&self) -> Result<Timestamp> {
        self.time().await
    }

    async fn wait(&self, what: WaitFor) -> Result<()> {
        self.caller.signals.check_open()?;
        match what {
            WaitFor::Work { queues, mark } => {
                self.listen();
                self.caller.signals.work(&queues, mark).await;
            }
            WaitFor::Runs(mark) => {
                self.listen();
                self.caller.signals.runs(mark).await;
            }
            WaitFor::Job(job) => self.wait_for_end(Ended::Job(job)).await?,
            WaitFor::Run(run) => self.wait_for_end(Ended::Run(run)).await?,
            WaitFor::Feed(cursor) => {
                tokio::select! {
                    done = self.wait_for_feed(cursor) => done?,
                    // Nothing but the end of the store is announced there.
                    () = self.caller.signals.feed(cursor) => {}
                }
            }
        }
        self.caller.signals.check_open()
    }

    async fn claim_maintenance(&self, keeper: WorkerId, ttl_ms: u64) -> Result<MaintenanceClaim> {
        let mut call = self.caller.script_over(AT.keep_time, self.caller.keys.with_timekeeper());
        call.arg(keeper.as_str()).arg(&self.handle).arg_fmt(ttl_ms);
        let mut answer = self.caller.items(call).await?;
        let (outcome, retry_after_ms): (_, u64) = (answer.text()?, answer.number()?);
        match outcome.as_str() {
            "keeps" => Ok(MaintenanceClaim::Granted),
            "deputy" | "rests" => Ok(MaintenanceClaim::HeldByOther { retry_after_ms: retry_after_ms.max(1) }),
            other => Err(odd(&format!("`{other}` is no outcome of keep_time"))),
        }
    }

    async fn close(&self) -> Result<()> {
        self.caller.signals.close();
        self.listener.stop();
        Ok(())
    }
}
