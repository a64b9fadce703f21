//! Lists made of images.

use super::decode::UNITS;
use super::digesting;
use super::digests::ListedFile;
use super::parts::ListParts;
use super::{number, runs};
use crate::kept::BaseImage;
use crate::older::{OlderVolume, damaged};
use rayon::prelude::*;
use seekless_device::{BlockDevice, ReadRecorder};
use seekless_fs::format::{Format, OpenOptions, claim};
use seekless_fs::source::Source;
use seekless_fs::{FixedKind, FsError, Inspect};
use seekless_images::{Error, ErrorKind, Place, in_use, refuse_others};
use seekless_units::{ByteLen, Extent, GroupNo, Lba, SECTOR};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Bytes read at once.
const PIECE: u64 = 1 << 20;
/// Sectors that are left out together if they are zeros.
const ZEROS: u64 = 8;

/// An older image of which a list is made.
#[derive(Clone, Copy, Debug)]
pub struct ListRequest<'a> {
    /// The image.
    pub image: &'a Path,
    /// Where in it the volume is.
    pub place: &'a Place,
    /// How it is opened.
    pub open: OpenOptions,
    /// Bytes of contents that each digest of a block covers: a power of two. By default, the blocks
    /// or clusters of the volume.
    pub unit: Option<u32>,
}

/// A list that was made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MadeList {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Bytes of the volume.
    pub volume_len: ByteLen,
    /// Files of the volume, of all kinds.
    pub files: u64,
}

impl ListRequest<'_> {
    /// Reads the image, and makes its list. The same image gives the same bytes.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] for an image that is damaged; [`ErrorKind::Unsupported`] for one of a
    /// format in which images cannot be like older ones; as [`seekless_images::device`].
    pub fn make(&self) -> Result<MadeList, Error> {
        let about = |error: FsError| Error::from(error).about(self.image.display());
        in_use::refuse(self.image)?;
        let device = seekless_images::device(self.image, self.place)?;
        let formats: Vec<Format> = FORMATS.iter().map(|older| older.format).collect();
        let only = "no image can be like one of its format";
        refuse_others(self.image, device.as_ref(), &formats, only)?;
        let claimed = claim(&formats, device.as_ref()).map_err(about)?;
        let older = FORMATS.iter().find(|older| older.format.name == claimed.name);
        let older = older.ok_or_else(|| Error::new(ErrorKind::Unsupported, only))?;
        (older.list)(self, device)
    }
}

/// Makes the list of an image of a format.
pub(crate) fn make<V: OlderVolume>(
    request: &ListRequest<'_>,
    device: Arc<dyn BlockDevice>,
) -> Result<MadeList, Error> {
    let about = |error: FsError| Error::from(error).about(request.image.display());
    // All that builds read before they compare contents is read here in the same way.
    let recorder = Arc::new(ReadRecorder::new(device.clone()));
    let image = Arc::new(V::open(recorder.clone(), request.open).map_err(about)?);
    V::of(image.clone()).map_err(|error| damaged::<V>(error, request.image))?;
    let unit = request.unit.unwrap_or_else(|| V::unit(&image));
    check_unit(unit)?;
    let base = BaseImage::new(request.image, (recorder.clone(), image.clone())).map_err(about)?;
    base.used()?;
    let fixed = fixed(image.as_ref()).map_err(about)?;
    let block_size = image.geometry().block_size;
    let further = fixed.into_iter().chain(base.directories()?);
    let further = further.map(|extent| sectors(extent, block_size));
    let known = union(recorder.finish().into_iter().chain(further).collect());
    let volume_len = device.len();
    let (runs, metadata) = known_bytes(device.as_ref(), &known).map_err(about)?;
    let digests = contents(&base, unit)?;
    let format = V::FORMAT.name.to_string();
    let parts = ListParts { format, volume_len, unit, runs, metadata, digests };
    let bytes = parts.encode().map_err(|error| Error::io("zstd", &error))?;
    Ok(MadeList { bytes, volume_len, files: base.source().tree().nodes().len() as u64 })
}

fn check_unit(unit: u32) -> Result<(), Error> {
    if unit.is_power_of_two() && UNITS.contains(&unit) {
        return Ok(());
    }
    let why = format!("digests are of a power of two of bytes from 512 to 1M, not of {unit}");
    Err(Error::usage(why))
}

/// Superblocks, descriptors and their copies: builds read those copies that are in the new volume,
/// too.
fn fixed(image: &dyn Inspect) -> Result<Vec<Extent>, FsError> {
    let mut found = Vec::new();
    for group in 0..image.geometry().groups {
        let metadata = image.group(GroupNo::new(group))?.metadata;
        let own = metadata.into_iter().filter(|fixed| fixed.kind == FixedKind::Superblock);
        found.extend(own.map(|fixed| fixed.extent));
    }
    Ok(found)
}

