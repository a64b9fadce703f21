//! Errors as exceptions.

use crate::check::Place;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use seekless::{Error, ErrorKind, Term};

/// An error of this module, without a subject.
pub(crate) fn usage(py: Python<'_>, message: impl Into<String>) -> PyErr {
    raise(py, &Error::usage(message.into()))
}

/// The exception for an error: a subclass of `seekless.Error`.
pub(crate) fn raise(py: Python<'_>, error: &Error) -> PyErr {
    exception(py, error).unwrap_or_else(|other| other)
}

fn exception(py: Python<'_>, error: &Error) -> PyResult<PyErr> {
    static MAKE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let make = MAKE.import(py, "seekless._errors", "make")?;
    let kind = match error.kind() {
        ErrorKind::Usage => "usage",
        ErrorKind::Corrupt => "corrupt",
        ErrorKind::Unsupported => "unsupported",
        ErrorKind::NoSpace => "no-space",
        ErrorKind::System => "system",
    };
    let location = seekless::Place::of(error).map(Place::from);
    let path = error.subjects().next();
    let made = make.call1((kind, error.in_terms(keyword), path, location, error.os_error()))?;
    Ok(PyErr::from_value(made))
}

/// A parameter as the functions of this module name it.
fn keyword(term: Term) -> &'static str {
    match term {
        Term::Force => "force=True",
        Term::Offset => "offset=",
        Term::Partition => "partition=",
        Term::IgnoreChecksums => "ignore_checksums=True",
        Term::FormatOption(name) => name,
        Term::Tag => "tag=",
        Term::Platform => "platform=",
        Term::BuildOfStream => "seekless build -",
        Term::Repair => "check(repair=True)",
        Term::Preen => "check(preen=True)",
        Term::ForcedMount => "seekless mount -o force",
        Term::Drop | Term::DropXattrs => "drop=\"all\"",
        Term::Owner => "owner=",
        Term::Size => "size=",
        Term::Reflink => "reflink=\"always\"",
        Term::OlderPartition => "like_partition=",
        Term::KeepFreed => "freed=\"keep\"",
        Term::Older => "like=",
        Term::Shared => "share=True",
        Term::JournalDevice => "check(journal=)",
        Term::Tracing => "Trace.of_paths, and the programs seekless record and trace import",
        // Of requests that this module does not have.
        _ => "a parameter of the program",
    }
}
