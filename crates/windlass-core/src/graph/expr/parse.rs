//! From text to an expression.

use super::{Comparison, EXPR_BYTES_MAX, EXPR_DEPTH_MAX, ExprError, Function, Node, Place, parse_number};
use crate::name::nearest;
use serde_json::Value;
use std::ops::Range;

/// What paths may begin with.
const ROOTS: [&str; 5] = ["needs", "inputs", "env", "matrix", "jobs"];

pub(super) fn parse(text: &str) -> Result<Node, ExprError> {
    if text.len() > EXPR_BYTES_MAX {
        let message = format!("the expression has {} bytes, and {EXPR_BYTES_MAX} are allowed", text.len());
        return Err(error(0..text.len(), message));
    }
    let (from, to) = inside(text);
    let mut parser = Parser { text, at: from, end: to, depth: 0 };
    let node = parser.either()?;
    parser.skip_blank();
    if parser.at < parser.end {
        let help = "join conditions with && or ||".to_owned();
        return Err(ExprError { help: Some(help), ..parser.unexpected("nothing more was expected here") });
    }
    Ok(node)
}

/// Without the braces around it and the blanks.
fn inside(text: &str) -> (usize, usize) {
    let trimmed = text.trim();
    let start = text.len() - text.trim_start().len();
    match trimmed.strip_prefix("${{").and_then(|rest| rest.strip_suffix("}}")) {
        Some(inner) => (start + 3, start + 3 + inner.len()),
        None => (start, start + trimmed.len()),
    }
}

fn error(span: Range<usize>, message: impl Into<String>) -> ExprError {
    ExprError { message: message.into(), help: None, span }
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
    end: usize,
    depth: usize,
}

