//! Tables written by sfdisk, read here and by sfdisk; damaged tables.

#[path = "../../fs/tests/shared/property.rs"]
mod property;
#[path = "../../fs/tests/shared/skip.rs"]
mod skip;

use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any};
use proptest::prop_oneof;
use seekless_device::{BlockDevice, FileDevice, MemoryDevice};
use seekless_partition::{Kind, Scheme, Table, TableError};
use seekless_units::ByteLen;
use serde_json::Value;
use std::cell::Cell;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const DISK: u64 = 64 << 20;

/// A file as a disk for sfdisk: by itself, or as a loop device with larger sectors.
struct Disk {
    file: PathBuf,
    device: Option<String>,
}

impl Disk {
    /// A disk partitioned by the script; `None` if that is impossible here.
    fn divided(dir: &Path, script: &str, sector: u64) -> Option<Self> {
        let file = dir.join("disk");
        File::create(&file).unwrap().set_len(DISK).unwrap();
        let mut disk = Self { file, device: None };
        if sector != 512 {
            let mut losetup = Command::new("losetup");
            losetup.args(["-f", "--show", "-b", &sector.to_string()]).arg(&disk.file);
            let output = losetup.output().ok().filter(|output| output.status.success());
            let Some(output) = output else {
                skip::skip("no loop device with large sectors");
                return None;
            };
            disk.device = Some(String::from_utf8(output.stdout).unwrap().trim().into());
        }
        let mut sfdisk = Command::new("sfdisk");
        sfdisk.args(["-q", "--no-reread", "--no-tell-kernel", disk.name()]);
        let Ok(mut child) = sfdisk.stdin(Stdio::piped()).stdout(Stdio::null()).spawn() else {
            skip::skip("sfdisk is not installed");
            return None;
        };
        child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success(), "{script}");
        Some(disk)
    }

    fn name(&self) -> &str {
        self.device.as_deref().or(self.file.to_str()).unwrap()
    }

    /// The partitions reported by sfdisk: number, first byte, bytes, type, name, identifier.
    fn judged(&self, sector: u64) -> Vec<(u32, u64, u64, String, String, String)> {
        let sfdisk = Command::new("sfdisk").args(["-J", self.name()]).output().unwrap();
        let said: Value = serde_json::from_slice(&sfdisk.stdout).unwrap();
        let partitions = said["partitiontable"]["partitions"].as_array().unwrap();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_lowercase();
        partitions
            .iter()
            .map(|one| {
                let number = one["node"].as_str().unwrap().strip_prefix(self.name()).unwrap();
                let number = number.trim_start_matches('p').parse().unwrap();
                let (start, size) = (one["start"].as_u64().unwrap(), one["size"].as_u64().unwrap());
                let (kind, name) = (text(&one["type"]), text(&one["name"]));
                (number, start * sector, size * sector, kind, name, text(&one["uuid"]))
            })
            // An extended partition only contains others.
            .filter(|(_, _, _, kind, _, _)| !["5", "f", "85"].contains(&kind.as_str()))
            .collect()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if let Some(device) = &self.device {
            let _ = Command::new("losetup").args(["-d", device]).status();
        }
    }
}

fn ours(table: &Table) -> Vec<(u32, u64, u64, String, String, String)> {
    let one = |partition: &seekless_partition::Partition| {
        let kind = match partition.kind {
            Kind::Gpt(guid) => guid.to_string(),
            Kind::Mbr(byte) => format!("{byte:x}"),
        };
        let id = partition.id.map(|id| id.to_string()).unwrap_or_default();
        let name = partition.name.to_lowercase();
        (partition.number, partition.start.get(), partition.len.get(), kind, name, id)
    };
    table.partitions.iter().map(one).collect()
}

const GPT: &str = "label: gpt\n\
    1 : size=4M, type=uefi, name=\"ESP\"\n\
    3 : size=8M, type=linux, name=\"Wurzel \u{e4}\u{1f4be}\"\n\
    14 : size=1M, type=21686148-6449-6E6F-744E-656564454649\n\
    : size=16M, type=4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709, name=root\n";

const MBR: &str = "label: dos\n\
    size=4M, type=c, bootable\n\
    size=40M, type=5\n\
    size=8M, type=83\n\
    size=4M, type=82\n\
    size=2M, type=83\n\
    size=3M, type=8e\n";

