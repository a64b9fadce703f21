//! Journals and maps that would make a recovery do more than their size warrants.

use super::forged::{OWNER, made, made_on};
use super::volume::{Fields, Journaled, put};
use super::writer::{self, block, cut, reference};
use super::{findings_of, journal};
use seekless_device::{BlockDevice, DeviceError, MemoryDevice};
use seekless_ffs::Version;
use seekless_fs::operate::{NewFile, Operate};
use seekless_units::{ByteLen, Ino, Lba};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const BOTH: [Version; 2] = [Version::Ufs2, Version::Ufs1];

/// A device that counts reads, and their bytes.
struct Counting {
    device: MemoryDevice,
    reads: AtomicU64,
    bytes: AtomicU64,
}

impl Counting {
    fn of(bytes: Vec<u8>) -> Arc<Self> {
        let device = MemoryDevice::new(bytes);
        Arc::new(Self { device, reads: AtomicU64::new(0), bytes: AtomicU64::new(0) })
    }
}

impl BlockDevice for Counting {
    fn len(&self) -> ByteLen {
        self.device.len()
    }

    fn read(&self, at: Lba, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(buf.len() as u64, Ordering::Relaxed);
        self.device.read(at, buf)
    }

    fn write(&self, at: Lba, buf: &[u8]) -> Result<(), DeviceError> {
        self.device.write(at, buf)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.device.flush()
    }
}

fn file(operate: &mut dyn Operate, name: &str, len: usize) -> u32 {
    let ino = operate.make(operate.root(), name.as_bytes(), NewFile::Regular, OWNER).unwrap().ino;
    operate.write(ino, ByteLen::ZERO, &vec![7; len]).unwrap();
    Ino::get(ino)
}

/// Sets the length of a file and its first index block.
fn map_by(bytes: &mut [u8], ino: u32, len: u64, index: u64) {
    let fields = Fields::of(bytes);
    let (size, root, width) = if fields.is_ufs2 { (16, 208, 8) } else { (8, 88, 4) };
    put(bytes, fields.inode_at(ino) + size, 8, len);
    put(bytes, fields.inode_at(ino) + root, width, index);
}

/// The index block of a file, and the first fragment of its first block.
fn blocks_of(bytes: &[u8], ino: u32) -> (u64, u64) {
    let node = Fields::of(bytes).parse(bytes).nodes[&ino].clone();
    (node.blocks[&-12].0, node.blocks[&0].0)
}

/// The maps of many files lead to one index block: each would be walked by all of them.
#[test]
fn an_index_block_is_walked_for_one_file() {
    for version in BOTH {
        let (mut first, mut others) = (0, Vec::new());
        let mut bytes = made(version, |operate| {
            first = file(operate, "first", 60_000);
            others = (0..20).map(|n| file(operate, &format!("f{n}"), 4096)).collect();
        });
        let (index, _) = blocks_of(&bytes, first);
        let nodes = Fields::of(&bytes).parse(&bytes).nodes;
        let mut records = Vec::new();
        for &ino in &others {
            map_by(&mut bytes, ino, 60_000, index);
            let (start, frags) = nodes[&ino].blocks[&0];
            records.push(block(writer::NEW, ino, 0, (start, frags), 0));
        }
        journal(&mut bytes, &records);
        let found = findings_of(Counting::of(bytes));
        let expected = "owners of a block has the invalid value 0x2";
        assert!(found[0].starts_with("journal.damaged block map, inode"), "{found:?}");
        assert!(found[0].ends_with(expected), "{found:?}");
    }
}

/// All pointers of an index block lead to one block, of which the journal has many records: each
/// record would be looked at for each pointer.
#[test]
fn records_of_a_block_are_looked_at_once() {
    for version in BOTH {
        let mut files = [0; 3];
        let mut bytes = made(version, |operate| {
            files = [("cut", 60_000), ("owner", 4096), ("other", 100)]
                .map(|(name, len)| file(operate, name, len));
        });
        let [cut_file, owner, other] = files;
        let fields = Fields::of(&bytes);
        let (index, _) = blocks_of(&bytes, cut_file);
        let shared = fields.parse(&bytes).nodes[&owner].blocks[&0].0;
        let width = if fields.is_ufs2 { 8 } else { 4 };
        let pointers = fields.bsize / width;
        for n in 0..pointers {
            put(&mut bytes, index as usize * fields.fsize + n * width, width, shared);
        }
        map_by(&mut bytes, cut_file, ((12 + pointers) * fields.bsize) as u64, index);
        let mut records: Vec<_> =
            (0..400).map(|n| block(writer::NEW, other, 100 + n, (shared, 8), 0)).collect();
        records.push(cut(cut_file, 0));
        journal(&mut bytes, &records);
        let device = Counting::of(bytes);
        let found = findings_of(device.clone());
        assert!(found[0].starts_with("journal.damaged block map, inode"), "{found:?}");
        let reads = device.reads.load(Ordering::Relaxed);
        assert!(reads < 50_000, "{reads} reads for {} records", records.len());
    }
}

/// A record leads to one entry and to one number in each index block: the fragments around these,
/// of up to 64 KiB, are not read for each.
#[test]
fn a_record_has_no_whole_fragments_read() {
    for version in BOTH {
        let (mut named, mut mapped) = (0, 0);
        let sound = made_on(&Journaled::with_fragments(version, 4096), |operate| {
            named = file(operate, "named", 100);
            mapped = file(operate, "mapped", 13 * 32_768);
        });
        let (index, _) = blocks_of(&sound, mapped);
        let each = |n: u64| reference(writer::ADD, named, (2, n), 1, 0o100_644);
        let names = |count: u64| (0..count).map(each).collect::<Vec<_>>();
        // Blocks that the file does not have: a number of each is looked for.
        let each = |n: u64| block(writer::FREE, mapped, 13 + n as i64, (index, 8), 0);
        let blocks = |count: u64| (0..count).map(each).collect::<Vec<_>>();
        let read = |records: &[writer::Record]| {
            let mut bytes = sound.clone();
            journal(&mut bytes, records);
            let device = Counting::of(bytes);
            let found = findings_of(device.clone());
            assert!(found[0].starts_with("journal.pending"), "{found:?}");
            device.bytes.load(Ordering::Relaxed)
        };
        for (few, many) in [(names(10), names(500)), (blocks(10), blocks(2000))] {
            let more = (many.len() - few.len()) as u64;
            let each = (read(&many) - read(&few)) / more;
            assert!(each < 2500, "{each} bytes for a record");
        }
    }
}

/// The journal's map has a block twice: it is not the map of a file that a kernel made.
#[test]
fn the_journal_has_each_block_once() {
    for version in BOTH {
        let mut bytes = made(version, |_| {});
        let fields = Fields::of(&bytes);
        let (ino, _) = fields.journal(&bytes);
        let (first, _) = fields.parse(&bytes).nodes[&ino].blocks[&1];
        let (numbers, width) = if fields.is_ufs2 { (112, 8) } else { (40, 4) };
        put(&mut bytes, fields.inode_at(ino) + numbers + 5 * width, width, first);
        let found = findings_of(Counting::of(bytes));
        let expected = format!("journal.damaged journal, inode {ino}, block ");
        assert!(found[0].starts_with(&expected), "{found:?}");
        assert!(found[0].contains("owners of a block"), "{found:?}");
    }
}
