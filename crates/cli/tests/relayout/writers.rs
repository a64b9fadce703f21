//! Other writers while files are moved: none of their data is lost.

use super::judges::{Mounted, Scratch, can_mount, run};
use super::{Random, account, hot, number, prepare, relayout, trace_of};
use seekless_host::fiemap::extents;
use seekless_host::mapping::Mapping;
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Contents that one writer has written, by path.
type Written = BTreeMap<PathBuf, Vec<u8>>;

/// Creates, appends, overwrites, truncates, renames and removes files until `stop` is set. `own`
/// are files that no other writer uses.
fn write(dir: &Path, own: Vec<PathBuf>, seed: u64, stop: &AtomicBool) -> (Written, u64) {
    let mut random = Random(seed);
    let mut written: Written = own
        .into_iter()
        .map(|path| {
            let bytes = fs::read(&path).expect("read");
            (path, bytes)
        })
        .collect();
    let mut operations = 0;
    while !stop.load(Ordering::Relaxed) {
        operations += 1;
        let path = written.keys().nth(random.below(written.len())).expect("a file").clone();
        let bytes: Vec<u8> =
            (0..1 + random.below(9000)).map(|at| (at as u64 + operations + seed) as u8).collect();
        let open = || OpenOptions::new().write(true).open(&path).expect("open");
        let known = written.get_mut(&path).expect("known");
        match random.below(7) {
            0 => {
                let new = dir.join(format!("w{seed}-{operations}"));
                fs::write(&new, &bytes).expect("create");
                written.insert(new, bytes);
            }
            1 | 2 => {
                let mut file = OpenOptions::new().append(true).open(&path).expect("open");
                file.write_all(&bytes).expect("append");
                known.extend(&bytes);
            }
            3 => {
                let at = random.below(known.len() + 1);
                open().write_all_at(&bytes, at as u64).expect("write");
                known.resize(known.len().max(at + bytes.len()), 0);
                known[at..at + bytes.len()].copy_from_slice(&bytes);
            }
            4 => {
                let len = random.below(known.len() + 4000);
                open().set_len(len as u64).expect("truncate");
                known.resize(len, 0);
            }
            5 => {
                let new = dir.join(format!("r{seed}-{operations}"));
                fs::rename(&path, &new).expect("rename");
                let bytes = written.remove(&path).expect("known");
                written.insert(new, bytes);
            }
            _ if written.len() > 20 => {
                fs::remove_file(&path).expect("remove");
                written.remove(&path);
            }
            _ => {
                let file = open();
                file.sync_all().expect("sync");
            }
        }
        if operations % 8 == 0 {
            // Lets other threads run.
            thread::yield_now();
        }
    }
    (written, operations)
}

/// Data of four writers, each with files of its own, and the result of a concurrent relayout.
pub(super) struct Meanwhile {
    /// Mount point during the relayout.
    top: PathBuf,
    written: Vec<(Written, u64)>,
    /// JSON output of the relayout.
    pub(super) told: serde_json::Value,
}

impl Meanwhile {
    /// Moves files by a trace, with concurrent writers.
    pub(super) fn new(mounted: &Mounted, trace: &str, paths: &[String], hot: &[String]) -> Self {
        let dir = mounted.path().join("writers");
        fs::create_dir(&dir).expect("mkdir");
        // A quarter of the files that are moved, and as many others, belong to the writers.
        let top = mounted.path().to_path_buf();
        let whole = |path: &String| top.join(&path[1..]);
        let mine = |writer: usize| -> Vec<PathBuf> {
            let hot = hot.iter().skip(writer).step_by(16).map(whole);
            let others = paths.iter().filter(|path| !hot_has(trace, path));
            hot.chain(others.skip(writer).step_by(16).map(whole)).collect()
        };
        let stop = AtomicBool::new(false);
        let (told, written) = thread::scope(|scope| {
            let writers: Vec<_> = (0..4)
                .map(|writer| {
                    let (dir, own, stop) = (&dir, mine(writer), &stop);
                    scope.spawn(move || write(dir, own, writer as u64 + 1, stop))
                })
                .collect();
            let args = ["relayout", mounted.text(), "--trace", trace, "--json"];
            let output = super::seekless(&args);
            stop.store(true, Ordering::Relaxed);
            let written: Vec<(Written, u64)> =
                writers.into_iter().map(|writer| writer.join().expect("writer")).collect();
            (serde_json::from_str(&super::text(&output)).expect("JSON"), written)
        });
        Self { top, written, told }
    }

    /// Number of operations of each writer.
    pub(super) fn operations(&self) -> Vec<u64> {
        self.written.iter().map(|(_, operations)| *operations).collect()
    }

    /// Fails unless every byte is as it was written, by the writers or before.
    pub(super) fn compare(&self, mounted: &Mounted, paths: &[String]) {
        for (path, bytes) in self.written.iter().flat_map(|(written, _)| written) {
            let path = path.strip_prefix(&self.top).expect("path");
            let found = fs::read(mounted.path().join(path)).expect("read");
            assert!(found == *bytes, "{}: other contents", path.display());
        }
        // Files that no writer used.
        let is_untouched = |path: &&String| {
            let whole = self.top.join(&path[1..]);
            self.written.iter().all(|(written, _)| !written.contains_key(&whole))
        };
        let mut count = 0;
        for path in paths.iter().filter(is_untouched) {
            if let Ok(found) = fs::read(mounted.path().join(&path[1..])) {
                count += 1;
                assert!(is_scattered(path, &found), "{path}: other contents");
            }
        }
        assert!(count > 500, "{count} files that nobody wrote to");
    }
}

