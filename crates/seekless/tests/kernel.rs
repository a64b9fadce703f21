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

/// The length is that of the device: the end of the partition table lies there.
#[test]
fn a_disk_fills_a_block_device() {
    if !is_root() {
        return;
    }
    let work = scratch();
    let (backing, definitions) = (work.path().join("backing"), work.path().join("repart.d"));
    let len = 16 << 20;
    fs::File::create(&backing).and_then(|file| file.set_len(len)).expect("file");
    fs::create_dir(&definitions).expect("directory");
    let losetup = |args: &[&OsStr]| {
        let done = Command::new("losetup").args(args).output().expect("losetup");
        assert!(done.status.success(), "{done:?}");
        String::from_utf8(done.stdout).expect("text").trim().to_owned()
    };
    let device = losetup(&["--find".as_ref(), "--show".as_ref(), backing.as_os_str()]);
    // With and without contents.
    let made = ["", "Format=ext4\n"].map(|format| {
        let empty = format!("[Partition]\nType=linux-generic\nSizeMaxBytes=8M\n{format}");
        fs::write(definitions.join("10.conf"), empty).expect("definition");
        let none: [&Path; 0] = [];
        Build::of(none).replace().write_disk(&device, &definitions)
    });
    let table = Command::new("sfdisk").arg("--verify").arg(&device).output();
    losetup(&["--detach".as_ref(), device.as_ref()]);
    for made in made {
        let made = made.expect("a disk");
        assert_eq!((made.len, made.partitions.len()), (len, 1));
    }
    let table = table.expect("sfdisk");
    assert!(table.status.success(), "{table:?}");
}
