//! The cache: blocks read and changed in memory.

use crate::buffer::{Buffer, Buffers};
use crate::change::{ChangeId, Changed, Kind, Piece, Role};
use crate::config::{Config, Counters};
use crate::graph::{Graph, Record, Undo, Undos, Waiter};
use crate::syncer::Wheel;
use seekless_device::{BlockDevice, Clock};
use seekless_fs::{Corruption, FsError, Location};
use seekless_units::{BlockNo, ByteLen, Extent, Lba};
use smallvec::SmallVec;
use std::sync::Arc;

/// What the format does to a block of metadata that is about to be written:
/// check hashes, which depend on what is undone in the copy.
pub trait Seal: Send {
    /// `bytes` are the whole block whose first fragment is `at`; parts of it
    /// that are not in memory are zero and are not written.
    fn seal(&self, at: BlockNo, bytes: &mut [u8]);
}

/// A bounded cache of the blocks of a device, with the graph of the changes to
/// them. `A` is an action of the format, done when what it waits for is on the
/// disk.
///
/// A block is the largest piece the format allocates (FFS: a block, ext: a
/// block) and lies at a multiple of its size; [`BlockNo`] counts fragments.
pub struct Cache<A> {
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) config: Config,
    pub(crate) shape: Shape,
    pub(crate) buffers: Buffers,
    pub(crate) graph: Graph<A>,
    pub(crate) wheel: Wheel,
    pub(crate) counters: Counters,
    pub(crate) seal: Option<Box<dyn Seal>>,
    /// Why nothing can be changed any more.
    pub(crate) failed: Option<String>,
}

/// Sizes, fixed while the cache lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shape {
    pub(crate) fragment: u32,
    pub(crate) per_block: u32,
}

/// Where a run of bytes lies in a buffer.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) block: u64,
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// The fragments it touches.
    pub(crate) mask: u64,
}

impl Shape {
    pub(crate) fn block_bytes(self) -> usize {
        self.fragment as usize * self.per_block as usize
    }

    pub(crate) fn mask(self, start: usize, end: usize) -> u64 {
        let first = start / self.fragment as usize;
        let last = end.div_ceil(self.fragment as usize);
        bits(last) & !bits(first)
    }

    /// The place of `len` bytes from byte `skip` behind fragment `at`.
    pub(crate) fn place(self, at: BlockNo, skip: usize, len: usize) -> Result<Place, FsError> {
        let block = at.get() / u64::from(self.per_block);
        let within = (at.get() % u64::from(self.per_block)) as usize * self.fragment as usize;
        let start = within.saturating_add(skip);
        let end = start.saturating_add(len);
        if end > self.block_bytes() {
            let kind = Corruption::Range {
                field: "run of fragments",
                value: end as u64,
                limit: self.block_bytes() as u64,
            };
            return Err(FsError::corrupt(kind, Location::of("block").in_block(at)));
        }
        Ok(Place { block, start, end, mask: self.mask(start, end) })
    }

    pub(crate) fn first_fragment(self, block: u64) -> BlockNo {
        BlockNo::new(block * u64::from(self.per_block))
    }

    pub(crate) fn lba(self, at: BlockNo) -> Lba {
        Lba::containing(ByteLen::new(at.get() * u64::from(self.fragment)))
    }
}

/// A mask of the lowest `n` bits.
pub(crate) fn bits(n: usize) -> u64 {
    if n >= 64 { u64::MAX } else { (1 << n) - 1 }
}

/// What is left of changes that were made void.
#[derive(Default)]
struct Void {
    /// What they would have undone, the newest first.
    undo: Vec<Undo>,
    waiters: Vec<Waiter>,
}

impl Void {
    /// Undoing the change that made them void undoes them as well.
    fn lay_over(&self, undo: &mut Undos) {
        for old in &self.undo {
            for new in undo.iter_mut() {
                let start = old.offset.max(new.offset);
                let end = old.end().min(new.end());
                if start < end {
                    let from = (start - old.offset) as usize..(end - old.offset) as usize;
                    let to = (start - new.offset) as usize..(end - new.offset) as usize;
                    new.bytes[to].copy_from_slice(&old.bytes[from]);
                }
            }
        }
    }
}

