//! Volumes with a file for a journal, and their fields, by the description of the format alone.

use crate::ufs::{InUse, Ufs};
use seekless_cache::Config;
use seekless_crash::{Live, Recovered, Target};
use seekless_device::{BlockDevice, MemoryDevice, VirtualClock};
use seekless_ffs::{CheckHashes, FfsImage, MakeOptions, Version};
use seekless_fs::check::Report;
use seekless_fs::format::OpenOptions;
use seekless_fs::operate::{NewFile, Operate, Ownership};
use seekless_fs::{FsError, Inspect};
use seekless_units::{ByteLen, Ino};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes of the journal's file: no journal is shorter.
pub(crate) const JOURNAL: usize = 4 << 20;
const IMAGE: ByteLen = ByteLen::new(6 << 20);
const NAME: &[u8] = b".sujournal";

/// UFS with a file for a journal, which the engine does not write.
pub(crate) struct Journaled {
    version: Version,
    ufs: Ufs,
    fragment: u32,
}

impl Journaled {
    pub(crate) fn of(version: Version) -> Self {
        Self { version, ufs: Ufs::of(version), fragment: 512 }
    }

    /// One with fragments of a size, in bytes.
    pub(crate) fn with_fragments(version: Version, fragment: u32) -> Self {
        Self { fragment, ..Self::of(version) }
    }

    fn options(&self) -> MakeOptions {
        let mut options = MakeOptions::new(self.version, IMAGE);
        options.block_size = (self.fragment * 8).max(4096);
        options.fragment_size = self.fragment;
        options.bytes_per_inode = Some(32768);
        // Superblocks and inodes are patched.
        options.check_hashes = CheckHashes::Groups;
        options
    }
}

impl Target for Journaled {
    fn name(&self) -> &str {
        self.ufs.name()
    }

    fn has_xattrs(&self) -> bool {
        self.ufs.has_xattrs()
    }

    fn image_len(&self) -> ByteLen {
        IMAGE
    }

    fn make(&self, device: &dyn BlockDevice) -> Result<(), FsError> {
        let image = Arc::new(MemoryDevice::new(vec![0; IMAGE.get() as usize]));
        seekless_ffs::make(image.as_ref(), &self.options())?;
        let clock = Arc::new(VirtualClock::new());
        let config = Config::new(self.prepared_under());
        let mut live = self.ufs.live(image.clone(), clock, config)?;
        let root = live.root();
        let owner = Ownership { uid: 0, gid: 0, perm: 0o400 };
        let ino = live.make(root, NAME, NewFile::Regular, owner)?.ino;
        for at in (0..JOURNAL).step_by(1 << 16) {
            live.write(ino, ByteLen::new(at as u64), &vec![0; 1 << 16])?;
        }
        live.unmount()?;
        drop(live);
        let mut bytes = vec![0; IMAGE.get() as usize];
        image.read(seekless_units::Lba::ZERO, &mut bytes)?;
        let fields = Fields::of(&bytes);
        put(&mut bytes, fields.at + 1208, 8, 1_600_000_000);
        fields.patch_journal_inode(&mut bytes, ino);
        fields.set_journaled(&mut bytes, true);
        // Soft updates.
        bytes[fields.at + 1312] |= 2;
        bytes[fields.at + 211] |= 2;
        device.write(seekless_units::Lba::ZERO, &bytes)?;
        Ok(())
    }

    fn mount(
        &self,
        device: Arc<dyn BlockDevice>,
        clock: Arc<VirtualClock>,
        config: Config,
    ) -> Result<Box<dyn Live>, FsError> {
        Ok(Box::new(InUse(self.ufs.without_clusters(device, clock, config)?)))
    }

    fn check(&self, device: Arc<dyn BlockDevice>) -> Result<Report, FsError> {
        self.ufs.check(device)
    }

    fn preen(&self, device: Arc<dyn BlockDevice>) -> Result<Recovered, FsError> {
        self.ufs.preen(device)
    }

    fn is_used_but_free(&self, code: &str) -> bool {
        self.ufs.is_used_but_free(code)
    }

