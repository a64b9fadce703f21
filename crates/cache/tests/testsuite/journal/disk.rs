//! A disk that remembers what it was asked, and may have lost any sector that was
//! written since the last flush.

use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;
use seekless_device::{BlockDevice, DeviceError, Durable, Ticket};
use seekless_units::{ByteLen, Lba};
use std::collections::BTreeSet;
use std::sync::Mutex;

#[derive(Clone)]
pub(crate) enum Request {
    /// A write was submitted: from then on any of it may be there.
    Submit(usize, Vec<u8>, Durable),
    /// The write that was asked for so many requests after the first has completed.
    Complete(usize),
    Flush,
}

pub(crate) struct Disk {
    state: Mutex<State>,
}

struct State {
    /// As whoever reads sees it.
    bytes: Vec<u8>,
    base: Vec<u8>,
    log: Vec<Request>,
    /// Writes that succeed still.
    left: Option<usize>,
    /// Which writes complete when they are asked for; all at once without it.
    late: Option<Pcg64Mcg>,
    /// Places in `log`.
    under_way: BTreeSet<usize>,
    /// Most that were under way at once.
    most: usize,
}

impl State {
    /// A write that nobody may wait for fails, once there were enough.
    fn wear(&mut self, at: Lba) -> Result<(), DeviceError> {
        match &mut self.left {
            Some(0) => Err(DeviceError::Io { at, source: std::io::Error::other("worn out") }),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn complete(&mut self, submitted: usize) -> Result<(), DeviceError> {
        if !self.under_way.remove(&submitted) {
            return Ok(());
        }
        self.wear(Lba::ZERO)?;
        self.log.push(Request::Complete(submitted));
        Ok(())
    }
}

impl Disk {
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        let state = State {
            base: bytes.clone(),
            bytes,
            log: Vec::new(),
            left: None,
            late: None,
            under_way: BTreeSet::new(),
            most: 0,
        };
        Self { state: Mutex::new(state) }
    }

    /// From now on writes complete late and in any order: one in three when it is
    /// asked for.
    pub(crate) fn complete_late(&self, seed: u64) {
        self.state.lock().unwrap().late = Some(Pcg64Mcg::seed_from_u64(seed));
    }

    pub(crate) fn most_under_way(&self) -> usize {
        self.state.lock().unwrap().most
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
        assert!(state.under_way.is_empty(), "all was waited for");
        state.base = state.bytes.clone();
        state.log.clear();
    }

    /// Writes fail after so many: late ones when they complete.
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
        let ticket = self.submit(at, buf, Durable::AfterFlush)?;
        ticket.map_or(Ok(()), |ticket| self.wait(ticket))
    }

    fn submit(&self, at: Lba, buf: &[u8], durable: Durable) -> Result<Option<Ticket>, DeviceError> {
        let mut state = self.state.lock().unwrap();
        let start = at.get() as usize * 512;
        let end = start + buf.len();
        for &other in &state.under_way {
            let Request::Submit(at, bytes, _) = &state.log[other] else { continue };
            let apart = end <= *at || at + bytes.len() <= start;
            assert!(apart, "{start}.. is written while {at}.. is under way");
        }
        if state.late.is_none() {
            state.wear(at)?;
        }
        state.bytes[start..end].copy_from_slice(buf);
        let number = state.log.len();
        state.log.push(Request::Submit(start, buf.to_vec(), durable));
        if state.late.is_none() {
            state.log.push(Request::Complete(number));
            return Ok(None);
        }
        state.under_way.insert(number);
        state.most = state.most.max(state.under_way.len());
        Ok(Some(Ticket::new(number as u64)))
    }

    fn is_complete(&self, ticket: Ticket) -> Result<bool, DeviceError> {
        let mut state = self.state.lock().unwrap();
        let submitted = ticket.number() as usize;
        if state.late.as_mut().is_none_or(|rng| below(rng, 3) == 0) {
            state.complete(submitted)?;
        }
        Ok(!state.under_way.contains(&submitted))
    }

    fn wait(&self, ticket: Ticket) -> Result<(), DeviceError> {
        self.state.lock().unwrap().complete(ticket.number() as usize)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.state.lock().unwrap().log.push(Request::Flush);
        Ok(())
    }
}

pub(crate) fn below(rng: &mut Pcg64Mcg, n: usize) -> usize {
    (rng.next_u32() as usize) % n
}

/// What a disk may hold after the first requests: all that had completed before a
/// flush, or completed with force unit access, and of what was submitted besides any
/// sectors, in any order.
pub(crate) fn crashed(base: &[u8], requests: &[Request], rng: &mut Pcg64Mcg) -> Vec<u8> {
    left(base, requests, || below(rng, 3) > 0)
}

/// What a disk holds whatever becomes of the rest.
pub(crate) fn stable(base: &[u8], requests: &[Request]) -> Vec<u8> {
    left(base, requests, || false)
}

/// As [`crashed`], with the other sectors that are shown.
fn left(base: &[u8], requests: &[Request], mut is_shown: impl FnMut() -> bool) -> Vec<u8> {
    let mut stable = BTreeSet::new();
    let mut completed = Vec::new();
    for request in requests {
        match request {
            Request::Submit(..) => {}
            Request::Complete(n) => match requests[*n] {
                Request::Submit(_, _, Durable::OnCompletion) => {
                    stable.insert(*n);
                }
                _ => completed.push(*n),
            },
            Request::Flush => stable.extend(completed.drain(..)),
        }
    }
    let mut bytes = base.to_vec();
    for (n, request) in requests.iter().enumerate() {
        let Request::Submit(at, data, _) = request else { continue };
        for (sector, part) in data.chunks(512).enumerate() {
            if stable.contains(&n) || is_shown() {
                let at = at + sector * 512;
                bytes[at..at + part.len()].copy_from_slice(part);
            }
        }
    }
    bytes
}

/// A number of requests, with as many chances for each stretch between what makes
/// something stable.
pub(crate) fn cut(requests: &[Request], rng: &mut Pcg64Mcg) -> usize {
    let ends_one = |&n: &usize| {
        matches!(requests[n], Request::Flush | Request::Submit(_, _, Durable::OnCompletion))
    };
    let mut ends: Vec<usize> = (0..requests.len()).filter(ends_one).collect();
    ends.push(requests.len());
    let stretch = below(rng, ends.len());
    let from = if stretch == 0 { 0 } else { ends[stretch - 1] + 1 };
    from + below(rng, ends[stretch] - from + 1)
}
