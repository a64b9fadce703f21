//! A volume with groups, directories and files in pieces, in memory: what the score reads
//! and the planner rearranges.

use rand_core::RngCore;
use rand_pcg::Pcg64Mcg;
use seekless_fs::plan::in_place::{Occupied, Step};
use seekless_fs::plan::{Demand, InodeTable, ObjectId, Placed, Run, Space};
use seekless_fs::{
    Attr, BlockMap, DirEntry, FileKind, FsError, Geometry, GroupSummary, InodeLocation, Inspect,
    Mapping, Timestamp, Xattr,
};
use seekless_units::{BlockNo, ByteLen, Extent, GroupNo, Ino, Lbn};
use std::collections::{BTreeMap, HashSet};
use std::ops::ControlFlow;

pub(crate) const BLOCK: u64 = 4096;
const GROUP: u64 = 8192;
const GROUPS: u64 = 8;
const INODES: u32 = 4096;
/// Inodes in a block of a table.
const IN_BLOCK: u32 = 16;
const TABLE: u64 = (INODES / IN_BLOCK) as u64;
const TABLE_AT: u64 = 4;
/// Bitmaps, a table and blocks of directories.
const FIXED: u64 = 300;
const DIRECTORIES: u32 = 40;
const ROOT: u32 = 2;
/// Behind those of the system.
const FIRST_DIRECTORY: u32 = 12;

#[derive(Clone)]
struct File {
    directory: u32,
    blocks: u64,
    runs: Vec<Placed>,
}

#[derive(Clone)]
pub(crate) struct Volume {
    geometry: Geometry,
    used: Vec<bool>,
    files: BTreeMap<u32, File>,
    next: Vec<u32>,
}

impl Volume {
    pub(crate) fn new() -> Self {
        let geometry = Geometry {
            format: "ext4",
            block_size: BLOCK as u32,
            blocks: GROUP * GROUPS,
            free_blocks: 0,
            blocks_per_group: GROUP,
            first_block: BlockNo::ZERO,
            groups: GROUPS as u32,
            inodes: INODES * GROUPS as u32,
            free_inodes: 0,
            inodes_per_group: INODES,
            inode_size: 256,
            cluster_blocks: 1,
            label: Vec::new(),
            uuid: [0; 16],
            features: Vec::new(),
        };
        let used = (0..GROUP * GROUPS).map(|block| block % GROUP < FIXED).collect();
        let next = (0..GROUPS as u32).map(|group| group * INODES + 100).collect();
        Self { geometry, used, files: BTreeMap::new(), next }
    }

    /// A new file of so many blocks, in pieces; its inode number.
    pub(crate) fn create(&mut self, random: &mut Pcg64Mcg, blocks: u64) -> u32 {
        let directory = random.next_u32() % DIRECTORIES;
        let next = &mut self.next[(u64::from(directory) % GROUPS) as usize];
        let ino = *next;
        *next += 1;
        let mut runs: Vec<Placed> = Vec::new();
        let mut lbn = 0;
        while lbn < blocks {
            let mut at = (random.next_u64() % self.used.len() as u64) as usize;
            while self.used[at] {
                at = (at + 1) % self.used.len();
            }
            for _ in 0..1 + random.next_u64() % 6 {
                if lbn == blocks || at == self.used.len() || self.used[at] {
                    break;
                }
                self.used[at] = true;
                let extent = Extent::new(BlockNo::new(at as u64), 1);
                match runs.last_mut() {
                    Some(last) if last.extent.end() == extent.start => last.extent.len += 1,
                    _ => runs.push(Placed { lbn: Lbn::new(lbn), extent }),
                }
                (lbn, at) = (lbn + 1, at + 1);
            }
        }
        self.files.insert(ino, File { directory, blocks, runs });
        ino
    }

    pub(crate) fn remove(&mut self, ino: u32) {
        let file = self.files.remove(&ino).expect("a file");
        file.runs.iter().for_each(|run| self.mark(run.extent, false));
    }

    fn mark(&mut self, extent: Extent, used: bool) {
        let (start, end) = (extent.start.get() as usize, extent.end().get() as usize);
        self.used[start..end].fill(used);
    }

    pub(crate) fn has(&self, ino: u32) -> bool {
        self.files.contains_key(&ino)
    }

    pub(crate) fn inodes(&self) -> Vec<u32> {
        self.files.keys().copied().collect()
    }

