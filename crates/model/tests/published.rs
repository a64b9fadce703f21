//! Presets made from specifications reach the rates published for them.

use seekless_model::{Request, Tag, preset};
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

/// Milliseconds of an operation at a random place, which begins at a random time: the mean of many.
fn random_access(name: &str, request: impl Fn(Lba) -> Request) -> f64 {
    let mut drive = preset::preset(name).unwrap();
    let sectors = drive.capacity().unwrap();
    let mut chance = seekless_model::random::Random::new(1);
    let (mut now, mut spent) = (Nanos::ZERO, 0);
    const COUNT: u64 = 4000;
    for _ in 0..COUNT {
        let begun = Nanos::new(now.get() + 50_000_000 + chance.below(12_000_000));
        let at = Lba::new(chance.below(sectors - 1));
        now = drive.serve(begun, request(at)).unwrap();
        spent += now.saturating_since(begun);
    }
    spent as f64 / COUNT as f64 / 1e6
}

/// A drive's figures as published.
struct Drive {
    name: &'static str,
    sectors: u64,
    rpm: f64,
    /// Average read seek in milliseconds.
    seek: f64,
    /// Milliseconds for a command.
    overhead: f64,
    /// Megabytes per second on the outermost and innermost tracks.
    rates: [f64; 2],
    /// The least part of them that the model sustains, which lacks the time of head switches where
    /// the published figures are media rates.
    sustained: f64,
}

const DRIVES: [Drive; 5] = [
    Drive {
        name: "ic35l060avv207",
        sectors: 120_103_200,
        rpm: 7200.0,
        seek: 8.5,
        overhead: 0.2,
        rates: [56.0, 29.0],
        sustained: 0.965,
    },
    Drive {
        name: "dtla-307045",
        sectors: 90_069_840,
        rpm: 7200.0,
        seek: 8.5,
        overhead: 0.2,
        rates: [37.0, 20.0],
        sustained: 0.84,
    },
    Drive {
        name: "raptor-74",
        sectors: 74_000_000_000 / 512,
        rpm: 10_000.0,
        seek: 4.5,
        overhead: 0.1,
        rates: [72.0, 50.0],
        sustained: 0.84,
    },
    Drive {
        name: "ide-8gb",
        sectors: 8_400_000_000 / 512,
        rpm: 5400.0,
        seek: 9.5,
        overhead: 0.5,
        rates: [13.0, 7.5],
        sustained: 0.84,
    },
    Drive {
        name: "sata-7200",
        sectors: 35_156_656_128,
        rpm: 7200.0,
        seek: 8.5,
        overhead: 0.05,
        rates: [270.0, 125.0],
        sustained: 0.84,
    },
];

#[test]
fn drives_have_the_published_figures() {
    for drive in &DRIVES {
        let name = drive.name;
        let has = preset::preset(name).unwrap().capacity().unwrap();
        assert!(
            (drive.sectors..drive.sectors + drive.sectors / 50).contains(&has),
            "{name}: {has}"
        );
        let places = [0, has - 40_000_000 / 512 - 2000];
        for (from, rate) in places.into_iter().zip(drive.rates) {
            let found = sustained(name, from);
            assert!(
                (drive.sustained * rate..1.04 * rate).contains(&found),
                "{name}: {rate} MB/s, {found}"
            );
        }
        let turn = 60_000.0 / drive.rpm / 2.0;
        let read = random_access(name, |at| Request::read(at, 1));
        let expected = drive.seek + turn + drive.overhead;
        // The outer tracks have more sectors: the distance between two of them is shorter.
        assert!((-0.9..0.2).contains(&(read - expected)), "{name}: {read} of {expected} ms");
    }
}

/// Writes that settle longer are slower by that, where they are not cached.
#[test]
fn writes_of_the_raptor_settle_longer() {
    let read = random_access("raptor-74", |at| Request::read(at, 1));
    let write = random_access("raptor-74", |at| Request::write(at, 1).durable());
    assert!((1.2..1.6).contains(&(write - read)), "published 5.9 and 4.5 ms: {write} and {read}");
}

/// Requests per second with `depth` in flight.
fn rate(name: &str, depth: u64, count: u64, request: impl Fn(u64) -> Request) -> f64 {
    let mut disk = preset::preset(name).unwrap();
    for nth in 0..depth {
        disk.submit(Nanos::ZERO, Tag(nth), request(nth)).unwrap();
    }
    let mut last = Nanos::ZERO;
    for nth in depth..depth + count {
        last = disk.advance(Nanos::new(u64::MAX)).unwrap().at;
        disk.submit(last, Tag(nth), request(nth)).unwrap();
    }
    count as f64 / (last.get() as f64 / 1e9)
}

/// A place for a request of up to 256 KiB, none beside the one before.
fn anywhere(nth: u64) -> Lba {
    Lba::new((nth.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 24) % 390_000 * 512)
}

/// Cloud volumes: operations of 4 KiB per second, reads and writes, and bytes per second of 256 KiB.
#[test]
fn volumes_have_the_rates_that_they_cite() {
    let volumes = [
        ("gp3", [3000.0, 3000.0], 125.0),
        ("gp2-100g", [3000.0, 3000.0], 128.0),
        ("io2", [16_000.0, 16_000.0], 4000.0),
        ("pd-standard", [375.0, 750.0], 60.0),
    ];
    let near = |what: &str, found: f64, cited: f64| {
        assert!((found / cited - 1.0).abs() < 0.03, "{what}: {found:.0}, cited {cited:.0}");
    };
    for (name, [reads, writes], mebibytes) in volumes {
        near(name, rate(name, 64, 60_000, |nth| Request::read(anywhere(nth), 8)), reads);
        near(name, rate(name, 64, 60_000, |nth| Request::write(anywhere(nth), 8)), writes);
        let bytes = rate(name, 64, 20_000, |nth| Request::read(anywhere(nth), 512)) * 262_144.0;
        near(name, bytes / 1_048_576.0, mebibytes);
    }
    // What was fetched is served by the volume behind.
    let fetched = rate("lazy-gp3", 64, 60_000, |nth| Request::read(Lba::new(nth % 64 * 16), 8));
    near("lazy-gp3", fetched, 3000.0);
}

/// Latency of one request at a time: gp3's median is published as 0.5 to 0.9 ms, io2's average as
/// under 0.5 ms for 16 KiB, and the median first byte of an object as tens of milliseconds.
#[test]
fn volumes_have_the_latencies_that_they_cite() {
    let gp3 = 1e3 / rate("gp3", 1, 20_000, |nth| Request::read(anywhere(nth), 8));
    assert!((0.5..0.9).contains(&gp3), "{gp3} ms");
    let io2 = 1e3 / rate("io2", 1, 20_000, |nth| Request::read(anywhere(nth), 32));
    assert!(io2 < 0.5, "{io2} ms");
    let lazy = 1e3 / rate("lazy-gp3", 1, 3000, |nth| Request::read(Lba::new(nth * 1024), 8));
    assert!((20.0..100.0).contains(&lazy), "{lazy} ms");
}
