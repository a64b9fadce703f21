//! Files of a mounted ext4 or XFS moved by `seekless relayout`, with the kernel's own drivers: the
//! gain, the effects on other processes, and the state after a kill. Needs root, loop devices,
//! e2fsprogs and xfsprogs; reports and passes without them.

#[path = "../judges/mod.rs"]
mod judges;

mod killed;
mod refused;
mod watch;
mod writers;
mod xfs;

use judges::{Mounted, Scratch, can_mount, manifest, run, same, seekless, text};
use seekless_device::FileDevice;
use seekless_ext::ExtImage;
use seekless_fs::format::OpenOptions;
use seekless_fs::inspect::resolve;
use seekless_fs::{Inspect, Mapping};
use seekless_host::donor::{Blocks, Donor};
use seekless_host::fiemap::extents;
use seekless_host::residency::resident;
use serde_json::Value;
use std::fs::{self, File, OpenOptions as Open};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// Pseudo-random numbers, the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) as usize % end
    }
}

/// Makes files with interleaved pieces: written in turns, with a sync after each piece, and some of
/// them removed again.
fn scatter(dir: &Path, files: usize, seed: u64) -> Vec<String> {
    let mut random = Random(seed);
    let path = |n: usize| format!("/d{}/f{n}", n % 23);
    for n in 0..23 {
        fs::create_dir_all(dir.join(format!("d{n}"))).expect("mkdir");
    }
    for round in 0..3 {
        for n in 0..files {
            if round > 0 && random.below(3) == 0 {
                continue;
            }
            let name = dir.join(&path(n)[1..]);
            let mut file = Open::new().create(true).append(true).open(name).expect("open");
            let len = 500 + random.below(12_000);
            let bytes: Vec<u8> = (0..len).map(|at| (at * 31 + n * 7 + round) as u8).collect();
            file.write_all(&bytes).expect("write");
            if n % 16 == 0 {
                file.sync_data().expect("sync");
            }
        }
        run("sync", &["-f", dir.to_str().expect("path")]);
    }
    let kept = |n: usize| n % 5 != 1;
    for n in (0..files).filter(|n| !kept(*n)) {
        fs::remove_file(dir.join(&path(n)[1..])).expect("remove");
    }
    odd(dir);
    (0..files).filter(|n| kept(*n)).map(path).collect()
}

/// A file with holes, and one with unwritten blocks between others.
fn odd(dir: &Path) {
    let file = File::create(dir.join("holes")).expect("create");
    for n in [0u64, 3, 4, 17, 60, 61, 200] {
        file.write_all_at(&[n as u8 + 1; 5000], n * 8192).expect("write");
    }
    let path = dir.join("unwritten");
    let file = File::create(&path).expect("create");
    run("fallocate", &["-l", "400000", path.to_str().expect("path")]);
    for n in [1u64, 9, 10] {
        file.write_all_at(&[0xAB; 9000], n * 20_000).expect("write");
    }
    file.sync_all().expect("sync");
    drop(file);
    // Blocks beyond its end.
    run("fallocate", &["-n", "-o", "400000", "-l", "100000", path.to_str().expect("path")]);
}

/// Writes a trace of some of these files in shuffled order; returns its path.
fn trace_of(scratch: &Scratch, paths: &[String], every: usize) -> String {
    import(scratch, &hot(paths, every))
}

/// Writes a trace of files read in this order; returns its path.
fn import(scratch: &Scratch, paths: &[String]) -> String {
    let (list, trace) = (scratch.join("list"), scratch.join("trace"));
    fs::write(&list, paths.join("\n") + "\n").expect("write");
    text(&seekless(&["trace", "import", "--paths", &list, "-o", &trace]));
    trace
}

/// Every `every`-th path, in shuffled order, and the odd files.
fn hot(paths: &[String], every: usize) -> Vec<String> {
    let mut chosen: Vec<String> = paths.iter().step_by(every).cloned().collect();
    let mut random = Random(99);
    for at in (1..chosen.len()).rev() {
        chosen.swap(at, random.below(at + 1));
    }
    chosen.insert(chosen.len() / 2, "/holes".into());
    chosen.insert(chosen.len() / 3, "/unwritten".into());
    chosen
}

/// A new volume, filled and mounted; returns the image, the mount and the paths of its files.
fn prepare(
    scratch: &Scratch,
    options: &[&str],
    size: &str,
    files: usize,
) -> (String, Mounted, Vec<String>) {
    let image = scratch.join("image");
    run("mke2fs", &[&["-q", "-F", "-t", "ext4"], options, &[&image, size]].concat());
    let mounted = Mounted::new(scratch, &image, "rw");
    let paths = scatter(mounted.path(), files, 7);
    (image, mounted, paths)
}

