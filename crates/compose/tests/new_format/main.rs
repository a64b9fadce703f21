//! A format that the workspace does not know is a crate with a row and a builder (`flat`): images
//! of it are made, laid out by a trace, read, scored and checked by the code of all others.

mod flat;

use flat::{BLOCK, Builder, EXTENTS_AT, FLAT, RECORD};
use seekless_compose::build::Build;
use seekless_compose::sources::{self, Purpose, SourceOptions};
use seekless_compose::write::Destination;
use seekless_device::{BlockDevice, MemoryDevice};
use seekless_formats::{EXT, FAT, FFS, claim, claim_among};
use seekless_fs::check::Outcome;
use seekless_fs::format::OpenOptions;
use seekless_fs::inspect::resolve;
use seekless_fs::{FsError, Inspect};
use seekless_images::output::NO_INPUTS;
use seekless_images::{Target, Unwatched};
use seekless_layout::planner::{Storage, StorageKind};
use seekless_layout::replay::Machine;
use seekless_layout::score::score;
use seekless_layout::trace::{Event, Events, Op};
use seekless_units::{ByteLen, Nanos};
use std::fs;
use std::path::Path;
use std::sync::Arc;

const CHUNK: ByteLen = ByteLen::new(16 << 10);
const FILES: usize = 200;

fn contents(number: usize) -> Vec<u8> {
    (0..4000 + number % 50 * 37).map(|at| (at * 7 + number) as u8).collect()
}

fn name(number: usize) -> String {
    format!("d{}/file-{number}", number % 5)
}

fn tree(dir: &Path) {
    for number in 0..FILES {
        let path = dir.join(name(number));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, contents(number)).unwrap();
    }
}

/// Every twentieth file is read.
fn trace() -> Events {
    let read = |number| Event::new(Nanos::ZERO, Op::Read, format!("/{}", name(number)).into());
    (0..FILES).step_by(20).map(read).collect()
}

/// The bytes of an image of the tree, made with some traces.
fn image(work: &Path, traces: &[Events]) -> Vec<u8> {
    let (from, to) = (work.join("tree"), work.join("flat.img"));
    let options = SourceOptions::default();
    let source = sources::open(&from, &options, Purpose::Build { latest: None }).unwrap();
    let target = Target::create(&to, true, None, NO_INPUTS).unwrap();
    let build = Build {
        source: source.as_ref(),
        name: "tree",
        traces,
        storage: Storage { kind: StorageKind::Disk, chunk: CHUNK },
        destination: Destination::whole(&target),
        progress: &Unwatched,
    };
    let touches = build.touches(BLOCK as u32);
    build.volume(&Builder::new(source.as_ref()), &touches).unwrap();
    target.finish().unwrap();
    fs::read(to).unwrap()
}

fn open(bytes: &[u8]) -> Arc<dyn Inspect> {
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(bytes.to_vec()));
    let known = claim_among(&[&EXT, &FFS, &FAT, &FLAT], device.as_ref()).unwrap();
    assert!(known.is(&FLAT), "{}", known.called);
    (known.reader.open)(device, OpenOptions::default()).unwrap()
}

#[test]
fn a_new_format_is_a_row_and_a_builder() {
    let work = tempfile::tempdir().unwrap();
    tree(&work.path().join("tree"));
    let plain = image(work.path(), &[]);
    let arranged = image(work.path(), &[trace()]);
    let unknown = MemoryDevice::new(plain.clone());
    assert!(matches!(claim(&unknown), Err(FsError::Invalid(_))), "it is not in the table");

    let chunks = [&plain, &arranged].map(|bytes| {
        let image = open(bytes);
        for number in 0..FILES {
            let ino = resolve(image.as_ref(), name(number).as_bytes()).unwrap();
            let mut read = vec![0; image.attr(ino).unwrap().size as usize];
            image.read(ino, ByteLen::ZERO, &mut read).unwrap();
            assert_eq!(read, contents(number), "{}", name(number));
        }
        let machine = Machine::for_score();
        let (score, _) = score(image.as_ref(), &trace(), machine, &[CHUNK]).unwrap();
        assert_eq!(score.missing, Vec::<String>::new());
        score.chunks[&CHUNK.get()]
    });
    // 10 files of 4 to 6 KB, and records in the table of 25 KB.
    let [scattered, together] = chunks;
    assert!(scattered >= together * 2, "{scattered} and {together} chunks");
}

#[test]
fn damage_of_a_new_format_is_found_by_its_row() {
    let work = tempfile::tempdir().unwrap();
    tree(&work.path().join("tree"));
    let sound = image(work.path(), &[]);
    let check = |bytes: &[u8]| (FLAT.check)(Arc::new(MemoryDevice::new(bytes.to_vec()))).unwrap();
    assert!(check(&sound).is_clean());

    // The first extents of two files: one file has the blocks of the other.
    let record = |ino: usize| BLOCK as usize + (ino - 1) * RECORD + EXTENTS_AT;
    let image = open(&sound);
    let at = |number: usize| {
        let ino = resolve(image.as_ref(), name(number).as_bytes()).unwrap();
        record(ino.get() as usize)
    };
    let mut twice = sound.clone();
    twice.copy_within(at(3)..at(3) + 8, at(4));
    let mut behind = sound.clone();
    behind[at(5) + 3] = 0x7F;
    for (bytes, code) in [(twice, "extent.twice"), (behind, "extent.range")] {
        let report = check(&bytes);
        let codes: Vec<_> = report.findings.iter().map(|finding| finding.code()).collect();
        assert_eq!(codes, [code]);
        let problem = flat::PROBLEMS.iter().find(|problem| problem.code == code).unwrap();
        assert!(report.findings.iter().all(|finding| finding.is(problem)));
        let repaired = (FLAT.repair)(Arc::new(MemoryDevice::new(bytes)), Default::default());
        assert_eq!(repaired.unwrap().outcome, Outcome::Left);
    }
}
