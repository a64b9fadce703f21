//! A trace replayed on an image: which requests reach the disk when nothing is
//! cached at first.
//!
//! The model is Linux reading ext4: a name is looked up through the blocks of its directory, an
//! inode brings its neighbours in the inode table along (`inode_readahead_blks`), a file's data
//! comes with read-ahead. Blocks and pages once read stay in memory. Sources: `fs/ext4/inode.c`
//! (`__ext4_get_inode_loc`), `fs/ext4/namei.c`, `mm/filemap.c`, `mm/readahead.c`.

mod contents;
mod faults;
mod index;
mod interleave;
mod kernel;
mod listing;
mod names;
mod readahead;
mod symlinks;

pub use faults::executable_segments;
pub use kernel::KernelVersion;
pub use symlinks::add_symlinks;

use crate::pages::PageSet;
use crate::trace::{EventRef, Events, Op};
use index::IndexLevels;
use readahead::{PageCache, ReadAhead};
use seekless_fs::{Attr, BlockMap, Corruption, FileKind, FsError, Inspect, Location};
use seekless_units::{BlockNo, ByteLen, Extent, Ino, Lbn};
use std::collections::{HashMap, HashSet};

/// Bytes in a page of memory.
const PAGE: u64 = 4096;

/// Pages of a hole that are not worth walking through.
const LARGE_HOLE: u64 = 256;

/// Blocks of a directory without an index that are read at once
/// (`NAMEI_RA_SIZE`).
const SEARCH_BATCH: usize = 8;

/// Symlinks followed before a path is given up, as the kernel.
const MAX_LINKS: u32 = 40;

/// The machine that the trace is replayed on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Machine {
    /// The most that file read-ahead fetches at once (`read_ahead_kb`).
    pub read_ahead: ByteLen,
    /// Blocks of the inode table fetched at once (`inode_readahead_blks`); a
    /// power of two, or 0 for one by one.
    pub inode_read_ahead_blocks: u64,
    /// The most that one request asks for (`max_sectors_kb`).
    pub max_request: ByteLen,
    /// The most pieces of memory that one request fills (`max_segments`).
    pub max_segments: u64,
    /// Whether a listing of a directory without an index reads ahead on the device, whatever lies
    /// there; without it the requests are only for the directory itself.
    pub listing_read_ahead: bool,
    /// Whether runs of a file that follow each other on the disk, with a hole between
    /// them in the file, are one request; without it each run is one, and a request's
    /// blocks are those of the file from `lbn` on.
    pub merges: bool,
    /// Whether a fault in an executable mapping reads from the page on (Linux 6.17),
    /// or around it as in others.
    pub executable_forward: bool,
    /// The order between processes.
    pub processes: Processes,
}

/// How the events of different processes fall between each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Processes {
    /// As in the trace.
    #[default]
    AsRecorded,
    /// As in another run: each goes at its own pace, with pauses drawn around
    /// those of the trace, by a seed.
    SideBySide(u64),
}

impl Default for Machine {
    fn default() -> Self {
        Self {
            read_ahead: ByteLen::new(128 << 10),
            inode_read_ahead_blocks: 32,
            max_request: ByteLen::new(1280 << 10),
            max_segments: 128,
            listing_read_ahead: true,
            merges: true,
            executable_forward: true,
            processes: Processes::AsRecorded,
        }
    }
}

impl Machine {
    /// The machine of a score: each process at its own pace.
    #[must_use]
    pub fn for_score() -> Self {
        Self { processes: Processes::SideBySide(0), ..Self::default() }
    }

    /// The machine whose reads are to be laid out in their order. A listing's read-ahead depends on
    /// the present places, and so does the merging of requests: neither is modelled.
    ///
    /// Reads of processes side by side keep the order of the trace. Another run reads at most places
    /// a little before or behind where this one did: over short distances, much of it forward, which
    /// a disk does without waiting for another turn. Each process's reads in one piece would give
    /// fewer seeks to some programs, but over longer distances.
    #[must_use]
    pub fn for_layout() -> Self {
        Self { listing_read_ahead: false, merges: false, ..Self::default() }
    }
}

