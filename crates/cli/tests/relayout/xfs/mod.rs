//! `seekless relayout` with the kernel's XFS. xfs_bmap judges the layout: it queries blocks through
//! another system call than the command.

mod harmed;
mod left;
mod volume;

use super::judges::{Mounted, Scratch, manifest, run, same};
use super::{account, hot, import, in_memory, number, relayout, scatter, trace_of};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};
use volume::Volume;

/// Tolerance of the account of a volume, in blocks of 512 bytes: the trees of free space and of
/// files change their size.
const TREES: i64 = 512;

/// A new volume, filled and mounted; returns volume, mount and the paths of its files.
fn prepare(
    scratch: &Scratch,
    options: &[&str],
    size: &str,
    files: usize,
) -> Option<(Volume, Mounted, Vec<String>)> {
    let volume = Volume::new(scratch, options, size)?;
    let mounted = volume.mount(scratch);
    let paths = scatter(mounted.path(), files, 7);
    Some((volume, mounted, paths))
}

/// Extents of these files, as first and last sectors.
fn places(mounted: &Mounted, paths: &[String]) -> Vec<Vec<(u64, u64)>> {
    paths.iter().map(|path| sectors_of(&mounted.path().join(&path[1..]))).collect()
}

/// Parses lines of xfs_bmap: `0: [0..47]: 192..239`, or `hole`. Unwritten extents have flags, and
/// are left out.
fn sectors_of(path: &Path) -> Vec<(u64, u64)> {
    let listed = run("xfs_bmap", &["-v", "-p", path.to_str().expect("path")]);
    let unwritten = |line: &str| {
        line.split_whitespace().last().is_some_and(|flags| {
            flags.len() > 5 && flags.starts_with('0') && flags.as_bytes()[1] == b'1'
        })
    };
    listed
        .lines()
        .filter(|line| !unwritten(line))
        .filter_map(|line| {
            let (first, last) = line.split_whitespace().nth(2)?.split_once("..")?;
            Some((first.parse().ok()?, last.parse().ok()?))
        })
        .collect()
}

/// Seeks during a sequential read of the files.
fn seeks(places: &[Vec<(u64, u64)>]) -> usize {
    let all: Vec<&(u64, u64)> = places.iter().flatten().collect();
    all.windows(2).filter(|pair| pair[0].1 + 1 != pair[1].0).count()
}

/// Fails if blocks are missing or still in use. XFS frees deleted files in the background, a moment
/// after they are closed (`xfs_inodegc_queue`).
fn same_account(before: i64, mounted: &Mounted) {
    let start = Instant::now();
    loop {
        let after = account(mounted.text());
        if (before - after).abs() <= TREES {
            return;
        }
        let is_late = start.elapsed() > Duration::from_secs(60);
        assert!(!is_late, "blocks are missing: {before}, {after}");
        sleep(Duration::from_millis(50));
    }
}

/// Times in nanoseconds, sizes and blocks of all files.
fn stat(mounted: &Mounted) -> String {
    let listed = run("find", &[mounted.text(), "-printf", "%P %m %s %b %T@ %C@ %A@\n"]);
    let mut lines: Vec<&str> = listed.lines().collect();
    lines.sort_unstable();
    lines.join("\n")
}

/// A file that is exchanged in several parts; the last one ends within a block.
fn long(mounted: &Mounted) -> String {
    let open = |name| std::fs::File::create(mounted.path().join(name)).expect("create");
    let (long, other) = (open("long"), open("other"));
    for at in 0..20u64 {
        let bytes: Vec<u8> = (0..1 << 20).map(|byte: u64| (byte * 7 + at) as u8).collect();
        long.write_all_at(&bytes, at << 20).expect("write");
        other.write_all_at(&bytes[..70_000], at << 20).expect("write");
        long.sync_data().expect("sync");
        other.sync_data().expect("sync");
    }
    long.write_all_at(&[1; 1234], 20 << 20).expect("write");
    long.sync_all().expect("sync");
    "/long".into()
}

