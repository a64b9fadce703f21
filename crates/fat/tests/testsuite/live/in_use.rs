//! Images in use that may be damaged: whatever their bytes say, each operation ends with an
//! answer or an error, in bounded time, and what was sound stays sound. An input:
//!
//! | bytes | meaning |
//! |---|---|
//! | 1 | which image, discipline and policy for clusters |
//! | 1 | how many patches, up to 15; top bit: none in the boot sector |
//! | 4 and more, for each patch | two bytes of place among those that are not zero, one of length (1..=16), the bytes to put there |
//! | 4, repeated | an operation, the file, the name, and a number |

use seekless_cache::{Config, Discipline};
use seekless_device::{BlockDevice, Clock, MemoryDevice, VirtualClock};
use seekless_fat::{FatLive, LiveOptions};
use seekless_fs::operate::{NewFile, Operate, Ownership, RenameMode, SetAttr};
use seekless_fs::{FsError, Timestamp};
use seekless_units::{ByteLen, Ino, Nanos};
use std::ops::ControlFlow;
use std::sync::Arc;

/// Operations of an input at most.
const MOST: usize = 200;
const OWNER: Ownership = Ownership { uid: 0, gid: 0, perm: 0o644 };
const CLUSTERS: [Option<&str>; 4] = [None, Some("first-fit"), Some("random"), Some("next-near")];

/// What came of an input.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) opened: bool,
    /// The check found nothing before, and so must find nothing after.
    pub(crate) sound: bool,
    pub(crate) done: u32,
    pub(crate) failed: u32,
}

/// Runs one input on one of the images.
pub(crate) fn run(data: &[u8], bases: &[Vec<u8>]) -> Outcome {
    let mut outcome = Outcome::default();
    let [choice, patches, rest @ ..] = data else { return outcome };
    let choice = usize::from(*choice);
    let mut bytes = bases[choice % bases.len()].clone();
    let from = if patches & 0x80 == 0 { 0 } else { 512 };
    let rest = patch(&mut bytes, from, usize::from(*patches & 15), rest);
    let device = Arc::new(MemoryDevice::new(bytes));
    outcome.sound =
        seekless_fat::check(device.clone()).is_ok_and(|report| report.findings.is_empty());
    let clock = Arc::new(VirtualClock::new());
    let choice = choice / bases.len();
    let mut config = Config::new(Discipline::ALL[choice % Discipline::ALL.len()]);
    config.capacity = ByteLen::new(256 << 10);
    let policy = CLUSTERS[choice / Discipline::ALL.len() % CLUSTERS.len()];
    let how = LiveOptions {
        clusters: policy.map(String::from),
        seed: 1,
        zone: 0,
        force: true,
        wall: Box::new(|| Timestamp { secs: 1_700_000_000, nanos: 0 }),
    };
    let Ok(live) = FatLive::open(device.clone(), clock.clone() as Arc<dyn Clock>, config, how)
    else {
        return outcome;
    };
    outcome.opened = true;
    let known = vec![live.root()];
    let mut calls = Calls { live, clock, known, outcome };
    calls.list(calls.known[0]);
    for op in rest.chunks_exact(4).take(MOST) {
        calls.one([op[0], op[1], op[2], op[3]]);
    }
    let ended = calls.live.unmount();
    let closed = ended.is_ok();
    calls.note(ended);
    let outcome = calls.outcome;
    if outcome.sound && closed {
        let report = seekless_fat::check(device as Arc<dyn BlockDevice>).expect("was readable");
        assert!(report.findings.is_empty(), "{:#?}", report.findings);
    }
    outcome
}

/// Puts in the patches of an input; what is behind them is returned.
fn patch<'a>(bytes: &mut [u8], from: usize, count: usize, mut rest: &'a [u8]) -> &'a [u8] {
    let places: Vec<usize> = (from..bytes.len()).filter(|&at| bytes[at] != 0).collect();
    for _ in 0..count {
        let Some((head, after)) = rest.split_first_chunk::<3>() else { break };
        let place = usize::from(u16::from_le_bytes([head[0], head[1]]));
        let at = places[(place * places.len()) >> 16];
        let len = (usize::from(head[2] & 15) + 1).min(after.len());
        let (new, after) = after.split_at(len);
        for (to, &from) in bytes[at..].iter_mut().zip(new) {
            *to = from;
        }
        rest = after;
    }
    rest
}

