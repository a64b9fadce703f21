//! Writes to standard output and standard error; a reader that has closed its pipe is no error.
//!
//! Output that cannot be written ends the process, unless the command is a check, which completes its
//! repair and has the exit code of its result.

use crate::args::Global;
use crate::failure::Failure;
use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Whether messages are JSON. Global, since messages come from every thread.
static JSON: AtomicBool = AtomicBool::new(false);

/// Whether messages about progress are printed.
static PROGRESS: AtomicBool = AtomicBool::new(false);

/// Whether the process goes on when standard output cannot be written.
static GOES_ON: AtomicBool = AtomicBool::new(false);

/// Whether nothing more is written to standard output, since an earlier write has failed.
static IS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Sets the form of all later messages.
pub(crate) fn begin(global: &Global) {
    JSON.store(global.json, Ordering::Relaxed);
    let is_shown = !global.json && !global.quiet && io::stderr().is_terminal();
    PROGRESS.store(is_shown, Ordering::Relaxed);
    // No subscriber is set before.
    let _ = tracing::subscriber::set_global_default(Messages::default());
}

/// Prints the messages and warnings of libraries, which are events of `tracing`.
#[derive(Default)]
struct Messages {
    /// Those that are told only once.
    told: Mutex<BTreeSet<String>>,
}

/// The fields of an event that are of use here.
#[derive(Default)]
struct Told {
    message: String,
    once: bool,
    progress: bool,
}

impl Visit for Told {
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.once |= field.name() == "once" && value;
        self.progress |= field.name() == "progress" && value;
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.message = format!("{value:?}");
        }
    }
}

impl Messages {
    /// Whether a message that is told once was told before.
    fn is_known(&self, message: &str) -> bool {
        !self.told.lock().unwrap_or_else(PoisonError::into_inner).insert(message.into())
    }
}

impl Subscriber for Messages {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event()
            && *metadata.level() <= Level::INFO
            && metadata.target().starts_with("seekless")
    }

    fn event(&self, event: &Event<'_>) {
        let mut told = Told::default();
        event.record(&mut told);
        if told.progress && !PROGRESS.load(Ordering::Relaxed) {
            return;
        }
        if told.once && self.is_known(&told.message) {
            return;
        }
        match *event.metadata().level() {
            Level::INFO => tell(&told.message),
            _ => warn(format_args!("{}", told.message)),
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

/// Prints a line. If the reader has closed the pipe, the process ends with exit code 0.
pub(crate) fn line(text: fmt::Arguments<'_>) {
    bytes(format!("{text}\n").as_bytes());
}

/// Prints bytes as they are. If the reader has closed the pipe, the process ends as in [`line()`].
pub(crate) fn bytes(bytes: &[u8]) {
    if IS_CLOSED.load(Ordering::Relaxed) {
        return;
    }
    let mut out = io::stdout().lock();
    if let Err(error) = out.write_all(bytes).and_then(|()| out.flush()) {
        drop(out);
        if !GOES_ON.load(Ordering::Relaxed) {
            end(&error);
        }
        IS_CLOSED.store(true, Ordering::Relaxed);
        if error.kind() != io::ErrorKind::BrokenPipe {
            failure(&error).report(JSON.load(Ordering::Relaxed));
        }
    }
}

/// Lets the process go on when standard output cannot be written: the first error is reported, and
/// later output is dropped.
pub(crate) fn go_on() {
    GOES_ON.store(true, Ordering::Relaxed);
}

fn failure(error: &io::Error) -> Failure {
    Failure::io("standard output", error)
}

/// Ends the process: quietly on a closed pipe, otherwise with the error.
fn end(error: &io::Error) -> ! {
    if error.kind() == io::ErrorKind::BrokenPipe {
        std::process::exit(0);
    }
    std::process::exit(i32::from(failure(error).tell(JSON.load(Ordering::Relaxed))));
}

/// Prints a message on standard error.
pub(crate) fn tell(message: &str) {
    error_line(&format!("seekless: {message}"));
}

/// Prints a warning on standard error: with `--json`, an object with the key
/// `warning`.
pub(crate) fn warn(message: fmt::Arguments<'_>) {
    if JSON.load(Ordering::Relaxed) {
        error_line(&serde_json::json!({ "warning": message.to_string() }).to_string());
    } else {
        tell(&message.to_string());
    }
}

/// Prints a line on standard error in one write: the kernel's log makes an entry of each write.
pub(crate) fn error_line(line: &str) {
    // A failed write cannot be reported anywhere.
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// [`println!`] through [`line()`].
macro_rules! say {
    ($($arg:tt)*) => { $crate::say::line(format_args!($($arg)*)) };
}
pub(crate) use say;

/// [`eprintln!`] through [`warn()`].
macro_rules! warning {
    ($($arg:tt)*) => { $crate::say::warn(format_args!($($arg)*)) };
}
pub(crate) use warning;
