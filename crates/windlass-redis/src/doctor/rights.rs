//! What the user may not do: every command that the store sends, itself or from its scripts, is tried without being run.

use super::ask::{ask, command, text};
use super::{Finding, count};
use crate::link::Link;
use crate::link::rights::{self, ON_KEYS, SOME_SHA};
use crate::options::Topology;
use crate::store::RedisStore;
use windlass_core::{Error, Result};

/// What only an examination runs: without it, less is known, and nothing else is amiss.
const FOR_THE_DOCTOR: [(&str, &[&str]); 6] = [
    ("ZSCORE", &["m"]),
    ("ZSCAN", &["0"]),
    ("ZCOUNT", &["0", "0"]),
    ("XLEN", &[]),
    ("LLEN", &[]),
    ("MEMORY|USAGE", &[]),
];

const ADVICE: &str = "grant what is missing with ACL SETUSER; docs/redis.md has the whole line";

struct Question {
    words: Vec<String>,
    /// The store does not work without it.
    needed: bool,
}

fn question(needed: bool, words: &[&str]) -> Question {
    Question { words: words.iter().map(|word| (*word).to_owned()).collect(), needed }
}

fn questions(store: &RedisStore) -> Vec<Question> {
    let (keys, options) = (store.caller.keys.all(), store.options());
    let first = keys.first().map_or("", String::as_str);
    let mut all = vec![
        question(true, &["PING"]),
        question(true, &["TIME"]),
        question(true, &["SCRIPT", "LOAD", "return 1"]),
        question(true, &["SCRIPT", "EXISTS", SOME_SHA]),
        question(true, &["XREAD", "STREAMS", store.caller.keys.feed(), "0"]),
    ];
    for name in ["EVALSHA", "EVAL"] {
        // All keys: one that is not allowed is named.
        let many = keys.len().to_string();
        let head = [name, SOME_SHA, &many];
        all.push(question(true, &head.into_iter().chain(keys.iter().map(String::as_str)).collect::<Vec<_>>()));
    }
    for (name, behind) in ON_KEYS {
        all.push(question(true, &[&[name, first], behind].concat()));
    }
    for (name, behind) in FOR_THE_DOCTOR {
        let head: Vec<&str> = name.split('|').chain([first]).collect();
        all.push(question(false, &[&head, behind].concat()));
    }
    let channel = format!("{}0", store.caller.keys.bell());
    let bells = match options.topology {
        Topology::Cluster { .. } => ["SPUBLISH", "SSUBSCRIBE"],
        Topology::Single { .. } | Topology::Sentinel { .. } => ["PUBLISH", "SUBSCRIBE"],
    };
    all.push(question(true, &[bells[0], &channel, ""]));
    all.push(question(true, &[bells[1], &channel]));
    if matches!(options.topology, Topology::Cluster { .. }) {
        all.push(question(true, &["CLUSTER", "SLOTS"]));
        all.push(question(true, &["ASKING"]));
        all.push(question(false, &["CLUSTER", "INFO"]));
        all.push(question(false, &["CLUSTER", "NODES"]));
    }
    if options.wait_replicas.is_some() {
        all.push(question(true, &["WAIT", "1", "1"]));
    }
    all.push(question(false, &["CONFIG", "GET", "appendfsync"]));
    all.push(question(false, &["SLOWLOG", "GET", "128"]));
    all
}

