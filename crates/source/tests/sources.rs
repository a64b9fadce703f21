//! The same tree from a directory, from archives made by GNU tar and from an OCI layout; and input
//! that is damaged or changes while it is read.

use seekless_fs::source::Source;
use seekless_fs::{ArchiveFault, FsError};
use seekless_source::{DirectorySource, Excludes, OpenOptions, TreeOptions, manifest, open};
use sha2::{Digest, Sha256};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

fn listing(source: &dyn Source) -> String {
    let mut out = Vec::new();
    manifest::write(source, &mut out, &|_| {}).unwrap();
    String::from_utf8(out).unwrap()
}

fn list(path: &Path) -> String {
    listing(open(path, &OpenOptions::default()).unwrap().as_ref())
}

fn run(program: &str, args: &[&OsStr]) {
    let done = Command::new(program).args(args).output().unwrap();
    assert!(done.status.success(), "{program}: {}", String::from_utf8_lossy(&done.stderr));
}

/// Creates a tree with every kind of file that archives are known to lose.
fn populate(root: &Path) {
    let long = root.join("l".repeat(120)).join("m".repeat(130));
    fs::create_dir_all(&long).unwrap();
    fs::write(long.join("deep"), "hi").unwrap();
    fs::create_dir(root.join("sub")).unwrap();
    fs::write(root.join("data"), vec![7; 100_000]).unwrap();
    fs::hard_link(root.join("data"), root.join("sub/same")).unwrap();
    symlink("../data", root.join("sub/link")).unwrap();
    symlink("x".repeat(300), root.join("sub/long")).unwrap();
    fs::write(root.join(OsStr::from_bytes(b"n\xff me\n")), "x").unwrap();
    fs::write(root.join("empty"), "").unwrap();
    let sparse = File::create(root.join("sparse")).unwrap();
    sparse.set_len(5 << 20).unwrap();
    for at in 0..40u64 {
        sparse.write_all_at(b"data", at * 100_003).unwrap();
    }
    run("mkfifo", &[root.join("fifo").as_os_str()]);
    fs::set_permissions(root.join("data"), fs::Permissions::from_mode(0o4711)).unwrap();
    for (name, value) in [("user.note", &b"hello"[..]), ("user.raw", b"\n\0=5 a")] {
        rustix::fs::lsetxattr(root.join("data"), name, value, rustix::fs::XattrFlags::empty())
            .unwrap();
    }
    let acl = OsStr::new("u:0:r,g:12345:rw,d:u:7:rwx");
    run("setfacl", &["-m".as_ref(), acl, root.join("sub").as_os_str()]);
}

fn tree() -> (TempDir, PathBuf) {
    // Not in /tmp, which may be a file system without user attributes.
    let temp = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let root = temp.path().join("tree");
    fs::create_dir(&root).unwrap();
    populate(&root);
    (temp, root)
}

fn tar(root: &Path, out: &Path, flags: &[&str]) {
    let flags = flags.iter().map(|flag| OsStr::new(*flag));
    let mut args: Vec<&OsStr> = flags.collect();
    args.extend(["-cf".as_ref(), out.as_os_str(), "-C".as_ref(), root.as_os_str(), ".".as_ref()]);
    run("tar", &args);
}

const PAX: [&str; 5] = ["--format=posix", "--sparse", "--xattrs", "--acls", "--numeric-owner"];

#[test]
fn archives_hold_what_the_directory_does() {
    let (temp, root) = tree();
    let wanted = list(&root);
    assert!(wanted.contains("xattr.user.raw=") && wanted.contains("hardlink=./data"));
    let archive = temp.path().join("a.tar");
    for extra in [
        &["--sparse-version=1.0"][..],
        &["--sparse-version=0.1"],
        &["--sparse-version=0.0"],
        &["--sparse-version=1.0", "--gzip"],
        &["--sparse-version=1.0", "--zstd"],
    ] {
        tar(&root, &archive, &[&PAX[..], extra].concat());
        let differences = manifest::compare(&wanted, &list(&archive));
        assert!(differences.is_empty(), "{extra:?}: {differences:#?}");
    }
}