fn judge(name: &str, options: &[&str], files: usize) {
    let scratch = Scratch::on_disk(name);
    let Some((volume, mounted, paths)) = prepare(&scratch, options, "320M", files) else { return };
    let mut hot = hot(&paths, 4);
    hot.insert(7, long(&mounted));
    let trace = import(&scratch, &hot);
    // Access times are up to date after this read.
    let listing = manifest(mounted.text(), &[]);
    let held = account(mounted.text());
    let (old, kept) = (places(&mounted, &hot), stat(&mounted));
    let told = relayout(mounted.text(), &trace, &["--dry-run"]);
    assert!(number(&told, "/moved_in_bytes") > 0, "{told}");
    assert_eq!(old, places(&mounted, &hot), "a trial has moved something");
    volume.unmount(mounted);

    let mounted = volume.mount(&scratch);
    let done = relayout(mounted.text(), &trace, &[]);
    // No process has read them since the mount.
    assert_eq!(in_memory(&mounted, &hot), 0, "files are in memory only because they were moved");
    same("attributes", &kept, &stat(&mounted));
    same_account(held, &mounted);
    let new = places(&mounted, &hot);
    same("contents", &listing, &manifest(mounted.text(), &[]));
    volume.unmount(mounted);
    volume.check();

    // Read from the disk; and a second run has nothing to do.
    let mounted = volume.mount(&scratch);
    same("contents on the disk", &listing, &manifest(mounted.text(), &[]));
    let again = relayout(mounted.text(), &trace, &[]);
    assert_eq!(number(&again, "/moved_in_bytes"), 0, "{again}");
    assert_eq!(number(&again, "/in_place_bytes"), number(&done, "/touched_bytes"), "{again}");
    volume.unmount(mounted);
    volume.check();

    let (before, after) = (seeks(&old), seeks(&new));
    println!("{name}: {before} seeks by xfs_bmap, {after} after; {done}");
    assert_eq!(number(&done, "/left_bytes"), 0, "{done}");
    assert_eq!(number(&done, "/moved_in_bytes"), number(&done, "/touched_bytes"), "{done}");
    assert!(before > hot.len() && after * 20 <= before, "{before} {after}");
    let runs = |places: &[Vec<(u64, u64)>]| places.iter().map(Vec::len).sum::<usize>();
    assert!(runs(&new) < runs(&old), "{} {}", runs(&old), runs(&new));
    let (low, high) = ("/data_seeks/before", "/data_seeks/after");
    assert_eq!(number(&told, low), number(&done, low));
    assert!(number(&done, high) * 20 <= number(&done, low), "{done}");
    // The trial predicts the result.
    assert!(number(&told, high).abs_diff(number(&done, high)) * 20 <= number(&done, low), "{told}");
}

#[test]
fn files_lie_together_with_blocks_of_4k() {
    judge("relayout-xfs", &[], 1500);
}

/// Four blocks per page; file times have 32 bits, and blocks cannot be shared.
#[test]
fn files_lie_together_with_blocks_of_1k() {
    judge("relayout-xfs-1k", &["-b", "size=1024", "-m", "reflink=0,bigtime=0"], 1500);
}

/// The new layout begins at a chunk, and stays within the budget.
#[test]
fn a_budget_and_a_chunk() {
    let scratch = Scratch::on_disk("relayout-xfs-budget");
    let Some((volume, mounted, paths)) = prepare(&scratch, &[], "320M", 900) else { return };
    let trace = trace_of(&scratch, &paths, 4);
    let hot = hot(&paths, 4);
    let args = ["--budget", "500K", "--chunk", "1M"];
    let done = relayout(mounted.text(), &trace, &args);
    assert_eq!(done["stopped"], "budget", "{done}");
    let moved = number(&done, "/moved_in_bytes");
    assert!(moved > 100 << 10 && moved <= 500 << 10, "{moved}");
    assert_eq!(moved + number(&done, "/left_bytes"), number(&done, "/touched_bytes"), "{done}");
    // Data accessed first comes first.
    let first = places(&mounted, &hot)[0][0].0;
    assert_eq!(first * 512 % (1 << 20), 0, "sector {first}");
    volume.unmount(mounted);
    volume.check();
}

