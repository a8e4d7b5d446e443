//! A job as it is named on the command line: by its id, or by the id of its own that somebody gave it.

use crate::failure::Failure;
use crate::values::short;
use std::str::FromStr;
use windlass::core::id::JobId;
use windlass::core::name::CustomId;
use windlass::core::store::Store;

/// An id, or what may be a custom one.
#[derive(Clone, Debug)]
pub(crate) enum JobName {
    Id(JobId),
    Custom(CustomId),
}

impl FromStr for JobName {
    type Err = windlass::Error;

    fn from_str(text: &str) -> Result<Self, windlass::Error> {
        let wrong = match text.parse() {
            Ok(id) => return Ok(Self::Id(id)),
            Err(wrong) => wrong,
        };
        CustomId::new(text).map(Self::Custom).map_err(|_| wrong)
    }
}

impl JobName {
    /// The job's id. A custom one is looked for in every queue; in groups it is not, of which there may be very many.
    pub(crate) async fn find(&self, store: &dyn Store) -> Result<JobId, Failure> {
        let custom = match self {
            Self::Id(id) => return Ok(*id),
            Self::Custom(custom) => custom,
        };
        let queues = store.queues().await?;
        let ids = queues.iter().map(|queue| JobId::named(&queue.name, None, custom)).collect::<Vec<_>>();
        let mut found = Vec::new();
        for some in ids.chunks(windlass::core::store::BATCH_MAX) {
            found.extend(store.get(some.to_vec()).await?.into_iter().flatten());
        }
        let search = format!("windlass jobs list --text {}", crate::commands::explain::quoted(custom.as_str()));
        match found.as_slice() {
            [job] => Ok(job.id),
            [] => {
                let words = format!(
                    "there is no job `{}`; an id looks like {}",
                    short(custom.as_str()),
                    JobId::from_parts(0, 0)
                );
                Err(Failure::not_found(words)
                    .hint(format!("a job that was given this id in a group is found so: {search}")))
            }
            several => Err(Failure::usage(format!("{} queues have a job `{}`", several.len(), short(custom.as_str())))
                .hint(format!("name it by its id, which this finds: {search}"))),
        }
    }
}
