//! A snapshot of a device that goes on being written: before a part of it is overwritten for the
//! first time, its contents are copied.

use crate::block_device::check_range;
use crate::{BlockDevice, DeviceError, Durable, Ticket};
use seekless_units::{ByteLen, Lba, SECTOR};
use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes that are copied together.
const CHUNK: u64 = 4096;

/// Bytes of copies that stay in memory where there is another place for them.
const MOST_IN_MEMORY: usize = 64 << 20;

/// Where the copy of a chunk is.
enum Copy {
    Memory(Box<[u8]>),
    /// The number of its place in the store.
    Stored(u64),
}

/// The copies of chunks that were overwritten since the snapshot was taken.
struct Copies {
    device: Arc<dyn BlockDevice>,
    store: Option<Arc<dyn BlockDevice>>,
    most_in_memory: usize,
    state: Mutex<Preserved>,
    /// Nothing has to be copied any more: the state says why.
    has_ended: AtomicBool,
}

/// The copies by their numbers, until the snapshot ends.
enum Preserved {
    Taken(HashMap<u64, Copy>),
    Ended(String),
}

/// The device that a snapshot was taken of, to be written from then on. Others must not write to
/// the device below.
pub struct SnapshotOrigin {
    copies: Arc<Copies>,
}

/// The contents that a device had when the snapshot was taken; read-only. When it is dropped, or
/// has ended, nothing more is copied.
pub struct Snapshot {
    copies: Arc<Copies>,
}

impl SnapshotOrigin {
    /// Takes a snapshot of a device, which nobody may be writing to. Up to 64 MiB of the copies
    /// are kept in memory, and the others in `store`, which must have room for as much as the
    /// device, or in memory if there is none. The store is overwritten.
    ///
    /// ```
    /// use seekless_device::{BlockDevice, MemoryDevice, SnapshotOrigin};
    /// use seekless_units::Lba;
    /// use std::sync::Arc;
    ///
    /// let (origin, snapshot) = SnapshotOrigin::take(Arc::new(MemoryDevice::new(vec![1; 8192])), None);
    /// origin.write(Lba::new(3), &[2; 512]).unwrap();
    /// let mut sector = [0; 512];
    /// snapshot.read(Lba::new(3), &mut sector).unwrap();
    /// assert_eq!(sector, [1; 512]);
    /// ```
    #[must_use]
    pub fn take(
        device: Arc<dyn BlockDevice>,
        store: Option<Arc<dyn BlockDevice>>,
    ) -> (Self, Snapshot) {
        Self::with_memory(device, store, MOST_IN_MEMORY)
    }

    fn with_memory(
        device: Arc<dyn BlockDevice>,
        store: Option<Arc<dyn BlockDevice>>,
        most_in_memory: usize,
    ) -> (Self, Snapshot) {
        let copies = Arc::new(Copies {
            device,
            store,
            most_in_memory,
            state: Mutex::new(Preserved::Taken(HashMap::new())),
            has_ended: AtomicBool::new(false),
        });
        (Self { copies: Arc::clone(&copies) }, Snapshot { copies })
    }

    /// Ends the snapshot: reads of it fail from now on, with `why`. It also ends when a copy cannot
    /// be made, so that writes never fail because of it.
    pub fn end_snapshot(&self, why: &str) {
        self.copies.end(why);
    }
}

impl Copies {
    fn state(&self) -> MutexGuard<'_, Preserved> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, why: &str) {
        let mut state = self.state();
        if let Preserved::Taken(_) = *state {
            *state = Preserved::Ended(why.to_string());
        }
        self.has_ended.store(true, Ordering::Release);
    }

    /// The bytes of a chunk that are on the device: the last one may be shorter than others.
    fn len_of(&self, chunk: u64) -> usize {
        let left = self.device.len().get() - chunk * CHUNK;
        left.min(CHUNK) as usize
    }

    /// Copies the chunks of a range that is about to be overwritten.
    fn preserve(&self, at: Lba, len: usize) -> Result<(), DeviceError> {
        let start = check_range(at, len, self.device.len())?;
        if self.has_ended.load(Ordering::Acquire) || len == 0 {
            return Ok(());
        }
        let last = (start + len as u64 - 1) / CHUNK;
        if let Err(error) = self.copy(start / CHUNK..=last) {
            self.end(&format!("a copy could not be made: {error}"));
        }
        Ok(())
    }

    fn copy(&self, numbers: RangeInclusive<u64>) -> Result<(), DeviceError> {
        let mut state = self.state();
        let Preserved::Taken(chunks) = &mut *state else { return Ok(()) };
        for number in numbers {
            if chunks.contains_key(&number) {
                continue;
            }
            let mut bytes = vec![0; self.len_of(number)].into_boxed_slice();
            self.device.read(sector_of(number), &mut bytes)?;
            let place = chunks.len() as u64;
            let copy = match &self.store {
                Some(store) if place * CHUNK >= self.most_in_memory as u64 => {
                    store.write(sector_of(place), &bytes)?;
                    Copy::Stored(place)
                }
                _ => Copy::Memory(bytes),
            };
            chunks.insert(number, copy);
        }
        Ok(())
    }

    /// Puts the copies of a range of the device into a buffer with the range's present
    /// contents.
    fn put(&self, start: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        let state = self.state();
        let chunks = match &*state {
            Preserved::Taken(chunks) => chunks,
            Preserved::Ended(why) => {
                let source = std::io::Error::other(format!("the snapshot has ended: {why}"));
                let at = Lba::containing(ByteLen::new(start));
                return Err(DeviceError::Io { at, source });
            }
        };
        let mut done = 0;
        while done < buf.len() {
            let byte = start + done as u64;
            let within = (byte % CHUNK) as usize;
            let end = (done + CHUNK as usize - within).min(buf.len());
            let to = &mut buf[done..end];
            match chunks.get(&(byte / CHUNK)) {
                None => {}
                Some(Copy::Memory(bytes)) => {
                    to.copy_from_slice(&bytes[within..within + to.len()]);
                }
                Some(&Copy::Stored(place)) => {
                    let store = self.store.as_ref().expect("a copy is stored in a store");
                    store.read_bytes(ByteLen::new(place * CHUNK + within as u64), to)?;
                }
            }
            done = end;
        }
        Ok(())
    }
}