/// The sectors of blocks.
fn sectors(extent: Extent, block_size: u32) -> Range<Lba> {
    let byte = |block: u64| block * u64::from(block_size);
    let start = byte(extent.start.get()) / SECTOR;
    Lba::new(start)..Lba::new(byte(extent.end().get()).div_ceil(SECTOR))
}

/// Ranges sorted, those that touch joined.
fn union(mut ranges: Vec<Range<Lba>>) -> Vec<Range<Lba>> {
    ranges.sort_unstable_by_key(|range| range.start);
    ranges.dedup_by(|later, earlier| {
        let meet = later.start <= earlier.end;
        if meet {
            earlier.end = earlier.end.max(later.end);
        }
        meet
    });
    ranges
}

/// The runs of a list, and the bytes of those that are not zeros.
fn known_bytes(
    device: &dyn BlockDevice,
    known: &[Range<Lba>],
) -> Result<(Vec<u8>, Vec<u8>), FsError> {
    let mut written = WrittenRuns::default();
    let mut buf = vec![0; PIECE as usize];
    let len = device.len().get();
    for range in known {
        let (mut at, end) = (range.start.get(), range.end.get().min(len.div_ceil(SECTOR)));
        while at < end {
            // Pieces end at multiples of their length, so that the same sectors are told apart
            // wherever a range begins.
            let piece = PIECE / SECTOR;
            let next = end.min((at / piece + 1) * piece);
            // The last sector may be a part of one.
            let have = (next * SECTOR).min(len) - at * SECTOR;
            let bytes = &mut buf[..((next - at) * SECTOR) as usize];
            device.read(Lba::new(at), &mut bytes[..have as usize])?;
            bytes[have as usize..].fill(0);
            written.add(at, bytes);
            at = next;
        }
    }
    Ok(written.finish())
}

/// Runs in the making.
#[derive(Default)]
struct WrittenRuns {
    runs: Vec<u8>,
    bytes: Vec<u8>,
    /// The sector behind the last run that is written.
    end: u64,
    /// The run that may go on.
    open: Option<(Range<u64>, bool)>,
}

impl WrittenRuns {
    /// Adds sectors behind those before.
    fn add(&mut self, start: u64, bytes: &[u8]) {
        let (mut at, mut rest) = (start, bytes);
        while !rest.is_empty() {
            let end = (at / ZEROS + 1) * ZEROS;
            let (unit, behind) = rest.split_at(rest.len().min(((end - at) * SECTOR) as usize));
            let next = at + unit.len() as u64 / SECTOR;
            let is_zero = unit.iter().all(|&byte| byte == 0);
            if !is_zero {
                self.bytes.extend_from_slice(unit);
            }
            match &mut self.open {
                Some((run, zero)) if *zero == is_zero && run.end == at => run.end = next,
                _ => {
                    self.close();
                    self.open = Some((at..next, is_zero));
                }
            }
            (at, rest) = (next, behind);
        }
    }

    fn close(&mut self) {
        if let Some((run, is_zero)) = self.open.take() {
            runs::push(&mut self.runs, run.start - self.end, run.end - run.start, is_zero);
            self.end = run.end;
        }
    }

    fn finish(mut self) -> (Vec<u8>, Vec<u8>) {
        self.close();
        (self.runs, self.bytes)
    }
}

/// The digests of all files.
fn contents(base: &BaseImage, unit: u32) -> Result<Vec<u8>, Error> {
    let files = base.files();
    let of = |file: &ListedFile| {
        let mut content = base.source().open(file.node).map_err(|error| base.about(error))?;
        digesting::encode(content.as_mut(), file.size, unit).map_err(|error| base.about(error))
    };
    let encoded: Vec<Vec<u8>> =
        files.par_iter().with_min_len(16).map(of).collect::<Result<_, Error>>()?;
    let (mut out, mut before) = (Vec::new(), 0);
    for (file, encoded) in files.iter().zip(encoded) {
        let ino = u64::from(file.ino.get());
        number::push(&mut out, ino - before);
        out.extend(encoded);
        before = ino;
    }
    Ok(out)
}

/// A format whose images can be built on the base of older ones.
struct OlderFormat {
    /// The format.
    format: Format,
    /// Makes the layout list of an image that is on a device.
    list: fn(&ListRequest<'_>, Arc<dyn BlockDevice>) -> Result<MadeList, Error>,
}

impl OlderFormat {
    const fn of<V: OlderVolume>() -> Self {
        Self { format: V::FORMAT, list: make::<V> }
    }
}

/// The formats.
const FORMATS: &[OlderFormat] = &[
    OlderFormat::of::<seekless_ext::BaseVolume>(),
    OlderFormat::of::<seekless_fat::BaseVolume>(),
    OlderFormat::of::<seekless_ffs::BaseVolume>(),
];
