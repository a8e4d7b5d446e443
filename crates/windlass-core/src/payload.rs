//! Payloads: bytes and what they are.

use crate::error::{Error, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use serde::de::Error as _;
use serde::ser::SerializeStruct;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use std::borrow::Cow;

/// The content type of JSON, the default.
pub const JSON: &str = "application/json";

/// Bytes with a content type; the stores never look inside.
///
/// In JSON it is an object. A JSON payload stands inline and byte for byte in its member `json`; other bytes stand in `base64`,
/// with their `content_type` beside them: `{"json":{"to":"ann"}}`, `{"content_type":"image/png","base64":"iVBO…"}`.
#[derive(Clone, Debug, PartialEq, Eq)]
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

impl Payload {
    /// The bytes as JSON text, where they are JSON and nothing else: no blanks around it.
    fn inline(&self) -> Option<&RawValue> {
        let is_json = self.content_type == JSON;
        let raw: &RawValue = serde_json::from_slice(&self.bytes).ok().filter(|_| is_json)?;
        (raw.get().len() == self.bytes.len()).then_some(raw)
    }
}

impl Serialize for Payload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut form = serializer.serialize_struct("Payload", 2)?;
        if self.content_type == JSON {
            form.skip_field("content_type")?;
        } else {
            form.serialize_field("content_type", &self.content_type)?;
        }
        match self.inline() {
            Some(json) => form.serialize_field("json", json)?,
            None => form.serialize_field("base64", &BASE64.encode(&self.bytes))?,
        }
        form.end()
    }
}

/// What a payload is read from. `bytes` is the form that schedules were stored in before `json` and `base64`.
#[derive(Deserialize)]
struct Form {
    content_type: Option<String>,
    #[serde(default, deserialize_with = "some_json")]
    json: Option<Box<RawValue>>,
    base64: Option<String>,
    bytes: Option<Bytes>,
}

/// A member that is `null` is JSON like any other.
fn some_json<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Form { content_type, json, base64, bytes } = Form::deserialize(deserializer)?;
        let bytes = match (json, base64, bytes) {
            (Some(json), None, None) => Bytes::from(Box::<str>::from(json).into_string()),
            (None, Some(text), None) => {
                let bytes = BASE64.decode(text);
                bytes.map_err(|error| D::Error::custom(format_args!("base64 of a payload: {error}")))?.into()
            }
            (None, None, Some(bytes)) => bytes,
            (None, None, None) => Self::default().bytes,
            _ => return Err(D::Error::custom("a payload has either `json` or `base64`")),
        };
        let content_type = match content_type {
            Some(text) if text != JSON => Cow::Owned(text),
            _ => Cow::Borrowed(JSON),
        };
        Ok(Self { content_type, bytes })
    }
}
