//! Names made and removed.

use super::FfsLive;
use super::actions::Action;
use super::directory::{Ids, NAME_MAX, Spot, first_unit};
use super::fault::Fault;
use super::node::{Node, flag, raw_device};
use super::reach::note_seen;
use crate::ondisk::{DIRECT, DIRECTORY_UNIT};
use crate::superblock::Format;
use seekless_cache::{ChangeId, Kind, Role};
use seekless_fs::field::{index, wide};
use seekless_fs::operate::{NewFile, Ownership};
use seekless_fs::{FileKind, FsError};
use seekless_placement::block::Wanted;
use seekless_units::{BlockNo, Extent, Ino};
use smallvec::SmallVec;

/// Most names of a file: what `di_nlink` can count.
pub(super) const LINK_MAX: u16 = 32767;
/// Most bytes of a symlink's target (`MAXPATHLEN`, its final zero left out).
const TARGET_MAX: usize = 1023;
/// Set-group-id.
const SETGID: u16 = 0o2000;

fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

pub(super) fn not_found(name: &[u8]) -> FsError {
    FsError::NotFound(text(name))
}

/// The kind of a new file.
fn kind_of(new: &NewFile<'_>) -> FileKind {
    match new {
        NewFile::Regular => FileKind::Regular,
        NewFile::Directory => FileKind::Directory,
        NewFile::Symlink(_) => FileKind::Symlink,
        NewFile::Device(kind, _) | NewFile::Special(kind) => *kind,
    }
}

/// What a new inode's contents are, and what they wait for.
#[derive(Default)]
struct Contents {
    run: Option<Extent>,
    after: Ids,
}

impl FfsLive {
    /// Refuses what cannot be a new name.
    pub(super) fn check_name(name: &[u8]) -> Result<(), FsError> {
        if name.len() > NAME_MAX {
            return Err(FsError::NameTooLong { len: name.len(), limit: NAME_MAX });
        }
        if name.is_empty() || name.contains(&b'/') || name.contains(&0) {
            return Err(FsError::Invalid(format!("{:?} is not a valid file name", text(name))));
        }
        Ok(())
    }

    /// A directory that names may be added to.
    pub(super) fn open_dir(&mut self, dir: Ino) -> Result<&mut Node, FsError> {
        let node = self.dir_node(dir)?;
        if node.effective == 0 {
            return Err(super::node::gone(dir));
        }
        if node.is(flag::IMMUTABLE) {
            return Err(FsError::NotPermitted(format!("inode {dir} is immutable")));
        }
        Ok(node)
    }

    /// A directory that names may be taken from.
    pub(super) fn open_dir_to_remove(&mut self, dir: Ino) -> Result<(), FsError> {
        if self.open_dir(dir)?.is(flag::APPEND) {
            return Err(FsError::NotPermitted(format!("inode {dir} can only be appended to")));
        }
        Ok(())
    }

    pub(super) fn make_file(
        &mut self,
        dir: Ino,
        name: &[u8],
        new: &NewFile<'_>,
        owner: Ownership,
    ) -> Result<Ino, FsError> {
        Self::check_name(name)?;
        let links = self.open_dir(dir)?.links;
        if self.find(dir, name)?.is_some() || matches!(name, b"." | b"..") {
            return Err(FsError::Exists(text(name)));
        }
        if matches!(new, NewFile::Directory) && links >= LINK_MAX {
            return Err(FsError::TooManyLinks(dir));
        }
        if let NewFile::Symlink(target) = new
            && (target.is_empty() || target.len() > TARGET_MAX)
        {
            return Err(FsError::NameTooLong { len: target.len(), limit: TARGET_MAX });
        }
        if let NewFile::Device(_, number) = new
            && self.sb.format == Format::Ufs1
            && u32::try_from(raw_device(*number)).is_err()
        {
            return Err(FsError::Invalid("the device numbers do not fit in UFS1".into()));
        }
        let spot = self.reserve(dir, name)?;
        let is_directory = matches!(new, NewFile::Directory);
        let (ino, bitmap) = self.take_inode(dir, name, is_directory)?;
        match self.make_inode(dir, ino, new, owner) {
            Ok(contents) => self.publish(dir, name, &spot, ino, bitmap, &contents)?,
            Err(error) => {
                self.nodes.remove(&ino);
                self.free_inode(ino, is_directory)?;
                return Err(error);
            }
        }
        Ok(ino)
    }

