//! UFS images changed through the read-write mount: the files that ordinary programs write are
//! there, and the image satisfies The Sleuth Kit, GRUB and our own checker. Needs root and FUSE;
//! reports and passes without.

mod damaged;
mod grow;
#[path = "../judges/mod.rs"]
mod judges;
#[path = "../judges/mounted.rs"]
mod mounted;
mod quota;
mod recover;
#[path = "../judges/recovery.rs"]
mod recovery;

use judges::{Scratch, dissect, failure, manifest, run, same, seekless, text, unmount};
use mounted::Mounted;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn ready() -> bool {
    let fuse = fs::File::options().read(true).write(true).open("/dev/fuse").is_ok();
    let root = fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0);
    let there = |program: &str| {
        let look = format!("command -v {program}");
        Command::new("sh").args(["-c", &look]).output().is_ok_and(|done| done.status.success())
    };
    let missing: Vec<&str> =
        ["fsstat", "grub-fstest", "rsync"].into_iter().filter(|program| !there(program)).collect();
    if fuse && root && missing.is_empty() {
        return true;
    }
    judges::skip(&format!("needs root, /dev/fuse and {missing:?}"));
    false
}

fn populate(root: &Path) {
    for dir in ["dir/below/deep", "many", "empty"] {
        fs::create_dir_all(root.join(dir)).expect("mkdir");
    }
    let noise = |len: usize, seed: u64| -> Vec<u8> {
        (0..len as u64).map(|n| (seed.wrapping_mul(n | 1).wrapping_add(n) >> 7) as u8).collect()
    };
    for n in 0..40 {
        fs::write(root.join(format!("dir/{n}")), noise(n * 1531, n as u64)).expect("write");
    }
    fs::write(root.join("single"), noise(700_000, 77)).expect("write");
    fs::write(root.join("double"), noise(9 << 20, 78)).expect("write");
    for n in 0..1200 {
        fs::write(root.join(format!("many/a name of some length {n}")), b"x").expect("write");
    }
    fs::hard_link(root.join("single"), root.join("dir/hard")).expect("link");
    symlink("short", root.join("dir/fast")).expect("symlink");
    symlink("l".repeat(600), root.join("dir/slow")).expect("symlink");
    run("mkfifo", &[root.join("fifo").to_str().expect("path")]);
}

fn make(image: &str, format: &str, size: &str, rest: &[&str]) {
    let args = [&["mkfs", "--force", "--format", format, "-s", size, image], rest].concat();
    text(&seekless(&args));
}

/// A listing without `$OrphanFiles`. Sizes of directories, which never shrink, are not compared.
fn listing(path: &str) -> String {
    let whole = manifest(path, &[]);
    let shown = whole.lines().filter(|line| !line.contains("$OrphanFiles"));
    shown.map(|line| line.to_string() + "\n").collect()
}

#[test]
fn what_programs_write_is_there_afterwards() {
    if !ready() {
        return;
    }
    let scratch = Scratch::new("ufs-mount");
    let (tree, tar, image) = (scratch.join("tree"), scratch.join("tar"), scratch.join("image"));
    let at = scratch.path().join("at");
    populate(Path::new(&tree));
    // Other formats of tar store whole seconds only.
    run("tar", &["-c", "--format=posix", "-f", &tar, "-C", &tree, "."]);
    let wanted = listing(&tree);
    let cases = [
        ("ufs2", "softdep,policy=orlov", &["-b", "4096", "-f", "512"][..]),
        ("ufs2", "async,policy=depth", &[][..]),
        ("ufs1", "softdep,policy=old-dirpref", &["-b", "8192", "-f", "1024"][..]),
        ("ufs1", "normal", &[][..]),
        ("ufs2", "sync", &["-b", "16384", "-f", "2048"][..]),
        ("ufs1", "softdep", &["-b", "8192", "-f", "1024", "--big-endian"][..]),
    ];
    for (format, options, shape) in cases {
        let what = format!("{format} {options}");
        make(&image, format, "64M", shape);
        let mounted = Mounted::new(&image, &at, &format!("rw,{options}"));
        run("tar", &["-x", "-p", "-f", &tar, "-C", at.to_str().expect("path")]);
        let difference =
            run("rsync", &["-acnHi", "--delete", &format!("{tree}/"), at.to_str().expect("path")]);
        assert_eq!(difference, "", "{what}");
        // A second tree is copied, renamed and removed.
        run("cp", &["-a", &tree, at.join("second").to_str().expect("path")]);
        fs::rename(at.join("second"), at.join("third")).expect("rename");
        fs::remove_dir_all(at.join("third")).expect("rm -rf");
        // The removal has changed the times of the root.
        run("touch", &["-r", &tree, at.to_str().expect("path")]);
        mounted.end();

        same(&what, &wanted, &listing(&image));
        text(&seekless(&["check", &image]));
        let info = text(&seekless(&["info", &image, "--json"]));
        assert!(info.contains("\"clean\""), "{what}: {info}");
        // GRUB and dissect.ffs read little-endian images only.
        let big_endian = shape.contains(&"--big-endian");
        judged_by_others(&what, &image, &tree, big_endian);
        recovered_whole(&what, &image, &tree, &scratch.join("recovered"));
        if !big_endian && dissect::ready() {
            dissect::agrees(&what, &dissect::of_manifest(&wanted), &image);
        }
    }
}