#[test]
fn tables_are_read_as_sfdisk_reads_them() {
    let dir = tempfile::tempdir().unwrap();
    for (script, sector, scheme) in
        [(GPT, 512, Scheme::Gpt), (GPT, 4096, Scheme::Gpt), (MBR, 512, Scheme::Mbr)]
    {
        let Some(disk) = Disk::divided(dir.path(), script, sector) else { return };
        let table = Table::read(&FileDevice::open(&disk.file).unwrap()).unwrap().unwrap();
        assert_eq!((table.scheme, table.is_backup), (scheme, false));
        assert_eq!(ours(&table), disk.judged(sector), "{script} in sectors of {sector}");
        assert!(table.partitions.len() >= 4);
    }
}

#[test]
fn types_have_the_names_that_sfdisk_gives_them() {
    for label in ["gpt", "dos"] {
        let Ok(output) = Command::new("sfdisk").args(["--list-types", "--label", label]).output()
        else {
            return skip::skip("sfdisk is not installed");
        };
        let said = String::from_utf8(output.stdout).unwrap();
        let mut known = 0;
        for line in said.lines() {
            let Some((id, name)) = line.trim().split_once(char::is_whitespace) else { continue };
            let kind = match label {
                "gpt" => id.to_lowercase().parse().ok().map(Kind::Gpt),
                _ => u8::from_str_radix(id, 16).ok().map(Kind::Mbr),
            };
            if let Some(ours) = kind.and_then(Kind::name) {
                assert_eq!(ours, name.trim(), "{id}");
                known += 1;
            }
        }
        assert!(known >= 11, "{label}: {known} types are known to both");
    }
}

#[test]
fn the_copy_at_the_end_stands_in_for_a_damaged_table() {
    let dir = tempfile::tempdir().unwrap();
    let Some(disk) = Disk::divided(dir.path(), GPT, 512) else { return };
    let whole = std::fs::read(&disk.file).unwrap();
    let wanted = Table::read(&MemoryDevice::new(whole.clone())).unwrap().unwrap();
    // The header's sum; an entry; the header gone.
    for (at, len) in [(512 + 16, 1), (1024 + 60, 3), (512, 512)] {
        let mut damaged = whole.clone();
        damaged[at..at + len].iter_mut().for_each(|byte| *byte ^= 0x55);
        let table = Table::read(&MemoryDevice::new(damaged.clone())).unwrap().unwrap();
        assert!(table.is_backup, "at {at}");
        assert_eq!(table.partitions, wanted.partitions);
        let end = damaged.len() - 512 + 16;
        damaged[end] ^= 1;
        let both = Table::read(&MemoryDevice::new(damaged));
        // Also without any header: the protective record is not a table of its own.
        assert!(matches!(both, Err(TableError::Gpt { at: 512, .. })), "{both:?}");
    }
}

/// Remains of an old table are ignored if the boot record has partitions of its own (sfdisk and
/// libblkid).
#[test]
fn a_table_that_the_boot_record_does_not_protect_is_none() {
    let dir = tempfile::tempdir().unwrap();
    let Some(disk) = Disk::divided(dir.path(), GPT, 512) else { return };
    let old = std::fs::read(&disk.file).unwrap();
    let Some(disk) = Disk::divided(dir.path(), MBR, 512) else { return };
    let mut bytes = std::fs::read(&disk.file).unwrap();
    let wanted = Table::read(&MemoryDevice::new(bytes.clone())).unwrap().unwrap();
    let end = bytes.len() - (33 << 9);
    for (from, to) in [(end, bytes.len()), (512, 34 << 9)] {
        bytes[from..to].copy_from_slice(&old[from..to]);
        let table = Table::read(&MemoryDevice::new(bytes.clone())).unwrap().unwrap();
        assert_eq!((table.scheme, &table.partitions), (Scheme::Mbr, &wanted.partitions));
    }
    std::fs::write(&disk.file, &bytes).unwrap();
    assert_eq!(ours(&wanted).len(), disk.judged(512).len());
    // Without the boot record, the table is used.
    bytes[..512].fill(0);
    let table = Table::read(&MemoryDevice::new(bytes)).unwrap().unwrap();
    assert_eq!(table.scheme, Scheme::Gpt);
}

#[test]
fn a_disk_cut_short_and_one_that_goes_in_a_circle_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let Some(disk) = Disk::divided(dir.path(), MBR, 512) else { return };
    let whole = std::fs::read(&disk.file).unwrap();
    let cut = Table::read(&MemoryDevice::new(whole[..20 << 20].to_vec()));
    assert!(matches!(cut, Err(TableError::Outside { .. } | TableError::Mbr { .. })), "{cut:?}");
    // The second entry of the last boot record with one leads to the first again.
    let mut circle = whole;
    let extended = u32::from_le_bytes(circle[446 + 16 + 8..][..4].try_into().unwrap()) as usize;
    let first = extended * 512 + 446 + 16;
    let entry = [0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0];
    circle[first..first + 16].copy_from_slice(&entry);
    let found = Table::read(&MemoryDevice::new(circle));
    assert!(matches!(found, Err(TableError::Mbr { .. })), "{found:?}");
}