    pub(crate) fn blocks_of(&self, ino: u32) -> u64 {
        self.files[&ino].blocks
    }

    pub(crate) fn path(&self, ino: u32) -> Option<Vec<u8>> {
        let file = self.files.get(&ino)?;
        Some(format!("/d{}/f{ino}", file.directory).into_bytes())
    }

    /// The part in use, from 0 to 1.
    pub(crate) fn fullness(&self) -> f64 {
        self.used.iter().filter(|used| **used).count() as f64 / self.used.len() as f64
    }

    fn runs(&self, used: bool) -> Vec<Extent> {
        let mut runs: Vec<Extent> = Vec::new();
        for (at, _) in self.used.iter().enumerate().filter(|(_, is)| **is == used) {
            match runs.last_mut() {
                Some(last) if last.end().get() == at as u64 => last.len += 1,
                _ => runs.push(Extent::new(BlockNo::new(at as u64), 1)),
            }
        }
        runs
    }

    /// Everything but what must stay.
    pub(crate) fn survey(&self, protect: &HashSet<u32>) -> Survey<'_> {
        let movable = self.files.keys().copied().filter(|ino| !protect.contains(ino)).collect();
        Survey { volume: self, movable }
    }

    pub(crate) fn apply(&mut self, movable: &[u32], step: &Step) {
        step.taken.iter().for_each(|run| {
            let blocks = run.start.get() as usize..run.end().get() as usize;
            assert!(self.used[blocks].iter().all(|used| !used), "{run:?} was not free");
            self.mark(*run, true);
        });
        step.freed.iter().for_each(|run| self.mark(*run, false));
        for changed in &step.changed {
            let file = self.files.get_mut(&movable[changed.object.index()]).expect("a file");
            file.runs.clone_from(&changed.data);
        }
    }

    /// No block has two owners, and what is in use is somebody's.
    pub(crate) fn check(&self) {
        let mut owned = vec![false; self.used.len()];
        for file in self.files.values() {
            assert_eq!(file.runs.iter().map(|run| run.extent.len).sum::<u64>(), file.blocks);
            for run in &file.runs {
                for at in run.extent.start.get()..run.extent.end().get() {
                    assert!(!std::mem::replace(&mut owned[at as usize], true));
                }
            }
        }
        let is_fixed = |at: usize| at as u64 % GROUP < FIXED;
        assert!((0..owned.len()).all(|at| self.used[at] == (owned[at] || is_fixed(at))));
    }
}

/// A volume as the planner takes it.
pub(crate) struct Survey<'a> {
    volume: &'a Volume,
    pub(crate) movable: Vec<u32>,
}

impl Survey<'_> {
    pub(crate) fn object(&self, ino: Ino) -> Option<ObjectId> {
        let at = self.movable.binary_search(&ino.get()).ok()?;
        Some(ObjectId::new(at as u32))
    }

    fn file(&self, object: ObjectId) -> &File {
        &self.volume.files[&self.movable[object.index()]]
    }

    pub(crate) fn space(&self) -> Space {
        let table = InodeTable {
            first: Ino::new(1),
            count: INODES,
            blocks: Extent::default(),
            group: Extent::new(BlockNo::ZERO, GROUP),
        };
        let free = self.volume.runs(false);
        Space { free, tables: vec![table], inodes_per_block: IN_BLOCK, ..Space::default() }
    }
}

impl Demand for Survey<'_> {
    fn objects(&self) -> usize {
        self.movable.len()
    }

    fn fixed_ino(&self, object: ObjectId) -> Option<Ino> {
        Some(Ino::new(self.movable[object.index()]))
    }

    fn is_directory(&self, _: ObjectId) -> bool {
        false
    }

    fn runs(&self, object: ObjectId, runs: &mut Vec<Run>) {
        let placed = self.file(object).runs.iter();
        runs.extend(placed.map(|run| Run { lbn: run.lbn, len: run.extent.len }));
    }

    fn overhead_blocks(&self, _: ObjectId, _: &[Placed]) -> u64 {
        0
    }

    fn is_pinned(&self, _: ObjectId) -> bool {
        false
    }

    fn walk_order(&self) -> Vec<ObjectId> {
        (0..self.movable.len() as u32).map(ObjectId::new).collect()
    }

    fn inode_order(&self) -> Vec<ObjectId> {
        self.walk_order()
    }
}