fn relayout(mount: &str, trace: &str, more: &[&str]) -> Value {
    let args = [&["relayout", mount, "--trace", trace, "--json"], more].concat();
    serde_json::from_str(&text(&seekless(&args))).expect("JSON")
}

fn number(value: &Value, pointer: &str) -> u64 {
    value.pointer(pointer).and_then(Value::as_u64).unwrap_or_else(|| panic!("{pointer}: {value}"))
}

/// Seeks to file contents, as counted by `score`.
fn data_seeks(image: &str, trace: &str) -> u64 {
    let args = ["score", image, "--trace", trace, "--explain", "--json"];
    let scored: Value = serde_json::from_str(&text(&seekless(&args))).expect("JSON");
    let scored = scored.pointer("/images/0").unwrap_or(&scored);
    number(scored, "/by_purpose/data/seeks")
}

/// Extents of files, read from an image that is not mounted.
fn places(image: &str, paths: &[String]) -> Vec<Vec<Mapping>> {
    let device = Arc::new(FileDevice::open(Path::new(image)).expect("image"));
    let image = ExtImage::open(device, OpenOptions::default()).expect("ext4");
    let map = |path: &String| {
        let ino = resolve(&image, path.as_bytes()).expect("a file");
        image.block_map(ino).expect("map").runs
    };
    paths.iter().map(map).collect()
}

/// Number of unwritten blocks of each file.
fn unwritten(places: &[Vec<Mapping>]) -> Vec<u64> {
    let of = |runs: &Vec<Mapping>| {
        runs.iter().filter(|run| run.unwritten).map(|run| run.extent.len).sum()
    };
    places.iter().map(of).collect()
}

fn sectors(mount: &str) -> i64 {
    let listed = run("find", &[mount, "-xdev", "-printf", "%b\n"]);
    listed.lines().map(|line| line.parse::<i64>().expect("sectors")).sum()
}

/// Sum of free sectors and sectors of files. Moves do not change it: only extent trees grow or
/// shrink, and they count as sectors of files.
fn account(mount: &str) -> i64 {
    run("sync", &["-f", mount]);
    let free = run("stat", &["-f", "-c", "%f %S", mount]);
    let (blocks, size) = free.trim().split_once(' ').expect("two numbers");
    let free = blocks.parse::<i64>().expect("blocks") * size.parse::<i64>().expect("size") / 512;
    free + sectors(mount)
}

/// Number of these files with pages in memory.
fn in_memory(mounted: &Mounted, paths: &[String]) -> usize {
    let is_there =
        |path: &&String| !resident(&mounted.path().join(&path[1..])).expect("mincore").is_empty();
    paths.iter().filter(is_there).count()
}

/// Moves files of a volume, and calls every judge.
fn judge(name: &str, options: &[&str], size: &str, files: usize, must_evict: bool) {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::on_disk(name);
    let (image, mounted, paths) = prepare(&scratch, options, size, files);
    let trace = trace_of(&scratch, &paths, 4);
    let hot = hot(&paths, 4);
    drop(mounted);
    let (listing, old) = (manifest(&image, &[]), places(&image, &hot));
    let offline = scratch.join("offline");
    text(&seekless(&["optimize", &image, "--trace", &trace, "-o", &offline]));
    let (before, best) = (data_seeks(&image, &trace), data_seeks(&offline, &trace));

    let mounted = Mounted::new(&scratch, &image, "rw");
    let held = account(mounted.text());
    let told = relayout(mounted.text(), &trace, &["--dry-run"]);
    assert!(number(&told, "/moved_in_bytes") > 0, "{told}");
    drop(mounted);
    assert_eq!(old, places(&image, &hot), "a trial has moved something");

    let mounted = Mounted::new(&scratch, &image, "rw");
    let done = relayout(mounted.text(), &trace, &[]);
    // No process has read them since the mount.
    assert_eq!(in_memory(&mounted, &hot), 0, "files are in memory only because they were moved");
    assert_eq!(held, account(mounted.text()), "blocks are missing");
    same("the kernel's listing", &listing, &manifest(mounted.text(), &[]));
    // A second run has nothing to do; but if little space was free, other files occupied some of
    // it, and it may close gaps.
    let again = relayout(mounted.text(), &trace, &[]);
    let (first, second) = (number(&done, "/data_seeks/after"), number(&again, "/data_seeks/after"));
    assert!(second <= first, "{first} seeks, and {second} after another run");
    if !must_evict {
        assert_eq!(number(&again, "/moved_in_bytes"), 0, "{again}");
    }
    drop(mounted);

    run("e2fsck", &["-fn", &image]);
    same("our listing", &listing, &manifest(&image, &[]));
    let new = places(&image, &hot);
    assert_eq!(unwritten(&old), unwritten(&new), "never written");
    assert_eq!(number(&done, "/left_bytes"), 0, "{done}");
    assert_eq!(number(&done, "/moved_out_bytes") > 0, must_evict, "{done}");
    in_order(&new);
    let after = data_seeks(&image, &trace);
    println!("{name}: {before} seeks for contents, {first} moved, {best} laid out anew");
    assert!(best < before, "nothing to gain");
    assert!((before - first) * 10 >= (before - best) * 7, "{before} {first} {best}");
    assert_eq!(after, second, "the figure that was told");
    // The trial predicts the result approximately.
    assert!(number(&told, "/data_seeks/after").abs_diff(first) * 7 <= before, "{told}");
}

