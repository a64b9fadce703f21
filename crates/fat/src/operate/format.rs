//! The format's answers to the operations on a file system in use.

use super::cluster_map::ClusterMap;
use super::clusters::Clusters;
use super::contents::Contents;
use super::departures::Departures;
use super::inodes::{Inodes, WRITE};
use super::layout::DirectoryLayout;
use super::map::{Core, MOST_BYTES, Map, Node};
use super::marks::VolumeMarks;
use super::mount::{check_media, limits};
use super::namespace::Namespace;
use super::options::LiveOptions;
use super::reach::Reach;
use super::stamps::Zone;
use crate::boot::Boot;
use crate::files::ROOT;
use crate::volume::Volume;
use seekless_cache::{Cache, Config, Discipline};
use seekless_device::{BlockDevice, Clock};
use seekless_fs::field::index;
use seekless_fs::operate::{SetAttr, StatVfs, XattrMode};
use seekless_fs::term::{Term, Text};
use seekless_fs::{FileKind, FsError, Mapping, Timestamp, Xattr};
use seekless_live::{Absent, Cut, DataArea, Format, Ids, Limits};
use seekless_placement::cluster::ClusterPlacement;
use seekless_units::{BlockNo, Extent, Ino};
use std::sync::Arc;

/// FAT as a format of images in use.
pub struct Fat {
    boot: Arc<Boot>,
    limits: Limits,
    marks: VolumeMarks,
    clusters: Clusters,
    inodes: Inodes,
    departures: Departures,
    reach: Reach,
}

impl Fat {
    /// Opens an image, and changes nothing of it.
    fn open_image(
        device: Arc<dyn BlockDevice>,
        clock: Arc<dyn Clock>,
        config: Config,
        options: LiveOptions,
    ) -> Result<(Self, Core), FsError> {
        if config.discipline.journal_mode().is_some() {
            return Err(FsError::Unsupported("a journal on FAT".into()));
        }
        let volume = Volume::open(Arc::clone(&device))?;
        check_media(&volume)?;
        let keeps_order = matches!(config.discipline, Discipline::Sync | Discipline::SoftUpdates);
        let boot = Arc::new(volume.boot.clone());
        let (marks, hint) = VolumeMarks::read(&volume, &boot, device.as_ref(), keeps_order)?;
        if !marks.is_clean() && !options.force {
            let what = "the volume is marked as in use, or as damaged: it was not unmounted. \
                        Check it first (";
            let text = Text::from(what).then(Term::Preen).then("), or mount with ");
            return Err(FsError::Refused(text.then(Term::ForcedMount)));
        }
        let map = ClusterMap::read(&volume)?;
        let name = options.clusters.as_deref().unwrap_or(ClusterPlacement::DEFAULT);
        let policy = ClusterPlacement::by_name(name, boot.last_cluster(), hint, options.seed)
            .map_err(|error| FsError::Invalid(error.to_string()))?;
        let limits = limits(&boot);
        let cache = Cache::new(device, clock, boot.sector, boot.sector, config)?;
        let fat = Self {
            limits,
            marks,
            clusters: Clusters::new(&boot, map, policy, keeps_order),
            inodes: Inodes::new(&boot, Zone::new(options.zone)),
            departures: Departures::new(),
            reach: Reach::default(),
            boot,
        };
        Ok((fat, Core::new(cache, options.wall)))
    }

    /// Reads the FATs into the cache, as kernels of BSD do when they mount a volume
    /// (`fillinusemap`). It makes no file faster, and is for comparisons of times.
    ///
    /// # Errors
    /// [`FsError::Device`].
    pub fn load_fats(&self, core: &mut Core) -> Result<(), FsError> {
        self.clusters.table().load(core)
    }

    /// The contents of files.
    fn contents<'a>(&'a mut self, core: &'a mut Core) -> Contents<'a> {
        let (clusters, inodes) = (&mut self.clusters, &mut self.inodes);
        Contents::new(core, &self.boot, clusters, inodes, &mut self.departures)
    }

    /// The names of files.
    pub(super) fn namespace<'a>(&'a mut self, core: &'a mut Core) -> Namespace<'a> {
        let (clusters, inodes) = (&mut self.clusters, &mut self.inodes);
        Namespace::new(core, &self.boot, clusters, inodes, &mut self.departures, &mut self.reach)
    }

    /// Free slots of a root directory that does not grow.
    fn root_room(&mut self, core: &mut Core) -> Result<Option<u32>, FsError> {
        if self.boot.is_fat32() {
            return Ok(None);
        }
        self.inodes.hold_dir(core, &self.clusters, ROOT)?;
        self.inodes.dir(core, ROOT).map(|root| Some(root.free_slots()))
    }
}

