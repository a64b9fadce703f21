//! The program that a trace was recorded of.

use super::Reader;
use serde_json::{Map, Value};
use std::ffi::OsStr;
use std::io::BufRead;

/// The field of a trace's header with the command that was recorded.
const COMMAND: &str = "command";

/// The program that a trace was recorded of: its command, as the header has it. Imported traces, and
/// those of a boot or of a whole system, have none, and may be of any programs.
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
        let command = reader.header().get(COMMAND).filter(|command| !command.is_null());
        Self(command.map(ToString::to_string))
    }

    /// Whether the header has a command.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.0.is_some()
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
