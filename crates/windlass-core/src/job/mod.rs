//! What a job is, and how it may change.

mod life;
mod machine;
mod sparse;
mod spec;
mod view;

pub use life::{Held, LastReport, Life};
pub use machine::{Event, Next, Order, Retry, State, Verb, next, targets};
pub use sparse::SparseSpec;
pub use spec::{
    Dedup, DedupBy, DedupMode, Due, JobSpec, KeepFor, LEASE_MS_MAX, LEASE_MS_MIN, METADATA_MAX, NewJob,
    PAYLOAD_BYTES_MAX, PROGRESS_BYTES_MAX, RESULT_BYTES_MAX, TIMEOUT_MS_MAX, TraceContext,
};
pub use view::{
    FAILURE_DETAIL_BYTES_MAX, FAILURES_MAX, Failure, FailureClass, Job, JobSummary, Lease, LeaseView, Progress,
};
