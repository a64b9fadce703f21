//! Archives with rare combinations of headers, each with its expected contents.

use crate::compare;
use crate::craft::{Format, Header, extended, padded, record};
use crate::judge::{Judges, ours};
use std::fs;
use std::path::Path;

fn entry(header: &Header, contents: &[u8]) -> Vec<u8> {
    let header = Header { size: contents.len() as u64, ..header.clone() };
    [&header.block()[..], &padded(contents)].concat()
}

fn file(name: &str) -> Vec<u8> {
    entry(&Header::new(name.as_bytes(), b'0'), b"contents")
}

fn long(kind: u8, text: &[u8]) -> Vec<u8> {
    extended(kind, b"././@LongLink", Format::Gnu, text)
}

fn pax(kind: u8, records: &[(&str, &str)]) -> Vec<u8> {
    let record = |(key, value): &(&str, &str)| record(key.as_bytes(), value.as_bytes());
    let body: Vec<u8> = records.iter().flat_map(record).collect();
    extended(kind, b"PaxHeaders/x", Format::Ustar, &body)
}

/// A hard link followed by the contents of its file, as POSIX.1-2001 allows it.
fn link_with_contents() -> Vec<u8> {
    let header = Header { link: b"f".to_vec(), ..Header::new(b"l", b'1') };
    [pax(b'x', &[("comment", "pax")]), entry(&header, b"contents")].concat()
}

/// Archives, each with the beginning of an expected line of the listing.
fn cases() -> Vec<(&'static str, Vec<Vec<u8>>, &'static str)> {
    let sized = |name: &[u8], kind, format| {
        let header = Header { format, size: 700, ..Header::new(name, kind) };
        header.block().to_vec()
    };
    let link = Header { link: b"t".to_vec(), ..Header::new(b"l", b'2') };
    let device = Header { device: (1, 3), ..Header::new(b"c", b'3') };
    let mut old_device = device.block();
    old_device[257..265].fill(0);
    crate::craft::seal(&mut old_device);
    vec![
        (
            "PAX says more than GNU's long name",
            vec![pax(b'x', &[("path", "pax")]), long(b'L', b"gnu"), file("short")],
            "./pax type=file",
        ),
        (
            "and than GNU's long link",
            vec![pax(b'x', &[("linkpath", "p")]), long(b'K', b"g"), entry(&link, b"")],
            "./l type=link mode=0777 uid=0 gid=0 nlink=1 link=p",
        ),
        (
            "of two PAX headers the last counts",
            vec![pax(b'x', &[("uid", "7")]), pax(b'x', &[("gid", "8")]), file("f")],
            "./f type=file mode=0644 uid=0 gid=8",
        ),
        (
            "a global header leaves the one before it in force",
            vec![pax(b'x', &[("uid", "7")]), pax(b'g', &[("comment", "x")]), file("f")],
            "./f type=file mode=0644 uid=7",
        ),
        (
            "files with a slash behind their name are directories, without contents",
            vec![sized(b"d/", b'0', Format::Ustar), sized(b"e/", b'7', Format::V7), file("d/f")],
            "./d/f type=file",
        ),
        (
            "sizes of what has no contents",
            vec![sized(b"d", b'5', Format::Gnu), sized(b"p", b'6', Format::Ustar), file("d/f")],
            "./d/f type=file",
        ),
        (
            "v7 has no device numbers",
            vec![old_device.to_vec()],
            "./c type=char mode=0644 uid=0 gid=0 nlink=1 device=linux,0,0",
        ),
        (
            "hard links with contents",
            vec![file("f"), link_with_contents(), file("g")],
            "./g type=file",
        ),
        (
            "also at the end",
            vec![file("f"), link_with_contents()],
            "./l type=file mode=0644 uid=0 gid=0 nlink=2",
        ),
        (
            "times with something behind",
            vec![pax(b'x', &[("mtime", "1e-05")]), file("f")],
            "./f type=file mode=0644 uid=0 gid=0 nlink=1 size=8 time=1.000000000",
        ),
        (
            "symlinks have no access control lists",
            vec![
                pax(
                    b'x',
                    &[(
                        "SCHILY.acl.access",
                        "user::rw-,user:5:r--,group::r--,mask::r--,other::r--",
                    )],
                ),
                entry(&link, b""),
            ],
            "./l type=link mode=0777 uid=0 gid=0 nlink=1 link=t time=1600000000.000000000\n",
        ),
        (
            "directories keep the attributes of an earlier entry",
            vec![
                pax(b'x', &[("SCHILY.xattr.user.a", "1")]),
                entry(&Header::new(b"d", b'5'), b""),
                pax(b'x', &[("SCHILY.xattr.user.b", "2")]),
                entry(&Header { mode: 0o700, ..Header::new(b"d", b'5') }, b""),
            ],
            "./d type=dir mode=0700 uid=0 gid=0 time=1600000000.000000000 xattr.user.a=MQ== xattr.user.b=Mg==",
        ),
    ]
}

