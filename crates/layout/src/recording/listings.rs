//! Opens and listings of directories: when they were, and which of them were listings.

use super::index::Owner;
use super::{Index, RecordedTouch, TouchKind};
use seekless_fs::plan::Run;
use seekless_units::{Extent, Ino};
use std::collections::{HashMap, HashSet};

/// Bytes of names that the C library asks for at once (`opendir` of glibc).
const BUFFER: u64 = 32 << 10;

/// Puts opens and listings, which are heard of late, before the first page or
/// block that the same thread touched of the same file.
pub(super) fn in_place(mut touches: Vec<RecordedTouch>, index: &Index) -> Vec<RecordedTouch> {
    let mut first: HashMap<(u32, Ino), u64> = HashMap::new();
    for touch in &touches {
        let ino = match touch.what {
            TouchKind::Pages { ino, .. } => ino,
            TouchKind::Block(block) => match index.owner(block) {
                Some(Owner::Directory(ino, _)) => *ino,
                _ => continue,
            },
            TouchKind::Requested(extent) => {
                for (dir, _) in directories_in(index, extent) {
                    first.entry((touch.tid, dir)).or_insert(touch.time);
                }
                continue;
            }
            _ => continue,
        };
        first.entry((touch.tid, ino)).or_insert(touch.time);
    }
    for touch in &mut touches {
        if let TouchKind::Opened(ino) | TouchKind::Executed(ino) | TouchKind::Listed(ino) =
            touch.what
            && let Some(time) = first.remove(&(touch.tid, ino))
        {
            // A listing comes after its open: both moved alike keep their order.
            if !matches!(touch.what, TouchKind::Listed(_)) {
                first.insert((touch.tid, ino), time);
            }
            touch.time = touch.time.min(time);
        }
    }
    // Of touches at the same time, announcements come first.
    touches.sort_by_key(|touch| (touch.time, !is_announcement(&touch.what)));
    touches
}

/// The blocks of directories in a request, in order of place, as runs.
pub(super) fn directories_in(index: &Index, extent: Extent) -> Vec<(Ino, Run)> {
    let mut runs: Vec<(Ino, Run)> = Vec::new();
    for at in 0..extent.len {
        let Some(&Owner::Directory(dir, lbn)) = index.owner(extent.start + at) else {
            continue;
        };
        match runs.last_mut() {
            Some((of, run)) if *of == dir && run.lbn.get() + run.len == lbn.get() => run.len += 1,
            _ => runs.push((dir, Run { lbn, len: 1 })),
        }
    }
    runs
}

/// Whether a touch tells of a thread, or is heard of after it happened.
pub(super) fn is_announcement(what: &TouchKind) -> bool {
    matches!(
        what,
        TouchKind::Opened(_)
            | TouchKind::Executed(_)
            | TouchKind::Listed(_)
            | TouchKind::Named(_)
            | TouchKind::Forked(_)
    )
}

/// Leaves out listings that cannot have been any: a directory is only known to have been opened,
/// which programs also do to have it written back, or to name files relative to it. A listing reads
/// all of its blocks, a buffer of names at a time, and touches in between happen between two
/// buffers. Nothing can be told of directories that were in memory.
pub(super) fn without_mere_opens(
    mut touches: Vec<RecordedTouch>,
    index: &Index,
) -> Vec<RecordedTouch> {
    let mut read: HashMap<Ino, HashSet<u64>> = HashMap::new();
    let mut opened: HashMap<(u32, Ino), Followed> = HashMap::new();
    let mut requests: HashMap<u32, u64> = HashMap::new();
    for touch in &touches {
        match touch.what {
            TouchKind::Listed(dir) => {
                opened.entry((touch.tid, dir)).or_default();
            }
            TouchKind::Requested(extent) => {
                let number = requests.entry(touch.tid).or_default();
                *number += 1;
                for (dir, run) in directories_in(index, extent) {
                    let lbns = run.lbn.get()..run.lbn.get() + run.len;
                    read.entry(dir).or_default().extend(lbns);
                    if let Some(followed) = opened.get_mut(&(touch.tid, dir)) {
                        followed.requested(*number, run.len);
                    }
                }
            }
            _ => {}
        }
    }
    let is_listing = |tid: u32, dir: Ino| {
        let Some(read) = read.get(&dir) else { return true };
        let followed = opened.get(&(tid, dir)).copied().unwrap_or_default();
        let buffers = followed.blocks * u64::from(index.block_size()) / BUFFER + 1;
        read.len() as u64 >= index.blocks_of(dir) && followed.breaks <= buffers
    };
    touches.retain(|touch| match touch.what {
        TouchKind::Listed(dir) => is_listing(touch.tid, dir),
        _ => true,
    });
    touches
}

