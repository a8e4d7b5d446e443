//! YAML as a tree that knows where everything stands.
//!
//! Strict on purpose: one document, no tags, keys are texts and come once. Anchors may be repeated by aliases, as long as
//! what they come to stays small.

use super::Problem;
use super::chars::Chars;
use super::fields::PROBLEMS_MAX;
use saphyr_parser::{Event, Parser, ScalarStyle, Span};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::rc::Rc;
use windlass_core::graph::expr::{NumberError, parse_number};
use windlass_core::store::DEFINITION_BYTES_MAX;

/// The longest file, in bytes.
const BYTES_MAX: usize = 8 << 20;
/// The deepest nesting.
const DEPTH_MAX: usize = 64;
/// The most values, aliases counted as often as they stand there.
const VALUES_MAX: usize = 400_000;
/// The most bytes of texts that aliases repeat: no run can hold a workflow that is larger.
const REPEATED_BYTES_MAX: usize = DEFINITION_BYTES_MAX;
/// Maps with fewer keys are looked through for one that comes twice.
const SMALL: usize = 16;

/// A value and its place in the text, in bytes.
#[derive(Clone, Debug)]
pub(super) struct Tree<'t> {
    pub(super) value: Value<'t>,
    pub(super) span: Range<usize>,
    /// How many values it holds, itself included.
    size: usize,
    /// The bytes of all keys and texts in it.
    pub(super) bytes: usize,
}

#[derive(Clone, Debug)]
pub(super) enum Value<'t> {
    /// A text as written; `plain` when it stands there without quotes, so that it may be a number or a boolean.
    Scalar {
        text: Cow<'t, str>,
        plain: bool,
    },
    List(Rc<[Tree<'t>]>),
    Map(Rc<[Entry<'t>]>),
}

/// A key and its place.
#[derive(Clone, Debug)]
pub(super) struct Key<'t> {
    pub(super) text: Cow<'t, str>,
    pub(super) span: Range<usize>,
}

impl<'t> Key<'t> {
    /// As a value of its own: some keys are templates.
    pub(super) fn tree(&self) -> Tree<'t> {
        let value = Value::Scalar { text: self.text.clone(), plain: false };
        Tree { value, span: self.span.clone(), size: 1, bytes: self.text.len() }
    }
}

/// Reads a file. Keys that stand there twice are told beside it, and the first one counts.
pub(super) fn read(text: &str) -> Result<(Tree<'_>, Vec<Problem>), Problem> {
    if text.len() > BYTES_MAX {
        return Err(Problem::new(0..0, format!("the file has {} bytes, and {BYTES_MAX} are allowed", text.len())));
    }
    // An editor's mark at the beginning means nothing.
    let skipped = text.len() - text.trim_start_matches('\u{feff}').len();
    let text = &text[skipped..];
    if let Some(at) = tab_in_indent(text) {
        let problem = Problem::new(at..at + 1, "a tab in the indentation").help("indent with blanks");
        return Err(problem.shifted(skipped));
    }
    let mut reader = Reader {
        text,
        parser: Parser::new(Chars::new(text)),
        bytes: byte_places(text),
        anchors: HashMap::new(),
        open: Vec::new(),
        items: Vec::new(),
        entries: Vec::new(),
        values: 0,
        repeated_bytes: 0,
        twice: Vec::new(),
    };
    let mut tree = reader.document().map_err(|problem| problem.shifted(skipped))?;
    if skipped > 0 {
        tree = tree.shifted(skipped);
    }
    let twice = reader.twice.into_iter().map(|problem| problem.shifted(skipped)).collect();
    Ok((tree, twice))
}

/// A line that begins with a tab: the parser would say something that helps nobody.
fn tab_in_indent(text: &str) -> Option<usize> {
    if !text.as_bytes().contains(&b'\t') {
        return None;
    }
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let indent = line.len() - line.trim_start_matches([' ', '\t']).len();
        if let Some(tab) =
            line[..indent].find('\t').filter(|_| !line.trim().is_empty() && !line.trim_start().starts_with('#'))
        {
            // Inside a block of text a tab behind the indentation is text.
            if tab == 0 {
                return Some(at + tab);
            }
        }
        at += line.len();
    }
    None
}

