//! Drives from DiskSim's parameter files: `.parv` (the system around a drive), `.diskspecs` (its
//! electronics), `.model` (its mechanics and layout) and `.seek` (a measured seek curve). Each
//! names the next.
//!
//! The meaning of the parameters is that of the DiskSim 4.0 Reference Manual
//! (CMU-PDL-08-101).

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![deny(clippy::as_conversions)]
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::as_conversions
    )
)]

mod electronics;
mod fields;
mod geometry;
mod syntax;

use crate::hdd::spec::{BusSpec, HddSpec};
use crate::spec::Spec;
use fields::Fields;
use std::io;
use syntax::{Block, Item, Node, Value};

/// Maximum number of files that include each other: more than any sound set has.
const FILES: usize = 16;

/// The reason why a drive cannot be imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// A file that is missing or cannot be read.
    #[error("{file}: {source}")]
    Io {
        /// The file's name as spelled in the file that includes it.
        file: String,
        /// The system's error.
        source: io::Error,
    },
    /// A file with an invalid parameter.
    #[error("{file}:{line}: {key}: {message}")]
    Invalid {
        /// The file's name.
        file: String,
        /// The line, from 1.
        line: usize,
        /// The parameter at fault.
        key: String,
        /// The fault.
        message: String,
    },
    /// No file describes a disk.
    #[error("{file}: no disksim_disk or dm_disk block in it or in the files it names")]
    NoDisk {
        /// The requested file.
        file: String,
    },
}

/// How a file's text is had by its name.
pub type Read<'a> = &'a mut dyn FnMut(&str) -> io::Result<String>;

/// A file's blocks, those of the files it takes in among them.
struct Files<'a> {
    read: Read<'a>,
    items: Vec<(String, Item)>,
    left: usize,
}

impl Files<'_> {
    fn text(&mut self, file: &str) -> Result<String, ImportError> {
        self.left = self.left.checked_sub(1).ok_or_else(|| ImportError::Invalid {
            file: file.into(),
            line: 1,
            key: "source".into(),
            message: format!("more than {FILES} files include each other"),
        })?;
        (self.read)(file).map_err(|source| ImportError::Io { file: file.into(), source })
    }

    fn load(&mut self, file: &str) -> Result<(), ImportError> {
        let text = self.text(file)?;
        for item in syntax::parse(&text, file)? {
            match item {
                Item::Source(next) => self.load(&next)?,
                item => self.items.push((file.into(), item)),
            }
        }
        Ok(())
    }

    fn block(&self, wanted: impl Fn(&Block) -> bool) -> Option<(String, Block)> {
        self.items.iter().find_map(|(file, item)| match item {
            Item::Block(block) if wanted(block) => Some((file.clone(), block.clone())),
            _ => None,
        })
    }
}

/// Imports the drive of a `.parv`, `.diskspecs` or `.model` file, whose text
/// and those of the files it names `read` gives.
///
/// # Errors
/// [`ImportError`], with file, line and parameter.
pub fn import(file: &str, read: Read<'_>) -> Result<Spec, ImportError> {
    let mut files = Files { read, items: Vec::new(), left: FILES };
    files.load(file)?;
    let disk = files.block(|block| block.kind == "disksim_disk");
    let model = match &disk {
        Some((from, block)) => model_of(&mut files, Fields { block, file: from })?,
        None => files.block(|block| block.kind == "dm_disk"),
    };
    let Some((from, block)) = model else { return Err(ImportError::NoDisk { file: file.into() }) };
    let mut hdd = geometry::drive(Fields { block: &block, file: &from }, &mut files)?;
    let mut name = block.name.clone();
    if let Some((from, block)) = &disk {
        let fields = Fields { block, file: from };
        electronics::apply(fields, &mut hdd)?;
        electronics::bus_times(bus_of(&files), fields, &mut hdd.bus)?;
        name.clone_from(&block.name);
    }
    finish(name, hdd, file)
}

fn finish(name: String, hdd: HddSpec, file: &str) -> Result<Spec, ImportError> {
    if let Some((key, message)) = hdd.fault() {
        return Err(ImportError::Invalid { file: file.into(), line: 1, key: key.into(), message });
    }
    let summary = format!("{name}, from {file}");
    let sources = vec![format!("DiskSim parameter file {file}")];
    Ok(Spec { sources, hdd: Some(hdd), ..Spec::empty(&name, &summary) })
}

/// The mechanics of a disk: a block of its own, or another file's.
fn model_of(
    files: &mut Files<'_>,
    disk: Fields<'_>,
) -> Result<Option<(String, Block)>, ImportError> {
    match disk.get("Model").map(|model| &model.value) {
        Some(Value::Block(block)) => Ok(Some((disk.file.into(), block.clone()))),
        Some(Value::Source(file)) => {
            files.load(file)?;
            Ok(files.block(|block| block.kind == "dm_disk"))
        }
        Some(Value::Words(name)) => Ok(files.block(|block| block.name == *name)),
        _ => Ok(files.block(|block| block.kind == "dm_disk")),
    }
}

/// The bus that the disk hangs on and the controller above, by the topology.
fn bus_of<'a>(files: &'a Files<'_>) -> Vec<Fields<'a>> {
    let mut path = Vec::new();
    for (_, item) in &files.items {
        if let Item::Topology(node) = item
            && above_disk(node, &mut path)
        {
            break;
        }
    }
    let above: Vec<&str> = path.into_iter().rev().take(2).collect();
    above.into_iter().filter_map(|name| component(files, name)).collect()
}

/// The components from the top to the first disk.
fn above_disk<'a>(node: &'a Node, path: &mut Vec<&'a str>) -> bool {
    if node.kind == "disksim_disk" {
        return true;
    }
    path.push(&node.name);
    if node.below.iter().any(|below| above_disk(below, path)) {
        return true;
    }
    path.pop();
    false
}

/// The block that a component is an instance of.
fn component<'a>(files: &'a Files<'_>, name: &str) -> Option<Fields<'a>> {
    let kind = files.items.iter().find_map(|(_, item)| match item {
        Item::Instantiate { names, kind } if names.iter().any(|n| n == name) => Some(kind),
        _ => None,
    })?;
    files.items.iter().find_map(|(file, item)| match item {
        Item::Block(block) if block.name == *kind => Some(Fields { block, file }),
        _ => None,
    })
}

/// Raises the bus's times per sector to those of a slower device at one of its ends.
fn slower(bus: &mut BusSpec, read: f64, write: f64) {
    bus.read_sector = bus.read_sector.max(read);
    bus.write_sector = bus.write_sector.max(write);
}
