//! The selected volume while it is not mounted: its snapshots removed, its contents checked; and
//! snapshots taken.

use super::Machine;
use seekless_fs::FsError;
use seekless_fs::operate::NewFile;

impl Machine {
    /// Takes a snapshot, as a new file of the root (`mksnap_ffs`).
    ///
    /// # Errors
    /// As [`Machine::make`] and [`seekless_fs::operate::Operate::take_snapshot`].
    pub(crate) fn take_snapshot(&mut self, name: &str) -> Result<(), FsError> {
        let ino = self.make(self.root(), name, NewFile::Regular)?;
        self.live().take_snapshot(ino)
    }

    /// Unmounts the volume, removes all of its snapshots and mounts it again.
    ///
    /// # Errors
    /// As [`Machine::remount`]; [`FsError::Unsupported`] on formats without snapshots;
    /// [`FsError::Damaged`].
    pub(crate) fn remove_snapshots(&mut self) -> Result<(), FsError> {
        let clock = self.clock.clone();
        let volume = self.volume();
        volume.close()?;
        volume.remove_snapshots()?;
        volume.reopen(&clock)
    }

    /// Unmounts the volume, checks it (`fsck -fn`) and mounts it again. Only the requests of the
    /// check take time.
    ///
    /// # Errors
    /// As [`Machine::remount`]; [`FsError::Invalid`] if the check finds something.
    pub(crate) fn check(&mut self) -> Result<(), FsError> {
        let clock = self.clock.clone();
        let volume = self.volume();
        volume.close()?;
        volume.check()?;
        volume.reopen(&clock)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtin;
    use crate::experiment::Experiment;
    use crate::machine::Setup;
    use crate::repetition::Chance;
    use seekless_fs::format::OpenOptions;
    use seekless_units::ByteLen;
    use std::sync::Arc;

    #[test]
    fn a_snapshot_keeps_removed_files_until_it_is_removed() {
        let text = builtin::text("snapshots").unwrap().replace("\"7928M\"", "\"64M\"");
        let experiment = Experiment::parse(&text, "small.toml").unwrap();
        let (system, workload) = (&experiment.systems[0], &experiment.workloads[0]);
        let discipline = experiment.disciplines[0].0;
        let chance = Chance::of(1, 0);
        let setup = Setup { policy: "orlov", discipline, chance, workload };
        let mut machine = Machine::new(system, &setup, None).unwrap();
        let root = machine.root();
        let file = machine.make(root, "file", NewFile::Regular).unwrap();
        machine.write(file, ByteLen::new(100_000)).unwrap();
        machine.take_snapshot("then").unwrap();
        machine.unlink(root, b"file").unwrap();
        machine.remount().unwrap();

        let disk = Arc::clone(&machine.volumes[0].disk);
        let known = system.format.kind.known();
        let snapshots = known.snapshots.unwrap();
        let listed = || (snapshots.list)(disk.clone(), OpenOptions::default()).unwrap();
        assert_eq!(listed()[0].path.as_deref(), Some(&b"/then"[..]));
        let then = (snapshots.open)(disk.clone(), b"/then", OpenOptions::default()).unwrap();
        let then = (known.reader.open)(then, OpenOptions::default()).unwrap();
        let found = seekless_fs::inspect::resolve(then.as_ref(), b"/file").unwrap();
        assert_eq!(then.attr(found).unwrap().size, 100_000);

        let before = machine.now();
        machine.remove_snapshots().unwrap();
        assert!(machine.now() > before);
        assert!(listed().is_empty());
        let names: Vec<_> = machine.list(root).unwrap().into_iter().map(|one| one.0).collect();
        assert_eq!(names, Vec::<Vec<u8>>::new());
    }
}