#[test]
fn older_formats_hold_all_but_what_they_cannot() {
    let (temp, root) = tree();
    // Neither fractions of seconds nor attributes.
    let without = |text: &str| -> Vec<String> {
        let plain = |word: &&str| !word.starts_with("xattr.");
        let whole = |word: &str| match word.strip_prefix("time=") {
            Some(time) => format!("time={}", time.split('.').next().unwrap_or_default()),
            None => word.to_string(),
        };
        let line =
            |line: &str| line.split(' ').filter(plain).map(whole).collect::<Vec<_>>().join(" ");
        text.lines().map(line).collect()
    };
    let archive = temp.path().join("a.tar");
    let wanted = without(&list(&root));
    for flags in [&["--format=gnu", "--sparse"][..], &["--format=gnu"]] {
        tar(&root, &archive, flags);
        assert_eq!(without(&list(&archive)), wanted, "{flags:?}");
    }
    fs::remove_dir_all(root.join("l".repeat(120))).unwrap();
    fs::remove_file(root.join("sub/long")).unwrap();
    let wanted = without(&list(&root));
    tar(&root, &archive, &["--format=ustar"]);
    assert_eq!(without(&list(&archive)), wanted);
}

#[test]
fn holes_are_told_alike() {
    let (temp, root) = tree();
    let archive = temp.path().join("a.tar");
    tar(&root, &archive, &PAX);
    for path in [&root, &archive] {
        let source = open(path, &OpenOptions::default()).unwrap();
        let node = source.tree().resolve(b"sparse").unwrap();
        let segments = source.segments(node).unwrap();
        let stored: u64 = segments.iter().map(|segment| segment.len).sum();
        assert!(segments.len() == 40 && stored <= 40 * 8192, "{path:?}: {segments:?}");
    }
}

/// Every damage gives an error with a location, or a tree; never a panic.
#[test]
fn damaged_archives_are_refused_or_read() {
    let (temp, root) = tree();
    fs::write(root.join("data"), "short").unwrap();
    let archive = temp.path().join("a.tar");
    tar(&root, &archive, &PAX);
    let whole = fs::read(&archive).unwrap();
    let damaged = temp.path().join("damaged.tar");
    let read = |bytes: &[u8]| {
        fs::write(&damaged, bytes).unwrap();
        let source = open(&damaged, &OpenOptions::default())?;
        manifest::write(source.as_ref(), &mut Vec::new(), &|_| {})
    };
    for at in (1..whole.len()).step_by(whole.len() / 150 + 1) {
        if let Err(error) = read(&whole[..at]) {
            assert!(matches!(error, FsError::Archive { .. }), "{at}: {error}");
        }
    }
    let mut seed = 0x5eed_u64;
    let mut refused = 0;
    for _ in 0..400 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (at, bit) = ((seed >> 33) as usize % whole.len(), (seed >> 29) % 8);
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << bit;
        refused += usize::from(read(&bytes).is_err());
    }
    assert!(refused > 20, "headers are checked: {refused}");
}

#[test]
fn faults_say_where_they_are() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("a.tar");
    let fault = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        match open(&path, &OpenOptions::default()).map(drop) {
            Err(FsError::Archive { offset, fault, .. }) => (offset, fault),
            other => panic!("{other:?}"),
        }
    };
    let foreign = |fault: ArchiveFault| (0, ArchiveFault::Foreign(fault.into()));
    assert_eq!(fault(b""), foreign(ArchiveFault::Truncated));
    assert_eq!(fault(&[b'x'; 1024]), foreign(ArchiveFault::Checksum));
    fs::write(temp.path().join("f"), vec![1; 2000]).unwrap();
    let args =
        ["-cf", "-", "-C", temp.path().to_str().unwrap(), "f", "--transform=s,f,../f,", "-P"];
    let made = Command::new("tar").args(args).output().unwrap().stdout;
    assert_eq!(fault(&made), (0, ArchiveFault::Path("../f".into())));
    let args = ["-cf", "-", "-C", temp.path().to_str().unwrap(), "f"];
    let made = Command::new("tar").args(args).output().unwrap().stdout;
    assert_eq!(fault(&made[..1500]), (0, ArchiveFault::Truncated.of_entry(b"f")));
}

/// The fault of a file that is no sound archive, and its offset; `None` where it opens.
fn fault_of(path: &Path, bytes: &[u8]) -> Option<(u64, ArchiveFault)> {
    fs::write(path, bytes).unwrap();
    match open(path, &OpenOptions::default()).map(drop) {
        Ok(()) => None,
        Err(FsError::Archive { offset, fault, .. }) => Some((offset, fault)),
        Err(other) => panic!("{other:?}"),
    }
}

