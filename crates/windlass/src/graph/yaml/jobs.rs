//! The jobs of a workflow file.

use super::artifacts;
use super::commands;
use super::draw::Problem;
use super::fields::{Fields, Reader};
use super::matrix::read_strategy;
use super::names::{Columns, Names};
use super::splice::{Part, splice};
use super::tree::{Key, Tree, Value};
use super::uploads;
use super::uses;
use crate::graph::builder::bare_node;
use serde_json::{Value as Json, json};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;
use windlass_core::graph::{Accepts, Fault, Graph, Matrix, NODES_MAX, Need, Node, NodeJob, Source, Work};
use windlass_core::name::{Kind, QueueName, nearest};
use windlass_core::retry::RetryPolicy;
use windlass_core::store::DEFINITION_BYTES_MAX;

pub(super) const KEYS: [&str; 22] = [
    "name",
    "needs",
    "if",
    "run",
    "steps",
    "kind",
    "with",
    "labels",
    "retries",
    "retry",
    "timeout",
    "strategy",
    "env",
    "outputs",
    "queue",
    "priority",
    "continue-on-error",
    "working-directory",
    "shell",
    "artifacts",
    "concurrency",
    "uses",
];
/// What a job may say that is another workflow.
const USES_KEYS: [&str; 6] = ["name", "needs", "if", "uses", "with", "continue-on-error"];
/// What a job may do, beside using a workflow.
const WAYS: [&str; 3] = ["run", "steps", "kind"];

/// The kind of jobs that run commands.
pub(super) const COMMAND_KIND: &str = "windlass.command";
/// The queue of jobs that name none.
const QUEUE: &str = "default";
/// Needs that are looked through for one that comes twice.
const FEW: usize = 16;
/// The longest wait between two attempts, where nobody says.
const RETRY_CAP_MS: u64 = 3_600_000;

/// What all jobs of a file share.
struct Shared<'s> {
    places: HashMap<&'s str, usize>,
    inputs: &'s BTreeSet<String>,
    queue: Option<&'s QueueName>,
}

/// Reads the jobs: nodes, and where each says what it needs.
pub(super) fn read(
    reader: &Reader<'_>,
    tree: &Tree<'_>,
    inputs: &BTreeSet<String>,
    queue: Option<&QueueName>,
) -> Option<(Vec<Node>, Vec<Range<usize>>)> {
    let entries = reader.map(tree)?;
    let places = entries.iter().enumerate().map(|(at, (key, _))| (key.text.as_ref(), at)).collect();
    let shared = Shared { places, inputs, queue };
    let mut parts = Vec::with_capacity(entries.len());
    let mut spans = Vec::with_capacity(entries.len());
    // What each needs, where that could be read.
    let mut needed = Vec::with_capacity(entries.len());
    let (mut size, mut bytes) = (0, 0_usize);
    for (key, tree) in entries {
        if reader.is_full() {
            return None;
        }
        check_id(reader, &key.text, &key.span, "a job");
        spans.push(key.span.clone());
        needed.push(Vec::new());
        let Some(fields) = reader.fields(tree, "a job", &KEYS) else { continue };
        if let (Some(span), Some(tree)) = (spans.last_mut(), fields.get("needs")) {
            *span = tree.span.clone();
        }
        let needs = fields.get("needs").map_or_else(|| Some(Vec::new()), |tree| read_needs(reader, &shared, tree));
        if let (Some(last), Some(needs)) = (needed.last_mut(), &needs) {
            last.extend(needs.iter().map(|(_, need)| *need));
        }
        let Some(part) = read_job(reader, &shared, (key, needs), &fields) else { continue };
        size += part.size();
        if size > NODES_MAX && part.size() > 1 {
            let message = format!("with this one the workflow has {size} jobs, and {NODES_MAX} are allowed");
            reader.say(Problem::new(key.span.clone(), message));
            return None;
        }
        bytes = bytes.saturating_add(part.bytes());
        if bytes > DEFINITION_BYTES_MAX {
            let message = format!("with this one the workflow comes to more than {DEFINITION_BYTES_MAX} bytes");
            reader.say(Problem::new(key.span.clone(), message).help("put large texts into files that the jobs read"));
            return None;
        }
        parts.push(part);
    }
    if parts.len() == entries.len() {
        return Some(splice(parts, spans));
    }
    // With one that cannot be read, places would be those of others; but circles are seen.
    let node = |((key, _), needs): (&(Key<'_>, _), Vec<Need>)| Node {
        needs,
        ..bare_node(key.text.to_string(), Work::Join { outputs: BTreeMap::new() })
    };
    let nodes = entries.iter().zip(needed).map(node).collect();
    let graph = Graph { name: String::new(), nodes, env: BTreeMap::new(), timeout_ms: None };
    if let Err(fault) = graph.order() {
        say_fault(reader, &fault, &spans, &tree.span);
    }
    None
}

/// Says what is wrong with a graph as a whole, where it is known to be; otherwise `elsewhere`.
pub(super) fn say_fault(reader: &Reader<'_>, fault: &Fault, places: &[Range<usize>], elsewhere: &Range<usize>) {
    let at = match fault {
        Fault::Cycle { nodes, .. } => nodes.last().and_then(|&node| places.get(node)),
        _ => None,
    };
    reader.say(Problem::new(at.unwrap_or(elsewhere).clone(), fault.to_string()));
}

/// Names of jobs, of artifacts and of outputs.
pub(super) fn check_id(reader: &Reader<'_>, text: &str, span: &Range<usize>, what: &str) {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let begins = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if !begins || !text.chars().all(fits) || text.len() > 100 {
        let help = "begin with a letter, go on with letters, digits, - and _, at most 100";
        reader.say(Problem::new(span.clone(), format!("`{text}` is no name for {what}")).help(help));
    }
}