    fn open(&self, device: Arc<dyn BlockDevice>) -> Result<Arc<dyn Inspect>, FsError> {
        self.ufs.open(device)
    }
}

pub(crate) fn get(bytes: &[u8], at: usize, len: usize) -> u64 {
    let number = bytes[at..at + len].iter().rev();
    number.fold(0, |number, &byte| number << 8 | u64::from(byte))
}

pub(crate) fn put(bytes: &mut [u8], at: usize, len: usize, value: u64) {
    bytes[at..at + len].copy_from_slice(&value.to_le_bytes()[..len]);
}

/// The superblock's fields that lead to inodes and blocks.
#[derive(Clone, Copy)]
pub(crate) struct Fields {
    pub(crate) is_ufs2: bool,
    pub(crate) at: usize,
    pub(crate) bsize: usize,
    pub(crate) fsize: usize,
    groups: u32,
    inodes: u32,
    frags: u64,
    first_inode: u64,
    shift: u64,
    mask: u32,
}

/// A file: its mode, links, length and the parts that have blocks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Node {
    pub(crate) mode: u16,
    pub(crate) links: u16,
    pub(crate) size: u64,
    /// First fragment and fragments, by the kernel's number of the part.
    pub(crate) blocks: BTreeMap<i64, (u64, u16)>,
}

/// A name: the inode, its kind and the name itself.
pub(crate) type Name = (u32, u8, Vec<u8>);

/// A whole volume.
pub(crate) struct Parsed {
    pub(crate) nodes: BTreeMap<u32, Node>,
    /// By directory and the byte there.
    pub(crate) names: BTreeMap<(u32, u64), Name>,
}

