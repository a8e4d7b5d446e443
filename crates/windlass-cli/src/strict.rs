//! JSON that every handler can read: no number beyond reach, no nesting beyond measure, no key twice.

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use std::collections::HashSet;
use std::fmt;

/// Refuses what is not JSON, or is JSON that readers disagree about. The error says where.
pub(crate) fn check(bytes: &[u8]) -> serde_json::Result<()> {
    serde_json::from_slice::<Anything>(bytes).map(drop)
}

/// Looks at everything and keeps nothing. Nesting is bounded by the parser.
struct Anything;

impl<'de> Deserialize<'de> for Anything {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Look)
    }
}

struct Look;

impl<'de> Visitor<'de> for Look {
    type Value = Anything;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Anything, E> {
        Ok(Anything)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Anything, E> {
        Ok(Anything)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Anything, E> {
        Ok(Anything)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Anything, E> {
        Ok(Anything)
    }

    fn visit_str<E>(self, _: &str) -> Result<Anything, E> {
        Ok(Anything)
    }

    fn visit_unit<E>(self) -> Result<Anything, E> {
        Ok(Anything)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Anything, A::Error> {
        while items.next_element::<Anything>()?.is_some() {}
        Ok(Anything)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Anything, A::Error> {
        let mut seen = HashSet::new();
        while let Some(key) = entries.next_key::<String>()? {
            if seen.contains(&key) {
                return Err(A::Error::custom(format_args!(
                    "the key `{}` comes twice",
                    windlass_operate::text::excerpt(&key)
                )));
            }
            seen.insert(key);
            entries.next_value::<Anything>()?;
        }
        Ok(Anything)
    }
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn what_readers_disagree_about_is_refused_and_the_place_is_named() {
        for good in ["null", "[]", r#"{"a":{"a":1},"b":[1.5,-2,"\u00e9",true]}"#, "18446744073709551615"] {
            check(good.as_bytes()).unwrap();
        }
        let deep = "[".repeat(100_000);
        for (bad, word) in [
            ("", "EOF"),
            ("{", "EOF"),
            ("1e400", "out of range"),
            ("{\"a\":1,\n\"a\":2}", "comes twice at line 2"),
            (r#""\ud800""#, "hex escape"),
            ("[1] 2", "trailing"),
            (&deep, "recursion limit"),
        ] {
            let error = check(bad.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
        assert!(check(b"\"\xff\"").is_err());
    }
}
