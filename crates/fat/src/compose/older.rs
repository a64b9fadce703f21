//! The names in a directory of an older volume, with their short names and slots.

use super::shorts::Short;
use crate::directory::{Entry, VisitedEntry};
use crate::files::ROOT;
use crate::image::FatImage;
use crate::name;
use crate::ondisk::lower;
use hashbrown::HashMap;
use seekless_fs::FsError;
use seekless_units::Ino;
use std::ops::ControlFlow;

/// A name in a directory.
pub(crate) struct OlderEntry {
    /// The name that is shown.
    pub(crate) name: Vec<u8>,
    pub(crate) short: Short,
    /// `DIR_NTRes`: parts of the short name that are shown in lower case.
    pub(crate) case: u8,
    /// Whether it has a long name.
    pub(crate) is_long: bool,
    /// Its first slot, and how many it has.
    pub(crate) first_slot: u32,
    pub(crate) slots: u32,
    /// The number of a subdirectory.
    directory: Option<Ino>,
}

impl OlderEntry {
    fn new(entry: &Entry, directory: Option<Ino>) -> Self {
        Self {
            name: entry.name(),
            short: entry.short.DIR_Name,
            case: entry.short.DIR_NTRes & (lower::BASE | lower::EXTENSION),
            is_long: entry.head.name.is_some(),
            first_slot: entry.head.start,
            slots: entry.slot - entry.head.start + 1,
            directory,
        }
    }

    /// The short name without regard to case.
    pub(crate) fn folded_short(&self) -> Vec<u16> {
        folded(&name::short(&self.short, 0))
    }
}

/// The names in a directory of an older volume; none for a directory that it does not have.
#[derive(Default)]
pub(crate) struct OlderDirectory {
    /// By the name without regard to case.
    entries: HashMap<Vec<u16>, OlderEntry>,
}

impl OlderDirectory {
    /// Reads a directory.
    pub(crate) fn read(image: &FatImage, dir: Ino) -> Result<Self, FsError> {
        let sectors = image.directory_sectors(dir)?;
        let mut read = Self::default();
        image.volume().visit(dir, dir == ROOT, sectors, 0, &mut |met| {
            if let VisitedEntry::File(entry) = met {
                let ino = image.in_slot(dir, entry.slot);
                read.add(entry, ino.filter(|_| entry.short.is_directory()));
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(read)
    }

    /// Adds an entry; `directory` is the number of a subdirectory.
    pub(crate) fn add(&mut self, entry: &Entry, directory: Option<Ino>) {
        let old = OlderEntry::new(entry, directory);
        self.entries.insert(folded(&old.name), old);
    }

    /// The entry of a name, which is folded.
    pub(crate) fn get(&self, name: &[u16]) -> Option<&OlderEntry> {
        self.entries.get(name)
    }

    /// The subdirectory with a name.
    pub(crate) fn subdirectory(&self, name: &[u8]) -> Option<Ino> {
        self.get(&folded(name))?.directory
    }
}

fn folded(name: &[u8]) -> Vec<u16> {
    name::fold(&name::to_units(name).unwrap_or_default())
}
