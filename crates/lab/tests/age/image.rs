//! Images aged through the engine: the same bytes from the same seed, clean, and
//! what the stream believes, byte by byte, by the reader.

use crate::settings;
use seekless_cache::{Config, Discipline};
use seekless_device::{BlockDevice, MemoryDevice, VirtualClock};
use seekless_ffs::{FfsImage, FfsLive, LiveOptions, MakeOptions, Version, make};
use seekless_fs::format::OpenOptions;
use seekless_fs::inspect::resolve;
use seekless_fs::operate::Operate;
use seekless_fs::{FileKind, FsError, Inspect, Timestamp};
use seekless_lab::age::image::ImageSubject;
use seekless_lab::age::score::{ByteRun, FileLayout, Score};
use seekless_lab::age::{AgeError, Aged, End, Settings, age, profile};
use seekless_units::{ByteLen, Ino, Lba};
use std::ops::ControlFlow;
use std::sync::Arc;

const BLOCK: u64 = 16_384;

fn image(version: Version, mebibytes: u64) -> Arc<MemoryDevice> {
    image_with(version, mebibytes, 8)
}

/// An empty image that keeps so many percent from ordinary users.
fn image_with(version: Version, mebibytes: u64, minfree: u32) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(vec![0; (mebibytes << 20) as usize]));
    let mut options = MakeOptions::new(version, ByteLen::new(mebibytes << 20));
    options.block_size = BLOCK as u32;
    options.fragment_size = 2048;
    options.bytes_per_inode = Some(2048);
    options.minfree = minfree;
    make(device.as_ref(), &options).unwrap();
    device
}

fn aged(
    name: &str,
    device: &Arc<MemoryDevice>,
    settings: Settings,
    into: Option<&str>,
) -> Result<Aged, AgeError> {
    let clock = Arc::new(VirtualClock::new());
    let how = LiveOptions {
        directories: "orlov".into(),
        inodes: None,
        blocks: None,
        seed: settings.seed,
        reallocblks: true,
        force: false,
        recover: false,
        ignore_checksums: false,
        wall: Box::new(|| Timestamp { secs: 1_000_000_000, nanos: 0 }),
    };
    let mut config = Config::new(Discipline::SoftUpdates);
    config.capacity = ByteLen::new(8 << 20);
    let mut live = FfsLive::open(device.clone(), clock.clone(), config, how)?;
    let profile = profile::named(name).unwrap();
    let subject = ImageSubject::new(&mut live, clock, &profile, into);
    let aged = subject.map_err(AgeError::from).and_then(|mut subject| {
        age(&profile, &mut subject, settings, &mut |_| ControlFlow::Continue(()))
    });
    live.unmount()?;
    aged
}

fn bytes(device: &MemoryDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.len().get() as usize];
    device.read(Lba::ZERO, &mut bytes).unwrap();
    bytes
}

