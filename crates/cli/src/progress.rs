//! Progress bars, on a terminal only, and not with `--quiet` or `--json`.

use crate::args::Global;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use seekless_images::Progress;
use seekless_units::{ByteLen, format_size};
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};

/// A bar that counts bytes up to `total`.
pub(crate) fn bytes(global: &Global, total: ByteLen) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(total.get()), target(global));
    let style =
        ProgressStyle::with_template("{elapsed_precise} {wide_bar} {done}/{total} {rate}/s {eta}");
    // Sizes in the form of all other output: 512K, 1.5G.
    let size = |of: fn(&ProgressState) -> u64| {
        move |state: &ProgressState, out: &mut dyn Write| {
            let _ = out.write_str(&format_size(ByteLen::new(of(state))));
        }
    };
    match style {
        Ok(style) => bar.with_style(
            style
                .with_key("done", size(|state| state.pos()))
                .with_key("total", size(|state| state.len().unwrap_or_default()))
                .with_key("rate", size(|state| state.per_sec() as u64)),
        ),
        Err(_) => bar,
    }
}

/// The progress of library calls, shown as bars that count bytes.
pub(crate) fn shown(global: &Global) -> Bars {
    Bars { global: *global, bar: Mutex::new(ProgressBar::hidden()) }
}

/// Progress bars of [`shown`].
pub(crate) struct Bars {
    global: Global,
    bar: Mutex<ProgressBar>,
}

impl Bars {
    fn bar(&self) -> std::sync::MutexGuard<'_, ProgressBar> {
        self.bar.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Progress for Bars {
    fn begin(&self, total: ByteLen) {
        *self.bar() = bytes(&self.global, total);
    }

    fn advance(&self, bytes: ByteLen) {
        self.bar().inc(bytes.get());
    }

    fn reach(&self, bytes: ByteLen) {
        self.bar().set_position(bytes.get());
    }

    fn end(&self) {
        self.bar().finish_and_clear();
    }
}

/// A bar that counts up to `total`.
pub(crate) fn count(global: &Global, total: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(total), target(global));
    let style = ProgressStyle::with_template("{elapsed_precise} {wide_bar} {pos}/{len} {eta}");
    match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// Standard error, unless `--quiet` or `--json` is given.
fn target(global: &Global) -> ProgressDrawTarget {
    if global.quiet || global.json {
        ProgressDrawTarget::hidden()
    } else {
        // indicatif draws nothing unless standard error is a terminal.
        ProgressDrawTarget::stderr()
    }
}
