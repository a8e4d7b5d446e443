//! Values out of a tree; what is wrong with one is noted, and reading goes on.

use super::Problem;
use super::files::Files;
use super::tree::{Key, Tree, Value};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::Range;
use std::str::FromStr;
use windlass_core::graph::Template;
use windlass_core::graph::expr::{Expr, ExprError};
use windlass_core::name::nearest;

/// Problems that are told; a file with more has one cause.
pub(super) const PROBLEMS_MAX: usize = 20;

/// Reads values and gathers what is wrong with them.
pub(super) struct Reader<'t> {
    text: &'t str,
    /// The other files that this one may name.
    pub(super) files: &'t Files<'t>,
    problems: RefCell<Vec<Problem>>,
}

/// A map whose keys are known.
pub(super) struct Fields<'y> {
    entries: &'y [(Key<'y>, Tree<'y>)],
}

impl<'y> Fields<'y> {
    /// The value of a key; a key with nothing behind it is as good as none.
    pub(super) fn get(&self, name: &str) -> Option<&'y Tree<'y>> {
        self.entries.iter().find(|(key, tree)| key.text == name && !tree.is_nothing()).map(|(_, tree)| tree)
    }

    /// The keys that say something, and where they stand.
    pub(super) fn names(&self) -> impl Iterator<Item = (&'y str, Range<usize>)> {
        let said = self.entries.iter().filter(|(_, tree)| !tree.is_nothing());
        said.map(|(key, _)| (key.text.as_ref(), key.span.clone()))
    }

    /// Whether it has a key that is not known and looks like one of these: what they lack was told with it.
    pub(super) fn misspells(&self, known: &[&'static str], wanted: &[&str]) -> bool {
        let unknown = self.entries.iter().map(|(key, _)| key.text.as_ref()).filter(|key| !known.contains(key));
        unknown.filter_map(|key| nearest(key, known.iter().copied())).any(|near| wanted.contains(&near))
    }

    /// Where a key stands.
    pub(super) fn key(&self, name: &str) -> Option<Range<usize>> {
        self.entries.iter().find(|(key, _)| key.text == name).map(|(key, _)| key.span.clone())
    }
}

impl<'t> Reader<'t> {
    /// With what is known to be wrong already.
    pub(super) fn new(text: &'t str, files: &'t Files<'t>, problems: Vec<Problem>) -> Self {
        Self { text, files, problems: RefCell::new(problems) }
    }

    pub(super) fn problems(&self) -> Vec<Problem> {
        self.problems.take()
    }

    pub(super) fn say(&self, problem: Problem) {
        let mut problems = self.problems.borrow_mut();
        if problems.len() < PROBLEMS_MAX {
            problems.push(problem);
        }
    }

    /// Nothing more is told: looking further is of no use.
    pub(super) fn is_full(&self) -> bool {
        self.problems.borrow().len() >= PROBLEMS_MAX
    }

    fn wrong<T>(&self, tree: &Tree<'_>, wanted: &str) -> Option<T> {
        self.say(Problem::new(tree.span.clone(), format!("{wanted} was expected here, and this is {}", tree.kind())));
        None
    }

