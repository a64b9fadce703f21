//! What soft updates cost: `cargo bench -p seekless-ffs --bench softdep`.
//!
//! 1. Processor time of unpacking and removing a tree of 70,000 files in
//!    memory, soft updates against async, in turn, medians.
//! 2. The removal of a directory of 16,703 files with a graph of 4,496 changes,
//!    by how long callers sleep when the graph is full, on a modelled disk of
//!    the time in virtual time (the table of FreeBSD's README.softupdates).

use rustix::time::{ClockId, clock_gettime};
use seekless_cache::{Config, Counters, Discipline};
use seekless_device::{BlockDevice, Clock, DeviceError, MemoryDevice, RealClock, VirtualClock};
use seekless_ffs::{FfsLive, LiveOptions, MakeOptions, Version, make};
use seekless_fs::Timestamp;
use seekless_fs::operate::{NewFile, Operate, Ownership};
use seekless_model::{DeviceModel, Request, preset};
use seekless_units::{ByteLen, Ino, Lba, Nanos};
use std::sync::{Arc, Mutex};

const OWNER: Ownership = Ownership { uid: 0, gid: 0, perm: 0o644 };

fn main() {
    // For a profile of one of the two: `ONLY=softdep`.
    if let Ok(only) = std::env::var("ONLY") {
        let discipline = only.parse().expect("a discipline");
        let runs = std::env::var("RUNS").map_or(8, |runs| runs.parse().expect("a number"));
        for _ in 0..runs {
            let run = run(discipline);
            println!("{discipline}: {:.3} s to unpack, {:.3} s to remove", run.unpack, run.remove);
        }
        return;
    }
    processor_time();
    removal();
}

fn options() -> LiveOptions {
    LiveOptions {
        directories: "orlov".into(),
        inodes: None,
        blocks: None,
        seed: 1,
        reallocblks: true,
        force: false,
        recover: false,
        ignore_checksums: false,
        wall: Box::new(|| Timestamp { secs: 1_000_000_000, nanos: 0 }),
    }
}

fn image(mebibytes: u64) -> MemoryDevice {
    let size = ByteLen::new(mebibytes << 20);
    let device = MemoryDevice::new(vec![0; size.get() as usize]);
    let mut options = MakeOptions::new(Version::Ufs1, size);
    (options.block_size, options.fragment_size) = (8192, 1024);
    make(&device, &options).expect("made");
    device
}

/// Processor time of this thread, in seconds.
fn processor() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// 70,000 files of 0 to 8 KiB in 7,000 directories of 70.
fn unpack(live: &mut FfsLive) {
    let bytes = vec![0x5A; 8192];
    let root = live.root();
    for top in 0..100u32 {
        let category = mkdir(live, root, top);
        for sub in 0..70 {
            let port = mkdir(live, category, sub);
            for n in 0..10u32 {
                let file = live.make(port, name(n).as_bytes(), NewFile::Regular, OWNER);
                let ino = file.expect("made").ino;
                let len = (n * 811 + sub * 577 + top * 131) % 8192;
                live.write(ino, ByteLen::ZERO, &bytes[..len as usize]).expect("written");
            }
        }
    }
}

fn name(n: u32) -> String {
    format!("name-{n}")
}

fn mkdir(live: &mut FfsLive, dir: Ino, n: u32) -> Ino {
    live.make(dir, name(n).as_bytes(), NewFile::Directory, OWNER).expect("made").ino
}

fn lookup(live: &mut FfsLive, dir: Ino, n: u32) -> Ino {
    live.lookup(dir, name(n).as_bytes()).expect("read").expect("there")
}

fn remove(live: &mut FfsLive) {
    let root = live.root();
    for top in 0..100 {
        let category = lookup(live, root, top);
        for sub in 0..70 {
            let port = lookup(live, category, sub);
            for n in 0..10 {
                live.unlink(port, name(n).as_bytes()).expect("removed");
            }
            live.rmdir(category, name(sub).as_bytes()).expect("removed");
        }
        live.rmdir(root, name(top).as_bytes()).expect("removed");
    }
}

struct Run {
    unpack: f64,
    remove: f64,
    counters: Counters,
    cap: usize,
}

