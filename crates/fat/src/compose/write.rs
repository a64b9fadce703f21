//! The forward pass: contents in the order in which they lie on the disk, then the fixed
//! root, the FATs, and the boot sector last.

use super::objects::Objects;
use super::offset_device::OffsetDevice;
use super::table::Entries;
use crate::boot::Width;
use crate::make::encode::Encoder;
use crate::ondisk::{ENTRY_SIZE, ShortEntry, attr, first};
use seekless_fs::FsError;
use seekless_fs::forward::{self, Contents, Forward};
use seekless_fs::plan::{Demand, ObjectId, Plan};
use seekless_fs::source::Content;
use seekless_units::{ByteLen, Lba, SECTOR};
use zerocopy::{FromBytes, IntoBytes};

/// The source of the bytes of files.
pub(crate) trait Data: Sync {
    /// Fills `out` from byte `offset` of a file on; the range lies within the file.
    fn read(&self, object: usize, offset: u64, out: &mut [u8]) -> Result<(), FsError>;

    /// Opens a file's contents, which may lie in a file of the host.
    fn open(&self, object: usize) -> Result<Box<dyn Content + '_>, FsError>;
}

/// The clusters among the blocks of a plan: block numbers are aligned like the volume, so that
/// alignment in a plan is alignment on the disk.
#[derive(Clone, Copy)]
pub(crate) struct Blocks {
    /// The block of cluster 2.
    pub(crate) first: u64,
    /// Device sectors in front of block 0.
    skip: u64,
}

impl Blocks {
    /// `first_data` and `cluster` are in bytes.
    pub(crate) fn new(first_data: u64, cluster: u64) -> Self {
        Self { first: first_data / cluster, skip: first_data % cluster / SECTOR }
    }

    /// The byte of the volume at which block 0 begins.
    pub(crate) fn origin(self) -> ByteLen {
        Lba::new(self.skip).to_bytes()
    }

    fn cluster(self, block: u64) -> u32 {
        (block - self.first) as u32 + 2
    }
}

/// Writes an image. Everything is decided; only the writing is left.
pub(crate) struct ImageWriter<'a> {
    pub(crate) objects: &'a Objects,
    pub(crate) encoder: Encoder<'a>,
    pub(crate) blocks: Blocks,
    pub(crate) plan: &'a Plan,
    pub(crate) data: &'a dyn Data,
    pub(crate) progress: &'a (dyn Fn(u64) + Sync),
}

