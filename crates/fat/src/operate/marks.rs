//! The marks of a volume in use.

use seekless_units::BlockNo;

/// A volume's marks as they were when it was opened.
#[derive(Clone, Copy, Debug)]
pub(super) struct VolumeMarks {
    /// It was unmounted, and no sector had failed.
    pub(super) clean: bool,
    /// The boot sector has a state byte.
    pub(super) has_state: bool,
    /// The sector of counts, if it is a valid one.
    pub(super) info: Option<BlockNo>,
    /// Whether the bytes of the mark for ordered writes are unused.
    pub(super) has_room: bool,
}
