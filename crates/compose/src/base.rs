//! An older image as the base of a new one: the files of both keep their inode numbers and blocks.

use crate::freed::{self, Copying, Freed};
use crate::kept::{self, BaseImage, Matches};
use crate::layout_list::{self, LayoutList};
use crate::older::{Continued, OlderVolume, damaged};
use crate::touched::{hot_objects, moving};
use crate::write::{Destination, write_error, write_volume_over};
use crate::wrong;
use seekless_device::BlockDevice;
use seekless_fs::FsError;
use seekless_fs::format::OpenOptions;
use seekless_fs::plan::{NewVolume, Plan};
use seekless_fs::source::Source;
use seekless_fs::term::{Term, Text};
use seekless_images::{Error, ErrorKind, Place, Progress, in_use, refuse_others};
use seekless_layout::planner::moves::{Moves, move_touched, pieces_of};
use seekless_layout::planner::numbers::{Renumbered, renumber_touched};
use seekless_layout::planner::{self, Storage, Touch};
use seekless_units::{ByteLen, Ino};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tracing::warn;

pub use crate::kept::Taken;

/// How often a volume grows by a 64th for longer maps.
const GROWTHS: u32 = 8;

/// Older images of a format, on which a new one is built: its shape is that of the first.
pub struct Bases<V: OlderVolume> {
    volume: V,
    /// That of the volume.
    version: String,
    images: Vec<BaseImage>,
    /// The same images, as those of their format.
    opened: Vec<Arc<V::Image>>,
}

impl<V: OlderVolume> Bases<V> {
    /// Opens images; `None` without any.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](seekless_images::ErrorKind) for an image that is damaged,
    /// [`ErrorKind::Unsupported`](seekless_images::ErrorKind) for one of another format; as
    /// [`seekless_images::open`].
    pub fn open(
        paths: &[PathBuf],
        place: &Place,
        options: OpenOptions,
    ) -> Result<Option<Self>, Error> {
        let (mut volume, mut images, mut opened) = (None, Vec::new(), Vec::new());
        for path in paths {
            let about = |error: FsError| Error::from(error).about(path.display());
            let list = layout_list::read(path)?;
            let device = match &list {
                Some(list) => device_of_list::<V>(list, path, place)?,
                None => device::<V>(path, place)?,
            };
            let image = Arc::new(V::open(device.clone(), options).map_err(about)?);
            if volume.is_none() {
                let first = V::of(image.clone()).map_err(|error| damaged::<V>(error, path))?;
                volume = Some((first, V::version(&image)));
            } else {
                V::refuse_damage(&image).map_err(|error| damaged::<V>(error, path))?;
            }
            opened.push(image.clone());
            images.push(match &list {
                Some(list) => BaseImage::of_list(path, image, list)?,
                None => BaseImage::new(path, (device, image)).map_err(about)?,
            });
        }
        Ok(volume.map(|(volume, version)| Self { volume, version, images, opened }))
    }

