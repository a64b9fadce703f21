//! The times of [`OverheadSpec`](super::spec::OverheadSpec) in nanoseconds.

use super::seek::nanos;
use super::spec::HddSpec;

/// A time that depends on whether the previous request was a read or a write.
#[derive(Clone, Copy, Debug)]
pub(super) struct After {
    read: u64,
    write: u64,
}

impl After {
    fn new(read: f64, write: f64) -> Self {
        Self { read: nanos(read), write: nanos(write) }
    }

    pub(super) fn get(self, after_read: bool) -> u64 {
        if after_read { self.read } else { self.write }
    }
}

/// The times of a drive that leaves the bus before it receives a write's data.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExtraDisconnect {
    pub(super) command: u64,
    pub(super) disconnect: u64,
    pub(super) away: u64,
    pub(super) second_disconnect: u64,
    pub(super) seek_delta: u64,
}

/// All times apart from the mechanics, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Overheads {
    pub(super) command: u64,
    pub(super) read_hit: After,
    pub(super) read_miss: After,
    pub(super) write: After,
    pub(super) read_completion: u64,
    pub(super) write_completion: u64,
    pub(super) data_preparation: u64,
    pub(super) reselect: u64,
    pub(super) reselect_again: u64,
    pub(super) read_disconnect: After,
    pub(super) write_disconnect: u64,
    pub(super) extra: Option<ExtraDisconnect>,
    pub(super) read_sector: u64,
    pub(super) write_sector: u64,
    pub(super) minimum_write_seek: u64,
}

impl Overheads {
    pub(super) fn new(spec: &HddSpec) -> Self {
        let times = &spec.overhead;
        let extra = times.extra_disconnect.as_ref().map(|extra| ExtraDisconnect {
            command: nanos(extra.command),
            disconnect: nanos(extra.disconnect),
            away: nanos(extra.away),
            second_disconnect: nanos(extra.second_disconnect),
            seek_delta: nanos(extra.seek_delta),
        });
        Self {
            command: nanos(times.command),
            read_hit: After::new(times.read_hit_after_read, times.read_hit_after_write),
            read_miss: After::new(times.read_miss_after_read, times.read_miss_after_write),
            write: After::new(times.write_after_read, times.write_after_write),
            read_completion: nanos(times.read_completion),
            write_completion: nanos(times.write_completion),
            data_preparation: nanos(times.data_preparation),
            reselect: nanos(times.reselect),
            reselect_again: nanos(times.reselect_again),
            read_disconnect: After::new(
                times.read_disconnect_after_read,
                times.read_disconnect_after_write,
            ),
            write_disconnect: nanos(times.write_disconnect),
            extra,
            read_sector: nanos(spec.bus.read_sector),
            write_sector: nanos(spec.bus.write_sector),
            minimum_write_seek: nanos(spec.buffer.minimum_write_seek),
        }
    }
}
