//! Volumes that are corrected while they are in use, after states that crashes leave.

use super::SHAPES;
use super::shapes::{Shape, fsck, image, options};
use crate::holes;
use seekless_cache::{Config, Discipline};
use seekless_device::{BlockDevice, MemoryDevice, SnapshotOrigin, VirtualClock};
use seekless_ext::{ExtImage, ExtLive, LiveOptions, corrections};
use seekless_fs::FsError;
use seekless_fs::corrections::Correction;
use seekless_fs::format::OpenOptions;
use seekless_fs::operate::{NewFile, Operate, Ownership};
use seekless_units::{ByteLen, Ino};
use std::ops::ControlFlow;
use std::sync::Arc;

const OWNER: Ownership = Ownership { uid: 0, gid: 0, perm: 0o755 };

/// `i_links_count` in an inode.
const LINKS: usize = 26;

/// The mark of a volume that is in use under soft updates.
const MARK: usize = 1024 + 1004;

fn shape() -> &'static Shape {
    SHAPES.iter().find(|shape| shape.kind == "ext2").unwrap_or(&SHAPES[0])
}

fn opened(device: Arc<dyn BlockDevice>, recover: bool) -> Result<ExtLive, FsError> {
    let clock = Arc::new(VirtualClock::new());
    let options = LiveOptions { recover, ..options() };
    ExtLive::open(device, clock, Config::new(Discipline::SoftUpdates), options)
}

fn bytes_of(device: &MemoryDevice) -> Vec<u8> {
    holes::of(device)
}

/// Where an inode lies in an image: it is looked for by its bytes.
fn place(bytes: &[u8], ino: Ino) -> usize {
    let device = Arc::new(MemoryDevice::new(holes::copy(bytes)));
    let raw = ExtImage::open(device, OpenOptions::default()).unwrap().raw_inode(ino).unwrap();
    let found: Vec<usize> =
        (0..bytes.len()).step_by(128).filter(|&at| bytes[at..].starts_with(&raw)).collect();
    assert_eq!(found.len(), 1, "inode {ino} lies in one place");
    found[0]
}

fn names(live: &mut ExtLive, dir: Ino) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    live.read_dir(dir, 0, &mut |entry| {
        names.push(entry.name.to_vec());
        ControlFlow::Continue(())
    })
    .unwrap();
    names
}

/// A name whose file never got its links, and another whose file has lost them.
#[test]
fn names_that_lead_to_nothing_are_nowhere() {
    let device = image(shape());
    let mut live = opened(device.clone(), false).unwrap();
    let root = live.root();
    let mut dead = Vec::new();
    for name in [b"one", b"two"] {
        let file = live.make(root, name, NewFile::Regular, OWNER).unwrap().ino;
        live.write(file, ByteLen::ZERO, &[7; 9000]).unwrap();
        dead.push(file);
    }
    live.make(root, b"kept", NewFile::Regular, OWNER).unwrap();
    live.sync().unwrap();
    let mut crashed = bytes_of(&device);
    for &ino in &dead {
        let at = place(&crashed, ino) + LINKS;
        crashed[at..at + 2].fill(0);
    }
    let device = Arc::new(MemoryDevice::new(crashed));
    let (origin, snapshot) = SnapshotOrigin::take(device.clone(), None);
    let found = corrections(Arc::new(snapshot)).unwrap();
    assert!(found.are_complete(), "{:#?}", found.left);
    let removed = found.all.iter().filter(|made| matches!(made, Correction::RemoveName { .. }));
    assert_eq!(removed.count(), 2, "{:#?}", found.all);
    let mut live = opened(Arc::new(origin), true).unwrap();
    assert_eq!(live.lookup(root, b"one").unwrap(), None);
    let shown = names(&mut live, root);
    assert!(shown.contains(&b"kept".to_vec()) && !shown.contains(&b"two".to_vec()), "{shown:?}");
    // One comes back as another file before the correction, and never with the old inode.
    let new = live.make(root, b"one", NewFile::Regular, OWNER).unwrap().ino;
    assert!(!dead.contains(&new), "inode {new} had a name on the disk");
    for correction in &found.all {
        live.correct(correction).unwrap();
    }
    live.end_recovery(true).unwrap();
    assert_eq!(live.lookup(root, b"one").unwrap(), Some(new));
    live.unmount().unwrap();
    fsck(&device, "recovered");
}

