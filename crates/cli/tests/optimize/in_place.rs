//! Images rearranged in place: the same file system for e2fsck and the kernel, at the end and after
//! a crash at any write.

use super::judges::{Mounted, Scratch, can_mount, failure, manifest, run, same, seekless, text};
use super::{Case, HOLE, populate, trace_of, use_it};
use seekless_device::{BlockDevice, DeviceError, MemoryDevice};
use seekless_ext::{ExtImage, Relayout, UndoDevice, recover};
use seekless_fs::format::OpenOptions;
use seekless_fs::plan::Rearrange;
use seekless_fs::{FsError, Timestamp};
use seekless_layout::planner::in_place::{InPlace, Progress};
use seekless_layout::planner::touches;
use seekless_layout::replay::{Machine, replay};
use seekless_layout::trace::{Events, Reader};
use seekless_units::{ByteLen, Lba};
use std::fs;
use std::process::Command;
use std::sync::{Arc, Mutex};

fn in_place(image: &str, trace: &str, more: &[&str]) -> String {
    let args = [&["optimize", image, "--trace", trace, "--in-place"], more].concat();
    text(&seekless(&args))
}

/// Rearranges an image in place, and calls every judge.
fn judge(name: &str, size: &str, options: &[&str]) {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new(name);
    let load = populate::Load { hole: HOLE, ..populate::Load::default() };
    let image = Case { name, size, options, load }.make(&scratch);
    let listing = manifest(&image, &[]);
    let trace = trace_of(&scratch, &listing);
    let before = run("sha256sum", &[&image]);
    let told = in_place(&image, &trace, &["--dry-run"]);
    assert!(told.contains("would be moved in"), "{told}");
    assert_eq!(before, run("sha256sum", &[&image]), "a trial has written");
    let done = in_place(&image, &trace, &[]);
    // The trial predicts the result.
    assert_eq!(told.replace("would be ", ""), done);
    run("e2fsck", &["-fn", &image]);
    same("our listing", &listing, &manifest(&image, &[]));
    let theirs = {
        let mounted = Mounted::new(&scratch, &image, "ro");
        manifest(mounted.text(), &[])
    };
    same("the kernel's listing", &listing, &theirs);
    // A second run has nothing to do.
    let again = in_place(&image, &trace, &["--json"]);
    let again: serde_json::Value = serde_json::from_str(&again).expect("JSON");
    assert_eq!(again["moved_in_bytes"], 0, "{again}");
    assert_eq!(again["steps"], 0, "{again}");
    use_it(&scratch, &image);
}

macro_rules! judged {
    ($($name:ident: $size:expr, [$($option:expr),*];)*) => {
        $(#[test]
        fn $name() {
            judge(stringify!($name), $size, &[$($option),*]);
        })*
    };
}

judged! {
    ext3_2k: "128M", ["-t", "ext3", "-b", "2048"];
    ext4_1k: "128M", ["-t", "ext4", "-b", "1024"];
    ext4_4k: "128M", ["-t", "ext4", "-b", "4096"];
    inline_data: "128M", ["-t", "ext4", "-O", "inline_data", "-I", "256"];
    meta_bg: "256M", ["-t", "ext4", "-b", "1024", "-O", "meta_bg,^resize_inode"];
    no_flex_bg: "128M", ["-t", "ext4", "-b", "1024", "-O", "^flex_bg"];
    uninit_bg: "256M", ["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,uninit_bg,^64bit"];
    ea_inode_orphan_file: "128M", ["-t", "ext4", "-O", "ea_inode,orphan_file"];
}

#[test]
fn what_cannot_be_done_in_place_is_refused_and_left() {
    for (options, what) in [
        (&["-t", "ext2"][..], "journal"),
        (&["-t", "ext4", "-O", "^has_journal"], "journal"),
        (&["-t", "ext4", "-O", "bigalloc"], "bigalloc"),
        (&["-t", "ext4", "-O", "mmp"], "mmp"),
    ] {
        let scratch = Scratch::new("refused");
        let (image, trace) = (scratch.join("image"), scratch.join("trace"));
        run("mke2fs", &[&["-q", "-F"], options, &[&image, "64M"]].concat());
        fs::write(scratch.path().join("paths"), "/lost+found\n").expect("write");
        text(&seekless(&["trace", "import", "--paths", &scratch.join("paths"), "-o", &trace]));
        let sum = run("sha256sum", &[&image]);
        let args = ["optimize", &image, "--trace", &trace, "--in-place"];
        let (code, message) = failure(&seekless(&args));
        assert!(code == 4 && message.contains(what), "{code}: {message}");
        assert_eq!(sum, run("sha256sum", &[&image]), "{what}");
        let undo = scratch.join("undo");
        failure(&seekless(&[&args[..], &["--undo", &undo]].concat()));
        assert!(!std::path::Path::new(&undo).exists(), "{what}: an undo file");
    }
}

