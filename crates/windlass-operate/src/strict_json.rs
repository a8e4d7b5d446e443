//! JSON that every reader understands alike: numbers in range, bounded nesting, no key twice.

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use std::collections::HashSet;
use std::fmt;

/// Refuses text that is not JSON, and JSON that readers understand differently. The error has the line and column.
pub fn check(bytes: &[u8]) -> serde_json::Result<()> {
    serde_json::from_slice::<Visited>(bytes).map(drop)
}

/// A value that is visited and dropped. Nesting is bounded by the parser.
struct Visited;

impl<'de> Deserialize<'de> for Visited {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Check)
    }
}

struct Check;

impl<'de> Visitor<'de> for Check {
    type Value = Visited;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Visited, E> {
        Ok(Visited)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Visited, E> {
        Ok(Visited)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Visited, E> {
        Ok(Visited)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Visited, E> {
        Ok(Visited)
    }

    fn visit_str<E>(self, _: &str) -> Result<Visited, E> {
        Ok(Visited)
    }

    fn visit_unit<E>(self) -> Result<Visited, E> {
        Ok(Visited)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Visited, A::Error> {
        while items.next_element::<Visited>()?.is_some() {}
        Ok(Visited)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Visited, A::Error> {
        let mut seen = HashSet::new();
        while let Some(key) = entries.next_key::<String>()? {
            if seen.contains(&key) {
                return Err(A::Error::custom(format_args!("the key `{}` comes twice", crate::text::excerpt(&key))));
            }
            seen.insert(key);
            entries.next_value::<Visited>()?;
        }
        Ok(Visited)
    }
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn ambiguous_json_is_refused_with_its_line_and_column() {
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