fn work(name: &str, options: &[&str], size: &str) {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::on_disk(name);
    let (image, mounted, paths) = prepare(&scratch, options, size, 1500);
    let trace = trace_of(&scratch, &paths, 3);
    let meanwhile = Meanwhile::new(&mounted, &trace, &paths, &hot(&paths, 3));
    let (done, operations) = (&meanwhile.told, meanwhile.operations());
    println!("{name}: {done}");
    assert!(number(done, "/moved_in_bytes") > 1 << 20, "{done}");
    println!("{name}: {operations:?} operations");
    assert!(operations.iter().all(|operations| *operations > 50), "{operations:?}");
    meanwhile.compare(&mounted, &paths);
    let held = account(mounted.text());
    // The same read from the disk after an unmount.
    drop(mounted);
    run("e2fsck", &["-fn", &image]);
    let mounted = Mounted::new(&scratch, &image, "rw");
    meanwhile.compare(&mounted, &paths);
    assert_eq!(held, account(mounted.text()), "something held blocks");
    // Without writers the rest is moved.
    relayout(mounted.text(), &trace, &[]);
    meanwhile.compare(&mounted, &paths);
    drop(mounted);
    run("e2fsck", &["-fn", &image]);
}

/// Whether a trace contains a path.
fn hot_has(trace: &str, path: &str) -> bool {
    thread_local! {
        static TRACE: std::cell::OnceCell<String> = const { std::cell::OnceCell::new() };
    }
    let quoted = format!("\"{path}\"");
    TRACE.with(|known| {
        known.get_or_init(|| fs::read_to_string(trace).expect("trace")).contains(&quoted)
    })
}

/// Whether contents are those that `scatter` wrote: three rounds, each with a pattern of its own.
fn is_scattered(path: &str, bytes: &[u8]) -> bool {
    let n: usize = path.rsplit_once('f').expect("name").1.parse().expect("number");
    let (mut at, mut round) = (0, 0);
    for (offset, &byte) in bytes.iter().enumerate() {
        if byte != ((offset - at) * 31 + n * 7 + round) as u8 {
            // The next piece begins here.
            at = offset;
            let next = (round + 1..3).find(|round| byte == (n * 7 + round) as u8);
            let Some(next) = next else { return false };
            round = next;
        }
    }
    true
}

/// Files that are open for writing, or mapped as libraries, are moved like others, unnoticed by the
/// processes that use them.
#[test]
fn open_and_mapped_files() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::on_disk("relayout-open");
    let (image, mounted, paths) = prepare(&scratch, &["-b", "4096"], "128M", 600);
    let trace = trace_of(&scratch, &paths, 3);
    let chosen: Vec<&String> = paths.iter().step_by(3).take(40).collect();
    let whole = |path: &String| mounted.path().join(&path[1..]);
    let first = |path: &String| extents(&whole(path)).expect("fiemap")[0].physical;
    let before: Vec<u64> = chosen.iter().map(|path| first(path)).collect();
    let mut held: Vec<(fs::File, Mapping, Vec<u8>)> = chosen
        .iter()
        .map(|path| {
            let bytes = fs::read(whole(path)).expect("read");
            let file = OpenOptions::new().read(true).append(true).open(whole(path)).expect("open");
            let mapping = Mapping::new(&file, 0, bytes.len(), true).expect("mmap");
            assert_eq!(mapping.touch(0), bytes[0]);
            (file, mapping, bytes)
        })
        .collect();
    let done = relayout(mounted.text(), &trace, &[]);
    assert_eq!(number(&done, "/left_bytes"), 0, "{done}");
    let moved = chosen.iter().zip(&before).filter(|(path, at)| first(path) != **at).count();
    assert!(moved * 10 > chosen.len() * 9, "{moved} of {} were moved", chosen.len());
    for (path, (file, mapping, bytes)) in chosen.iter().zip(&mut held) {
        for at in [0, bytes.len() / 2, bytes.len() - 1] {
            assert_eq!(mapping.touch(at), bytes[at], "{path}, byte {at}");
        }
        file.write_all(b"more").expect("append");
        bytes.extend(b"more");
        assert!(fs::read(whole(path)).expect("read") == *bytes, "{path}: other contents");
    }
    let wanted: Vec<Vec<u8>> = held.into_iter().map(|(_, _, bytes)| bytes).collect();
    drop(mounted);
    run("e2fsck", &["-fn", &image]);
    let mounted = Mounted::new(&scratch, &image, "ro");
    for (path, bytes) in chosen.iter().zip(wanted) {
        let found = fs::read(mounted.path().join(&path[1..])).expect("read");
        assert!(found == bytes, "{path}: other contents on the disk");
    }
}

#[test]
fn four_writers() {
    work("relayout-writers", &["-b", "4096"], "192M");
}

#[test]
fn four_writers_with_blocks_of_1k() {
    work("relayout-writers-1k", &["-b", "1024"], "96M");
}
