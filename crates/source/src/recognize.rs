//! Recognition of files that are no archives, to name them in messages.

use seekless_device::BlockDevice;
use seekless_fs::format::{Format, Probe};
use seekless_fs::term::{Term, Text};
use seekless_units::ByteLen;

/// Magic numbers at fixed offsets. Sources: `libmagic` (file(1)) and the formats' own documents;
/// those of Linux file systems are in `include/uapi/linux/magic.h`.
const MARKS: &[(u64, &[u8], &str)] = &[
    (
        1024,
        b"\xE2\xE1\xF5\xE0",
        "an EROFS image (unpack it with fsck.erofs --preserve --extract=DIR)",
    ),
    (0x1_0040, b"_BHRfS_M", "a btrfs image"),
    (0, b"XFSB", "an XFS image"),
    (0, b"hsqs", SQUASHFS),
    (0, b"sqsh", SQUASHFS),
    (1024, b"\x10\x20\xF5\xF2", "an F2FS image"),
    (0x1018, b"\xC6\x85\x73\xF6\x4E\x1A\x45\xCA", "a bcachefs image"),
    (0x8001, b"CD001", "an ISO 9660 image"),
    (0x8001, b"BEA01", "a UDF image"),
    (0x8000, b"JFS1", "a JFS image"),
    (0x1_0034, b"ReIsEr", "a ReiserFS image"),
    (0, b"\x45\x3D\xCD\x28", "a cramfs image"),
    (0, b"-rom1fs-", "a romfs image"),
    (0x36, b"FAT1", "a FAT image"),
    (0x52, b"FAT32", "a FAT image"),
    (3, b"EXFAT   ", "an exFAT image"),
    (3, b"NTFS    ", "an NTFS image"),
    (4086, b"SWAPSPACE2", "swap space"),
    (0, b"LUKS\xBA\xBE", "an encrypted volume (LUKS)"),
    (0x218, b"LVM2 001", "a physical volume of LVM"),
    (4096, b"\xFC\x4E\x2B\xA9", "a member of a RAID array (md)"),
    (0, b"\xFC\x4E\x2B\xA9", "a member of a RAID array (md)"),
    (512, b"EFI PART", "a disk with a partition table (GPT)"),
    (4096, b"EFI PART", "a disk with a partition table (GPT)"),
    (0, b"QFI\xFB", "a disk image of QEMU (qcow2)"),
    (0, b"KDMV", "a disk image of VMware (VMDK)"),
    (0, b"vhdxfile", "a disk image of Hyper-V (VHDX)"),
    (0, b"conectix", "a disk image (VHD)"),
    (0x40, b"\x7F\x10\xDA\xBE", "a disk image of VirtualBox (VDI)"),
    (0, b"070701", "a cpio archive"),
    (0, b"070702", "a cpio archive"),
    (0, b"070707", "a cpio archive"),
    (0, b"\xC7\x71", "a cpio archive"),
    (0, b"PK\x03\x04", "a zip archive"),
    (0, b"7z\xBC\xAF\x27\x1C", "a 7z archive"),
    (0, b"Rar!\x1A\x07", "a RAR archive"),
    (0, b"!<arch>\n", "an ar archive (a Debian package is one)"),
    (0, b"\xED\xAB\xEE\xDB", "an RPM package"),
    (0, b"\x7FELF", "a program (ELF)"),
];

const SQUASHFS: &str = "a squashfs image";

/// The command that makes an archive of a squashfs image.
const OF_SQUASHFS: &str = "sqfs2tar --root-becomes . FILE";

/// Offsets of the table and of the signature in a master boot record.
const MBR_TABLE: usize = 446;
const MBR_MARK: usize = 510;

/// Names the format of a file; `None` if it is not recognized.
pub(crate) fn what(device: &dyn BlockDevice, formats: &[Format]) -> Option<Text> {
    if let Some(damaged) = image(device, formats) {
        return Some(damaged.into());
    }
    let found = MARKS.iter().find(|(at, mark, _)| {
        let mut bytes = vec![0; mark.len()];
        device.read_bytes(ByteLen::new(*at), &mut bytes).is_ok() && bytes == *mark
    });
    match found {
        Some((_, _, SQUASHFS)) => {
            let text = Text::from(SQUASHFS).then(" (build from it with ").then(OF_SQUASHFS);
            return Some(text.then(" | ").then(Term::BuildOfStream).then(")"));
        }
        Some((_, _, name)) => return Some((*name).into()),
        None => {}
    }
    let mut first = [0; 512];
    let has_partitions =
        device.read_bytes(ByteLen::ZERO, &mut first).is_ok() && is_mbr(&first, device.len().get());
    has_partitions.then(|| "a disk with a partition table (MBR)".into())
}

/// Names the format of a file or device that is no image of a supported format; `None` if it is not
/// recognized.
#[must_use]
pub fn what_it_seems(device: &dyn BlockDevice) -> Option<Text> {
    what(device, &[])
}

/// Names an image of a supported format that is damaged, or in a place where none is accepted.
fn image(device: &dyn BlockDevice, formats: &[Format]) -> Option<String> {
    let probes = || formats.iter().map(|format| (format.name, (format.probe)(device)));
    let sound = probes().find(|(_, probe)| *probe == Probe::Yes);
    if let Some((name, _)) = sound {
        return Some(format!("an image ({name}), which must be an uncompressed file"));
    }
    probes().find_map(|(name, probe)| match probe {
        Probe::Damaged(why) => Some(format!("a damaged image ({name}: {why})")),
        Probe::No | Probe::Yes => None,
    })
}

/// Whether a sector is a master boot record with at least one plausible partition: marked active or
/// not, of a known type, within the disk.
fn is_mbr(sector: &[u8; 512], len: u64) -> bool {
    let word = |entry: &[u8], at: usize| {
        u64::from(u32::from_le_bytes([entry[at], entry[at + 1], entry[at + 2], entry[at + 3]]))
    };
    let mut used = 0;
    for entry in sector[MBR_TABLE..MBR_MARK].chunks_exact(16) {
        if entry[0] & 0x7F != 0 {
            return false;
        }
        if entry[4] != 0 && word(entry, 8) > 0 && word(entry, 8) < len.div_ceil(512).max(1) {
            used += 1;
        }
    }
    sector[MBR_MARK..] == [0x55, 0xAA] && used > 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use seekless_device::MemoryDevice;

    fn put(bytes: &mut [u8], at: usize, what: &[u8]) {
        bytes[at..at + what.len()].copy_from_slice(what);
    }

    #[test]
    fn marks_are_found_at_their_places() {
        for &(at, mark, name) in MARKS {
            let mut bytes = vec![0; 1 << 20];
            put(&mut bytes, at as usize, mark);
            let text = what(&MemoryDevice::new(bytes), &[]).expect(name).to_string();
            assert_eq!(text.split(" (build from").next(), Some(name));
        }
        let mut bytes = vec![0; 1 << 20];
        assert_eq!(what(&MemoryDevice::new(bytes.clone()), &[]), None);
        put(&mut bytes, 510, &[0x55, 0xAA]);
        assert_eq!(what(&MemoryDevice::new(bytes.clone()), &[]), None, "no partitions");
        put(&mut bytes, 446, &[0x80, 0, 0, 0, 0x83, 0, 0, 0, 8, 0, 0, 0, 0, 4, 0, 0]);
        assert!(
            what(&MemoryDevice::new(bytes), &[])
                .is_some_and(|what| what.to_string().contains("MBR"))
        );
    }
}