struct Calls {
    live: FatLive,
    clock: Arc<VirtualClock>,
    /// Files met so far.
    known: Vec<Ino>,
    outcome: Outcome,
}

impl Calls {
    fn note<T>(&mut self, result: Result<T, FsError>) -> Option<T> {
        self.outcome.done += 1;
        self.outcome.failed += u32::from(result.is_err());
        result.ok()
    }

    fn list(&mut self, dir: Ino) {
        let mut met = Vec::new();
        let listed = self.live.read_dir(dir, 0, &mut |entry| {
            met.push(entry.ino);
            if met.len() < 50 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        self.note(listed);
        self.known.extend(met);
        self.known.truncate(250);
    }

    fn one(&mut self, [op, file, name, number]: [u8; 4]) {
        let one = self.known[usize::from(file) % self.known.len()];
        let other = self.known[usize::from(file ^ number) % self.known.len()];
        // Names that the images have, in either case; long ones, short ones, and some that
        // cannot be.
        let named = |n: u8| match n {
            0 => "STAYS".to_string(),
            1 => "dir".into(),
            2 => "Pieces".into(),
            3 => "small.txt".into(),
            4 => "many".into(),
            5 => "a?b".into(),
            6 => ". .".into(),
            7 => "\u{fc}\u{e4}.\u{20ac}".into(),
            8..64 => format!("N{}.TXT", n % 16),
            _ => format!("a longer name {}{}", n % 32, "x".repeat(usize::from(n >> 5) * 30)),
        };
        let (name, new) = (named(name).into_bytes(), named(number).into_bytes());
        let at = [0, 70, 511, 4096, 40_000, 3 << 20, u64::from(u32::MAX) - 5];
        let at = ByteLen::new(at[usize::from(number) % at.len()]);
        match op % 14 {
            0 | 1 => {
                let what = if number % 3 == 0 { NewFile::Directory } else { NewFile::Regular };
                let made = self.live.make(one, &name, what, OWNER);
                if let Some(made) = self.note(made) {
                    self.known.push(made.ino);
                }
            }
            2 => {
                let done = self.live.unlink(one, &name);
                self.note(done);
            }
            3 => {
                let done = self.live.rmdir(one, &name);
                self.note(done);
            }
            4 | 5 => {
                let modes = [RenameMode::Replace, RenameMode::KeepTarget];
                let mode = modes[usize::from(op % 2)];
                let done = self.live.rename((one, &name), (other, &new), mode);
                self.note(done);
            }
            6 | 7 => {
                // Far behind the end it would be written for long.
                let at = ByteLen::new(at.get().min(60_000));
                let done = self.live.write(one, at, &vec![7; usize::from(number) * 30]);
                self.note(done);
            }
            8 => {
                let done = self.live.allocate(one, at, ByteLen::new(7000), number % 2 == 0);
                self.note(done);
                let done = self.live.data_runs(one);
                self.note(done);
            }
            9 => {
                let perm = (number % 5 == 0).then_some(0o444);
                let set = SetAttr { size: Some(at.get()), perm, ..SetAttr::default() };
                let done = self.live.set_attr(one, &set);
                self.note(done);
            }
            10 => {
                let done = self.live.read(one, at, &mut [0; 5000]);
                self.note(done);
            }
            11 if number % 2 == 0 => {
                let done = self.live.fsync(one);
                self.note(done);
            }
            11 => {
                self.clock.sleep(Nanos::new(20_000_000_000));
                let done = self.live.tick();
                self.note(done);
            }
            12 => {
                let held = if number % 2 == 0 { self.live.hold(one) } else { Ok(()) };
                self.note(held);
                let found = self.live.lookup(one, &name);
                if let Some(Some(found)) = self.note(found) {
                    self.known.push(found);
                }
            }
            _ => self.list(one),
        }
    }
}
