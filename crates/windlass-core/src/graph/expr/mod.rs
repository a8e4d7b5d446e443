//! Conditions and values: a small language without side effects.
//!
//! Text literals stand in `'…'` (a quote is doubled), paths read `needs.<job>.outputs.<key>`, `needs.<job>.result`,
//! `inputs.<name>`, `env.<NAME>` and `matrix.<key>`, in the outputs of a workflow `jobs.<job>.outputs.<key>`; `==`, `!=`, `<`, `<=`, `>`, `>=`, `&&`, `||`, `!` and parentheses do
//! what they look like; functions are `always()`, `success()`, `failure()`, `contains(in, what)`, `startsWith(text, start)`,
//! `endsWith(text, end)` and `fromJSON(text)`. What is not there is `null`.
//!
//! Whole numbers are compared by all their digits. Outputs are texts, so a text compares with a number as a number and with a boolean as `'true'` or `'false'`; `null`
//! equals the empty text. False are `false`, `null`, `0`, `''` and `'false'`.

mod number;
mod parse;
#[cfg(test)]
mod tests;

pub use number::{NumberError, parse_number};

use number::Compared;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::cmp::Ordering;
use std::ops::Range;

/// The longest expression, in bytes.
pub const EXPR_BYTES_MAX: usize = 4_096;
/// The deepest nesting.
pub const EXPR_DEPTH_MAX: usize = 64;

/// An expression that was read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Expr {
    text: String,
    root: Node,
}

/// What is wrong with an expression, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ExprError {
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub help: Option<String>,
    /// Where, in bytes of the text.
    pub span: Range<usize>,
}

/// A place in the data that an expression reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its parts.
    pub parts: Vec<String>,
    /// Where it stands, in bytes of the text.
    pub span: Range<usize>,
}

