//! The Andrew benchmark: a program's source is copied, looked at, read and
//! compiled (Howard et al., *Scale and Performance in a Distributed File System*, 1988). It is a
//! shell script: nearly every file takes a program of its own, and most of its time goes into
//! these.

use super::process::{Process, Turn};
use super::steps::{Measured, parent, remove_all, settled, untar};
use crate::machine::Machine;
use crate::tree::Entry;
use seekless_fs::FsError;
use seekless_fs::operate::NewFile;
use seekless_units::{ByteLen, Ino};

/// Its phases, and all of them.
pub(super) const PHASES: [&str; 6] = ["mkdir", "copy", "scan", "read", "compile", "all"];
/// The first five are the benchmark's own.
const OWN: usize = 5;

/// A compiler's programs for a file: driver, preprocessor, compiler, assembler.
const COMPILER: usize = 4;
/// Programs that a file is searched and counted by.
const READERS: usize = 2;
/// Length of an object file, in lengths of its source.
const OBJECT: u64 = 2;

/// A tree that lies on the volume.
pub(super) struct Source<'a> {
    pub(super) entries: &'a [Entry],
    pub(super) inos: Vec<Ino>,
}

/// One run of the benchmark.
pub(super) struct Andrew<'a> {
    source: &'a Source<'a>,
    /// The tree's copy: its entries, with another name on top.
    copy: Vec<Entry>,
    made: Vec<Ino>,
    objects: Vec<(Ino, ByteLen)>,
    phase: usize,
    at: usize,
}

impl<'a> Andrew<'a> {
    pub(super) fn new(source: &'a Source<'a>, name: &str) -> Self {
        let mut copy = source.entries.to_vec();
        for entry in copy.iter_mut().filter(|entry| entry.parent.is_none()) {
            entry.name = name.into();
        }
        Self {
            source,
            made: vec![Ino::new(0); copy.len()],
            copy,
            objects: Vec::new(),
            phase: 0,
            at: 0,
        }
    }

    /// Removes its copy and objects, and begins again.
    pub(super) fn clear(&mut self, machine: &mut Machine) -> Result<(), FsError> {
        machine.run_program();
        remove_all(machine, &self.copy)?;
        self.objects.clear();
        (self.phase, self.at) = (0, 0);
        Ok(())
    }

    fn make(&mut self, machine: &mut Machine) -> Result<(), FsError> {
        let entry = &self.copy[self.at];
        let dir = parent(machine, &self.made, entry);
        let new = if entry.len.is_none() { NewFile::Directory } else { NewFile::Regular };
        self.made[self.at] = machine.make(dir, &entry.name, new)?;
        Ok(())
    }

    /// The work of a phase for one directory or file.
    fn handle(&mut self, machine: &mut Machine) -> Result<(), FsError> {
        let (len, ino) = (self.copy[self.at].len, self.made[self.at]);
        match (self.phase, len) {
            (0, None) => {
                machine.run_program();
                self.make(machine)
            }
            (1, Some(len)) => {
                machine.run_program();
                machine.read(self.source.inos[self.at])?;
                self.make(machine)?;
                machine.write(self.made[self.at], len)
            }
            (2, None) => machine.list(ino).map(|_| ()),
            (2, Some(_)) => {
                machine.run_program();
                machine.stat(ino)
            }
            (3, Some(_)) => (0..READERS).try_for_each(|_| {
                machine.run_program();
                machine.read(ino)
            }),
            (4, Some(len)) => self.compile(machine, ino, len),
            _ => Ok(()),
        }
    }

    fn compile(&mut self, machine: &mut Machine, ino: Ino, len: ByteLen) -> Result<(), FsError> {
        let entry = &self.copy[self.at];
        let Some(stem) = entry.name.strip_suffix(".c") else { return Ok(()) };
        (0..COMPILER).for_each(|_| machine.run_program());
        machine.read(ino)?;
        machine.compile(len);
        let dir = parent(machine, &self.made, entry);
        let object = machine.make(dir, &format!("{stem}.o"), NewFile::Regular)?;
        let len = ByteLen::new(len.get().saturating_mul(OBJECT));
        machine.write(object, len)?;
        self.objects.push((object, len));
        Ok(())
    }

    fn link(&mut self, machine: &mut Machine) -> Result<(), FsError> {
        machine.run_program();
        let mut len = 0u64;
        for &(object, part) in &self.objects {
            machine.read(object)?;
            len += part.get();
        }
        let Some(&top) = self.made.first() else { return Ok(()) };
        let program = machine.make(top, "program", NewFile::Regular)?;
        machine.write(program, ByteLen::new(len))
    }
}

impl Process for Andrew<'_> {
    fn step(&mut self, machine: &mut Machine) -> Result<Turn, FsError> {
        if self.at < self.copy.len() {
            self.handle(machine)?;
            self.at += 1;
            return Ok(Turn::Again);
        }
        if self.phase + 1 == OWN {
            self.link(machine)?;
        }
        (self.phase, self.at) = (self.phase + 1, 0);
        Ok(if self.phase < OWN { Turn::Again } else { Turn::Over })
    }
}

/// Runs it once, on a source that is on the disk but in no cache. Only the syncer writes between
/// its phases; blocks dirty at its end count for the last of them.
pub(super) fn perform(machine: &mut Machine, tree: &[Entry]) -> Result<Vec<Measured>, FsError> {
    let source = Source { entries: tree, inos: untar(machine, tree)? };
    machine.remount()?;
    let mut run = Andrew::new(&source, "andrew");
    machine.wait_a_moment();
    let all = machine.begin_phase(PHASES[OWN]);
    let mut over = Vec::new();
    for (at, name) in PHASES.into_iter().take(OWN).enumerate() {
        let begun = machine.begin_phase(name);
        while run.phase == at {
            run.step(machine)?;
        }
        if at + 1 < OWN {
            machine.end_phase(&begun);
        }
        over.push((begun, machine.reading()));
    }
    let settled = settled(machine)?;
    if let Some((_, after)) = over.last_mut() {
        *after = settled;
    }
    over.push((all, settled));
    let measured = over
        .into_iter()
        .map(|(begun, after)| (begun.name, begun.before, after, machine.picture(&begun)));
    Ok(measured.collect())
}