impl<'t> Parser<'t> {
    fn rest(&self) -> &'t str {
        &self.text[self.at..self.end]
    }

    fn skip_blank(&mut self) {
        self.at = self.end - self.rest().trim_start().len();
    }

    /// Takes a token if it is next.
    fn take(&mut self, token: &str) -> bool {
        self.skip_blank();
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn unexpected(&self, wanted: &str) -> ExprError {
        match self.rest().chars().next() {
            Some(c) => error(self.at..self.at + c.len_utf8(), format!("unexpected `{c}`: {wanted}")),
            None => error(self.at..self.end, format!("the expression ends too soon: {wanted}")),
        }
    }

    fn deeper(&mut self) -> Result<(), ExprError> {
        self.depth += 1;
        if self.depth > EXPR_DEPTH_MAX {
            return Err(error(self.at..self.end, format!("nested deeper than {EXPR_DEPTH_MAX}")));
        }
        Ok(())
    }

    fn either(&mut self) -> Result<Node, ExprError> {
        self.deeper()?;
        let mut node = self.both()?;
        while self.take("||") {
            node = Node::Either(Box::new(node), Box::new(self.both()?));
        }
        self.depth -= 1;
        Ok(node)
    }

    fn both(&mut self) -> Result<Node, ExprError> {
        let mut node = self.comparison()?;
        while self.take("&&") {
            node = Node::Both(Box::new(node), Box::new(self.comparison()?));
        }
        Ok(node)
    }

    fn comparison(&mut self) -> Result<Node, ExprError> {
        let first = self.unary()?;
        let tokens = [
            ("==", Comparison::Equal),
            ("!=", Comparison::NotEqual),
            ("<=", Comparison::LessOrEqual),
            (">=", Comparison::GreaterOrEqual),
            ("<", Comparison::Less),
            (">", Comparison::Greater),
        ];
        for (token, comparison) in tokens {
            if self.take(token) {
                return Ok(Node::Compare(comparison, Box::new(first), Box::new(self.unary()?)));
            }
        }
        if self.rest().starts_with('=') {
            return Err(ExprError {
                help: Some("compare with ==".to_owned()),
                ..error(self.at..self.at + 1, "`=` assigns, and nothing can be assigned here")
            });
        }
        Ok(first)
    }

    fn unary(&mut self) -> Result<Node, ExprError> {
        self.skip_blank();
        if self.rest().starts_with('!') && !self.rest().starts_with("!=") {
            self.at += 1;
            self.deeper()?;
            let node = self.unary()?;
            self.depth -= 1;
            return Ok(Node::Not(Box::new(node)));
        }
        self.primary()
    }

    fn primary(&mut self) -> Result<Node, ExprError> {
        self.skip_blank();
        let from = self.at;
        match self.rest().chars().next() {
            Some('(') => {
                self.at += 1;
                let node = self.either()?;
                if self.take(")") { Ok(node) } else { Err(self.open_since(from)) }
            }
            Some('\'') => self.literal(),
            Some('"') => {
                let help = "write texts in single quotes: 'like this'".to_owned();
                Err(ExprError { help: Some(help), ..self.unexpected("double quotes are not part of the language") })
            }
            Some(c) if c.is_ascii_digit() || c == '-' || c == '.' => self.number(),
            Some(c) if c.is_ascii_alphabetic() || c == '_' => self.named(),
            _ => Err(self.unexpected("a value was expected")),
        }
    }

    fn open_since(&self, from: usize) -> ExprError {
        error(from..from + 1, "this parenthesis is never closed")
    }

    /// A text in quotes; a quote in it is doubled.
    fn literal(&mut self) -> Result<Node, ExprError> {
        let from = self.at;
        self.at += 1;
        let mut value = String::new();
        loop {
            let Some(end) = self.rest().find('\'') else {
                return Err(error(from..self.end, "this text is never closed"));
            };
            value.push_str(&self.rest()[..end]);
            self.at += end + 1;
            if !self.rest().starts_with('\'') {
                return Ok(Node::Literal(Value::String(value)));
            }
            value.push('\'');
            self.at += 1;
        }
    }

    fn number(&mut self) -> Result<Node, ExprError> {
        let from = self.at;
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+');
        let length = self.rest().find(|c| !is_part(c)).unwrap_or(self.rest().len());
        self.at += length;
        let text = &self.text[from..self.at];
        let number = parse_number(text).map(|number| Node::Literal(Value::Number(number)));
        number.map_err(|wrong| error(from..self.at, wrong.to_string()))
    }

    fn word(&mut self) -> &'t str {
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        let length = self.rest().find(|c| !is_part(c)).unwrap_or(self.rest().len());
        let word = &self.rest()[..length];
        self.at += length;
        word
    }

    /// A word: a constant, a call or a path.
    fn named(&mut self) -> Result<Node, ExprError> {
        let from = self.at;
        let word = self.word();
        match word {
            "true" => return Ok(Node::Literal(Value::Bool(true))),
            "false" => return Ok(Node::Literal(Value::Bool(false))),
            "null" => return Ok(Node::Literal(Value::Null)),
            _ => {}
        }
        let span = from..self.at;
        if self.take("(") {
            return self.call(word, span);
        }
        if !ROOTS.contains(&word) {
            let help = match nearest(word, ROOTS) {
                Some(root) => format!("did you mean `{root}`?"),
                None => "texts stand in single quotes; paths begin with needs, inputs, env or matrix".to_owned(),
            };
            return Err(ExprError { help: Some(help), ..error(span, format!("`{word}` is not known")) });
        }
        let mut parts = vec![word.to_owned()];
        loop {
            if self.rest().starts_with('.') {
                self.at += 1;
                let part = self.word();
                if part.is_empty() {
                    return Err(self.unexpected("a name was expected behind the dot"));
                }
                parts.push(part.to_owned());
            } else if self.rest().starts_with('[') {
                self.at += 1;
                self.skip_blank();
                let Ok(Node::Literal(key)) = self.primary() else {
                    return Err(self.unexpected("a text or a number was expected in the brackets"));
                };
                parts.push(super::text(&key));
                if !self.take("]") {
                    return Err(self.unexpected("a closing bracket was expected"));
                }
            } else {
                return Ok(Node::Place(Place { parts, span: from..self.at }));
            }
        }
    }

    fn call(&mut self, word: &str, span: Range<usize>) -> Result<Node, ExprError> {
        let Some((name, function, count)) = Function::ALL.into_iter().find(|(name, ..)| *name == word) else {
            let known = Function::ALL.map(|(name, ..)| name);
            let help = match nearest(word, known) {
                Some(name) => format!("did you mean `{name}`?"),
                None => format!("there are {}", known.join(", ")),
            };
            return Err(ExprError { help: Some(help), ..error(span, format!("there is no function `{word}`")) });
        };
        let mut arguments = Vec::new();
        if !self.take(")") {
            loop {
                arguments.push(self.either()?);
                if self.take(")") {
                    break;
                }
                if !self.take(",") {
                    return Err(self.unexpected("a comma or a closing parenthesis was expected"));
                }
            }
        }
        if arguments.len() != count {
            let message = format!("{name}() takes {count} arguments, and {} are given", arguments.len());
            return Err(error(span.start..self.at, message));
        }
        Ok(Node::Call(function, arguments))
    }
}
