//! The methods of the contract, by name, and the errors.

use windlass_core::Error;

macro_rules! ops {
    ($($variant:ident = $name:literal,)+) => {
        /// A method of the contract.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Op { $($variant),+ }

        impl Op {
            #[cfg(feature = "metrics")]
            pub(super) const COUNT: usize = [$(Self::$variant),+].len();

            pub(super) fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }
        }
    };
}

ops! {
    Enqueue = "enqueue",
    Claim = "claim",
    Renew = "renew",
    Report = "report",
    ReportAndClaim = "report_and_claim",
    Change = "change",
    ChangeMany = "change_many",
    Get = "get",
    List = "list",
    Configure = "configure",
    Queues = "queues",
    Groups = "groups",
    Metrics = "metrics",
    Explain = "explain",
    Sweep = "sweep",
    AppendLogs = "append_logs",
    ReadLogs = "read_logs",
    Heartbeat = "heartbeat",
    Deregister = "deregister",
    Workers = "workers",
    PutSchedule = "put_schedule",
    RemoveSchedule = "remove_schedule",
    Schedules = "schedules",
    DueSchedules = "due_schedules",
    Fire = "fire",
    CreateRuns = "create_runs",
    ClaimRuns = "claim_runs",
    CommitRuns = "commit_runs",
    SendToRuns = "send_to_runs",
    ReadRuns = "read_runs",
    ListRuns = "list_runs",
    RemoveRuns = "remove_runs",
    ReadFeed = "read_feed",
    SetFeedEvents = "set_feed_events",
    FeedEvents = "feed_events",
    Info = "info",
    Now = "now",
    Wait = "wait",
    Close = "close",
}

/// What kind of error it is, as a label: never its words, which have no bound.
pub(super) fn error_name(error: &Error) -> &'static str {
    match error {
        Error::Unavailable { .. } => "unavailable",
        Error::Unknown { .. } => "unknown",
        Error::Timeout { .. } => "timeout",
        Error::Full { .. } => "full",
        Error::Corrupt { .. } => "corrupt",
        Error::Incompatible { .. } => "incompatible",
        Error::Invalid { .. } => "invalid",
        Error::NotFound { .. } => "not_found",
        Error::LeaseLost => "lease_lost",
        Error::IllegalTransition { .. } => "illegal_transition",
        Error::Duplicate { .. } => "duplicate",
        Error::KeyTaken { .. } => "key_taken",
        Error::Limit { .. } => "limit",
        Error::RunTaken { .. } => "run_taken",
        Error::RunRefused { .. } => "run_refused",
        _ => "other",
    }
}
