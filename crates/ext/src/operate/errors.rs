//! Errors that end all changes, recorded as the kernel does under `errors=remount-ro`
//! (`ext4_handle_error`, `save_error_info` of `fs/ext4/super.c`): the next `e2fsck -p` checks the
//! whole volume. The journal records them too, since a recovery may write home an older superblock.

use crate::ondisk::{STATE_ERRORS, Superblock};
use seekless_fs::field::low32;
use seekless_fs::{Corruption, FsError, Location};
use seekless_units::{BlockNo, Ino};

/// The name for the place of the error, where the kernel has that of a function.
const MET_BY: &[u8] = b"seekless";

/// `EXT4_ERR_*` of `fs/ext4/ext4.h`.
mod code {
    pub(super) const UNKNOWN: u8 = 1;
    pub(super) const EIO: u8 = 2;
    pub(super) const ENOSPC: u8 = 6;
    pub(super) const EFSBADCRC: u8 = 4;
    pub(super) const EFSCORRUPTED: u8 = 5;
}

/// An error as recorded in a superblock.
pub(super) struct ErrorRecord {
    code: u8,
    ino: u32,
    block: u64,
    secs: u64,
}

impl ErrorRecord {
    /// The record of an error at a moment.
    pub(super) fn of(error: &FsError, secs: u64) -> Self {
        let nowhere = Location::of("image");
        let (code, place) = match error {
            FsError::Corrupt { kind: Corruption::Checksum { .. }, location } => {
                (code::EFSBADCRC, **location)
            }
            FsError::Corrupt { location, .. } => (code::EFSCORRUPTED, **location),
            FsError::Device(_) | FsError::Io { .. } => (code::EIO, nowhere),
            FsError::NoSpace(_) => (code::ENOSPC, nowhere),
            _ => (code::UNKNOWN, nowhere),
        };
        let ino = place.ino.map_or(0, Ino::get);
        Self { code, ino, block: place.block.map_or(0, BlockNo::get), secs }
    }

    /// Puts it into a superblock, as the last one and, if there is none yet, as the first.
    pub(super) fn put(&self, raw: &mut Superblock) {
        let high = u8::try_from(self.secs >> 32 & 0xFF).unwrap_or(0);
        let mut func = [0; 32];
        func.iter_mut().zip(MET_BY).for_each(|(to, &from)| *to = from);
        if raw.s_first_error_time.get() == 0 && raw.s_first_error_time_hi == 0 {
            raw.s_first_error_time = low32(self.secs).into();
            raw.s_first_error_time_hi = high;
            raw.s_first_error_ino = self.ino.into();
            raw.s_first_error_block = self.block.into();
            (raw.s_first_error_func, raw.s_first_error_line) = (func, 0.into());
            raw.s_first_error_errcode = self.code;
        }
        raw.s_last_error_time = low32(self.secs).into();
        raw.s_last_error_time_hi = high;
        raw.s_last_error_ino = self.ino.into();
        raw.s_last_error_block = self.block.into();
        (raw.s_last_error_func, raw.s_last_error_line) = (func, 0.into());
        raw.s_last_error_errcode = self.code;
        raw.s_error_count = raw.s_error_count.get().saturating_add(1).into();
        raw.s_state = (raw.s_state.get() | STATE_ERRORS).into();
    }
}
