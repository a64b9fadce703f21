//! Empty volumes, and the drives they are on.

use super::TODAY;
use super::partition::Partition;
use crate::experiment::{Format, FormatKind, System};
use crate::quantity::Size;
use seekless_device::BlockDevice;
use seekless_ext::{BuildOptions, Builder, Features};
use seekless_fat::FatWidth;
use seekless_ffs::{MakeOptions, Version};
use seekless_fs::plan::NewVolume;
use seekless_fs::source::EmptySource;
use seekless_fs::tree::NodeAttr;
use seekless_fs::{FileKind, FsError};
use seekless_layout::planner;
use seekless_model::{DeviceModel, preset};
use seekless_units::{ByteLen, SECTOR};

/// The maker's options of a volume.
#[derive(Debug)]
pub(crate) enum Making {
    /// UFS.
    Ffs(Box<MakeOptions>),
    /// ext.
    Ext(Box<BuildOptions>),
    /// FAT.
    Fat(Box<seekless_fat::MakeOptions>),
}

impl Making {
    /// The options of a format.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for options that the maker refuses, and for keys that the format does
    /// not have or lacks.
    pub(crate) fn of(format: &Format) -> Result<Self, FsError> {
        if format.kind.is_ext() {
            let options = ext_options(format)?;
            options.check()?;
            return Ok(Self::Ext(Box::new(options)));
        }
        if format.kind.is_fat() {
            let options = fat_options(format)?;
            options.validate()?;
            return Ok(Self::Fat(Box::new(options)));
        }
        let options = ffs_options(format)?;
        options.validate()?;
        Ok(Self::Ffs(Box::new(options)))
    }

    /// Whether the volume has a journal.
    pub(crate) fn has_journal(&self) -> bool {
        matches!(self, Self::Ext(options) if options.features.has_journal())
    }

    /// Inodes in each group of an ext volume.
    pub(crate) fn inodes_per_group(&self) -> Option<u32> {
        let Self::Ext(options) = self else { return None };
        Some(Builder::new(&empty(), options).ok()?.inodes_per_group())
    }

    /// Makes the volume on a device that reads as zeros.
    ///
    /// # Errors
    /// Errors of the maker and the device.
    pub(crate) fn make(&self, device: &dyn BlockDevice) -> Result<(), FsError> {
        match self {
            Self::Ffs(options) => seekless_ffs::make(device, options).map(drop),
            Self::Fat(options) => seekless_fat::make(device, options).map(drop),
            Self::Ext(options) => {
                let empty = empty();
                let builder = Builder::new(&empty, options)?;
                let plan = planner::plan(builder.demand(), &builder.space(), &[], 1)?;
                builder.write(&plan, device, &|_| {})
            }
        }
    }
}

/// A root directory and nothing in it.
fn empty() -> EmptySource {
    let (kind, times) = (FileKind::Directory, None);
    let (uid, gid, size, mtime) = (0, 0, 0, TODAY);
    EmptySource::new(NodeAttr { kind, perm: 0o755, uid, gid, size, mtime, times, flags: 0 })
}

fn small(size: Size) -> Result<u32, FsError> {
    let bytes = size.0;
    u32::try_from(bytes.get()).map_err(|_| FsError::Invalid(format!("{bytes} is too large")))
}

/// The keys of a table that are given, of those that it may not have.
fn refuse(kind: &str, given: &[(&str, bool)]) -> Result<(), FsError> {
    match given.iter().find(|(_, given)| *given) {
        Some((key, _)) => Err(FsError::Invalid(format!("{key} is not an option of {kind}"))),
        None => Ok(()),
    }
}

/// The block of UFS and ext.
fn block(format: &Format) -> Result<u32, FsError> {
    let lacks = || FsError::Invalid(format!("{} needs block", format.kind.name()));
    small(format.block.ok_or_else(lacks)?)
}

fn ffs_options(format: &Format) -> Result<MakeOptions, FsError> {
    let stray = [
        ("inode_size", format.inode_size.is_some()),
        ("journal", format.journal.is_some()),
        ("features", format.features.is_some()),
        ("cluster", format.cluster.is_some()),
        ("fats", format.fats.is_some()),
        ("sector", format.sector.is_some()),
    ];
    refuse("UFS", &stray)?;
    let version = match format.kind {
        FormatKind::Ufs1 => Version::Ufs1,
        _ => Version::Ufs2,
    };
    let fragment = format.fragment.ok_or_else(|| FsError::Invalid("UFS needs fragment".into()))?;
    let mut options = MakeOptions::new(version, format.size.0);
    options.block_size = block(format)?;
    options.fragment_size = small(fragment)?;
    options.blocks_per_group = format.blocks_per_group;
    options.bytes_per_inode = format.bytes_per_inode.map(small).transpose()?;
    if let Some(size) = format.avgfilesize {
        options.avgfilesize = small(size)?;
    }
    options.avgfpdir = format.avgfpdir.unwrap_or(options.avgfpdir);
    options.time = TODAY;
    Ok(options)
}

