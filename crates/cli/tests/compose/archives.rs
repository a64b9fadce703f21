//! Archives as various programs write and compress them.

use crate::judges::{Scratch, check, failure, manifest, run, seekless, skip, text};
use std::fs;

/// Header and contents of a ustar entry.
pub(crate) fn entry(name: &str, kind: u8, link: &str, mode: u32, contents: &[u8]) -> Vec<u8> {
    owned(name, kind, link, (mode, 0, 0), contents)
}

/// The same with an owner, which is the group too, and a time. The link of a device is its number.
pub(crate) fn owned(
    name: &str,
    kind: u8,
    link: &str,
    (mode, owner, time): (u32, u32, u32),
    contents: &[u8],
) -> Vec<u8> {
    let mut block = [0; 512];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, name.as_bytes());
    put(100, format!("{mode:07o}\0{owner:07o}\0{owner:07o}\0").as_bytes());
    put(124, format!("{:011o}\0{time:011o}\0", contents.len()).as_bytes());
    put(148, b"        ");
    put(156, &[kind]);
    match link.split_once(':').filter(|_| kind == b'3') {
        Some((major, minor)) => put(329, format!("{major:0>7}\0{minor:0>7}\0").as_bytes()),
        None => put(157, link.as_bytes()),
    }
    put(257, b"ustar\x0000");
    let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let padding = contents.len().next_multiple_of(512) - contents.len();
    [&block[..], contents, &vec![0; padding]].concat()
}

pub(crate) fn pax(records: &[(&str, &str)]) -> Vec<u8> {
    let mut body = String::new();
    for (key, value) in records {
        let rest = key.len() + value.len() + 3;
        let mut len = rest;
        while len != rest + len.to_string().len() {
            len = rest + len.to_string().len();
        }
        body += &format!("{len} {key}={value}\n");
    }
    entry("PaxHeaders/x", b'x', "", 0o644, body.as_bytes())
}

fn archive(scratch: &Scratch, name: &str, entries: &[Vec<u8>]) -> String {
    let path = scratch.join(name);
    fs::write(&path, [&entries.concat()[..], &[0; 1024]].concat()).expect("write");
    path
}

#[test]
fn compressions() {
    let scratch = Scratch::new("compressions");
    let plain = archive(&scratch, "plain", &[entry("f", b'0', "", 0o644, b"contents")]);
    let (image, wanted) = (scratch.join("image"), scratch.join("wanted"));
    text(&seekless(&["build", &plain, "-o", &wanted]));
    let packed = scratch.join("packed");
    for packing in [
        "xz -c",
        "(xz -c; printf '\\0\\0\\0\\0')",
        "bzip2 -c",
        "gzip -c",
        "(gzip -c; head -c 4096 /dev/zero)",
        "(bzip2 -c; head -c 4096 /dev/zero)",
        "(zstd -qc; head -c 4096 /dev/zero)",
        "(head -c 700 | gzip -c; cat '{plain}' | tail -c +701 | gzip -c)",
        "(head -c 700 | bzip2 -c; cat '{plain}' | tail -c +701 | bzip2 -c)",
        "(head -c 700 | zstd -qc; cat '{plain}' | tail -c +701 | zstd -qc; head -c 9 /dev/zero)",
        "(printf '\\120\\052\\115\\030\\004\\0\\0\\0abcd'; zstd -qc)",
    ] {
        let packing = packing.replace("{plain}", &plain);
        run("sh", &["-c", &format!("{packing} < '{plain}' > '{packed}'")]);
        text(&seekless(&["build", &packed, "-o", &image, "--force"]));
        run("cmp", &[&image, &wanted]);
        // A truncated archive is damaged.
        let bytes = fs::read(&packed).expect("read");
        fs::write(&packed, &bytes[..50]).expect("write");
        let (code, message) = failure(&seekless(&["build", &packed, "-o", &image, "--force"]));
        assert!(code == 3 && message.contains("broken"), "{packing}: {message}");
    }
    for packer in ["gzip -c", "bzip2 -c", "zstd -qc"] {
        run("sh", &["-c", &format!("({packer}; printf '\\0\\0x') < '{plain}' > '{packed}'")]);
        assert_eq!(failure(&seekless(&["build", &packed, "-o", &image, "--force"])).0, 3);
        for rest in ["x", "some other data", "\\037\\213", "BZ"] {
            run("sh", &["-c", &format!("({packer}; printf '{rest}') < '{plain}' > '{packed}'")]);
            let (code, message) = failure(&seekless(&["build", &packed, "-o", &image, "--force"]));
            assert_eq!(code, 3, "{packer}, {rest}: {message}");
            // The beginning of another stream is a truncated one.
            let is_start =
                (packer, rest) == ("gzip -c", "\\037\\213") || (packer, rest) == ("bzip2 -c", "BZ");
            let has_other = message.contains("other data behind the end of the compressed data");
            assert_ne!(has_other, is_start, "{packer}, {rest}: {message}");
        }
    }
    // lz4 and Zstandard have their skippable frames in common.
    let skippable =
        "printf '\\120\\052\\115\\030\\004\\0\\0\\0abcd\\004\\042\\115\\030rest of lz4'";
    run("sh", &["-c", &format!("{skippable} > '{packed}'")]);
    let (code, message) = failure(&seekless(&["build", &packed, "-o", &image, "--force"]));
    assert!(code == 4 && message.contains("lz4 -dc"), "{message}");
    for (magic, command) in [
        (&b"\x1f\x9d\x90"[..], "uncompress -c"),
        (b"LZIP\x01", "lzip -dc"),
        (b"\x04\x22\x4d\x18", "lz4 -dc"),
        (b"\x89LZO\0\r\n\x1a\n", "lzop -dc"),
        (b"\x5d\0\0\x80\0\xff\xff\xff\xff", "xz --format=lzma -dc"),
    ] {
        fs::write(&packed, [magic, &[1; 600]].concat()).expect("write");
        let (code, message) = failure(&seekless(&["build", &packed, "-o", &image, "--force"]));
        assert!(code == 4 && message.contains(command), "{message}");
    }
    // A window that is too large: the first bytes of the output of `zstd --long=31`.
    fs::write(&packed, b"\x28\xb5\x2f\xfd\x04\xa8\x01\0\0").expect("write");
    let (code, message) = failure(&seekless(&["build", &packed, "-o", &image, "--force"]));
    assert!(code == 4 && message.contains("zstd -dc --long=31"), "{message}");
}

