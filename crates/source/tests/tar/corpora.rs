//! The archives of the reader tests of libarchive, Go and Python.
//!
//! With `SEEKLESS_TAR_CORPORA` they are fetched from Debian; the repository contains none of them.

use crate::judge::Judges;
use crate::{Outcome, compare};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Fetches and unpacks packages: libarchive's sources by a sources list of its own, since a
/// system's list often lacks sources.
const FETCH: &str = r#"
cd "$1"
mkdir -p apt/lists/partial apt/cache/archives/partial out
. /etc/os-release
echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $VERSION_CODENAME main" > apt/sources.list
own="-o Dir::Etc::sourcelist=$1/apt/sources.list -o Dir::Etc::sourceparts=/nonexistent -o Dir::State::lists=$1/apt/lists -o Dir::Cache=$1/apt/cache"
apt-get $own -qq update
apt-get $own -qq source --download-only libarchive
tar -C out -xf libarchive_*.orig.tar.?z
for package in $(apt-cache depends golang-src libpython3-testsuite | sed -n 's/.*Depends: \(golang-[0-9.]*-src\|libpython[0-9.]*-testsuite\)$/\1/p') libpython3.11-testsuite; do
    apt-get -qq download "$package" || continue
done
for package in *.deb; do dpkg-deb -x "$package" out; done
touch complete
"#;

/// Archives whose contents are too large to extract in a test.
const TOO_LARGE: &[&str] =
    &["gnu-sparse-big.tar", "pax-sparse-big.tar", "writer-big.tar", "writer-big-long.tar"];

/// Differences from both judges: the archive, the attributes, and the reason.
const EXPLAINED: &[(&str, &[&str], &str)] = &[
    (
        "pax-global-records.tar",
        &["time"],
        "a global header stays in force; GNU tar takes the empty path in it for a name",
    ),
    (
        "test_read_pax_xattr_rht_security_selinux.tar.uu",
        &["xattr.security.selinux"],
        "the kernel's value ends in a zero byte, as `tar --selinux` sets it",
    ),
    (
        "testtar.tar",
        &["regtype-gnu-uid: uid", "regtype-gnu-uid: gid"],
        "chown takes -1 for no change",
    ),
];

/// Whether all differences are explained.
fn is_explained(name: &str, what: &str) -> bool {
    let first = what.lines().next().unwrap_or_default();
    EXPLAINED.iter().filter(|(archive, ..)| *archive == name).any(|(_, fragments, _)| {
        first.split("; ").all(|found| fragments.iter().any(|fragment| found.contains(fragment)))
    })
}

/// Decodes a file written by `uuencode`.
fn uudecoded(text: &[u8]) -> Vec<u8> {
    let mut lines = text.split(|&byte| byte == b'\n');
    lines.by_ref().find(|line| line.starts_with(b"begin "));
    let mut bytes = Vec::new();
    for line in lines.take_while(|line| !line.starts_with(b"end")) {
        let six = |at: usize| line.get(at).map_or(0, |&byte| u32::from(byte.wrapping_sub(32) & 63));
        let len = six(0) as usize;
        let mut part = Vec::new();
        for at in (1..line.len()).step_by(4) {
            let word = six(at) << 18 | six(at + 1) << 12 | six(at + 2) << 6 | six(at + 3);
            part.extend_from_slice(&word.to_be_bytes()[1..]);
        }
        part.truncate(len);
        bytes.extend(part);
    }
    bytes
}

fn files_below(dir: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() && !path.is_symlink() {
            files_below(&path, found);
        } else {
            found.push(path);
        }
    }
}

/// The archives, by a name for messages.
fn archives(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut paths = Vec::new();
    files_below(dir, &mut paths);
    let mut archives = BTreeMap::new();
    for path in paths {
        let text = path.display().to_string();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let is_archive = [".tar", ".pax", ".tar.Z", ".pax.Z", ".tar.gz", ".tar.bz2", ".tar.zst"]
            .iter()
            .any(|ending| name.trim_end_matches(".uu").ends_with(ending));
        let is_meant = text.contains("/archive/tar/testdata/")
            || text.contains("/libarchive/test/")
            || (text.contains("/python3") && text.contains("/test"));
        if !is_archive || !is_meant || TOO_LARGE.contains(&&*name) || path.is_symlink() {
            continue;
        }
        let mut bytes = fs::read(&path).unwrap();
        if name.ends_with(".uu") {
            bytes = uudecoded(&bytes);
        }
        archives.insert(name, bytes);
    }
    archives
}

#[test]
fn of_libarchive_go_and_python() {
    if std::env::var_os("SEEKLESS_TAR_CORPORA").is_none() {
        return;
    }
    let temp = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    if !Judges::can_ask(temp.path()) {
        return;
    }
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tar-corpora");
    if !cache.join("complete").exists() {
        fs::create_dir_all(&cache).unwrap();
        let fetched = Command::new("sh").args(["-ec", FETCH, "sh"]).arg(&cache).status();
        assert!(fetched.unwrap().success());
    }
    let archives = archives(&cache.join("out"));
    assert!(archives.len() > 80, "{}", archives.len());
    let archive = temp.path().join("archive");
    let judges = Judges::new(temp.path());
    let (mut outcomes, mut wrong) = (BTreeMap::<Outcome, u32>::new(), Vec::new());
    for (name, bytes) in &archives {
        fs::write(&archive, bytes).unwrap();
        if bytes.starts_with(b"\x1f\x9d") {
            // `compress` is refused here: its contents are compared instead.
            let unpacked =
                Command::new("gzip").arg("-dc").stdin(fs::File::open(&archive).unwrap()).output();
            fs::write(&archive, unpacked.unwrap().stdout).unwrap();
        }
        match compare(&judges, &archive) {
            Ok(outcome) => *outcomes.entry(outcome).or_default() += 1,
            Err(what) if is_explained(name, &what) => {
                *outcomes.entry("explained").or_default() += 1
            }
            Err(what) => wrong.push(format!("{name}: {what}")),
        }
    }
    println!("{outcomes:?}");
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), archives.len(), wrong.join("\n"));
}
