//! Skipped tests, for lack of judges.

use std::fs::OpenOptions;
use std::io::Write;

/// Records that a test, or a part of one, is skipped. If judges are required
/// (`SEEKLESS_JUDGES=required`, as in continuous integration), that is a failure; otherwise a line
/// is appended to the file `SEEKLESS_SKIPPED`, if that is set.
///
/// # Panics
/// If judges are required.
pub(crate) fn skip(why: &str) {
    let required = std::env::var_os("SEEKLESS_JUDGES").is_some_and(|value| value == "required");
    assert!(!required, "a judge is missing: {why}");
    eprintln!("skipped: {why}");
    if let Some(path) = std::env::var_os("SEEKLESS_SKIPPED") {
        let test = std::thread::current().name().unwrap_or("a test").to_string();
        let mut file = OpenOptions::new().create(true).append(true).open(path).expect("open");
        writeln!(file, "{test}: {why}").expect("write");
    }
}
