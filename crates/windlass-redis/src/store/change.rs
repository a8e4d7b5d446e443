//! Changing jobs, one by one and by what they have in common.

use super::RedisStore;
use crate::directory::settings_text;
use crate::record::{due_text, escape, payload_text};
use crate::reply::{Items, illegal, number, odd, one, sound, state, state_letter};
use crate::scripts::AT;
use bytes::Bytes;
use std::ops::RangeInclusive;
use windlass_core::engine::{Cursor, Effects, Ended, JobScan, question};
use windlass_core::id::{JobId, Token};
use windlass_core::job::State;
use windlass_core::name::QueueName;
use windlass_core::store::{
    Change, ChangeMany, ChangeManyOp, ChangeOp, Changed, ChangedMany, FeedEvent, Filter, Setting, Store as _,
    check_batch,
};
use windlass_core::time::Timestamp;
use windlass_core::{Error, Result};

/// Changes that one script is given, at most. It makes as many of them as are little enough work for one step, because a server
/// does nothing else meanwhile.
const PIECE: usize = 500;
/// Bytes of arguments that one script is given, at most, unless one change alone has more. A script that writes payloads stops after
/// about that many, and what it leaves is sent again.
const PIECE_BYTES: usize = 1 << 20;

/// A job, what is done to it, and with what.
type Asked<'a> = (JobId, &'a str, Vec<u8>);

/// How a script is to take its changes.
#[derive(Clone, Copy)]
struct Mode<'s> {
    /// The states that they may find a job in; `None` for any. What a bulk change has found may have changed since.
    states: Option<&'s [State]>,
    /// Active jobs are removed, too.
    force: bool,
}

impl Mode<'_> {
    /// Each for itself.
    const ONE: Self = Self { states: None, force: false };
}

impl RedisStore {
    pub(super) async fn change_jobs(&self, changes: Vec<Change>) -> Result<Vec<Result<Changed>>> {
        check_batch(changes.len())?;
        let (checks, sound) = sound(&changes, |change| change.op.check());
        let asked: Vec<Asked<'_>> = sound.into_iter().map(asked).collect();
        let mut answers = self.apply(Mode::ONE, &asked).await?.into_iter();
        let missing = || Err(odd("an answer is missing"));
        let answer = |(check, change): (Result<()>, &Change)| {
            check.and_then(|()| changed(&answers.next().unwrap_or_else(missing)?, change.id))
        };
        Ok(checks.into_iter().zip(&changes).map(answer).collect())
    }

    /// Sets jobs aside whose records turned out to be unreadable after they were leased.
    pub(super) async fn set_aside(&self, jobs: Vec<(JobId, Token, String)>) -> Result<()> {
        let argument = |token: Token, why: &str| format!("{token} {}", escape(why)).into_bytes();
        let asked: Vec<_> = jobs.iter().map(|(id, token, why)| (*id, "set_aside", argument(*token, why))).collect();
        self.apply(Mode::ONE, &asked).await.map(drop)
    }

