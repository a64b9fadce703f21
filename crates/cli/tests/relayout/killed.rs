//! Killed at any moment: files are intact, and no leftover file takes up blocks.

use super::judges::{Mounted, Scratch, can_mount, command, manifest, run, same};
use super::{account, number, places, prepare, relayout, trace_of};
use std::process::Stdio;
use std::thread::sleep;
use std::time::Instant;

#[test]
fn killed_at_several_moments() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::on_disk("relayout-killed");
    let (image, mounted, paths) = prepare(&scratch, &["-b", "1024", "-N", "3000"], "40M", 2200);
    let trace = trace_of(&scratch, &paths, 3);
    let listing = manifest(mounted.text(), &[]);
    let held = account(mounted.text());
    drop(mounted);
    let fresh = scratch.join("fresh");
    run("cp", &["--sparse=always", &image, &fresh]);

    // Duration of an undisturbed run.
    let mounted = Mounted::new(&scratch, &image, "rw");
    let start = Instant::now();
    let alone = relayout(mounted.text(), &trace, &[]);
    let mut all = start.elapsed();
    drop(mounted);

    let (before, after) = ("/data_seeks/before", "/data_seeks/after");
    let (mut killed, mut told, mut moved) = (0, 0, 0);
    for part in 1..=12 {
        run("cp", &["--sparse=always", &fresh, &image]);
        let mounted = Mounted::new(&scratch, &image, "rw");
        let signal = if part % 4 == 3 { "-TERM" } else { "-KILL" };
        let mut child = command(&["relayout", mounted.text(), "--trace", &trace])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("seekless");
        sleep(all * part / 13);
        let was_running = child.try_wait().expect("child").is_none();
        if was_running {
            run("kill", &[signal, &child.id().to_string()]);
        }
        let output = child.wait_with_output().expect("child");
        let said = String::from_utf8_lossy(&output.stderr);
        if output.status.code() == Some(6) {
            told += u32::from(said.contains("interrupted") && said.contains("whole"));
        }
        let was_killed = was_running && !output.status.success();
        killed += u32::from(was_killed);
        if !was_running {
            // It took less time than the first: the next ones are killed earlier.
            all = all * part / 13;
        }
        assert_eq!(held, account(mounted.text()), "{part}: something holds blocks");
        same("contents", &listing, &manifest(mounted.text(), &[]));
        drop(mounted);
        run("e2fsck", &["-fn", &image]);
        let different = places(&image, &paths) != places(&fresh, &paths);
        moved += u32::from(was_killed && different);
        // The next run resumes. Where the kernel has given it too few of the blocks that it needs,
        // the one after it does.
        let mounted = Mounted::new(&scratch, &image, "rw");
        let mut done = relayout(mounted.text(), &trace, &[]);
        if done["stopped"] == "room" {
            println!("{part}: no room at first: {done}");
            done = relayout(mounted.text(), &trace, &[]);
        }
        let (before, after) = (number(&alone, before), number(&done, after));
        assert!(after * 10 <= before * 3, "{part}: {after} of {before} seeks: {done}");
        drop(mounted);
        run("e2fsck", &["-fn", &image]);
    }
    println!("{killed} were ended, {moved} of them when something had been moved");
    assert!(killed >= 6, "{killed} of 12 were killed");
    assert!(told >= 1, "no word of those that could say one");
    assert!(moved >= 2, "{moved} of {killed} had begun to move");
}
