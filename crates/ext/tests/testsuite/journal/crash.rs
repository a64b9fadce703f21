//! Power lost at any write of a commit, of a change of the tail, or within one: what
//! is recovered is the state after one of the transactions, and never an older one
//! than the last whose commit was done.

use super::volume::{SHAPES, Shape, Volume, dump, make, read_file};
use crate::holes;
use crate::repair::judge::{Random, Scratch, is_there};
use seekless_cache::Log;
use seekless_device::{BlockDevice, DeviceError, MemoryDevice};
use seekless_units::{ByteLen, Lba};
use std::process::Command;
use std::sync::{Arc, Mutex};

/// A device that remembers what it was asked.
pub(crate) struct Recorder {
    inner: MemoryDevice,
    pub(crate) log: Mutex<Vec<Request>>,
}

impl Recorder {
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        Self { inner: MemoryDevice::new(bytes), log: Mutex::default() }
    }
}

#[derive(Clone)]
pub(crate) enum Request {
    Write(usize, Vec<u8>),
    Flush,
}

impl BlockDevice for Recorder {
    fn len(&self) -> ByteLen {
        self.inner.len()
    }

    fn read(&self, at: Lba, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.inner.read(at, buf)
    }

    fn write(&self, at: Lba, buf: &[u8]) -> Result<(), DeviceError> {
        let write = Request::Write(at.get() as usize * 512, buf.to_vec());
        self.log.lock().expect("log").push(write);
        self.inner.write(at, buf)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.log.lock().expect("log").push(Request::Flush);
        Ok(())
    }
}

/// What the device may hold after the first requests: all that was flushed, and of
/// what was written since any sectors.
pub(crate) fn state(base: &[u8], requests: &[Request], random: &mut Random) -> Vec<u8> {
    let flushed = requests.iter().rposition(|request| matches!(request, Request::Flush));
    let mut bytes = base.to_vec();
    for (n, request) in requests.iter().enumerate() {
        let Request::Write(at, data) = request else { continue };
        for (sector, part) in data.chunks(512).enumerate() {
            // The last one may be there with nothing before it, or lack a sector.
            let shown = match random.below(4) {
                0 => false,
                1 => n + 1 == requests.len(),
                _ => true,
            };
            if flushed.is_some_and(|flush| n < flush) || shown {
                let at = at + sector * 512;
                bytes[at..at + part.len()].copy_from_slice(part);
            }
        }
    }
    bytes
}

/// A number of requests, with as many chances for each stretch between two flushes,
/// however many writes it has.
pub(crate) fn cut(requests: &[Request], random: &mut Random) -> usize {
    let is_flush = |&n: &usize| matches!(requests[n - 1], Request::Flush);
    let flushes: Vec<usize> = (1..=requests.len()).filter(is_flush).collect();
    let epoch = random.below(flushes.len());
    let from = if epoch == 0 { 0 } else { flushes[epoch - 1] };
    from + random.below(flushes[epoch] - from + 1)
}

fn crash(shape: &'static Shape, seed: u64, transactions: usize, states: usize) {
    let (bytes, homes) = make(shape);
    let device = Arc::new(Recorder::new(bytes));
    let mut volume = Volume::open(shape, device.clone(), homes, seed);
    // The mark that a mount must recover is one write of two sectors, and may not be
    // torn: nothing is in the log then. Once around the ring, so that what is torn
    // has remains of other transactions in it.
    while volume.logged < volume.log.capacity() {
        volume.commit(200);
    }
    let base = volume.bytes();
    device.log.lock().expect("log").clear();
    let mut files = vec![(0, volume.file())];
    for _ in 0..transactions {
        let (stages, after, revokes) = volume.transaction(12);
        volume.perform(&stages);
        volume.committed = after;
        // What is revoked is what it is at home.
        for revoked in revokes {
            volume.committed.insert(revoked, volume.at_home(revoked));
        }
        files.push((device.log.lock().expect("log").len(), volume.file()));
        if volume.random.below(5) == 0 {
            let oldest = volume.random.below(volume.waiting.len() + 1);
            volume.retire(oldest);
        }
    }
    let requests = device.log.lock().expect("log").clone();
    let mut random = Random(seed);
    let mut seen = std::collections::BTreeSet::new();
    for number in 0..states {
        let cut = cut(&requests, &mut random);
        let bytes = state(&base, &requests[..cut], &mut random);
        let place = format!("{} seed {seed} after {cut} of {}", shape.name, requests.len());
        let file = read_file(bytes.clone());
        let done = files.iter().rposition(|(at, _)| *at <= cut).expect("one");
        let found = files.iter().rposition(|(_, expected)| *expected == file);
        let found = found.unwrap_or_else(|| panic!("{place}: no state that there was"));
        assert!(found == done || found == done + 1, "{place}: {found} instead of {done}");
        seen.insert(found - done);
        if number % 10 == 0 && is_there() {
            let scratch = Scratch::new(&format!("crash-{}", shape.name));
            holes::put(scratch.path(), &bytes);
            let said = Command::new("e2fsck")
                .args(["-E", "journal_only", "-p"])
                .arg(scratch.path())
                .output()
                .expect("e2fsck");
            assert!(said.status.code().is_some_and(|code| code <= 1), "{place}: {said:?}");
            assert!(dump(scratch.path()) == file, "{place}: e2fsck");
            let (code, said) = crate::repair::judge::e2fsck("-fp", scratch.path());
            assert_eq!(code, 0, "{place}: {said}");
        }
    }
    assert_eq!(seen.len(), 2, "{}: commit records seen, and not", shape.name);
}