/// An archive whose first header is damaged is told from a file that is none.
#[test]
fn a_damaged_first_header_is_of_an_archive() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("a.tar");
    fs::write(temp.path().join("first"), vec![1; 2000]).unwrap();
    fs::write(temp.path().join("second"), "second").unwrap();
    let checksum = Some((0, ArchiveFault::Checksum));
    for format in ["ustar", "gnu", "v7", "pax"] {
        let from = temp.path().to_str().unwrap();
        let args = ["-C", from, &format!("--format={format}"), "-cf", "-", "first", "second"];
        let whole = Command::new("tar").args(args).output().unwrap().stdout;
        for bit in 0..512 * 8 {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            match fault_of(&path, &bytes) {
                // A zero or a space before the digits of the checksum, and the bytes behind them,
                // are of no meaning.
                None => assert!((148..156).contains(&(bit / 8)), "{format}: bit {bit}"),
                found => assert_eq!(found, checksum, "{format}: bit {bit}"),
            }
        }
        // Nothing of the first header is left, but there are others.
        for garbage in [[0x5A; 512], [0xFF; 512]] {
            let bytes = [&garbage, &whole[512..]].concat();
            assert_eq!(fault_of(&path, &bytes), checksum, "{format}");
        }
        let bytes = [&[0; 512], &whole[512..]].concat();
        assert_eq!(fault_of(&path, &bytes), Some((0, ArchiveFault::Zeros)), "{format}");
    }
}

#[test]
fn files_that_are_no_archives_are_foreign() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("file");
    let mut seed = 0x5eed_u64;
    let mut noise = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as u8
    };
    let jpeg = b"\xFF\xD8\xFF\xE0\0\x10JFIF\0\x01\x01\0\0\x01\0\x01\0\0";
    let mut files: Vec<Vec<u8>> = vec![
        "All work and no play makes Jack a dull boy.\n".repeat(100).into(),
        "0 1 2 3 4 5 6 7 ".repeat(1000).into(),
        "0000644\n".repeat(1000).into(),
        "00000000 \0".repeat(1000).into(),
        vec![b'0'; 5000],
        vec![b' '; 5000],
        vec![0xFF; 5000],
        vec![0; 100_000],
        b"short".to_vec(),
        [&jpeg[..], &(0..20_000).map(|_| noise()).collect::<Vec<u8>>()].concat(),
    ];
    files.extend((0..50).map(|_| (0..4096).map(|_| noise()).collect()));
    for (n, bytes) in files.iter().enumerate() {
        match fault_of(&path, bytes) {
            Some((0, ArchiveFault::Foreign(_))) => {}
            other => panic!("file {n}: {other:?}"),
        }
    }
}

#[test]
fn a_file_that_changes_underfoot_is_noticed() {
    let (_temp, root) = tree();
    let source = DirectorySource::open(&root, &TreeOptions::default()).unwrap();
    let node = source.tree().resolve(b"data").unwrap();
    let mut content = source.open(node).unwrap();
    content.read_at(99_999, &mut [0]).unwrap();
    content.verify().unwrap();
    fs::write(root.join("data"), "less").unwrap();
    assert!(matches!(content.read_at(99_999, &mut [0]), Err(FsError::SourceChanged(_))));
    assert!(matches!(content.verify(), Err(FsError::SourceChanged(_))));
    let again = source.open(node).and_then(|mut content| content.verify());
    assert!(matches!(again, Err(FsError::SourceChanged(_))));
    fs::remove_file(root.join("empty")).unwrap();
    let gone = source.tree().resolve(b"empty").unwrap();
    assert!(
        matches!(source.open(gone).map(drop), Err(FsError::SourceChanged(path)) if path == "empty")
    );
}

