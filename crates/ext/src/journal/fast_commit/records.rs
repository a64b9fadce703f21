//! The records of a fast commit and their meaning.

use crate::ondisk::{EXTENT_MAX_LEN, ExtentLeaf, INODE_CORE_SIZE};
use seekless_fs::field::{index, invalid, le32, parse, range, slice, truncated};
use seekless_fs::{FsError, Location, Mapping};
use seekless_units::{BlockNo, Extent, Ino, Lbn};

/// The structure that errors of a fast commit name.
pub(super) fn place() -> Location {
    Location::of("fast commit")
}

/// Tags of records.
pub(super) mod tag {
    pub(crate) const ADD_RANGE: u16 = 1;
    pub(crate) const DEL_RANGE: u16 = 2;
    pub(crate) const CREATE: u16 = 3;
    pub(crate) const LINK: u16 = 4;
    pub(crate) const UNLINK: u16 = 5;
    pub(crate) const INODE: u16 = 6;
    pub(crate) const PAD: u16 = 7;
    /// Ends a commit.
    pub(crate) const TAIL: u16 = 8;
    /// Begins the area.
    pub(crate) const HEAD: u16 = 9;
}

/// Bytes of a tag and the length that follows it.
pub(super) const TAG_LEN: usize = 4;

/// A name in a directory (`struct ext4_fc_dentry_info`).
#[derive(Debug)]
pub(super) struct Dentry {
    pub(super) parent: Ino,
    pub(super) ino: Ino,
    pub(super) bytes: Vec<u8>,
}

/// A logged change.
#[derive(Debug)]
pub(super) enum Operation {
    AddRange { ino: Ino, run: Mapping },
    DelRange { ino: Ino, from: Lbn, len: u64 },
    Create(Dentry),
    Link(Dentry),
    Unlink(Dentry),
    Inode { ino: Ino, raw: Vec<u8> },
}

/// A record in its block: tag, length, value (`struct ext4_fc_tl`).
pub(super) struct Tlv<'a> {
    pub(super) tag: u16,
    /// The length it claims; a tail's may reach past its block.
    pub(super) len: usize,
    /// Its value as far as the block goes.
    pub(super) value: &'a [u8],
}

impl<'a> Tlv<'a> {
    /// The record at byte `at`, if there is room for one.
    pub(super) fn at(block: &'a [u8], at: usize) -> Option<Self> {
        let head = le32(block, at)?;
        let tag = u16::try_from(head & 0xFFFF).ok()?;
        let len = index(head >> 16);
        let from = at + TAG_LEN;
        let to = (from + len).min(block.len());
        Some(Self { tag, len, value: block.get(from..to)? })
    }

    /// Its operation; `None` for padding.
    pub(super) fn operation(&self) -> Result<Option<Operation>, FsError> {
        let ino = Ino::new(le32(self.value, 0).unwrap_or(0));
        Ok(Some(match self.tag {
            tag::PAD => return Ok(None),
            tag::ADD_RANGE => Operation::AddRange { ino, run: self.run()? },
            tag::DEL_RANGE => {
                let word = |at| le32(self.value, at).ok_or_else(|| truncated(place()));
                Operation::DelRange {
                    ino,
                    from: Lbn::new(u64::from(word(4)?)),
                    len: u64::from(word(8)?),
                }
            }
            tag::INODE => {
                let raw = self.value.get(4..).unwrap_or_default().to_vec();
                if raw.len() < INODE_CORE_SIZE {
                    return Err(truncated(place().in_inode(ino)));
                }
                Operation::Inode { ino, raw }
            }
            tag::CREATE => Operation::Create(self.name()?),
            tag::LINK => Operation::Link(self.name()?),
            tag::UNLINK => Operation::Unlink(self.name()?),
            other => return Err(invalid("fc_tag", u64::from(other), place())),
        }))
    }

    fn run(&self) -> Result<Mapping, FsError> {
        let leaf: ExtentLeaf = parse(self.value, 4).ok_or_else(|| truncated(place()))?;
        let len = leaf.ee_len.get();
        let unwritten = len > EXTENT_MAX_LEN;
        let len = if unwritten { len - EXTENT_MAX_LEN } else { len };
        let high = u64::from(leaf.ee_start_hi.get());
        let start = BlockNo::new((high << 32) | u64::from(leaf.ee_start_lo.get()));
        Ok(Mapping {
            lbn: Lbn::new(u64::from(leaf.ee_block.get())),
            extent: Extent::new(start, u64::from(len)),
            unwritten,
        })
    }

    fn name(&self) -> Result<Dentry, FsError> {
        let parent = le32(self.value, 0).ok_or_else(|| truncated(place()))?;
        let ino = le32(self.value, 4).ok_or_else(|| truncated(place()))?;
        let len = self.value.len() - 8;
        if len == 0 || len > 255 {
            let place = place().in_inode(Ino::new(ino));
            return Err(range("name", seekless_fs::field::wide(len), 255, place));
        }
        let bytes = slice(self.value, 8, len).unwrap_or_default().to_vec();
        Ok(Dentry { parent: Ino::new(parent), ino: Ino::new(ino), bytes })
    }
}
