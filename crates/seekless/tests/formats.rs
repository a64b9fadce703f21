//! What is built in each format is read, checked and compared alike.

use seekless::{
    Build, Change, Check, ErrorKind, Format, Kind, Optimize, Outcome, Trace, compare, open, sharing,
};
use std::fs;
use std::path::Path;
use std::process::Command;

const FORMATS: [Format; 7] = [
    Format::Ext2,
    Format::Ext3,
    Format::Ext4,
    Format::Ufs1,
    Format::Ufs2,
    Format::Fat,
    Format::Fat32,
];

/// A tree with the kinds of files that any user can make.
fn tree(at: &Path) {
    fs::create_dir_all(at.join("deep/er")).expect("tree");
    fs::create_dir(at.join("empty")).expect("tree");
    fs::write(at.join("none"), "").expect("tree");
    fs::write(at.join("deep/er/large"), vec![7; 3_000_001]).expect("tree");
    fs::hard_link(at.join("none"), at.join("deep/again")).expect("tree");
    std::os::unix::fs::symlink("er/large", at.join("deep/link")).expect("tree");
}

#[test]
fn every_format_has_what_its_source_has() {
    let work = tempfile::tempdir().expect("directory");
    let source = work.path().join("source");
    tree(&source);
    let first = work.path().join("first.img");
    Build::of([&source]).write(&first).expect("ext4");
    let first = open(&first).expect("ext4");
    for format in FORMATS {
        let path = work.path().join(format!("{format:?}.img"));
        let is_fat = matches!(format, Format::Fat | Format::Fat32);
        let build = Build::of([&source]).format(format).label("some");
        let build = if is_fat { build.lossy() } else { build };
        build.write(&path).unwrap_or_else(|error| panic!("{format:?}: {error}"));

        let image = open(&path).expect("image");
        assert_eq!(image.volume().label.trim_end(), "some", "{format:?}");
        assert_eq!(image.read("deep/er/large").expect("contents"), vec![7; 3_000_001]);
        let mut end = [0; 10];
        assert_eq!(image.read_at("deep/er/large", 2_999_999, &mut end).expect("end"), 2);
        let checked = Check::of(&path).run().expect("check");
        assert_eq!(checked.outcome, Outcome::Clean, "{format:?}: {:?}", checked.findings);

        let differences = compare(&first, &image).expect("two images");
        let differences = differences.iter().filter(|it| it.change != Change::Metadata);
        let differences: Vec<_> = differences.map(|it| (it.path.to_str(), it.change)).collect();
        // FAT has no symlinks.
        let expected = if is_fat { vec![(Some("deep/link"), Change::Removed)] } else { vec![] };
        assert_eq!(differences, expected, "{format:?}");
        if !is_fat {
            assert_eq!(image.metadata("deep/link").expect("link").kind, Kind::Symlink);
            assert_eq!(image.read("deep/link").expect("target"), b"er/large");
            let names = ["none", "deep/again"].map(|name| image.metadata(name).expect("name"));
            assert_eq!(names[0], names[1], "{format:?}");
            assert_eq!(names[0].links, 2, "{format:?}");
        }
    }
}

/// The judge of a format, if it is there; as root the tests of the binary make sure of it.
fn judge(format: Format, image: &Path) {
    let (program, args): (&str, &[&str]) = match format {
        Format::Ext2 | Format::Ext3 | Format::Ext4 => ("e2fsck", &["-fn"]),
        Format::Fat | Format::Fat32 => ("fsck.fat", &["-n"]),
        _ => return,
    };
    if let Ok(output) = Command::new(program).args(args).arg(image).output() {
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{format:?}: {said}");
    }
}

#[test]
fn what_is_read_first_lies_together() {
    let work = tempfile::tempdir().expect("directory");
    let source = work.path().join("source");
    fs::create_dir(&source).expect("tree");
    for n in 0..300u32 {
        let contents: Vec<u8> = (0..7_500).flat_map(|at| (n << 16 | at).to_le_bytes()).collect();
        fs::write(source.join(format!("{n:03}")), contents).expect("tree");
    }
    let hot = ["/007", "/280", "/130", "/131", "/044"];
    let trace = Trace::of_paths(hot);
    for format in [Format::Ext4, Format::Ufs2, Format::Fat32] {
        let build = Build::of([&source]).format(format).lossy();
        let (plain, laid) = (work.path().join("plain.img"), work.path().join("laid.img"));
        build.clone().replace().write(&plain).expect("image");
        build.trace(trace.clone()).replace().write(&laid).expect("image");
        judge(format, &laid);
        let score =
            |path| open(path).and_then(|image| image.score(&trace, &[128 << 10])).expect("score");
        let (before, after) = (score(&plain), score(&laid));
        assert!(after.seeks < before.seeks, "{format:?}: {} and {}", after.seeks, before.seeks);
        let chunks = [&before, &after].map(|score| score.chunks[&(128 << 10)]);
        assert!(chunks[1] < chunks[0], "{format:?}: {chunks:?}");
        if format != Format::Ufs2 {
            let again = work.path().join("again.img");
            let optimized =
                Optimize::of(&plain).trace(trace.clone()).chunk(128 << 10).replace().write(&again);
            let gain = optimized.expect("image").traces.remove(0);
            assert_eq!(gain.before.seeks, before.seeks, "{format:?}");
            assert!(gain.after.seeks < gain.before.seeks, "{format:?}");
            judge(format, &again);
            let differences = compare(&open(&plain).expect("old"), &open(&again).expect("new"));
            assert_eq!(differences.expect("two images"), [], "{format:?}");
        }
        let like = work.path().join("like.img");
        let optimize = Optimize::of(&laid).trace(trace.clone()).like(&plain).replace();
        let optimized = optimize.write(&like).expect("image");
        assert_eq!(optimized.traces[0].before.seeks, after.seeks, "{format:?}");
        assert_eq!(optimized.traces[0].after.seeks, before.seeks, "{format:?}: the older places");
        judge(format, &like);
        let differences = compare(&open(&laid).expect("old"), &open(&like).expect("new"));
        assert_eq!(differences.expect("two images"), [], "{format:?}");
        let new = |path| sharing(&[&plain, path], 64 << 10).expect("sharing")[1].new;
        assert!(new(&like) * 4 < new(&laid), "{format:?}: {} new chunks", new(&like));
        let moved = optimize.move_budget(1 << 20).write(&like).expect("image").traces.remove(0);
        assert!(moved.after.seeks < before.seeks, "{format:?}: {}", moved.after.seeks);
        judge(format, &like);
    }
}