/// An image full of small files, some of them removed: the hot blocks are scattered, and their
/// destination is occupied.
fn aged(scratch: &Scratch, options: &[&str], size: &str, files: usize) -> String {
    let (tree, image) = (scratch.join("tree"), scratch.join("aged"));
    fs::create_dir(&tree).expect("mkdir");
    let mut random = 1u32;
    for n in 0..files {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let dir = format!("{tree}/{}", n % 37);
        fs::create_dir_all(&dir).expect("mkdir");
        let len = 700 + (random >> 16) as usize % 9000;
        fs::write(format!("{dir}/{n}"), vec![n as u8; len]).expect("write");
    }
    // A map of several blocks, of which only parts are touched.
    fs::write(format!("{tree}/long"), vec![9; 900_000]).expect("write");
    run("mke2fs", &[&["-q", "-F"], options, &["-d", &tree, &image, size]].concat());
    let removed = (0..files).filter(|n| n % 5 == 1).map(|n| format!("rm /{}/{n}\n", n % 37));
    fs::write(scratch.path().join("commands"), removed.collect::<String>()).expect("write");
    run("debugfs", &["-w", "-f", &scratch.join("commands"), &image]);
    let fixed = Command::new("e2fsck").args(["-fy", &image]).output().expect("e2fsck");
    assert!(fixed.status.code().is_some_and(|code| code <= 1));
    fs::remove_dir_all(&tree).expect("remove");
    image
}

/// Writes a trace of every seventh file, and of parts of the long one.
fn hot(scratch: &Scratch, files: usize) -> String {
    let mut events = String::from("{\"seekless_trace\":1}\n");
    let mut time = 0;
    let mut event = |path: String, offset: usize, length: usize| {
        time += 1000;
        events += &format!(
            "{{\"time\":{time},\"op\":\"read\",\"path\":\"{path}\",\"offset\":{offset},\"length\":{length}}}\n"
        );
    };
    for n in (0..files).filter(|n| n % 7 == 3 && n % 5 != 1) {
        let n = n * 7919 % files;
        if n % 5 != 1 {
            event(format!("/{}/{n}", n % 37), 0, 20_000);
        }
        if n.is_multiple_of(3) {
            event("/long".into(), n * 4096 % 880_000, 4096);
        }
    }
    let trace = scratch.join("trace");
    fs::write(&trace, events).expect("write");
    trace
}

/// An operation on a device.
#[derive(Clone)]
enum Done {
    Write(u64, Vec<u8>),
    Flush,
}

/// A device in memory that records the operations on it.
struct Noted {
    base: MemoryDevice,
    done: Mutex<Vec<Done>>,
}

impl Noted {
    fn new(bytes: Vec<u8>) -> Arc<Self> {
        Arc::new(Self { base: MemoryDevice::new(bytes), done: Mutex::default() })
    }
}

impl BlockDevice for Noted {
    fn len(&self) -> ByteLen {
        self.base.len()
    }

    fn read(&self, at: Lba, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.base.read(at, buf)
    }

    fn write(&self, at: Lba, buf: &[u8]) -> Result<(), DeviceError> {
        let done = Done::Write(at.to_bytes().get(), buf.to_vec());
        self.done.lock().expect("lock").push(done);
        self.base.write(at, buf)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.done.lock().expect("lock").push(Done::Flush);
        self.base.flush()
    }
}

/// Performs the command's work on a device.
fn rearrange(device: &Arc<dyn BlockDevice>, trace: &str) -> Result<Progress, FsError> {
    rearrange_some(device, trace, usize::MAX)
}

/// The same, stopped after at most `steps` steps.
fn rearrange_some(
    device: &Arc<dyn BlockDevice>,
    trace: &str,
    mut steps: usize,
) -> Result<Progress, FsError> {
    recover(device)?;
    let image = Arc::new(ExtImage::open(device.clone(), OpenOptions::default())?);
    let relayout = Relayout::new(&image)?;
    let file = std::io::BufReader::new(fs::File::open(trace).expect("trace"));
    let events: Events =
        Reader::new(file).expect("trace").collect::<Result<_, _>>().expect("trace");
    let machine = Machine { merges: false, ..Machine::default() };
    let replayed = replay(image.as_ref(), &events, machine)?;
    let touches = touches(&[replayed], &|ino| relayout.object(ino), 1);
    let (occupied, space) = relayout.in_place()?;
    let wall = || Timestamp { secs: 1_700_000_000, nanos: 0 };
    let mut mover = relayout.mover(device.clone(), Box::new(wall))?;
    let mut plan = InPlace::new(occupied, &space, &touches, 64, None, mover.limits())?;
    while let Some(step) = plan.next_step()? {
        if steps == 0 {
            return Ok(plan.progress());
        }
        steps -= 1;
        mover.apply(&step)?;
    }
    mover.finish()?;
    Ok(plan.progress())
}

