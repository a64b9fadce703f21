//! Builds an image of each format from a source. Blocks that traces read come first.

use crate::base::{ExtBases, FatBases, Likeness, Moved, Taken, UfsBases};
use crate::freed::{self, Freed};
use crate::names::Names;
use crate::touched::{hot_objects, with_shared};
use crate::write::{Destination, write_error, write_volume, write_volume_over};
use crate::{flags, layers, wrong};
use seekless_ext as ext;
use seekless_fat::{self as fat, LossCounts};
use seekless_ffs as ufs;
use seekless_fs::FsError;
use seekless_fs::plan::{Base, NewVolume, Plan};
use seekless_fs::source::Source;
use seekless_images::{Error, Progress};
use seekless_layout::by_path;
use seekless_layout::planner::{self, Touch};
use seekless_layout::trace::Event;
use seekless_units::ByteLen;
use tracing::warn;

/// The source, the traces and the destination of an image.
#[derive(Clone, Copy)]
pub struct Build<'a> {
    /// Its contents.
    pub source: &'a dyn Source,
    /// The source's name in errors.
    pub name: &'a str,
    /// Accesses, in order: the blocks that they read are allocated first.
    pub traces: &'a [Vec<Event>],
    /// Alignment of the blocks that are read, in bytes.
    pub chunk: ByteLen,
    /// Where it is written.
    pub destination: Destination<'a>,
    /// Is told how far the work is.
    pub progress: &'a dyn Progress,
}

