//! Rewritten directories, and new ones.

use super::Work;
use super::inode::InodeMut;
use super::map::contiguous;
use super::superblock::{byte_of, time};
use crate::check::name_rules::NameRules;
use crate::check::names::{CheckedEntry, code_of, place, tolerant};
use crate::dir::{Directory, kind_of};
use crate::encode::dirblocks::{DirFormat, DirRecord, Packing};
use crate::inode::Inode;
use crate::ondisk::{DirEntryHead, DirEntryTail, compat, flags, incompat, special};
use seekless_fs::field::{index, wide};
use seekless_fs::{FileKind, FsError, Location};
use seekless_units::Ino;
use std::collections::{HashMap, HashSet};
use std::mem::offset_of;
use zerocopy::IntoBytes;

/// The longest name, in bytes.
const NAME_MAX: usize = 255;

/// A name to be written.
#[derive(Clone, Debug)]
pub(super) struct NewName {
    pub(super) ino: Ino,
    pub(super) kind: FileKind,
    pub(super) name: Vec<u8>,
}

/// Whether the entries of a directory cannot be moved: with casefold, an encrypted name has a hash
/// behind it, which only its key gives, and those of an inline directory are in its inode.
fn is_bound(inode: &Inode) -> bool {
    let is_keyed = inode.has_flag(flags::ENCRYPT) && inode.has_flag(flags::CASEFOLD);
    is_keyed || inode.has_flag(flags::INLINE_DATA)
}