fn available(mounted: &Mounted) -> u64 {
    let blocks = run("stat", &["-f", "-c", "%a", mounted.text()]);
    blocks.trim().parse().expect("blocks")
}

/// Allocates all free blocks except `leave`, the longest runs first. Blocks that the kernel
/// reserved meanwhile become free only afterwards, and are allocated then.
fn take_but(mounted: &Mounted, leave: u64) {
    for part in 0..8 {
        let left = available(mounted).saturating_sub(leave);
        if part > 0 && left <= 32 {
            return;
        }
        let path = mounted.path().join(format!("taken-but-{leave}-{part}"));
        let len = (left * 4096).max(1).to_string();
        let _ = std::process::Command::new("fallocate").args(["-l", &len]).arg(path).output();
        run("sync", &["-f", mounted.text()]);
    }
}

/// All free space is between small files: the gain is smaller, and no data is lost.
#[test]
fn free_space_in_small_pieces() {
    let scratch = Scratch::on_disk("relayout-xfs-pieces");
    // XFS reserves blocks for these features and counts them as used, about 4096 even without them:
    // more than that must be in small pieces, or the reserved ones are in a long run.
    let options = ["-m", "reflink=0,finobt=0"];
    let Some((volume, mounted, paths)) = prepare(&scratch, &options, "320M", 1500) else { return };
    let trace = trace_of(&scratch, &paths, 4);
    take_but(&mounted, 20_000);
    let small = |n: usize| mounted.path().join(format!("s{n}"));
    let mut count = 0;
    while available(&mounted) > 200 {
        std::fs::write(small(count), vec![7; 4096 * (1 + count % 6)]).expect("write");
        count += 1;
        if count % 64 == 0 {
            run("sync", &["-f", mounted.text()]);
        }
    }
    for n in (0..count).step_by(2) {
        std::fs::remove_file(small(n)).expect("remove");
    }
    run("sync", &["-f", mounted.text()]);
    take_but(&mounted, 3000);
    let (held, listing) = (account(mounted.text()), manifest(mounted.text(), &[]));
    let done = relayout(mounted.text(), &trace, &[]);
    println!("{count} small files: {done}");
    let (before, after) = (number(&done, "/data_seeks/before"), number(&done, "/data_seeks/after"));
    assert!(after * 10 <= before * 8, "{done}");
    same_account(held, &mounted);
    same("contents", &listing, &manifest(mounted.text(), &[]));
    volume.unmount(mounted);
    volume.check();
}

/// A nearly full volume: data that fits is moved, and its old space is free again.
#[test]
fn a_full_volume() {
    let scratch = Scratch::on_disk("relayout-xfs-full");
    let Some((volume, mounted, paths)) = prepare(&scratch, &[], "320M", 1500) else { return };
    for (leave, every) in [(600, 4), (40, 3), (0, 5)] {
        let trace = trace_of(&scratch, &paths, every);
        take_but(&mounted, leave);
        assert!(available(&mounted) <= leave + 64, "{} blocks are free", available(&mounted));
        let (held, listing) = (account(mounted.text()), manifest(mounted.text(), &[]));
        let done = relayout(mounted.text(), &trace, &[]);
        println!("{leave} blocks are free: {done}");
        if leave == 600 {
            assert!(number(&done, "/moved_in_bytes") > 0, "{done}");
        } else {
            assert!(
                number(&done, "/data_seeks/after") <= number(&done, "/data_seeks/before"),
                "{done}"
            );
        }
        same_account(held, &mounted);
        same("contents", &listing, &manifest(mounted.text(), &[]));
    }
    volume.unmount(mounted);
    volume.check();
}
