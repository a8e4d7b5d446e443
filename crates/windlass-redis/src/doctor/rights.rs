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
    let (needed, rest): (Vec<_>, Vec<_>) = denials.into_iter().partition(|(needed, _)| *needed);
    let named = |denials: Vec<(bool, String)>| denials.into_iter().map(|(_, name)| name).collect::<Vec<_>>().join(", ");
    if needed.is_empty() {
        let text = format!("`{user}` may do all that the store does ({})", count(questions.len() as u64, "command"));
        findings.push(Finding::ok("rights", text));
    } else {
        let text = format!("`{user}` may not run what the store needs: {}", named(needed));
        findings.push(Finding::error("rights", text).hint(ADVICE));
    }
    if !rest.is_empty() {
        let text = format!("`{user}` may not run {}, so less is known about the server", named(rest));
        findings.push(Finding::info("rights", text).hint(ADVICE));
    }
}

/// Asks as a store does that is opened: of all that the store needs, this tells what its scripts run.
async fn by_script(store: &RedisStore) -> Result<()> {
    let answer = store.caller.link.command(&rights::command(store.options())).await?;
    rights::judge(Some(answer), store.options())
}

/// Asks the server what it would say; nothing when we may not ask.
async fn dry_run(link: &Link, user: &str, questions: &[Question]) -> Option<Vec<(bool, String)>> {
    ask(link, &["ACL", "DRYRUN", user, "PING"]).await?;
    let mut denials = Vec::new();
    for question in questions {
        let words: Vec<&str> =
            ["ACL", "DRYRUN", user].into_iter().chain(question.words.iter().map(String::as_str)).collect();
        let said = ask(link, &words).await.as_ref().and_then(text);
        if let Some(said) = said.filter(|said| said != "OK") {
            denials.push((question.needed, denial(&question.words, &said)));
        }
    }
    Some(denials)
}

/// Tries each in a transaction that is not run: rights are checked when a command is queued.
async fn queued(link: &Link, questions: &[Question]) -> Option<Vec<(bool, String)>> {
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
    Some(
        said.filter_map(|(answer, question)| {
            forbidden(answer).map(|why| (question.needed, denial(&question.words, &why)))
        })
        .collect(),
    )
}

/// The server's words, when it is the rights that are missing.
fn forbidden<T>(answer: &Result<T>) -> Option<String> {
    match answer {
        Err(Error::Invalid { reason, .. }) => Some(reason.clone()),
        _ => None,
    }
}

/// What is denied: the command, or its keys or channels.
fn denial(words: &[String], said: &str) -> String {
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
