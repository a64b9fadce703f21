//! Files from their entries, and as entries again.

use super::chain::Chain;
use super::clusters::Clusters;
use super::directories::Directories;
use super::directory::Dir;
use super::layout::DirectoryLayout;
use super::map::{Core, MOST_BYTES, Map, Node};
use super::numbers::Numbers;
use super::stamps::Zone;
use crate::boot::Boot;
use crate::files::ROOT;
use crate::ondisk::{ENTRY_SIZE, ShortEntry, attr};
use crate::table::{Link, entry_place};
use seekless_cache::{ChangeId, Piece, Role};
use seekless_fs::field::{byte, invalid, low16, parse, truncated};
use seekless_fs::{Corruption, FileKind, FsError, Location};
use seekless_live::gone;
use seekless_units::{BlockNo, Extent, Ino};
use std::mem::offset_of;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Permissions of writable files and directories.
pub(super) const FILE: u16 = 0o644;
pub(super) const DIRECTORY: u16 = 0o755;
/// Who may write.
pub(super) const WRITE: u16 = 0o222;

/// Fields of an entry that are changed separately.
const ATTR: usize = offset_of!(ShortEntry, DIR_Attr);
const ACCESSED: usize = offset_of!(ShortEntry, DIR_LstAccDate);
const HIGH: usize = offset_of!(ShortEntry, DIR_FstClusHI);
const WRITTEN: usize = offset_of!(ShortEntry, DIR_WrtTime);
const LOW: usize = offset_of!(ShortEntry, DIR_FstClusLO);

/// The files of a volume in use, with their numbers and the directories in memory.
pub(super) struct Inodes {
    boot: Arc<Boot>,
    zone: Zone,
    numbers: Numbers,
    directories: Directories,
}

impl Inodes {
    pub(super) fn new(boot: &Arc<Boot>, zone: Zone) -> Self {
        let directories = Directories::new(Arc::clone(boot));
        Self { boot: Arc::clone(boot), zone, numbers: Numbers::new(), directories }
    }

    /// The numbers of the files.
    pub(super) fn numbers(&self) -> &Numbers {
        &self.numbers
    }

    /// The numbers of the files, to be changed.
    pub(super) fn numbers_mut(&mut self) -> &mut Numbers {
        &mut self.numbers
    }

    /// A directory in memory; its node must be loaded.
    pub(super) fn dir(&mut self, core: &mut Core, dir: Ino) -> Result<&mut Dir, FsError> {
        self.directories.get(core, dir)
    }

    /// Forgets the entries of a directory, if it is one.
    pub(super) fn forget_dir(&mut self, ino: Ino) {
        self.directories.forget(ino);
    }

    /// The slot of a name, short or long.
    pub(super) fn slot_of(
        &mut self,
        core: &mut Core,
        dir: Ino,
        name: &[u8],
    ) -> Result<Option<u32>, FsError> {
        self.directories.find(core, dir, name)
    }

    /// The file of a name, in memory, and its slot.
    pub(super) fn named(
        &mut self,
        core: &mut Core,
        clusters: &Clusters,
        dir: Ino,
        name: &[u8],
    ) -> Result<Option<(Ino, u32)>, FsError> {
        let Some(slot) = self.slot_of(core, dir, name)? else { return Ok(None) };
        let ino = self.numbers.at((dir, slot))?;
        self.hold(core, clusters, ino)?;
        Ok(Some((ino, slot)))
    }

    /// The sector of a slot of a directory, and the byte in it.
    pub(super) fn slot_place(
        &self,
        core: &mut Core,
        (dir, slot): (Ino, u32),
    ) -> Result<(BlockNo, usize), FsError> {
        if !core.nodes.contains_key(&dir) {
            return Err(gone(dir));
        }
        let chain = core.node(dir)?.map.chain.as_ref();
        let place = DirectoryLayout::new(&self.boot, chain).place(slot);
        place.ok_or_else(|| truncated(Location::of("directory").in_inode(dir)))
    }

