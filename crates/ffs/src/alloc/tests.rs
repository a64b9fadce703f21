//! Groups after long sequences of changes, recounted from their bitmaps.

use super::group::at;
use super::*;
use crate::make::group::count;
use crate::superblock::{Format, Order, Super};
use crate::{MakeOptions, Version, make};
use seekless_device::{BlockDevice, MemoryDevice};
use seekless_fs::FsError;
use seekless_placement::GroupSummary;
use seekless_units::{BlockNo, ByteLen, Extent, GroupNo, Ino, Lba};

/// Blocks and fragments: one, two, four and eight to a block.
const SHAPES: [(u32, u32); 4] = [(4096, 4096), (8192, 4096), (8192, 2048), (4096, 512)];
/// Formats, and whether their numbers begin with the high byte.
const FORMATS: [(Version, bool); 4] =
    [(Version::Ufs1, false), (Version::Ufs1, true), (Version::Ufs2, false), (Version::Ufs2, true)];

/// Is called with a volume, a group of it with its bytes, and the volume's description.
type Visit<'a> = &'a mut dyn FnMut(&Super, GroupNo, &mut Vec<u8>, &str);

/// A new volume; the group that is filled first, which holds the boot area, and
/// the last, which is shorter than others.
fn volumes(visit: Visit<'_>) {
    for (version, big_endian) in FORMATS {
        for (block_size, fragment_size) in SHAPES {
            let len = (9 << 20) + 3 * 4096;
            let mut options = MakeOptions::new(version, ByteLen::new(len));
            (options.block_size, options.fragment_size) = (block_size, fragment_size);
            options.big_endian = big_endian;
            let device = MemoryDevice::new(vec![0; len as usize]);
            make(&device, &options).unwrap();
            let sb = Super::read(&device, false).unwrap();
            sb.check_writable().unwrap();
            for number in [0, sb.ncg - 1].map(GroupNo::new) {
                let what =
                    format!("{version:?} {big_endian} {block_size}/{fragment_size} {number}");
                let mut bytes = vec![0; sb.cgsize as usize];
                let at = sb.in_group(number, sb.cblkno).get() * u64::from(sb.fsize);
                device.read(Lba::containing(ByteLen::new(at)), &mut bytes).unwrap();
                visit(&sb, number, &mut bytes, &what);
            }
        }
    }
}

/// Chance for the sequences.
struct Draw(u64);

impl Draw {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99_991);
        (self.0 >> 33) % limit.max(1)
    }
}

/// Whether all fragments of a run are free.
fn is_free(group: &GroupMut<'_>, run: Extent) -> bool {
    let first = group.within(run.start).unwrap();
    (first..first + run.len as u32).all(|at| group.fragment_is_free(at))
}

/// Compares every count of a group with its bitmaps.
fn recount(sb: &Super, number: GroupNo, bytes: &mut [u8], directories: u32, what: &str) {
    let group = GroupMut::check(sb, number, bytes).expect(what);
    let bits = |map: usize, len: u32| -> Vec<bool> {
        (0..len).map(|at| group.bytes[map + at as usize / 8] >> (at % 8) & 1 == 1).collect()
    };
    let free = bits(group.maps.frags, group.maps.ndblk);
    let used = bits(group.maps.inodes, sb.ipg).into_iter().filter(|&used| used).count() as u32;
    let longest = sb.tuning.contigsumsize;
    let counts = count(&free, sb.frag, longest);
    let expected = GroupSummary {
        ndir: directories,
        nbfree: counts.free_blocks,
        nifree: sb.ipg - used,
        nffree: counts.free_frags,
    };
    assert_eq!(group.summary(), expected, "{what}");
    let runs: Vec<u32> = (0..8).map(|len| group.word(at!(cg_frsum) + len * 4)).collect();
    assert_eq!(runs, counts.runs, "{what}");
    let clusters = group.maps.clusters.expect(what);
    let sums: Vec<u32> =
        (0..=longest as usize).map(|len| group.word(clusters.counts + len * 4)).collect();
    assert_eq!(sums[1..], counts.clusters[1..], "{what}");
    let whole: Vec<bool> =
        free.chunks_exact(sb.frag as usize).map(|block| block.iter().all(|&free| free)).collect();
    assert_eq!(bits(clusters.map, clusters.blocks), whole, "{what}");
}

