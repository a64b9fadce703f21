//! Refusals of a build: a clear message, the exit code of its kind, no files left behind.

use crate::judges::{Scratch, can_mount, command, failure, run, seekless, text, unmount};
use seekless_device::MemoryDevice;
use seekless_ext::{BuildOptions, Builder};
use seekless_fs::FsError;
use seekless_fs::plan::NewVolume;
use seekless_fs::source::{Content, Segment, Source};
use seekless_fs::tree::{NodeId, Tree};
use seekless_layout::planner;
use seekless_source::{DirectorySource, TreeOptions};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

/// A small tree, and a directory for the output.
fn scene(name: &str) -> (Scratch, String, String) {
    let scratch = Scratch::new(name);
    let (from, to) = (scratch.join("from"), scratch.join("to"));
    fs::create_dir(&from).expect("mkdir");
    fs::create_dir(&to).expect("mkdir");
    fs::write(scratch.path().join("from/file"), vec![1; 3 << 20]).expect("write");
    let image = format!("{to}/image");
    (scratch, from, image)
}

fn nothing_left(image: &str) {
    let dir = Path::new(image).parent().expect("directory");
    let left: Vec<_> = fs::read_dir(dir).expect("list").map(|entry| entry.expect("it")).collect();
    assert!(left.is_empty(), "left behind: {left:?}");
}

#[test]
fn what_exists_is_not_replaced_unasked() {
    let (_scratch, from, image) = scene("exists");
    fs::write(&image, b"precious").expect("write");
    let (code, message) = failure(&seekless(&["build", &from, "-o", &image]));
    assert!(code == 6 && message.contains(&image) && message.contains("--force"), "{message}");
    assert_eq!(fs::read(&image).expect("read"), b"precious");
    text(&seekless(&["build", &from, "-o", &image, "--force"]));
    assert!(fs::metadata(&image).expect("stat").len() > 3 << 20);
    fs::remove_file(&image).expect("remove");
    nothing_left(&image);
    fs::create_dir(&image).expect("mkdir");
    let (code, message) = failure(&seekless(&["build", &from, "-o", &image, "--force"]));
    assert!(code == 2 && message.contains("not a regular file"), "{message}");
}

#[test]
fn what_a_killed_process_left_is_cleared_away() {
    let (_scratch, from, image) = scene("left");
    let name = |owner: u32| {
        let (dir, file) = image.rsplit_once('/').expect("path");
        format!("{dir}/.{file}.seekless-{owner}")
    };
    // No process has so high an id; this test's own process is alive.
    let (dead, alive) = (name(u32::MAX), name(std::process::id()));
    fs::write(&dead, b"left").expect("write");
    fs::write(&alive, b"being written").expect("write");
    text(&seekless(&["build", &from, "-o", &image, "--force"]));
    assert!(!Path::new(&dead).exists());
    fs::remove_file(&alive).expect("the file of a process that lives");
    fs::remove_file(&image).expect("remove");
    nothing_left(&image);
}

#[test]
fn a_failed_replacement_leaves_the_old_file() {
    let (_scratch, from, image) = scene("replace");
    fs::write(&image, b"precious").expect("write");
    let small = ["build", &from, "-o", &image, "--force", "--size", "2M"];
    assert_eq!(failure(&seekless(&small)).0, 5);
    assert_eq!(fs::read(&image).expect("read"), b"precious");
    fs::remove_file(&image).expect("remove");
    nothing_left(&image);
}

#[test]
fn a_size_too_small_says_which_would_do() {
    let (_scratch, from, image) = scene("small");
    for size in ["64K", "2M", "3M"] {
        let args =
            ["build", &from, "-o", &image, "--size", size, "-O", "^has_journal,^orphan_file"];
        let (code, message) = failure(&seekless(&args));
        nothing_left(&image);
        assert_eq!(code, 5, "{message}");
        let (_, needed) = message.split_once("at least ").expect("how much is needed");
        let needed: u64 = needed.split(' ').next().expect("it").parse().expect("a number");
        assert!(needed < 6 << 20, "{message}");
        let size = needed.to_string();
        text(&seekless(&[&args[..5], &[size.as_str()], &args[6..]].concat()));
        fs::remove_file(&image).expect("remove");
    }
    let (code, message) =
        failure(&seekless(&["build", &from, "-o", &image, "-N", "3", "--size", "0"]));
    assert_eq!(code, 5, "{message}");
}

