//! Operations on a mounted file system: packages are installed as dpkg does it, reinstalled as
//! apt-get does it, and a tree is copied file by file.
//!
//! Contents do not affect placement: files have their full length, and are written with zeros.

use super::system::{InstalledSystem, Package, PackageEntry};
use seekless_fs::FsError;
use seekless_model::random::Random;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

/// Most bytes of one write, as copying programs have it.
const PIECE: u64 = 128 << 10;

/// Packages that are reinstalled by one command, as fsopt's `age.sh` does it.
pub const BATCH: usize = 5;

/// The suffix dpkg gives files until all of a package are unpacked.
const NEW: &str = ".dpkg-new";

/// dpkg's status file of all packages: rewritten for each.
const STATUS: &str = "/var/lib/dpkg/status";
const STATUS_LEN: u64 = 300 << 10;
const LOG: &str = "/var/log/dpkg.log";
const LOG_LINES: u64 = 1 << 10;
const ARCHIVES: &str = "/var/cache/apt/archives";

/// Which packages each command reinstalls, by their place in the system: so many that each is
/// reinstalled `mean` times on average. Files made on the machine are not reinstalled.
#[must_use]
pub fn reinstallations(system: &InstalledSystem, mean: f64, seed: u64) -> Vec<Vec<usize>> {
    let packages = &system.packages;
    let mut left: Vec<usize> = (0..packages.len()).filter(|at| !packages[*at].is_local()).collect();
    let commands = (left.len() as f64 * mean / BATCH as f64).round() as usize;
    let mut random = Random::new(seed);
    let mut batch = |_| {
        let count = BATCH.min(left.len());
        for at in 0..count {
            let other = at + random.below((left.len() - at) as u64) as usize;
            left.swap(at, other);
        }
        left[..count].to_vec()
    };
    (0..commands).map(&mut batch).collect()
}

/// Works below the root of a mounted file system. `settle` has everything written,
/// so that it has its place.
pub struct TreeWriter<S> {
    root: PathBuf,
    settle: S,
    zeros: Vec<u8>,
}

fn failed(path: &Path, error: io::Error) -> FsError {
    FsError::io(path.display().to_string(), error)
}

