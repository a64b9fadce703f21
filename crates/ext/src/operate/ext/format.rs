//! The format's answers to the operations on a file system in use.

use super::Ext;
use crate::ondisk::{DEFAULT_DISCARD, flags, ro_compat};
use crate::operate::attributes::Attributes;
use crate::operate::contents::{FileContents, unnoted};
use crate::operate::extents::Tree;
use crate::operate::inline::{InlineContents, is_inline};
use crate::operate::inline_names::InlineNames;
use crate::operate::map::{Core, Map, Node};
use crate::operate::node::{representable, restrictions};
use crate::operate::{LiveOptions, pieces};
use seekless_cache::{Config, Role};
use seekless_device::{BlockDevice, Clock};
use seekless_fs::operate::{StatVfs, XattrMode};
use seekless_fs::{FileKind, FsError, Mapping, Timestamp, Xattr, inode_flag};
use seekless_live::{
    BlockState, CountLast, Cut, DataArea, DelayedAllocation, Format, Ids, InlineData, InodeNames,
    Limits, ListingKey, NamePlace, Named, OrderedLinks, OrphanList, Part, Progress, Table, gone,
};
use seekless_units::{BlockNo, Extent, Ino};
use std::sync::Arc;

impl Named for Ext {
    type Names = InodeNames;
}

impl OrderedLinks for Ext {
    type Order = CountLast;
}

impl Format for Ext {
    type Map = Map;
    type Options = LiveOptions;
    type DelayedAllocation = Self;
    type InlineData = Self;
    type OrphanList = Self;
    type Recovery = Self;

    fn delayed_allocation(&mut self) -> Option<&mut Self> {
        Some(self)
    }

    fn inline_data(&mut self) -> Option<&mut Self> {
        Some(self)
    }

    fn orphan_list(&mut self) -> Option<&mut Self> {
        Some(self)
    }

    fn recovery(&mut self) -> Option<&mut Self> {
        (self.progress != Progress::None).then_some(self)
    }

