//! A format as a crate of its own would have it: read-only, regular files and directories.
//!
//! Block 0 is the superblock: `FLAT0001`, then the number of files. Behind it lies a table of
//! records of 128 bytes, of file 0, the root, first. Names are in the records, so that
//! directories have no blocks; a file has at most four extents.

use seekless_device::BlockDevice;
use seekless_formats::{CrashTraits, EXT, KnownFormat, PartitionType};
use seekless_fs::check::{Outcome, Preen, Repaired, Report};
use seekless_fs::field::{invalid, range};
use seekless_fs::format::{Format, OpenOptions, Probe};
use seekless_fs::plan::{Demand, InodeTable, NewVolume, ObjectId, Placed, Plan, Run, Space};
use seekless_fs::source::Source;
use seekless_fs::tree::NodeId;
use seekless_fs::{
    Attr, BlockMap, DeviceNumber, DirEntry, FileKind, FsError, Geometry, GroupSummary,
    InodeLocation, Inspect, Location, Mapping, Timestamp, Xattr,
};
use seekless_units::{BlockNo, ByteLen, Extent, GroupNo, Ino, Lba, Lbn};
use std::ops::ControlFlow;
use std::sync::Arc;

const MAGIC: &[u8; 8] = b"FLAT0001";
pub(crate) const BLOCK: u64 = 512;
pub(crate) const RECORD: usize = 128;
const EXTENTS: usize = 4;
pub(crate) const EXTENTS_AT: usize = 64;

/// The row of the table of formats.
pub(crate) const FLAT: KnownFormat = KnownFormat {
    reader: Format { name: "flat", probe, open },
    called: "a flat image",
    family: "flat",
    unit: "blocks",
    versions: &[],
    maker: |_, _| refuse(),
    partition: PartitionType::LinuxRoot,
    make_parameters: &[],
    experiment: EXT.experiment,
    crash: CrashTraits {
        has_inodes: true,
        swaps_names: false,
        used_but_free: &[],
        asks_of_moves: &[],
    },
    default_discipline: |_| refuse(),
    mount_parameters: &[],
    open_live: |_, _, _, _| refuse(),
    check,
    repair_parameters: &[],
    preen: |device, _| examine(device),
    repair: |device, _| examine(device),
    corrections: None,
    snapshots: None,
    growth: None,
    quotas: None,
};

seekless_fs::problems! {
    EXTENT_RANGE = {
        code: "extent.range", phase: 1, preen: Preen::Stops,
        text: "blocks behind the end of the volume",
        question: None,
        repair: "(left)",
    }
    EXTENT_TWICE = {
        code: "extent.twice", phase: 1, preen: Preen::Stops,
        text: "blocks of two files",
        question: None,
        repair: "(left)",
    }
}

fn refuse<T>() -> Result<T, FsError> {
    Err(FsError::Unsupported("changes of a flat image".into()))
}

fn probe(device: &dyn BlockDevice) -> Probe {
    let mut head = [0; BLOCK as usize];
    match device.read(Lba::ZERO, &mut head) {
        Ok(()) if head.starts_with(MAGIC) => Probe::Yes,
        _ => Probe::No,
    }
}

fn open(device: Arc<dyn BlockDevice>, _: OpenOptions) -> Result<Arc<dyn Inspect>, FsError> {
    Ok(Arc::new(Flat::open(device)?))
}

struct File {
    parent: u32,
    kind: FileKind,
    name: Vec<u8>,
    size: u64,
    map: Vec<Extent>,
}

struct Flat {
    device: Arc<dyn BlockDevice>,
    geometry: Geometry,
    files: Vec<File>,
}

fn table_blocks(files: usize) -> u64 {
    (files * RECORD).div_ceil(BLOCK as usize) as u64
}

