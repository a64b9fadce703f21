//! Rearranges an image: writes a second one in which blocks that traces read come first.

use crate::base::{Bases, Likeness, Moved, Taken, open_sound};
use crate::build::Build;
use crate::flags;
use crate::formats::{E2FSCK, OlderImages, REARRANGED};
use crate::older::OlderVolume;
use crate::opened::RearrangedFormat;
use crate::options::VolumeOptions;
use crate::write::Destination;
use seekless_device::{BlockDevice, DeviceError};
use seekless_ext::{BuildOptions, Builder, ExtImage, kept_flags};
use seekless_formats::claim;
use seekless_fs::format::{self, Format, OpenOptions, Probe};
use seekless_fs::plan::{NewVolume, ObjectId, Plan, Rearrange, Run};
use seekless_fs::term::{Term, Text};
use seekless_fs::{FsError, Inspect};
use seekless_host::block_device::number;
use seekless_images::targets::{Target, copy_of_table, copy_range};
use seekless_images::{Error, Place, Progress, refuse_others};
use seekless_layout::planner::scattered::{blocks_in, gather};
use seekless_layout::planner::{self, Part, Storage};
use seekless_layout::replay::{Replayed, add_symlinks};
use seekless_layout::trace::Events;
use seekless_source::{ImageSource, TreeOptions};
use seekless_units::{ByteLen, Lbn};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tracing::warn;

pub use crate::opened::Rearrangeable;

/// Opens an image that nobody changes.
///
/// # Errors
/// As [`seekless_images::open`], and [`ErrorKind::Unsupported`](seekless_images::ErrorKind) for
/// other formats.
pub fn open(
    path: &Path,
    place: &Place,
    options: OpenOptions,
) -> Result<Box<dyn Rearrangeable>, Error> {
    seekless_images::in_use::refuse(path)?;
    let device = seekless_images::device(path, place)?;
    let only = "optimize rearranges ext2, ext3, ext4 and FAT images";
    let formats: Vec<Format> = REARRANGED.iter().map(|row| row.format).collect();
    refuse_others(path, device.as_ref(), &formats, only)?;
    open_device(device, options).map_err(|error| Error::from(error).about(path.display()))
}

/// Opens older images of the format of an image, or their layout lists; `None` for none.
///
/// # Errors
/// As [`open`]; as [`Bases::open`]; [`ErrorKind::Usage`](seekless_images::ErrorKind) for a
/// partition, which keeps its size and its marks.
pub fn older_images(
    image: &Path,
    place: &Place,
    older: &[PathBuf],
    options: OpenOptions,
) -> Result<Option<OlderImages>, Error> {
    if older.is_empty() {
        return Ok(None);
    }
    if place.is_part() {
        let what = Text::from("a partition keeps its file system: leave ").then(Term::Older);
        return Err(Error::usage(what.then(" out")));
    }
    let device = seekless_images::device(image, place)?;
    let format = claim(device.as_ref());
    let format = format.map_err(|error| Error::from(error).about(image.display()))?;
    OlderImages::open(format, older, &Place::default(), options)
}

/// Opens a device of the first format that claims it; of the first of all if none does.
fn open_device(
    device: Arc<dyn BlockDevice>,
    options: OpenOptions,
) -> Result<Box<dyn Rearrangeable>, FsError> {
    let claims = |row: &&RearrangedFormat| (row.format.probe)(device.as_ref()) != Probe::No;
    let row = REARRANGED.iter().find(claims).unwrap_or(&REARRANGED[0]);
    (row.open)(device, options)
}

/// The old image, the new image, and the options of a rearrangement.
#[derive(Clone, Copy)]
pub struct Rearrangement<'a> {
    /// The old image.
    pub image: &'a Path,
    /// The partition of the file system; the rest of the disk is copied.
    pub place: &'a Place,
    /// The new image.
    pub target: &'a Target,
    /// The new image's name in errors.
    pub written: &'a Path,
    /// The storage that it is laid out for.
    pub storage: Storage,
    /// Is told how far the work is.
    pub progress: &'a dyn Progress,
}

/// A rearranged image on older images.
pub struct Rebuilt {
    /// The image that was rearranged.
    pub old: Arc<dyn Inspect>,
    /// How many files keep the places of older images, and how much left them for the traces.
    pub kept: Option<(Taken, Moved)>,
}