/// Blocks and inodes that a sequence has taken and not freed.
#[derive(Default)]
struct HeldBlocks {
    runs: Vec<Extent>,
    inodes: Vec<(Ino, bool)>,
    summary: GroupSummary,
}

impl HeldBlocks {
    fn note(&mut self, delta: Delta) {
        self.summary = delta.of_group(self.summary).unwrap();
    }

    fn space(&mut self, taken: Option<Allocation>, frag: u32) {
        let Some(taken) = taken else { return };
        assert!(self.runs.iter().all(|run| !run.overlaps(taken.run)), "{:?} twice", taken.run);
        self.note(taken.delta);
        // A cluster is given back block by block.
        let frag = u64::from(frag);
        let pieces = taken.run.len.div_ceil(frag);
        self.runs.extend((0..pieces).map(|n| {
            let start = taken.run.start + n * frag;
            Extent::new(start, (taken.run.len - n * frag).min(frag))
        }));
    }

    fn step(&mut self, group: &mut GroupMut<'_>, draw: &mut Draw, filling: u64) {
        let frag = group.sb.frag;
        let preference = match draw.below(3) {
            0 => None,
            _ => Some(BlockNo::new(draw.below(group.sb.size))),
        };
        let frags = 1 + draw.below(u64::from(frag)) as u32;
        let ino = Ino::new(draw.below(u64::from(group.sb.inodes())) as u32);
        if draw.below(100) < filling {
            match draw.below(6) {
                0 => self.space(group.alloc_block(preference).unwrap(), frag),
                1 | 2 => self.space(group.alloc_frags(frags, preference).unwrap(), frag),
                3 => self.space(group.alloc_in_block(frags, preference).unwrap(), frag),
                4 => {
                    let len = 1 + draw.below(7) as u32;
                    self.space(group.alloc_cluster(len, preference).unwrap(), frag);
                }
                _ => {
                    let directory = draw.below(4) == 0;
                    let preferred = (draw.below(2) == 0).then_some(ino.get() % group.sb.ipg);
                    if let Some(taken) = group.alloc_inode(preferred, directory).unwrap() {
                        assert!(self.inodes.iter().all(|(held, _)| *held != taken.ino));
                        self.note(taken.delta);
                        self.inodes.push((taken.ino, directory));
                    }
                }
            }
            self.extend(group, draw);
            return;
        }
        if draw.below(4) == 0 && !self.inodes.is_empty() {
            let (ino, directory) =
                self.inodes.swap_remove(draw.below(self.inodes.len() as u64) as usize);
            self.note(group.free_inode(ino, directory).unwrap());
            assert!(matches!(group.free_inode(ino, directory), Err(FsError::Corrupt { .. })));
        } else if !self.runs.is_empty() {
            let run = self.runs.swap_remove(draw.below(self.runs.len() as u64) as usize);
            assert!(!is_free(group, run));
            self.note(group.free(run).unwrap());
            assert!(is_free(group, run));
            assert!(matches!(group.free(run), Err(FsError::Corrupt { .. })));
        }
    }

    fn extend(&mut self, group: &mut GroupMut<'_>, draw: &mut Draw) {
        if self.runs.is_empty() {
            return;
        }
        let at = draw.below(self.runs.len() as u64) as usize;
        let (start, old) = (self.runs[at].start, self.runs[at].len as u32);
        let new = old + draw.below(3) as u32;
        if let Some(delta) = group.extend(start, old, new).unwrap() {
            self.note(delta);
            self.runs[at].len = u64::from(new);
        }
    }
}

