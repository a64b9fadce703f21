//! New file systems, seen by our own reader: counts and bitmaps agree.

use seekless_device::MemoryDevice;
use seekless_ffs::{FfsImage, MakeOptions, Version, make};
use seekless_fs::Inspect;
use seekless_fs::format::OpenOptions;
use seekless_units::{ByteLen, GroupNo};
use std::ops::ControlFlow;
use std::sync::Arc;

#[test]
fn counts_agree_with_bitmaps() {
    // The last size leaves a group too small to be one.
    for size in [8 << 20, 40_000_000, (64 << 20) + 8192] {
        for (block, fragment) in [(4096, 512), (8192, 1024), (8192, 8192), (16384, 4096)] {
            for (version, big_endian) in
                [(Version::Ufs1, false), (Version::Ufs1, true), (Version::Ufs2, false)]
            {
                let what = format!("{size} {block}/{fragment} {version:?} {big_endian}");
                let mut options = MakeOptions::new(version, ByteLen::new(size));
                (options.block_size, options.fragment_size) = (block, fragment);
                options.big_endian = big_endian;
                let device = Arc::new(MemoryDevice::new(vec![0; size as usize]));
                let used = make(device.as_ref(), &options).expect(&what);
                assert!(used.get() <= size && used.get() > size / 2, "{what}: {used}");
                let image = FfsImage::open(device.clone(), OpenOptions::default()).expect(&what);
                check(&image, &what);
                let report = seekless_ffs::check(device).expect(&what);
                assert!(report.is_clean(), "{what}: {:?}", report.findings);
            }
        }
    }
}

fn check(image: &FfsImage, what: &str) {
    let geometry = image.geometry();
    let (mut free, mut inodes, mut directories, mut metadata) = (0, 0, 0, 0);
    for number in (0..geometry.groups).map(GroupNo::new) {
        let group = image.group(number).expect(what);
        free += group.free_blocks;
        inodes += group.free_inodes;
        directories += group.directories;
        metadata += group.metadata.iter().map(|it| it.extent.len).sum::<u64>();
    }
    assert_eq!(
        (free, inodes, directories),
        (geometry.free_blocks, geometry.free_inodes, 1),
        "{what}"
    );
    assert_eq!(inodes + 3, geometry.inodes, "{what}");
    // What is not free is metadata and the root's one fragment.
    assert_eq!(free + metadata + 1, geometry.blocks, "{what}");
    let root = image.attr(image.root()).expect(what);
    assert_eq!((root.size, root.nlink, root.perm), (512, 2, 0o755), "{what}");
    let mut names = Vec::new();
    let listed = image.read_dir(image.root(), 0, &mut |entry| {
        names.push((entry.name.to_vec(), entry.ino));
        ControlFlow::Continue(())
    });
    listed.expect(what);
    let root = image.root();
    assert_eq!(names, [(b".".to_vec(), root), (b"..".to_vec(), root)], "{what}");
}
