//! Lists made by hand, sound and hostile.

use super::digests::ListedFile;
use super::encode::{head_sum, piece_sum};
use super::ondisk::{HEADER, PIECE, SUM};
use super::{LayoutList, ListError, ListParts, digesting, number, runs};
use seekless_device::BlockDevice;
use seekless_fs::FsError;
use seekless_fs::source::Content;
use seekless_fs::tree::NodeId;
use seekless_units::{ByteLen, Ino, Lba};

/// Contents in memory.
struct Bytes(Vec<u8>);

impl Content for Bytes {
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), FsError> {
        let at = offset as usize;
        buf.copy_from_slice(&self.0[at..at + buf.len()]);
        Ok(())
    }
}

/// Files of all kinds of blocks: few, equal, zeros, and a last part that is no block.
fn files() -> Vec<(ListedFile, Vec<u8>)> {
    let zeros = vec![0; 5 * 512];
    let blocks: Vec<u8> = (0..7u8).flat_map(|block| [block; 512]).collect();
    let mixed = [&blocks[..], &zeros, &blocks[512..1024], b"rest"].concat();
    let contents = [b"short".to_vec(), zeros, blocks, mixed];
    let file = |(at, bytes): (u32, Vec<u8>)| {
        let (ino, node) = (Ino::new(11 + at * 300), NodeId::new(at));
        (ListedFile { ino, node, size: bytes.len() as u64 }, bytes)
    };
    (0..).zip(contents).map(file).collect()
}

fn sound() -> ListParts {
    let (mut known, mut digests, mut before) = (Vec::new(), Vec::new(), 0);
    for (gap, len, is_zero) in [(2, 3, false), (0, 4, true), (100, 1, false)] {
        runs::push(&mut known, gap, len, is_zero);
    }
    for (file, bytes) in files() {
        let ino = u64::from(file.ino.get());
        number::push(&mut digests, ino - before);
        digests.extend(digesting::encode(&mut Bytes(bytes), file.size, 512).unwrap());
        before = ino;
    }
    ListParts {
        format: "ext".into(),
        volume_len: ByteLen::new(100_000),
        unit: 512,
        runs: known,
        metadata: (0..4 * 512u32).map(|at| (at % 251) as u8).collect(),
        digests,
    }
}

fn listed() -> Vec<ListedFile> {
    files().into_iter().map(|(file, _)| file).collect()
}

/// Makes the checksums of a list right.
fn seal(list: &mut [u8]) {
    let pieces = u32::from_le_bytes(list[92..96].try_into().unwrap()) as usize;
    let (head, packed) = list.split_at_mut(HEADER + pieces * 8);
    for (sum, piece) in head[HEADER..].chunks_mut(8).zip(packed.chunks(PIECE)) {
        sum.copy_from_slice(&piece_sum(piece));
    }
    let sum = head_sum(&head[..SUM], &head[HEADER..]);
    head[SUM..HEADER].copy_from_slice(&sum);
}

#[test]
fn a_list_has_what_was_put_into_it() {
    let parts = sound();
    let bytes = parts.encode().unwrap();
    assert_eq!(bytes, parts.encode().unwrap());
    assert_eq!(ListParts::decode(&bytes).unwrap(), parts);
    let list = LayoutList::parse(&bytes).unwrap();
    assert_eq!(list.format(), "ext");
    let mut sectors = vec![1; 7 * 512];
    list.device().read(Lba::new(2), &mut sectors).unwrap();
    assert_eq!(sectors[..1536], parts.metadata[..1536]);
    assert!(sectors[1536..].iter().all(|&byte| byte == 0));
    list.device().read(Lba::new(109), &mut sectors[..512]).unwrap();
    assert_eq!(sectors[..512], parts.metadata[1536..]);
    assert!(list.device().read(Lba::new(8), &mut sectors[..1024]).is_err());
    let digests = list.digests(&listed()).unwrap();
    for (file, bytes) in files() {
        let of = digesting::of_contents(&mut Bytes(bytes.clone()), file.size, 1, |_| {}).unwrap();
        assert_eq!(digests.of_file(file.node), Some(of));
        let blocks: Vec<_> = bytes.chunks_exact(512).map(super::of_block).collect();
        assert_eq!(digests.of_blocks(file.node).collect::<Vec<_>>(), blocks);
    }
}