#[test]
fn counts_stay_true() {
    let mut full = 0;
    volumes(&mut |sb, number, bytes, what| {
        let mut draw = Draw(u64::from(number.get()) + u64::from(sb.bsize / sb.frag));
        let before = bytes.clone();
        let start = GroupMut::check(sb, number, bytes).expect(what).summary();
        recount(sb, number, bytes, start.ndir, what);
        let mut held = HeldBlocks { summary: start, ..HeldBlocks::default() };
        // Filling up, staying full, emptying.
        for filling in [80, 95, 60, 40] {
            for round in 0..1500 {
                let mut group = GroupMut::check(sb, number, bytes).expect(what);
                held.step(&mut group, &mut draw, filling);
                full += u32::from(group.summary().nbfree == 0);
                if round % 250 == 0 {
                    recount(sb, number, bytes, held.summary.ndir, what);
                }
            }
            recount(sb, number, bytes, held.summary.ndir, what);
            let group = GroupMut::check(sb, number, bytes).expect(what);
            assert_eq!(group.summary(), held.summary, "{what}");
        }
        let mut group = GroupMut::check(sb, number, bytes).expect(what);
        for run in std::mem::take(&mut held.runs) {
            group.free(run).expect(what);
        }
        for (ino, directory) in std::mem::take(&mut held.inodes) {
            group.free_inode(ino, directory).expect(what);
        }
        // All is as before except for the rotors.
        assert_eq!(group.summary(), start, "{what}");
        let maps = group.maps.inodes;
        assert_eq!(bytes[maps..], before[maps..], "{what}");
    });
    assert!(full > 1000, "no group was ever full");
}

#[test]
fn blocks_go_where_they_are_wanted() {
    volumes(&mut |sb, number, bytes, what| {
        let mut group = GroupMut::check(sb, number, bytes).expect(what);
        let frag = u64::from(sb.frag);
        let zone = sb.in_group(number, sb.dblkno).get().next_multiple_of(frag) + 4 * frag;
        let wanted = BlockNo::new(zone);
        let take = |group: &mut GroupMut<'_>| {
            group.alloc_block(Some(wanted)).expect(what).expect(what).run.start.get()
        };
        assert_eq!(take(&mut group), zone, "{what}");
        // Taken: the first free one from the byte of the map on that it is in.
        let next = take(&mut group) - sb.group_blocks(number).start.get();
        let byte = (zone - sb.group_blocks(number).start.get()) / 8;
        assert!(next / 8 == byte || next / 8 == byte + 1, "{what}: {next} after byte {byte}");
        // Another group's block stands for its zone.
        let other = GroupNo::new(if number == GroupNo::ZERO { 1 } else { 0 });
        let elsewhere = sb.in_group(other, sb.fpg - sb.frag);
        let found = group.alloc_block(Some(elsewhere)).expect(what).expect(what).run.start;
        let data = sb.data_zone(number);
        assert!(found >= data, "{what}: {found} in front of {data}");
        // Nothing wanted: behind the rotor.
        let rotor = group.word(at!(cg_rotor));
        let found = group.alloc_block(None).expect(what).expect(what).run.start;
        assert!(found.get() >= group.on_volume(rotor).get(), "{what}");
    });
}

#[test]
fn fragments_take_the_shortest_run_that_fits() {
    volumes(&mut |sb, number, bytes, what| {
        if sb.frag < 8 {
            return;
        }
        let mut group = GroupMut::check(sb, number, bytes).expect(what);
        // One block in pieces: 3 free, 1 taken, 2 free, 2 taken; another whole.
        let block = group.alloc_cluster(2, None).expect(what).expect(what).run.start;
        let piece = |from, len| Extent::new(block + from, len);
        group.free(piece(0, 3)).expect(what);
        group.free(piece(4, 2)).expect(what);
        // The root's block or a short last one may have loose runs as well.
        let taken = group.alloc_frags(2, None).expect(what).expect(what);
        assert_eq!(taken.delta, Delta { nffree: -2, ..Delta::default() }, "{what}");
        assert_eq!(taken.run, piece(4, 2), "{what}");
        assert_eq!(group.alloc_frags(1, Some(block)).expect(what).expect(what).run.len, 1);
        // In place: 3 at the front may not grow over taken fragments.
        let front = piece(6, 1);
        assert_eq!(group.extend(block, 1, 9).expect(what), None, "{what}");
        group.free(front).expect(what);
        assert_eq!(group.extend(piece(4, 2).start, 2, 4).expect(what), None, "{what}");
        let grown = group.extend(piece(4, 2).start, 2, 3).expect(what).expect(what);
        assert_eq!(grown, Delta { nffree: -1, ..Delta::default() }, "{what}");
    });
}

