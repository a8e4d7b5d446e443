//! Starting runs, and what can be done to them.

use super::engine::Engine;
use super::graph::{GraphState, Inbox, Message, encode_definition, encode_input, graph_kind};
use super::retry::TRY_AGAIN;
use super::status::RunStatus;
use bytes::Bytes;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use windlass_core::graph::{Graph, Work, descendants, reruns};
use windlass_core::id::{Ids, RunId};
use windlass_core::job::Due;
use windlass_core::random::StrongRandom;
use windlass_core::store::{NewRun, RUN_NOT_ENDED, Run, RunCreated, RunMessage, RunRead, RunState, Store};
use windlass_core::time::{Clock, SystemClock, Timestamp};
use windlass_core::{Error, Result};

/// Starts runs and looks after them. Cheap to clone.
#[derive(Clone)]
pub struct Runs {
    store: Arc<dyn Store>,
    ids: Ids,
}

/// A run of a graph, to be started.
#[derive(Clone, Debug)]
pub struct NewGraphRun {
    /// Its id; a fresh one when nobody says. The same id twice starts it once.
    pub id: Option<RunId>,
    /// What is run.
    pub graph: Arc<Graph>,
    /// What it is given, as a map.
    pub inputs: Value,
    /// How long it is kept when it has ended.
    pub keep: Option<Duration>,
}

impl NewGraphRun {
    /// With nothing given.
    pub fn new(graph: impl Into<Arc<Graph>>) -> Self {
        Self { id: None, graph: graph.into(), inputs: Value::Object(serde_json::Map::new()), keep: None }
    }

    /// What it is given, as a map.
    #[must_use]
    pub fn inputs(mut self, inputs: Value) -> Self {
        self.inputs = inputs;
        self
    }

    /// Its id: the same one twice starts it once.
    #[must_use]
    pub fn id(mut self, id: RunId) -> Self {
        self.id = Some(id);
        self
    }
}

/// What is run once more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rerun {
    /// Everything.
    All,
    /// What failed or was cancelled, and all that comes after. Of a matrix, rows that succeeded keep their outputs and are not
    /// run again, unless something before the matrix is.
    Failed,
    /// These nodes, and all that comes after; one that is a workflow of its own from its beginning.
    From(Vec<String>),
}

impl Runs {
    /// Over a store that is open.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store, ids: Ids::new(Arc::new(SystemClock), Arc::new(StrongRandom::from_system())) }
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Starts a run. When this returns, its first jobs are enqueued, and it is as safe as the store promises.
    pub async fn start(&self, run: NewGraphRun) -> Result<RunId> {
        Ok(self.start_all(vec![run]).await?.pop().unwrap_or_else(|| Err(Error::not_found("an answer")))?.0)
    }

    /// Starts many runs in one step of the store.
    pub async fn start_all(&self, runs: Vec<NewGraphRun>) -> Result<Vec<Result<(RunId, RunCreated)>>> {
        let mut ids = Vec::with_capacity(runs.len());
        let mut news = Vec::with_capacity(runs.len());
        // Runs of one graph are told of it once.
        let mut last: Option<(Arc<Graph>, Bytes)> = None;
        // Timeouts are counted by the store's clock; without one, what stands in the first entries is for people alone.
        let timed = runs.iter().any(|run| run.graph.timeout_ms.is_some());
        let now = if timed { self.store.now().await? } else { SystemClock.now() };
        for run in runs {
            let definition = match &last {
                Some((graph, bytes)) if Arc::ptr_eq(graph, &run.graph) => bytes.clone(),
                _ => {
                    run.graph.check().map_err(|fault| Error::invalid("graph", fault.to_string()))?;
                    let bytes = Bytes::from(encode_definition(&run.graph)?);
                    last = Some((Arc::clone(&run.graph), bytes.clone()));
                    bytes
                }
            };
            let new = self.prepare(run, definition, now)?;
            ids.push(new.id);
            news.push(new);
        }
        let answers = self.create(news).await?;
        Ok(ids.into_iter().zip(answers).map(|(id, answer)| answer.map(|created| (id, created))).collect())
    }