impl Occupied for Survey<'_> {
    fn data(&self, object: ObjectId) -> Vec<Placed> {
        self.file(object).runs.clone()
    }

    fn map(&self, _: ObjectId) -> Vec<BlockNo> {
        Vec::new()
    }

    fn map_needed(&self, _: ObjectId, _: &[Placed]) -> u64 {
        0
    }
}

/// The directory with this inode number.
fn directory_of(ino: u32) -> Option<u32> {
    ino.checked_sub(FIRST_DIRECTORY).filter(|at| *at < DIRECTORIES)
}

impl Inspect for Volume {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn root(&self) -> Ino {
        Ino::new(ROOT)
    }

    fn attr(&self, ino: Ino) -> Result<Attr, FsError> {
        let file = self.files.get(&ino.get());
        let kind = if file.is_some() { FileKind::Regular } else { FileKind::Directory };
        let blocks = file.map_or(1, |file| file.blocks);
        let time = Timestamp::default();
        Ok(Attr {
            ino,
            kind,
            perm: 0o644,
            uid: 0,
            gid: 0,
            nlink: 1,
            size: blocks * BLOCK,
            sectors: blocks * BLOCK / 512,
            atime: time,
            mtime: time,
            ctime: time,
            crtime: None,
            device: Default::default(),
            generation: 1,
            flags: 0,
            project: 0,
        })
    }

    fn xattrs(&self, _: Ino) -> Result<Vec<Xattr>, FsError> {
        Ok(Vec::new())
    }

    fn read_link(&self, _: Ino) -> Result<Vec<u8>, FsError> {
        Err(FsError::Invalid("no symlink".into()))
    }

    fn read(&self, _: Ino, _: ByteLen, _: &mut [u8]) -> Result<usize, FsError> {
        Ok(0)
    }

    fn lookup(&self, dir: Ino, name: &[u8]) -> Result<Option<Ino>, FsError> {
        let name = std::str::from_utf8(name).expect("a name");
        let number = |name: &str| name[1..].parse::<u32>().expect("a number");
        Ok(match directory_of(dir.get()) {
            None => Some(Ino::new(FIRST_DIRECTORY + number(name))),
            Some(_) => Some(Ino::new(number(name))).filter(|ino| self.has(ino.get())),
        })
    }

    fn read_dir(
        &self,
        _: Ino,
        _: u64,
        _: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<(), FsError> {
        Ok(())
    }

    fn block_map(&self, ino: Ino) -> Result<BlockMap, FsError> {
        let mapping = |lbn, extent| Mapping { lbn, extent, unwritten: false };
        let runs = match (self.files.get(&ino.get()), directory_of(ino.get())) {
            (Some(file), _) => file.runs.iter().map(|run| mapping(run.lbn, run.extent)).collect(),
            (None, at) => {
                let at = u64::from(at.map_or(DIRECTORIES, |at| at));
                let block = at % GROUPS * GROUP + TABLE_AT + TABLE + at / GROUPS;
                vec![mapping(Lbn::ZERO, Extent::new(BlockNo::new(block), 1))]
            }
        };
        Ok(BlockMap { runs, ..BlockMap::default() })
    }

    fn inode_location(&self, ino: Ino) -> Result<InodeLocation, FsError> {
        let index = ino.get() - 1;
        let start = u64::from(index / INODES) * GROUP + TABLE_AT;
        let block = start + u64::from(index % INODES / IN_BLOCK);
        let table = Extent::new(BlockNo::new(start), TABLE);
        let offset = index % IN_BLOCK * 256;
        Ok(InodeLocation { block: BlockNo::new(block), offset, table, used_end: table.end() })
    }

    fn lookup_blocks(&self, _: Ino, _: &[u8]) -> Result<Vec<Lbn>, FsError> {
        Ok(vec![Lbn::ZERO])
    }

    fn unindexed_blocks(&self, _: Ino) -> Result<Option<Vec<Lbn>>, FsError> {
        Ok(None)
    }

    fn listing_blocks(&self, _: Ino) -> Result<Vec<Lbn>, FsError> {
        Ok(vec![Lbn::ZERO])
    }

    fn group(&self, _: GroupNo) -> Result<GroupSummary, FsError> {
        Err(FsError::Invalid("not needed".into()))
    }
}
