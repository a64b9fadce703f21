//! Directories: lists of entries in units of 512 bytes that none of them
//! crosses.

use crate::entry::kind_of;
use crate::inode::Inode;
use crate::ondisk::DIRECTORY_UNIT;
use crate::volume::Volume;
use seekless_fs::field::{byte, index, range, wide};
use seekless_fs::{DirEntry, FsError, Location};
use seekless_units::{Ino, Lbn};
use std::ops::ControlFlow;

impl Volume {
    /// Visits the entries of a directory after cookie `after`.
    pub(crate) fn read_entries(
        &self,
        dir: &Inode,
        after: u64,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<(), FsError> {
        let place = Location::of("directory").in_inode(dir.ino);
        let unit_len = wide(DIRECTORY_UNIT);
        let limit = self.sb.size * u64::from(self.sb.fsize);
        if dir.len > limit || !dir.len.is_multiple_of(unit_len) {
            return Err(range("di_size", dir.len, limit, place));
        }
        let bsize = u64::from(self.sb.bsize);
        let mut at = after - after % unit_len;
        while at < dir.len {
            // The rest of the current block.
            let len = (bsize - at % bsize).min(dir.len - at);
            let mut bytes = vec![0; index(len)];
            self.read_mapped(dir, seekless_units::ByteLen::new(at), &mut bytes)?;
            for (n, unit) in (0u64..).zip(bytes.chunks(DIRECTORY_UNIT)) {
                let base = at + n * unit_len;
                if self.unit(unit, base, after, place, visit)?.is_break() {
                    return Ok(());
                }
            }
            at += len;
        }
        Ok(())
    }

    /// Visits the entries of a unit that begins at byte `base` of its directory.
    fn unit(
        &self,
        unit: &[u8],
        base: u64,
        after: u64,
        place: Location,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, FsError> {
        debug_assert_eq!(unit.len(), DIRECTORY_UNIT, "a directory has whole units");
        debug_assert!(base.is_multiple_of(wide(DIRECTORY_UNIT)), "a unit begins at byte {base}");
        // A hole: a unit without any entry.
        if unit.iter().all(|&byte| byte == 0) {
            return Ok(ControlFlow::Continue(()));
        }
        let place = place.at_offset(byte(index(base)));
        for entry in self.sb.entries(unit, place) {
            let entry = entry?;
            let cookie = base + wide(entry.end());
            if !entry.is_name() || cookie <= after {
                continue;
            }
            let kind = kind_of(entry.kind);
            let shown = DirEntry { name: entry.name, ino: entry.ino, kind, cookie };
            if visit(shown).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The inode of a name, and the byte behind its entry.
    pub(crate) fn find(&self, dir: &Inode, name: &[u8]) -> Result<Option<(Ino, u64)>, FsError> {
        let mut found = None;
        self.read_entries(dir, 0, &mut |entry| {
            if entry.name == name {
                found = Some((entry.ino, entry.cookie));
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }

    /// The fragments of a directory up to a byte, holes left out.
    pub(crate) fn fragments(&self, dir: &Inode, end: u64) -> Result<Vec<Lbn>, FsError> {
        let last = end.div_ceil(u64::from(self.sb.bsize));
        let runs = self.runs(dir, &(0..last))?;
        Ok(runs.iter().flat_map(|run| (0..run.extent.len).map(|n| run.lbn + n)).collect())
    }
}