    /// A map with these keys and no others.
    pub(super) fn fields<'y>(&self, tree: &'y Tree<'y>, of: &str, known: &[&'static str]) -> Option<Fields<'y>> {
        let entries = self.map(tree)?;
        for (key, _) in entries.iter().filter(|(key, _)| !known.contains(&key.text.as_ref())) {
            let help = match nearest(&key.text, known.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("there are {}", known.join(", ")),
            };
            self.say(Problem::new(key.span.clone(), format!("{of} has no `{}`", key.text)).help(help));
        }
        Some(Fields { entries })
    }

    /// A map with any keys.
    pub(super) fn map<'y>(&self, tree: &'y Tree<'y>) -> Option<&'y [(Key<'y>, Tree<'y>)]> {
        match &tree.value {
            Value::Map(map) => Some(map),
            _ => self.wrong(tree, "a map"),
        }
    }

    pub(super) fn list<'y>(&self, tree: &'y Tree<'y>) -> Option<&'y [Tree<'y>]> {
        match &tree.value {
            Value::List(list) => Some(list),
            _ => self.wrong(tree, "a list"),
        }
    }

    pub(super) fn text<'y>(&self, tree: &'y Tree<'y>) -> Option<&'y str> {
        match &tree.value {
            Value::Scalar { text, .. } => Some(text),
            _ => self.wrong(tree, "a text"),
        }
    }

    /// One text, or a list of them.
    pub(super) fn texts<'y>(&self, tree: &'y Tree<'y>) -> Option<Vec<(&'y str, &'y Tree<'y>)>> {
        match &tree.value {
            Value::Scalar { text, .. } => Some(vec![(text.as_ref(), tree)]),
            Value::List(list) => {
                // All are looked at.
                let texts: Vec<_> = list.iter().map(|one| Some((self.text(one)?, one))).collect();
                texts.into_iter().collect()
            }
            Value::Map(_) => self.wrong(tree, "a text or a list of texts"),
        }
    }

    /// A map of texts; numbers and booleans are taken as they are written.
    pub(super) fn text_map(&self, tree: &Tree<'_>) -> Option<BTreeMap<String, String>> {
        let entries = self.map(tree)?;
        // All are looked at.
        let texts: Vec<_> =
            entries.iter().map(|(key, tree)| Some((key.text.to_string(), self.text(tree)?.to_owned()))).collect();
        texts.into_iter().collect()
    }

    /// Environment: a map of texts, by names that every shell takes.
    pub(super) fn env(&self, tree: &Tree<'_>) -> Option<BTreeMap<String, String>> {
        for (key, _) in self.map(tree)? {
            let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let begins = key.text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
            if !begins || !key.text.chars().all(fits) {
                let help = "begin with a letter or _, go on with letters, digits and _";
                let message = format!("`{}` is no name for a variable", key.text);
                self.say(Problem::new(key.span.clone(), message).help(help));
            }
        }
        self.text_map(tree)
    }

    /// Any value as JSON. A whole number that would lose digits is refused.
    pub(super) fn json(&self, tree: &Tree<'_>) -> Option<serde_json::Value> {
        match tree.too_large() {
            Some((at, error)) => self.refuse(at, &error.to_string(), "put it into quotes to have it as a text"),
            None => Some(tree.json()),
        }
    }

    pub(super) fn bool(&self, tree: &Tree<'_>) -> Option<bool> {
        match tree.json() {
            serde_json::Value::Bool(value) => Some(value),
            _ => {
                self.say(Problem::new(tree.span.clone(), "true or false was expected here"));
                None
            }
        }
    }

    /// A whole number within bounds.
    pub(super) fn whole(&self, tree: &Tree<'_>, least: i64, most: i64) -> Option<i64> {
        let number = tree.json().as_i64().filter(|number| (least..=most).contains(number));
        if number.is_none() {
            self.say(Problem::new(
                tree.span.clone(),
                format!("a whole number from {least} to {most} was expected here"),
            ));
        }
        number
    }

    /// A time with its unit: `90s`, `5m`, `2h`, `1d`, `250ms`.
    pub(super) fn ms(&self, tree: &Tree<'_>) -> Option<u64> {
        let text = self.text(tree)?;
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, unit) = text.split_at(digits);
        let factor = match unit.trim() {
            "ms" => Some(1),
            "s" => Some(1_000),
            "m" => Some(60_000),
            "h" => Some(3_600_000),
            "d" => Some(86_400_000),
            _ => None,
        };
        let ms =
            number.parse::<u64>().ok().zip(factor).and_then(|(number, factor): (u64, u64)| number.checked_mul(factor));
        match ms {
            Some(ms) if ms > 0 => Some(ms),
            Some(_) => self.refuse(tree, "a time must be longer than nothing", "write 30s, 5m or 2h"),
            None if !number.is_empty() && unit.is_empty() => {
                self.refuse(tree, "a time needs its unit", &format!("write {number}s, {number}m or {number}h"))
            }
            None => self.refuse(tree, "a time was expected here", "write 30s, 5m or 2h"),
        }
    }

    pub(super) fn refuse<T>(&self, tree: &Tree<'_>, message: &str, help: &str) -> Option<T> {
        self.say(Problem::new(tree.span.clone(), message).help(help));
        None
    }

    /// A name that has rules of its own.
    pub(super) fn name<N: FromStr<Err = E>, E: Display>(&self, tree: &Tree<'_>) -> Option<N> {
        match self.text(tree)?.parse() {
            Ok(name) => Some(name),
            Err(error) => {
                self.say(Problem::new(tree.span.clone(), error.to_string()));
                None
            }
        }
    }

    pub(super) fn expr(&self, tree: &Tree<'_>) -> Option<Expr> {
        let text = self.text(tree)?;
        Expr::parse(text).map_err(|error| self.say(self.located(tree, text, error))).ok()
    }

    pub(super) fn template(&self, tree: &Tree<'_>) -> Option<Template> {
        let text = self.text(tree)?;
        Template::parse(text).map_err(|error| self.say(self.located(tree, text, error))).ok()
    }

    fn located(&self, tree: &Tree<'_>, text: &str, error: ExprError) -> Problem {
        let span = self.inside(tree, text, error.span);
        Problem { message: error.message, help: error.help, span }
    }

    /// Where a part of a text stands in the file. Where it was folded or escaped, the whole of it is meant.
    pub(super) fn inside(&self, tree: &Tree<'_>, text: &str, part: Range<usize>) -> Range<usize> {
        let written = self.text.get(tree.span.clone()).unwrap_or("");
        match written.find(text) {
            Some(at) => tree.span.start + at + part.start..tree.span.start + at + part.end,
            None => tree.span.clone(),
        }
    }
}
