//! Texts with expressions in them: `release-${{ inputs.version }}`.

use super::expr::{self, Expr, ExprError, Scope};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A text, parts of which are worked out when its node starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Template {
    text: String,
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq)]
enum Part {
    Text(String),
    Expr(Expr),
}

impl Template {
    /// Reads a text. Spans of errors are those of the whole text.
    pub fn parse(text: &str) -> Result<Self, ExprError> {
        let mut parts = Vec::new();
        let mut at = 0;
        while let Some(start) = text[at..].find("${{").map(|found| at + found) {
            if start > at {
                parts.push(Part::Text(text[at..start].to_owned()));
            }
            let Some(end) = text[start..].find("}}").map(|found| start + found + 2) else {
                return Err(ExprError {
                    message: "this expression is never closed".to_owned(),
                    help: Some("end it with }}".to_owned()),
                    span: start..text.len(),
                });
            };
            let expr = Expr::parse(&text[start..end])
                .map_err(|error| ExprError { span: start + error.span.start..start + error.span.end, ..error })?;
            parts.push(Part::Expr(expr));
            at = end;
        }
        if at < text.len() {
            parts.push(Part::Text(text[at..].to_owned()));
        }
        Ok(Self { text: text.to_owned(), parts })
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The expressions in it.
    pub fn exprs(&self) -> impl Iterator<Item = &Expr> {
        self.parts.iter().filter_map(|part| match part {
            Part::Expr(expr) => Some(expr),
            Part::Text(_) => None,
        })
    }

    /// What it comes to: the value itself when it is nothing but one expression, else a text.
    pub fn value(&self, scope: &dyn Scope) -> Value {
        match &self.parts[..] {
            [Part::Expr(expr)] => expr.value(scope),
            parts => Value::String(parts.iter().map(|part| part.fill(scope)).collect()),
        }
    }

    /// What it comes to, as a text.
    pub fn fill(&self, scope: &dyn Scope) -> String {
        self.parts.iter().map(|part| part.fill(scope)).collect()
    }

    /// Fills in every text of a value. One that is no template stays as it is.
    pub fn fill_all(value: &Value, scope: &dyn Scope) -> Value {
        match value {
            Value::String(text) if text.contains("${{") => {
                Self::parse(text).map_or_else(|_| value.clone(), |template| template.value(scope))
            }
            Value::Array(list) => list.iter().map(|one| Self::fill_all(one, scope)).collect(),
            Value::Object(map) => map
                .iter()
                .map(|(key, one)| (key.clone(), Self::fill_all(one, scope)))
                .collect::<serde_json::Map<_, _>>()
                .into(),
            other => other.clone(),
        }
    }
}

impl Part {
    fn fill(&self, scope: &dyn Scope) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Expr(expr) => expr::text(&expr.value(scope)),
        }
    }
}

impl TryFrom<String> for Template {
    type Error = ExprError;
    fn try_from(text: String) -> Result<Self, ExprError> {
        Self::parse(&text)
    }
}

impl From<Template> for String {
    fn from(template: Template) -> Self {
        template.text
    }
}
