//! Warnings of the libraries, which the logger `seekless` of Python gets.

use pyo3::prelude::*;
use std::fmt;
use std::mem;
use std::sync::{Mutex, PoisonError};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Warnings that Python's logger has not got yet. They come from threads without the lock of the
/// interpreter.
static PENDING: Mutex<Vec<(Level, String)>> = Mutex::new(Vec::new());

/// More are dropped.
const MOST: usize = 1000;

/// Collects the warnings of the process from now on.
pub(crate) fn collect() {
    // An earlier subscriber of the process stays.
    let _ = tracing::subscriber::set_global_default(Collector);
}

/// Hands the warnings to the logger.
pub(crate) fn log(py: Python<'_>) -> PyResult<()> {
    let pending = mem::take(&mut *PENDING.lock().unwrap_or_else(PoisonError::into_inner));
    if pending.is_empty() {
        return Ok(());
    }
    let logger = py.import("logging")?.call_method1("getLogger", ("seekless",))?;
    for (level, message) in pending {
        let method = if level == Level::INFO { "info" } else { "warning" };
        logger.call_method1(method, ("%s", message))?;
    }
    Ok(())
}

struct Collector;

/// The text of an event.
#[derive(Default)]
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

impl Subscriber for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event()
            && *metadata.level() <= Level::INFO
            && metadata.target().starts_with("seekless")
    }

    fn event(&self, event: &Event<'_>) {
        let mut message = Message::default();
        event.record(&mut message);
        let mut pending = PENDING.lock().unwrap_or_else(PoisonError::into_inner);
        if pending.len() < MOST {
            pending.push((*event.metadata().level(), message.0));
        }
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}