fn read_job(
    reader: &Reader<'_>,
    shared: &Shared<'_>,
    (key, needs): (&Key<'_>, Option<Needs<'_>>),
    fields: &Fields<'_>,
) -> Option<Part> {
    let (matrix, columns) = match fields.get("strategy") {
        Some(tree) => {
            read_strategy(reader, tree).map_or((None, Columns::Unknown), |(matrix, columns)| (Some(matrix), columns))
        }
        None => (None, Columns::None),
    };
    let needed: Vec<&str> = needs.iter().flatten().map(|(name, _)| *name).collect();
    let before = Names { needs: &needed, inputs: shared.inputs, matrix: Columns::None, jobs: None };
    let condition = fields.get("if").and_then(|tree| {
        let expr = reader.expr(tree)?;
        before.check(reader, tree, &expr, 0);
        Some(expr)
    });
    if let Some(Matrix { source: Source::From(expr), .. }) = &matrix
        && let Some(tree) =
            fields.get("strategy").and_then(|tree| reader.map(tree)?.iter().find(|(key, _)| key.text == "matrix"))
    {
        before.check(reader, &tree.1, expr, 0);
    }
    let names = Names { needs: &needed, inputs: shared.inputs, matrix: columns, jobs: None };
    for name in ["with", "env", "labels", "artifacts", "concurrency", "working-directory", "shell"] {
        if let Some(tree) = fields.get(name) {
            names.check_all(reader, tree);
        }
    }
    if let (Some(matrix), Some(tree)) = (&matrix, fields.get("artifacts")) {
        uploads::check_rows(reader, tree, matrix);
    }
    let env = fields.get("env").and_then(|tree| reader.env(tree)).unwrap_or_default();
    let title = fields.get("name").and_then(|tree| reader.text(tree)).map(str::to_owned);
    let forgiven = fields.get("continue-on-error").and_then(|tree| reader.bool(tree)).unwrap_or(false);
    let (work, inner) = match fields.get("uses") {
        Some(tree) => {
            let used = read_uses(reader, shared, key, fields, tree)?;
            (Work::Gate { inputs: used.inputs }, Some(used.workflow))
        }
        None => (Work::Job(Box::new(read_work(reader, shared, key, fields, &names)?)), None),
    };
    let node = Node {
        id: key.text.to_string(),
        title,
        needs: needs?.into_iter().map(|(_, need)| need).collect(),
        condition,
        matrix,
        continue_on_error: forgiven,
        inside: None,
        entrance: None,
        env,
        work,
    };
    Some(Part { node, inner })
}