    /// Applies changes in bounded steps; answers the script's word for each.
    async fn apply(&self, mode: Mode<'_>, asked: &[Asked<'_>]) -> Result<Vec<Result<String>>> {
        self.caller.signals.check_open()?;
        let (mut answers, mut went, mut failed) = (Vec::with_capacity(asked.len()), asked.is_empty(), None);
        let mut rest = asked;
        while !rest.is_empty() {
            let piece = &rest[..piece_of(rest)];
            let made = match self.apply_piece(mode, piece).await {
                Ok(words) => {
                    went = true;
                    let made = words.len();
                    answers.extend(words.into_iter().map(Ok));
                    made
                }
                Err(error) => {
                    answers.extend(piece.iter().map(|_| Err(error.clone())));
                    failed = failed.or(Some(error));
                    piece.len()
                }
            };
            rest = rest.get(made..).unwrap_or_default();
        }
        // When one piece went well, its callers must know.
        failed.filter(|_| !went).map_or(Ok(answers), Err)
    }

    /// Applies changes of which some may find their jobs changed; how many were made.
    async fn apply_all(&self, mode: Mode<'_>, asked: &[Asked<'_>]) -> Result<u64> {
        let mut count = 0;
        for answer in self.apply(mode, asked).await? {
            count += u64::from(answer?.starts_with("ok "));
        }
        Ok(count)
    }

    /// Applies the first of these changes, as many as one script makes; the script's word for each, at least one.
    async fn apply_piece(&self, mode: Mode<'_>, asked: &[Asked<'_>]) -> Result<Vec<String>> {
        let mut call = self.caller.script(AT.change);
        match mode.states {
            Some(states) => call.arg(states.iter().map(|state| state_letter(*state)).collect::<String>()),
            None => call.arg("*"),
        };
        call.arg(if mode.force { "force" } else { "" });
        call.arg_fmt(asked.len());
        for (id, op, argument) in asked {
            call.arg_fmt(id).arg(op).arg(argument);
        }
        let mut items = Items::of(self.caller.run_durably(call).await?)?;
        let made = items.left();
        if made == 0 || made > asked.len() {
            return Err(odd("a script has made other changes than it was given"));
        }
        let answers = (0..made).map(|_| items.text()).collect::<Result<Vec<_>>>()?;
        let mut effects = Effects::default();
        for ((id, ..), answer) in asked.iter().zip(&answers) {
            if matches!(answer.as_str(), "ok -" | "ok S" | "ok F" | "ok C") {
                effects.ended.push(Ended::Job(*id));
            }
        }
        self.caller.signals.announce(&effects);
        Ok(answers)
    }

    pub(super) async fn change_matching(&self, request: ChangeMany) -> Result<ChangedMany> {
        let name = request.check()?;
        let now = self.now().await?;
        let (began, cursor) = request.resume(now)?;
        let question = question(&request.filter, request.question(began));
        let cursor = cursor.map(|text| Cursor::decode(text, &question)).transpose()?;
        let (changed, end) = match request.op {
            ChangeManyOp::Obliterate { force } => self.obliterate(&name, force, request.max as usize).await?,
            _ => self.change_found(&request, &(began..=now), cursor).await?,
        };
        Ok(ChangeMany::answer(began, changed, end.map(|cursor| cursor.encode(&question))))
    }

    /// Changes those that it finds from a place on; answers how many, and where it stopped.
    async fn change_found(
        &self,
        request: &ChangeMany,
        steps: &RangeInclusive<Timestamp>,
        from: Option<Cursor<Bytes>>,
    ) -> Result<(u64, Option<Cursor<Bytes>>)> {
        let only = request.filter.state.map(|state| [state]);
        let mode = Mode { states: Some(only.as_ref().map_or(request.op.states(), |only| only)), force: false };
        let scan = JobScan::new(request.filter.clone(), false, from).in_states(request.op.states());
        let mut found = Vec::new();
        let end = self
            .scan(&scan, request.max as usize, |job| {
                let life = &job.life;
                if !request.had_its_turn(steps, life.claimed_at) {
                    found.push((job.id, life.claimed_at, life.cancel_requested, life.is_quarantined(), job.is_held()));
                }
                true
            })
            .await?;
        if found.iter().any(|(_, claimed_at, ..)| *claimed_at > Some(*steps.end())) {
            // Claimed while they were looked for, or by a clock that was set back since.
            let steps = *steps.start()..=self.now().await?;
            found.retain(|(_, claimed_at, ..)| !request.had_its_turn(&steps, *claimed_at));
        }
        let mut asked = Vec::new();
        for (id, _, cancelled, quarantined, held) in found {
            match request.op {
                ChangeManyOp::Drain { .. } | ChangeManyOp::Obliterate { .. } => asked.push((id, "remove", Vec::new())),
                ChangeManyOp::Clean { older_than_ms } => {
                    asked.push((id, "clean", older_than_ms.to_string().into_bytes()));
                }
                ChangeManyOp::RetryFailed if !quarantined => asked.push((id, "retry", b"-".to_vec())),
                ChangeManyOp::PromoteAll if !held => asked.push((id, "promote", Vec::new())),
                ChangeManyOp::CancelAll if !cancelled => asked.push((id, "cancel", Vec::new())),
                ChangeManyOp::RetryFailed | ChangeManyOp::PromoteAll | ChangeManyOp::CancelAll => {}
            }
        }
        Ok((self.apply_all(mode, &asked).await?, end))
    }

    async fn obliterate(&self, name: &QueueName, force: bool, max: usize) -> Result<(u64, Option<Cursor<Bytes>>)> {
        match self.obliteration(name, "begin", force).await?.split_once(' ') {
            Some(("active", count)) => return Err(Error::jobs_active(number(count)?)),
            Some((other, _)) => return Err(odd(other)),
            None => {}
        }
        let mut found = Vec::new();
        let scan = JobScan::new(Filter::queue(name.clone()), false, None);
        let end = self
            .scan(&scan, max, |job| {
                found.push((job.id, "remove", Vec::new()));
                true
            })
            .await?;
        let changed = self.apply_all(Mode { states: None, force: true }, &found).await?;
        // When no job is left to be found, whatever is still counted is no job.
        let phase = if found.is_empty() { "rest" } else { "end" };
        if end.is_none() && self.obliteration(name, phase, force).await? != "left" {
            self.directory.forget(std::slice::from_ref(name));
            return Ok((changed, None));
        }
        Ok((changed, Some(Cursor { queue: 0, state: State::Scheduled, position: None })))
    }

    async fn obliteration(&self, name: &QueueName, phase: &str, force: bool) -> Result<String> {
        let found = self.look_at(std::slice::from_ref(name)).await?;
        let mut settings = found.first().map(|(_, queue)| queue.settings.clone()).unwrap_or_default();
        settings.paused = true;
        let paused = FeedEvent::Settings(Setting::Paused { queue: name.clone(), paused: true });
        let gone = FeedEvent::QueueRemoved { queue: name.clone() };
        let mut call = self.caller.script(AT.obliterate);
        call.arg(name.as_str()).arg(phase).arg(if force { "1" } else { "0" });
        call.arg(event(&paused)?).arg(event(&gone)?).arg(settings_text(&settings)?);
        one(self.caller.run_durably(call).await?)
    }
}

