//! Update disciplines: when a change is written, and whether order is kept by
//! waiting or by undoing.

use crate::change::Role;
use std::fmt;
use std::str::FromStr;

/// An update discipline.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Discipline {
    /// Every change is written at once, data included.
    Sync,
    /// What makes or removes names, inodes and pointers that order matters for
    /// is written at once, in order; bitmaps, times and data later (4.2BSD). So
    /// are contents that move, and attributes: what was durable stays so.
    Normal,
    /// Everything is written later, in any order.
    Async,
    /// Everything is written later; what a block may not show yet is undone in
    /// the copy that is written (Ganger and Patt 1994; McKusick and Ganger 1999).
    SoftUpdates,
}

impl Discipline {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Sync, Self::Normal, Self::Async, Self::SoftUpdates];

    /// Its name as a mount option.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sync => "sync",
            Self::Normal => "normal",
            Self::Async => "async",
            Self::SoftUpdates => "softdep",
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
                    | Role::AttributesInit
                    | Role::InodeInit
                    | Role::InodeBlockInit
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
            Self::Async | Self::SoftUpdates => false,
        }
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
        write!(f, "{}: not an update discipline (sync, normal, async, softdep)", self.0)
    }
}

impl std::error::Error for UnknownDiscipline {}

impl FromStr for Discipline {
    type Err = UnknownDiscipline;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|discipline| discipline.name() == name);
        found.ok_or_else(|| UnknownDiscipline(name.to_string()))
    }
}
