//! Changing blocks in memory: where they are, or by way of the order.

use super::Changes;
use crate::change::{ChangeId, Changed, Piece, Role};
use crate::order::change::Change;
use crate::shape::Place;
use seekless_fs::FsError;
use seekless_units::BlockNo;
use smallvec::SmallVec;

impl<A> Changes<'_, A> {
    /// Changes bytes in place. No change has to be on the disk before, so there is nothing to roll
    /// back: bitmaps, data, and names and pointers that go. The function's result is returned with
    /// the change; when it fails the bytes must be as before.
    ///
    /// # Errors
    /// As [`BlockCache::read`](crate::BlockCache::read), those of the function, and
    /// [`FsError::ReadOnly`].
    pub fn edit<R>(
        &mut self,
        at: BlockNo,
        skip: usize,
        len: usize,
        role: Role,
        edit: impl FnOnce(&mut [u8]) -> Result<R, FsError>,
    ) -> Result<(R, ChangeId), FsError> {
        self.blocks.check_writable()?;
        let place = self.blocks.memory.shape.place(at, skip, len)?;
        if !self.blocks.order.may_edit(&self.blocks.memory, place) {
            return self.edit_over_blocked(at, skip, len, role, edit);
        }
        let buffer = self.blocks.load(place)?;
        let given = edit(&mut buffer.bytes[place.start..place.end])?;
        debug_assert!(self.blocks.can_be_sealed(place.block, role), "{at} has no owner: {role:?}");
        let id = self.note_free_change(place, role)?;
        Ok((given, id))
    }

    /// As [`Changes::edit`], of whole fragments whose old contents do not matter: they are not
    /// read, and begin as zeros. No change to them may still wait: its undo would overwrite the new
    /// contents ([`Changes::forget`]).
    ///
    /// # Errors
    /// As [`Changes::edit`].
    pub fn fill<R>(
        &mut self,
        at: BlockNo,
        len: usize,
        role: Role,
        fill: impl FnOnce(&mut [u8]) -> Result<R, FsError>,
    ) -> Result<(R, ChangeId), FsError> {
        self.blocks.check_writable()?;
        let place = self.blocks.memory.shape.place(at, 0, len)?;
        let fragment = self.blocks.memory.shape.fragment as usize;
        let end = place.end.next_multiple_of(fragment);
        debug_assert!(
            self.blocks.order.may_edit(&self.blocks.memory, Place { end, ..place }),
            "what waits is forgotten first"
        );
        let buffer = self.blocks.memory.buffers.touch(place.block);
        buffer.bytes[place.start..end].fill(0);
        buffer.owner = None;
        let given = fill(&mut buffer.bytes[place.start..place.end])?;
        buffer.valid |= place.mask;
        self.blocks.memory.buffers.note_piece(place.block, place.mask);
        let id = self.note_free_change(place, role)?;
        Ok((given, id))
    }

    /// An edit of bytes under a blocked change: made as a change that can be rolled back.
    fn edit_over_blocked<R>(
        &mut self,
        at: BlockNo,
        skip: usize,
        len: usize,
        role: Role,
        edit: impl FnOnce(&mut [u8]) -> Result<R, FsError>,
    ) -> Result<(R, ChangeId), FsError> {
        let mut bytes = self.blocks.read(at, skip, len)?.to_vec();
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
        self.blocks.memory.mark_dirty(block, mask, role);
        if self.blocks.config.writes_at_once(role) {
            self.blocks.write_at_once(block, mask)?;
            return Ok(ChangeId::COMMITTED);
        }
        Ok(self.blocks.order.edited(&mut self.blocks.memory, block, mask, role))
    }

    /// Changes bytes that must not be on the disk before all of `after` is.
    /// Pieces lie in one block, counted from fragment `at`, and are undone
    /// together.
    ///
    /// # Errors
    /// As [`Changes::edit`].
    pub fn change(
        &mut self,
        at: BlockNo,
        pieces: &[Piece<'_>],
        role: Role,
        after: &[ChangeId],
    ) -> Result<ChangeId, FsError> {
        self.change_or_replace(at, pieces, role, after, None).map(|changed| changed.id)
    }

    /// As [`Changes::change`], but replaces the one earlier change to these pieces if that has not
    /// been written: its bytes will never be on the disk. A pointer to fragments that have moved,
    /// say. It keeps the dependencies of the earlier change, but not `dropped`, the contents of the
    /// old place.
    ///
    /// Nothing in `after` may itself wait for the earlier change.
    ///
    /// # Errors
    /// As [`Changes::edit`].
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
        self.blocks.check_writable()?;
        let places = self.load_pieces(at, pieces)?;
        let Some(block) = places.first().map(|place| place.block) else {
            return Ok(Changed { id: ChangeId::COMMITTED, replaced: false });
        };
        debug_assert!(self.blocks.can_be_sealed(block, role), "{at} has no owner: {role:?}");
        let change = Change { block, places: &places, pieces, role, after, replace };
        let changed = self.blocks.order.changed(&mut self.blocks.memory, &change);
        if self.blocks.config.writes_at_once(role) {
            self.blocks.write_at_once(block, change.mask())?;
        }
        Ok(changed)
    }

    fn load_pieces(
        &mut self,
        at: BlockNo,
        pieces: &[Piece<'_>],
    ) -> Result<SmallVec<[Place; 4]>, FsError> {
        let mut places = SmallVec::new();
        for piece in pieces {
            let place =
                self.blocks.memory.shape.place(at, piece.offset as usize, piece.bytes.len())?;
            self.blocks.load(place)?;
            places.push(place);
        }
        Ok(places)
    }
}
