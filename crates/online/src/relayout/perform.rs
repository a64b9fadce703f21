//! The steps of a plan, carried out on files that others use.
//!
//! A plan is of a moment ago. So each copy is looked at again before it is made:
//! where the file's blocks are now, and whether the donor holds the place. What does
//! not fit any more is left as it is, and counted.

use super::Halt;
use super::survey::{Live, Reason, Survey};
use super::target::Target;
use seekless_fs::plan::ObjectId;
use seekless_fs::plan::in_place::{Copied, Step};
use seekless_host::donor::{Blocks, Donor};
use seekless_host::fiemap::{self, MappedExtent, flag};
use seekless_host::handle::{self, Access};
use seekless_host::residency;
use seekless_images::Error;
use seekless_units::{BlockNo, Extent, Ino};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;

/// How often a file whose pages are in use is tried, each time after a write-back.
const TRIES: u32 = 3;

/// What became of a plan.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Blocks that came to their place in the region.
    pub moved_in: u64,
    /// Blocks that made way.
    pub moved_out: u64,
    /// Blocks that the plan moved and that stayed.
    pub left: u64,
    /// Files of which something stayed, and why.
    pub reasons: BTreeMap<Ino, Reason>,
}

/// Moves files of a volume.
pub(crate) struct Mover<'a, 'h> {
    pub(crate) target: &'a Target,
    pub(crate) survey: &'a Survey,
    pub(crate) donor: Donor,
    pub(crate) region: Extent,
    pub(crate) block_size: u64,
    pub(crate) halt: &'a mut Halt<'h>,
    pub(crate) counts: Counts,
    /// Pages of this step that were not in memory before it.
    brought: Vec<(ObjectId, u64, u64)>,
}

/// A part of a copy whose place is held in one run.
#[derive(Clone, Copy)]
struct Part {
    object: ObjectId,
    lbn: u64,
    /// Where it was when the plan was made.
    from: BlockNo,
    to: Blocks,
}

impl<'a, 'h> Mover<'a, 'h> {
    pub(crate) fn new(
        target: &'a Target,
        survey: &'a Survey,
        donor: Donor,
        region: Extent,
        block_size: u64,
        halt: &'a mut Halt<'h>,
    ) -> Self {
        let (counts, brought) = (Counts::default(), Vec::new());
        Self { target, survey, donor, region, block_size, halt, counts, brought }
    }

    /// Carries out a step as far as can be done.
    ///
    /// # Errors
    /// When the process shall end, or the system does not do what it must. Files are
    /// whole then, too.
    pub(crate) fn apply(&mut self, step: &Step) -> Result<(), Error> {
        // The places of a step were free before it, so its parts can be moved in any
        // order: those that need the same shift together.
        let mut parts: BTreeMap<u64, Vec<Part>> = BTreeMap::new();
        for copy in &step.copies {
            self.split(copy, &mut parts);
        }
        for (shift, parts) in parts {
            self.donor.set_shift(shift)?;
            let mut open: Option<(ObjectId, File)> = None;
            for part in parts {
                (self.halt)()?;
                let known = open.take().filter(|(object, _)| *object == part.object);
                let file = match known {
                    Some((_, file)) => file,
                    None => match self.open(part.object) {
                        Ok(file) => file,
                        Err(reason) => {
                            self.leave(part, part.to.len, reason);
                            continue;
                        }
                    },
                };
                self.give(&file, part)?;
                open = Some((part.object, file));
            }
        }
        self.donor.sync()?;
        self.let_go();
        Ok(self.donor.refresh()?)
    }

    /// The parts of a copy whose places are held, by the shift that they need.
    fn split(&mut self, copy: &Copied, parts: &mut BTreeMap<u64, Vec<Part>>) {
        let (start, end) = (copy.to.start.get(), copy.to.end().get());
        let part = |to: Blocks| Part {
            object: copy.object,
            lbn: copy.lbn.get() + (to.start - start),
            from: copy.from.saturating_add(to.start - start),
            to,
        };
        let mut at = start;
        while at < end {
            let rest = Blocks { start: at, len: end - at };
            let held = self.donor.first_in(rest);
            let from = held.map_or(end, |held| held.start);
            if from > at {
                let missing = Blocks { start: at, len: from - at };
                self.leave(part(missing), missing.len, Reason::Room);
            }
            let Some(to) = held else { break };
            let part = part(to);
            if let Some(shift) = self.donor.shift_for(part.lbn, to.start) {
                parts.entry(shift).or_default().push(part);
            }
            at = to.start + to.len;
        }
    }

    fn is_in_region(&self, part: Part) -> bool {
        self.region.contains(BlockNo::new(part.to.start))
    }

    /// Counts what stays.
    fn leave(&mut self, part: Part, blocks: u64, reason: Reason) {
        self.counts.left += blocks;
        let ino = self.survey.file(part.object).ino;
        // What will be so next time says more.
        let known = self.counts.reasons.entry(ino).or_insert(reason);
        if reason.lasts() {
            *known = reason;
        }
    }

    fn open(&self, object: ObjectId) -> Result<File, Reason> {
        let Live { ino, generation, .. } = *self.survey.file(object);
        handle::open(&self.target.on, ino.get(), generation, Access::ReadWrite).map_err(|error| {
            match error.kind() {
                io::ErrorKind::ExecutableFileBusy => Reason::Running,
                io::ErrorKind::PermissionDenied => Reason::Protected,
                io::ErrorKind::WouldBlock => Reason::Busy,
                // Removed, or another file by now.
                _ => Reason::Changed,
            }
        })
    }