#[test]
fn clusters_lie_in_a_row_and_not_in_front() {
    volumes(&mut |sb, number, bytes, what| {
        let mut group = GroupMut::check(sb, number, bytes).expect(what);
        let longest = group.longest_cluster();
        assert!(longest > 8, "{what}: {longest}");
        let frag = u64::from(sb.frag);
        let first = group.alloc_cluster(8, None).expect(what).expect(what);
        assert_eq!(first.run.len, 8 * frag);
        assert_eq!(first.delta, Delta { nbfree: -8, ..Delta::default() }, "{what}");
        let end = sb.group_blocks(number).end().get();
        let near_end = BlockNo::new(end - end % frag - 2 * frag);
        assert_eq!(group.alloc_cluster(8, Some(near_end)).expect(what), None, "{what}");
        assert_eq!(group.alloc_cluster(17, None).expect(what), None, "{what}");
    });
}

#[test]
fn inodes_are_initialised_ahead_of_their_use() {
    volumes(&mut |sb, number, bytes, what| {
        let per_block = sb.bsize / sb.inode_size();
        let first = number.get() * sb.ipg;
        // As newfs leaves it: two blocks of inodes are written.
        let lazy = sb.format == Format::Ufs2 && sb.ipg > 2 * per_block;
        sb.order.put_u32(bytes, at!(cg_initediblk), 2 * per_block);
        let mut group = GroupMut::check(sb, number, bytes).expect(what);
        let taken = group.alloc_inode(Some(5), false).expect(what).expect(what);
        assert_eq!(taken.ino, Ino::new(first + 5), "{what}");
        assert!(taken.initialize.is_empty(), "{what}: {:?}", taken.initialize);
        let wanted = per_block + 1;
        let taken = group.alloc_inode(Some(wanted), true).expect(what).expect(what);
        assert_eq!(taken.delta, Delta { nifree: -1, ndir: 1, ..Delta::default() }, "{what}");
        if lazy {
            let ahead = (3 * per_block).min(sb.ipg);
            assert_eq!(taken.initialize, first + 2 * per_block..first + ahead, "{what}");
            assert_eq!(group.word(at!(cg_initediblk)), ahead, "{what}");
        } else {
            assert!(taken.initialize.is_empty(), "{what}");
        }
        // No preferred inode, or the preferred one is in use: on from the byte of the map that the
        // last one taken is in.
        let next = group.alloc_inode(Some(wanted), false).expect(what).expect(what).ino;
        assert_eq!(next.get(), first + per_block, "{what}");
        group.free_inode(next, false).expect(what);
        assert_eq!(group.alloc_inode(None, false).expect(what).expect(what).ino, next, "{what}");
    });
}

#[test]
fn what_is_not_data_is_not_given_back() {
    volumes(&mut |sb, number, bytes, what| {
        let mut group = GroupMut::check(sb, number, bytes).expect(what);
        let refused = |result: Result<Delta, FsError>| {
            assert!(matches!(result, Err(FsError::Corrupt { .. })), "{what}: {result:?}");
        };
        refused(group.free(Extent::new(sb.in_group(number, sb.cblkno), 1)));
        refused(group.free(Extent::new(sb.in_group(number, sb.dblkno - 1), 1)));
        refused(group.free(Extent::new(sb.group_blocks(number).end(), 1)));
        refused(group.free(Extent::new(BlockNo::new(u64::MAX), 1)));
        refused(group.free(Extent::new(sb.in_group(number, sb.dblkno), u64::MAX)));
        refused(group.free(Extent::new(sb.in_group(number, sb.dblkno), 0)));
        let across = sb.in_group(number, sb.dblkno) + u64::from(sb.frag);
        refused(group.free(Extent::new(across, u64::from(sb.frag) + 1)));
        if number == GroupNo::ZERO {
            refused(group.free(sb.summaries));
        }
        let elsewhere = if number == GroupNo::ZERO { sb.ipg } else { 0 };
        refused(group.free_inode(Ino::new(elsewhere), false));
        refused(group.free_inode(Ino::new(u32::MAX), false));
    });
}

