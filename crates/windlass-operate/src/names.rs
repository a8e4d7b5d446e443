//! Jobs, runs, queues and schedules as people name them.

use crate::error::OperateError;
use crate::text::{excerpt, nearest_name, shell_quoted};
use std::str::FromStr;
use windlass::Error;
use windlass::core::id::{JobId, RunId};
use windlass::core::name::{CustomId, QueueName, ScheduleName};
use windlass::core::schedule::Schedule;
use windlass::core::store::{BATCH_MAX, ListOrder, QueueStatus, RunList, RunRead, Store};

/// A job as it is typed: its id, or the custom id that its creator gave it.
#[derive(Clone, Debug)]
pub enum JobName {
    /// The id that the store uses.
    Id(JobId),
    /// A custom id.
    Custom(CustomId),
}

impl FromStr for JobName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let invalid = match text.parse() {
            Ok(id) => return Ok(Self::Id(id)),
            Err(invalid) => invalid,
        };
        CustomId::new(text).map(Self::Custom).map_err(|_| invalid)
    }
}

impl JobName {
    /// Returns the job's id. A custom id is looked up in every queue, but not in groups: there may be very many of them.
    /// An id is returned without a check that the job exists.
    pub async fn find(&self, store: &dyn Store) -> Result<JobId, OperateError> {
        let custom = match self {
            Self::Id(id) => return Ok(*id),
            Self::Custom(custom) => custom,
        };
        let queues = store.queues().await?;
        let ids = queues.iter().map(|queue| JobId::named(&queue.name, None, custom)).collect::<Vec<_>>();
        let mut found = Vec::new();
        for some in ids.chunks(BATCH_MAX) {
            found.extend(store.get(some.to_vec()).await?.into_iter().flatten());
        }
        let (shown, search) =
            (excerpt(custom.as_str()), format!("windlass jobs list --text {}", shell_quoted(custom.as_str())));
        match found.as_slice() {
            [job] => Ok(job.id),
            [] => Err(OperateError::not_found(format!(
                "there is no job `{shown}`; an id looks like {}",
                JobId::from_parts(0, 0)
            ))
            .hint(format!("a job that was given this id in a group is found so: {search}"))),
            several => Err(OperateError::invalid(format!("{} queues have a job `{shown}`", several.len()))
                .hint(format!("name it by its id, which this finds: {search}"))),
        }
    }
}

/// A run as it is typed: its id, `latest`, or the name that its creator gave it.
#[derive(Clone, Debug)]
pub enum RunName {
    /// The id that the store uses.
    Id(RunId),
    /// The run that was created last.
    Latest,
    /// The name that its creator gave it.
    Given(String),
}

impl FromStr for RunName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "latest" => Self::Latest,
            // The error of an empty id says what an id looks like.
            "" => Self::Id(text.parse()?),
            text => text.parse().map_or_else(|_| Self::Given(text.to_owned()), Self::Id),
        })
    }
}

impl RunName {
    /// Returns the run's id. An id is returned without a check that the run exists.
    pub async fn find(self, store: &dyn Store) -> Result<RunId, OperateError> {
        match self {
            Self::Id(id) => Ok(id),
            Self::Given(name) => find_named_run(store, &name).await?.ok_or_else(|| {
                let (name, id) = (excerpt(&name), RunId::from_parts(0, 0));
                OperateError::not_found(format!("there is no run `{name}`; an id looks like {id}"))
                    .hint("windlass runs list shows what is there")
            }),
            Self::Latest => {
                let newest = RunList { order: ListOrder::Descending, ..RunList::new(1) };
                let run = store.list_runs(newest).await?.runs.pop();
                run.map(|run| run.id)
                    .ok_or_else(|| OperateError::not_found("there are no runs").hint("windlass run FILE starts one"))
            }
        }
    }
}

/// The id of the run with this given name; `None` when the store has no such run.
pub async fn find_named_run(store: &dyn Store, name: &str) -> Result<Option<RunId>, OperateError> {
    let run = RunId::named(name);
    let found = store.read_runs(vec![RunRead::brief(run)]).await?.pop().flatten();
    Ok(found.map(|_| run))
}

/// The status of a queue. The error suggests a similar name.
pub async fn find_queue(store: &dyn Store, name: &QueueName) -> Result<QueueStatus, OperateError> {
    let mut queues = store.queues().await?;
    match queues.iter().position(|queue| queue.name == *name) {
        Some(at) => Ok(queues.swap_remove(at)),
        None => Err(not_found("queue", name.as_str(), queues.iter().map(|queue| queue.name.as_str()))),
    }
}

/// A schedule. The error suggests a similar name.
pub async fn find_schedule(store: &dyn Store, name: &ScheduleName) -> Result<Schedule, OperateError> {
    let mut schedules = store.schedules().await?;
    match schedules.iter().position(|schedule| schedule.name == *name) {
        Some(at) => Ok(schedules.swap_remove(at)),
        None => Err(not_found("schedule", name.as_str(), schedules.iter().map(|schedule| schedule.name.as_str()))),
    }
}

fn not_found<'a>(what: &str, name: &str, known: impl Iterator<Item = &'a str>) -> OperateError {
    let error = OperateError::not_found(format!("there is no {what} `{name}`"));
    match nearest_name(name, &known.collect::<Vec<_>>()) {
        Some(near) => error.hint(format!("did you mean `{near}`?")),
        None => error.hint(format!("windlass {what}s list shows what there is")),
    }
}
