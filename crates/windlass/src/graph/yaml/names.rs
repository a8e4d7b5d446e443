//! What expressions may speak of, at each place.

use super::Problem;
use super::fields::Reader;
use super::tree::{Tree, Value};
use std::collections::BTreeSet;
use windlass_core::graph::Template;
use windlass_core::graph::expr::{Expr, Place};
use windlass_core::name::nearest;

/// The names that hold for one job.
pub(super) struct Names<'n> {
    /// What it needs.
    pub(super) needs: &'n [&'n str],
    /// Inputs of the workflow.
    pub(super) inputs: &'n BTreeSet<String>,
    /// Columns of its matrix; nothing when they are not known beforehand or it has none.
    pub(super) matrix: Columns,
    /// Jobs of the workflow, where it is asked for what they have told.
    pub(super) jobs: Option<&'n BTreeSet<String>>,
}

/// What is known of the columns of a matrix.
pub(super) enum Columns {
    /// There is no matrix.
    None,
    /// It has these.
    These(BTreeSet<String>),
    /// They are known when it starts.
    Unknown,
}

impl Names<'_> {
    /// Looks at every place that an expression reads; it stands `shift` bytes behind the beginning of the text.
    pub(super) fn check(&self, reader: &Reader<'_>, tree: &Tree<'_>, expr: &Expr, shift: usize) {
        let Value::Scalar { text, .. } = &tree.value else { return };
        for path in expr.paths() {
            if let Some(problem) = self.problem(path) {
                let part = path.span.start + shift..path.span.end + shift;
                reader.say(Problem { span: reader.inside(tree, text, part), ..problem });
            }
        }
    }

    /// Looks at every expression in the texts of a value.
    pub(super) fn check_all(&self, reader: &Reader<'_>, tree: &Tree<'_>) {
        match &tree.value {
            Value::Scalar { text, .. } if text.contains("${{") => {
                if let Some(template) = reader.template(tree) {
                    self.check_template(reader, tree, text, &template);
                }
            }
            Value::Scalar { .. } => {}
            Value::List(list) => list.iter().for_each(|one| self.check_all(reader, one)),
            Value::Map(map) => map.iter().for_each(|(_, one)| self.check_all(reader, one)),
        }
    }

    fn check_template(&self, reader: &Reader<'_>, tree: &Tree<'_>, text: &str, template: &Template) {
        let mut from = 0;
        for expr in template.exprs() {
            let at = text[from..].find(expr.as_str()).map_or(from, |found| from + found);
            self.check(reader, tree, expr, at);
            from = at + expr.as_str().len();
        }
    }

    fn problem(&self, path: &Place) -> Option<Problem> {
        let parts: Vec<&str> = path.parts.iter().map(String::as_str).collect();
        let wrong = |message: String, help: Option<String>| Some(Problem { message, help, span: 0..0 });
        match parts[..] {
            ["needs", job, ..] if self.jobs.is_some() => {
                wrong("a workflow needs nothing".to_owned(), Some(format!("read jobs.{job}.outputs.<key>")))
            }
            ["needs", job, ..] if !self.needs.contains(&job) => {
                let near = nearest(job, self.needs.iter().copied());
                let help =
                    near.map_or_else(|| format!("add `{job}` to its needs"), |near| format!("did you mean `{near}`?"));
                wrong(format!("the job does not need `{job}`"), Some(help))
            }
            ["needs", _, "result"] | ["needs", _, "outputs", _] => None,
            ["needs", job, ..] => wrong(
                format!("`{}` cannot be read", parts.join(".")),
                Some(format!("read needs.{job}.result or needs.{job}.outputs.<key>")),
            ),
            ["jobs", job, ..] => match self.jobs {
                None => wrong(
                    "`jobs` is for the outputs of a workflow".to_owned(),
                    Some(format!("read needs.{job}.outputs.<key>")),
                ),
                Some(jobs) if !jobs.contains(job) => {
                    let near =
                        nearest(job, jobs.iter().map(String::as_str)).map(|near| format!("did you mean `{near}`?"));
                    wrong(format!("there is no job `{job}`"), near)
                }
                Some(_) if matches!(parts[2..], ["result"] | ["outputs", _]) => None,
                Some(_) => wrong(
                    format!("`{}` cannot be read", parts.join(".")),
                    Some(format!("read jobs.{job}.result or jobs.{job}.outputs.<key>")),
                ),
            },
            ["inputs", name, ..] if !self.inputs.contains(name) => {
                let near = nearest(name, self.inputs.iter().map(String::as_str));
                let help = near
                    .map_or_else(|| "declare it under `inputs`".to_owned(), |near| format!("did you mean `{near}`?"));
                wrong(format!("there is no input `{name}`"), Some(help))
            }
            ["matrix", ..] if matches!(self.matrix, Columns::None) => wrong(
                "there is no matrix here".to_owned(),
                Some("conditions are worked out before the rows are".to_owned()),
            ),
            ["matrix", name, ..] => match &self.matrix {
                Columns::These(columns) if !columns.contains(name) => {
                    let near =
                        nearest(name, columns.iter().map(String::as_str)).map(|near| format!("did you mean `{near}`?"));
                    wrong(format!("the matrix has no `{name}`"), near)
                }
                _ => None,
            },
            [root] => wrong(format!("`{root}` alone is nothing"), Some(format!("read {root}.<name>"))),
            _ => None,
        }
    }
}
