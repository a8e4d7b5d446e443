//! Payloads: bytes and what they are.

use crate::error::{Error, Result};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// The content type of JSON, the default.
pub const JSON: &str = "application/json";

/// Bytes with a content type; the stores never look inside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Payload {
    /// What the bytes are.
    pub content_type: Cow<'static, str>,
    /// The bytes.
    pub bytes: Bytes,
}

impl Payload {
    /// `value` as JSON.
    pub fn json<T: Serialize + ?Sized>(value: &T) -> Result<Self> {
        let bytes = serde_json::to_vec(value).map_err(|e| Error::invalid("payload", e.to_string()))?;
        Ok(Self { content_type: Cow::Borrowed(JSON), bytes: bytes.into() })
    }

    /// Bytes of any other type.
    pub fn new(content_type: impl Into<Cow<'static, str>>, bytes: impl Into<Bytes>) -> Self {
        Self { content_type: content_type.into(), bytes: bytes.into() }
    }

    /// Reads JSON.
    pub fn to_json<'a, T: Deserialize<'a>>(&'a self) -> Result<T> {
        serde_json::from_slice(&self.bytes).map_err(|e| Error::invalid("payload", e.to_string()))
    }

    /// Refuses what is larger than `bytes_max` or has a content type that is none.
    pub fn check(&self, field: &'static str, bytes_max: u64) -> Result<()> {
        if self.bytes.len() as u64 > bytes_max {
            return Err(Error::limit(format!("{field}, in bytes,"), bytes_max, self.bytes.len() as u64));
        }
        let text = &self.content_type;
        if text.is_empty() || text.len() > 255 || text.chars().any(char::is_control) {
            return Err(Error::invalid(
                format!("{field}.content_type"),
                "give 1 to 255 bytes without control characters, such as application/json",
            ));
        }
        Ok(())
    }
}

impl Default for Payload {
    /// JSON `null`.
    fn default() -> Self {
        Self { content_type: Cow::Borrowed(JSON), bytes: Bytes::from_static(b"null") }
    }
}