/// Whatever was not there is fine.
fn if_there(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

impl<S: FnMut() -> io::Result<()>> TreeWriter<S> {
    /// Works below `root`.
    pub fn new(root: PathBuf, settle: S) -> Self {
        Self { root, settle, zeros: vec![0; PIECE as usize] }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    fn settle(&mut self) -> Result<(), FsError> {
        (self.settle)().map_err(|error| failed(&self.root, error))
    }

    fn write(&self, file: &mut File, mut len: u64) -> io::Result<()> {
        while len > 0 {
            let piece = len.min(PIECE);
            file.write_all(&self.zeros[..piece as usize])?;
            len -= piece;
        }
        Ok(())
    }

    fn create(&self, path: &Path, len: u64) -> Result<(), FsError> {
        let mut made = File::create(path);
        if matches!(&made, Err(error) if error.kind() == ErrorKind::NotFound) {
            make_parent(path)?;
            made = File::create(path);
        }
        let written = made.and_then(|mut file| self.write(&mut file, len));
        written.map_err(|error| failed(path, error))
    }

    /// Installs all packages, in their order.
    ///
    /// # Errors
    /// [`FsError::Io`], as when the file system is full.
    pub fn install(&mut self, system: &InstalledSystem) -> Result<(), FsError> {
        for package in &system.packages {
            self.unpack(package)?;
        }
        self.settle()
    }

    /// Unpacks a package as dpkg does: files get temporary names, are written back, and then
    /// renamed over the old ones (`tarobject`, `tar_deferred_extract`).
    fn unpack(&mut self, package: &Package) -> Result<(), FsError> {
        let mut unpacked = Vec::new();
        for entry in &package.entries {
            let path = self.at(entry.path());
            let new = match package.is_local() {
                true => path.clone(),
                false => with_suffix(&path, NEW),
            };
            match entry {
                PackageEntry::Directory(_) => make_dir(&path)?,
                PackageEntry::File(_, len) => self.create(&new, *len)?,
                PackageEntry::Link(_, other) => {
                    let other = self.at(other);
                    let unpacked = with_suffix(&other, NEW);
                    let other = if unpacked.exists() { unpacked } else { other };
                    let linked = if_there(fs::remove_file(&new));
                    linked
                        .and_then(|()| fs::hard_link(other, &new))
                        .map_err(|error| failed(&new, error))?;
                }
                PackageEntry::Symlink(_, target) => {
                    make_symlink(target, &with_suffix(&path, NEW), &path)?;
                }
            }
            if new != path && matches!(entry, PackageEntry::File(..) | PackageEntry::Link(..)) {
                unpacked.push((new, path));
            }
        }
        self.settle()?;
        for (new, path) in unpacked {
            fs::rename(new, &path).map_err(|error| failed(&path, error))?;
        }
        Ok(())
    }

    /// Reinstalls some packages by one command: their archives are fetched, each is
    /// unpacked, and dpkg takes note.
    ///
    /// # Errors
    /// [`FsError::Io`], as when the file system is full.
    pub fn reinstall(&mut self, packages: &[&Package], archive: f64) -> Result<(), FsError> {
        let archives = self.at(ARCHIVES);
        for package in packages {
            let partial = archives.join("partial").join(&package.name);
            let name = archives.join(format!("{}.deb", package.name));
            // apt-get does not fetch archives that it has, and an old version is cleaned away.
            if_there(fs::remove_file(&name)).map_err(|error| failed(&name, error))?;
            self.create(&partial, (package.bytes() as f64 * archive) as u64)?;
            fs::rename(&partial, &name).map_err(|error| failed(&name, error))?;
        }
        for package in packages {
            self.unpack(package)?;
            self.note()?;
        }
        Ok(())
    }

    fn note(&mut self) -> Result<(), FsError> {
        let (status, log) = (self.at(STATUS), self.at(LOG));
        let (new, old) = (with_suffix(&status, "-new"), with_suffix(&status, "-old"));
        self.create(&new, STATUS_LEN)?;
        self.settle()?;
        if_there(fs::rename(&status, old)).map_err(|error| failed(&status, error))?;
        fs::rename(&new, &status).map_err(|error| failed(&status, error))?;
        make_parent(&log)?;
        let opened = File::options().create(true).append(true).open(&log);
        let noted = opened.and_then(|mut file| self.write(&mut file, LOG_LINES));
        noted.map_err(|error| failed(&log, error))
    }

    /// Copies the tree below another root, in the order given: paths from that root, directories
    /// before their entries.
    ///
    /// # Errors
    /// [`FsError::Io`], as when the file system is full.
    pub fn copy(&mut self, from: &Path, order: &[PathBuf]) -> Result<(), FsError> {
        let mut names: HashMap<u64, PathBuf> = HashMap::new();
        for path in order {
            let (source, target) = (from.join(path), self.root.join(path));
            let meta = fs::symlink_metadata(&source).map_err(|error| failed(&source, error))?;
            let kind = meta.file_type();
            if kind.is_dir() {
                make_dir(&target)?;
            } else if kind.is_symlink() {
                let to = fs::read_link(&source).map_err(|error| failed(&source, error))?;
                symlink(to, &target).map_err(|error| failed(&target, error))?;
            } else if let Some(first) = names.get(&meta.ino()) {
                fs::hard_link(first, &target).map_err(|error| failed(&target, error))?;
            } else {
                self.create(&target, meta.len())?;
                if meta.nlink() > 1 {
                    names.insert(meta.ino(), target);
                }
            }
        }
        self.settle()
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_os_string();
    name.push(suffix);
    name.into()
}

fn make_dir(path: &Path) -> Result<(), FsError> {
    match path.is_dir() {
        true => Ok(()),
        false => fs::create_dir_all(path).map_err(|error| failed(path, error)),
    }
}

fn make_parent(path: &Path) -> Result<(), FsError> {
    path.parent().map_or(Ok(()), make_dir)
}

/// A symlink, in place of an existing entry.
fn make_symlink(target: &str, new: &Path, path: &Path) -> Result<(), FsError> {
    make_parent(path)?;
    let made = if_there(fs::remove_file(new))
        .and_then(|()| symlink(target, new))
        .and_then(|()| fs::rename(new, path));
    made.map_err(|error| failed(path, error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boots::order;

    fn system() -> InstalledSystem {
        "# seekless system 1\np\ta\nd\t/usr\nd\t/usr/bin\ns\t/bin\tusr/bin\nf\t/usr/bin/x\t200000\n\
         h\t/usr/bin/y\t/usr/bin/x\np\tb\nf\t/etc/b/conf\t10\np\t-\nf\t/var/lib/made\t1\n"
            .parse()
            .unwrap()
    }

    fn listing(root: &Path) -> Vec<(PathBuf, u64, u64)> {
        let mut found = Vec::new();
        for path in order::walk(root).unwrap() {
            let meta = fs::symlink_metadata(root.join(&path)).unwrap();
            let len = if meta.is_dir() { 0 } else { meta.len() };
            found.push((path, len, if meta.is_dir() { 0 } else { meta.nlink() }));
        }
        found.sort();
        found
    }

    #[test]
    fn packages_are_installed_and_reinstalled() {
        let (dir, system) = (tempfile::tempdir().unwrap(), system());
        let mut settled = 0;
        let mut hand = TreeWriter::new(dir.path().into(), || {
            settled += 1;
            Ok(())
        });
        hand.install(&system).unwrap();
        let fresh = listing(dir.path());
        let length = |name: &str| fs::metadata(dir.path().join(name)).unwrap().len();
        assert_eq!(
            [length("bin/x"), length("etc/b/conf"), length("var/lib/made")],
            [200_000, 10, 1]
        );
        assert_eq!(fs::metadata(dir.path().join("usr/bin/y")).unwrap().nlink(), 2);
        let before = fs::metadata(dir.path().join("bin/x")).unwrap().ino();
        let packages: Vec<&Package> = system.packages[..2].iter().collect();
        for _ in 0..2 {
            hand.reinstall(&packages, 0.25).unwrap();
        }
        assert_ne!(fs::metadata(dir.path().join("bin/x")).unwrap().ino(), before);
        assert_eq!(length("var/cache/apt/archives/a.deb"), 50_000);
        assert_eq!(length("var/log/dpkg.log"), 4 << 10);
        let aged = listing(dir.path());
        assert!(fresh.iter().all(|entry| aged.contains(entry)), "nothing else has changed");
        assert!(aged.iter().all(|(path, ..)| !path.to_string_lossy().ends_with("new")));
        drop(hand);
        assert!(settled > 8);
    }

    #[test]
    fn a_copy_is_the_same() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        TreeWriter::new(from.path().into(), || Ok(())).install(&system()).unwrap();
        let order = order::walk(from.path()).unwrap();
        TreeWriter::new(to.path().into(), || Ok(())).copy(from.path(), &order).unwrap();
        assert_eq!(listing(from.path()), listing(to.path()));
    }

    #[test]
    fn each_package_is_reinstalled_so_often() {
        let names: String = (0..50).map(|n| format!("p\tp{n}\n")).collect();
        let system: InstalledSystem =
            format!("# seekless system 1\n{names}p\t-\n").parse().unwrap();
        let commands = reinstallations(&system, 4.0, 1);
        assert_eq!(commands.len(), 40);
        let all: Vec<usize> = commands.iter().flatten().copied().collect();
        assert!(all.iter().all(|at| *at < 50), "not what was made on the machine");
        for batch in &commands {
            let mut sorted = batch.clone();
            sorted.sort_unstable();
            sorted.dedup();
            assert_eq!(sorted.len(), BATCH);
        }
        assert_eq!(commands, reinstallations(&system, 4.0, 1), "one seed, one order");
        assert_ne!(commands, reinstallations(&system, 4.0, 2));
    }
}
