//! Where phases begin and end, and the pictures of their requests.

use super::volume::Volume;
use super::{CacheTally, Machine};
use crate::disk::DiskTally;
use crate::seekplot::{PlotId, SeekPlot};
use seekless_device::Clock;
use seekless_units::Nanos;

/// Counters at a moment; differences are the costs of a phase.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// Virtual time.
    pub now: Nanos,
    /// The processor's share of it.
    pub cpu: Nanos,
    /// The drives' requests.
    pub tally: DiskTally,
    /// The caches' counters.
    pub cache: CacheTally,
}

/// How each phase begins and ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PhaseEnds {
    /// `sync` ends it.
    pub(crate) sync: bool,
    /// The volumes are remounted before it begins.
    pub(crate) cold: bool,
}

/// A phase that has begun.
#[derive(Clone, Copy, Debug)]
pub struct Begun {
    /// Its name.
    pub name: &'static str,
    /// The counters at its beginning.
    pub before: Reading,
    plot: PlotId,
    volume: usize,
}

impl Machine {
    /// How far everything has come.
    #[must_use]
    pub fn reading(&self) -> Reading {
        Reading {
            now: self.clock.now(),
            cpu: self.spent,
            tally: self.volumes.iter().map(|volume| volume.disk.tally()).sum(),
            cache: self.volumes.iter().map(Volume::tally).sum(),
        }
    }

    /// Lets so much time pass as chance will have it; none in repetition 0.
    pub fn wait_a_moment(&mut self) {
        self.clock.sleep(self.chance.moment());
    }

    /// A phase begins, and a picture of its requests to the drive of the selected
    /// volume. The log gets its name.
    pub fn begin_phase(&self, name: &'static str) -> Begun {
        let plot = self.disk().begin_plot(name);
        Begun { name, before: self.reading(), plot, volume: self.at }
    }

    /// Leaves later requests out of the phase's plot.
    pub fn end_phase(&self, begun: &Begun) {
        self.volumes[begun.volume].disk.end_plot(begun.plot);
    }

    /// The plot of a phase, when all its requests are done.
    #[must_use]
    pub fn picture(&self, begun: &Begun) -> SeekPlot {
        self.volumes[begun.volume].disk.take_plot(begun.plot)
    }
}
