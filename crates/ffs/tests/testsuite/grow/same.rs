//! Grown volumes, compared with new ones of their size.

use super::{KINDS, Kind, change, files, grown, numbers};
use crate::slice::some_or_all;
use crate::words::volume::bytes_of;
use seekless_device::MemoryDevice;

/// Superblock: `fs_csaddr` and its old field, which differ where the summary area has moved, and
/// with them the totals of blocks and fragments; check hash.
const MOVED: [(usize, usize); 7] =
    [(152, 4), (1096, 8), (1016, 8), (1032, 8), (196, 4), (204, 4), (1304, 4)];
/// Head of a group: `cg_initediblk`, `cg_ckhash`, times.
const HEAD: [(usize, usize); 4] = [(120, 4), (132, 4), (8, 4), (136, 8)];

fn without(mut bytes: Vec<u8>, fields: &[(usize, usize)]) -> Vec<u8> {
    fields.iter().for_each(|&(at, len)| bytes[at..at + len].fill(0));
    bytes
}

/// The differing bytes of two structures.
fn differences(one: &[u8], other: &[u8]) -> Vec<usize> {
    (0..one.len()).filter(|&at| one[at] != other[at]).collect()
}

/// Lengths of a volume with a group more than another, or with a few fragments more.
fn lengths(kind: &Kind, device: &MemoryDevice) -> Vec<u64> {
    let fs = numbers(device);
    let (fsize, fpg) = (fs.fsize() as u64, fs.fpg() as u64);
    let (size, frag) = (fs.size() as u64, fs.frag() as u64);
    let metadata = fs.dblkno() as u64;
    let whole = size.div_ceil(fpg) * fpg;
    let many = whole + u64::from(kind.fragment / 16) * fpg;
    [
        size + 1,
        size + frag - 1,
        size + frag,
        whole,
        // The last group has one fragment for data, a block, or all.
        whole + metadata + 1,
        whole + metadata + frag,
        whole + 3 * fpg,
        many + metadata + 3 * frag + 1,
    ]
    .into_iter()
    .filter(|&frags| frags > size && frags * fsize < 80 << 20)
    .filter(|frags| frags % fpg == 0 || frags % fpg > metadata)
    .map(|frags| frags * fsize)
    .collect()
}

#[test]
fn a_grown_volume_is_a_new_one_of_its_size() {
    let (mut compared, mut moved) = (0, 0);
    for kind in KINDS.into_iter().step_by(some_or_all(2, 1)) {
        let first = kind.made(first_len(&kind));
        for len in lengths(&kind, &first) {
            let (device, growth) = grown(&first, len);
            assert_eq!((growth.after.get(), growth.unused.get()), (len, 0), "{kind:?}");
            let (is, new) = (numbers(&device), kind.made(len));
            let should = numbers(&new);
            assert_eq!(is.size(), should.size(), "{kind:?} {len}");
            if is.fpg() != should.fpg() {
                // A new volume of this size has other groups.
                continue;
            }
            let fields = if growth.moves_summary { &MOVED[..] } else { &[] };
            let both = [is.raw.bytes.clone(), should.raw.bytes.clone()];
            let [one, other] = both.map(|bytes| without(bytes, fields));
            assert_eq!(differences(&one, &other), [0; 0], "{kind:?} {len}");
            compared += 1;
            moved += usize::from(growth.moves_summary);
            for number in 0..is.ncg() as usize {
                let has_area = is.csaddr() / is.fpg() == number as i64;
                if growth.moves_summary && (number == 0 || has_area) {
                    continue;
                }
                let at = (number * is.fpg() as usize + is.cblkno() as usize) * is.fsize() as usize;
                let heads = [&device, &new].map(|device| {
                    let head = bytes_of(device)[at..at + is.bsize() as usize].to_vec();
                    without(head, &HEAD)
                });
                let differ = differences(&heads[0], &heads[1]);
                assert_eq!(differ, [0; 0], "{kind:?} {len}: {number}");
            }
        }
    }
    assert!(
        compared > some_or_all(25, 50) && moved > some_or_all(1, 3),
        "{compared} compared, {moved} moved"
    );
}

/// Four groups and a half, which does not end with a block: groups of a larger new volume are no
/// larger.
fn first_len(kind: &Kind) -> u64 {
    let half = kind.group.map_or(1 << 20, |blocks| u64::from(blocks * kind.block / 2));
    9 * half + 3 * u64::from(kind.fragment)
}