impl Work<'_> {
    /// Rewrites a directory's readable entries, with more names behind: in fresh blocks, without
    /// holes, with a new index. Whether there was room and a way.
    pub(super) fn rebuild(&mut self, dir: Ino, more: &[NewName]) -> Result<bool, FsError> {
        let volume = &self.checker.volume;
        let inode = volume.inodes().read(dir)?;
        if self.write_again(dir, more)? {
            return Ok(true);
        }
        // Without room a directory can at least lose its index, if blocks of an
        // index are blocks of entries without names.
        let can_lose = volume.inodes().is_hashed(&inode)
            && !volume.sb.has_metadata_csum()
            && !is_bound(&inode);
        if can_lose && more.is_empty() {
            self.change(dir, |it| {
                let bits = it.core().i_flags.get() & !flags::INDEX;
                it.core_mut().i_flags = bits.into();
            })?;
            return Ok(true);
        }
        Ok(false)
    }

    /// As [`Work::rebuild`]; without room the directory stays as it is.
    pub(super) fn write_again(&mut self, dir: Ino, more: &[NewName]) -> Result<bool, FsError> {
        let volume = &self.checker.volume;
        let inode = volume.inodes().read(dir)?;
        if is_bound(&inode) {
            return Ok(false);
        }
        let mut names = self.names_of(&inode)?;
        names.extend_from_slice(more);
        let names = match NameRules::of(&volume.sb, &inode) {
            // A name cannot be changed without its key.
            NameRules::Encrypted => first_of_each(names),
            rules => distinct(names, rules),
        };
        let mut changed = InodeMut::read(volume, self.disk, dir)?;
        if self.put_names(&mut changed, dir, self.parent_of(dir), &names)? {
            changed.write(volume, self.disk)?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Adds names to a directory: to its blocks as long as it has no index and there is room, else
    /// it is rewritten. Whether there was room for any.
    pub(super) fn add_names(&mut self, dir: Ino, mut names: Vec<NewName>) -> Result<bool, FsError> {
        let volume = &self.checker.volume;
        let inode = volume.inodes().read(dir)?;
        let before = names.len();
        if !inode.has_flag(flags::INLINE_DATA | flags::INDEX) {
            let typed = volume.sb.has_incompat(incompat::FILETYPE);
            let tail = if volume.sb.has_metadata_csum() { size_of::<DirEntryTail>() } else { 0 };
            for lbn in Directory::new(volume, &inode).present()? {
                if names.is_empty() {
                    return Ok(true);
                }
                self.with_block(&inode, lbn, |block| {
                    let end = block.len() - tail;
                    names.retain(|name| !put_name(block, end, name, typed));
                })?;
            }
        }
        let is_some = names.len() < before;
        Ok(names.is_empty() || self.rebuild(dir, &names)? || is_some)
    }

    /// Makes a directory in an unused inode; whether there was room. It has no name yet.
    pub(super) fn make(&mut self, ino: Ino, parent: Ino, mode: u16) -> Result<bool, FsError> {
        let volume = &self.checker.volume;
        let sb = &volume.sb;
        let mut inode = InodeMut::read(volume, self.disk, ino)?;
        let extra = sb.raw.s_want_extra_isize.get();
        inode.begin(FileKind::Directory.mode_bits() | mode, extra, time(sb));
        if sb.has_incompat(incompat::EXTENTS) {
            inode.core_mut().i_flags = flags::EXTENTS.into();
        }
        inode.core_mut().i_links_count = 2.into();
        if !self.put_names(&mut inode, ino, parent, &[])? {
            return Ok(false);
        }
        inode.write(volume, self.disk)?;
        self.disk.flush()?;
        Ok(true)
    }

    /// Gives an inode in memory blocks with these entries, and writes the blocks to the disk;
    /// whether there was room.
    fn put_names(
        &mut self,
        inode: &mut InodeMut,
        dir: Ino,
        parent: Ino,
        names: &[NewName],
    ) -> Result<bool, FsError> {
        let sb = self.checker.sb();
        let mut format = self.dir_format(inode);
        let record = |it| {
            let NewName { ino, kind, name }: &NewName = it;
            DirRecord { name, ino: *ino, kind: *kind }
        };
        let mut records: Vec<DirRecord<'_>> = names.iter().map(record).collect();
        if format.indexed {
            records.sort_by_key(|record| format.hash(record.name));
        }
        let packing = match pack(&format, &records) {
            Err(FsError::NoSpace(_)) => {
                format.indexed = false;
                pack(&format, &records)?
            }
            packing => packing?,
        };
        let bytes =
            format.encode(dir, parent, &records, &packing, inode.seed(&self.checker.volume));
        let chunks = bytes.chunks(index(sb.block_size));
        let Some(blocks) = self.take_blocks(wide(chunks.len())) else { return Ok(false) };
        for (&block, chunk) in blocks.iter().zip(chunks) {
            self.disk.put(byte_of(sb, block), chunk)?;
        }
        if !self.put_map(inode, &contiguous(&blocks))? {
            return Ok(false);
        }
        inode.set_len(wide(bytes.len()));
        let hashed = if packing.index_blocks > 0 { flags::INDEX } else { 0 };
        let bits = inode.core().i_flags.get() & !flags::INDEX;
        inode.core_mut().i_flags = (bits | hashed).into();
        Ok(true)
    }

    fn dir_format(&self, dir: &InodeMut) -> DirFormat {
        let sb = self.checker.sb();
        let version = sb.default_hash_version();
        let folds = sb.has_incompat(incompat::CASEFOLD) && dir.has_flag(flags::CASEFOLD);
        DirFormat {
            block_size: index(sb.block_size),
            indexed: version.is_some() && sb.has_compat(compat::DIR_INDEX),
            checksums: sb.has_metadata_csum(),
            large: sb.has_incompat(incompat::LARGEDIR),
            typed: sb.has_incompat(incompat::FILETYPE),
            folds,
            hash_version: version.unwrap_or_default(),
            hash_seed: sb.hash_seed(),
        }
    }

    /// The directory that `..` should name, as far as it is known.
    fn parent_of(&self, dir: Ino) -> Ino {
        let root = Ino::new(special::ROOT);
        if dir == root {
            return root;
        }
        let place = self.checker.seen.place_of(dir);
        let told = place.named_in.map(|spot| spot.dir).or(place.parent);
        told.filter(|&ino| self.checker.is_directory(ino)).unwrap_or(root)
    }

    /// The entries of a directory but `.` and `..`, as they lie on the disk now.
    fn names_of(&self, inode: &Inode) -> Result<Vec<NewName>, FsError> {
        let volume = &self.checker.volume;
        let dir = Directory::new(volume, inode);
        let blocks = dir.blocks();
        let mut names = Vec::new();
        for lbn in dir.present()?.into_iter().filter(|lbn| lbn.get() < blocks) {
            let Some(run) = volume.maps().map_block(inode, lbn)? else { continue };
            let bytes =
                self.disk.read(byte_of(&volume.sb, run.extent.start), volume.block_len())?;
            let mut at = 0;
            let inodes = volume.sb.raw.s_inodes_count.get();
            while let Some(found) = tolerant(&bytes, &mut at, inodes, place(inode.ino)) {
                let Some(entry) = found.entry else { continue };
                // An entry of an inode that there cannot be would be removed next, and an index
                // with it is none.
                let is_possible = entry.ino > Ino::ZERO && entry.ino.get() <= inodes;
                if !is_possible || entry.name == b"." || entry.name == b".." {
                    continue;
                }
                let seen = self.checker.seen.get(entry.ino).map(|seen| seen.kind);
                let kind = kind_of(entry.file_type).or(seen).unwrap_or(FileKind::Regular);
                // Bytes that no path can have are replaced, as in e2fsck.
                let name = NameRules::of(&self.checker.volume.sb, inode).sane(entry.name);
                names.push(NewName { ino: entry.ino, kind, name });
            }
        }
        Ok(names)
    }

    /// An unused inode, from those that its group counts as initialised; where there is none, the
    /// group is made to count more.
    pub(super) fn take_inode(&mut self) -> Result<Option<Ino>, FsError> {
        let checker = self.checker;
        let per_group = checker.sb().inodes_per_group;
        for behind in [false, true] {
            for number in (0..checker.sb().groups).map(seekless_units::GroupNo::new) {
                if checker.lost_groups.contains(&number) {
                    continue;
                }
                let used = checker.used_slots(&checker.volume.descriptors().read(number)?);
                let slots = if behind { used..per_group } else { 0..used };
                let first = number.get() * per_group + 1;
                let free = slots.map(|slot| Ino::new(first + slot)).find(|&ino| {
                    let own =
                        checker.volume.sb.is_own(ino) || checker.volume.sb.is_kept_unused(ino);
                    let root = ino.get() == special::ROOT;
                    !own && !root && !checker.seen.contains(ino) && !checker.is_unusable(ino)
                });
                if let Some(ino) = free {
                    if behind {
                        super::groups::put_head(checker, self.disk, number)?;
                    }
                    return Ok(Some(ino));
                }
            }
        }
        Ok(None)
    }
}

/// The first of each of several equal names.
fn first_of_each(mut names: Vec<NewName>) -> Vec<NewName> {
    let mut taken = HashSet::with_capacity(names.len());
    names.retain(|it| taken.insert(it.name.clone()));
    names
}

/// Puts a name into the first gap of a block that is large enough for it; whether
/// there is one. The checksum's entry begins at `end`.
fn put_name(block: &mut [u8], end: usize, name: &NewName, typed: bool) -> bool {
    let room = |len: usize| size_of::<DirEntryHead>() + len.next_multiple_of(4);
    let needed = room(name.name.len());
    let mut at = 0;
    let mut gap = None;
    let total = block.len();
    while gap.is_none() && at < end {
        let from = at;
        match tolerant(block, &mut at, u32::MAX, Location::of("lost+found")) {
            Some(CheckedEntry { entry: Some(entry), error: None }) => {
                let own = if entry.ino == Ino::ZERO { 0 } else { room(entry.name.len()) };
                let left = entry.next - from - own;
                if left >= needed && entry.next <= end {
                    gap = Some((from, own, left));
                }
            }
            // A damaged entry is repaired first.
            _ => return false,
        }
    }
    let Some((from, own, left)) = gap else { return false };
    let code = if typed { code_of(name.kind) } else { 0 };
    let (Ok(len), Ok(name_len)) = (rec_len(left, total), u8::try_from(name.name.len())) else {
        return false;
    };
    let head = DirEntryHead {
        inode: name.ino.get().into(),
        rec_len: len.into(),
        name_len,
        file_type: code,
    };
    debug_assert!(needed <= left, "the gap is large enough");
    let start = from + own;
    let bytes = [head.as_bytes(), &name.name].concat();
    let Some(to) = block.get_mut(start..start + bytes.len()) else { return false };
    to.copy_from_slice(&bytes);
    if let (true, Ok(own)) = (own > 0, rec_len(own, total)) {
        let slot = from + offset_of!(DirEntryHead, rec_len);
        if let Some(slot) = block.get_mut(slot..).and_then(<[u8]>::first_chunk_mut::<2>) {
            *slot = own.to_le_bytes();
        }
    }
    true
}

/// The length of an entry as it is stored; blocks of 64 KiB do not fit in 16 bits.
fn rec_len(len: usize, block: usize) -> Result<u16, std::num::TryFromIntError> {
    if len == 65536 && block == 65536 { Ok(u16::MAX) } else { u16::try_from(len) }
}

fn pack(format: &DirFormat, records: &[DirRecord<'_>]) -> Result<Packing, FsError> {
    format.pack(records.iter().map(|record| record.name.len()))
}

/// Makes names distinct: of equal names for the same inode the first stays, those of other inodes
/// get a number behind.
fn distinct(names: Vec<NewName>, rules: NameRules) -> Vec<NewName> {
    let mut taken: HashMap<Vec<u8>, Ino> = HashMap::with_capacity(names.len());
    let all: HashSet<Vec<u8>> =
        names.iter().map(|name| rules.key(&name.name).into_owned()).collect();
    let mut out = Vec::with_capacity(names.len());
    let mut next = 0u32;
    for mut name in names {
        match taken.get(rules.key(&name.name).as_ref()) {
            Some(&ino) if ino == name.ino => continue,
            Some(_) => {
                let own = std::mem::take(&mut name.name);
                while name.name.is_empty() {
                    let ending = format!("~{next}").into_bytes();
                    next += 1;
                    let room = (NAME_MAX - ending.len()).min(own.len());
                    let tried = [own.get(..room).unwrap_or_default(), &ending].concat();
                    let key = rules.key(&tried).into_owned();
                    if !taken.contains_key(&key) && !all.contains(&key) {
                        name.name = tried;
                    }
                }
            }
            None => {}
        }
        taken.insert(rules.key(&name.name).into_owned(), name.ino);
        out.push(name);
    }
    debug_assert_eq!(taken.len(), out.len(), "each name is there once");
    out
}
