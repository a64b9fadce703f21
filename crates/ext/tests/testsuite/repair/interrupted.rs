//! Repairs that are cut off after any write, or within one, and taken up again.

use crate::damage::images;
use crate::holes;
use crate::repair::judge::bytes_of;
use seekless_device::{BlockDevice, DeviceError, MemoryDevice};
use seekless_ext::{ExtImage, check, preen, repair};
use seekless_fs::Inspect;
use seekless_fs::check::{Outcome, Repaired};
use seekless_fs::format::OpenOptions;
use seekless_fs::inspect::resolve;
use seekless_units::{ByteLen, Lba, Lbn};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A device that loses power.
struct Failing {
    inner: MemoryDevice,
    /// Writes that are done, and that were asked for.
    cut: u64,
    made: AtomicU64,
    /// Of the next write the first part is done, or the second.
    torn: Option<bool>,
}

impl BlockDevice for Failing {
    fn len(&self) -> ByteLen {
        self.inner.len()
    }

    fn read(&self, at: Lba, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.inner.read(at, buf)
    }

    fn write(&self, at: Lba, buf: &[u8]) -> Result<(), DeviceError> {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        if number < self.cut {
            return self.inner.write(at, buf);
        }
        let half = buf.len() / 1024 * 512;
        match self.torn.filter(|_| number == self.cut && half > 0) {
            Some(true) => self.inner.write(at, &buf[..half])?,
            Some(false) => {
                let sectors = half as u64 / 512;
                self.inner.write(Lba::new(at.get() + sectors), &buf[half..])?;
            }
            None => {}
        }
        Err(DeviceError::Io { at, source: std::io::Error::other("power is gone") })
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }
}

struct Patient {
    bytes: Vec<u8>,
}

impl Patient {
    fn new(name: &str) -> Self {
        Self { bytes: images::named(name) }
    }

    fn image(&self) -> ExtImage {
        let options = OpenOptions { ignore_checksums: true, skip_journal: true };
        ExtImage::open(Arc::new(MemoryDevice::new(holes::copy(&self.bytes))), options)
            .expect("open")
    }

    fn inode(&self, path: &str) -> usize {
        let image = self.image();
        let ino = resolve(&image, path.as_bytes()).expect(path);
        let at = image.inode_location(ino).expect(path);
        at.block.get() as usize * 1024 + at.offset as usize
    }

    fn ino(&self, path: &str) -> u32 {
        resolve(&self.image(), path.as_bytes()).expect(path).get()
    }

    fn data(&self, path: &str) -> usize {
        let image = self.image();
        let ino = resolve(&image, path.as_bytes()).expect(path);
        let map = image.block_map(ino).expect(path);
        map.find(Lbn::ZERO).expect(path).extent.start.get() as usize * 1024
    }

    fn put(&mut self, at: usize, bytes: &[u8]) -> &mut Self {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }
}

/// Damage that takes several stages to repair, and whether a preen repairs it.
fn patients() -> Vec<(&'static str, Patient, bool)> {
    let mut all = Vec::new();
    // Link counts, lengths and a name of nothing.
    let mut it = Patient::new("ext2");
    let (file, other) = (it.inode("/dir/small"), it.inode("/pieces"));
    it.put(file + 26, &[9, 0]).put(other + 28, &[0; 4]).put(other + 4, &[1, 0, 0, 0]);
    let fifo = it.inode("/dir/fifo");
    it.put(fifo, &[0; 128]);
    all.push(("counts", it, true));
    // Two orphans: one to be deleted, one to be truncated.
    let mut it = Patient::new("ext2");
    let (first, second) = (it.ino("/pieces"), it.ino("/dir/below/text"));
    let (at, next) = (it.inode("/pieces"), it.inode("/dir/below/text"));
    it.put(1024 + 0xE8, &first.to_le_bytes());
    it.put(at + 20, &second.to_le_bytes()).put(at + 26, &[0, 0]);
    it.put(next + 20, &[0; 4]).put(next + 4, &100u32.to_le_bytes());
    all.push(("orphans", it, true));
    // The same file is truncated, in an extent tree with blocks of its own.
    let mut it = Patient::new("ext4");
    let (ino, at) = (it.ino("/pieces"), it.inode("/pieces"));
    it.put(1024 + 0xE8, &ino.to_le_bytes());
    it.put(at + 20, &[0; 4]).put(at + 4, &20_000u32.to_le_bytes());
    all.push(("truncation", it, false));
    // A directory without its first block, whose files lose their names.
    let mut it = Patient::new("ext4");
    let at = it.data("/dir");
    it.put(at, &[0xEE; 512]);
    all.push(("directory", it, false));
    // No root.
    let mut it = Patient::new("ext2");
    let at = it.inode("/");
    it.put(at, &[0; 128]);
    all.push(("root", it, false));
    // Two files with one block.
    let mut it = Patient::new("ext2");
    let (from, to) = (it.inode("/dir/below/text") + 40, it.inode("/dir/small") + 40);
    let pointer = it.bytes[from..from + 4].to_vec();
    it.put(to, &pointer);
    all.push(("shared", it, false));
    // A transaction and what it changes wait in the journal.
    all.push(("journal", Patient::new("journal"), true));
    all.push(("fast commits", Patient::new("fastcommit"), true));
    all
}

type Run = fn(Arc<dyn BlockDevice>) -> Result<Repaired, seekless_fs::FsError>;

#[test]
fn what_was_cut_off_is_completed() {
    for (name, patient, is_preened) in patients() {
        let run: Run = if is_preened { preen } else { repair };
        let device = Arc::new(MemoryDevice::new(holes::copy(&patient.bytes)));
        let whole = run(device.clone()).expect(name);
        assert_eq!(whole.outcome, Outcome::Corrected, "{name}: {whole:#?}");
        assert!(whole.report.findings.iter().all(|it| it.repaired), "{name}: {whole:#?}");
        let left = check(device).expect(name);
        assert!(left.is_clean(), "{name}: {left:#?}");
        for cut in 0..whole.writes {
            for torn in [None, Some(false), Some(true)] {
                let what = format!("{name}, cut off after {cut} writes, {torn:?}");
                let device = Arc::new(Failing {
                    inner: MemoryDevice::new(holes::copy(&patient.bytes)),
                    cut,
                    made: AtomicU64::new(0),
                    torn,
                });
                assert!(run(device.clone()).is_err(), "{what}: power was there");
                let bytes = bytes_of(&device.inner);
                let rest = Arc::new(MemoryDevice::new(bytes));
                let again = repair(rest.clone()).expect(&what);
                assert_ne!(again.outcome, Outcome::Left, "{what}: {again:#?}");
                let left = check(rest).expect(&what);
                assert!(left.is_clean(), "{what}: {left:#?}");
            }
        }
    }
}
