//! Thousands of names that wait for the disk: how many orders each asks for does not grow with
//! how many there are. Time stands still, so that the disk has none of them.

use seekless_fs::operate::{NewFile, Operate, Ownership, RenameMode};
use seekless_units::Ino;

const COUNT: usize = 2000;
const OWNER: Ownership = Ownership { uid: 0, gid: 0, perm: 0o644 };

fn name(n: usize) -> Vec<u8> {
    format!("name-{n}").into_bytes()
}

/// A file system in use, and what it has counted.
struct Many<'a, L> {
    live: &'a mut L,
    orders: fn(&L) -> u64,
}

impl<L: Operate> Many<'_, L> {
    /// Does something many times. Of the last quarter no more is asked than of the first,
    /// and of none more than a few orders for each time.
    fn times(&mut self, what: &str, most: u64, mut each: impl FnMut(&mut L, usize)) {
        let mut asked = Vec::new();
        for quarter in 0..4 {
            let before = (self.orders)(self.live);
            for n in quarter * COUNT / 4..(quarter + 1) * COUNT / 4 {
                each(self.live, n);
            }
            asked.push((self.orders)(self.live) - before);
        }
        let each = COUNT as u64 / 4;
        let grows = asked[3] > 2 * asked[0] + each;
        let too_many = asked.iter().any(|&orders| orders > most * each);
        assert!(!grows && !too_many, "{what}: orders of each {each}: {asked:?}");
    }

    fn dir(&mut self, parent: Ino, name: &[u8]) -> Ino {
        self.live.make(parent, name, NewFile::Directory, OWNER).unwrap().ino
    }
}

/// Files are made, moved within a directory and to another, linked and removed.
pub(crate) fn names_wait_for_no_more<L: Operate>(live: &mut L, orders: fn(&L) -> u64) {
    const REPLACE: RenameMode = RenameMode::Replace;
    let root = live.root();
    let mut many = Many { live, orders };
    let (one, other) = (many.dir(root, b"one"), many.dir(root, b"other"));
    many.times("made", 16, |live, n| {
        live.make(one, &name(n), NewFile::Regular, OWNER).unwrap();
    });
    many.times("moved", 24, |live, n| {
        live.rename((one, &name(n)), (other, &name(n)), REPLACE).unwrap();
    });
    many.times("renamed", 24, |live, n| {
        live.rename((other, &name(n)), (other, &name(n + COUNT)), REPLACE).unwrap();
    });
    many.times("removed", 16, |live, n| live.unlink(other, &name(n + COUNT)).unwrap());
    let file = many.live.make(root, b"file", NewFile::Regular, OWNER).unwrap().ino;
    many.times("linked", 16, |live, n| {
        live.link(file, one, &name(n)).unwrap();
    });
    many.times("links moved", 96, |live, n| {
        live.rename((one, &name(n)), (other, &name(n)), REPLACE).unwrap();
    });
    many.times("links removed", 96, |live, n| live.unlink(other, &name(n)).unwrap());
    many.times("moved to and fro", 24, |live, n| {
        let (from, to) = if n % 2 == 0 { (root, one) } else { (one, root) };
        live.rename((from, b"file"), (to, b"file"), REPLACE).unwrap();
    });
}
