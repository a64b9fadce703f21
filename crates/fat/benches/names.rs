//! Names of one beginning, which differ in what a short name has no room for, made in one
//! directory: `cargo bench -p seekless-fat --bench names`.

#![allow(missing_docs)]

use seekless_cache::{Config, Discipline};
use seekless_device::{Clock, MemoryDevice, VirtualClock};
use seekless_fat::{FatLive, FatWidth, LiveOptions, MakeOptions, make};
use seekless_fs::operate::{NewFile, Operate, Ownership};
use seekless_fs::{FsError, Timestamp};
use seekless_units::ByteLen;
use std::sync::Arc;
use std::time::{Duration, Instant};

const NAMES: u32 = 10_000;
const SIZE: u64 = 64 << 20;
const OWNER: Ownership = Ownership { uid: 0, gid: 0, perm: 0o644 };

fn options() -> LiveOptions {
    let wall = Box::new(|| Timestamp { secs: 1_700_000_000, nanos: 0 });
    LiveOptions { clusters: None, seed: 1, zone: 0, force: false, wall }
}

/// How long it takes to make them, and to find each of them by its short name.
fn names(discipline: Discipline) -> Result<(Duration, Duration), FsError> {
    let device = Arc::new(MemoryDevice::new(vec![0; SIZE as usize]));
    make(device.as_ref(), &MakeOptions::new(Some(FatWidth::Fat32), ByteLen::new(SIZE)))?;
    let clock = Arc::new(VirtualClock::new()) as Arc<dyn Clock>;
    let mut live = FatLive::open(device, clock, Config::new(discipline), options())?;
    let dir = live.make(live.root(), b"many", NewFile::Directory, OWNER)?.ino;
    let start = Instant::now();
    for n in 0..NAMES {
        live.make(dir, format!("a long beginning {n}.text").as_bytes(), NewFile::Regular, OWNER)?;
    }
    let made = start.elapsed();
    let start = Instant::now();
    for n in 1..=NAMES {
        let stem = "ALONGB";
        let tail = format!("~{n}");
        let name = format!("{}{tail}.TEX", &stem[..stem.len().min(8 - tail.len())]);
        let found = live.lookup(dir, name.as_bytes())?;
        found.ok_or(FsError::NotFound(name))?;
    }
    let found = start.elapsed();
    live.unmount()?;
    Ok((made, found))
}

fn main() -> Result<(), FsError> {
    for discipline in Discipline::ALL {
        let mut best = (Duration::MAX, Duration::MAX);
        for _ in 0..5 {
            let (made, found) = names(discipline)?;
            best = (best.0.min(made), best.1.min(found));
        }
        let ms = |span: Duration| span.as_secs_f64() * 1e3;
        println!(
            "{discipline}: {NAMES} names made in {:.0} ms, found by their short names in {:.0} ms",
            ms(best.0),
            ms(best.1)
        );
    }
    Ok(())
}
