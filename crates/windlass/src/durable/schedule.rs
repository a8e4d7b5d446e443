//! Workflows in code that are started by a schedule.
//!
//! A tick enqueues a job of the kind [`StartWorkflow`], whose id is made of the schedule and the tick; its handler starts the run,
//! whose id is made of that of the job. So a tick starts at most one run, however often the job is tried.
//!
//! With [`Overlap::Skip`] a tick starts no run while an earlier one goes on. The store creates no job while the last one has not
//! ended, so of one schedule only one such job is handled at a time, and between its look and its start no other one starts a run.

use super::start::{CodeDefinition, code_run};
use crate::client::Client;
use crate::context::Ctx;
use crate::error::JobError;
use crate::job::Job;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::future::IntoFuture;
use std::sync::Arc;
use windlass_core::id::{RunId, Token};
use windlass_core::job::JobSpec;
use windlass_core::name::{Kind, QueueName, ScheduleName};
use windlass_core::payload::Payload;
use windlass_core::schedule::{CatchUp, METADATA_SCHEDULE, METADATA_TICK, Overlap, Rule, Schedule};
use windlass_core::store::{
    LIST_MAX, ListOrder, NewRun, RUN_LABEL_VALUE_BYTES_MAX, RunLabel, RunList, RunState, Store,
};
use windlass_core::{Error, Result};
use windlass_durable::{BoxFuture, Running, Span, Wf, Workflow, kind_of};

/// The label of a run that names the schedule that started it; of a longer name its first bytes.
pub const LABEL_SCHEDULE: &str = "windlass.schedule";
/// The label of a run that names the tick that started it, as RFC 3339. A run that was started out of turn has none.
pub const LABEL_TICK: &str = "windlass.tick";

/// Starts a run of a workflow in code. Workers handle it by [`start_workflow`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StartWorkflow {
    /// The workflow and its version, `name@version`.
    pub kind: String,
    /// The input, JSON.
    pub input: Box<RawValue>,
    /// What to do while an earlier run of the schedule goes on.
    #[serde(default)]
    pub overlap: Overlap,
    /// The time after which the run is cancelled and ends as timed out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// How long the run is kept when it has ended; by default 14 days.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_ms: Option<u64>,
    /// Labels of the run, beside those of its schedule.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// What became of a [`StartWorkflow`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkflowStarted {
    /// The run that was started; or, if none was, the earlier one that goes on.
    pub run: RunId,
    /// False if an earlier run goes on and must not overlap.
    pub started: bool,
}

impl Job for StartWorkflow {
    const KIND: &'static str = "windlass.start";
    type Output = WorkflowStarted;
}

/// Starts the run of a [`StartWorkflow`]. However often the job is tried, it starts one.
pub async fn start_workflow(job: StartWorkflow, ctx: Ctx) -> std::result::Result<WorkflowStarted, JobError> {
    let metadata = &ctx.spec().metadata;
    let schedule = metadata.get(METADATA_SCHEDULE).map(|name| label_value(name));
    let run = new_run(&job, &ctx, schedule.clone(), metadata.get(METADATA_TICK).cloned())?;
    let id = run.id;
    let store = ctx.client().store();
    if let (Overlap::Skip, Some(schedule)) = (job.overlap, schedule)
        && let Some(earlier) = earlier_run(store.as_ref(), schedule, id).await?
    {
        ctx.output("run", earlier.to_string());
        return Ok(WorkflowStarted { run: earlier, started: false });
    }
    let create = |_| {
        let (store, run) = (Arc::clone(store), run.clone());
        async move { store.create_runs(vec![run]).await }
    };
    let answer = crate::repeat::repeat(Error::is_outcome_unknown, create).await?.pop();
    answer.unwrap_or_else(|| Err(Error::too_few_answers()))?;
    ctx.output("run", id.to_string());
    Ok(WorkflowStarted { run: id, started: true })
}

