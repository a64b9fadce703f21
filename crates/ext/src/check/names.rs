//! Pass 2: the entries of directories, and the inodes that they name.

use super::ahead::ahead;
use super::checker::Checker;
use super::directory_reader::{DirectoryReader, ReadBlock, ReadDirectory};
use super::fix::{Fix, Spot, Stage};
use super::index::IndexFault;
use super::name_rules::NameRules;
use super::problems;
use crate::dir::{Directory, RawEntry, SHORTEST, entry_at, kind_of, reaches_over_tail, record_len};
use crate::htree;
use crate::inline;
use crate::inode::Inode;
use crate::ondisk::{DirEntryHead, InodeCore, flags, incompat, special};
use crate::reserved::OwnFile;
use seekless_fs::field;
use seekless_fs::read_cache::Block;
use seekless_fs::{Corruption, FileKind, FsError, Location};
use seekless_units::{ByteLen, Ino, Lbn};
use std::collections::HashSet;
use std::mem::offset_of;
use std::ops::{Deref, Range};
use std::sync::Arc;

pub(super) fn place(dir: Ino) -> Location {
    Location::of("directory").in_inode(dir)
}

/// Names of a directory that are compared one by one.
const FEW: usize = 8;

/// A directory entry with an inode number.
struct UsedEntry {
    ino: Ino,
    /// The code of its kind.
    kind: u8,
    name: Name,
    /// Where it begins, see [`Spot`].
    at: u64,
}

/// A name, in the block where it was found.
struct Name {
    block: Block,
    start: usize,
    len: usize,
}

impl Name {
    fn of(name: &[u8]) -> Self {
        Self { block: Block::from(name), start: 0, len: name.len() }
    }

    /// The byte behind it, in the same block.
    fn next_byte(&self) -> Option<u8> {
        self.block.get(self.start + self.len).copied()
    }
}

impl Deref for Name {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        field::slice(&self.block, self.start, self.len).unwrap_or_default()
    }
}

/// A damaged entry.
struct BadEntry {
    /// Where it begins, see [`Spot`].
    at: u64,
    /// Bytes to the next one.
    len: u16,
    /// Its name can be read.
    is_legible: bool,
    /// Where the one before it begins, in the same block or piece.
    before: Option<u64>,
}

/// An entry of a directory, in use or not, and its error.
pub(super) struct CheckedEntry<'a> {
    /// `None` where no name can be read.
    pub(super) entry: Option<RawEntry<'a>>,
    pub(super) error: Option<FsError>,
}

/// Reads the entry at byte `at` of a block or a piece of one, and moves `at` behind it.
///
/// Behind a damaged entry, reading goes on at the first place from which a chain of entries reaches
/// the end of the block; the entry itself counts if its name and inode number make sense. So a
/// damaged entry costs at most itself.
pub(super) fn tolerant<'a>(
    block: &'a [u8],
    at: &mut usize,
    inodes: u32,
    place: Location,
) -> Option<CheckedEntry<'a>> {
    if *at >= block.len() {
        return None;
    }
    let from = *at;
    match entry_at(block, from, u32::MAX, place) {
        // The entry of `.` has room for its name only: a longer one has swallowed others (e2fsck,
        // `PR_2_SPLIT_DOT`).
        Ok(entry) if from == 0 && entry.name == b"." && entry.next > SHORTEST => {
            let len = field::wide(entry.next);
            *at = SHORTEST;
            let entry = RawEntry { next: SHORTEST, ..entry };
            Some(CheckedEntry {
                entry: Some(entry),
                error: Some(field::invalid("rec_len", len, place)),
            })
        }
        Ok(entry) => {
            *at = entry.next;
            Some(CheckedEntry { entry: Some(entry), error: None })
        }
        Err(error) => {
            *at = resume(block, from, inodes);
            Some(CheckedEntry { entry: legible(block, from, *at, inodes), error: Some(error) })
        }
    }
}