    fn open(
        device: Arc<dyn BlockDevice>,
        clock: Arc<dyn Clock>,
        config: Config,
        options: LiveOptions,
    ) -> Result<(Self, Core), FsError> {
        Self::open_image(device, clock, config, options)
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn mark(&mut self, core: &mut Core, close: bool) -> Result<(), FsError> {
        let groups = self.maps.free_space().groups().summaries();
        let features = |features| self.orphans.noted_features(features, close);
        self.superblock.mark(core, groups, features, (self.progress, close))
    }

    fn note_failure(&mut self, core: &mut Core, error: &FsError) -> Result<(), FsError> {
        self.superblock.note_error(core, error)
    }

    fn put_summaries(&mut self, core: &mut Core) -> Result<(), FsError> {
        self.maps.space().give_back(core)?;
        self.maps.space().groups_mut().write_descriptors(core)
    }

    fn space(&self, core: &Core) -> StatVfs {
        let space = self.maps.free_space();
        let groups = space.groups().summaries();
        let free = groups.free_frags() + core.pending.blocks;
        // As a mount counts them: without the blocks that will map them.
        let free = free.saturating_sub(core.delayed.blocks());
        let sb = self.layout.sb();
        let fixed = self.layout.metadata_blocks();
        StatVfs {
            block_size: sb.block_size,
            file_block: sb.block_size,
            blocks: sb.blocks.saturating_sub(fixed + sb.first_block.get()),
            free,
            available: free.saturating_sub(sb.unavailable_blocks()),
            inodes: u64::from(sb.raw.s_inodes_count.get()),
            free_inodes: groups.totals().nifree + core.pending.inodes,
            name_max: u32::try_from(self.limits.name_max).unwrap_or(255),
        }
    }

    fn load(&mut self, core: &mut Core, ino: Ino) -> Result<Node, FsError> {
        if !self.maps.free_space().groups().is_in_use(core, ino)? {
            return Err(gone(ino));
        }
        self.maps.tables().load(core, ino)
    }

    fn put_attributes(&mut self, core: &mut Core, ino: Ino) -> Result<(), FsError> {
        self.maps.tables().put_rest(core, ino)
    }

    fn shown_flags(&self, node: &Node) -> u32 {
        node.flags
    }

    /// As `ext4_mask_flags` has it for other files than directories.
    fn settable_flags(&self, kind: FileKind) -> u32 {
        let any = inode_flag::NODUMP | inode_flag::NOATIME;
        match kind {
            FileKind::Directory => {
                any | inode_flag::IMMUTABLE | inode_flag::APPEND | inode_flag::TOPDIR
            }
            FileKind::Regular => any | inode_flag::IMMUTABLE | inode_flag::APPEND,
            _ => any,
        }
    }

    fn set_flags(&self, node: &mut Node, flags: u32) {
        let settable = self.settable_flags(node.kind);
        node.flags = node.flags & !settable | flags & settable;
        node.restrictions = restrictions(node.flags);
    }

    fn shown_sectors(&self, node: &Node) -> u64 {
        // A mount counts a file's inline data as if it had blocks.
        let is_inline = node.flags & flags::INLINE_DATA != 0 && node.kind == FileKind::Regular;
        let inside = if is_inline { node.size.div_ceil(512) } else { 0 };
        node.sectors + inside
    }

    fn representable(&self, time: Timestamp) -> Timestamp {
        representable(self.maps.tables().has_birth(), time)
    }

    fn place_name(&mut self, core: &mut Core, dir: Ino, name: &[u8]) -> Result<NamePlace, FsError> {
        if is_inline(core, dir)? {
            return InlineNames::of(&mut self.maps, core, self.entries, dir).name_place(name);
        }
        self.htree(core, dir).name_place(name)
    }

    fn closing(&mut self) {
        self.maps.space().release_all();
    }

    fn released(&mut self, ino: Ino) {
        self.maps.space().forget(ino);
    }

    fn goes_uncounted(&self, node: &Node) -> bool {
        let is_directory = node.kind == FileKind::Directory;
        let has_many = node.links == 1 || node.flags & flags::INDEX != 0;
        is_directory && has_many && self.layout.sb().has_ro_compat(ro_compat::DIR_NLINK)
    }

    fn lookup_block(
        &mut self,
        core: &mut Core,
        ino: Ino,
        lbn: u64,
    ) -> Result<Option<BlockNo>, FsError> {
        FileContents::of(&mut self.maps, core, ino).lookup(lbn)
    }

    fn write_bytes(
        &mut self,
        core: &mut Core,
        ino: Ino,
        offset: u64,
        bytes: &[u8],
    ) -> Result<usize, FsError> {
        FileContents::of(&mut self.maps, core, ino).write(&mut self.superblock, offset, bytes)
    }

    fn truncate(&mut self, core: &mut Core, ino: Ino, len: u64) -> Result<(), FsError> {
        FileContents::of(&mut self.maps, core, ino).truncate(&mut self.superblock, len)
    }

    fn allocate_range(
        &mut self,
        core: &mut Core,
        ino: Ino,
        from: u64,
        to: Option<u64>,
        keep_size: bool,
    ) -> Result<(), FsError> {
        let superblock = &mut self.superblock;
        FileContents::of(&mut self.maps, core, ino).allocate(superblock, (from, to), keep_size)
    }

    fn everything(&mut self, core: &mut Core, ino: Ino) -> Result<Cut, FsError> {
        let mut cut = FileContents::of(&mut self.maps, core, ino).all_blocks()?;
        Attributes::of(&mut self.maps, core, ino).leave(&mut cut)?;
        Ok(cut)
    }

    fn free_runs(&mut self, core: &mut Core, runs: &[Extent]) -> Result<Ids, FsError> {
        self.maps.space().give(core, runs)
    }

    /// `tune2fs -o discard`.
    fn asks_for_discards(&self) -> bool {
        self.layout.sb().raw.s_default_mount_opts.get() & DEFAULT_DISCARD != 0
    }

    fn data_area(&self) -> Option<DataArea> {
        let sb = self.layout.sb();
        let is_sound = match self.progress {
            Progress::None => sb.is_clean(),
            Progress::Sound => true,
            Progress::UnderWay | Progress::NeedsCheck => false,
        };
        let blocks = Extent::new(sb.first_block, sb.blocks - sb.first_block.get());
        is_sound.then_some(DataArea { blocks, unit: 1 })
    }

    fn free_parts(&mut self, core: &mut Core, run: Extent) -> Result<Vec<Extent>, FsError> {
        self.maps.space().free_parts(core, run)
    }

    fn runs_of(&mut self, core: &mut Core, ino: Ino) -> Result<Vec<Extent>, FsError> {
        FileContents::of(&mut self.maps, core, ino).runs()
    }

    fn attribute_runs(&mut self, core: &mut Core, ino: Ino) -> Result<Vec<Extent>, FsError> {
        let at = core.node(ino)?.map.attributes;
        Ok(at.map(|at| Extent::new(at, 1)).into_iter().collect())
    }

    fn mapped_runs(&mut self, core: &mut Core, ino: Ino) -> Result<Vec<Mapping>, FsError> {
        FileContents::of(&mut self.maps, core, ino).mapped_runs()
    }

    fn unnoted(&self, core: &Core, ino: Ino, noted: &[Extent]) -> Option<BlockNo> {
        if self.is_doubtful { None } else { unnoted(&self.maps, core, ino, noted) }
    }

    fn listing_key(&mut self, core: &mut Core, dir: Ino) -> Result<Option<ListingKey>, FsError> {
        let order = self.listing_order(core, dir)?;
        Ok(order.map(|order| -> ListingKey { Box::new(move |name| order.key(name)) }))
    }

    fn keeps_acls(&self) -> bool {
        true
    }

    fn xattrs(&mut self, core: &mut Core, ino: Ino) -> Result<Vec<Xattr>, FsError> {
        Attributes::of(&mut self.maps, core, ino).read()
    }

    fn set_xattr(
        &mut self,
        core: &mut Core,
        ino: Ino,
        name: &[u8],
        value: Option<&[u8]>,
        mode: XattrMode,
    ) -> Result<(), FsError> {
        let superblock = &mut self.superblock;
        Attributes::of(&mut self.maps, core, ino).change(superblock, name, value, mode)
    }
}

impl DelayedAllocation<Map> for Ext {
    fn delays(
        &mut self,
        core: &mut Core,
        ino: Ino,
        offset: u64,
        len: u64,
    ) -> Result<bool, FsError> {
        FileContents::of(&mut self.maps, core, ino).make_ready(&mut self.superblock, offset, len)
    }