fn new_run(job: &StartWorkflow, ctx: &Ctx, schedule: Option<String>, tick: Option<String>) -> Result<NewRun> {
    let name = format!("job {}", ctx.id());
    let kind = super::untyped::kind_named(&job.kind)?;
    let input = Bytes::copy_from_slice(job.input.get().as_bytes());
    let definition = CodeDefinition { timeout_ms: job.timeout_ms, ..CodeDefinition::default() };
    let mut run = code_run(RunId::named(&name), kind, None, input, &definition)?;
    run.keep_ms = job.keep_ms;
    run.labels = job.labels.clone();
    run.labels.extend(schedule.map(|schedule| (LABEL_SCHEDULE.to_owned(), schedule)));
    run.labels.extend(tick.map(|tick| (LABEL_TICK.to_owned(), tick)));
    // Another attempt of the same job asks for the same run.
    let [a, b, c, d, e, f, g, h, ..] = *blake3::hash(name.as_bytes()).as_bytes();
    run.nonce = Some(Token::from_bits(u64::from_le_bytes([a, b, c, d, e, f, g, h])));
    run.check()?;
    Ok(run)
}

/// A run of the schedule that goes on, other than this one. All runs that go on are looked at.
async fn earlier_run(store: &dyn Store, schedule: String, this: RunId) -> Result<Option<RunId>> {
    let mut list = RunList {
        state: Some(RunState::Running),
        label: Some(RunLabel { name: LABEL_SCHEDULE.to_owned(), value: schedule }),
        order: ListOrder::Descending,
        ..RunList::new(LIST_MAX)
    };
    loop {
        let page = store.list_runs(list.clone()).await?;
        if let Some(run) = page.runs.iter().find(|run| run.id != this) {
            return Ok(Some(run.id));
        }
        match page.cursor {
            Some(cursor) => list.cursor = Some(cursor),
            None => return Ok(None),
        }
    }
}

fn label_value(name: &str) -> String {
    name[..name.floor_char_boundary(RUN_LABEL_VALUE_BYTES_MAX)].to_owned()
}

/// A schedule that starts runs of a workflow, without the types of the workflow.
#[derive(Clone, Debug)]
pub struct ScheduledStart {
    /// The run to start.
    pub start: StartWorkflow,
    /// The queue of the jobs that start the runs; by default `default`.
    pub queue: String,
}

impl ScheduledStart {
    /// A schedule of a workflow, `name@version` or `name` for version 1.
    pub fn new(kind: impl Into<String>, input: Box<RawValue>) -> Self {
        let (overlap, labels) = (Overlap::default(), BTreeMap::new());
        let start = StartWorkflow { kind: kind.into(), input, overlap, timeout_ms: None, keep_ms: None, labels };
        Self { start, queue: "default".to_owned() }
    }

    /// The schedule, to be adjusted and armed. Its overlap must not be changed: the jobs have it, too.
    pub fn schedule(self, name: ScheduleName, rule: Rule) -> Result<Schedule> {
        let Self { mut start, queue } = self;
        start.kind = super::untyped::kind_named(&start.kind)?.to_string();
        check_start(&start, &name)?;
        let spec = JobSpec::new(QueueName::new(queue)?, Kind::new(StartWorkflow::KIND)?, Payload::json(&start)?);
        Ok(Schedule { overlap: start.overlap, ..Schedule::new(name, rule, spec) })
    }
}

/// Refuses what each of the runs would be refused for.
fn check_start(start: &StartWorkflow, schedule: &ScheduleName) -> Result<()> {
    let input = Bytes::copy_from_slice(start.input.get().as_bytes());
    let (id, kind) = (RunId::named("check"), Kind::new(start.kind.as_str())?);
    let mut run = code_run(id, kind, None, input, &CodeDefinition::default())?;
    run.labels = start.labels.clone();
    run.labels.insert(LABEL_SCHEDULE.to_owned(), label_value(schedule.as_str()));
    run.labels.insert(LABEL_TICK.to_owned(), String::new());
    run.check()
}

/// A schedule that starts runs of a workflow; await it.
#[must_use = "a schedule does nothing until it is awaited"]
pub struct ScheduleWorkflow {
    client: Client,
    name: String,
    rule: Rule,
    start: Result<ScheduledStart>,
    catch_up: CatchUp,
}

