//! Operations of the search for crash states that are the same for all formats.

use seekless_cache::{Config, Counters};
use seekless_crash::{Live, Recovered};
use seekless_device::{BlockDevice, VirtualClock};
use seekless_formats::{Argument, InUse, KnownFormat, Mounting};
use seekless_fs::operate::Operate;
use seekless_fs::{FsError, Timestamp};
use std::sync::Arc;

/// Time of day on all volumes.
pub(super) const NOW: Timestamp = Timestamp { secs: 1_700_000_000, nanos: 0 };

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

/// Mounts an image read-write.
pub(super) fn mount(
    known: &KnownFormat,
    device: Arc<dyn BlockDevice>,
    clock: Arc<VirtualClock>,
    config: Config,
    policies: &[Argument],
) -> Result<Box<dyn Live>, FsError> {
    let mounting = Mounting {
        discipline: Some(config.discipline),
        arguments: policies.to_vec(),
        ..Mounting::new(config)
    };
    Ok(Box::new(Used((known.open_live)(device, clock, &mounting, Box::new(|| NOW))?)))
}

/// Repairs the damage that a crash may leave, as `check -p` does.
pub(super) fn preen(
    known: &KnownFormat,
    device: Arc<dyn BlockDevice>,
) -> Result<Recovered, FsError> {
    let repaired = (known.preen)(device, &[])?;
    Ok(Recovered { changed: repaired.writes > 0, report: repaired.report })
}

/// Repairs everything, as `check -y` does.
pub(super) fn repair(
    known: &KnownFormat,
    device: Arc<dyn BlockDevice>,
) -> Result<Recovered, FsError> {
    let repaired = (known.repair)(device, &[])?;
    Ok(Recovered { changed: repaired.writes > 0, report: repaired.report })
}
