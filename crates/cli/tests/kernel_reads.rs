//! The model of `score`, compared with the kernel's requests to a loop device for the same reads.
//! Needs root, loop devices and ext4; reports if they are missing.

#[path = "../../fs/tests/shared/skip.rs"]
mod skip;

use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Dropping caches affects the whole machine: one test at a time.
static MACHINE: Mutex<()> = Mutex::new(());

fn machine() -> MutexGuard<'static, ()> {
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn run(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_string())
}

/// An image mounted through a loop device; both are released on drop.
struct Mounted {
    device: String,
    dir: PathBuf,
    mounted: bool,
}

impl Mounted {
    fn new(image: &Path, dir: PathBuf) -> Option<Self> {
        let device = run("losetup", &["-f", "--show", "-r", image.to_str()?])?;
        let mut mounted = Self { device, dir, mounted: false };
        // In sectors: 128 KiB, the default of the model.
        run("blockdev", &["--setra", "256", &mounted.device])?;
        fs::create_dir_all(&mounted.dir).ok()?;
        let to = mounted.dir.to_str()?;
        run("mount", &["-t", "ext4", "-o", "ro,noload,noatime", &mounted.device, to])?;
        mounted.mounted = true;
        // Blocks that the mount itself has read must be read again.
        fs::write("/proc/sys/vm/drop_caches", "3").ok()?;
        Some(mounted)
    }

    /// Requests completed and bytes read so far.
    fn counters(&self) -> (u64, u64) {
        let name = self.device.trim_start_matches("/dev/");
        let stat = fs::read_to_string(format!("/sys/block/{name}/stat")).unwrap();
        let fields: Vec<u64> =
            stat.split_whitespace().map(|field| field.parse().unwrap()).collect();
        (fields[0], fields[2] * 512)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.mounted {
            run("umount", &[self.dir.to_str().unwrap_or_default()]);
        }
        run("losetup", &["-d", &self.device]);
    }
}

/// An operation, performed on the mount and written to the trace.
#[derive(Clone)]
enum Step {
    List(String),
    /// A file, opened, with ranges to read.
    Read(String, Vec<(u64, u64)>),
    /// A file, mapped from one page to another, with pages to touch.
    Touch {
        path: String,
        within: (u64, u64),
        executable: bool,
        pages: Vec<u64>,
    },
}

/// Maps part of a file, and touches pages of it.
const TOUCH: &str = "
import mmap, os, sys
path, first, end, executable = sys.argv[1], *map(int, sys.argv[2:5])
protection = mmap.PROT_READ | (mmap.PROT_EXEC if executable else 0)
with open(path, 'rb', 0) as file:
    mapped = mmap.mmap(file.fileno(), (end - first) * 4096, mmap.MAP_PRIVATE, protection, offset=first * 4096)
    for page in map(int, sys.stdin.read().split()):
        mapped[(page - first) * 4096]
";

impl Step {
    fn whole(path: String) -> Self {
        Self::Read(path, vec![(0, 1 << 20)])
    }

    fn events(&self) -> Vec<Value> {
        match self {
            Self::List(path) => vec![json!({ "op": "readdir", "path": path })],
            Self::Read(path, ranges) => {
                let open = json!({ "op": "open", "path": path, "pid": 1 });
                let read = |&(offset, length): &(u64, u64)| json!({ "op": "read", "path": path, "pid": 1, "offset": offset, "length": length });
                std::iter::once(open).chain(ranges.iter().map(read)).collect()
            }
            Self::Touch { path, pages, .. } => {
                let open = json!({ "op": "open", "path": path, "pid": 1 });
                let touch = |page: &u64| json!({ "op": "fault", "path": path, "pid": 1, "offset": page * 4096, "length": 4096 });
                std::iter::once(open).chain(pages.iter().map(touch)).collect()
            }
        }
    }