fn sector_of(chunk: u64) -> Lba {
    Lba::new(chunk * (CHUNK / SECTOR))
}

impl BlockDevice for SnapshotOrigin {
    fn len(&self) -> ByteLen {
        self.copies.device.len()
    }

    /// It stays as long as the snapshot, until that has ended.
    fn extend(&self, len: ByteLen) -> Result<ByteLen, DeviceError> {
        match self.copies.has_ended.load(Ordering::Acquire) {
            true => self.copies.device.extend(len),
            false => Ok(self.len()),
        }
    }

    fn read(&self, at: Lba, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.copies.device.read(at, buf)
    }

    fn write(&self, at: Lba, buf: &[u8]) -> Result<(), DeviceError> {
        self.copies.preserve(at, buf.len())?;
        self.copies.device.write(at, buf)
    }

    fn submit(&self, at: Lba, buf: &[u8], durable: Durable) -> Result<Option<Ticket>, DeviceError> {
        self.copies.preserve(at, buf.len())?;
        self.copies.device.submit(at, buf, durable)
    }

    fn is_complete(&self, ticket: Ticket) -> Result<bool, DeviceError> {
        self.copies.device.is_complete(ticket)
    }

    fn wait(&self, ticket: Ticket) -> Result<(), DeviceError> {
        self.copies.device.wait(ticket)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.copies.device.flush()
    }

    /// Nothing is discarded before the snapshot has ended: blocks that are free now would be
    /// copied for it.
    fn discard(&self, at: Lba, len: u64) -> Result<(), DeviceError> {
        match self.copies.has_ended.load(Ordering::Acquire) {
            true => self.copies.device.discard(at, len),
            false => check_range(at, len as usize, self.len()).map(drop),
        }
    }
}

impl BlockDevice for Snapshot {
    fn len(&self) -> ByteLen {
        self.copies.device.len()
    }

    fn read(&self, at: Lba, buf: &mut [u8]) -> Result<(), DeviceError> {
        let start = check_range(at, buf.len(), self.len())?;
        // A chunk is copied before it is overwritten: one that has no copy after this was read as
        // it was.
        self.copies.device.read(at, buf)?;
        self.copies.put(start, buf)
    }

