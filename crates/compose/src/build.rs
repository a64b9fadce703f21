//! Builds an image of each format from a source. Blocks that traces read come first.

use crate::base::{Bases, Likeness, Moved, Taken};
use crate::formats::{OlderImages, Options};
use crate::freed::{self, Freed};
use crate::names::Names;
use crate::options::VolumeOptions;
use crate::touched::moving;
use crate::write::{Destination, write_error, write_volume, write_volume_over};
use crate::{flags, layers, wrong};
use seekless_ext as ext;
use seekless_fs::FsError;
use seekless_fs::plan::{Base, NewVolume, Plan};
use seekless_fs::source::Source;
use seekless_images::{Error, Progress};
use seekless_layout::by_path;
use seekless_layout::planner::{self, Storage, Touch};
use seekless_layout::trace::{EventRef, Events};
use seekless_units::ByteLen;
use std::sync::Arc;

/// The source, the traces and the destination of an image.
#[derive(Clone, Copy)]
pub struct Build<'a> {
    /// Its contents.
    pub source: &'a dyn Source,
    /// The source's name in errors.
    pub name: &'a str,
    /// Accesses, in order: the blocks that they read are allocated first.
    pub traces: &'a [Events],
    /// The storage that it is laid out for.
    pub storage: Storage,
    /// Where it is written.
    pub destination: Destination<'a>,
    /// Is told how far the work is.
    pub progress: &'a dyn Progress,
}

/// An image that was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Written {
    /// Its length.
    pub len: ByteLen,
    /// With older images, how many files keep their places, and how much left them.
    pub kept: Option<(Taken, Moved)>,
}

impl Build<'_> {
    /// Writes an image of any format, and returns its length. With older images, the volume has the
    /// shape of the first, if it can, and their files keep their places.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](seekless_images::ErrorKind) for options that contradict the source, and
    /// for older images of another format;
    /// [`ErrorKind::NoSpace`](seekless_images::ErrorKind) for contents that do not fit; errors of
    /// the source, of the older images and of the device.
    pub fn write(
        &self,
        options: &Options,
        older: Option<(&OlderImages, Likeness)>,
    ) -> Result<Written, Error> {
        match (options, older) {
            (Options::Ext(options), None) => self.alone(options),
            (Options::Ext(options), Some((OlderImages::Ext(bases), likeness))) => {
                self.on(bases, options, likeness)
            }
            (Options::Ufs(options), None) => self.alone(options),
            (Options::Ufs(options), Some((OlderImages::Ufs(bases), likeness))) => {
                self.on(bases, options, likeness)
            }
            (Options::Fat(options), None) => self.alone(options),
            (Options::Fat(options), Some((OlderImages::Fat(bases), likeness))) => {
                self.on(bases, options, likeness)
            }
            (_, Some(_)) => Err(Error::usage("the older images have another format")),
        }
    }

    /// Writes an image of one format.
    fn alone<O: VolumeOptions>(&self, options: &O) -> Result<Written, Error> {
        flags::warn_of_lost(self.source, options.kept_flags());
        let touches = |unit| self.touches_of::<O>(unit);
        let volume = options.volume(self.source, &touches).map_err(|error| self.about(error))?;
        O::warn_of_lost(&volume);
        let len = self.volume(&volume, &touches(volume.block_size()))?;
        Ok(Written { len, kept: None })
    }

    /// Writes an image of one format on the base of older ones.
    pub(crate) fn on<O: VolumeOptions>(
        &self,
        bases: &Bases<O::Older>,
        options: &O,
        likeness: Likeness,
    ) -> Result<Written, Error> {
        flags::warn_of_lost(self.source, options.kept_flags());
        let planned = bases.plan(
            (self.source, self.name),
            (options, likeness),
            |volume| self.touches_of::<O>(volume.block_size()),
            self.storage,
        )?;
        O::warn_of_lost(planned.volume());
        let len = planned.write(self.name, self.destination, self.progress)?;
        Ok(Written { len, kept: Some((planned.taken(), planned.moved())) })
    }

    /// Writes an ext image, and returns its length. `below` has the sources of the first layer, of
    /// the first two, and so on, all but the whole, which is the build's own; each layer lies where
    /// it lies in any image that begins with the same layers and was built with the same options.
    /// Blocks of files that an upper layer replaces are `freed`.
    ///
    /// # Errors
    /// As [`Build::write`].
    pub fn ext_in_layers(
        &self,
        below: &[Arc<dyn Source + Send>],
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

    /// Decides on the layout of a volume and writes it: blocks that are touched come first, in the
    /// order of `touches`. Returns the volume's length. The objects of the volume are the nodes of
    /// the source.
    ///
    /// # Errors
    /// As [`Build::write`].
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
        let touches = moving(volume, touches.iter().copied(), self.storage);
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
        self.storage.align(block_size.into())
    }

    /// The touches of the traces, as a format of its options has names.
    fn touches_of<O: VolumeOptions>(&self, unit: u32) -> Vec<Touch> {
        if O::FOLDS_CASE { self.touches_without_case(unit) } else { self.touches(unit) }
    }

    /// The touches of the traces, in order, in blocks of `unit` bytes.
    #[must_use]
    pub fn touches(&self, unit: u32) -> Vec<Touch> {
        let tree = self.source.tree();
        self.traces.iter().flat_map(|events| by_path::touches(events, tree, unit)).collect()
    }

    /// The touches of traces whose names may differ from the source in case.
    fn touches_without_case(&self, unit: u32) -> Vec<Touch> {
        let mut names = Names::new(self.source.tree());
        let mut touches = Vec::new();
        for events in self.traces {
            let mut renamed = Events::default();
            for event in events.iter() {
                let path = names.in_source(event.path);
                renamed.push_ref(EventRef { path: &path, ..event });
            }
            touches.extend(by_path::touches(&renamed, self.source.tree(), unit));
        }
        touches
    }
}