    fn perform(&self, root: &Path) {
        match self {
            Self::List(path) => assert!(fs::read_dir(root.join(&path[1..])).unwrap().count() > 0),
            Self::Read(path, ranges) => {
                let file = File::open(root.join(&path[1..])).unwrap();
                let mut buf = vec![0; 1 << 20];
                for &(offset, length) in ranges {
                    let length = usize::try_from(length).unwrap();
                    assert!(file.read_at(&mut buf[..length], offset).unwrap() > 0);
                }
            }
            Self::Touch { path, within, executable, pages } => {
                let mut command = Command::new("python3");
                command.args(["-c", TOUCH]).arg(root.join(&path[1..]));
                command.args([within.0, within.1, u64::from(*executable)].map(|n| n.to_string()));
                let mut child = command.stdin(Stdio::piped()).spawn().expect("python3");
                let pages: String = pages.iter().map(|page| format!("{page} ")).collect();
                child.stdin.take().unwrap().write_all(pages.as_bytes()).unwrap();
                assert!(child.wait().unwrap().success());
            }
        }
    }
}

const SMALL: u64 = 600;
const BIG: u64 = 8 << 20;

fn make_tree(dir: &Path) {
    for at in 0..SMALL {
        let sub = dir.join(format!("d{:02}", at % 40));
        fs::create_dir_all(&sub).unwrap();
        fs::write(sub.join(format!("f{at}")), vec![at as u8; (500 + at * 131 % 60_000) as usize])
            .unwrap();
    }
    for name in ["sequential", "random", "strides"] {
        fs::write(dir.join(name), vec![7; BIG as usize]).unwrap();
    }
    fs::create_dir(dir.join("wide")).unwrap();
    for at in 0..3000 {
        File::create(dir.join(format!("wide/a-rather-long-name-to-fill-blocks-{at}"))).unwrap();
    }
}

/// Kinds of reading, each on a mount of its own.
fn workloads() -> Vec<(&'static str, Vec<Step>)> {
    let small = |at: u64| {
        let number = at * 367 % SMALL;
        Step::whole(format!("/d{:02}/f{number}", number % 40))
    };
    let pages = |count: u64, page: &dyn Fn(u64) -> u64| -> Vec<(u64, u64)> {
        (0..count).map(|at| (page(at) * 4096, 4096)).collect()
    };
    let read = |path: &str, ranges| vec![Step::Read(path.into(), ranges)];
    vec![
        ("small files", (0..300).map(small).collect()),
        ("one file, page by page", read("/sequential", pages(2048, &|at| at))),
        (
            "one file, 100,000 bytes a time",
            read("/sequential", (0..80).map(|at| (at * 100_000, 100_000)).collect()),
        ),
        ("one file at random", read("/random", pages(300, &|at| at * 997 % 2048))),
        ("one file in strides", read("/strides", pages(120, &|at| at * 16))),
        ("one file backwards", read("/strides", pages(200, &|at| 1999 - at))),
        ("a wide directory", vec![Step::List("/wide".into())]),
    ]
}

/// Requests and bytes of the steps on an image, according to the model and to the kernel; `None` if
/// no image can be mounted.
fn both_sides(image: &Path, dir: &Path, steps: &[Step]) -> Option<[[u64; 2]; 2]> {
    // The fewest of three: other programs that drop the caches can only add requests.
    let counted = |_| {
        let mounted = Mounted::new(image, dir.join("mnt"))?;
        let before = mounted.counters();
        steps.iter().for_each(|step| step.perform(&mounted.dir));
        let after = mounted.counters();
        Some([after.0 - before.0, after.1 - before.1])
    };
    let kernel = (0..3).map(counted).collect::<Option<Vec<_>>>()?.into_iter().min()?;
    let trace = dir.join("trace");
    let mut out = File::create(&trace).unwrap();
    writeln!(out, "{{\"seekless_trace\":1}}").unwrap();
    for event in steps.iter().flat_map(Step::events) {
        writeln!(out, "{event}").unwrap();
    }
    let (image, trace) = (image.to_str().unwrap(), trace.to_str().unwrap());
    let seekless = env!("CARGO_BIN_EXE_seekless");
    let release = run("uname", &["-r"]).expect("uname");
    let args = ["score", image, "--trace", trace, "--kernel", &release, "--json"];
    let score = run(seekless, &args).expect("score");
    let score: Value = serde_json::from_str(&score).unwrap();
    let model = [&score["requests"], &score["bytes"]].map(|value| value.as_u64().unwrap());
    Some([model, kernel])
}

