//! Contents of files. FAT has no holes: bytes between the old end of a file and a later one are
//! written as zeros.

use super::chain::Chain;
use super::clusters::{Clusters, no_space};
use super::departures::Departures;
use super::inodes::Inodes;
use super::map::{Core, MOST_BYTES};
use crate::boot::Boot;
use crate::ondisk::attr;
use seekless_cache::{ChangeId, Kind, Role};
use seekless_fs::field::{index, truncated, wide};
use seekless_fs::{FsError, Location};
use seekless_live::Ids;
use seekless_units::{BlockNo, Extent, Ino};
use std::sync::Arc;

/// Most zeros, in bytes, that are written before the device is given some time.
const STRETCH: u64 = 8 << 20;

/// The bytes to be written.
#[derive(Clone, Copy)]
enum Source<'a> {
    Bytes(&'a [u8]),
    Zeros(u64),
}

impl Source<'_> {
    fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => wide(bytes.len()),
            Self::Zeros(len) => *len,
        }
    }

    /// Puts the bytes from `from` on into a buffer.
    fn put(&self, from: u64, to: &mut [u8]) {
        match self {
            Self::Bytes(bytes) => {
                let bytes = bytes.get(index(from)..).unwrap_or_default();
                to.iter_mut().zip(bytes).for_each(|(to, &from)| *to = from);
            }
            Self::Zeros(_) => to.fill(0),
        }
    }
}

/// Changes of the contents of files.
pub(super) struct Contents<'a> {
    core: &'a mut Core,
    boot: Arc<Boot>,
    clusters: &'a mut Clusters,
    inodes: &'a mut Inodes,
    departures: &'a mut Departures,
}

impl<'a> Contents<'a> {
    pub(super) fn new(
        core: &'a mut Core,
        boot: &Arc<Boot>,
        clusters: &'a mut Clusters,
        inodes: &'a mut Inodes,
        departures: &'a mut Departures,
    ) -> Self {
        Self { core, boot: Arc::clone(boot), clusters, inodes, departures }
    }

    /// The chain of a file.
    fn chain(&mut self, ino: Ino) -> Result<&mut Chain, FsError> {
        self.inodes.chain(self.core, self.clusters, ino)
    }

    /// Writes as many bytes as there is space for. A changed file is marked for archiving
    /// (`ATTR_ARCHIVE` of fatgen103: set when a file is created, renamed, or written to).
    pub(super) fn write(&mut self, ino: Ino, offset: u64, bytes: &[u8]) -> Result<usize, FsError> {
        if offset >= MOST_BYTES {
            return Err(too_large());
        }
        let have = self.chain(ino)?.len();
        let size = self.core.node(ino)?.size;
        let mut end = (offset + wide(bytes.len())).min(MOST_BYTES);
        let missing = self.boot.clusters_for(end).saturating_sub(have);
        if missing > self.clusters.free() {
            let most = u64::from(have + self.clusters.free());
            let room = most * self.boot.cluster_bytes();
            if room <= offset {
                return Err(no_space());
            }
            end = end.min(room);
        }
        let bytes = bytes.get(..index(end - offset)).unwrap_or(bytes);
        let taken = self.extend(ino, end)?;
        let mut after = Ids::new();
        if offset > size {
            let zeros = Source::Zeros(offset - size);
            after.extend(self.put(ino, size, zeros, size)?);
        }
        after.extend(self.put(ino, offset, Source::Bytes(bytes), size)?);
        self.core.node(ino)?.map.attr |= attr::ARCHIVE;
        if end > size || taken.len() > 0 {
            self.publish(ino, have, &taken, end.max(size), after)?;
        }
        Ok(bytes.len())
    }

