//! A disk of several partitions.

use super::{Build, Format};
use crate::Error;
use seekless_compose::definitions::{
    self, Architecture as Named, DiskBuild, FileSystem, PartitionWritten, boot_volume,
};
use seekless_compose::formats::Options;
use seekless_compose::sources;
use seekless_fs::Timestamp;
use seekless_fs::source::Source;
use seekless_images::Target;
use seekless_layout::planner::Storage;
use seekless_units::ByteLen;
use serde::Serialize;
use std::path::Path;

/// The architecture that the types `root` and `usr` of partitions name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Architecture {
    /// x86 with 32 bits.
    X86,
    /// x86 with 64 bits.
    #[default]
    X86_64,
    /// ARM with 32 bits.
    Arm,
    /// ARM with 64 bits.
    Arm64,
    /// RISC-V with 64 bits.
    Riscv64,
}

impl From<Architecture> for Named {
    fn from(architecture: Architecture) -> Self {
        match architecture {
            Architecture::X86 => Self::X86,
            Architecture::X86_64 => Self::X86_64,
            Architecture::Arm => Self::Arm,
            Architecture::Arm64 => Self::Arm64,
            Architecture::Riscv64 => Self::Riscv64,
        }
    }
}

/// A disk that was made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct BuiltDisk {
    /// Bytes of the disk.
    pub len: u64,
    /// Its partitions, in order; the first has the number 1.
    pub partitions: Vec<BuiltPartition>,
}

/// A partition of such a disk.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct BuiltPartition {
    /// The byte of the disk that it begins with.
    pub start: u64,
    /// Its bytes.
    pub len: u64,
    /// The identifier of its type in the Discoverable Partitions Specification, or its GUID.
    pub kind: String,
    /// Its label.
    pub name: String,
    /// Its UUID.
    pub uuid: String,
    /// `ext4`, `ext3`, `ext2`, `vfat` or `swap`; none without a file system.
    pub format: Option<String>,
    /// Files of all kinds in it.
    pub files: u64,
    /// The hash of the root of its hash tree, in hexadecimal digits, if it has one.
    pub root_hash: Option<String>,
}

impl From<PartitionWritten> for BuiltPartition {
    fn from(written: PartitionWritten) -> Self {
        Self {
            start: written.entry.start.get(),
            len: written.entry.len.get(),
            kind: written.kind(),
            uuid: written.entry.id.to_string(),
            name: written.entry.name,
            format: written.format.map(String::from),
            files: written.files,
            root_hash: written.root_hash,
        }
    }
}

impl Build {
    /// The architecture that types of partitions name, for [`write_disk`](Self::write_disk).
    #[must_use]
    pub fn architecture(mut self, architecture: Architecture) -> Self {
        self.architecture = architecture;
        self
    }

    /// Writes a disk with a GUID partition table and the partitions that the files `*.conf` of a
    /// directory define, as those of systemd-repart do (repart.d(5); `docs/definitions.md` has the
    /// settings). `CopyFiles=` copies from the sources, [`size`](Self::size) is that of the disk,
    /// and a trace is one of the sources. Options of ext images are for each ext file system.
    ///
    /// ```
    /// use seekless::Build;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let work = tempfile::tempdir()?;
    /// # let [tree, dir, path] = ["tree", "repart.d", "disk.img"].map(|name| work.path().join(name));
    /// # std::fs::create_dir(&tree)?;
    /// # std::fs::write(tree.join("hello"), "world")?;
    /// # std::fs::create_dir(&dir)?;
    /// let root = "[Partition]\nType=root\nCopyFiles=/\n";
    /// std::fs::write(dir.join("10-root.conf"), root)?;
    /// let disk = Build::of([&tree]).write_disk(&path, &dir)?;
    /// assert_eq!(disk.partitions[0].kind, "root-x86-64");
    /// let image = seekless::Open::default().partition("root").open(&path)?;
    /// assert_eq!(image.read("/hello")?, b"world");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind) for a directory without definitions, for a size that
    /// is not a multiple of 4096, and for options of a single file system (a format, a label, a
    /// UUID, free bytes, older images, common places);
    /// [`ErrorKind::Corrupt`](crate::ErrorKind) for a malformed definition, with file and line,
    /// [`ErrorKind::Unsupported`](crate::ErrorKind) for a setting that is not supported;
    /// [`ErrorKind::NoSpace`](crate::ErrorKind) for a disk that is too small, with the size that is
    /// needed; otherwise as [`write`](Self::write).
    pub fn write_disk(
        &self,
        path: impl AsRef<Path>,
        definitions: impl AsRef<Path>,
    ) -> Result<BuiltDisk, Error> {
        let path = path.as_ref();
        self.stop.during(path.display(), || self.compose_disk(path, definitions.as_ref()))
    }

    fn compose_disk(&self, path: &Path, directory: &Path) -> Result<BuiltDisk, Error> {
        self.refuse_options_of_one_volume()?;
        self.settings(Format::Ext4, None, None)?;
        let wanted = definitions::read(directory, self.architecture.into())?;
        let format = self.output_format.map(Into::into);
        let mut inputs = self.inputs();
        inputs.extend(definitions::files(directory)?);
        let target = Target::create(path, self.replaces, format, &inputs)?;
        let target = target.with_reflink(self.reflink.into())?.with_stop(self.stop.clone());
        target.refuse_blocks(512, "partition tables are made for sectors of 512 bytes")?;
        let source = if self.sources.is_empty() && self.amendments.files().next().is_none() {
            definitions::no_source()?
        } else {
            sources::open_layers(&self.sources, &self.opening(path)?, self.purpose())?
        };
        let options = |format: FileSystem, _: &dyn Source| match format {
            FileSystem::Vfat => {
                let made = self.made.map(|secs| Timestamp { secs, nanos: 0 });
                Ok(Options::Fat(boot_volume(made)))
            }
            FileSystem::Ext2 => self.settings(Format::Ext2, None, None),
            FileSystem::Ext3 => self.settings(Format::Ext3, None, None),
            FileSystem::Ext4 => self.settings(Format::Ext4, None, None),
        };
        let name = match self.shown_sources() {
            name if name.is_empty() => "without a source".into(),
            name => name,
        };
        let traces: Vec<_> = self.traces.iter().map(|trace| trace.events.clone()).collect();
        let build = DiskBuild {
            definitions: &wanted,
            source,
            name: &name,
            traces: &traces,
            storage: Storage { kind: self.storage.into(), chunk: ByteLen::new(self.chunk) },
            options: &options,
            size: self.size.map(ByteLen::new),
            target: &target,
            progress: self.progress.as_ref(),
        };
        let partitions = build.write()?.into_iter().map(BuiltPartition::from).collect();
        let len = target.written().expect("the disk was written to it").len().get();
        target.finish()?;
        Ok(BuiltDisk { len, partitions })
    }

    fn refuse_options_of_one_volume(&self) -> Result<(), Error> {
        let refused = [
            (self.format != Format::default(), "a format"),
            (!self.label.is_empty(), "a label"),
            (self.uuid.is_some(), "a UUID"),
            (self.free > 0, "free bytes"),
            (!self.like.is_empty(), "an older image"),
            (self.is_shared, "common places"),
            (self.freed.is_some(), "freed blocks"),
            (self.is_lossy, "a lossy format"),
            (self.options.whiteouts.is_some(), "whiteouts of an archive"),
            (self.reuses, "reuse"),
        ];
        match refused.into_iter().find(|(is_given, _)| *is_given) {
            Some((_, option)) => Err(Error::usage(format!("{option}: not for disks"))),
            None => Ok(()),
        }
    }
}