impl Rearrangement<'_> {
    /// Writes the same file system with its parts in another order.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](seekless_images::ErrorKind) for an image that is damaged; errors of
    /// the devices.
    pub fn rearrange(
        &self,
        image: &dyn Rearrangeable,
        replays: &mut [Replayed],
    ) -> Result<(), Error> {
        let relayout = image.relayout().map_err(|error| self.refused(error, image.repair()))?;
        image.add_unread(replays).map_err(|error| self.about(error))?;
        self.write(relayout.as_ref(), image.inspect(), replays)
    }

    /// Plans the layout by some replays.
    pub(crate) fn plan<'a>(
        &self,
        relayout: &dyn Rearrange,
        block_size: u32,
        replays: impl IntoIterator<Item = &'a Replayed>,
    ) -> Result<Plan, FsError> {
        let unit = relayout.cluster_blocks();
        let touches = planner::touches(replays, &|ino| relayout.object(ino), unit);
        let (demand, unit_bytes) = (relayout.demand(), u64::from(block_size) * unit);
        let blocks = |object| blocks_in(demand, object);
        let (touches, _) = gather(touches, self.storage, unit_bytes, &blocks);
        planner::plan(demand, &relayout.space(), &touches, self.storage.align(unit_bytes))
    }

    /// Plans the layout, and writes the new image.
    fn write(
        &self,
        relayout: &dyn Rearrange,
        image: &dyn Inspect,
        replays: &[Replayed],
    ) -> Result<(), Error> {
        let block_size = image.geometry().block_size;
        let plan = self.plan(relayout, block_size, replays).map_err(|error| self.about(error))?;
        self.warn_of_rest(image)?;
        let device = self.device(relayout.size())?;
        self.progress.begin(relayout.size());
        let advance = |bytes| self.progress.advance(ByteLen::new(bytes));
        relayout.write(&plan, device.as_ref(), &advance).map_err(|error| match error {
            // Damage is found where something is read.
            FsError::Device(DeviceError::Damaged { .. }) => self.about(error),
            _ => Error::from(error).about(self.written.display()),
        })?;
        self.progress.end();
        Ok(())
    }

    /// Writes the same tree as a file system of another shape.
    ///
    /// # Errors
    /// As [`Rearrangement::rearrange`]; contents that do not fit.
    pub fn rebuild(
        &self,
        image: &Arc<ExtImage>,
        options: &BuildOptions,
        replays: &mut [Replayed],
    ) -> Result<(), Error> {
        let about = |error| self.about(error);
        image.refuse_damage().map_err(|error| self.refused(error, E2FSCK))?;
        add_symlinks(image.as_ref(), replays).map_err(about)?;
        let tree = ImageSource::open(image.clone(), &TreeOptions::default()).map_err(about)?;
        let nodes = tree.nodes_by_inode().map_err(about)?;
        let object = |ino| nodes.get(&ino).map(|node| ObjectId::new(node.index() as u32));
        let name = self.image.display().to_string();
        let options = BuildOptions { makes_lost_and_found: false, ..options.clone() };
        let builder = Builder::new(&tree, &options).map_err(about)?;
        let mut touches = planner::touches(&*replays, &object, 1);
        for touch in &mut touches {
            // The directory is rewritten: present blocks of names do not count.
            if let Part::Blocks(run) = &mut touch.part
                && builder.demand().is_directory(touch.object)
            {
                *run = Run { lbn: Lbn::ZERO, len: u64::from(u32::MAX) };
            }
        }
        let build = Build {
            source: &tree,
            name: &name,
            traces: &[],
            storage: self.storage,
            destination: Destination::whole(self.target),
            progress: self.progress,
        };
        self.warn_of_rest(image.as_ref())?;
        flags::warn_of_lost(&tree, kept_flags(options.features));
        build.volume(&builder, &touches).map(drop)
    }

    /// Writes the same tree as a volume of the shape of the first of older images of its format, in
    /// which its files keep their places.
    ///
    /// # Errors
    /// As [`Rearrangement::rearrange`]; contents that do not fit.
    pub fn rebuild_on(
        &self,
        older: &OlderImages,
        likeness: Likeness,
        traces: &[Events],
        options: OpenOptions,
    ) -> Result<Rebuilt, Error> {
        match older {
            OlderImages::Ext(bases) => {
                self.rebuild_as::<seekless_ext::BuildOptions>(bases, likeness, traces, options)
            }
            OlderImages::Ufs(bases) => {
                self.rebuild_as::<seekless_ffs::BuildOptions>(bases, likeness, traces, options)
            }
            OlderImages::Fat(bases) => {
                self.rebuild_as::<seekless_fat::BuildOptions>(bases, likeness, traces, options)
            }
        }
    }

    fn rebuild_as<O: VolumeOptions>(
        &self,
        bases: &Bases<O::Older>,
        likeness: Likeness,
        traces: &[Events],
        options: OpenOptions,
    ) -> Result<Rebuilt, Error> {
        let image = open_sound::<O::Older>(self.image, self.place, options)?;
        let (older, own) = (bases.version(), O::Older::version(&image));
        if older != own {
            let what = format!("is {own}, and the older image {older}");
            if likeness.is_strict {
                return Err(self.about(FsError::Unsupported(what)));
            }
            warn!("{}: {what}, as the new image will be", self.image.display());
        }
        let tree = ImageSource::open(image.clone(), &TreeOptions::default());
        let tree = tree.map_err(|error| self.about(error))?;
        let build = Build {
            source: &tree,
            name: &self.image.display().to_string(),
            traces,
            storage: self.storage,
            destination: Destination::whole(self.target),
            progress: self.progress,
        };
        let mut options = bases.volume().options();
        O::Older::add_nothing(&mut options);
        self.target.refuse_blocks(options.unit(), "the device has larger blocks")?;
        self.warn_of_rest(image.as_ref())?;
        let written = build.on(bases, &options, likeness)?;
        Ok(Rebuilt { old: image, kept: written.kept })
    }

    /// Warns of data behind the file system of an image's file, which the new image lacks: a hash
    /// tree would not match it. Behind that of a whole block device, anything may have been left.
    fn warn_of_rest(&self, image: &dyn Inspect) -> Result<(), Error> {
        if self.place.is_part() || number(self.image).is_some() {
            return Ok(());
        }
        let device = seekless_images::device(self.image, self.place)?;
        let geometry = image.geometry();
        let end = geometry.blocks.saturating_mul(geometry.block_size.into());
        let rest = device.len().get().saturating_sub(end);
        let is_data = has_data(device.as_ref(), end).map_err(|error| self.about(error.into()))?;
        if is_data {
            let path = self.image.display();
            warn!(
                "{path}: {rest} bytes behind the file system, such as a hash tree of dm-verity, are \
                 not in the new image"
            );
        }
        Ok(())
    }

    /// The device for a new file system of `size` bytes. The rest of a partitioned disk is
    /// copied.
    fn device(&self, size: ByteLen) -> Result<Arc<dyn BlockDevice>, Error> {
        if !self.place.is_part() {
            return self.target.device(size, self.progress);
        }
        let old = seekless_images::device(self.image, &Place::default())?;
        if self.target.capacity().is_some_and(|capacity| capacity > old.len())
            && seekless_images::partition::is_gpt(old.as_ref())
        {
            let path = self.written.display();
            warn!(
                "{path}: is larger than the old disk; the second copy of the partition table lies \
                 where that one ended, until sgdisk -e {path} moves it to the end"
            );
        }
        let (start, len) = seekless_images::partition::range(self.image, &old, self.place)?;
        let new = self.target.device(old.len(), self.progress)?;
        let end = start.get().saturating_add(size.get());
        let (from, to) = ((old.as_ref(), self.image), (new.as_ref(), self.written));
        copy_range(from, to, 0, start.get())?;
        copy_range(from, to, end, copy_of_table(old.as_ref(), start.get() + len.get()))?;
        seekless_images::part(self.written, new, self.place)
    }

    /// The image just written, before it has its name.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](seekless_images::ErrorKind) where nothing was written; as [`open`].
    pub fn open_written(&self) -> Result<Arc<dyn Inspect>, Error> {
        let missing = || Error::usage("nothing was written").about(self.written.display());
        let device = seekless_images::part(
            self.written,
            self.target.written().ok_or_else(missing)?,
            self.place,
        )?;
        Ok(format::open(seekless_images::FORMATS, device, OpenOptions::default())?)
    }

    /// Completes a disk when its file system is written: with the second copy of its partition
    /// table, without which the incomplete image is no disk.
    ///
    /// # Errors
    /// Errors of the devices.
    pub fn complete(&self) -> Result<(), Error> {
        let Some(new) = self.target.written().filter(|_| self.place.is_part()) else {
            return Ok(());
        };
        let old = seekless_images::device(self.image, &Place::default())?;
        let (start, len) = seekless_images::partition::range(self.image, &old, self.place)?;
        let from = copy_of_table(old.as_ref(), start.get() + len.get());
        let both = ((old.as_ref(), self.image), (new.as_ref(), self.written));
        copy_range(both.0, both.1, from, old.len().get())
    }

    pub(crate) fn about(&self, error: FsError) -> Error {
        Error::from(error).about(self.image.display())
    }

    fn refused(&self, error: FsError, hint: impl Into<Text>) -> Error {
        refused(error, self.image, hint)
    }
}

/// Whether a byte of a device from byte `at` on is not zero.
fn has_data(device: &dyn BlockDevice, mut at: u64) -> Result<bool, DeviceError> {
    let mut buf = vec![0; 1 << 20];
    let len = device.len().get();
    while at < len {
        let count = usize::try_from(len - at).unwrap_or(usize::MAX).min(buf.len());
        device.read_bytes(ByteLen::new(at), &mut buf[..count])?;
        if buf[..count].iter().any(|&byte| byte != 0) {
            return Ok(true);
        }
        at += count as u64;
    }
    Ok(false)
}

/// The error of an image that is not rearranged; with the hint if it is damaged.
#[must_use]
pub fn refused(error: FsError, image: &Path, hint: impl Into<Text>) -> Error {
    let damaged = matches!(error, FsError::Damaged { .. });
    let error = Error::from(error).about(image.display());
    if damaged { error.hint(hint) } else { error }
}