/// The reads of each trace on an image, in the order to lay out by.
///
/// # Errors
/// Those of [`replay`].
pub fn replay_for_layout(image: &dyn Inspect, traces: &[Events]) -> Result<Vec<Replayed>, FsError> {
    traces.iter().map(|events| replay(image, events, Machine::for_layout())).collect()
}

/// The purpose of a request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Purpose {
    /// Blocks of an inode table.
    Inode,
    /// Blocks of a directory.
    Directory,
    /// Blocks of a file's map: extent tree or indirect.
    Map,
    /// A block of extended attributes.
    Attribute,
    /// A file's contents, or a long symlink's target.
    Data,
    /// Nothing of a file: [`Op::Device`].
    Device,
}

impl Purpose {
    /// Whether it is not file contents.
    #[must_use]
    pub const fn is_metadata(self) -> bool {
        !matches!(self, Self::Data)
    }

    /// A word for tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Inode => "inode",
            Self::Directory => "directory",
            Self::Map => "map",
            Self::Attribute => "attribute",
            Self::Data => "data",
            Self::Device => "device",
        }
    }
}

/// One request to the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// The blocks read.
    pub extent: Extent,
    /// Their purpose.
    pub purpose: Purpose,
    /// The file it belongs to; the root directory where it is of none.
    pub ino: Ino,
    /// The logical block it begins with, for data and directories.
    pub lbn: Lbn,
    /// The event of the trace that caused it.
    pub event: usize,
}

/// The result of a replay.
#[derive(Clone, Debug, Default)]
pub struct Replayed {
    /// In the order in which they are made.
    pub requests: Vec<Request>,
    /// Inodes in the order in which they are first needed, whether or not a
    /// request was needed for them.
    pub inodes: Vec<Ino>,
    /// Blocks that the trace itself needs, read-ahead not counted.
    pub touched_blocks: u64,
    /// Paths of the trace that are not in the image, each once.
    pub missing: Vec<Vec<u8>>,
    /// Files whose contents were read, in order.
    pub files: Vec<Ino>,
    /// The path by which each inode was first reached, symlinks resolved; the
    /// root's is empty.
    pub paths: HashMap<Ino, Vec<u8>>,
}

/// Replays `events` on `image`, from a cold start.
///
/// # Errors
/// When the image is not sound where the trace leads; files that merely do not exist are listed in
/// [`Replayed::missing`].
pub fn replay(image: &dyn Inspect, events: &Events, machine: Machine) -> Result<Replayed, FsError> {
    let mut replay = Replay::new(image, machine, events);
    let mut run = |at: usize| -> Result<(), FsError> {
        if replay.is_settled[events.access(at)] {
            return Ok(());
        }
        replay.event = at;
        let settled = replay.run(&events.get(at).expect("an event"), events.path(at))?;
        replay.is_settled[events.access(at)] = settled;
        Ok(())
    };
    match machine.processes {
        Processes::AsRecorded => (0..events.len()).try_for_each(run)?,
        Processes::SideBySide(seed) => {
            interleave::drawn(events, seed).into_iter().try_for_each(|at| run(at as usize))?;
        }
    }
    replay.out.touched_blocks = replay.touched.len() as u64;
    Ok(replay.out)
}

/// The cached state of a file once its inode is in memory.
struct File {
    attr: Attr,
    map: Option<(BlockMap, IndexLevels)>,
    pages: PageCache,
}

struct Replay<'a> {
    image: &'a dyn Inspect,
    machine: Machine,
    block_size: u64,
    event: usize,
    /// Accesses that have no more effect, by any process: all that they lead to is in memory.
    is_settled: Vec<bool>,
    /// Results of walks, by path, with the last symlink followed or not. A second walk finds all
    /// names and inodes in memory, and has no effect.
    walked: [Vec<Option<Option<Ino>>>; 2],
    /// Metadata blocks in memory.
    buffers: HashSet<BlockNo>,
    /// The pages of the device that hold them.
    device: PageCache,
    files: HashMap<Ino, File>,
    /// Names in memory (`dcache`), absent ones too.
    names: HashMap<(Ino, Vec<u8>), Option<Ino>>,
    listed: HashSet<Ino>,
    /// Where in a directory without an index a name was found last.
    searches: HashMap<Ino, usize>,
    states: HashMap<(u32, Ino), ReadAhead>,
    /// The pages of mapped files that each process has mapped.
    mapped: HashMap<(u32, Ino), PageSet>,
    /// The pages of the executable segments of mapped files.
    segments: HashMap<Ino, Vec<(u64, u64)>>,
    touched: HashSet<BlockNo>,
    read: HashSet<Ino>,
    missing: HashSet<Vec<u8>>,
    out: Replayed,
}