    /// A volume with the files of a source, which has a name for errors, and its layout. Without a
    /// requested size it grows where places that are kept make maps longer. `touches` are those of
    /// the traces.
    ///
    /// # Errors
    /// As [`OlderVolume::build`] and [`planner::plan_on`], and errors of the images.
    pub fn plan<'a>(
        &'a self,
        (source, name): (&'a dyn Source, &str),
        (options, likeness): (&V::Options, Likeness),
        touches: impl Fn(&V::Builder<'a>) -> Vec<Touch>,
        storage: Storage,
    ) -> Result<PlannedVolume<'a, V::Builder<'a>>, Error> {
        let about = |error: FsError| wrong(error).about(name);
        if let (Freed::Keep, Some(first)) =
            (likeness.freed, self.images.first().filter(|it| it.is_list()))
        {
            return Err(freed_of_list(first));
        }
        let mut options = options.clone();
        let mut tries = 0..GROWTHS;
        loop {
            let NewBuilder { builder, matches, has_its_shape } =
                self.builder((source, name), (&options, likeness), &touches)?;
            let mut base = kept::layout(&self.images, &matches, &builder, V::HAS_INODES)?;
            let taken = matches.taken;
            // In another shape, free blocks could look like metadata of the older one.
            base.keeps_freed = has_its_shape && likeness.freed == Freed::Keep;
            let (demand, space) = (builder.demand(), builder.space());
            let touches = moving(&builder, touches(&builder).into_iter(), storage);
            let block_size = u64::from(builder.block_size());
            let align = storage.align(block_size);
            let budget = likeness.move_budget.get() / block_size;
            let (moves, renumbered) = if budget == 0 {
                (Moves::default(), Renumbered::default())
            } else {
                let (rest, moves) = move_touched(base, demand, &space, &touches, budget);
                let left = budget - moves.blocks;
                let (rest, numbers) = renumber_touched(rest, demand, &space, &touches, left);
                base = rest;
                (moves, numbers)
            };
            match planner::plan_on(&base, demand, &space, &touches, align) {
                Ok(plan) => {
                    let moved = Moved {
                        bytes: ByteLen::new(moves.blocks * block_size),
                        chunks: moves.chunks(&plan, align),
                        pieces_before: moves.pieces_before,
                        pieces_after: match budget {
                            0 => 0,
                            _ => pieces_of(&plan, demand, &touches),
                        },
                        inodes: renumbered.inodes,
                        inode_bytes: ByteLen::new(renumbered.blocks * block_size),
                        inode_reads_before: renumbered.windows_before,
                        inode_reads_after: renumbered.windows_after,
                    };
                    let residue = self.images.first().filter(|_| base.keeps_freed);
                    let images = &self.images;
                    return Ok(PlannedVolume {
                        volume: builder,
                        plan,
                        taken,
                        moved,
                        residue,
                        images,
                    });
                }
                Err(FsError::NoSpace(_))
                    if tries.next().is_some()
                        && V::grow(&mut options, ByteLen::new(builder.size().get() / 64)) => {}
                Err(error) => return Err(about(error)),
            }
        }
    }

    /// A new volume of the older one's shape, else one of its own, in which files continue those of
    /// the older images.
    fn builder<'a>(
        &'a self,
        (source, name): (&'a dyn Source, &str),
        (options, likeness): (&V::Options, Likeness),
        touches: &impl Fn(&V::Builder<'a>) -> Vec<Touch>,
    ) -> Result<NewBuilder<'a, V>, Error> {
        let about = |error: FsError| wrong(error).about(name);
        let continued = |mut builder: V::Builder<'a>, keeps_freed: bool| {
            let matches = kept::find(&self.images, (source, name), &builder)?;
            let (files, hot) = (matches.files(&self.images), hot_objects(&touches(&builder)));
            let images = &self.opened[..];
            let inodes: Vec<&[Ino]> = self.images.iter().map(BaseImage::inodes).collect();
            let inodes = &inodes[..];
            let continued = Continued { images, inodes, files: &files, hot: &hot, keeps_freed };
            let done = V::continue_files(&mut builder, &continued);
            Ok::<_, Error>((builder, matches, done))
        };
        let why = match self.volume.build(source, options) {
            Err(FsError::Unsupported(why)) => why,
            Err(error) => return Err(about(error)),
            Ok(builder) => match continued(builder, likeness.freed == Freed::Keep)? {
                (_, _, Err(FsError::Unsupported(why))) => why,
                (builder, matches, done) => {
                    done.map_err(about)?;
                    return Ok(NewBuilder { builder, matches, has_its_shape: true });
                }
            },
        };
        if likeness.is_strict {
            return Err(about(FsError::Unsupported(why)));
        }
        warn!("{why}: the new volume has a shape of its own");
        let builder = self.volume.build_apart(source, options).map_err(about)?;
        let (builder, matches, done) = continued(builder, false)?;
        done.map_err(about)?;
        Ok(NewBuilder { builder, matches, has_its_shape: false })
    }

    /// The volume whose shape is taken.
    #[must_use]
    pub fn volume(&self) -> &V {
        &self.volume
    }

    /// The version of the volume ([`OlderVolume::version`]).
    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    /// All images, in order.
    #[must_use]
    pub fn images(&self) -> &[BaseImage] {
        &self.images
    }
}

/// A new volume, and the files of older images that its objects continue.
struct NewBuilder<'a, V: OlderVolume> {
    builder: V::Builder<'a>,
    matches: Matches,
    has_its_shape: bool,
}

/// Opens an image of the format of older ones, which nobody changes.
///
/// # Errors
/// As [`Bases::open`].
pub(crate) fn open_sound<V: OlderVolume>(
    path: &Path,
    place: &Place,
    options: OpenOptions,
) -> Result<Arc<V::Image>, Error> {
    let about = |error: FsError| Error::from(error).about(path.display());
    let image = Arc::new(V::open(device::<V>(path, place)?, options).map_err(about)?);
    V::refuse_damage(&image).map_err(|error| damaged::<V>(error, path))?;
    Ok(image)
}

