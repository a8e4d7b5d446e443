use super::super::Rule;
use super::super::rule::tests::{any_rule, in_2026};
use super::super::tests::{at, sample};
use super::*;
use crate::job::{Dedup, DedupBy, DedupMode, State};
use crate::name::{GroupName, ScheduleName};
use proptest::prelude::*;
use std::collections::BTreeSet;

const MADE: &str = "2026-06-01T12:00:00Z";
const HOUR: u64 = 3_600_000;

fn armed(rule: Rule, change: impl FnOnce(&mut Schedule)) -> Schedule {
    let mut schedule = sample(rule);
    change(&mut schedule);
    schedule.arm(None, at(MADE)).unwrap()
}

fn look(schedule: &Schedule, now: Timestamp) -> Option<Fire> {
    plan(&DueSchedule { schedule: schedule.clone(), now, last_job_state: None }).unwrap()
}

fn ticks_of(fire: &Fire) -> Vec<Timestamp> {
    fire.jobs.iter().map(|job| at(&job.spec.metadata[METADATA_TICK])).collect()
}

/// What a store does with a fire, as far as the next plan can tell.
fn apply(schedule: &mut Schedule, fire: &Fire) {
    assert_eq!((fire.expected_tick, fire.revision), (schedule.next_tick, schedule.revision));
    schedule.fired += fire.jobs.len() as u64;
    schedule.last_tick = fire.expected_tick;
    schedule.next_tick = fire.next_tick;
}

#[test]
fn a_tick_on_time_creates_its_job_and_moves_on() {
    let schedule = armed(Rule::every_ms(HOUR), |s| {
        s.revision = 4;
        s.spec.metadata.insert("who".to_owned(), "me".to_owned());
        s.spec.priority = -3;
    });
    assert_eq!(look(&schedule, at("2026-06-01T12:59:59.999Z")), None, "not yet");
    let tick = at("2026-06-01T13:00:00Z");
    for now in [tick, tick.plus_ms(1), tick.plus_ms(HOUR - 1)] {
        let fire = look(&schedule, now).unwrap();
        assert_eq!((fire.name.as_str(), fire.expected_tick, fire.revision), ("nightly", Some(tick), 4));
        assert_eq!(fire.next_tick, Some(at("2026-06-01T14:00:00Z")));
        assert!(!fire.skip_if_running);
        let [job] = fire.jobs.as_slice() else { panic!("{fire:?}") };
        job.check().unwrap();
        assert_eq!(job.due, crate::job::Due::Now);
        assert_eq!((job.spec.priority, &job.spec.custom_id), (-3, &None));
        let metadata: Vec<_> = job.spec.metadata.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        let expected = [("who", "me"), ("windlass.schedule", "nightly"), ("windlass.tick", "2026-06-01T13:00:00.000Z")];
        assert_eq!(metadata, expected);
    }
}

#[test]
fn a_schedule_without_a_tick_does_nothing() {
    let schedule = Schedule { next_tick: None, ..sample(Rule::every_ms(HOUR)) };
    assert_eq!(look(&schedule, at(MADE)), None);
}

#[test]
fn the_id_is_that_of_schedule_and_tick() {
    let schedule = armed(Rule::every_ms(HOUR), |_| {});
    let id_of = |schedule: &Schedule, now: &str| look(schedule, at(now)).unwrap().jobs[0].id;
    let id = id_of(&schedule, "2026-06-01T13:00:00Z");
    assert_eq!(id, id_of(&schedule, "2026-06-01T13:59:00Z"), "whenever it is looked at");
    let custom = CustomId::new("schedule:nightly:2026-06-01T13:00:00.000Z").unwrap();
    assert_eq!(id, JobId::named(&schedule.spec.queue, None, &custom));
    let mut later = schedule.clone();
    apply(&mut later, &look(&schedule, at("2026-06-01T13:00:00Z")).unwrap());
    assert_ne!(id, id_of(&later, "2026-06-01T14:00:00Z"));
    let other = Schedule { name: ScheduleName::new("other").unwrap(), ..schedule.clone() };
    assert_ne!(id, id_of(&other, "2026-06-01T13:00:00Z"));
    let mut grouped = schedule.clone();
    grouped.spec.group = Some(GroupName::new("g").unwrap());
    assert_ne!(id, id_of(&grouped, "2026-06-01T13:00:00Z"));
    let changed = Schedule { spec: JobSpec { priority: 9, ..schedule.spec.clone() }, ..schedule };
    assert_eq!(id, id_of(&changed, "2026-06-01T13:00:00Z"), "what the job is does not matter");
}

