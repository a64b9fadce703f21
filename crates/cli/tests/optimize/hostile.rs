//! Optimization of damaged images: a typed error, or an image that reads the same as the damaged
//! one. Never a panic, and never an endless loop.

#[path = "../../../ext/tests/testsuite/damage/images.rs"]
pub(crate) mod images;

use seekless_device::MemoryDevice;
use seekless_ext::{ExtImage, Relayout};
use seekless_fs::format::OpenOptions;
use seekless_fs::plan::Rearrange;
use seekless_fs::{FsError, Inspect};
use seekless_layout::planner;
use seekless_layout::replay::{Machine, replay};
use seekless_layout::trace::read_paths;
use seekless_source::{ImageSource, TreeOptions, manifest};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

const PATHS: &str = "/pieces\n/dir/below/text\n/dir/small\n/many/some-longer-name-123\n/dir/fast\n";

fn open(bytes: Vec<u8>, ignore_checksums: bool) -> Result<ExtImage, FsError> {
    let options = OpenOptions { ignore_checksums, ..OpenOptions::default() };
    ExtImage::open(Arc::new(MemoryDevice::new(bytes)), options)
}

fn listing(image: ExtImage) -> Result<Vec<u8>, FsError> {
    let source = ImageSource::open(Arc::new(image), &TreeOptions::default())?;
    let mut out = Vec::new();
    manifest::write(&source, &mut out, &|_| {})?;
    Ok(out)
}

/// Optimizes an image in memory.
pub(crate) fn relay(bytes: &[u8], ignore_checksums: bool) -> Result<Vec<u8>, FsError> {
    let image = open(bytes.to_vec(), ignore_checksums)?;
    let events = read_paths(PATHS.as_bytes(), None).expect("paths").into_iter().collect();
    let replayed = replay(&image, &events, Machine::default())?;
    let relayout = Relayout::new(&image)?;
    let object = |ino| relayout.object(ino);
    let touches = planner::touches(&[replayed], &object, relayout.cluster_blocks());
    let plan = planner::plan(relayout.demand(), &relayout.space(), &touches, 8)?;
    let size = usize::try_from(relayout.size().get()).expect("size");
    assert!(size <= bytes.len(), "an image larger than the old one");
    let target = Arc::new(MemoryDevice::new(vec![0; size]));
    relayout.write(&plan, target.as_ref(), &|_| {})?;
    let mut new = vec![0; size];
    seekless_device::BlockDevice::read(target.as_ref(), seekless_units::Lba::ZERO, &mut new)?;
    Ok(new)
}

/// The codes of the findings of our own check.
fn codes(bytes: &[u8]) -> BTreeSet<&'static str> {
    let report = seekless_ext::check(Arc::new(MemoryDevice::new(bytes.to_vec())));
    report.expect("check").findings.iter().map(|finding| finding.code()).collect()
}

/// Optimizes a damaged image; whether that succeeded.
fn attempt(name: &str, bytes: &[u8], ignore_checksums: bool) -> bool {
    let started = Instant::now();
    let result = relay(bytes, ignore_checksums);
    let took = started.elapsed();
    assert!(took < Duration::from_secs(60), "{name}: took {took:?}");
    let Ok(new) = result else { return false };
    let (old, fresh) = (codes(bytes), codes(&new));
    assert!(fresh.is_subset(&old), "{name}: of {old:?} became {fresh:?}");
    let before = open(bytes.to_vec(), ignore_checksums).and_then(listing);
    if let Ok(before) = before {
        // Wrong checksums of the old image may be right in the new one.
        let after = open(new, ignore_checksums).and_then(listing);
        let after = after.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(before == after, "{name}: reads otherwise");
    }
    true
}

#[test]
fn sound_images() {
    for (name, compressed) in images::IMAGES {
        assert!(attempt(name, &images::unpack(compressed), false), "{name} was refused");
    }
}

#[test]
fn damaged_images() {
    for (seed, (name, compressed)) in (1u64..).zip(images::IMAGES) {
        let base = images::unpack(compressed);
        let places: Vec<usize> = (1024..base.len()).filter(|&at| base[at] != 0).collect();
        let mut state = seed;
        let mut random = |limit: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            usize::try_from(state >> 33).expect("31 bits") % limit
        };
        let (mut done, mut refused) = (0, 0);
        for _ in 0..130 {
            let mut bytes = base.clone();
            for _ in 0..=random(3) {
                let at = places[random(places.len())];
                bytes[at] ^= 1 << random(8);
            }
            if attempt(name, &bytes, true) { done += 1 } else { refused += 1 }
        }
        assert!(done > 10 && refused > 2, "{name}: {done} done, {refused} refused");
    }
}

#[test]
fn cut_images() {
    for (name, compressed) in images::IMAGES {
        let whole = images::unpack(compressed);
        for len in (1024..whole.len()).step_by(whole.len() / 16) {
            assert!(!attempt(name, &whole[..len], true), "{name}: {len} bytes were enough");
        }
    }
}

#[test]
fn inspection_says_what_is_kept() {
    let bytes = images::named("ext4");
    let old = open(bytes.clone(), false).expect("open");
    let new = open(relay(&bytes, false).expect("relay"), false).expect("open");
    let (old, new) = (old.geometry(), new.geometry());
    assert_eq!((old.blocks, old.inodes, &old.features), (new.blocks, new.inodes, &new.features));
    assert_eq!(old.label, new.label);
    assert_eq!(old.free_blocks, new.free_blocks);
}
