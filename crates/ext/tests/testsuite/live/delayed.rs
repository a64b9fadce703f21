//! Delayed allocation: what waits for its place is there for all who look, gets one when it
//! is written back, never runs out of room, and is not shown by a crash before it is there.

use super::interrupted::{Stops, bytes_of, e2fsck};
use super::shapes::{
    INLINE, JOURNALLED, SHAPES, Shape, WITH_EXTENTS, fsck, image, options, replayed,
};
use crate::holes;
use crate::slice::some_or_all;
use seekless_cache::{Config, Discipline, JournalMode};
use seekless_device::{Clock, MemoryDevice, VirtualClock};
use seekless_ext::{ExtImage, ExtLive, LiveOptions};
use seekless_fs::format::OpenOptions;
use seekless_fs::inspect::resolve;
use seekless_fs::operate::{NewFile, Operate, Ownership, RenameMode, SetAttr, XattrMode};
use seekless_fs::{FsError, Inspect};
use seekless_live::tuning;
use seekless_units::{ByteLen, Ino, Nanos};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const OWNER: Ownership = Ownership { uid: 0, gid: 0, perm: 0o644 };
const ORDERED: Discipline = Discipline::Journal(JournalMode::Ordered);
const WRITEBACK: Discipline = Discipline::Journal(JournalMode::Writeback);

fn how(blocks: Option<&str>) -> LiveOptions {
    LiveOptions { delays: Some(true), blocks: blocks.map(Into::into), ..options() }
}

/// Volumes on which contents can wait, and disciplines under which they do.
fn volumes() -> Vec<(Shape, Discipline)> {
    let journalled = JOURNALLED[4..].iter().chain(&INLINE[..3]);
    let journalled = journalled.flat_map(|shape| [(*shape, ORDERED), (*shape, WRITEBACK)]);
    let plain = WITH_EXTENTS.iter().chain(&INLINE[4..]);
    journalled.chain(plain.map(|shape| (*shape, Discipline::Async))).collect()
}

#[test]
fn random_operations_do_what_the_model_does() {
    for (n, (shape, discipline)) in volumes().into_iter().enumerate().step_by(some_or_all(3, 1)) {
        let blocks = [None, Some("ext4-goal=2"), Some("next-free")][n % some_or_all(2, 3)];
        replayed(n, (&shape, discipline), || how(blocks), 3000);
    }
}

#[test]
fn a_full_volume_stays_whole() {
    for (n, (shape, discipline)) in volumes().into_iter().enumerate().step_by(some_or_all(3, 1)) {
        // A journal takes some of it.
        let mebibytes = match (discipline, shape.block) {
            (Discipline::Async, _) => 4,
            (_, 4096) => 10,
            (_, 2048) => 6,
            _ => 5,
        };
        let shape = Shape { mebibytes, ..shape };
        let blocks = [Some("ext4-goal=2"), None][n % 2];
        let full = replayed(7 + n, (&shape, discipline), || how(blocks), 4000);
        assert!(full > 20, "{blocks:?} {discipline} {shape:?}: the volume was never full");
    }
}

/// Also of a file with contents that wait.
#[test]
fn what_cannot_be_mapped_is_refused() {
    let mut used = InUse::plain();
    let file = used.make("file");
    used.write(file, 0, b"waits");
    // The last of 2^32 blocks is not used.
    let most = (u64::from(u32::MAX)) * 4096;
    for at in [most - 3, most, most + 4096, 1 << 50, i64::MAX as u64 - 9] {
        let done = used.live.write(file, ByteLen::new(at), b"beyond");
        assert!(matches!(done, Err(FsError::TooLarge(_))), "{at}: {done:?}");
    }
    assert_eq!((used.waiting(file), used.contents(file)), (1, b"waits".to_vec()));
    let last = used.live.write(file, ByteLen::new(most - 4), b"last").unwrap();
    assert_eq!((last, used.waiting(file)), (4, 2));
    assert_eq!(used.live.attr(file).unwrap().size, most);
    used.live.unmount().unwrap();
    fsck(&used.device, "a file as long as there can be");
}

