//! The format's answers to the operations on a file system in use.

use super::map::Map;
use super::map::{Core, Node};
use super::{Ffs, FfsLive, LiveOptions};
use super::{grow, recovery, release, take};
use crate::inode::{linux_flags, with_linux_flags};
use crate::ondisk::flag;
use crate::quota_file::{QuotaFile, USUAL};
use crate::superblock;
use seekless_cache::Config;
use seekless_device::{BlockDevice, Clock};
use seekless_fs::field::{index, wide};
use seekless_fs::growth::Growth;
use seekless_fs::operate::{StatVfs, XattrMode};
use seekless_fs::snapshot::SnapshotFile;
use seekless_fs::{FileKind, FsError, Location, Mapping, Timestamp, Xattr, inode_flag};
use seekless_live::indirect::{Files, Trees};
use seekless_live::{
    Absent, CountFirst, Cut, DataArea, Format, Ids, InodeNames, Limits, Named, OrderedLinks,
    Progress, Quota, QuotaKind, Table,
};
use seekless_units::{BlockNo, ByteLen, Extent, Ino};
use std::sync::Arc;

impl Named for Ffs {
    type Names = InodeNames;

    fn take_snapshot(live: &mut FfsLive, ino: Ino) -> Result<(), FsError> {
        take::fill(live, ino)
    }

    fn release_snapshot(live: &mut FfsLive, ino: Ino) -> Result<(), FsError> {
        release::release(live, ino)
    }

    fn snapshots(live: &mut FfsLive) -> Result<Vec<SnapshotFile>, FsError> {
        take::listed(live)
    }

    fn plan_growth(live: &mut FfsLive, size: Option<ByteLen>) -> Result<Growth, FsError> {
        grow::planned(live, size).map(|plan| plan.growth)
    }

    fn grow(live: &mut FfsLive, size: Option<ByteLen>) -> Result<Growth, FsError> {
        grow::grow(live, size)
    }
}

impl OrderedLinks for Ffs {
    type Order = CountFirst;
}

impl Format for Ffs {
    type Map = Map;
    type Options = LiveOptions;
    type DelayedAllocation = Absent;
    type InlineData = Absent;
    type OrphanList = Absent;
    type Recovery = Self;

    fn recovery(&mut self) -> Option<&mut Self> {
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

    fn quota_names(&self) -> &'static [&'static str] {
        &USUAL
    }

    fn put_quota(
        &mut self,
        core: &mut Core,
        kind: QuotaKind,
        id: u32,
        quota: &Quota,
    ) -> Result<(), FsError> {
        let file = self.quota_files.iter().find(|file| file.kind == kind).copied();
        debug_assert!(file.is_some(), "quotas that are kept have a file");
        let Some(QuotaFile { ino, format, .. }) = file else { return Ok(()) };
        if !core.nodes.contains_key(&ino) {
            let node = self.load_node(core, ino)?;
            core.nodes.insert(ino, node);
        }
        let bytes = format.encode(quota);
        let written = self.write_bytes(core, ino, format.place(id), &bytes)?;
        debug_assert_eq!(written, bytes.len(), "a record lies in one block");
        let now = core.now();
        let node = core.node(ino)?;
        (node.mtime, node.ctime) = (now, now);
        self.put_rest(core, ino)
    }

    fn put_summaries(&mut self, core: &mut Core) -> Result<(), FsError> {
        self.put_counts(core)
    }