impl Client {
    /// Starts a run of a workflow whenever `rule` says so. Safe to call at every start of a program: a schedule that is there and
    /// says the same is left as it is. A tick enqueues a job; a worker that serves its queue and has [`start_workflow`] among its
    /// handlers starts the run, and a worker that has registered the workflow executes it.
    ///
    /// ```
    /// # use windlass::{Client, Worker, core::schedule::{Overlap, Rule}};
    /// # use windlass::durable::{Error, Wf, start_workflow, workflow};
    /// #[workflow]
    /// async fn report(wf: Wf, region: String) -> Result<(), Error> {
    ///     # let _ = (wf, region);
    ///     Ok(())
    /// }
    ///
    /// # async fn example(client: Client) -> windlass::Result<()> {
    /// let night = Rule::cron_in("Europe/Berlin", "30 2 * * *");
    /// client.schedule_workflow("nightly", night, report, "eu".to_owned()).overlap(Overlap::Skip).await?;
    ///
    /// let worker = Worker::builder(client.store().clone()).handle(start_workflow).workflow(report);
    /// # drop(worker);
    /// # Ok(())
    /// # }
    /// ```
    #[expect(clippy::needless_pass_by_value, reason = "the input is handed over, as to a function")]
    pub fn schedule_workflow<W: Workflow>(
        &self,
        name: &str,
        rule: Rule,
        _workflow: impl FnOnce(Wf, W::Input) -> Running<W>,
        input: W::Input,
    ) -> ScheduleWorkflow {
        let input = serde_json::value::to_raw_value(&input).map_err(|error| Error::invalid("input", error.to_string()));
        let start = input.map(|input| ScheduledStart::new(kind_of::<W>(), input));
        ScheduleWorkflow { client: self.clone(), name: name.to_owned(), rule, start, catch_up: CatchUp::default() }
    }
}

impl ScheduleWorkflow {
    fn change(mut self, change: impl FnOnce(&mut ScheduledStart)) -> Self {
        if let Ok(start) = &mut self.start {
            change(start);
        }
        self
    }

    /// The queue of the jobs that start the runs; by default `default`.
    pub fn queue(self, queue: impl Into<String>) -> Self {
        self.change(|start| start.queue = queue.into())
    }

    /// What a tick does while an earlier run of the schedule goes on; by default it starts its run all the same.
    pub fn overlap(self, overlap: Overlap) -> Self {
        self.change(|start| start.start.overlap = overlap)
    }

    /// What happens to ticks that were missed; by default one run is started for the latest of them.
    pub fn catch_up(self, catch_up: CatchUp) -> Self {
        Self { catch_up, ..self }
    }

    /// Cancels each run after this time. It ends as timed out.
    #[track_caller]
    pub fn timeout(self, time: impl Span) -> Self {
        let ms = time.to_ms();
        self.change(|start| start.start.timeout_ms = Some(ms))
    }

    /// How long each run is kept when it has ended; by default 14 days.
    #[track_caller]
    pub fn keep(self, time: impl Span) -> Self {
        let ms = time.to_ms();
        self.change(|start| start.start.keep_ms = Some(ms))
    }

    /// A label by which the runs are found in lists.
    pub fn label(self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.change(|start| drop(start.start.labels.insert(name.into(), value.into())))
    }

    async fn put(self) -> Result<Schedule> {
        let Self { client, name, rule, start, catch_up } = self;
        let name = ScheduleName::new(name)?;
        let schedule = Schedule { catch_up, ..start?.schedule(name.clone(), rule)? };
        let (now, stored) = (client.store().now().await?, client.store().schedules().await?);
        let armed = schedule.arm(stored.iter().find(|stored| stored.name == name), now)?;
        client.store().put_schedule(armed.clone()).await?;
        Ok(armed)
    }
}

impl IntoFuture for ScheduleWorkflow {
    type Output = Result<Schedule>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.put())
    }
}

impl std::fmt::Debug for ScheduleWorkflow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScheduleWorkflow").field("name", &self.name).field("rule", &self.rule).finish_non_exhaustive()
    }
}
