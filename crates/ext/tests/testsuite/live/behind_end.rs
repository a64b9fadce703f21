//! Blocks that a file has behind its end: a preallocation that was never given back.

use super::shapes::{Shape, fsck, image_with, options, run};
use seekless_cache::{Config, Discipline};
use seekless_device::VirtualClock;
use seekless_ext::ExtLive;
use seekless_fs::operate::Operate;
use seekless_units::ByteLen;
use std::sync::Arc;

/// An append goes into the blocks that are there. They were taken for blocks of no length, and each
/// was counted twice.
#[test]
fn an_append_uses_blocks_behind_the_end() {
    for kind in ["ext2", "ext3"] {
        let shape =
            Shape { kind, block: 1024, mebibytes: 8, how: &["-O", "^dir_index,^has_journal"] };
        let device = image_with(&shape, |file| {
            let source = format!("{file}.source");
            std::fs::write(&source, vec![7; 5120]).unwrap();
            run("debugfs", &["-w", "-R", &format!("write {source} file"), file]);
            std::fs::remove_file(&source).unwrap();
            run("debugfs", &["-w", "-R", "sif file size 1000", file]);
        });
        let clock = Arc::new(VirtualClock::new());
        let config = Config::new(Discipline::Async);
        let mut live = ExtLive::open(device.clone(), clock, config, options()).unwrap();
        let root = live.root();
        let ino = live.lookup(root, b"file").unwrap().unwrap();
        let before = live.attr(ino).unwrap().sectors;
        assert_eq!(live.write(ino, ByteLen::new(1000), &vec![9; 4120]).unwrap(), 4120);
        let after = live.attr(ino).unwrap();
        assert_eq!((after.size, after.sectors), (5120, before), "{kind}");
        let mut read = vec![0; 5120];
        live.read(ino, ByteLen::ZERO, &mut read).unwrap();
        assert!(read[..1000].iter().all(|&byte| byte == 7), "{kind}");
        assert!(read[1000..].iter().all(|&byte| byte == 9), "{kind}");
        live.unmount().unwrap();
        fsck(&device, kind);
    }
}