/// As much as half of the cache may wait, also where it becomes smaller.
#[test]
fn contents_get_their_places_when_the_cache_shrinks() {
    let mut used = InUse::plain();
    let (first, second) = (used.make("first"), used.make("second"));
    let (long, short) = (pattern(1, 0..1 << 20), pattern(2, 0..512 << 10));
    used.write(first, 0, &long);
    used.write(second, 0, &short);
    assert_eq!((used.waiting(first), used.waiting(second)), (256, 128));
    let limits = tuning::config(&used.live).limits;
    tuning::adjust(&mut used.live, limits, ByteLen::new(3 << 20)).unwrap();
    assert_eq!((used.waiting(first), used.waiting(second)), (256, 128));
    tuning::adjust(&mut used.live, limits, ByteLen::new(1 << 20)).unwrap();
    assert_eq!((used.waiting(first), used.waiting(second)), (0, 128));
    assert!(used.contents(first) == long && used.contents(second) == short);
    used.make("third");
    assert_eq!(used.waiting(second), 128);
    used.finish("a cache that became smaller");
}

/// A volume in use, and its clock.
struct InUse {
    device: Arc<MemoryDevice>,
    clock: Arc<VirtualClock>,
    live: ExtLive,
}

const PLAIN: Shape = Shape { kind: "ext4", block: 4096, mebibytes: 32, how: &["-J", "size=4"] };

impl InUse {
    fn new(shape: &Shape, discipline: Discipline, how: LiveOptions) -> Self {
        let device = image(shape);
        let clock = Arc::new(VirtualClock::new());
        let mut config = Config::new(discipline);
        config.capacity = ByteLen::new(4 << 20);
        let live = ExtLive::open(device.clone(), clock.clone(), config, how).unwrap();
        Self { device, clock, live }
    }

    fn plain() -> Self {
        Self::new(&PLAIN, ORDERED, how(None))
    }

    fn make(&mut self, name: &str) -> Ino {
        make(&mut self.live, name)
    }

    fn write(&mut self, ino: Ino, at: usize, bytes: &[u8]) {
        write(&mut self.live, ino, at, bytes).unwrap();
    }

    fn contents(&mut self, ino: Ino) -> Vec<u8> {
        let size = self.live.attr(ino).unwrap().size as usize;
        let mut bytes = vec![0xEE; size];
        assert_eq!(self.live.read(ino, ByteLen::ZERO, &mut bytes).unwrap(), size);
        bytes
    }

    /// Blocks of a file that have no place.
    fn waiting(&mut self, ino: Ino) -> u64 {
        self.live.parts().1.delayed.blocks_of(ino)
    }

    fn seconds(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.clock.sleep(Nanos::new(1_000_000_000));
            self.live.tick().unwrap();
        }
    }

    fn finish(mut self, what: &str) -> ExtImage {
        self.live.unmount().unwrap();
        fsck(&self.device, what);
        ExtImage::open(self.device, OpenOptions::default()).unwrap()
    }
}

fn make(live: &mut ExtLive, name: &str) -> Ino {
    let root = live.root();
    live.make(root, name.as_bytes(), NewFile::Regular, OWNER).unwrap().ino
}

fn write(live: &mut ExtLive, ino: Ino, at: usize, bytes: &[u8]) -> Result<usize, FsError> {
    live.write(ino, ByteLen::new(at as u64), bytes)
}

/// Bytes none of which is zero, nor what the volume held before.
fn pattern(seed: usize, range: std::ops::Range<usize>) -> Vec<u8> {
    range.map(|at| ((at * 7 + at / 509 + seed * 31) % 100) as u8 + 1).collect()
}

#[test]
fn what_waits_is_there_for_all_who_look() {
    let mut volume = InUse::plain();
    let free = volume.live.space().free;
    let ino = volume.make("file");
    let before = volume.live.space().free;
    assert_eq!(before, free);
    volume.write(ino, 0, &pattern(1, 0..10_000));
    volume.write(ino, 5000, &pattern(2, 0..100));
    volume.write(ino, 50_000, b"far");
    let mut wanted = pattern(1, 0..10_000);
    wanted[5000..5100].copy_from_slice(&pattern(2, 0..100));
    wanted.resize(50_000, 0);
    wanted.extend(b"far");
    assert_eq!(volume.contents(ino), wanted);
    assert_eq!(volume.waiting(ino), 4);
    // Counted as a mount does: blocks of the file, and not free any more.
    assert_eq!(volume.live.attr(ino).unwrap().sectors, 4 * 8);
    assert_eq!(volume.live.space().free, before - 4);
    volume.live.sync().unwrap();
    assert_eq!(volume.waiting(ino), 0);
    assert_eq!(volume.live.attr(ino).unwrap().sectors, 4 * 8);
    assert_eq!(volume.live.space().free, before - 4);
    // Over what has a place, and behind it.
    volume.write(ino, 9990, &pattern(3, 0..5000));
    wanted[9990..14_990].copy_from_slice(&pattern(3, 0..5000));
    assert_eq!(volume.waiting(ino), 1);
    assert_eq!(volume.contents(ino), wanted);
    // Who asks for the map sees all of it.
    let runs = volume.live.data_runs(ino).unwrap();
    assert_eq!(runs.iter().map(|run| run.extent.len).sum::<u64>(), 5);
    assert_eq!(volume.waiting(ino), 0);
    let image = volume.finish("shown");
    let ino = resolve(&image, b"/file").unwrap();
    let mut bytes = vec![0; wanted.len()];
    let mut done = 0;
    while done < bytes.len() {
        done += image.read(ino, ByteLen::new(done as u64), &mut bytes[done..]).unwrap();
    }
    assert_eq!(bytes, wanted);
}