fn listing(archive: &Path) -> String {
    let lines = ours(archive).unwrap();
    let order = ["type", "mode", "uid", "gid", "nlink", "size", "link", "device", "time"];
    let line = |(path, fields): (&String, &std::collections::BTreeMap<String, String>)| {
        let known = order.iter().filter_map(|key| Some((*key, fields.get(*key)?)));
        let xattrs = fields.iter().filter(|(key, _)| key.starts_with("xattr."));
        let words = known.chain(xattrs.map(|(key, value)| (key.as_str(), value)));
        words.fold(path.clone(), |line, (key, value)| format!("{line} {key}={value}")) + "\n"
    };
    lines.iter().map(line).collect()
}

#[test]
fn headers_that_meet() {
    let temp = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let archive = temp.path().join("archive");
    for (what, mut blocks, wanted) in cases() {
        blocks.push(vec![0; 1024]);
        fs::write(&archive, blocks.concat()).unwrap();
        let found = listing(&archive);
        assert!(
            found.split_inclusive('\n').any(|line| line.starts_with(wanted)),
            "{what}:\n{found}"
        );
        if Judges::can_ask(temp.path()) {
            let judged = compare(&Judges::new(temp.path()), &archive);
            judged.unwrap_or_else(|error| panic!("{what}: {error}"));
        }
    }
}

/// GNU tar encodes an equals sign in the name of an attribute, since it would end the key.
#[test]
fn attributes_named_with_an_equals_sign() {
    let temp = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (file, archive) = (temp.path().join("f"), temp.path().join("archive"));
    fs::write(&file, "").unwrap();
    let flags = rustix::fs::XattrFlags::empty();
    for name in ["user.a=b", "user.50%", "user.%3D"] {
        rustix::fs::lsetxattr(&file, name, b"1", flags).unwrap();
    }
    let made = std::process::Command::new("tar")
        .args(["--xattrs", "--format=posix", "-cf"])
        .args([archive.as_os_str(), "-C".as_ref(), temp.path().as_os_str(), "f".as_ref()])
        .status();
    assert!(made.unwrap().success());
    let names: Vec<String> = ours(&archive).unwrap()["./f"]
        .keys()
        .filter_map(|key| key.strip_prefix("xattr.").map(str::to_string))
        .collect();
    assert_eq!(names, ["user.%3D", "user.50%", "user.a\\075b"]);
}

#[test]
fn names_that_no_directory_takes_are_refused_with_the_entry() {
    let temp = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let archive = temp.path().join("archive");
    let name = [&b"d/"[..], &[b'n'; 256]].concat();
    fs::write(&archive, [file("f"), long(b'L', &name), file("short"), vec![0; 1024]].concat())
        .unwrap();
    let error = ours(&archive).unwrap_err();
    assert!(error.contains("byte 2048: d/nnn") && error.contains("longer than 255"), "{error}");
    let large = extended(b'x', b"PaxHeaders/x", Format::Ustar, &vec![b'a'; 5 << 20]);
    fs::write(&archive, [large, file("f")].concat()).unwrap();
    let error = ours(&archive).unwrap_err();
    assert!(error.starts_with("unsupported: ") && error.contains("5242880 bytes"), "{error}");
    let star = Header { kind: b'S', ..Header::new(b"sparse", b'S') }.block().to_vec();
    fs::write(&archive, [star, vec![0; 1024]].concat()).unwrap();
    let error = ours(&archive).unwrap_err();
    assert!(error.contains("byte 0: sparse: sparse file in the format of star"), "{error}");
}