    fn write(&self, _: Lba, _: &[u8]) -> Result<(), DeviceError> {
        Err(DeviceError::ReadOnly)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        self.copies.end("it is not needed any more");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    const LEN: usize = 10 * 4096 + 512;

    fn taken(most_in_memory: usize) -> (SnapshotOrigin, Snapshot, Vec<u8>) {
        let before: Vec<u8> = (0..LEN).map(|at| (at / 512) as u8).collect();
        let device = Arc::new(MemoryDevice::new(before.clone()));
        let store = Arc::new(MemoryDevice::new(vec![0xEE; LEN.next_multiple_of(4096)]));
        let (origin, snapshot) = SnapshotOrigin::with_memory(device, Some(store), most_in_memory);
        (origin, snapshot, before)
    }

    fn contents(device: &dyn BlockDevice) -> Vec<u8> {
        let mut all = vec![0; LEN];
        device.read(Lba::ZERO, &mut all).unwrap();
        all
    }

    /// A device that counts the bytes of discards.
    struct Counting(MemoryDevice, Mutex<u64>);

    impl BlockDevice for Counting {
        fn len(&self) -> ByteLen {
            self.0.len()
        }

        fn read(&self, at: Lba, buf: &mut [u8]) -> Result<(), DeviceError> {
            self.0.read(at, buf)
        }

        fn write(&self, at: Lba, buf: &[u8]) -> Result<(), DeviceError> {
            self.0.write(at, buf)
        }

        fn flush(&self) -> Result<(), DeviceError> {
            self.0.flush()
        }

        fn discard(&self, _: Lba, len: u64) -> Result<(), DeviceError> {
            *self.1.lock().unwrap() += len;
            Ok(())
        }
    }

    #[test]
    fn nothing_is_discarded_before_the_snapshot_has_ended() {
        let device = Arc::new(Counting(MemoryDevice::new(vec![1; LEN]), Mutex::new(0)));
        let (origin, snapshot) = SnapshotOrigin::take(device.clone(), None);
        origin.discard(Lba::new(8), 4096).unwrap();
        assert_eq!(*device.1.lock().unwrap(), 0);
        drop(snapshot);
        origin.discard(Lba::new(8), 4096).unwrap();
        assert_eq!(*device.1.lock().unwrap(), 4096);
    }

    #[test]
    fn it_keeps_the_contents_of_its_time() {
        for most_in_memory in [0, 2 * 4096, LEN] {
            let (origin, snapshot, before) = taken(most_in_memory);
            let mut now = before.clone();
            // Parts of chunks, several chunks at once, the end, and a part again.
            for (sector, sectors) in [(3, 1), (15, 18), (78, 3), (16, 2), (3, 1)] {
                let (from, to) = (sector * 512, (sector + sectors) * 512);
                let bytes = vec![0x80 | sector as u8; to - from];
                origin.write(Lba::new(sector as u64), &bytes).unwrap();
                now[from..to].copy_from_slice(&bytes);
                assert_eq!(contents(&snapshot), before, "{most_in_memory} bytes in memory");
                assert_eq!(contents(&origin), now);
            }
            let mut part = [0; 700];
            snapshot.read_bytes(ByteLen::new(15 * 512 + 100), &mut part).unwrap();
            assert_eq!(part[..], before[15 * 512 + 100..][..700]);
        }
    }

    #[test]
    fn submitted_writes_are_copied_too() {
        let (origin, snapshot, before) = taken(LEN);
        let ticket = origin.submit(Lba::new(40), &[9; 4096], Durable::AfterFlush).unwrap();
        assert!(ticket.is_none(), "memory completes at once");
        assert_eq!(contents(&snapshot), before);
    }

    #[test]
    fn once_it_is_dropped_nothing_is_copied() {
        let (origin, snapshot, _) = taken(LEN);
        origin.write(Lba::ZERO, &[1; 512]).unwrap();
        drop(snapshot);
        origin.write(Lba::new(40), &[1; 512]).unwrap();
        assert!(matches!(*origin.copies.state(), Preserved::Ended(_)), "the copies are dropped");
    }

    #[test]
    fn one_that_has_ended_is_not_read() {
        let (origin, snapshot, _) = taken(LEN);
        origin.write(Lba::ZERO, &[1; 512]).unwrap();
        origin.end_snapshot("unmounted");
        let error = snapshot.read(Lba::ZERO, &mut [0; 512]).unwrap_err();
        assert!(error.to_string().ends_with("the snapshot has ended: unmounted"), "{error}");
    }

    #[test]
    fn without_room_for_a_copy_it_ends_and_the_write_is_made() {
        let device = Arc::new(MemoryDevice::new(vec![1; LEN]));
        let store = Arc::new(MemoryDevice::new(vec![0; 4096]));
        let (origin, snapshot) = SnapshotOrigin::with_memory(device, Some(store), 0);
        for at in [0, 8] {
            origin.write(Lba::new(at), &[2; 512]).unwrap();
        }
        let error = snapshot.read(Lba::ZERO, &mut [0; 512]).unwrap_err();
        assert!(error.to_string().contains("a copy could not be made"), "{error}");
        assert_eq!(contents(&origin)[8 * 512], 2);
    }

    #[test]
    fn it_is_not_written_and_ranges_are_checked() {
        let (origin, snapshot, _) = taken(LEN);
        assert!(matches!(snapshot.write(Lba::ZERO, &[0; 512]), Err(DeviceError::ReadOnly)));
        let outside = |done| matches!(done, Err(DeviceError::OutOfRange { .. }));
        assert!(outside(snapshot.read(Lba::new(81), &mut [0; 512])));
        assert!(outside(origin.write(Lba::new(81), &[0; 512])));
    }

    #[test]
    fn a_reader_sees_no_later_write() {
        let (origin, snapshot, before) = taken(4 * 4096);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..200u64 {
                    let at = round * 7 % 80;
                    origin.write(Lba::new(at), &[0xFF; 512]).unwrap();
                }
            });
            for _ in 0..200 {
                assert_eq!(contents(&snapshot), before);
            }
        });
    }
}
