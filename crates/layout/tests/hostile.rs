//! Replays on images that name blocks beyond any volume: a typed error with the inode, no panic.

use seekless_fs::{
    Attr, BlockMap, Corruption, DirEntry, FileKind, FsError, Geometry, GroupSummary, IndexBlock,
    InodeLocation, Inspect, Mapping, Timestamp, Xattr,
};
use seekless_layout::replay::{Machine, Purpose, replay};
use seekless_layout::trace::{Event, Op};
use seekless_units::{BlockNo, ByteLen, Extent, GroupNo, Ino, Lbn, Nanos};
use std::ops::ControlFlow;

const BLOCKS: u64 = 1000;

const ROOT: Ino = Ino::new(2);

/// A volume with a directory as root, in which each name is the same file.
struct Lying {
    geometry: Geometry,
    /// The block of the table that all inodes lie in.
    table: BlockNo,
    directory: BlockMap,
    file: BlockMap,
    /// The length of files, in bytes.
    size: u64,
}

impl Lying {
    fn new() -> Self {
        let geometry = Geometry {
            format: "ext4",
            block_size: 65536,
            blocks: BLOCKS,
            free_blocks: 0,
            blocks_per_group: BLOCKS,
            first_block: BlockNo::ZERO,
            groups: 1,
            inodes: 100,
            free_inodes: 0,
            inodes_per_group: 100,
            inode_size: 256,
            cluster_blocks: 1,
            label: Vec::new(),
            uuid: [0; 16],
            features: Vec::new(),
        };
        let table = BlockNo::new(1);
        let (directory, file) = (BlockMap::default(), BlockMap::default());
        Self { geometry, table, directory, file, size: 65536 }
    }
}

impl Inspect for Lying {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn root(&self) -> Ino {
        ROOT
    }

    fn attr(&self, ino: Ino) -> Result<Attr, FsError> {
        let kind = if ino == ROOT { FileKind::Directory } else { FileKind::Regular };
        let time = Timestamp::default();
        Ok(Attr {
            ino,
            kind,
            perm: 0o644,
            uid: 0,
            gid: 0,
            nlink: 1,
            size: self.size,
            sectors: 128,
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

    fn lookup(&self, _: Ino, _: &[u8]) -> Result<Option<Ino>, FsError> {
        Ok(Some(Ino::new(12)))
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
        Ok(if ino == ROOT { self.directory.clone() } else { self.file.clone() })
    }

    fn inode_location(&self, _: Ino) -> Result<InodeLocation, FsError> {
        let table = Extent::new(self.table, 1);
        Ok(InodeLocation { block: self.table, offset: 0, table, used_end: self.table })
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
        Err(FsError::Invalid("no group".into()))
    }
}

/// The field of the error that a replay ends with.
fn refused(image: &Lying) -> &'static str {
    let event = |op, path: &[u8]| Event::new(Nanos::ZERO, op, path.to_vec());
    let events = [event(Op::Readdir, b"/"), event(Op::Exec, b"/file"), event(Op::Read, b"/file")];
    match replay(image, &events.into_iter().collect(), Machine::default()) {
        Err(FsError::Corrupt { kind: Corruption::Range { field, .. }, location }) => {
            assert!(location.ino.is_some(), "{location}");
            field
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn block_numbers_beyond_any_volume() {
    let sound = Lying::new();
    let event = Event::new(Nanos::ZERO, Op::Exec, b"/file".to_vec());
    replay(&sound, &[event].into_iter().collect(), Machine::default()).expect("a sound volume");
    for number in [u64::MAX / 4096 + 1, u64::MAX] {
        let block = BlockNo::new(number);
        let attributes = BlockMap { xattr_block: Some(block), ..BlockMap::default() };
        assert_eq!(refused(&Lying { file: attributes, ..Lying::new() }), "block number");
        let (first, last) = (Lbn::ZERO, Lbn::new(10));
        let node = IndexBlock { block, len: 1, first, last, depth: 1 };
        let extent = Extent::new(BlockNo::new(5), 1);
        let run = Mapping { lbn: Lbn::ZERO, extent, unwritten: false };
        let map = BlockMap { index: vec![node], runs: vec![run], ..BlockMap::default() };
        assert_eq!(refused(&Lying { file: map, ..Lying::new() }), "block number");
        let run = Mapping { lbn: Lbn::ZERO, extent: Extent::new(block, 1), unwritten: false };
        let map = BlockMap { runs: vec![run], ..BlockMap::default() };
        assert_eq!(refused(&Lying { file: map.clone(), ..Lying::new() }), "block number");
        assert_eq!(refused(&Lying { directory: map, ..Lying::new() }), "block number");
        assert_eq!(refused(&Lying { table: block, ..Lying::new() }), "block number");
    }
}

#[test]
fn ranges_of_a_trace_beyond_every_file() {
    let ops = [Op::Read, Op::Exec, Op::Fault, Op::Device];
    let events = ops
        .into_iter()
        .map(|op| Event::new(Nanos::ZERO, op, b"/file".to_vec()).on(u64::MAX - 5, 100))
        .chain([Event::new(Nanos::ZERO, Op::Read, b"/".to_vec()).on(u64::MAX, u64::MAX)])
        .collect();
    let replayed = replay(&Lying::new(), &events, Machine::default()).expect("a sound volume");
    assert_eq!(replayed.files.len(), 1);
}

/// The time of a replay depends on the data of a file, not on its length.
#[test]
fn every_page_of_a_sparse_file_is_faulted_in() {
    let size = 1 << 62;
    let blocks = [(0, 5), (size / 65536 - 1, 700)];
    let runs = blocks.map(|(lbn, block)| Mapping {
        lbn: Lbn::new(lbn),
        extent: Extent::new(BlockNo::new(block), 1),
        unwritten: false,
    });
    let file = BlockMap { runs: runs.to_vec(), ..BlockMap::default() };
    let image = Lying { file, size, ..Lying::new() };
    let all = Event::new(Nanos::ZERO, Op::Fault, b"/file".to_vec());
    let replayed = replay(&image, &[all].into_iter().collect(), Machine::default()).expect("sound");
    let data = replayed.requests.iter().filter(|it| it.purpose == Purpose::Data);
    let mut read: Vec<u64> = data.map(|it| it.extent.start.get()).collect();
    read.dedup();
    assert_eq!(read, [5, 700]);
}
