//! Changing and listing jobs, one by one and by what they have in common.

use super::queue::check_max;
use crate::error::{Error, Result};
use crate::id::JobId;
use crate::job::{Due, JobSummary, PAYLOAD_BYTES_MAX, State};
use crate::name::{GroupName, Kind, Label, QueueName};
use crate::payload::Payload;
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;

/// The longest page of a listing.
pub const LIST_MAX: u32 = 1_000;

/// One job to change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Which.
    pub id: JobId,
    /// How.
    pub op: ChangeOp,
}

/// How to change a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeOp {
    /// End it: at once when it waits, through its handler when it is active. Cancelling twice is fine.
    Cancel,
    /// Make a scheduled job ready now.
    Promote,
    /// Move its time.
    Reschedule(Due),
    /// Change its priority.
    Reprioritise(i16),
    /// Change its input. Its dedup key stays what it was, also one that was made of the payload.
    UpdatePayload(Payload),
    /// Give an ended job a new life with all its attempts: without result, outputs and progress, its failures and logs
    /// kept. `KeyTaken` names the job that holds its dedup key meanwhile.
    Retry(Due),
    /// Forget it.
    Remove,
}

impl ChangeOp {
    /// Refuses what cannot be meant.
    pub fn check(&self) -> Result<()> {
        match self {
            Self::Reschedule(due) | Self::Retry(due) => due.check(),
            Self::UpdatePayload(payload) => payload.check("payload", PAYLOAD_BYTES_MAX),
            Self::Cancel | Self::Promote | Self::Reprioritise(_) | Self::Remove => Ok(()),
        }
    }
}

/// The answer to a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed {
    /// The state it led to; `None` when the job is gone.
    pub state: Option<State>,
}

/// Which jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filter {
    /// On this queue.
    pub queue: Option<QueueName>,
    /// In this state.
    pub state: Option<State>,
    /// Of this kind.
    pub kind: Option<Kind>,
    /// Of this group.
    pub group: Option<GroupName>,
    /// That require this label.
    pub label: Option<Label>,
    /// With this text in the custom id, the last error, or the payload.
    pub text: Option<String>,
}

/// The longest text to search for.
const TEXT_BYTES_MAX: usize = 1_000;

impl Filter {
    /// All of one queue.
    pub fn queue(name: QueueName) -> Self {
        Self { queue: Some(name), ..Self::default() }
    }

    /// Refuses what cannot be meant.
    pub fn check(&self) -> Result<()> {
        match &self.text {
            Some(text) if text.is_empty() => Err(Error::invalid("text", "is empty; leave it out")),
            Some(text) if text.len() > TEXT_BYTES_MAX => {
                Err(Error::limit("text, in bytes,", TEXT_BYTES_MAX as u64, text.len() as u64))
            }
            _ => Ok(()),
        }
    }
}

/// A change to all jobs that match, one bounded step of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeMany {
    /// What to do.
    pub op: ChangeManyOp,
    /// Which jobs; the queue is needed.
    #[serde(default)]
    pub filter: Filter,
    /// How many jobs to look at in this step.
    pub max: u32,
    /// Where the last step ended.
    pub cursor: Option<String>,
}

/// What to do with all jobs that match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeManyOp {
    /// Remove what waits: ready jobs, and scheduled ones if asked.
    Drain {
        /// Remove scheduled jobs too.
        scheduled: bool,
    },
    /// Remove ended jobs in the filter's state (or in any) that ended at least so long ago.
    Clean {
        /// How long ago.
        older_than_ms: u64,
    },
    /// Remove everything, the queue's settings included. Refused while jobs are active, unless forced, and with a
    /// filter for anything but the queue.
    Obliterate {
        /// Active jobs too; their workers lose their leases.
        force: bool,
    },
    /// Give every failed job a new life. One that was claimed since the first step, and has failed again, is left alone.
    RetryFailed,
    /// Make every scheduled job ready, without those that were claimed since the first step and wait for another attempt.
    PromoteAll,
    /// Cancel every job that has not ended.
    CancelAll,
}

impl ChangeMany {
    /// Refuses what cannot be meant; answers the queue.
    pub fn check(&self) -> Result<QueueName> {
        check_max("max", self.max)?;
        self.filter.check()?;
        let Some(name) = self.filter.queue.clone() else {
            return Err(Error::invalid("filter.queue", "is missing; name the queue"));
        };
        if matches!(self.op, ChangeManyOp::Obliterate { .. }) && self.filter != Filter::queue(name.clone()) {
            return Err(Error::invalid(
                "filter",
                "an obliteration takes the whole queue; name the queue and nothing else",
            ));
        }
        match self.filter.state {
            Some(state) if !self.op.states().contains(&state) => {
                Err(Error::invalid("filter.state", format!("is {state}, which this never touches")))
            }
            _ => Ok(name),
        }
    }