/// Offset of the superblock. Its sectors are assumed to be written together: a torn superblock has
/// a wrong checksum, and no program accepts it.
const SUPERBLOCK: usize = 1024;

/// A state of the device after a power failure during write `cut`: writes after the last flush are
/// present or absent, and write `cut` is present up to some sector.
fn state(base: &[u8], done: &[Done], cut: usize, random: &mut u64) -> Vec<u8> {
    let mut next = || {
        *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        *random >> 33
    };
    let flushed = done[..cut].iter().rposition(|done| matches!(done, Done::Flush)).unwrap_or(0);
    let mut bytes = base.to_vec();
    let keeps_order = next() % 3 == 0;
    for (at, done) in done[..=cut].iter().enumerate() {
        let Done::Write(offset, written) = done else { continue };
        if at >= flushed && at < cut && !keeps_order && next() % 2 == 0 {
            continue;
        }
        let sectors = written.len() / 512;
        let offset = usize::try_from(*offset).expect("offset");
        let mut len = if at == cut { next() as usize % (sectors + 1) * 512 } else { written.len() };
        if (SUPERBLOCK + 1..SUPERBLOCK + 1024).contains(&(offset + len)) {
            len = SUPERBLOCK.saturating_sub(offset);
        }
        bytes[offset..offset + len].copy_from_slice(&written[..len]);
    }
    bytes
}

/// Crashes at every `step`-th write: e2fsck -p repairs the state completely, and so does the next
/// run, which resumes.
fn cut(options: &[&str], size: &str, files: usize, step: usize) {
    let scratch = Scratch::new("cut");
    let image = aged(&scratch, options, size, files);
    let trace = hot(&scratch, files);
    let listing = manifest(&image, &[]);
    let base = fs::read(&image).expect("image");
    let noted = Noted::new(base.clone());
    let device: Arc<dyn BlockDevice> = noted.clone();
    let progress = rearrange(&device, &trace).expect("rearranged");
    assert!(progress.moved_in > 100 && progress.stopped.is_none(), "{progress:?}");
    assert!(progress.moved_out > 0, "nothing was in the way: {progress:?}");
    let done = std::mem::take(&mut *noted.done.lock().expect("lock"));
    let mut random = 99;
    let writes: Vec<usize> =
        (0..done.len()).filter(|&at| matches!(done[at], Done::Write(..))).collect();
    println!("{options:?}: {progress:?}, {} writes, cut at each {step}.", writes.len());
    for &at in writes.iter().step_by(step) {
        let bytes = state(&base, &done, at, &mut random);
        let path = scratch.join("state");
        fs::write(&path, &bytes).expect("write");
        let output = Command::new("e2fsck").args(["-p", &path]).output().expect("e2fsck");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.code().is_some_and(|code| code <= 1), "write {at}: {said}");
        run("e2fsck", &["-fn", &path]);
        same(&format!("after write {at}"), &listing, &manifest(&path, &[]));

        // The command itself recovers the journal, and resumes.
        fs::write(&path, &bytes).expect("write");
        let again: serde_json::Value =
            serde_json::from_str(&in_place(&path, &trace, &["--json"])).expect("JSON");
        assert!(again["stopped"].is_null() && again["left_bytes"] == 0, "{again}");
        run("e2fsck", &["-fn", &path]);
        same(&format!("gone on after write {at}"), &listing, &manifest(&path, &[]));
    }
}

#[test]
fn cut_off_at_some_writes() {
    cut(&["-t", "ext4", "-b", "1024", "-N", "2000"], "9M", 1200, 43);
    cut(&["-t", "ext3", "-b", "1024", "-N", "2000"], "9M", 1200, 97);
}

#[test]
#[ignore = "an hour: every write of an image of 64 MiB"]
fn cut_off_at_every_write_ext4_1k() {
    cut(&["-t", "ext4", "-b", "1024", "-N", "14000"], "64M", 9700, 1);
}

#[test]
#[ignore = "an hour: every write of an image of 64 MiB"]
fn cut_off_at_every_write_ext3_1k() {
    cut(&["-t", "ext3", "-b", "1024", "-N", "14000"], "64M", 9700, 1);
}

