//! Whether the feed and its counter agree: a change that was stopped half-way has told of itself and not counted it, and
//! from then on the server refuses every entry.

use super::Finding;
use crate::link::{Call, Script};
use crate::reply::Items;
use crate::store::RedisStore;
use std::sync::LazyLock;
use windlass_core::Result;

/// In one atomic step, so that a store at work shows nothing that is not there. Answers how many entries the counter does
/// not know, then the number of the last one and of the events with it.
static AHEAD: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "doctor_feed",
        "#!lua flags=no-writes
local from, seen, last, events = (redis.call('HGET', KEYS[1], 'feed') or '0') .. '-0', 0, '0', '0'
for _ = 1, 100 do
  local page = redis.call('XRANGE', KEYS[2], '(' .. from, '+', 'COUNT', 100)
  if #page == 0 then break end
  from, events = page[#page][1], page[#page][2][2]
  seen, last = seen + #page, string.match(from, '^%d+')
end
return { tostring(seen), last, events }",
    )
});

pub(super) async fn look(store: &RedisStore, findings: &mut Vec<Finding>) -> Result<()> {
    let keys = &store.caller.keys;
    let call = Call::new(&AHEAD, &[keys.meta(), keys.feed()]);
    let mut items = Items::of(store.caller.link.call(&call).await?)?;
    let (ahead, last, events) = (items.number()?, items.number()?, items.number()?);
    if ahead > 0 {
        let text = format!(
            "the feed is {} ahead of its counter, so every change is refused: one was stopped half-way",
            super::sizes::entries(ahead)
        );
        findings.push(Finding::error("feed", text).hint(format!(
            "grant what is missing first; then redis-cli HSET '{}' feed {last} events {events}, and windlass doctor --deep \
             for what else does not fit",
            keys.meta()
        )));
    }
    Ok(())
}
