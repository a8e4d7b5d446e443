//! Everything that can be seen of a store, as text by place, so that the first difference between two is found.

use super::answer::{plain_explanation, plain_schedule, plain_worker};
use super::op::{STATES, World};
use super::side::Side;
use std::collections::BTreeMap;
use windlass_core::store::{
    Filter, GroupStatus, GroupsRequest, JobQueue, ListRequest, LogRequest, LogSink, MetricsRequest, RunRead, RunStore,
    ScheduleStore, WorkerRegistry,
};

/// Minutes of metrics that one call answers.
const METRICS_BACK_MS: u64 = 47 * 3_600_000;

pub(crate) type View = BTreeMap<String, String>;

/// A group that only its rate remembers may be listed or not.
pub(crate) fn counts(group: &GroupStatus) -> bool {
    group.ready > 0 || group.active > 0 || !group.settings.is_default()
}

pub(crate) async fn view(side: &Side, world: &World) -> View {
    let mut view = View::new();
    let mut put = |place: String, what: &dyn std::fmt::Debug| drop(view.insert(place, format!("{what:?}")));
    let store = &side.store;
    put("now".to_owned(), &side.now());
    for (id, job) in side.jobs(&world.ids).await {
        put(format!("job {id}"), &job);
        let logs = store.read_logs(LogRequest { job: id, from: 0, limit: 1_000 }).await.unwrap();
        put(format!("logs {id}"), &logs);
        put(format!("reason {id}"), &plain_explanation(store.explain(id).await.unwrap()));
    }
    for run in &world.runs {
        let read = RunRead { definition: true, input: true, history_max: 999, ..RunRead::brief(*run) };
        put(format!("run {run}"), &store.read_runs(vec![read]).await.unwrap());
    }
    for state in STATES {
        let filter = Filter { state: Some(state), ..Filter::default() };
        let listed = side.list_all(ListRequest { filter, limit: 7, ..ListRequest::default() }).await.unwrap();
        put(format!("list {state}"), &listed);
    }
    for queue in store.queues().await.unwrap() {
        let name = queue.name.clone();
        put(format!("queue {name}"), &queue);
        let groups = store.groups(GroupsRequest { queue: name.clone(), after: None, limit: 100 }).await.unwrap();
        put(format!("groups {name}"), &groups.groups.into_iter().filter(counts).collect::<Vec<_>>());
        let (from, to) = (side.now().minus_ms(METRICS_BACK_MS), side.now());
        let metrics = store.metrics(MetricsRequest { queue: name.clone(), from, to }).await.unwrap();
        put(format!("metrics {name}"), &metrics);
    }
    let schedules = store.schedules().await.unwrap();
    put("schedules".to_owned(), &schedules.into_iter().map(plain_schedule).collect::<Vec<_>>());
    put("workers".to_owned(), &store.workers().await.unwrap().into_iter().map(plain_worker).collect::<Vec<_>>());
    view
}

/// The first place at which two views differ.
pub(crate) fn difference(model: &View, other: &View) -> Option<String> {
    let places = model.keys().chain(other.keys());
    let place = places.into_iter().find(|place| model.get(*place) != other.get(*place))?;
    let show = |view: &View| view.get(place).cloned().unwrap_or_else(|| "nothing".to_owned());
    Some(format!("at `{place}`\n  the model shows {}\n  the store shows {}", show(model), show(other)))
}
