//! Lengths that a file cannot have, and those that follow from the rest of its inode.

use super::claims::Claims;
use super::fix::Fix;
use super::inodes::{InodePass, place};
use super::problems;
use crate::inode::Inode;
use crate::ondisk::{DIRECT, DIRECTORY_UNIT, SNAPSHOT};
use crate::superblock::Format;
use seekless_fs::field::{index, wide};
use seekless_fs::{FileKind, FsError};
use seekless_units::ByteLen;

/// A length that follows from a file's map.
struct MappedLength {
    bytes: u64,
    /// `di_blocks` is the number of sectors of this map.
    is_counted: bool,
}

impl InodePass<'_> {
    /// The longest file of a type (`chkfilesize`): as long as block numbers have room for, on UFS1
    /// with block numbers of the file that have 30 bits, and for directories up to the maximum of
    /// an `int`.
    pub(super) fn longest(&self, kind: FileKind) -> u64 {
        let pointers = self.checker.sb().pointers();
        let levels: u64 = (1..=3).map(|level| pointers.pow(level)).sum();
        let blocks = wide(DIRECT) + levels;
        let blocks = match self.checker.sb().format {
            Format::Ufs1 => blocks.min(1 << 30),
            Format::Ufs2 => blocks,
        };
        let bytes = blocks * u64::from(self.checker.sb().bsize) - 1;
        let most = match kind {
            FileKind::Directory => u64::from(i32::MAX.cast_unsigned()),
            _ => i64::MAX.cast_unsigned(),
        };
        bytes.min(most)
    }

    /// The repair of an impossible length.
    pub(super) fn wrong_length(
        &mut self,
        inode: &Inode,
        kind: FileKind,
    ) -> Result<Option<Fix>, FsError> {
        let place = place(inode.ino);
        let is_special =
            !matches!(kind, FileKind::Regular | FileKind::Directory | FileKind::Symlink);
        if is_special && inode.len != 0 {
            let what = format!("length {} of a file that has no contents", inode.len);
            self.checker.unexpected(problems::INODE_LENGTH, what, place);
            return Ok(Some(Fix::Length(inode.ino, 0)));
        }
        let no_device = match self.checker.sb().format {
            Format::Ufs1 => u64::from(u32::MAX),
            Format::Ufs2 => u64::MAX,
        };
        let is_device = matches!(kind, FileKind::CharDevice | FileKind::BlockDevice);
        if is_device && inode.direct.first() == Some(&no_device) {
            let what = "a device file without a device number (NODEV)".to_string();
            self.checker.found(problems::INODE_DEVICE, what, place);
            return Ok(Some(Fix::Clear(inode.ino)));
        }
        let longest = self.longest(kind);
        if inode.len > longest {
            let what = format!("length {} is more than {longest}", inode.len);
            self.checker.unexpected(problems::INODE_LENGTH, what, place);
            let can_be = |len: &u64| *len > 0 || kind == FileKind::Regular;
            let len = match kind {
                FileKind::Symlink if self.has_blocks(inode) => self.target_in_block(inode)?,
                FileKind::Symlink => self.target_in_inode(inode),
                _ => self.mapped_length(inode, kind)?.map(|it| it.bytes).filter(can_be),
            };
            return Ok(Some(len.map_or(Fix::Clear(inode.ino), |len| Fix::Length(inode.ino, len))));
        }
        let unit = wide(DIRECTORY_UNIT);
        let odd = inode.len == 0 || !inode.len.is_multiple_of(unit);
        if kind == FileKind::Directory && odd {
            let what = format!("directory length {}", inode.len);
            self.checker.unexpected(problems::INODE_LENGTH, what, place);
            let len = match self.mapped_length(inode, kind)? {
                Some(MappedLength { bytes: bytes @ 1.., is_counted: true }) => bytes,
                _ => inode.len.max(1).next_multiple_of(unit),
            };
            return Ok(Some(match inode.direct_block(0) {
                Some(_) => Fix::Length(inode.ino, len),
                None => Fix::Clear(inode.ino),
            }));
        }
        match kind {
            FileKind::Symlink => self.wrong_target(inode),
            _ => Ok(None),
        }
    }

    /// The repair of a symlink that is longer than a block, or whose target is not where its length
    /// puts it.
    fn wrong_target(&mut self, inode: &Inode) -> Result<Option<Fix>, FsError> {
        let is_long = inode.len > u64::from(self.checker.sb().bsize);
        let is_mapped = self.checker.sb().numbers_kept(inode).is_none();
        let (here, in_block) = (self.target_in_inode(inode), self.target_in_block(inode)?);
        let len = match (is_mapped, self.has_blocks(inode)) {
            (true, _) if in_block == Some(inode.len) => None,
            (true, false) if here.is_some() => here,
            (true, _) if is_long => in_block,
            (false, true) if here != Some(inode.len) => in_block,
            _ => None,
        };
        if len.is_none() && !is_long {
            return Ok(None);
        }
        let what = format!("symlink length {}", inode.len);
        self.checker.unexpected(problems::INODE_LENGTH, what, place(inode.ino));
        Ok(Some(len.map_or(Fix::Clear(inode.ino), |len| Fix::Length(inode.ino, len))))
    }

    /// Whether `di_blocks` counts more than the blocks of attributes.
    fn has_blocks(&self, inode: &Inode) -> bool {
        let fsize = u64::from(self.checker.sb().fsize);
        inode.sectors() > u64::from(inode.ext_len).div_ceil(fsize) * (fsize / 512)
    }

    /// The length of the text in place of the block numbers.
    fn target_in_inode(&self, inode: &Inode) -> Option<u64> {
        text_len(&inode.numbers).filter(|&len| len < u64::from(self.checker.sb().maxsymlinklen))
    }

    /// The length of the text in the first fragment that the inode names.
    pub(super) fn target_in_block(&self, inode: &Inode) -> Result<Option<u64>, FsError> {
        let sb = self.checker.sb();
        let start = inode.direct_block(0).filter(|start| start.get() < sb.size);
        let Some(start) = start else { return Ok(None) };
        let mut bytes = vec![0; index(sb.fsize)];
        self.checker.volume.read_bytes(start, 0, &mut bytes)?;
        Ok(text_len(&bytes))
    }

    /// Another length than that of the inode, if the map does not fit that one and `di_blocks`
    /// counts all of the map.
    pub(super) fn likely_length(
        &mut self,
        inode: &Inode,
        kind: FileKind,
        claims: &Claims,
    ) -> Result<Option<u64>, FsError> {
        if claims.are_sound() && !claims.beyond {
            return Ok(None);
        }
        if kind == FileKind::Symlink {
            return Ok(self.target_in_inode(inode).filter(|_| !self.has_blocks(inode)));
        }
        let fsize = u64::from(self.checker.sb().fsize);
        let mapped = self.mapped_length(inode, kind)?;
        let len = mapped.filter(|it| it.is_counted && it.bytes > 0).map(|it| it.bytes);
        let len =
            len.filter(|len| claims.beyond || len.div_ceil(fsize) < inode.len.div_ceil(fsize));
        if let Some(len) = len
            && !claims.beyond
        {
            let what =
                format!("length {}, but di_blocks counts blocks up to byte {len}", inode.len);
            self.checker.unexpected(problems::INODE_LENGTH, what, place(inode.ino));
        }
        Ok(len)
    }

    /// The length of a file by its map: up to the end of its last block, and if `di_blocks` counts
    /// the fragments of this map, of its last fragment.
    fn mapped_length(
        &mut self,
        inode: &Inode,
        kind: FileKind,
    ) -> Result<Option<MappedLength>, FsError> {
        if !matches!(kind, FileKind::Regular | FileKind::Directory) || inode.is(SNAPSHOT) {
            return Ok(None);
        }
        if self.to_be_measured == 0 {
            return Ok(None);
        }
        let whole = inode.with_len(self.longest(kind));
        let map = match self.checker.volume.block_map(&whole) {
            Ok(map) => map,
            Err(FsError::Corrupt { .. }) => {
                // As much may have been read.
                self.to_be_measured = 0;
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let (frag, fsize) = (u64::from(self.checker.sb().frag), u64::from(self.checker.sb().fsize));
        let end = map.runs.last().map_or(0, |last| last.lbn.get() + last.extent.len);
        let mapped: u64 = map.runs.iter().map(|run| run.extent.len).sum();
        let own: u64 = map.index.iter().map(|block| block.len).sum();
        self.to_be_measured = self.to_be_measured.saturating_sub(mapped + own + 1);
        let attributes = u64::from(inode.ext_len).div_ceil(fsize);
        let counted = inode.sectors() / (fsize / 512);
        // Only among the direct blocks the last one may have some fragments only.
        let most_missing = if own == 0 { frag - 1 } else { 0 };
        let missing = (mapped + own + attributes).checked_sub(counted);
        let missing = missing.filter(|&missing| missing <= most_missing);
        let mut bytes = (end - missing.unwrap_or(0).min(end)) * fsize;
        if kind == FileKind::Directory {
            bytes = self.without_empty_units(&inode.with_len(bytes))?;
        }
        Ok(Some(MappedLength { bytes, is_counted: missing.is_some() }))
    }

    /// The length of a directory without the zeros at its end.
    fn without_empty_units(&self, inode: &Inode) -> Result<u64, FsError> {
        let unit = wide(DIRECTORY_UNIT);
        let mut len = inode.len;
        let mut bytes = vec![0; DIRECTORY_UNIT];
        while len > unit {
            let at = ByteLen::new(len - unit);
            self.checker.volume.read_mapped(inode, at, &mut bytes)?;
            if bytes.iter().any(|&byte| byte != 0) {
                break;
            }
            len -= unit;
        }
        Ok(len)
    }
}

/// The length of a text before zeros only.
fn text_len(bytes: &[u8]) -> Option<u64> {
    let end = bytes.iter().position(|&byte| byte == 0).filter(|&end| end > 0)?;
    bytes.iter().skip(end).all(|&byte| byte == 0).then(|| wide(end))
}