fn read_uses(
    reader: &Reader<'_>,
    shared: &Shared<'_>,
    key: &Key<'_>,
    fields: &Fields<'_>,
    tree: &Tree<'_>,
) -> Option<uses::Used> {
    for (name, span) in fields.names().filter(|(name, _)| KEYS.contains(name) && !USES_KEYS.contains(name)) {
        let message = format!("`{name}` is not for a job that uses a workflow");
        let help = match name {
            "run" | "steps" | "kind" => format!("make it a job of its own beside `{}`", key.text),
            _ => "say it in that file, for the jobs it is meant for".to_owned(),
        };
        reader.say(Problem::new(span, message).help(help));
    }
    uses::read(reader, tree, fields.get("with"), shared.queue)
}

type Needs<'y> = Vec<(&'y str, Need)>;

fn read_needs<'y>(reader: &Reader<'_>, shared: &Shared<'_>, tree: &'y Tree<'y>) -> Option<Needs<'y>> {
    let mut needs = Vec::new();
    let find = |name: &str, span: &Range<usize>| {
        let place = shared.places.get(name).copied();
        if place.is_none() {
            let near = nearest(name, shared.places.keys().copied()).map(|near| format!("did you mean `{near}`?"));
            reader.say(Problem { help: near, ..Problem::new(span.clone(), format!("there is no job `{name}`")) });
        }
        place
    };
    if let Value::Map(map) = &tree.value {
        for (key, accepted) in map.iter() {
            let node = find(&key.text, &key.span)?;
            needs.push((key.text.as_ref(), Need { node, accepts: read_accepts(reader, accepted)? }));
        }
    } else {
        for (name, tree) in reader.texts(tree)? {
            needs.push((name, Need { node: find(name, &tree.span)?, accepts: Accepts::default() }));
        }
    }
    if let Some(name) = twice(&needs) {
        return reader.refuse(tree, &format!("`{name}` is needed twice"), "once is enough");
    }
    Some(needs)
}

/// The first name that comes a second time.
fn twice<'y>(needs: &Needs<'y>) -> Option<&'y str> {
    let mut names = needs.iter().map(|(name, _)| *name);
    if needs.len() <= FEW {
        let known = |at: usize, name: &str| needs[..at].iter().any(|(known, _)| *known == name);
        return names.enumerate().find(|(at, name)| known(*at, name)).map(|(_, name)| name);
    }
    let mut seen = HashSet::with_capacity(needs.len());
    names.find(|name| !seen.insert(*name))
}

fn read_accepts(reader: &Reader<'_>, tree: &Tree<'_>) -> Option<Accepts> {
    if tree.is_nothing() {
        return Some(Accepts::default());
    }
    let mut accepts = Accepts { succeeded: false, failed: false, skipped: false, cancelled: false };
    for (word, tree) in reader.texts(tree)? {
        match word {
            "succeeded" => accepts.succeeded = true,
            "failed" => accepts.failed = true,
            "skipped" => accepts.skipped = true,
            "cancelled" => accepts.cancelled = true,
            "any" => accepts = Accepts::ANY,
            _ => {
                return reader.refuse(
                    tree,
                    "a job does not end like this",
                    "write succeeded, failed, skipped, cancelled or any",
                );
            }
        }
    }
    Some(accepts)
}

