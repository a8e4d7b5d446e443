//! The cases, by concern.

mod enqueue;
mod enqueue_limits;
mod groups;
mod groups_cap;
mod groups_fair;
mod groups_rate;
mod lanes;
mod leases;
mod machine;
mod order;
mod budgets;
mod dedup;
mod dedup_successor;
mod mutations;
mod bad_input;
mod bad_calls;
mod lifecycle;
mod limits;
mod repeats;
mod snapshot;
mod time;
mod mixed;
mod retention;
mod schedule_help;
mod counters;
mod feed;
mod logs;
mod outputs;
mod waits;
mod workers;
mod schedules;
mod schedule_rules;
mod explain;
mod listing;
mod bulk;
mod isolation;
mod concurrency;
mod concurrency_races;

use crate::runner::Case;

/// All concerns.
pub(crate) const ALL: &[&[Case]] = &[bad_calls::CASES, bad_input::CASES, mutations::CASES, dedup_successor::CASES, dedup::CASES, budgets::CASES, order::CASES, machine::CASES, 
    repeats::CASES,
    leases::CASES,
    enqueue_limits::CASES,
    enqueue::CASES,
    lanes::CASES,
    groups_cap::CASES,
    groups_rate::CASES,
    groups_fair::CASES,
    groups::CASES,
    limits::CASES,
    time::CASES,
    retention::CASES, counters::CASES, feed::CASES, logs::CASES, outputs::CASES, waits::CASES, workers::CASES, schedules::CASES, schedule_rules::CASES, explain::CASES, listing::CASES, bulk::CASES, isolation::CASES, concurrency::CASES, concurrency_races::CASES, crate::model::CASES, crate::faults::CASES, lifecycle::CASES,
];
