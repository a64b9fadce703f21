//! Progress bars for long work: on a terminal only, and not when told.

use crate::args::Global;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use seekless_units::ByteLen;

/// A bar that counts bytes to `total`.
pub(crate) fn bytes(global: &Global, total: ByteLen) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(total.get()), target(global));
    let style = ProgressStyle::with_template(
        "{elapsed_precise} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}",
    );
    match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// A bar that counts to `total`.
pub(crate) fn count(global: &Global, total: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(total), target(global));
    let style = ProgressStyle::with_template("{elapsed_precise} {wide_bar} {pos}/{len} {eta}");
    match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// Standard error, if a person watches it.
fn target(global: &Global) -> ProgressDrawTarget {
    if global.quiet || global.json {
        ProgressDrawTarget::hidden()
    } else {
        // Draws nothing unless standard error is a terminal.
        ProgressDrawTarget::stderr()
    }
}