impl Build<'_> {
    /// Writes an ext image, and returns its length.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](seekless_images::ErrorKind) for options that contradict the source,
    /// [`ErrorKind::NoSpace`](seekless_images::ErrorKind) for contents that do not fit; errors of
    /// the source and of the device.
    pub fn ext(&self, options: &ext::BuildOptions) -> Result<ByteLen, Error> {
        flags::warn_of_lost(self.source, ext::kept_flags(options.features));
        let builder = ext::Builder::new(self.source, options).map_err(|error| self.about(error))?;
        let touches = self.touches(options.block_size);
        self.volume(&builder, &touches)
    }

    /// Writes an ext image on the base of older ones, and returns its length, how many files keep
    /// their places, and how much left them. The volume has the shape of the first image, if it can.
    ///
    /// # Errors
    /// As [`Build::ext`], errors of the older images, and
    /// [`ErrorKind::Unsupported`](seekless_images::ErrorKind) for another shape.
    pub fn ext_on(
        &self,
        bases: &ExtBases,
        options: &ext::BuildOptions,
        likeness: Likeness,
    ) -> Result<(ByteLen, Taken, Moved), Error> {
        flags::warn_of_lost(self.source, ext::kept_flags(options.features));
        let planned = bases.plan(
            (self.source, self.name),
            (options, likeness),
            |_| self.touches(options.block_size),
            self.chunk,
        )?;
        let size = planned.write(self.name, self.destination, self.progress)?;
        Ok((size, planned.taken(), planned.moved()))
    }

    /// Writes an ext image, and returns its length. `below` has the sources of the first layer, of
    /// the first two, and so on, all but the whole, which is the build's own; each layer lies where
    /// it lies in any image that begins with the same layers and was built with the same options.
    /// Blocks of files that an upper layer replaces are `freed`.
    ///
    /// # Errors
    /// As [`Build::ext`].
    pub fn ext_in_layers(
        &self,
        below: &[Box<dyn Source + Send>],
        options: &ext::BuildOptions,
        freed: Freed,
    ) -> Result<ByteLen, Error> {
        flags::warn_of_lost(self.source, ext::kept_flags(options.features));
        let below = below.iter().map(|source| -> &dyn Source { source.as_ref() });
        let sources: Vec<&dyn Source> = below.chain([self.source]).collect();
        let first = sources.first().copied().unwrap_or(self.source);
        let marks = ext::CommonMarks::new(first, options);
        let align = self.align(options.block_size);
        let mut layers: Vec<(&dyn Source, ext::Builder<'_>, Plan)> = Vec::new();
        let mut begin = None;
        for source in sources {
            let builder = ext::Builder::common(source, options, &marks);
            let volume = builder.map_err(|error| self.about(error))?;
            let mut base = match layers.last() {
                Some((old, old_volume, plan)) => {
                    layers::base((*old, old_volume, plan), (source, &volume), align, freed)
                }
                None => layers::first(),
            };
            // Nor behind a layer whose last files the next one removes.
            base.begin = base.begin.max(begin);
            begin = base.begin;
            let touches = Build { source, ..*self }.touches(options.block_size);
            let plan = self.plan(Some(&base), &volume, &touches)?;
            layers.push((source, volume, plan));
        }
        let (_, volume, plan) = layers.pop().expect("there is a source at least: the whole");
        let place = self.destination;
        write_volume_over((&volume, &plan), &self.name, place, self.progress, |device| {
            if freed == Freed::Zero {
                return Ok(());
            }
            let lower = layers.iter().map(|(_, volume, plan)| (volume, plan));
            freed::write_lower(lower, freed::free_blocks(&volume, &plan), device)
                .map_err(|error| write_error(error, &self.name, place))
        })
    }

    /// Writes a UFS image, and returns its length.
    ///
    /// # Errors
    /// As [`Build::ext`].
    pub fn ufs(&self, options: &ufs::BuildOptions) -> Result<ByteLen, Error> {
        flags::warn_of_lost(self.source, ufs::KEPT_FLAGS);
        let block_size = options.make.block_size;
        let touches = self.touches(block_size);
        let hot = hot_objects(&touches);
        let builder =
            ufs::Builder::new(self.source, options, &hot).map_err(|error| self.about(error))?;
        self.volume(&builder, &touches)
    }

    /// Writes a UFS image on the base of older ones, as [`Build::ext_on`] does. Last fragments of
    /// files and entries of directories keep their places, too.
    ///
    /// # Errors
    /// As [`Build::ext_on`].
    pub fn ufs_on(
        &self,
        bases: &UfsBases,
        options: &ufs::BuildOptions,
        likeness: Likeness,
    ) -> Result<(ByteLen, Taken, Moved), Error> {
        flags::warn_of_lost(self.source, ufs::KEPT_FLAGS);
        let planned = bases.plan(
            (self.source, self.name),
            (options, likeness),
            |builder| self.touches(builder.block_size()),
            self.chunk,
        )?;
        let size = planned.write(self.name, self.destination, self.progress)?;
        Ok((size, planned.taken(), planned.moved()))
    }

    /// Writes a FAT image, and returns its length.
    ///
    /// # Errors
    /// As [`Build::ext`].
    pub fn fat(&self, options: &fat::BuildOptions) -> Result<ByteLen, Error> {
        let builder = fat::Builder::new(self.source, options).map_err(|error| self.about(error))?;
        self.warn_of_fat(&builder);
        let touches = self.touches_without_case(builder.block_size());
        self.volume(&builder, &touches)
    }

    /// Writes a FAT image on the base of older ones, as [`Build::ext_on`] does. Entries of
    /// directories keep their places and short names.
    ///
    /// # Errors
    /// As [`Build::ext_on`].
    pub fn fat_on(
        &self,
        bases: &FatBases,
        options: &fat::BuildOptions,
        likeness: Likeness,
    ) -> Result<(ByteLen, Taken, Moved), Error> {
        let planned = bases.plan(
            (self.source, self.name),
            (options, likeness),
            |builder| self.touches_without_case(builder.block_size()),
            self.chunk,
        )?;
        self.warn_of_fat(planned.volume());
        let size = planned.write(self.name, self.destination, self.progress)?;
        Ok((size, planned.taken(), planned.moved()))
    }

    /// Warns of the parts of the source that FAT does not store.
    fn warn_of_fat(&self, builder: &fat::Builder<'_>) {
        if let Some(clusters) = builder.ambiguous_clusters() {
            warn_of_width(clusters);
        }
        if let Some(lost) = in_words(&builder.lost()) {
            warn!("{lost}");
        }
        flags::warn_of_lost(self.source, 0);
    }

    /// Decides on the layout of a volume and writes it: blocks that are touched come first, in the
    /// order of `touches`. Returns the volume's length. The objects of the volume are the nodes of
    /// the source.
    ///
    /// # Errors
    /// As [`Build::ext`].
    pub fn volume(&self, volume: &dyn NewVolume, touches: &[Touch]) -> Result<ByteLen, Error> {
        let plan = self.plan(None, volume, touches)?;
        write_volume(volume, &plan, &self.name, self.destination, self.progress)
    }

    /// Decides on the layout; everything that `base` has keeps its place.
    fn plan(
        &self,
        base: Option<&Base>,
        volume: &dyn NewVolume,
        touches: &[Touch],
    ) -> Result<Plan, Error> {
        let touches: Vec<Touch> =
            touches.iter().flat_map(|&touch| with_shared(volume, touch)).collect();
        let align = self.align(volume.block_size());
        let (demand, space) = (volume.demand(), volume.space());
        let plan = match base {
            Some(base) => planner::plan_on(base, demand, &space, &touches, align),
            None => planner::plan(demand, &space, &touches, align),
        };
        plan.map_err(|error| self.about(error))
    }

    fn about(&self, error: FsError) -> Error {
        wrong(error).about(self.name)
    }

    /// Blocks of a chunk.
    fn align(&self, block_size: u32) -> u64 {
        (self.chunk.get() / u64::from(block_size)).max(1)
    }

    /// The touches of the traces, in order, in blocks of `unit` bytes.
    #[must_use]
    pub fn touches(&self, unit: u32) -> Vec<Touch> {
        let tree = self.source.tree();
        self.traces.iter().flat_map(|events| by_path::touches(events, tree, unit)).collect()
    }

    /// The touches of traces of a FAT volume, whose names may differ from the source in case.
    fn touches_without_case(&self, unit: u32) -> Vec<Touch> {
        let mut names = Names::new(self.source.tree());
        let mut touches = Vec::new();
        for events in self.traces {
            let mut events = events.clone();
            for event in &mut events {
                event.path = names.in_source(&event.path);
            }
            touches.extend(by_path::touches(&events, self.source.tree(), unit));
        }
        touches
    }
}