#[test]
fn a_full_disk() {
    if !can_mount() {
        return;
    }
    let (scratch, from, image) = scene("full");
    let to = scratch.join("to");
    run("mount", &["-t", "tmpfs", "-o", "size=2M", "tmpfs", &to]);
    let built = seekless(&["build", &from, "-o", &image]);
    let left = fs::read_dir(&to).expect("list").count();
    unmount(&to).expect("umount");
    let (code, message) = failure(&built);
    assert!(code == 5 && message.contains(&image), "{message}");
    assert!(message.contains("No space left"), "{message}");
    assert_eq!(left, 0);
}

#[test]
fn a_file_that_may_not_be_read() {
    // Not in the target directory, to which other users may have no access.
    let dir = std::env::temp_dir().join(format!("seekless-unreadable-{}", std::process::id()));
    fs::create_dir_all(dir.join("from/below")).expect("mkdir");
    let program = dir.join("seekless");
    fs::copy(env!("CARGO_BIN_EXE_seekless"), &program).expect("copy");
    let secret = dir.join("from/below/secret");
    fs::write(&secret, b"secret").expect("write");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o000)).expect("chmod");
    let to = dir.join("to");
    fs::create_dir_all(&to).expect("mkdir");
    fs::set_permissions(&to, fs::Permissions::from_mode(0o777)).expect("chmod");
    let image = to.join("image");
    let mut command = Command::new(&program);
    if rustix::process::geteuid().is_root() {
        command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&program);
    }
    let built = command.arg("build").arg(dir.join("from")).arg("-o").arg(&image).output();
    let (code, message) = failure(&built.expect("seekless"));
    nothing_left(image.to_str().expect("path"));
    fs::remove_dir_all(&dir).expect("remove");
    assert!(code == 6 && message.contains("from: below/secret"), "{message}");
    assert!(message.contains("Permission denied"), "{message}");
}

#[test]
fn more_links_than_an_inode_can_count() {
    if !can_mount() {
        return;
    }
    let (scratch, from, image) = scene("links");
    let many = scratch.join("many");
    fs::create_dir(&many).expect("mkdir");
    // A file system without that limit.
    run("mount", &["-t", "tmpfs", "-o", "nr_inodes=0", "tmpfs", &many]);
    let made = (0..65_001).try_for_each(|n| {
        fs::hard_link(format!("{many}/0"), format!("{many}/{n}")).or_else(|error| {
            if n == 0 { File::create(format!("{many}/0")).map(drop) } else { Err(error) }
        })
    });
    let built = made.map(|()| seekless(&["build", &many, "-o", &image]));
    unmount(&many).expect("umount");
    let (code, message) = failure(&built.expect("links"));
    assert!(
        code == 5 && message.contains("many: no space: 0: ") && message.contains("65000"),
        "{message}"
    );
    nothing_left(&image);
    drop(from);
}

#[test]
fn links_longer_than_a_block() {
    let (scratch, from, image) = scene("symlink");
    std::os::unix::fs::symlink("t".repeat(1500), scratch.path().join("from/link")).expect("link");
    let (code, message) = failure(&seekless(&["build", &from, "-o", &image, "-b", "1024"]));
    assert!(code == 5 && message.contains("from: no space: link: "), "{message}");
    nothing_left(&image);
}

#[test]
fn archives_cut_short_and_rubbish() {
    let (scratch, from, image) = scene("archive");
    for n in 0..20 {
        fs::write(format!("{from}/small-{n}"), vec![n; 700]).expect("write");
    }
    let archive = scratch.join("whole.tar");
    run("tar", &["-C", &from, "-cf", &archive, "."]);
    let whole = fs::read(&archive).expect("read");
    let cut = scratch.join("cut.tar");
    for len in [700, 512 * 3 + 100, 100_000, 3 << 20] {
        fs::write(&cut, &whole[..len]).expect("write");
        let (code, message) = failure(&seekless(&["build", &cut, "-o", &image]));
        assert!(code == 3 && message.contains("cut.tar"), "{len}: {message}");
        nothing_left(&image);
    }
    for (at, byte) in [(0, 0x80), (150, b'x'), (512 * 4, 0xFF), (130, b'-')] {
        let mut bytes = whole.clone();
        bytes[at] ^= byte;
        fs::write(&cut, &bytes).expect("write");
        let built = seekless(&["build", &cut, "-o", &image]);
        // A flipped byte of contents cannot be detected; one of a header is.
        if built.status.success() {
            fs::remove_file(&image).expect("remove");
        } else {
            let (code, message) = failure(&built);
            assert!(code == 3 && !message.contains("neither"), "{message}");
        }
        nothing_left(&image);
    }
    fs::write(&cut, vec![0x5A; 10_000]).expect("write");
    let (_, message) = failure(&seekless(&["build", &cut, "-o", &image]));
    assert!(message.contains("cut.tar"), "{message}");
    nothing_left(&image);
}