impl<A> Cache<A> {
    /// An empty cache. `block` is the bytes of a block, `fragment` those of the
    /// unit [`BlockNo`] counts in; a block has at most 64 of them.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for sizes that are not powers of two, or do not fit
    /// each other, or a sector.
    pub fn new(
        device: Arc<dyn BlockDevice>,
        clock: Arc<dyn Clock>,
        block: u32,
        fragment: u32,
        config: Config,
    ) -> Result<Self, FsError> {
        let sound = block.is_power_of_two()
            && fragment.is_power_of_two()
            && fragment >= 512
            && (1..=64).contains(&(block / fragment));
        if !sound {
            return Err(FsError::Invalid(format!(
                "blocks of {block} bytes in fragments of {fragment}"
            )));
        }
        Ok(Self {
            wheel: Wheel::new(clock.now()),
            device,
            clock,
            config,
            shape: Shape { fragment, per_block: block / fragment },
            buffers: Buffers::new(block as usize),
            graph: Graph::new(),
            counters: Counters::default(),
            seal: None,
            failed: None,
        })
    }

    /// Has the format seal blocks of metadata before they are written.
    pub fn set_seal(&mut self, seal: Box<dyn Seal>) {
        self.seal = Some(seal);
    }

    /// How it was told to behave.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What it counted.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Changes and deferred actions in the graph.
    #[must_use]
    pub fn softdeps(&self) -> usize {
        self.graph.len()
    }

    /// Time passed since it was made, or more.
    #[must_use]
    pub fn clock(&self) -> &dyn Clock {
        self.clock.as_ref()
    }

    /// Reads `len` bytes from byte `skip` behind fragment `at`; all of it lies
    /// in one block.
    ///
    /// # Errors
    /// [`FsError::Device`]; [`FsError::Corrupt`] when it does not lie in a block.
    pub fn read(&mut self, at: BlockNo, skip: usize, len: usize) -> Result<&[u8], FsError> {
        let place = self.shape.place(at, skip, len)?;
        let buffer = self.load(place)?;
        Ok(&buffer.bytes[place.start..place.end])
    }

    /// Reads from byte `skip` behind fragment `at`, over as many blocks as
    /// `buf` takes; neighbouring blocks that are not there come in one request.
    ///
    /// # Errors
    /// [`FsError::Device`].
    pub fn read_run(&mut self, at: BlockNo, skip: usize, buf: &mut [u8]) -> Result<(), FsError> {
        let size = self.shape.block_bytes();
        let within = (at.get() % u64::from(self.shape.per_block)) as usize;
        let mut block = at.get() / u64::from(self.shape.per_block);
        let mut start = within * self.shape.fragment as usize + skip;
        block += (start / size) as u64;
        start %= size;
        self.prefetch(block, start, buf.len())?;
        let mut done = 0;
        while done < buf.len() {
            let len = (size - start).min(buf.len() - done);
            let mask = self.shape.mask(start, start + len);
            let buffer = self.load(Place { block, start, end: start + len, mask })?;
            buf[done..done + len].copy_from_slice(&buffer.bytes[start..start + len]);
            done += len;
            block += 1;
            start = 0;
        }
        self.drop_clean();
        Ok(())
    }

    /// Brings whole blocks in that a run needs, as few requests as may be.
    fn prefetch(&mut self, first: u64, start: usize, len: usize) -> Result<(), FsError> {
        let size = self.shape.block_bytes();
        let most = ((self.config.cluster.get() as usize) / size).max(1) as u64;
        let end = first + (start + len).div_ceil(size) as u64;
        let whole_end = first + ((start + len) / size) as u64;
        let mut at = first;
        while at < end {
            let missing = |block: u64| self.buffers.get(block).is_none_or(|b| b.valid == 0);
            let run = (at..whole_end.min(at + most)).take_while(|&block| missing(block)).count();
            if run < 2 {
                at += 1;
                continue;
            }
            let mut bytes = vec![0; run * size];
            self.device.read(self.shape.lba(self.shape.first_fragment(at)), &mut bytes)?;
            self.counters.reads += 1;
            self.counters.read_bytes += bytes.len() as u64;
            for chunk in bytes.chunks_exact(size) {
                let buffer = self.buffers.touch(at);
                buffer.bytes.copy_from_slice(chunk);
                buffer.valid = bits(self.shape.per_block as usize);
                at += 1;
            }
        }
        Ok(())
    }

