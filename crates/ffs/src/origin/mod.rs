//! Copy-on-write device below a volume in use: before a block is overwritten for the first time since
//! a snapshot was taken, the device copies it into the snapshot (`ffs_copyonwrite` of
//! `sys/ufs/ffs/ffs_snapshot.c`).
//!
//! Two invariants hold at every moment, also on the disk after a crash. If a snapshot has no number
//! for a block, the volume's block still has the contents from when the snapshot was taken. If it
//! has a number, the block of that number has them. So a copy is flushed before its number, and the
//! number before the block is overwritten. Copies are written to reserved blocks, which belong to no
//! file and are marked as used on the disk.

mod map_mut;

pub(crate) use map_mut::{MapMut, always_kept};

use crate::inode::Inode;
use crate::ondisk::SNAPSHOT;
use crate::superblock::{RawSuperblock, Super};
use crate::volume::Volume;
use seekless_device::{BlockDevice, DeviceError, Durable, Ticket};
use seekless_fs::field::{index, range, slice, wide};
use seekless_fs::{FileKind, FsError, Location};
use seekless_units::{BlockNo, ByteLen, Extent, Ino, Lba};
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The snapshots that the superblock lists and `is_kept` accepts, oldest first, for changes of the
/// volume. Other listed inodes are left out: the image in a snapshot lists older ones so, and a crash
/// while one was taken leaves an empty file. The heads of groups are not looked at, since a crash may
/// have torn them.
///
/// # Errors
/// [`FsError::Corrupt`] for an inode that cannot be read, or a snapshot that is too short; errors of
/// the device.
fn listed(volume: &Volume, is_kept: impl Fn(Ino) -> bool) -> Result<Vec<Inode>, FsError> {
    let mut inodes: Vec<Inode> = Vec::new();
    for ino in volume.sb.tuning.snapshots().filter(|&ino| is_kept(ino)) {
        let is_new = inodes.iter().all(|known| known.ino != ino);
        let inode = volume.inode(ino)?;
        let is_file = FileKind::from_mode(inode.mode()) == Some(FileKind::Regular);
        if is_new && is_file && inode.is(SNAPSHOT) {
            check_len(volume, &inode)?;
            inodes.push(inode);
        }
    }
    Ok(inodes)
}

/// Checks that a snapshot has the whole image.
pub(crate) fn check_len(volume: &Volume, inode: &Inode) -> Result<(), FsError> {
    let least = volume.sb.snapshot_blocks() * u64::from(volume.sb.bsize);
    if inode.len < least {
        let place = Location::of("snapshot").in_inode(inode.ino);
        return Err(range("di_size", inode.len, least, place));
    }
    Ok(())
}

/// Converts an error of a snapshot's map, met at a byte of the device.
pub(crate) fn device_error(offset: u64, error: FsError) -> DeviceError {
    match error {
        FsError::Device(error) => error,
        error => DeviceError::Damaged { container: "snapshot", offset, what: error.to_string() },
    }
}

/// The copy-on-write device of a volume. Nothing else may write to the device below it.
pub(crate) struct Origin {
    device: Arc<dyn BlockDevice>,
    sb: Arc<Super>,
    /// The number of snapshots, also in `state`.
    snapshots: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Oldest first.
    maps: Vec<MapMut>,
    reserve: Vec<BlockNo>,
}

/// A copy that was made: the block, the index of the snapshot, and the place of the copy.
struct Copied {
    block: u64,
    snapshot: usize,
    copy: BlockNo,
}

impl Origin {
    /// A device without snapshots.
    fn new(device: Arc<dyn BlockDevice>, sb: Arc<Super>) -> Self {
        Self { device, sb, snapshots: AtomicUsize::new(0), state: Mutex::default() }
    }

    /// A device with the snapshots that the superblock lists.
    ///
    /// # Errors
    /// Those of [`MapMut::new`]; [`FsError::Corrupt`] for a snapshot that is too short.
    pub(crate) fn with_listed(
        device: Arc<dyn BlockDevice>,
        sb: &Arc<Super>,
        ignore_checksums: bool,
    ) -> Result<Self, FsError> {
        Self::with_some(device, sb, ignore_checksums, |_| true)
    }

