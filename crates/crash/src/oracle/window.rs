//! The state durable at the time of a crash, and the operations that may have changed it since.

use crate::history::{FileId, History, Moment, Name, Scope};
use seekless_fs::FileKind;
use std::collections::BTreeMap;

/// Promises kept at a point of the log: of each file and name, the latest moment that was promised.
#[derive(Clone, Debug, Default)]
pub struct Promised {
    all: Moment,
    files: BTreeMap<FileId, Moment>,
    names: BTreeMap<Name, Moment>,
}

impl Promised {
    /// The promises kept when the log has `steps` steps, all of them on the disk.
    #[must_use]
    pub fn at(history: &History, steps: usize) -> Self {
        let mut promised = Self::default();
        for promise in history.promises.iter().filter(|promise| promise.since <= steps) {
            match promise.scope {
                Scope::All => promised.all = promised.all.max(promise.moment),
                Scope::File(file) => promised.add(history, file, promise.moment),
            }
        }
        promised
    }

    fn add(&mut self, history: &History, file: FileId, moment: Moment) {
        raise(&mut self.files, file, moment);
        if history.files[file].kind == FileKind::Directory {
            for (name, _) in history.names.range((file, Vec::new())..(file + 1, Vec::new())) {
                raise(&mut self.names, name.clone(), moment);
            }
        }
        // Up the tree: no path is longer than there are files.
        let mut next = vec![file];
        for _ in 0..history.files.len() {
            let Some(file) = next.pop() else { break };
            for name in history.names_of(file, moment) {
                raise(&mut self.names, name.clone(), moment);
                next.push(name.0);
            }
        }
    }
}

fn raise<K: Ord>(map: &mut BTreeMap<K, Moment>, key: K, moment: Moment) {
    let held = map.entry(key).or_default();
    *held = moment.max(*held);
}

/// The moments whose state a crash may leave: of each thing, from when it was
/// durable to the last operation that can have had an effect.
#[derive(Clone, Copy, Debug)]
pub struct Window<'a> {
    promised: &'a Promised,
    /// The last operation that had begun.
    pub upto: Moment,
}

impl<'a> Window<'a> {
    /// That of a crash after step `position` of the log.
    #[must_use]
    pub fn new(history: &History, promised: &'a Promised, position: usize) -> Self {
        let begun = history.deeds.iter().filter(|deed| deed.began < position).count();
        Self { promised, upto: begun.max(promised.all) }
    }

    /// Since when everything is durable.
    #[must_use]
    pub const fn of_all(&self) -> Moment {
        self.promised.all
    }

    /// Since when the target of a name is durable.
    #[must_use]
    pub fn of_name(&self, name: &Name) -> Moment {
        self.promised.names.get(name).copied().unwrap_or(0).max(self.promised.all)
    }

    /// Since when the contents of a file are durable.
    #[must_use]
    pub fn of_contents(&self, file: FileId) -> Moment {
        self.promised.files.get(&file).copied().unwrap_or(0).max(self.promised.all)
    }
}