/// One that is not sound is marked at once, for the next mount to refuse it.
#[test]
fn what_needs_a_check_is_marked_before_the_unmount() {
    let device = image(shape());
    let mut live = opened(device.clone(), false).unwrap();
    live.make(live.root(), b"dir", NewFile::Directory, OWNER).unwrap();
    live.sync().unwrap();
    let device = Arc::new(MemoryDevice::new(bytes_of(&device)));
    let mut live = opened(device.clone(), true).unwrap();
    live.end_recovery(false).unwrap();
    drop(live);
    let refused = opened(device, true).err().expect("it is marked").to_string();
    assert!(refused.contains("must be checked"), "{refused}");
}

/// A repair may be cut off, and leaves more then than a crash.
#[test]
fn a_repair_takes_the_mark_away() {
    let device = image(shape());
    let mut live = opened(device.clone(), false).unwrap();
    live.make(live.root(), b"file", NewFile::Regular, OWNER).unwrap();
    live.sync().unwrap();
    let device = Arc::new(MemoryDevice::new(bytes_of(&device)));
    assert!(bytes_of(&device)[MARK..].starts_with(b"SKSU"));
    seekless_ext::preen(device.clone()).unwrap();
    assert_eq!(bytes_of(&device)[MARK..][..16], [0; 16]);
    fsck(&device, "repaired");
}

/// Damage of a volume that says that it was in use: nothing panics, and a volume for which all
/// corrections succeed is in order. `RECOVER_STEP=1` damages each byte.
#[test]
fn damaged_volumes_are_in_order_or_refused() {
    let device = image(shape());
    let mut live = opened(device.clone(), false).unwrap();
    let root = live.root();
    for name in 0..12u32 {
        let dir = live.make(root, name.to_string().as_bytes(), NewFile::Directory, OWNER).unwrap();
        let file = live.make(dir.ino, b"file", NewFile::Regular, OWNER).unwrap().ino;
        live.write(file, ByteLen::ZERO, &vec![7; 3000 * (name as usize + 1)]).unwrap();
        live.link(file, root, format!("link{name}").as_bytes()).unwrap();
    }
    live.sync().unwrap();
    let bytes = bytes_of(&device);
    // Metadata and names: all that is not zero, contents, or never written. The superblock stays.
    let places: Vec<usize> = (0..bytes.len())
        .filter(|&at| !matches!(bytes[at], 0 | 7 | 0xA5 | 0xFF) && !(1024..2048).contains(&at))
        .collect();
    let (mut sound, mut left) = (0, 0);
    let step = std::env::var("RECOVER_STEP").ok().and_then(|step| step.parse().ok());
    let step = step.unwrap_or(places.len() / 120);
    for (n, &at) in places.iter().enumerate().step_by(step.max(1)) {
        let mut damaged = bytes.clone();
        damaged[at] ^= [0x01, 0x10, 0xFF][n % 3];
        let device = Arc::new(MemoryDevice::new(damaged));
        match try_recover(&device) {
            Some(true) => {
                sound += 1;
                let report = seekless_ext::check(device.clone()).unwrap();
                assert!(report.is_clean(), "byte {at}: {:#?}", report.findings);
                fsck(&device, &format!("byte {at}"));
            }
            Some(false) | None => left += 1,
        }
    }
    assert!(sound > 20 && left > 50, "{sound} are sound, {left} are left");
}

/// Whether a volume is sound after its recovery; `None` if it is not opened or not checked.
fn try_recover(device: &Arc<MemoryDevice>) -> Option<bool> {
    let (origin, snapshot) = SnapshotOrigin::take(device.clone(), None);
    let found = corrections(Arc::new(snapshot)).ok()?;
    let mut live = opened(Arc::new(origin), true).ok()?;
    let mut sound = found.are_complete();
    for correction in &found.all {
        sound &= live.correct(correction).is_ok();
    }
    live.end_recovery(sound).ok()?;
    live.unmount().ok()?;
    Some(sound)
}
