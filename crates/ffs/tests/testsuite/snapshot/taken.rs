//! Snapshots that are taken, and volumes that change afterwards.

use super::{Files, SHAPES, bytes, open, tree};
use crate::live::shapes::{Shape, image, through};
use crate::property::for_all;
use crate::replay::{Op, ops};
use seekless_cache::Discipline;
use seekless_device::{BlockDevice, MemoryDevice};
use seekless_ffs::{
    FfsImage, check, open_snapshot, remove_snapshots, snapshots, take_snapshot_in_use,
};
use seekless_fs::FileKind;
use seekless_fs::format::OpenOptions;
use seekless_fs::operate::Operate;
use std::sync::Arc;

/// A snapshot, and what it should keep.
struct Taken {
    name: &'static [u8],
    files: Files,
    image: Vec<u8>,
}

fn kept(device: &Arc<MemoryDevice>, name: &[u8]) -> Arc<dyn BlockDevice> {
    open_snapshot(device.clone(), name, OpenOptions::default()).unwrap()
}

/// The files, but for the snapshots.
fn ordinary(mut files: Files) -> Files {
    files.retain(|path, _| !path.starts_with(b"/."));
    files
}

impl Taken {
    /// Checks a snapshot of a volume that is not in use; `image` is what it had before, if known.
    fn check(&self, device: &Arc<MemoryDevice>, shape: &Shape) {
        let kept = kept(device, self.name);
        assert!(bytes(kept.as_ref()) == self.image, "{shape:?}: the snapshot has changed");
        let report = check(kept.clone()).unwrap();
        assert!(report.is_clean(), "{shape:?}: {:#?}", report.findings);
        let seen = tree(&FfsImage::open(kept, OpenOptions::default()).unwrap());
        assert!(ordinary(seen.clone()) == self.files, "{shape:?}: other files");
        // Snapshots are empty files there, this one too.
        let hidden = seen.iter().filter(|(path, _)| path.starts_with(b"/."));
        let is_empty = |(_, (kind, _, contents)): (_, &(FileKind, u32, Vec<u8>))| {
            *kind == FileKind::Regular && contents.is_empty()
        };
        assert!(hidden.clone().count() > 0 && hidden.into_iter().all(is_empty));
    }
}

/// Runs operations on a volume, with a snapshot before each list but the first.
fn run(shape: &Shape, lists: &[Vec<Op>]) {
    const NAMES: [&[u8]; 3] = [b"/.one", b"/.two", b"/.three"];
    let device = image(shape);
    let mut shaped = through(device.clone(), device.clone(), shape, Discipline::SoftUpdates);
    shaped.run(&lists[0]);
    let mut taken: Vec<Taken> = Vec::new();
    for (list, name) in lists[1..].iter().zip(NAMES) {
        shaped.live.sync().unwrap();
        let files = ordinary(tree(&open(&device)));
        take_snapshot_in_use(&mut shaped.live, name).unwrap();
        let image = bytes(kept(&device, name).as_ref());
        taken.push(Taken { name, files, image });
        for taken in &taken {
            taken.check(&device, shape);
        }
        shaped.run(list);
    }
    let device = shaped.finish();
    let report = check(device.clone()).unwrap();
    assert!(report.is_clean(), "{shape:?}: {:#?}", report.findings);
    for taken in &taken {
        taken.check(&device, shape);
    }
    let found = snapshots(device.clone(), OpenOptions::default()).unwrap();
    assert_eq!(found.len(), taken.len());
    let removed = remove_snapshots(device.clone(), None, crate::replay::WALL).unwrap();
    assert_eq!(removed, taken.len() as u64);
    let report = check(device).unwrap();
    assert!(report.is_clean(), "{shape:?}: {:#?}", report.findings);
}

#[test]
fn snapshots_stay_as_they_were_taken() {
    for (n, shape) in SHAPES.iter().enumerate() {
        let some = || ops(250, false);
        for_all((6, n), (some(), some(), some()), |(first, second, third)| {
            run(shape, &[first, second, third]);
        });
    }
}