    /// Takes the clusters that a file needs for `end` bytes beyond those it has: nothing leads
    /// there yet.
    fn extend(&mut self, ino: Ino, end: u64) -> Result<Chain, FsError> {
        let chain = self.chain(ino)?;
        let (have, last) = (chain.len(), chain.last());
        let missing = self.boot.clusters_for(end).saturating_sub(have);
        let taken = self.clusters.take(last, missing)?;
        let chain = self.core.node(ino)?.map.chain.get_or_insert_with(Chain::default);
        for run in taken.runs() {
            let start = u32::try_from(run.start.get()).unwrap_or(u32::MAX);
            chain.push(start, u32::try_from(run.len).unwrap_or(u32::MAX));
        }
        let len = chain.len();
        debug_assert!(len >= self.boot.clusters_for(end), "{len} clusters for {end} bytes");
        Ok(taken)
    }

    /// Links a file to the clusters that were taken behind the first `have`, and sets its length,
    /// once their contents are on the disk.
    fn publish(
        &mut self,
        ino: Ino,
        have: u32,
        taken: &Chain,
        size: u64,
        mut after: Ids,
    ) -> Result<(), FsError> {
        debug_assert!(size <= MOST_BYTES, "a file of {size} bytes");
        let linked = self.clusters.put_chain(self.core, taken)?;
        after.extend(linked.iter().copied());
        let first = taken.first();
        let last = match have.checked_sub(1) {
            Some(last) => self.chain(ino)?.at(last).map(|(cluster, _)| cluster),
            None => None,
        };
        match (last, first) {
            (Some(last), Some(first)) => {
                let reached = self.clusters.put_link(self.core, last, Some(first), &linked)?;
                for &id in self.core.cache.changes().join(&reached).last().iter().copied() {
                    self.clusters.unnamed().note(self.core, id, taken);
                }
                after.extend(reached);
            }
            (None, Some(first)) => {
                self.core.node(ino)?.map.first = first;
                let is_new = self.inodes.numbers_mut().claim(first, ino);
                debug_assert!(is_new, "cluster {first} begins one file");
            }
            (_, None) => {}
        }
        let bytes = self.boot.cluster_bytes();
        let node = self.core.node(ino)?;
        node.size = size;
        node.sectors = size.next_multiple_of(bytes) >> 9;
        after.retain(|id| !self.core.cache.is_committed(*id));
        let named =
            self.inodes.put_pointer(self.core, self.clusters, ino, Role::PointerSet, &after)?;
        if last.is_none() {
            self.clusters.unnamed().note(self.core, named, taken);
        }
        Ok(())
    }

    /// Writes to clusters that a file has. The old contents of sectors past the first `size` bytes
    /// do not matter. The returned changes must be on the disk before the file is longer.
    fn put(
        &mut self,
        ino: Ino,
        offset: u64,
        from: Source<'_>,
        size: u64,
    ) -> Result<Vec<ChangeId>, FsError> {
        let mut ids = Vec::new();
        let cluster = self.boot.cluster_bytes();
        let len = from.len();
        let mut done = 0u64;
        let mut written = 0u64;
        while done < len {
            let at = offset + done;
            let lcn = u32::try_from(at / cluster).unwrap_or(u32::MAX);
            let found = self.chain(ino)?.at(lcn);
            let place = || truncated(Location::of("file").in_inode(ino));
            let (number, row) = found.ok_or_else(place)?;
            let skip = at % cluster;
            let room = u64::from(row) * cluster - skip;
            let now = room.min(len - done).min(STRETCH);
            let start = self.boot.sector_of(number);
            ids.extend(self.put_row((start, skip), (from, done, now), (at, size))?);
            let sectors = (skip + now).div_ceil(u64::from(self.boot.sector));
            self.core.note_unsettled(ino, Extent::new(start, sectors));
            done += now;
            written += now;
            if matches!(from, Source::Zeros(_)) && written >= STRETCH {
                self.core.cache.settle_runs(&[Extent::new(start, sectors)])?;
                written = 0;
            }
        }
        Ok(ids)
    }

