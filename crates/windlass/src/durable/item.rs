//! Items of the inbox as the executor takes them.

use super::message::Message;
use crate::error::too_large_detail;
use serde_json::value::RawValue;
use windlass_core::job::{FailureClass, State};
use windlass_core::payload::{JSON, Payload};
use windlass_core::store::{InboxItem, JobEnd, RunEnd, RunItem, RunState};
use windlass_core::time::Timestamp;
use windlass_durable::record::{Body, Outcome};
use windlass_durable::{CallError, ErrorClass, Item, ItemBody, Stuck, Unreadable};

/// An item for the executor; `None` for one that tells the code nothing. A message that is not understood makes the run stuck: a
/// newer version may understand it.
pub(super) fn item_of(item: InboxItem) -> Result<Option<Item>, Stuck> {
    let number = item.number;
    let (at, body) = match item.item {
        RunItem::JobEnded(end) => (end.at, job_ended(end)),
        RunItem::RunEnded(end) => (end.at, run_ended(end)),
        RunItem::ChildRefused { run, reason } => {
            let outcome = Err(CallError::new(ErrorClass::Taken, reason));
            // It has no time of its own; the executor never lets time run backwards.
            (Timestamp::from_ms(0), ItemBody::ChildEnded { run, outcome })
        }
        RunItem::Message { at, id, body } => match message(id, &body) {
            Ok(Some(body)) => (at, body),
            Ok(None) => return Ok(None),
            Err(error) => {
                return Err(Stuck::Decode(format!("{} is not understood: {error}", Unreadable::item(number))));
            }
        },
    };
    Ok(Some(Item { number: Some(number), at, body }))
}

fn message(id: Option<String>, text: &str) -> Result<Option<ItemBody>, String> {
    let value = |body: &RawValue| Body::from_json(body.get().as_bytes()).map_err(|error| error.to_string());
    Ok(match Message::parse(text)? {
        Message::Signal { name, body } => {
            Some(ItemBody::Signal { name, body: value(&body)?, id: id.unwrap_or_default() })
        }
        Message::Resolve { token, body } => {
            let token = u64::from_str_radix(&token, 16).map_err(|error| format!("its token: {error}"))?;
            Some(ItemBody::Resolved { token, body: value(&body)? })
        }
        Message::Cancel { reason } => Some(ItemBody::CancelRequested { reason }),
        Message::Resume { cap: Some(cap) } => Some(ItemBody::CapRaised { cap }),
        Message::Resume { cap: None } | Message::Terminate { .. } => None,
    })
}

pub(super) fn job_ended(end: JobEnd) -> ItemBody {
    let JobEnd { job, state, attempt, claimed_at, error, class, detail, result, .. } = end;
    let failed = |class, text: &str| {
        let message = error.clone().unwrap_or_else(|| text.to_owned());
        Err(CallError { attempts: attempt, detail: detail.clone(), ..CallError::new(class, message) })
    };
    let outcome = match state {
        Some(State::Succeeded) => value(result),
        // An attempt may have been given back. The job was claimed all the same.
        Some(State::Cancelled) => {
            Err(CallError { attempts: attempt.max(claimed_at.is_some().into()), ..CallError::cancelled() })
        }
        None => failed(ErrorClass::Failed, "its job was removed"),
        Some(_) if detail.as_ref() == Some(&too_large_detail()) => {
            failed(ErrorClass::TooLarge, "its result is too large").map_err(|error| CallError { detail: None, ..error })
        }
        Some(_) if class == Some(FailureClass::Timeout) => failed(ErrorClass::TimedOut, "an attempt timed out"),
        Some(_) => failed(ErrorClass::Failed, "its job failed"),
    };
    ItemBody::JobEnded { job, outcome }
}

pub(super) fn run_ended(end: RunEnd) -> ItemBody {
    let RunEnd { run, state, result, error, .. } = end;
    let failed = |class| {
        let message = error.unwrap_or_else(|| format!("the child run ended as {}", state.name()));
        Err(CallError { attempts: 1, ..CallError::new(class, message) })
    };
    let outcome = match state {
        RunState::Succeeded => value(result),
        RunState::Cancelled => failed(ErrorClass::Cancelled),
        RunState::TimedOut => failed(ErrorClass::TimedOut),
        RunState::Terminated => failed(ErrorClass::Terminated),
        RunState::Failed | RunState::Running => failed(ErrorClass::Failed),
    };
    ItemBody::ChildEnded { run, outcome }
}

/// A result as the code gets it: JSON. Workflow code cannot read other bytes.
fn value(result: Option<Payload>) -> Outcome {
    let Some(result) = result else { return Ok(Body::null()) };
    if result.content_type != JSON {
        let text = format!("its result is `{}`, and workflows read JSON", result.content_type);
        return Err(CallError::new(ErrorClass::Invalid, text));
    }
    Body::from_json(&result.bytes)
        .map_err(|error| CallError::new(ErrorClass::Invalid, format!("its result is not JSON: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::id::JobId;

    #[test]
    fn a_cancelled_job_that_was_claimed_has_an_attempt_even_if_it_was_given_back() {
        for (claimed_at, attempts) in [(None, 0), (Some(Timestamp::from_ms(4)), 1)] {
            let end = JobEnd {
                job: JobId::from_parts(1, 1),
                state: Some(State::Cancelled),
                attempt: 0,
                claimed_at,
                at: Timestamp::from_ms(5),
                error: None,
                class: None,
                detail: None,
                outputs: Default::default(),
                result: None,
            };
            let ItemBody::JobEnded { outcome: Err(error), .. } = job_ended(end) else { panic!("a job has ended") };
            assert_eq!((error.class, error.attempts), (ErrorClass::Cancelled, attempts));
        }
    }
}