fn read_work(
    reader: &Reader<'_>,
    shared: &Shared<'_>,
    key: &Key<'_>,
    fields: &Fields<'_>,
    names: &Names<'_>,
) -> Option<NodeJob> {
    // One that does nothing may have other faults.
    let does = read_way(reader, key, fields, names);
    let queue =
        fields.get("queue").and_then(|tree| reader.name::<QueueName, _>(tree)).or_else(|| shared.queue.cloned());
    let (attempts, retry) = read_retries(reader, fields);
    let labels = fields.get("labels").map_or_else(
        || Some(Vec::new()),
        |tree| reader.texts(tree)?.into_iter().map(|(_, tree)| reader.template(tree)).collect(),
    );
    let (group, group_max) =
        fields.get("concurrency").and_then(|tree| artifacts::read_concurrency(reader, tree)).unzip();
    let priority = fields.get("priority").and_then(|tree| reader.whole(tree, i64::from(i16::MIN), i64::from(i16::MAX)));
    let timeout_ms = fields.get("timeout").and_then(|tree| reader.ms(tree));
    let (kind, payload) = does?;
    Some(NodeJob {
        queue: queue.or_else(|| QueueName::new(QUEUE).ok())?,
        kind,
        payload,
        labels: labels.unwrap_or_default(),
        priority: priority.and_then(|number| i16::try_from(number).ok()).unwrap_or(0),
        attempts,
        retry,
        timeout_ms,
        group,
        group_max,
    })
}

/// What the job does: its kind, and its payload.
fn read_way(reader: &Reader<'_>, key: &Key<'_>, fields: &Fields<'_>, names: &Names<'_>) -> Option<(Kind, Json)> {
    let ways: Vec<&str> = WAYS.into_iter().filter(|way| fields.get(way).is_some()).collect();
    let [way] = ways[..] else {
        if ways.is_empty() {
            // For its faults.
            commands::read(reader, fields, names);
        }
        let message = match ways.len() {
            // That was told.
            0 if fields.misspells(&KEYS, &["run", "steps", "kind", "uses"]) => return None,
            0 => format!("the job `{}` does nothing", key.text),
            _ => format!("the job `{}` says both `{}`", key.text, ways.join("` and `")),
        };
        let help = "write one of run (a script), steps (several), kind (a handler of yours) or uses (a workflow)";
        reader.say(Problem::new(key.span.clone(), message).help(help));
        return None;
    };
    if way == "kind" {
        for name in ["working-directory", "shell", "artifacts"] {
            if let Some(span) = fields.key(name) {
                reader.say(Problem::new(span, format!("`{name}` is for run and steps, not for kind")));
            }
        }
        let with = fields.get("with").map_or(Some(json!({})), |tree| reader.json(tree));
        return Some((reader.name::<Kind, _>(fields.get("kind")?)?, with?));
    }
    if let Some(span) = fields.key("with") {
        reader.say(Problem::new(span, "`with` is for kind, not for run and steps").help("give it as env"));
    }
    Some((Kind::new(COMMAND_KIND).ok()?, commands::read(reader, fields, names)?))
}

fn read_retries(reader: &Reader<'_>, fields: &Fields<'_>) -> (u32, RetryPolicy) {
    if let (Some(_), Some(span)) = (fields.get("retries"), fields.key("retry")) {
        reader.say(Problem::new(span, "`retries` and `retry` say the same thing").help("keep one of them"));
    }
    let count = |tree| reader.whole(tree, 0, 1_000).and_then(|number| u32::try_from(number).ok());
    if let Some(tree) = fields.get("retries") {
        return (count(tree).unwrap_or(0) + 1, RetryPolicy::default());
    }
    let Some(tree) = fields.get("retry") else { return (1, RetryPolicy::default()) };
    let Some(fields) = reader.fields(tree, "a retry", &["count", "delay", "factor", "max-delay", "jitter"]) else {
        return (1, RetryPolicy::default());
    };
    let attempts = fields.get("count").and_then(count).unwrap_or(1) + 1;
    let base_ms = fields.get("delay").and_then(|tree| reader.ms(tree)).unwrap_or(1_000);
    let whole = |name: &str, most: i64| fields.get(name).and_then(|tree| reader.whole(tree, 0, most));
    let policy = RetryPolicy::Exponential {
        base_ms,
        factor: whole("factor", 100).and_then(|number| u32::try_from(number).ok()).unwrap_or(2).max(1),
        cap_ms: fields.get("max-delay").and_then(|tree| reader.ms(tree)).unwrap_or(RETRY_CAP_MS).max(base_ms),
        jitter_percent: whole("jitter", 100).and_then(|number| u8::try_from(number).ok()).unwrap_or(20),
    };
    (attempts, policy)
}
