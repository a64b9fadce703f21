//! The orders in which files are copied.

use seekless_fs::FsError;
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

/// All paths below a directory, in the order of fsopt's copy: of each directory first its
/// directories, then its files, both as readdir gives them; then the entries of these directories.
/// Paths are from the root.
///
/// # Errors
/// [`FsError::Io`].
pub fn walk(root: &Path) -> Result<Vec<PathBuf>, FsError> {
    let mut found = Vec::new();
    descend(root, Path::new(""), &mut found)?;
    Ok(found)
}

fn descend(root: &Path, below: &Path, found: &mut Vec<PathBuf>) -> Result<(), FsError> {
    let dir = root.join(below);
    let failed = |error| FsError::io(dir.display().to_string(), error);
    let (mut dirs, mut files) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(&dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let path = below.join(entry.file_name());
        match entry.file_type().map_err(failed)?.is_dir() {
            // The kernel has made that one, and makes its own on the copy.
            true if path == Path::new("lost+found") => {}
            true => dirs.push(path),
            false => files.push(path),
        }
    }
    found.extend(dirs.iter().cloned());
    found.append(&mut files);
    dirs.iter().try_for_each(|dir| descend(root, dir, found))
}

/// The same paths, those in a list first, by their first place in it, each after the directories it
/// lies in. Listed paths that do not exist are passed over.
#[must_use]
pub fn listed_first(all: &[PathBuf], list: impl IntoIterator<Item = PathBuf>) -> Vec<PathBuf> {
    let there: HashSet<&Path> = all.iter().map(PathBuf::as_path).collect();
    let mut done: HashSet<PathBuf> = HashSet::new();
    let mut order = Vec::with_capacity(all.len());
    let listed = list.into_iter().filter(|path| there.contains(path.as_path()));
    for path in listed.chain(all.iter().cloned()) {
        let parents = path.ancestors().skip(1).filter(|parent| *parent != Path::new(""));
        let mut way: Vec<PathBuf> = parents.map(Path::to_path_buf).collect();
        way.reverse();
        way.push(path);
        for step in way {
            if done.insert(step.clone()) {
                order.push(step);
            }
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_come_before_what_is_in_them() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        fs::create_dir(dir.path().join("lost+found")).unwrap();
        for name in ["a/b/deep", "a/file", "top"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        let walked = walk(dir.path()).unwrap();
        assert_eq!(walked, ["a", "top", "a/b", "a/file", "a/b/deep"].map(PathBuf::from));
        let list = ["a/b/deep", "gone", "top", "a/b/deep"].map(PathBuf::from);
        let order = listed_first(&walked, list);
        assert_eq!(order, ["a", "a/b", "a/b/deep", "top", "a/file"].map(PathBuf::from));
    }
}
