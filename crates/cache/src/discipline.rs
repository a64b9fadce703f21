//! Update disciplines: when a change is written, and whether order is kept by
//! waiting, by undoing, or by a log.

use crate::change::Role;
use std::fmt;
use std::str::FromStr;

/// The contents of files that a journal keeps in order (ext3's and ext4's `data=`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum JournalMode {
    /// Nothing: after a crash a file may show former contents of its blocks.
    Writeback,
    /// Contents that a change waits for are on the disk before its transaction is
    /// committed: those of blocks that are new to a file.
    Ordered,
    /// All contents go through the log, as metadata do.
    Data,
}

impl JournalMode {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Writeback, Self::Ordered, Self::Data];

    /// Whether changes of this role go through the log, whatever they are made to.
    pub(crate) fn logs(self, role: Role) -> bool {
        self == Self::Data || !role.is_data()
    }

    /// Its name as the value of a mount option.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Writeback => "writeback",
            Self::Ordered => "ordered",
            Self::Data => "data",
        }
    }
}

/// An update discipline.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Discipline {
    /// Every change is written at once, data included.
    Sync,
    /// Changes to names, inodes and pointers for which order matters are written at once, in order;
    /// bitmaps, times and data later (4.2BSD). Contents that move, and attributes, are also written
    /// at once: durable ones are not lost.
    Normal,
    /// Everything is written later, in any order.
    Async,
    /// Everything is written later; changes whose dependencies are not on the disk are rolled back
    /// in the copy that is written (Ganger and Patt 1994; McKusick and Ganger 1999).
    SoftUpdates,
    /// Metadata go to a log first, in transactions that are there after a crash or
    /// are not, and home later. The cache must be given the log
    /// ([`Transactions::open_log`](crate::Transactions::open_log)).
    Journal(JournalMode),
}

impl Discipline {
    /// All that need nothing of the format: no log.
    pub const ALL: [Self; 4] = [Self::Sync, Self::Normal, Self::Async, Self::SoftUpdates];

    /// Its name as a mount option.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sync => "sync",
            Self::Normal => "normal",
            Self::Async => "async",
            Self::SoftUpdates => "softdep",
            Self::Journal(JournalMode::Writeback) => "journal=writeback",
            Self::Journal(JournalMode::Ordered) => "journal=ordered",
            Self::Journal(JournalMode::Data) => "journal=data",
        }
    }

    /// Whether a change of this role is written before the call returns.
    #[must_use]
    pub const fn writes_at_once(self, role: Role) -> bool {
        match self {
            Self::Sync => true,
            Self::Normal => matches!(
                role,
                Role::DataMove
                    | Role::TargetInit
                    | Role::AttributesInit
                    | Role::InodeInit
                    | Role::TableInit
                    | Role::SizeExtend
                    | Role::PointerMove
                    | Role::DirectoryExtend
                    | Role::PointerClear
                    | Role::PointerCut
                    | Role::IndirectInit
                    | Role::IndirectClear
                    | Role::DirectoryInit
                    | Role::EntryAdd
                    | Role::EntryAddDirectory
                    | Role::EntryChange
                    | Role::EntryRemove
                    | Role::LinkCount
            ),
            Self::Async | Self::SoftUpdates | Self::Journal(_) => false,
        }
    }

    /// The contents its journal keeps in order, if it has one.
    #[must_use]
    pub const fn journal_mode(self) -> Option<JournalMode> {
        if let Self::Journal(mode) = self { Some(mode) } else { None }
    }

    /// Whether the state after a crash depends on the order of single writes: not where no order is
    /// kept, and not where a log has all of an operation.
    #[must_use]
    pub const fn orders_writes(self) -> bool {
        !matches!(self, Self::Async | Self::Journal(_))
    }

    /// Whether it keeps the graph of changes.
    #[must_use]
    pub const fn keeps_graph(self) -> bool {
        matches!(self, Self::SoftUpdates)
    }
}

impl fmt::Display for Discipline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Not the name of a discipline.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownDiscipline(String);

impl fmt::Display for UnknownDiscipline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: not an update discipline (sync, normal, async, softdep, journal=ordered, \
             journal=writeback, journal=data)",
            self.0
        )
    }
}

impl std::error::Error for UnknownDiscipline {}

impl FromStr for Discipline {
    type Err = UnknownDiscipline;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let journals = JournalMode::ALL.map(Self::Journal);
        let mut all = Self::ALL.into_iter().chain(journals);
        let found = all.find(|discipline| discipline.name() == name);
        found.ok_or_else(|| UnknownDiscipline(name.to_string()))
    }
}
