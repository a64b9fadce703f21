//! A disk that remembers what it was asked, and may have lost any sector that was
//! written since the last flush.

use rand_core::RngCore;
use rand_pcg::Pcg64Mcg;
use seekless_device::{BlockDevice, DeviceError};
use seekless_units::{ByteLen, Lba};
use std::sync::Mutex;

#[derive(Clone)]
pub(crate) enum Request {
    Write(usize, Vec<u8>),
    Flush,
}

pub(crate) struct Disk {
    state: Mutex<State>,
}

struct State {
    bytes: Vec<u8>,
    base: Vec<u8>,
    log: Vec<Request>,
    /// Writes that succeed still.
    left: Option<usize>,
}

impl Disk {
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        let state = State { base: bytes.clone(), bytes, log: Vec::new(), left: None };
        Self { state: Mutex::new(state) }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.state.lock().unwrap().bytes.clone()
    }

    /// What it held at first, and all that it was asked.
    pub(crate) fn requests(&self) -> (Vec<u8>, Vec<Request>) {
        let state = self.state.lock().unwrap();
        (state.base.clone(), state.log.clone())
    }

    pub(crate) fn asked(&self) -> usize {
        self.state.lock().unwrap().log.len()
    }

    /// What it holds is what it held at first.
    pub(crate) fn restart(&self) {
        let mut state = self.state.lock().unwrap();
        state.base = state.bytes.clone();
        state.log.clear();
    }

    pub(crate) fn fail_after(&self, writes: usize) {
        self.state.lock().unwrap().left = Some(writes);
    }
}

impl BlockDevice for Disk {
    fn len(&self) -> ByteLen {
        ByteLen::new(self.state.lock().unwrap().bytes.len() as u64)
    }

    fn read(&self, at: Lba, buf: &mut [u8]) -> Result<(), DeviceError> {
        let start = at.get() as usize * 512;
        buf.copy_from_slice(&self.state.lock().unwrap().bytes[start..start + buf.len()]);
        Ok(())
    }

    fn write(&self, at: Lba, buf: &[u8]) -> Result<(), DeviceError> {
        let mut state = self.state.lock().unwrap();
        if let Some(left) = &mut state.left {
            if *left == 0 {
                return Err(DeviceError::Io { at, source: std::io::Error::other("worn out") });
            }
            *left -= 1;
        }
        let start = at.get() as usize * 512;
        state.bytes[start..start + buf.len()].copy_from_slice(buf);
        state.log.push(Request::Write(start, buf.to_vec()));
        Ok(())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.state.lock().unwrap().log.push(Request::Flush);
        Ok(())
    }
}

pub(crate) fn below(rng: &mut Pcg64Mcg, n: usize) -> usize {
    (rng.next_u32() as usize) % n
}

/// What a disk may hold after the first requests: all that was flushed, and of what
/// was written since any sectors, in any order.
pub(crate) fn crashed(base: &[u8], requests: &[Request], rng: &mut Pcg64Mcg) -> Vec<u8> {
    let flushed = requests.iter().rposition(|request| matches!(request, Request::Flush));
    let mut bytes = base.to_vec();
    for (n, request) in requests.iter().enumerate() {
        let Request::Write(at, data) = request else { continue };
        for (sector, part) in data.chunks(512).enumerate() {
            if flushed.is_some_and(|flush| n < flush) || below(rng, 3) > 0 {
                let at = at + sector * 512;
                bytes[at..at + part.len()].copy_from_slice(part);
            }
        }
    }
    bytes
}

/// A number of requests, with as many chances for each stretch between flushes.
pub(crate) fn cut(requests: &[Request], rng: &mut Pcg64Mcg) -> usize {
    let is_flush = |&n: &usize| matches!(requests[n], Request::Flush);
    let mut ends: Vec<usize> = (0..requests.len()).filter(is_flush).collect();
    ends.push(requests.len());
    let stretch = below(rng, ends.len());
    let from = if stretch == 0 { 0 } else { ends[stretch - 1] + 1 };
    from + below(rng, ends[stretch] - from + 1)
}
