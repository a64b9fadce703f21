//! The program that a trace was recorded of.

use super::Reader;
use serde_json::{Map, Value};
use std::ffi::OsStr;
use std::io::BufRead;

/// The field of a trace's header with the command that was recorded.
const COMMAND: &str = "command";

/// The program that a trace was recorded of: its command, as the header has it. Traces of boots,
/// and imported ones, have none, and are taken for recordings of one program.
///
/// ```
/// use seekless_layout::trace::{Program, Reader};
///
/// let trace = &b"{\"seekless_trace\":1,\"command\":[\"make\",\"-j4\"]}\n"[..];
/// let program = Program::of(&Reader::new(trace)?);
/// assert_eq!(program, Program::of_command(["make", "-j4"].map(AsRef::as_ref)));
/// assert_ne!(program, Program::default());
/// # Ok::<(), seekless_layout::trace::TraceError>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Program(Option<String>);

impl Program {
    /// The program of a trace with this header.
    #[must_use]
    pub fn of<R: BufRead>(reader: &Reader<R>) -> Self {
        Self(reader.header().get(COMMAND).map(ToString::to_string))
    }

    /// The program of this command.
    #[must_use]
    pub fn of_command<'a>(words: impl IntoIterator<Item = &'a OsStr>) -> Self {
        let words = words.into_iter().map(|word| Value::from(word.to_string_lossy()));
        Self(Some(Value::Array(words.collect()).to_string()))
    }

    /// The fields of a trace's header that tell the program.
    #[must_use]
    pub fn fields(&self) -> Map<String, Value> {
        let command = self.0.as_ref().map(|text| serde_json::from_str(text).expect("JSON"));
        command.map(|command| (COMMAND.to_string(), command)).into_iter().collect()
    }
}
