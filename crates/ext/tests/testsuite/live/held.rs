//! Files that are counted for names which are going from the disk.

use super::SHAPES;
use super::shapes::{Shape, fsck, image, options};
use seekless_cache::{Config, Discipline};
use seekless_device::VirtualClock;
use seekless_ext::ExtLive;
use seekless_fs::operate::{NewFile, Operate, Ownership, RenameMode};
use std::sync::Arc;

const OWNER: Ownership = Ownership { uid: 0, gid: 0, perm: 0o755 };

/// Moves a file with some links while the disk has nothing of it.
fn move_often(links: u32, moves: u32) {
    let shape = SHAPES.iter().find(|shape| shape.kind == "ext2").unwrap_or(&SHAPES[0]);
    let device = image(&Shape { mebibytes: 24, ..*shape });
    let clock = Arc::new(VirtualClock::new());
    let config = Config::new(Discipline::SoftUpdates);
    let mut live = ExtLive::open(device.clone(), clock, config, options()).unwrap();
    let root = live.root();
    let file = live.make(root, b"f0", NewFile::Regular, OWNER).unwrap().ino;
    let others = live.make(root, b"others", NewFile::Directory, OWNER).unwrap().ino;
    for n in 1..links {
        live.link(file, others, n.to_string().as_bytes()).unwrap();
    }
    live.sync().unwrap();
    for n in 0..moves {
        let (from, to) = (format!("f{n}"), format!("f{}", n + 1));
        live.rename((root, from.as_bytes()), (root, to.as_bytes()), RenameMode::Replace).unwrap();
    }
    // Those that are gone count no more, even if the disk still has them.
    for n in 1..links.min(20) {
        live.unlink(others, n.to_string().as_bytes()).unwrap();
        live.link(file, others, format!("new{n}").as_bytes()).unwrap();
    }
    live.sync().unwrap();
    let last = format!("f{moves}");
    assert_eq!(live.lookup(root, last.as_bytes()).unwrap(), Some(file));
    live.unmount().unwrap();
    fsck(&device, &format!("{links} links, {moves} moves"));
}

#[test]
fn moves_of_a_file_with_the_most_links_keep_it() {
    move_often(65_000, 1_200);
}

/// Half a minute.
#[test]
#[ignore = "a campaign"]
fn more_moves_than_a_link_count_holds_keep_a_file() {
    move_often(1, 70_000);
}
