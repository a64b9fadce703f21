//! A format as a target of the search for crash states, by its row in the table of formats.

use seekless_cache::{Config, Counters, Discipline, JournalMode};
use seekless_crash::{Live, Recovered, Target};
use seekless_device::{BlockDevice, VirtualClock};
use seekless_formats::{Argument, EmptyVolume, InUse, KnownFormat, Mounting, Version};
use seekless_fs::check::{Repaired, Report};
use seekless_fs::format::OpenOptions;
use seekless_fs::operate::Operate;
use seekless_fs::{FsError, Inspect, Timestamp};
use seekless_layout::planner;
use seekless_units::{ByteLen, Lba};
use std::sync::Arc;

/// Time of day on all volumes.
const NOW: Timestamp = Timestamp { secs: 1_700_000_000, nanos: 0 };

/// A version of a format, under placement policies.
pub(super) struct FormatTarget {
    known: &'static KnownFormat,
    version: &'static Version,
    policies: Vec<Argument>,
    /// The device is told of freed blocks.
    discards: bool,
}

impl FormatTarget {
    pub(super) const fn new(
        known: &'static KnownFormat,
        version: &'static Version,
        policies: Vec<Argument>,
    ) -> Self {
        Self { known, version, policies, discards: false }
    }

    /// Tells the device of freed blocks.
    pub(super) fn discarding(self) -> Self {
        Self { discards: true, ..self }
    }
}

/// A mounted image.
struct Used(Box<dyn InUse>);

impl Live for Used {
    fn operate(&mut self) -> &mut dyn Operate {
        self.0.as_mut()
    }

    fn write_some(&mut self, pick: &mut dyn FnMut(u64) -> bool) -> Result<bool, FsError> {
        self.0.write_some(pick)
    }

    fn counters(&self) -> &Counters {
        self.0.counters()
    }
}

fn recovered(repaired: Repaired) -> Recovered {
    Recovered { changed: repaired.writes > 0, report: repaired.report }
}

impl Target for FormatTarget {
    fn name(&self) -> &str {
        self.version.name
    }

    fn has_xattrs(&self) -> bool {
        self.version.has_xattrs
    }

    fn has_inodes(&self) -> bool {
        self.known.crash.has_inodes
    }

    fn image_len(&self) -> ByteLen {
        self.version.small.size
    }

    fn make(&self, device: &dyn BlockDevice) -> Result<(), FsError> {
        let arguments = self.version.small.arguments.iter();
        let arguments = arguments.map(|(name, value)| Argument::new(name, Some(value))).collect();
        let volume = EmptyVolume { size: device.len(), time: NOW, arguments };
        let maker = (self.known.maker)(self.version, &volume)?;
        maker.make(device, &|demand, space| planner::plan(demand, space, &[], 1))
    }

    /// Images with a journal are changed only under journal disciplines.
    fn prepared_under(&self) -> Discipline {
        match self.version.has_journal {
            true => Discipline::Journal(JournalMode::Writeback),
            false => Discipline::Async,
        }
    }

    fn mount(
        &self,
        device: Arc<dyn BlockDevice>,
        clock: Arc<VirtualClock>,
        config: Config,
    ) -> Result<Box<dyn Live>, FsError> {
        let mounting = Mounting {
            discipline: Some(config.discipline),
            arguments: self.policies.clone(),
            discards: Some(self.discards),
            ..Mounting::new(config)
        };
        let live = (self.known.open_live)(device, clock, &mounting, Box::new(|| NOW))?;
        Ok(Box::new(Used(live)))
    }

    fn check(&self, device: Arc<dyn BlockDevice>) -> Result<Report, FsError> {
        (self.known.check)(device)
    }

    /// As `check -p` does.
    fn preen(&self, device: Arc<dyn BlockDevice>) -> Result<Recovered, FsError> {
        (self.known.preen)(device, &[]).map(recovered)
    }

    fn is_used_but_free(&self, code: &str) -> bool {
        self.known.crash.used_but_free.contains(&code)
    }

    fn swaps_names(&self) -> bool {
        self.known.crash.swaps_names
    }

    fn asks_of_moves(&self, code: &str) -> bool {
        self.known.crash.asks_of_moves.contains(&code)
    }

    fn whole(&self) -> Option<(Lba, u64)> {
        self.version.small.whole
    }

    /// As `check -y` does.
    fn repair(&self, device: Arc<dyn BlockDevice>) -> Result<Recovered, FsError> {
        (self.known.repair)(device, &[]).map(recovered)
    }

    fn open(&self, device: Arc<dyn BlockDevice>) -> Result<Arc<dyn Inspect>, FsError> {
        (self.known.reader.open)(device, OpenOptions::default())
    }
}
