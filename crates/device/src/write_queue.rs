//! Writes, flushes and discards that wait in order.

use crate::{BlockDevice, DeviceError, block_device::check_range};
use seekless_units::{ByteLen, Lba, SECTOR};
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// A position in a [`WriteQueue`]: the number of requests before it, counted from the beginning.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct QueuePlace(u64);

/// A device whose writes, flushes and discards wait in a queue until a caller performs them, one after
/// another in order of arrival. Reads see the waiting writes.
///
/// With it, a file system that writes and flushes within its operations (`sync`, `normal`) does not
/// wait for the device while it is locked: an operation fills the queue, the caller unlocks the
/// file system, and performs the requests before it replies. Other operations proceed meanwhile;
/// their writes are later in the queue.
///
/// ```
/// use seekless_device::{BlockDevice, MemoryDevice, WriteQueue};
/// use seekless_units::Lba;
/// use std::sync::Arc;
///
/// let base = Arc::new(MemoryDevice::new(vec![0; 4096]));
/// let queue = WriteQueue::new(base.clone(), 1 << 20);
/// queue.write(Lba::new(1), &[7; 512])?;
/// queue.flush()?;
/// let mut bytes = [0; 512];
/// base.read(Lba::new(1), &mut bytes)?;
/// assert_eq!(bytes, [0; 512]);
/// queue.perform(queue.end())?;
/// base.read(Lba::new(1), &mut bytes)?;
/// assert_eq!(bytes, [7; 512]);
/// # Ok::<(), seekless_device::DeviceError>(())
/// ```
pub struct WriteQueue {
    base: Arc<dyn BlockDevice>,
    most_bytes: usize,
    state: Mutex<State>,
    /// Signalled when a request was performed, or has failed.
    performed: Condvar,
}

#[derive(Default)]
struct State {
    /// The first one stays until it has been performed.
    requests: VecDeque<Request>,
    /// Total bytes of writes among them.
    bytes: usize,
    /// Number of requests performed.
    performed: u64,
    /// Whether a thread is performing the first request.
    is_busy: bool,
    failure: Option<Failure>,
    /// Of a discard, which stops no other request.
    discard_failure: Option<Failure>,
}

#[derive(Clone)]
enum Request {
    Write(Lba, Arc<[u8]>),
    Flush,
    Discard(Lba, u64),
}

/// The failed request. None behind it is performed.
struct Failure {
    at: Lba,
    /// The system's number of the error, if it has one.
    number: Option<i32>,
    kind: io::ErrorKind,
    message: String,
}

impl Failure {
    fn of(request: &Request, error: DeviceError) -> Self {
        let at = match request {
            Request::Write(at, _) | Request::Discard(at, _) => *at,
            Request::Flush => Lba::new(0),
        };
        match error {
            DeviceError::Io { at, source } => Self {
                at,
                number: source.raw_os_error(),
                kind: source.kind(),
                message: source.to_string(),
            },
            other => {
                let (kind, message) = (io::ErrorKind::Other, other.to_string());
                Self { at, number: None, kind, message }
            }
        }
    }

    fn error(&self) -> DeviceError {
        let source = match self.number {
            Some(number) => io::Error::from_raw_os_error(number),
            None => io::Error::new(self.kind, self.message.clone()),
        };
        DeviceError::Io { at: self.at, source }
    }
}

impl WriteQueue {
    /// A queue in front of `base`, with at most `most_bytes` of writes: a write that does not fit
    /// performs the requests before it first.
    #[must_use]
    pub fn new(base: Arc<dyn BlockDevice>, most_bytes: usize) -> Self {
        Self { base, most_bytes, state: Mutex::default(), performed: Condvar::new() }
    }

    /// The position behind the last request.
    #[must_use]
    pub fn end(&self) -> QueuePlace {
        let state = self.lock();
        QueuePlace(state.performed + state.requests.len() as u64)
    }