    /// The place of a file's entry: none for the root, and for files without names.
    pub(super) fn entry_at(
        &mut self,
        core: &mut Core,
        clusters: &Clusters,
        ino: Ino,
    ) -> Result<Option<(BlockNo, usize)>, FsError> {
        let Some(place) = self.numbers.place(ino) else { return Ok(None) };
        self.hold(core, clusters, place.0)?;
        self.slot_place(core, place).map(Some)
    }

    /// The entry of a file.
    pub(super) fn entry(
        &mut self,
        core: &mut Core,
        clusters: &Clusters,
        ino: Ino,
    ) -> Result<ShortEntry, FsError> {
        let (sector, skip) = self.entry_at(core, clusters, ino)?.ok_or_else(|| gone(ino))?;
        let bytes = core.cache.blocks_mut().read(sector, skip, ENTRY_SIZE)?;
        parse(bytes, 0).ok_or_else(|| truncated(Location::of("directory entry").in_inode(ino)))
    }

    /// Brings a node into memory.
    pub(super) fn hold(
        &mut self,
        core: &mut Core,
        clusters: &Clusters,
        ino: Ino,
    ) -> Result<(), FsError> {
        if !core.nodes.contains_key(&ino) {
            let node = self.read(core, clusters, ino)?;
            core.nodes.insert(ino, node);
        }
        Ok(())
    }

    /// The node of a directory, in memory.
    pub(super) fn hold_dir(
        &mut self,
        core: &mut Core,
        clusters: &Clusters,
        dir: Ino,
    ) -> Result<(), FsError> {
        self.hold(core, clusters, dir)?;
        match core.node(dir)?.kind {
            FileKind::Directory => Ok(()),
            _ => Err(FsError::NotDirectory(format!("file {dir}"))),
        }
    }

    /// The node of a new file, which is not in memory yet.
    pub(super) fn fresh(&mut self, core: &Core, kind: FileKind) -> Result<Node, FsError> {
        let mut node = Node::empty(self.numbers.fresh()?, kind);
        let now = core.now();
        node.birth = Some(now);
        (node.mtime, node.ctime) = (self.zone.changed(now), self.zone.changed(now));
        node.atime = self.zone.accessed(now);
        Ok(node)
    }

    /// A node from its entry.
    pub(super) fn read(
        &mut self,
        core: &mut Core,
        clusters: &Clusters,
        ino: Ino,
    ) -> Result<Node, FsError> {
        if ino == ROOT {
            let first = self.boot.root_cluster;
            let mut node = Node::empty(ino, FileKind::Directory);
            node.perm = DIRECTORY;
            node.map = Map { first, chain: None, attr: attr::DIRECTORY };
            if first != 0 {
                node.map.chain = Some(self.follow(core, clusters, ino, first)?);
            }
            return self.count_links(core, node);
        }
        let entry = self.entry(core, clusters, ino)?;
        let kind = if entry.is_directory() { FileKind::Directory } else { FileKind::Regular };
        let mut node = Node::empty(ino, kind);
        let first = entry.first_cluster(self.boot.is_fat32());
        node.map = Map { first, chain: None, attr: entry.DIR_Attr };
        node.perm = if kind == FileKind::Directory { DIRECTORY } else { FILE };
        if entry.DIR_Attr & attr::READ_ONLY != 0 {
            node.perm &= !WRITE;
        }
        node.mtime = self.zone.moment(entry.modified());
        node.ctime = node.mtime;
        node.atime = self.zone.moment(entry.accessed());
        node.birth = entry.created().map(|created| self.zone.moment(created));
        if kind == FileKind::Directory {
            if !self.boot.is_cluster(first) {
                let place = Location::of("directory entry").in_inode(ino);
                return Err(invalid("DIR_FstClus", first.into(), place));
            }
            node.map.chain = Some(self.follow(core, clusters, ino, first)?);
            return self.count_links(core, node);
        }
        node.size = entry.DIR_FileSize.get().into();
        node.sectors = node.size.next_multiple_of(self.boot.cluster_bytes()) >> 9;
        (node.links, node.effective) = (1, 1);
        Ok(node)
    }

