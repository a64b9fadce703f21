//! Workloads as text: an operation a line.
//!
//! ```text
//! # a comment
//! mkdir A
//! open A/foo             made if it is not there; write and fsync mean it now
//! write 0 5000
//! begin                  what comes before is the image's state to begin with
//! rename A/foo A/bar
//! fsync A/bar
//! ```
//!
//! [`parse`] reads it, [`Script`]'s `Display` writes it.

mod op;
mod parse;

pub use op::{Op, Path};
pub use parse::{ScriptError, parse};

use std::fmt;

/// An operation, and its line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    /// Its line in the text, from 1; 0 for one that is of no text.
    pub number: u32,
    /// The operation.
    pub op: Op,
}

impl Line {
    /// A generated line, of no text.
    #[must_use]
    pub const fn made(op: Op) -> Self {
        Self { number: 0, op }
    }
}

/// A workload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Script {
    /// Its name.
    pub name: String,
    /// Operations done before recording; their results are on the disk.
    pub setup: Vec<Line>,
    /// Operations done while writes are recorded.
    pub body: Vec<Line>,
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.setup {
            writeln!(f, "{}", line.op)?;
        }
        if !self.setup.is_empty() {
            writeln!(f, "begin")?;
        }
        for line in &self.body {
            writeln!(f, "{}", line.op)?;
        }
        Ok(())
    }
}