    /// Performs the requests before a position; waits while another thread performs one.
    ///
    /// # Errors
    /// The error of the first failed request, if the position is behind it: none after it is
    /// performed, and all later writes and flushes return the same error. The error of a discard is
    /// returned by the next discard, which is not performed, and by no other request.
    pub fn perform(&self, place: QueuePlace) -> Result<(), DeviceError> {
        let mut state = self.lock();
        while state.performed < place.0 {
            if let Some(failure) = &state.failure {
                return Err(failure.error());
            }
            if state.is_busy {
                state = self.performed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let request = state.requests.front().expect("a place of this queue").clone();
            state.is_busy = true;
            drop(state);
            let done = match &request {
                Request::Write(at, bytes) => self.base.write(*at, bytes),
                Request::Flush => self.base.flush(),
                Request::Discard(at, len) => self.base.discard(*at, *len),
            };
            state = self.lock();
            state.is_busy = false;
            match done {
                Ok(()) => state.pop(),
                Err(error) if matches!(request, Request::Discard(..)) => {
                    state.discard_failure = Some(Failure::of(&request, error));
                    state.pop();
                }
                Err(error) => state.failure = Some(Failure::of(&request, error)),
            }
            self.performed.notify_all();
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, unless a request has failed.
    fn sound(&self) -> Result<MutexGuard<'_, State>, DeviceError> {
        let state = self.lock();
        match &state.failure {
            None => Ok(state),
            Some(failure) => Err(failure.error()),
        }
    }
}

impl State {
    fn pop(&mut self) {
        if let Some(Request::Write(_, bytes)) = self.requests.pop_front() {
            self.bytes -= bytes.len();
        }
        self.performed += 1;
    }

    /// The waiting writes that overlap these bytes of the device, in their order.
    fn overlapping(&self, start: u64, len: u64) -> Vec<(u64, Arc<[u8]>)> {
        let writes = self.requests.iter().filter_map(|request| match request {
            Request::Write(at, bytes) => Some((at.get() * SECTOR, bytes)),
            Request::Flush | Request::Discard(..) => None,
        });
        let overlaps = |at: u64, bytes: &[u8]| at < start + len && start < at + bytes.len() as u64;
        let found = writes.filter(|(at, bytes)| overlaps(*at, bytes));
        found.map(|(at, bytes)| (at, Arc::clone(bytes))).collect()
    }
}

impl BlockDevice for WriteQueue {
    fn len(&self) -> ByteLen {
        self.base.len()
    }

    fn extend(&self, len: ByteLen) -> Result<ByteLen, DeviceError> {
        self.base.extend(len)
    }

    fn read(&self, at: Lba, buf: &mut [u8]) -> Result<(), DeviceError> {
        let start = check_range(at, buf.len(), self.len())?;
        let len = buf.len() as u64;
        // Before the base is read: a request that is gone has been performed.
        let waiting = self.lock().overlapping(start, len);
        self.base.read(at, buf)?;
        for (at, bytes) in waiting {
            let from = at.max(start);
            let to = (at + bytes.len() as u64).min(start + len);
            let theirs = (from - at) as usize..(to - at) as usize;
            buf[(from - start) as usize..(to - start) as usize].copy_from_slice(&bytes[theirs]);
        }
        Ok(())
    }

    fn write(&self, at: Lba, buf: &[u8]) -> Result<(), DeviceError> {
        check_range(at, buf.len(), self.len())?;
        if self.sound()?.bytes + buf.len() > self.most_bytes {
            self.perform(self.end())?;
        }
        let mut state = self.sound()?;
        state.bytes += buf.len();
        state.requests.push_back(Request::Write(at, buf.into()));
        Ok(())
    }

    /// The error is that of an earlier discard, once.
    fn discard(&self, at: Lba, len: u64) -> Result<(), DeviceError> {
        check_range(at, len as usize, self.len())?;
        let mut state = self.sound()?;
        if let Some(failure) = state.discard_failure.take() {
            return Err(failure.error());
        }
        state.requests.push_back(Request::Discard(at, len));
        Ok(())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.sound()?.requests.push_back(Request::Flush);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    /// A device that records its requests, and fails one of them.
    struct Noting {
        memory: MemoryDevice,
        asked: Mutex<Vec<String>>,
        fails_at: usize,
    }

    impl Noting {
        fn new(fails_at: usize) -> Arc<Self> {
            let memory = MemoryDevice::new(vec![0; 64 << 10]);
            Arc::new(Self { memory, asked: Mutex::default(), fails_at })
        }

        fn note(&self, what: String) -> Result<(), DeviceError> {
            let mut asked = self.asked.lock().unwrap();
            if asked.len() == self.fails_at {
                let source = io::Error::from(io::ErrorKind::StorageFull);
                return Err(DeviceError::Io { at: Lba::new(9), source });
            }
            asked.push(what);
            Ok(())
        }

        fn asked(&self) -> Vec<String> {
            self.asked.lock().unwrap().clone()
        }
    }

    impl BlockDevice for Noting {
        fn len(&self) -> ByteLen {
            self.memory.len()
        }

        fn read(&self, at: Lba, buf: &mut [u8]) -> Result<(), DeviceError> {
            self.memory.read(at, buf)
        }

        fn write(&self, at: Lba, buf: &[u8]) -> Result<(), DeviceError> {
            self.note(format!("write {at} {}", buf.len()))?;
            self.memory.write(at, buf)
        }

        fn flush(&self) -> Result<(), DeviceError> {
            self.note("flush".into())
        }

        fn discard(&self, at: Lba, len: u64) -> Result<(), DeviceError> {
            self.note(format!("discard {at} {len}"))
        }
    }

    /// The disk must not lead to the bytes before they go, and they must not go behind a write by
    /// their next owner.
    #[test]
    fn discards_keep_their_place() {
        let base = Noting::new(usize::MAX);
        let queue = WriteQueue::new(base.clone(), 1 << 20);
        queue.write(Lba::new(3), &[1; 512]).unwrap();
        queue.flush().unwrap();
        queue.discard(Lba::new(8), 4096).unwrap();
        queue.write(Lba::new(8), &[2; 512]).unwrap();
        assert!(base.asked().is_empty());
        queue.perform(queue.end()).unwrap();
        assert_eq!(base.asked(), ["write 3 512", "flush", "discard 8 4096", "write 8 512"]);
    }

    const EOPNOTSUPP: i32 = 95;

    /// A device that cannot discard.
    struct Keeping(MemoryDevice);

    impl BlockDevice for Keeping {
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

        fn discard(&self, at: Lba, _: u64) -> Result<(), DeviceError> {
            Err(DeviceError::Io { at, source: io::Error::from_raw_os_error(EOPNOTSUPP) })
        }
    }

    #[test]
    fn a_discard_that_fails_stops_discards_alone() {
        let base = Arc::new(Keeping(MemoryDevice::new(vec![0; 64 << 10])));
        let queue = WriteQueue::new(base.clone(), 1 << 20);
        queue.discard(Lba::new(8), 4096).unwrap();
        queue.write(Lba::new(3), &[1; 512]).unwrap();
        queue.flush().unwrap();
        queue.perform(queue.end()).unwrap();
        let mut sector = [0; 512];
        base.read(Lba::new(3), &mut sector).unwrap();
        assert_eq!(sector, [1; 512]);
        assert!(matches!(
            queue.discard(Lba::new(16), 4096),
            Err(DeviceError::Io { at, source })
                if at == Lba::new(8) && source.raw_os_error() == Some(EOPNOTSUPP)
        ));
        // It is returned once.
        queue.discard(Lba::new(16), 4096).unwrap();
        queue.write(Lba::new(4), &[1; 512]).unwrap();
        queue.perform(queue.end()).unwrap();
    }

    #[test]
    fn requests_are_performed_in_their_order_up_to_a_place() {
        let base = Noting::new(usize::MAX);
        let queue = WriteQueue::new(base.clone(), 1 << 20);
        queue.write(Lba::new(3), &[1; 1024]).unwrap();
        queue.flush().unwrap();
        let place = queue.end();
        queue.write(Lba::new(0), &[2; 512]).unwrap();
        queue.flush().unwrap();
        assert!(base.asked().is_empty());
        queue.perform(place).unwrap();
        assert_eq!(base.asked(), ["write 3 1024", "flush"]);
        queue.perform(place).unwrap();
        assert_eq!(base.asked().len(), 2);
        queue.perform(queue.end()).unwrap();
        assert_eq!(base.asked(), ["write 3 1024", "flush", "write 0 512", "flush"]);
    }

    #[test]
    fn reads_see_the_last_of_the_writes_that_wait() {
        let queue = WriteQueue::new(Noting::new(usize::MAX), 1 << 20);
        let mut wanted = vec![0; 16 * 512];
        for (value, at, sectors) in [(1, 2, 6), (2, 4, 8), (3, 0, 3), (4, 7, 1)] {
            queue.write(Lba::new(at), &vec![value; sectors * 512]).unwrap();
            wanted[at as usize * 512..][..sectors * 512].fill(value);
            for from in 0..16 {
                for len in 1..=16 - from {
                    let mut found = vec![9; len * 512];
                    queue.read(Lba::new(from as u64), &mut found).unwrap();
                    assert_eq!(found, wanted[from * 512..][..len * 512]);
                }
            }
            if value == 2 {
                queue.perform(queue.end()).unwrap();
            }
        }
    }

    #[test]
    fn no_more_bytes_wait_than_may() {
        let base = Noting::new(usize::MAX);
        let queue = WriteQueue::new(base.clone(), 2048);
        for at in 0..4 {
            queue.write(Lba::new(at), &[1; 512]).unwrap();
        }
        assert!(base.asked().is_empty());
        queue.write(Lba::new(9), &[1; 512]).unwrap();
        assert_eq!(base.asked().len(), 4);
        assert!(matches!(
            queue.write(Lba::new(1 << 30), &[1; 512]),
            Err(DeviceError::OutOfRange { .. })
        ));
    }

    #[test]
    fn nothing_is_written_behind_a_failure() {
        let base = Noting::new(2);
        let queue = WriteQueue::new(base.clone(), 1 << 20);
        queue.write(Lba::new(0), &[1; 512]).unwrap();
        let place = queue.end();
        queue.flush().unwrap();
        queue.write(Lba::new(1), &[1; 512]).unwrap();
        queue.write(Lba::new(2), &[1; 512]).unwrap();
        let is_full = |done: Result<(), DeviceError>| match done {
            Err(DeviceError::Io { at, source }) => {
                at == Lba::new(9) && source.kind() == io::ErrorKind::StorageFull
            }
            _ => false,
        };
        assert!(is_full(queue.perform(queue.end())));
        queue.perform(place).unwrap();
        assert!(is_full(queue.perform(queue.end())));
        assert!(is_full(queue.write(Lba::new(3), &[1; 512])));
        assert!(is_full(queue.flush()));
        assert_eq!(base.asked(), ["write 0 512", "flush"]);
    }

    /// Several threads perform requests at once: each request is performed once, in order.
    #[test]
    fn whoever_comes_second_waits() {
        let base = Noting::new(usize::MAX);
        let queue = WriteQueue::new(base.clone(), 1 << 20);
        for at in 0..64 {
            queue.write(Lba::new(at), &[1; 512]).unwrap();
        }
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    queue.perform(queue.end()).unwrap();
                    assert_eq!(base.asked().len(), 64);
                });
            }
        });
        let wanted: Vec<String> = (0..64).map(|at| format!("write {at} 512")).collect();
        assert_eq!(base.asked(), wanted);
    }
}