fn compare(name: &str, [model, kernel]: [[u64; 2]; 2]) {
    println!(
        "{name}: requests {} and {}, bytes {} and {}",
        model[0], kernel[0], model[1], kernel[1]
    );
    // Difference of one window of read-ahead at the end.
    let window = 128 << 10;
    let close = |a: u64, b: u64, slack: u64| a.abs_diff(b) <= slack + a.max(b) / 100;
    assert!(close(model[0], kernel[0], 1), "{name}: requests {model:?}, the kernel {kernel:?}");
    assert!(close(model[1], kernel[1], window), "{name}: bytes {model:?}, the kernel {kernel:?}");
}

/// mke2fs makes directories without an index: the kernel reads their blocks ahead on the device, by
/// pages, beyond the end of the directory and over blocks read before.
#[test]
fn listings_without_an_index_read_ahead_as_the_model_says() {
    let _machine = machine();
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let tree = dir.join("tree");
    make_tree(&tree);
    for sub in 0..60 {
        let sub = tree.join(format!("more{sub:02}"));
        fs::create_dir(&sub).unwrap();
        for at in 0..90 {
            File::create(sub.join(format!("a-name-of-some-length-{at}"))).unwrap();
        }
    }
    let names = (0..60).map(|sub| format!("/more{sub:02}"));
    let back = (0..60).map(|sub| format!("/more{:02}", 59 - sub));
    let small = (0..40).map(|sub| format!("/d{sub:02}"));
    let all: Vec<String> =
        ["/".into(), "/wide".into()].into_iter().chain(names).chain(small).collect();
    for block in ["1024", "2048", "4096"] {
        let image = dir.join("image");
        let made = ["-q", "-F", "-t", "ext4", "-b", block, "-E", "lazy_itable_init=0", "-d"];
        let paths = [&tree, &image].map(|path| path.to_str().unwrap());
        if run("mke2fs", &[&made[..], &paths, &["96M"]].concat()).is_none() {
            skip::skip("mke2fs is not installed");
            return;
        }
        for (order, dirs) in [("there", all.clone()), ("back", back.clone().collect())] {
            let steps: Vec<Step> = dirs.into_iter().map(Step::List).collect();
            let Some(sides) = both_sides(&image, dir, &steps) else {
                skip::skip("no loop device can be mounted here");
                return;
            };
            compare(&format!("listings {order}, blocks of {block}"), sides);
        }
        fs::remove_file(&image).unwrap();
    }
}

/// The blocks after a hole of one block follow on the disk without a gap: a window of read-ahead is
/// one request.
#[test]
fn files_with_small_holes_are_read_as_the_model_says() {
    let _machine = machine();
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let tree = dir.join("tree");
    fs::create_dir(&tree).unwrap();
    let files = 30usize;
    for at in 0..files {
        let mut bytes = vec![at as u8 + 1; 90_000];
        for hole in [3, 9, 17, 18, 40, 61] {
            let start = (hole + at % 3) * 1024;
            bytes[start..start + 1024].fill(0);
        }
        fs::write(tree.join(format!("f{at:02}")), bytes).unwrap();
    }
    for block in ["1024", "2048"] {
        let image = dir.join("image");
        let made = ["-q", "-F", "-t", "ext4", "-b", block, "-E", "lazy_itable_init=0", "-d"];
        let paths = [&tree, &image].map(|path| path.to_str().unwrap());
        if run("mke2fs", &[&made[..], &paths, &["32M"]].concat()).is_none() {
            skip::skip("mke2fs is not installed");
            return;
        }
        let steps: Vec<Step> = (0..files).map(|at| Step::whole(format!("/f{at:02}"))).collect();
        let Some(sides) = both_sides(&image, dir, &steps) else {
            skip::skip("no loop device can be mounted here");
            return;
        };
        compare(&format!("small holes, blocks of {block}"), sides);
        fs::remove_file(&image).unwrap();
    }
}