/// The place in bytes of every character, and of the end; nothing where all are as long as a byte.
fn byte_places(text: &str) -> Vec<usize> {
    if text.is_ascii() {
        return Vec::new();
    }
    text.char_indices().map(|(at, _)| at).chain([text.len()]).collect()
}

type Entry<'t> = (Key<'t>, Tree<'t>);

struct Reader<'t> {
    text: &'t str,
    parser: Parser<'t, Chars<'t>>,
    bytes: Vec<usize>,
    anchors: HashMap<usize, Tree<'t>>,
    /// Anchors of values that are being read.
    open: Vec<usize>,
    /// What was read of lists and maps that have not ended, innermost last.
    items: Vec<Tree<'t>>,
    entries: Vec<Entry<'t>>,
    values: usize,
    repeated_bytes: usize,
    /// Keys that stood there before.
    twice: Vec<Problem>,
}

impl<'t> Reader<'t> {
    /// Where a character stands.
    fn byte(&self, index: usize) -> usize {
        let end = self.bytes.last().copied().unwrap_or(self.text.len());
        if self.bytes.is_empty() { index.min(end) } else { self.bytes.get(index).copied().unwrap_or(end) }
    }

    fn place(&self, span: Span) -> Range<usize> {
        let at = |index| self.byte(index);
        at(span.start.index())..at(span.end.index().max(span.start.index()))
    }

    fn next(&mut self) -> Result<(Event<'t>, Range<usize>), Problem> {
        match self.parser.next_event() {
            Some(Ok((event, span))) => {
                let place = self.place(span);
                Ok((event, place))
            }
            Some(Err(error)) => {
                let at = self.byte(error.marker().index());
                Err(Problem::new(at..at, format!("this is no YAML: {}", error.info())))
            }
            None => Err(Problem::new(0..0, "the file ends too soon")),
        }
    }

