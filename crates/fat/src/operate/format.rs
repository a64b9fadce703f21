//! The format's answers to the operations on a file system in use.

use super::node::WRITE;
use super::{Core, Fat, LiveOptions, Map, Node, content};
use seekless_cache::Config;
use seekless_device::{BlockDevice, Clock};
use seekless_fs::field::index;
use seekless_fs::operate::{SetAttr, StatVfs, XattrMode};
use seekless_fs::{FileKind, FsError, Mapping, Timestamp, Xattr};
use seekless_live::{Cut, Format, Limits};
use seekless_units::{BlockNo, Extent, Ino};
use std::sync::Arc;

impl Format for Fat {
    type Map = Map;
    type Options = LiveOptions;

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
        self.write_marks(core, close)
    }

    fn before_change(&mut self, core: &mut Core) -> Result<bool, FsError> {
        self.name_some(core)
    }

    /// Free clusters are counted when the volume is closed.
    fn put_summaries(&mut self, _: &mut Core) -> Result<(), FsError> {
        Ok(())
    }

    fn ignores_case(&self) -> bool {
        true
    }

    fn space(&self, core: &Core) -> StatVfs {
        debug_assert!(self.free <= self.boot().clusters, "{} are free", self.free);
        let spc = u64::from(self.boot().spc);
        let free = u64::from(self.free) * spc + core.pending.blocks;
        StatVfs {
            block_size: self.boot().sector,
            file_block: self.limits.block,
            blocks: u64::from(self.boot().clusters) * spc,
            free,
            available: free,
            inodes: 0,
            free_inodes: 0,
            name_max: u32::try_from(self.limits.name_max).unwrap_or(u32::MAX),
        }
    }

    fn load(&mut self, core: &mut Core, ino: Ino) -> Result<Node, FsError> {
        self.read_node(core, ino)
    }

    fn put_attributes(&mut self, core: &mut Core, ino: Ino) -> Result<(), FsError> {
        self.put_rest(core, ino)
    }

    fn shown_flags(&self, _: &Node) -> u32 {
        0
    }

    /// The time of a change; that of an access is reduced to the day when it is written.
    fn representable(&self, time: Timestamp) -> Timestamp {
        time
    }

    /// As Linux's vfat: no owner but the one that is shown, no bits but those of permissions; of
    /// these, only whether anybody may write to a file is kept, and the others are dropped, as are
    /// all those of directories.
    fn accepted(&self, node: &Node, set: &SetAttr) -> Result<SetAttr, FsError> {
        let other = |id: Option<u32>, own: u32| id.is_some_and(|id| id != own);
        if other(set.uid, node.uid) || other(set.gid, node.gid) {
            return Err(FsError::NotPermitted("FAT keeps no owners".into()));
        }
        if set.perm.is_some_and(|perm| perm & !0o777 != 0) {
            return Err(FsError::NotPermitted("FAT keeps no set-id and sticky bits".into()));
        }
        let perm = match (set.perm, node.kind) {
            (Some(perm), FileKind::Regular) if perm & WRITE == 0 => {
                Some(super::node::FILE & !WRITE)
            }
            (Some(_), FileKind::Regular) => Some(super::node::FILE),
            _ => None,
        };
        Ok(SetAttr { perm, ..*set })
    }

    fn lookup_block(
        &mut self,
        core: &mut Core,
        ino: Ino,
        lbn: u64,
    ) -> Result<Option<BlockNo>, FsError> {
        self.block(core, ino, lbn)
    }

    fn write_bytes(
        &mut self,
        core: &mut Core,
        ino: Ino,
        offset: u64,
        bytes: &[u8],
    ) -> Result<usize, FsError> {
        self.write(core, ino, offset, bytes)
    }

    fn truncate(&mut self, core: &mut Core, ino: Ino, len: u64) -> Result<(), FsError> {
        self.set_len(core, ino, len)
    }

    fn allocate_range(
        &mut self,
        core: &mut Core,
        ino: Ino,
        _from: u64,
        to: Option<u64>,
        keep_size: bool,
    ) -> Result<(), FsError> {
        if keep_size {
            // A check cuts a chain to the length of its file.
            let what = "allocating space behind the end of a file on FAT";
            return Err(FsError::Unsupported(what.into()));
        }
        // A file has clusters for its whole length.
        let to = to.unwrap_or(u64::MAX).max(core.node(ino)?.size);
        if to > content::MOST || to > core.node(ino)?.size {
            return self.set_len(core, ino, to);
        }
        Ok(())
    }

    fn everything(&mut self, core: &mut Core, ino: Ino) -> Result<Cut, FsError> {
        let runs = self.all_runs(core, ino)?;
        let blocks = runs.iter().map(|run| run.len).sum();
        Ok(Cut { runs: runs.into(), cleared: Default::default(), blocks })
    }

    fn free_runs(&mut self, core: &mut Core, runs: &[Extent]) -> Result<(), FsError> {
        self.give(core, runs)
    }

    fn runs_of(&mut self, core: &mut Core, ino: Ino) -> Result<Vec<Extent>, FsError> {
        if core.node(ino)?.kind == FileKind::Directory {
            return self.dir_runs(core, ino);
        }
        self.all_runs(core, ino)
    }

    fn attribute_runs(&mut self, _: &mut Core, _: Ino) -> Result<Vec<Extent>, FsError> {
        Ok(Vec::new())
    }

    fn mapped_runs(&mut self, core: &mut Core, ino: Ino) -> Result<Vec<Mapping>, FsError> {
        let runs: Vec<Extent> = self.chain(core, ino)?.runs.iter().map(|&(_, run)| run).collect();
        Ok(self.volume.mappings(&runs))
    }

    fn unnoted(&self, core: &Core, ino: Ino, noted: &[Extent]) -> Option<BlockNo> {
        let node = core.nodes.get(&ino)?;
        let chain = node.map.chain.as_ref()?;
        // Bytes past the end may be another file's old contents.
        let shown = node.size.div_ceil(u64::from(self.boot().sector));
        let sectors = chain.runs.iter().map(|&(_, run)| self.sectors_of(run));
        let each = sectors.flat_map(|run| (0..run.len).map(move |n| run.start + n));
        let mut each = each.take(index(shown));
        each.find(|&at| {
            core.cache.is_unsettled(Extent::new(at, 1)) && !noted.iter().any(|run| run.contains(at))
        })
    }

    fn xattrs(&mut self, _: &mut Core, _: Ino) -> Result<Vec<Xattr>, FsError> {
        Ok(Vec::new())
    }

    fn set_xattr(
        &mut self,
        _: &mut Core,
        _: Ino,
        name: &[u8],
        _: Option<&[u8]>,
        _: XattrMode,
    ) -> Result<(), FsError> {
        let name = String::from_utf8_lossy(name);
        Err(FsError::Unsupported(format!("extended attribute '{name}' on FAT")))
    }
}

/// The longest name in UTF-8: each of its units may take three bytes.
pub(super) fn name_max() -> usize {
    index(crate::ondisk::NAME_UNITS) * 3
}
