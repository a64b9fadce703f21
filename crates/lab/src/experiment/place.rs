//! The place of an error in a file.

use seekless_model::SpecError;
use toml::de::{DeTable, DeValue};

/// One segment of the path from the top of a file to a value.
enum PathSegment {
    /// The value of a key.
    Key(&'static str),
    /// One of a list, from 0.
    At(usize),
}

/// The error of a value, and the path to it.
pub(super) struct Fault {
    way: Vec<PathSegment>,
    message: String,
}

impl Fault {
    /// A fault of a key's value; the enclosing tables are added later.
    pub(super) fn of(key: &'static str, message: impl Into<String>) -> Self {
        Self { way: vec![PathSegment::Key(key)], message: message.into() }
    }

    /// A fault of one of a list.
    pub(super) fn at(key: &'static str, at: usize, message: impl Into<String>) -> Self {
        Self { way: vec![PathSegment::Key(key), PathSegment::At(at)], message: message.into() }
    }

    /// The value lies in that of a key.
    pub(super) fn within(mut self, key: &'static str) -> Self {
        self.way.insert(0, PathSegment::Key(key));
        self
    }

    /// The value lies in one of a list of tables.
    pub(super) fn within_one(mut self, key: &'static str, at: usize) -> Self {
        self.way.splice(0..0, [PathSegment::Key(key), PathSegment::At(at)]);
        self
    }

    /// The error, with the line of the value; where it is not there, with that
    /// of the table that should have it.
    pub(super) fn told(self, text: &str, file: &str) -> SpecError {
        let before = text.get(..start(text, &self.way)).unwrap_or("");
        let key = self.way.iter().rev().find_map(|step| match step {
            PathSegment::Key(key) => Some(*key),
            PathSegment::At(_) => None,
        });
        SpecError::Invalid {
            file: file.into(),
            line: before.matches('\n').count() + 1,
            key: key.unwrap_or_default().into(),
            message: self.message,
        }
    }
}

/// The byte at which the last step begins that there is.
fn start(text: &str, way: &[PathSegment]) -> usize {
    let Ok(table) = DeTable::parse(text) else { return 0 };
    let (mut here, mut start) = (DeValue::Table(table.into_inner()), 0);
    for step in way {
        let found = match (step, here) {
            (PathSegment::Key(key), DeValue::Table(table)) => {
                let mut all = table.into_iter();
                let found = all.find(|(known, _)| known.get_ref() == key);
                found.map(|(key, value)| (key.span().start, value.into_inner()))
            }
            (PathSegment::At(at), DeValue::Array(list)) => {
                let found = list.into_iter().nth(*at);
                found.map(|value| (value.span().start, value.into_inner()))
            }
            _ => None,
        };
        let Some(next) = found else { break };
        (start, here) = next;
    }
    start
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "a = [\n 1,\n 2,\n]\n[[t]]\nx = 1\n[[t]]\n[t.in]\ny = { z = 3 }\n";

    #[test]
    fn the_line_is_that_of_the_value_or_of_what_should_have_it() {
        let line = |fault: Fault| fault.told(TEXT, "f").to_string();
        assert_eq!(line(Fault::at("a", 1, "no")), "f:3: a: no");
        assert_eq!(line(Fault::of("x", "no").within_one("t", 0)), "f:6: x: no");
        assert_eq!(line(Fault::of("x", "no").within_one("t", 1)), "f:7: x: no");
        let deep = || Fault::of("z", "no").within("y").within("in");
        assert_eq!(line(deep().within_one("t", 1)), "f:9: z: no");
        assert_eq!(line(Fault::of("w", "no").within("in").within_one("t", 1)), "f:8: w: no");
        assert_eq!(line(Fault::of("b", "no")), "f:1: b: no");
    }
}