// ---- sources that change during a build ---------------------------------

fn write(source: &dyn Source) -> Result<(), FsError> {
    let builder = Builder::new(source, &BuildOptions::default())?;
    let plan = planner::plan(builder.demand(), &builder.space(), &[], 1)?;
    let device = MemoryDevice::new(vec![0; builder.size().get() as usize]);
    builder.write(&plan, &device, &|_| {})
}

/// Walks a tree, changes a file, and writes the image.
fn changed(name: &str, change: &dyn Fn(&Path)) {
    let (scratch, from, _image) = scene(name);
    let file = scratch.path().join("from/file");
    let source = DirectorySource::open(Path::new(&from), &TreeOptions::default()).expect("walk");
    // File times may have the resolution of a clock tick.
    std::thread::sleep(std::time::Duration::from_millis(20));
    change(&file);
    match write(&source) {
        Err(FsError::SourceChanged(path)) => assert!(path.contains("file"), "{path}"),
        other => panic!("{name}: {other:?}"),
    }
}

#[test]
fn files_that_change_before_they_are_read() {
    let open = |path: &Path| OpenOptions::new().write(true).open(path).expect("open");
    changed("truncated", &|path| open(path).set_len(1000).expect("truncate"));
    changed("emptied", &|path| open(path).set_len(0).expect("truncate"));
    changed("grown", &|path| open(path).set_len(4 << 20).expect("grow"));
    changed("rewritten", &|path| open(path).write_all_at(b"new", 5000).expect("write"));
    changed("removed", &|path| fs::remove_file(path).expect("remove"));
    changed("replaced", &|path| {
        fs::remove_file(path).expect("remove");
        fs::write(path, vec![1; 3 << 20]).expect("write");
    });
    changed("linked", &|path| {
        fs::remove_file(path).expect("remove");
        std::os::unix::fs::symlink("/etc/passwd", path).expect("symlink");
    });
    changed("made-a-directory", &|path| {
        fs::remove_file(path).expect("remove");
        fs::create_dir(path).expect("mkdir");
    });
    changed("made-a-fifo", &|path| {
        fs::remove_file(path).expect("remove");
        run("mkfifo", &[path]);
    });
}

/// A directory source whose files are appended to while they are read.
struct Busy(DirectorySource, std::path::PathBuf);

struct BusyContent<'a>(Box<dyn Content + 'a>, &'a Path);

impl Source for Busy {
    fn tree(&self) -> &Tree {
        self.0.tree()
    }

    fn segments(&self, node: NodeId) -> Result<Vec<Segment>, FsError> {
        self.0.segments(node)
    }

    fn open(&self, node: NodeId) -> Result<Box<dyn Content + '_>, FsError> {
        Ok(Box::new(BusyContent(self.0.open(node)?, &self.1)))
    }
}

impl Content for BusyContent<'_> {
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), FsError> {
        self.0.read_at(offset, buf)?;
        let mut file = OpenOptions::new().append(true).open(self.1).expect("open");
        file.write_all(b"more").expect("append");
        Ok(())
    }

    fn verify(&mut self) -> Result<(), FsError> {
        self.0.verify()
    }
}

#[test]
fn files_that_change_while_they_are_read() {
    let (scratch, from, _image) = scene("torn");
    let file = scratch.path().join("from/file");
    fs::write(&file, b"short enough to be read at once").expect("write");
    let walked = DirectorySource::open(Path::new(&from), &TreeOptions::default()).expect("walk");
    match write(&Busy(walked, file)) {
        Err(FsError::SourceChanged(path)) => assert!(path.contains("file"), "{path}"),
        other => panic!("a torn read: {other:?}"),
    }
}

#[test]
fn wrong_arguments_have_their_own_exit_code() {
    let (_scratch, from, image) = scene("arguments");
    for wrong in [
        ["--block-size", "3000"],
        ["--inode-size", "300"],
        ["--features", "nonsense"],
        ["--label", "longer than sixteen bytes"],
        ["--journal-size", "1"],
    ] {
        let mut args = vec!["build", from.as_str(), "-o", image.as_str()];
        args.extend(wrong);
        assert_eq!(failure(&seekless(&args)).0, 2, "{wrong:?}");
    }
    let inside = format!("{from}/image");
    let (code, message) = failure(&seekless(&["build", &from, "-o", &inside]));
    assert!(code == 2 && message.contains("inside its source"), "{message}");
    let file = format!("{from}/file");
    let (code, message) = failure(&seekless(&["build", &file, "-o", &image]));
    assert!(code == 4 && message.contains("neither"), "{message}");
    nothing_left(&image);
}

