//! Random new file systems of both formats and byte orders, held against the
//! rules of FreeBSD.

#![allow(missing_docs)]
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_possible_wrap)]

pub(crate) mod freebsd;

use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;
use seekless_device::{BlockDevice, SparseDevice};
use seekless_ffs::{CheckHashes, MakeOptions, Optimization, Version, make};
use seekless_fs::FsError;
use seekless_units::ByteLen;
use std::sync::Arc;

/// Sets of options that are tried.
const SETS: u64 = 600;

struct Chance(Pcg64Mcg);

impl Chance {
    fn below(&mut self, end: u64) -> u64 {
        self.0.next_u64() % end
    }

    fn flip(&mut self) -> bool {
        self.below(2) == 0
    }

    /// From `low` to `high`, each power of two as likely as the next.
    fn between(&mut self, low: u64, high: u64) -> u64 {
        let bits = u64::from(low.ilog2()) + self.below(u64::from(high.ilog2() - low.ilog2()) + 1);
        let least = 1 << bits;
        (least + self.below(least)).clamp(low, high)
    }

    fn maybe(&mut self, low: u64, high: u64) -> Option<u32> {
        let value = self.between(low, high) as u32;
        self.flip().then_some(value)
    }
}

fn options(chance: &mut Chance) -> MakeOptions {
    let version = if chance.flip() { Version::Ufs1 } else { Version::Ufs2 };
    // Not always a multiple of anything.
    let size = chance.between(500_000, 2 << 30) / 512 * 512;
    let block_size = 4096 << chance.below(5);
    let frag = 1 << chance.below(4);
    let mut options = MakeOptions::new(version, ByteLen::new(size));
    options.block_size = block_size;
    options.fragment_size = (block_size / frag).max(512);
    options.big_endian = chance.flip();
    options.minfree = if chance.flip() { 8 } else { chance.below(100) as u32 };
    options.optimization = if chance.flip() { Optimization::Space } else { Optimization::Time };
    options.maxbpg = chance.maybe(1, 1 << 20);
    options.avgfilesize = chance.between(1, 1 << 30) as u32;
    options.avgfpdir = chance.between(1, 1 << 20) as u32;
    options.bytes_per_inode = chance.maybe(1, 1 << 30);
    options.blocks_per_group = if chance.below(4) == 0 { chance.maybe(1, 1 << 18) } else { None };
    options.maxcontig = chance.maybe(1, 300);
    options.soft_updates = chance.flip();
    options.check_hashes =
        [CheckHashes::All, CheckHashes::Groups, CheckHashes::None][chance.below(3) as usize];
    options
}

#[test]
fn every_new_volume_is_one_to_freebsd() {
    let mut chance = Chance(Pcg64Mcg::seed_from_u64(1));
    let (mut made, mut asked, mut checked) = ([0; 4], 0, 0);
    for _ in 0..SETS {
        let options = options(&mut chance);
        let device = Arc::new(SparseDevice::new(options.size));
        match make(device.as_ref(), &options) {
            Ok(used) => assert!(used <= options.size && used.get() + 65536 > options.size.get()),
            // Too small for its blocks, or a number that FreeBSD has no place for.
            Err(FsError::NoSpace(_)) if options.size.get() < 4 << 20 => continue,
            Err(FsError::NoSpace(_)) if options.blocks_per_group.is_some() => continue,
            Err(FsError::Invalid(_)) if options.maxcontig.is_some_and(|most| most > 256) => {
                continue;
            }
            Err(error) => panic!("{error}: {options:?}"),
        }
        let verdict = freebsd::judge(device.as_ref(), true);
        assert!(verdict.wrong.is_empty(), "{:#?}: {options:?}", verdict.wrong);
        let hashes = match (options.version, options.check_hashes) {
            (Version::Ufs1, _) | (_, CheckHashes::None) => 0,
            (Version::Ufs2, CheckHashes::Groups) => 2,
            (Version::Ufs2, CheckHashes::All) => 7,
        };
        assert_eq!(freebsd::Fs::find(device.as_ref()).metackhash(), hashes, "{options:?}");
        let kind = usize::from(options.version == Version::Ufs2) * 2;
        made[kind + usize::from(options.big_endian)] += 1;
        asked += verdict.asked;
        if options.size.get() < 32 << 20 {
            let report = seekless_ffs::check(device).unwrap();
            assert!(report.is_clean(), "{:?}: {options:?}", report.findings);
            checked += 1;
        }
    }
    assert!(made.iter().all(|&one| one > 40) && asked > 200_000, "{made:?}, {asked} asked");
    assert!(checked > 50, "{checked}");
}

/// By default UFS1 of a gigabyte and more has as many inodes a group as its heads
/// have a number for.
#[test]
fn large_volumes_are_volumes_to_freebsd() {
    for gibibytes in [1, 40, 300] {
        for version in [Version::Ufs1, Version::Ufs2] {
            for (block, fragment) in [(32768, 4096), (65536, 65536), (16384, 2048)] {
                let mut options = MakeOptions::new(version, ByteLen::new(gibibytes << 30));
                (options.block_size, options.fragment_size) = (block, fragment);
                if gibibytes > 100 && fragment < 4096 {
                    continue;
                }
                let device = SparseDevice::new(options.size);
                make(&device, &options).unwrap();
                let verdict = freebsd::judge(&device, true);
                assert!(verdict.wrong.is_empty(), "{:#?}: {options:?}", verdict.wrong);
            }
        }
    }
}

/// The rules see what they are there for.
#[test]
fn a_volume_that_was_changed_is_none_to_freebsd() {
    for version in [Version::Ufs1, Version::Ufs2] {
        let options = MakeOptions::new(version, ByteLen::new(64 << 20));
        let fresh = || {
            let device = SparseDevice::new(options.size);
            make(&device, &options).unwrap();
            device
        };
        let home = if version == Version::Ufs1 { 8192 } else { 65536 };
        // fs_sbsize, fs_ipg, fs_maxcontig, fs_cgsize, fs_metaspace.
        for at in [104, 184, 88, 160, 880] {
            let device = fresh();
            let mut bytes = vec![0; 8192];
            let lba = seekless_units::Lba::containing(ByteLen::new(home));
            device.read(lba, &mut bytes).unwrap();
            bytes[at + 3] ^= 1;
            device.write(lba, &bytes).unwrap();
            assert!(!freebsd::judge(&device, true).wrong.is_empty(), "{version:?} {at}");
        }
    }
}
