//! Repairs of volumes with multiple mount protection: other hosts see them, and they see other hosts.

use super::judge::{Scratch, bytes_of, findings, is_there, put};
use crate::damage::images;
use crate::holes;
use seekless_device::{BlockDevice, DeviceError, FileDevice, MemoryDevice};
use seekless_ext::{CheckOptions, preen_with, repair_with};
use seekless_fs::FsError;
use seekless_fs::check::{Outcome, Repaired};
use seekless_units::{ByteLen, Lba};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::with_default;
use tracing::{Event, Metadata, Subscriber};

/// `mmp_seq` of a volume that nobody uses, and of one that a check changes.
const CLEAN: u32 = 0xFF4D_4D50;
const FSCK: u32 = 0xE24D_4D50;

/// `i_links_count` of the root, which is wrong in all of these volumes.
const WRONG_LINKS: &str = "sif / links_count 9";

/// A volume with the protection and a wrong number of links, and the byte at which its block begins.
fn volume(features: &str, commands: &str) -> (Vec<u8>, usize) {
    let scratch = Scratch::new("mmp");
    let path = scratch.path();
    let run = |program: &str, args: &[&str]| {
        let output = Command::new(program).args(args).arg(path).output().expect(program);
        assert!(output.status.success(), "{program}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    put(path, &vec![0; 8 << 20]);
    run("mke2fs", &["-q", "-F", "-t", "ext4", "-b", "1024", "-O", features]);
    for command in [WRONG_LINKS, commands].iter().flat_map(|it| it.lines()) {
        run("debugfs", &["-w", "-R", command]);
    }
    // Programs wait for seconds each time that they open such a volume for changes.
    run("tune2fs", &["-O", "mmp"]);
    let said = run("dumpe2fs", &["-h"]);
    let (_, rest) = said.split_once("MMP block number:").expect("dumpe2fs");
    let block: usize = rest.split_whitespace().next().expect("block").parse().expect("number");
    (std::fs::read(path).expect("image"), block << 10)
}

fn sequence(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at + 4..at + 8].try_into().expect("four bytes"))
}

/// Sets the sequence number; without checksums nothing else depends on it.
fn set_sequence(bytes: &mut [u8], at: usize, to: u32) {
    bytes[at + 4..at + 8].copy_from_slice(&to.to_le_bytes());
}

/// Options with which nothing is slept: the time that was to pass is noted, and `then` is done.
fn pausing(then: impl Fn() + Send + Sync + 'static) -> (CheckOptions, Arc<AtomicU64>) {
    let seconds = Arc::new(AtomicU64::new(0));
    let noted = seconds.clone();
    let pause = move |time: Duration| {
        noted.fetch_add(time.as_secs(), Ordering::Relaxed);
        then();
    };
    (CheckOptions { pause: Some(Arc::new(pause)), ..CheckOptions::default() }, seconds)
}

fn is_sound(bytes: &[u8]) {
    let scratch = Scratch::new("mmp-judged");
    put(scratch.path(), bytes);
    assert_eq!(findings(scratch.path()), None);
}

/// A device that notes requests made while the block does not say that a check changes the volume.
struct Watched {
    inner: MemoryDevice,
    at: usize,
    /// Writes to other blocks, and reads of blocks other than the superblock.
    early: Mutex<Vec<Lba>>,
}

impl Watched {
    fn note(&self, at: Lba, allowed: usize) {
        let block = at.to_bytes().get() as usize / 1024;
        let is_allowed = block == self.at / 1024 || block == allowed;
        if !is_allowed && sequence(&bytes_of(&self.inner), self.at) != FSCK {
            self.early.lock().expect("lock").push(at);
        }
    }
}

impl BlockDevice for Watched {
    fn len(&self) -> ByteLen {
        self.inner.len()
    }

    fn read(&self, at: Lba, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.note(at, 1);
        self.inner.read(at, buf)
    }

    fn write(&self, at: Lba, buf: &[u8]) -> Result<(), DeviceError> {
        self.note(at, self.at / 1024);
        self.inner.write(at, buf)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.inner.flush()
    }
}

/// The messages of events of `tracing`.
#[derive(Clone, Default)]
struct Messages(Arc<Mutex<Vec<String>>>);

impl Visit for Messages {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.0.lock().expect("lock").push(format!("{value:?}"));
        }
    }
}

