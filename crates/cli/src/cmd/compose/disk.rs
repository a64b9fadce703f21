//! `seekless build --disk`: the image of a whole disk, with a GUID partition table, an EFI
//! system partition and the root.

use super::{BuildArgs, Family};
use crate::args::Global;
use crate::failure::{Failure, Kind};
use crate::progress;
use crate::source::{self, Purpose, source_date_epoch};
use clap::{Args, ValueEnum};
use seekless_compose::build::Build;
use seekless_compose::definitions::boot_volume;
use seekless_compose::formats::warn_of_width;
use seekless_compose::write::Destination;
use seekless_compose::wrong;
use seekless_fat as fat;
use seekless_formats::PartitionType;
use seekless_fs::source::Source;
use seekless_fs::{FsError, Timestamp};
use seekless_images::Place;
use seekless_images::targets::Target;
use seekless_layout::planner::{Storage, StorageKind};
use seekless_partition::{Architecture, Attributes, Guid, NewPartition, TableError, write};
use seekless_source::LayeredSource;
use seekless_units::{ByteLen, parse_size};
use std::path::PathBuf;
use std::sync::Arc;

/// Alignment of partitions, and room kept free for the table at both ends of the disk, in bytes.
const ALIGN: u64 = 1 << 20;

/// Bytes at the start of each file system from which its partition's UUID is derived. They contain
/// the identifier of the file system, in every format.
const IDENTITY: usize = 128 << 10;

/// Whether a disk is made, and what is on it besides.
#[derive(Args, Debug)]
pub(super) struct DiskArgs {
    /// Make the image of a disk with a GUID partition table: an EFI system partition,
    /// and the file system as its root
    #[arg(long, conflicts_with_all = ["verity", "verity_tree"], groups = ["partitioned", "typed"])]
    disk: bool,
    /// With --disk: what the EFI system partition contains, as SOURCE [default: nothing]
    #[arg(long, requires = "partitioned", value_name = "SOURCE")]
    esp: Option<PathBuf>,
    /// With --disk: size of the EFI system partition
    #[arg(
        long,
        requires = "partitioned",
        value_parser = parse_size,
        default_value = "64M",
        value_name = "SIZE"
    )]
    esp_size: ByteLen,
    /// With --disk: architecture that the type of the root partition tells; with --definitions,
    /// that of the types root and usr
    #[arg(long, requires = "typed", value_enum, default_value_t = Arch::X86_64)]
    arch: Arch,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum Arch {
    X86,
    #[value(name = "x86-64")]
    X86_64,
    Arm,
    Arm64,
    Riscv64,
}

impl Arch {
    /// The partition type of a root (Discoverable Partitions Specification).
    const fn root(self) -> &'static str {
        match self {
            Self::X86 => "Linux root (x86)",
            Self::X86_64 => "Linux root (x86-64)",
            Self::Arm => "Linux root (ARM)",
            Self::Arm64 => "Linux root (ARM-64)",
            Self::Riscv64 => "Linux root (RISC-V-64)",
        }
    }
}

/// A disk whose EFI system partition has been written.
pub(super) struct Disk {
    esp: ByteLen,
}

impl From<Arch> for Architecture {
    fn from(arch: Arch) -> Self {
        match arch {
            Arch::X86 => Self::X86,
            Arch::X86_64 => Self::X86_64,
            Arch::Arm => Self::Arm,
            Arch::Arm64 => Self::Arm64,
            Arch::Riscv64 => Self::Riscv64,
        }
    }
}

impl DiskArgs {
    /// The architecture that types of partitions name.
    pub(super) fn architecture(&self) -> Architecture {
        self.arch.into()
    }

    /// The source of the EFI system partition.
    pub(super) fn source(&self) -> Option<&PathBuf> {
        self.esp.as_ref()
    }

    /// Whether `--disk` was given.
    pub(super) fn is_wanted(&self) -> bool {
        self.disk
    }

    /// Bytes for the root on a disk of `disk` bytes: whole multiples of `ALIGN` between the EFI
    /// system partition and the copy of the table. `None` if nothing is left.
    pub(super) fn room_for_root(&self, disk: ByteLen) -> Option<ByteLen> {
        let start = Disk { esp: self.esp_size }.root().get();
        let room = disk.get().checked_sub(start)?.checked_sub(ALIGN)? / ALIGN * ALIGN;
        (room > 0).then_some(ByteLen::new(room))
    }

    /// The place of the root file system on the finished disk.
    pub(super) fn place(&self) -> Place {
        Place { partition: self.disk.then(|| "2".into()), offset: None }
    }