/// Random bytes anywhere in a group: changes are done or refused, and none goes outside the group's
/// data.
#[test]
fn hostile_groups_do_no_harm() {
    let mut refused = 0;
    volumes(&mut |sb, number, clean, what| {
        let mut draw = Draw(5);
        for round in 0..150 {
            let mut bytes = clean.clone();
            for _ in 0..1 + draw.below(40) {
                let near_head = draw.below(2) == 0;
                let end = if near_head { 200 } else { bytes.len() as u64 };
                let at = draw.below(end) as usize;
                bytes[at] = draw.below(256) as u8;
            }
            let Ok(group) = GroupMut::check(sb, number, &mut bytes) else {
                refused += 1;
                continue;
            };
            let mut group = group;
            let blocks = sb.group_blocks(number);
            for _ in 0..40 {
                let want = Some(BlockNo::new(draw.below(sb.size)));
                let count = draw.below(12) as u32;
                let found = match draw.below(4) {
                    0 => group.alloc_block(want),
                    1 => group.alloc_frags(count, None),
                    2 => group.alloc_in_block(count.clamp(1, sb.frag), want),
                    _ => group.alloc_cluster(count, want),
                };
                if let Ok(Some(taken)) = found {
                    let inside = taken.run.start >= blocks.start && taken.run.end() <= blocks.end();
                    assert!(inside, "{what} {round}: {:?}", taken.run);
                }
                let run = Extent::new(BlockNo::new(draw.below(sb.size)), draw.below(9));
                let _ = group.free(run);
                let _ = group.extend(run.start, 1, count);
                let ino = Ino::new(draw.below(u64::from(sb.inodes())) as u32);
                let _ = group.free_inode(ino, true);
                if let Ok(Some(taken)) = group.alloc_inode(Some(ino.get() % sb.ipg), true) {
                    let (there, _) = (taken.ino.get() / sb.ipg, 0);
                    assert_eq!(there, number.get(), "{what} {round}");
                }
            }
        }
    });
    assert!(refused > 50, "only {refused} heads were refused");
}

#[test]
fn hashes_are_renewed() {
    volumes(&mut |sb, number, bytes, what| {
        let mut sb = sb.clone();
        let plain = bytes.clone();
        seal_group(&sb, bytes);
        assert_eq!(*bytes, plain, "{what}: a volume without check hashes");
        sb.demand_check_hashes();
        GroupMut::check(&sb, number, bytes).expect(what).touch(1_234_567);
        seal_group(&sb, bytes);
        let stored = sb.order.get_u32(bytes, at!(cg_ckhash)).expect(what);
        bytes[at!(cg_ckhash)..at!(cg_ckhash) + 4].fill(0);
        assert_eq!(stored, crate::checksum::crc32c(bytes), "{what}");
        assert_eq!(sb.order.get_u64(bytes, at!(cg_time)), Some(1_234_567), "{what}");
    });
}

#[test]
fn summaries_survive_the_way_to_disk() {
    volumes(&mut |sb, _, _, what| {
        let mut area = vec![0; sb.tuning.cssize as usize];
        let some = |at: u32| GroupSummary { ndir: at, nbfree: at + 1, nifree: at + 2, nffree: 3 };
        for at in 0..sb.ncg {
            encode_summary(sb.order, &mut area, GroupNo::new(at), some(at));
        }
        let read = decode_summaries(sb, &area).expect(what);
        assert_eq!(read, (0..sb.ncg).map(some).collect::<Vec<_>>(), "{what}");
        let low = if sb.order == Order::Little { 0 } else { 3 };
        assert_eq!(area[4 + low], 1, "{what}");
        let huge = GroupSummary { nifree: sb.ipg + 1, ..some(0) };
        encode_summary(sb.order, &mut area, GroupNo::ZERO, huge);
        assert!(decode_summaries(sb, &area).is_err(), "{what}");
        assert!(decode_summaries(sb, &area[..8]).is_err(), "{what}");
    });
}