/// An event of the feed that is no job's.
pub(super) fn event(event: &FeedEvent) -> Result<String> {
    serde_json::to_string(event).map_err(|e| odd(&e.to_string()))
}

/// How many of these changes go into one script: at least one.
fn piece_of(asked: &[Asked<'_>]) -> usize {
    let mut bytes = 0;
    let fits = |(_, _, argument): &&Asked<'_>| {
        bytes += argument.len();
        bytes <= PIECE_BYTES
    };
    asked.iter().take(PIECE).take_while(fits).count().max(1)
}

fn asked(change: &Change) -> (JobId, &'static str, Vec<u8>) {
    let (op, argument) = match &change.op {
        ChangeOp::Cancel => ("cancel", Vec::new()),
        ChangeOp::Promote => ("promote", Vec::new()),
        ChangeOp::Reschedule(due) => ("reschedule", due_text(*due).into_bytes()),
        ChangeOp::Reprioritise(priority) => ("reprioritise", priority.to_string().into_bytes()),
        ChangeOp::UpdatePayload(payload) => ("payload", payload_text(payload)),
        ChangeOp::Retry(due) => ("retry", due_text(*due).into_bytes()),
        ChangeOp::Remove => ("remove", Vec::new()),
    };
    (change.id, op, argument)
}

fn changed(answer: &str, id: JobId) -> Result<Changed> {
    match answer.split_once(' ').unwrap_or((answer, "")) {
        ("ok", "-") => Ok(Changed { state: None }),
        ("ok", letter) => Ok(Changed { state: Some(state(letter)?) }),
        ("missing", _) => Err(Error::job_not_found(id)),
        ("illegal", rest) => Err(illegal(rest)),
        ("taken", by) => Err(Error::KeyTaken { by: by.parse()? }),
        ("corrupt", _) => Err(Error::job_quarantined(id)),
        _ => Err(odd(answer)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_bounded_by_changes_and_by_bytes() {
        let asked = |count: usize, bytes: usize| vec![(JobId::from_parts(0, 1), "payload", vec![b'x'; bytes]); count];
        assert_eq!(piece_of(&asked(3, 0)), 3);
        assert_eq!(piece_of(&asked(PIECE + 1, 0)), PIECE);
        assert_eq!(piece_of(&asked(5, PIECE_BYTES / 2)), 2);
        assert_eq!(piece_of(&asked(5, PIECE_BYTES / 2 + 1)), 1);
        assert_eq!(piece_of(&asked(5, 3 * PIECE_BYTES)), 1, "one that is larger goes alone");
    }
}