#[test]
fn contents_are_written_back_when_they_are_old() {
    for discipline in [ORDERED, WRITEBACK] {
        let mut volume = InUse::new(&PLAIN, discipline, how(Some("next-free")));
        let (one, two) = (volume.make("one"), volume.make("two"));
        // In turns, and many transactions are committed meanwhile.
        for n in 0..20 {
            volume.write(one, n * 4096, &pattern(1, 0..4096));
            volume.write(two, n * 4096, &pattern(2, 0..4096));
            volume.seconds(1);
        }
        volume.seconds(9);
        assert_eq!([volume.waiting(one), volume.waiting(two)], [20; 2]);
        let due = volume.live.next_due().unwrap();
        assert!(due <= Nanos::new(35_000_000_000), "{due}");
        let written = volume.live.counters().written_bytes;
        volume.seconds(6);
        assert_eq!([volume.waiting(one), volume.waiting(two)], [0; 2]);
        // Each at once, and they are on their way.
        assert_eq!(volume.live.data_runs(one).unwrap().len(), 1);
        assert_eq!(volume.live.data_runs(two).unwrap().len(), 1);
        let written = volume.live.counters().written_bytes - written;
        assert!(written >= 40 * 4096, "{discipline}: {written} bytes");
        volume.finish("aged");
    }
}

#[test]
fn files_that_go_before_they_are_written_back_cost_nothing() {
    let mut volume = InUse::plain();
    volume.live.sync().unwrap();
    let written = volume.live.counters().written_bytes;
    let root = volume.live.root();
    for n in 0..60 {
        let ino = volume.make("temporary");
        volume.write(ino, 0, &pattern(n, 0..40_000));
        volume.seconds(2);
        volume.live.unlink(root, b"temporary").unwrap();
    }
    volume.live.sync().unwrap();
    let written = volume.live.counters().written_bytes - written;
    assert!(written < 60 * 20_000, "{written} bytes");
    volume.finish("gone");
}

/// There is never more in memory than half of the cache, besides one write.
#[test]
fn there_is_a_limit_to_what_waits() {
    let mut volume = InUse::plain();
    let ino = volume.make("large");
    for n in 0..48 {
        volume.write(ino, n << 18, &pattern(n, 0..1 << 18));
        let waiting = volume.waiting(ino) * 4096;
        assert!(waiting <= (2 << 20) + (1 << 18), "{waiting} bytes");
    }
    for n in 0..48 {
        let mut bytes = vec![0; 1 << 18];
        volume.live.read(ino, ByteLen::new(n << 18), &mut bytes).unwrap();
        assert!(bytes == pattern(n as usize, 0..1 << 18), "piece {n}");
    }
    assert!(volume.live.data_runs(ino).unwrap().len() < 12);
    volume.finish("large");
}