impl Fields {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let is_ufs2 = get(bytes, 65536 + 1372, 4) == 0x1954_0119;
        let at = if is_ufs2 { 65536 } else { 8192 };
        let word = |field: usize| get(bytes, at + field, 4);
        Self {
            is_ufs2,
            at,
            bsize: word(48) as usize,
            fsize: word(52) as usize,
            groups: word(44) as u32,
            inodes: word(184) as u32,
            frags: word(188),
            first_inode: word(16),
            shift: word(24),
            mask: word(28) as u32,
        }
    }

    pub(crate) fn is_clean(&self, bytes: &[u8]) -> bool {
        bytes[self.at + 209] == 1
    }

    /// Says that the volume has a journal, or that it has none.
    pub(crate) fn set_journaled(&self, bytes: &mut [u8], is: bool) {
        let bit = |byte: u8| if is { byte | 8 } else { byte & !8 };
        bytes[self.at + 1312] = bit(bytes[self.at + 1312]);
        bytes[self.at + 211] = bit(bytes[self.at + 211]);
    }

    /// The time of the last mount.
    pub(crate) fn mount_time(&self, bytes: &[u8]) -> u64 {
        get(bytes, self.at + 1208, 8)
    }

    /// Free blocks, inodes and fragments, and directories.
    pub(crate) fn totals(&self, bytes: &[u8]) -> [u64; 4] {
        [0, 8, 16, 24].map(|field| get(bytes, self.at + 1008 + field, 8))
    }

    pub(crate) fn inode_at(&self, ino: u32) -> usize {
        let (group, slot) = (ino / self.inodes, (ino % self.inodes) as usize);
        let mut start = u64::from(group) * self.frags + self.first_inode;
        if !self.is_ufs2 {
            start += self.shift * u64::from(group & !self.mask);
        }
        let size = if self.is_ufs2 { 256 } else { 128 };
        start as usize * self.fsize + slot * size
    }

    /// The byte of a part of a group, of which the superblock's field says the fragment there.
    fn in_group(&self, bytes: &[u8], group: u32, field: usize) -> usize {
        let mut start = u64::from(group) * self.frags + get(bytes, self.at + field, 4);
        if !self.is_ufs2 {
            start += self.shift * u64::from(group & !self.mask);
        }
        start as usize * self.fsize
    }

    /// The byte of the last copy of the superblock.
    pub(crate) fn last_copy(&self, bytes: &[u8]) -> usize {
        self.in_group(bytes, self.groups - 1, 8)
    }

    /// The byte and the bit of a fragment in the bitmap of its group.
    fn mark_of(&self, bytes: &[u8], fragment: u64) -> (usize, u8) {
        let head = self.in_group(bytes, (fragment / self.frags) as u32, 12);
        let within = (fragment % self.frags) as usize;
        (head + get(bytes, head + 96, 4) as usize + within / 8, 1 << (within % 8))
    }

    /// The first fragments of whole blocks that are marked as free.
    pub(crate) fn free_blocks(&self, bytes: &[u8]) -> Vec<u64> {
        let each = (self.bsize / self.fsize) as u64;
        let is_free = |&fragment: &u64| {
            let (at, bit) = self.mark_of(bytes, fragment);
            bytes[at] & bit != 0
        };
        let all = (0..u64::from(self.groups - 1) * self.frags).step_by(each as usize);
        all.filter(|&start| (start..start + each).all(|fragment| is_free(&fragment))).collect()
    }

    /// Marks a fragment as used.
    pub(crate) fn set_used(&self, bytes: &mut [u8], fragment: u64) {
        let (at, bit) = self.mark_of(bytes, fragment);
        bytes[at] &= !bit;
    }

    /// Mode, flags and time of the journal of the last mount.
    pub(crate) fn patch_journal_inode(&self, bytes: &mut [u8], ino: Ino) {
        let (time, at) = (self.mount_time(bytes), self.inode_at(ino.get()));
        put(bytes, at, 2, 0o100_400);
        let (flags, revision) = if self.is_ufs2 { (88, 232) } else { (100, 120) };
        put(bytes, at + flags, 4, 0x12_0001);
        put(bytes, at + revision, 8, time);
    }

    /// The inode of a file without names, and the next one in its list.
    pub(crate) fn put_next(&self, bytes: &mut [u8], ino: u32, next: u32) {
        let at = self.inode_at(ino) + if self.is_ufs2 { 240 } else { 4 };
        put(bytes, at, 4, u64::from(next));
    }

    fn node(&self, bytes: &[u8], ino: u32) -> Option<Node> {
        let at = self.inode_at(ino);
        let mode = get(bytes, at, 2) as u16;
        if mode == 0 {
            return None;
        }
        let (size, sectors) = if self.is_ufs2 {
            (get(bytes, at + 16, 8), get(bytes, at + 24, 8))
        } else {
            (get(bytes, at + 8, 8), get(bytes, at + 104, 4))
        };
        let mut node =
            Node { mode, links: get(bytes, at + 2, 2) as u16, size, blocks: BTreeMap::new() };
        let (numbers, width) = if self.is_ufs2 { (at + 112, 8) } else { (at + 40, 4) };
        if self.is_ufs2 {
            let len = get(bytes, at + 92, 4) as usize;
            for n in 0..2 {
                let block = get(bytes, at + 96 + n * 8, 8);
                let left = len.saturating_sub(n * self.bsize).min(self.bsize);
                if block != 0 {
                    let part = -1 - n as i64;
                    node.blocks.insert(part, (block, left.div_ceil(self.fsize) as u16));
                }
            }
        }
        let is_short_link = mode >> 12 == 0o12 && sectors == 0;
        if !matches!(mode >> 12, 0o10 | 0o4 | 0o12) || is_short_link {
            return Some(node);
        }
        let whole = (self.bsize / self.fsize) as u16;
        for n in 0..12 {
            let block = get(bytes, numbers + n * width, width);
            let left = (size as usize).saturating_sub(n * self.bsize).min(self.bsize);
            if block != 0 {
                node.blocks.insert(n as i64, (block, left.div_ceil(self.fsize) as u16));
            }
        }
        let pointers = (self.bsize / width) as i64;
        let mut first = 12;
        let mut span = 1;
        for level in 0..3 {
            span *= pointers;
            let block = get(bytes, numbers + (12 + level) * width, width);
            if block != 0 {
                self.tree(bytes, block, level as i64, first, whole, &mut node);
            }
            first += span;
        }
        Some(node)
    }

    fn tree(&self, bytes: &[u8], block: u64, level: i64, first: i64, whole: u16, node: &mut Node) {
        node.blocks.insert(-first - level, (block, whole));
        let width = if self.is_ufs2 { 8 } else { 4 };
        let pointers = self.bsize / width;
        let step = (0..level).fold(1, |step, _| step * pointers as i64);
        for n in 0..pointers {
            let below = get(bytes, block as usize * self.fsize + n * width, width);
            let at = first + n as i64 * step;
            match level {
                _ if below == 0 => {}
                0 => drop(node.blocks.insert(at, (below, whole))),
                _ => self.tree(bytes, below, level - 1, at, whole, node),
            }
        }
    }

    /// All files and names of a volume.
    pub(crate) fn parse(&self, bytes: &[u8]) -> Parsed {
        let inodes = 2..self.groups * self.inodes;
        let nodes: BTreeMap<u32, Node> =
            inodes.filter_map(|ino| Some((ino, self.node(bytes, ino)?))).collect();
        let mut names = BTreeMap::new();
        for (&dir, node) in nodes.iter().filter(|(_, node)| node.mode >> 12 == 4) {
            for (&part, &(block, frags)) in node.blocks.range(0..) {
                let start = block as usize * self.fsize;
                let content = &bytes[start..start + usize::from(frags) * self.fsize];
                let base = part as u64 * self.bsize as u64;
                let mut at = 0;
                while at < content.len() && base + (at as u64) < node.size {
                    let (ino, len) = (get(content, at, 4) as u32, get(content, at + 4, 2) as usize);
                    if len == 0 {
                        at = (at + 512) / 512 * 512;
                        continue;
                    }
                    if ino != 0 {
                        let name_len = usize::from(content[at + 7]);
                        let name = content[at + 8..at + 8 + name_len].to_vec();
                        names.insert((dir, base + at as u64), (ino, content[at + 6], name));
                    }
                    at += len;
                }
            }
        }
        Parsed { nodes, names }
    }

    /// The fragments of the journal's file, in its order, and its inode.
    pub(crate) fn journal(&self, bytes: &[u8]) -> (u32, Vec<usize>) {
        let parsed = self.parse(bytes);
        let (ino, ..) = parsed.names.values().find(|(_, _, name)| name == NAME).expect("a journal");
        let blocks = parsed.nodes[ino].blocks.range(0..);
        let bytes_of = |(_, &(block, frags)): (_, &(u64, u16))| {
            (block..block + u64::from(frags)).map(|it| it as usize * self.fsize)
        };
        (*ino, blocks.flat_map(bytes_of).collect())
    }
}

