//! An open image, as the rest of seekless sees it.

use crate::acl;
use crate::inode::Inode;
use crate::ondisk::{ROOT, check_hash, flag};
use crate::snapshot_map::SnapshotMap;
use crate::superblock::{Format, Order, Super};
use crate::volume::Volume;
use seekless_device::BlockDevice;
use seekless_fs::field::{index, range, wide};
use seekless_fs::format::OpenOptions;
use seekless_fs::operate::StatVfs;
use seekless_fs::{
    Attr, BlockMap, DirEntry, FileKind, FsError, Geometry, GroupSummary, InodeLocation, Inspect,
    Location, Xattr,
};
use seekless_units::{BlockNo, ByteLen, GroupNo, Ino, Lbn};
use std::ops::ControlFlow;
use std::sync::Arc;

/// An open UFS1 or UFS2 image. Block numbers are those of fragments.
pub struct FfsImage {
    volume: Volume,
    geometry: Geometry,
}

impl FfsImage {
    /// Opens an image for reading.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] when no sound superblock is found.
    pub fn open(device: Arc<dyn BlockDevice>, options: OpenOptions) -> Result<Self, FsError> {
        let volume = Volume::open(device, options.ignore_checksums)?;
        let geometry = geometry(&volume.sb);
        Ok(Self { volume, geometry })
    }

    /// Whether numbers begin with their highest byte.
    #[must_use]
    pub fn is_big_endian(&self) -> bool {
        self.volume.sb.order == Order::Big
    }

    /// The volume.
    pub(crate) fn volume(&self) -> &Volume {
        &self.volume
    }

    /// Whether an inode is a snapshot.
    ///
    /// # Errors
    /// [`FsError::Unsupported`] for one that the superblock does not list: its map is not complete.
    fn is_snapshot(&self, inode: &Inode) -> Result<bool, FsError> {
        let is_listed = || self.volume.sb.tuning.snapshots().any(|listed| listed == inode.ino);
        if inode.is_snapshot() && !is_listed() {
            let ino = inode.ino;
            return Err(FsError::Unsupported(format!(
                "contents of the snapshot of inode {ino}, which the superblock does not list: remove \
                 it, or check the volume"
            )));
        }
        Ok(inode.is_snapshot())
    }
}

fn geometry(sb: &Super) -> Geometry {
    let mut uuid = [0; 16];
    for (to, from) in uuid.iter_mut().zip(sb.id.iter().flat_map(|word| word.to_be_bytes())) {
        *to = from;
    }
    let free = sb.free_blocks.checked_mul(u64::from(sb.frag));
    let free = free.and_then(|frags| frags.checked_add(sb.free_frags));
    Geometry {
        format: if sb.format == Format::Ufs1 { "ufs1" } else { "ufs2" },
        block_size: sb.fsize,
        blocks: sb.size,
        free_blocks: free.map_or(sb.size, |frags| frags.min(sb.size)),
        blocks_per_group: u64::from(sb.fpg),
        first_block: BlockNo::ZERO,
        groups: sb.ncg,
        inodes: sb.inodes(),
        free_inodes: u32::try_from(sb.free_inodes).unwrap_or(u32::MAX),
        inodes_per_group: sb.ipg,
        inode_size: sb.inode_size(),
        cluster_blocks: 1,
        label: sb.label.clone(),
        uuid,
        features: features(sb),
    }
}

fn features(sb: &Super) -> Vec<String> {
    const FLAGS: [(u32, &str); 9] = [
        (flag::UNCLEAN, "unclean"),
        (flag::SOFT_UPDATES, "soft-updates"),
        (flag::NEEDS_FSCK, "needs-fsck"),
        (flag::JOURNALED_SOFT_UPDATES, "soft-update-journal"),
        (flag::ACLS, "acls"),
        (flag::MULTILABEL, "multilabel"),
        (flag::GJOURNAL, "gjournal"),
        (flag::NFS4_ACLS, "nfsv4acls"),
        (flag::TRIM, "trim"),
    ];
    let mut names = vec![format!("block-size={}", sb.bsize)];
    names.push(String::from(match sb.order {
        Order::Little => "little-endian",
        Order::Big => "big-endian",
    }));
    names.push(format!("superblock-at={}", sb.at));
    names.push(String::from(if sb.clean { "clean" } else { "not-clean" }));
    let set = FLAGS.iter().filter(|(bit, _)| sb.flags & bit != 0);
    names.extend(set.map(|(_, name)| (*name).to_string()));
    let hashes = [
        (check_hash::SUPERBLOCK, "superblock"),
        (check_hash::GROUP, "groups"),
        (check_hash::INODE, "inodes"),
    ];
    let kept: Vec<_> =
        hashes.iter().filter(|(bit, _)| sb.has_check_hash(*bit)).map(|(_, name)| *name).collect();
    match kept.len() {
        0 => {}
        3 => names.push("check-hashes".into()),
        _ => names.push(format!("check-hashes={}", kept.join(","))),
    }
    names
}

