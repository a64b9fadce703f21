//! Presets made from specifications reach the rates published for them.

use seekless_model::{Request, preset};
use seekless_units::{Lba, Nanos};

/// Megabytes per second of reading 40 MB sequentially, from a sector on.
fn sustained(name: &str, from: u64) -> f64 {
    const SECTORS: u32 = 128;
    const BYTES: u64 = 40_000_000;
    let mut drive = preset::preset(name).unwrap();
    let requests = BYTES / (u64::from(SECTORS) * 512);
    // The first request includes the seek.
    let start = drive.serve(Nanos::ZERO, Request::read(Lba::new(from), SECTORS)).unwrap();
    let mut now = start;
    for number in 1..=requests {
        let at = Lba::new(from + number * u64::from(SECTORS));
        now = drive.serve(now, Request::read(at, SECTORS)).unwrap();
    }
    (requests * u64::from(SECTORS) * 512) as f64 * 1e3 / now.saturating_since(start) as f64
}

#[test]
fn deskstar_180gxp() {
    let sectors = 120_103_200;
    let drive = preset::preset("ic35l060avv207").unwrap();
    let has = drive.capacity().unwrap();
    assert!((sectors..sectors + sectors / 1000).contains(&has), "{has}");
    let (outer, inner) = (sustained("ic35l060avv207", 0), sustained("ic35l060avv207", 119_900_000));
    assert!((54.0..58.0).contains(&outer), "published 56 MB/s, {outer}");
    assert!((28.0..30.0).contains(&inner), "published 29 MB/s, {inner}");
}

/// The mean over random locations: a seek of 8.5 ms, half a revolution, the command.
#[test]
fn random_reads_of_the_deskstar_180gxp() {
    let mut drive = preset::preset("ic35l060avv207").unwrap();
    let mut chance = seekless_model::random::Random::new(1);
    let (mut now, mut spent) = (Nanos::ZERO, 0);
    const READS: u64 = 4000;
    for _ in 0..READS {
        let begun = Nanos::new(now.get() + 50_000_000 + chance.below(8_333_333));
        let at = Lba::new(chance.below(120_103_000));
        now = drive.serve(begun, Request::read(at, 1)).unwrap();
        spent += now.saturating_since(begun);
    }
    let mean = spent as f64 / READS as f64 / 1e6;
    let expected = 8.5 + 60_000.0 / 7200.0 / 2.0 + 0.2;
    // The outer tracks have more sectors: the distance between two of them is shorter.
    assert!((expected - 0.8..expected + 0.1).contains(&mean), "{mean} of {expected} ms");
}