impl<'a> Replay<'a> {
    fn new(image: &'a dyn Inspect, machine: Machine, events: &Events) -> Self {
        Self {
            image,
            machine,
            block_size: u64::from(image.geometry().block_size),
            event: 0,
            is_settled: vec![false; events.accesses()],
            walked: [vec![None; events.paths()], vec![None; events.paths()]],
            buffers: HashSet::new(),
            device: PageCache::default(),
            files: HashMap::new(),
            names: HashMap::new(),
            listed: HashSet::new(),
            searches: HashMap::new(),
            states: HashMap::new(),
            mapped: HashMap::new(),
            segments: HashMap::new(),
            touched: HashSet::new(),
            read: HashSet::new(),
            missing: HashSet::new(),
            out: Replayed::default(),
        }
    }

    /// Performs an event, whose path has the number `path`; whether the same access of any process
    /// has no effect from now on.
    fn run(&mut self, event: &EventRef<'_>, path: usize) -> Result<bool, FsError> {
        if *event.op == Op::Device {
            self.read_device(event);
            // What came from the device is read again.
            return Ok(!event.fetched);
        }
        let follow = !matches!(event.op, Op::Readlink | Op::Lookup | Op::Stat);
        let known = self.walked[usize::from(follow)][path];
        let found = match known {
            Some(found) => found,
            None => self.walk(event.path, follow)?,
        };
        self.walked[usize::from(follow)][path] = Some(found);
        let Some(ino) = found else {
            if !event.missing && self.missing.insert(event.path.to_vec()) {
                self.out.missing.push(event.path.to_vec());
            }
            return Ok(true);
        };
        match event.op {
            Op::Read | Op::Mmap | Op::Fault => {
                self.read_file(event, ino)?;
                Ok(event.fetched || self.is_in_memory(ino))
            }
            Op::Exec => {
                self.read_attributes(ino)?;
                // The kernel reads the head of a program to find its format.
                let length = event.length.or(Some(PAGE));
                self.read_file(&EventRef { length, ..*event }, ino)?;
                Ok(self.is_in_memory(ino))
            }
            Op::Readdir => self.list(ino).map(|()| true),
            Op::Readlink => self.read_target(ino).map(|_| true),
            Op::Open => {
                self.states.remove(&(event.pid, ino));
                self.mapped.remove(&(event.pid, ino));
                Ok(self.is_in_memory(ino))
            }
            Op::Lookup | Op::Stat | Op::Device | Op::Other(_) => Ok(true),
        }
    }

    /// Whether all pages of a file are in memory, so that read-ahead of it is over, or it has none.
    fn is_in_memory(&self, ino: Ino) -> bool {
        self.files.get(&ino).is_some_and(|file| {
            file.attr.kind != FileKind::Regular || file.pages.has_all(file.attr.size.div_ceil(PAGE))
        })
    }

    /// Reads a range of the device through its page cache, which also has the buffers of metadata:
    /// blocks in it are not read again, by either. Reads that were seen to come from the device are
    /// repeated: the last close of a device empties its cache (`blkdev_put`). A volume that is
    /// smaller than the recorded one has nothing there.
    fn read_device(&mut self, event: &EventRef<'_>) {
        let (size, blocks) = (self.block_size, self.image.geometry().blocks);
        let end = event.end().unwrap_or(u64::MAX);
        let first = (event.offset / size).min(blocks);
        let extent = Extent::new(BlockNo::new(first), end.div_ceil(size).min(blocks) - first);
        if event.fetched {
            (0..extent.len).for_each(|at| {
                self.buffers.remove(&(extent.start + at));
            });
        }
        self.read_buffers(extent, Purpose::Device, self.image.root(), Lbn::ZERO);
        self.touched.extend((0..extent.len).map(|at| extent.start + at));
    }

