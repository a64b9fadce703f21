//! GUID partition tables (UEFI Specification, 5.3), by the crate `gptman`.

use crate::{Guid, Kind, Partition, Scheme, Table, TableError, add};
use gptman::{GPTHeader, GPTPartitionEntry};
use seekless_device::BlockDevice;
use seekless_units::ByteLen;
use std::io::{self, Read, Seek, SeekFrom};

/// Sector sizes with which tables are searched.
const SECTORS: [u64; 2] = [512, 4096];

/// Maximum number of entries read: 128 is the default, and Linux supports at most 256 minors.
const ENTRIES_MAX: u32 = 1024;

/// The size of an entry in bytes; the specification allows multiples of it, which no tool writes.
const ENTRY: u32 = 128;

const SIGNATURE: &[u8; 8] = b"EFI PART";

pub(crate) fn read(disk: &dyn BlockDevice) -> Result<Option<Table>, TableError> {
    for sector in SECTORS {
        let first = match copy(disk, sector, sector) {
            Ok(None) => None,
            Ok(Some(entries)) => return table(disk, sector, entries, false).map(Some),
            Err(why) => Some(why),
        };
        // A disk that has grown has its backup elsewhere, at an offset stored in the first copy; if
        // that is damaged, the end of the disk is the only place to search.
        let last = (disk.len().get() / sector).saturating_sub(1) * sector;
        match (copy(disk, sector, last), first) {
            (Ok(Some(entries)), _) => return table(disk, sector, entries, true).map(Some),
            (_, Some(why)) => return Err(TableError::Gpt { at: sector, why }),
            (Err(_) | Ok(None), None) => {}
        }
    }
    Ok(None)
}

/// The entries of the copy whose header begins at byte `at`; `None` without a header.
fn copy(
    disk: &dyn BlockDevice,
    sector: u64,
    at: u64,
) -> Result<Option<Vec<GPTPartitionEntry>>, String> {
    let mut signature = [0; 8];
    if at == 0 || disk.read_bytes(ByteLen::new(at), &mut signature).is_err() {
        return Ok(None);
    }
    if &signature != SIGNATURE {
        return Ok(None);
    }
    let mut reader = Reader { disk, at };
    let header = GPTHeader::read_from(&mut reader).map_err(|error| error.to_string())?;
    let (count, size) = (header.number_of_partition_entries, header.size_of_partition_entry);
    if count > ENTRIES_MAX || size != ENTRY {
        return Err(format!("{count} entries of {size} bytes are not supported"));
    }
    let bytes = u64::from(count) * u64::from(size);
    let first = header.partition_entry_lba.checked_mul(sector);
    if first.and_then(|first| first.checked_add(bytes)).is_none_or(|end| end > disk.len().get()) {
        let lba = header.partition_entry_lba;
        return Err(format!("its entries (sector {lba}) are not on the disk"));
    }
    header.read_partitions(&mut reader, sector).map(Some).map_err(|error| error.to_string())
}

fn table(
    disk: &dyn BlockDevice,
    sector: u64,
    entries: Vec<GPTPartitionEntry>,
    is_backup: bool,
) -> Result<Table, TableError> {
    let mut partitions = Vec::new();
    for (number, entry) in (1..).zip(entries).filter(|(_, entry)| entry.is_used()) {
        let (first, last) = (entry.starting_lba, entry.ending_lba);
        // Values beyond 64 bits are on no disk.
        let start = first.saturating_mul(sector);
        let sectors = last.checked_add(1).and_then(|end| end.checked_sub(first));
        let Some(sectors) = sectors.filter(|sectors| *sectors > 0) else {
            let why = format!("partition {number} ends (sector {last}) before it begins ({first})");
            return Err(TableError::Gpt { at: sector, why });
        };
        let partition = Partition {
            number,
            start: ByteLen::new(start),
            len: ByteLen::new(sectors.saturating_mul(sector)),
            kind: Kind::Gpt(Guid(entry.partition_type_guid)),
            name: entry.partition_name.as_str().into(),
            id: Some(Guid(entry.unique_partition_guid)),
        };
        add(&mut partitions, partition, disk)?;
    }
    Ok(Table { scheme: Scheme::Gpt, is_backup, partitions })
}

/// A device in the form required by the library.
struct Reader<'a> {
    disk: &'a dyn BlockDevice,
    at: u64,
}

impl Read for Reader<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let left = self.disk.len().get().saturating_sub(self.at);
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
        let part = &mut buf[..len];
        self.disk.read_bytes(ByteLen::new(self.at), part).map_err(io::Error::other)?;
        self.at += len as u64;
        Ok(len)
    }
}

impl Seek for Reader<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.disk.len().get().checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}