#[test]
fn entries_below_links_that_lead_nowhere_yet() {
    let scratch = Scratch::new("dangling");
    let archive = archive(
        &scratch,
        "tar",
        &[
            entry("var/run", b'2', "/run", 0o644, b""),
            entry("var/run/x", b'0', "", 0o644, b"1"),
            entry("up", b'2', "a/../../b", 0o755, b""),
            entry("up/y", b'0', "", 0o644, b"2"),
        ],
    );
    let image = scratch.join("image");
    text(&seekless(&["build", &archive, "-o", &image]));
    check(&image);
    let listing = manifest(&image, &[]);
    assert!(listing.contains("./run/x ") && listing.contains("./b/y "), "{listing}");
    assert!(listing.contains("./var/run type=link mode=0777 "), "{listing}");
}

#[test]
fn attributes_of_other_systems_are_left_out_and_told() {
    let scratch = Scratch::new("foreign-xattrs");
    let records = [
        ("SCHILY.xattr.com.apple.provenance", "q"),
        ("LIBARCHIVE.xattr.com.apple.quarantine", "cQ"),
        ("SCHILY.xattr.user.a", "1"),
        ("SCHILY.xattr.user.b", "2"),
    ];
    let archive =
        archive(&scratch, "tar", &[pax(&records), entry("f", b'0', "", 0o644, b"contents")]);
    let image = scratch.join("image");
    let build = |options: &[&str]| {
        let built = seekless(&[&["build", &archive, "-o", &image, "--force"], options].concat());
        assert!(built.status.success(), "{built:?}");
        (String::from_utf8_lossy(&built.stderr).into_owned(), manifest(&image, &[]))
    };
    let (said, listing) = build(&[]);
    assert!(said.contains("left out: com.apple.provenance, com.apple.quarantine"), "{said}");
    assert!(listing.contains("xattr.user.a") && listing.contains("xattr.user.b"), "{listing}");
    let (said, listing) = build(&["--drop", "xattrs"]);
    assert!(!said.contains("left out") && !listing.contains("xattr."), "{said}{listing}");
    let (_, listing) = build(&["--drop", "user.a"]);
    assert!(!listing.contains("xattr.user.a") && listing.contains("xattr.user.b"), "{listing}");
    let other = seekless(&["build", &archive, "-o", &image, "--force", "--drop", "owners"]);
    assert!(failure(&other).0 == 2);
}