    /// The node of a new file, with its contents; nothing leads there yet.
    fn make_inode(
        &mut self,
        dir: Ino,
        ino: Ino,
        new: &NewFile<'_>,
        owner: Ownership,
    ) -> Result<Contents, FsError> {
        let generation = self.last_generation(ino)?.wrapping_add(1).max(1);
        let now = self.now();
        let parent = self.dir_node(dir)?;
        let (gid, handed_down) = match parent.perm & SETGID {
            0 => (owner.gid, 0),
            _ => (parent.gid, SETGID),
        };
        let depth = parent.depth.saturating_add(1);
        let kind = kind_of(new);
        let mut node = Node::empty(ino, kind);
        node.perm = owner.perm & 0o7777;
        (node.uid, node.gid) = (owner.uid, gid);
        (node.links, node.effective) = (1, 1);
        (node.atime, node.mtime, node.ctime) = (now, now, now);
        node.birth = (self.sb.format == Format::Ufs2).then_some(now);
        node.generation = generation;
        if kind == FileKind::Directory {
            node.perm |= handed_down;
            node.depth = depth;
            (node.links, node.effective) = (2, 2);
        }
        if let NewFile::Device(_, number) = new {
            node.direct = [0; DIRECT];
            if let Some(first) = node.direct.first_mut() {
                *first = raw_device(*number);
            }
        }
        self.nodes.insert(ino, node);
        match new {
            NewFile::Directory => {
                let order = self.sb.order;
                self.first_block(ino, DIRECTORY_UNIT, Role::DirectoryInit, |to| {
                    first_unit(order, ino, dir, to);
                })
            }
            NewFile::Symlink(target) => self.store_target(ino, target),
            _ => Ok(Contents::default()),
        }
    }

    fn store_target(&mut self, ino: Ino, target: &[u8]) -> Result<Contents, FsError> {
        let short = target.len() < index(self.sb.maxsymlinklen);
        if short {
            let node = self.node(ino)?;
            node.size = wide(target.len());
            node.target = Some(target.into());
            return Ok(Contents::default());
        }
        self.first_block(ino, target.len(), Role::Data, |to| {
            to.iter_mut().zip(target).for_each(|(to, &from)| *to = from);
        })
    }

