//! Trees of source in the order in which an archive of them has it.

use super::{Entry, push, shares, with_spread};
use seekless_model::random::Random;
use std::cmp::Ordering;

/// No directory lies deeper below the top than this.
const DEEPEST: u32 = 6;
/// Of the logarithm of lengths: many files of a few kilobytes, and some of hundreds, which
/// are most of the bytes.
const SPREAD: f64 = 1.4;

/// One of a directory's.
struct Child {
    name: String,
    /// Its own children, if it is a directory.
    inside: Option<usize>,
    len: u64,
}

/// Directories in any of those before, down to a depth, and files in any of them; each directory is
/// followed by its entries, by name. Three of five files are called `.c`, one `.h`, and one has no
/// suffix.
pub(super) fn walked(directories: u32, files: u32, bytes: u64, seed: u64) -> Vec<Entry> {
    let mut chance = Random::new(seed);
    let mut depths = vec![0];
    let mut inside: Vec<Vec<Child>> = vec![Vec::new()];
    while depths.len() < directories as usize {
        let at = chance.below(depths.len() as u64) as usize;
        if depths[at] == DEEPEST {
            continue;
        }
        let name = format!("{}{:04}", word(&mut chance), depths.len());
        inside[at].push(Child { name, inside: Some(depths.len()), len: 0 });
        depths.push(depths[at] + 1);
        inside.push(Vec::new());
    }
    let weights: Vec<f64> = (0..files).map(|_| with_spread(&mut chance, SPREAD)).collect();
    for (number, len) in shares(&weights, bytes).into_iter().enumerate() {
        let dir = chance.below(inside.len() as u64) as usize;
        let kind = ["c", "c", "c", "h", ""][number % 5];
        let dot = if kind.is_empty() { "" } else { "." };
        let name = format!("{}{number:05}{dot}{kind}", word(&mut chance));
        inside[dir].push(Child { name, inside: None, len });
    }
    for all in &mut inside {
        all.sort_by(|a, b| -> Ordering { a.name.cmp(&b.name) });
    }
    let mut entries = Vec::new();
    let top = push(&mut entries, None, "source".into(), None);
    // The remaining entries of each directory on the way, the last one first.
    let mut way = vec![(top, std::mem::take(&mut inside[0]).into_iter())];
    while let Some((parent, left)) = way.last_mut() {
        let parent = *parent;
        match left.next() {
            None => drop(way.pop()),
            Some(Child { name, inside: None, len }) => {
                push(&mut entries, Some(parent), name, Some(len));
            }
            Some(Child { name, inside: Some(at), .. }) => {
                let dir = push(&mut entries, Some(parent), name, None);
                way.push((dir, std::mem::take(&mut inside[at]).into_iter()));
            }
        }
    }
    entries
}

/// Letters in front of a number, so that the order of names is not that of lengths or depths.
fn word(chance: &mut Random) -> String {
    (0..3).map(|_| char::from(b'a' + chance.below(26) as u8)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use seekless_units::ByteLen;
    use std::iter::successors;

    #[test]
    fn a_walk_has_the_numbers_asked_for_in_order() {
        let entries = walked(170, 2700, 34_000_000, 1);
        let lens: Vec<u64> = entries.iter().filter_map(|e| e.len).map(ByteLen::get).collect();
        assert_eq!((entries.len(), lens.len()), (2870, 2700));
        assert_eq!(lens.iter().sum::<u64>(), 34_000_000);
        // A directory's entries come before its siblings.
        for pair in entries.windows(2) {
            let [before, entry] = pair else { panic!("two") };
            let parent = entry.parent.unwrap();
            let of_before = entries.iter().position(|one| one == before);
            let mut way = successors(of_before, |&at| entries[at].parent);
            assert!(way.any(|at| at == parent), "{entry:?}");
        }
        let names = |dir| entries.iter().filter(move |e| e.parent == Some(dir)).map(|e| &e.name);
        for dir in (0..entries.len()).filter(|&at| entries[at].len.is_none()) {
            assert!(names(dir).is_sorted());
        }
        let deepest = (0..entries.len())
            .map(|at| successors(entries[at].parent, |&p| entries[p].parent).count())
            .max();
        assert!((4..=7).contains(&deepest.unwrap()), "{deepest:?}");
        assert_ne!(entries, walked(170, 2700, 34_000_000, 2));
        assert_eq!(walked(1, 0, 0, 1).len(), 1);
    }

    #[test]
    fn most_files_are_small_and_most_bytes_are_in_others() {
        let entries = walked(170, 2700, 34_000_000, 1);
        let mut lens: Vec<u64> = entries.iter().filter_map(|e| e.len).map(ByteLen::get).collect();
        lens.sort_unstable();
        let median = lens[lens.len() / 2];
        assert!((3500..7000).contains(&median), "{median}");
        let large: u64 = lens[lens.len() * 9 / 10..].iter().sum();
        assert!(large > 34_000_000 / 2, "{large}");
    }
}
