//! The device of a volume in use: before a block is overwritten for the first time since a snapshot
//! was taken, the snapshot gets a copy of it (`ffs_copyonwrite` of `sys/ufs/ffs/ffs_snapshot.c`).
//!
//! Two rules hold at every moment, also on the disk after a crash: a block for which a snapshot has
//! no number is on the disk as it was then; and the block of a number has the contents from then.
//! So copies are on the disk before their numbers, and those before the blocks are overwritten. The
//! copies go to blocks that were reserved: no file has them, and on the disk they are not free.

mod map_mut;

pub(crate) use map_mut::{MapMut, always_kept};

use crate::inode::Inode;
use crate::ondisk::SNAPSHOT;
use crate::superblock::Super;
use crate::volume::Volume;
use seekless_device::{BlockDevice, DeviceError, Durable, Ticket};
use seekless_fs::field::{index, range, wide};
use seekless_fs::{FileKind, FsError, Location};
use seekless_units::{BlockNo, ByteLen, Extent, Ino, Lba};
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The snapshots that the superblock lists, oldest first, for changes of the volume. Other listed
/// inodes are left out: the image in a snapshot lists older ones so, and a crash while one was taken
/// leaves an empty file. The heads of groups are not looked at, since a crash may have torn them.
///
/// # Errors
/// [`FsError::Corrupt`] for an inode that cannot be read, or a snapshot that is too short; errors of
/// the device.
pub(crate) fn listed(volume: &Volume) -> Result<Vec<Inode>, FsError> {
    let mut inodes: Vec<Inode> = Vec::new();
    for ino in volume.sb.tuning.snapshots() {
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

/// The error of a device for one of a snapshot's map, met at a byte.
pub(crate) fn device_error(offset: u64, error: FsError) -> DeviceError {
    match error {
        FsError::Device(error) => error,
        error => DeviceError::Damaged { container: "snapshot", offset, what: error.to_string() },
    }
}

/// The device of a volume with any number of snapshots. Others must not write to the device below.
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

/// A copy that was made: of which block, for which of the snapshots, and where it is.
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
        let origin = Self::new(device, Arc::clone(sb));
        for inode in listed(&origin.volume(ignore_checksums))? {
            origin.add(MapMut::new(Arc::clone(sb), &inode, origin.below())?);
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

    /// The device below. What is written there must not be in the way of a snapshot.
    pub(crate) fn below(&self) -> &dyn BlockDevice {
        self.device.as_ref()
    }

    /// The volume as it is on the device.
    pub(crate) fn volume(&self, ignore_checksums: bool) -> Volume {
        Volume::with(Arc::clone(&self.device), self.sb.as_ref().clone(), ignore_checksums)
    }

    /// Adds a snapshot, which is newer than all others.
    pub(crate) fn add(&self, map: MapMut) {
        let mut state = self.state();
        state.maps.push(map);
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

    /// Adds a block to the reserve: it is not free on the disk, and no snapshot needs it.
    pub(crate) fn reserve(&self, block: BlockNo) {
        self.state().reserve.push(block);
    }

    /// Empties the reserve.
    pub(crate) fn take_reserve(&self) -> Vec<BlockNo> {
        std::mem::take(&mut self.state().reserve)
    }

    /// The fragments that snapshots have got since this was last asked, by their inodes.
    pub(crate) fn take_gained(&self) -> Vec<(Ino, u64)> {
        let mut state = self.state();
        let gained = state.maps.iter_mut().map(|map| (map.ino, map.take_gained()));
        gained.filter(|&(_, gained)| gained > 0).collect()
    }

    /// The fragments that a snapshot has got are in the number that its inode gets.
    pub(crate) fn forget_gained(&self, ino: Ino) {
        for map in self.state().maps.iter_mut().filter(|map| map.ino == ino) {
            map.take_gained();
        }
    }

    /// The runs that a snapshot has, with those of its map.
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

    /// Gives the snapshots blocks that no file has any more, and that are used on the disk, flushed
    /// or not: each block to the first one that needs it. They must not be freed. After a crash a
    /// block may have no owner; its contents are there all the same.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] for a damaged map; errors of the device.
    pub(crate) fn claim(&self, blocks: &[BlockNo]) -> Result<(), FsError> {
        if blocks.is_empty() {
            return Ok(());
        }
        let device = self.device.as_ref();
        // A number on the disk must not lead to a block that is free there.
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

    /// Reads maps anew that others may have changed on the device.
    pub(crate) fn reread(&self) {
        self.state().maps.iter_mut().for_each(MapMut::reread);
    }

    /// Copies the blocks of a range that is about to be overwritten.
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

    /// The parts of a range that no snapshot has taken over; `None` for all of it. What the cache
    /// still writes to such a block is of a file that is gone.
    fn writable(&self, at: Lba, len: usize) -> Result<Option<Vec<Range<usize>>>, DeviceError> {
        if len == 0 || self.snapshots() == 0 {
            return Ok(None);
        }
        let (start, bsize) = (at.to_bytes().get(), u64::from(self.sb.bsize));
        let mut state = self.state();
        let mut parts: Vec<Range<usize>> = Vec::new();
        let mut from = 0;
        while from < len {
            let block = (start + wide(from)) / bsize;
            let to = index((block + 1) * bsize - start).min(len);
            let is_taken = self.is_taken_over(&mut state, block);
            if !is_taken.map_err(|error| device_error(start, error))? {
                match parts.last_mut() {
                    Some(last) if last.end == from => last.end = to,
                    _ => parts.push(from..to),
                }
            }
            from = to;
        }
        let is_all = parts.first().is_some_and(|part| part.len() == len);
        Ok((!is_all).then_some(parts))
    }

    /// Whether a block of a file that is gone is a snapshot's now.
    fn is_taken_over(&self, state: &mut State, block: u64) -> Result<bool, FsError> {
        let own = block * u64::from(self.sb.frag);
        for map in state.maps.iter_mut().filter(|_| block < self.sb.snapshot_blocks()) {
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

    fn read(&self, at: Lba, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.device.read(at, buf)
    }

    fn write(&self, at: Lba, buf: &[u8]) -> Result<(), DeviceError> {
        self.submit(at, buf, Durable::AfterFlush)?.map_or(Ok(()), |ticket| self.wait(ticket))
    }

    fn submit(&self, at: Lba, buf: &[u8], durable: Durable) -> Result<Option<Ticket>, DeviceError> {
        let Some(parts) = self.writable(at, buf.len())? else {
            self.preserve(at, buf.len())?;
            return self.device.submit(at, buf, durable);
        };
        for part in parts {
            let at = Lba::containing(at.to_bytes() + wide(part.start));
            let bytes = buf.get(part).unwrap_or_default();
            self.preserve(at, bytes.len())?;
            self.device.write(at, bytes)?;
        }
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

    /// Blocks that a snapshot needs stay as they are.
    fn discard(&self, at: Lba, len: u64) -> Result<(), DeviceError> {
        if self.snapshots() == 0 {
            return self.device.discard(at, len);
        }
        let bsize = u64::from(self.sb.bsize);
        let (start, end) = (at.to_bytes().get(), at.to_bytes().get() + len);
        let mut state = self.state();
        let mut from = start;
        while from < end {
            let block = from / bsize;
            let to = ((block + 1) * bsize).min(end);
            let is_kept = block >= self.sb.snapshot_blocks()
                || self.is_kept(&mut state, block).map_err(|error| device_error(from, error))?;
            if is_kept {
                self.device.discard(Lba::containing(ByteLen::new(from)), to - from)?;
            }
            from = to;
        }
        Ok(())
    }
}
