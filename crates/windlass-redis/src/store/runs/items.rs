//! Items of inboxes, as `lua/lib/runs.lua` describes them.

use super::text::state;
use crate::record::{class_of, read_message, read_result, result, split_line, unescape};
use crate::reply::{Items, maybe, number, odd, text, time};
use crate::store::enqueue::enqueued;
use bytes::Bytes;
use windlass_core::id::{JobId, RunId};
use windlass_core::name::QueueName;
use windlass_core::store::{InboxItem, JobEnd, RUN_NOT_CLEANED_UP, RunEnd, RunItem, child_refused};
use windlass_core::time::Timestamp;
use windlass_core::{Error, Result};

/// The items of an inbox from number `first` on, without those that cannot be read. Where numbers are left out, nothing and the next
/// number stand between the items.
pub(super) fn readable_items(members: &mut Items, first: u64) -> Result<Vec<InboxItem>> {
    let (mut number, mut inbox) = (first, Vec::with_capacity(members.left()));
    while members.left() > 0 {
        match members.maybe()? {
            None => number = members.number()?,
            Some(stored) => {
                inbox.extend(item(&stored).map(|item| InboxItem { number, item }));
                number += 1;
            }
        }
    }
    Ok(inbox)
}

/// An item of an inbox; nothing for one that cannot be read.
pub(super) fn item(stored: &Bytes) -> Option<RunItem> {
    let (head, rest) = split_line(stored)?;
    let head = text(&head).ok()?;
    match head.split_once(' ')? {
        ("m", head) => {
            let (at, id) = head.split_once(' ').map_or((head, None), |(at, id)| (at, Some(id.to_owned())));
            Some(RunItem::Message { at: time(at).ok()?, id, body: text(&rest).ok()?.to_owned() })
        }
        ("j", head) => job_end(head, &rest).map(RunItem::JobEnded),
        ("r", head) => run_end(head, &rest).map(RunItem::RunEnded),
        ("c", run) => {
            let run = run.parse().ok()?;
            Some(child_refused(run, &refusal(run, text(&rest).ok()?)?))
        }
        _ => None,
    }
}

/// An error as it stands on a line of its own, and what follows.
fn error_and_rest(stored: &Bytes) -> Option<(Option<String>, Bytes)> {
    let (error, rest) = split_line(stored)?;
    Some((text(&error).ok()?.strip_prefix('+').map(unescape), rest))
}

fn job_end(head: &str, rest: &Bytes) -> Option<JobEnd> {
    let mut words = head.split(' ');
    let mut word = || words.next();
    let (job, state, attempt, claimed, at) = (word()?, word()?, word()?, word()?, word()?);
    let class = word();
    let (line, rest) = split_line(rest)?;
    let (error, detail) = text(&line).ok()?.strip_prefix('+').map(read_message).unzip();
    // Only for a run with results a line end follows the outputs.
    let (outputs, result) = match split_line(&rest) {
        None if rest.is_empty() => Default::default(),
        None => (serde_json::from_slice(&rest).ok()?, None),
        Some(_) => {
            let (result, outputs) = result(Some(&rest));
            (outputs, result)
        }
    };
    Some(JobEnd {
        job: job.parse().ok()?,
        state: if state == "-" { None } else { Some(crate::reply::state(state).ok()?) },
        attempt: number(attempt).ok()?,
        claimed_at: maybe::<i64>(claimed).ok()?.map(Timestamp::from_ms),
        at: time(at).ok()?,
        error,
        class: class.and_then(class_of),
        detail: detail.flatten(),
        outputs,
        result,
    })
}

fn run_end(head: &str, rest: &Bytes) -> Option<RunEnd> {
    let words: Vec<&str> = head.split(' ').collect();
    let [run, of, at] = words[..] else { return None };
    let (error, rest) = error_and_rest(rest)?;
    Some(RunEnd {
        run: run.parse().ok()?,
        state: state(of).ok()?,
        at: time(at).ok()?,
        result: read_result(&rest),
        error,
    })
}

/// Why a child was refused.
fn refusal(run: RunId, why: &str) -> Option<Error> {
    let mut lines = why.split('\n');
    match lines.next()?.split_once(' ') {
        None if why == "taken" => Some(Error::RunTaken { run }),
        None if why == "unclean" => Some(Error::run_refused(run, RUN_NOT_CLEANED_UP)),
        Some(("job", rest)) => {
            let (job, why) = rest.split_once(' ')?;
            Some(job_refusal(why, job.parse().ok()?, &QueueName::new(lines.next()?).ok()?))
        }
        _ => None,
    }
}

/// Why a job of a step was refused, which refuses its step.
pub(super) fn job_refusal(why: &str, job: JobId, queue: &QueueName) -> Error {
    match why {
        "damaged" => Error::corrupt(format!("the queue `{queue}` cannot be read")),
        why => match enqueued(why, job, queue) {
            Err(error) => error,
            Ok(_) => odd(why),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(item_text: &str) -> Option<RunItem> {
        item(&Bytes::from(item_text.to_owned()))
    }

    #[test]
    fn an_item_that_cannot_be_read_is_left_out() {
        assert!(read("m 17\nhello\nyou").is_some());
        for bad in ["", "m", "m x\nhello", "j 0 S 1 - 5\n-\n", "k 17\n", "r x S 5\n-\n-", "c x\ntaken", "c r0-1\n"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_end_of_a_job_is_read_with_and_without_what_few_have() {
        let job = JobId::from_parts(0, 7);
        let end = |text: String| match read(&text) {
            Some(RunItem::JobEnded(end)) => end,
            other => panic!("{other:?}"),
        };
        let plain = end(format!("j {job} S 1 3 5\n-\n"));
        assert_eq!((plain.error, plain.class, plain.result, plain.outputs.len()), (None, None, None, 0));
        let outputs = end(format!("j {job} S 1 3 5\n-\n{{\"a\":\"b\"}}")).outputs;
        assert_eq!(outputs["a"], "b");
        let failed = end(format!("j {job} F 1 3 5 panic\n+a\\nb\n"));
        assert_eq!(failed.error.as_deref(), Some("a\nb"));
        assert_eq!(failed.class, Some(windlass_core::job::FailureClass::Panic));
        let full = end(format!("j {job} S 1 3 5\n-\n{{\"a\":\"b\"}}\n+text/plain\none\ntwo"));
        let result = full.result.unwrap();
        assert_eq!((full.outputs["a"].as_str(), result.content_type.as_ref()), ("b", "text/plain"));
        assert_eq!(result.bytes, Bytes::from_static(b"one\ntwo"));
    }

    #[test]
    fn numbers_that_are_left_out_are_passed() {
        use crate::link::Value;
        let stored = |body: &str| Value::BulkString(format!("m 17\n{body}").into_bytes());
        let list = vec![stored("a"), Value::Nil, Value::BulkString(b"7".to_vec()), stored("b"), stored("c")];
        let inbox = readable_items(&mut Items::of(Value::Array(list)).unwrap(), 3).unwrap();
        assert_eq!(inbox.iter().map(|item| item.number).collect::<Vec<_>>(), [3, 7, 8]);
    }
}
