//! New files and directories.

use super::node::{DIRECTORY, FILE, WRITE, links_of};
use super::{Chain, Core, Fat, Map, Node};
use crate::ondisk::{self, ENTRY_SIZE, attr};
use seekless_cache::{Piece, Role};
use seekless_fs::field::byte;
use seekless_fs::operate::{NewFile, Ownership};
use seekless_fs::{FileKind, FsError};
use seekless_live::Ids;
use seekless_units::Ino;

pub(super) fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

impl Fat {
    /// Makes a file. Its name may be written before anything else: an empty file has no clusters.
    pub(super) fn make(
        &mut self,
        core: &mut Core,
        dir: Ino,
        name: &[u8],
        new: &NewFile<'_>,
        owner: Ownership,
    ) -> Result<Ino, FsError> {
        let is_dir = match new {
            NewFile::Regular => false,
            NewFile::Directory => true,
            NewFile::Symlink(_) => return Err(not_kept("symbolic links")),
            NewFile::Device(..) | NewFile::Special(_) => {
                return Err(not_kept("device nodes, pipes and sockets"));
            }
        };
        self.open_dir(core, dir)?;
        if matches!(name, b"." | b"..") || self.slot_of(core, dir, name)?.is_some() {
            return Err(FsError::Exists(text(name)));
        }
        let named = self.name_file(core, dir, name)?;
        let start = self.find_slots(core, dir, named.slots(), None)?;
        let ino = self.numbers.fresh()?;
        let kind = if is_dir { FileKind::Directory } else { FileKind::Regular };
        let mut node = Node::empty(ino, kind);
        let now = core.now();
        node.birth = Some(now);
        (node.mtime, node.ctime) = (self.zone.changed(now), self.zone.changed(now));
        node.atime = self.zone.accessed(now);
        (node.links, node.effective) = (1, 1);
        node.perm = FILE;
        node.map = Map { first: 0, chain: Some(Chain::default()), attr: attr::ARCHIVE };
        let mut after = Ids::new();
        if is_dir {
            node.perm = DIRECTORY;
            node.map.attr = attr::DIRECTORY;
            (node.links, node.effective) = (2, 2);
            after = self.first_cluster(core, dir, &mut node)?;
        } else if owner.perm & WRITE == 0 {
            node.perm &= !WRITE;
            node.map.attr |= attr::READ_ONLY;
        }
        let slot = named.last_slot(start);
        let known = named.known(start, is_dir);
        after.extend(self.departures(core, dir, &known));
        let entry = self.encode(&node, named.short);
        let role = if is_dir { Role::EntryAddDirectory } else { Role::EntryAdd };
        let id = self.add_entry(core, (dir, start), (&named, &entry), role, &after, None)?;
        node.pending.sized = id;
        if let Some(chain) = node.map.chain.as_ref().filter(|_| is_dir) {
            self.note_unnamed(core, id, &chain.runs);
        }
        let first = node.map.first;
        debug_assert!(!core.nodes.contains_key(&ino), "number {ino} is given once");
        core.nodes.insert(ino, node);
        let is_new = self.numbers.claim(first, ino);
        debug_assert!(is_new, "cluster {first} begins one file");
        self.enter(core, dir, slot, named.slots(), known)?;
        self.numbers.settle(ino, (dir, slot));
        if is_dir {
            self.count_children(core, dir)?;
        }
        self.touch_dir(core, dir)?;
        Ok(ino)
    }

    /// The first cluster of a new directory: `.` and `..`, and its entry in the FAT. The returned
    /// changes must be on the disk before its name.
    fn first_cluster(
        &mut self,
        core: &mut Core,
        parent: Ino,
        node: &mut Node,
    ) -> Result<Ids, FsError> {
        let taken = self.take(None, 1)?;
        let first = taken.at(0).map_or(0, |(cluster, _)| cluster);
        debug_assert!(self.boot().is_cluster(first), "a directory has a cluster");
        let mut ids = self.fill_clusters(core, &taken, ondisk::first::END)?;
        node.map.first = first;
        node.size = self.boot().cluster_bytes();
        node.sectors = node.size >> 9;
        let own = self.encode(node, *b".          ");
        let mut above = Node::empty(node.ino, FileKind::Directory);
        (above.mtime, above.atime, above.birth) = (node.mtime, node.atime, node.birth);
        above.map = Map { first: self.named_cluster(core, parent)?, ..node.map.clone() };
        let above = self.encode(&above, *b"..         ");
        let pieces =
            [Piece { offset: 0, bytes: &own }, Piece { offset: byte(ENTRY_SIZE), bytes: &above }];
        let sector = self.boot().sector_of(first);
        ids.push(core.cache.changes().change(sector, &pieces, Role::DirectoryInit, &[])?);
        ids.extend(self.put_chain(core, &taken)?);
        node.map.chain = Some(taken);
        Ok(ids)
    }

    /// The cluster in a `..` that leads to a directory: 0 for the root.
    pub(super) fn named_cluster(&self, core: &mut Core, dir: Ino) -> Result<u32, FsError> {
        let is_root = dir == crate::files::ROOT;
        Ok(if is_root { 0 } else { core.node(dir)?.map.first })
    }

    /// Loads a directory whose names are to be changed.
    pub(super) fn open_dir(&mut self, core: &mut Core, dir: Ino) -> Result<(), FsError> {
        self.hold_dir(core, dir)?;
        if core.node(dir)?.effective == 0 {
            return Err(seekless_live::gone(dir));
        }
        Ok(())
    }

    /// Enters a file in slots of a directory.
    pub(super) fn enter(
        &mut self,
        core: &mut Core,
        dir: Ino,
        slot: u32,
        count: u32,
        known: super::directory::Known,
    ) -> Result<(), FsError> {
        let start = known.start;
        let kept = self.dir(core, dir)?;
        kept.use_slots(start, count);
        kept.enter(slot, known);
        Ok(())
    }

    /// Counts the links of a directory of which a subdirectory was added or removed.
    pub(super) fn count_children(&mut self, core: &mut Core, dir: Ino) -> Result<(), FsError> {
        let links = links_of(self.dir(core, dir)?.subdirectories);
        let node = core.node(dir)?;
        (node.links, node.effective) = (links, links);
        Ok(())
    }

    /// Notes that a directory's names have changed.
    pub(super) fn touch_dir(&mut self, core: &mut Core, dir: Ino) -> Result<(), FsError> {
        let now = core.now();
        core.node(dir)?.mtime = now;
        self.put_rest(core, dir)
    }
}

fn not_kept(what: &str) -> FsError {
    FsError::NotPermitted(format!("FAT has no {what}"))
}
