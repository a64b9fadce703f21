//! The format's answers to the operations on a file system in use.

use super::map::Map;
use super::{Core, Ext, LiveOptions, Node};
use crate::ondisk::{flags, ro_compat};
use crate::operate::extents::{self, Tree};
use crate::operate::inline::is_inline;
use seekless_cache::{Config, Role};
use seekless_device::{BlockDevice, Clock};
use seekless_fs::field::wide;
use seekless_fs::operate::{StatVfs, XattrMode};
use seekless_fs::{FileKind, FsError, Mapping, Timestamp, Xattr};
use seekless_live::indirect::Files;
use seekless_live::{
    BlockState, CountLast, Cut, DelayedAllocation, Format, InlineData, InodeNames, Limits,
    ListingKey, NamePlace, Named, OrderedLinks, OrphanList, Part, Table,
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

    fn delayed_allocation(&mut self) -> Option<&mut Self> {
        Some(self)
    }

    fn inline_data(&mut self) -> Option<&mut Self> {
        Some(self)
    }

    fn orphan_list(&mut self) -> Option<&mut Self> {
        Some(self)
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
        self.write_superblock(core, close)
    }

    fn note_failure(&mut self, core: &mut Core, error: &FsError) -> Result<(), FsError> {
        self.write_error(core, error)
    }

    fn put_summaries(&mut self, core: &mut Core) -> Result<(), FsError> {
        self.give_back_ahead(core)?;
        self.write_descriptors(core)
    }

    fn space(&self, core: &Core) -> StatVfs {
        let free = self.groups.free_frags() + core.pending.blocks;
        // As a mount counts them: without the blocks that will map them.
        let free = free.saturating_sub(core.delayed.blocks());
        let sb = &self.volume.sb;
        let fixed = self.metadata.iter().map(|run| run.len).sum::<u64>();
        StatVfs {
            block_size: sb.block_size,
            file_block: sb.block_size,
            blocks: sb.blocks.saturating_sub(fixed + sb.first_block.get()),
            free,
            available: free.saturating_sub(self.unavailable_blocks()),
            inodes: u64::from(sb.raw.s_inodes_count.get()),
            free_inodes: self.groups.totals().nifree + core.pending.inodes,
            name_max: u32::try_from(self.limits.name_max).unwrap_or(255),
        }
    }

    fn load(&mut self, core: &mut Core, ino: Ino) -> Result<Node, FsError> {
        self.load_node(core, ino)
    }

    fn put_attributes(&mut self, core: &mut Core, ino: Ino) -> Result<(), FsError> {
        self.put_rest(core, ino)
    }

    fn shown_flags(&self, node: &Node) -> u32 {
        node.flags
    }

    fn shown_sectors(&self, node: &Node) -> u64 {
        // A mount counts a file's inline data as if it had blocks.
        let is_inline = node.flags & flags::INLINE_DATA != 0 && node.kind == FileKind::Regular;
        let inside = if is_inline { node.size.div_ceil(512) } else { 0 };
        node.sectors + inside
    }

    fn representable(&self, time: Timestamp) -> Timestamp {
        super::mount::representable(self.has_birth(), time)
    }

    fn place_name(&mut self, core: &mut Core, dir: Ino, name: &[u8]) -> Result<NamePlace, FsError> {
        self.name_place(core, dir, name)
    }

    fn closing(&mut self) {
        self.ahead.give_up_all();
    }

    fn released(&mut self, ino: Ino) {
        self.forget_kept(ino);
    }

    fn goes_uncounted(&self, node: &Node) -> bool {
        let is_directory = node.kind == FileKind::Directory;
        let has_many = node.links == 1 || node.flags & flags::INDEX != 0;
        is_directory && has_many && self.volume.sb.has_ro_compat(ro_compat::DIR_NLINK)
    }

    fn lookup_block(
        &mut self,
        core: &mut Core,
        ino: Ino,
        lbn: u64,
    ) -> Result<Option<BlockNo>, FsError> {
        self.lookup_dir_block(core, ino, lbn)
    }

    fn write_bytes(
        &mut self,
        core: &mut Core,
        ino: Ino,
        offset: u64,
        bytes: &[u8],
    ) -> Result<usize, FsError> {
        if is_inline(core, ino)? && self.write_inline(core, ino, offset, bytes)? {
            return Ok(bytes.len());
        }
        let end = offset.checked_add(wide(bytes.len()));
        if extents::maps(core, ino)? {
            let end = Tree::of(self, core, ino).check_len(end)?;
            self.allow_length(core, end)?;
            return Tree::of(self, core, ino).write_bytes(offset, bytes);
        }
        let end = Files::of(self, core).check_len(ino, end)?;
        self.allow_length(core, end)?;
        Files::of(self, core).write_bytes(ino, offset, bytes)
    }

    fn truncate(&mut self, core: &mut Core, ino: Ino, len: u64) -> Result<(), FsError> {
        if is_inline(core, ino)? && self.truncate_inline(core, ino, len)? {
            return Ok(());
        }
        self.forget_kept(ino);
        if extents::maps(core, ino)? {
            Tree::of(self, core, ino).check_len(Some(len))?;
            self.allow_length(core, len)?;
            return Tree::of(self, core, ino).truncate(len);
        }
        let len = Files::of(self, core).check_len(ino, Some(len))?;
        self.allow_length(core, len)?;
        core.node(ino)?.map.last = None;
        Files::of(self, core).truncate(ino, len)
    }

    fn allocate_range(
        &mut self,
        core: &mut Core,
        ino: Ino,
        from: u64,
        to: Option<u64>,
        keep_size: bool,
    ) -> Result<(), FsError> {
        let size = core.node(ino)?.size;
        if is_inline(core, ino)? {
            self.move_out(core, ino)?;
        }
        if extents::maps(core, ino)? {
            let end = Tree::of(self, core, ino).check_len(to)?;
            self.allow_length(core, if keep_size { size } else { end })?;
            return Tree::of(self, core, ino).allocate_range(from, end, keep_size);
        }
        let end = Files::of(self, core).check_len(ino, to)?;
        if keep_size && end > size {
            return Err(FsError::Unsupported("allocating space beyond the end of a file".into()));
        }
        self.allow_length(core, end)?;
        Files::of(self, core).allocate_range(ino, from, end)
    }

    fn everything(&mut self, core: &mut Core, ino: Ino) -> Result<Cut, FsError> {
        let mut cut = if is_inline(core, ino)? {
            Cut::default()
        } else if extents::maps(core, ino)? {
            Tree::of(self, core, ino).all_blocks()?
        } else {
            Files::of(self, core).all_blocks(ino)?
        };
        self.leave_attributes(core, ino, &mut cut)?;
        Ok(cut)
    }

    fn free_runs(&mut self, core: &mut Core, runs: &[Extent]) -> Result<(), FsError> {
        self.give_blocks(core, runs)
    }

    fn runs_of(&mut self, core: &mut Core, ino: Ino) -> Result<Vec<Extent>, FsError> {
        if is_inline(core, ino)? {
            return Ok(Vec::new());
        }
        if extents::maps(core, ino)? {
            return Tree::of(self, core, ino).runs_of();
        }
        Files::of(self, core).runs_of(ino)
    }

    fn attribute_runs(&mut self, core: &mut Core, ino: Ino) -> Result<Vec<Extent>, FsError> {
        let at = core.node(ino)?.map.attributes;
        Ok(at.map(|at| Extent::new(at, 1)).into_iter().collect())
    }

    fn mapped_runs(&mut self, core: &mut Core, ino: Ino) -> Result<Vec<Mapping>, FsError> {
        if is_inline(core, ino)? {
            return Ok(Vec::new());
        }
        if extents::maps(core, ino)? {
            return Tree::of(self, core, ino).mapped_runs();
        }
        Files::of(self, core).mapped_runs(ino)
    }

    fn unnoted(&self, core: &Core, ino: Ino, noted: &[Extent]) -> Option<BlockNo> {
        let node = core.nodes.get(&ino).filter(|_| !self.is_doubtful)?;
        if node.flags & flags::INLINE_DATA != 0 {
            return None;
        }
        if node.flags & flags::EXTENTS != 0 {
            return extents::unnoted(self, core, ino, noted);
        }
        Files::unnoted(self, core, ino, noted)
    }

    fn listing_key(&mut self, core: &mut Core, dir: Ino) -> Result<Option<ListingKey>, FsError> {
        let order = self.listing_order(core, dir)?;
        Ok(order.map(|order| -> ListingKey { Box::new(move |name| order.key(name)) }))
    }

    fn keeps_acls(&self) -> bool {
        true
    }

    fn xattrs(&mut self, core: &mut Core, ino: Ino) -> Result<Vec<Xattr>, FsError> {
        self.read_attributes(core, ino)
    }

    fn set_xattr(
        &mut self,
        core: &mut Core,
        ino: Ino,
        name: &[u8],
        value: Option<&[u8]>,
        mode: XattrMode,
    ) -> Result<(), FsError> {
        self.change_attribute(core, ino, name, value, mode)
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
        self.make_ready(core, ino, offset, len)
    }

    fn state_of(
        &mut self,
        core: &mut Core,
        ino: Ino,
        lbn: u64,
    ) -> Result<(BlockState, u64), FsError> {
        Tree::of(self, core, ino).stand_of(lbn)
    }

    fn room(&self, core: &Core) -> u64 {
        self.room_with_reserved(core)
    }

    fn most_map_blocks(
        &mut self,
        core: &mut Core,
        ino: Ino,
        runs: u64,
        blocks: u64,
    ) -> Result<u64, FsError> {
        Tree::of(self, core, ino).most_nodes(runs, blocks)
    }

    fn place(
        &mut self,
        core: &mut Core,
        ino: Ino,
        lbn: u64,
        contents: &[Box<[u8]>],
    ) -> Result<Extent, FsError> {
        Tree::of(self, core, ino).place(lbn, contents)
    }

    fn put_size(&mut self, core: &mut Core, ino: Ino) -> Result<(), FsError> {
        self.put_part(core, ino, Part::Map, Role::Attributes, &[], None).map(drop)
    }
}

