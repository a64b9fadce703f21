//! Locations of clusters: decoding of the entries of L2 tables.

use crate::error::damaged;
use crate::header::{Compression, Image};
use crate::number::{divide, index, wide};
use crate::ondisk::{self, COMPRESSED_UNIT};
use flate2::{Decompress, FlushDecompress, Status};
use seekless_device::DeviceError;
use zstd::stream::raw::{DParameter, Decoder, Operation};

/// Maximum window of compressed clusters, as a power of two: they need no more than a cluster.
const WINDOW_LOG: u32 = 22;

/// The location of some of a cluster's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mapping {
    /// In the backing file, or nowhere.
    Unallocated,
    /// Zeros.
    Zero,
    /// From this byte on of the file with the clusters.
    At(u64),
    /// Compressed, in at most `len` bytes of the image from `at` on.
    Compressed {
        /// First byte.
        at: u64,
        /// Number of bytes, including those behind the end of the data.
        len: u64,
    },
}

impl Image {
    /// Decodes an L2 entry, and the bitmap of its subclusters. Returns the location of the
    /// cluster's byte `within`, and the number of bytes from there on to which it applies. `offset`
    /// is the entry's own location.
    pub(crate) fn mapping(
        &self,
        entry: u64,
        bitmap: u64,
        within: u64,
        offset: u64,
    ) -> Result<(Mapping, u64), DeviceError> {
        debug_assert!(within < self.cluster(), "byte {within} of a cluster");
        let left = self.cluster() - within;
        if entry & ondisk::COMPRESSED != 0 {
            if self.data_file.is_some() {
                return Err(damaged(offset, "a compressed cluster with an external data file"));
            }
            return Ok((self.compressed(entry), left));
        }
        let host = entry & ondisk::OFFSET;
        if !host.is_multiple_of(self.cluster()) {
            return Err(damaged(offset, format!("an L2 entry leads to byte {host}, no cluster's")));
        }
        // An external data file has its first cluster at byte 0.
        let is_allocated = host != 0 || (self.data_file.is_some() && entry & ondisk::COPIED != 0);
        let place = || Mapping::At(host + within);
        if !self.is_extended {
            let is_zero = self.has_zero && entry & ondisk::ZERO != 0;
            let mapping = match is_allocated {
                _ if is_zero => Mapping::Zero,
                true => place(),
                false => Mapping::Unallocated,
            };
            return Ok((mapping, left));
        }
        let (subcluster, _) = divide(self.cluster(), ondisk::SUBCLUSTERS.into());
        let (number, _) = divide(within, subcluster);
        debug_assert!(number < ondisk::SUBCLUSTERS.into(), "subcluster {number}");
        let bit = |shift: u64| bitmap >> shift & 1;
        let (allocated, zero) =
            (bit(number) != 0, bit(number + u64::from(ondisk::SUBCLUSTERS)) != 0);
        let end = (number + 1) * subcluster;
        let left = end - within;
        debug_assert!(left > 0 && left <= subcluster, "the rest of a subcluster");
        let mapping = match (allocated, zero) {
            (true, true) => {
                let what = format!("subcluster {number} is both allocated and zero");
                return Err(damaged(offset + ondisk::ENTRY, what));
            }
            (true, false) if !is_allocated => {
                let what = format!("subcluster {number} is allocated, but its cluster is not");
                return Err(damaged(offset + ondisk::ENTRY, what));
            }
            (true, false) => place(),
            (false, true) => Mapping::Zero,
            (false, false) => Mapping::Unallocated,
        };
        Ok((mapping, left))
    }

    /// Bits 0 to x - 1 of an entry are the first byte, x to 61 the number of units of 512 bytes
    /// into which the data extend besides the first; x is 62 - (cluster_bits - 8).
    fn compressed(&self, entry: u64) -> Mapping {
        let offset_bits = 70 - self.cluster_bits;
        debug_assert!((49..=61).contains(&offset_bits), "cluster_bits is checked");
        let low = |bits: u32| (1u64 << bits) - 1;
        let at = entry & low(offset_bits);
        let units = ((entry & low(62)) >> offset_bits) + 1;
        let first = at % COMPRESSED_UNIT;
        Mapping::Compressed { at, len: units * COMPRESSED_UNIT - first }
    }

    /// Decompresses a cluster that begins at `offset` of the image. Bytes behind the end of the
    /// data are ignored.
    pub(crate) fn decompress(&self, packed: &[u8], offset: u64) -> Result<Vec<u8>, DeviceError> {
        debug_assert!(!packed.is_empty(), "compressed data are at least one byte");
        let len = index(self.cluster());
        let mut plain = vec![0; len];
        let done = match self.compression {
            Compression::Deflate => inflate(packed, &mut plain),
            Compression::Zstd => zstd(packed, &mut plain),
        };
        if done == Some(len) {
            return Ok(plain);
        }
        let what = format!("a compressed cluster that does not give {len} bytes");
        Err(damaged(offset, what))
    }
}

/// Fills `plain` as far as possible. Returns the number of bytes, `None` for invalid data.
fn inflate(packed: &[u8], plain: &mut [u8]) -> Option<usize> {
    let mut inflater = Decompress::new(false);
    match inflater.decompress(packed, plain, FlushDecompress::Finish).ok()? {
        Status::Ok | Status::BufError | Status::StreamEnd => {
            usize::try_from(inflater.total_out()).ok()
        }
    }
}

/// As [`inflate`].
fn zstd(packed: &[u8], plain: &mut [u8]) -> Option<usize> {
    let mut decoder = Decoder::new().ok()?;
    decoder.set_parameter(DParameter::WindowLogMax(WINDOW_LOG)).ok()?;
    let (mut read, mut written) = (0usize, 0usize);
    while written < plain.len() {
        let status = decoder.run_on_buffers(packed.get(read..)?, plain.get_mut(written..)?).ok()?;
        if status.bytes_read == 0 && status.bytes_written == 0 {
            break;
        }
        read = read.checked_add(status.bytes_read)?;
        written = written.checked_add(status.bytes_written)?;
    }
    debug_assert!(wide(written) <= wide(plain.len()), "within the buffer");
    Some(written)
}