/// The place behind a damaged entry where reading goes on: that of its own length, if a chain of
/// entries leads from there to the end of the block, else the first such place behind it.
fn resume(block: &[u8], at: usize, inodes: u32) -> usize {
    let head: Option<DirEntryHead> = field::parse(block, at);
    let len = head.map_or(0, |head| record_len(head.rec_len.get(), block.len()));
    let told = at + len;
    // An unused entry may have been cut to its head.
    let least = size_of::<DirEntryHead>();
    if len >= least && len & 3 == 0 && told <= block.len() && chains(block, told, inodes) {
        return told;
    }
    let places = (at + least..block.len()).step_by(4);
    places.into_iter().find(|&next| chains(block, next, inodes)).unwrap_or(block.len())
}

/// Whether a chain of sound entries leads from a byte of a block to its end.
fn chains(block: &[u8], mut at: usize, inodes: u32) -> bool {
    while at < block.len() {
        match entry_at(block, at, inodes, Location::of("directory")) {
            Ok(entry) if is_plausible(&entry) => at = entry.next,
            _ => return false,
        }
    }
    true
}

/// Whether an entry is unused or has a name that a path can have.
fn is_plausible(entry: &RawEntry<'_>) -> bool {
    entry.ino == Ino::ZERO || !entry.name.iter().any(|byte| matches!(byte, 0 | b'/'))
}

/// A damaged entry, if its name and its inode number make sense and it ends before the
/// next one.
fn legible(block: &[u8], at: usize, next: usize, inodes: u32) -> Option<RawEntry<'_>> {
    let head: DirEntryHead = field::parse(block, at)?;
    let start = at + (size_of::<DirEntryHead>());
    let name = field::slice(block, start, usize::from(head.name_len))?;
    let ino = head.inode.get();
    let fits = start + name.len() <= next;
    let entry = RawEntry { ino: Ino::new(ino), name, file_type: head.file_type, next };
    (fits && ino > 0 && ino <= inodes && !name.is_empty() && is_plausible(&entry)).then_some(entry)
}

/// Pass 2: directories.
pub(super) struct NamePass<'a> {
    pub(super) checker: &'a mut Checker,
}

impl<'a> NamePass<'a> {
    pub(super) fn new(checker: &'a mut Checker) -> Self {
        Self { checker }
    }
}

