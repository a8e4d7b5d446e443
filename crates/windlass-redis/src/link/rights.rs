//! What a user must be allowed, asked before the first call: a script that meets what is forbidden has done its first half
//! already, and nobody undoes it.

use super::command::Command;
use crate::error::{self, Refusal, incompatible, not_granted};
use crate::keys::Keys;
use crate::options::{Options, Topology};
use redis::{Cmd, Value};
use windlass_core::Result;

/// What the scripts and the store run on keys: the name, and what stands behind the key.
pub const ON_KEYS: [(&str, &[&str]); 29] = [
    ("HGET", &["f"]),
    ("HMGET", &["f"]),
    ("HGETALL", &[]),
    ("HVALS", &[]),
    ("HEXISTS", &["f"]),
    ("HSTRLEN", &["f"]),
    ("HLEN", &[]),
    ("HSCAN", &["0"]),
    ("HSET", &["f", "v"]),
    ("HDEL", &["f"]),
    ("SET", &["v"]),
    ("GET", &[]),
    ("PEXPIRE", &["1"]),
    ("LINDEX", &["0"]),
    ("LSET", &["0", "v"]),
    ("LPOP", &[]),
    ("RPUSH", &["v"]),
    ("XADD", &["*", "f", "v"]),
    ("XRANGE", &["-", "+"]),
    ("XTRIM", &["MINID", "0"]),
    ("ZADD", &["0", "m"]),
    ("ZREM", &["m"]),
    ("ZCARD", &[]),
    ("ZRANGE", &["0", "0"]),
    ("ZRANGEBYLEX", &["-", "+"]),
    ("ZREVRANGEBYLEX", &["+", "-"]),
    ("ZRANGEBYSCORE", &["0", "0"]),
    ("ZREMRANGEBYLEX", &["-", "+"]),
    ("ZLEXCOUNT", &["-", "+"]),
];

/// The sha of nothing that is there: who may run it, may run any.
pub(crate) const SOME_SHA: &str = "0000000000000000000000000000000000000000";

