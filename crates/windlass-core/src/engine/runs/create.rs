//! Creating runs, and starting ended ones again.

use super::super::Step;
use super::super::rows::{RunRow, RunValue};
use super::super::tables::Tables;
use super::PreparedStep;
use crate::error::{Error, Result};
use crate::id::RunId;
use crate::store::{
    FeedEvent, NewRun, RUN_KEPT_MS, RUN_NOT_CLEANED_UP, RunChange, RunCreated, RunMessage, RunState, RunStep,
    UNREAD_MESSAGES_MAX, check_batch,
};
use crate::time::Timestamp;
use bytes::Bytes;
use std::sync::Arc;

/// A run that was checked and whose hashes are known.
#[derive(Clone, Debug)]
pub struct PreparedRun {
    /// The run without its step.
    run: NewRun,
    step: PreparedStep,
    fingerprint: u64,
    definition_hash: [u8; 16],
}

impl PreparedRun {
    /// Checks a whole call; a run that is refused keeps its place.
    pub fn batch(runs: Vec<NewRun>) -> Result<Vec<Result<Self>>> {
        check_batch(runs.len())?;
        // Runs of one call are mostly of one workflow, and share its text.
        let mut last: Option<(Bytes, [u8; 16])> = None;
        let prepare = |run: NewRun| {
            run.check()?;
            let known = last.as_ref().filter(|(text, _)| text.as_ptr_range() == run.definition.as_ptr_range());
            let definition_hash = known.map_or_else(|| run.definition_hash(), |(_, hash)| *hash);
            last = Some((run.definition.clone(), definition_hash));
            Ok(Self::with_hash(run, definition_hash))
        };
        Ok(runs.into_iter().map(prepare).collect())
    }

    /// A run that was checked.
    pub(super) fn new(run: NewRun) -> Self {
        let definition_hash = run.definition_hash();
        Self::with_hash(run, definition_hash)
    }

    fn with_hash(mut run: NewRun, definition_hash: [u8; 16]) -> Self {
        let fingerprint = run.fingerprint_with(&definition_hash);
        let step = PreparedStep::new(std::mem::replace(&mut run.step, RunStep::nothing()));
        Self { run, step, fingerprint, definition_hash }
    }

    pub(super) fn id(&self) -> RunId {
        self.run.id
    }

    /// The row of the run, before its first step.
    fn row(&self, seq: u64, now: Timestamp) -> RunRow {
        let NewRun { id, kind, name, input, keep_ms, parent, labels, job_results, .. } = &self.run;
        RunRow {
            id: *id,
            seq,
            kind: kind.clone(),
            name: name.as_str().into(),
            definition_hash: self.definition_hash,
            fingerprint: self.fingerprint,
            state: RunState::Running,
            stuck: None,
            summary: Arc::default(),
            history_len: 0,
            inbox_first: 0,
            inbox_next: 0,
            held: None,
            last_token: None,
            ready: None,
            wake_at: None,
            created_at: now,
            changed_at: now,
            finished_at: None,
            keep_ms: keep_ms.unwrap_or(RUN_KEPT_MS),
            parent: *parent,
            labels: Arc::new(labels.clone()),
            job_results: *job_results,
            error: None,
            segment_from: 0,
            segment_bytes: input.len() as u64,
            stall_count: 0,
            unread_messages: 0,
            inbox_holes: 0,
            message_ids: 0,
            committed_by: None,
        }
    }
}

impl<T: Tables> Step<'_, T> {
    /// See [`RunStore::create_runs`](crate::store::RunStore::create_runs).
    pub fn create_runs(&mut self, runs: Vec<Result<PreparedRun>>) -> Result<Vec<Result<RunCreated>>> {
        Ok(runs.into_iter().map(|run| run.and_then(|run| self.create_run(run))).collect())
    }

    pub(super) fn create_run(&mut self, prepared: PreparedRun) -> Result<RunCreated> {
        let (id, reuse) = (prepared.run.id, prepared.run.reuse);
        let known = self.tables.run(id);
        if let Ok(Some(known)) = &known
            && self.takes_messages(known, &prepared.run.messages)?
        {
            return Ok(RunCreated::Existing);
        }
        match known {
            Ok(None) => self.start_run(prepared, None),
            Ok(Some(known)) if known.fingerprint == prepared.fingerprint => Ok(RunCreated::Existing),
            Ok(Some(known)) if reuse.allows(known.state) => match known.rests() {
                true => self.start_run(prepared, Some(&known)),
                false => Err(Error::run_refused(id, RUN_NOT_CLEANED_UP)),
            },
            Ok(Some(_)) | Err(Error::Corrupt { .. }) => Err(Error::RunTaken { run: id }),
            Err(error) => Err(error),
        }
    }

    /// Delivers the messages of a creation to the run that is there, if it goes on or has had them all. False, and nothing was
    /// changed, if it is not a matter of messages.
    fn takes_messages(&mut self, known: &RunRow, messages: &[RunMessage]) -> Result<bool> {
        let mut unknown = Vec::new();
        for message in messages {
            let is_known = match message.id_hash() {
                Some(hash) => self.tables.has_message_id(known.id, hash)?,
                None => false,
            };
            unknown.extend((!is_known).then(|| message.clone()));
        }
        if messages.is_empty() || !unknown.is_empty() && known.state.is_terminal() {
            return Ok(false);
        }
        if known.unread_messages + unknown.len() as u64 > UNREAD_MESSAGES_MAX && !unknown.is_empty() {
            return Err(Error::inbox_full(known.id, UNREAD_MESSAGES_MAX));
        }
        unknown.into_iter().try_for_each(|message| self.send_to_run(message, false))?;
        Ok(true)
    }

    /// Starts a run: a new one, or an ended one again, whose history, inbox and message ids go on.
    fn start_run(&mut self, prepared: PreparedRun, ended: Option<&RunRow>) -> Result<RunCreated> {
        let seq = match ended {
            Some(ended) => ended.seq,
            None => self.tables.next_seq()?,
        };
        let fresh = prepared.row(seq, self.now);
        let PreparedRun { mut run, step, .. } = prepared;
        let messages = std::mem::take(&mut run.messages);
        let accepted = self.accept(step)?;
        let row = match ended {
            Some(ended) => RunRow {
                history_len: ended.history_len,
                inbox_first: ended.inbox_first,
                inbox_next: ended.inbox_next,
                last_token: ended.last_token,
                created_at: ended.created_at,
                segment_from: ended.history_len,
                message_ids: ended.message_ids,
                ..fresh
            },
            None => fresh,
        };
        self.tables.put_run(ended, &row)?;
        self.tables.put_run_texts(run.id, run.definition, run.input)?;
        if ended.is_none() {
            self.make_step(row, accepted, |_, _| {})?;
            messages.into_iter().try_for_each(|message| self.send_to_run(message, false))?;
            return Ok(RunCreated::Created);
        }
        for value in RunValue::ALL {
            self.tables.put_run_value(run.id, value, None)?;
        }
        let step = &accepted.step;
        if step.history.is_empty() && step.state == RunState::Running && step.stuck.is_none() {
            // The step changes nothing that the feed tells, but the run runs again.
            let change = RunChange { run: run.id, state: Some(RunState::Running), history_len: row.history_len };
            self.events.push(FeedEvent::Run(change));
        }
        self.make_step(row, accepted, |_, _| {})?;
        messages.into_iter().try_for_each(|message| self.send_to_run(message, false))?;
        Ok(RunCreated::Restarted)
    }
}