    /// Sets the length of a directory, and links as other formats count them: its name, its `.`,
    /// and the `..` of its subdirectories.
    fn count_links(&mut self, core: &mut Core, mut node: Node) -> Result<Node, FsError> {
        let inside = self.directories.scan(core, node.ino, node.map.chain.as_ref())?;
        let links = links_of(inside);
        (node.links, node.effective) = (links, links);
        let layout = DirectoryLayout::new(&self.boot, node.map.chain.as_ref());
        node.size = layout.sectors() * u64::from(self.boot.sector);
        node.sectors = node.size >> 9;
        Ok(node)
    }

    /// Counts the links of a directory of which a subdirectory was added or removed.
    pub(super) fn count_children(&mut self, core: &mut Core, dir: Ino) -> Result<(), FsError> {
        let links = links_of(self.dir(core, dir)?.subdirectories());
        let node = core.node(dir)?;
        (node.links, node.effective) = (links, links);
        Ok(())
    }

    /// Follows a chain to its end.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] if it is shared with another file, or has no valid end.
    fn follow(
        &mut self,
        core: &mut Core,
        clusters: &Clusters,
        ino: Ino,
        first: u32,
    ) -> Result<Chain, FsError> {
        let place = Location::of("directory entry").in_inode(ino);
        if !self.boot.is_cluster(first) {
            return Err(invalid("DIR_FstClus", first.into(), place));
        }
        if clusters.is_followed(first) || !self.numbers.claim(first, ino) {
            return Err(invalid("cluster of another file too", first.into(), place));
        }
        let followed = self.follow_from(core, clusters, ino, first);
        if followed.is_err() {
            // A free cluster may be another file's later.
            self.numbers.disclaim(first);
        }
        followed
    }

    fn follow_from(
        &self,
        core: &mut Core,
        clusters: &Clusters,
        ino: Ino,
        first: u32,
    ) -> Result<Chain, FsError> {
        let place = Location::of("directory entry").in_inode(ino);
        let mut chain = Chain::default();
        let mut at = first;
        loop {
            let link = clusters.link(core, at)?;
            if let Link::Free | Link::Bad | Link::Wrong(_) = link {
                let place = entry_place(&self.boot, self.boot.active, at).in_inode(ino);
                return Err(invalid("FAT entry of a chain", at.into(), place));
            }
            chain.push(at, 1);
            if chain.len() > self.boot.clusters {
                return Err(FsError::corrupt(Corruption::Cycle, place));
            }
            match link {
                Link::Next(next) => at = next,
                _ => return Ok(chain),
            }
        }
    }

