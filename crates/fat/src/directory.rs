//! Directories: slots of 32 bytes in the sectors of a chain, or in the fixed root.

use crate::entry::{LongName, LongNameSlots, Slot};
use crate::name;
use crate::ondisk::{ENTRY_SIZE, ShortEntry};
use crate::volume::Volume;
use seekless_fs::field::{index, invalid, range};
use seekless_fs::{FsError, Location};
use seekless_units::{BlockNo, Extent, Ino};
use std::ops::ControlFlow;

/// The sectors of a directory, in order.
#[derive(Clone, Debug)]
pub(crate) struct Sectors(pub(crate) Vec<Extent>);

impl Sectors {
    /// All sectors.
    pub(crate) fn iter(&self) -> impl Iterator<Item = BlockNo> + '_ {
        let each = |run: &Extent| {
            let start = run.start;
            (0..run.len).map(move |n| start + n)
        };
        self.0.iter().flat_map(each)
    }

    /// How many.
    pub(crate) fn count(&self) -> u64 {
        self.0.iter().map(|run| run.len).sum()
    }

    /// The sector with this number in the directory.
    pub(crate) fn nth(&self, mut n: u64) -> Option<BlockNo> {
        for run in &self.0 {
            if n < run.len {
                return Some(run.start + n);
            }
            n -= run.len;
        }
        None
    }
}

/// A file's entry.
pub(crate) struct Entry {
    /// Its short entry's number among the directory's slots.
    pub(crate) slot: u32,
    pub(crate) short: ShortEntry,
    /// The slots in front of it.
    pub(crate) head: LongNameSlots,
    /// The sector of the short entry.
    pub(crate) sector: BlockNo,
    pub(crate) offset: u32,
}

impl Entry {
    /// Refuses unusable short names: with control characters or a slash, and the names of
    /// directories for themselves.
    pub(crate) fn check_name(&self, place: Location) -> Result<(), FsError> {
        let name = &self.short.DIR_Name;
        // The first byte may stand for another one.
        let bad = |(at, &byte): (usize, &u8)| (byte < b' ' && (at, byte) != (0, 5)) || byte == b'/';
        if let Some((_, &value)) = name.iter().enumerate().find(|&(at, byte)| bad((at, byte))) {
            return Err(invalid("DIR_Name", value.into(), place));
        }
        let shown = self.short.shown();
        if shown.is_empty() || shown == b"." || shown == b".." {
            let value = name.first().copied().unwrap_or(0);
            return Err(invalid("DIR_Name", value.into(), place));
        }
        Ok(())
    }

    /// The name that is shown.
    pub(crate) fn name(&self) -> Vec<u8> {
        match &self.head.name {
            Some(units) => name::from_units(units),
            None => self.short.shown(),
        }
    }
}

/// An entry met on a visit of a directory: a file or the volume label.
pub(crate) enum VisitedEntry<'a> {
    File(&'a Entry),
    Label(&'a ShortEntry),
}

impl Volume {
    /// Slots in a sector.
    pub(crate) fn slots(&self) -> u32 {
        self.boot.slots_per_sector()
    }

    /// Visits the files of a directory, and its labels, from slot `from` on. The entries of a
    /// directory for itself and its parent are left out in their places, the first two slots of any
    /// but the root.
    pub(crate) fn visit(
        &self,
        dir: Ino,
        is_root: bool,
        sectors: &Sectors,
        from: u32,
        visit: &mut dyn FnMut(VisitedEntry<'_>) -> Result<ControlFlow<()>, FsError>,
    ) -> Result<(), FsError> {
        let skip = from / self.slots();
        let mut slot = skip * self.slots();
        let mut long = LongName::default();
        for sector in sectors.iter().skip(index(skip)) {
            let bytes = self.sector(sector)?;
            for (offset, bytes) in (0u32..).step_by(ENTRY_SIZE).zip(bytes.chunks(ENTRY_SIZE)) {
                let here = slot;
                let place = Location::of("directory entry").in_inode(dir).in_block(sector);
                let limit = u64::from(u32::MAX);
                let next = here.checked_add(1);
                slot = next.ok_or_else(|| range("directory slots", limit + 1, limit, place))?;
                if here < from {
                    continue;
                }
                let flow = match Slot::parse(bytes) {
                    None | Some(Slot::End) => return Ok(()),
                    Some(Slot::Deleted) => {
                        long.gap();
                        ControlFlow::Continue(())
                    }
                    Some(Slot::Long(piece)) => {
                        long.piece(here, &piece);
                        ControlFlow::Continue(())
                    }
                    Some(Slot::Label(label)) => {
                        long.gap();
                        visit(VisitedEntry::Label(&label))?
                    }
                    Some(Slot::Short(short)) => {
                        let head = long.finish(here, &short);
                        debug_assert!(head.start <= here, "a long name precedes its entry");
                        let is_own = here < 2 && !is_root && short.dots().is_some();
                        if is_own {
                            continue;
                        }
                        let entry = Entry { slot: here, short, head, sector, offset };
                        entry.check_name(place.at_offset(offset))?;
                        visit(VisitedEntry::File(&entry))?
                    }
                };
                if flow.is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}
