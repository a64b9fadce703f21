//! Images that are written, read, damaged, and converted by Android's own programs.

#[path = "../../fs/tests/shared/property.rs"]
mod property;
#[path = "../../fs/tests/shared/skip.rs"]
mod skip;

use property::for_all;
use proptest::collection::vec;
use proptest::prelude::any;
use seekless_device::{BlockDevice, DeviceError, MemoryDevice};
use seekless_simg::{Disk, SimgError, is_image, write};
use seekless_units::{ByteLen, Lba};
use skip::skip;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

const BLOCK: usize = 4096;

/// Bytes of a disk: runs of blocks that are zeros, a repeated word, or something else.
fn bytes(runs: &[(u8, u8, u8)]) -> Vec<u8> {
    let mut all = Vec::new();
    for &(kind, value, len) in runs {
        for number in 0..usize::from(len % 5) * BLOCK {
            all.push(match kind % 4 {
                0 => 0,
                1 => value,
                2 => [value, 7, 0, 9][number % 4],
                _ => (number / 3) as u8 ^ value,
            });
        }
    }
    all
}

fn image_of(raw: &[u8]) -> Vec<u8> {
    let mut image = Vec::new();
    write(&MemoryDevice::new(raw.to_vec()), &mut image, &mut || Ok(())).expect("write");
    image
}

fn opened(image: &[u8]) -> Result<Disk, SimgError> {
    Disk::open(Arc::new(MemoryDevice::new(image.to_vec())))
}

fn all(disk: &Disk) -> Vec<u8> {
    let mut buf = vec![0; disk.len().get() as usize];
    disk.read(Lba::ZERO, &mut buf).expect("read");
    buf
}

fn are_missing() -> bool {
    let look = "command -v simg2img && command -v img2simg";
    let found = Command::new("sh").args(["-c", look]).output();
    let are_missing = !found.is_ok_and(|output| output.status.success());
    if are_missing {
        skip("simg2img is not installed");
    }
    are_missing
}

fn run(program: &str, from: &Path, to: &Path) {
    let output = Command::new(program).args([from, to]).output().expect(program);
    assert!(output.status.success(), "{program}: {output:?}");
}

#[test]
fn images_are_those_of_android() {
    if are_missing() {
        return;
    }
    let temp = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let [raw, ours, theirs, back] =
        ["raw", "ours", "theirs", "back"].map(|it| temp.path().join(it));
    for_all(40, vec(any::<(u8, u8, u8)>(), 1..12), |runs| {
        let plain = bytes(&runs);
        if plain.is_empty() {
            return;
        }
        let image = image_of(&plain);
        assert!(all(&opened(&image).unwrap()) == plain);
        fs::write(&ours, &image).unwrap();
        let _ = fs::remove_file(&back);
        run("simg2img", &ours, &back);
        assert!(fs::read(&back).unwrap() == plain, "simg2img");
        fs::write(&raw, &plain).unwrap();
        run("img2simg", &raw, &theirs);
        let theirs = fs::read(&theirs).unwrap();
        assert!(all(&opened(&theirs).unwrap()) == plain, "img2simg");
    });
}

#[test]
fn parts_of_a_disk_are_read() {
    let plain = bytes(&[(3, 1, 3), (0, 0, 2), (2, 5, 4), (1, 9, 1)]);
    let disk = opened(&image_of(&plain)).unwrap();
    for_all(200, (0..plain.len(), 0..20_000usize), |(at, len)| {
        let end = (at + len).min(plain.len());
        let mut buf = vec![1; end - at];
        disk.read_bytes(ByteLen::new(at as u64), &mut buf).unwrap();
        assert!(buf == plain[at..end], "{at} {len}");
    });
    let past = disk.read(Lba::new(plain.len() as u64 / 512), &mut [0; 512]);
    assert!(matches!(past, Err(DeviceError::OutOfRange { .. })));
    assert!(matches!(disk.write(Lba::ZERO, &[0; 512]), Err(DeviceError::ReadOnly)));
    // A disk that does not end with a block is padded.
    let odd = opened(&image_of(&plain[..5000])).unwrap();
    assert!(all(&odd) == [&plain[..5000], &[0; 2 * BLOCK - 5000][..]].concat());
}