/// A commit of a few blocks, with its last write ended after each sector, and with
/// each sector lost of those that were not flushed.
fn torn(shape: &'static Shape, seed: u64) {
    let (bytes, homes) = make(shape);
    let device = Arc::new(Recorder::new(bytes));
    let mut volume = Volume::open(shape, device.clone(), homes, seed);
    while volume.logged < volume.log.capacity() {
        volume.commit(200);
    }
    volume.commit(4);
    let base = volume.bytes();
    let before = volume.file();
    device.log.lock().expect("log").clear();
    let (stages, after, revokes) = volume.transaction(5);
    volume.perform(&stages);
    volume.committed = after;
    for revoked in revokes {
        volume.committed.insert(revoked, volume.at_home(revoked));
    }
    let after = volume.file();
    let requests = device.log.lock().expect("log").clone();
    let put = |bytes: &mut [u8], request: &Request, sectors: &dyn Fn(usize) -> bool| {
        let Request::Write(at, data) = request else { return };
        for (n, part) in data.chunks(512).enumerate().filter(|(n, _)| sectors(*n)) {
            bytes[at + n * 512..][..part.len()].copy_from_slice(part);
        }
    };
    let (mut shown, mut flushed) = (base.clone(), base);
    let mut unflushed: Vec<&Request> = Vec::new();
    let (mut old, mut new) = (0, 0);
    for (n, request) in requests.iter().enumerate() {
        let Request::Write(_, data) = request else {
            (flushed, unflushed) = (shown.clone(), Vec::new());
            continue;
        };
        for sector in 0..data.len() / 512 {
            let mut ended = shown.clone();
            put(&mut ended, request, &|n| n <= sector);
            let mut lost = flushed.clone();
            unflushed.iter().for_each(|earlier| put(&mut lost, earlier, &|_| true));
            put(&mut lost, request, &|n| n != sector);
            for state in [ended, lost] {
                let file = read_file(state);
                let place = format!("{} request {n} sector {sector}", shape.name);
                assert!(file == before || file == after, "{place}");
                (old, new) = (old + usize::from(file == before), new + usize::from(file == after));
            }
        }
        put(&mut shown, request, &|_| true);
        unflushed.push(request);
    }
    assert!(read_file(shown) == after && old > 10, "{}: {old} {new}", shape.name);
    assert_eq!(new, 1, "{}: the record, and nothing before it", shape.name);
}

#[test]
fn a_commit_is_there_with_one_sector() {
    if !is_there() {
        return;
    }
    for (seed, shape) in SHAPES.iter().enumerate() {
        torn(shape, seed as u64);
    }
}

#[test]
fn a_prefix_of_the_transactions_is_recovered() {
    if !is_there() {
        return;
    }
    for (seed, shape) in SHAPES.iter().enumerate() {
        crash(shape, seed as u64, 25, 80);
    }
}

/// As above, of many more states.
#[test]
#[ignore = "takes minutes"]
fn a_prefix_of_the_transactions_is_recovered_for_long() {
    if !is_there() {
        return;
    }
    for seed in 100..110 {
        for shape in &SHAPES {
            crash(shape, seed, 60, 400);
        }
    }
}
