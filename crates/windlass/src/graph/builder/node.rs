//! What can be said of a node.

use super::{BuildError, GraphBuilder, NodeRef, literal};
use crate::job::ms;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;
use windlass_core::graph::expr::Expr;
use windlass_core::graph::{Accepts, Matrix, Need, Node, NodeJob, Source, Template, Work};
use windlass_core::name::QueueName;
use windlass_core::retry::RetryPolicy;

/// A node that was added; more can be said of it.
#[derive(Debug)]
pub struct NodeBuilder<'g> {
    pub(super) builder: &'g mut GraphBuilder,
    pub(super) at: usize,
}

impl NodeBuilder<'_> {
    /// The node, for those that come after it.
    pub fn node(self) -> NodeRef {
        let name = Arc::from(self.name());
        NodeRef { token: self.builder.token, at: self.at, name }
    }

    /// It runs when that one has succeeded.
    pub fn after(self, node: &NodeRef) -> Self {
        self.after_accepting(node, Accepts::default())
    }

    /// It runs when that one has ended, however it did. Its failure still counts for the run.
    pub fn after_any(self, node: &NodeRef) -> Self {
        self.after_accepting(node, Accepts::ANY)
    }

    /// It runs when that one has ended in one of these ways. What was said of the same one before does not hold any more.
    pub fn after_accepting(mut self, node: &NodeRef, accepts: Accepts) -> Self {
        if node.token != self.builder.token {
            return self.refuse(|name| BuildError::Elsewhere { name, need: node.name().to_owned() });
        }
        let needs = &mut self.it().needs;
        needs.retain(|need| need.node != node.at);
        needs.push(Need { node: node.at, accepts });
        self
    }

    /// It runs if this holds, else it is skipped: `needs.build.outputs.x == 'y'`, `failure()`, `always()`.
    pub fn when(self, condition: impl AsRef<str>) -> Self {
        self.with_expr(condition.as_ref(), |node, expr| node.condition = Some(expr))
    }

    /// Puts what an expression comes to into a field of its payload: [`NodeRef::output`], `inputs.who`, `matrix.os`,
    /// `fromJSON(needs.count.outputs.n)` for a number.
    pub fn with(mut self, field: impl Into<String>, expr: impl Into<String>) -> Self {
        let (field, expr) = (field.into(), expr.into());
        if self.job().is_none_or(|job| job.payload.is_object()) {
            return self.with_expr(&expr.clone(), |node, _| {
                if let Work::Job(job) = &mut node.work {
                    job.payload[field] = Value::String(template(&expr));
                }
            });
        }
        self.without(&field, "its payload has no fields")
    }

    /// A variable of its commands, which its condition can read as `env.NAME`.
    pub fn env(mut self, name: impl Into<String>, value: impl AsRef<str>) -> Self {
        self.it().env.insert(name.into(), literal(value.as_ref()));
        self
    }

    /// The same with what an expression comes to.
    pub fn env_from(self, name: impl Into<String>, expr: impl Into<String>) -> Self {
        let expr = expr.into();
        self.with_expr(&expr.clone(), |node, _| {
            node.env.insert(name.into(), template(&expr));
        })
    }

    /// One job for each row, which `matrix.<key>` reads. A row that is no map is `{"value": row}`.
    pub fn matrix(self, rows: impl IntoIterator<Item = Value>) -> Self {
        let row = |row: Value| match row {
            Value::Object(row) => row,
            other => Map::from_iter([("value".to_owned(), other)]),
        };
        self.rows(Source::Rows(rows.into_iter().map(row).collect()))
    }

    /// One job for each row of a list that is worked out when it starts: `fromJSON(needs.list.outputs.rows)`.
    pub fn matrix_from(self, expr: impl Into<String>) -> Self {
        let expr = expr.into();
        match Expr::parse(&expr) {
            Ok(expr) => self.rows(Source::From(expr)),
            Err(error) => self.refuse(|name| BuildError::Expr { name, text: expr, error }),
        }
    }

    fn rows(mut self, source: Source) -> Self {
        self.it().matrix = Some(Matrix { source, fail_fast: true, parallel_max: None });
        self
    }

    /// Whether one job of its matrix that fails takes the others with it; it does, if nobody says otherwise.
    pub fn fail_fast(mut self, fail_fast: bool) -> Self {
        match &mut self.it().matrix {
            Some(matrix) => matrix.fail_fast = fail_fast,
            None => return self.without("fail_fast", "say matrix before"),
        }
        self
    }

    /// How many jobs of its matrix may run at once.
    pub fn max_parallel(mut self, jobs: u32) -> Self {
        match &mut self.it().matrix {
            Some(matrix) => matrix.parallel_max = Some(jobs.max(1)),
            None => return self.without("max_parallel", "say matrix before"),
        }
        self
    }

    /// Its failure is nobody else's: those after it go on, and the run can succeed.
    pub fn continue_on_error(mut self) -> Self {
        self.it().continue_on_error = true;
        self
    }

    /// What people call it.
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.it().title = Some(title.into());
        self
    }

    /// On another queue.
    pub fn queue(self, queue: &str) -> Self {
        match QueueName::new(queue) {
            Ok(queue) => self.with_job(|job| job.queue = queue),
            Err(error) => self.refuse(|name| BuildError::Job { name, error }),
        }
    }

    /// Lower goes first.
    pub fn priority(self, priority: i16) -> Self {
        self.with_job(|job| job.priority = priority)
    }

    /// What its worker must offer, beside what was said before.
    pub fn label(self, label: &str) -> Self {
        let text = literal(label);
        match Template::parse(&text) {
            Ok(label) => self.with_job(|job| job.labels.push(label)),
            Err(error) => self.refuse(|name| BuildError::Expr { name, text, error }),
        }
    }

    /// How often it is tried again.
    pub fn retries(self, retries: u32) -> Self {
        self.with_job(|job| job.attempts = retries.saturating_add(1))
    }

    /// How long to wait between attempts.
    pub fn retry(self, policy: RetryPolicy) -> Self {
        self.with_job(|job| job.retry = policy)
    }

    /// How long one attempt may take.
    pub fn timeout(self, timeout: Duration) -> Self {
        self.with_job(|job| job.timeout_ms = Some(ms(timeout)))
    }

    /// What runs its commands: `sh`, `bash`, `python3`.
    pub fn shell(self, shell: &str) -> Self {
        self.of_commands("shell", |payload| payload["shell"] = json!(literal(shell)))
    }

    /// Where its commands run, below its folder.
    pub fn working_directory(self, folder: &str) -> Self {
        self.of_commands("working_directory", |payload| payload["working-directory"] = json!(literal(folder)))
    }

    /// The outputs that its commands have to leave.
    pub fn outputs<S: AsRef<str>>(self, names: impl IntoIterator<Item = S>) -> Self {
        let names: Vec<String> = names.into_iter().map(|name| literal(name.as_ref())).collect();
        self.of_commands("outputs", |payload| payload["outputs"] = json!(names))
    }

    /// Files that its commands leave for others: an artifact of this name.
    pub fn upload<S: AsRef<str>>(self, artifact: &str, patterns: impl IntoIterator<Item = S>) -> Self {
        let patterns: Vec<String> = patterns.into_iter().map(|pattern| literal(pattern.as_ref())).collect();
        self.of_commands("upload", |payload| payload["artifacts"]["upload"][artifact] = json!(patterns))
    }

    /// Files that others left, and the folder that they are put into.
    pub fn download(self, artifact: &str, folder: &str) -> Self {
        self.of_commands("download", |payload| payload["artifacts"]["download"][artifact] = json!(literal(folder)))
    }

    fn name(&self) -> &str {
        self.builder.graph.nodes.get(self.at).map_or("", |node| &node.id)
    }

    fn it(&mut self) -> &mut Node {
        &mut self.builder.graph.nodes[self.at]
    }

    fn job(&mut self) -> Option<&mut NodeJob> {
        match &mut self.it().work {
            Work::Job(job) => Some(job),
            _ => None,
        }
    }

    fn with_job(mut self, change: impl FnOnce(&mut NodeJob)) -> Self {
        // What could not be made was refused already.
        if let Some(job) = self.job() {
            change(job);
        }
        self
    }

    fn with_expr(mut self, text: &str, change: impl FnOnce(&mut Node, Expr)) -> Self {
        match Expr::parse(text) {
            Ok(expr) => change(self.it(), expr),
            Err(error) => return self.refuse(|name| BuildError::Expr { name, text: text.to_owned(), error }),
        }
        self
    }

    fn of_commands(mut self, what: &str, change: impl FnOnce(&mut Value)) -> Self {
        match self.job() {
            Some(job) if job.kind.as_str() == crate::runs::COMMAND_KIND => change(&mut job.payload),
            Some(_) => return self.without(what, "only commands have it"),
            None => {}
        }
        self
    }

    fn without(self, what: &str, why: &'static str) -> Self {
        self.refuse(|name| BuildError::Without { name, what: what.to_owned(), why })
    }

    fn refuse(self, error: impl FnOnce(String) -> BuildError) -> Self {
        let error = error(self.name().to_owned());
        self.builder.refuse(error);
        self
    }
}

/// With `${{ … }}` around it, also if it had that already.
fn template(expr: &str) -> String {
    let bare = expr.trim().strip_prefix("${{").and_then(|rest| rest.strip_suffix("}}")).unwrap_or(expr);
    format!("${{{{ {} }}}}", bare.trim())
}
