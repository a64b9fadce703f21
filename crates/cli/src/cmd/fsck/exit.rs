//! Exit codes of `fsck(8)`.

use seekless_fs::check::Outcome;

/// Errors were found, and corrected.
pub(crate) const CORRECTED: u8 = 1;
/// The root, which is mounted, was changed: added to other codes.
pub(crate) const REBOOT: u8 = 2;
/// Errors were found, and left uncorrected.
pub(crate) const LEFT: u8 = 4;
/// The image could not be checked.
pub(crate) const OPERATIONAL: u8 = 8;
/// The arguments are wrong.
pub(crate) const USAGE: u8 = 16;

/// The exit code of a check.
pub(crate) fn code(outcome: Outcome) -> u8 {
    match outcome {
        Outcome::Clean => 0,
        Outcome::Corrected => CORRECTED,
        Outcome::Left => LEFT,
    }
}