    fn state_of(
        &mut self,
        core: &mut Core,
        ino: Ino,
        lbn: u64,
    ) -> Result<(BlockState, u64), FsError> {
        Tree::of(&mut self.maps, core, ino).state_of(lbn)
    }

    fn room(&self, core: &Core) -> u64 {
        self.maps.free_space().room_with_reserved(core)
    }

    fn most_map_blocks(
        &mut self,
        core: &mut Core,
        ino: Ino,
        runs: u64,
        blocks: u64,
    ) -> Result<u64, FsError> {
        Tree::of(&mut self.maps, core, ino).most_nodes(runs, blocks)
    }

    fn place(
        &mut self,
        core: &mut Core,
        ino: Ino,
        lbn: u64,
        contents: &[Box<[u8]>],
    ) -> Result<Extent, FsError> {
        Tree::of(&mut self.maps, core, ino).place(lbn, contents)
    }

    fn put_size(&mut self, core: &mut Core, ino: Ino) -> Result<(), FsError> {
        self.maps.tables().put_part(core, ino, Part::Map, Role::Attributes, &[], None).map(drop)
    }
}

impl InlineData<Map> for Ext {
    fn contents_inside(&mut self, core: &mut Core, ino: Ino) -> Result<Option<Vec<u8>>, FsError> {
        if !is_inline(core, ino)? {
            return Ok(None);
        }
        InlineContents::of(&mut self.maps, core, ino).get().map(Some)
    }

    fn has_names_inside(&mut self, core: &mut Core, dir: Ino) -> Result<bool, FsError> {
        is_inline(core, dir)
    }

    fn names_inside(&mut self, core: &mut Core, dir: Ino) -> Result<Vec<u8>, FsError> {
        if !is_inline(core, dir)? {
            return Err(gone(dir));
        }
        InlineNames::of(&mut self.maps, core, self.entries, dir).unit()
    }

    fn put_names_inside(&mut self, core: &mut Core, dir: Ino, unit: &[u8]) -> Result<(), FsError> {
        InlineNames::of(&mut self.maps, core, self.entries, dir).put(unit)
    }
}

impl OrphanList<Map> for Ext {
    fn note_orphan(&mut self, core: &mut Core, ino: Ino, is: bool) -> Result<(), FsError> {
        let disk = (self.maps.tables(), &self.superblock);
        if is { self.orphans.add(disk, core, ino) } else { self.orphans.remove(disk, core, ino) }
    }

    fn orphans(&mut self, core: &mut Core) -> Result<Vec<Ino>, FsError> {
        self.orphans.found(self.layout.volume(), self.maps.tables(), core)
    }

    fn cut_behind(&mut self, core: &mut Core, ino: Ino, len: u64) -> Result<(), FsError> {
        FileContents::of(&mut self.maps, core, ino).cut_behind(&mut self.superblock, len)
    }

    fn cut_at_once(&mut self, core: &mut Core, ino: Ino, len: u64) -> Result<u64, FsError> {
        self.maps.space().forget(ino);
        pieces::next_cut(&mut self.maps, core, ino, len)
    }

    fn piece(&self, core: &Core) -> u64 {
        pieces::most_written(self.layout.sb(), core)
    }
}
