//! Files that are not moved, and refusals.

use super::volume::Volume;
use super::{Mounted, places, prepare};
use crate::judges::{Scratch, failure, run, seekless};
use crate::{import, number, relayout, trace_of};
use std::fs;
use std::process::Command;

/// Gives a file capabilities (`struct vfs_cap_data`: effective, CAP_NET_RAW).
const CAPABILITIES: &str = "
import os, sys
os.setxattr(sys.argv[1], 'security.capability', bytes([1, 0, 0, 2, 0, 32] + [0] * 14))
";

/// Running programs, files that share blocks, and others that cannot be changed without loss stay,
/// and are counted with their cost.
#[test]
fn files_that_stay() {
    let scratch = Scratch::on_disk("relayout-xfs-left");
    let Some((volume, mounted, mut paths)) = prepare(&scratch, &[], "320M", 600) else { return };
    let at = |name: &str| format!("{}/{name}", mounted.text());
    let names = ["sleep", "immutable", "set-id", "capable", "original", "clone"];
    for name in &names[..5] {
        fs::copy("/bin/sleep", at(name)).expect("copy");
    }
    run("cp", &["--reflink=always", &at("original"), &at("clone")]);
    run("chmod", &["4755", &at("set-id")]);
    run("python3", &["-c", CAPABILITIES, &at("capable")]);
    run("sync", &["-f", mounted.text()]);
    run("chattr", &["+i", &at("immutable")]);
    let stays: Vec<String> = names.iter().map(|name| format!("/{name}")).collect();
    for path in &stays {
        paths.insert(0, path.clone());
    }
    let trace = trace_of(&scratch, &paths, 1);
    let mut child = Command::new(at("sleep")).arg("600").spawn().expect("sleep");
    let before = places(&mounted, &stays);
    let done = relayout(mounted.text(), &trace, &[]);
    let after = places(&mounted, &stays);
    let _ = child.kill();
    let _ = child.wait();
    run("chattr", &["-i", &at("immutable")]);
    assert_eq!(before, after);
    let wanted = [
        ("running_programs", 1),
        ("protected_files", 1),
        ("privileged_files", 2),
        ("shared_files", 2),
    ];
    for (name, files) in wanted {
        let figure = |what: &str| number(&done, &format!("/stays/{name}/{what}"));
        assert_eq!(figure("files"), files, "{name}: {done}");
        assert!(figure("requests") > 0 && figure("bytes") > 0, "{name}: {done}");
    }
    assert!(number(&done, "/moved_in_bytes") > 0, "{done}");
    run("getfattr", &["-n", "security.capability", &at("capable")]);
    // Once it has ended, the program is moved like others.
    let done = relayout(mounted.text(), &trace, &["--dry-run"]);
    assert!(done.pointer("/stays/running_programs").is_none(), "{done}");
    volume.unmount(mounted);
    volume.check();
}

/// Makes two files, and a trace of them in the other order; returns the trace and the files'
/// extents.
fn two_files(scratch: &Scratch, mounted: &Mounted) -> (String, Vec<Vec<(u64, u64)>>) {
    let paths = ["/b", "/a"].map(String::from);
    for path in &paths {
        fs::write(mounted.path().join(&path[1..]), vec![1; 30_000]).expect("write");
    }
    run("sync", &["-f", mounted.text()]);
    (import(scratch, &paths), places(mounted, &paths))
}

#[test]
fn a_volume_without_the_feature() {
    let scratch = Scratch::on_disk("relayout-xfs-without");
    let Some(volume) = Volume::without(&scratch, "320M") else { return };
    let mounted = volume.mount(&scratch);
    let (trace, before) = two_files(&scratch, &mounted);
    for more in [&[][..], &["--dry-run"]] {
        let args = [&["relayout", mounted.text(), "--trace", &trace], more].concat();
        let (code, message) = failure(&seekless(&args));
        assert_eq!(code, 4, "{message}");
        for word in ["XFS", "mkfs.xfs -i exchange=1", "xfs_admin -O exchange=1"] {
            assert!(message.contains(word), "{message}");
        }
    }
    assert_eq!(before, places(&mounted, &["/b", "/a"].map(String::from)));
}

#[test]
fn a_mount_that_cannot_be_changed() {
    let scratch = Scratch::on_disk("relayout-xfs-refused");
    let Some(volume) = Volume::new(&scratch, &[], "320M") else { return };
    let mounted = volume.mount(&scratch);
    let (trace, _) = two_files(&scratch, &mounted);
    // Two at the same time.
    let dir = fs::File::open(mounted.path()).expect("open");
    rustix::fs::flock(&dir, rustix::fs::FlockOperation::LockExclusive).expect("lock");
    let args = ["relayout", mounted.text(), "--trace", &trace];
    let (code, message) = failure(&seekless(&args));
    assert!(code == 6 && message.contains("another process"), "{code}: {message}");
    drop(dir);
    // Root without the capability to open files without updating their times.
    let without = [&["--bounding-set=-sys_admin", env!("CARGO_BIN_EXE_seekless")][..], &args];
    let output = Command::new("setpriv").args(without.concat()).output().expect("setpriv");
    let (code, message) = failure(&output);
    assert!(code == 6 && message.contains("CAP_SYS_ADMIN"), "{code}: {message}");
    run("mount", &["-o", "remount,ro", mounted.text()]);
    let (code, message) = failure(&seekless(&args));
    assert!(code == 4 && message.contains("read-only"), "{code}: {message}");
    // `watch` supports ext4 only.
    let (code, message) = failure(&seekless(&["watch", "now", mounted.text()]));
    assert!(code == 4 && message.contains("xfs"), "{code}: {message}");
}
