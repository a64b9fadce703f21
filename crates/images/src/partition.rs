//! The selected part of a disk image.

use crate::FORMATS;
use crate::error::{Error, ErrorKind};
use crate::place::Place;
use seekless_device::{BlockDevice, DeviceError, Window};
use seekless_fs::format::OpenOptions;
use seekless_fs::term::{Term, Text};
use seekless_fs::{FsError, Inspect};
use seekless_partition::{Partition, Scheme, SelectError, Table, TableError};
use seekless_units::{ByteLen, Lba, SECTOR, format_size};
use std::path::Path;
use std::sync::Arc;

impl From<TableError> for Error {
    fn from(error: TableError) -> Self {
        match error {
            TableError::Device(error) => FsError::from(error).into(),
            other => Self::new(ErrorKind::Corrupt, other.to_string()),
        }
    }
}

/// Whether a disk has a GUID partition table.
pub fn is_gpt(disk: &dyn BlockDevice) -> bool {
    matches!(Table::read(disk), Ok(Some(Table { scheme: Scheme::Gpt, .. })))
}

/// The bytes of a disk that contain the file system: start and length.
///
/// # Errors
/// [`ErrorKind::Usage`] for a missing partition or offset, [`ErrorKind::Unsupported`] for a disk
/// without a table, [`ErrorKind::Corrupt`] for a damaged one.
pub fn range(
    path: &Path,
    disk: &Arc<dyn BlockDevice>,
    place: &Place,
) -> Result<(ByteLen, ByteLen), Error> {
    let len = disk.len();
    if place.offset.is_some() && place.partition.is_some() {
        let both = Text::from(Term::Partition).then(" and ").then(Term::Offset);
        return Err(Error::usage(both.then(": one of them is the place of the file system")));
    }
    if let Some(offset) = place.offset {
        if offset.get() % SECTOR != 0 {
            return Err(Error::usage(Text::from(Term::Offset).then(" must be a multiple of 512")));
        }
        let left = len.get().checked_sub(offset.get());
        let outside = || {
            Error::usage(Text::from(Term::Offset).then(" is past its end")).about(path.display())
        };
        return Ok((offset, ByteLen::new(left.ok_or_else(outside)?)));
    }
    let Some(wanted) = &place.partition else { return Ok((ByteLen::ZERO, len)) };
    let table = Table::read(disk.as_ref())
        .map_err(|error| Error::from(error).about(path.display()))?
        .ok_or_else(|| {
            let hint = Text::from("leave ").then(Term::Partition).then(" out, or give ");
            let error = Error::new(ErrorKind::Unsupported, "has no partition table");
            error.about(path.display()).hint(hint.then(Term::Offset))
        })?;
    if table.is_backup {
        tracing::warn!(
            "{}: the first copy of the partition table is damaged; the one at the end is used",
            path.display()
        );
    }
    let chosen = match table.select(wanted) {
        Err(SelectError::None { .. }) => labelled(disk, &table, wanted),
        other => other,
    };
    chosen.map(|partition| (partition.start, partition.len)).map_err(|error| {
        let message = format!("{}: {error}", path.display());
        Error::usage(message).hint(format!("there are {}", list(&table)))
    })
}

/// The partition whose file system has a label.
fn labelled<'a>(
    disk: &Arc<dyn BlockDevice>,
    table: &'a Table,
    wanted: &str,
) -> Result<&'a Partition, SelectError> {
    let has_it = |partition: &&Partition| {
        file_system(disk, partition)
            .is_some_and(|image| image.geometry().label == wanted.as_bytes())
    };
    let found: Vec<&Partition> = table.partitions.iter().filter(has_it).collect();
    match found[..] {
        [one] => Ok(one),
        [] => Err(SelectError::None { wanted: wanted.into() }),
        _ => {
            let numbers = found.iter().map(|partition| partition.number).collect();
            Err(SelectError::Several { wanted: wanted.into(), numbers })
        }
    }
}

/// The file system in a partition, if it can be read.
pub fn file_system(disk: &Arc<dyn BlockDevice>, partition: &Partition) -> Option<Arc<dyn Inspect>> {
    let window = window(disk, partition.start, partition.len).ok()?;
    let options = OpenOptions { skip_journal: true, ..OpenOptions::default() };
    seekless_fs::format::open(FORMATS, window, options).ok()
}

fn window(
    disk: &Arc<dyn BlockDevice>,
    start: ByteLen,
    len: ByteLen,
) -> Result<Arc<dyn BlockDevice>, DeviceError> {
    debug_assert!(start.get().is_multiple_of(SECTOR), "a part begins a sector");
    let start = Lba::containing(start);
    Ok(Arc::new(Window::new(disk.clone(), start, len)?))
}

/// The selected part of a disk: all of it, or a window on it.
///
/// # Errors
/// As [`range`].
pub fn part(
    path: &Path,
    disk: Arc<dyn BlockDevice>,
    place: &Place,
) -> Result<Arc<dyn BlockDevice>, Error> {
    if !place.is_part() {
        return Ok(disk);
    }
    let (start, len) = range(path, &disk, place)?;
    window(&disk, start, len)
        .map_err(|error| Error::from(FsError::from(error)).about(path.display()))
}

/// The partitions in a line: `1 (EFI System, 4M), 2 (...)`.
fn list(table: &Table) -> String {
    let one = |partition: &Partition| {
        let name = if partition.name.is_empty() {
            String::new()
        } else {
            format!("{:?}, ", partition.name)
        };
        let (number, kind, len) = (partition.number, partition.kind, format_size(partition.len));
        format!("{number} ({name}{kind}, {len})")
    };
    match table.partitions.is_empty() {
        true => "no partitions".into(),
        false => table.partitions.iter().map(one).collect::<Vec<_>>().join(", "),
    }
}

/// The error that a partition must be chosen, if the device has a partition table.
pub(crate) fn hint(path: &Path, device: &dyn BlockDevice) -> Option<Error> {
    let table = Table::read(device).ok()??;
    let message = format!("{}: is a disk with a partition table", path.display());
    let failure = Error::new(ErrorKind::Unsupported, message);
    let hint = Text::from("choose one with ").then(Term::Partition);
    Some(failure.hint(hint.then(format!(": {}", list(&table)))))
}
