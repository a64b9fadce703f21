//! Names that are not plain bytes: encrypted ones and case-insensitive ones.

use super::kernel::{Image, Mounted, run};
use seekless_ext::ExtImage;
use seekless_fs::inspect::resolve;
use seekless_fs::{FileKind, Inspect};
use seekless_units::{ByteLen, Ino};
use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Adds a key to a mount and gives an empty directory a v2 policy with it.
const ENCRYPT: &str = "
import fcntl, os, struct, sys
mount, directory = sys.argv[1:]
key = bytes(range(64))
arg = bytearray(struct.pack('<II32sII32s', 2, 0, b'', len(key), 0, b'') + key)
fd = os.open(mount, os.O_RDONLY)
fcntl.ioctl(fd, 3 << 30 | 80 << 16 | 0x66 << 8 | 23, arg)
policy = struct.pack('<BBBBB3s16s', 2, 1, 4, 0, 0, b'', bytes(arg[8:24]))
fd = os.open(directory, os.O_RDONLY)
fcntl.ioctl(fd, 2 << 30 | 12 << 16 | 0x66 << 8 | 19, policy)
";

/// The raw name in what a mount without the key shows: URL-safe base64 of two
/// words of hash and the name itself.
fn raw_name(shown: &[u8]) -> Vec<u8> {
    let digit = |c: u8| match c {
        b'A'..=b'Z' => c - b'A',
        b'a'..=b'z' => c - b'a' + 26,
        b'0'..=b'9' => c - b'0' + 52,
        b'-' => 62,
        _ => 63,
    };
    let bits: Vec<u8> =
        shown.iter().flat_map(|&c| (0..6).rev().map(move |n| digit(c) >> n & 1)).collect();
    let bytes = bits.chunks_exact(8).map(|byte| byte.iter().fold(0, |n, bit| n << 1 | bit));
    bytes.skip(8).collect()
}

fn names_of(image: &ExtImage, dir: Ino) -> BTreeMap<u64, Vec<u8>> {
    let mut names = BTreeMap::new();
    let listed = image.read_dir(dir, 0, &mut |entry| {
        if entry.name != b"." && entry.name != b".." {
            names.insert(u64::from(entry.ino.get()), entry.name.to_vec());
        }
        ControlFlow::Continue(())
    });
    listed.expect("read_dir");
    names
}

#[test]
fn encrypted_names_are_shown_raw() {
    if !super::ready() {
        return;
    }
    let image = Image::make("encrypt", 64 << 20, &["-t", "ext4", "-b", "4096", "-O", "encrypt"]);
    {
        let mounted = Mounted::read_write(&image);
        let secret = mounted.path().join("secret");
        fs::create_dir(&secret).expect("mkdir");
        let paths = [mounted.path(), &secret].map(|path| path.to_str().expect("path"));
        run("python3", &["-c", ENCRYPT, paths[0], paths[1]]);
        for n in 0..400 {
            fs::write(secret.join(format!("name-{n}")), vec![1; n]).expect("write");
        }
        fs::write(secret.join("x".repeat(140)), b"long name").expect("write");
        fs::create_dir(secret.join("below")).expect("mkdir");
        fs::write(secret.join("below/file"), b"contents").expect("write");
        std::os::unix::fs::symlink("target", secret.join("link")).expect("symlink");
    }
    let theirs = {
        let mounted = Mounted::read_only(&image);
        listed_without_key(&mounted.path().join("secret"))
    };
    assert_eq!(theirs.len(), 403);
    let reader = image.open();
    let dir = resolve(&reader, b"/secret").expect("secret");
    let ours = names_of(&reader, dir);
    assert_eq!(ours.len(), theirs.len());
    for (ino, (name, size)) in theirs {
        assert_eq!(ours.get(&ino), Some(&name), "inode {ino}");
        let number = Ino::new(u32::try_from(ino).expect("inode"));
        assert_eq!(reader.lookup(dir, &name).expect("lookup"), Some(number));
        let attr = reader.attr(number).expect("attr");
        match attr.kind {
            FileKind::Regular => {
                assert_eq!(attr.size, size);
                let mut buf = vec![0; 1000];
                let len = reader.read(number, ByteLen::ZERO, &mut buf).expect("read");
                assert_eq!(len as u64, size);
                assert!(len < 20 || buf[..len] != vec![1; len], "that is not ciphertext");
            }
            FileKind::Symlink => {
                // Two bytes of length in front of what is at least a block of cipher.
                assert!(reader.read_link(number).expect("read_link").len() >= 18);
            }
            _ => assert_eq!(names_of(&reader, number).len(), 1),
        }
    }
}

fn listed_without_key(dir: &Path) -> BTreeMap<u64, (Vec<u8>, u64)> {
    fs::read_dir(dir)
        .expect("readdir")
        .map(|entry| {
            let entry = entry.expect("readdir");
            let meta = entry.metadata().expect("lstat");
            (meta.ino(), (raw_name(&entry.file_name().into_vec()), meta.size()))
        })
        .collect()
}

/// This kernel may not know case-insensitive directories; mke2fs does.
#[test]
fn case_does_not_matter_where_the_directory_says_so() {
    let image = Image::empty("casefold");
    let tree = image.path().with_file_name("tree");
    for dir in ["folds", "exact"] {
        fs::create_dir_all(tree.join(dir)).expect("mkdir");
        for n in 0..300 {
            fs::write(tree.join(dir).join(format!("Größe-{n}")), b"x").expect("write");
        }
    }
    let (path, from) = (image.path().to_str().expect("path"), tree.to_str().expect("path"));
    let options = ["-q", "-t", "ext4", "-b", "1024", "-O", "casefold", "-d", from, path, "16M"];
    run("mke2fs", &options);
    let set = |command: &str| run("debugfs", &["-w", "-R", command, path]);
    set("set_inode_field /folds flags 0x40080000");
    for hashed in [false, true] {
        if hashed {
            // Makes the index; a code of 1 says that something was changed.
            let _ = std::process::Command::new("e2fsck").args(["-fyD", path]).output();
        }
        let reader = image.open();
        let dirs = [&b"/folds"[..], b"/exact"].map(|dir| resolve(&reader, dir).expect("dir"));
        let exact = reader.lookup(dirs[0], "Größe-7".as_bytes()).expect("lookup");
        assert!(exact.is_some());
        let other = "GRÖSSE-7".to_lowercase().to_uppercase();
        for name in [other.as_str(), "gro\u{308}ße-7"] {
            assert_eq!(reader.lookup(dirs[0], name.as_bytes()).expect("lookup"), exact, "{name}");
            assert_eq!(reader.lookup(dirs[1], name.as_bytes()).expect("lookup"), None, "{name}");
        }
        let read = reader.lookup_blocks(dirs[0], other.as_bytes()).expect("lookup_blocks");
        assert_eq!(read.len() <= 3, hashed, "{read:?}");
    }
}
