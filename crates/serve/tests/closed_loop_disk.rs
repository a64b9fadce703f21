//! A modelled disk in virtual time, under a program that keeps a number of requests in flight.

use seekless_serve::disk::{Clock, Disk};
use std::fs::{File, OpenOptions};
use std::thread;

/// A disk that takes 100 us for a read, however many are in flight.
const MODEL: &str = "
name = 'plain'
summary = ''
[volume]
iops = { rate = 1000000000 }
bandwidth = { rate = 1000000000000000 }
io_size = 4096
read_latency = [{ share = 1.0, us = 100.0 }]
write_latency = [{ share = 1.0, us = 100.0 }]
";

/// An unnamed file of 1 MiB.
fn image(name: &str) -> File {
    let path = std::env::temp_dir().join(format!("seekless-{name}-{}", std::process::id()));
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    file.set_len(1 << 20).unwrap();
    file
}

/// Threads that read `count` times each. Returns the virtual time in which they have done so, in
/// units of a read's time.
fn reads(threads: usize, count: usize, depth: usize) -> u64 {
    let model = seekless_model::from_toml(MODEL, "plain").unwrap();
    let image = image(&format!("closed-loop-{threads}-{depth}"));
    let name = (String::new(), String::new());
    let disk = Disk::new(image, name, model, Clock::Virtual, None, None).unwrap();
    disk.keep_in_flight(depth);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                (0..count).for_each(|_| assert_eq!(disk.read(0, 4096).unwrap().len(), 4096))
            });
        }
    });
    (disk.report().phases[0].1.elapsed_ns + 50_000) / 100_000
}

#[test]
fn virtual_time_waits_for_requests_that_a_closed_loop_keeps_in_flight() {
    assert_eq!(reads(4, 50, 4), 50);
    assert_eq!(reads(8, 50, 8), 50);
}

#[test]
fn without_it_the_host_decides_how_many_are_in_flight() {
    assert!((50..=200).contains(&reads(4, 50, 0)));
}

#[test]
fn a_program_with_fewer_in_flight_goes_on_after_a_while() {
    assert_eq!(reads(1, 3, 4), 3);
}
