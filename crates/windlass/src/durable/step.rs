//! Chunks of a turn as steps of a run.

use super::message::Message;
use super::start::{CodeDefinition, code_run};
use bytes::Bytes;
use windlass_core::id::RunId;
use windlass_core::job::NewJob;
use windlass_core::payload::{JSON, Payload};
use windlass_core::store::{NewRun, RunSegment, RunState, RunStep};
use windlass_core::{Error, Result};
use windlass_durable::record::End;
use windlass_durable::{Chunk, NextSegment, Start};

/// The step of one chunk, without state and wake-up.
pub(super) fn step_of(run: RunId, chunk: &mut Chunk) -> Result<RunStep> {
    let mut step = RunStep::nothing();
    step.history = chunk.records.iter().map(|record| Bytes::from(record.encode())).collect();
    for start in std::mem::take(&mut chunk.starts) {
        match start {
            Start::Job { job, spec, due, .. } => step.jobs.push(NewJob::new(job, *spec).due(due)),
            Start::Child { .. } => step.runs.push(child(run, start)?),
            _ => return Err(Error::Incompatible { what: "the workflow asks for something new".to_owned() }),
        }
    }
    step.cancel = std::mem::take(&mut chunk.cancel_jobs);
    step.cancel_unclaimed = std::mem::take(&mut chunk.cancel_unclaimed);
    let cancel = Message::Cancel { reason: format!("its parent run {run} does not wait for it any more") };
    step.messages = chunk.cancel_children.iter().map(|child| cancel.to(*child)).collect();
    Ok(step)
}

fn child(parent: RunId, start: Start) -> Result<NewRun> {
    let Start::Child { run, name, kind, input, timeout_ms, retry, .. } = start else {
        return Err(Error::invalid("runs", "only a child run can be created"));
    };
    let definition = CodeDefinition { timeout_ms, starts_at: None, retry };
    let mut child = code_run(run, kind, name, input, &definition)?;
    child.parent = Some(parent);
    Ok(child)
}

/// Adds the end of a run or of its segment to the step that holds its record.
pub(super) fn close(step: &mut RunStep, first: u64, end: End, next: Option<NextSegment>) -> Result<()> {
    let failed = |step: &mut RunStep, state, error| (step.state, step.error) = (state, Some(error));
    match end {
        End::Ok(value) => {
            let result = Payload { content_type: JSON.into(), bytes: value.into_bytes() };
            (step.state, step.result) = (RunState::Succeeded, Some(result));
        }
        End::Failed(error) => failed(step, RunState::Failed, error),
        End::Cancelled(error) => failed(step, RunState::Cancelled, error),
        End::TimedOut(error) => failed(step, RunState::TimedOut, error),
        End::Continued { .. } | End::Retried { .. } => {
            let NextSegment { kind, input, from, .. } =
                next.ok_or_else(|| Error::corrupt("a next segment without its input"))?;
            let entries_before = u32::try_from(from.saturating_sub(first)).unwrap_or(u32::MAX);
            step.segment = Some(RunSegment { kind: kind.as_ref().try_into()?, input, entries_before });
        }
        _ => return Err(Error::Incompatible { what: "the workflow ended in a new way".to_owned() }),
    }
    if let Some(error) = &mut step.error {
        error.truncate(error.floor_char_boundary(windlass_core::store::RUN_TEXT_BYTES_MAX));
    }
    Ok(())
}