/// Losses as text; `None` without any.
fn in_words(lost: &LossCounts) -> Option<String> {
    let counted = |count: u64, one: &str, many: &str| match count {
        0 => None,
        1 => Some(format!("1 {one}")),
        _ => Some(format!("{count} {many}")),
    };
    let parts: Vec<String> = [
        counted(lost.owners, "owner", "owners"),
        counted(lost.modes, "mode", "modes"),
        counted(lost.xattrs, "file's extended attributes", "files' extended attributes"),
        counted(lost.symlinks, "symlink", "symlinks"),
        counted(lost.devices, "device, FIFO or socket", "devices, FIFOs and sockets"),
        counted(lost.names, "file with an impossible name", "files with impossible names"),
    ]
    .into_iter()
    .flatten()
    .collect();
    let mut text = match parts.is_empty() {
        true => String::new(),
        false => format!("dropped: {}", parts.join(", ")),
    };
    if let Some(links) = counted(lost.links, "hard link", "hard links") {
        let gap = if text.is_empty() { "" } else { "; " };
        text += &format!("{gap}{links} became files of their own");
    }
    (!text.is_empty()).then_some(text)
}

/// Warns of a FAT32 volume with few clusters.
pub fn warn_of_width(clusters: u32) {
    warn!(
        "{clusters} clusters are fewer than the 65525 of FAT32: systems that go by their number take the volume for FAT16 or FAT12"
    );
}
