//! The space that is kept from ordinary users.

use super::SHAPES;
use super::recount::recount;
use super::shapes::{image, options};
use seekless_cache::{Config, Discipline};
use seekless_device::VirtualClock;
use seekless_ffs::FfsLive;
use seekless_fs::FsError;
use seekless_fs::operate::{NewFile, Operate, Ownership};
use seekless_units::{ByteLen, Ino};
use std::sync::Arc;

/// Appends to a file until there is no more room.
fn fill(live: &mut FfsLive, ino: Ino, bytes: &[u8]) {
    loop {
        let end = ByteLen::new(live.attr(ino).unwrap().size);
        match live.write(ino, end, bytes) {
            Ok(written) => assert!(written > 0),
            Err(FsError::NoSpace(_)) => return,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn ordinary_users_leave_the_reserve() {
    for shape in &SHAPES {
        let device = image(shape);
        let clock = Arc::new(VirtualClock::new());
        let config = Config::new(Discipline::SoftUpdates);
        let mut live = FfsLive::open(device.clone(), clock, config, options()).unwrap();
        let owner = Ownership { uid: 1, gid: 1, perm: 0o644 };
        let root = live.root();
        let ino = live.make(root, b"file", NewFile::Regular, owner).unwrap().ino;
        live.spend_reserve(false);
        fill(&mut live, ino, &[5; 4096]);
        let space = live.space();
        let kept = space.free - space.available;
        assert!(kept > space.blocks / 20, "{space:?}");
        // What is left over is less than a block, or what a block's indirect one
        // needs besides it.
        let block = u64::from(shape.block / space.block_size);
        assert!(space.available < 4 * block, "{space:?}");
        live.spend_reserve(true);
        fill(&mut live, ino, &[6; 512]);
        assert_eq!(live.space().available, 0);
        assert!(live.space().free < 4 * block, "{:?}", live.space());
        live.unlink(root, b"file").unwrap();
        live.sync().unwrap();
        assert!(live.space().available > space.blocks / 2);
        live.unmount().unwrap();
        drop(live);
        recount(&device);
    }
}
