//! Reads from devices: the same results as from an image file, and a warning if the device may
//! change meanwhile.

use crate::judges::{failure, manifest, same, seekless, text};
use crate::{Device, MIB, Mount, scene};
use std::fs;

#[test]
fn everything_that_reads_an_image_reads_a_device() {
    let Some((scratch, tree)) = scene("device-read") else { return };
    let (image, trace) = (scratch.join("image"), scratch.join("trace"));
    text(&seekless(&["build", &tree, "-o", &image, "--size", "40M"]));
    fs::write(scratch.path().join("paths"), "/d1/f8\n/d5/f5\n").expect("paths");
    let paths = scratch.join("paths");
    text(&seekless(&["trace", "import", "--paths", &paths, "-o", &trace]));
    let device = Device::on(image.clone().into(), &["-r"]);
    // A path of the same length, since columns are as wide as names.
    let link = scratch.join("block");
    std::os::unix::fs::symlink(device.path(), &link).expect("link");
    let of = |what: &[&str], image: &str| {
        let args: Vec<&str> =
            what.iter().map(|&arg| if arg == "IMG" { image } else { arg }).collect();
        text(&seekless(&args)).replace(image, "IMG")
    };
    for what in [
        &["info", "IMG"][..],
        &["ls", "-lR", "IMG", "/"],
        &["cat", "IMG", "/d1/f8"],
        &["manifest", "IMG"],
        &["map", "IMG"],
        &["check", "IMG"],
        &["score", "IMG", "--trace", &trace],
    ] {
        assert_eq!(of(what, &image), of(what, &link), "{what:?}");
    }
    let (out, copy) = (scratch.join("out"), scratch.join("copy"));
    text(&seekless(&["cp", "-r", device.path(), "/d1", &out]));
    assert!(fs::read_dir(&out).expect("copied").count() > 0);
    text(&seekless(&["build", device.path(), "-o", &copy]));
    same("built from a device", &manifest(&image, &[]), &manifest(&copy, &[]));
    text(&seekless(&["optimize", device.path(), "--trace", &trace, "-o", &copy, "--force"]));
    same("optimized from a device", &manifest(&image, &[]), &manifest(&copy, &[]));
}

#[test]
fn a_device_that_may_change_is_warned_of_or_refused() {
    let Some((scratch, tree)) = scene("device-changing") else { return };
    let device = Device::new(&scratch, "device", 64 * MIB);
    let trace = scratch.join("trace");
    fs::write(scratch.path().join("paths"), "/d1/f8\n").expect("paths");
    let paths = scratch.join("paths");
    text(&seekless(&["trace", "import", "--paths", &paths, "-o", &trace]));
    text(&seekless(&["build", &tree, "-o", device.path()]));
    let copy = scratch.join("copy");
    let reads: [&[&str]; 4] = [
        &["info", device.path()],
        &["ls", device.path(), "/"],
        &["manifest", device.path()],
        &["score", device.path(), "--trace", &trace],
    ];
    let made: [&[&str]; 3] = [
        &["build", device.path(), "-o", &copy, "--force"],
        &["build", &tree, device.path(), "-o", &copy, "--force"],
        &["optimize", device.path(), "--trace", &trace, "-o", &copy, "--force"],
    ];
    for (how, changes) in [("ro", false), ("rw", true)] {
        let _mounted = Mount::new(&scratch, device.path(), how);
        for args in reads {
            let read = seekless(args);
            text(&read);
            let warning = String::from_utf8_lossy(&read.stderr).into_owned();
            let warnings = warning.matches("is mounted read-write").count();
            assert_eq!(warnings, usize::from(changes), "{args:?}: {warning}");
        }
        for args in made {
            let done = seekless(args);
            if !changes {
                text(&done);
                continue;
            }
            let (code, message) = failure(&done);
            assert!(code == 6 && message.contains("remount it read-only"), "{message}");
        }
        let json = seekless(&["info", "--json", device.path()]);
        let told: Result<serde_json::Value, _> = serde_json::from_slice(&json.stdout);
        assert_eq!(told.expect("JSON")["format"], "ext4");
        let warning = String::from_utf8_lossy(&json.stderr).into_owned();
        let warning: Option<serde_json::Value> = serde_json::from_str(&warning).ok();
        assert_eq!(warning.is_some_and(|line| line["warning"].is_string()), changes);
    }
    for args in [["check", "-p"], ["check", "-y"]] {
        let _mounted = Mount::new(&scratch, device.path(), "rw");
        let refused = seekless(&[&args[..], &[device.path()]].concat());
        assert_eq!(refused.status.code(), Some(8), "{refused:?}");
    }
}