/// The written extents of all files are in the order of the trace, and close together.
fn in_order(places: &[Vec<Mapping>]) {
    let written = |runs: &Vec<Mapping>| -> Vec<u64> {
        runs.iter().filter(|run| !run.unwritten).map(|run| run.extent.start.get()).collect()
    };
    let starts: Vec<u64> = places.iter().flat_map(written).collect();
    let back = starts.windows(2).filter(|pair| pair[0] >= pair[1]).count();
    assert_eq!(back, 0, "not in the order of the trace: {starts:?}");
    let runs = || places.iter().flatten().filter(|run| !run.unwritten);
    let all: u64 = runs().map(|run| run.extent.len).sum();
    let end = runs().map(|run| run.extent.end().get()).max().unwrap_or(0);
    let span = end - starts[0];
    assert!(span <= all + all / 4 + 64, "{all} blocks lie in {span}");
}

#[test]
fn blocks_of_4k() {
    judge("relayout-4k", &["-b", "4096"], "192M", 1500, false);
}

/// Four blocks per page: the kernel exchanges only blocks at equal offsets in a page.
#[test]
fn blocks_of_1k() {
    judge("relayout-1k", &["-b", "1024"], "96M", 1500, false);
}

/// No free range is long enough: other files are moved away.
#[test]
fn what_is_in_the_way_moves_away() {
    judge("relayout-way", &["-b", "4096", "-N", "2000"], "32M", 1500, true);
    judge("relayout-way-1k", &["-b", "1024", "-N", "2000"], "27M", 1500, true);
}

/// A file gets exactly the chosen blocks, whatever their offset in a page, and the next file gets
/// its old ones.
#[test]
fn blocks_go_exactly_where_they_are_sent() {
    if !can_mount() {
        return;
    }
    for block in [1024u64, 4096] {
        let scratch = Scratch::on_disk("relayout-exact");
        let (image, options) = (scratch.join("image"), block.to_string());
        run("mke2fs", &["-q", "-F", "-t", "ext4", "-b", &options, &image, "64M"]);
        let mounted = Mounted::new(&scratch, &image, "rw");
        let bytes =
            |seed: u64| -> Vec<u8> { (0..9 * block).map(|at| (at * 7 / 3 + seed) as u8).collect() };
        let names = [mounted.path().join("a"), mounted.path().join("b")];
        for (name, seed) in names.iter().zip([1, 2]) {
            fs::write(name, bytes(seed)).expect("write");
        }
        run("sync", &["-f", mounted.text()]);
        let mut donor = Donor::new(mounted.path(), block).expect("donor");
        assert_eq!(donor.grow(5000).expect("grow"), 5000);
        let held = donor.held().max_by_key(|run| run.len).expect("a run");
        let at = |name: &Path| extents(name).expect("fiemap")[0].physical / block;
        let mut give = |name: &Path, to: u64| {
            let file = Open::new().read(true).write(true).open(name).expect("open");
            let shift = donor.shift_for(0, to).expect("held");
            donor.set_shift(shift).expect("shift");
            let given = donor.give(&file, 0, Blocks { start: to, len: 9 });
            given.outcome.expect("exchange");
            donor.refresh().expect("fiemap");
            assert_eq!((at(name), extents(name).expect("fiemap").len()), (to, 1));
        };
        let was = at(&names[0]);
        for n in 0..5 {
            give(&names[0], held.start + 100 + 11 * n);
        }
        give(&names[1], was);
        // Only blocks in this range stay with the donor.
        donor.keep(&[Blocks { start: held.start + 3, len: 20 }]).expect("keep");
        assert_eq!(donor.total(), 20);
        assert!(donor.shift_for(0, held.start + 2).is_none());
        assert_eq!(
            donor.first_in(Blocks { start: held.start, len: 9 }).map(|run| run.len),
            Some(6)
        );
        drop(donor);
        for (name, seed) in names.iter().zip([1, 2]) {
            assert!(fs::read(name).expect("read") == bytes(seed), "other contents");
        }
        drop(mounted);
        run("e2fsck", &["-fn", &image]);
    }
}

