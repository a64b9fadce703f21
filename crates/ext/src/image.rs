//! An open image, as the rest of seekless sees it.

use crate::dir::Directory;
use crate::features::{self, Features};
use crate::inline;
use crate::inode::Inode;
use crate::journal;
use crate::ondisk::{compat, flags, special};
use crate::superblock::Super;
use crate::volume::Volume;
use seekless_cache::{Discipline, JournalMode};
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
use zerocopy::IntoBytes;

/// An open ext2, ext3 or ext4 image.
pub struct ExtImage {
    volume: Volume,
    geometry: Geometry,
}

impl ExtImage {
    /// Opens an image for reading.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] when its superblock or journal is not sound,
    /// [`FsError::Unsupported`] with the name of a feature that is not read.
    pub fn open(device: Arc<dyn BlockDevice>, options: OpenOptions) -> Result<Self, FsError> {
        let mut volume = Volume::open(device, options.ignore_checksums)?;
        let replayed = if options.skip_journal { None } else { journal::replay(&volume)? };
        if let Some(replayed) = replayed {
            volume = Volume::open(replayed.overlay, options.ignore_checksums)?;
        }
        let geometry = geometry(&volume);
        Ok(Self { volume, geometry })
    }

    /// The default discipline for changes of an image: that of ext3 and ext4 for one with a
    /// journal, that of FreeBSD's ext2fs for others.
    ///
    /// # Errors
    /// [`FsError::Corrupt`], [`FsError::Device`].
    pub fn discipline(device: &dyn BlockDevice) -> Result<Discipline, FsError> {
        let sb = Super::read(device, false)?;
        let ordered = Discipline::Journal(JournalMode::Ordered);
        let journalled = sb.has_compat(compat::HAS_JOURNAL);
        Ok(if journalled { ordered } else { Discipline::Normal })
    }

    /// The whole inode, as bytes of its table.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] when there is no such inode or its checksum is wrong.
    pub fn raw_inode(&self, ino: Ino) -> Result<Vec<u8>, FsError> {
        Ok(self.volume.inodes().read(ino)?.raw().to_vec())
    }

    /// The 1024 bytes of the primary superblock.
    #[must_use]
    pub fn superblock_bytes(&self) -> Vec<u8> {
        self.volume.sb.raw.as_bytes().to_vec()
    }

    /// A group's descriptor, as bytes of the table.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] when there is no such group.
    pub fn group_desc(&self, group: GroupNo) -> Result<Vec<u8>, FsError> {
        self.volume.descriptors().bytes(group).map(<[u8]>::to_vec)
    }

    /// Any block of the volume.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] when it lies outside the volume.
    pub fn read_block(&self, block: BlockNo) -> Result<Vec<u8>, FsError> {
        Ok(self.volume.block(block, Location::of("block"))?.to_vec())
    }

    /// The inodes of a group that are in use, in order, reserved ones included.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] when the inode bitmap cannot be trusted.
    pub fn allocated_inodes(&self, group: GroupNo) -> Result<Vec<Ino>, FsError> {
        self.volume.bitmaps().allocated_inodes(group)
    }

    /// Whether an inode is the volume's own: its journal, quota and orphan files, and others
    /// without a name.
    #[must_use]
    pub fn is_own(&self, ino: Ino) -> bool {
        self.volume.sb.is_own(ino)
    }

    pub(crate) fn volume(&self) -> &Volume {
        &self.volume
    }

    fn dir<'a>(&'a self, inode: &'a Inode) -> Directory<'a> {
        Directory::new(&self.volume, inode)
    }
}

fn geometry(volume: &Volume) -> Geometry {
    let sb = &volume.sb;
    let (free_blocks, free_inodes) = volume.bitmaps().free_totals();
    let label = &sb.raw.s_volume_name;
    let end = label.iter().position(|&byte| byte == 0).unwrap_or(label.len());
    Geometry {
        format: features::format_name(&sb.raw),
        block_size: sb.block_size,
        blocks: sb.blocks,
        free_blocks,
        blocks_per_group: u64::from(sb.blocks_per_group),
        first_block: sb.first_block,
        groups: sb.groups,
        inodes: sb.raw.s_inodes_count.get(),
        free_inodes,
        inodes_per_group: sb.inodes_per_group,
        inode_size: u32::from(sb.inode_size),
        cluster_blocks: sb.cluster_ratio,
        label: label.get(..end).unwrap_or_default().to_vec(),
        uuid: sb.raw.s_uuid,
        features: Features::of(&sb.raw).names(),
    }
}

impl Inspect for ExtImage {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn space(&self) -> Result<StatVfs, FsError> {
        let sb = &self.volume.sb;
        let mut fixed = sb.first_block.get();
        for number in 0..sb.groups {
            let group = self.volume.descriptors().read_checked(GroupNo::new(number))?;
            let own = self.volume.descriptors().metadata(&group);
            fixed += own.iter().map(|run| run.len).sum::<u64>();
        }
        let journal = sb.raw.s_journal_inum.get();
        if sb.has_compat(compat::HAS_JOURNAL) && journal != 0 {
            let len = self.attr(Ino::new(journal))?.size;
            fixed += (len / u64::from(sb.block_size)).min(sb.blocks);
        }
        let all = self.geometry.space();
        Ok(StatVfs {
            blocks: all.blocks - fixed.min(all.blocks),
            available: all.free - sb.unavailable_blocks().min(all.free),
            ..all
        })
    }