pub(super) async fn look(store: &RedisStore, findings: &mut Vec<Finding>) {
    let questions = questions(store);
    let user = store.options().username.as_deref().unwrap_or("default");
    let denials = match dry_run(&store.caller.link, user, &questions).await {
        Some(denials) => denials,
        None => match queued(&store.caller.link, &questions).await {
            Some(denials) => denials,
            None => {
                if let Err(Error::Invalid { reason, .. }) = by_script(store).await {
                    findings.push(Finding::error("rights", reason).hint(ADVICE));
                    return;
                }
                findings.push(
                    Finding::info("rights", format!("what `{user}` may do is not known: it may neither ask nor try"))
                        .hint("grant +acl|dryrun, or +multi and +discard, for an examination"),
                );
                return;
            }
        },
    };
    let named = |needed: bool, absent: bool| {
        let of = denials.iter().filter(|one| one.needed == needed && one.absent == absent);
        let names: Vec<&str> = of.map(|one| one.name.as_str()).collect();
        (!names.is_empty()).then(|| names.join(", "))
    };
    let (missing, forbidden) = (named(true, true), named(true, false));
    if missing.is_none() && forbidden.is_none() {
        let text = format!("`{user}` may do all that the store does ({})", count(questions.len() as u64, "command"));
        findings.push(Finding::ok("rights", text));
    }
    if let Some(names) = missing {
        let text = format!("the server does not have what the store needs: {names}");
        findings.push(
            Finding::error("rights", text).hint("use another server: docs/redis-managed.md lists what is needed"),
        );
    }
    if let Some(names) = forbidden {
        let text = format!("`{user}` may not run what the store needs: {names}");
        findings.push(Finding::error("rights", text).hint(ADVICE));
    }
    if let Some(names) = named(false, false) {
        let text = format!("`{user}` may not run {names}, so less is known about the server");
        findings.push(Finding::info("rights", text).hint(ADVICE));
    }
    if let Some(names) = named(false, true) {
        let text = format!("the server does not have {names}, so less is known about it; the store does not need them");
        findings.push(Finding::info("rights", text).hint("docs/redis-managed.md says what is not known then"));
    }
}

/// A command that the user may not run, or that the server does not have.
struct Denial {
    /// The store does not work without it.
    needed: bool,
    /// The server does not have it.
    absent: bool,
    name: String,
}

/// Asks as a store does that is opened: of all that the store needs, this tells what its scripts run.
async fn by_script(store: &RedisStore) -> Result<()> {
    let answer = store.caller.link.command(&rights::command(store.options())).await?;
    rights::judge(Some(answer), store.options())
}

/// Asks the server what it would say; nothing when we may not ask.
async fn dry_run(link: &Link, user: &str, questions: &[Question]) -> Option<Vec<Denial>> {
    ask(link, &["ACL", "DRYRUN", user, "PING"]).await?;
    let mut denials = Vec::new();
    for question in questions {
        let words: Vec<&str> =
            ["ACL", "DRYRUN", user].into_iter().chain(question.words.iter().map(String::as_str)).collect();
        let (absent, said) = match link.command(&command(&words)).await {
            Ok(said) => (false, text(&said).unwrap_or_default()),
            // "Command 'config' not found"
            Err(error) => (error.to_string().contains("not found"), String::new()),
        };
        if absent || !matches!(said.as_str(), "OK" | "") {
            denials.push(Denial { needed: question.needed, absent, name: denied_name(&question.words, &said) });
        }
    }
    Some(denials)
}

/// Tries each in a transaction that is not run: rights are checked when a command is queued.
async fn queued(link: &Link, questions: &[Question]) -> Option<Vec<Denial>> {
    // Without these two, what follows would be run.
    let trial = link.commands(&[command(&["MULTI"]), command(&["DISCARD"])]).await.ok()?;
    if trial.iter().any(Result::is_err) {
        return None;
    }
    let words = |question: &Question| command(&question.words.iter().map(String::as_str).collect::<Vec<_>>());
    let mut all = vec![command(&["MULTI"])];
    all.extend(questions.iter().map(words));
    all.push(command(&["DISCARD"]));
    let answers = link.commands(&all).await.ok()?;
    let said = answers.iter().skip(1).zip(questions);
    let denials = said.filter_map(|(answer, question)| {
        let (absent, said) = match answer {
            Err(Error::Invalid { reason, .. }) => (false, reason.as_str()),
            Err(Error::Incompatible { .. }) => (true, ""),
            _ => return None,
        };
        Some(Denial { needed: question.needed, absent, name: denied_name(&question.words, said) })
    });
    Some(denials.collect())
}

/// What is denied: the command, or its keys or channels.
fn denied_name(words: &[String], said: &str) -> String {
    let name = match words {
        [first, second, ..] if matches!(first.as_str(), "SCRIPT" | "CLUSTER" | "CONFIG" | "SLOWLOG" | "MEMORY") => {
            format!("{first} {second}")
        }
        [first, ..] => first.clone(),
        [] => String::new(),
    };
    // Redis 7.0 says "access a key", later ones name it.
    if said.contains(" key") {
        format!("{name} on a key of the store")
    } else if said.contains(" channel") {
        format!("{name} on a channel of the store")
    } else {
        name
    }
}
