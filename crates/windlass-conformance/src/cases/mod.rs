//! The cases, by concern.

mod enqueue;
mod enqueue_limits;
mod groups;
mod groups_cap;
mod groups_fair;
mod groups_rate;
mod lanes;
mod leases;
mod lifecycle;
mod limits;
mod repeats;
mod snapshot;
mod time;

use crate::runner::Case;

/// All concerns.
pub(crate) const ALL: &[&[Case]] = &[
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
    lifecycle::CASES,
];