#[test]
fn digests_of_other_files_are_refused() {
    let list = LayoutList::parse(&sound().encode().unwrap()).unwrap();
    let all = listed();
    let changed = |change: &dyn Fn(&mut Vec<ListedFile>)| {
        let mut files = all.clone();
        change(&mut files);
        list.digests(&files).err()
    };
    let is_invalid = |error| matches!(error, Some(ListError::Invalid { part: "digests", .. }));
    assert!(is_invalid(changed(&|files| files.truncate(3))));
    assert!(is_invalid(changed(&|files| files.rotate_left(1))));
    assert!(is_invalid(changed(&|files| files[2].size += 512)));
    assert!(is_invalid(changed(&|files| files[3].size -= 600)));
    assert!(is_invalid(changed(&|files| files[1].ino = Ino::new(312))));
    let more = ListedFile { ino: Ino::new(5000), node: NodeId::new(9), size: 1 };
    assert!(is_invalid(changed(&|files| files.push(more))));
    assert!(changed(&|files| files[0].size = 6).is_none());
}

/// Parts that are longer than stated take no memory, and those that are stated too long are refused
/// before anything is unpacked.
#[test]
fn lengths_are_not_believed() {
    let mut parts = sound();
    parts.metadata = vec![0; 64 << 20];
    let bomb = parts.encode().unwrap();
    assert!(bomb.len() < 100_000, "{}", bomb.len());
    let stated = |at: usize, value: u64| {
        let mut list = bomb.clone();
        list[at..at + 8].copy_from_slice(&value.to_le_bytes());
        seal(&mut list);
        LayoutList::parse(&list).err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert!(stated(72, 1000).contains("payload"), "{}", stated(72, 1000));
    assert!(stated(72, 65 << 20).contains("payload"));
    for huge in [1 << 40, u64::MAX, u64::MAX - 100] {
        assert!(stated(72, huge).contains("more is packed"), "{}", stated(72, huge));
    }
    assert!(stated(64, 1 << 20).contains("payload"));
    assert!(stated(48, u64::MAX).contains("too long"));
    assert!(stated(48, 1024).contains("past the end"));
}

/// Changes of all parts, with checksums that are right: an error, or a list that is read in bounds.
#[test]
fn hostile_lists_are_read_in_bounds() {
    let mut seed = 7u64;
    let mut random = move |limit: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) as usize % limit
    };
    let (mut refused, mut read) = (0, 0);
    for _ in 0..3000 {
        let mut parts = sound();
        for _ in 0..=random(3) {
            let part = match random(3) {
                0 => &mut parts.runs,
                1 => &mut parts.digests,
                _ => &mut parts.metadata,
            };
            let at = random(part.len().max(1));
            match random(3) {
                0 => part.truncate(at),
                1 => part.insert(at.min(part.len()), random(256) as u8),
                _ => part.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << random(8)),
            }
        }
        let mut bytes = parts.encode().unwrap();
        if random(4) == 0 {
            let at = 40 + random(bytes.len() - 40);
            bytes[at] ^= 1 << random(8);
            if !(56..=HEADER).contains(&at) {
                seal(&mut bytes);
            }
        }
        let Ok(list) = LayoutList::parse(&bytes) else {
            refused += 1;
            continue;
        };
        for sector in 0..200 {
            let _ = list.device().read(Lba::new(sector), &mut [0; 700]);
        }
        match list.digests(&listed()) {
            Err(_) => refused += 1,
            Ok(digests) => {
                for file in listed() {
                    assert_eq!(digests.of_blocks(file.node).count() as u64, file.size / 512);
                }
                read += 1;
            }
        }
    }
    assert!(refused > 500 && read > 200, "{refused} refused, {read} read");
}