/// The device of an image that nobody changes.
fn device<V: OlderVolume>(path: &Path, place: &Place) -> Result<Arc<dyn BlockDevice>, Error> {
    in_use::refuse(path)?;
    let device = seekless_images::device(path, place)?;
    refuse_others(path, device.as_ref(), &[V::FORMAT], V::ONLY)?;
    Ok(device)
}

/// The metadata in a layout list, as a device.
fn device_of_list<V: OlderVolume>(
    list: &LayoutList,
    path: &Path,
    place: &Place,
) -> Result<Arc<dyn BlockDevice>, Error> {
    if place.is_part() {
        let why = Text::from("a layout list is of one volume: leave ").then(Term::OlderPartition);
        return Err(Error::usage(why.then(" out")).about(path.display()));
    }
    if list.format() != V::FORMAT.name {
        let what = format!("is the layout list of an image of {}; {}", list.format(), V::ONLY);
        return Err(Error::new(ErrorKind::Unsupported, what).about(path.display()));
    }
    Ok(list.device().clone())
}

/// The error of freed blocks that are to keep bytes which a layout list does not have.
fn freed_of_list(list: &BaseImage) -> Error {
    let why = "a layout list has no bytes of freed blocks: ";
    let why = Text::from(why).then(Term::KeepFreed).then(" needs the older image");
    Error::usage(why).about(list.path().display())
}

/// How far a volume is like the older one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Likeness {
    /// Whether a volume is an error that cannot have the shape of the older one. Else it has a
    /// shape of its own, with a warning, and its free blocks are zeros.
    pub is_strict: bool,
    /// The blocks of files that were replaced or removed.
    pub freed: Freed,
    /// Bytes of contents that traces read which may leave their places, so that they lie in the
    /// order in which they are read.
    pub move_budget: ByteLen,
}

/// A volume on the base of an older one, and its layout.
pub struct PlannedVolume<'a, B> {
    volume: B,
    plan: Plan,
    taken: Taken,
    moved: Moved,
    /// The image whose bytes the free blocks have.
    residue: Option<&'a BaseImage>,
    images: &'a [BaseImage],
}

impl<B: NewVolume> PlannedVolume<'_, B> {
    /// The volume.
    #[must_use]
    pub fn volume(&self) -> &B {
        &self.volume
    }

    /// How many files have a place in the older volume.
    #[must_use]
    pub fn taken(&self) -> Taken {
        self.taken
    }

    /// The blocks that left their places for the traces.
    #[must_use]
    pub fn moved(&self) -> Moved {
        self.moved
    }

    /// Writes the volume, and returns its length. `source` names the source in errors.
    ///
    /// # Errors
    /// Errors of the source, of the older image, and of the device.
    pub fn write(
        &self,
        source: &str,
        place: Destination<'_>,
        progress: &dyn Progress,
    ) -> Result<ByteLen, Error> {
        let (volume, plan) = (&self.volume, &self.plan);
        let written = write_volume_over((volume, plan), &source, place, progress, |device| {
            let Some(old) = self.residue else { return Ok(()) };
            freed::copy(old.device(), (volume, plan), device).map_err(|error| match error {
                Copying::Read(error) => old.about(error.into()),
                Copying::Write(error) => write_error(error.into(), &source, place),
            })
        });
        // A copy that cannot be read is made again, so that a lack need not be an error by itself.
        self.images.iter().try_for_each(BaseImage::refuse_lack)?;
        written
    }
}

/// The blocks that left their places in an older volume for the order of traces, and the gain.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Moved {
    /// Bytes of contents and directories.
    pub bytes: ByteLen,
    /// Chunks in which they lie now.
    pub chunks: u64,
    /// Pieces in which the blocks that traces read would lie if none moved.
    pub pieces_before: u64,
    /// Pieces in which they lie now.
    pub pieces_after: u64,
    /// Inodes that traces read and that got other numbers.
    pub inodes: u64,
    /// Bytes of blocks that have one of these numbers, at most.
    pub inode_bytes: ByteLen,
    /// Windows of inode tables that traces would read if none did.
    pub inode_reads_before: u64,
    /// Windows that they read.
    pub inode_reads_after: u64,
}
