//! A repair that is cut off at any of its writes, or within one, is taken up by
//! the next.

use super::check::{checked, patients};
use super::repair::bytes_of;
use crate::slice::some_or_all;
use seekless_device::{BlockDevice, DeviceError, MemoryDevice};
use seekless_ffs::{Outcome, Repaired, preen, repair};
use seekless_fs::FsError;
use seekless_units::{ByteLen, Lba};
use std::sync::{Arc, Mutex};

const SECTOR: usize = 512;

/// A device that remembers what was written.
struct Recorder {
    inner: MemoryDevice,
    writes: Mutex<Vec<(Lba, Vec<u8>)>>,
}

impl BlockDevice for Recorder {
    fn len(&self) -> ByteLen {
        self.inner.len()
    }

    fn read(&self, at: Lba, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.inner.read(at, buf)
    }

    fn write(&self, at: Lba, buf: &[u8]) -> Result<(), DeviceError> {
        self.writes.lock().expect("alone").push((at, buf.to_vec()));
        self.inner.write(at, buf)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }
}

type Run = fn(Arc<dyn BlockDevice>) -> Result<Repaired, FsError>;

/// The writes that a run makes to a volume.
pub(crate) fn writes_of(
    run: impl FnOnce(Arc<dyn BlockDevice>),
    bytes: &[u8],
) -> Vec<(Lba, Vec<u8>)> {
    let device = Arc::new(Recorder {
        inner: MemoryDevice::new(bytes.to_vec()),
        writes: Mutex::new(Vec::new()),
    });
    run(device.clone());
    let writes = device.writes.lock().expect("alone");
    writes.clone()
}

/// Runs the repair anew on an image that an earlier one left.
fn takes_up(run: Run, bytes: &[u8], what: &str) {
    let device = Arc::new(MemoryDevice::new(bytes.to_vec()));
    let repaired = run(device.clone()).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_ne!(repaired.outcome, Outcome::Left, "{what}: {:#?}", repaired.report.findings);
    let left = checked(bytes_of(&device));
    assert!(left.is_clean(), "{what}: {:#?}", left.findings);
}

/// Cuts a repair after each of its writes, and within each: the first sectors of
/// it are on the disk, or only the last ones.
fn cut_everywhere(run: Run, sound: &[u8], what: &str) -> usize {
    let writes = writes_of(|device| drop(run(device).expect("repaired")), sound);
    let mut bytes = sound.to_vec();
    let mut states = 0;
    for (n, (at, data)) in writes.iter().enumerate() {
        let start = at.to_bytes().get() as usize;
        let sectors = data.len().div_ceil(SECTOR);
        for torn in 1..sectors {
            let split = torn * SECTOR;
            let mut first = bytes.clone();
            first[start..start + split].copy_from_slice(&data[..split]);
            takes_up(run, &first, &format!("{what}, the first {torn} sectors of write {n}"));
            let mut last = bytes.clone();
            last[start + split..start + data.len()].copy_from_slice(&data[split..]);
            takes_up(run, &last, &format!("{what}, without the first {torn} sectors of write {n}"));
            states += 2;
        }
        bytes[start..start + data.len()].copy_from_slice(data);
        takes_up(run, &bytes, &format!("{what}, {n} writes and one"));
        states += 1;
    }
    states
}

#[test]
fn a_repair_that_was_cut_off_is_taken_up() {
    let mut states = 0;
    for (what, _, patient) in patients().step_by(some_or_all(3, 1)) {
        states += cut_everywhere(repair, &patient.bytes, &what);
    }
    assert!(states > some_or_all(500, 2000), "only {states} states");
}

#[test]
fn a_preen_that_was_cut_off_is_taken_up_by_a_preen() {
    let mut states = 0;
    for (what, _, patient) in patients().filter(|(_, case, _)| case.after_a_crash) {
        states += cut_everywhere(preen, &patient.bytes, &what);
    }
    assert!(states > 300, "only {states} states");
}
