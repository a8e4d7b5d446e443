use super::super::tests::{at, sample};
use super::super::{METADATA_SCHEDULE, METADATA_TICK, Overlap, Rule, Schedule};
use super::*;
use async_trait::async_trait;
use parking_lot::Mutex;

const MADE: &str = "2026-06-01T12:00:00Z";
const NOW: &str = "2026-06-01T15:30:00Z";

/// A store that keeps schedules, fences, and does what a test tells it.
#[derive(Default)]
struct Fake {
    schedules: Mutex<Vec<Schedule>>,
    fires: Mutex<Vec<Fire>>,
    /// Answered by a schedule of this name instead of what is right.
    answers: Mutex<Vec<(&'static str, Result<FireOutcome>)>>,
    asked: Mutex<Vec<u32>>,
}

impl Fake {
    fn with(schedules: impl IntoIterator<Item = Schedule>) -> Self {
        Self { schedules: Mutex::new(schedules.into_iter().collect()), ..Self::default() }
    }

    fn answering(self, name: &'static str, answer: Result<FireOutcome>) -> Self {
        self.answers.lock().push((name, answer));
        self
    }

    fn fired(&self) -> Vec<String> {
        self.fires.lock().iter().map(|fire| fire.name.to_string()).collect()
    }
}

#[async_trait]
impl ScheduleStore for Fake {
    async fn put_schedule(&self, _: Schedule) -> Result<()> {
        unreachable!("nobody puts")
    }

    async fn remove_schedule(&self, _: ScheduleName) -> Result<bool> {
        unreachable!("nobody removes")
    }

    async fn schedules(&self) -> Result<Vec<Schedule>> {
        Ok(self.schedules.lock().clone())
    }

    async fn due_schedules(&self, max: u32) -> Result<Vec<DueSchedule>> {
        self.asked.lock().push(max);
        let due = |schedule: &Schedule| schedule.next_tick.is_some_and(|tick| tick <= at(NOW));
        let mut all: Vec<Schedule> = self.schedules.lock().iter().filter(|s| due(s)).cloned().collect();
        all.sort_by_key(|schedule| schedule.next_tick);
        all.truncate(max as usize);
        Ok(all.into_iter().map(|schedule| DueSchedule { schedule, now: at(NOW), last_job_state: None }).collect())
    }

