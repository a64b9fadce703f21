//! Habits that are learned from traces, before anything is recorded here.

use super::{files, now};
use crate::relayout::Target;
use seekless_fs::inspect::resolve;
use seekless_fs::{FileKind, Inspect};
use seekless_images::{Error, ErrorKind};
use seekless_layout::habits::{Episode, FileId, Filed, Habits, PAGE};
use seekless_layout::recording::PageSet;
use seekless_layout::trace::{EventRef, Events, Op};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

/// The habit of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Learned {
    /// The place of its files among the habits.
    pub filed: Filed,
    /// The number of its files that are on the volume, and that a habit may have.
    pub files: usize,
}

/// A file of a trace.
struct Used {
    id: FileId,
    /// The number of its pages.
    size: u64,
    /// `None`: all of them.
    pages: Option<PageSet>,
}

impl Used {
    /// Its pages as habits have them, an empty list for all of them; `None` if none is used.
    fn ranges(self) -> Option<Vec<(u32, u32)>> {
        let Some(pages) = self.pages else { return Some(Vec::new()) };
        let runs = pages.within(0, self.size);
        let used: u64 = runs.iter().map(|(from, to)| to - from).sum();
        if used * 100 >= self.size * files::NEARLY_ALL {
            return Some(Vec::new());
        }
        let page = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let runs: Vec<_> = runs.into_iter().map(|(from, to)| (page(from), page(to))).collect();
        (!runs.is_empty()).then_some(runs)
    }
}

/// Learns a habit of the files of a trace, in the order of their first touch, as if a program had
/// opened them `runs` times now. Files that are not on the volume, empty, or too large for a habit are
/// left out, and so are large files of which it reads nothing. A trace that is learned again counts
/// again.
///
/// # Errors
/// [`ErrorKind::Unsupported`] for a trace of more files than a habit may have,
/// [`ErrorKind::Corrupt`] for a damaged volume, [`ErrorKind::System`].
pub fn learn(
    target: &Target,
    habits: &mut Habits,
    program: &str,
    events: &Events,
    runs: u32,
) -> Result<Learned, Error> {
    let image = target.look().map_err(|error| target.about(error))?;
    let mut order = Vec::new();
    let mut used: HashMap<&[u8], Option<Used>> = HashMap::new();
    for event in events.iter().filter(is_of_contents) {
        let file = used.entry(event.path).or_insert_with(|| {
            let found = find(image.as_ref(), event.path);
            order.extend(found.as_ref().map(|used| used.id));
            found
        });
        if let Some(Used { pages: Some(pages), .. }) = file {
            let to = event.end().map_or(u64::MAX, |end| end.div_ceil(PAGE));
            pages.add(event.offset / PAGE, to);
        }
    }
    // A file may have several names.
    let mut pages: HashMap<FileId, Vec<(u32, u32)>> = HashMap::new();
    for used in used.into_values().flatten() {
        let id = used.id;
        let Some(ranges) = used.ranges() else { continue };
        match pages.entry(id) {
            Entry::Vacant(entry) => drop(entry.insert(ranges)),
            // All of it, by one of the names, is all.
            Entry::Occupied(mut entry) if ranges.is_empty() => entry.get_mut().clear(),
            Entry::Occupied(entry) if entry.get().is_empty() => {}
            Entry::Occupied(mut entry) => {
                entry.get_mut().extend(ranges);
                entry.get_mut().sort_unstable();
            }
        }
    }
    let mut filed = HashSet::new();
    order.retain(|id| pages.contains_key(id) && filed.insert(*id));
    let most = habits.rules().most_files;
    if order.len() > most {
        let what = format!("a habit has at most {most} files (record.most_files)");
        return Err(Error::new(ErrorKind::Unsupported, what));
    }
    // Files that were looked at a short time ago are not looked at again.
    pages.iter().for_each(|(file, pages)| habits.add_pages(*file, pages));
    let count = order.len();
    let mut filed = Filed::Small;
    for _ in 0..runs {
        let episode = Episode { program: program.into(), files: order.clone() };
        let again = habits.file(now(), episode, &mut |file| pages.get(&file).cloned());
        // The first run makes the habit that the others join.
        if !matches!(filed, Filed::New(_)) {
            filed = again;
        }
    }
    Ok(Learned { filed, files: count })
}

/// Whether an event is of the contents of a file.
fn is_of_contents(event: &EventRef<'_>) -> bool {
    let is_of_contents = matches!(event.op, Op::Open | Op::Read | Op::Exec | Op::Mmap | Op::Fault);
    is_of_contents && !event.missing
}

/// The file of a path, if a habit may have it.
fn find(image: &dyn Inspect, path: &[u8]) -> Option<Used> {
    let ino = resolve(image, path).ok()?;
    let attr = image.attr(ino).ok()?;
    if attr.kind != FileKind::Regular || attr.size == 0 || attr.size > files::LARGEST {
        return None;
    }
    let id = FileId { ino: ino.get(), generation: attr.generation };
    let size = attr.size.div_ceil(PAGE);
    Some(Used { id, size, pages: (attr.size > files::SMALL).then(PageSet::default) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_lie_within_the_file() {
        let ranges = |pages: Option<&[(u64, u64)]>| {
            let pages = pages.map(|pages| pages.iter().copied().collect());
            Used { id: FileId { ino: 20, generation: 0 }, size: 1000, pages }.ranges()
        };
        assert_eq!(ranges(None), Some(vec![]), "a small file");
        assert_eq!(ranges(Some(&[])), None, "opened only");
        assert_eq!(ranges(Some(&[(1000, u64::MAX)])), None);
        let ends = [(0, 10), (990, u64::MAX)];
        assert_eq!(ranges(Some(&ends)), Some(vec![(0, 10), (990, 1000)]));
        assert_eq!(ranges(Some(&[(0, 899)])), Some(vec![(0, 899)]));
        assert_eq!(ranges(Some(&[(0, 900)])), Some(vec![]), "nearly all");
        assert_eq!(ranges(Some(&[(0, u64::MAX)])), Some(vec![]));
    }
}