    /// The buffer of a place, with what it needs read in.
    pub(crate) fn load(&mut self, place: Place) -> Result<&mut Buffer, FsError> {
        let fragment = self.shape.fragment as usize;
        let first = self.shape.first_fragment(place.block);
        let buffer = self.buffers.touch(place.block);
        let mut missing = place.mask & !buffer.valid;
        if missing == 0 {
            self.counters.hits += 1;
            return Ok(buffer);
        }
        while missing != 0 {
            let low = missing.trailing_zeros() as usize;
            let run = (missing >> low).trailing_ones() as usize;
            let at = first.saturating_add(low as u64);
            let bytes = &mut buffer.bytes[low * fragment..(low + run) * fragment];
            self.device.read(self.shape.lba(at), bytes)?;
            self.counters.reads += 1;
            self.counters.read_bytes += bytes.len() as u64;
            let read = bits(low + run) & !bits(low);
            buffer.valid |= read;
            missing &= !read;
        }
        Ok(buffer)
    }

    /// Changes bytes in place. Nothing has to be on the disk before, so there
    /// is nothing to undo: bitmaps, data, and names and pointers that go.
    /// What the function gives is returned with the change; when it fails the
    /// bytes must be as before.
    ///
    /// # Errors
    /// As [`Cache::read`], those of the function, and [`FsError::ReadOnly`].
    pub fn edit<R>(
        &mut self,
        at: BlockNo,
        skip: usize,
        len: usize,
        role: Role,
        edit: impl FnOnce(&mut [u8]) -> Result<R, FsError>,
    ) -> Result<(R, ChangeId), FsError> {
        self.check_writable()?;
        let place = self.shape.place(at, skip, len)?;
        if self.touches_blocked(place) {
            return self.edit_over_blocked(at, skip, len, role, edit);
        }
        let buffer = self.load(place)?;
        let given = edit(&mut buffer.bytes[place.start..place.end])?;
        let id = self.note_free_change(place, role)?;
        Ok((given, id))
    }

    /// As [`Cache::edit`], of whole fragments whose old contents do not
    /// matter: they are not read, and begin as zeros.
    ///
    /// # Errors
    /// As [`Cache::edit`].
    pub fn fill<R>(
        &mut self,
        at: BlockNo,
        len: usize,
        role: Role,
        fill: impl FnOnce(&mut [u8]) -> Result<R, FsError>,
    ) -> Result<(R, ChangeId), FsError> {
        self.check_writable()?;
        let place = self.shape.place(at, 0, len)?;
        let fragment = self.shape.fragment as usize;
        let end = place.end.next_multiple_of(fragment);
        let buffer = self.buffers.touch(place.block);
        buffer.bytes[place.start..end].fill(0);
        let given = fill(&mut buffer.bytes[place.start..place.end])?;
        buffer.valid |= place.mask;
        let id = self.note_free_change(place, role)?;
        Ok((given, id))
    }

    fn touches_blocked(&self, place: Place) -> bool {
        !self.changes_under(place.block, &[place]).is_empty()
    }

    /// An edit of bytes that may have to be undone: it goes with what is there.
    fn edit_over_blocked<R>(
        &mut self,
        at: BlockNo,
        skip: usize,
        len: usize,
        role: Role,
        edit: impl FnOnce(&mut [u8]) -> Result<R, FsError>,
    ) -> Result<(R, ChangeId), FsError> {
        let mut bytes = self.read(at, skip, len)?.to_vec();
        let given = edit(&mut bytes)?;
        let offset = u32::try_from(skip).unwrap_or(u32::MAX);
        let piece = Piece { offset, bytes: &bytes };
        let id = self.change(at, &[piece], role, &[])?;
        Ok((given, id))
    }