/// Who replaces a file by renaming or by cutting it off, and does not wait for it.
#[test]
fn what_replaces_a_file_is_written_back_at_once() {
    let mut volume = InUse::plain();
    let root = volume.live.root();
    let old = volume.make("file");
    volume.write(old, 0, &pattern(1, 0..9000));
    volume.live.sync().unwrap();
    let new = volume.make("new");
    volume.write(new, 0, &pattern(2, 0..9000));
    assert_eq!(volume.waiting(new), 3);
    volume.live.rename((root, b"new"), (root, b"moved"), RenameMode::Replace).unwrap();
    assert_eq!(volume.waiting(new), 3, "nothing was replaced");
    volume.live.rename((root, b"moved"), (root, b"file"), RenameMode::Replace).unwrap();
    assert_eq!(volume.waiting(new), 0);
    // Cut off while somebody has it open, and closed.
    volume.live.hold(new).unwrap();
    volume.live.set_attr(new, &SetAttr { size: Some(0), ..SetAttr::default() }).unwrap();
    volume.write(new, 0, &pattern(3, 0..9000));
    assert_eq!(volume.waiting(new), 3);
    volume.live.release(new).unwrap();
    assert_eq!(volume.waiting(new), 0);
    // Where closing is not seen, a few seconds later.
    volume.live.hold(new).unwrap();
    volume.live.set_attr(new, &SetAttr { size: Some(0), ..SetAttr::default() }).unwrap();
    volume.write(new, 0, &pattern(4, 0..9000));
    volume.seconds(6);
    assert_eq!(volume.waiting(new), 0);
    volume.live.release(new).unwrap();
    assert_eq!(volume.contents(new), pattern(4, 0..9000));
    volume.finish("replaced");
}

#[test]
fn what_was_allocated_before_does_not_wait() {
    let mut volume = InUse::plain();
    let ino = volume.make("file");
    let [from, len] = [40_960, 40_960].map(ByteLen::new);
    volume.write(ino, 0, &pattern(1, 0..20_000));
    volume.live.allocate(ino, from, len, true).unwrap();
    assert_eq!(volume.waiting(ino), 0, "its map was asked for");
    volume.write(ino, 20_480, &pattern(1, 20_480..30_000));
    assert_eq!(volume.waiting(ino), 3);
    // What was never written is so no more, and the disk is told of the length.
    volume.write(ino, 40_960, &pattern(1, 40_960..45_056));
    assert_eq!(volume.waiting(ino), 0);
    volume.write(ino, 70_000, &pattern(1, 70_000..90_000));
    volume.write(ino, 90_112, &pattern(1, 90_112..99_000));
    let mut wanted = pattern(1, 0..99_000);
    for hole in [20_000..20_480, 30_000..40_960, 45_056..70_000, 90_000..90_112] {
        wanted[hole].fill(0);
    }
    assert!(volume.contents(ino) == wanted);
    volume.live.fsync(ino).unwrap();
    fsck_p(&volume.device, "allocated");
    assert!(volume.contents(ino) == wanted);
    // Shorter, in the middle of what waits, and longer again.
    volume.write(ino, 200_000, &pattern(1, 0..9000));
    for size in [203_000, 150_000, 210_000] {
        let set = SetAttr { size: Some(size), ..SetAttr::default() };
        volume.live.set_attr(ino, &set).unwrap();
        wanted.resize(200_000, 0);
        wanted.extend(pattern(1, 0..9000));
        wanted.truncate(if size == 210_000 { 150_000 } else { size as usize });
        wanted.resize(size as usize, 0);
        assert!(volume.contents(ino) == wanted, "{size}");
    }
    volume.finish("allocated");
}

/// What a crash would leave now is recovered, and nothing is found.
fn fsck_p(device: &MemoryDevice, what: &str) {
    let (code, said, after) = e2fsck(&bytes_of(device), "-p");
    assert!(code.is_some_and(|code| code <= 1), "{what}: {said}");
    let (code, said, _) = e2fsck(&after, "-fn");
    assert_eq!(code, Some(0), "{what}: {said}");
}

#[test]
fn where_nothing_can_wait_that_is_said_by_name() {
    let data = Discipline::Journal(JournalMode::Data);
    for (shape, discipline, named) in [
        (&JOURNALLED[6], data, "journal=data"),
        (&JOURNALLED[1], ORDERED, "extent"),
        (&SHAPES[0], Discipline::SoftUpdates, "extent"),
        (&WITH_EXTENTS[0], Discipline::Sync, "sync"),
        (&WITH_EXTENTS[0], Discipline::Normal, "normal"),
    ] {
        let open = |how| {
            let clock = Arc::new(VirtualClock::new());
            ExtLive::open(image(shape), clock, Config::new(discipline), how)
        };
        match open(how(None)) {
            Err(FsError::Unsupported(why)) => {
                assert!(why.contains("delalloc") && why.contains(named), "{why}");
            }
            other => panic!("{named}: {:?}", other.map(drop)),
        }
        // By default it does without.
        open(LiveOptions { delays: None, ..how(Some("ext4-goal")) }).unwrap();
    }
}

