//! Standard output that does not mind when nobody listens any more.

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
        eprintln!("seekless: standard output: {error}");
        std::process::exit(crate::failure::Kind::System as i32);
    }
}

/// [`println!`] by way of [`line()`].
macro_rules! say {
    ($($arg:tt)*) => { $crate::say::line(format_args!($($arg)*)) };
}
pub(crate) use say;
