//! Whether a trace belongs to an image: the share of its events whose files the image contains.

use crate::say::warning;
use seekless_layout::replay::Replayed;
use seekless_layout::trace::Event;
use std::collections::HashSet;

/// Percentage of the events whose files the image should contain; less is a sign of another image.
const FITTING: u64 = 90;

/// The events of a trace, and those that fit an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Fit {
    /// Events whose file existed when they were recorded.
    pub(crate) events: u64,
    /// Those whose file the image contains.
    pub(crate) fitting: u64,
    /// Events with a path that does not begin with a slash.
    relative: u64,
}

impl Fit {
    pub(crate) fn new(events: &[Event], replayed: &Replayed) -> Self {
        let missing: HashSet<&[u8]> = replayed.missing.iter().map(Vec::as_slice).collect();
        let mut fit = Self { events: 0, fitting: 0, relative: 0 };
        for event in events.iter().filter(|event| !event.missing) {
            fit.events += 1;
            fit.fitting += u64::from(!missing.contains(event.path.as_slice()));
            fit.relative += u64::from(!event.path.starts_with(b"/"));
        }
        fit
    }

    /// Warns if the trace seems to belong to another image.
    pub(crate) fn warn(&self, trace: &str, image: &str) {
        let Self { events, fitting, relative } = self;
        let question = "is this the trace of another image, or do its paths need another root \
                        (trace import --root)?";
        if *events == 0 {
            warning!("{trace} has no events");
        } else if *fitting == 0 {
            warning!("{trace}: none of {events} events is of a file of {image}: {question}");
        } else if fitting * 100 < events * FITTING {
            warning!(
                "{trace}: only {fitting} of {events} events are of files of {image}: {question}"
            );
        }
        if *relative > 0 {
            warning!(
                "{trace}: {relative} of {events} events have paths without a leading slash, \
                 which are taken from the root of the image"
            );
        }
    }
}
