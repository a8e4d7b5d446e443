//! Runs, commits and messages as they are sent: in as few calls as can be.

use super::answers::{created, sent};
use super::steps::{Told, message_flags};
use crate::reply::Items;
use crate::scripts::AT;
use crate::store::caller::Caller;
use crate::store::enqueue::{Lanes, PIECE_BYTES};
use crate::store::gather::Gather;
use async_trait::async_trait;
use windlass_core::Result;
use windlass_core::store::{NewRun, RunCreated, RunMessage, RunStep};

/// Runs, commits or messages of one script: a server does nothing else meanwhile.
pub(super) const PIECE: usize = 500;
/// Arguments of one script, one large step excepted.
const PIECE_ARGS: usize = 10_000;
/// Jobs that one script cancels, one large step excepted.
const PIECE_CANCELS: usize = 500;

#[async_trait]
impl Gather for NewRun {
    type Answer = RunCreated;
    const ITEMS: &'static str = "runs";

    async fn send(caller: &Caller, runs: &[&Self]) -> Result<Vec<Result<RunCreated>>> {
        let answers = send_steps(caller, AT.create_runs, runs, |run| &run.step, Told::of_run).await?;
        Ok(answers.into_iter().zip(runs).map(|(answer, run)| created(&answer?, run)).collect())
    }

    fn piece_of(runs: &[&Self]) -> usize {
        runs.len().min(PIECE)
    }
}

#[async_trait]
impl Gather for RunMessage {
    type Answer = ();
    const ITEMS: &'static str = "messages";

    async fn send(caller: &Caller, messages: &[&Self]) -> Result<Vec<Result<()>>> {
        let (mut answers, mut rest) = (Vec::with_capacity(messages.len()), messages);
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(Self::piece_of(rest));
            let mut call = caller.script(AT.send_to_runs);
            call.arg_fmt(piece.len());
            for message in piece {
                call.arg_fmt(message.run).arg(message_flags(message, '-')).arg(&message.body);
            }
            let mut items = Items::of(caller.run_durably(call).await?)?;
            for message in piece {
                answers.push(sent(&items.text()?, message.run));
            }
            rest = behind;
        }
        Ok(answers)
    }

    fn piece_of(messages: &[&Self]) -> usize {
        let mut bytes = 0;
        let fits = |message: &&&Self| {
            bytes += message.body.len();
            bytes <= PIECE_BYTES
        };
        messages.iter().take(PIECE).take_while(fits).count().max(1)
    }
}

/// Sends runs or commits in as few calls as can be; the script's word for each, or why it was not sent. `tell` makes the
/// arguments of one.
pub(super) async fn send_steps<T>(
    caller: &Caller,
    script: usize,
    all: &[&T],
    step: impl Fn(&T) -> &RunStep,
    tell: impl Fn(&T, &mut Lanes) -> Result<Told>,
) -> Result<Vec<Result<String>>> {
    let mut answers = Vec::with_capacity(all.len());
    let (mut at, mut went, mut failed) = (0, false, None);
    while at < all.len() {
        let (mut lanes, mut told, mut checks) = (Lanes::default(), Vec::new(), Vec::new());
        let (mut args, mut bytes, mut cancels) = (0, 0, 0);
        // At least one goes, however large.
        while at < all.len() && checks.len() < PIECE && args < PIECE_ARGS && bytes < PIECE_BYTES {
            let RunStep { cancel, cancel_unclaimed, .. } = step(all[at]);
            cancels += cancel.len() + cancel_unclaimed.len();
            if cancels > PIECE_CANCELS && !checks.is_empty() {
                break;
            }
            let one = tell(all[at], &mut lanes);
            if let Ok(one) = one {
                args += one.len();
                bytes += one.bytes;
                told.push(one);
                checks.push(Ok(()));
            } else {
                checks.push(one.map(drop));
            }
            at += 1;
        }
        match send_piece(caller, script, &lanes, &told).await {
            Ok(mut words) => {
                went = went || !told.is_empty();
                answers.extend(checks.into_iter().map(|check| check.and_then(|()| words.text())));
            }
            Err(error) => {
                answers.extend(checks.into_iter().map(|check| check.and_then(|()| Err(error.clone()))));
                failed = failed.or(Some(error));
            }
        }
    }
    // When one piece went well, its callers must know.
    failed.filter(|_| !went).map_or(Ok(answers), Err)
}

async fn send_piece(caller: &Caller, script: usize, lanes: &Lanes, told: &[Told]) -> Result<Items> {
    if told.is_empty() {
        caller.signals.check_open()?;
        return Ok(Items::none());
    }
    let mut call = caller.script(script);
    lanes.add(&mut call);
    call.arg_fmt(told.len());
    for one in told {
        one.add_to(&mut call);
    }
    Items::of(caller.run_durably(call).await?)
}
