//! Habits that are learned from traces, before anything is recorded here.

use super::{files, now};
use crate::relayout::Target;
use seekless_fs::inspect::resolve;
use seekless_fs::{FileKind, Inspect};
use seekless_images::{Error, ErrorKind};
use seekless_layout::habits::{Episode, FileId, Filed, Habits, PAGE};
use seekless_layout::recording::PageSet;
use seekless_layout::trace::{EventRef, Events, Op};
use std::collections::HashMap;

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
    /// `None`: all of them.
    pages: Option<PageSet>,
}

/// Learns a habit of the files of a trace, in the order of their first touch, as if a program had
/// opened them `runs` times now. Files that are not on the volume, empty, or too large for a habit are
/// left out.
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
    order.retain(|id| pages.insert(*id, Vec::new()).is_none());
    for Used { id, pages: used } in used.into_values().flatten() {
        let page = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let runs = used.iter().flat_map(|used| used.runs());
        pages.entry(id).or_default().extend(runs.map(|(from, to)| (page(*from), page(*to))));
    }
    let most = habits.rules().most_files;
    if order.len() > most {
        let what = format!("a habit has at most {most} files (record.most_files)");
        return Err(Error::new(ErrorKind::Unsupported, what));
    }
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
    Some(Used { id, pages: (attr.size > files::SMALL).then(PageSet::default) })
}
