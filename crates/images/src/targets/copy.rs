//! Copying the surroundings of a file system on its disk unchanged.

use crate::error::Error;
use seekless_device::{BlockDevice, DeviceError};
use seekless_fs::FsError;
use seekless_partition::{Scheme, Table};
use seekless_units::{ByteLen, Lba, SECTOR};
use std::path::Path;

/// Where the space of the backup of a GUID partition table begins, in bytes: behind all partitions
/// and behind byte `end`, up to which other data are written. Without such a table, the end of the
/// disk. A disk that lacks both the backup and its beginning shows no partitions.
pub fn copy_of_table(disk: &dyn BlockDevice, end: u64) -> u64 {
    match Table::read(disk) {
        Ok(Some(Table { scheme: Scheme::Gpt, partitions, .. })) => {
            let ends = partitions.iter().map(|one| one.start.get().saturating_add(one.len.get()));
            ends.fold(end, u64::max)
        }
        _ => disk.len().get(),
    }
}

/// Copies bytes `from..to`, each at the start of a sector, to a device of zeros, and clones as
/// much of them as it can. Each device comes with its name.
///
/// # Errors
/// I/O errors, with the name of the device.
pub fn copy_range(
    old: (&dyn BlockDevice, &Path),
    new: (&dyn BlockDevice, &Path),
    from: u64,
    to: u64,
) -> Result<(), Error> {
    let cloned = new.0.reflink().filter(|_| from < to).and_then(|reflink| {
        let at = ByteLen::new(from);
        let Some(range) = old.0.host_range(at, to - from) else {
            reflink.no_file();
            return None;
        };
        reflink.clone_range(range, at, SECTOR)
    });
    match cloned {
        Some(cloned) => {
            read_and_write(old, new, from, from + cloned.start)?;
            read_and_write(old, new, from + cloned.end, to)
        }
        None => read_and_write(old, new, from, to),
    }
}

fn read_and_write(
    (old, old_name): (&dyn BlockDevice, &Path),
    (new, new_name): (&dyn BlockDevice, &Path),
    from: u64,
    to: u64,
) -> Result<(), Error> {
    let about =
        |error: DeviceError, name: &Path| Error::from(FsError::from(error)).about(name.display());
    let mut buf = vec![0; 1 << 20];
    let mut at = from;
    while at < to {
        let len = usize::try_from(to - at).unwrap_or(usize::MAX).min(buf.len());
        let (part, lba) = (&mut buf[..len], Lba::containing(ByteLen::new(at)));
        old.read(lba, part).map_err(|error| about(error, old_name))?;
        if part.iter().any(|&byte| byte != 0) {
            new.write(lba, part).map_err(|error| about(error, new_name))?;
        }
        at += len as u64;
    }
    Ok(())
}