#[test]
fn refusals_name_the_entry_and_its_place() {
    let scratch = Scratch::new("refused-entries");
    let first = || entry("first", b'0', "", 0o644, b"");
    let mut bad_size = entry("bad", b'0', "", 0o644, b"");
    bad_size[124] = b'x';
    let sum: u32 = bad_size[..148].iter().chain(&bad_size[156..]).map(|&b| u32::from(b)).sum();
    bad_size[148..156].copy_from_slice(format!("{:06o}\0 ", sum + 256).as_bytes());
    for (odd, code, place) in [
        (entry("odd", b'A', "", 0o644, b""), 4, "byte 512: odd: entry of type 'A'"),
        (entry("odd", b'Z', "", 0o644, b""), 4, "byte 512: odd: entry of type 'Z'"),
        (entry("odd", b'M', "", 0o644, b""), 4, "byte 512: odd: entry of a multi-volume"),
        (entry("../odd", b'0', "", 0o644, b""), 4, "byte 512: ../odd: not a path"),
        (entry("odd", b'1', "none", 0o644, b""), 3, "byte 512: odd: hard link to none"),
        (bad_size, 3, "byte 512: bad: size is not a valid number"),
    ] {
        for (entries, place) in [
            (vec![first(), odd.clone()], place.to_string()),
            (vec![odd], place.replace("byte 512", "byte 0")),
        ] {
            let archive = archive(&scratch, "tar", &entries);
            let (found, message) =
                failure(&seekless(&["build", &archive, "-o", &scratch.join("image")]));
            assert!(found == code && message.contains(&place), "{found}: {message}");
            assert!(!message.contains("neither"), "{message}");
        }
    }
}

/// A tree under fakeroot: the ownership and nodes it shows, compared with an image of mke2fs.
#[test]
fn a_directory_under_fakeroot() {
    if std::process::Command::new("fakeroot").arg("--version").output().is_err() {
        return skip("fakeroot is not installed");
    }
    shows_the_tree_of_mke2fs("fakeroot");
}

/// The same under pseudo, where its library is: Debian's `pseudo` does not bring it.
#[test]
fn a_directory_under_pseudo() {
    let library = std::path::Path::new("/usr/lib")
        .join(format!("{}-linux-gnu/pseudo/libpseudo.so", std::env::consts::ARCH));
    let version = std::process::Command::new("fakeroot-pseudo").arg("--version").output();
    if version.is_ok() && library.exists() {
        shows_the_tree_of_mke2fs("fakeroot-pseudo");
    }
}

fn shows_the_tree_of_mke2fs(wrapper: &str) {
    let scratch = Scratch::new(wrapper);
    let (tree, image, wanted) =
        (scratch.join("tree"), scratch.join("image"), scratch.join("wanted"));
    let script = "set -e; mkdir -p $T/d; echo a > $T/d/f; mknod $T/null c 1 3; mknod $T/b b 8 1
        mknod $T/p p; chown 12:34 $T/d/f; chmod 4755 $T/d/f; ln -s x $T/l; chown -h 5:6 $T/l
        ln $T/d/f $T/hard; setfattr -n security.capability -v \
        0x0100000200200000000000000000000000000000 $T/p; setfattr -n user.x -v y $T/d/f
        touch -h -d @1700000000 $T/d/f $T/null $T/b $T/p $T/l $T/d $T
        $S build $T -o $I -q; mke2fs -q -t ext4 -d $T $W 8M";
    let script = script
        .replace("$S", env!("CARGO_BIN_EXE_seekless"))
        .replace("$T", &tree)
        .replace("$I", &image)
        .replace("$W", &wanted);
    // pseudo keeps its state there.
    let state = format!("PSEUDO_LOCALSTATEDIR={}", scratch.join("state"));
    std::fs::create_dir(scratch.join("state")).expect("directory");
    run("env", &[state.as_str(), wrapper, "sh", "-c", &script]);
    check(&image);
    let listing = |image: &str| {
        let listing = manifest(image, &[]);
        let kept = |line: &&str| !line.starts_with("./lost+found") && !line.starts_with(". ");
        listing.lines().filter(kept).map(|line| format!("{line}\n")).collect::<String>()
    };
    let found = listing(&image);
    assert_eq!(found, listing(&wanted));
    assert!(found.contains("type=char") && found.contains("uid=12 gid=34"), "{found}");
    assert!(found.contains("xattr.security.capability"), "{found}");
}