    fn root(&self) -> Ino {
        Ino::new(special::ROOT)
    }

    fn attr(&self, ino: Ino) -> Result<Attr, FsError> {
        let (inode, kind) = self.volume.inodes().read_live(ino)?;
        Ok(self.volume.inodes().attr(&inode, kind))
    }

    fn xattrs(&self, ino: Ino) -> Result<Vec<Xattr>, FsError> {
        let (inode, _) = self.volume.inodes().read_live(ino)?;
        self.volume.attributes().shown(&inode)
    }

    fn read_link(&self, ino: Ino) -> Result<Vec<u8>, FsError> {
        let (inode, kind) = self.volume.inodes().read_live(ino)?;
        if kind != FileKind::Symlink {
            return Err(FsError::Invalid(format!("inode {ino} is not a symlink")));
        }
        let limit = u64::from(self.volume.sb.block_size);
        if inode.len > limit {
            let place = Location::of("symlink").in_inode(ino);
            return Err(range("i_size", inode.len, limit, place));
        }
        let mut target = vec![0; index(inode.len)];
        if self.volume.inodes().is_fast_symlink(&inode) {
            let stored = &inode.core.i_block.0;
            let part = stored.get(..target.len()).ok_or_else(|| {
                let place = Location::of("symlink").in_inode(ino);
                range("i_size", inode.len, wide(stored.len()), place)
            })?;
            target.copy_from_slice(part);
        } else if inode.has_flag(flags::INLINE_DATA) {
            inline::find(&inode)?.read(&inode, 0, &mut target)?;
        } else {
            self.volume.maps().read_mapped(&inode, ByteLen::ZERO, &mut target)?;
        }
        Ok(target)
    }

    fn read(&self, ino: Ino, offset: ByteLen, buf: &mut [u8]) -> Result<usize, FsError> {
        let (inode, kind) = self.volume.inodes().read_live(ino)?;
        if kind != FileKind::Regular {
            return Err(FsError::Invalid(format!("inode {ino} is not a regular file")));
        }
        let left = inode.len.saturating_sub(offset.get());
        let len = index(left.min(wide(buf.len())));
        let Some(buf) = buf.get_mut(..len).filter(|buf| !buf.is_empty()) else { return Ok(0) };
        if inode.has_flag(flags::INLINE_DATA) {
            inline::find(&inode)?.read(&inode, offset.get(), buf)?;
        } else {
            self.volume.maps().read_mapped(&inode, offset, buf)?;
        }
        Ok(len)
    }

    fn read_seal(&self, ino: Ino, offset: ByteLen, buf: &mut [u8]) -> Result<(), FsError> {
        let (inode, kind) = self.volume.inodes().read_live(ino)?;
        if kind != FileKind::Regular || !inode.has_flag(flags::VERITY) {
            return Err(FsError::Invalid(format!("inode {ino} is not sealed by fs-verity")));
        }
        self.volume.maps().read_mapped(&inode, offset, buf)
    }

    fn lookup(&self, dir: Ino, name: &[u8]) -> Result<Option<Ino>, FsError> {
        let inode = self.volume.inodes().read_directory(dir)?;
        self.dir(&inode).lookup(name)
    }

    fn read_dir(
        &self,
        dir: Ino,
        after: u64,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<(), FsError> {
        let inode = self.volume.inodes().read_directory(dir)?;
        self.dir(&inode).read(after, visit)
    }

    fn block_map(&self, ino: Ino) -> Result<BlockMap, FsError> {
        let inode = self.volume.inodes().read(ino)?;
        let mut map = self.volume.maps().block_map(&inode)?;
        map.xattr_inodes = self.volume.attributes().value_inodes(&inode)?;
        Ok(map)
    }

    fn inode_location(&self, ino: Ino) -> Result<InodeLocation, FsError> {
        self.volume.inodes().location(ino)
    }

    fn lookup_blocks(&self, dir: Ino, name: &[u8]) -> Result<Vec<Lbn>, FsError> {
        let inode = self.volume.inodes().read_directory(dir)?;
        self.dir(&inode).lookup_blocks(name)
    }

    fn unindexed_blocks(&self, dir: Ino) -> Result<Option<Vec<Lbn>>, FsError> {
        let inode = self.volume.inodes().read_directory(dir)?;
        self.dir(&inode).unindexed_blocks()
    }

    fn listing_blocks(&self, dir: Ino) -> Result<Vec<Lbn>, FsError> {
        let inode = self.volume.inodes().read_directory(dir)?;
        self.dir(&inode).listing_blocks()
    }

    fn group(&self, group: GroupNo) -> Result<GroupSummary, FsError> {
        self.volume.bitmaps().group_summary(group)
    }

    fn contents(&self) -> Option<&dyn BlockDevice> {
        Some(self.volume.device().as_ref())
    }
}
