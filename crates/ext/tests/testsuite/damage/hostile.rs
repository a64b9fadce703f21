//! Images made to hurt, each with one lie.

use crate::damage::images;
use crate::holes;
use seekless_device::MemoryDevice;
use seekless_ext::ExtImage;
use seekless_fs::format::OpenOptions;
use seekless_fs::inspect::resolve;
use seekless_fs::{Corruption, FsError, Inspect};
use seekless_units::{ByteLen, Ino, Lbn};
use std::ops::ControlFlow;
use std::sync::Arc;

/// An image that is being tampered with.
struct Forged {
    bytes: Vec<u8>,
}

impl Forged {
    fn new(name: &str) -> Self {
        Self { bytes: images::named(name) }
    }

    fn open(&self) -> Result<ExtImage, FsError> {
        let options = OpenOptions { ignore_checksums: true, skip_journal: false };
        ExtImage::open(Arc::new(MemoryDevice::new(holes::copy(&self.bytes))), options)
    }

    /// Opens what must still open.
    fn opened(&self) -> ExtImage {
        self.open().expect("open")
    }

    fn put(&mut self, at: usize, bytes: &[u8]) -> &mut Self {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }

    /// Overwrites a field of the superblock.
    fn superblock(&mut self, at: usize, bytes: &[u8]) -> &mut Self {
        self.put(1024 + at, bytes)
    }

    fn ino(&self, path: &str) -> Ino {
        resolve(&self.opened(), path.as_bytes()).expect(path)
    }

    /// Where a file's inode starts.
    fn inode(&self, path: &str) -> usize {
        let at = self.opened().inode_location(self.ino(path)).expect("location");
        at.block.get() as usize * 1024 + at.offset as usize
    }

    /// Where a block of a file starts.
    fn data(&self, path: &str, lbn: u64) -> usize {
        let map = self.opened().block_map(self.ino(path)).expect("map");
        map.find(Lbn::new(lbn)).expect("block").extent.start.get() as usize * 1024
    }

    fn le16(&self, at: usize) -> usize {
        usize::from(self.bytes[at]) | usize::from(self.bytes[at + 1]) << 8
    }
}

fn refused(forged: &Forged, what: &str) {
    match forged.open() {
        Err(FsError::Corrupt { .. }) => {}
        Err(other) => panic!("{what}: {other}"),
        Ok(_) => panic!("{what}: opened"),
    }
}

/// The corruption an answer must be.
fn corrupt<T>(result: Result<T, FsError>, what: &str) -> Corruption {
    match result {
        Err(FsError::Corrupt { kind, location }) => {
            assert!(!location.structure.is_empty());
            kind
        }
        Err(other) => panic!("{what}: {other}"),
        Ok(_) => panic!("{what}: accepted"),
    }
}

#[test]
fn absurd_superblocks() {
    let fields: &[(&str, usize, &[u8])] = &[
        ("s_inodes_count", 0, &[0xFF; 4]),
        ("s_blocks_count_lo", 4, &[0xFF; 4]),
        ("s_blocks_count_lo", 4, &[0; 4]),
        ("s_first_data_block", 20, &[9, 0, 0, 0]),
        ("s_log_block_size", 24, &[31, 0, 0, 0]),
        ("s_log_block_size", 24, &[0xFF; 4]),
        ("s_blocks_per_group", 32, &[0; 4]),
        ("s_blocks_per_group", 32, &[0xFF; 4]),
        ("s_inodes_per_group", 40, &[0; 4]),
        ("s_inodes_per_group", 40, &[0xFF; 4]),
        ("s_magic", 56, &[0, 0]),
        ("s_inode_size", 88, &[0, 0]),
        ("s_inode_size", 88, &[0xFF; 2]),
        ("s_desc_size", 254, &[0xFF; 2]),
        ("s_desc_size", 254, &[0, 0x80]),
        ("s_desc_size", 254, &[0, 0]),
    ];
    for (name, at, value) in fields {
        let mut forged = Forged::new("ext4");
        forged.superblock(*at, value);
        refused(&forged, name);
    }
    let mut forged = Forged::new("bigalloc");
    forged.superblock(28, &[40, 0, 0, 0]);
    refused(&forged, "s_log_cluster_size");
}