    /// Writes the EFI system partition, if `--disk` was given.
    pub(super) fn begin(
        &self,
        args: &BuildArgs,
        target: &Target,
        global: &Global,
    ) -> Result<Option<Disk>, Failure> {
        if !self.disk {
            return Ok(None);
        }
        if !self.esp_size.get().is_multiple_of(ALIGN) || self.esp_size == ByteLen::ZERO {
            return Err(Failure::usage("--esp-size: not a multiple of 1M"));
        }
        let purpose = Purpose::Build { latest: source_date_epoch()? };
        let contents: Arc<dyn Source + Send> = match &self.esp {
            // Options that select or change the source are for the root only, those on how registries
            // are reached are for both.
            Some(path) => {
                let (tree, image) = (args.tree.of_registries(), args.open.options());
                source::open(path, &tree, image, purpose, global)?
            }
            None => Arc::new(LayeredSource::new(Vec::new())?),
        };
        let shown = self.esp.as_ref().map_or("--esp".into(), |path| path.display().to_string());
        let about = |error: FsError| match error {
            FsError::NoSpace(_) => {
                Failure::from(error).about(&shown).hint("a larger --esp-size holds it")
            }
            error => Failure::from(wrong(error)).about(&shown),
        };
        let builder = fat::Builder::new(contents.as_ref(), &self.esp_options()?).map_err(about)?;
        if let Some(clusters) = builder.ambiguous_clusters() {
            warn_of_width(clusters);
        }
        let build = Build {
            source: contents.as_ref(),
            name: &shown,
            traces: &[],
            storage: Storage { kind: StorageKind::Disk, chunk: ByteLen::new(1) },
            destination: Destination { target, start: ByteLen::new(ALIGN) },
            progress: &progress::shown(global),
        };
        let esp = build.volume(&builder, &[])?;
        Ok(Some(Disk { esp }))
    }

    /// The options of a volume that is filled with the EFI system partition.
    fn esp_options(&self) -> Result<fat::BuildOptions, Failure> {
        let mut options = boot_options()?;
        options.make.size = self.esp_size;
        options.make.hidden = (ALIGN / 512) as u32;
        options.make.label = b"ESP".to_vec();
        options.is_fitted = false;
        Ok(options)
    }

    fn kind(&self, format: Family) -> Option<Guid> {
        Guid::of_type(match format.known().partition {
            PartitionType::LinuxRoot => self.arch.root(),
            PartitionType::Named(name) => name,
        })
    }
}

/// The options of FAT for a partition from which a machine boots.
pub(super) fn boot_options() -> Result<fat::BuildOptions, Failure> {
    let made = source_date_epoch()?.map(|secs| Timestamp { secs, nanos: 0 });
    Ok(boot_volume(made))
}

impl Disk {
    /// First byte of the root partition.
    pub(super) fn root(&self) -> ByteLen {
        ByteLen::new((ALIGN + self.esp.get()).next_multiple_of(ALIGN))
    }

    /// Writes the partition table after a root of `root` bytes.
    pub(super) fn finish(
        &self,
        args: &BuildArgs,
        target: &Target,
        root: ByteLen,
        global: &Global,
    ) -> Result<(), Failure> {
        let about = |failure: Failure| failure.about(args.output.display());
        let start = self.root();
        // The partition is rounded up: resize tools grow the file system up to its end.
        let len = ByteLen::new(root.get().next_multiple_of(ALIGN));
        let disk = target.disk(
            ByteLen::new(start.get() + len.get()),
            ByteLen::new(ALIGN),
            &progress::shown(global),
        )?;
        let esp = Guid::of_type("EFI System");
        let kinds = [("esp", esp), ("root", args.disk.kind(args.format))];
        let places = [(ByteLen::new(ALIGN), self.esp), (start, len)];
        let (mut partitions, mut heads) = (Vec::new(), Vec::new());
        for ((name, kind), (start, len)) in kinds.into_iter().zip(places) {
            let Some(kind) = kind else {
                debug_assert!(false, "the type of {name} has a name");
                continue;
            };
            let mut head = vec![0; IDENTITY.min(len.get() as usize)];
            let read = disk.read_bytes(start, &mut head);
            read.map_err(|error| about(Failure::from(FsError::from(error))))?;
            let id = Guid::derived(name, &head);
            heads.extend(head);
            let attributes = Attributes::default();
            partitions.push(NewPartition { kind, id, name: name.into(), start, len, attributes });
        }
        let id = Guid::derived("disk", &heads);
        write(disk.as_ref(), id, &partitions).map_err(|error| match error {
            TableError::Device(error) => about(Failure::from(FsError::from(error))),
            error => about(Failure::new(Kind::Unsupported, error.to_string())),
        })
    }
}