    /// Notes a change that needs no undo, made already.
    fn note_free_change(&mut self, place: Place, role: Role) -> Result<ChangeId, FsError> {
        let Place { block, mask, .. } = place;
        self.mark_dirty(block, mask, role);
        if self.config.discipline.writes_at_once(role) {
            self.write_at_once(block)?;
            return Ok(ChangeId::COMMITTED);
        }
        // Nobody waits for these.
        let waited_for = !matches!(role, Role::Attributes | Role::Summary);
        if !self.config.discipline.keeps_graph() || !waited_for {
            return Ok(ChangeId::COMMITTED);
        }
        Ok(self.open_record(block, mask, role))
    }

    /// The record of undo-free changes to these fragments.
    fn open_record(&mut self, block: u64, mask: u64, role: Role) -> ChangeId {
        let open = self.buffers.get(block).map(|buffer| buffer.open.as_slice());
        for &id in open.unwrap_or_default() {
            if let Some(record) = self.graph.get_mut(id).filter(|record| record.mask & mask != 0) {
                record.mask |= mask;
                return id;
            }
        }
        let record = Record {
            block,
            role,
            mask,
            undo: Undos::new(),
            waiting: 0,
            after: SmallVec::new(),
            on: SmallVec::new(),
            waiters: SmallVec::new(),
            took_in: false,
        };
        let id = self.graph.insert(record, &mut self.counters);
        if let Some(buffer) = self.buffers.get_mut(block) {
            buffer.open.push(id);
        }
        id
    }

    pub(crate) fn mark_dirty(&mut self, block: u64, mask: u64, role: Role) {
        if let Some(buffer) = self.buffers.get_mut(block) {
            buffer.dirty |= mask;
            buffer.metadata |= role != Role::Data;
        }
        self.schedule(block, role);
    }

