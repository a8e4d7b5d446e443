//! The jobs of a workflow file.

use super::artifacts;
use super::draw::Problem;
use super::fields::{Fields, Reader};
use super::matrix::read_strategy;
use super::names::{Columns, Names};
use super::splice::{Part, splice};
use super::tree::{Key, Tree, Value};
use super::uses;
use serde_json::{Map, Value as Json, json};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;
use windlass_core::graph::{Accepts, Matrix, NODES_MAX, Need, Node, NodeJob, Source, Work};
use windlass_core::name::{Kind, QueueName, nearest};
use windlass_core::retry::RetryPolicy;

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
const STEP_KEYS: [&str; 5] = ["name", "run", "env", "working-directory", "shell"];

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
    let mut size = 0;
    for (key, tree) in entries {
        if reader.is_full() {
            return None;
        }
        check_id(reader, &key.text, &key.span, "a job");
        let Some(fields) = reader.fields(tree, "a job", &KEYS) else { continue };
        spans.push(fields.get("needs").map_or(key.span.clone(), |tree| tree.span.clone()));
        let Some(part) = read_job(reader, &shared, key, &fields) else { continue };
        size += part.size();
        if size > NODES_MAX && part.size() > 1 {
            let message = format!("with this one the workflow has {size} jobs, and {NODES_MAX} are allowed");
            reader.say(Problem::new(key.span.clone(), message));
            return None;
        }
        parts.push(part);
    }
    // With one that cannot be read, places would be those of others.
    (parts.len() == entries.len()).then(|| splice(parts, spans))
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

fn read_job(reader: &Reader<'_>, shared: &Shared<'_>, key: &Key<'_>, fields: &Fields<'_>) -> Option<Part> {
    let needs = fields.get("needs").map_or_else(|| Some(Vec::new()), |tree| read_needs(reader, shared, tree));
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
    for name in ["with", "env", "labels", "artifacts", "concurrency"] {
        if let Some(tree) = fields.get(name) {
            names.check_all(reader, tree);
        }
    }
    let env = fields.get("env").and_then(|tree| reader.text_map(tree)).unwrap_or_default();
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
    let ways: Vec<&str> = ["run", "steps", "kind"].into_iter().filter(|way| fields.get(way).is_some()).collect();
    let [way] = ways[..] else {
        let message = match ways.len() {
            0 => format!("the job `{}` does nothing", key.text),
            _ => format!("the job `{}` says both `{}`", key.text, ways.join("` and `")),
        };
        let help = "write one of run (a script), steps (several), kind (a handler of yours) or uses (a workflow)";
        reader.say(Problem::new(key.span.clone(), message).help(help));
        return None;
    };
    let (kind, payload) = if way == "kind" {
        for name in ["working-directory", "shell", "artifacts"] {
            if let Some(span) = fields.key(name) {
                reader.say(Problem::new(span, format!("`{name}` is for run and steps, not for kind")));
            }
        }
        (reader.name::<Kind, _>(fields.get("kind")?)?, fields.get("with").map_or(json!({}), Tree::json))
    } else {
        if let Some(span) = fields.key("with") {
            reader.say(Problem::new(span, "`with` is for kind, not for run and steps").help("give it as env"));
        }
        (Kind::new(COMMAND_KIND).ok()?, read_commands(reader, fields, names)?)
    };
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
    Some(NodeJob {
        queue: queue.or_else(|| QueueName::new(QUEUE).ok())?,
        kind,
        payload,
        labels: labels.unwrap_or_default(),
        priority: priority.and_then(|number| i16::try_from(number).ok()).unwrap_or(0),
        attempts,
        retry,
        timeout_ms: fields.get("timeout").and_then(|tree| reader.ms(tree)),
        group,
        group_max,
    })
}

/// The payload of a job that runs commands.
fn read_commands(reader: &Reader<'_>, fields: &Fields<'_>, names: &Names<'_>) -> Option<Json> {
    let mut steps = Vec::new();
    match (fields.get("run"), fields.get("steps")) {
        (Some(run), _) => steps.push(json!({ "run": script(reader, run)? })),
        (None, Some(tree)) => {
            for step in reader.list(tree)? {
                steps.push(read_step(reader, step, names)?);
            }
            if steps.is_empty() {
                return reader.refuse(tree, "there are no steps", "write - run: and a script");
            }
        }
        (None, None) => return None,
    }
    let mut payload = Map::from_iter([("steps".to_owned(), Json::Array(steps))]);
    for name in ["working-directory", "shell"] {
        if let Some(text) = fields.get(name).and_then(|tree| reader.text(tree)) {
            payload.insert(name.to_owned(), json!(text));
        }
    }
    if let Some(tree) = fields.get("outputs") {
        let outputs: Vec<&str> = reader.texts(tree)?.into_iter().map(|(name, _)| name).collect();
        payload.insert("outputs".to_owned(), json!(outputs));
    }
    if let Some(tree) = fields.get("artifacts") {
        payload.insert("artifacts".to_owned(), artifacts::read(reader, tree)?);
    }
    Some(Json::Object(payload))
}

fn read_step(reader: &Reader<'_>, tree: &Tree<'_>, names: &Names<'_>) -> Option<Json> {
    let fields = reader.fields(tree, "a step", &STEP_KEYS)?;
    let Some(run) = fields.get("run") else {
        return reader.refuse(tree, "a step needs a `run`", "write run: and a script");
    };
    let mut step = Map::from_iter([("run".to_owned(), json!(script(reader, run)?))]);
    for name in ["name", "working-directory", "shell"] {
        if let Some(text) = fields.get(name).and_then(|tree| reader.text(tree)) {
            step.insert(name.to_owned(), json!(text));
        }
    }
    if let Some(tree) = fields.get("env") {
        names.check_all(reader, tree);
        step.insert("env".to_owned(), json!(reader.text_map(tree)?));
    }
    Some(Json::Object(step))
}

/// A script, which is never a template: what comes from elsewhere must not become commands.
fn script<'y>(reader: &Reader<'_>, tree: &'y Tree<'y>) -> Option<&'y str> {
    let text = reader.text(tree)?;
    if let Some(at) = text.find("${{") {
        let end = text[at..].find("}}").map_or(at + 3, |end| at + end + 2);
        let problem = Problem::new(reader.inside(tree, text, at..end), "expressions are never put into a script");
        reader.say(problem.help("name it under env, and use \"$NAME\" here"));
        return None;
    }
    Some(text)
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
