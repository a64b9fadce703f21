//! DiskSim's parameter files: a small set of our own, valid and invalid.

use seekless_model::disksim::{ImportError, import};
use seekless_model::hdd::spec::{HeadOrder, Policy, ReadAhead, SpareUnit};
use seekless_model::preset::{self, Spec};
use seekless_units::Nanos;
use std::io;

const SYSTEM: &str = include_str!("disksim/small.parv");
const DISK: &str = include_str!("disksim/small.diskspecs");
const MODEL: &str = include_str!("disksim/small.model");
const SEEK: &str = "Seek distances measured: 3\n1, 1.5\n10, 3.0 # comment\n199, 9.0\n";

/// Imports the set with one of its files changed.
fn import_with(change: (&str, &str, &str)) -> Result<Spec, ImportError> {
    import("small.parv", &mut |file| {
        let text = match file {
            "small.parv" => SYSTEM,
            "small.diskspecs" => DISK,
            "small.model" => MODEL,
            "small.seek" => SEEK,
            _ => return Err(io::Error::from(io::ErrorKind::NotFound)),
        };
        let (changed, from, to) = change;
        if file == changed {
            assert!(text.contains(from), "{from} is not in {file}");
            return Ok(text.replacen(from, to, 1));
        }
        Ok(text.into())
    })
}

#[test]
fn a_drive_is_put_together_from_its_files() {
    let spec = import_with(("", "", "")).unwrap();
    assert_eq!(spec.name, "SMALL");
    let hdd = spec.hdd.as_ref().unwrap();
    assert_eq!((hdd.heads, hdd.cylinders, hdd.rpm), (2, 200, 6000.0));
    assert_eq!(hdd.head_order, HeadOrder::SerpentineInZone);
    assert_eq!(hdd.seek.table, [(1, 1.5), (10, 3.0), (199, 9.0)]);
    assert_eq!(hdd.sparing.unit, SpareUnit::Zone);
    assert_eq!(hdd.zones.len(), 2);
    assert_eq!(hdd.zones[0].slips, [7, 9, 4000]);
    assert_eq!(hdd.zones[1].remaps, [(12, 90)]);
    assert_eq!(hdd.buffer.read_ahead, ReadAhead::NextTrack);
    assert_eq!((hdd.queue.policy, hdd.queue.depth), (Policy::CLook, 4));
    // Doubled by the scale; writes are buffered, so the overhead is that of a hit.
    assert!((hdd.overhead.write_after_read - 0.8).abs() < 1e-12);
    // The bus is slower for writes, the drive for reads.
    assert!((hdd.bus.write_sector - 0.2).abs() < 1e-12);
    assert!((hdd.bus.read_sector - 0.1).abs() < 1e-12);
    // 100 cylinders of 200 sectors less 8, and 100 of 160 less 0.
    assert_eq!(spec.build().capacity(), Some(200 * 100 - 8 + 160 * 100));
}

#[test]
fn what_is_imported_can_be_written_and_read_back() {
    let spec = import_with(("", "", "")).unwrap();
    let text = spec.to_toml().unwrap();
    assert_eq!(preset::parse(&text, "small.toml").unwrap(), spec);
}

#[test]
fn wrong_files_are_told_by_file_line_and_key() {
    let line_of =
        |text: &str, key: &str| text.lines().position(|line| line.contains(key)).expect("key") + 1;
    for (file, text, from, to, key) in [
        (
            "small.diskspecs",
            DISK,
            "Number of buffer segments = 3",
            "Number of buffer segments = many",
            "Number of buffer segments",
        ),
        (
            "small.diskspecs",
            DISK,
            "Buffer continuous read = 4",
            "Buffer continuous read = 9",
            "Buffer continuous read",
        ),
        (
            "small.model",
            MODEL,
            "Sparing scheme used = 9",
            "Sparing scheme used = 11",
            "Sparing scheme used",
        ),
        ("small.model", MODEL, "Seek type = extracted", "Seek type = magic", "Seek type"),
        (
            "small.model",
            MODEL,
            "Blocks per track = 100",
            "Blocks per track = -4",
            "Blocks per track",
        ),
    ] {
        let error = import_with((file, from, to)).unwrap_err().to_string();
        let expected = format!("{file}:{}: {key}: ", line_of(text, from));
        assert!(error.starts_with(&expected), "{error} / {expected}");
    }
    let error = import_with(("small.seek", "10, 3.0", "1, 3.0")).unwrap_err().to_string();
    assert!(error.starts_with("small.seek:3: seek: "), "{error}");
    let error = import_with(("small.parv", "small.diskspecs", "other.diskspecs")).unwrap_err();
    assert!(matches!(&error, ImportError::Io { file, .. } if file == "other.diskspecs"), "{error}");
    let error = import_with(("small.parv", "source small.diskspecs", "source small.parv"));
    assert!(error.unwrap_err().to_string().contains("include each other"));
    let error = import("x", &mut |_| Ok("topology a b []".into())).unwrap_err();
    assert!(matches!(error, ImportError::NoDisk { .. }), "{error}");
}

#[test]
fn sizes_without_bound_are_refused() {
    for (file, from, to) in [
        ("small.model", "Number of cylinders = 200", "Number of cylinders = 99999999999"),
        ("small.model", "Number of data surfaces = 2", "Number of data surfaces = 4000000000"),
        ("small.diskspecs", "Segment size (in blks) = 64", "Segment size (in blks) = 4000000000"),
        ("small.model", "Rotation speed (in rpms) = 6000", "Rotation speed (in rpms) = 1e300"),
        ("small.model", "Rotation speed (in rpms) = 6000", "Rotation speed (in rpms) = 0"),
        ("small.model", "Number of spares = 8", "Number of spares = 90000000"),
    ] {
        assert!(import_with((file, from, to)).is_err(), "{to}");
    }
    let deep = format!("a b {{ {}", "x = [".repeat(10_000));
    assert!(import("deep", &mut |_| Ok(deep.clone())).is_err());
}

/// The corpus of the fuzz target, against regressions.
#[test]
fn damaged_files_never_panic() {
    let mut seed = 1u64;
    let mut next = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    let words =
        ["{", "}", "[", "]", "=", ",", "source", "-1", "1e308", "nan", "99999999999", "#", ""];
    for _ in 0..3_000 {
        let files = [SYSTEM, DISK, MODEL, SEEK].map(|text| {
            let mut parts: Vec<&str> = text.split_inclusive(' ').collect();
            let at = next(parts.len());
            parts[at] = words[next(words.len())];
            parts.concat()
        });
        let spec = import("small.parv", &mut |file| {
            Ok(files[match file {
                "small.parv" => 0,
                "small.diskspecs" => 1,
                "small.model" => 2,
                _ => 3,
            }]
            .clone())
        });
        if let Ok(spec) = spec {
            let mut drive = spec.build();
            let last = drive.capacity().unwrap_or(1).saturating_sub(1);
            for at in [0, last / 2, last] {
                let read = seekless_model::Request::read(seekless_units::Lba::new(at), 1);
                let _ = drive.serve(Nanos::ZERO, read);
            }
        }
    }
}
