//! The progress of a check, as `-C` of e2fsck shows it.

use crate::failure::Failure;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use seekless_fs::check::Watch;
use signal_hook::consts::{SIGUSR1, SIGUSR2};
use signal_hook::flag::register_usize;
use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Where each pass begins and the last one ends, in per cent of the whole check.
const STARTS: [u64; 6] = [0, 70, 90, 92, 95, 100];

/// The progress as lines, or as a bar.
struct CheckProgress {
    /// Not 0 while it is shown: signals set it.
    is_on: Arc<AtomicUsize>,
    form: ProgressForm,
}

enum ProgressForm {
    /// Lines of pass, position, maximum and name.
    Lines { out: Mutex<File>, name: String },
    /// A bar.
    Bar(ProgressBar),
}

/// Follows a check as an argument of `-C` says; without one, SIGUSR1 shows a bar. `name` gives the
/// name of the volume.
pub(super) fn watch(
    descriptor: Option<i32>,
    name: impl FnOnce() -> String,
) -> Result<Option<Arc<dyn Watch>>, Failure> {
    let is_on = Arc::new(AtomicUsize::new(usize::from(descriptor.is_some_and(|it| it >= 0))));
    for (signal, value) in [(SIGUSR1, 1), (SIGUSR2, 0)] {
        register_usize(signal, Arc::clone(&is_on), value)
            .map_err(|error| Failure::io("signals", &error))?;
    }
    let form = match descriptor {
        None | Some(0) => ProgressForm::Bar(bar(name())),
        Some(number) => {
            let number = number.checked_abs().unwrap_or(i32::MAX);
            let out = seekless_host::inherited::inherited(number)
                .map_err(|error| Failure::io(format!("-C {number}"), &error))?;
            ProgressForm::Lines { out: Mutex::new(out), name: name() }
        }
    };
    Ok(Some(Arc::new(CheckProgress { is_on, form })))
}

/// A bar on standard error, if that is a terminal.
fn bar(name: String) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(1000), ProgressDrawTarget::stderr());
    match ProgressStyle::with_template("{prefix}: |{wide_bar}| {percent}%") {
        Ok(style) => bar.with_style(style.progress_chars("== ")).with_prefix(name),
        Err(_) => bar,
    }
}

impl Watch for CheckProgress {
    fn reach(&self, phase: u8, done: u64, of: u64) {
        if self.is_on.load(Ordering::Relaxed) == 0 {
            return;
        }
        match &self.form {
            ProgressForm::Lines { out, name } => {
                let mut out = out.lock().unwrap_or_else(PoisonError::into_inner);
                // The reader may have ended: the check goes on.
                let _ = out.write_all(format!("{phase} {done} {of} {name}\n").as_bytes());
            }
            ProgressForm::Bar(bar) => {
                let at = usize::from(phase);
                let start = at.checked_sub(1).and_then(|before| STARTS.get(before));
                if let (Some(start), Some(end)) = (start, STARTS.get(at)) {
                    bar.set_position(start * 10 + (end - start) * 10 * done / of.max(1));
                }
                if at + 1 == STARTS.len() && done == of {
                    bar.finish_and_clear();
                }
            }
        }
    }
}