impl Flat {
    fn open(device: Arc<dyn BlockDevice>) -> Result<Self, FsError> {
        let mut head = [0; BLOCK as usize];
        device.read(Lba::ZERO, &mut head)?;
        let count = u32::from_le_bytes([head[8], head[9], head[10], head[11]]);
        let blocks = device.len().get() / BLOCK;
        if count == 0 || table_blocks(count as usize) >= blocks {
            return Err(range("files", u64::from(count), blocks, Location::of("superblock")));
        }
        let mut table = vec![0; (table_blocks(count as usize) * BLOCK) as usize];
        device.read(Lba::new(1), &mut table)?;
        let mut files = Vec::new();
        for (number, record) in table.chunks_exact(RECORD).take(count as usize).enumerate() {
            let place = || Location::of("record").in_inode(Ino::new(number as u32 + 1));
            let word = |at: usize| u32::from_le_bytes(record[at..at + 4].try_into().unwrap());
            let kind = match record[4] {
                0 => FileKind::Directory,
                1 => FileKind::Regular,
                other => return Err(invalid("kind", u64::from(other), place())),
            };
            let name = record.get(16..16 + usize::from(record[5]));
            let map = (0..EXTENTS).map(|n| EXTENTS_AT + n * 8);
            let map = map.map(|at| Extent::new(BlockNo::new(word(at).into()), word(at + 4).into()));
            files.push(File {
                parent: word(0),
                kind,
                name: name.ok_or_else(|| invalid("name", record[5].into(), place()))?.to_vec(),
                size: u64::from(word(8)),
                map: map.filter(|run| run.len > 0).collect(),
            });
        }
        let used: u64 = files.iter().flat_map(|file| &file.map).map(|run| run.len).sum();
        let geometry = Geometry {
            format: "flat",
            block_size: BLOCK as u32,
            blocks,
            free_blocks: blocks.saturating_sub(1 + table_blocks(files.len()) + used),
            blocks_per_group: blocks,
            first_block: BlockNo::ZERO,
            groups: 1,
            inodes: count,
            free_inodes: 0,
            inodes_per_group: count,
            inode_size: RECORD as u32,
            cluster_blocks: 1,
            label: Vec::new(),
            uuid: [0; 16],
            features: Vec::new(),
        };
        Ok(Self { device, geometry, files })
    }

    fn file(&self, ino: Ino) -> Result<&File, FsError> {
        let file = (ino.get() as usize).checked_sub(1).and_then(|at| self.files.get(at));
        file.ok_or_else(|| FsError::NotFound(format!("inode {ino}")))
    }

    fn names(&self, dir: Ino) -> Result<impl Iterator<Item = (Ino, &File)>, FsError> {
        if self.file(dir)?.kind != FileKind::Directory {
            return Err(FsError::NotDirectory(format!("inode {dir}")));
        }
        let files = self.files.iter().enumerate().skip(1);
        let inside = files.filter(move |(_, file)| file.parent == dir.get());
        Ok(inside.map(|(at, file)| (Ino::new(at as u32 + 1), file)))
    }

    fn report(&self) -> Report {
        let mut report = Report::default();
        let mut taken = vec![false; self.geometry.blocks as usize];
        taken[..=table_blocks(self.files.len()) as usize].fill(true);
        for (number, file) in self.files.iter().enumerate() {
            report.tally.inodes += 1;
            report.tally.directories += u64::from(file.kind == FileKind::Directory);
            let place = Location::of("record").in_inode(Ino::new(number as u32 + 1));
            for run in &file.map {
                let (from, to) = (run.start.get() as usize, run.end().get() as usize);
                let Some(blocks) = taken.get_mut(from..to) else {
                    let what = format!("blocks {run} lie behind the end");
                    report.add(EXTENT_RANGE, what, place);
                    continue;
                };
                if blocks.iter().any(|&is_taken| is_taken) {
                    let what = format!("blocks {run} are another's too");
                    report.add(EXTENT_TWICE, what, place);
                }
                blocks.fill(true);
                report.tally.blocks += run.len;
            }
        }
        report
    }
}

fn check(device: Arc<dyn BlockDevice>) -> Result<Report, FsError> {
    Ok(Flat::open(device)?.report())
}

fn examine(device: Arc<dyn BlockDevice>) -> Result<Repaired, FsError> {
    let report = check(device)?;
    let outcome = if report.is_clean() { Outcome::Clean } else { Outcome::Left };
    Ok(Repaired { report, outcome, rounds: 1, writes: 0 })
}

impl Inspect for Flat {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn root(&self) -> Ino {
        Ino::new(1)
    }

