//! The disk in an image.

use crate::cluster::Mapping;
use crate::error::damaged;
use crate::header::Image;
use crate::number::{divide, index, wide};
use crate::ondisk::{self, ENTRY};
use crate::piece_cache::PieceCache;
use seekless_device::{BlockDevice, DeviceError};
use seekless_units::{ByteLen, Lba};
use std::sync::Arc;

/// Memory limit of L2 tables, and of decompressed clusters, in bytes each.
const KEPT: u64 = 16 << 20;

/// Size of a read of an L2 table in bytes.
const SLICE: u64 = 64 << 10;

/// The disk in an image, read-only.
pub struct Disk {
    image: Image,
    /// The image.
    file: Arc<dyn BlockDevice>,
    /// The file of uncompressed clusters: the image, or its external data file.
    clusters: Arc<dyn BlockDevice>,
    /// The file for unallocated clusters; without it, and behind its end, they read as zeros.
    backing: Option<Arc<dyn BlockDevice>>,
    l1: Vec<u8>,
    slices: PieceCache,
    unpacked: PieceCache,
}

impl Disk {
    pub(crate) fn new(
        image: Image,
        file: Arc<dyn BlockDevice>,
        data_file: Option<Arc<dyn BlockDevice>>,
        backing: Option<Arc<dyn BlockDevice>>,
    ) -> Result<Self, DeviceError> {
        let mut l1 = vec![0; index(image.l1_entries * ENTRY)];
        file.read_bytes(ByteLen::new(image.l1_offset), &mut l1)?;
        debug_assert_eq!(image.data_file.is_some(), data_file.is_some(), "as in the header");
        let clusters = data_file.unwrap_or_else(|| file.clone());
        let slices = PieceCache::new(KEPT, SLICE.min(image.cluster()));
        let unpacked = PieceCache::new(KEPT, image.cluster());
        Ok(Self { image, file, clusters, backing, l1, slices, unpacked })
    }

    /// The location of the byte `at` of the disk, and the number of bytes from there on with the
    /// same kind of location.
    fn find(&self, at: u64) -> Result<(Mapping, u64), DeviceError> {
        let image = &self.image;
        let cluster = image.cluster();
        let (number, within) = divide(at, cluster);
        let (table, entry) = divide(number, image.l2_entries());
        let place = table * ENTRY;
        let l1 = word(&self.l1, place) & ondisk::OFFSET;
        debug_assert!(place + ENTRY <= wide(self.l1.len()), "the L1 table covers the disk");
        let l1_at = image.l1_offset + place;
        if l1 == 0 {
            return Ok((Mapping::Unallocated, cluster - within));
        }
        if !l1.is_multiple_of(cluster) {
            return Err(damaged(l1_at, format!("an L1 entry leads to byte {l1}, no cluster's")));
        }
        if l1.checked_add(cluster).is_none_or(|end| end > self.file.len().get()) {
            let what = format!("the L2 table at byte {l1} extends past the end of the file");
            return Err(damaged(l1_at, what));
        }
        let from = l1 + entry * image.l2_entry();
        let slice_len = SLICE.min(cluster);
        let slice_at = divide(from, slice_len).0 * slice_len;
        let slice = self.slices.get(slice_at, || {
            let mut bytes = vec![0; index(slice_len)];
            self.file.read_bytes(ByteLen::new(slice_at), &mut bytes).map(|()| bytes)
        })?;
        let here = from - slice_at;
        debug_assert!(here + image.l2_entry() <= slice_len, "an entry lies in one slice");
        let bitmap = match image.is_extended {
            true => word(&slice, here + ENTRY),
            false => 0,
        };
        image.mapping(word(&slice, here), bitmap, within, from)
    }

    /// Fills `buf` with the bytes from `at` on, all of which have the same kind of location.
    fn fill(&self, mapping: Mapping, at: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        match mapping {
            Mapping::Zero => buf.fill(0),
            Mapping::Unallocated => return self.fill_from_backing(at, buf),
            Mapping::At(place) => return padded(self.clusters.as_ref(), place, buf),
            Mapping::Compressed { at: place, len } => {
                let plain = self.unpacked.get(place, || {
                    let mut packed = vec![0; index(len)];
                    padded(self.file.as_ref(), place, &mut packed)?;
                    self.image.decompress(&packed, place)
                })?;
                let within = index(divide(at, self.image.cluster()).1);
                let end = within + buf.len();
                debug_assert!(end <= plain.len(), "{end} bytes of a cluster");
                if let Some(part) = plain.get(within..end) {
                    buf.copy_from_slice(part);
                }
            }
        }
        Ok(())
    }

    /// Reads from the backing file, with zeros behind its end.
    fn fill_from_backing(&self, at: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        let present = self.backing.as_ref().map_or(0, |backing| backing.len().get());
        let len = index(present.saturating_sub(at)).min(buf.len());
        let (inside, behind) = buf.split_at_mut(len);
        behind.fill(0);
        match &self.backing {
            Some(backing) if !inside.is_empty() => backing.read_bytes(ByteLen::new(at), inside),
            _ => Ok(()),
        }
    }
}

/// Reads from byte `at` of a file on; the last cluster may be incomplete, and its missing part
/// reads as zeros.
fn padded(file: &dyn BlockDevice, at: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
    let Some(present) = file.len().get().checked_sub(at).filter(|present| *present > 0) else {
        return Err(damaged(at, "a cluster lies past the end of the file"));
    };
    let len = index(present).min(buf.len());
    let (inside, behind) = buf.split_at_mut(len);
    behind.fill(0);
    file.read_bytes(ByteLen::new(at), inside)
}

/// The number at byte `at` of a table; tables have whole entries.
fn word(table: &[u8], at: u64) -> u64 {
    let bytes = table.get(index(at)..).and_then(|rest| rest.first_chunk());
    bytes.map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

impl BlockDevice for Disk {
    fn len(&self) -> ByteLen {
        ByteLen::new(self.image.size)
    }

    fn read(&self, at: Lba, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.read_bytes(at.to_bytes(), buf)
    }

    fn read_bytes(&self, at: ByteLen, buf: &mut [u8]) -> Result<(), DeviceError> {
        let (len, device_len) = (wide(buf.len()), self.len());
        if at.get().checked_add(len).is_none_or(|end| end > device_len.get()) {
            return Err(DeviceError::OutOfRange { at: Lba::containing(at), len, device_len });
        }
        let (mut at, mut rest) = (at.get(), buf);
        while !rest.is_empty() {
            let (mapping, found) = self.find(at)?;
            debug_assert!(found > 0, "each step reads some");
            let len = index(found).clamp(1, rest.len());
            let (part, behind) = rest.split_at_mut(len);
            self.fill(mapping, at, part)?;
            at += wide(len);
            rest = behind;
        }
        Ok(())
    }

    fn write(&self, _: Lba, _: &[u8]) -> Result<(), DeviceError> {
        Err(DeviceError::ReadOnly)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }
}
