//! Where phases begin and end, and the pictures of their requests.

use super::{Machine, Reading};
use crate::seekplot::{PlotId, SeekPlot};
use seekless_device::Clock;
use seekless_fs::FsError;

/// A phase that has begun.
#[derive(Clone, Copy, Debug)]
pub struct Begun {
    /// What it is called.
    pub name: &'static str,
    /// How things stood then.
    pub before: Reading,
    plot: PlotId,
}

impl Machine {
    /// Lets so much time pass as chance will have it; none in repetition 0.
    pub fn wait_a_moment(&mut self) {
        self.clock.sleep(self.chance.moment());
    }

    /// A phase begins, and a picture of its requests. `log` gets its name.
    ///
    /// # Errors
    /// [`FsError::Device`] when the log cannot be written.
    pub fn begin_phase(&self, name: &'static str) -> Result<Begun, FsError> {
        let plot = self.disk.begin_plot(name)?;
        Ok(Begun { name, before: self.reading(), plot })
    }

    /// What is asked from now on is not in a phase's picture.
    pub fn end_phase(&self, begun: &Begun) {
        self.disk.end_plot(begun.plot);
    }

    /// The picture of a phase, when all its requests are done.
    #[must_use]
    pub fn picture(&self, begun: &Begun) -> SeekPlot {
        self.disk.take_plot(begun.plot)
    }
}
