//! Failures for options that are not supported.

use crate::failure::{Failure, Kind};

/// The failure for an option that is not supported.
pub(super) fn unsupported(option: &str, what: &str) -> Failure {
    Failure::new(Kind::Unsupported, format!("{option}: {what}"))
}

/// The failure for arguments that name no way to answer the questions of a repair.
pub(super) fn needs_answers() -> Failure {
    unsupported("repairs that ask", "not supported; give -p, -n or -y")
}