fn ext_options(format: &Format) -> Result<BuildOptions, FsError> {
    let stray = [
        ("fragment", format.fragment.is_some()),
        ("blocks_per_group", format.blocks_per_group.is_some()),
        ("reallocblks", format.reallocblks),
        ("avgfilesize", format.avgfilesize.is_some()),
        ("avgfpdir", format.avgfpdir.is_some()),
        ("journal", format.journal.is_some() && !format.kind.has_journal()),
        ("cluster", format.cluster.is_some()),
        ("fats", format.fats.is_some()),
        ("sector", format.sector.is_some()),
    ];
    refuse("this ext", &stray)?;
    let inode_size =
        format.inode_size.ok_or_else(|| FsError::Invalid("ext needs inode_size".into()))?;
    let base = match format.kind {
        FormatKind::Ext2 => Features::EXT2,
        FormatKind::Ext3 => Features::EXT3,
        _ => Features::EXT4,
    };
    let features = match &format.features {
        Some(list) => base.apply(list)?,
        None => base,
    };
    let defaults = BuildOptions::default();
    Ok(BuildOptions {
        size: Some(format.size.0),
        block_size: block(format)?,
        inode_size: small(inode_size)?,
        inode_ratio: format.bytes_per_inode.map(small).transpose()?,
        features,
        journal_size: format.journal.map(|size| size.0),
        made: Some(TODAY),
        ..defaults
    })
}

fn fat_options(format: &Format) -> Result<seekless_fat::MakeOptions, FsError> {
    let stray = [
        ("block", format.block.is_some()),
        ("fragment", format.fragment.is_some()),
        ("blocks_per_group", format.blocks_per_group.is_some()),
        ("bytes_per_inode", format.bytes_per_inode.is_some()),
        ("blocks", format.blocks.is_some()),
        ("reallocblks", format.reallocblks),
        ("avgfilesize", format.avgfilesize.is_some()),
        ("avgfpdir", format.avgfpdir.is_some()),
        ("inode_size", format.inode_size.is_some()),
        ("journal", format.journal.is_some()),
        ("features", format.features.is_some()),
    ];
    refuse("FAT", &stray)?;
    let width = match format.kind {
        FormatKind::Fat12 => FatWidth::Fat12,
        FormatKind::Fat16 => FatWidth::Fat16,
        _ => FatWidth::Fat32,
    };
    let cluster = format.cluster.ok_or_else(|| FsError::Invalid("FAT needs cluster".into()))?;
    let mut options = seekless_fat::MakeOptions::new(Some(width), format.size.0);
    if let Some(sector) = format.sector {
        options.sector_size = small(sector)?;
    }
    options.cluster = Some(small(cluster)? / options.sector_size.max(1));
    options.fats = format.fats.unwrap_or(options.fats);
    options.time = TODAY;
    Ok(options)
}

/// The part of a drive that a system has, with its write cache as asked for.
///
/// # Errors
/// [`FsError::Invalid`] for a volume that does not fit on it.
pub(crate) fn drive(system: &System) -> Result<Box<dyn DeviceModel>, FsError> {
    let wrong = |error: &dyn std::fmt::Display| FsError::Invalid(error.to_string());
    let mut spec = preset::spec(&system.drive.0).map_err(|error| wrong(&error))?;
    if let (Some(on), Some(hdd)) = (system.write_cache, &mut spec.hdd) {
        hdd.buffer.write_back = on;
    }
    if let (Some(on), Some(hdd)) = (system.replace_writes, &mut spec.hdd) {
        hdd.buffer.replace_writes = on;
    }
    let drive = spec.build();
    let offset = system.offset.map_or(ByteLen::ZERO, |offset| offset.0);
    let model = Partition { drive, first: offset.get() / SECTOR };
    let wanted = system.format.size.0;
    match model.capacity().map(|sectors| ByteLen::new(sectors.saturating_mul(SECTOR))) {
        Some(has) if has < wanted => Err(FsError::Invalid(format!(
            "a volume of {wanted} bytes does not fit on {} ({has} bytes{})",
            system.drive.0,
            if offset == ByteLen::ZERO { String::new() } else { format!(" behind {offset}") }
        ))),
        _ => Ok(Box::new(model)),
    }
}