    fn attr(&self, ino: Ino) -> Result<Attr, FsError> {
        let file = self.file(ino)?;
        let time = Timestamp::default();
        let perm = if file.kind == FileKind::Directory { 0o755 } else { 0o644 };
        let sectors = file.map.iter().map(|run| run.len).sum();
        let (kind, size, device) = (file.kind, file.size, DeviceNumber::default());
        let (atime, mtime, ctime, crtime) = (time, time, time, None);
        let (uid, gid, nlink, generation, flags, project) = (0, 0, 1, 0, 0, 0);
        #[rustfmt::skip]
        let attr = Attr {
            ino, kind, perm, uid, gid, nlink, size, sectors, atime, mtime, ctime, crtime, device,
            generation, flags, project,
        };
        Ok(attr)
    }

    fn xattrs(&self, _: Ino) -> Result<Vec<Xattr>, FsError> {
        Ok(Vec::new())
    }

    fn read_link(&self, ino: Ino) -> Result<Vec<u8>, FsError> {
        Err(FsError::Invalid(format!("inode {ino} is not a symlink")))
    }

    fn read(&self, ino: Ino, offset: ByteLen, buf: &mut [u8]) -> Result<usize, FsError> {
        let left = self.file(ino)?.size.saturating_sub(offset.get());
        let len = left.min(buf.len() as u64) as usize;
        let map = self.block_map(ino)?;
        for (at, byte) in (offset.get()..).zip(&mut buf[..len]) {
            let run = map.find(Lbn::new(at / BLOCK));
            let start = run.ok_or_else(|| invalid("extent", at, Location::of("record")))?;
            let mut sector = [0; BLOCK as usize];
            self.device.read(Lba::new(start.extent.start.get()), &mut sector)?;
            *byte = sector[(at % BLOCK) as usize];
        }
        Ok(len)
    }

    fn lookup(&self, dir: Ino, name: &[u8]) -> Result<Option<Ino>, FsError> {
        Ok(self.names(dir)?.find(|(_, file)| file.name == name).map(|(ino, _)| ino))
    }

    fn read_dir(
        &self,
        dir: Ino,
        after: u64,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<(), FsError> {
        for (ino, file) in self.names(dir)?.filter(|(ino, _)| u64::from(ino.get()) > after) {
            let cookie = u64::from(ino.get());
            let entry = DirEntry { name: &file.name, ino, kind: Some(file.kind), cookie };
            if visit(entry).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn block_map(&self, ino: Ino) -> Result<BlockMap, FsError> {
        let mut lbn = 0;
        let runs = self.file(ino)?.map.iter().map(|&extent| {
            lbn += extent.len;
            Mapping { lbn: Lbn::new(lbn - extent.len), extent, unwritten: false }
        });
        Ok(BlockMap { runs: runs.collect(), ..BlockMap::default() })
    }

    fn inode_location(&self, ino: Ino) -> Result<InodeLocation, FsError> {
        self.file(ino)?;
        let byte = (ino.get() - 1) * RECORD as u32;
        let table = Extent::new(BlockNo::new(1), table_blocks(self.files.len()));
        let block = BlockNo::new(1 + u64::from(byte) / BLOCK);
        Ok(InodeLocation { block, offset: byte % BLOCK as u32, table, used_end: table.end() })
    }

    fn lookup_blocks(&self, _: Ino, _: &[u8]) -> Result<Vec<Lbn>, FsError> {
        Ok(Vec::new())
    }

    fn unindexed_blocks(&self, _: Ino) -> Result<Option<Vec<Lbn>>, FsError> {
        Ok(None)
    }

    fn listing_blocks(&self, _: Ino) -> Result<Vec<Lbn>, FsError> {
        Ok(Vec::new())
    }

    fn group(&self, _: GroupNo) -> Result<GroupSummary, FsError> {
        Err(FsError::Unsupported("groups of a flat image".into()))
    }
}

/// Makes flat images of a source.
pub(crate) struct Builder<'a> {
    source: &'a dyn Source,
    blocks: u64,
}

impl<'a> Builder<'a> {
    pub(crate) fn new(source: &'a dyn Source) -> Self {
        let blocks = source.tree().nodes().iter().map(|node| node.size.div_ceil(BLOCK)).sum();
        Self { source, blocks }
    }

    fn ids(&self) -> Vec<ObjectId> {
        self.source.tree().ids().map(|id| ObjectId::new(id.index() as u32)).collect()
    }
}

impl Demand for Builder<'_> {
    fn objects(&self) -> usize {
        self.source.tree().nodes().len()
    }

    fn fixed_ino(&self, object: ObjectId) -> Option<Ino> {
        Some(Ino::new(object.index() as u32 + 1))
    }

    fn is_directory(&self, object: ObjectId) -> bool {
        self.source.tree().nodes()[object.index()].kind == FileKind::Directory
    }

    fn runs(&self, object: ObjectId, runs: &mut Vec<Run>) {
        let len = self.source.tree().nodes()[object.index()].size.div_ceil(BLOCK);
        runs.extend((len > 0).then_some(Run { lbn: Lbn::ZERO, len }));
    }

    fn overhead_blocks(&self, _: ObjectId, _: &[Placed]) -> u64 {
        0
    }

    fn is_pinned(&self, _: ObjectId) -> bool {
        false
    }

    fn walk_order(&self) -> Vec<ObjectId> {
        self.ids()
    }

    fn inode_order(&self) -> Vec<ObjectId> {
        self.ids()
    }
}

impl NewVolume for Builder<'_> {
    fn demand(&self) -> &dyn Demand {
        self
    }