/// The Sleuth Kit recovers every file of an image unchanged.
fn recovered_whole(what: &str, image: &str, tree: &str, to: &str) {
    run("tsk_recover", &["-a", image, to]);
    // It recovers only files that are not empty.
    let difference = run("rsync", &["-rcni", "--delete", "--min-size=1", &format!("{tree}/"), to]);
    let files: Vec<&str> = difference
        .lines()
        .filter(|line| line.starts_with(">f") || line.starts_with("*deleting"))
        .collect();
    assert!(files.is_empty(), "{what}: {files:?}");
    fs::remove_dir_all(to).expect("rm");
}

/// Images made by FreeBSD, including ones with check hashes and uninitialised inodes, are read as
/// by an independent reader, which can still read them after we have written to them.
#[test]
fn images_of_freebsd_are_read_and_changed() {
    if !ready() || !dissect::ready() {
        return;
    }
    let images = dissect::images();
    if images.is_empty() {
        judges::skip("there are no images of FreeBSD (.ci/judges)");
        return;
    }
    let scratch = Scratch::new("freebsd");
    let (image, at) = (scratch.join("image"), scratch.path().join("at"));
    for packed in &images {
        let what = packed.display().to_string();
        let bytes = Command::new("gzip").arg("-dc").arg(packed).output().expect("gzip").stdout;
        fs::write(&image, bytes).expect("image");
        // Some have the state after a crash; none has unexpected damage.
        let report = seekless(&["check", &image, "--json"]);
        let report = String::from_utf8_lossy(&report.stdout).into_owned();
        assert!(report.contains("\"unexpected\":0"), "{what}: {report}");
        let wanted = dissect::of_manifest(&listing(&image));
        assert!(!wanted.is_empty(), "{what}");
        dissect::agrees(&what, &wanted, &image);
        let mounted = Mounted::new(&image, &at, "rw,softdep,force");
        for n in 0..400 {
            let dir = at.join(format!("new{}", n % 7));
            fs::create_dir_all(&dir).expect("mkdir");
            fs::write(dir.join(format!("{n}")), vec![n as u8; n * 37]).expect("write");
        }
        fs::remove_dir_all(at.join("new3")).expect("rm -rf");
        let seen = dissect::of_manifest(&listing(at.to_str().expect("path")));
        mounted.end();
        // A mount does not make an unclean image clean.
        let report = seekless(&["check", &image, "--json"]);
        let report = String::from_utf8_lossy(&report.stdout).into_owned();
        assert!(report.contains("\"unexpected\":0"), "{what}: {report}");
        assert!(seen.len() > 300, "{what}: {}", seen.len());
        dissect::agrees(&what, &seen, &image);
    }
}