#[test]
fn features_are_refused_by_name() {
    for (bit, name) in [(0x1u32, "compression"), (0x8, "journal_dev"), (0x4000_0000, "FEATURE_I30")]
    {
        let mut forged = Forged::new("ext2");
        let has = u32::from_le_bytes(forged.bytes[1024 + 96..][..4].try_into().expect("word"));
        forged.superblock(96, &(has | bit).to_le_bytes());
        match forged.open() {
            Err(FsError::Unsupported(what)) => assert!(what.contains(name), "{what}"),
            other => panic!("{name}: {:?}", other.err()),
        }
    }
    // What only forbids writing does not forbid reading.
    let mut forged = Forged::new("ext4");
    forged.superblock(103, &[0x80]);
    let image = forged.opened();
    assert!(image.geometry().features.iter().any(|name| name == "FEATURE_R31"));
    assert!(resolve(&image, b"/dir/small").is_ok());
}

#[test]
fn an_extent_tree_that_leads_back_to_itself() {
    let mut forged = Forged::new("ext4");
    let ino = forged.ino("/pieces");
    let root = forged.inode("/pieces") + 40;
    assert_eq!(forged.bytes[root + 6], 1, "the sample has an index");
    let map = forged.opened().block_map(ino).expect("map");
    let node = map.index[0].block.get();
    // The root claims more depth; the node claims to be interior and to lead to itself.
    forged.put(root + 6, &[3, 0]);
    let at = node as usize * 1024;
    forged.put(at + 2, &[1, 0]).put(at + 6, &[2, 0]);
    forged.put(at + 12, &[0; 4]).put(at + 16, &(node as u32).to_le_bytes()).put(at + 20, &[0; 4]);
    corrupt(forged.opened().block_map(ino), "loop");
    forged.put(root + 6, &[0xFF, 0xFF]);
    corrupt(forged.opened().block_map(ino), "depth");
}

#[test]
fn an_indirect_block_that_leads_back_to_itself() {
    let mut forged = Forged::new("ext2");
    let ino = forged.ino("/pieces");
    let pointers = forged.inode("/pieces") + 40;
    let indirect: [u8; 4] = forged.bytes[pointers + 48..][..4].try_into().expect("word");
    forged.put(pointers + 56, &indirect);
    let at = u32::from_le_bytes(indirect) as usize * 1024;
    for slot in 0..256 {
        forged.put(at + slot * 4, &indirect);
    }
    corrupt(forged.opened().block_map(ino), "loop");
    let mut buf = [0; 512];
    let read = forged.opened().read(ino, ByteLen::new(20_000), &mut buf);
    assert!(read.is_ok(), "a pointer to any block of the volume can be read: {read:?}");
}

#[test]
fn a_directory_below_itself() {
    let mut forged = Forged::new("ext2");
    let (outer, block) = (forged.ino("/dir"), forged.data("/dir", 0));
    let below = forged.ino("/dir/below").get().to_le_bytes();
    let at = (0..1020).find(|&at| forged.bytes[block + at..].starts_with(&below)).expect("entry");
    forged.put(block + at, &outer.get().to_le_bytes());
    let outcome = super::exercise::exercise(forged.bytes.clone(), true);
    assert!(outcome.opened);
}

#[test]
fn records_that_do_not_advance() {
    for length in [0u16, 4, 11, 13, 2000, 0xFFFF] {
        let mut forged = Forged::new("ext2");
        let (ino, block) = (forged.ino("/dir"), forged.data("/dir", 0));
        forged.put(block + 28, &length.to_le_bytes());
        let image = forged.opened();
        let listed = image.read_dir(ino, 0, &mut |_| ControlFlow::Continue(()));
        corrupt(listed, "rec_len");
    }
}

