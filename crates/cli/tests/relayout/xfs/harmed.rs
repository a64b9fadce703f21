//! Concurrent writers, and interruptions: no data is lost.

use super::{places, prepare, same_account};
use crate::judges::{Scratch, command, manifest, run, same};
use crate::writers::Meanwhile;
use crate::{account, hot, import, number, relayout, trace_of};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

#[test]
fn four_writers() {
    let scratch = Scratch::on_disk("relayout-xfs-writers");
    let Some((volume, mounted, paths)) = prepare(&scratch, &[], "512M", 1500) else { return };
    let trace = trace_of(&scratch, &paths, 3);
    let meanwhile = Meanwhile::new(&mounted, &trace, &paths, &hot(&paths, 3));
    let (done, operations) = (&meanwhile.told, meanwhile.operations());
    println!("{operations:?} operations: {done}");
    assert!(number(done, "/moved_in_bytes") > 1 << 20, "{done}");
    assert!(operations.iter().all(|operations| *operations > 50), "{operations:?}");
    meanwhile.compare(&mounted, &paths);
    volume.unmount(mounted);
    volume.check();
    // The same read from the disk after an unmount.
    let mounted = volume.mount(&scratch);
    meanwhile.compare(&mounted, &paths);
    // Without writers the rest is moved.
    relayout(mounted.text(), &trace, &[]);
    meanwhile.compare(&mounted, &paths);
    volume.unmount(mounted);
    volume.check();
}