#[test]
fn what_is_no_disk_has_no_table() {
    for len in [0, 1, 511, 512, 513, 4096, 10_000] {
        assert!(Table::read(&MemoryDevice::new(vec![0; len])).unwrap().is_none());
    }
}

/// Whatever overwrites a table, reading ends, and the returned partitions are on the disk.
/// Checksums are corrected, so that the fields behind them are tested.
#[test]
fn hostile_tables_are_read_or_refused() {
    let tables = [Cell::new(0), Cell::new(0)];
    property::for_all(20_000, prop_oneof![overwrites(true), overwrites(false)], |input| {
        let (is_gpt, overwrites) = input;
        let mut bytes = vec![0; 64 << 10];
        if is_gpt {
            lay_gpt(&mut bytes)
        } else {
            lay_mbr(&mut bytes)
        }
        for (at, byte) in overwrites {
            bytes[at] = byte;
        }
        if is_gpt {
            right_sums(&mut bytes);
        }
        let disk = MemoryDevice::new(bytes);
        if let Ok(Some(table)) = Table::read(&disk) {
            tables[usize::from(is_gpt)].update(|count| count + 1);
            for partition in table.partitions {
                let end = partition.start.get().checked_add(partition.len.get());
                assert!(end.is_some_and(|end| ByteLen::new(end) <= disk.len()), "{partition:?}");
            }
        }
    });
    assert!(tables.iter().all(|count| count.get() > 1000), "most were refused: {tables:?}");
}

/// Whether the table is a GPT, and bytes of it with new values: in the record, the header and the
/// entries; the rest is ignored.
fn overwrites(is_gpt: bool) -> impl Strategy<Value = (bool, Vec<(usize, u8)>)> {
    let (header, entries): (usize, usize) =
        if is_gpt { (512, 1024) } else { (512 + 446 - 8, 1024 + 446) };
    let at = prop_oneof![446..512usize, header..header + 96, entries..entries + 64];
    (Just(is_gpt), vec((at, any::<u8>()), 1..=8))
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// A table with one partition, its entries in the third sector.
fn lay_gpt(bytes: &mut [u8]) {
    put(bytes, 510, &[0x55, 0xaa]);
    put(bytes, 512, b"EFI PART\0\0\x01\0\x5c\0\0\0");
    for (at, value) in [(24, 1u64), (32, 127), (40, 3), (48, 100), (72, 2)] {
        put(bytes, 512 + at, &value.to_le_bytes());
    }
    put(bytes, 512 + 80, &4u32.to_le_bytes());
    put(bytes, 512 + 84, &128u32.to_le_bytes());
    put(bytes, 1024, &[7; 32]);
    put(bytes, 1024 + 32, &10u64.to_le_bytes());
    put(bytes, 1024 + 40, &20u64.to_le_bytes());
}

fn right_sums(bytes: &mut [u8]) {
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let count = u32::from_le_bytes(bytes[512 + 80..][..4].try_into().unwrap());
    let from = number(512 + 72).saturating_mul(512);
    let end = from.saturating_add(u64::from(count) * 128);
    let range = usize::try_from(from).ok().zip(usize::try_from(end).ok());
    if let Some(entries) = range.and_then(|(from, end)| bytes.get(from..end)) {
        let sum = crc32(entries);
        put(bytes, 512 + 88, &sum.to_le_bytes());
    }
    put(bytes, 512 + 16, &[0; 4]);
    let sum = crc32(&bytes[512..512 + 92]);
    put(bytes, 512 + 16, &sum.to_le_bytes());
}

/// CRC-32 (ISO-HDLC), bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg())
        })
    })
}

/// A table with a logical partition.
fn lay_mbr(bytes: &mut [u8]) {
    let entry = |kind: u8, start: u32, len: u32| {
        [&[0, 0, 0, 0, kind, 0, 0, 0][..], &start.to_le_bytes(), &len.to_le_bytes()].concat()
    };
    put(bytes, 446, &entry(0x83, 4, 8));
    put(bytes, 462, &entry(5, 1, 100));
    put(bytes, 510, &[0x55, 0xaa]);
    put(bytes, 512 + 446, &entry(0x83, 12, 8));
    put(bytes, 512 + 462, &entry(5, 1, 20));
    put(bytes, 1022, &[0x55, 0xaa]);
    put(bytes, 1024 + 446, &entry(0x83, 22, 8));
    put(bytes, 1534, &[0x55, 0xaa]);
}
