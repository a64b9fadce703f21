//! Whether a trace belongs to an image: the share of its events whose files the image contains.

use crate::replay::Replayed;
use crate::trace::Events;
use std::collections::HashSet;

/// Percentage of the events whose files the image should contain; less is a sign of another image.
const FITTING: u64 = 90;

/// The events of a trace, and those that fit an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fit {
    /// Events whose file existed when they were recorded.
    pub events: u64,
    /// Those whose file the image contains.
    pub fitting: u64,
    /// Events with a path that does not begin with a slash.
    pub relative: u64,
}

/// How well a trace fits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fitting {
    /// It has no events.
    Empty,
    /// The image contains none of its files.
    None,
    /// The image lacks more than a tenth of the events' files: it may be another image's trace.
    Partly,
    /// It belongs to the image.
    Fits,
}

impl Fit {
    /// Counts the events whose files a replay did not miss.
    #[must_use]
    pub fn new(events: &Events, replayed: &Replayed) -> Self {
        let missing: HashSet<&[u8]> = replayed.missing.iter().map(Vec::as_slice).collect();
        let mut fit = Self { events: 0, fitting: 0, relative: 0 };
        let mut found = vec![None; events.paths()];
        for (at, event) in events.iter().enumerate().filter(|(_, event)| !event.missing) {
            let found = &mut found[events.path(at)];
            fit.events += 1;
            fit.fitting += u64::from(*found.get_or_insert_with(|| !missing.contains(event.path)));
            fit.relative += u64::from(!event.path.starts_with(b"/"));
        }
        fit
    }

    /// How well the trace fits.
    ///
    /// ```
    /// use seekless_layout::fit::{Fit, Fitting};
    ///
    /// let fit = Fit { events: 100, fitting: 89, relative: 0 };
    /// assert_eq!(fit.fitting(), Fitting::Partly);
    /// ```
    #[must_use]
    pub const fn fitting(&self) -> Fitting {
        match (self.events, self.fitting) {
            (0, _) => Fitting::Empty,
            (_, 0) => Fitting::None,
            (events, fitting) if fitting * 100 < events * FITTING => Fitting::Partly,
            _ => Fitting::Fits,
        }
    }
}