fn run(discipline: Discipline) -> Run {
    let device = Arc::new(image(768));
    let mut config = Config::new(discipline);
    config.barriers = false;
    let cap = config.limits.max_softdeps;
    let mut live = FfsLive::open(device, Arc::new(RealClock::new()), config, options()).unwrap();
    let start = processor();
    unpack(&mut live);
    live.sync().expect("written");
    let middle = processor();
    if std::env::var("VERBOSE").is_ok() {
        println!("{discipline} after unpacking: {:?}", live.counters());
    }
    remove(&mut live);
    live.sync().expect("written");
    let end = processor();
    let counters = *live.counters();
    live.unmount().expect("unmounted");
    Run { unpack: middle - start, remove: end - middle, counters, cap }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn processor_time() {
    const PAIRS: usize = 7;
    let (mut soft, mut asynchronous) = (Vec::new(), Vec::new());
    for pair in 0..PAIRS {
        let order = if pair % 2 == 0 { [true, false] } else { [false, true] };
        for is_soft in order {
            if is_soft {
                soft.push(run(Discipline::SoftUpdates));
            } else {
                asynchronous.push(run(Discipline::Async));
            }
        }
    }
    println!("70,000 files in 7,100 directories: seconds of processor time, median of {PAIRS}");
    println!("| | async | softdep | ratio |\n|---|---|---|---|");
    for (what, of) in [
        ("unpack", (|run: &Run| run.unpack) as fn(&Run) -> f64),
        ("remove", |run| run.remove),
        ("both", |run| run.unpack + run.remove),
    ] {
        let pairs = soft.iter().zip(&asynchronous);
        let ratio = median(pairs.map(|(soft, other)| of(soft) / of(other)).collect());
        let (a, s) =
            (median(asynchronous.iter().map(of).collect()), median(soft.iter().map(of).collect()));
        println!("| {what} | {a:.2} | {s:.2} | {ratio:.2} |");
    }
    let (s, a) = (&soft[0], &asynchronous[0].counters);
    let c = &s.counters;
    println!(
        "softdep: {} writes, {} of them with changes undone; most in the graph {} of {}, {} undo bytes",
        c.async_writes + c.sync_writes,
        c.rolled_back_writes,
        c.most_softdeps,
        s.cap,
        c.most_undo.get()
    );
    println!("async: {} writes\n", a.async_writes + a.sync_writes);
}

/// A disk whose requests take their time, which passes on a virtual clock.
struct Timed {
    memory: MemoryDevice,
    model: Mutex<Box<dyn DeviceModel>>,
    clock: Arc<VirtualClock>,
}

impl Timed {
    fn take(&self, request: Request) {
        let now = self.clock.now();
        let mut model = self.model.lock().expect("one thread");
        let done = model.serve(now, request).expect("within the disk");
        self.clock.sleep(Nanos::new(done.saturating_since(now)));
    }
}

impl BlockDevice for Timed {
    fn len(&self) -> ByteLen {
        self.memory.len()
    }

    fn read(&self, at: Lba, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.take(Request::read(at, (buf.len() / 512) as u32));
        self.memory.read(at, buf)
    }

    fn write(&self, at: Lba, buf: &[u8]) -> Result<(), DeviceError> {
        self.take(Request::write(at, (buf.len() / 512) as u32));
        self.memory.write(at, buf)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }
}

fn removal() {
    const FILES: u32 = 16_703;
    println!("removal of {FILES} files with max_softdeps 4,496 on ide-8gb, virtual time");
    println!(
        "| tickdelay | max_limit_hit | rush_requests | run time, s | I/Os |\n|---|---|---|---|---|"
    );
    for tickdelay in [100, 20, 2] {
        let clock = Arc::new(VirtualClock::new());
        let model = Mutex::new(preset("ide-8gb").expect("a preset"));
        let disk = Arc::new(Timed { memory: image(256), model, clock: clock.clone() });
        let mut config = Config::new(Discipline::SoftUpdates);
        config.barriers = false;
        config.limits.max_softdeps = 4496;
        config.limits.tickdelay = tickdelay;
        let mut live = FfsLive::open(disk, clock.clone(), config, options()).expect("open");
        let root = live.root();
        let dir = mkdir(&mut live, root, 0);
        for n in 0..FILES {
            let file = live.make(dir, name(n).as_bytes(), NewFile::Regular, OWNER);
            let ino = file.expect("made").ino;
            live.write(ino, ByteLen::ZERO, &[1; 2000]).expect("written");
        }
        live.sync().expect("written");
        let (before, start) = (*live.counters(), clock.now());
        for n in 0..FILES {
            // What a system call of the time took.
            clock.sleep(Nanos::new(100_000));
            live.unlink(dir, name(n).as_bytes()).expect("removed");
        }
        let (after, end) = (*live.counters(), clock.now());
        let writes = |c: &Counters| c.sync_writes + c.async_writes;
        println!(
            "| {tickdelay} | {} | {} | {:.1} | {} |",
            after.max_limit_hit - before.max_limit_hit,
            after.rush_requests - before.rush_requests,
            end.saturating_since(start) as f64 / 1e9,
            writes(&after) - writes(&before) + after.reads - before.reads,
        );
        live.unmount().expect("unmounted");
    }
}
