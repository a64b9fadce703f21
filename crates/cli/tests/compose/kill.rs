//! A build killed at any moment leaves the old file or none, never a partial one.

use crate::judges::{Scratch, check, command, run, seekless, text};
use crate::sample;
use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

#[test]
fn killed_at_any_moment() {
    let scratch = Scratch::new("kill");
    let whole = scratch.join("whole");
    // The second time nothing has to be read from the disk.
    let mut usual = Duration::MAX;
    for _ in 0..2 {
        let started = Instant::now();
        text(&seekless(&["build", sample(), "-o", &whole, "--force"]));
        usual = usual.min(started.elapsed());
    }
    let dir = scratch.path().join("to");
    fs::create_dir(&dir).expect("mkdir");
    let image = dir.join("image");
    let image_text = image.to_str().expect("path");
    let mut killed = 0;
    for round in 0..16u32 {
        let old = round % 2 == 1;
        if old {
            fs::write(&image, b"old").expect("write");
        }
        let mut args = vec!["build", sample(), "-o", image_text];
        args.extend(old.then_some("--force"));
        let mut child = command(&args).stderr(Stdio::null()).spawn().expect("seekless");
        std::thread::sleep(Duration::min(usual, Duration::from_secs(5)) * round / 15);
        child.kill().expect("kill");
        let done = child.wait().expect("wait").success();
        killed += u32::from(!done);
        match fs::read(&image) {
            Err(_) => assert!(!old && !done, "round {round}: the file is gone"),
            Ok(bytes) if bytes == b"old" => assert!(old && !done, "round {round}"),
            // Complete, even if killed after it got its name.
            Ok(_) => drop(run("cmp", &[&whole, image_text])),
        }
        let _ = fs::remove_file(&image);
        for entry in fs::read_dir(&dir).expect("list") {
            // Between the two steps of a replacement the new file has a hidden name; the next
            // output removes it.
            let entry = entry.expect("list");
            let hidden = entry.file_name().to_string_lossy().starts_with(".image.seekless-");
            assert!(hidden && old && !done, "round {round}: litter {entry:?}");
            fs::remove_file(entry.path()).expect("remove");
        }
    }
    assert!(killed > 3, "only {killed} builds were killed");
    check(&whole);
}
