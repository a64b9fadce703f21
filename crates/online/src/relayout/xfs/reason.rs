//! Reasons why the blocks of a file stay in place.

/// The reason why the blocks of a file on an XFS stay in place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum XfsReason {
    /// A running program, which cannot be opened for writing.
    Running,
    /// Immutable, or append-only.
    Protected,
    /// A file with privileges (set-user-ID, set-group-ID, capabilities), which the kernel removes
    /// when contents are exchanged.
    Privileged,
    /// It shares blocks with other files: a copy of its own would need more space.
    Shared,
    /// Its contents are on the real-time device.
    Realtime,
    /// It is accessed without the page cache (DAX).
    Dax,
    /// A swap file.
    Swap,
    /// It was changed during each try, or is leased.
    Busy,
    /// It was removed, or its end was moved.
    Changed,
    /// The blocks for it could not be allocated.
    Room,
}

impl XfsReason {
    /// Identifier in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Running => "running_programs",
            Self::Protected => "protected_files",
            Self::Privileged => "privileged_files",
            Self::Shared => "shared_files",
            Self::Realtime => "realtime_files",
            Self::Dax => "dax_files",
            Self::Swap => "swap_files",
            Self::Busy => "busy_files",
            Self::Changed => "changed_files",
            Self::Room => "without_room",
        }
    }

    /// Text for people.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Running => "programs that run",
            Self::Protected => "immutable files",
            Self::Privileged => "files with set-ID bits or capabilities",
            Self::Shared => "files that share blocks",
            Self::Realtime => "files on the real-time device",
            Self::Dax => "files with DAX",
            Self::Swap => "swap files",
            Self::Busy => "files in use",
            Self::Changed => "files that were changed",
            Self::Room => "files without room",
        }
    }
}
