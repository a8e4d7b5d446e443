//! The JSON form of the contract's values, where it is not the one that serde derives.
//!
//! JSON payloads stand inline, byte for byte; other bytes are base64. Log text is a string where it is UTF-8. Marks and cursors
//! are strings, because they may exceed the integers that every JSON reader keeps exactly.

use crate::error::{Error, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// `value` as JSON.
pub(super) fn to_json<T: Serialize>(what: &'static str, value: &T) -> Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(|error| Error::invalid(what, error.to_string()))
}

/// Reads JSON and refuses fields that `T` does not have.
pub(super) fn from_json_strict<T: DeserializeOwned>(what: &'static str, text: &[u8]) -> Result<T> {
    let mut unknown = None;
    let mut json = serde_json::Deserializer::from_slice(text);
    let read = serde_ignored::deserialize(&mut json, |path| {
        unknown.get_or_insert_with(|| path.to_string());
    });
    let value = read.and_then(|value| json.end().map(|()| value));
    let value = value.map_err(|error| Error::invalid(what, error.to_string()))?;
    match unknown {
        // Optional values stand in the path as a question mark.
        Some(path) => Err(Error::invalid(path.replace(".?", ""), "is not a field that this version has; leave it out")),
        None => Ok(value),
    }
}

fn to_base64<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&base64::display::Base64Display::new(bytes, &BASE64))
}

fn from_base64<E: serde::de::Error>(text: &str) -> Result<Bytes, E> {
    BASE64.decode(text).map(Bytes::from).map_err(|error| E::custom(format_args!("no base64: {error}")))
}

/// Bytes as a base64 string.
#[derive(Deserialize, Serialize)]
#[serde(transparent)]
struct Base64(#[serde(with = "base64_bytes")] Bytes);

/// A field of bytes: a base64 string.
pub(super) mod base64_bytes {
    use super::*;

    pub(in crate::store) fn serialize<S: Serializer>(bytes: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
        to_base64(bytes, serializer)
    }

    pub(in crate::store) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
        from_base64(&String::deserialize(deserializer)?)
    }
}

/// A field of bytes that may be absent.
pub(super) mod base64_option {
    use super::*;

    pub(in crate::store) fn serialize<S: Serializer>(bytes: &Option<Bytes>, serializer: S) -> Result<S::Ok, S::Error> {
        bytes.clone().map(Base64).serialize(serializer)
    }

    pub(in crate::store) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Bytes>, D::Error> {
        Ok(Option::<Base64>::deserialize(deserializer)?.map(|Base64(bytes)| bytes))
    }
}

/// A list of bytes: base64 strings.
pub(super) mod base64_list {
    use super::*;

    pub(in crate::store) fn serialize<S: Serializer>(list: &[Bytes], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(list.iter().cloned().map(Base64))
    }

    pub(in crate::store) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Bytes>, D::Error> {
        Ok(Vec::<Base64>::deserialize(deserializer)?.into_iter().map(|Base64(bytes)| bytes).collect())
    }
}

/// 16 bytes as 32 hexadecimal digits.
pub(super) mod hash {
    use super::*;

    pub(in crate::store) fn serialize<S: Serializer>(hash: &[u8; 16], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:032x}", u128::from_be_bytes(*hash)))
    }

    pub(in crate::store) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[u8; 16], D::Error> {
        let text = String::deserialize(deserializer)?;
        let bits = u128::from_str_radix(&text, 16).ok().filter(|_| text.len() == 32 && !text.starts_with('+'));
        bits.map(u128::to_be_bytes).ok_or_else(|| D::Error::custom("a hash is 32 hexadecimal digits"))
    }
}

/// A number that may exceed 2⁵³, as a string. A number is read as well.
pub(super) mod large_number {
    use super::*;

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Read {
        Text(String),
        Number(u64),
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
    pub(in crate::store) fn serialize<S: Serializer>(number: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(number)
    }

    pub(in crate::store) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        match Read::deserialize(deserializer)? {
            Read::Number(number) => Ok(number),
            Read::Text(text) => {
                text.parse().map_err(|_| D::Error::custom(format_args!("`{}` is no number", text.escape_debug())))
            }
        }
    }
}

/// Text that need not be UTF-8: a string, or `{"base64": "…"}` where it is none.
pub(super) mod text {
    use super::*;

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Read {
        Text(String),
        Bytes { base64: Base64 },
    }

    pub(in crate::store) fn serialize<S: Serializer>(text: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Encoded {
            base64: Base64,
        }
        match std::str::from_utf8(text) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => Encoded { base64: Base64(text.clone()) }.serialize(serializer),
        }
    }

    pub(in crate::store) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
        Ok(match Read::deserialize(deserializer)? {
            Read::Text(text) => text.into(),
            Read::Bytes { base64: Base64(bytes) } => bytes,
        })
    }
}

/// Answers per item: `{"ok": …}` or `{"error": …}` for each.
pub(super) mod items {
    use super::*;

    #[derive(Deserialize, Serialize)]
    #[serde(rename_all = "snake_case")]
    enum Item<T, E> {
        Ok(T),
        Error(E),
    }

    pub(in crate::store) fn serialize<S: Serializer, T: Serialize>(
        items: &[Result<T>],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(items.iter().map(|item| match item {
            Ok(answer) => Item::Ok(answer),
            Err(error) => Item::Error(error),
        }))
    }

    pub(in crate::store) fn deserialize<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
        deserializer: D,
    ) -> Result<Vec<Result<T>>, D::Error> {
        let items = Vec::<Item<T, Error>>::deserialize(deserializer)?;
        let result = |item| match item {
            Item::Ok(answer) => Ok(answer),
            Item::Error(error) => Err(error),
        };
        Ok(items.into_iter().map(result).collect())
    }
}

/// Pairs as a list of objects with a name and a value.
pub(super) mod named_values {
    use super::*;

    #[derive(Deserialize, Serialize)]
    struct NamedValue<T> {
        name: T,
        value: T,
    }

    pub(in crate::store) fn serialize<S: Serializer>(
        pairs: &[(String, String)],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(pairs.iter().map(|(name, value)| NamedValue { name, value }))
    }

    pub(in crate::store) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<(String, String)>, D::Error> {
        let pairs = Vec::<NamedValue<String>>::deserialize(deserializer)?;
        Ok(pairs.into_iter().map(|pair| (pair.name, pair.value)).collect())
    }
}

/// Lines of a log, each with the attempt that wrote it.
pub(super) mod attempt_lines {
    use super::*;
    use crate::store::{LogLine, LogStream};
    use crate::time::Timestamp;

    #[derive(Deserialize, Serialize)]
    struct AttemptLine {
        attempt: u32,
        at: Timestamp,
        stream: LogStream,
        #[serde(with = "super::text")]
        text: Bytes,
    }

    pub(in crate::store) fn serialize<S: Serializer>(
        lines: &[(u32, LogLine)],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(lines.iter().cloned().map(|(attempt, LogLine { at, stream, text })| AttemptLine {
            attempt,
            at,
            stream,
            text,
        }))
    }

    pub(in crate::store) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<(u32, LogLine)>, D::Error> {
        let lines = Vec::<AttemptLine>::deserialize(deserializer)?;
        let pair = |AttemptLine { attempt, at, stream, text }| (attempt, LogLine { at, stream, text });
        Ok(lines.into_iter().map(pair).collect())
    }
}