/// A volume with a journal of soft updates that was not unmounted is recovered by a read-write mount,
/// and not by one that is read-only.
#[test]
fn a_journal_of_soft_updates_is_used_by_mounts() {
    if !ready() {
        return;
    }
    let scratch = Scratch::new("ufs-journal");
    let (image, packed) = (scratch.join("image"), scratch.join("packed.gz"));
    let at = scratch.path().join("at");
    let packs: [&[u8]; 2] = [
        include_bytes!("../../../ffs/tests/images/suj-ufs1.img.gz"),
        include_bytes!("../../../ffs/tests/images/suj-ufs2.img.gz"),
    ];
    for pack in packs {
        fs::write(&packed, pack).expect("packed");
        let bytes = Command::new("gzip").args(["-dc", &packed]).output().expect("gzip").stdout;
        fs::write(&image, &bytes).expect("image");
        Mounted::new(&image, &at, "ro").end();
        assert!(fs::read(&image).expect("image") == bytes, "something was written");
        let mounted = Mounted::new(&image, &at, "rw,softdep");
        assert!(at.join("kept/whole").exists());
        fs::write(at.join("kept/more"), [7; 9000]).expect("write");
        let seen = dissect::of_manifest(&listing(at.to_str().expect("path")));
        mounted.end();
        text(&seekless(&["check", &image]));
        run("fsstat", &[&image]);
        if dissect::ready() {
            dissect::agrees("a journal", &seen, &image);
        }
    }
}

/// The Sleuth Kit and GRUB find the names and the contents.
fn judged_by_others(what: &str, image: &str, tree: &str, big_endian: bool) {
    run("fsstat", &[image]);
    let names = run("fls", &["-r", "-p", "-u", image]);
    for name in ["dir/39", "many/a name of some length 1199", "dir/slow", "fifo"] {
        assert!(names.lines().any(|line| line.ends_with(&format!("\t{name}"))), "{what}: {name}");
    }
    if big_endian {
        return;
    }
    for name in ["single", "double", "dir/39", "many/a name of some length 0"] {
        let inside = format!("(loop0)/{name}");
        run("grub-fstest", &[image, "cmp", &inside, &format!("{tree}/{name}")]);
    }
}