/// Asks for each argument, a command with a word per line, whether the user may run it, and runs none. Answers 0 for yes, 1
/// for no, 2 for a command that there is not; nothing on a server that cannot be asked. It names no key of its own, so that
/// every node of a cluster answers.
const ASK: &str = "#!lua flags=no-writes
if not redis.acl_check_cmd then return {} end
local answer = {}
for at, question in ipairs(ARGV) do
  local words = {}
  for word in string.gmatch(question, '[^\\n]+') do words[#words + 1] = word end
  local known, allowed = pcall(redis.acl_check_cmd, unpack(words))
  answer[at] = not known and 2 or allowed and 0 or 1
end
return answer";

/// A right, and the command that shows whether it is there.
struct Right {
    /// As one writes it for `ACL SETUSER`.
    rule: String,
    kind: Kind,
    words: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The keys themselves.
    Keys,
    /// A command on one of them: denied with them, too.
    OnKeys,
    Other,
}

fn rights(options: &Options) -> Vec<Right> {
    let keys = Keys::new(&options.prefix);
    let right = |rule: String, kind, words: &[&str]| Right { rule, kind, words: words.join("\n") };
    let pattern = format!("{{{}}}:*", options.prefix);
    let many = (keys.all().len() + 1).to_string();
    let head = ["EVALSHA", SOME_SHA, many.as_str(), keys.timekeeper()];
    let on_all: Vec<&str> = head.into_iter().chain(keys.all().iter().map(String::as_str)).collect();
    let mut all = vec![
        right("+evalsha".to_owned(), Kind::Other, &["EVALSHA", SOME_SHA, "0"]),
        right(format!("~{pattern}"), Kind::Keys, &on_all),
        right("+time".to_owned(), Kind::Other, &["TIME"]),
    ];
    for (name, behind) in ON_KEYS {
        let words = [&[name, keys.meta()], behind].concat();
        all.push(right(format!("+{}", name.to_lowercase()), Kind::OnKeys, &words));
    }
    let publish = match options.topology {
        Topology::Cluster { .. } => "SPUBLISH",
        Topology::Single { .. } | Topology::Sentinel { .. } => "PUBLISH",
    };
    // Which of the two it is, the server does not say.
    let rule = format!("+{} &{pattern}", publish.to_lowercase());
    all.push(right(rule, Kind::Other, &[publish, &format!("{}0", keys.bell()), "x"]));
    if options.wait_replicas.is_some() {
        all.push(right("+wait".to_owned(), Kind::Other, &["WAIT", "1", "1"]));
    }
    all
}

/// The question.
pub(super) fn question(options: &Options) -> Cmd {
    let mut cmd = redis::cmd("EVAL");
    cmd.arg(ASK).arg(0);
    for right in rights(options) {
        cmd.arg(right.words);
    }
    cmd
}

/// The same, to be sent on a link.
pub(crate) fn command(options: &Options) -> Command {
    Command(question(options))
}

/// What the answer says. One who may not even ask may not run our scripts either; a server that does not know how to answer
/// is believed.
pub(crate) fn judge(answer: Option<Value>, options: &Options) -> Result<()> {
    let said = match answer {
        Some(Value::Array(said)) => said,
        Some(Value::ServerError(error)) if error.code() == "NOPERM" => {
            return Err(match error::read(error.code(), error.details().unwrap_or("")) {
                Refusal::Final(error) => error,
                other => other.into_error(),
            });
        }
        _ => return Ok(()),
    };
    let rights = rights(options);
    let of = |number: i64| rights.iter().zip(&said).filter(move |(_, said)| **said == Value::Int(number));
    let unknown: Vec<&str> = of(2).filter_map(|(right, _)| right.words.lines().next()).collect();
    if !unknown.is_empty() {
        return Err(incompatible(format!(
            "the server does not know {}; Redis 7.0 or later is needed, with no command renamed",
            unknown.join(", ")
        )));
    }
    let no_keys = of(1).any(|(right, _)| right.kind == Kind::Keys) && !of(1).any(|(right, _)| right.rule == "+evalsha");
    let counts = |kind: Kind| if no_keys { kind != Kind::OnKeys } else { kind != Kind::Keys };
    let missing: Vec<&str> =
        of(1).filter(|(right, _)| counts(right.kind)).map(|(right, _)| right.rule.as_str()).collect();
    if missing.is_empty() { Ok(()) } else { Err(not_granted(&missing)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(options: &Options, denied: impl Fn(&Right) -> i64) -> Option<String> {
        let said = rights(options).iter().map(|right| Value::Int(denied(right))).collect();
        judge(Some(Value::Array(said)), options).err().map(|error| error.to_string())
    }

    #[test]
    fn what_is_missing_is_named_as_it_is_granted() {
        let mut options = Options::single("h", 1);
        options.wait_replicas = Some(crate::options::WaitReplicas::Count(1));
        assert_eq!(refusal(&options, |_| 0), None);
        let without = |rule: &str| refusal(&options, |right| i64::from(right.rule.starts_with(rule))).unwrap();
        assert!(without("+hset").contains("needs: +hset; "), "{}", without("+hset"));
        assert!(without("+wait").contains("+wait"));
        assert!(without("+publish").contains("+publish &{windlass}:*"));
        // Without the keys every command on them is denied: they are not the cause.
        let no_keys = refusal(&options, |right| i64::from(right.kind != Kind::Other)).unwrap();
        assert!(no_keys.contains("needs: ~{windlass}:*; "), "{no_keys}");
        let no_scripts = refusal(&options, |right| i64::from(right.words.starts_with("EVALSHA"))).unwrap();
        assert!(no_scripts.contains("needs: +evalsha; "), "{no_scripts}");
        let renamed = refusal(&options, |right| if right.rule == "+xadd" { 2 } else { 0 }).unwrap();
        assert!(renamed.contains("does not know XADD"), "{renamed}");
    }

    #[test]
    fn a_server_that_cannot_be_asked_is_believed() {
        let options = Options::single("h", 1);
        assert_eq!(judge(Some(Value::Array(Vec::new())), &options), Ok(()));
        assert_eq!(judge(None, &options), Ok(()));
    }
}