    /// Changes bytes that must not be on the disk before all of `after` is.
    /// Pieces lie in one block, counted from fragment `at`, and are undone
    /// together.
    ///
    /// # Errors
    /// As [`Cache::edit`].
    pub fn change(
        &mut self,
        at: BlockNo,
        pieces: &[Piece<'_>],
        role: Role,
        after: &[ChangeId],
    ) -> Result<ChangeId, FsError> {
        self.change_or_replace(at, pieces, role, after, false).map(|changed| changed.id)
    }

    /// As [`Cache::change`], but takes the place of the one earlier change to
    /// the same pieces if that has not been written: what the earlier one
    /// waited for is then waited for no longer, and what it said will never
    /// be on the disk. A pointer to fragments that have moved, say.
    ///
    /// Nothing in `after` may itself wait for the earlier change.
    ///
    /// # Errors
    /// As [`Cache::edit`].
    pub fn replace(
        &mut self,
        at: BlockNo,
        pieces: &[Piece<'_>],
        role: Role,
        after: &[ChangeId],
    ) -> Result<Changed, FsError> {
        self.change_or_replace(at, pieces, role, after, true)
    }

    fn change_or_replace(
        &mut self,
        at: BlockNo,
        pieces: &[Piece<'_>],
        role: Role,
        after: &[ChangeId],
        replace: bool,
    ) -> Result<Changed, FsError> {
        self.check_writable()?;
        let places = self.load_pieces(at, pieces)?;
        let Some(block) = places.first().map(|place| place.block) else {
            return Ok(Changed { id: ChangeId::COMMITTED, replaced: false });
        };
        let mask = places.iter().fold(0, |mask, place| mask | place.mask);
        if !self.config.discipline.keeps_graph() {
            self.put(block, &places, pieces);
            self.mark_dirty(block, mask, role);
            if self.config.discipline.writes_at_once(role) {
                self.write_at_once(block)?;
            }
            return Ok(Changed { id: ChangeId::COMMITTED, replaced: false });
        }
        let after: SmallVec<[ChangeId; 3]> =
            after.iter().copied().filter(|&id| self.graph.get(id).is_some()).collect();
        let mut under = self.changes_under(block, &places);
        let voided = if after.is_empty() && role.makes_void() {
            self.void(block, &mut under, &places)
        } else {
            Void::default()
        };
        if let Some(&id) = under.first()
            && voided.undo.is_empty()
            && let Some(changed) = self.take_in(id, &under, &places, &after, replace)
        {
            self.put(block, &places, pieces);
            return Ok(changed);
        }
        if after.is_empty() && under.is_empty() {
            self.put(block, &places, pieces);
            self.mark_dirty(block, mask, role);
            let id = self.open_record(block, mask, role);
            self.graph.wait_instead(id, &voided.waiters);
            return Ok(Changed { id, replaced: false });
        }
        let mut undo = self.keep(block, &places);
        voided.lay_over(&mut undo);
        self.put(block, &places, pieces);
        let on = self.uppermost(&under);
        let waiters = SmallVec::new();
        let took_in = false;
        let record = Record { block, role, mask, undo, waiting: 0, after, on, waiters, took_in };
        let id = self.graph.insert(record, &mut self.counters);
        self.graph.wait_instead(id, &voided.waiters);
        let waits = self.graph.get(id).is_some_and(|record| record.waiting > 0);
        if let Some(buffer) = self.buffers.get_mut(block) {
            if waits {
                buffer.blocked.push(id)
            } else {
                buffer.open.push(id)
            }
            buffer.dirty |= if waits { 0 } else { mask };
            buffer.metadata |= role != Role::Data;
        }
        self.schedule(block, role);
        Ok(Changed { id, replaced: false })
    }

    fn load_pieces(
        &mut self,
        at: BlockNo,
        pieces: &[Piece<'_>],
    ) -> Result<SmallVec<[Place; 4]>, FsError> {
        let mut places = SmallVec::new();
        for piece in pieces {
            let place = self.shape.place(at, piece.offset as usize, piece.bytes.len())?;
            self.load(place)?;
            places.push(place);
        }
        Ok(places)
    }

    fn put(&mut self, block: u64, places: &[Place], pieces: &[Piece<'_>]) {
        let Some(buffer) = self.buffers.get_mut(block) else { return };
        for (place, piece) in places.iter().zip(pieces) {
            buffer.bytes[place.start..place.end].copy_from_slice(piece.bytes);
        }
    }

    /// The bytes at some places as they are.
    fn keep(&self, block: u64, places: &[Place]) -> Undos {
        let Some(buffer) = self.buffers.get(block) else { return Undos::new() };
        let undo = |place: &Place| Undo {
            offset: u32::try_from(place.start).unwrap_or(u32::MAX),
            bytes: SmallVec::from_slice(&buffer.bytes[place.start..place.end]),
        };
        places.iter().map(undo).collect()
    }

    /// The waiting changes to any of these bytes, newest first.
    fn changes_under(&self, block: u64, places: &[Place]) -> SmallVec<[ChangeId; 4]> {
        let Some(buffer) = self.buffers.get(block) else { return SmallVec::new() };
        let overlaps = |undo: &Undo| {
            places.iter().any(|p| (undo.offset as usize) < p.end && undo.end() as usize > p.start)
        };
        let touches = |id: &ChangeId| {
            self.graph.get(*id).is_some_and(|record| record.undo.iter().any(overlaps))
        };
        buffer.blocked.iter().rev().copied().filter(touches).collect()
    }

    /// Of changes to the same bytes, newest first, those that do not lie under
    /// another of them.
    fn uppermost(&self, under: &[ChangeId]) -> SmallVec<[ChangeId; 2]> {
        let mut covered = SmallVec::<[ChangeId; 8]>::new();
        let mut top = SmallVec::new();
        for &id in under {
            if !covered.contains(&id) {
                top.push(id);
            }
            if let Some(record) = self.graph.get(id) {
                covered.extend(record.on.iter().copied());
            }
        }
        top
    }

    /// Takes out the waiting changes that a change to `places` makes void,
    /// because it covers all they touch: what they wait for need not be on the
    /// disk any more. The newest come first, and none goes that another stands
    /// on which stays.
    fn void(&mut self, block: u64, under: &mut SmallVec<[ChangeId; 4]>, places: &[Place]) -> Void {
        let mut voided = Void::default();
        let covered = |undo: &Undo| {
            let within = |place: &Place| {
                place.start <= undo.offset as usize && undo.end() as usize <= place.end
            };
            places.iter().any(within)
        };
        let mut stay = SmallVec::new();
        for &id in under.iter() {
            let Some(record) = self.graph.get(id) else { continue };
            if !record.undo.iter().all(covered) || self.graph.has_change_on(record) {
                stay.push(id);
                continue;
            }
            let Some(record) = self.graph.take_void(id, &mut self.counters) else { continue };
            voided.undo.extend(record.undo);
            voided.waiters.extend(record.waiters);
            if let Some(buffer) = self.buffers.get_mut(block) {
                buffer.blocked.retain(|&other| other != id);
            }
        }
        *under = stay;
        voided
    }

    /// Lets the newest waiting change `id` take in a change to some of its own
    /// bytes, when that asks for nothing new; or when it shall be replaced.
    /// Nothing newer touches these bytes, so nothing newer undoes to them.
    fn take_in(
        &mut self,
        id: ChangeId,
        under: &[ChangeId],
        places: &[Place],
        after: &[ChangeId],
        replace: bool,
    ) -> Option<Changed> {
        let record = self.graph.get_mut(id)?;
        let within = |place: &Place| {
            let covers = |undo: &Undo| {
                undo.offset as usize <= place.start && undo.end() as usize >= place.end
            };
            record.undo.iter().any(covers)
        };
        if !places.iter().all(within) {
            return None;
        }
        if after.iter().all(|wanted| record.after.contains(wanted)) {
            record.took_in = true;
            return Some(Changed { id, replaced: false });
        }
        let same = record.undo.len() == places.len()
            && record.undo.iter().zip(places).all(|(undo, place)| {
                undo.offset as usize == place.start && undo.end() as usize == place.end
            });
        // What lies under it with other pieces would still be waited for.
        if !replace || !same || under.len() != 1 {
            return None;
        }
        let mut freed = Vec::new();
        self.graph.rewire(id, after, &mut freed);
        self.unblock(&freed);
        Some(Changed { id, replaced: true })
    }

    /// Does an action once all of `after` is on the disk; at once, if it is.
    pub fn defer(&mut self, after: &[ChangeId], kind: Kind, action: A) {
        self.graph.defer(after, kind, action, &mut self.counters);
    }

    /// An action that need wait no longer. The format does them between its
    /// operations, until there are none.
    pub fn next_ready(&mut self) -> Option<A> {
        self.graph.next_ready()
    }

    /// Whether a change is on the disk.
    #[must_use]
    pub fn is_committed(&self, id: ChangeId) -> bool {
        self.graph.get(id).is_none()
    }

    /// The changes to a run of fragments that wait for something.
    #[must_use]
    pub fn waiting_in(&self, run: Extent) -> Vec<ChangeId> {
        let mut found = Vec::new();
        for (block, mask) in self.blocks_of(run) {
            let Some(buffer) = self.buffers.get(block) else { continue };
            let touches = |id: &&ChangeId| self.graph.get(**id).is_some_and(|r| r.mask & mask != 0);
            found.extend(buffer.blocked.iter().filter(touches));
        }
        found
    }

    /// The changes to a run of fragments that are not on the disk, whether they
    /// wait for something or not.
    #[must_use]
    pub fn changes_in(&self, run: Extent) -> Vec<ChangeId> {
        let mut found = self.waiting_in(run);
        for (block, mask) in self.blocks_of(run) {
            let Some(buffer) = self.buffers.get(block) else { continue };
            let touches = |id: &&ChangeId| self.graph.get(**id).is_some_and(|r| r.mask & mask != 0);
            found.extend(buffer.open.iter().filter(touches));
        }
        found
    }

    /// Undoes a change that has not been written, if no other change builds
    /// upon it or has been taken in by it; actions that wait for it need wait no longer. False when it is
    /// too late for that, or another change waits for it (the removal of the
    /// old name of a file that was given a new one, say).
    pub fn revert(&mut self, id: ChangeId) -> bool {
        self.can_revert(id) && self.discard(id)
    }

    /// Whether [`Cache::revert`] would undo a change now.
    #[must_use]
    pub fn can_revert(&self, id: ChangeId) -> bool {
        self.graph.get(id).is_some_and(|record| {
            !record.took_in && record.waiting > 0 && !self.graph.is_built_upon(record)
        })
    }

    /// As [`Cache::revert`], and later changes to these bytes go with it: they
    /// are those of something that is no more, a new inode say.
    pub fn discard(&mut self, id: ChangeId) -> bool {
        let Some(record) = self.graph.get(id) else { return false };
        if record.waiting == 0 || self.graph.is_built_upon(record) {
            return false;
        }
        let block = record.block;
        let Some(buffer) = self.buffers.get_mut(block) else { return false };
        for undo in record.undo.iter().rev() {
            let start = undo.offset as usize;
            buffer.bytes[start..start + undo.bytes.len()].copy_from_slice(&undo.bytes);
        }
        buffer.blocked.retain(|&other| other != id);
        self.release(id);
        true
    }

    /// A record is as good as on the disk.
    fn release(&mut self, id: ChangeId) {
        let mut freed = Vec::new();
        self.graph.commit(id, &mut freed, &mut self.counters);
        self.unblock(&freed);
    }

    /// The contents of a run of fragments do not matter any more: nothing of
    /// them is written, but for what other changes wait for still. Actions
    /// that wait for changes in it wait for `until` instead, the change that
    /// takes the run out of its file.
    pub fn forget(&mut self, run: Extent, until: ChangeId) {
        for (block, mask) in self.blocks_of(run) {
            let Some(buffer) = self.buffers.get(block) else { continue };
            let ids: Vec<ChangeId> = buffer.open.iter().chain(&buffer.blocked).copied().collect();
            let waited_for = |id: &&ChangeId| {
                self.graph.get(**id).is_some_and(|record| self.graph.is_waited_for(record))
            };
            let kept = ids.iter().filter(waited_for).filter_map(|&id| self.graph.get(id));
            let mask = mask & !kept.fold(0, |mask, record| mask | record.mask);
            self.forget_in(block, mask, &ids, until);
        }
    }

    /// Forgets some fragments of a block, and the changes that lie in them.
    fn forget_in(&mut self, block: u64, mask: u64, ids: &[ChangeId], until: ChangeId) {
        let mut gone = Vec::new();
        for &id in ids {
            let Some(record) = self.graph.get_mut(id) else { continue };
            // What remains of it is elsewhere in the block.
            record.mask &= !mask;
            if record.mask == 0 {
                gone.push(id);
            }
        }
        let Some(buffer) = self.buffers.get_mut(block) else { return };
        buffer.dirty &= !mask;
        buffer.valid &= !mask;
        buffer.open.retain(|id| !gone.contains(id));
        buffer.blocked.retain(|id| !gone.contains(id));
        if buffer.valid == 0 && !buffer.holds_changes() {
            self.buffers.remove(block);
        }
        let mut freed = Vec::new();
        for id in gone {
            self.graph.dissolve(id, until, &mut freed, &mut self.counters);
        }
        self.unblock(&freed);
    }

    /// The blocks of a run, each with the mask of its fragments in it.
    pub(crate) fn blocks_of(&self, run: Extent) -> impl Iterator<Item = (u64, u64)> + use<A> {
        let per_block = u64::from(self.shape.per_block);
        let (start, end) = (run.start.get(), run.end().get());
        (start / per_block..end.div_ceil(per_block)).map(move |block| {
            let base = block * per_block;
            let first = start.saturating_sub(base).min(per_block) as usize;
            let last = end.saturating_sub(base).min(per_block) as usize;
            (block, bits(last) & !bits(first))
        })
    }

    /// Changes may now be written: their blocks are dirty with them.
    pub(crate) fn unblock(&mut self, freed: &[ChangeId]) {
        for &id in freed {
            let Some(record) = self.graph.get(id) else { continue };
            let (block, mask, role) = (record.block, record.mask, record.role);
            if let Some(buffer) = self.buffers.get_mut(block) {
                buffer.blocked.retain(|&other| other != id);
                buffer.open.push(id);
                buffer.dirty |= mask;
            }
            self.schedule(block, role);
        }
    }

    pub(crate) fn check_writable(&self) -> Result<(), FsError> {
        match &self.failed {
            Some(why) => Err(FsError::ReadOnly(why.clone())),
            None => Ok(()),
        }
    }
}