/// Data beyond the budget stays; data accessed first is moved first.
#[test]
fn a_budget_is_kept() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::on_disk("relayout-budget");
    let (image, mounted, paths) = prepare(&scratch, &["-b", "4096"], "128M", 900);
    let trace = trace_of(&scratch, &paths, 4);
    let done = relayout(mounted.text(), &trace, &["--budget", "500K"]);
    assert_eq!(done["stopped"], "budget", "{done}");
    let moved = number(&done, "/moved_in_bytes") + number(&done, "/moved_out_bytes");
    assert!(moved > 100 << 10 && moved <= 500 << 10, "{moved}");
    assert!(number(&done, "/left_bytes") > 0, "{done}");
    drop(mounted);
    run("e2fsck", &["-fn", &image]);
}

/// A running program stays, and is counted with its cost; so is a file that cannot be written to.
#[test]
fn a_program_that_runs_is_left() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::on_disk("relayout-running");
    let (image, mounted, mut paths) = prepare(&scratch, &["-b", "4096"], "128M", 600);
    let (program, sealed) = (mounted.path().join("sleep"), mounted.path().join("sealed"));
    fs::copy("/bin/sleep", &program).expect("copy");
    fs::copy("/bin/sleep", &sealed).expect("copy");
    run("sync", &["-f", mounted.text()]);
    run("chattr", &["+i", sealed.to_str().expect("path")]);
    for path in ["/sleep", "/sealed"] {
        paths.insert(0, path.into());
    }
    let all: Vec<String> = ["/sleep", "/sealed"].map(String::from).to_vec();
    let trace = trace_of(&scratch, &paths, 1);
    let mut child = Command::new(&program).arg("600").spawn().expect("sleep");
    let at = |mount: &str, path: &str| run("filefrag", &["-e", &format!("{mount}{path}")]);
    let before: Vec<String> = all.iter().map(|path| at(mounted.text(), path)).collect();
    let done = relayout(mounted.text(), &trace, &[]);
    let after: Vec<String> = all.iter().map(|path| at(mounted.text(), path)).collect();
    let _ = child.kill();
    let _ = child.wait();
    run("chattr", &["-i", sealed.to_str().expect("path")]);
    assert_eq!(before, after);
    for stays in ["running_programs", "protected_files", "inodes", "directories"] {
        assert!(number(&done, &format!("/stays/{stays}/requests")) > 0, "{stays}: {done}");
    }
    assert!(number(&done, "/moved_in_bytes") > 0, "{done}");
    // Once it has ended, the program is moved like others.
    let done = relayout(mounted.text(), &trace, &["--dry-run"]);
    assert!(done.pointer("/stays/running_programs").is_none(), "{done}");
    drop(mounted);
    run("e2fsck", &["-fn", &image]);
}

/// A nearly full volume: data that fits is moved, and its old space is free again.
#[test]
fn a_full_volume() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::on_disk("relayout-full");
    let (image, mounted, paths) = prepare(&scratch, &["-b", "4096", "-m", "0"], "48M", 1500);
    let trace = trace_of(&scratch, &paths, 4);
    let available = || {
        let blocks = run("stat", &["-f", "-c", "%a", mounted.text()]);
        blocks.trim().parse::<u64>().expect("blocks")
    };
    for leave in [600, 40, 0] {
        // fallocate may stop early if the map of the long file needs a block.
        let path = mounted.path().join(format!("full{leave}"));
        let len = (available().saturating_sub(leave) * 4096).to_string();
        let _ = Command::new("fallocate").args(["-l", &len]).arg(path).output();
        assert!(available() <= leave + 8, "{} blocks are free", available());
        let (held, listing) = (account(mounted.text()), manifest(mounted.text(), &[]));
        let args = ["relayout", mounted.text(), "--trace", &trace, "--json"];
        let output = seekless(&args);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!([Some(0), Some(5)].contains(&output.status.code()), "{leave}: {said}");
        if leave == 600 {
            let done: Value = serde_json::from_slice(&output.stdout).expect("JSON");
            assert!(number(&done, "/moved_in_bytes") > 0, "{done}");
        }
        assert_eq!(held, account(mounted.text()), "{leave}: blocks are missing");
        same("contents", &listing, &manifest(mounted.text(), &[]));
    }
    drop(mounted);
    run("e2fsck", &["-fn", &image]);
}