#[test]
fn files_stay_and_find_the_new_space() {
    for (n, kind) in (0u64..).zip(KINDS) {
        let device = kind.made(first_len(&kind));
        change(&device, 7 + n, 4000);
        let before = files(&device);
        assert!(before.len() > 10, "{kind:?}");
        let (device, growth) = grown(&device, first_len(&kind) * 3);
        assert!(growth.groups_after > growth.groups_before || kind.group.is_none());
        assert!(files(&device) == before, "{kind:?}");
        change(&device, 70 + n, 4000);
        super::is_sound(&device, false);
        let after = files(&device);
        assert!(before.iter().all(|(path, file)| after.get(path) == Some(file)), "{kind:?}");
        let old = growth.before.get() / u64::from(kind.fragment);
        let is_new = |frag: &u64| *frag >= old;
        let inside = after.values().filter(|file| file.frags.iter().any(is_new)).count();
        assert!(inside > 10, "{kind:?}: {inside} files in the new space");
    }
}

/// A summary area that has moved moves again, and its fragments become free each time.
#[test]
fn a_summary_area_moves_as_often_as_it_must() {
    for kind in [KINDS[0], KINDS[1], KINDS[2]] {
        let mut device = kind.made(first_len(&kind));
        change(&device, 3, 60);
        let mut places = vec![numbers(&device).csaddr()];
        for _ in 0..6 {
            let fs = numbers(&device);
            let len = (fs.size() + 20 * fs.fpg()) * fs.fsize();
            let before = files(&device);
            let (larger, growth) = grown(&device, len as u64);
            assert!(files(&larger) == before);
            let now = numbers(&larger).csaddr();
            assert_eq!(growth.moves_summary, Some(&now) != places.last());
            places.push(now);
            device = larger;
        }
        places.dedup();
        let most = 1 + usize::from(kind.fragment == 512);
        assert!(places.len() > most, "{kind:?}: {places:?}");
        change(&device, 4, 900);
        super::is_sound(&device, false);
    }
}

/// The area of a volume that grows by one small group goes to the end of the group before.
#[test]
fn a_summary_area_moves_into_the_extended_group() {
    let mut found = 0;
    for kind in [KINDS[0], KINDS[1], KINDS[2]] {
        let mut device = kind.made(first_len(&kind));
        change(&device, 5, 40);
        // As many groups as the area has room for, the last with a few fragments.
        let fs = numbers(&device);
        let most = fs.cssize() / 16 * fs.fpg();
        let part = most - fs.fpg() + fs.dblkno() + 9;
        device = grown(&device, (part * fs.fsize()) as u64).0;
        let before = files(&device);
        assert_eq!(numbers(&device).csaddr(), fs.csaddr());
        let len = (most + fs.dblkno() + 1) * fs.fsize();
        let (device, growth) = grown(&device, len as u64);
        assert!(growth.moves_summary && files(&device) == before);
        let home = numbers(&device).csaddr() / fs.fpg();
        assert_eq!(home, numbers(&device).ncg() - 2, "{kind:?}");
        found += 1;
    }
    assert_eq!(found, 3);
}

/// A rest of the device that is too small for a group stays unused, as by growfs.
#[test]
fn a_last_group_without_room_is_left_out() {
    for kind in KINDS.into_iter().filter(|kind| kind.group.is_some()) {
        let first = kind.made(first_len(&kind));
        let fs = numbers(&first);
        let whole = (fs.ncg() + 2) * fs.fpg();
        let metadata = fs.dblkno();
        for (more, last) in [(1, 0), (metadata - 1, 0), (metadata, 0), (metadata + 1, 1)] {
            let (device, growth) = grown(&first, ((whole + more) * fs.fsize()) as u64);
            let size = if last == 0 { whole } else { whole + more };
            assert_eq!(numbers(&device).size(), size, "{kind:?} {more}");
            let unused = (whole + more - size) * fs.fsize();
            assert_eq!(growth.unused.get(), unused as u64);
        }
    }
}

/// The volume ends where it is told to, and the device is as long as it is (`fs_providersize`).
#[test]
fn the_length_of_the_device_is_noted() {
    for kind in [KINDS[0], KINDS[4]] {
        let first = kind.made(first_len(&kind));
        let device = super::longer(&first, 30 << 20);
        let growth =
            seekless_ffs::grow(device.clone(), seekless_units::ByteLen::new(20 << 20), super::WALL);
        assert_eq!(growth.unwrap().after.get(), 20 << 20);
        super::is_sound(&device, true);
        let fs = numbers(&device);
        let noted = fs.raw.number(872, 8);
        assert_eq!(
            (fs.size() as u64, noted),
            ((20 << 20) / u64::from(kind.fragment), (30 << 20) / u64::from(kind.fragment))
        );
        let mut garbage = bytes_of(&device);
        assert!(garbage.split_off(20 << 20).iter().all(|&byte| byte == 0xA5));
    }
}
