//! Sends a call and takes its answer; follows the server's refusals, which mean that nothing was applied.

use super::command::{Call, Command};
use super::find::redirected;
use super::wire::Wire;
use super::{Conn, Inner, pause};
use crate::error::{self, Refusal, timeout, unavailable, unknown};
use crate::options::Topology;
use redis::{Cmd, RedisError, Value};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use windlass_core::{Error, Result};

/// How often a call is sent at most: each time but the last was refused as a whole.
const TURNS_MAX: u32 = 8;
/// How often a script is left at a server that has forgotten it, before its whole text goes with the call.
const LOADS_MAX: u32 = 2;

/// What is sent.
#[derive(Clone, Copy)]
pub(super) enum What<'a> {
    Script(&'a Call<'a>),
    Plain(&'a Cmd),
}

impl<'a> What<'a> {
    fn cmd(self) -> &'a Cmd {
        match self {
            Self::Script(call) => call.cmd(),
            Self::Plain(cmd) => cmd,
        }
    }
}

/// The answers to it and to the command that was sent along.
pub(super) struct Answers {
    pub(super) main: Value,
    pub(super) tail: Option<Value>,
}

/// Why there is no answer.
enum Miss {
    Refused(Refusal),
    Failed(Error),
}

/// How to send it the next time.
#[derive(Default)]
struct Form {
    no_scripts: u32,
    ask: Option<Arc<Wire>>,
}

impl Inner {
    pub(super) async fn run(
        &self,
        wire: &Wire,
        what: What<'_>,
        tail: Option<&Cmd>,
        limit: Duration,
    ) -> Result<Answers> {
        let mut form = Form::default();
        let mut last = unavailable("the server refuses");
        for turn in 0..TURNS_MAX {
            let through = form.ask.clone();
            let wire = through.as_deref().unwrap_or(wire);
            let conn = wire.get().await?;
            let refusal = match self.send(wire, &conn, &form, what, tail, limit).await {
                Ok(answers) => return Ok(answers),
                Err(Miss::Failed(error)) => return Err(error),
                Err(Miss::Refused(refusal)) => refusal,
            };
            last = refusal.clone().into_error();
            match refusal {
                Refusal::NoScript => form.no_scripts += 1,
                Refusal::Moved(to) => {
                    form.ask = None;
                    self.moved(wire, &conn, &to);
                }
                Refusal::Ask(to) => match redirected(&to, &conn.node) {
                    Some(node) => form.ask = Some(self.importer(node)),
                    None => return Err(last),
                },
                Refusal::TryAgain(_) => self.shared.at.sleep(pause(turn)).await,
                Refusal::Elsewhere(error) => {
                    form.ask = None;
                    wire.retire(&conn);
                    if let Some(sentinels) = &self.shared.sentinels {
                        sentinels.end_connections_to(&conn.node);
                    }
                    if matches!(self.shared.options.topology, Topology::Single { .. }) {
                        return Err(error);
                    }
                    self.shared.at.sleep(pause(turn)).await;
                }
                Refusal::Final(error) => return Err(error),
            }
        }
        Err(last)
    }

    fn moved(&self, wire: &Wire, conn: &Conn, to: &str) {
        *self.shared.redirect.lock() = redirected(to, &conn.node);
        wire.retire(conn);
    }

    /// A wire to the node that takes over the slot.
    fn importer(&self, node: crate::options::Node) -> Arc<Wire> {
        let mut importer = self.importer.lock();
        match &*importer {
            Some(wire) if wire.node() == Some(&node) => Arc::clone(wire),
            _ => Arc::clone(importer.insert(Arc::new(Wire::to(Arc::clone(&self.shared), node)))),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "one exchange has a way, a form, a content and a limit")]
    async fn send(
        &self,
        wire: &Wire,
        conn: &Conn,
        form: &Form,
        what: What<'_>,
        tail: Option<&Cmd>,
        limit: Duration,
    ) -> Result<Answers, Miss> {
        let mut mux = conn.mux.clone();
        if form.no_scripts == 0 && form.ask.is_none() && tail.is_none() {
            // By far the most calls.
            let main = self.bounded(wire, conn, limit, mux.send_packed_command(what.cmd())).await?;
            return Ok(Answers { main: main_of(main)?, tail: None });
        }
        let mut all = redis::pipe();
        let mut before = 0;
        let mut head = |all: &mut redis::Pipeline, cmd: Cmd| {
            all.add_command(cmd);
            before += 1;
        };
        let with_text = form.no_scripts > LOADS_MAX;
        if let What::Script(call) = what
            && form.no_scripts > 0
            && !with_text
        {
            head(&mut all, call.script().load());
        }
        if form.ask.is_some() {
            head(&mut all, redis::cmd("ASKING"));
        }
        all.add_command(match what {
            What::Script(call) if with_text => call.with_text(),
            _ => what.cmd().clone(),
        });
        if let Some(tail) = tail {
            all.add_command(tail.clone());
        }
        let count = all.len();
        let answers = self.bounded(wire, conn, limit, mux.send_packed_commands(&all, 0, count)).await?;
        let mut answers = answers.into_iter().skip(before);
        Ok(Answers { main: main_of(answers.next().unwrap_or(Value::Nil))?, tail: answers.next() })
    }