#[test]
fn the_kernel_asks_for_what_the_model_says() {
    let _machine = machine();
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    make_tree(&dir.join("tree"));
    let image = dir.join("image");
    let path = |path: &Path| path.to_str().unwrap().to_string();
    let (tree, img) = (path(&dir.join("tree")), path(&image));
    run(env!("CARGO_BIN_EXE_seekless"), &["build", &tree, "-o", &img]).expect("build");
    for (name, steps) in workloads() {
        let Some(sides) = both_sides(&image, dir, &steps) else {
            skip::skip("no loop device can be mounted here");
            return;
        };
        compare(name, sides);
    }
}

/// The pages of a program's executable segment.
fn executable_segment(program: &[u8]) -> (u64, u64) {
    let number = |at: usize, len: usize| {
        program[at..at + len].iter().rev().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte))
    };
    let (start, count) = (number(32, 8) as usize, number(56, 2) as usize);
    let header = (0..count).map(|at| start + at * 56).find(|at| {
        // A loaded and executable segment.
        number(*at, 4) == 1 && number(at + 4, 4) & 1 == 1
    });
    let at = header.expect("an executable segment");
    let (offset, len) = (number(at + 8, 8), number(at + 32, 8));
    (offset / 4096, (offset + len).div_ceil(4096))
}

/// Faults in mapped files read around the touched page; in executable mappings they read forward
/// from it, in kernels that do so.
#[test]
fn faults_in_mapped_files_are_read_as_the_model_says() {
    let _machine = machine();
    if run("python3", &["-c", "import mmap"]).is_none() {
        skip::skip("python3 is not installed");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let tree = dir.join("tree");
    fs::create_dir(&tree).unwrap();
    // This program is large enough for many windows.
    let program = fs::read(env!("CARGO_BIN_EXE_seekless")).unwrap();
    let program = &program[..program.len().min(64 << 20)];
    let (first, end) = executable_segment(program);
    assert!(end > first + 1000 && end * 4096 <= program.len() as u64);
    fs::write(tree.join("program"), program).unwrap();
    let all = program.len() as u64 / 4096;
    let touch = |path: &str, within: (u64, u64), executable, pages: Vec<u64>| {
        vec![Step::Touch { path: path.into(), within, executable, pages }]
    };
    let chance = |count: u64, from: u64, to: u64| -> Vec<u64> {
        (0..count).map(|at| from + at * at * 7919 % (to - from)).collect()
    };
    // The other segments lie before or after the executable one.
    let before = (0, first);
    let workloads = [
        ("at random", touch("/program", before, false, chance(60, 0, first))),
        ("forward", touch("/program", before, false, (0..first.min(400)).collect())),
        ("in steps", touch("/program", before, false, (0..first).step_by(9).collect())),
        ("backward", touch("/program", before, false, (0..first.min(400)).rev().collect())),
        ("a program", touch("/program", (first, end), true, chance(200, first, end))),
        (
            "a program, forward",
            touch("/program", (first, end), true, (first..first + 300).collect()),
        ),
        (
            "a program's end",
            touch("/program", (first, end), true, vec![end - 1, end - 5, end - 40]),
        ),
        ("behind it", touch("/program", (end, all), false, chance(400, end, all))),
    ];
    for block in ["1024", "4096"] {
        let image = dir.join("image");
        let made = ["-q", "-F", "-t", "ext4", "-b", block, "-E", "lazy_itable_init=0", "-d"];
        let paths = [&tree, &image].map(|path| path.to_str().unwrap());
        if run("mke2fs", &[&made[..], &paths, &["200M"]].concat()).is_none() {
            skip::skip("mke2fs is not installed");
            return;
        }
        for (name, steps) in &workloads {
            let Some(sides) = both_sides(&image, dir, steps) else {
                skip::skip("no loop device can be mounted here");
                return;
            };
            compare(&format!("faults: {name}, blocks of {block}"), sides);
        }
        fs::remove_file(&image).unwrap();
    }
}
