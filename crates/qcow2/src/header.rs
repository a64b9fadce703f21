//! The header: read once, with every field checked.

use crate::error::{Qcow2Error, damaged};
use crate::number::{divide, index, wide};
use crate::ondisk::{self, ExtensionHead, Header, HeaderV3, extension, incompatible};
use seekless_device::{BlockDevice, DeviceError};
use seekless_units::ByteLen;
use zerocopy::FromBytes;

/// Range of cluster sizes: 512 bytes to 2 MiB.
const CLUSTER_BITS: std::ops::RangeInclusive<u32> = 9..=21;

/// The smallest clusters with subclusters, which have 512 bytes then.
const EXTENDED_CLUSTER_BITS: u32 = 14;

/// Maximum size of an L1 table in bytes, as in QEMU (`QCOW_MAX_L1_SIZE`).
const L1_MAX: u64 = 32 << 20;

/// Maximum length of a backing file's name in bytes.
const BACKING_NAME_MAX: u32 = 1023;

/// Maximum size of a header with its extensions that is parsed, in bytes: the lengths of names are
/// bounded, and other extensions are skipped.
const HEADER_MAX: u64 = 64 << 10;

/// The compression of clusters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Compression {
    Deflate,
    Zstd,
}

/// A parsed header.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Image {
    /// Size of the disk in bytes.
    pub(crate) size: u64,
    pub(crate) cluster_bits: u32,
    /// Whether entries of L2 tables have a flag for clusters that read as zeros (version 3).
    pub(crate) has_zero: bool,
    /// Whether clusters have subclusters.
    pub(crate) is_extended: bool,
    pub(crate) compression: Compression,
    /// Offset of the L1 table, and the number of its entries that the disk needs.
    pub(crate) l1_offset: u64,
    pub(crate) l1_entries: u64,
    /// The file for unallocated clusters.
    pub(crate) backing: Option<Backing>,
    /// The file that contains all clusters.
    pub(crate) data_file: Option<DataFile>,
}

/// A backing file, as named in the header.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Backing {
    pub(crate) name: String,
    /// `raw` or `qcow2`; missing in old images.
    pub(crate) format: Option<String>,
}

/// An external data file. The name may be missing: QEMU then takes it as an option, for images that
/// are moved about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct DataFile {
    pub(crate) name: Option<String>,
}

impl Image {
    /// Bytes in a cluster.
    pub(crate) fn cluster(&self) -> u64 {
        debug_assert!(CLUSTER_BITS.contains(&self.cluster_bits), "it was checked");
        1 << self.cluster_bits
    }

    /// Bytes in an entry of an L2 table.
    pub(crate) fn l2_entry(&self) -> u64 {
        if self.is_extended { ondisk::EXTENDED_ENTRY } else { ondisk::ENTRY }
    }

    /// Number of clusters covered by an L2 table.
    pub(crate) fn l2_entries(&self) -> u64 {
        divide(self.cluster(), self.l2_entry()).0
    }

    /// Reads and checks the header of `file`.
    pub(crate) fn read(file: &dyn BlockDevice) -> Result<Self, Qcow2Error> {
        let mut bytes = vec![0; index(HEADER_MAX.min(file.len().get()))];
        file.read_bytes(ByteLen::ZERO, &mut bytes)?;
        let short = || damaged(0, "the file ends within the header");
        let (header, rest) = Header::ref_from_prefix(&bytes).map_err(|_| short())?;
        if header.magic != ondisk::MAGIC {
            return Err(damaged(0, "bad magic number").into());
        }
        let version = header.version.get();
        let v3 = match version {
            2 => None,
            3 => Some(HeaderV3::ref_from_prefix(rest).map_err(|_| short())?.0),
            _ => return Err(unsupported(format!("version {version} of qcow2"))),
        };
        let features = v3.map_or(0, |v3| v3.incompatible_features.get());
        refuse_features(features)?;
        let cluster_bits = header.cluster_bits.get();
        if !CLUSTER_BITS.contains(&cluster_bits) {
            return Err(damaged(20, format!("cluster_bits is {cluster_bits}")).into());
        }
        let is_extended = features & incompatible::EXTENDED_L2 != 0;
        if is_extended && cluster_bits < EXTENDED_CLUSTER_BITS {
            let what = format!("extended L2 entries with cluster_bits {cluster_bits}");
            return Err(damaged(20, what).into());
        }
        if header.crypt_method.get() != 0 {
            return Err(unsupported("an encrypted qcow2 image".into()));
        }
        let header_len = v3.map_or(wide(ondisk::HEADER_V2), |v3| v3.header_length.get().into());
        let extensions = Extensions::read(&bytes, header, header_len, 1 << cluster_bits)?;
        let mut image = Self {
            size: header.size.get(),
            cluster_bits,
            has_zero: version >= 3,
            is_extended,
            compression: compression(&bytes, header_len, features)?,
            l1_offset: header.l1_table_offset.get(),
            l1_entries: 0,
            backing: backing(&bytes, header, extensions.backing_format)?,
            data_file: (features & incompatible::DATA_FILE != 0)
                .then_some(DataFile { name: extensions.data_file }),
        };
        image.l1_entries = image.check_l1(header, file.len())?;
        Ok(image)
    }