    fn prepare(&self, run: NewGraphRun, definition: Bytes, now: Timestamp) -> Result<NewRun> {
        let id = run.id.unwrap_or_else(|| self.ids.next_run());
        let input = encode_input(&run.inputs)?.into();
        let name = run.graph.name.clone();
        let timeout_ms = run.graph.timeout_ms;
        let mut state = GraphState::new(id, run.graph, Arc::new(run.inputs));
        let mut steps = state.decide(Inbox::default(), now, &self.ids)?;
        let more = steps.len() > 1;
        let mut step = steps.swap_remove(0);
        step.summary = state.summary();
        // The engines do the rest, if it is too much for one step.
        step.wake =
            if more { Some(Due::Now) } else { timeout_ms.map(Due::DelayMs).filter(|_| !step.state.is_terminal()) };
        let keep_ms = run.keep.map(|keep| u64::try_from(keep.as_millis()).unwrap_or(u64::MAX));
        Ok(NewRun { name, definition, input, keep_ms, step, ..NewRun::new(id, graph_kind()?) })
    }

    /// The ids are ours, so a call whose answer got lost may be repeated.
    async fn create(&self, runs: Vec<NewRun>) -> Result<Vec<Result<RunCreated>>> {
        crate::repeat::repeat(Error::is_outcome_unknown, |_| self.store.create_runs(runs.clone())).await
    }

    /// Where a run stands; `None` when it is not there.
    pub async fn status(&self, run: RunId) -> Result<Option<RunStatus>> {
        RunStatus::read(self.store.as_ref(), run).await
    }

    async fn wanted(&self, run: RunId) -> Result<RunStatus> {
        self.status(run).await?.ok_or_else(|| Error::not_found(format!("the run {run}")))
    }

    /// What a listing shows of a run: that much can be read even when its definition cannot.
    async fn brief(&self, run: RunId) -> Result<Run> {
        let view = self.store.read_runs(vec![RunRead::brief(run)]).await?.pop().flatten();
        Ok(view.ok_or_else(|| Error::not_found(format!("the run {run}")))?.run)
    }

    /// The same for a run of a graph. Runs of other kinds have messages of their own.
    async fn brief_graph(&self, run: RunId) -> Result<Run> {
        let brief = self.brief(run).await?;
        check_kind(&brief)?;
        Ok(brief)
    }

    async fn say(&self, message: RunMessage) -> Result<()> {
        let answers = self.store.send_to_runs(vec![message]).await?;
        answers.into_iter().next().unwrap_or_else(|| Err(Error::not_found("an answer")))
    }

    /// Cancels a run. When this returns, nothing of it starts any more; jobs that run are being told. A run that has ended
    /// is left as it is. One that is stuck is opened for it; if it cannot be advanced even so, the error says why.
    pub async fn cancel(&self, run: RunId, reason: &str) -> Result<RunState> {
        let stuck = self.brief_graph(run).await?.stuck.is_some();
        let cancel = Message::Cancel { reason: reason.to_owned() }.to(run);
        let cancel = RunMessage { reopens: stuck, ..cancel };
        let mut is_opened = stuck;
        match self.say(cancel.clone()).await {
            Err(Error::RunRefused { .. }) => {
                let state = self.brief(run).await?.state;
                if state.is_terminal() {
                    return Ok(state);
                }
                // Should it end before it hears this, it ends the same way once more.
                self.say(RunMessage { reopens: true, ..cancel }).await?;
                is_opened = true;
            }
            told => told?,
        }
        // Whoever asks does the step itself, unless an engine was faster.
        let mut engine = Engine::new(Arc::clone(&self.store))?;
        loop {
            let advanced = engine.advance(run).await?;
            let Run { state, stuck, inbox_len, .. } = self.brief(run).await?;
            if let Some(why) = stuck.filter(|_| !state.is_terminal()) {
                if !is_opened {
                    // It was stuck before the message came, which alone does not open it.
                    match self.say(Message::Resume.to(run)).await {
                        // It has been opened or has ended meanwhile: the next look says which.
                        Ok(()) | Err(Error::RunRefused { .. }) => is_opened = true,
                        Err(error) => return Err(error),
                    }
                    continue;
                }
                let way = format!("`windlass runs remove {run}` removes it, and leaves its jobs alone");
                let why = format!("cannot be cancelled, it is stuck ({why}); {way}");
                return Err(Error::RunRefused { run, why });
            }
            // Only a step takes from the inbox: this one knew of the cancel, and so did those after it.
            if state.is_terminal() || inbox_len == 0 {
                return Ok(state);
            }
            // What it cancelled has left word, and may have been the last of it.
            if !advanced {
                tokio::time::sleep(TRY_AGAIN).await;
            }
        }
    }

