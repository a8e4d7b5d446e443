//! A small subscriber that keeps spans and events with their fields.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

/// A span that was made, or an event.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) name: String,
    pub(crate) target: String,
    pub(crate) level: Level,
    pub(crate) fields: BTreeMap<String, String>,
    /// Of the span it is in: name and fields.
    pub(crate) parent: Option<(String, BTreeMap<String, String>)>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Spans(Arc<Mutex<Vec<Seen>>>);

#[derive(Clone, Debug, Default)]
struct Fields(BTreeMap<String, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }
}

impl Spans {
    pub(crate) fn all(&self) -> Vec<Seen> {
        self.0.lock().unwrap().clone()
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Spans {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        context.span(id).unwrap().extensions_mut().insert(fields);
    }

    fn on_record(&self, id: &Id, record: &Record<'_>, context: Context<'_, S>) {
        let span = context.span(id).unwrap();
        record.record(span.extensions_mut().get_mut::<Fields>().unwrap());
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let parent = context.event_span(event).map(|span| {
            let fields = span.extensions().get::<Fields>().cloned().unwrap_or_default();
            (span.name().to_owned(), fields.0)
        });
        let meta = event.metadata();
        let (name, target) = ("event".to_owned(), meta.target().to_owned());
        self.0.lock().unwrap().push(Seen { name, target, level: *meta.level(), fields: fields.0, parent });
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let span = context.span(&id).unwrap();
        let fields = span.extensions().get::<Fields>().cloned().unwrap_or_default().0;
        let meta = span.metadata();
        let (name, target) = (meta.name().to_owned(), meta.target().to_owned());
        self.0.lock().unwrap().push(Seen { name, target, level: *meta.level(), fields, parent: None });
    }
}