    /// Number of entries of the L1 table that are needed, after checking that they are in the file.
    fn check_l1(&self, header: &Header, len: ByteLen) -> Result<u64, DeviceError> {
        let present = u64::from(header.l1_size.get());
        let needed = self.size.div_ceil(self.cluster() * self.l2_entries());
        if needed > present {
            let what = format!(
                "l1_size is {present}: a disk of {} bytes needs {needed} entries",
                self.size
            );
            return Err(damaged(36, what));
        }
        if present * ondisk::ENTRY > L1_MAX {
            return Err(damaged(
                36,
                format!("l1_size is {present}, limit {}", L1_MAX / ondisk::ENTRY),
            ));
        }
        if !self.l1_offset.is_multiple_of(self.cluster()) {
            let what = format!("l1_table_offset is {}, not a cluster's", self.l1_offset);
            return Err(damaged(40, what));
        }
        let end = self.l1_offset.checked_add(needed * ondisk::ENTRY);
        if end.is_none_or(|end| end > len.get()) {
            return Err(damaged(40, "the L1 table extends past the end of the file"));
        }
        Ok(needed)
    }
}

fn unsupported(what: String) -> Qcow2Error {
    Qcow2Error::Unsupported(format!("{what} cannot be read here (qemu-img convert may)"))
}

/// Refuses unknown features that change the interpretation of an image. Reference counts, which are
/// stale in a dirty image, are not needed for reading.
fn refuse_features(features: u64) -> Result<(), Qcow2Error> {
    if features & incompatible::CORRUPT != 0 {
        let why = "the qcow2 image is marked as corrupt (see qemu-img check -r all)";
        return Err(Qcow2Error::Unsupported(why.into()));
    }
    let unknown = features & !incompatible::KNOWN;
    if unknown != 0 {
        let bit = unknown.trailing_zeros();
        return Err(unsupported(format!("a qcow2 image with incompatible feature {bit}")));
    }
    Ok(())
}

fn compression(bytes: &[u8], header_len: u64, features: u64) -> Result<Compression, Qcow2Error> {
    let at = ondisk::COMPRESSION_TYPE;
    let kind = match header_len > wide(at) {
        true => bytes.get(at).copied().unwrap_or(0),
        false => 0,
    };
    let is_flagged = features & incompatible::COMPRESSION_TYPE != 0;
    match kind {
        0 if !is_flagged => Ok(Compression::Deflate),
        1 if is_flagged => Ok(Compression::Zstd),
        0 | 1 => {
            let what = format!("compression_type is {kind}, which its feature bit denies");
            Err(damaged(wide(at), what).into())
        }
        _ => Err(unsupported(format!("a qcow2 image with compression type {kind}"))),
    }
}

fn backing(
    bytes: &[u8],
    header: &Header,
    format: Option<String>,
) -> Result<Option<Backing>, DeviceError> {
    let (at, len) = (header.backing_file_offset.get(), header.backing_file_size.get());
    if at == 0 {
        return Ok(None);
    }
    if len == 0 || len > BACKING_NAME_MAX {
        return Err(damaged(16, format!("backing_file_size is {len}, limit {BACKING_NAME_MAX}")));
    }
    let name = bytes.get(index(at)..).and_then(|rest| rest.get(..index(len.into())));
    let name = name.ok_or_else(|| {
        damaged(8, format!("backing_file_offset is {at}, beyond the first {HEADER_MAX} bytes"))
    })?;
    Ok(Some(Backing { name: text(name, at)?, format }))
}

fn text(bytes: &[u8], at: u64) -> Result<String, DeviceError> {
    let name = std::str::from_utf8(bytes).ok().filter(|name| !name.contains('\0'));
    name.map(str::to_string).ok_or_else(|| damaged(at, "a file name that is no text"))
}

/// The extensions behind the header that are used here.
#[derive(Default)]
struct Extensions {
    backing_format: Option<String>,
    data_file: Option<String>,
}

impl Extensions {
    /// Parses the extensions. They end with a mark, at the name of the backing file or at the first
    /// cluster.
    fn read(
        bytes: &[u8],
        header: &Header,
        header_len: u64,
        cluster: u64,
    ) -> Result<Self, DeviceError> {
        let is_v3 = header.version.get() >= 3;
        let least = if is_v3 { ondisk::HEADER_V3 } else { ondisk::HEADER_V2 };
        if header_len < wide(least) || header_len > cluster || !header_len.is_multiple_of(8) {
            return Err(damaged(100, format!("header_length is {header_len}")));
        }
        let name = header.backing_file_offset.get();
        let end = if name == 0 { cluster } else { name.min(cluster) };
        let end = index(end).min(bytes.len());
        let mut found = Self::default();
        let mut at = index(header_len);
        while let Some(rest) = bytes.get(at..end) {
            let Ok((head, rest)) = ExtensionHead::ref_from_prefix(rest) else { break };
            let (kind, len) = (head.kind.get(), index(head.len.get().into()));
            if kind == extension::END {
                break;
            }
            let data = rest.get(..len).ok_or_else(|| {
                damaged(wide(at), format!("header extension {kind:#x} has {len} bytes"))
            })?;
            let value = |data: &[u8]| text(data, wide(at)).map(Some);
            match kind {
                extension::BACKING_FORMAT => found.backing_format = value(data)?,
                extension::DATA_FILE => found.data_file = value(data)?,
                _ => {}
            }
            let len = len.checked_next_multiple_of(8).unwrap_or(usize::MAX);
            at += size_of::<ExtensionHead>() + len;
        }
        Ok(found)
    }
}
