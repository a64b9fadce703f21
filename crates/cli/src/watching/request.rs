//! A daemon that runs is asked to work now: by a file beside its state, which it takes
//! away when it answers with another.

use super::store::Store;
use crate::failure::{Failure, Kind};
use crate::interrupt::uninterrupted;
use crate::output::replace;
use serde_json::Value;
use signal_hook::iterator::Signals;
use std::io;
use std::path::Path;
use std::time::Duration;

/// How often it is looked whether there is an answer.
const POLL: Duration = Duration::from_millis(200);

const REQUEST: &str = "request";
const ANSWER: &str = "answer";

/// What was asked for, if anything was.
pub(super) fn pending(store: &Store) -> Option<Value> {
    let text = std::fs::read(store.path(REQUEST)).ok()?;
    Some(serde_json::from_slice(&text).unwrap_or(Value::Null))
}

fn write(path: &Path, value: &Value) -> Result<(), Failure> {
    replace(path, |out| serde_json::to_writer(out, value).map_err(io::Error::from))
}

/// Answers what was asked for.
pub(super) fn answer(store: &Store, value: &Value) -> Result<(), Failure> {
    write(&store.path(ANSWER), value)?;
    let request = store.path(REQUEST);
    std::fs::remove_file(&request).or_else(|error| match error.kind() {
        // Whoever asked has gone.
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(Failure::io(request.display(), &error)),
    })
}

/// Asks the daemon that has the lock of `store`, and waits for its answer.
///
/// # Errors
/// When it ends before, or a signal comes.
pub(crate) fn ask(
    store: &Store,
    question: &Value,
    signals: &mut Signals,
) -> Result<Value, Failure> {
    let (request, answer) = (store.path(REQUEST), store.path(ANSWER));
    let _ = std::fs::remove_file(&answer);
    write(&request, question)?;
    let waited = loop {
        if let Err(failure) = uninterrupted(signals) {
            break Err(failure);
        }
        match std::fs::read(&answer) {
            Ok(text) => {
                break serde_json::from_slice(&text).map_err(|error| {
                    Failure::new(Kind::Corrupt, error.to_string()).about(answer.display())
                });
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                break Err(Failure::io(answer.display(), &error));
            }
            Err(_) => {}
        }
        if store.lock()?.is_some() {
            break Err(Failure::new(Kind::System, "the daemon has ended before it answered"));
        }
        std::thread::sleep(POLL);
    };
    let _ = std::fs::remove_file(&request);
    let _ = std::fs::remove_file(&answer);
    waited
}