/// Files of the tree, counted by the reader.
fn count(image: &FfsImage, dir: Ino) -> usize {
    let mut names = Vec::new();
    image
        .read_dir(dir, 0, &mut |entry| {
            if entry.name != b"." && entry.name != b".." {
                names.push(entry.ino);
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    let of = |ino: Ino| match image.attr(ino).unwrap().kind {
        FileKind::Directory => count(image, ino),
        _ => 1,
    };
    names.into_iter().map(of).sum()
}

/// Whether the reader finds what the stream believes; the score of what it
/// finds.
fn compare(device: &Arc<MemoryDevice>, aged: &Aged) -> Option<f64> {
    let image = FfsImage::open(device.clone(), OpenOptions::default()).unwrap();
    let expected = aged.stream.expected();
    assert_eq!(count(&image, image.root()), expected.len());
    let mut score = Score::default();
    let numbers: Vec<_> = aged.stream.files().map(|(file, ..)| file).collect();
    // A file's further names lead to the same bytes, which count once.
    let firsts = expected.iter().filter(|file| file.name == 0).count();
    assert_eq!(firsts, numbers.len());
    let mut numbers = numbers.into_iter();
    for file in &expected {
        let ino = resolve(&image, file.path.as_bytes()).unwrap();
        let len = file.len.get() as usize;
        assert_eq!(image.attr(ino).unwrap().size, file.len.get(), "{}", file.path);
        let (mut held, mut wanted) = (vec![0; len], vec![0; len]);
        let mut done = 0;
        while done < len {
            done += image.read(ino, ByteLen::new(done as u64), &mut held[done..]).unwrap();
        }
        file.contents.fill(ByteLen::ZERO, &mut wanted);
        assert!(held == wanted, "{}: contents", file.path);
        let runs = image.block_map(ino).unwrap().runs;
        let unit = |fragments: u64| ByteLen::new(fragments * 2048);
        let run = |run: &seekless_fs::Mapping| ByteRun {
            at: unit(run.extent.start.get()),
            len: unit(run.extent.len),
        };
        let runs: Vec<ByteRun> = runs.iter().map(run).collect();
        if file.name == 0 {
            let number = numbers.next().unwrap();
            score.set(number, FileLayout::of(&runs, ByteLen::new(BLOCK)));
        }
    }
    score.score()
}

#[test]
fn the_image_holds_what_the_stream_believes() {
    for name in profile::names() {
        for version in [Version::Ufs1, Version::Ufs2] {
            let device = image(version, 64);
            let aged = aged(name, &device, settings(5000, 1), None).unwrap();
            let report = seekless_ffs::check(device.clone()).unwrap();
            assert!(report.is_clean(), "{name}: {:#?}", report.findings);
            // Kept up operation by operation, and counted by the reader.
            let kept = aged.samples.last().unwrap().layout_score.unwrap();
            assert_eq!(compare(&device, &aged), Some(kept), "{name}");
            assert!((0.3..1.0).contains(&kept), "{name}: {kept}");
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    for version in [Version::Ufs1, Version::Ufs2] {
        let run = |seed, samples| {
            let device = image(version, 32);
            let settings = Settings { samples, ..settings(3000, seed) };
            aged("mail", &device, settings, None).unwrap();
            bytes(&device)
        };
        let first = run(1, 10);
        // How often it is looked changes nothing.
        assert!(first == run(1, 77), "the same seed");
        assert!(first != run(2, 10), "another seed");
    }
}

#[test]
fn fullness_is_held_as_users_see_it() {
    for name in profile::names() {
        let device = image(Version::Ufs2, 48);
        let aged = aged(name, &device, settings(20_000, 4), None).unwrap();
        let (low, high) = aged.held.unwrap_or_else(|| panic!("{name}: not reached"));
        assert!(low > 0.786 && high < 0.803, "{name}: {low}..{high}");
    }
}

#[test]
fn a_volume_that_is_all_but_full_is_aged_on() {
    let device = image_with(Version::Ufs1, 6, 0);
    let settings = Settings { fullness: 0.99, ..settings(6000, 5) };
    let aged = aged("build", &device, settings, None).unwrap();
    assert!(seekless_ffs::check(device.clone()).unwrap().is_clean());
    compare(&device, &aged);
    assert_eq!(aged.end, End::Done);
    assert!(aged.tally.no_space > 0, "{:?}", aged.tally);
}

#[test]
fn what_is_there_is_left_alone() {
    let device = image(Version::Ufs2, 32);
    aged("git", &device, settings(500, 1), None).unwrap();
    let again = aged("git", &device, settings(500, 1), None);
    assert!(matches!(again, Err(AgeError::FileSystem(FsError::Exists(_)))));
    aged("git", &device, settings(500, 1), Some("more")).unwrap();
    let again = aged("git", &device, settings(500, 1), Some("more"));
    assert!(matches!(again, Err(AgeError::FileSystem(FsError::NotEmpty(_)))));
    // A run that could not begin leaves an empty directory, which is no obstacle.
    let full = Settings { fullness: 0.02, ..settings(500, 1) };
    let refused = aged("git", &device, full, Some("last"));
    assert!(matches!(refused, Err(AgeError::TooFull { .. })));
    aged("git", &device, settings(500, 1), Some("last")).unwrap();
    let image = FfsImage::open(device, OpenOptions::default()).unwrap();
    resolve(&image, b"more/work").unwrap();
}