    fn map(&mut self, ino: Ino) -> Result<&BlockMap, FsError> {
        self.indexed_map(ino).map(|(map, _)| map)
    }

    fn indexed_map(&mut self, ino: Ino) -> Result<&(BlockMap, IndexLevels), FsError> {
        self.load_inode(ino)?;
        let image = self.image;
        let Some(file) = self.files.get_mut(&ino) else {
            return Err(FsError::Invalid(format!("inode {ino} was not loaded")));
        };
        if file.map.is_none() {
            let map = image.block_map(ino)?;
            check_map(image, ino, &map)?;
            let index = IndexLevels::new(&map.index);
            file.map = Some((map, index));
        }
        Ok(file.map.get_or_insert_default())
    }

    /// Reads the blocks of a file's map that lead to a logical block.
    fn read_map(&mut self, ino: Ino, lbn: Lbn) -> Result<(), FsError> {
        let mut looked = 0;
        let blocks = self.indexed_map(ino)?.1.leading_to(lbn, &mut looked);
        for block in blocks {
            self.read_buffers(Extent::new(block, 1), Purpose::Map, ino, lbn);
            self.touched.insert(block);
        }
        Ok(())
    }

    fn read_attributes(&mut self, ino: Ino) -> Result<(), FsError> {
        if let Some(block) = self.map(ino)?.xattr_block {
            self.read_buffers(Extent::new(block, 1), Purpose::Attribute, ino, Lbn::ZERO);
            self.touched.insert(block);
        }
        Ok(())
    }

    fn read_target(&mut self, ino: Ino) -> Result<Vec<u8>, FsError> {
        if self.kind(ino)? != FileKind::Symlink {
            return Ok(Vec::new());
        }
        if !self.map(ino)?.runs.is_empty() {
            self.read_bytes(0, ino, 0, PAGE)?;
        }
        self.image.read_link(ino)
    }

    /// Metadata goes through the buffer cache, block by block; adjacent blocks read in one go are
    /// one request.
    fn read_buffers(&mut self, extent: Extent, purpose: Purpose, ino: Ino, lbn: Lbn) {
        let mut run: Option<Extent> = None;
        for at in 0..extent.len {
            let block = extent.start + at;
            if self.buffers.insert(block) {
                let page = block.get() * self.block_size / PAGE;
                self.device.add(page, page + 1);
                match &mut run {
                    Some(run) => run.len += 1,
                    None => run = Some(Extent::new(block, 1)),
                }
            } else if let Some(run) = run.take() {
                self.request(run, purpose, ino, lbn);
            }
        }
        if let Some(run) = run {
            self.request(run, purpose, ino, lbn);
        }
    }

    fn request(&mut self, extent: Extent, purpose: Purpose, ino: Ino, lbn: Lbn) {
        self.out.requests.push(Request { extent, purpose, ino, lbn, event: self.event });
    }
}

/// Checks that the blocks of a map have places in bytes: the replay calculates with these. That they
/// lie in the volume is for its reader to check; layouts that are only considered may use room
/// behind its end.
fn check_map(image: &dyn Inspect, ino: Ino, map: &BlockMap) -> Result<(), FsError> {
    let place = Location::of("block map").in_inode(ino);
    let index = map.index.iter().map(|node| Extent::new(node.block, 1));
    let attributes = map.xattr_block.map(|block| Extent::new(block, 1));
    let mut extents = map.runs.iter().map(|run| run.extent).chain(index).chain(attributes);
    extents.try_for_each(|extent| check_extent(image, extent, place))
}

fn check_extent(image: &dyn Inspect, extent: Extent, place: Location) -> Result<(), FsError> {
    let limit = u64::MAX / u64::from(image.geometry().block_size.max(1));
    let value = extent.start.get();
    if value.checked_add(extent.len).is_none_or(|end| end > limit) {
        let kind = Corruption::Range { field: "block number", value, limit };
        return Err(FsError::corrupt(kind, place));
    }
    Ok(())
}
