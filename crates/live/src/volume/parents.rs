//! Directories in which files were looked up.

use hashbrown::HashMap;
use seekless_units::Ino;
use smallvec::SmallVec;

/// Most looked-up files whose inodes are not in memory.
const MOST_SEEN: usize = 1 << 16;

/// Directories in which a file was seen.
pub(crate) type SeenIn = SmallVec<[Ino; 2]>;

/// Adds a directory to those in which a file was seen.
pub(crate) fn note_seen(seen: &mut SeenIn, dir: Ino) {
    if !seen.contains(&dir) {
        seen.push(dir);
    }
}

/// Directories of looked-up files whose inodes are not in memory.
#[derive(Debug, Default)]
pub(crate) struct SeenDirectories(HashMap<Ino, SeenIn>);

impl SeenDirectories {
    /// Forgets the directories of a file, since its inode remembers them from now on.
    pub(crate) fn take(&mut self, ino: Ino) -> SeenIn {
        self.0.remove(&ino).unwrap_or_default()
    }

    /// Keeps the directories in which a file was seen, as its inode goes from memory.
    pub(crate) fn keep(&mut self, ino: Ino, dirs: SeenIn) {
        if dirs.is_empty() {
            return;
        }
        if self.0.len() >= MOST_SEEN {
            // The inode of an open file is in memory; other files are looked up again before they
            // are opened.
            self.0.clear();
        }
        self.0.insert(ino, dirs);
    }
}
