//! Opaque bodies of records.

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use std::fmt;

/// JSON that the executor stores and passes on without reading it.
#[derive(Clone)]
pub struct Body(Box<RawValue>);

impl Body {
    /// Encodes `value`. Fails for values that JSON cannot hold, such as a map whose keys are not text.
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Result<Self, serde_json::Error> {
        serde_json::value::to_raw_value(value).map(Self)
    }

    /// The JSON value `null`.
    pub fn null() -> Self {
        Self(RawValue::NULL.to_owned())
    }

    /// Takes JSON text. Fails when `text` is not one JSON value.
    pub fn from_json(text: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(text).map(Self)
    }

    pub(crate) fn from_raw(raw: Box<RawValue>) -> Self {
        Self(raw)
    }

    pub(crate) fn raw(&self) -> &RawValue {
        &self.0
    }

    /// The JSON text.
    pub fn as_json(&self) -> &str {
        self.0.get()
    }

    /// The JSON text as bytes.
    pub fn to_bytes(&self) -> Bytes {
        Bytes::copy_from_slice(self.0.get().as_bytes())
    }

    /// The JSON text as bytes, without a copy.
    pub fn into_bytes(self) -> Bytes {
        Bytes::from(Box::<str>::from(self.0).into_string())
    }

    /// The length of the JSON text in bytes.
    pub fn len(&self) -> usize {
        self.0.get().len()
    }

    /// Always false: JSON text has at least one byte.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// True for the JSON value `null`.
    pub fn is_null(&self) -> bool {
        self.0.get() == "null"
    }

    /// Decodes the value.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.0.get())
    }
}

impl PartialEq for Body {
    fn eq(&self, other: &Self) -> bool {
        self.as_json() == other.as_json()
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_json())
    }
}