    /// When the first step of this change began, and where the last one ended in the listing: what the cursor says. Without
    /// a cursor this is the first step, and begins `now`.
    pub fn resume(&self, now: Timestamp) -> Result<(Timestamp, Option<&str>)> {
        let wrong = || Error::invalid("cursor", "is not one of this change; begin without a cursor");
        let Some(cursor) = self.cursor.as_deref() else { return Ok((now, None)) };
        let (began, place) = cursor.split_once('.').ok_or_else(wrong)?;
        Ok((Timestamp::from_ms(began.parse().map_err(|_| wrong())?), Some(place)))
    }

    /// What belongs to a cursor of the listing, beside the filter: a changed time makes it another one.
    pub fn question(&self, began: Timestamp) -> impl std::fmt::Debug + use<> {
        (self.op, began)
    }

    /// The answer to a step that ended at `place` in the listing.
    pub fn answer(began: Timestamp, changed: u64, place: Option<String>) -> ChangedMany {
        ChangedMany { changed, cursor: place.map(|place| format!("{}.{place}", began.as_ms())) }
    }

    /// True for a job that has had its turn: it was claimed since the first step, `steps` being the time from that one to
    /// this. Otherwise jobs that fail again at once would be retried without end. A claim in the future, by a clock that was
    /// set back since, is older.
    pub fn had_its_turn(&self, steps: &RangeInclusive<Timestamp>, claimed_at: Option<Timestamp>) -> bool {
        let since = |at: Timestamp| at > *steps.start() && at <= *steps.end();
        matches!(self.op, ChangeManyOp::RetryFailed | ChangeManyOp::PromoteAll) && claimed_at.is_some_and(since)
    }
}

impl ChangeManyOp {
    /// The states that it touches.
    pub fn states(self) -> &'static [State] {
        match self {
            Self::Drain { scheduled: true } => &[State::Scheduled, State::Ready],
            Self::Drain { scheduled: false } => &[State::Ready],
            Self::Clean { .. } => &[State::Succeeded, State::Failed, State::Cancelled],
            Self::Obliterate { .. } => &State::ALL,
            Self::RetryFailed => &[State::Failed],
            Self::PromoteAll => &[State::Scheduled],
            Self::CancelAll => &[State::Scheduled, State::Ready, State::Active],
        }
    }
}

/// The answer to one step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedMany {
    /// How many jobs were changed.
    pub changed: u64,
    /// Where to go on; `None` when all is done.
    pub cursor: Option<String>,
}

/// In which direction to list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ListOrder {
    /// What comes or came first.
    #[default]
    Ascending,
    /// The other way round.
    Descending,
}

/// A page of jobs, please.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListRequest {
    /// Which.
    #[serde(default)]
    pub filter: Filter,
    /// In which direction.
    #[serde(default)]
    pub order: ListOrder,
    /// From the last page; only with the same filter and order.
    pub cursor: Option<String>,
    /// From 1 to [`LIST_MAX`].
    pub limit: u32,
}

impl ListRequest {
    /// Refuses what cannot be meant.
    pub fn check(&self) -> Result<()> {
        check_page(self.limit)?;
        self.filter.check()
    }
}

/// Refuses a page that is empty or too long.
pub(super) fn check_page(limit: u32) -> Result<()> {
    if limit == 0 || limit > LIST_MAX {
        return Err(Error::invalid("limit", format!("is {limit}; give 1 to {LIST_MAX}")));
    }
    Ok(())
}

/// A page of jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobPage {
    /// The jobs.
    pub jobs: Vec<JobSummary>,
    /// Where to go on; `None` when there is no more.
    pub cursor: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_job_that_was_claimed_between_the_first_step_and_this_one_had_its_turn() {
        let at = Timestamp::from_ms;
        let filter = Filter::queue(QueueName::new("q").unwrap());
        let request = |op| ChangeMany { op, filter: filter.clone(), max: 1, cursor: None };
        let steps = at(10)..=at(20);
        for op in [ChangeManyOp::RetryFailed, ChangeManyOp::PromoteAll] {
            let had = |claimed_at| request(op).had_its_turn(&steps, claimed_at);
            assert!(had(Some(at(11))) && had(Some(at(20))));
            assert!(!had(None) && !had(Some(at(10))), "not since the first step");
            assert!(!had(Some(at(21))), "claimed before the clock was set back");
        }
        assert!(!request(ChangeManyOp::CancelAll).had_its_turn(&steps, Some(at(11))), "it never comes again");
    }
}
