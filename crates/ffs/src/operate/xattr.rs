//! Extended attributes of UFS2: a list in up to two blocks of the inode's own, rewritten with every
//! change.

use super::Ffs;
use super::map::Core;
use super::map::Node;
use crate::acl;
use crate::superblock::{Format, Super};
use crate::xattr::{decode_attributes, encode_attribute};
use seekless_cache::{ChangeId, Kind, Role};
use seekless_fs::acl::AclKind;
use seekless_fs::field::{byte, index, wide};
use seekless_fs::operate::XattrMode;
use seekless_fs::{FsError, Location, Xattr};
use seekless_live::{Part, Table, change_list};
use seekless_placement::block::Wanted;
use seekless_units::{Extent, Ino};

/// The name spaces of users and of the system, in `ea_namespace`.
const USER: u8 = 1;
const SYSTEM: u8 = 2;

fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

/// Refuses attributes that cannot be set: name spaces other than the users' have meanings of their
/// own in UFS2.
fn check_name(name: &[u8]) -> Result<(), FsError> {
    let bare = name.strip_prefix(b"user.").filter(|bare| !bare.is_empty());
    let bare = bare.ok_or_else(|| FsError::Unsupported(format!("attribute {}", shown(name))))?;
    if bare.len() > 254 {
        return Err(FsError::NameTooLong { len: bare.len(), limit: 254 });
    }
    Ok(())
}

/// Fragments of a list of `len` bytes, all but the last block whole.
fn area_frags(sb: &Super, len: usize) -> u64 {
    let len = wide(len);
    let bsize = u64::from(sb.bsize);
    len / bsize * u64::from(sb.frag) + u64::from(sb.frags(len % bsize))
}

impl Ffs {
    /// The runs of a file's attributes, in order.
    pub(super) fn ext_runs(&mut self, core: &mut Core, ino: Ino) -> Result<Vec<Extent>, FsError> {
        let bsize = u64::from(self.sb.bsize);
        let node: &Node = core.node(ino)?;
        let (mut left, numbers) = (u64::from(node.map.ext_size), node.map.ext);
        let mut runs = Vec::new();
        for number in numbers {
            let frags = self.sb.frags(left.min(bsize));
            if number != 0 && frags > 0 {
                let at = self.allocator.check_run(ino, number, frags)?;
                runs.push(Extent::new(at, u64::from(frags)));
            }
            left -= left.min(bsize);
        }
        Ok(runs)
    }

    /// A file's attributes in Linux' form.
    pub(super) fn shown_xattrs(
        &mut self,
        core: &mut Core,
        ino: Ino,
    ) -> Result<Vec<Xattr>, FsError> {
        let all = self.read_xattrs(core, ino)?;
        let place = Location::of("ACL").in_inode(ino);
        acl::shown(&self.sb, all, core.node(ino)?.perm, place)
    }

    fn read_xattrs(&mut self, core: &mut Core, ino: Ino) -> Result<Vec<Xattr>, FsError> {
        let size = core.node(ino)?.map.ext_size;
        let mut bytes = vec![0; index(size)];
        let runs = self.ext_runs(core, ino)?;
        for (part, run) in bytes.chunks_mut(index(self.sb.bsize)).zip(runs) {
            core.cache.blocks_mut().read_run(run.start, 0, part)?;
        }
        let place = Location::of("extended attribute").in_inode(ino);
        decode_attributes(self.sb.order, &bytes, place)
    }

    pub(super) fn change_xattr(
        &mut self,
        core: &mut Core,
        ino: Ino,
        name: &[u8],
        value: Option<&[u8]>,
        mode: XattrMode,
    ) -> Result<(), FsError> {
        if self.sb.format == Format::Ufs1 {
            return Err(FsError::Unsupported("extended attributes in UFS1".into()));
        }
        let mut all = self.read_xattrs(core, ino)?;
        match AclKind::of(name).filter(|_| self.sb.keeps_acls()) {
            Some(kind) => {
                let name = [b"system.", acl::stored_name(kind)].concat();
                let value = value.map(|value| acl::stored(self.sb.order, value)).transpose()?;
                change_list(&mut all, &name, value.as_deref(), mode)?;
            }
            None => {
                check_name(name)?;
                change_list(&mut all, name, value, mode)?;
            }
        }
        let mut area = Vec::new();
        for xattr in &all {
            let (space, name) = match xattr.name.strip_prefix(b"user.") {
                Some(name) => (USER, name),
                None => (SYSTEM, xattr.name.strip_prefix(b"system.").unwrap_or(&xattr.name)),
            };
            encode_attribute(self.sb.order, space, name, &xattr.value, &mut area);
        }
        self.store_area(core, ino, &area)
    }

    /// Writes the list to new blocks; the old ones are freed once the inode leads to the new ones.
    fn store_area(&mut self, core: &mut Core, ino: Ino, area: &[u8]) -> Result<(), FsError> {
        let bsize = index(self.sb.bsize);
        if area.len() > bsize * 2 {
            return Err(FsError::NoSpace("attributes longer than two blocks".into()));
        }
        let old = self.ext_runs(core, ino)?;
        let frags = |len: usize| area_frags(&self.sb, len);
        let had = old.iter().map(|run| run.len).sum();
        core.admit(ino, self.sb.sectors(frags(area.len()).saturating_sub(had)))?;
        let mut after: Vec<ChangeId> = Vec::new();
        let mut new: Vec<Extent> = Vec::new();
        for part in area.chunks(bsize) {
            let frags = self.sb.frags(wide(part.len()));
            let wanted = Wanted::Data { index: 0, previous: None, run_before: None };
            let (at, bitmap) = match self.allocator.take_data(core, ino, 0, frags, wanted) {
                Ok(taken) => taken,
                Err(error) => {
                    for &run in &new {
                        core.cache.changes().forget(run, ChangeId::COMMITTED);
                    }
                    self.copies.release(&mut self.allocator, core, &new)?;
                    return Err(error);
                }
            };
            let len = index(frags * self.sb.fsize);
            let ((), data) = core.cache.changes().fill(at, len, Role::AttributesInit, |to| {
                to.iter_mut().zip(part).for_each(|(to, &from)| *to = from);
                Ok(())
            })?;
            new.push(Extent::new(at, u64::from(frags)));
            after.extend([bitmap, data]);
        }
        debug_assert_eq!(new.len(), area.len().div_ceil(bsize), "each block has its place");
        let count = |runs: &[Extent]| runs.iter().map(|run| run.len).sum();
        let (gone, come) = (self.sb.sectors(count(&old)), self.sb.sectors(count(&new)));
        let node = core.node(ino)?;
        node.sectors = node.sectors.saturating_sub(gone) + come;
        node.map.ext_size = byte(area.len());
        let number = |at: usize| new.get(at).map_or(0, |run| run.start.get());
        node.map.ext = [number(0), number(1)];
        let changed = self.put_part(core, ino, Part::Map, Role::PointerMove, &after, None)?.id;
        core.defer_free(&[changed], Kind::FreeFragments, old);
        Ok(())
    }
}
