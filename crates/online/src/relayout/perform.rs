//! Executes the steps of a plan on files in use.
//!
//! A plan may be outdated. So each copy is checked before it is made: the present location of the
//! file's blocks, and whether the donor has the target. Copies that no longer match are skipped and
//! counted.

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

/// Number of tries for a file whose pages are in use, each after a write-back.
const TRIES: u32 = 3;

/// Numbers of blocks that a plan moved and left.
#[derive(Clone, Debug, Default)]
pub struct MoveCounts {
    /// Blocks moved into the region.
    pub moved_in: u64,
    /// Blocks that made way.
    pub moved_out: u64,
    /// Blocks that the plan moved but that stayed.
    pub left: u64,
    /// Files with blocks that stayed, and the reason.
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
    pub(crate) counts: MoveCounts,
    /// Pages that this step brings into memory.
    brought: Vec<(ObjectId, u64, u64)>,
}

/// A part of a copy whose target is one run of the donor.
#[derive(Clone, Copy)]
struct Part {
    object: ObjectId,
    lbn: u64,
    /// Its location when the plan was made.
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
        let (counts, brought) = (MoveCounts::default(), Vec::new());
        Self { target, survey, donor, region, block_size, halt, counts, brought }
    }

    /// Executes a step as far as possible.
    ///
    /// # Errors
    /// When the process must end, or a system call fails. Files are whole then, too.
    pub(crate) fn apply(&mut self, step: &Step) -> Result<(), Error> {
        // The targets of a step were free before it, so its parts can be moved in any order: those
        // with the same shift together.
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
        self.evict_brought();
        Ok(self.donor.refresh()?)
    }

    /// Splits a copy into parts whose targets the donor has, by the shift that they need.
    fn split(&mut self, copy: &Copied, parts: &mut BTreeMap<u64, Vec<Part>>) {
        let (start, end) = (copy.to.start.get(), copy.to.end().get());
        let part = |to: Blocks| Part {
            object: copy.object,
            lbn: copy.lbn.get() + (to.start - start),
            from: copy.from + (to.start - start),
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

    /// Counts blocks that stay.
    fn leave(&mut self, part: Part, blocks: u64, reason: Reason) {
        self.counts.left += blocks;
        let ino = self.survey.file(part.object).ino;
        // Lasting reasons take precedence.
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
                // Removed, or replaced by another file.
                _ => Reason::Changed,
            }
        })
    }

    /// The present locations of a part of a file.
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

    /// Gives a file the blocks of a part, as far as the plan still matches.
    fn give(&mut self, file: &File, part: Part) -> Result<(), Error> {
        let is_wanted = self.is_in_region(part);
        let mut reason = Reason::Changed;
        for (lbn, now) in self.places(file, part)? {
            let skip = lbn - part.lbn;
            let place = Blocks { start: part.to.start + skip, len: now.len };
            // Blocks that were to make way and have moved by themselves need not be moved.
            let has_gone = !is_wanted && now.start != part.from.get() + skip;
            if now == place || has_gone {
                continue;
            }
            self.note_pages(part.object, file, lbn, now.len);
            if let Err(why) = self.exchange(file, lbn, place, part)? {
                reason = why;
            }
        }
        // Counts by the locations that the kernel reports now.
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

    /// Exchanges blocks, or returns the reason why they stay.
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
                // Truncated or changed meanwhile: older kernels return ENODATA.
                io::ErrorKind::InvalidInput => Reason::Changed,
                _ if error.raw_os_error() == Some(ENODATA) => Reason::Changed,
                _ => return Err(self.failed(part, &error)),
            };
            return Ok(Err(reason));
        }
        Ok(Err(Reason::Busy))
    }

    /// Records the pages that the kernel will bring into memory only to move them.
    fn note_pages(&mut self, object: ObjectId, file: &File, lbn: u64, blocks: u64) {
        let page = residency::page_size();
        let start = lbn * self.block_size / page * page;
        let end = ((lbn + blocks) * self.block_size).next_multiple_of(page);
        // If residency is not reported, pages stay in memory, as after any copy.
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

    /// Drops the pages that were not in memory before the step.
    fn evict_brought(&mut self) {
        let mut open: Option<(ObjectId, File)> = None;
        for (object, start, len) in std::mem::take(&mut self.brought) {
            if open.as_ref().is_none_or(|(known, _)| *known != object) {
                let Live { ino, generation, .. } = *self.survey.file(object);
                let file = handle::open(&self.target.on, ino.get(), generation, Access::Read);
                open = file.ok().map(|file| (object, file));
            }
            if let Some((_, file)) = &open {
                // A failure to drop pages is ignored.
                let _ = residency::evict(file, start, len);
            }
        }
    }
}

/// `ENODATA`, for which there is no `ErrorKind`.
const ENODATA: i32 = 61;
