//! Changing and listing jobs, one by one and by what they have in common.

use crate::id::JobId;
use crate::job::{Due, JobSummary, State};
use crate::name::{GroupName, Kind, Label, QueueName};
use crate::payload::Payload;
use serde::{Deserialize, Serialize};

/// The longest page of a listing.
pub const LIST_MAX: u32 = 1_000;

/// One job to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Which.
    pub id: JobId,
    /// How.
    pub op: ChangeOp,
}

/// How to change a job.
#[derive(Clone, Debug, PartialEq, Eq)]
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

/// A change to all jobs that match, one bounded step of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeMany {
    /// What to do.
    pub op: ChangeManyOp,
    /// Which jobs; the queue is needed.
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
    /// Give every failed job a new life.
    RetryFailed,
    /// Make every scheduled job ready.
    PromoteAll,
    /// Cancel every job that has not ended.
    CancelAll,
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListRequest {
    /// Which.
    pub filter: Filter,
    /// In which direction.
    pub order: ListOrder,
    /// From the last page; only with the same filter and order.
    pub cursor: Option<String>,
    /// From 1 to [`LIST_MAX`].
    pub limit: u32,
}

/// A page of jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobPage {
    /// The jobs.
    pub jobs: Vec<JobSummary>,
    /// Where to go on; `None` when there is no more.
    pub cursor: Option<String>,
}