#[test]
fn times_beyond_the_format_become_the_nearest_and_are_counted() {
    let (scratch, from, image) = scene("times");
    let archive = scratch.join("late.tar");
    let time = "--mtime=@20000000000";
    run("tar", &["-C", &from, "--format=pax", time, "-cf", &archive, "file"]);
    let output = seekless(&["build", &archive, "-o", &image]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    text(&output);
    assert!(said.contains("files have times"), "{said}");
    let listing = text(&seekless(&["manifest", &image]));
    assert!(listing.contains("time=15032385535.000000000"), "{listing}");
}

#[test]
fn a_reader_that_has_gone_is_no_failure() {
    let (_scratch, from, image) = scene("pipe");
    text(&seekless(&["build", &from, "-o", &image]));
    let mut child =
        command(&["info", &image]).stdout(std::process::Stdio::piped()).spawn().expect("spawn");
    drop(child.stdout.take());
    assert_eq!(child.wait().expect("wait").code(), Some(0));
}

#[test]
fn a_chunk_larger_than_the_volume_is_no_obstacle() {
    let (scratch, from, image) = scene("chunk");
    text(&seekless(&["build", &from, "-o", &image]));
    let (paths, trace) = (scratch.join("paths"), scratch.join("trace"));
    fs::write(&paths, "/file\n").expect("write");
    text(&seekless(&["trace", "import", "--paths", &paths, "-o", &trace]));
    let new = format!("{image}.new");
    text(&seekless(&["optimize", &image, "--trace", &trace, "-o", &new, "--chunk", "1G"]));
    run("e2fsck", &["-fn", &new]);
}

/// An archive with one character device, in the header of ustar: octal fields.
fn device_archive(major: u32, minor: u32) -> Vec<u8> {
    let (major, minor) = (format!("{major:07o}\0"), format!("{minor:07o}\0"));
    let fields: [(usize, &[u8]); 10] = [
        (0, b"device"),
        (100, b"0000600\0"),
        (108, b"0000000\0"),
        (116, b"0000000\0"),
        (124, b"00000000000\0"),
        (136, b"00000000000\0"),
        (156, b"3"),
        (257, b"ustar\x0000"),
        (329, major.as_bytes()),
        (337, minor.as_bytes()),
    ];
    let mut header = [0; 512];
    for (at, bytes) in fields {
        header[at..at + bytes.len()].copy_from_slice(bytes);
    }
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    [&header[..], &[0; 1024]].concat()
}

#[test]
fn device_numbers_that_an_inode_has_no_place_for() {
    let (scratch, _, image) = scene("device-numbers");
    let archive = scratch.join("device.tar");
    for (major, minor) in [(4096, 0), (5000, 3), (1, 1 << 20)] {
        fs::write(&archive, device_archive(major, minor)).expect("write");
        let (code, message) = failure(&seekless(&["build", &archive, "-o", &image]));
        assert!(code == 4 && message.contains(": device: "), "{message}");
        assert!(message.contains(&format!("{major},{minor}")), "{message}");
        nothing_left(&image);
    }
    for (major, minor) in [(4095, (1 << 20) - 1), (1, 3), (255, 255), (256, 0), (0, 256)] {
        fs::write(&archive, device_archive(major, minor)).expect("write");
        text(&seekless(&["build", &archive, "-o", &image, "--force"]));
        let shown = run("debugfs", &["-R", "stat /device", &image]);
        let both = format!("{major:02}:{minor:02} (hex {major:02x}:{minor:02x})");
        assert!(shown.contains(&both), "{both}: {shown}");
    }
}

/// A hole counts: a file may have no contents near its end.
#[test]
fn files_longer_than_their_map_reaches() {
    let (scratch, from, image) = scene("longer");
    let file = File::create(scratch.path().join("from/sparse")).expect("create");
    // 12 + 256 + 256^2 + 256^3 blocks of 1 KiB.
    let reach = 16_843_020 << 10;
    let kinds: [&[&str]; 2] = [&["--format", "ext3"], &["-O", "^extent,^64bit"]];
    for (kind, longest) in kinds.map(|kind| (kind, reach)).into_iter().chain([
        // A tree of extents has numbers of 32 bits, the greatest of which none may have.
        (&["-O", "extent"][..], (1 << 42) - 1024),
        // The count of sectors has 32 bits.
        (&["-O", "extent,^huge_file"][..], (1 << 41) - 1024),
    ]) {
        let args = [&["build", &from, "-o", &image, "--force", "-b", "1024"], kind].concat();
        file.set_len(longest).expect("length");
        text(&seekless(&args));
        run("e2fsck", &["-fn", &image]);
        fs::remove_file(&image).expect("remove");
        file.set_len(longest + 1).expect("length");
        let (code, message) = failure(&seekless(&args));
        assert!(
            code == 5 && message.contains("sparse: ") && message.contains("maximum"),
            "{message}"
        );
        nothing_left(&image);
    }
}

/// Each kind of input, under its own name, by a symlink, and by a hard link.
#[test]
fn an_input_is_not_replaced_by_the_image() {
    let (scratch, from, image) = scene("spared");
    let at = |name: &str| scratch.join(name);
    let write = |name: &str, text: &str| fs::write(at(name), text).expect("write");
    write("paths", "/file\n");
    text(&seekless(&["trace", "import", "--paths", &at("paths"), "-o", &at("trace")]));
    text(&seekless(&["build", &from, "-o", &image]));
    text(&seekless(&["layout", &image, "-o", &at("list")]));
    run("tar", &["-C", &from, "-cf", &at("tar"), "."]);
    write("patterns", "*.o\n");
    write("table", "/dev d 755 0 0 - - - - -\n");
    write("contexts", "/.* system_u:object_r:usr_t:s0\n");
    write("contexts.subs", "/a /b\n");
    write("manifest", "#mtree\n. type=dir\n");
    fs::create_dir(at("repart")).expect("mkdir");
    write("repart/root.conf", "[Partition]\nType=root\nFormat=ext4\n");
    let (definition, trace) = (at("repart/root.conf"), at("trace"));
    let build = ["build", from.as_str()];
    let optimize = ["optimize", image.as_str(), "--trace", trace.as_str()];
    let tar = ["build".to_owned(), at("tar")];
    let own = |args: &[&str]| args.iter().map(|&arg| arg.to_owned()).collect::<Vec<_>>();
    let with = |args: &[&str], option: &str, input: &str| {
        ([own(args), vec![option.to_owned(), at(input)]].concat(), at(input))
    };
    let cases = [
        (tar.to_vec(), at("tar")),
        (own(&["build", &image]), image.clone()),
        (own(&optimize), image.clone()),
        (own(&optimize), trace.clone()),
        with(&optimize, "--like", "list"),
        with(&build, "--trace", "trace"),
        with(&build, "--like", "list"),
        with(&build, "--exclude-from", "patterns"),
        with(&build, "--device-table", "table"),
        with(&build, "--manifest", "manifest"),
        with(&build, "--file-contexts", "contexts"),
        (with(&build, "--file-contexts", "contexts").0, at("contexts.subs")),
        (with(&build, "--definitions", "repart").0, definition),
    ];
    for (args, input) in &cases {
        let before = fs::read(input).expect("read");
        let (link, hard) = (at("link"), at("hard"));
        std::os::unix::fs::symlink(input, &link).expect("symlink");
        fs::hard_link(input, &hard).expect("link");
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        for output in [input, &link, &hard] {
            let (code, message) =
                failure(&seekless(&[&args, &["-o", output, "--force"][..]].concat()));
            let is_told = message.contains("would be written over an input");
            assert!(code == 2 && is_told, "{args:?} {output}: {message}");
            assert!(fs::read(input).expect("read") == before, "{args:?} {output}");
        }
        for path in [&link, &hard] {
            fs::remove_file(path).expect("remove");
        }
    }
    for args in [
        &["compare", &image, &image, "--html"][..],
        &["map", &image, "--trace", &trace, "--html"],
        &["manifest", &image, "-o"],
        &["trace", "import", "--paths", &image, "-o"],
    ] {
        let (code, message) = failure(&seekless(&[args, &[&image]].concat()));
        assert!(code == 2 && message.contains("an input"), "{args:?}: {message}");
    }
    // Standard input, and outputs beside the image.
    let archive = File::open(at("tar")).expect("open");
    let piped = command(&["build", "-", "-o", &at("tar"), "--force"])
        .stdin(archive)
        .output()
        .expect("seekless");
    assert!(failure(&piped).1.contains("an input, -"));
    for option in ["--verity-tree", "--root-hash-file"] {
        let tree = ["build", &at("tar"), "-o", &at("new"), "--force", option, &at("tar")];
        let more: &[&str] = if option == "--root-hash-file" { &["--verity"] } else { &[] };
        let (code, message) = failure(&seekless(&[&tree, more].concat()));
        assert!(code == 2 && message.contains("an input"), "{message}");
        assert!(!Path::new(&at("new")).exists());
    }
}
