//! What applications do with jobs beside enqueueing them: cancel, retry, look, explain, schedule.

use crate::client::Client;
use crate::job::{Job, Options};
use windlass_core::id::JobId;
use windlass_core::job::{Due, Job as StoredJob, State};
use windlass_core::name::ScheduleName;
use windlass_core::payload::Payload;
use windlass_core::schedule::{Rule, Schedule};
use windlass_core::store::{Change, ChangeOp, Explanation};
use windlass_core::{Error, Result};

impl Client {
    /// The job as it is now; `None` when it is not there (any more).
    pub async fn get(&self, id: JobId) -> Result<Option<StoredJob>> {
        Ok(self.store().get(vec![id]).await?.pop().flatten())
    }

    /// Cancels a job: at once when it waits; through its handler when it runs. Cancelling twice is fine.
    pub async fn cancel(&self, id: JobId) -> Result<Option<State>> {
        self.change(id, ChangeOp::Cancel).await
    }

    /// Gives a job that has ended a new life with all its attempts.
    pub async fn retry(&self, id: JobId) -> Result<Option<State>> {
        self.change(id, ChangeOp::Retry(Due::Now)).await
    }

    /// Changes a job; answers the state that it led to, or `None` when the job is gone.
    pub async fn change(&self, id: JobId, op: ChangeOp) -> Result<Option<State>> {
        let answer = self.store().change(vec![Change { id, op }]).await?.pop();
        let answer = answer.unwrap_or_else(|| Err(Error::job_not_found(id)))?;
        Ok(answer.state)
    }

    /// Why a job stands where it stands.
    pub async fn explain(&self, id: JobId) -> Result<Explanation> {
        self.store().explain(id).await
    }

    /// Enqueues a job whenever `rule` says so. Safe to call at every start of a program: a schedule that is there and says
    /// the same is left as it is.
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use windlass::{Client, Job, core::schedule::Rule};
    /// # #[derive(Serialize, Deserialize, Job)]
    /// # struct Report { of: String }
    /// # async fn example(client: Client) -> windlass::Result<()> {
    /// let night = Rule::cron_in("Europe/Berlin", "30 2 * * *");
    /// client.schedule("nightly-report", night, Report { of: "sales".into() }).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn schedule<J: Job>(&self, name: &str, rule: Rule, job: J) -> Result<Schedule> {
        self.schedule_with(name, rule, job, |schedule| schedule).await
    }

    /// The same, with `adjust` for whatever else a [`Schedule`] can say: limits, overlap, catching up.
    pub async fn schedule_with<J: Job>(
        &self,
        name: &str,
        rule: Rule,
        job: J,
        adjust: impl FnOnce(Schedule) -> Schedule + Send,
    ) -> Result<Schedule> {
        let (spec, due) = Options::new().or(job.options()).into_spec(J::QUEUE, J::KIND, Payload::json(&job)?)?;
        if due != Due::Now {
            return Err(Error::invalid("delay", "a schedule says itself when its jobs are due; leave it out"));
        }
        let name = ScheduleName::new(name)?;
        let (now, stored) = (self.store().now().await?, self.store().schedules().await?);
        let stored = stored.iter().find(|stored| stored.name == name);
        let armed = adjust(Schedule::new(name, rule, spec)).arm(stored, now)?;
        self.store().put_schedule(armed.clone()).await?;
        Ok(armed)
    }

    /// Ends a schedule; false when there was none. Jobs that it created stay.
    pub async fn unschedule(&self, name: &str) -> Result<bool> {
        self.store().remove_schedule(ScheduleName::new(name)?).await
    }
}
