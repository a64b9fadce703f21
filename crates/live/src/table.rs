//! Inodes that lie in tables: read, changed a field at a time, and written again.

use crate::core::Core;
use crate::node::{Node, gone};
use seekless_cache::{ChangeId, Changed, Piece, Role};
use seekless_fs::FsError;
use seekless_fs::field::{byte, index, wide};
use seekless_units::{BlockNo, Extent, Ino};
use smallvec::SmallVec;
use std::ops::Range;

/// The bytes of an inode.
pub type Raw = SmallVec<[u8; 256]>;

/// Fields of an inode, as ranges of its bytes.
pub type Fields = SmallVec<[Range<usize>; 24]>;

/// The part of an inode that a change is about, with the bytes that may differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// The number of links.
    Links,
    /// Size, sectors, and the fields that map its blocks; the size is the first.
    Map,
    /// As `Map`, and the size in any case: a number that leads to indirect blocks
    /// is not there without the length that reaches them.
    Reach,
    /// All else.
    Attributes,
}

/// Inodes that lie in tables, all of one length and none across two blocks. As with
/// [`Format`](crate::Format), inodes given by number are in memory.
pub trait Table {
    /// A format's own data of a file.
    type Map;

    /// Where an inode lies: its block, and the byte in it.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] for a number that no inode has.
    fn inode_place(&self, ino: Ino) -> Result<(BlockNo, usize), FsError>;

    /// The unit of block numbers, of this many bytes, that holds an inode.
    ///
    /// # Errors
    /// As [`Table::inode_place`].
    fn inode_unit(&self, ino: Ino, unit: u32) -> Result<Extent, FsError> {
        let (block, skip) = self.inode_place(ino)?;
        Ok(Extent::new(block + wide(skip / index(unit)), 1))
    }

    /// Bytes of an inode.
    fn inode_len(&self) -> usize;

    /// Puts a node into the bytes of its inode; unknown fields stay.
    fn encode(&self, node: &Node<Self::Map>, raw: &mut [u8]);

    /// The fields of a part; those of [`Part::Reach`] are those of [`Part::Map`].
    fn fields(&self, part: Part) -> Fields;

    /// Whether inodes have checksums.
    fn seals_inodes(&self) -> bool {
        false
    }

    /// Renews the checksum in the bytes of a whole inode. Returns its fields.
    fn seal_inode(&self, _ino: Ino, _raw: &mut [u8]) -> Fields {
        Fields::new()
    }

    /// An inode's bytes as they are, and as its node would have them.
    ///
    /// # Errors
    /// As [`Format`](crate::Format).
    fn old_and_new(&self, core: &mut Core<Self::Map>, ino: Ino) -> Result<(Raw, Raw), FsError> {
        let (block, skip) = self.inode_place(ino)?;
        let old = Raw::from_slice(core.cache.blocks_mut().read(block, skip, self.inode_len())?);
        let mut new = old.clone();
        self.encode(core.nodes.get(&ino).ok_or_else(|| gone(ino))?, &mut new);
        Ok((old, new))
    }

    /// Writes one part of a node into its inode, after the changes that must be on the disk before;
    /// with `instead`, it replaces an earlier such change, which need not wait for these any more.
    ///
    /// # Errors
    /// As [`Format`](crate::Format).
    fn put_part(
        &self,
        core: &mut Core<Self::Map>,
        ino: Ino,
        part: Part,
        role: Role,
        after: &[ChangeId],
        instead: Option<&[ChangeId]>,
    ) -> Result<Changed, FsError> {
        let (old, new) = self.old_and_new(core, ino)?;
        let fields = self.fields(part);
        let size = fields.first().cloned().filter(|_| part == Part::Reach);
        let (block, skip) = self.inode_place(ino)?;
        let mut changed = fields;
        changed.retain(|at| field(&old, at) != field(&new, at) || size.as_ref() == Some(&*at));
        if changed.is_empty() {
            return Ok(Changed { id: ChangeId::COMMITTED, replaced: false });
        }
        let new = if self.seals_inodes() {
            let mut whole = patched(&old, &new, &changed);
            changed.extend(self.seal_inode(ino, &mut whole));
            whole
        } else {
            new
        };
        let pieces: SmallVec<[Piece<'_>; 8]> = changed
            .iter()
            // Offsets count from the block's start.
            .map(|at| Piece { offset: byte(skip + at.start), bytes: field(&new, at) })
            .collect();
        let changed = if let Some(dropped) = instead {
            core.cache.changes().replace(block, &pieces, role, after, dropped)?
        } else {
            let id = core.cache.changes().change(block, &pieces, role, after)?;
            Changed { id, replaced: false }
        };
        core.note_fresh(ino, changed.id);
        Ok(changed)
    }

    /// Writes the attributes of a node into its inode, for which nothing waits.
    ///
    /// # Errors
    /// As [`Format`](crate::Format).
    fn put_rest(&self, core: &mut Core<Self::Map>, ino: Ino) -> Result<(), FsError> {
        let (old, mut new) = self.old_and_new(core, ino)?;
        let (block, skip) = self.inode_place(ino)?;
        let mut fields = self.fields(Part::Attributes);
        if self.seals_inodes() {
            new = patched(&old, &new, &fields);
            if new != old {
                fields.extend(self.seal_inode(ino, &mut new));
            }
        }
        for at in fields {
            let bytes = field(&new, &at);
            if field(&old, &at) == bytes {
                continue;
            }
            let skip = skip + at.start;
            core.cache.changes().edit(block, skip, bytes.len(), Role::Attributes, |to| {
                to.copy_from_slice(bytes);
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Writes a whole inode for the first time, from bytes that were made for it.
    ///
    /// # Errors
    /// As [`Format`](crate::Format).
    fn put_first(
        &self,
        core: &mut Core<Self::Map>,
        ino: Ino,
        bytes: &[u8],
        after: &[ChangeId],
    ) -> Result<ChangeId, FsError> {
        let (block, skip) = self.inode_place(ino)?;
        let mut bytes = Raw::from_slice(bytes);
        if self.seals_inodes() {
            self.seal_inode(ino, &mut bytes);
        }
        let piece = Piece { offset: byte(skip), bytes: &bytes };
        let id = core.cache.changes().change(block, &[piece], Role::InodeInit, after)?;
        core.node(ino)?.pending.fresh = SmallVec::from_slice(&[id]);
        Ok(id)
    }
}

fn field<'a>(raw: &'a [u8], at: &Range<usize>) -> &'a [u8] {
    let bytes = raw.get(at.clone());
    debug_assert!(bytes.is_some(), "a field lies in its inode");
    bytes.unwrap_or_default()
}

/// Some fields of an inode as they are new, the rest as it was.
fn patched(old: &Raw, new: &Raw, fields: &Fields) -> Raw {
    let mut whole = old.clone();
    for at in fields {
        if let Some(to) = whole.get_mut(at.clone()) {
            to.copy_from_slice(field(new, at));
        }
    }
    whole
}