impl NamePass<'_> {
    pub(super) fn names(&mut self) -> Result<(), FsError> {
        let root = Ino::new(special::ROOT);
        match self.checker.seen.get(root).map(|seen| seen.kind) {
            Some(FileKind::Directory) => {}
            Some(_) => {
                self.checker.found(
                    problems::ROOT_NOT_DIRECTORY,
                    "is not a directory".into(),
                    place(root),
                );
                self.checker.fix(Stage::Inodes, Fix::Clear(root));
            }
            // Without the group of the root, all directories are unconnected.
            None if self.checker.is_lost(root) => {}
            None => {
                self.checker.found(problems::ROOT_MISSING, "not in use".into(), place(root));
                self.checker.fix(Stage::Connections, Fix::Root);
            }
        }
        let dirs: Vec<(Ino, bool)> = self
            .checker
            .seen
            .iter()
            .filter(|(_, seen)| seen.kind == FileKind::Directory)
            .map(|(ino, seen)| (ino, seen.bad_map))
            .collect();
        let is_unread = |it: &&(Ino, bool)| it.1;
        self.checker.cut_short.extend(dirs.iter().filter(is_unread).map(|(dir, _)| dir));
        let followed = dirs.iter().filter(|(_, bad_map)| !bad_map).map(|&(dir, _)| dir);
        let reader = DirectoryReader::of(self.checker);
        let mut done = self.checker.cut_short.len();
        ahead(self.checker.is_sequential, reader.batches(followed), |batch| {
            self.checker.reach(2, done, dirs.len());
            done += batch.len();
            batch.into_iter().try_for_each(|read| self.directory(read?))
        })?;
        self.checker.reach(2, dirs.len(), dirs.len());
        for (dir, _) in dirs {
            self.parent(dir);
        }
        Ok(())
    }

    /// Requests that a directory is rewritten; the entries of an inline one are changed in place.
    fn rebuild(&mut self, dir: &Inode, instead: Option<Fix>) {
        match instead {
            Some(fix) if dir.has_flag(flags::INLINE_DATA) => self.checker.fix(Stage::Names, fix),
            _ => self.checker.fix(Stage::Names, Fix::Rebuild(dir.ino)),
        }
    }

    fn directory(&mut self, read: ReadDirectory) -> Result<(), FsError> {
        let ReadDirectory { inode, blocks, faults } = read;
        let dir = inode.ino;
        let names = if inode.has_flag(flags::INLINE_DATA) {
            self.inline_names(&inode)?
        } else {
            self.block_names(&inode, blocks)
        };
        if let Some(faults) = faults {
            self.index(&inode, faults)?;
        }
        if !self.checker.orphans.contains(&dir) && names.len() < 2 {
            self.checker.unexpected(
                problems::DIRECTORY_DOT,
                "`.` or `..` is missing".into(),
                place(dir),
            );
            self.rebuild(&inode, None);
        }
        let rules = NameRules::of(self.checker.sb(), &inode);
        let is_short = names.len() <= FEW;
        let mut known = HashSet::with_capacity(if is_short { 0 } else { names.len() });
        for (number, name) in names.iter().enumerate() {
            self.entry(&inode, number, name)?;
            let key = rules.key(&name.name);
            let is_second = if is_short {
                names.iter().take(number).any(|before| rules.key(&before.name) == key)
            } else {
                !known.insert(key)
            };
            if is_second {
                let what = format!("`{}` is a duplicate entry", show(&name.name));
                self.checker.found(problems::ENTRY_DUPLICATE, what, place(dir));
                let spot = Spot { dir, at: name.at };
                self.rebuild(&inode, Some(Fix::Remove(spot)));
            }
        }
        Ok(())
    }

    fn inline_names(&mut self, inode: &Inode) -> Result<Vec<UsedEntry>, FsError> {
        let dir = inode.ino;
        // The two have no entry, so no file type is stored for them.
        let kind = 0;
        let parent = field::le32(&inode.core.i_block.0, 0).unwrap_or(0);
        let parent_at = field::wide(offset_of!(InodeCore, i_block));
        let mut names = vec![
            UsedEntry { ino: dir, kind, name: Name::of(b"."), at: 0 },
            UsedEntry { ino: Ino::new(parent), kind, name: Name::of(b".."), at: parent_at },
        ];
        let ranges = self.checker.sound(
            inline::entry_ranges(inode),
            problems::DIRECTORY_CORRUPT,
            place(dir),
        )?;
        if ranges.is_none() {
            self.checker.cut_short.insert(dir);
        }
        let bytes = Block::from(inode.raw());
        for range in ranges.unwrap_or_default() {
            for bad in self.names_in(dir, range.start, &bytes, range, &mut names) {
                let spot = Spot { dir, at: bad.at };
                let fix = match bad.before {
                    _ if bad.is_legible => Fix::Span(spot, bad.len),
                    // Too few bytes for an entry belong to the one before.
                    Some(before) if usize::from(bad.len) < SHORTEST => {
                        let len = bad.at - before + u64::from(bad.len);
                        let len = u16::try_from(len).unwrap_or(u16::MAX);
                        Fix::Span(Spot { dir, at: before }, len)
                    }
                    _ => Fix::Blank(spot, bad.len),
                };
                self.checker.fix(Stage::Names, fix);
            }
        }
        Ok(names)
    }

    fn block_names(&mut self, inode: &Inode, found: Vec<ReadBlock>) -> Vec<UsedEntry> {
        let mut names = Vec::new();
        let bsize = self.checker.volume.block_len();
        let blocks = Directory::new(&self.checker.volume, inode).blocks();
        let gap = (0..).map(Lbn::new).zip(&found).find(|(wanted, block)| *wanted != block.lbn);
        // A length beyond its blocks was reported already.
        if let Some((missing, _)) = gap {
            let what = format!("block {missing} is missing");
            self.checker.found(problems::DIRECTORY_HOLE, what, place(inode.ino));
            self.checker.cut_short.insert(inode.ino);
            self.checker.fix(Stage::Names, Fix::Rebuild(inode.ino));
        }
        for ReadBlock { lbn, block, fault } in found {
            debug_assert!(lbn.get() < blocks, "only blocks of its length are read");
            if let Some(error) = fault {
                self.unsealed(inode, lbn, &error);
            }
            if self.has_no_room_for_sum(inode, lbn, &block) {
                let what = format!("an entry of block {lbn} reaches over its checksum");
                self.checker.found(problems::DIRECTORY_CHECKSUM, what, place(inode.ino));
                self.checker.fix(Stage::Names, Fix::Rebuild(inode.ino));
            }
            let start = field::index(lbn.get()) * bsize;
            let whole = 0..block.len();
            if !self.names_in(inode.ino, start, &block, whole, &mut names).is_empty() {
                self.checker.fix(Stage::Names, Fix::Rebuild(inode.ino));
            }
        }
        names
    }

    /// Whether a block of entries that needs a checksum has no room for it.
    fn has_no_room_for_sum(&self, inode: &Inode, lbn: Lbn, block: &[u8]) -> bool {
        let is_index =
            self.checker.volume.inodes().is_hashed(inode) && htree::is_index_block(block, lbn);
        self.checker.sb().has_metadata_csum() && !is_index && reaches_over_tail(block)
    }

    /// Handles a block whose checksum is wrong or missing.
    fn unsealed(&mut self, inode: &Inode, lbn: Lbn, error: &FsError) {
        let (what, at) = error.finding(place(inode.ino));
        self.checker.found(problems::DIRECTORY_CHECKSUM, what, at);
        let is_sum = matches!(error, FsError::Corrupt { kind: Corruption::Checksum { .. }, .. });
        let fix = if is_sum { Fix::SealBlock(inode.ino, lbn) } else { Fix::Rebuild(inode.ino) };
        self.checker.fix(Stage::Names, fix);
    }

    /// Reads the entries of a block or a piece of it, which begins at byte `start` of the directory.
    /// Returns those that are damaged.
    fn names_in(
        &mut self,
        dir: Ino,
        start: usize,
        holder: &Block,
        piece: Range<usize>,
        names: &mut Vec<UsedEntry>,
    ) -> Vec<BadEntry> {
        let block = holder.get(piece.clone()).unwrap_or_default();
        let (mut at, mut bad, mut before) = (0, Vec::new(), None);
        loop {
            let begin = at;
            let from = field::wide(start + at);
            let here = place(dir).at_offset(field::byte(at));
            let inodes = self.checker.sb().raw.s_inodes_count.get();
            let Some(found) = tolerant(block, &mut at, inodes, here) else { return bad };
            debug_assert!(at > begin && at <= block.len(), "reading goes on in the block");
            if let Some(error) = found.error {
                let what = format!("from byte {start} on: {error}");
                self.checker.found(problems::DIRECTORY_CORRUPT, what, here);
                self.checker.cut_short.insert(dir);
                let len = u16::try_from(at - begin).unwrap_or(u16::MAX);
                let is_legible = found.entry.is_some();
                bad.push(BadEntry { at: from, len, is_legible, before });
            }
            before = Some(from);
            let Some(entry) = found.entry else { continue };
            if entry.ino != Ino::ZERO {
                let (ino, kind) = (entry.ino, entry.file_type);
                let name = Name {
                    block: Arc::clone(holder),
                    start: piece.start + begin + size_of::<DirEntryHead>(),
                    len: entry.name.len(),
                };
                debug_assert!(*name == *entry.name, "a name follows the head of its entry");
                names.push(UsedEntry { ino, kind, name, at: from });
            }
        }
    }

    /// Follows an entry; the first two are `.` and `..`. An encrypted name may be
    /// any bytes.
    fn entry(&mut self, inode: &Inode, number: usize, entry: &UsedEntry) -> Result<(), FsError> {
        let dir = inode.ino;
        let spot = Spot { dir, at: entry.at };
        match (number, &*entry.name) {
            (0, b".") => {
                self.kind(spot, entry, FileKind::Directory);
                self.dot(spot, entry.ino);
                self.terminated(inode, spot, entry);
                return Ok(());
            }
            (1, b"..") => {
                self.kind(spot, entry, FileKind::Directory);
                self.terminated(inode, spot, entry);
                if let Some(place) = self.checker.seen.place_mut(dir) {
                    place.parent = Some(entry.ino);
                }
                return Ok(());
            }
            (0 | 1, _) => {
                let what = format!("`{}` in the place of `.` and `..`", show(&entry.name));
                self.checker.unexpected(problems::DIRECTORY_DOT, what, place(dir));
                self.rebuild(inode, None);
            }
            (_, b"." | b"..") => {
                let what = format!("`{}` is a duplicate entry", show(&entry.name));
                self.checker.found(problems::ENTRY_NAME, what, place(dir));
                self.rebuild(inode, Some(Fix::Remove(spot)));
                return Ok(());
            }
            _ => {}
        }
        if !NameRules::of(self.checker.sb(), inode).takes(&entry.name) {
            let what = format!("`{}` is not a valid name", show(&entry.name));
            self.checker.found(problems::ENTRY_NAME, what, place(dir));
            self.rebuild(inode, Some(Fix::Respell(spot)));
        }
        let special = self.checker.seen.get(entry.ino).is_none_or(|seen| seen.is_special);
        if special && self.is_named_journal(entry.ino) {
            self.kind(spot, entry, FileKind::Regular);
            return Ok(());
        }
        if special {
            return self.unallocated(spot, entry);
        }
        if number > 1 && !self.encrypted(spot, &entry.name, entry.kind, entry.ino) {
            return Ok(());
        }
        if dir.get() == special::ROOT && *entry.name == *b"lost+found" {
            self.checker.lost_found.get_or_insert((spot, entry.ino));
        }
        self.named(spot, entry);
        Ok(())
    }

    /// The name of `.` and `..` ends in a zero byte (e2fsck, `PR_2_DOT_NULL_TERM`).
    fn terminated(&mut self, dir: &Inode, spot: Spot, entry: &UsedEntry) {
        // They belong into the first block.
        let is_first = spot.at < u64::from(self.checker.sb().block_size);
        let is_looked_at = is_first && !dir.has_flag(flags::INLINE_DATA);
        if is_looked_at && entry.name.next_byte().is_some_and(|byte| byte != 0) {
            let what = format!("`{}` does not end in a zero byte", show(&entry.name));
            self.checker.expected(problems::DIRECTORY_DOT, what, place(dir.ino));
            self.checker.fix(Stage::Names, Fix::Terminate(spot));
        }
    }

    /// Handles an entry whose inode is not in use.
    fn unallocated(&mut self, spot: Spot, entry: &UsedEntry) -> Result<(), FsError> {
        if self.checker.is_lost(entry.ino) {
            return Ok(());
        }
        let name = show(&entry.name);
        if self.is_behind(entry.ino)? {
            let what = format!(
                "`{name}` points to inode {}, in the part of the table that is marked unused",
                entry.ino
            );
            // For an inode that was not written, e2fsck first finds a file type that differs from
            // the name's, and stops.
            let bytes = self.checker.volume.inodes().bytes(entry.ino)?;
            let core: Option<InodeCore> = field::parse(&bytes, 0);
            let kind = core.and_then(|core| FileKind::from_mode(core.i_mode.get()));
            let expected = entry.kind == 0 || (kind.is_some() && kind_of(entry.kind) == kind);
            self.checker.graded(expected, problems::ENTRY_UNALLOCATED, what, place(spot.dir));
            let (group, _) = self.checker.volume.sb.inode_slot(entry.ino)?;
            self.checker.fix(Stage::Heads, Fix::Head(group));
            return Ok(());
        }
        let state = match self.checker.is_unusable(entry.ino) {
            true => "lies in a bad block",
            false => "is not in use",
        };
        let what = format!("`{name}` points to inode {}, which {state}", entry.ino);
        let is_number = self.checker.volume.sb.inode_slot(entry.ino).is_ok();
        let expected = is_number
            && !self.checker.volume.sb.is_own(entry.ino)
            && !self.checker.is_unusable(entry.ino);
        self.checker.graded(expected, problems::ENTRY_UNALLOCATED, what, place(spot.dir));
        self.checker.fix(Stage::Names, Fix::Remove(spot));
        Ok(())
    }

    /// Whether an inode is that of a journal that is a file like others, as `tune2fs -j` makes it on
    /// a mounted volume.
    fn is_named_journal(&self, ino: Ino) -> bool {
        let sb = &self.checker.volume.sb;
        sb.own_file(ino) == Some(OwnFile::Journal) && !sb.is_reserved(ino)
    }

    /// Whether an inode lies in the never written part of its table.
    fn is_behind(&self, ino: Ino) -> Result<bool, FsError> {
        let Ok((number, slot)) = self.checker.volume.sb.inode_slot(ino) else { return Ok(false) };
        Ok(slot >= self.checker.used_slots(&self.checker.volume.descriptors().read(number)?))
    }

    /// Handles an entry whose inode is in use.
    fn named(&mut self, spot: Spot, entry: &UsedEntry) {
        let is_root = entry.ino.get() == special::ROOT;
        let Some(kind) = self.checker.seen.get(entry.ino).map(|seen| seen.kind) else { return };
        let is_dir = kind == FileKind::Directory;
        if !is_dir {
            self.count(entry.ino);
            return self.kind(spot, entry, kind);
        }
        let first = self.checker.seen.place_of(entry.ino).named_in;
        let second = is_root || entry.ino == spot.dir || first.is_some();
        if let Some(first) = first.filter(|&first| second && self.is_misled(entry.ino, first, spot))
        {
            let what = "an additional name of a directory, whose `..` leads to another one";
            let at = place(first.dir);
            self.checker.found(problems::DIRECTORY_TWO_NAMES, what.to_string(), at);
            self.checker.fix(Stage::Names, Fix::Remove(first));
            self.put(entry.ino, spot);
            self.kind(spot, entry, kind);
            return;
        }
        if second {
            let what = format!("`{}` is an additional name of a directory", show(&entry.name));
            self.checker.found(problems::DIRECTORY_TWO_NAMES, what, place(spot.dir));
            self.checker.fix(Stage::Names, Fix::Remove(spot));
            return;
        }
        self.count(entry.ino);
        self.put(entry.ino, spot);
        self.kind(spot, entry, kind);
    }

    /// Notes the entry that names a directory.
    fn put(&mut self, dir: Ino, spot: Spot) {
        if let Some(place) = self.checker.seen.place_mut(dir) {
            place.named_in = Some(spot);
        }
    }

    /// Whether the `..` of a directory leads to the directory with its second name, and not to that
    /// with its first.
    fn is_misled(&self, ino: Ino, first: Spot, second: Spot) -> bool {
        let volume = &self.checker.volume;
        let is_ordinary = ino.get() != special::ROOT && ino != second.dir;
        let Some(inode) = volume.inodes().read(ino).ok().filter(|_| is_ordinary) else {
            return false;
        };
        if inode.has_flag(flags::INLINE_DATA) {
            let parent = field::le32(&inode.core.i_block.0, 0).map(Ino::new);
            return first.dir != second.dir && parent == Some(second.dir);
        }
        let mut head = [0; 2 * SHORTEST];
        let is_read = volume.maps().read_mapped(&inode, ByteLen::new(0), &mut head).is_ok();
        let (_, dot_dot) = head.split_at(SHORTEST);
        let is_named = dot_dot.get(6) == Some(&2) && dot_dot.ends_with(b"..\0\0");
        let parent = field::le32(dot_dot, 0).map(Ino::new).filter(|_| is_read && is_named);
        first.dir != second.dir && parent == Some(second.dir)
    }

    /// Checks the file type of an entry: that of its inode, or none if it is older than the
    /// feature.
    fn kind(&mut self, spot: Spot, entry: &UsedEntry, kind: FileKind) {
        let typed = self.checker.sb().has_incompat(incompat::FILETYPE);
        if entry.kind != 0 && !(typed && kind_of(entry.kind) == Some(kind)) {
            let what =
                format!("the file type of `{}` differs from that of its inode", show(&entry.name));
            self.checker.graded(!typed, problems::ENTRY_KIND, what, place(spot.dir));
            self.checker.fix(Stage::Names, Fix::Retype(spot, kind));
        }
    }

    fn dot(&mut self, spot: Spot, to: Ino) {
        self.count(spot.dir);
        if to != spot.dir {
            let what = format!("`.` points to inode {to}");
            self.checker.unexpected(problems::DIRECTORY_DOT, what, place(spot.dir));
            self.checker.fix(Stage::Names, Fix::Lead(spot, spot.dir));
        }
    }

    fn count(&mut self, ino: Ino) {
        if let Some(seen) = self.checker.seen.get_mut(ino) {
            seen.names += 1;
        }
    }

    /// Compares a directory's `..` with the directory that names it.
    fn parent(&mut self, dir: Ino) {
        let place_in_tree = self.checker.seen.place_of(dir);
        let root = Ino::new(special::ROOT);
        let named_in =
            if dir == root { Some(root) } else { place_in_tree.named_in.map(|spot| spot.dir) };
        // An unconnected directory is nobody's child.
        let (Some(parent), Some(named_in)) = (place_in_tree.parent, named_in) else { return };
        self.count(named_in);
        if parent != named_in {
            let what = format!("`..` points to inode {parent}, should be {named_in}");
            self.checker.found(problems::DIRECTORY_DOT_DOT, what, place(dir));
            self.checker.report.set_values(parent.get().into(), named_in.get().into());
            self.checker.fix(Stage::Names, Fix::Parent(dir, named_in));
        }
    }

    /// Reports the faults of a directory's index.
    fn index(
        &mut self,
        inode: &Inode,
        found: Result<Vec<IndexFault>, FsError>,
    ) -> Result<(), FsError> {
        let at = place(inode.ino);
        match found {
            Ok(faults) => {
                for fault in faults {
                    self.checker.graded(fault.is_plain, problems::DIRECTORY_INDEX, fault.what, at);
                    self.checker.fix(Stage::Names, Fix::Rebuild(inode.ino));
                }
            }
            Err(error @ FsError::Corrupt { .. }) => {
                let is_plain = matches!(
                    error,
                    FsError::Corrupt {
                        kind: Corruption::Range { field: "limit" | "count", .. },
                        ..
                    }
                );
                let (what, at) = error.finding(at);
                self.checker.graded(is_plain, problems::DIRECTORY_INDEX, what, at);
                self.checker.fix(Stage::Names, Fix::Rebuild(inode.ino));
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// The file type of a kind in an entry.
pub(super) fn code_of(kind: FileKind) -> u8 {
    (1..=7).find(|&code| kind_of(code) == Some(kind)).unwrap_or(0)
}

fn show(name: &[u8]) -> String {
    name.escape_ascii().to_string()
}