#[test]
fn damage_is_refused_with_its_offset() {
    let plain = bytes(&[(3, 1, 1), (0, 0, 2)]);
    let image = image_of(&plain);
    assert!(is_image(&MemoryDevice::new(image.clone())));
    let with = |at: usize, bytes: &[u8]| {
        let mut damaged = image.clone();
        damaged[at..at + bytes.len()].copy_from_slice(bytes);
        opened(&damaged).err().expect("an error").to_string()
    };
    let second = 28 + 12 + BLOCK;
    for (at, bytes, wanted) in [
        (4, &[2, 0][..], "version 2 of Android's sparse images"),
        (12, &[0, 0, 0, 0], "byte 12: blocks of 0 bytes"),
        (12, &[2, 0, 0, 0], "byte 12: blocks of 2 bytes"),
        (8, &[4, 0], "byte 8: the headers are too short"),
        (16, &[2, 0, 0, 0], "a chunk reaches past the end of the disk"),
        (16, &[9, 0, 0, 0], "the chunks have 3 of 9 blocks"),
        (20, &[9, 0, 0, 0], "the header of a chunk is cut off"),
        (28, &[0, 0], "byte 28: a chunk of type 0x0"),
        (36, &[1, 0, 0, 0], "byte 28: a chunk of 1 bytes that needs 4108"),
        (second + 8, &[13], "a chunk of 13 bytes that needs 16"),
    ] {
        let said = with(at, bytes);
        assert!(said.contains(wanted), "{said}, not {wanted}");
    }
    for len in 0..image.len() {
        // Bytes that are cut off are missed, whichever they are.
        if len.is_multiple_of(97) || len > image.len() - 20 {
            assert!(opened(&image[..len]).is_err(), "{len} bytes");
        }
    }
}

/// An image of chunks without data, of the largest block size.
fn empty_chunks(blocks: u32, chunks: &[u32]) -> Vec<u8> {
    let mut image = 0xed26_ff3a_u32.to_le_bytes().to_vec();
    image.extend([1, 0, 0, 0, 28, 0, 12, 0]);
    for number in [u32::MAX - 3, blocks, chunks.len() as u32, 0] {
        image.extend(number.to_le_bytes());
    }
    for chunk in chunks {
        image.extend([0xc3, 0xca, 0, 0]);
        image.extend([*chunk, 12].map(u32::to_le_bytes).concat());
    }
    image
}

#[test]
fn sizes_that_64_bits_cannot_count_are_refused() {
    let most = u32::MAX;
    let disk = opened(&empty_chunks(most, &[most])).unwrap();
    assert_eq!(disk.len().get(), u64::from(most) * u64::from(most - 3));
    let mut end = [1; 8];
    disk.read_bytes(ByteLen::new(disk.len().get() - 8), &mut end).unwrap();
    assert_eq!(end, [0; 8]);
    let said = opened(&empty_chunks(most, &[most, most])).err().expect("an error").to_string();
    assert!(said.contains("a chunk reaches past the end of the disk"), "{said}");
}

#[test]
fn no_bytes_are_trusted() {
    let image = image_of(&bytes(&[(3, 1, 1), (0, 0, 2), (2, 1, 1)]));
    let heads = [0..28, 28..40, 4136..4152, 4152..4168];
    let places: Vec<usize> = heads.into_iter().flatten().collect();
    for_all(2000, vec((0..places.len(), any::<u8>()), 1..4), |changes| {
        let mut damaged = image.clone();
        for (place, value) in changes {
            damaged[places[place]] = value;
        }
        if let Ok(disk) = opened(&damaged)
            && disk.len().get() < 1 << 20
        {
            all(&disk);
        }
    });
}