#[test]
fn an_index_that_leads_back_to_itself() {
    let mut forged = Forged::new("ext4");
    let (ino, root) = (forged.ino("/many"), forged.data("/many", 0));
    assert_eq!(forged.bytes[root + 30], 0, "the sample has an index of one level");
    assert!(forged.le16(root + 34) >= 2);
    // All children are the root itself.
    let count = forged.le16(root + 34);
    for slot in 0..count {
        forged.put(root + 36 + slot * 8, &[0; 4]);
    }
    corrupt(forged.opened().listing_blocks(ino), "loop of leaves");
    forged.put(root + 30, &[1]);
    corrupt(forged.opened().lookup_blocks(ino, b"some-longer-name-100"), "loop of nodes");
    corrupt(forged.opened().listing_blocks(ino), "loop of nodes");
}

#[test]
fn attribute_blocks_out_of_the_volume() {
    let forged = Forged::new("ext4");
    let blocks = forged.opened().geometry().blocks as u32;
    for (low, high) in [(blocks, 0), (u32::MAX, 0), (u32::MAX, u16::MAX)] {
        let mut forged = Forged::new("ext4");
        let (inode, ino) = (forged.inode("/dir/below/text"), forged.ino("/dir/below/text"));
        forged.put(inode + 104, &low.to_le_bytes()).put(inode + 118, &high.to_le_bytes());
        corrupt(forged.opened().xattrs(ino), "attributes");
        match corrupt(forged.opened().block_map(ino), "map") {
            Corruption::Range { field, .. } => assert_eq!(field, "block number"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn attribute_values_out_of_range() {
    let mut forged = Forged::new("ext4");
    let ino = forged.ino("/dir/below/text");
    let block = forged.opened().block_map(ino).expect("map").xattr_block.expect("block");
    let entry = block.get() as usize * 1024 + 32;
    for (offset, size) in [(0xFFFFu16, 1u32), (0, 0xFFFF_FFFF), (1020, 100), (0, 1025)] {
        forged.put(entry + 2, &offset.to_le_bytes()).put(entry + 8, &size.to_le_bytes());
        corrupt(forged.opened().xattrs(ino), "value");
    }
    forged.put(entry + 8, &[1, 0, 0, 0]).put(entry + 4, &[2, 0, 0, 0]);
    corrupt(forged.opened().xattrs(ino), "value in a directory");
    forged.put(entry, &[0xFF]);
    corrupt(forged.opened().xattrs(ino), "name");
}

#[test]
fn sizes_out_of_range() {
    let mut forged = Forged::new("ext4");
    let inode = forged.inode("/dir/slow");
    let ino = forged.ino("/dir/slow");
    forged.put(inode + 4, &[0xFF; 4]);
    corrupt(forged.opened().read_link(ino), "symlink");

    let (inode, ino) = (forged.inode("/pieces"), forged.ino("/pieces"));
    forged.put(inode + 108, &[0, 0, 0, 0x80]);
    corrupt(forged.opened().attr(ino), "size of 2^63");
    forged.put(inode + 108, &[0xFF, 0xFF, 0xFF, 0x7F]);
    let image = forged.opened();
    let mut buf = [1; 4096];
    assert_eq!(image.read(ino, ByteLen::new(1 << 62), &mut buf).expect("read"), 4096);
    assert_eq!(buf, [0; 4096]);

    let mut forged = Forged::new("inline");
    let (inode, ino) = (forged.inode("/dir/small"), forged.ino("/dir/small"));
    forged.put(inode + 4, &[0, 0, 1, 0]);
    corrupt(forged.opened().read(ino, ByteLen::ZERO, &mut buf), "inline data");
}

#[test]
fn pointers_out_of_the_volume() {
    let mut forged = Forged::new("ext4");
    // The inode table of the first group.
    forged.put(2048 + 8, &[0xFF; 4]);
    corrupt(forged.opened().attr(Ino::new(2)), "inode table");
    let mut forged = Forged::new("ext2");
    let (inode, ino) = (forged.inode("/dir/below/text"), forged.ino("/dir/below/text"));
    forged.put(inode + 40, &[0xFF; 4]);
    let mut buf = [0; 10];
    corrupt(forged.opened().read(ino, ByteLen::ZERO, &mut buf), "block");
    corrupt(forged.opened().attr(Ino::new(0)), "inode 0");
    corrupt(forged.opened().attr(Ino::new(u32::MAX)), "inode of no group");
}
