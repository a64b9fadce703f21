//! Images made by mke2fs and mounts of them.

use crate::unmount::unmount;
use seekless_device::FileDevice;
use seekless_ext::ExtImage;
use seekless_fs::Inspect;
use seekless_fs::format::OpenOptions;
use seekless_units::GroupNo;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// An image file in a directory of its own; both go away with it.
pub(crate) struct Image {
    dir: PathBuf,
    path: PathBuf,
}

/// Runs a command that must succeed; returns its output.
pub(crate) fn run(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().expect(program);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {args:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

impl Image {
    /// An image of `size` bytes, made by mke2fs.
    pub(crate) fn make(name: &str, size: u64, options: &[&str]) -> Self {
        let image = Self::empty(name);
        let file = std::fs::File::create(&image.path).expect("image");
        file.set_len(size).expect("image size");
        let mut args = vec!["-q", "-F"];
        args.extend_from_slice(options);
        let path = image.path.to_str().expect("path").to_string();
        args.push(&path);
        run("mke2fs", &args);
        image
    }

    /// Room for an image that is not there yet.
    pub(crate) fn empty(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("seekless-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("directory");
        let path = dir.join("image");
        Self { dir, path }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn open(&self) -> ExtImage {
        self.try_open().expect("open file system")
    }

    pub(crate) fn try_open(&self) -> Result<ExtImage, seekless_fs::FsError> {
        let device = FileDevice::open(&self.path).expect("open image");
        ExtImage::open(Arc::new(device), OpenOptions::default())
    }
}

impl Image {
    /// Looks at all of it.
    pub(crate) fn check(&self) -> seekless_fs::check::Report {
        let device = FileDevice::open(&self.path).expect("open image");
        seekless_ext::check(Arc::new(device)).expect("check")
    }

    /// Opens the image without what its journal holds.
    pub(crate) fn open_as_is(&self) -> Result<ExtImage, seekless_fs::FsError> {
        let device = FileDevice::open(&self.path).expect("open image");
        let options = OpenOptions { skip_journal: true, ..OpenOptions::default() };
        ExtImage::open(Arc::new(device), options)
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// A mount, undone when dropped.
pub(crate) struct Mounted {
    at: PathBuf,
    image: PathBuf,
}

impl Mounted {
    pub(crate) fn read_write(image: &Image) -> Self {
        Self::mount(image, "loop,noatime")
    }

    pub(crate) fn read_only(image: &Image) -> Self {
        Self::mount(image, "loop,ro,noatime")
    }

    pub(crate) fn mount(image: &Image, options: &str) -> Self {
        let at = image.dir.join("mount");
        std::fs::create_dir_all(&at).expect("mount point");
        let (from, to) = (image.path.to_str().expect("path"), at.to_str().expect("path"));
        run("mount", &["-t", "ext4", "-o", options, from, to]);
        Self { at, image: image.path.clone() }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.at
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = Command::new("umount").arg("-l").arg(&self.at).status();
        } else {
            unmount(&self.at, &self.image);
        }
    }
}

/// Free blocks of every group as dumpe2fs lists them against ours.
pub(crate) fn compare_free_blocks(what: &str, image: &Image, reader: &ExtImage) {
    let text = run("dumpe2fs", &[image.path.to_str().expect("path")]);
    let cluster = u64::from(reader.geometry().cluster_blocks);
    let mut theirs = Vec::new();
    for line in text.lines() {
        let Some(list) = line.strip_prefix("  Free blocks: ") else { continue };
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for part in list.split(", ").filter(|part| !part.is_empty()) {
            let (from, to) = part.split_once('-').unwrap_or((part, part));
            // Of a free cluster dumpe2fs names the first block only.
            let last: u64 = to.parse().expect("block");
            let end = reader.geometry().blocks.min(last + cluster);
            runs.push((from.parse().expect("block"), end - 1));
        }
        theirs.push(runs);
    }
    assert_eq!(theirs.len(), reader.geometry().groups as usize, "{what}: groups");
    let mut total = 0;
    for (number, theirs) in (0u32..).zip(theirs) {
        let group = reader.group(GroupNo::new(number)).expect("group");
        let ours: Vec<_> =
            group.free.iter().map(|run| (run.start.get(), run.end().get() - 1)).collect();
        assert_eq!(ours, theirs, "{what}: free blocks of group {number}");
        total += group.free_blocks;
    }
    assert_eq!(total, reader.geometry().free_blocks, "{what}: free blocks");
}

/// Commits what a mount holds to its journal, without writing it home as
/// `syncfs` would.
pub(crate) fn commit(mount: &Path) {
    std::fs::File::open(mount).and_then(|dir| dir.sync_all()).expect("fsync");
}

/// Copies an image that is mounted, again until nothing was written meanwhile.
pub(crate) fn copy_live(from: &Path, to: &Path) {
    for _ in 0..20 {
        copy_sparse(from, to);
        let same = std::process::Command::new("cmp").arg("-s").args([from, to]).status();
        if same.expect("cmp").success() {
            return;
        }
    }
    panic!("{}: written to without end", from.display());
}

/// Copies an image, holes as holes.
pub(crate) fn copy_sparse(from: &Path, to: &Path) {
    let (from, to) = (from.to_str().expect("path"), to.to_str().expect("path"));
    run("cp", &["--sparse=always", from, to]);
}