impl ImageWriter<'_> {
    /// Writes contents, directories and FATs, all but the sectors in front of them; the number of
    /// free clusters, and the last one that is in use.
    ///
    /// `entries` has the other entries of the FATs: bad clusters, and their first entries.
    pub(crate) fn body(&self, mut entries: Entries) -> Result<(u32, u32), FsError> {
        let g = self.encoder.geometry;
        let device = OffsetDevice { device: self.encoder.device, skip: self.blocks.skip };
        Forward {
            block_size: g.cluster_bytes() as u32,
            device: &device,
            progress: self.progress,
            contents: self,
        }
        .run(forward::pieces(self.plan))?;
        if self.objects.fixed_root {
            let mut root = self.directory(0);
            let sectors = (u64::from(g.root_entries) * ENTRY_SIZE as u64).div_ceil(g.sector.into());
            debug_assert!(root.len() as u64 <= g.byte_of(sectors), "the root has room");
            root.resize(g.byte_of(sectors) as usize, 0);
            self.encoder.put(self.encoder.fat_start(g.fats), &root)?;
            (self.progress)(root.len() as u64);
        }
        let mut last = 1;
        for at in 0..self.objects.all.len() {
            last = last.max(self.chain(at, &mut entries));
        }
        let free = (2..=g.clusters + 1).filter(|&cluster| entries.get(cluster) == 0).count();
        for number in 0..g.fats {
            // Whole sectors, in pieces that a device takes at once.
            let start = self.encoder.fat_start(number);
            let piece = (1 << 20) / g.sector as usize * g.sector as usize;
            for (n, bytes) in entries.bytes.chunks(piece).enumerate() {
                let mut bytes = bytes.to_vec();
                bytes.resize(bytes.len().next_multiple_of(g.sector as usize), 0);
                self.encoder.put(start + (n * piece / g.sector as usize) as u64, &bytes)?;
                (self.progress)(bytes.len() as u64);
            }
        }
        Ok((free as u32, last))
    }

    /// Links an object's clusters; returns the highest of them.
    fn chain(&self, at: usize, entries: &mut Entries) -> u32 {
        let (mut before, mut last) = (None, 0);
        for placed in self.plan.data(ObjectId::new(at as u32)) {
            for n in 0..placed.extent.len {
                let here = self.blocks.cluster(placed.extent.start.get() + n);
                debug_assert_eq!(entries.get(here), 0, "cluster {here} is in one chain");
                if let Some(before) = before {
                    entries.set(before, here);
                }
                (before, last) = (Some(here), last.max(here));
            }
        }
        if let Some(before) = before {
            entries.set(before, entries.end());
        }
        last
    }

    /// An object's first cluster; 0 without one.
    pub(crate) fn first(&self, at: usize) -> u32 {
        let placed = self.plan.data(ObjectId::new(at as u32)).first();
        placed.map_or(0, |placed| self.blocks.cluster(placed.extent.start.get()))
    }

    /// A directory's entries.
    fn directory(&self, at: usize) -> Vec<u8> {
        let objects = self.objects;
        let mut bytes = vec![0; objects.dir_slots(at) as usize * ENTRY_SIZE];
        for slot in bytes.chunks_mut(ENTRY_SIZE) {
            slot[0] = first::DELETED;
        }
        let mut put = |slot: u64, slots: &[u8]| {
            let from = slot as usize * ENTRY_SIZE;
            let is_free = bytes.get(from).is_none_or(|&byte| byte == first::DELETED);
            debug_assert!(is_free, "slot {slot} has one entry");
            bytes[from..from + slots.len()].copy_from_slice(slots);
        };
        if at == 0 {
            put(objects.front_slot.into(), &objects.front);
        } else {
            let own = &objects.all[at];
            let above = own.parent as usize;
            // The root is 0, even if it has clusters.
            let above = if above == 0 { 0 } else { self.first(above) };
            let names = [(b".          ", self.first(at)), (b"..         ", above)];
            for (slot, (name, first)) in (0..).zip(names) {
                let kept = own.dots.chunks(ENTRY_SIZE).nth(slot as usize);
                let mut entry = short_of(kept.unwrap_or(&own.slots));
                if kept.is_none() {
                    (entry.DIR_Name, entry.DIR_Attr, entry.DIR_NTRes) = (*name, attr::DIRECTORY, 0);
                }
                put_first(&mut entry, first);
                put(slot, entry.as_bytes());
            }
        }
        for (slot, child) in objects.in_order(at, &self.plan.inodes) {
            let slots = &objects.all[child as usize].slots;
            let mut entry = short_of(slots);
            put_first(&mut entry, self.first(child as usize));
            put(slot, &slots[..slots.len() - ENTRY_SIZE]);
            put(slot + (slots.len() / ENTRY_SIZE) as u64 - 1, entry.as_bytes());
        }
        bytes
    }
}

/// The short entry, which stands last.
fn short_of(slots: &[u8]) -> ShortEntry {
    debug_assert!(slots.len().is_multiple_of(ENTRY_SIZE), "whole slots");
    let from = slots.len() - ENTRY_SIZE;
    ShortEntry::read_from_bytes(&slots[from..]).expect("a file has a short entry")
}

fn put_first(entry: &mut ShortEntry, cluster: u32) {
    entry.DIR_FstClusHI = ((cluster >> 16) as u16).into();
    entry.DIR_FstClusLO = (cluster as u16).into();
}

impl Contents for ImageWriter<'_> {
    fn is_whole(&self, object: ObjectId) -> bool {
        self.objects.is_directory(object)
    }

    fn open(&self, object: ObjectId) -> Result<Option<Box<dyn Content + '_>>, FsError> {
        if self.objects.is_directory(object) {
            return Ok(None);
        }
        self.data.open(object.index()).map(Some)
    }

    fn fill(&self, object: ObjectId, lbn: u64, out: &mut [u8]) -> Result<(), FsError> {
        let offset = lbn * self.encoder.geometry.cluster_bytes();
        let at = object.index();
        if self.objects.is_directory(object) {
            let bytes = self.directory(at);
            let rest = bytes.get(offset as usize..).unwrap_or_default();
            let len = rest.len().min(out.len());
            out[..len].copy_from_slice(&rest[..len]);
            out[len..].fill(0);
            return Ok(());
        }
        let size = self.objects.all[at].size;
        let len = (size - offset.min(size)).min(out.len() as u64) as usize;
        let (data, rest) = out.split_at_mut(len);
        rest.fill(0);
        if data.is_empty() { Ok(()) } else { self.data.read(at, offset, data) }
    }
}

impl Width {
    /// The mark of a chain's end.
    pub(crate) fn end(self) -> u32 {
        self.mask()
    }
}