    fn space(&self, core: &Core) -> StatVfs {
        let free = self.allocator.groups().counts().free_frags() + core.pending.blocks;
        StatVfs {
            block_size: self.sb.fsize,
            file_block: self.sb.bsize,
            blocks: self.sb.tuning.dsize,
            free,
            available: free.saturating_sub(self.sb.kept_frags()),
            // The first two belong to no file.
            inodes: u64::from(self.sb.inodes().saturating_sub(2)),
            free_inodes: self.allocator.groups().counts().totals().nifree + core.pending.inodes,
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
        linux_flags(node.flags)
    }

    fn settable_flags(&self, _: FileKind) -> u32 {
        inode_flag::IMMUTABLE | inode_flag::APPEND | inode_flag::NODUMP
    }

    /// A flag is set as root's (`schg`, `sappnd`), and cleared as the owner's too.
    fn set_flags(&self, node: &mut Node, flags: u32) {
        node.flags = with_linux_flags(node.flags, flags);
        node.restrictions = self.restrictions_of(node.ino, node.flags);
    }

    fn looked_at(map: &Self::Map) -> u64 {
        let Trees { direct: [first, .., last], indirect: [.., third] } = map.trees;
        first ^ last ^ third ^ u64::from(map.ext_size)
    }

    /// UFS1 counts seconds in 32 bits.
    fn representable(&self, time: Timestamp) -> Timestamp {
        let (low, high) = (i64::from(i32::MIN), i64::from(i32::MAX));
        match self.sb.format {
            superblock::Format::Ufs1 => Timestamp { secs: time.secs.clamp(low, high), ..time },
            superblock::Format::Ufs2 => time,
        }
    }

    fn lookup_block(
        &mut self,
        core: &mut Core,
        ino: Ino,
        lbn: u64,
    ) -> Result<Option<BlockNo>, FsError> {
        Files::of(self, core).lookup_block(ino, lbn)
    }

    fn write_bytes(
        &mut self,
        core: &mut Core,
        ino: Ino,
        offset: u64,
        bytes: &[u8],
    ) -> Result<usize, FsError> {
        let bytes = bytes.get(..self.copies.most_overwritten()).unwrap_or(bytes);
        self.copies.reserve_within(&mut self.allocator, core, bytes.len())?;
        Files::of(self, core).write_bytes(ino, offset, bytes)
    }

    fn truncate(&mut self, core: &mut Core, ino: Ino, len: u64) -> Result<(), FsError> {
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
        let end = Files::of(self, core).check_len(ino, to)?;
        if keep_size && end > size {
            return Err(FsError::Unsupported("allocating space beyond the end of a file".into()));
        }
        let piece = wide(self.copies.most_overwritten());
        let mut done = Ok(());
        for at in (from..end).step_by(self.copies.most_overwritten()) {
            let end = end.min(at.saturating_add(piece));
            done = self.copies.reserve_within(&mut self.allocator, core, index(end - at));
            done = done.and_then(|()| Files::of(self, core).allocate_range(ino, at, end));
            if done.is_err() {
                break;
            }
        }
        if done.is_err() && core.node(ino)?.size > size {
            Files::of(self, core).truncate(ino, size)?;
        }
        done
    }

    fn everything(&mut self, core: &mut Core, ino: Ino) -> Result<Cut, FsError> {
        let mut cut = Files::of(self, core).all_blocks(ino)?;
        for run in self.ext_runs(core, ino)? {
            cut.push(run, self.sb.size, Location::of("extended attributes").in_inode(ino))?;
        }
        Ok(cut)
    }

    fn free_runs(&mut self, core: &mut Core, runs: &[Extent]) -> Result<Ids, FsError> {
        self.copies.release(&mut self.allocator, core, runs)
    }

    fn device(&self) -> Option<Arc<dyn BlockDevice>> {
        let device: Arc<dyn BlockDevice> = self.copies.device().clone();
        Some(device)
    }

    fn before_change(&mut self, core: &mut Core) -> Result<bool, FsError> {
        self.copies.reserve(&mut self.allocator, core, 0)
    }

    fn releasing(&mut self) {
        self.copies.begin_releases();
    }

    fn closing(&mut self) {
        self.copies.close();
    }

    fn asks_for_discards(&self) -> bool {
        self.sb.flags & flag::TRIM != 0
    }

    fn data_area(&self) -> Option<DataArea> {
        let is_sound = match self.progress {
            Progress::None => recovery::is_clean(&self.sb),
            Progress::Sound => true,
            Progress::UnderWay | Progress::NeedsCheck => false,
        };
        let blocks = Extent::new(BlockNo::new(0), self.sb.size);
        is_sound.then_some(DataArea { blocks, unit: 1 })
    }

    fn free_parts(&mut self, core: &mut Core, run: Extent) -> Result<Vec<Extent>, FsError> {
        self.allocator.groups_mut().free_parts(core, run)
    }

    fn runs_of(&mut self, core: &mut Core, ino: Ino) -> Result<Vec<Extent>, FsError> {
        if core.node(ino)?.restrictions.snapshot {
            return self.copies.device().runs_of(ino, self.ignore_checksums);
        }
        Files::of(self, core).runs_of(ino)
    }

    fn attribute_runs(&mut self, core: &mut Core, ino: Ino) -> Result<Vec<Extent>, FsError> {
        self.ext_runs(core, ino)
    }

    fn read_snapshot(&self, ino: Ino, offset: ByteLen, buf: &mut [u8]) -> Result<(), FsError> {
        self.copies.device().read_snapshot(ino, offset.get(), buf)
    }

    fn mapped_runs(&mut self, core: &mut Core, ino: Ino) -> Result<Vec<Mapping>, FsError> {
        if core.node(ino)?.restrictions.snapshot {
            return Err(FsError::NotPermitted(format!("inode {ino} is a snapshot")));
        }
        Files::of(self, core).mapped_runs(ino)
    }

    fn unnoted(&self, core: &Core, ino: Ino, noted: &[Extent]) -> Option<BlockNo> {
        Files::unnoted(self, core, ino, noted)
    }

    fn ignored_features(&self) -> Vec<&'static str> {
        self.sb.ignored_features()
    }

    fn keeps_acls(&self) -> bool {
        self.sb.keeps_acls()
    }

    fn acls_follow_modes(&self) -> bool {
        true
    }

    fn xattrs(&mut self, core: &mut Core, ino: Ino) -> Result<Vec<Xattr>, FsError> {
        self.shown_xattrs(core, ino)
    }

    fn set_xattr(
        &mut self,
        core: &mut Core,
        ino: Ino,
        name: &[u8],
        value: Option<&[u8]>,
        mode: XattrMode,
    ) -> Result<(), FsError> {
        self.change_xattr(core, ino, name, value, mode)
    }
}