    fn document(&mut self) -> Result<Tree<'t>, Problem> {
        let mut found = None;
        loop {
            let (event, place) = self.next()?;
            match event {
                Event::StreamStart | Event::DocumentStart(_) | Event::DocumentEnd | Event::Nothing => {}
                Event::StreamEnd => return found.ok_or_else(|| Problem::new(0..0, "the file is empty")),
                _ if found.is_some() => {
                    return Err(Problem::new(place, "a second document").help("one workflow to a file"));
                }
                event => found = Some(self.value(event, place, 0)?),
            }
        }
    }

    fn value(&mut self, event: Event<'t>, place: Range<usize>, depth: usize) -> Result<Tree<'t>, Problem> {
        if depth > DEPTH_MAX {
            return Err(Problem::new(place, format!("nested deeper than {DEPTH_MAX}")));
        }
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.refuse_tag(tag.is_some(), &place)?;
                let text = self.written(text, &place);
                self.done(anchor, Value::Scalar { text, plain: style == ScalarStyle::Plain }, place, 1)
            }
            Event::SequenceStart(anchor, tag) => {
                self.refuse_tag(tag.is_some(), &place)?;
                self.open.push(anchor);
                let (first, mut size, start) = (self.items.len(), 1, place.start);
                let end = loop {
                    let (event, place) = self.next()?;
                    if event == Event::SequenceEnd {
                        break place.end;
                    }
                    let tree = self.value(event, place, depth + 1)?;
                    size += tree.size;
                    self.items.push(tree);
                };
                self.open.pop();
                let list = self.items.drain(first..).collect();
                self.done(anchor, Value::List(list), start..end, size)
            }
            Event::MappingStart(anchor, tag) => {
                self.refuse_tag(tag.is_some(), &place)?;
                self.open.push(anchor);
                let start = place.start;
                let (map, size, end) = self.entries(depth)?;
                self.open.pop();
                self.done(anchor, Value::Map(map), start..end, size)
            }
            Event::Alias(anchor) => self.alias(anchor, place),
            _ => Err(Problem::new(place, "a value was expected here")),
        }
    }

    /// The entries of a map, how many values they hold, and where they end.
    fn entries(&mut self, depth: usize) -> Result<(Rc<[Entry<'t>]>, usize, usize), Problem> {
        let (first, mut size) = (self.entries.len(), 1);
        let mut seen: HashSet<Cow<'t, str>> = HashSet::new();
        loop {
            let (event, place) = self.next()?;
            if event == Event::MappingEnd {
                return Ok((self.entries.drain(first..).collect(), size, place.end));
            }
            let Event::Scalar(text, _, _, None) = event else {
                return Err(Problem::new(place, "a key must be a text"));
            };
            let key = Key { text: self.written(text, &place), span: place };
            // Most maps are small enough to be looked through.
            let map = &self.entries[first..];
            if map.len() == SMALL {
                seen.extend(map.iter().map(|(key, _)| key.text.clone()));
            }
            let is_known = match map.len() < SMALL {
                true => map.iter().any(|(known, _)| known.text == key.text),
                false => !seen.insert(key.text.clone()),
            };
            let (event, place) = self.next()?;
            let tree = self.value(event, place, depth + 1)?;
            if is_known {
                if self.twice.len() < PROBLEMS_MAX {
                    self.twice.push(Problem::new(key.span, format!("`{}` stands here twice", key.text)));
                }
                continue;
            }
            size += tree.size;
            self.entries.push((key, tree));
        }
    }

    /// A text that stands in the file as it is meant need not be kept a second time.
    fn written(&self, text: Cow<'t, str>, place: &Range<usize>) -> Cow<'t, str> {
        match self.text.get(place.start..place.start + text.len()) {
            Some(written) if written == text => Cow::Borrowed(written),
            _ => Cow::Owned(text.into_owned()),
        }
    }

    fn alias(&mut self, anchor: usize, place: Range<usize>) -> Result<Tree<'t>, Problem> {
        if self.open.contains(&anchor) {
            return Err(Problem::new(place, "this stands inside of what it repeats, and would never end"));
        }
        let Some(tree) = self.anchors.get(&anchor).cloned() else {
            return Err(Problem::new(place, "nothing has this name"));
        };
        self.count(tree.size, &place)?;
        self.repeated_bytes = self.repeated_bytes.saturating_add(tree.bytes);
        if self.repeated_bytes > REPEATED_BYTES_MAX {
            let message = format!("the file comes to more than {REPEATED_BYTES_MAX} bytes here");
            return Err(Problem::new(place, message).help("repeat a smaller value, or repeat it less often"));
        }
        // Errors in it point to where it is repeated.
        Ok(Tree { span: place, ..tree })
    }

    fn done(&mut self, anchor: usize, value: Value<'t>, span: Range<usize>, size: usize) -> Result<Tree<'t>, Problem> {
        self.count(1, &span)?;
        // The parser counts the blanks behind a value as part of it.
        let length = self.text.get(span.clone()).map_or(0, |text| text.trim_end().len());
        let span = span.start..span.start + length;
        let bytes = match &value {
            Value::Scalar { text, .. } => text.len(),
            Value::List(list) => list.iter().map(|tree| tree.bytes).sum(),
            Value::Map(map) => map.iter().map(|(key, tree)| key.text.len() + tree.bytes).sum(),
        };
        let tree = Tree { value, span, size, bytes };
        if anchor > 0 {
            self.anchors.insert(anchor, tree.clone());
        }
        Ok(tree)
    }

    fn refuse_tag(&self, there: bool, place: &Range<usize>) -> Result<(), Problem> {
        if !there {
            return Ok(());
        }
        let word = self.text.get(place.start..).and_then(|text| text.split_whitespace().next());
        let length = word.filter(|word| word.starts_with('!')).map_or(place.len(), str::len);
        let span = place.start..place.start + length;
        Err(Problem::new(span, "tags are not part of the language").help("remove the word with the `!`"))
    }

    fn count(&mut self, more: usize, place: &Range<usize>) -> Result<(), Problem> {
        self.values = self.values.saturating_add(more);
        if self.values > VALUES_MAX {
            return Err(Problem::new(place.clone(), format!("the file comes to more than {VALUES_MAX} values here")));
        }
        Ok(())
    }
}

impl Tree<'_> {
    /// What it is, in words.
    pub(super) fn kind(&self) -> &'static str {
        match &self.value {
            Value::Scalar { .. } if self.is_nothing() => "nothing",
            Value::Scalar { .. } => "a text",
            Value::List(_) => "a list",
            Value::Map(_) => "a map",
        }
    }

    pub(super) fn is_nothing(&self) -> bool {
        matches!(&self.value, Value::Scalar { text, plain: true } if matches!(text.as_ref(), "" | "~" | "null"))
    }

    fn shifted(self, by: usize) -> Self {
        let move_on = |span: Range<usize>| span.start + by..span.end + by;
        let value = match &self.value {
            Value::Scalar { text, plain } => Value::Scalar { text: text.clone(), plain: *plain },
            Value::List(list) => Value::List(list.iter().map(|tree| tree.clone().shifted(by)).collect()),
            Value::Map(map) => {
                let moved = map.iter().map(|(key, tree)| {
                    let key = Key { text: key.text.clone(), span: move_on(key.span.clone()) };
                    (key, tree.clone().shifted(by))
                });
                Value::Map(moved.collect())
            }
        };
        Self { value, span: move_on(self.span), size: self.size, bytes: self.bytes }
    }

    /// The first whole number in it that would lose digits, and what to say of it.
    pub(super) fn too_large(&self) -> Option<(&Self, NumberError)> {
        match &self.value {
            Value::Scalar { text, plain: true } if may_be_number(text) => match parse_number(text) {
                Err(error @ NumberError::TooLarge(_)) => Some((self, error)),
                _ => None,
            },
            Value::Scalar { .. } => None,
            Value::List(list) => list.iter().find_map(Self::too_large),
            Value::Map(map) => map.iter().find_map(|(_, tree)| tree.too_large()),
        }
    }

    /// The value as JSON: plain numbers, booleans and nothing are what they look like, `on` and `no` are texts.
    pub(super) fn json(&self) -> serde_json::Value {
        match &self.value {
            Value::Scalar { text, plain } => scalar(text, *plain),
            Value::List(list) => list.iter().map(Self::json).collect(),
            Value::Map(map) => map
                .iter()
                .map(|(key, tree)| (key.text.to_string(), tree.json()))
                .collect::<serde_json::Map<_, _>>()
                .into(),
        }
    }
}

fn scalar(text: &str, plain: bool) -> serde_json::Value {
    use serde_json::Value as Json;
    if !plain {
        return Json::String(text.to_owned());
    }
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Json::Null,
        "true" | "True" | "TRUE" => Json::Bool(true),
        "false" | "False" | "FALSE" => Json::Bool(false),
        _ => {
            // A number that is too large is refused where the value is read, see `too_large`.
            let number = if may_be_number(text) { parse_number(text).ok() } else { None };
            number.map_or_else(|| Json::String(text.to_owned()), Json::Number)
        }
    }
}

/// `007` and `1_000` are texts: whoever means a number writes one.
fn may_be_number(text: &str) -> bool {
    let looks_like_one = text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.'));
    let padded = text.trim_start_matches(['-', '+']).starts_with('0') && text.len() > 1 && !text.contains('.');
    looks_like_one && !padded
}