    /// Writes `now` bytes of `from`, after the first `done`, to a row of sectors that begins in
    /// front of them; their offset in the file is `at`.
    fn put_row(
        &mut self,
        (start, skip): (BlockNo, u64),
        (from, done, now): (Source<'_>, u64, u64),
        (at, size): (u64, u64),
    ) -> Result<Vec<ChangeId>, FsError> {
        let mut ids = Vec::new();
        let len = u64::from(self.boot.sector);
        let mut put = 0u64;
        while put < now {
            let into = skip + put;
            let (sector, within) = (start + into / len, into % len);
            let part = (len - within).min(now - put);
            let source = done + put;
            let begins = at + put - within;
            debug_assert!(begins.is_multiple_of(len), "a sector begins at byte {begins}");
            let whole = part == len;
            let range = index(within)..index(within + part);
            let change = if whole || begins >= size {
                let fill = |to: &mut [u8]| {
                    from.put(source, to.get_mut(range).unwrap_or_default());
                    Ok(())
                };
                self.core.cache.changes().fill(sector, index(len), Role::Data, fill)?.1
            } else {
                let edit = |to: &mut [u8]| {
                    from.put(source, to);
                    Ok(())
                };
                self.core
                    .cache
                    .changes()
                    .edit(sector, index(within), index(part), Role::Data, edit)?
                    .1
            };
            ids.push(change);
            put += part;
        }
        Ok(ids)
    }

    /// Sets the length of a file.
    pub(super) fn set_len(&mut self, ino: Ino, len: u64) -> Result<(), FsError> {
        if len > MOST_BYTES {
            return Err(too_large());
        }
        let have = self.chain(ino)?.len();
        let size = self.core.node(ino)?.size;
        if len > size {
            let taken = self.extend(ino, len)?;
            self.core.node(ino)?.map.attr |= attr::ARCHIVE;
            let zeros = Source::Zeros(len - size);
            let after = self.put(ino, size, zeros, size)?;
            return self.publish(ino, have, &taken, len, Ids::from_vec(after));
        }
        let kept = self.boot.clusters_for(len);
        if len == size && kept >= have {
            return Ok(());
        }
        debug_assert!(kept <= have, "a file of {have} clusters is cut to {kept}");
        let cut = self.chain(ino)?.cut(kept);
        let bytes = self.boot.cluster_bytes();
        let node = self.core.node(ino)?;
        node.map.attr |= attr::ARCHIVE;
        node.size = len;
        node.sectors = len.next_multiple_of(bytes) >> 9;
        if kept == 0 {
            node.map.first = 0;
        }
        let id = self.inodes.put_pointer(self.core, self.clusters, ino, Role::PointerCut, &[])?;
        if cut.is_empty() {
            return Ok(());
        }
        let mut cleared = Ids::from_slice(&[id]);
        cleared.extend(self.departures.leaving(self.core, ino));
        if let Some(last) = self.chain(ino)?.last() {
            // An older name that is still on the disk has the old length.
            let end = self.clusters.put_link(self.core, last, None, &cleared)?;
            cleared.extend(end);
        }
        let runs: Vec<Extent> = cut.into_iter().map(|run| self.boot.sectors_of(run)).collect();
        self.core.forget_unsettled(ino, &runs);
        for &run in &runs {
            self.core.cache.changes().forget(run, id);
        }
        self.clusters.unnamed().note_going(self.core, &cleared, &runs);
        self.core.defer_free(&cleared, Kind::FreeBlocks, runs);
        Ok(())
    }

    /// The first sector of a cluster of a file.
    pub(super) fn block(&mut self, ino: Ino, lcn: u64) -> Result<Option<BlockNo>, FsError> {
        let Ok(lcn) = u32::try_from(lcn) else { return Ok(None) };
        let found = self.chain(ino)?.at(lcn);
        Ok(found.map(|(cluster, _)| self.boot.sector_of(cluster)))
    }
}

fn too_large() -> FsError {
    FsError::TooLarge("a file on FAT has at most 4,294,967,295 bytes".into())
}
