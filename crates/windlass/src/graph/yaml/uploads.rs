//! Artifacts of one name that would replace each other: nobody would know which one is there in the end.

use super::draw::Problem;
use super::fields::Reader;
use super::jobs::COMMAND_KIND;
use super::tree::{Key, Tree, Value};
use serde_json::{Map, Value as Json};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use windlass_core::artifact::ArtifactName;
use windlass_core::graph::expr::{Expr, Scope};
use windlass_core::graph::{Graph, Matrix, Source, Template, Work};

/// How many jobs that upload under a name are compared with the next one.
const COMPARED: usize = 100;

/// The value of a key, where there is one.
fn get<'y>(tree: &'y Tree<'y>, name: &str) -> Option<(&'y Key<'y>, &'y Tree<'y>)> {
    let Value::Map(map) = &tree.value else { return None };
    map.iter().find(|(key, _)| key.text == name).map(|(key, tree)| (key, tree))
}

/// Every row of a matrix must upload under names of its own; `tree` is what the job says of artifacts.
pub(super) fn check_rows(reader: &Reader<'_>, tree: &Tree<'_>, matrix: &Matrix) {
    let rows = match &matrix.source {
        Source::Rows(rows) if rows.len() < 2 => return,
        Source::Rows(rows) => Some(rows),
        Source::From(_) => None,
    };
    let Some((_, Tree { value: Value::Map(upload), .. })) = get(tree, "upload") else { return };
    for (key, _) in upload.iter() {
        let Ok(template) = Template::parse(&key.text) else { continue };
        let reads_row = |parts: &[String]| parts.first().is_some_and(|root| root == "matrix");
        let mut paths = template.exprs().flat_map(Expr::paths).peekable();
        if !template.exprs().flat_map(Expr::paths).any(|path| reads_row(&path.parts)) {
            let column = rows.and_then(|rows| rows.first()?.keys().next()).map_or("<name>", String::as_str);
            let message = format!("every row of the matrix uploads `{}`, and each replaces the one before", key.text);
            let help = format!("give each row a name of its own: {}-${{{{ matrix.{column} }}}}", key.text);
            reader.say(Problem::new(key.span.clone(), message).help(help));
        } else if let Some(rows) = rows.filter(|_| paths.all(|path| reads_row(&path.parts))) {
            check_filled(reader, key, &template, rows);
        }
    }
}

/// A name that is known for each row already.
fn check_filled(reader: &Reader<'_>, key: &Key<'_>, template: &Template, rows: &[Map<String, Json>]) {
    let mut seen = BTreeSet::new();
    for row in rows {
        let name = template.fill(&Row(row));
        let problem = if let Err(error) = ArtifactName::new(&name) {
            Problem::new(key.span.clone(), format!("for one row of the matrix: {error}"))
        } else if !seen.insert(name.clone()) {
            let message = format!("two rows of the matrix upload `{name}`, and one would replace the other");
            Problem::new(key.span.clone(), message).help("put every name into it in which rows differ")
        } else {
            continue;
        };
        return reader.say(problem);
    }
}

struct Row<'r>(&'r Map<String, Json>);

impl Scope for Row<'_> {
    fn at(&self, path: &[String]) -> Option<Json> {
        let (first, rest) = path.get(1..)?.split_first()?;
        let value = rest.iter().try_fold(self.0.get(first)?, |value, part| value.get(part))?;
        Some(value.clone())
    }

    fn success(&self) -> bool {
        true
    }

    fn failure(&self) -> bool {
        false
    }
}

/// Two jobs that may both run must not upload under one name.
pub(super) fn check(reader: &Reader<'_>, jobs: &Tree<'_>, graph: &Graph) {
    let mut seen: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (at, node) in graph.nodes.iter().enumerate() {
        let Work::Job(job) = &node.work else { continue };
        let upload = job.payload.pointer("/artifacts/upload").filter(|_| job.kind.as_str() == COMMAND_KIND);
        for name in upload.and_then(Json::as_object).into_iter().flat_map(Map::keys) {
            if name.contains("${{") || reader.is_full() {
                continue;
            }
            let before = seen.entry(name).or_default();
            if let Some(&other) = before.iter().rev().take(COMPARED).find(|&&other| may_both_run(graph, other, at)) {
                let other = &graph.nodes[other].id;
                let message = format!("`{other}` uploads `{name}`, too, and one would replace the other");
                let help = "give each a name of its own";
                reader.say(Problem::new(place_of(jobs, &node.id, name), message).help(help));
            }
            before.push(at);
        }
    }
}

/// Where a job says that it uploads this; where one stands that uses the workflow in which it does.
fn place_of(jobs: &Tree<'_>, id: &str, name: &str) -> Range<usize> {
    let first = id.split('/').next().unwrap_or(id);
    let Some((key, job)) = get(jobs, first) else { return jobs.span.clone() };
    let said = get(job, "artifacts").and_then(|(_, tree)| get(tree, "upload")).and_then(|(_, tree)| get(tree, name));
    said.map_or(key, |(key, _)| key).span.clone()
}

/// Unless what they say of themselves may be meant to shut one of them out.
fn may_both_run(graph: &Graph, a: usize, b: usize) -> bool {
    // A job and the workflows around it, of which those that are around both decide nothing between them.
    let around = |at: usize| std::iter::successors(Some(at), |&at| graph.nodes[at].entrance).collect::<Vec<usize>>();
    let (a, b) = (around(a), around(b));
    let own = |these: &[usize], others: &[usize]| {
        these.iter().filter(|at| !others.contains(at)).map(|&at| &graph.nodes[at]).collect::<Vec<_>>()
    };
    let (a, b) = (own(&a, &b), own(&b, &a));
    let conditions = |nodes: &[&windlass_core::graph::Node]| {
        nodes.iter().filter_map(|node| node.condition.clone()).map(String::from).collect::<Vec<String>>()
    };
    // One that runs when another one has failed is run instead of it: only those that succeed upload.
    let instead = |node: &&windlass_core::graph::Node| {
        node.condition.as_ref().is_some_and(Expr::asks_status) || node.needs.iter().any(|need| !need.accepts.succeeded)
    };
    let (of_a, of_b) = (conditions(&a), conditions(&b));
    let differ = !of_a.is_empty() && !of_b.is_empty() && of_a != of_b;
    !differ && !a.iter().chain(&b).any(instead)
}
