//! Whether a store is whole, or some of its keys are gone.
//!
//! An interrupted slot move on a cluster leaves the keys of a store on two nodes. When the node that owned the slot dies, the
//! replica that is promoted has no record of the move, serves the keys that it has, and answers that the others do not exist.
//! A store that went on there would write the missing keys anew, and `redis-cli --cluster fix` could not merge the halves.
//!
//! There are two checks:
//!
//! - `lua/lib/whole.lua`, in every script: when `meta` has no counters, no other key may exist, but for
//!   [`WITHOUT_META`]. It costs one read, and nothing on the fast paths, which read `layout` anyway.
//! - `whole/look.lua`, on every new connection: also when `meta` exists, the containers that its counters and other
//!   containers imply must exist. Counters can be too high after damage, so none of them alone makes an index required.
//!   A half store comes with a new primary, and therefore with a new connection. In every script this would cost a read per
//!   container.

use crate::keys::{Keys, NAMES, TYPES, WITHOUT_META};
use crate::link::Value;
use crate::scripts::strip;
use std::sync::LazyLock;
use windlass_core::{Error, Result};

static LOOK: LazyLock<String> =
    LazyLock::new(|| format!("#!lua flags=no-writes\n{}", strip(include_str!("whole/look.lua"))));

/// The keys of a store that exist, and those that must exist and do not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Inventory {
    pub(crate) present: Vec<String>,
    pub(crate) missing: Vec<String>,
}

/// The words of the command that asks for an [`Inventory`].
pub(crate) fn question(keys: &Keys) -> Vec<String> {
    let count = keys.all().len().to_string();
    let mut words = vec!["EVAL".to_owned(), LOOK.clone(), count];
    words.extend(keys.all().iter().cloned());
    words.extend([NAMES.join(" "), TYPES.to_owned(), WITHOUT_META.join(" ")]);
    words
}

/// The answer. `None` from a server that cannot answer: a node that does not own the slot, a slot that is being moved, a key of
/// another type.
pub(crate) fn answer(value: Option<&Value>) -> Option<Inventory> {
    let Some(Value::Array(lists)) = value else { return None };
    let names = |value: &Value| match value {
        Value::BulkString(text) => {
            Some(String::from_utf8_lossy(text).split(' ').map(str::to_owned).collect::<Vec<_>>())
        }
        Value::SimpleString(text) => Some(text.split(' ').map(str::to_owned).collect()),
        _ => None,
    };
    let [present, missing] = lists.as_slice() else { return None };
    let without_empty = |names: Vec<String>| names.into_iter().filter(|name| !name.is_empty()).collect();
    Some(Inventory { present: without_empty(names(present)?), missing: without_empty(names(missing)?) })
}

/// Refuses a store of which keys are missing.
pub(crate) fn check(value: Option<&Value>) -> Result<()> {
    match answer(value) {
        Some(found) if !found.missing.is_empty() => Err(half(&found.missing.join(", "), &found.present.join(", "))),
        _ => Ok(()),
    }
}

/// The error for a store of which keys are missing.
pub(crate) fn half(missing: &str, present: &str) -> Error {
    Error::corrupt(format!(
        "a part of the store is missing ({missing}), while other keys of it exist ({present}); nothing was changed; an \
         interrupted slot move leaves this, and the missing keys are then on another node, or the server has evicted them; \
         `windlass doctor` lists what to do"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inventory_is_read_and_judged() {
        let texts = |present: &str, missing: &str| {
            Value::Array(vec![
                Value::BulkString(present.as_bytes().to_vec()),
                Value::BulkString(missing.as_bytes().to_vec()),
            ])
        };
        assert_eq!(check(None), Ok(()));
        assert_eq!(check(Some(&Value::Nil)), Ok(()));
        assert_eq!(check(Some(&texts("", ""))), Ok(()));
        assert_eq!(check(Some(&texts("meta jobs", ""))), Ok(()));
        let refused = check(Some(&texts("jobs ready", "meta"))).unwrap_err().to_string();
        assert!(refused.contains("(meta)") && refused.contains("(jobs, ready)"), "{refused}");
    }
}