/// Writes numbers to offsets of a file through a mapping or with direct I/O, until its standard
/// input ends; then checks that the last ones are there. Writes to a mapped dirty page go unnoticed
/// by the kernel, and direct I/O takes a while.
const WRITER: &str = "
import mmap, os, random, select, sys, time
path, kind = sys.argv[1:]
fd = os.open(path, os.O_RDWR | (os.O_DIRECT if kind == 'direct' else 0))
pages = os.fstat(fd).st_size // 4096
last = [None] * pages
chosen = random.Random(kind)
mapped = mmap.mmap(fd, pages * 4096) if kind == 'mapped' else None
buffer = mmap.mmap(-1, 4096)
number = 0
print('ready', flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    for _ in range(chosen.randrange(64)):
        number += 1
        page, value = chosen.randrange(pages), number.to_bytes(8, 'little')
        if mapped:
            found = mapped[page * 4096 : page * 4096 + 8]
            assert last[page] in (None, found), f'page {page} was lost'
            mapped[page * 4096 : page * 4096 + 8] = value
        else:
            os.preadv(fd, [buffer], page * 4096)
            assert last[page] in (None, buffer[:8]), f'page {page} was lost'
            buffer[:4096] = value * 512
            os.pwrite(fd, buffer, page * 4096)
        last[page] = value
    if not mapped:
        # Long enough that what was written is not of this moment any more.
        time.sleep(chosen.random() * 0.04)
with open(path, 'rb') as file:
    for page, value in enumerate(last):
        file.seek(page * 4096)
        assert value is None or file.read(8) == value, f'page {page} is an old one'
print(number)
";

/// Writers that change files without the kernel's notice, as far as it permits that.
#[test]
fn mapped_and_direct_writers() {
    let scratch = Scratch::on_disk("relayout-xfs-direct");
    let Some((volume, mounted, paths)) = prepare(&scratch, &[], "512M", 600) else { return };
    let written = ["/mapped", "/direct"].map(String::from);
    for path in &written {
        let path = format!("{}{path}", mounted.text());
        run(
            "dd",
            &["if=/dev/urandom", &format!("of={path}"), "bs=4096", "count=40", "status=none"],
        );
    }
    run("sync", &["-f", mounted.text()]);
    // Two orders, so that each round moves something.
    let some = |step: usize| -> Vec<String> {
        let mut paths: Vec<String> = paths.iter().step_by(9).cloned().collect();
        paths.extend(written.iter().cloned());
        let len = paths.len();
        (0..len).map(|at| paths[at * step % len].clone()).collect()
    };
    let traces = [some(1), some(7)].map(|paths| {
        let trace = import(&scratch, &paths);
        let own = scratch.join(&format!("trace-{}", paths[1].replace('/', "-")));
        run("mv", &[&trace, &own]);
        own
    });
    let spawn = |kind: &str| {
        Command::new("python3")
            .args(["-c", WRITER, &format!("{}/{kind}", mounted.text()), kind])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("python3")
    };
    let writers = [spawn("mapped"), spawn("direct")];
    sleep(Duration::from_millis(500));
    let (mut moved, mut busy) = (0, 0);
    for round in 0..30 {
        let done = relayout(mounted.text(), &traces[round % 2], &[]);
        moved += u64::from(number(&done, "/moved_in_bytes") > 0);
        busy += done.pointer("/left_files/busy_files").and_then(|n| n.as_u64()).unwrap_or(0);
    }
    for writer in writers {
        // Its standard input ends.
        let output = writer.wait_with_output().expect("writer");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        println!("{} writes", String::from_utf8_lossy(&output.stdout).trim().replace('\n', ", "));
    }
    println!("{moved} rounds moved something; files were in use {busy} times");
    assert!(moved >= 25, "{moved} rounds moved something");
    volume.unmount(mounted);
    volume.check();
}

/// Whether a run is still going after `part` thirteenths of the duration `all`. A run that has
/// ended by then shortens `all`: later runs are faster on a less busy machine.
fn is_running_after(child: &mut Child, all: &mut Duration, part: u32) -> bool {
    let (start, moment) = (Instant::now(), *all * part / 13);
    while start.elapsed() < moment {
        if child.try_wait().expect("child").is_some() {
            *all = start.elapsed();
            return false;
        }
        sleep(Duration::from_millis(2));
    }
    child.try_wait().expect("child").is_none()
}

/// The file system is shut down as in a crash: changes that are not in the log are lost, and the
/// next mount recovers the rest.
#[test]
fn stopped_at_several_moments() {
    let scratch = Scratch::on_disk("relayout-xfs-stopped");
    let Some((volume, mounted, paths)) = prepare(&scratch, &[], "320M", 2200) else { return };
    let trace = trace_of(&scratch, &paths, 3);
    let listing = manifest(mounted.text(), &[]);
    let held = account(mounted.text());
    let hot = hot(&paths, 3);
    let places_before = places(&mounted, &hot[..40]);
    volume.unmount(mounted);
    let fresh = scratch.join("fresh");
    run("cp", &["--sparse=always", &volume.image, &fresh]);
    let mounted = volume.mount(&scratch);
    let start = Instant::now();
    relayout(mounted.text(), &trace, &[]);
    let mut all = start.elapsed();
    volume.unmount(mounted);

    let (mut stopped, mut moved) = (0, 0);
    for part in 1..=12 {
        run("cp", &["--sparse=always", &fresh, &volume.image]);
        let mounted = volume.mount(&scratch);
        let mut child = command(&["relayout", mounted.text(), "--trace", &trace])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("seekless");
        let was_running = is_running_after(&mut child, &mut all, part);
        // With and without flushing the log in memory.
        let how = if part % 2 == 0 { "shutdown -f" } else { "shutdown" };
        run("xfs_io", &["-x", "-c", how, mounted.text()]);
        let output = child.wait_with_output().expect("child");
        let said = String::from_utf8_lossy(&output.stderr);
        if was_running && !output.status.success() {
            stopped += 1;
            assert!(said.starts_with("seekless: ") && !said.contains("panicked"), "{said}");
        }
        volume.unmount(mounted);
        // The mount recovers the log.
        let mounted = volume.mount(&scratch);
        same("contents", &listing, &manifest(mounted.text(), &[]));
        same_account(held, &mounted);
        let different = places(&mounted, &hot[..40]) != places_before;
        moved += u32::from(was_running && different);
        volume.unmount(mounted);
        volume.check();
    }
    println!("{stopped} were stopped, {moved} of them when something had been moved for good");
    assert!(stopped >= 6, "{stopped} of 12 were stopped");
    assert!(moved >= 1, "nothing had been moved when it was stopped");
}

#[test]
fn killed_at_several_moments() {
    let scratch = Scratch::on_disk("relayout-xfs-killed");
    let Some((volume, mounted, paths)) = prepare(&scratch, &[], "320M", 2200) else { return };
    let trace = trace_of(&scratch, &paths, 3);
    let hot = hot(&paths, 3);
    let listing = manifest(mounted.text(), &[]);
    let held = account(mounted.text());
    let fresh_places = places(&mounted, &hot[..40]);
    volume.unmount(mounted);
    let fresh = scratch.join("fresh");
    run("cp", &["--sparse=always", &volume.image, &fresh]);

    // Duration of an undisturbed run.
    let mounted = volume.mount(&scratch);
    let start = Instant::now();
    let alone = relayout(mounted.text(), &trace, &[]);
    let mut all = start.elapsed();
    volume.unmount(mounted);

    let (mut killed, mut told, mut moved) = (0, 0, 0);
    for part in 1..=12 {
        run("cp", &["--sparse=always", &fresh, &volume.image]);
        let mounted = volume.mount(&scratch);
        let signal = if part % 4 == 3 { "-TERM" } else { "-KILL" };
        let mut child = command(&["relayout", mounted.text(), "--trace", &trace])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("seekless");
        let was_running = is_running_after(&mut child, &mut all, part);
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
        same_account(held, &mounted);
        same("contents", &listing, &manifest(mounted.text(), &[]));
        let different = places(&mounted, &hot[..40]) != fresh_places;
        moved += u32::from(was_killed && different);
        volume.unmount(mounted);
        volume.check();
        // The next run resumes.
        let mounted = volume.mount(&scratch);
        let done = relayout(mounted.text(), &trace, &[]);
        let (before, after) =
            (number(&alone, "/data_seeks/before"), number(&done, "/data_seeks/after"));
        assert!(after * 10 <= before * 3, "{part}: {after} of {before} seeks: {done}");
        same("contents", &listing, &manifest(mounted.text(), &[]));
        volume.unmount(mounted);
        volume.check();
    }
    println!("{killed} were ended, {moved} of them when something had been moved");
    assert!(killed >= 6, "{killed} of 12 were killed");
    assert!(told >= 1, "no word of those that could say one");
    assert!(moved >= 2, "{moved} of {killed} had begun to move");
}