#[test]
fn the_longest_name_still_makes_an_id_of_its_own() {
    let ids: BTreeSet<JobId> = ["a", "b"]
        .into_iter()
        .flat_map(|end| [200, 220, 221, 254].map(|len| "x".repeat(len) + end))
        .map(|name| {
            let schedule = armed(Rule::every_ms(HOUR), |s| s.name = ScheduleName::new(&name).unwrap());
            let job = look(&schedule, at("2026-06-01T13:00:00Z")).unwrap().jobs.remove(0);
            job.check().unwrap();
            assert_eq!(job.spec.metadata[METADATA_SCHEDULE], name);
            job.id
        })
        .collect();
    assert_eq!(ids.len(), 8);
    let tick = at("2026-06-01T13:00:00Z");
    assert!(tick_id(&"é".repeat(127), tick).unwrap().as_str().starts_with("schedule-hash:"));
    assert!(tick_id(&"x".repeat(221), tick).unwrap().as_str().starts_with("schedule:x"));
}

#[test]
fn missed_ticks_are_caught_up_with_as_the_policy_says() {
    let now = at("2026-06-01T17:00:30Z");
    let fired = |catch_up| {
        let fire = look(&armed(Rule::every_ms(HOUR), |s| s.catch_up = catch_up), now).unwrap();
        assert_eq!(fire.next_tick, Some(at("2026-06-01T18:00:00Z")));
        ticks_of(&fire).iter().map(|tick| tick.to_string()[11..16].to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(fired(CatchUp::Latest), ["17:00"]);
    assert_eq!(fired(CatchUp::Skip), ["17:00"]);
    assert_eq!(fired(CatchUp::All { max: 3 }), ["15:00", "16:00", "17:00"]);
    assert_eq!(fired(CatchUp::All { max: 100 }), ["13:00", "14:00", "15:00", "16:00", "17:00"]);
}

#[test]
fn what_is_skipped_is_what_is_older_than_the_grace() {
    let skip = |rule: Rule, now: Timestamp| {
        let schedule = armed(rule, |s| s.catch_up = CatchUp::Skip);
        let fire = look(&schedule, now).unwrap();
        (fire.jobs.len(), fire.next_tick.unwrap())
    };
    let tick = at("2026-06-01T13:00:00Z");
    assert_eq!(skip(Rule::every_ms(HOUR), tick.plus_ms(CATCH_UP_GRACE_MS)).0, 1);
    assert_eq!(skip(Rule::every_ms(HOUR), tick.plus_ms(CATCH_UP_GRACE_MS + 1)), (0, tick.plus_ms(HOUR)));
    // Ticks that are only late all fire.
    assert_eq!(skip(Rule::every_ms(10_000), tick.plus_ms(5_000)), (6, tick.plus_ms(10_000)));
    assert_eq!(skip(Rule::cron("* * * * * *"), tick), (61, tick.plus_ms(1_000)));
}

#[test]
fn a_paused_schedule_lets_its_ticks_pass() {
    let schedule = armed(Rule::every_ms(HOUR), |s| s.paused = true);
    let fire = look(&schedule, at("2026-06-01T15:30:00Z")).unwrap();
    assert_eq!((fire.jobs.len(), fire.next_tick), (0, Some(at("2026-06-01T16:00:00Z"))));
}

#[test]
fn with_skip_only_one_job_is_created_and_the_store_is_told_to_look_at_the_last_one() {
    let schedule = armed(Rule::every_ms(HOUR), |s| {
        (s.overlap, s.catch_up) = (Overlap::Skip, CatchUp::All { max: 10 });
    });
    let due = DueSchedule { schedule, now: at("2026-06-01T17:00:00Z"), last_job_state: Some(State::Active) };
    let fire = plan(&due).unwrap().unwrap();
    assert!(fire.skip_if_running);
    assert_eq!(ticks_of(&fire), [at("2026-06-01T17:00:00Z")]);
}

#[test]
fn an_interval_comes_back_to_the_beat_of_its_start() {
    let schedule = armed(Rule::every_ms(HOUR), |s| s.start = Some(at("2026-06-01T00:00:00Z")));
    let by_hand = Schedule { next_tick: Some(at("2026-06-01T12:20:00Z")), ..schedule };
    let fire = look(&by_hand, at("2026-06-01T12:20:00Z")).unwrap();
    assert_eq!((ticks_of(&fire), fire.next_tick), (vec![at("2026-06-01T12:20:00Z")], Some(at("2026-06-01T13:00:00Z"))));
}

#[test]
fn nothing_happens_after_the_end() {
    let schedule = armed(Rule::every_ms(HOUR), |s| {
        (s.end, s.catch_up) = (Some(at("2026-06-01T15:00:00Z")), CatchUp::All { max: 10 });
    });
    let fire = look(&schedule, at("2026-06-01T14:00:00Z")).unwrap();
    assert_eq!((fire.jobs.len(), fire.next_tick), (2, Some(at("2026-06-01T15:00:00Z"))), "the end itself is a tick");
    let late = look(&schedule, at("2026-06-03T00:00:00Z")).unwrap();
    assert_eq!((late.jobs.len(), late.next_tick), (3, None));
    // The end was set earlier after the next tick had been computed.
    let cut = Schedule { end: Some(at(MADE)), ..schedule };
    let fire = look(&cut, at("2026-06-01T14:00:00Z")).unwrap();
    assert_eq!((fire.jobs.len(), fire.next_tick), (0, None));
}

#[test]
fn no_more_ticks_than_the_limit_create_jobs() {
    let mut schedule = armed(Rule::every_ms(HOUR), |s| {
        (s.limit, s.catch_up) = (Some(3), CatchUp::All { max: 10 });
    });
    let fire = look(&schedule, at("2026-06-01T14:00:00Z")).unwrap();
    assert_eq!((fire.jobs.len(), fire.next_tick), (2, Some(at("2026-06-01T15:00:00Z"))));
    apply(&mut schedule, &fire);
    let fire = look(&schedule, at("2026-06-01T18:00:00Z")).unwrap();
    assert_eq!((ticks_of(&fire), fire.next_tick), (vec![at("2026-06-01T18:00:00Z")], None));
    let used_up = Schedule { fired: 3, ..schedule };
    let fire = look(&used_up, at("2026-06-01T18:00:00Z")).unwrap();
    assert_eq!((fire.jobs.len(), fire.next_tick), (0, None));
}

#[test]
fn a_job_that_may_not_be_created_does_not_end_a_limited_schedule() {
    let deduplicated = armed(Rule::every_ms(HOUR), |s| {
        s.limit = Some(1);
        s.spec.dedup = Some(Dedup { by: DedupBy::Payload, mode: DedupMode::Reject, ttl_ms: None });
    });
    let schedule = armed(Rule::every_ms(HOUR), |s| (s.limit, s.overlap) = (Some(1), Overlap::Skip));
    let fire = look(&schedule, at("2026-06-01T13:00:00Z")).unwrap();
    assert_eq!((fire.jobs.len(), fire.next_tick), (1, Some(at("2026-06-01T14:00:00Z"))));
    assert_eq!(look(&deduplicated, at("2026-06-01T13:00:00Z")).unwrap().next_tick, fire.next_tick);
    // The store created it: nothing is left to do, as the next look finds.
    let over = Schedule { fired: 1, next_tick: fire.next_tick, ..schedule };
    assert!(over.is_over());
    let fire = look(&over, at("2026-06-01T14:00:00Z")).unwrap();
    assert_eq!((fire.jobs.len(), fire.next_tick), (0, None));
}

#[test]
fn a_schedule_that_is_overdue_by_a_year_is_planned_at_once() {
    let now = at(MADE).plus_ms(365 * 24 * HOUR);
    for rule in [Rule::every_ms(1_000), Rule::cron("* * * * * *"), Rule::cron_in("Europe/Berlin", "*/5 * 9-17 * * 1-5")]
    {
        for (catch_up, jobs) in [(CatchUp::Latest, 1), (CatchUp::All { max: 1_000 }, 1_000)] {
            let fire = look(&armed(rule.clone(), |s| s.catch_up = catch_up), now).unwrap();
            let ticks = ticks_of(&fire);
            assert_eq!(ticks.len(), jobs);
            assert!(ticks.is_sorted_by(|a, b| a < b), "oldest first");
            let last = *ticks.last().unwrap();
            assert!(last <= now && fire.next_tick.unwrap() > now);
            assert_eq!(rule.next_after(last, at(MADE)).unwrap(), fire.next_tick, "the latest one");
            for pair in ticks.windows(2) {
                assert_eq!(rule.next_after(pair[0], at(MADE)).unwrap(), Some(pair[1]), "no tick is left out");
            }
        }
    }
}

#[test]
fn a_damaged_schedule_is_an_error() {
    for rule in [Rule::every_ms(0), Rule::cron("what"), Rule::cron_in("Nowhere", "* * * * *")] {
        let schedule = Schedule { next_tick: Some(at(MADE)), ..sample(rule) };
        let due = DueSchedule { schedule, now: at(MADE), last_job_state: None };
        assert!(plan(&due).is_err());
    }
}

fn any_schedule() -> impl Strategy<Value = Schedule> {
    let catch_up = prop_oneof![
        Just(CatchUp::Skip),
        Just(CatchUp::Latest),
        prop_oneof![1u32..5, 1u32..1_000].prop_map(|max| CatchUp::All { max }),
    ];
    let overlap = prop_oneof![3 => Just(Overlap::Allow), 1 => Just(Overlap::Skip)];
    let limit = prop::option::of(1u64..50);
    (any_rule(), catch_up, overlap, limit, prop::option::of(in_2026()), prop::option::of(in_2026())).prop_map(
        |(rule, catch_up, overlap, limit, start, end)| {
            // A window that holds no tick is for the checks to refuse, not for the plan to see.
            let end = end.filter(|end| start.is_none_or(|start| start <= *end));
            Schedule { start, end, limit, overlap, catch_up, ..sample(rule) }
        },
    )
}

/// Small steps within the day, large ones that miss many ticks, and clocks that jump back.
fn any_jump() -> impl Strategy<Value = i64> {
    prop_oneof![
        4 => 0i64..90_000,
        3 => 0i64..100_000_000,
        1 => 0i64..10_000_000_000,
        1 => -100_000_000i64..0,
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_tick_fires_twice_nor_outside_of_its_bounds(
        schedule in any_schedule(), made in in_2026(), jumps in prop::collection::vec(any_jump(), 1..30),
    ) {
        let mut schedule = schedule;
        schedule.next_tick = schedule.first_tick(made).unwrap();
        let anchor = schedule.start.unwrap_or(made);
        let (mut now, mut all, mut ids) = (made, Vec::new(), BTreeSet::new());
        for jump in jumps {
            now = Timestamp::from_ms(now.as_ms() + jump);
            let before = schedule.next_tick;
            let Some(fire) = look(&schedule, now) else {
                prop_assert!(before.is_none_or(|tick| tick > now));
                continue;
            };
            prop_assert_eq!(look(&schedule, now), Some(fire.clone()), "two processes come to the same plan");
            prop_assert!(fire.jobs.len() <= 1_000);
            prop_assert!(fire.next_tick.is_none_or(|next| next > now && schedule.end.is_none_or(|end| next <= end)));
            let ticks = ticks_of(&fire);
            prop_assert!(ticks.iter().all(|tick| *tick >= before.unwrap() && *tick <= now));
            all.extend(ticks);
            ids.extend(fire.jobs.iter().map(|job| job.id));
            apply(&mut schedule, &fire);
        }
        prop_assert!(all.is_sorted_by(|a, b| a < b), "no tick twice, none out of order");
        prop_assert_eq!(ids.len(), all.len());
        prop_assert!(schedule.limit.is_none_or(|limit| all.len() as u64 <= limit));
        for tick in all {
            prop_assert!(schedule.start.is_none_or(|start| tick >= start));
            prop_assert!(schedule.end.is_none_or(|end| tick <= end));
            prop_assert!(tick > made || schedule.start == Some(tick));
            prop_assert_eq!(schedule.rule.next_after(tick.minus_ms(1), anchor).unwrap(), Some(tick), "a tick of the rule");
        }
    }

    #[test]
    fn looked_at_often_enough_every_tick_fires_once(rule in any_rule(), made in in_2026()) {
        let mut schedule = Schedule { catch_up: CatchUp::All { max: 1_000 }, ..sample(rule) };
        schedule.next_tick = schedule.first_tick(made).unwrap();
        let (mut expected, mut last) = (Vec::new(), made);
        while let Some(tick) = schedule.rule.next_after(last, made).unwrap().filter(|_| expected.len() < 120) {
            expected.push(tick);
            last = tick;
        }
        let mut fired = Vec::new();
        for tick in expected.iter().step_by(7) {
            let Some(fire) = look(&schedule, tick.plus_ms(3)) else { continue };
            fired.extend(ticks_of(&fire));
            apply(&mut schedule, &fire);
        }
        prop_assert_eq!(&fired[..], &expected[..fired.len()]);
        prop_assert!(fired.len() + 7 > expected.len());
    }
}