    /// A device with those listed snapshots that `is_kept` accepts.
    ///
    /// # Errors
    /// As [`Origin::with_listed`].
    pub(crate) fn with_some(
        device: Arc<dyn BlockDevice>,
        sb: &Arc<Super>,
        ignore_checksums: bool,
        is_kept: impl Fn(Ino) -> bool,
    ) -> Result<Self, FsError> {
        let origin = Self::new(device, Arc::clone(sb));
        for inode in listed(&origin.volume(ignore_checksums), is_kept)? {
            origin.add(MapMut::new(Arc::clone(sb), &inode, origin.below().as_ref())?);
        }
        Ok(origin)
    }

    /// The inodes of the snapshots, oldest first.
    pub(crate) fn inodes(&self) -> Vec<Ino> {
        self.state().maps.iter().map(|map| map.ino).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The device below. Writes to it are not copied.
    pub(crate) fn below(&self) -> &Arc<dyn BlockDevice> {
        &self.device
    }

    /// The volume as it is on the device.
    pub(crate) fn volume(&self, ignore_checksums: bool) -> Volume {
        Volume::with(Arc::clone(&self.device), self.sb.as_ref().clone(), ignore_checksums)
    }

    /// Adds a snapshot, as the newest.
    pub(crate) fn add(&self, map: MapMut) {
        let mut state = self.state();
        state.maps.push(map);
        self.snapshots.store(state.maps.len(), Ordering::Release);
    }

    /// Removes a snapshot: no block is copied for it any more.
    pub(crate) fn remove(&self, ino: Ino) {
        let mut state = self.state();
        state.maps.retain(|map| map.ino != ino);
        self.snapshots.store(state.maps.len(), Ordering::Release);
    }

    /// The number of snapshots.
    pub(crate) fn snapshots(&self) -> usize {
        self.snapshots.load(Ordering::Acquire)
    }

    /// The number of blocks in the reserve.
    pub(crate) fn reserved(&self) -> usize {
        self.state().reserve.len()
    }

    /// Adds a block to the reserve. It must be marked as used on the disk, and no snapshot may need
    /// its contents.
    pub(crate) fn reserve(&self, block: BlockNo) {
        self.state().reserve.push(block);
    }

    /// Empties the reserve.
    pub(crate) fn take_reserve(&self) -> Vec<BlockNo> {
        std::mem::take(&mut self.state().reserve)
    }

    /// Returns the fragments that each snapshot has got since the last call, by inode.
    pub(crate) fn take_gained(&self) -> Vec<(Ino, u64)> {
        let mut state = self.state();
        let gained = state.maps.iter_mut().map(|map| (map.ino, map.take_gained()));
        gained.filter(|&(_, gained)| gained > 0).collect()
    }

    /// Drops the count of fragments that a snapshot has got: the caller counts all of its blocks.
    pub(crate) fn forget_gained(&self, ino: Ino) {
        for map in self.state().maps.iter_mut().filter(|map| map.ino == ino) {
            map.take_gained();
        }
    }

    /// Returns all runs of a snapshot: contents and indirect blocks.
    ///
    /// # Errors
    /// [`FsError::Corrupt`]; errors of the device.
    pub(crate) fn runs_of(&self, ino: Ino, ignore_checksums: bool) -> Result<Vec<Extent>, FsError> {
        let volume = self.volume(ignore_checksums);
        let map = volume.block_map(&volume.inode(ino)?)?;
        let numbers = map.index.iter().map(|block| Extent::new(block.block, block.len));
        Ok(map.runs.iter().map(|run| run.extent).chain(numbers).collect())
    }

    /// Whether a snapshot needs a block as it is on the disk.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] for a damaged map; errors of the device.
    pub(crate) fn needs(&self, start: BlockNo) -> Result<bool, FsError> {
        let block = start.get() / u64::from(self.sb.frag);
        self.is_kept(&mut self.state(), block).map(|is_kept| !is_kept)
    }

    /// Transfers freed blocks to the snapshots, each to the oldest one that needs it. The blocks must
    /// be marked as used on the disk, and stay so. The new numbers are not flushed: after a crash a
    /// block may have no owner, and the snapshot finds its contents in place.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] for a damaged map; errors of the device.
    pub(crate) fn claim(&self, blocks: &[BlockNo]) -> Result<(), FsError> {
        if blocks.is_empty() {
            return Ok(());
        }
        let device = self.device.as_ref();
        // The bitmaps must be on the disk before the numbers.
        device.flush()?;
        let mut state = self.state();
        for &start in blocks {
            debug_assert!(start.get().is_multiple_of(self.sb.frag.into()), "{start} begins one");
            let at = start.get() / u64::from(self.sb.frag);
            for map in &mut state.maps {
                if map.number(device, at)? == 0 {
                    map.set(device, at, start)?;
                    break;
                }
            }
        }
        for map in &mut state.maps {
            map.write(device)?;
        }
        Ok(())
    }

    /// Reads bytes of a snapshot: of the image of the volume as it was, and of the list behind it.
    ///
    /// # Errors
    /// [`FsError::NotFound`] for an inode that is no listed snapshot; [`FsError::Corrupt`] for a
    /// damaged map; errors of the device.
    pub(crate) fn read_snapshot(
        &self,
        ino: Ino,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<(), FsError> {
        let (bsize, device) = (u64::from(self.sb.bsize), self.device.as_ref());
        let mut state = self.state();
        let map = state.maps.iter_mut().find(|map| map.ino == ino);
        let map = map.ok_or_else(|| FsError::NotFound(format!("a snapshot of inode {ino}")))?;
        let (mut at, mut rest) = (offset, buf);
        while !rest.is_empty() {
            let (block, within) = (at / bsize, at % bsize);
            let len = rest.len().min(index(bsize - within));
            let (part, others) = rest.split_at_mut(len);
            match map.place(device, block)? {
                Some(start) => {
                    let from = start.get() * u64::from(self.sb.fsize) + within;
                    device.read_bytes(ByteLen::new(from), part)?;
                }
                None => part.fill(0),
            }
            (at, rest) = (at + wide(len), others);
        }
        Ok(())
    }

    /// The time of the superblock in a snapshot, in seconds of the epoch.
    ///
    /// # Errors
    /// As [`Origin::read_snapshot`]; [`FsError::Corrupt`] for a damaged superblock.
    pub(crate) fn time_of(&self, ino: Ino) -> Result<i64, FsError> {
        let mut bytes = vec![0; index(self.sb.tuning.sbsize)];
        self.read_snapshot(ino, self.sb.at, &mut bytes)?;
        let sb = &self.sb;
        let raw = RawSuperblock { order: sb.order, format: sb.format, at: sb.at, bytes };
        Ok(raw.decode(self.device.len())?.tuning.time)
    }

    /// Drops cached maps, after a change of them on the device by others.
    pub(crate) fn reread(&self) {
        self.state().maps.iter_mut().for_each(MapMut::reread);
    }

    /// Copies the blocks of a range before it is overwritten, as far as snapshots need them.
    fn preserve(&self, at: Lba, len: usize) -> Result<(), DeviceError> {
        if len == 0 || self.snapshots() == 0 {
            return Ok(());
        }
        let (start, bsize) = (at.to_bytes().get(), u64::from(self.sb.bsize));
        let last = (start + wide(len) - 1) / bsize;
        let blocks = start / bsize..(last + 1).min(self.sb.snapshot_blocks());
        let mut state = self.state();
        let State { maps, reserve } = &mut *state;
        let damaged = |error| device_error(start, error);
        let device = self.device.as_ref();
        let mut copied = Vec::new();
        let mut bytes = Vec::new();
        for block in blocks {
            bytes.clear();
            for (snapshot, map) in maps.iter_mut().enumerate() {
                if map.number(device, block).map_err(damaged)? != 0 {
                    continue;
                }
                let copy = reserve.pop().ok_or_else(|| DeviceError::Io {
                    at,
                    source: io::Error::new(
                        io::ErrorKind::StorageFull,
                        "no room for a copy that a snapshot needs",
                    ),
                })?;
                if bytes.is_empty() {
                    bytes.resize(index(bsize), 0);
                    // The volume may end within its last block.
                    let there = (device.len().get() - block * bsize).min(bsize);
                    let there = bytes.get_mut(..index(there)).unwrap_or_default();
                    device.read(Lba::containing(ByteLen::new(block * bsize)), there)?;
                }
                let to = ByteLen::new(copy.get() * u64::from(self.sb.fsize));
                device.write(Lba::containing(to), &bytes)?;
                copied.push(Copied { block, snapshot, copy });
            }
        }
        if copied.is_empty() {
            return Ok(());
        }
        device.flush()?;
        for Copied { block, snapshot, copy } in copied {
            if let Some(map) = maps.get_mut(snapshot) {
                map.set(device, block, copy).map_err(damaged)?;
            }
        }
        for map in maps {
            map.write(device).map_err(damaged)?;
        }
        device.flush()
    }

    /// Returns the parts of a range of bytes in blocks that `wanted` takes; neighbours are joined.
    fn parts(
        &self,
        range: Range<u64>,
        wanted: impl Fn(&Self, &mut State, u64) -> Result<bool, FsError>,
    ) -> Result<Vec<Range<u64>>, DeviceError> {
        let bsize = u64::from(self.sb.bsize);
        let mut state = self.state();
        let mut parts: Vec<Range<u64>> = Vec::new();
        let mut from = range.start;
        while from < range.end {
            let block = from / bsize;
            let to = ((block + 1) * bsize).min(range.end);
            // Behind the last block there is nothing of the volume.
            let is_behind = block >= self.sb.snapshot_blocks();
            if is_behind
                || wanted(self, &mut state, block).map_err(|error| device_error(from, error))?
            {
                match parts.last_mut() {
                    Some(last) if last.end == from => last.end = to,
                    _ => parts.push(from..to),
                }
            }
            from = to;
        }
        Ok(parts)
    }

    /// Returns the parts of a write outside of blocks that were transferred to snapshots; `None` if
    /// that is all of it. The cache may still write such a block for a file that was deleted.
    fn writable(&self, at: Lba, len: usize) -> Result<Option<Vec<Range<u64>>>, DeviceError> {
        if len == 0 || self.snapshots() == 0 {
            return Ok(None);
        }
        let start = at.to_bytes().get();
        let range = start..start + wide(len);
        let parts = self.parts(range.clone(), |origin, state, block| {
            origin.is_taken_over(state, block).map(|is_taken| !is_taken)
        })?;
        let is_all = parts.first() == Some(&range);
        Ok((!is_all).then_some(parts))
    }

    fn write_parts(&self, at: Lba, buf: &[u8], parts: Vec<Range<u64>>) -> Result<(), DeviceError> {
        let start = at.to_bytes().get();
        for part in parts {
            let bytes = slice(buf, index(part.start - start), index(part.end - part.start));
            debug_assert!(bytes.is_some(), "{part:?} is a part of the write at {start}");
            let (at, bytes) =
                (Lba::containing(ByteLen::new(part.start)), bytes.unwrap_or_default());
            self.preserve(at, bytes.len())?;
            self.device.write(at, bytes)?;
        }
        Ok(())
    }

    /// Whether a block was transferred to a snapshot ([`Origin::claim`]).
    fn is_taken_over(&self, state: &mut State, block: u64) -> Result<bool, FsError> {
        let own = block * u64::from(self.sb.frag);
        for map in &mut state.maps {
            if own != 0 && map.number(self.device.as_ref(), block)? == own {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether no snapshot needs a block as it is on the disk.
    fn is_kept(&self, state: &mut State, block: u64) -> Result<bool, FsError> {
        for map in &mut state.maps {
            if map.number(self.device.as_ref(), block)? == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl BlockDevice for Origin {
    fn len(&self) -> ByteLen {
        self.device.len()
    }

    fn extend(&self, len: ByteLen) -> Result<ByteLen, DeviceError> {
        self.device.extend(len)
    }

    fn read(&self, at: Lba, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.device.read(at, buf)
    }

    fn write(&self, at: Lba, buf: &[u8]) -> Result<(), DeviceError> {
        let Some(parts) = self.writable(at, buf.len())? else {
            self.preserve(at, buf.len())?;
            return self.device.write(at, buf);
        };
        self.write_parts(at, buf, parts)
    }

    fn submit(&self, at: Lba, buf: &[u8], durable: Durable) -> Result<Option<Ticket>, DeviceError> {
        let Some(parts) = self.writable(at, buf.len())? else {
            self.preserve(at, buf.len())?;
            return self.device.submit(at, buf, durable);
        };
        self.write_parts(at, buf, parts)?;
        match durable {
            Durable::AfterFlush => {}
            Durable::OnCompletion => self.device.flush()?,
        }
        Ok(None)
    }

    fn is_complete(&self, ticket: Ticket) -> Result<bool, DeviceError> {
        self.device.is_complete(ticket)
    }

    fn wait(&self, ticket: Ticket) -> Result<(), DeviceError> {
        self.device.wait(ticket)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.device.flush()
    }

    /// Skips blocks that a snapshot needs.
    fn discard(&self, at: Lba, len: u64) -> Result<(), DeviceError> {
        if self.snapshots() == 0 {
            return self.device.discard(at, len);
        }
        let start = at.to_bytes().get();
        for part in self.parts(start..start + len, Self::is_kept)? {
            let at = Lba::containing(ByteLen::new(part.start));
            self.device.discard(at, part.end - part.start)?;
        }
        Ok(())
    }
}