/// All that users see of a volume: each path with the file's attributes and contents.
pub(crate) fn manifest(bytes: &[u8]) -> BTreeMap<String, (String, Vec<u8>)> {
    let device = Arc::new(MemoryDevice::new(bytes.to_vec()));
    let image = FfsImage::open(device, OpenOptions::default()).unwrap();
    let mut found = BTreeMap::new();
    let mut next = vec![(image.root(), String::new())];
    while let Some((dir, path)) = next.pop() {
        for (name, ino) in seekless_fs::inspect::sorted_entries(&image, dir).unwrap() {
            let attr = image.attr(ino).unwrap();
            let path = format!("{path}/{}", name.escape_ascii());
            let mut contents = Vec::new();
            match attr.kind {
                seekless_fs::FileKind::Directory => next.push((ino, path.clone())),
                seekless_fs::FileKind::Symlink => contents = image.read_link(ino).unwrap(),
                seekless_fs::FileKind::Regular if name != NAME => {
                    contents = vec![0; attr.size as usize];
                    let mut at = 0;
                    while at < contents.len() {
                        let place = ByteLen::new(at as u64);
                        at += image.read(ino, place, &mut contents[at..]).unwrap();
                    }
                }
                _ => {}
            }
            let xattrs = image.xattrs(ino).unwrap();
            let (size, sectors) = (attr.size, attr.sectors);
            let text = format!("{ino} {:?} {} {size} {sectors} {xattrs:?}", attr.kind, attr.nlink);
            found.insert(path, (text, contents));
        }
    }
    found
}