impl InlineData<Map> for Ext {
    fn contents_inside(&mut self, core: &mut Core, ino: Ino) -> Result<Option<Vec<u8>>, FsError> {
        self.inline_contents(core, ino)
    }

    fn has_names_inside(&mut self, core: &mut Core, dir: Ino) -> Result<bool, FsError> {
        is_inline(core, dir)
    }

    fn names_inside(&mut self, core: &mut Core, dir: Ino) -> Result<Vec<u8>, FsError> {
        let names = self.inline_names(core, dir)?;
        names.ok_or_else(|| seekless_live::gone(dir))
    }

    fn put_names_inside(&mut self, core: &mut Core, dir: Ino, unit: &[u8]) -> Result<(), FsError> {
        self.put_inline_names(core, dir, unit)
    }
}

impl OrphanList<Map> for Ext {
    fn note_orphan(&mut self, core: &mut Core, ino: Ino, is: bool) -> Result<(), FsError> {
        if is { self.list_orphan(core, ino) } else { self.unlist_orphan(core, ino) }
    }

    fn orphans(&mut self, core: &mut Core) -> Result<Vec<Ino>, FsError> {
        self.found_orphans(core)
    }

    fn cut_behind(&mut self, core: &mut Core, ino: Ino, len: u64) -> Result<(), FsError> {
        self.forget_kept(ino);
        if extents::maps(core, ino)? {
            return Tree::of(self, core, ino).cut_behind(len);
        }
        if len < core.node(ino)?.size { self.truncate(core, ino, len) } else { Ok(()) }
    }

    fn cut_at_once(&mut self, core: &mut Core, ino: Ino, len: u64) -> Result<u64, FsError> {
        self.forget_kept(ino);
        self.next_cut(core, ino, len)
    }

    fn piece(&self, core: &Core) -> u64 {
        self.most_written(core)
    }
}