#[test]
#[ignore = "an hour: every write of an image of 64 MiB"]
fn cut_off_at_every_write_ext4_4k() {
    cut(&["-t", "ext4", "-b", "4096", "-N", "14000"], "64M", 7500, 1);
}

/// e2undo restores the image bit for bit after a complete run.
#[test]
fn e2undo_restores_the_image() {
    let shapes =
        [(&["-t", "ext4", "-b", "1024"][..], "9M"), (&["-t", "ext3", "-b", "4096"], "20M")];
    for (options, size) in shapes {
        let scratch = Scratch::new("undo");
        let image = aged(&scratch, &[options, &["-N", "2000"]].concat(), size, 1200);
        let trace = hot(&scratch, 1200);
        let (old, undo) = (scratch.join("old"), scratch.join("undo"));
        run("cp", &[&image, &old]);
        in_place(&image, &trace, &["--undo", &undo]);
        assert!(!Command::new("cmp").args(["-s", &image, &old]).status().expect("cmp").success());
        run("e2undo", &[&undo, &image]);
        run("cmp", &[&image, &old]);
        let args = ["optimize", &image, "--trace", &trace, "--in-place", "--undo", &undo];
        let (code, message) = failure(&seekless(&args));
        assert!(code != 0 && message.contains("exists"), "{message}");
    }
}

/// A run that stops between two steps without closing the undo file: e2undo restores the image with
/// -f, and after an e2fsck every file is unchanged.
#[test]
fn e2undo_restores_after_a_run_that_was_killed() {
    let scratch = Scratch::new("undo-killed");
    let image = aged(&scratch, &["-t", "ext4", "-b", "1024", "-N", "2000"], "9M", 1200);
    let trace = hot(&scratch, 1200);
    let listing = manifest(&image, &[]);
    let undo = scratch.join("undo");
    let base = fs::read(&image).expect("image");
    let raw: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(base));
    let file = fs::File::options().read(true).write(true).create_new(true).open(&undo);
    let saved = UndoDevice::new(raw.clone(), file.expect("undo file"), 1024).expect("begun");
    rearrange_some(&(Arc::new(saved) as _), &trace, 2).expect("two steps");
    let mut bytes = vec![0; usize::try_from(raw.len().get()).expect("length")];
    raw.read(Lba::ZERO, &mut bytes).expect("read");
    fs::write(&image, &bytes).expect("write");
    run("e2undo", &["-f", &undo, &image]);
    let checked = Command::new("e2fsck").args(["-fy", &image]).output().expect("e2fsck");
    assert!(checked.status.code().is_some_and(|code| code <= 1), "{checked:?}");
    run("e2fsck", &["-fn", &image]);
    same("restored", &listing, &manifest(&image, &[]));
}

#[test]
fn no_more_is_moved_than_the_budget() {
    let scratch = Scratch::new("budget");
    let image = aged(&scratch, &["-t", "ext4", "-b", "1024", "-N", "2000"], "10M", 1200);
    let trace = hot(&scratch, 1200);
    let told = in_place(&image, &trace, &["--budget", "200K", "--json"]);
    let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    let bytes = |key: &str| told[key].as_u64().expect("number");
    let moved = bytes("moved_in_bytes") + bytes("moved_out_bytes");
    assert!(moved > 0 && moved <= 200 << 10, "{told}");
    assert_eq!(told["stopped"], "budget");
    run("e2fsck", &["-fn", &image]);
}

/// A trial copies no contents, but the scores after it read targets of symlinks, which have blocks
/// of their own if they are long.
#[test]
fn a_trial_follows_symlinks() {
    let scratch = Scratch::new("trial-symlinks");
    let (tree, image, paths) =
        (scratch.path().join("tree"), scratch.join("old"), scratch.join("paths"));
    fs::create_dir(&tree).expect("mkdir");
    for n in 0..20 {
        fs::write(tree.join(format!("file-{n}")), vec![n; 10_000]).expect("write");
        let target = format!("{}file-{}", "./".repeat(50), 19 - n);
        std::os::unix::fs::symlink(target, tree.join(format!("link-{n}"))).expect("symlink");
    }
    let from = tree.to_str().expect("path");
    run("mke2fs", &["-q", "-F", "-t", "ext4", "-b", "1024", "-d", from, &image, "32M"]);
    fs::write(&paths, (0..20).map(|n| format!("/link-{n}\n")).collect::<String>()).expect("write");
    let trace = scratch.join("trace");
    text(&seekless(&["trace", "import", "--paths", &paths, "-o", &trace]));
    let told = in_place(&image, &trace, &["--dry-run"]);
    let done = in_place(&image, &trace, &[]);
    assert_eq!(told.replace("would be ", ""), done);
    run("e2fsck", &["-fn", &image]);
}