#[test]
fn excludes_and_owners_hold_for_every_source() {
    let (temp, root) = tree();
    let archive = temp.path().join("a.tar");
    tar(&root, &archive, &PAX);
    let tree = TreeOptions {
        excludes: Excludes::new(&["l*/", "/sub/link", "data"]),
        owner: Some((11, 12)),
        clamp_mtime: Some(1_000_000_000),
        ..TreeOptions::default()
    };
    let options = OpenOptions { tree, ..OpenOptions::default() };
    let listings = [&root, &archive].map(|path| listing(open(path, &options).unwrap().as_ref()));
    assert_eq!(listings[0], listings[1]);
    let text = &listings[0];
    assert!(!text.contains("/deep") && !text.contains("sub/link") && !text.contains("./data "));
    assert!(text.contains("./sub/same ") && text.contains("uid=11 gid=12"));
    assert!(text.lines().skip(1).all(|line| line.contains("time=1000000000.0")));
}

#[test]
fn a_hundred_thousand_names_come_out_in_order() {
    let temp = tempfile::tempdir().unwrap();
    for number in 0..100_000u32 {
        let name = format!("{:08x}", number.wrapping_mul(2_654_435_761));
        File::create(temp.path().join(name)).unwrap();
    }
    let source = DirectorySource::open(temp.path(), &TreeOptions::default()).unwrap();
    let tree = source.tree();
    let names = tree.children(seekless_fs::tree::NodeId::ROOT);
    assert_eq!(names.len(), 100_000);
    assert!(names.is_sorted_by(|a, b| tree.name(a) < tree.name(b)));
}

/// Adds a blob to a layout. Returns its descriptor.
fn blob(layout: &Path, bytes: &[u8], media_type: &str) -> String {
    let digest: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    fs::write(layout.join("blobs/sha256").join(&digest), bytes).unwrap();
    let size = bytes.len();
    format!(r#"{{"mediaType":"{media_type}","digest":"sha256:{digest}","size":{size}}}"#)
}

/// A layout of layers, each made of files with contents.
fn layout(dir: &Path, layers: &[&[(&str, &str)]]) {
    const PREFIX: &str = "application/vnd.oci.image";
    fs::create_dir_all(dir.join("blobs/sha256")).unwrap();
    let mut descriptors = Vec::new();
    for files in layers {
        let temp = tempfile::tempdir().unwrap();
        for (name, contents) in *files {
            let path = temp.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, contents).unwrap();
        }
        let archive = dir.join("layer.tar");
        tar(temp.path(), &archive, &["--gzip"]);
        let bytes = fs::read(&archive).unwrap();
        descriptors.push(blob(dir, &bytes, &format!("{PREFIX}.layer.v1.tar+gzip")));
    }
    let config = blob(dir, b"{}", &format!("{PREFIX}.config.v1+json"));
    let manifest =
        format!(r#"{{"schemaVersion":2,"config":{config},"layers":[{}]}}"#, descriptors.join(","));
    let manifest = blob(dir, manifest.as_bytes(), &format!("{PREFIX}.manifest.v1+json"));
    let index = format!(r#"{{"schemaVersion":2,"manifests":[{manifest}]}}"#);
    fs::write(dir.join("index.json"), index).unwrap();
    fs::write(dir.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
}

#[test]
fn layers_hide_what_they_say() {
    let temp = tempfile::tempdir().unwrap();
    layout(
        temp.path(),
        &[
            &[("a/old", "1"), ("a/x/y", "1"), ("b/gone", "1"), ("b/kept", "1"), ("c", "1")],
            &[("a/.wh..wh..opq", ""), ("a/new", "2"), ("b/.wh.gone", ""), ("c", "22")],
        ],
    );
    let text = list(temp.path());
    let names: Vec<&str> = text.lines().skip(2).filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(names, ["./a", "./a/new", "./b", "./b/kept", "./c"]);
    assert!(text.lines().any(|line| line.starts_with("./c ") && line.contains("size=2 ")));
}

#[test]
fn a_blob_with_another_digest_is_refused() {
    let temp = tempfile::tempdir().unwrap();
    layout(temp.path(), &[&[("a", "1")]]);
    for entry in fs::read_dir(temp.path().join("blobs/sha256")).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = fs::read(&path).unwrap();
        if bytes.starts_with(b"\x1f\x8b") {
            let last = bytes.len() - 1;
            bytes[last] ^= 1;
            fs::write(&path, bytes).unwrap();
        }
    }
    let opened = open(temp.path(), &OpenOptions::default()).map(drop);
    assert!(matches!(opened, Err(FsError::Container { what, .. }) if what.contains("digest")));
}