#[test]
fn contents_wait_by_default_where_files_are_placed_as_ext4_places_them() {
    for (blocks, delays, waits) in [
        (None, None, 0),
        (Some("ext4-goal=2"), None, 2),
        (Some("ext4-goal"), Some(false), 0),
        (Some("next-free"), None, 0),
        (None, Some(true), 2),
    ] {
        let how = LiveOptions { delays, ..how(blocks) };
        let mut volume = InUse::new(&PLAIN, WRITEBACK, how);
        let ino = volume.make("file");
        volume.write(ino, 0, &[1; 5000]);
        assert_eq!(volume.waiting(ino), waits, "{blocks:?} {delays:?}");
        volume.finish("default");
    }
}

/// As many bytes as a volume takes, file by file, each written in pieces; it says when
/// it is full, and what it took it has.
fn filled(shape: &Shape, discipline: Discipline, delays: bool, piece: usize) -> u64 {
    let what = format!("{discipline} {shape:?} {delays} {piece}");
    let how = LiveOptions { delays: Some(delays), ..how(Some("ext4-goal")) };
    let mut volume = InUse::new(shape, discipline, how);
    volume.live.sync().unwrap();
    let before = volume.live.space().free;
    let mut sizes = Vec::new();
    let mut is_full = false;
    while !is_full {
        let ino = volume.make(&format!("file{}", sizes.len()));
        let mut size = 0;
        while size < 300_000 && !is_full {
            let bytes = pattern(sizes.len(), size..size + piece);
            // Every other block only, so that the map has many extents.
            match write(&mut volume.live, ino, size * 2, &bytes) {
                Ok(done) => {
                    size += done;
                    is_full = done < piece;
                }
                Err(FsError::NoSpace(_)) => is_full = true,
                Err(error) => panic!("{what}: {error}"),
            }
        }
        sizes.push((ino, size));
    }
    volume.live.sync().unwrap();
    let total: usize = sizes.iter().map(|(_, size)| size).sum();
    assert!(volume.live.space().free < 3, "{what}: {} blocks are free", volume.live.space().free);
    for (n, &(ino, size)) in sizes.iter().enumerate() {
        for at in (0..size).step_by(piece) {
            let len = piece.min(size - at);
            let mut bytes = vec![0; len];
            volume.live.read(ino, ByteLen::new(2 * at as u64), &mut bytes).unwrap();
            assert!(bytes == pattern(n, at..at + len), "{what}: file {n} at {at}");
        }
    }
    let root = volume.live.root();
    for n in 0..sizes.len() {
        volume.live.unlink(root, format!("file{n}").as_bytes()).unwrap();
    }
    volume.live.sync().unwrap();
    // The directory keeps its blocks.
    let after = volume.live.space().free;
    assert!(before - after < 4, "{what}: {after} of {before} blocks came back");
    volume.finish(&what);
    total as u64
}

#[test]
fn a_volume_is_full_at_the_write_and_no_sooner() {
    for (shape, discipline) in [
        (Shape { mebibytes: 10, ..PLAIN }, ORDERED),
        (Shape { mebibytes: 5, ..JOURNALLED[7] }, WRITEBACK),
        (Shape { mebibytes: 4, ..WITH_EXTENTS[1] }, Discipline::Async),
    ] {
        for piece in [shape.block as usize, 3000, 50_000] {
            let [at_once, later] =
                [false, true].map(|delays| filled(&shape, discipline, delays, piece));
            // But for blocks of the map, of which there are fewer where runs are longer.
            let least = at_once - 4 * u64::from(shape.block);
            assert!(later >= least, "{shape:?} {piece}: {later} bytes of {at_once}");
        }
    }
}