    /// Brings the chain of a node into memory; it is as long as the file's size needs.
    pub(super) fn chain<'a>(
        &mut self,
        core: &'a mut Core,
        clusters: &Clusters,
        ino: Ino,
    ) -> Result<&'a mut Chain, FsError> {
        let node = core.node(ino)?;
        if node.map.chain.is_none() {
            let (first, size) = (node.map.first, node.size);
            let chain = match first {
                0 => Chain::default(),
                first => self.follow(core, clusters, ino, first)?,
            };
            if u64::from(chain.len()) * self.boot.cluster_bytes() < size {
                let place = Location::of("file").in_inode(ino);
                return Err(FsError::corrupt(Corruption::Truncated, place));
            }
            core.node(ino)?.map.chain = Some(chain);
        }
        Ok(core.node(ino)?.map.chain.get_or_insert_with(Chain::default))
    }

    /// All sectors of a file.
    pub(super) fn all_runs(
        &mut self,
        core: &mut Core,
        clusters: &Clusters,
        ino: Ino,
    ) -> Result<Vec<Extent>, FsError> {
        let runs: Vec<Extent> = self.chain(core, clusters, ino)?.runs().collect();
        Ok(runs.into_iter().map(|run| self.boot.sectors_of(run)).collect())
    }

    /// Writes times and attributes, for which no change waits.
    pub(super) fn put_attributes(
        &mut self,
        core: &mut Core,
        clusters: &Clusters,
        ino: Ino,
    ) -> Result<(), FsError> {
        let zone = self.zone;
        let node = core.node(ino)?;
        node.mtime = zone.changed(node.mtime);
        node.ctime = node.mtime;
        node.atime = zone.accessed(node.atime);
        let read_only = node.perm & WRITE == 0;
        node.map.attr = match (read_only, node.kind) {
            (true, _) => node.map.attr | attr::READ_ONLY,
            (false, _) => node.map.attr & !attr::READ_ONLY,
        };
        let bits = [node.map.attr];
        let (written, accessed) = (zone.stamp(node.mtime), zone.stamp(node.atime));
        let [date, time] = [written.date.to_le_bytes(), written.time.to_le_bytes()];
        let written = [time, date].concat();
        let accessed = accessed.date.to_le_bytes();
        let Some((sector, skip)) = self.entry_at(core, clusters, ino)? else { return Ok(()) };
        let at = |field: usize| byte(skip + field);
        let pieces = [
            Piece { offset: at(ATTR), bytes: &bits },
            Piece { offset: at(ACCESSED), bytes: &accessed },
            Piece { offset: at(WRITTEN), bytes: &written },
        ];
        core.cache.changes().change(sector, &pieces, Role::Attributes, &[])?;
        Ok(())
    }

    /// Writes a file's first cluster and length, after the changes that must be on the disk before.
    /// Does nothing for a file without a name.
    pub(super) fn put_pointer(
        &mut self,
        core: &mut Core,
        clusters: &Clusters,
        ino: Ino,
        role: Role,
        after: &[ChangeId],
    ) -> Result<ChangeId, FsError> {
        let node = core.node(ino)?;
        let (first, is_dir) = (node.map.first, node.kind == FileKind::Directory);
        debug_assert!(is_dir || node.size <= MOST_BYTES, "{} bytes", node.size);
        debug_assert!(first != 0 || is_dir || node.size == 0, "contents have clusters");
        let size = if is_dir { 0 } else { node.size };
        // The length of a file was limited before.
        let size = u32::try_from(size).unwrap_or(u32::MAX).to_le_bytes();
        let low = low16(first).to_le_bytes();
        let tail = [low.as_slice(), size.as_slice()].concat();
        let high = low16(first >> 16).to_le_bytes();
        let Some((sector, skip)) = self.entry_at(core, clusters, ino)? else {
            return Ok(ChangeId::COMMITTED);
        };
        let at = |field: usize| byte(skip + field);
        let tail = Piece { offset: at(LOW), bytes: &tail };
        let high = Piece { offset: at(HIGH), bytes: &high };
        // These bytes of FAT12 and FAT16 have another meaning elsewhere.
        let pieces: &[Piece<'_>] = if self.boot.is_fat32() { &[high, tail] } else { &[tail] };
        let id = core.cache.changes().change(sector, pieces, role, after)?;
        core.node(ino)?.pending.sized = id;
        Ok(id)
    }

    /// The entry of a file by its node, under a short name.
    pub(super) fn encode(&self, node: &Node, short: [u8; 11]) -> [u8; ENTRY_SIZE] {
        let (written, accessed) = (self.zone.stamp(node.mtime), self.zone.stamp(node.atime));
        let created = node.birth.map(|birth| self.zone.stamp(birth)).unwrap_or_default();
        let size = if node.kind == FileKind::Directory { 0 } else { node.size };
        let first = node.map.first;
        let entry = ShortEntry {
            DIR_Name: short,
            DIR_Attr: node.map.attr,
            DIR_NTRes: 0,
            DIR_CrtTimeTenth: created.fine,
            DIR_CrtTime: created.time.into(),
            DIR_CrtDate: created.date.into(),
            DIR_LstAccDate: accessed.date.into(),
            DIR_FstClusHI: low16(first >> 16).into(),
            DIR_WrtTime: written.time.into(),
            DIR_WrtDate: written.date.into(),
            DIR_FstClusLO: low16(first).into(),
            DIR_FileSize: u32::try_from(size).unwrap_or(u32::MAX).into(),
        };
        let mut bytes = [0; ENTRY_SIZE];
        bytes.iter_mut().zip(entry.as_bytes()).for_each(|(to, &from)| *to = from);
        bytes
    }
}

/// The links of a directory with so many subdirectories, as far as they can be told: a root of
/// 65,536 of them has more.
fn links_of(subdirectories: u32) -> u16 {
    u16::try_from(subdirectories + 2).unwrap_or(u16::MAX)
}
