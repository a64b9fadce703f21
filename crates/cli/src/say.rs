//! Standard output and standard error that do not mind when nobody listens any more.

use std::fmt;
use std::io::{self, Write};

/// Prints a line; a reader that has gone ends the process quietly, as it would
/// end `cat`.
pub(crate) fn line(text: fmt::Arguments<'_>) {
    let mut out = io::stdout().lock();
    if let Err(error) = writeln!(out, "{text}").and_then(|()| out.flush()) {
        if error.kind() == io::ErrorKind::BrokenPipe {
            std::process::exit(0);
        }
        tell(&format!("standard output: {error}"));
        std::process::exit(crate::failure::Kind::System as i32);
    }
}

/// Prints a message on standard error.
pub(crate) fn tell(message: &str) {
    error_line(&format!("seekless: {message}"));
}

/// Prints a line on standard error, as one write: the kernel's log makes an entry of
/// each.
pub(crate) fn error_line(line: &str) {
    // Nothing can be done where nobody listens.
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// [`println!`] by way of [`line()`].
macro_rules! say {
    ($($arg:tt)*) => { $crate::say::line(format_args!($($arg)*)) };
}
pub(crate) use say;