#[derive(Clone, Debug, PartialEq)]
enum Node {
    Literal(Value),
    Place(Place),
    Not(Box<Node>),
    Both(Box<Node>, Box<Node>),
    Either(Box<Node>, Box<Node>),
    Compare(Comparison, Box<Node>, Box<Node>),
    Call(Function, Vec<Node>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Function {
    Always,
    Success,
    Failure,
    Contains,
    StartsWith,
    EndsWith,
    FromJson,
}

impl Function {
    const ALL: [(&'static str, Self, usize); 7] = [
        ("always", Self::Always, 0),
        ("success", Self::Success, 0),
        ("failure", Self::Failure, 0),
        ("contains", Self::Contains, 2),
        ("startsWith", Self::StartsWith, 2),
        ("endsWith", Self::EndsWith, 2),
        ("fromJSON", Self::FromJson, 1),
    ];

    fn is_status(self) -> bool {
        matches!(self, Self::Always | Self::Success | Self::Failure)
    }
}

/// What an expression is worked out from.
pub trait Scope {
    /// What stands at a path; `None` when nothing does.
    fn at(&self, path: &[String]) -> Option<Value>;
    /// All that was needed went well.
    fn success(&self) -> bool;
    /// Something before it failed.
    fn failure(&self) -> bool;
}

impl Expr {
    /// Reads an expression, with `${{ … }}` around it or without.
    pub fn parse(text: &str) -> Result<Self, ExprError> {
        Ok(Self { text: text.to_owned(), root: parse::parse(text)? })
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Every place that it reads.
    pub fn paths(&self) -> Vec<&Place> {
        let mut paths = Vec::new();
        self.root.walk(&mut |node| {
            if let Node::Place(path) = node {
                paths.push(path);
            }
        });
        paths
    }

    /// Whether it says itself what happened before it: without, `success()` is meant as well.
    pub fn asks_status(&self) -> bool {
        let mut asks = false;
        self.root.walk(&mut |node| asks |= matches!(node, Node::Call(function, _) if function.is_status()));
        asks
    }

    /// Works it out.
    pub fn value(&self, scope: &dyn Scope) -> Value {
        self.root.value(scope)
    }

    /// The first text in it that `fromJSON` is given and that is no JSON, and why.
    pub fn no_json(&self, scope: &dyn Scope) -> Option<(String, serde_json::Error)> {
        let mut found = None;
        self.root.walk(&mut |node| {
            if let (Node::Call(Function::FromJson, arguments), None) = (node, &found) {
                let given = arguments.first().map(|argument| text(&argument.value(scope))).unwrap_or_default();
                let error = serde_json::from_str::<serde::de::IgnoredAny>(&given).err();
                // Nothing is what is not there.
                found = error.filter(|_| !given.is_empty()).map(|error| (given, error));
            }
        });
        found
    }

    /// Whether it will hold, as far as that can be said from the places that are known already.
    pub fn foreseen(&self, scope: &dyn Scope, known: &dyn Fn(&Place) -> bool) -> Option<bool> {
        self.root.foreseen(scope, known)
    }

    /// Works it out as a condition: without a function that asks what happened before, `success()` is meant as well.
    pub fn holds(&self, scope: &dyn Scope) -> bool {
        (self.asks_status() || scope.success()) && is_true(&self.value(scope))
    }
}

impl TryFrom<String> for Expr {
    type Error = ExprError;
    fn try_from(text: String) -> Result<Self, ExprError> {
        Self::parse(&text)
    }
}

impl From<Expr> for String {
    fn from(expr: Expr) -> Self {
        expr.text
    }
}

impl Node {
    fn walk<'n>(&'n self, look: &mut dyn FnMut(&'n Self)) {
        look(self);
        match self {
            Self::Literal(_) | Self::Place(_) => {}
            Self::Not(node) => node.walk(look),
            Self::Both(a, b) | Self::Either(a, b) | Self::Compare(_, a, b) => {
                a.walk(look);
                b.walk(look);
            }
            Self::Call(_, arguments) => arguments.iter().for_each(|argument| argument.walk(look)),
        }
    }

    fn value(&self, scope: &dyn Scope) -> Value {
        match self {
            Self::Literal(value) => value.clone(),
            Self::Place(path) => scope.at(&path.parts).unwrap_or(Value::Null),
            Self::Not(node) => Value::Bool(!is_true(&node.value(scope))),
            // As in other languages of this kind, the value that decides is the result.
            Self::Both(a, b) => {
                let first = a.value(scope);
                if is_true(&first) { b.value(scope) } else { first }
            }
            Self::Either(a, b) => {
                let first = a.value(scope);
                if is_true(&first) { first } else { b.value(scope) }
            }
            Self::Compare(comparison, a, b) => Value::Bool(comparison.holds(&a.value(scope), &b.value(scope))),
            Self::Call(function, arguments) => {
                let values: Vec<Value> = arguments.iter().map(|argument| argument.value(scope)).collect();
                call(*function, &values, scope)
            }
        }
    }
}

impl Node {
    fn foreseen(&self, scope: &dyn Scope, known: &dyn Fn(&Place) -> bool) -> Option<bool> {
        match self {
            Self::Not(node) => node.foreseen(scope, known).map(|holds| !holds),
            // One side can be enough.
            Self::Both(a, b) => match (a.foreseen(scope, known), b.foreseen(scope, known)) {
                (Some(false), _) | (_, Some(false)) => Some(false),
                (Some(true), Some(true)) => Some(true),
                _ => None,
            },
            Self::Either(a, b) => match (a.foreseen(scope, known), b.foreseen(scope, known)) {
                (Some(true), _) | (_, Some(true)) => Some(true),
                (Some(false), Some(false)) => Some(false),
                _ => None,
            },
            node => {
                let mut open = false;
                node.walk(&mut |node| {
                    open |= match node {
                        Self::Place(place) => !known(place),
                        Self::Call(function, _) => matches!(function, Function::Success | Function::Failure),
                        _ => false,
                    }
                });
                (!open).then(|| is_true(&node.value(scope)))
            }
        }
    }
}

fn call(function: Function, values: &[Value], scope: &dyn Scope) -> Value {
    let text_of = |at: usize| values.get(at).map(text).unwrap_or_default();
    match function {
        Function::Always => Value::Bool(true),
        Function::Success => Value::Bool(scope.success()),
        Function::Failure => Value::Bool(scope.failure()),
        Function::Contains => Value::Bool(match (values.first(), values.get(1)) {
            (Some(Value::Array(list)), Some(what)) => list.iter().any(|one| are_equal(one, what)),
            (Some(Value::Object(map)), Some(what)) => map.contains_key(&text(what)),
            _ => text_of(0).contains(&text_of(1)),
        }),
        Function::StartsWith => Value::Bool(text_of(0).starts_with(&text_of(1))),
        Function::EndsWith => Value::Bool(text_of(0).ends_with(&text_of(1))),
        // What is no JSON is nothing, as what is not there.
        Function::FromJson => serde_json::from_str(&text_of(0)).unwrap_or(Value::Null),
    }
}

/// Whether a value counts as true.
pub fn is_true(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(value) => *value,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty() && text != "false",
        Value::Array(_) | Value::Object(_) => true,
    }
}

/// A value as text: texts as they are, nothing as the empty one, the rest as JSON.
pub fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The order of two values as numbers, if both are numbers or texts of numbers.
fn numeric_order(a: &Value, b: &Value) -> Option<Ordering> {
    Compared::of(a)?.order(Compared::of(b)?)
}

fn are_equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(_), Value::String(_) | Value::Number(_)) | (Value::String(_), Value::Number(_)) => {
            numeric_order(a, b).is_some_and(Ordering::is_eq)
        }
        (Value::Null, Value::String(text)) | (Value::String(text), Value::Null) => text.is_empty(),
        (Value::Bool(value), Value::String(text)) | (Value::String(text), Value::Bool(value)) => {
            text == if *value { "true" } else { "false" }
        }
        (a, b) => a == b,
    }
}

impl Comparison {
    fn holds(self, a: &Value, b: &Value) -> bool {
        match self {
            Self::Equal => are_equal(a, b),
            Self::NotEqual => !are_equal(a, b),
            // As numbers where both are, as texts where both are; nothing else has an order.
            Self::Less | Self::LessOrEqual | Self::Greater | Self::GreaterOrEqual => {
                let order = numeric_order(a, b).or_else(|| match (a, b) {
                    (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
                    _ => None,
                });
                order.is_some_and(|order| match self {
                    Self::Less => order.is_lt(),
                    Self::LessOrEqual => order.is_le(),
                    Self::Greater => order.is_gt(),
                    _ => order.is_ge(),
                })
            }
        }
    }
}
