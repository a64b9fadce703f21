//! Changing blocks in memory: with something to undo or without, and what
//! becomes of earlier changes to the same bytes.

use crate::buffer::Blocked;
use crate::cache::{Cache, Place};
use crate::change::{ChangeId, Changed, Piece, Role};
use crate::graph::{Record, Undo, Undos, Waiter};
use seekless_fs::FsError;
use seekless_units::BlockNo;
use smallvec::SmallVec;

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

/// Between which bytes of their block some places lie.
fn hull(places: &[Place]) -> (u32, u32) {
    let start = places.iter().map(|place| place.start).min().unwrap_or(0);
    let end = places.iter().map(|place| place.end).max().unwrap_or(0);
    // A block's bytes are counted in 32 bits.
    (start as u32, end as u32)
}

/// Whether each of some places lies in one piece that a change undoes.
fn covers_all(undos: &[Undo], places: &[Place]) -> bool {
    places.iter().all(|place| {
        let covers =
            |undo: &Undo| undo.offset as usize <= place.start && undo.end() as usize >= place.end;
        undos.iter().any(covers)
    })
}

impl<A> Cache<A> {
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
    /// matter: they are not read, and begin as zeros. No change to them may
    /// still wait: it would be undone over what comes in ([`Cache::forget`]).
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
        debug_assert!(
            !self.touches_blocked(Place { end, ..place }),
            "what waits is forgotten first"
        );
        let buffer = self.buffers.touch(place.block);
        buffer.bytes[place.start..end].fill(0);
        let given = fill(&mut buffer.bytes[place.start..place.end])?;
        buffer.valid |= place.mask;
        self.buffers.note_piece(place.block, place.mask);
        let id = self.note_free_change(place, role)?;
        Ok((given, id))
    }

    fn touches_blocked(&self, place: Place) -> bool {
        self.under(place.block, &[place]).next().is_some()
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
        // It was found to lie in a block, whose bytes are counted in 32 bits.
        debug_assert!(u32::try_from(skip).is_ok());
        let offset = skip as u32;
        let piece = Piece { offset, bytes: &bytes };
        let id = self.change(at, &[piece], role, &[])?;
        Ok((given, id))
    }

    /// Notes a change that needs no undo, made already.
    fn note_free_change(&mut self, place: Place, role: Role) -> Result<ChangeId, FsError> {
        let Place { block, mask, .. } = place;
        self.mark_dirty(block, mask, role);
        if self.config.writes_at_once(role) {
            self.write_at_once(block, mask)?;
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
        debug_assert!(open.is_some(), "what was changed is in memory");
        // One record does for all changes to a fragment: they go with the next
        // write of it, and whoever waits for one waits for that write.
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
        debug_assert!(self.buffers.get(block).is_some_and(|b| mask & !b.valid == 0), "not known");
        if let Some(buffer) = self.buffers.get_mut(block) {
            buffer.dirty |= mask;
            buffer.metadata |= !role.is_contents();
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
        self.change_or_replace(at, pieces, role, after, None).map(|changed| changed.id)
    }

    /// As [`Cache::change`], but takes the place of the one earlier change to
    /// these pieces if that has not been written: what it said of them will
    /// never be on the disk. A pointer to fragments that have moved, say. It goes
    /// on waiting for what the earlier change waited for, but not for `dropped`,
    /// the contents of the old place.
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
        dropped: &[ChangeId],
    ) -> Result<Changed, FsError> {
        self.change_or_replace(at, pieces, role, after, Some(dropped))
    }

    fn change_or_replace(
        &mut self,
        at: BlockNo,
        pieces: &[Piece<'_>],
        role: Role,
        after: &[ChangeId],
        replace: Option<&[ChangeId]>,
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
            if self.config.writes_at_once(role) {
                self.write_at_once(block, mask)?;
            }
            return Ok(Changed { id: ChangeId::COMMITTED, replaced: false });
        }
        let after: SmallVec<[ChangeId; 3]> =
            after.iter().copied().filter(|&id| self.graph.get(id).is_some()).collect();
        let makes_void = after.is_empty() && role.makes_void();
        let mut under = if makes_void || replace.is_some() {
            self.under(block, &places).collect()
        } else {
            self.nearest_under(block, &places)
        };
        let voided =
            if makes_void { self.void(block, &mut under, &places) } else { Void::default() };
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
                let (start, end) = hull(&places);
                buffer.blocked.push(Blocked { id, start, end });
            } else {
                buffer.open.push(id)
            }
            buffer.dirty |= if waits { 0 } else { mask };
            buffer.metadata |= !role.is_contents();
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
        let Some(buffer) = self.buffers.get_mut(block) else {
            debug_assert!(false, "its pieces were loaded");
            return;
        };
        for (place, piece) in places.iter().zip(pieces) {
            buffer.bytes[place.start..place.end].copy_from_slice(piece.bytes);
        }
    }

    /// The bytes at some places as they are.
    fn keep(&self, block: u64, places: &[Place]) -> Undos {
        let Some(buffer) = self.buffers.get(block) else {
            debug_assert!(false, "its pieces were loaded");
            return Undos::new();
        };
        // A block's bytes are counted in 32 bits.
        let undo = |place: &Place| Undo {
            offset: place.start as u32,
            bytes: SmallVec::from_slice(&buffer.bytes[place.start..place.end]),
        };
        places.iter().map(undo).collect()
    }

    /// The waiting changes to any of these bytes, newest first.
    fn under<'a>(&'a self, block: u64, places: &'a [Place]) -> impl Iterator<Item = ChangeId> + 'a {
        let blocked = self.buffers.get(block).map_or(&[][..], |buffer| &buffer.blocked);
        let (start, end) = hull(places);
        let near = move |blocked: &&Blocked| blocked.start < end && blocked.end > start;
        let overlaps = move |undo: &Undo| {
            places.iter().any(|p| (undo.offset as usize) < p.end && undo.end() as usize > p.start)
        };
        let touches = move |id: &ChangeId| {
            self.graph.get(*id).is_some_and(|record| record.undo.iter().any(overlaps))
        };
        blocked.iter().rev().filter(near).map(|blocked| blocked.id).filter(touches)
    }

    /// The newest of [`Cache::under`], up to one that touches all of these bytes.
    /// The others need not be known: each lies under that one, at once or by way
    /// of others, since it was there when that was made. Where one name goes and
    /// comes many times there may be thousands of them.
    fn nearest_under(&self, block: u64, places: &[Place]) -> SmallVec<[ChangeId; 4]> {
        let mut found = SmallVec::new();
        for id in self.under(block, places) {
            found.push(id);
            if self.graph.get(id).is_some_and(|record| covers_all(&record.undo, places)) {
                break;
            }
        }
        found
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
            let Some(record) = self.graph.take_back(id, &mut self.counters) else { continue };
            voided.undo.extend(record.undo);
            voided.waiters.extend(record.waiters);
            if let Some(buffer) = self.buffers.get_mut(block) {
                buffer.unblock(id);
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
        replace: Option<&[ChangeId]>,
    ) -> Option<Changed> {
        let record = self.graph.get_mut(id)?;
        if !covers_all(&record.undo, places) {
            return None;
        }
        if after.iter().all(|wanted| record.after.contains(wanted)) {
            record.took_in = true;
            return Some(Changed { id, replaced: false });
        }
        // What lies under it with other pieces would still be waited for.
        let dropped = replace.filter(|_| under.len() == 1)?;
        let mut wanted: SmallVec<[ChangeId; 3]> = SmallVec::from_slice(after);
        let kept = record.after.iter().filter(|id| !dropped.contains(id) && !after.contains(id));
        wanted.extend(kept.copied());
        let mut freed = Vec::new();
        self.graph.rewire(id, &wanted, &mut freed, &mut self.counters);
        self.unblock(&freed);
        Some(Changed { id, replaced: true })
    }
}