impl Format for Fat {
    type Map = Map;
    type Options = LiveOptions;
    type DelayedAllocation = Absent;
    type InlineData = Absent;
    type OrphanList = Absent;
    type Recovery = Absent;

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
        self.marks.write(core, &self.clusters, close)
    }

    fn before_change(&mut self, core: &mut Core) -> Result<bool, FsError> {
        if self.clusters.unnamed().is_empty() {
            return Ok(false);
        }
        let room = self.root_room(core)?;
        self.clusters.unnamed().name_some(core, room)
    }

    /// Free clusters are counted when the volume is closed.
    fn put_summaries(&mut self, _: &mut Core) -> Result<(), FsError> {
        Ok(())
    }

    fn ignores_case(&self) -> bool {
        true
    }

    fn space(&self, core: &Core) -> StatVfs {
        let free = u64::from(self.clusters.free()) * u64::from(self.boot.spc);
        self.boot.space(free + core.pending.blocks)
    }

    fn load(&mut self, core: &mut Core, ino: Ino) -> Result<Node, FsError> {
        self.inodes.read(core, &self.clusters, ino)
    }

    fn put_attributes(&mut self, core: &mut Core, ino: Ino) -> Result<(), FsError> {
        self.inodes.put_attributes(core, &self.clusters, ino)
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
                Some(super::inodes::FILE & !WRITE)
            }
            (Some(_), FileKind::Regular) => Some(super::inodes::FILE),
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
        self.contents(core).block(ino, lbn)
    }

    fn write_bytes(
        &mut self,
        core: &mut Core,
        ino: Ino,
        offset: u64,
        bytes: &[u8],
    ) -> Result<usize, FsError> {
        self.contents(core).write(ino, offset, bytes)
    }

    fn truncate(&mut self, core: &mut Core, ino: Ino, len: u64) -> Result<(), FsError> {
        self.contents(core).set_len(ino, len)
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
        if to > MOST_BYTES || to > core.node(ino)?.size {
            return self.contents(core).set_len(ino, to);
        }
        Ok(())
    }

    fn longest_without_holes(&self) -> Option<u64> {
        Some(MOST_BYTES)
    }

    fn everything(&mut self, core: &mut Core, ino: Ino) -> Result<Cut, FsError> {
        let runs = self.inodes.all_runs(core, &self.clusters, ino)?;
        let blocks = runs.iter().map(|run| run.len).sum();
        Ok(Cut { runs: runs.into(), cleared: Default::default(), blocks })
    }

    fn free_runs(&mut self, core: &mut Core, runs: &[Extent]) -> Result<Ids, FsError> {
        self.clusters.give(core, self.inodes.numbers_mut(), runs)
    }

    fn data_area(&self) -> Option<DataArea> {
        let clusters = Extent::new(BlockNo::new(2), self.boot.clusters.into());
        let blocks = self.boot.sectors_of(clusters);
        self.marks.is_clean().then_some(DataArea { blocks, unit: self.boot.spc.into() })
    }

    fn free_parts(&mut self, _: &mut Core, run: Extent) -> Result<Vec<Extent>, FsError> {
        self.clusters.free_parts(run)
    }

    fn runs_of(&mut self, core: &mut Core, ino: Ino) -> Result<Vec<Extent>, FsError> {
        if core.node(ino)?.kind == FileKind::Directory {
            let chain = core.node(ino)?.map.chain.as_ref();
            return Ok(DirectoryLayout::new(&self.boot, chain).runs());
        }
        self.inodes.all_runs(core, &self.clusters, ino)
    }

    fn attribute_runs(&mut self, _: &mut Core, _: Ino) -> Result<Vec<Extent>, FsError> {
        Ok(Vec::new())
    }

    fn mapped_runs(&mut self, core: &mut Core, ino: Ino) -> Result<Vec<Mapping>, FsError> {
        let chain = self.inodes.chain(core, &self.clusters, ino)?;
        let runs: Vec<Extent> = chain.runs().collect();
        Ok(self.boot.mappings(&runs))
    }

    fn unnoted(&self, core: &Core, ino: Ino, noted: &[Extent]) -> Option<BlockNo> {
        let node = core.nodes.get(&ino)?;
        let chain = node.map.chain.as_ref()?;
        // Bytes past the end may be another file's old contents.
        let shown = node.size.div_ceil(u64::from(self.boot.sector));
        let sectors = chain.runs().map(|run| self.boot.sectors_of(run));
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