/// A thread's requests for a directory since it opened that. A thread that walks a tree opens very
/// many: of each only the thread's last request for it is kept.
#[derive(Clone, Copy, Default)]
struct Followed {
    /// Blocks.
    blocks: u64,
    /// How often something else came before more of them.
    breaks: u64,
    /// Which of the thread's requests had the last of them.
    last: u64,
}

impl Followed {
    /// Blocks in the thread's request of that number.
    fn requested(&mut self, number: u64, blocks: u64) {
        self.breaks += u64::from(self.blocks > 0 && number > self.last + 1);
        self.blocks += blocks;
        self.last = number;
    }
}

/// Which threads listed which directories.
pub(super) fn listed(touches: &[RecordedTouch]) -> HashSet<(u32, Ino)> {
    let listing = |touch: &RecordedTouch| match touch.what {
        TouchKind::Listed(ino) => Some((touch.tid, ino)),
        _ => None,
    };
    touches.iter().filter_map(listing).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use seekless_units::BlockNo;

    const DIR: Ino = Ino::new(12);

    /// A directory of so many blocks of 1 KiB, from block 100 on.
    fn index(blocks: u64) -> Index {
        Index::of_parts(1024, &[], &[(12, 100, blocks)])
    }

    /// Opened, and then requests of these blocks, one each.
    fn touches(blocks: impl IntoIterator<Item = u64>) -> Vec<RecordedTouch> {
        let requested = |(at, block): (usize, u64)| RecordedTouch {
            time: at as u64 + 1,
            tid: 7,
            what: TouchKind::Requested(Extent::new(BlockNo::new(block), 1)),
        };
        let opened = RecordedTouch { time: 0, tid: 7, what: TouchKind::Listed(DIR) };
        std::iter::once(opened).chain(blocks.into_iter().enumerate().map(requested)).collect()
    }

    fn is_listing(index: &Index, touches: Vec<RecordedTouch>) -> bool {
        let left = without_mere_opens(touches, index);
        left.iter().any(|touch| matches!(touch.what, TouchKind::Listed(_)))
    }

    #[test]
    fn a_listing_reads_a_buffer_of_names_at_a_time() {
        let index = index(96);
        // In the order of an index, and files between the buffers.
        let listing = (100..132).rev().chain([500]).chain(132..164).chain([501]).chain(164..196);
        assert!(is_listing(&index, touches(listing)));
        let of_another = RecordedTouch { tid: 8, ..touches([600]).remove(1) };
        let mut with_another = touches(100..196);
        for at in 0..96 {
            with_another.insert(1 + 2 * at, of_another.clone());
        }
        assert!(is_listing(&index, with_another));
    }

    #[test]
    fn a_directory_that_is_searched_was_only_opened() {
        let index = index(24);
        assert!(is_listing(&index, touches(100..124)));
        // Each block leads to a file.
        let searched = (0..24).flat_map(|at| [100 + at * 7 % 24, 500 + at]);
        assert!(!is_listing(&index, touches(searched)));
        // The last block was not read.
        assert!(!is_listing(&index, touches(100..123)));
    }

    #[test]
    fn of_a_directory_in_memory_nothing_is_known() {
        let index = index(24);
        assert!(is_listing(&index, touches([500, 501])));
    }
}
