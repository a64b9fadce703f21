//! Images that are written, read, damaged, and read and written by QEMU's own program.

#[path = "../../fs/tests/shared/skip.rs"]
mod skip;

#[path = "../../fs/tests/shared/property.rs"]
mod property;

#[path = "damage/footers.rs"]
mod footers;

use property::for_all;
use proptest::collection::vec;
use proptest::prelude::any;
use seekless_device::MemoryDevice;
use seekless_units::{ByteLen, Lba};
use seekless_vhd::{LONGEST, TooLong, disk_in, footer, is_image};
use skip::skip;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// A disk whose bytes differ from one to the next.
fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 / 3) as u8).collect()
}

fn image_of(raw: &[u8]) -> Vec<u8> {
    let footer = footer(ByteLen::new(raw.len() as u64), [7; 16]).expect("a short disk");
    [raw, &footer].concat()
}

fn disk(image: Vec<u8>) -> Vec<u8> {
    let disk = disk_in(Arc::new(MemoryDevice::new(image))).expect("open");
    let mut all = vec![0; disk.len().get() as usize];
    disk.read(Lba::ZERO, &mut all).expect("read");
    all
}

#[test]
fn a_disk_comes_back() {
    for len in [0, 512, 1024, 1 << 20, (1 << 20) + 512] {
        let raw = bytes(len);
        assert_eq!(disk(image_of(&raw)), raw, "{len}");
    }
}

#[test]
fn a_changed_footer_is_none() {
    let raw = bytes(4096);
    let image = image_of(&raw);
    for bit in 4096 * 8..image.len() * 8 {
        let mut changed = image.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(!is_image(&MemoryDevice::new(changed.clone())), "bit {bit}");
        assert_eq!(disk(changed.clone()), changed);
    }
    for cut in [vec![], image[..4096].to_vec(), image[512..].to_vec(), image[4097..].to_vec()] {
        assert!(!is_image(&MemoryDevice::new(cut)));
    }
}

/// The seeds of the fuzz target, and random inputs.
#[test]
fn damaged_footers() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/vhd");
    let seeds: Vec<_> = fs::read_dir(dir).expect("a corpus").collect();
    assert!(seeds.len() > 3);
    for seed in seeds {
        footers::run(&fs::read(seed.expect("an entry").path()).expect("a seed"));
    }
    let patch = (0..512u16, any::<u8>());
    for_all(2000, (0..20u8, any::<u8>(), vec(patch, 0..4)), |(sectors, how, patches)| {
        let patches = patches.into_iter().flat_map(|(at, byte)| [at as u8, (at >> 8) as u8, byte]);
        footers::run(&[sectors, how].into_iter().chain(patches).collect::<Vec<_>>());
    });
}

#[test]
fn a_disk_may_be_too_long() {
    assert!(footer(LONGEST, [0; 16]).is_ok());
    assert_eq!(footer(ByteLen::new(LONGEST.get() + 512), [0; 16]), Err(TooLong));
}

fn qemu_img(dir: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("qemu-img").args(arguments).current_dir(dir).output();
    let Ok(output) = output else {
        skip("qemu-img is not installed");
        return None;
    };
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    Some(String::from_utf8(output.stdout).expect("text"))
}

#[test]
fn qemu_reads_and_writes_the_same_disks() {
    let dir = tempfile::tempdir().expect("dir");
    // None is a whole number of cylinders.
    for len in [512, 512 * 1001, (5 << 20) + 512, 137 << 20] {
        let raw = bytes(len);
        fs::write(dir.path().join("raw"), &raw).expect("write");
        fs::write(dir.path().join("ours.vhd"), image_of(&raw)).expect("write");
        let convert = ["convert", "-f", "vpc", "-O", "raw", "ours.vhd", "back"];
        if qemu_img(dir.path(), &convert).is_none() {
            return;
        }
        assert!(fs::read(dir.path().join("back")).expect("read") == raw, "{len}");
        let fixed = "subformat=fixed,force_size=on";
        qemu_img(dir.path(), &["convert", "-f", "raw", "-O", "vpc", "-o", fixed, "raw", "its.vhd"]);
        let its = fs::read(dir.path().join("its.vhd")).expect("read");
        assert!(is_image(&MemoryDevice::new(its.clone())) && disk(its) == raw, "{len}");
    }
}