impl Subscriber for Messages {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// A wait is told before it begins, with its length: twice as long where a host may use the volume.
#[test]
fn a_wait_for_other_hosts_is_told() {
    if !is_there() {
        return;
    }
    let (bytes, at) = volume("^metadata_csum", "");
    for (number, wait) in [(CLEAN, 11), (77, 22)] {
        let mut bytes = bytes.clone();
        set_sequence(&mut bytes, at, number);
        let messages = Messages::default();
        let told = messages.clone();
        let (options, seconds) = pausing(move || {
            let told = told.0.lock().expect("lock").join("\n");
            assert!(told.contains(&format!("waiting {wait} seconds")), "{told}");
        });
        with_default(messages, || repair_with(Arc::new(MemoryDevice::new(bytes)), &options))
            .expect("repair");
        assert_eq!(seconds.load(Ordering::Relaxed), wait);
    }
}

#[test]
fn others_see_a_volume_that_is_being_changed() {
    if !is_there() {
        return;
    }
    for features in ["metadata_csum", "^metadata_csum"] {
        let (bytes, at) = volume(features, "");
        assert_eq!(sequence(&bytes, at), CLEAN);
        let device = Arc::new(Watched {
            inner: MemoryDevice::new(holes::copy(&bytes)),
            at,
            early: Mutex::new(Vec::new()),
        });
        let (options, seconds) = pausing(|| ());
        let repaired = repair_with(device.clone(), &options).expect("repair");
        assert_eq!(repaired.outcome, Outcome::Corrected, "{repaired:#?}");
        assert_eq!(*device.early.lock().expect("lock"), []);
        assert_eq!(seconds.load(Ordering::Relaxed), 11, "another host may begin at the same time");
        let after = bytes_of(&device.inner);
        assert!(after[at..at + 1024] == bytes[at..at + 1024], "the block is as it was");
        is_sound(&after);
    }
}

#[test]
fn a_volume_that_another_host_uses_is_refused() {
    if !is_there() {
        return;
    }
    let (mut bytes, at) = volume("^metadata_csum", "");
    bytes[at + 16..at + 22].copy_from_slice(b"other\0");
    bytes[at + 112] = 9;
    let repair = |bytes: &[u8], then: Option<u32>| -> (Result<Repaired, FsError>, u64, bool) {
        let device = Arc::new(MemoryDevice::new(holes::copy(bytes)));
        let shared = device.clone();
        let expected = Arc::new(Mutex::new(bytes.to_vec()));
        let changed = expected.clone();
        let (options, seconds) = pausing(move || {
            let Some(sequence) = then else { return };
            set_sequence(&mut changed.lock().expect("lock"), at, sequence);
            let changed = changed.lock().expect("lock");
            shared.write(Lba::new(at as u64 / 512), &changed[at..at + 1024]).expect("memory");
        });
        let result = repair_with(device.clone(), &options);
        let is_same = bytes_of(device.as_ref()) == *expected.lock().expect("lock");
        (result, seconds.load(Ordering::Relaxed), is_same)
    };
    for (before, then, words) in [
        (7, Some(8), "in use by another host"),
        (7, Some(CLEAN), "in use by another host"),
        // It has begun at the same time.
        (CLEAN, Some(8), "in use by another host"),
        (FSCK, None, "being checked"),
        (0xF000_0000, None, "unknown number 0xf0000000"),
    ] {
        set_sequence(&mut bytes, at, before);
        let (result, seconds, is_same) = repair(&bytes, then);
        let why = result.map(drop).expect_err(words).to_string();
        assert!(why.contains(words) && why.contains("\"other\""), "{why}");
        assert_eq!(seconds, if then.is_some() { 19 } else { 0 }, "{words}");
        assert!(is_same, "{words}: something was written");
    }
    // A crash has left the number. No kernel has intervals of more than 300 seconds.
    set_sequence(&mut bytes, at, 7);
    for (interval, expected) in [(9, 38), (100, 320), (u16::MAX, 720)] {
        bytes[at + 112..at + 114].copy_from_slice(&interval.to_le_bytes());
        let (result, seconds, _) = repair(&bytes, None);
        assert_eq!((result.expect("repair").outcome, seconds), (Outcome::Corrected, expected));
    }
}

/// Another host writes to the disk. Cached reads of this host must not hide that.
#[test]
fn a_number_is_read_from_the_disk() {
    if !is_there() {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root has loop devices");
        return;
    }
    let (mut bytes, at) = volume("^metadata_csum", "");
    set_sequence(&mut bytes, at, 7);
    let scratch = Scratch::new("mmp-disk");
    put(scratch.path(), &bytes);
    let losetup = |args: &[&str]| {
        let output = Command::new("losetup").args(args).output().expect("losetup");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    let path = scratch.path().to_str().expect("path").to_owned();
    let disk = losetup(&["--find", "--show", &path]);
    let device = Arc::new(FileDevice::open_locked(Path::new(&disk)).expect("open"));
    let behind = path.clone();
    let (options, _) = pausing(move || {
        let file = std::fs::File::options().write(true).open(&behind).expect("open");
        file.write_all_at(&8_u32.to_le_bytes(), at as u64 + 4).expect("write");
    });
    let result = repair_with(device, &options).map(drop);
    losetup(&["--detach", &disk]);
    let why = result.expect_err("the other host is not seen").to_string();
    assert!(why.contains("in use by another host"), "{why}");
}

/// A block that is damaged is made again; one that is no such block, in free space. The block of a
/// file to which the superblock leads by mistake keeps its contents.
#[test]
fn a_damaged_block_is_made_again() {
    if !is_there() {
        return;
    }
    for features in ["metadata_csum", "^metadata_csum"] {
        let (sound, at) = volume(features, "");
        let has_sums = !features.contains('^');
        for (offset, is_preened) in [(0, true), (1020, has_sums), (8, has_sums)] {
            let mut bytes = sound.clone();
            bytes[at + offset] ^= 0x55;
            for preens in [true, false] {
                let device = Arc::new(MemoryDevice::new(holes::copy(&bytes)));
                let options = pausing(|| ()).0;
                let run = if preens { preen_with } else { repair_with };
                let repaired = run(device.clone(), &options).expect("repair");
                assert_eq!(repaired.outcome, Outcome::Corrected, "{repaired:#?}");
                let codes: Vec<_> = repaired.report.findings.iter().map(|it| it.code()).collect();
                assert_eq!(codes.contains(&"superblock.mmp"), is_preened, "{offset}: {codes:?}");
                is_sound(&bytes_of(device.as_ref()));
            }
        }
        for block in [0_u64, 9_000_000, 2] {
            let mut bytes = sound.clone();
            bytes[1024 + 360..1024 + 368].copy_from_slice(&block.to_le_bytes());
            let sum = !crc32c::crc32c(&bytes[1024..2044]);
            bytes[2044..2048].copy_from_slice(&sum.to_le_bytes());
            let device = Arc::new(MemoryDevice::new(holes::copy(&bytes)));
            let repaired = preen_with(device.clone(), &pausing(|| ()).0).expect("preen");
            assert_eq!(repaired.outcome, Outcome::Left, "block {block}");
            assert!(bytes_of(device.as_ref()) == bytes, "block {block}");
            let repaired = repair_with(device.clone(), &pausing(|| ()).0).expect("repair");
            assert_eq!(repaired.outcome, Outcome::Corrected, "block {block}: {repaired:#?}");
            is_sound(&bytes_of(device.as_ref()));
        }
    }
}

#[test]
fn a_file_in_place_of_the_block_keeps_its_contents() {
    if !is_there() {
        return;
    }
    let scratch = Scratch::new("mmp-file");
    put(scratch.path(), &images::named("ext2")[..3000]);
    let path = scratch.path().to_str().expect("path");
    let (mut bytes, _) = volume("^metadata_csum", &format!("write {path} file"));
    let contents = std::fs::read(path).expect("file");
    let place = bytes.windows(1024).position(|it| *it == contents[1024..2048]).expect("there");
    bytes[1024 + 360..1024 + 368].copy_from_slice(&(place as u64 / 1024).to_le_bytes());
    let device = Arc::new(MemoryDevice::new(bytes));
    let repaired = repair_with(device.clone(), &pausing(|| ()).0).expect("repair");
    assert_eq!(repaired.outcome, Outcome::Corrected, "{repaired:#?}");
    is_sound(&bytes_of(device.as_ref()));
    put(scratch.path(), &bytes_of(device.as_ref()));
    let output = Command::new("debugfs").args(["-R", "cat /file", path]).output().expect("debugfs");
    assert!(output.stdout == contents, "the contents of the file");
}