#[test]
fn damage_is_found_and_repaired() {
    let work = tempfile::tempdir().expect("directory");
    let (source, path) = (work.path().join("source"), work.path().join("disk.img"));
    tree(&source);
    Build::of([&source]).write(&path).expect("image");
    let sound = fs::read(&path).expect("image");
    // The block bitmap's place says what is free there: one byte of the count of free blocks.
    let mut bytes = sound.clone();
    bytes[1024 + 0x0C] ^= 1;
    fs::write(&path, &bytes).expect("image");
    let found = Check::of(&path).run().expect("check");
    assert_eq!(found.outcome, Outcome::Left);
    assert!(!found.findings.is_empty() && found.findings.iter().all(|it| !it.repaired));
    let count = found.findings.iter().find_map(|it| it.values).expect("a count");
    assert_eq!(count.old, count.new ^ 1);
    assert_eq!(fs::read(&path).expect("image"), bytes, "a check writes nothing");
    let repaired = Check::of(&path).repair().expect("repair");
    assert_eq!(repaired.outcome, Outcome::Corrected);
    assert_eq!(Check::of(&path).run().expect("check").outcome, Outcome::Clean);
    judge(Format::Ext4, &path);
}

#[test]
fn errors_say_what_they_are_about() {
    let work = tempfile::tempdir().expect("directory");
    let (source, path) = (work.path().join("source"), work.path().join("disk.img"));
    tree(&source);
    let build = Build::of([&source]);
    build.write(&path).expect("image");
    let kind = |error: Option<seekless::Error>| error.map(|error| error.kind());
    assert_eq!(kind(build.write(&path).err()), Some(ErrorKind::System), "it is there");
    let inside = build.write(source.join("deep/disk.img")).err();
    assert_eq!(kind(inside), Some(ErrorKind::Usage), "in its own source");
    let full = build.clone().size(1 << 20).replace().write(&path).err();
    assert_eq!(kind(full), Some(ErrorKind::NoSpace));
    let symlink = build.clone().format(Format::Fat).replace().write(&path).err();
    assert_eq!(kind(symlink), Some(ErrorKind::Unsupported), "a symlink on FAT");
    let features = build.clone().format(Format::Ufs1).features("quota").replace().write(&path);
    assert_eq!(kind(features.err()), Some(ErrorKind::Usage));
    assert_eq!(
        kind(Optimize::of(&path).write(work.path().join("x")).err()),
        Some(ErrorKind::Usage)
    );
    let image = open(&path).expect("what was there is there");
    let missing = image.read("deep/nothing").expect_err("no file");
    assert!(missing.to_string().contains("/deep/nothing"), "{missing}");
    assert!(image.score(&Trace::of_paths(["/none"]), &[0]).is_err());
}

#[test]
fn files_keep_the_places_of_an_older_image() {
    let work = tempfile::tempdir().expect("directory");
    let source = work.path().join("source");
    tree(&source);
    // No two blocks are equal.
    let large: Vec<u8> = (0u32..500_000).flat_map(u32::to_le_bytes).collect();
    fs::write(source.join("deep/er/large"), large).expect("tree");
    let (old, new) = (work.path().join("old.img"), work.path().join("new.img"));
    for format in [Format::Ext4, Format::Ufs1, Format::Ufs2, Format::Fat32] {
        let build = Build::of([&source]).format(format).lossy().replace();
        build.clone().free(1 << 20).label("some").write(&old).expect("image");
        fs::write(source.join("added"), "text").expect("tree");
        build.like(&old).write(&new).expect("image like an older one");
        let sharing = seekless::sharing(&[&old, &new], 4096).expect("two images");
        assert!(sharing[1].new <= 16, "{format:?}: {} new blocks", sharing[1].new);
        assert_eq!(open(&new).expect("image").volume().label.trim_end(), "some", "{format:?}");
        fs::remove_file(source.join("added")).expect("tree");
    }
    let ufs = Build::of([&source]).format(Format::Ufs2).like(&old).replace().write(&new);
    assert_eq!(ufs.expect_err("not UFS").kind(), ErrorKind::Unsupported);
    let other = Build::of([&source]).format(Format::Fat).like(&old).size(64 << 10).replace();
    assert!(other.lossy().write(&new).is_err(), "smaller than the older image");
}

#[test]
fn options_that_need_another_are_refused() {
    let work = tempfile::tempdir().unwrap();
    let (tree, image) = (work.path().join("tree"), work.path().join("image"));
    fs::create_dir(&tree).unwrap();
    let build = || Build::of([&tree]);
    for build in [build().only_listed(), build().mount_point("/usr")] {
        assert_eq!(build.write(&image).unwrap_err().kind(), ErrorKind::Usage);
    }
    assert!(!image.exists());
}
