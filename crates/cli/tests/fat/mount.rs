//! A FAT image with the other commands: mounted, recorded, scored, mapped, copied out. The mount
//! needs FUSE.

use crate::judges::{Scratch, manifest, ready, run, same, seekless, skip, text, unmount};
use crate::read::comparable;
use crate::{mtools, populate, sparse};
use std::fs;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// A mount that ends with the test.
struct Mounted {
    server: Child,
    dir: String,
}

impl Mounted {
    fn new(image: &str, dir: &str, trace: &str) -> Self {
        let server = Command::new(env!("CARGO_BIN_EXE_seekless"))
            .args(["mount", "-f", image, dir, "--record", trace])
            .spawn()
            .expect("seekless");
        let mounted = Self { server, dir: dir.to_string() };
        let start = Instant::now();
        while !Path::new(dir).join("DIR").exists() {
            assert!(start.elapsed() < Duration::from_secs(60), "not mounted");
            std::thread::sleep(Duration::from_millis(20));
        }
        mounted
    }

    fn stop(mut self) {
        unmount(&self.dir).expect("umount");
        assert!(self.server.wait().expect("seekless").success());
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.server.try_wait().is_ok_and(|ended| ended.is_none()) {
            let _ = Command::new("umount").arg(&self.dir).status();
            let _ = self.server.wait();
        }
    }
}

#[test]
fn images_are_mounted_recorded_scored_and_mapped() {
    if !ready("mkfs.fat") || !ready("mcopy") || !ready("umount") {
        return;
    }
    if !Path::new("/dev/fuse").exists() || !rustix::process::geteuid().is_root() {
        skip("no FUSE");
        return;
    }
    let scratch = Scratch::new("fat-mount");
    let (tree, image) = (scratch.join("tree"), scratch.join("image"));
    let (dir, trace) = (scratch.join("mnt"), scratch.join("trace"));
    populate(Path::new(&tree));
    fs::create_dir(&dir).expect("mkdir");
    sparse(&image, 40 << 20);
    run("mkfs.fat", &["-F", "32", "-n", "MOUNTED", &image]);
    for top in ["DIR", "many names", "empty"] {
        mtools("mcopy", &image, &["-s", "-m", &format!("{tree}/{top}"), "::"]);
    }
    let mounted = Mounted::new(&image, &dir, &trace);
    same("mounted", &comparable(&manifest(&tree, &[])), &comparable(&manifest(&dir, &[])));
    // Lookups ignore case, and find short names too.
    let wanted = fs::read(format!("{tree}/DIR/FILE8.BIN")).expect("read");
    assert!(fs::read(format!("{dir}/dir/file8.bin")).expect("read") == wanted);
    assert!(fs::read(format!("{dir}/MANYNA~1/a name of some length 7")).expect("read") == b"x");
    assert!(fs::write(format!("{dir}/new"), "x").is_err(), "the mount is read-only");
    mounted.stop();
    let shown = text(&seekless(&["trace", "show", &trace]));
    assert!(shown.contains("/DIR/FILE8.BIN") || shown.contains("/dir/file8.bin"), "{shown}");
    let score: serde_json::Value =
        serde_json::from_str(&text(&seekless(&["score", "--json", &image, "--trace", &trace])))
            .expect("JSON");
    assert!(score.to_string().contains("requests"), "{score}");
    let map = text(&seekless(&["map", "--json", &image]));
    let map: serde_json::Value = serde_json::from_str(&map).expect("JSON");
    assert!(map["groups"].as_array().is_some_and(|groups| groups.len() == 1), "{map}");
    let copy = scratch.join("copy");
    text(&seekless(&["cp", "-r", &image, "/", &copy]));
    same("copied out", &comparable(&manifest(&tree, &[])), &comparable(&manifest(&copy, &[])));
}
