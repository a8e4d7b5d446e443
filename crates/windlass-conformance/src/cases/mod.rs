//! The cases, by concern.

mod bad_calls;
mod bad_input;
mod budgets;
mod bulk;
mod concurrency;
mod concurrency_races;
mod counters;
mod dedup;
mod dedup_successor;
mod enqueue;
mod enqueue_limits;
mod explain;
mod feed;
mod groups;
mod groups_cap;
mod groups_fair;
mod groups_rate;
mod isolation;
mod lanes;
mod leases;
mod lifecycle;
mod limits;
mod listing;
mod logs;
mod machine;
mod mixed;
mod mutations;
mod order;
mod outputs;
mod quick_ways;
mod repeats;
mod retention;
mod run_caps;
mod run_children;
mod run_claims;
mod run_company;
mod run_edges;
mod run_filters;
mod run_help;
mod run_inboxes;
mod run_lists;
mod run_messages;
mod run_renewals;
mod run_segments;
mod run_stuck;
mod run_terminate;
mod runs;
mod schedule_help;
mod schedule_rules;
mod schedules;
mod snapshot;
mod time;
mod timekeeper;
mod waits;
mod workers;

use crate::runner::Case;

/// All concerns.
pub(crate) const ALL: &[&[Case]] = &[
    bad_calls::CASES,
    bad_input::CASES,
    mutations::CASES,
    dedup_successor::CASES,
    dedup::CASES,
    budgets::CASES,
    order::CASES,
    machine::CASES,
    repeats::CASES,
    quick_ways::CASES,
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
    timekeeper::CASES,
    retention::CASES,
    counters::CASES,
    feed::CASES,
    logs::CASES,
    outputs::CASES,
    waits::CASES,
    workers::CASES,
    runs::CASES,
    run_caps::CASES,
    run_company::CASES,
    run_edges::CASES,
    run_lists::CASES,
    run_renewals::CASES,
    run_stuck::CASES,
    run_children::CASES,
    run_claims::CASES,
    run_filters::CASES,
    run_segments::CASES,
    run_terminate::CASES,
    run_inboxes::CASES,
    run_messages::CASES,
    schedules::CASES,
    schedule_rules::CASES,
    explain::CASES,
    listing::CASES,
    bulk::CASES,
    isolation::CASES,
    concurrency::CASES,
    concurrency_races::CASES,
    crate::model::CASES,
    crate::run_model::CASES,
    crate::faults::CASES,
    lifecycle::CASES,
];
