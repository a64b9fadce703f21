//! Blocks that the device cannot read: a check names each, also where it reads neighbours with one
//! request.

use super::sound;
use crate::repair::judge::is_there;
use seekless_device::{BlockDevice, DeviceError, MemoryDevice};
use seekless_fs::FsError;
use seekless_units::{ByteLen, Lba, SECTOR};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

/// Sectors of a block; the volumes have blocks of 1024 bytes.
const SECTORS: u64 = 2;

/// A device that notes the blocks that are read, and cannot read one of them.
struct Worn {
    inner: MemoryDevice,
    bad: Option<u64>,
    read: Mutex<BTreeSet<u64>>,
}

impl Worn {
    fn new(bytes: Vec<u8>, bad: Option<u64>) -> Arc<Self> {
        Arc::new(Self { inner: MemoryDevice::new(bytes), bad, read: Mutex::default() })
    }
}

impl BlockDevice for Worn {
    fn len(&self) -> ByteLen {
        self.inner.len()
    }

    fn read(&self, at: Lba, buf: &mut [u8]) -> Result<(), DeviceError> {
        let blocks = at.get() / SECTORS..(at.get() + buf.len() as u64 / SECTOR).div_ceil(SECTORS);
        if self.bad.is_some_and(|bad| blocks.contains(&bad)) {
            return Err(DeviceError::Io { at, source: std::io::Error::other("worn") });
        }
        self.read.lock().expect("blocks").extend(blocks);
        self.inner.read(at, buf)
    }

    fn write(&self, _: Lba, _: &[u8]) -> Result<(), DeviceError> {
        Err(DeviceError::ReadOnly)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }
}

#[test]
fn a_check_names_a_block_that_cannot_be_read() {
    if !is_there() {
        return;
    }
    for name in ["plain", "ext3"] {
        let bytes = sound(name).bytes;
        let whole = Worn::new(bytes.clone(), None);
        assert!(seekless_ext::check(whole.clone()).expect("check").is_clean());
        let read = whole.read.lock().expect("blocks").clone();
        // Behind the first group's superblock and descriptors, from which all starts.
        let some: Vec<u64> = read.into_iter().filter(|block| *block > 8).step_by(3).collect();
        assert!(some.len() > 50, "{name}: {} blocks are read", some.len());
        for bad in some {
            match seekless_ext::check(Worn::new(bytes.clone(), Some(bad))) {
                Err(FsError::Device(DeviceError::Io { at, .. })) => {
                    assert_eq!(at.get() / SECTORS, bad, "{name}: another block is named");
                }
                other => panic!("{name}, block {bad}: {:?}", other.map(|report| report.findings)),
            }
        }
    }
}
