//! The known parents of files: directories in which they were looked up.

use hashbrown::HashMap;
use seekless_units::Ino;
use smallvec::SmallVec;

/// Most looked-up files whose inodes are not in memory.
const MOST: usize = 1 << 16;

/// Directories in which a file has names, as far as they are known.
pub(crate) type Parents = SmallVec<[Ino; 2]>;

/// Adds a directory to the parents of a file.
pub(crate) fn note_parent(parents: &mut Parents, dir: Ino) {
    if !parents.contains(&dir) {
        parents.push(dir);
    }
}

/// Parents of looked-up files whose inodes are not in memory.
#[derive(Debug, Default)]
pub(crate) struct ParentCache(HashMap<Ino, Parents>);

impl ParentCache {
    /// Forgets the parents of a file, since its inode remembers them from now on.
    pub(crate) fn take(&mut self, ino: Ino) -> Parents {
        self.0.remove(&ino).unwrap_or_default()
    }

    /// Keeps the parents of a file, as its inode goes from memory.
    pub(crate) fn keep(&mut self, ino: Ino, dirs: Parents) {
        if dirs.is_empty() {
            return;
        }
        if self.0.len() >= MOST {
            // The inode of an open file is in memory; other files are looked up again before they
            // are opened.
            self.0.clear();
        }
        self.0.insert(ino, dirs);
    }
}
