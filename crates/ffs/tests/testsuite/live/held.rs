//! A directory that is removed while somebody holds it: it has no blocks any more, as after
//! `ufs_rmdir`. One with blocks and without links is an inconsistency at which
//! `fsck_ffs -p` stops (`LINK COUNT INCREASING`).

use super::SHAPES;
use super::shapes::{image, options};
use seekless_cache::{Config, Discipline};
use seekless_device::{BlockDevice, MemoryDevice, VirtualClock};
use seekless_ffs::{FfsImage, FfsLive, Version};
use seekless_fs::format::OpenOptions;
use seekless_fs::operate::{NewFile, Operate, Ownership};
use seekless_fs::{FsError, Inspect};
use seekless_units::{ByteLen, Lba};
use std::ops::ControlFlow;
use std::sync::Arc;

const OWNER: Ownership = Ownership { uid: 0, gid: 0, perm: 0o755 };

fn copy_of(device: &MemoryDevice) -> Arc<MemoryDevice> {
    let mut bytes = vec![0; device.len().get() as usize];
    device.read(Lba::ZERO, &mut bytes).unwrap();
    Arc::new(MemoryDevice::new(bytes))
}

#[test]
fn a_removed_directory_that_is_held_has_no_blocks() {
    for shape in &SHAPES {
        for discipline in [Discipline::Sync, Discipline::Normal, Discipline::SoftUpdates] {
            let what = format!("{discipline}, {shape:?}");
            let device = image(shape);
            let clock = Arc::new(VirtualClock::new());
            let config = Config::new(discipline);
            let mut live = FfsLive::open(device.clone(), clock, config, options()).unwrap();
            let root = live.root();
            let free = live.space().free;
            let dir = live.make(root, b"held", NewFile::Directory, OWNER).unwrap().ino;
            live.hold(dir).unwrap();
            live.sync().unwrap();
            live.rmdir(root, b"held").unwrap();
            live.sync().unwrap();
            let crashed = copy_of(&device);
            let opened = FfsImage::open(crashed.clone(), OpenOptions::default()).unwrap();
            let at = opened.inode_location(dir).unwrap();
            let at = at.block.get() * u64::from(shape.fragment) + u64::from(at.offset);
            let mut inode = [0; 128];
            crashed.read_bytes(ByteLen::new(at), &mut inode).unwrap();
            // `di_nlink`, and `di_size` of UFS1 and UFS2.
            let size = if shape.version == Version::Ufs1 { 8..16 } else { 16..24 };
            assert_ne!(inode[..2], [0; 2], "{what}: the inode is in use");
            assert_eq!((&inode[2..4], &inode[size]), (&[0; 2][..], &[0; 8][..]), "{what}");
            let preened = seekless_ffs::preen(crashed).unwrap();
            assert_eq!(preened.report.unexpected, 0, "{what}: {:#?}", preened.report);
            // To its holder it is empty, and nothing can be made in it.
            let mut names = 0;
            let listed = live.read_dir(dir, 0, &mut |_| {
                names += 1;
                ControlFlow::Continue(())
            });
            listed.unwrap();
            assert_eq!(names, 0, "{what}");
            let made = live.make(dir, b"file", NewFile::Regular, OWNER);
            assert!(matches!(made, Err(FsError::NotFound(_))), "{what}: {made:?}");
            assert_eq!(live.lookup(dir, b"file").unwrap(), None, "{what}");
            live.release(dir).unwrap();
            live.sync().unwrap();
            assert_eq!(live.space().free, free, "{what}");
            live.unmount().unwrap();
            let report = seekless_ffs::check(device).unwrap();
            assert!(report.is_clean(), "{what}: {report:#?}");
        }
    }
}
