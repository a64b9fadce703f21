//! Empty volumes, and the drives they are on.

use super::TODAY;
use super::partition::Partition;
use crate::experiment::{Format, System};
use crate::quantity::Size;
use seekless_formats::{Argument, EmptyVolume, Maker};
use seekless_fs::FsError;
use seekless_model::{DeviceModel, preset};
use seekless_units::{ByteLen, SECTOR};

/// The maker of a format's empty volume.
///
/// # Errors
/// [`FsError::Invalid`] for options that the maker refuses, and for keys that the format does not
/// have or lacks.
pub(crate) fn maker(format: &Format) -> Result<Box<dyn Maker>, FsError> {
    let (size, arguments) = (format.size.0, arguments(format));
    (format.kind.known().maker)(
        format.kind.version(),
        &EmptyVolume { size, time: TODAY, arguments },
    )
}

/// The keys of a format that are given, without those that its mounts have.
fn arguments(format: &Format) -> Vec<Argument> {
    let bytes = |size: Option<Size>| size.map(|size| size.0.to_string());
    let count = |count: Option<u32>| count.map(|count| count.to_string());
    let keys = [
        ("block", bytes(format.block)),
        ("fragment", bytes(format.fragment)),
        ("blocks_per_group", count(format.blocks_per_group)),
        ("bytes_per_inode", bytes(format.bytes_per_inode)),
        ("blocks", format.blocks.as_ref().map(|name| name.0.clone())),
        ("reallocblks", format.reallocblks.then(String::new)),
        ("avgfilesize", bytes(format.avgfilesize)),
        ("avgfpdir", count(format.avgfpdir)),
        ("inode_size", bytes(format.inode_size)),
        ("journal", bytes(format.journal)),
        ("features", format.features.clone()),
        ("cluster", bytes(format.cluster)),
        ("fats", count(format.fats)),
        ("sector", bytes(format.sector)),
    ];
    let is_of_mounts = |name| format.kind.known().mount_parameter(name).is_some();
    let given = keys.into_iter().filter(|(name, _)| !is_of_mounts(name));
    given.filter_map(|(name, value)| Some(Argument::new(name, Some(&value?)))).collect()
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
