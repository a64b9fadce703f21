//! What goes through the kernel: mounts and recordings. Without root or FUSE nothing is tested
//! here; the tests of the binary name what they leave out.

use seekless::{Build, Mount, Record, Trace, open};
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A directory on a disk: nothing is fetched of files in memory.
fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("directory")
}

#[test]
fn a_mount_shows_the_files_and_records_what_is_read() {
    if !is_root() || !Path::new("/dev/fuse").exists() {
        return;
    }
    let work = scratch();
    let at = |name: &str| work.path().join(name);
    let (source, path, mount, recorded) = (at("source"), at("disk.img"), at("mnt"), at("trace"));
    fs::create_dir_all(source.join("deep")).expect("tree");
    fs::write(source.join("deep/a"), "alpha").expect("tree");
    fs::write(source.join("deep/b"), "beta").expect("tree");
    fs::create_dir(&mount).expect("mount point");
    Build::of([&source]).write(&path).expect("image");
    let image = open(&path).expect("image");
    std::thread::scope(|scope| {
        let served = scope.spawn(|| Mount::of(&image).record(&recorded).serve(&mount));
        let file = mount.join("deep/a");
        let is_there = (0..500).any(|_| {
            std::thread::sleep(Duration::from_millis(20));
            file.exists() || served.is_finished()
        });
        assert!(is_there, "nothing is mounted");
        let read = fs::read_to_string(&file);
        let ended = (0..100).any(|_| {
            std::thread::sleep(Duration::from_millis(20));
            let ended = Command::new("umount").arg(&mount).status();
            ended.is_ok_and(|status| status.success()) || served.is_finished()
        });
        assert!(ended, "the mount stays in use");
        served.join().expect("no panic").expect("a mount");
        assert_eq!(read.expect("contents"), "alpha");
    });
    let trace = Trace::load(&recorded).expect("trace");
    let has = |name: &str| trace.paths().any(|path| path == OsStr::new(name));
    assert!(has("/deep/a") && !has("/deep/b"), "{:?}", trace.paths().collect::<Vec<_>>());
}

#[test]
fn a_recording_has_what_the_program_reads() {
    if !is_root() {
        return;
    }
    let work = scratch();
    let path = work.path().join("file");
    fs::write(&path, vec![1; 100_000]).expect("file");
    fs::File::open(&path).and_then(|file| file.sync_all()).expect("file");
    let recorded = Record::on(work.path()).program([OsStr::new("cat"), path.as_os_str()]);
    let recorded = recorded.expect("recording");
    assert!(recorded.status.is_some_and(|status| status.success()));
    let name = path.file_name().expect("name");
    assert!(
        recorded.trace.paths().any(|path| path.file_name() == Some(name)),
        "{:?}",
        recorded.trace.paths().collect::<Vec<_>>()
    );
    assert!(Record::on("/").program(Vec::<String>::new()).is_err());
}