    async fn fire(&self, fire: Fire) -> Result<FireOutcome> {
        let mut answers = self.answers.lock();
        if let Some(i) = answers.iter().position(|(name, _)| *name == fire.name.as_str()) {
            return answers.remove(i).1;
        }
        let mut schedules = self.schedules.lock();
        let schedule = schedules.iter_mut().find(|schedule| schedule.name == fire.name).unwrap();
        let in_turn = fire.expected_tick.is_some();
        if schedule.revision != fire.revision || in_turn && schedule.next_tick != fire.expected_tick {
            return Ok(FireOutcome::Stale);
        }
        if in_turn {
            schedule.next_tick = fire.next_tick;
        }
        let jobs = u32::try_from(fire.jobs.len()).unwrap();
        self.fires.lock().push(fire);
        Ok(FireOutcome::Fired { jobs })
    }
}

fn named(name: &str, rule: Rule) -> Schedule {
    let mut schedule = sample(rule);
    schedule.name = ScheduleName::new(name).unwrap();
    schedule.next_tick = Some(at("2026-06-01T13:00:00Z"));
    schedule
}

fn hourly(name: &str) -> Schedule {
    named(name, Rule::every_ms(3_600_000))
}

fn damaged(name: &str) -> Schedule {
    Schedule { next_tick: Some(at(MADE)), ..named(name, Rule::cron("what")) }
}

fn name(text: &str) -> ScheduleName {
    ScheduleName::new(text).unwrap()
}

#[tokio::test]
async fn what_is_due_is_fired_once_and_what_is_not_is_left_alone() {
    let later = Schedule { next_tick: Some(at("2026-06-01T16:00:00Z")), ..hourly("later") };
    let paused = Schedule { paused: true, ..hourly("paused") };
    let store = Fake::with([hourly("a"), later, paused, hourly("b")]);
    let ticked = tick(&store, 10).await.unwrap();
    assert_eq!(ticked, Ticked { handled: 3, jobs: 2, failed: vec![] });
    assert_eq!(store.fired(), ["a", "paused", "b"]);
    assert_eq!(tick(&store, 10).await.unwrap(), Ticked::default());
    assert!(store.schedules.lock().iter().all(|s| s.next_tick == Some(at("2026-06-01T16:00:00Z"))));
}

#[tokio::test]
async fn a_damaged_schedule_does_not_stop_the_others() {
    let store = Fake::with([damaged("x"), hourly("a"), damaged("y"), hourly("b")]);
    let ticked = tick(&store, 10).await.unwrap();
    assert_eq!((ticked.handled, ticked.jobs), (2, 2));
    let failed: Vec<_> = ticked.failed.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(failed, ["x", "y"]);
    assert!(matches!(&ticked.failed[0].1, Error::Invalid { field, .. } if field == "rule.expression"));
}

#[tokio::test]
async fn many_damaged_schedules_do_not_hide_what_comes_behind_them() {
    let store = Fake::with((0..9).map(|i| damaged(&format!("x{i}"))).chain([hourly("a")]));
    let ticked = tick(&store, 2).await.unwrap();
    assert_eq!((ticked.handled, ticked.failed.len()), (1, 9));
    assert_eq!(*store.asked.lock(), [2, 4, 8, 16]);
    let bad = Fake::with((0..4).map(|i| damaged(&format!("x{i}"))));
    assert_eq!(tick(&bad, 3).await.unwrap().failed.len(), 4, "it ends when there is nothing behind them");
}

#[tokio::test]
async fn a_tick_that_the_store_refuses_is_reported_and_stays_due() {
    let full = Error::Full { what: "queue mail".to_owned() };
    let store = Fake::with([hourly("a"), hourly("b")]).answering("a", Err(full.clone()));
    let ticked = tick(&store, 10).await.unwrap();
    assert_eq!(ticked, Ticked { handled: 1, jobs: 1, failed: vec![(name("a"), full)] });
    assert_eq!(tick(&store, 10).await.unwrap().handled, 1);
}

#[tokio::test]
async fn what_another_process_handled_does_not_count_and_what_is_skipped_does() {
    let store = Fake::with([hourly("a"), hourly("b")])
        .answering("a", Ok(FireOutcome::Stale))
        .answering("b", Ok(FireOutcome::Skipped));
    assert_eq!(tick(&store, 10).await.unwrap(), Ticked { handled: 1, jobs: 0, failed: vec![] });
}

#[tokio::test]
async fn a_store_that_is_away_is_an_error_of_the_whole() {
    let reason = || "gone".to_owned();
    for error in [
        Error::Unavailable { reason: reason() },
        Error::Unknown { reason: reason() },
        Error::Timeout { reason: reason() },
    ] {
        let store = Fake::with([hourly("a"), hourly("b")]).answering("a", Err(error.clone()));
        assert_eq!(tick(&store, 10).await.unwrap_err(), error);
    }
}

#[tokio::test]
async fn a_trigger_fires_out_of_turn_and_asks_for_the_same_job_each_time() {
    let mut schedule = Schedule { paused: true, revision: 3, overlap: Overlap::Skip, ..hourly("a") };
    schedule.spec.priority = 7;
    let store = Fake::with([hourly("b"), schedule]);
    let id = JobId::from_parts(0, 42);
    for _ in 0..2 {
        assert_eq!(trigger(&store, &name("a"), id).await.unwrap(), FireOutcome::Fired { jobs: 1 });
    }
    let fires = store.fires.lock();
    assert_eq!(fires[0], fires[1]);
    assert_eq!((fires[0].expected_tick, fires[0].revision, fires[0].skip_if_running), (None, 3, true));
    let job = &fires[0].jobs[0];
    assert_eq!((job.id, job.effective_id(), job.spec.priority), (id, id, 7));
    assert_eq!(job.spec.metadata[METADATA_SCHEDULE], "a");
    assert!(!job.spec.metadata.contains_key(METADATA_TICK));
    assert_eq!(store.schedules.lock()[1].next_tick, hourly("a").next_tick);
}

#[tokio::test]
async fn a_trigger_of_what_is_not_there_says_so_and_a_change_under_it_is_tried_again() {
    let id = JobId::from_parts(0, 42);
    let missing = trigger(&Fake::default(), &name("a"), id).await.unwrap_err();
    assert!(missing.is_not_found(), "{missing}");
    let stale = || Ok(FireOutcome::Stale);
    let store = Fake::with([hourly("a")]).answering("a", stale()).answering("a", stale());
    assert_eq!(trigger(&store, &name("a"), id).await.unwrap(), FireOutcome::Fired { jobs: 1 });
    let busy = (0..9).fold(Fake::with([hourly("a")]), |store, _| store.answering("a", stale()));
    assert_eq!(trigger(&busy, &name("a"), id).await.unwrap(), FireOutcome::Stale);
}