#[test]
fn a_full_volume_says_so_and_stays_whole() {
    if !ready() {
        return;
    }
    let scratch = Scratch::new("ufs-full");
    let (image, at) = (scratch.join("image"), scratch.path().join("at"));
    make(&image, "ufs2", "8M", &["-b", "4096", "-f", "512"]);
    let mounted = Mounted::new(&image, &at, "rw,softdep");
    let file = fs::File::create(at.join("full")).expect("create");
    let mut end = 0;
    let error = loop {
        match file.write_at(&[1; 50_000], end) {
            Ok(done) => end += done as u64,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    assert_eq!(file.metadata().expect("stat").len(), end);
    assert!(end > 5 << 20, "only {end} bytes fit");
    // The space of a removed file is available at once, even if the disk does not have the removal
    // yet.
    fs::remove_file(at.join("full")).expect("unlink");
    drop(file);
    fs::write(at.join("again"), vec![2; end as usize - 100_000]).expect("write");
    mounted.end();
    text(&seekless(&["check", &image]));
}

/// The counters that a mount prints at its end, and with -v those that it prints on a signal
/// before.
fn counted(image: &str, at: &Path, options: &str, how: &str) -> (String, String) {
    fs::create_dir_all(at).expect("mount point");
    let outside = fs::metadata(at).expect("mount point").dev();
    let mut server = Command::new(env!("CARGO_BIN_EXE_seekless"))
        .args(["mount", "-f", image, how, "-o", options])
        .arg(at)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("seekless mount");
    let start = Instant::now();
    while fs::metadata(at).is_ok_and(|seen| seen.dev() == outside) {
        assert!(start.elapsed() < Duration::from_secs(60), "not mounted");
        std::thread::sleep(Duration::from_millis(10));
    }
    for n in 0..30 {
        fs::create_dir(at.join(format!("{n}"))).expect("mkdir");
        fs::write(at.join(format!("{n}/file")), vec![1; 5000]).expect("write");
    }
    let mut asked = String::new();
    if how == "-v" {
        run("kill", &["-USR1", &server.id().to_string()]);
        let mut errors = BufReader::new(server.stderr.take().expect("stderr"));
        // The output comes asynchronously; the kind is among the last lines.
        while !asked.contains("diradd") {
            assert!(errors.read_line(&mut asked).expect("read") > 0, "{asked}");
        }
    }
    unmount(at).expect("umount");
    let done = server.wait_with_output().expect("server");
    assert!(done.status.success(), "{done:?}");
    (String::from_utf8(done.stdout).expect("text"), asked)
}

#[test]
fn what_was_counted_is_told() {
    if !ready() {
        return;
    }
    let scratch = Scratch::new("ufs-counted");
    let (image, at) = (scratch.join("image"), scratch.path().join("at"));
    let counts = |options: &str| -> serde_json::Value {
        make(&image, "ufs2", "32M", &["-b", "4096", "-f", "512"]);
        let (said, _) = counted(&image, &at, options, "--json");
        serde_json::from_str(&said).expect("JSON")
    };
    let number = |of: &serde_json::Value| of.as_u64().expect("a number");
    let (sync, soft) = (counts("rw,sync"), counts("rw,softdep"));
    // At least one name and one inode each.
    assert!(number(&sync["sync_writes"]) > 120, "{sync}");
    assert!(number(&soft["sync_writes"]) < 10 && number(&soft["async_writes"]) > 0, "{soft}");
    assert_eq!(number(&sync["dependencies"]["diradd"]["made"]), 0, "{sync}");
    assert_eq!(number(&soft["dependencies"]["diradd"]["made"]), 30, "{soft}");
    assert_eq!(number(&soft["dependencies"]["mkdir"]["made"]), 30, "{soft}");
    assert_eq!(number(&soft["dependencies"]["mkdir"]["in_use"]), 0, "{soft}");
    make(&image, "ufs2", "32M", &[]);
    let (last, asked) = counted(&image, &at, "rw", "-v");
    for said in [&asked, &last] {
        assert!(said.contains("writes: sync ") && said.contains("max_limit_hit"), "{said}");
    }
    // While it is mounted, names have pending dependencies.
    let waiting = |said: &str| {
        let line = said.lines().find(|line| line.trim_start().starts_with("diradd"));
        let words: Vec<u64> = line
            .expect("diradd")
            .split_whitespace()
            .skip(1)
            .map(|n| n.parse().expect("n"))
            .collect();
        words[0]
    };
    assert_eq!((waiting(&asked), waiting(&last)), (30, 0), "{asked} {last}");
}

#[test]
fn what_must_not_be_mounted_is_refused() {
    if !ready() {
        return;
    }
    let scratch = Scratch::new("ufs-refused");
    let (image, at) = (scratch.join("image"), scratch.path().join("at"));
    let elsewhere = scratch.join("elsewhere");
    fs::create_dir(&elsewhere).expect("mkdir");
    make(&image, "ufs2", "16M", &[]);
    let attempt = |options: &str| failure(&seekless(&["mount", &image, &elsewhere, "-o", options]));
    let (code, message) = attempt("rw,sofdep");
    assert_eq!(code, 2, "{message}");
    assert!(message.contains("did you mean softdep?"), "{message}");
    let (code, message) = attempt("rw,policy=newest");
    assert_ne!(code, 0);
    assert!(message.contains("old-dirpref"), "{message}");
    for (options, expected) in [
        ("rw,dirs=linux-orlov", "policy 'linux-orlov' is for ext2, ext3 and ext4 only"),
        ("rw,inodes=dir-reserve=8", "policy 'dir-reserve' is for ext2, ext3 and ext4 only"),
        ("rw,blocks=ext2-next", "policy 'ext2-next' is for ext2, ext3 and ext4 only"),
        ("rw,delalloc", "delalloc on UFS"),
    ] {
        let (code, message) = attempt(options);
        assert!(code != 0 && message.contains(expected), "{message}");
    }
    // While it is mounted, no other process may change it.
    let mut mounted = Mounted::new(&image, &at, "rw");
    let (code, message) = attempt("rw");
    assert_eq!(code, 6, "{message}");
    // A killed mount leaves it unclean: it is refused, unless forced.
    mounted.server.kill().expect("kill");
    mounted.server.wait().expect("wait");
    run("umount", &["-l", at.to_str().expect("path")]);
    let (_, message) = attempt("rw");
    assert!(message.contains("not clean"), "{message}");
    Mounted::new(&image, &at, "rw,force").end();
    let (_, message) = attempt("rw");
    assert!(message.contains("not clean"), "forcing it does not make it clean: {message}");
}

/// The limit of pending changes and the delay change while the volume is in use; counters begin
/// again.
#[test]
fn settings_change_while_it_is_mounted() {
    if !ready() {
        return;
    }
    let scratch = Scratch::new("ufs-settings");
    let (image, at) = (scratch.join("image"), scratch.path().join("at"));
    let tree = scratch.join("tree");
    fs::create_dir(&tree).expect("mkdir");
    make(&image, "ufs2", "64M", &["-b", "8192", "-f", "1024"]);
    let mounted = Mounted::new(&image, &at, "rw,softdep");
    let dir = at.to_str().expect("path");
    let shown = |args: &[&str]| -> serde_json::Value {
        let all = [&["mount", dir, "--json"], args].concat();
        serde_json::from_str(&text(&seekless(&all))).expect("JSON")
    };
    let make_files = |name: &str| {
        let script =
            format!("mkdir {dir}/{name}; for n in $(seq 400); do : > {dir}/{name}/$n; done");
        run("sh", &["-ec", &script]);
    };
    make_files("a");
    let before = shown(&["--counters"]);
    assert_eq!((&before["max_softdeps"], &before["tickdelay"]), (&400_000.into(), &2.into()));
    assert_eq!((&before["cache"], &before["max_undo"]), (&(64 << 20).into(), &(64 << 20).into()));
    assert_eq!(before["discipline"], "softdep");
    assert_eq!(before["max_limit_hit"], 0);
    let most = before["most_softdeps"].as_u64().expect("a number");
    assert!(most > 400, "{before}");
    let set = shown(&["--set", "max_softdeps=200,tickdelay=3,counters=0"]);
    assert_eq!((&set["max_softdeps"], &set["tickdelay"]), (&200.into(), &3.into()));
    for key in ["sync_writes", "async_writes", "reads", "rush_requests"] {
        assert_eq!(set[key], 0, "{key}");
    }
    make_files("b");
    let after = shown(&["--counters"]);
    assert!(after["max_limit_hit"].as_u64() > Some(0), "{after}");
    assert!(after["slept_ns"].as_u64() >= Some(30_000_000), "{after}");
    assert!(after["dependencies"]["diradd"]["made"].as_u64() >= Some(400), "{after}");
    // max_softdeps is raised again. max_undo and cache are lowered, to less than the cache has now.
    let raised =
        shown(&["--set", "max_softdeps=400000", "--set", "counters=0,max_undo=1M,cache=1M"]);
    assert_eq!((&raised["cache"], &raised["max_undo"]), (&(1 << 20).into(), &(1 << 20).into()));
    assert_eq!((&raised["rush_requests"], &raised["tickdelay"]), (&0.into(), &3.into()));
    make_files("c");
    let raised = shown(&["--counters"]);
    assert_eq!((&raised["rush_requests"], &raised["max_limit_hit"]), (&0.into(), &0.into()));
    let listed = text(&seekless(&["mount", "--counters", dir]));
    let head = "softdep: cache 1048576, max_softdeps 400000, tickdelay 3, max_undo 1048576\n";
    assert!(listed.starts_with(head), "{listed}");
    for (args, code, why) in [
        (&["--set", "max_softdeps=0", dir][..], 2, "max_softdeps must be a number from 1 to"),
        (
            &["--set", "tickdelay=9,tickdelay=1", dir],
            2,
            "tickdelay must be a number from 2 to 3000",
        ),
        (&["--set", "cache=4K", dir], 2, "cache must be at least 1024K"),
        (&["--set", "max_undo=none", dir], 2, "max_undo: 'none' is not a size"),
        (
            &["--set", "maxsoftdeps=9", dir],
            2,
            "available: max_softdeps, tickdelay, max_undo, cache",
        ),
        (&["--set", "tickdelay=9", "/proc"], 4, "not a volume that seekless has mounted with rw"),
        (&["--set", "tickdelay=9", &tree], 2, "not where a file system is mounted"),
        (&["--counters", &tree], 2, "not where a file system is mounted"),
        (&["--counters", &image, dir], 2, "cannot be used with"),
        (&[dir], 2, "required"),
    ] {
        let failed = seekless(&[&["mount"], args].concat());
        let said = String::from_utf8_lossy(&failed.stderr).into_owned();
        assert_eq!(failed.status.code(), Some(code), "{args:?}: {said}");
        assert!(said.contains(why), "{args:?}: {said}");
    }
    assert_eq!(shown(&["--counters"])["tickdelay"], 3, "nothing has changed");
    mounted.end();
    text(&seekless(&["check", &image]));
    run("fsstat", &[&image]);
    let read_only = Mounted::new(&image, &at, "ro");
    assert_eq!(seekless(&["mount", "--counters", dir]).status.code(), Some(4));
    read_only.end();
}

/// The other disciplines have a cache and counters, but no limits of soft updates.
#[test]
fn limits_of_soft_updates_are_refused_where_there_are_none() {
    if !ready() {
        return;
    }
    let scratch = Scratch::new("ufs-no-limits");
    let (image, at) = (scratch.join("image"), scratch.path().join("at"));
    make(&image, "ufs2", "32M", &[]);
    let dir = at.to_str().expect("path");
    for discipline in ["async", "normal"] {
        let mounted = Mounted::new(&image, &at, &format!("rw,{discipline}"));
        for (set, named) in [
            ("max_softdeps=9", "max_softdeps:"),
            ("cache=2M,max_undo=1M,tickdelay=9", "tickdelay, max_undo:"),
        ] {
            let (code, message) = failure(&seekless(&["mount", "--set", set, dir]));
            assert_eq!(code, 4, "{message}");
            assert!(message.contains(named), "{message}");
            assert!(message.contains("not mounted with softdep"), "{message}");
        }
        let shown = |args: &[&str]| -> serde_json::Value {
            let all = [&["mount", dir, "--json"], args].concat();
            serde_json::from_str(&text(&seekless(&all))).expect("JSON")
        };
        let before = shown(&["--counters"]);
        assert_eq!(before["discipline"], discipline);
        assert_eq!((&before["cache"], before.get("max_softdeps")), (&(64 << 20).into(), None));
        let after = shown(&["--set", "cache=2M,counters=0"]);
        assert_eq!((&after["cache"], &after["reads"]), (&(2 << 20).into(), &0.into()));
        mounted.end();
    }
    text(&seekless(&["check", &image]));
}

/// Unpacks and removes a tree repeatedly, with concurrent readers.
#[test]
fn many_at_once_leave_a_whole_image() {
    if !ready() {
        return;
    }
    let scratch = Scratch::new("ufs-busy");
    let (tree, tar, image) = (scratch.join("tree"), scratch.join("tar"), scratch.join("image"));
    let at = scratch.path().join("at");
    populate(Path::new(&tree));
    run("tar", &["-c", "--format=posix", "-f", &tar, "-C", &tree, "."]);
    make(&image, "ufs2", "192M", &["-b", "8192", "-f", "1024"]);
    // A small cache and few dependencies: both limits are reached.
    let mounted = Mounted::new(&image, &at, "rw,softdep,cache=4M,max_softdeps=2000");
    let dir = at.to_str().expect("path");
    let work = |script: String| Command::new("sh").args(["-ec", &script]).spawn().expect("sh");
    let mut workers: Vec<Child> = (0..3)
        .map(|n| {
            work(format!(
                "for turn in 1 2 3; do mkdir {dir}/w{n}; tar -x -f {tar} -C {dir}/w{n}; \
                 mv {dir}/w{n} {dir}/x{n}; diff -r --no-dereference {dir}/x{n}/dir {tree}/dir; \
                 rm -r {dir}/x{n}; done"
            ))
        })
        .collect();
    // Names disappear during the walk: files that it does not find are no failure.
    workers.push(work(format!(
        "for turn in $(seq 40); do find {dir} -type f 2>/dev/null | wc -l >/dev/null; sync -f {dir}; done"
    )));
    for worker in &mut workers {
        assert!(worker.wait().expect("sh").success());
    }
    let left: Vec<_> = fs::read_dir(&at).expect("list").collect();
    assert!(left.is_empty(), "{left:?}");
    mounted.end();
    text(&seekless(&["check", &image]));
    run("fsstat", &[&image]);
}
