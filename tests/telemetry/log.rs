//! The log of one process, as the tests read it.

use crate::until;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

/// A span that has ended, or an event: its name or message, its level, its enclosing span, and
/// its fields.
#[derive(Clone, Debug, Default)]
pub(super) struct LogLine {
    pub(super) name: String,
    pub(super) level: String,
    pub(super) parent: Option<String>,
    pub(super) fields: BTreeMap<String, String>,
}

impl LogLine {
    pub(super) fn get(&self, field: &str) -> &str {
        self.fields.get(field).unwrap_or_else(|| panic!("{field} is missing in {self:?}"))
    }

    pub(super) fn number(&self, field: &str) -> f64 {
        self.get(field).parse().unwrap_or_else(|_| panic!("{field} is not a number in {self:?}"))
    }
}

impl Visit for LogLine {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.name = format!("{value:?}");
        } else {
            self.fields.insert(field.name().to_owned(), format!("{value:?}"));
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name().to_owned(), value.to_owned());
    }
}

/// Keeps all entries with the target `elderlock`: the open spans and, in order, the ended spans and
/// the events.
#[derive(Clone, Default)]
pub(super) struct Log {
    pub(super) open: Arc<Mutex<BTreeMap<u64, LogLine>>>,
    pub(super) lines: Arc<Mutex<Vec<LogLine>>>,
}

impl Log {
    pub(super) fn named(&self, name: &str) -> Vec<LogLine> {
        self.lines
            .lock()
            .expect("no panic")
            .iter()
            .filter(|line| line.name == name)
            .cloned()
            .collect()
    }

    /// Spans with one of these names that have begun and not ended.
    pub(super) fn open(&self, names: &[&str]) -> Vec<LogLine> {
        let open = self.open.lock().expect("no panic");
        open.values().filter(|line| names.contains(&line.name.as_str())).cloned().collect()
    }

    pub(super) async fn opens(&self, names: &[&str]) -> LogLine {
        let seen = || format!("{:?}", self.lines.lock().expect("no panic"));
        until(&format!("one of {names:?} to begin"), || !self.open(names).is_empty(), seen).await;
        self.open(names).remove(0)
    }

    /// Waits until every span that has begun has ended. Its end is logged after the effects that
    /// other members see.
    pub(super) async fn is_closed(&self) {
        let open = || self.open.lock().expect("no panic").clone();
        until("all spans to end", || open().is_empty(), || format!("{:?}", open())).await;
    }

    pub(super) async fn reaches(&self, name: &str, count: usize) -> LogLine {
        until(
            &format!("{count} of {name}"),
            || self.named(name).len() >= count,
            || format!("{:?}", self.named(name)),
        )
        .await;
        self.named(name).remove(count - 1)
    }
}

impl<S: tracing::Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Log {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if span.metadata().target() == "elderlock" {
            let mut line = LogLine {
                name: attributes.metadata().name().to_owned(),
                level: attributes.metadata().level().to_string(),
                parent: span.parent().map(|parent| parent.name().to_owned()),
                fields: BTreeMap::new(),
            };
            attributes.record(&mut line);
            self.open.lock().expect("no panic").insert(id.into_u64(), line);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _: Context<'_, S>) {
        if let Some(line) = self.open.lock().expect("no panic").get_mut(&id.into_u64()) {
            values.record(line);
        }
    }

    fn on_event(&self, event: &tracing::Event<'_>, context: Context<'_, S>) {
        if event.metadata().target() == "elderlock" {
            let parent = context.event_span(event).map(|span| span.name().to_owned());
            let mut line = LogLine {
                level: event.metadata().level().to_string(),
                parent,
                ..LogLine::default()
            };
            event.record(&mut line);
            self.lines.lock().expect("no panic").push(line);
        }
    }

    fn on_close(&self, id: Id, _: Context<'_, S>) {
        if let Some(line) = self.open.lock().expect("no panic").remove(&id.into_u64()) {
            self.lines.lock().expect("no panic").push(line);
        }
    }
}