    fn space(&self) -> Space {
        let files = self.objects();
        let blocks = Extent::new(BlockNo::new(1), table_blocks(files));
        let count = files as u32;
        let group = Extent::new(BlockNo::ZERO, self.size().get() / BLOCK);
        Space {
            inodes: vec![(Ino::new(1), count)],
            free: vec![Extent::new(blocks.end(), self.blocks)],
            tables: vec![InodeTable { first: Ino::new(1), count, blocks, group }],
            inodes_per_block: (BLOCK as usize / RECORD) as u32,
            counts_unused: false,
        }
    }

    fn block_size(&self) -> u32 {
        BLOCK as u32
    }

    fn size(&self) -> ByteLen {
        ByteLen::new((1 + table_blocks(self.objects()) + self.blocks) * BLOCK)
    }

    fn clamped_times(&self) -> usize {
        0
    }

    fn write(
        &self,
        plan: &Plan,
        device: &dyn BlockDevice,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<(), FsError> {
        let tree = self.source.tree();
        let mut table = vec![0; (table_blocks(self.objects()) * BLOCK) as usize];
        for id in tree.ids() {
            let (node, object) = (tree.node(id), ObjectId::new(id.index() as u32));
            let is_regular = node.kind == FileKind::Regular;
            if !is_regular && node.kind != FileKind::Directory {
                return Err(FsError::Unsupported(format!("{}: its kind", tree.shown_path(id))));
            }
            let path = tree.path(id);
            let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
            let data = plan.data(object);
            if name.len() > EXTENTS_AT - 16 || data.len() > EXTENTS {
                return Err(FsError::Unsupported(format!("{}: its map", tree.shown_path(id))));
            }
            let record = &mut table[id.index() * RECORD..][..RECORD];
            let parent = if id == NodeId::ROOT { 0 } else { tree.parent(id).index() as u32 + 1 };
            record[..4].copy_from_slice(&parent.to_le_bytes());
            record[4..6].copy_from_slice(&[u8::from(is_regular), name.len() as u8]);
            record[8..12].copy_from_slice(&(node.size as u32).to_le_bytes());
            record[16..16 + name.len()].copy_from_slice(name);
            for (placed, to) in data.iter().zip(record[EXTENTS_AT..].chunks_exact_mut(8)) {
                let (start, len) = (placed.extent.start.get() as u32, placed.extent.len as u32);
                to.copy_from_slice(&[start.to_le_bytes(), len.to_le_bytes()].concat());
                let mut content = self.source.open(id)?;
                let mut bytes = vec![0; (placed.extent.len * BLOCK) as usize];
                let from = placed.lbn.get() * BLOCK;
                let rest = (node.size - from).min(bytes.len() as u64) as usize;
                content.read_at(from, &mut bytes[..rest])?;
                content.verify()?;
                device.write(Lba::new(placed.extent.start.get()), &bytes)?;
                progress(bytes.len() as u64);
            }
        }
        device.write(Lba::new(1), &table)?;
        let mut head = [0; BLOCK as usize];
        head[..8].copy_from_slice(MAGIC);
        head[8..12].copy_from_slice(&(self.objects() as u32).to_le_bytes());
        device.write(Lba::ZERO, &head)?;
        Ok(())
    }
}