    /// Where a part of a file lies now, cut to it.
    fn places(&self, file: &File, part: Part) -> Result<Vec<(u64, Blocks)>, Error> {
        let bs = self.block_size;
        let found = fiemap::extents_of(file, part.lbn * bs, part.to.len * bs)
            .map_err(|error| self.failed(part, &error))?;
        let (low, high) = (part.lbn, part.lbn + part.to.len);
        let clip = |extent: &MappedExtent| {
            let (first, end) = (extent.logical / bs, (extent.logical + extent.len).div_ceil(bs));
            let (from, to) = (first.max(low), end.min(high));
            let start = extent.physical / bs + from.saturating_sub(first);
            let is_there = from < to && extent.flags & flag::NOWHERE == 0;
            is_there.then(|| (from, Blocks { start, len: to - from }))
        };
        Ok(found.iter().filter_map(clip).collect())
    }

    fn failed(&self, part: Part, error: &io::Error) -> Error {
        let ino = self.survey.file(part.object).ino;
        Error::io(format_args!("inode {ino}, block {} of the file", part.lbn), error)
    }

    /// Gives a file the blocks of a part, as far as it still is as planned.
    fn give(&mut self, file: &File, part: Part) -> Result<(), Error> {
        let is_wanted = self.is_in_region(part);
        let mut reason = Reason::Changed;
        for (lbn, now) in self.places(file, part)? {
            let skip = lbn - part.lbn;
            let place = Blocks { start: part.to.start + skip, len: now.len };
            // What was to make way and has gone by itself is in nobody's way.
            let has_gone = !is_wanted && now.start != part.from.get() + skip;
            if now == place || has_gone {
                continue;
            }
            self.note_pages(part.object, file, lbn, now.len);
            if let Err(why) = self.exchange(file, lbn, place, part)? {
                reason = why;
            }
        }
        // What the kernel says of it now is what counts.
        let mut there = 0;
        for (lbn, now) in self.places(file, part)? {
            if now.start == part.to.start + (lbn - part.lbn) {
                there += now.len;
            }
        }
        if is_wanted {
            self.counts.moved_in += there;
        } else {
            self.counts.moved_out += there;
        }
        if there < part.to.len {
            self.leave(part, part.to.len - there, reason);
        }
        Ok(())
    }

    /// Exchanges blocks, or says why they stay.
    fn exchange(
        &mut self,
        file: &File,
        lbn: u64,
        place: Blocks,
        part: Part,
    ) -> Result<Result<(), Reason>, Error> {
        let mut done = 0;
        for _ in 0..TRIES {
            let rest = Blocks { start: place.start + done, len: place.len - done };
            let exchanged = self.donor.give(file, lbn + done, rest);
            done += exchanged.blocks;
            let Err(error) = exchanged.outcome else { return Ok(Ok(())) };
            let reason = match error.kind() {
                io::ErrorKind::ResourceBusy | io::ErrorKind::Interrupted => {
                    self.donor.sync()?;
                    self.donor.refresh()?;
                    continue;
                }
                io::ErrorKind::ExecutableFileBusy => Reason::Swap,
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Reason::Room,
                io::ErrorKind::PermissionDenied => Reason::Protected,
                io::ErrorKind::Unsupported => Reason::Kind,
                // Cut short, or not what it was: ENODATA is of older kernels.
                io::ErrorKind::InvalidInput => Reason::Changed,
                _ if error.raw_os_error() == Some(ENODATA) => Reason::Changed,
                _ => return Err(self.failed(part, &error)),
            };
            return Ok(Err(reason));
        }
        Ok(Err(Reason::Busy))
    }

    /// Notes which pages the kernel will bring into memory only to move them.
    fn note_pages(&mut self, object: ObjectId, file: &File, lbn: u64, blocks: u64) {
        let page = residency::page_size();
        let start = lbn * self.block_size / page * page;
        let end = ((lbn + blocks) * self.block_size).next_multiple_of(page);
        // Where it is not told, pages stay in memory, as after any copy.
        let Ok(resident) = residency::resident_of(file, start, end - start) else { return };
        let mut at = start;
        for (first, last) in resident {
            let (from, to) = (first * page, last * page);
            if from > at {
                self.brought.push((object, at, from - at));
            }
            at = at.max(to);
        }
        if at < end {
            self.brought.push((object, at, end - at));
        }
    }

    /// Lets go of the pages that were not in memory before the step.
    fn let_go(&mut self) {
        let mut open: Option<(ObjectId, File)> = None;
        for (object, start, len) in std::mem::take(&mut self.brought) {
            if open.as_ref().is_none_or(|(known, _)| *known != object) {
                let Live { ino, generation, .. } = *self.survey.file(object);
                let file = handle::open(&self.target.on, ino.get(), generation, Access::Read);
                open = file.ok().map(|file| (object, file));
            }
            if let Some((_, file)) = &open {
                // Memory that is not given back is no failure.
                let _ = residency::let_go(file, start, len);
            }
        }
    }
}

/// `ENODATA`, for which there is no `ErrorKind`.
const ENODATA: i32 = 61;