    /// Lets the engines try again with a run that is stuck: nothing of it was forgotten. When this returns, the run is open,
    /// and the next engine takes it; if the cause is still there, it is stuck again, and says why.
    pub async fn resume(&self, run: RunId) -> Result<()> {
        let Run { state, stuck, damaged, .. } = self.brief_graph(run).await?;
        let why = match (damaged, state, stuck) {
            (Some(damage), ..) => {
                format!("is damaged ({damage}), nobody can go on with it; `windlass runs remove {run}` removes it")
            }
            (None, RunState::Running, Some(_)) => return self.say(Message::Resume.to(run)).await,
            (None, RunState::Running, None) => "is not stuck: it goes on by itself".to_owned(),
            (None, ended, _) => format!("has ended: {}; rerun runs it once more", ended.name()),
        };
        Err(Error::RunRefused { run, why })
    }

    /// Runs nodes of an ended run once more, with all that comes after them. Answers how many nodes these are that have a job;
    /// some of them may be skipped.
    pub async fn rerun(&self, run: RunId, what: Rerun) -> Result<usize> {
        let status = self.wanted(run).await?;
        if !status.run.state.is_terminal() {
            let why = match status.run.stuck {
                Some(stuck) => format!("is stuck ({stuck}); resume it, or cancel it first"),
                None => RUN_NOT_ENDED.to_owned(),
            };
            return Err(Error::RunRefused { run, why });
        }
        let keep_rows = what == Rerun::Failed;
        let nodes = match what {
            Rerun::All => (0..status.graph.nodes.len()).collect(),
            Rerun::Failed => reruns(&status.progress),
            Rerun::From(names) => {
                names.iter().map(|name| beginning(&status.graph, name)).collect::<Result<Vec<usize>>>()?
            }
        };
        if nodes.is_empty() {
            return Err(Error::RunRefused { run, why: "has nothing to run once more".to_owned() });
        }
        let has_job = |&node: &usize| matches!(status.graph.nodes[node].work, Work::Job(_));
        let count = descendants(&status.progress, nodes.iter().copied()).iter().filter(|&node| has_job(node)).count();
        // Somebody else may have opened it meanwhile: the second of two reruns is refused, and not dropped later.
        let expected_history_len = Some(status.run.history_len);
        self.say(RunMessage { expected_history_len, ..Message::Rerun { nodes, keep_rows }.to(run) }).await?;
        Ok(count)
    }

    /// Starts a new run of what another one ran, with other inputs: those that are given replace those of the other.
    pub async fn fork(&self, run: RunId, inputs: serde_json::Map<String, Value>) -> Result<RunId> {
        let status = self.wanted(run).await?;
        let mut all = Value::clone(&status.inputs);
        if let Value::Object(all) = &mut all {
            all.extend(inputs);
        }
        self.start(NewGraphRun::new(Arc::clone(&status.graph)).inputs(all)).await
    }

    /// Waits until a run has ended, for at most `time`; `None` when it has not. It never hangs.
    pub async fn wait(&self, run: RunId, time: Duration) -> Result<Option<RunStatus>> {
        let look = async {
            loop {
                crate::durable::wait_for_end(self.store.as_ref(), run).await;
                let status = self.wanted(run).await?;
                if status.run.state.is_terminal() {
                    return Ok(status);
                }
            }
        };
        tokio::time::timeout(time, look).await.ok().transpose()
    }
}

/// Refuses a run that does not follow a graph. One that cannot be read has no kind.
pub(super) fn check_kind(run: &Run) -> Result<()> {
    if run.damaged.is_some() || run.kind == graph_kind()? {
        return Ok(());
    }
    Err(Error::run_refused(run.id, format!("is of the kind `{}` and does not follow a graph", run.kind)))
}

/// Where the node of this name begins: that of a sub-graph is its exit, which has an entrance.
fn beginning(graph: &Graph, name: &str) -> Result<usize> {
    let Some(at) = graph.find(name) else {
        let near = windlass_core::name::nearest(name, graph.nodes.iter().map(|node| node.id.as_str()));
        let hint = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
        return Err(Error::not_found(format!("a node `{name}` of the run{hint}")));
    };
    let node = &graph.nodes[at];
    Ok(node.entrance.filter(|_| matches!(node.work, Work::Join { .. })).unwrap_or(at))
}

opaque_debug!(Runs);
