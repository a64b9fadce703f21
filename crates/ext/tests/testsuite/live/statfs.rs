//! What `statfs(2)` says of a volume, here and by the kernel.

use super::kernel::{mounted, open};
use super::shapes::{JOURNALLED, SHAPES, Shape, WITH_EXTENTS, image};
use seekless_cache::{Discipline, JournalMode};
use seekless_ext::ExtImage;
use seekless_fs::Inspect;
use seekless_fs::format::OpenOptions;
use seekless_fs::operate::Operate;

#[test]
fn counts_are_those_of_the_kernel() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root mounts images");
        return;
    }
    let large = Shape { kind: "ext4", block: 4096, mebibytes: 256, how: &["-m", "1"] };
    let shapes = [&SHAPES[0], &JOURNALLED[1], &WITH_EXTENTS[0], &WITH_EXTENTS[1], &large];
    for shape in shapes {
        let has_journal = shape.how.contains(&"-J") || std::ptr::eq(shape, &large);
        let mode = Discipline::Journal(JournalMode::Ordered);
        let device = image(shape);
        let mut theirs = None;
        mounted(&device, |at| theirs = Some(rustix::fs::statvfs(at).unwrap()));
        let theirs = theirs.unwrap();
        let image = ExtImage::open(device.clone(), OpenOptions::default()).unwrap();
        let read_only = image.space().unwrap();
        let mut live = open(&device, if has_journal { mode } else { Discipline::Async });
        let read_write = live.space();
        live.unmount().unwrap();
        for ours in [read_only, read_write] {
            assert_eq!(
                (ours.blocks, ours.free, ours.available, ours.inodes, ours.free_inodes),
                (theirs.f_blocks, theirs.f_bfree, theirs.f_bavail, theirs.f_files, theirs.f_ffree),
                "{shape:?}"
            );
        }
    }
}