impl Inspect for FfsImage {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn space(&self) -> Result<StatVfs, FsError> {
        let (all, sb) = (self.geometry.space(), &self.volume.sb);
        Ok(StatVfs {
            blocks: sb.tuning.dsize,
            available: all.free - sb.kept_frags().min(all.free),
            file_block: sb.bsize,
            // The first two belong to no file.
            inodes: u64::from(sb.inodes().max(2) - 2),
            ..all
        })
    }

    fn root(&self) -> Ino {
        Ino::new(ROOT)
    }

    fn attr(&self, ino: Ino) -> Result<Attr, FsError> {
        let (inode, kind) = self.volume.live_inode(ino)?;
        Ok(inode.attr(kind))
    }

    fn xattrs(&self, ino: Ino) -> Result<Vec<Xattr>, FsError> {
        let (inode, _) = self.volume.live_inode(ino)?;
        self.volume.xattrs(&inode)
    }

    fn shown_xattrs(&self, ino: Ino) -> Result<Vec<Xattr>, FsError> {
        let (inode, _) = self.volume.live_inode(ino)?;
        let place = Location::of("ACL").in_inode(ino);
        acl::shown(&self.volume.sb, self.volume.xattrs(&inode)?, inode.mode(), place)
    }

    fn read_link(&self, ino: Ino) -> Result<Vec<u8>, FsError> {
        let (inode, kind) = self.volume.live_inode(ino)?;
        if kind != FileKind::Symlink {
            return Err(FsError::Invalid(format!("inode {ino} is not a symlink")));
        }
        let limit = u64::from(self.volume.sb.bsize);
        let place = Location::of("symlink").in_inode(ino);
        if inode.len > limit {
            return Err(range("di_size", inode.len, limit, place));
        }
        if let Some(target) = inode.short_target(&self.volume.sb) {
            return Ok(target?.to_vec());
        }
        let mut target = vec![0; index(inode.len)];
        self.volume.read_mapped(&inode, ByteLen::ZERO, &mut target)?;
        Ok(target)
    }

    fn read(&self, ino: Ino, offset: ByteLen, buf: &mut [u8]) -> Result<usize, FsError> {
        let (inode, kind) = self.volume.live_inode(ino)?;
        if kind != FileKind::Regular {
            return Err(FsError::Invalid(format!("inode {ino} is not a regular file")));
        }
        let is_snapshot = self.is_snapshot(&inode)?;
        let Some(left) = inode.len.checked_sub(offset.get()) else { return Ok(0) };
        let len = index(left.min(wide(buf.len())));
        let Some(buf) = buf.get_mut(..len).filter(|buf| !buf.is_empty()) else { return Ok(0) };
        match is_snapshot {
            true => SnapshotMap::new(&self.volume, &inode).read(offset, buf)?,
            false => self.volume.read_mapped(&inode, offset, buf)?,
        }
        Ok(len)
    }

    fn lookup(&self, dir: Ino, name: &[u8]) -> Result<Option<Ino>, FsError> {
        let inode = self.volume.dir_inode(dir)?;
        Ok(self.volume.find(&inode, name)?.map(|(ino, _)| ino))
    }

    fn read_dir(
        &self,
        dir: Ino,
        after: u64,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<(), FsError> {
        let inode = self.volume.dir_inode(dir)?;
        self.volume.read_entries(&inode, after, visit)
    }

    fn block_map(&self, ino: Ino) -> Result<BlockMap, FsError> {
        let (inode, kind) = self.volume.live_inode(ino)?;
        let in_blocks = match kind {
            FileKind::Regular | FileKind::Directory => true,
            FileKind::Symlink => inode.short_target(&self.volume.sb).is_none(),
            _ => false,
        };
        if in_blocks { self.volume.block_map(&inode) } else { Ok(BlockMap::default()) }
    }

    fn contents_map(&self, ino: Ino) -> Result<BlockMap, FsError> {
        let map = self.block_map(ino)?;
        let (inode, _) = self.volume.live_inode(ino)?;
        match self.is_snapshot(&inode)? {
            true => SnapshotMap::new(&self.volume, &inode).contents(map),
            false => Ok(map),
        }
    }

    fn inode_location(&self, ino: Ino) -> Result<InodeLocation, FsError> {
        self.volume.inode_location(ino)
    }

    fn lookup_blocks(&self, dir: Ino, name: &[u8]) -> Result<Vec<Lbn>, FsError> {
        let inode = self.volume.dir_inode(dir)?;
        let end = self.volume.find(&inode, name)?.map_or(inode.len, |(_, end)| end);
        self.volume.fragments(&inode, end)
    }

    fn unindexed_blocks(&self, dir: Ino) -> Result<Option<Vec<Lbn>>, FsError> {
        self.listing_blocks(dir).map(Some)
    }

    fn listing_blocks(&self, dir: Ino) -> Result<Vec<Lbn>, FsError> {
        let inode = self.volume.dir_inode(dir)?;
        self.volume.fragments(&inode, inode.len)
    }

    fn group(&self, group: GroupNo) -> Result<GroupSummary, FsError> {
        self.volume.group_summary(group)
    }

    fn contents(&self) -> Option<&dyn BlockDevice> {
        Some(self.volume.device().as_ref())
    }
}