    /// The first block of a new file, of `len` bytes.
    fn first_block(
        &mut self,
        ino: Ino,
        len: usize,
        role: Role,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<Contents, FsError> {
        let frags = self.frags(wide(len));
        let wanted = Wanted::Data { index: 0, previous: None, run_before: None };
        let (at, bitmap) = self.take_data(ino, 0, frags, wanted)?;
        let bytes = index(frags.saturating_mul(self.sb.fsize));
        let ((), data) = self.cache.fill(at, bytes, role, |to| {
            fill(to);
            Ok(())
        })?;
        let sectors = self.sectors(u64::from(frags));
        let node = self.node(ino)?;
        if let Some(first) = node.direct.first_mut() {
            *first = at.get();
        }
        (node.size, node.sectors) = (wide(len), sectors);
        let run = Extent::new(at, u64::from(frags));
        Ok(Contents { run: Some(run), after: SmallVec::from_slice(&[bitmap, data]) })
    }

    /// Lets a name lead to a new inode.
    fn publish(
        &mut self,
        dir: Ino,
        name: &[u8],
        spot: &Spot,
        ino: Ino,
        bitmap: ChangeId,
        contents: &Contents,
    ) -> Result<(), FsError> {
        debug_assert!(contents.run.is_none_or(|run| run.start != BlockNo::ZERO));
        let mut after = contents.after.clone();
        after.push(bitmap);
        let init = self.put_new(ino, &after)?;
        let kind = self.node(ino)?.kind;
        let init_first = self.unless(Fault::EntryBeforeInode, Some(init));
        let (role, after) = if kind == FileKind::Directory {
            let parent = self.dir_node(dir)?;
            parent.links = parent.links.saturating_add(1);
            parent.effective = parent.effective.saturating_add(1);
            let counted = self.put_links(dir)?;
            self.node(ino)?.parent_link = counted;
            let counted = self.unless(Fault::EntryBeforeParentLink, Some(counted));
            (Role::EntryAddDirectory, init_first.into_iter().chain(counted).collect::<Ids>())
        } else {
            (Role::EntryAdd, init_first.into_iter().collect())
        };
        let named = self.insert(dir, spot, name, (ino, kind), role, &after)?;
        self.note_name(ino, dir, &named)?;
        self.touch_dir(dir)
    }

    /// Remembers what must be on the disk for a file to have its latest name,
    /// besides what it needs for those it has.
    pub(super) fn note_name(&mut self, ino: Ino, dir: Ino, ids: &Ids) -> Result<(), FsError> {
        self.node(ino)?;
        let cache = &self.cache;
        let node = self.nodes.get_mut(&ino).ok_or_else(|| super::node::gone(ino))?;
        note_seen(&mut node.seen_in, dir);
        node.named_by.retain(|(_, id)| !cache.is_committed(*id));
        node.named_by.extend(ids.iter().map(|&id| (dir, id)));
        Ok(())
    }

    /// A directory's names have changed.
    pub(super) fn touch_dir(&mut self, dir: Ino) -> Result<(), FsError> {
        let now = self.now();
        let node = self.node(dir)?;
        (node.mtime, node.ctime) = (now, now);
        self.put_attributes(dir)
    }

    /// An inode has changed.
    pub(super) fn touch(&mut self, ino: Ino) -> Result<(), FsError> {
        let now = self.now();
        self.node(ino)?.ctime = now;
        self.put_attributes(ino)
    }

    /// Counts one name more, for those who look and on the disk.
    pub(super) fn raise_links(&mut self, ino: Ino) -> Result<ChangeId, FsError> {
        let node = self.node(ino)?;
        if node.links >= LINK_MAX {
            return Err(FsError::TooManyLinks(ino));
        }
        node.links = node.links.saturating_add(1);
        self.put_links(ino)
    }

    pub(super) fn link_file(&mut self, ino: Ino, dir: Ino, name: &[u8]) -> Result<(), FsError> {
        Self::check_name(name)?;
        self.open_dir(dir)?;
        let node = self.node(ino)?;
        if node.kind == FileKind::Directory || node.is(flag::IMMUTABLE | flag::APPEND) {
            return Err(FsError::NotPermitted(format!("inode {ino}")));
        }
        if node.effective == 0 {
            return Err(super::node::gone(ino));
        }
        if node.links >= LINK_MAX {
            return Err(FsError::TooManyLinks(ino));
        }
        let kind = node.kind;
        if self.find(dir, name)?.is_some() || matches!(name, b"." | b"..") {
            return Err(FsError::Exists(text(name)));
        }
        let spot = self.reserve(dir, name)?;
        let counted = self.raise_links(ino)?;
        let node = self.node(ino)?;
        node.effective = node.effective.saturating_add(1);
        let named = self.insert(dir, &spot, name, (ino, kind), Role::EntryAdd, &[counted])?;
        self.note_name(ino, dir, &named)?;
        self.touch(ino)?;
        self.touch_dir(dir)
    }

    /// A name that may be removed, and its inode.
    pub(super) fn removable(&mut self, dir: Ino, name: &[u8]) -> Result<(Ino, FileKind), FsError> {
        let slot = self.find(dir, name)?.ok_or_else(|| not_found(name))?;
        let node = self.node(slot.ino)?;
        if node.is(flag::IMMUTABLE | flag::APPEND | flag::NO_UNLINK | flag::SNAPSHOT) {
            return Err(FsError::NotPermitted(text(name)));
        }
        Ok((slot.ino, node.kind))
    }

    pub(super) fn unlink_file(&mut self, dir: Ino, name: &[u8]) -> Result<(), FsError> {
        self.open_dir_to_remove(dir)?;
        let (ino, kind) = self.removable(dir, name)?;
        if kind == FileKind::Directory {
            return Err(FsError::IsDirectory(text(name)));
        }
        let removed = self.remove(dir, name, &[])?;
        self.touch_dir(dir)?;
        self.lose_name(ino, removed)
    }

    /// A file has a name less; its count on the disk drops once that is so there.
    pub(super) fn lose_name(&mut self, ino: Ino, removed: Option<ChangeId>) -> Result<(), FsError> {
        let node = self.node(ino)?;
        node.effective = node.effective.saturating_sub(1);
        self.touch(ino)?;
        self.count_free(ino);
        match self.unless(Fault::LinksEarly, removed) {
            Some(id) => {
                self.cache.defer(&[id], Kind::DirRem, Action::DropLink(ino));
                Ok(())
            }
            None => self.drop_link(ino),
        }
    }

    pub(super) fn remove_dir(&mut self, dir: Ino, name: &[u8]) -> Result<(), FsError> {
        match name {
            b"." => return Err(FsError::Invalid("`.` cannot be removed".into())),
            b".." => return Err(FsError::NotEmpty(text(name))),
            _ => {}
        }
        self.open_dir_to_remove(dir)?;
        let (ino, kind) = self.removable(dir, name)?;
        if kind != FileKind::Directory {
            return Err(FsError::NotDirectory(text(name)));
        }
        if !self.is_empty_dir(ino)? {
            return Err(FsError::NotEmpty(text(name)));
        }
        // Names that went from it to elsewhere must be there first.
        let mut before = self.changes_in_dir(ino)?;
        before.extend(self.leaving(ino)?);
        let removed = self.remove(dir, name, &before)?;
        self.lose_dir(dir, ino, removed)?;
        self.touch_dir(dir)
    }

    /// What takes older names of a file from the disk, if they are still
    /// there. The last name of a directory goes after them: with one name alone
    /// `..` must not contradict it.
    pub(super) fn leaving(&mut self, ino: Ino) -> Result<Ids, FsError> {
        let cache = &self.cache;
        let node = self.nodes.get_mut(&ino).ok_or_else(|| super::node::gone(ino))?;
        node.leaving.retain(|id| !cache.is_committed(*id));
        Ok(node.leaving.iter().copied().collect())
    }

    /// Remembers what takes an older name of a file from the disk, which now has
    /// one in a directory.
    pub(super) fn note_leaving(&mut self, ino: Ino, to: Ino, by: ChangeId) -> Result<(), FsError> {
        self.leaving(ino)?;
        let node = self.node(ino)?;
        node.leaving.push(by);
        if node.kind == FileKind::Directory {
            self.arriving(to)?;
            self.node(to)?.arriving.push(by);
        }
        Ok(())
    }

    /// What takes the older names of directories from the disk that have come to
    /// be in this one: until then a check may take their names here for the older
    /// ones.
    pub(super) fn arriving(&mut self, dir: Ino) -> Result<Ids, FsError> {
        self.node(dir)?;
        let cache = &self.cache;
        let node = self.nodes.get_mut(&dir).ok_or_else(|| super::node::gone(dir))?;
        node.arriving.retain(|id| !cache.is_committed(*id));
        Ok(node.arriving.iter().copied().collect())
    }

    /// A directory has lost its name in its parent.
    pub(super) fn lose_dir(
        &mut self,
        parent: Ino,
        ino: Ino,
        removed: Option<ChangeId>,
    ) -> Result<(), FsError> {
        let above = self.node(parent)?;
        above.effective = above.effective.saturating_sub(1);
        self.node(ino)?.effective = 0;
        self.touch(ino)?;
        self.count_free(ino);
        match removed {
            Some(id) => {
                self.cache.defer(&[id], Kind::DirRem, Action::DropDirectory { ino, parent });
                Ok(())
            }
            None => self.drop_directory(ino, parent),
        }
    }
}
