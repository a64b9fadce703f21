//! Why the blocks of a file stay where they are.

/// Why the blocks of a file stay where they are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Reason {
    /// It is a program that runs: nobody may open it for writing.
    Running,
    /// Immutable, or only to be appended to.
    Protected,
    /// It has rights of its own (set-user-ID, set-group-ID, capabilities), which the kernel
    /// takes from a file whose contents are exchanged.
    Privileged,
    /// It shares blocks with other files: by itself it would need some more.
    Shared,
    /// It lies on the real-time device.
    Realtime,
    /// It is accessed without a page cache (DAX).
    Dax,
    /// It is used as swap space.
    Swap,
    /// It was changed each time it was tried, or is leased.
    Busy,
    /// It was removed, or its end was moved.
    Changed,
    /// Blocks for it were not to be had.
    Room,
}

impl Reason {
    /// A word for JSON.
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

    /// For people.
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