    /// Waits for an answer. A connection that breaks, is replaced or does not answer is given up.
    async fn bounded<T>(
        &self,
        wire: &Wire,
        conn: &Conn,
        limit: Duration,
        answer: impl Future<Output = Result<T, RedisError>>,
    ) -> Result<T, Miss> {
        let replaced = || {
            wire.retire(conn);
            Miss::Failed(unknown(format!("{} is being replaced by another primary", conn.node)))
        };
        let answer_or_end = async {
            tokio::select! {
                // An answer that has arrived counts, also if the connection broke behind it.
                biased;
                answer = answer => Some(answer),
                () = conn.life.over() => None,
            }
        };
        match self.shared.at.timeout(limit, answer_or_end).await {
            // A primary that is being replaced loses what it has accepted lately.
            Some(_) if conn.life.is_replaced() => Err(replaced()),
            Some(Some(Ok(answer))) => Ok(answer),
            Some(None) => {
                wire.retire(conn);
                Err(Miss::Failed(unknown(format!("the connection to {} broke", conn.node))))
            }
            Some(Some(Err(error))) => {
                wire.retire(conn);
                Err(Miss::Failed(unknown(format!("the connection to {} broke: {error}", conn.node))))
            }
            None => {
                wire.retire(conn);
                Err(Miss::Failed(timeout(format!("{} did not answer within {} ms", conn.node, limit.as_millis()))))
            }
        }
    }

    pub(super) async fn send_all(&self, commands: &[Command]) -> Result<Vec<Result<Value>>> {
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        let conn = self.calls.get().await?;
        let mut all = redis::pipe();
        for command in commands {
            all.add_command(command.0.clone());
        }
        let mut mux = conn.mux.clone();
        let answer = mux.send_packed_commands(&all, 0, commands.len());
        match self.bounded(&self.calls, &conn, self.shared.options.response_timeout, answer).await {
            Ok(values) => Ok(values.into_iter().map(|value| main_of(value).map_err(Miss::into_error)).collect()),
            Err(miss) => Err(miss.into_error()),
        }
    }
}

impl Miss {
    fn into_error(self) -> Error {
        match self {
            Self::Refused(refusal) => refusal.into_error(),
            Self::Failed(error) => error,
        }
    }
}

fn main_of(value: Value) -> Result<Value, Miss> {
    match value {
        Value::ServerError(error) => Err(Miss::Refused(error::read(error.code(), error.details().unwrap_or("")))),
        value => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Link;
    use crate::options::Options;
    use std::future::{pending, ready};

    const LIMIT: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn an_answer_of_a_primary_that_is_being_replaced_is_unknown() {
        let server = windlass_servers::Redis::start().unwrap();
        let link = Link::open(Options::from_url(&server.url()).unwrap(), &[]).unwrap();
        let (inner, wire) = (&link.0, &link.0.calls);
        let conn = wire.get().await.unwrap();
        let answered = inner.bounded(wire, &conn, LIMIT, ready(Ok(7))).await;
        assert!(matches!(answered, Ok(7)));
        let waiting = inner.bounded(wire, &conn, LIMIT, pending::<Result<(), RedisError>>());
        let replace = async { conn.life.replace() };
        let (cut_off, ()) = tokio::join!(waiting, replace);
        assert!(matches!(cut_off, Err(Miss::Failed(Error::Unknown { .. }))), "it does not wait for the answer");
        let late = inner.bounded(wire, &conn, LIMIT, ready(Ok(7))).await;
        assert!(matches!(late, Err(Miss::Failed(Error::Unknown { .. }))));
        assert!(!wire.get().await.unwrap().is(&conn), "the next call makes another connection");
    }
}
