//! Warnings of traces that seem to belong to another image.

use crate::say::warning;
use seekless_layout::fit::{Fit, Fitting};

/// Warns if a trace seems to belong to another image than `image`.
pub(crate) fn warn(fit: &Fit, trace: &str, image: &str) {
    let Fit { events, fitting, relative } = fit;
    let question = "is this the trace of another image, or do its paths need another root \
                    (trace import --root)?";
    match fit.fitting() {
        Fitting::Empty => warning!("{trace} has no events"),
        Fitting::None => {
            warning!("{trace}: none of {events} events is of a file of {image}: {question}");
        }
        Fitting::Partly => {
            warning!(
                "{trace}: only {fitting} of {events} events are of files of {image}: {question}"
            );
        }
        Fitting::Fits => {}
    }
    if *relative > 0 {
        warning!(
            "{trace}: {relative} of {events} events have paths without a leading slash, which \
             are taken from the root of the image"
        );
    }
}
