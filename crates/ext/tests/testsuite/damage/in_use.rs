//! Damaged images opened for changes: whatever their bytes say, each operation ends
//! with an answer or an error, in bounded time. An input:
//!
//! | bytes | meaning |
//! |---|---|
//! | 1 | which image, and of the disciplines that it may have, which |
//! | 1 | how many patches, up to 15; top bit: leave the checksums as they are |
//! | 3 and more, for each patch | two bytes of place among those that are not zero, one of length (1..=16), the bytes to put there |
//! | 4, repeated | an operation, the file, the name, and a number |

use super::sums::mend;
use crate::damage::images;
use seekless_cache::{Config, Discipline, JournalMode};
use seekless_device::{Clock, MemoryDevice, VirtualClock};
use seekless_ext::{ExtLive, LiveOptions};
use seekless_fs::operate::{NewFile, Operate, Ownership, RenameMode, SetAttr, XattrMode};
use seekless_fs::{FileKind, FsError, Timestamp};
use seekless_units::{ByteLen, Ino, Nanos};
use std::ops::ControlFlow;
use std::sync::Arc;

const FREE: [Discipline; 4] =
    [Discipline::Async, Discipline::Sync, Discipline::Normal, Discipline::SoftUpdates];
const LOGGED: [Discipline; 3] = [
    Discipline::Journal(JournalMode::Ordered),
    Discipline::Journal(JournalMode::Writeback),
    Discipline::Journal(JournalMode::Data),
];
/// The images that can be changed.
const NAMES: [&str; 4] = ["ext2", "ext4", "inline", "journal"];
/// Operations of an input at most.
const MOST: usize = 200;
const OWNER: Ownership = Ownership { uid: 1, gid: 2, perm: 0o644 };

/// What came of an input.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) opened: bool,
    pub(crate) done: u32,
    pub(crate) failed: u32,
    /// Free blocks when it was opened.
    pub(crate) free: u64,
}

/// Runs one input.
pub(crate) fn run(data: &[u8]) -> Outcome {
    let [choice, patches, rest @ ..] = data else { return Outcome::default() };
    let name = NAMES[usize::from(*choice) % NAMES.len()];
    let which = usize::from(*choice) / NAMES.len();
    let discipline = match name {
        "journal" => LOGGED[which % LOGGED.len()],
        _ => FREE[which % FREE.len()],
    };
    let mut bytes = images::named(name);
    let rest = patch(&mut bytes, usize::from(*patches & 15), rest);
    if patches & 0x80 == 0 {
        mend(&mut bytes);
    }
    // With delayed allocation where there can be.
    run_on(bytes, discipline, patches & 0x40 != 0, rest)
}

/// Opens an image for changes, and performs operations, of four bytes each.
pub(crate) fn run_on(
    bytes: Vec<u8>,
    discipline: Discipline,
    delays: bool,
    operations: &[u8],
) -> Outcome {
    let mut outcome = Outcome::default();
    let clock = Arc::new(VirtualClock::new());
    let mut config = Config::new(discipline);
    config.capacity = ByteLen::new(256 << 10);
    let how = LiveOptions {
        directories: "ext2-orlov".into(),
        inodes: None,
        areas: None,
        blocks: delays.then(|| "ext4-goal".into()),
        seed: 1,
        force: true,
        delays: None,
        moves_dirs: true,
        recover: false,
        wall: Box::new(|| Timestamp { secs: 1_700_000_000, nanos: 0 }),
    };
    let device = Arc::new(MemoryDevice::new(bytes));
    let Ok(live) = ExtLive::open(device, clock.clone() as Arc<dyn Clock>, config, how) else {
        return outcome;
    };
    outcome.opened = true;
    let known = vec![live.root()];
    let mut calls = Calls { live, clock, known, outcome };
    calls.list(calls.known[0]);
    let space = calls.live.space();
    calls.outcome.free = space.free;
    for op in operations.chunks_exact(4).take(MOST) {
        calls.one([op[0], op[1], op[2], op[3]]);
    }
    let ended = calls.live.unmount();
    calls.note(ended);
    calls.outcome
}

/// Puts in the patches of an input; what is behind them is returned.
fn patch<'a>(bytes: &mut [u8], count: usize, mut rest: &'a [u8]) -> &'a [u8] {
    let places: Vec<usize> = (1024..bytes.len()).filter(|&at| bytes[at] != 0).collect();
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
    live: ExtLive,
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
        // Names that there are, and others.
        let named = |n: u8| match n {
            0 => b"small".to_vec(),
            1 => b"dir".to_vec(),
            2 => b"pieces".to_vec(),
            3 => b"slow".to_vec(),
            4..64 => format!("some-longer-name-{}", 96 + u32::from(n)).into_bytes(),
            _ => format!("n{}{}", n % 32, "x".repeat(usize::from(n >> 5) * 20)).into_bytes(),
        };
        let (name, new) = (named(name), named(number));
        let at = ByteLen::new([0, 70, 900, 20_000, 400_000, 80 << 20][usize::from(name[0]) % 6]);
        match op % 16 {
            0 | 1 => {
                let target = vec![b's'; usize::from(number)];
                let what = match number % 5 {
                    0 | 1 => NewFile::Regular,
                    2 => NewFile::Directory,
                    3 => NewFile::Symlink(&target),
                    _ => NewFile::Special(FileKind::Fifo),
                };
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
                let modes = [RenameMode::Replace, RenameMode::Exchange];
                let mode = modes[usize::from(op % 2)];
                let done = self.live.rename((one, &name), (other, &new), mode);
                self.note(done);
            }
            6 => {
                let done = self.live.link(one, other, &name);
                self.note(done);
            }
            7 | 8 => {
                let done = self.live.write(one, at, &vec![7; usize::from(number) * 30]);
                self.note(done);
            }
            9 => {
                let done = self.live.allocate(one, at, ByteLen::new(70_000), number % 2 == 0);
                self.note(done);
                let done = self.live.data_runs(one);
                self.note(done);
            }
            10 => {
                let set = SetAttr { size: Some(at.get()), ..SetAttr::default() };
                let done = self.live.set_attr(one, &set);
                self.note(done);
            }
            11 => {
                let value = vec![3; usize::from(number) * 2];
                let done = self.live.set_xattr(one, b"user.note", &value, XattrMode::Any);
                self.note(done);
                let done = self.live.xattrs(one);
                self.note(done);
            }
            12 => {
                let done = self.live.read(one, at, &mut [0; 5000]);
                self.note(done);
                let done = self.live.read_link(one);
                self.note(done);
            }
            13 if number % 2 == 0 => {
                let done = self.live.fsync(one);
                self.note(done);
            }
            13 => {
                self.clock.sleep(Nanos::new(20_000_000_000));
                let done = self.live.tick();
                self.note(done);
            }
            14 => {
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
