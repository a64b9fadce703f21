//! The cost of ageing for a boot, and the gain of orders of files: Mikaelsson's experiment of 2012,
//! on file systems of the running kernel.
//!
//! A Debian system is installed package by package, then aged by reinstalling
//! packages in random order. It is copied in two orders, and laid out by seekless; on each a
//! recorded boot is done again, with the pauses of the recording, on a modelled disk in virtual
//! time. The caller mounts file systems and disks; this module has the operations on them and their
//! results.
//!
//! - [`system`]: packages and their files
//! - [`tree_writer`]: installing, reinstalling and copying them
//! - [`order`]: in which order they are copied
//! - [`outcome`]: the times of boots, beside the published ones

pub mod order;
pub mod outcome;
pub mod system;
pub mod tree_writer;

use crate::quantity::{self, DriveName, Size};
use seekless_model::SpecError;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt;

/// The name of this kind in an experiment's file.
pub const KIND: &str = "boots";

/// The file of a boot experiment.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BootExperiment {
    /// Its name; results carry it.
    #[serde(deserialize_with = "quantity::name")]
    pub name: String,
    /// That it is of this kind.
    pub kind: ExperimentKind,
    /// Its purpose, in a line.
    pub summary: String,
    /// Where the published figures come from.
    #[serde(default)]
    pub sources: Vec<String>,
    /// The system that is installed: `debian-12`, or the path of a file.
    pub system: String,
    /// The reads of a boot: `debian-12`, or the path of a trace.
    pub trace: String,
    /// Seeds of the order in which packages are reinstalled; a run of each.
    pub seeds: Vec<u64>,
    /// How often each image is booted.
    pub repetitions: u64,
    /// How often each package is reinstalled, on average.
    pub reinstalls: f64,
    /// The archive that a package is reinstalled from, which is kept, as a share
    /// of the length of its files.
    pub archive: f64,
    /// Machines it is run on.
    #[serde(rename = "machine")]
    pub machines: Vec<BootMachine>,
    /// Published measurements.
    #[serde(default)]
    pub published: Vec<PublishedBoot>,
}

/// The kind of an experiment in such a file: there is one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExperimentKind {
    /// Boots on file systems of the kernel.
    Boots,
}

/// A file system on a disk.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BootMachine {
    /// Its name.
    #[serde(deserialize_with = "quantity::name")]
    pub name: String,
    /// The file system.
    pub fs: KernelFs,
    /// Its size.
    pub size: Size,
    /// The preset of the disk.
    pub drive: DriveName,
    /// How much the kernel reads ahead of a stream.
    pub read_ahead: Size,
    /// Options of the mounts that files are made on, as for mount -o.
    #[serde(default)]
    pub options: String,
    /// The states that are booted.
    pub states: Vec<State>,
    /// The states that are booted a second time, with all that the boot reads
    /// fetched first, in the order in which it lies on the disk.
    #[serde(default)]
    pub prefetched: Vec<State>,
}

/// A file system of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum KernelFs {
    /// ext4
    Ext4,
    /// XFS
    Xfs,
    /// Btrfs
    Btrfs,
}

/// How the files came to lie where they do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Installed package by package.
    Fresh,
    /// Then packages were reinstalled.
    Aged,
    /// The aged system copied as a walk through the tree meets the files.
    ReaddirOrder,
    /// The aged system copied in the order in which the boot reads the files.
    ProfileOrder,
    /// The aged image, re-laid out by seekless for the boot; ext4 only.
    Optimized,
}

impl State {
    /// Its name in files and tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fresh => "fresh",
            Self::Aged => "aged",
            Self::ReaddirOrder => "readdir-order",
            Self::ProfileOrder => "profile-order",
            Self::Optimized => "optimized",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Published measurement of a state.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedBoot {
    /// The state.
    pub state: State,
    /// Seconds of a boot: the mean.
    pub boot_s: f64,
    /// The shortest and the longest.
    pub boot_range_s: (f64, f64),
    /// Seconds of its part that reads.
    pub io_s: Option<f64>,
}

impl BootExperiment {
    /// Reads a file; `file` is its name in errors.
    ///
    /// # Errors
    /// [`SpecError`] with the place of the error.
    pub fn parse(text: &str, file: &str) -> Result<Self, SpecError> {
        let read: Self =
            toml::from_str(text).map_err(|error| SpecError::syntax(&error, text, file))?;
        match read.fault() {
            Some((key, why)) => Err(SpecError::of_key(key, why, text, file)),
            None => Ok(read),
        }
    }

    /// Whether a file is of this kind, as far as can be told.
    #[must_use]
    pub fn is_one(text: &str) -> bool {
        let read: Result<toml::Table, _> = toml::from_str(text);
        read.is_ok_and(|table| table.get("kind").and_then(|kind| kind.as_str()) == Some(KIND))
    }

    /// A hash over its inputs: its text, its system and its trace, and the drives it names.
    #[must_use]
    pub fn digest(&self, parts: [&[u8]; 3]) -> String {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        for machine in &self.machines {
            hash.update(seekless_model::preset::text(&machine.drive.0).unwrap_or_default());
        }
        hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }

    /// Errors that no single value shows.
    fn fault(&self) -> Option<(&'static str, String)> {
        let missing = |key| Some((key, "there must be one at least".into()));
        if self.seeds.is_empty() {
            return missing("seeds");
        }
        if self.machines.is_empty() {
            return missing("machine");
        }
        if self.repetitions == 0 {
            return missing("repetitions");
        }
        for (key, value, most) in
            [("reinstalls", self.reinstalls, 1000.0), ("archive", self.archive, 1.0)]
        {
            if !(0.0..=most).contains(&value) {
                return Some((key, format!("not in the range 0 to {most}")));
            }
        }
        let mut names: Vec<&str> = self.machines.iter().map(|machine| &*machine.name).collect();
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Some(("machine", format!("two machines are called {}", pair[0])));
        }
        self.machines.iter().find_map(BootMachine::fault).map(|why| ("machine", why))
    }
}

impl BootMachine {
    fn fault(&self) -> Option<String> {
        let name = &self.name;
        let mut all = self.states.iter().chain(&self.prefetched);
        if self.fs != KernelFs::Ext4 && all.any(|state| *state == State::Optimized) {
            return Some(format!("machine {name}: only ext4 can be optimized"));
        }
        match self.prefetched.iter().find(|state| !self.states.contains(state)) {
            Some(state) => Some(format!("machine {name}: {state} is prefetched, but no state")),
            None => self.states.is_empty().then(|| format!("machine {name} has no states")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtin;

    #[test]
    fn the_built_in_one_is_read() {
        let text = builtin::text("boots").unwrap();
        assert!(BootExperiment::is_one(text));
        let read = BootExperiment::parse(text, "boots.toml").unwrap();
        assert_eq!(read.name, "boots");
        assert!(!read.sources.is_empty());
        assert!(!BootExperiment::is_one(builtin::text("dirpref").unwrap()));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let text = builtin::text("boots").unwrap();
        for (from, to, why) in [
            ("fs = \"xfs\"", "fs = \"zfs\"", "zfs"),
            ("reinstalls = 4.0", "reinstalls = -1.0", "0 to 1000"),
            ("seeds = [1]", "seeds = []", "one at least"),
            ("name = \"xfs\"", "name = \"btrfs\"", "two machines"),
            ("kind = \"boots\"", "kind = \"boot\"", "boot"),
        ] {
            assert!(text.contains(from), "{from}");
            let error = BootExperiment::parse(&text.replace(from, to), "x.toml").unwrap_err();
            assert!(error.to_string().contains(why), "{to}: {error}");
        }
    }
}