/// What is done, until a write fails.
fn grow(live: &mut ExtLive, clock: &VirtualClock) -> Result<(), FsError> {
    let root = live.root();
    let new = |live: &mut ExtLive, name: &[u8]| -> Result<Ino, FsError> {
        Ok(live.make(root, name, NewFile::Regular, OWNER)?.ino)
    };
    let grown = new(live, b"grown")?;
    let cut = new(live, b"cut")?;
    write(live, cut, 0, &pattern(5, 0..9000))?;
    let target = new(live, b"target")?;
    write(live, target, 0, &pattern(7, 0..20_000))?;
    live.fsync(target)?;
    let mut size = 0;
    for round in 0..12 {
        for _ in 0..4 {
            let len = 700 + 450 * round;
            write(live, grown, size, &pattern(3, size..size + len))?;
            size += len;
        }
        let other = new(live, format!("other{round}").as_bytes())?;
        write(live, other, 0, &pattern(9, 0..3000 * round + 1))?;
        match round % 4 {
            1 => live.fsync(other)?,
            2 => {
                let set = SetAttr { size: Some(0), ..SetAttr::default() };
                live.set_attr(cut, &set)?;
                write(live, cut, 0, &pattern(5, 0..4000 * round))?;
            }
            0 => {
                // The block of these attributes is entered where the length stands.
                let other = new(live, format!("labelled{round}").as_bytes())?;
                write(live, other, 0, &pattern(9, 0..5000))?;
                live.set_xattr(other, b"user.label", &[1; 400], XattrMode::Any)?;
            }
            3 => {
                let temporary = new(live, b"temporary")?;
                write(live, temporary, 0, &pattern(7, 0..20_000 + 1000 * round))?;
                live.rename((root, b"temporary"), (root, b"target"), RenameMode::Replace)?;
            }
            _ => {}
        }
        for _ in 0..7 {
            clock.sleep(Nanos::new(1_000_000_000));
            live.tick()?;
        }
    }
    live.unmount()
}

/// A file that grows shows after a crash what was appended up to its length: neither zeros,
/// nor what the disk held before. One that was replaced is the old one or the new one.
#[test]
fn no_file_is_longer_than_what_it_holds() {
    let shape = Shape { kind: "ext4", block: 1024, mebibytes: 8, how: &["-J", "size=1"] };
    let start = bytes_of(image(&shape).as_ref());
    let run = |writes: u64| {
        let inner = MemoryDevice::new(holes::copy(&start));
        let device = Arc::new(Stops { inner, left: AtomicU64::new(writes) });
        let clock = Arc::new(VirtualClock::new());
        // Blocks go out one after the other.
        let config = Config { cluster: ByteLen::new(1024), ..Config::new(ORDERED) };
        let live = ExtLive::open(device.clone(), clock.clone(), config, how(Some("ext4-goal")));
        let done = live.and_then(|mut live| grow(&mut live, &clock));
        (bytes_of(&device.inner), done.is_ok(), writes - device.left.load(Ordering::Relaxed))
    };
    let (_, done, all) = run(1 << 40);
    assert!(done && all > 200, "{all} writes");
    let (mut shown, mut had_target) = (0, false);
    let step = some_or_all(12, 3);
    for writes in (0..all).step_by(step) {
        let (bytes, done, _) = run(writes);
        assert!(!done);
        let (code, said, after) = e2fsck(&bytes, "-p");
        assert!(code.is_some_and(|code| code <= 1), "{writes}: {said}");
        let (code, said, _) = e2fsck(&after, "-fn");
        assert_eq!(code, Some(0), "{writes}: {said}");
        let device = Arc::new(MemoryDevice::new(after));
        let image = ExtImage::open(device, OpenOptions::default()).unwrap();
        let held = |name: &str| -> Option<Vec<u8>> {
            let ino = resolve(&image, name.as_bytes()).ok()?;
            let mut bytes = vec![0; image.attr(ino).unwrap().size as usize];
            let mut done = 0;
            while done < bytes.len() {
                done += image.read(ino, ByteLen::new(done as u64), &mut bytes[done..]).unwrap();
            }
            Some(bytes)
        };
        let others = (0..12).flat_map(|n| [format!("/other{n}"), format!("/labelled{n}")]);
        let others = others.map(|name| (name, 9));
        for (name, seed) in others.chain([("/grown".into(), 3), ("/cut".into(), 5)]) {
            let Some(bytes) = held(&name) else { continue };
            assert!(bytes == pattern(seed, 0..bytes.len()), "{writes}: {name}");
            shown += usize::from(!bytes.is_empty());
        }
        let target = held("/target").unwrap_or_default();
        let is_whole = [20_000, 23_000, 27_000, 31_000].contains(&target.len());
        // It was waited for at first.
        assert!(is_whole || (!had_target && target.is_empty()), "{writes}: {}", target.len());
        assert!(target == pattern(7, 0..target.len()), "{writes}: target");
        had_target |= is_whole;
    }
    assert!(shown > 300 / step, "{shown}");
}
