//! The rarely used fields of a spec, as stores keep them: those that have their default are left out.

use super::spec::{Dedup, JobSpec, KeepFor, TraceContext};
use crate::error::{Error, Result};
use crate::name::{CustomId, GroupName};
use crate::retry::RetryPolicy;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The fields of a [`JobSpec`] that most jobs leave at their defaults. A store that keeps one of them elsewhere sets it to
/// `None` here.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "these are fields of `JobSpec`")]
pub struct SparseSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<GroupName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_cap: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub custom_id: Option<CustomId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heartbeat_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryPolicy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dedup: Option<Dedup>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_for: Option<KeepFor>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceContext>,
    /// Fields that this version has not written. A store decides whether that is damage.
    #[serde(flatten)]
    pub unknown: BTreeMap<String, serde_json::Value>,
}

impl SparseSpec {
    /// The rarely used fields of a spec.
    pub fn of(spec: &JobSpec) -> Self {
        Self {
            group: spec.group.clone(),
            group_cap: spec.group_cap,
            custom_id: spec.custom_id.clone(),
            timeout_ms: spec.timeout_ms,
            heartbeat_ms: spec.heartbeat_ms,
            retry: (spec.retry != RetryPolicy::default()).then(|| spec.retry.clone()),
            dedup: spec.dedup.clone(),
            keep_for: Some(spec.keep_for).filter(|keep| *keep != KeepFor::default()),
            metadata: spec.metadata.clone(),
            trace: spec.trace.clone(),
            unknown: BTreeMap::new(),
        }
    }

    /// As JSON without a line end; `None` when every field has its default, which is the usual case.
    pub fn to_json(&self) -> Result<Option<String>> {
        if *self == Self::default() {
            return Ok(None);
        }
        serde_json::to_string(self).map(Some).map_err(|error| Error::corrupt(error.to_string()))
    }

    /// A spec with these fields, and the rest of `spec`.
    pub fn complete(self, spec: JobSpec) -> JobSpec {
        JobSpec {
            group: self.group.or(spec.group),
            group_cap: self.group_cap.or(spec.group_cap),
            custom_id: self.custom_id,
            timeout_ms: self.timeout_ms,
            heartbeat_ms: self.heartbeat_ms,
            retry: self.retry.unwrap_or_default(),
            dedup: self.dedup,
            keep_for: self.keep_for.unwrap_or(spec.keep_for),
            metadata: self.metadata,
            trace: self.trace,
            ..spec
        }
    }
}
