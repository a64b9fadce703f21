//! Types of partitions.

use sha2::{Digest, Sha256};
use std::fmt;
use std::str::FromStr;

/// A GUID in on-disk order: its first three parts are little-endian.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Guid(pub [u8; 16]);

/// The order of the bytes in text.
const ORDER: [usize; 16] = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];

impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, at) in ORDER.into_iter().enumerate() {
            if matches!(place, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{:02x}", self.0[at])?;
        }
        Ok(())
    }
}

impl fmt::Debug for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Guid {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let sound = text.len() == 36
            && text.bytes().enumerate().all(|(at, byte)| match at {
                8 | 13 | 18 | 23 => byte == b'-',
                _ => byte.is_ascii_hexdigit(),
            });
        if !sound {
            return Err(());
        }
        let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b'-').collect();
        let mut guid = [0; 16];
        for (pair, at) in digits.chunks(2).zip(ORDER) {
            let pair = std::str::from_utf8(pair).map_err(|_| ())?;
            guid[at] = u8::from_str_radix(pair, 16).map_err(|_| ())?;
        }
        Ok(Self(guid))
    }
}

impl Guid {
    /// A GUID derived from a purpose (`what`) and from `bytes` (RFC 9562, version 8).
    #[must_use]
    pub fn derived(what: &str, bytes: &[u8]) -> Self {
        let hash = Sha256::new().chain_update("seekless gpt ").chain_update(what);
        let hash = hash.chain_update(bytes).finalize();
        let mut guid = [0; 16];
        guid.copy_from_slice(&hash[..16]);
        // The third part is stored with its low byte first.
        guid[7] = guid[7] & 0x0F | 0x80;
        guid[8] = guid[8] & 0x3F | 0x80;
        Self(guid)
    }

    /// The type of that name in a GUID partition table, as in sfdisk(8).
    #[must_use]
    pub fn of_type(name: &str) -> Option<Self> {
        GPT.iter().find(|(_, known)| *known == name).and_then(|(guid, _)| guid.parse().ok())
    }
}

/// The type of a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The GUID of its entry.
    Gpt(Guid),
    /// The byte of its entry.
    Mbr(u8),
}

/// Types in GUID partition tables, as named by sfdisk(8); most are those of the Discoverable
/// Partitions Specification.
const GPT: [(&str, &str); 46] = [
    ("c12a7328-f81f-11d2-ba4b-00a0c93ec93b", "EFI System"),
    ("21686148-6449-6e6f-744e-656564454649", "BIOS boot"),
    ("0fc63daf-8483-4772-8e79-3d69d8477de4", "Linux filesystem"),
    ("0657fd6d-a4ab-43c4-84e5-0933c84b4f4f", "Linux swap"),
    ("e6d6d379-f507-44c2-a23c-238f2a3df928", "Linux LVM"),
    ("933ac7e1-2eb4-4f13-b844-0e14e2aef915", "Linux home"),
    ("bc13c2ff-59e6-4262-a352-b275fd6f7172", "Linux extended boot"),
    ("3b8f8425-20e0-4f3b-907f-1a25a76f98e8", "Linux server data"),
    ("4d21b016-b534-45c2-a9fb-5c16e091fd2d", "Linux variable data"),
    ("7ec6f557-3bc5-4aca-b293-16ef5df639d1", "Linux temporary data"),
    ("773f91ef-66d4-49b5-bd83-d683bf40ad16", "Linux user's home"),
    ("d13c5d3b-b5d1-422a-b29f-9454fdc89d76", "Linux root verity (x86)"),
    ("5996fc05-109c-48de-808b-23fa0830b676", "Linux root verity sign. (x86)"),
    ("2c7357ed-ebd2-46d9-aec1-23d437ec2bf5", "Linux root verity (x86-64)"),
    ("41092b05-9fc8-4523-994f-2def0408b176", "Linux root verity sign. (x86-64)"),
    ("7386cdf2-203c-47a9-a498-f2ecce45a2d6", "Linux root verity (ARM)"),
    ("42b0455f-eb11-491d-98d3-56145ba9d037", "Linux root verity sign. (ARM)"),
    ("df3300ce-d69f-4c92-978c-9bfb0f38d820", "Linux root verity (ARM-64)"),
    ("6db69de6-29f4-4758-a7a5-962190f00ce3", "Linux root verity sign. (ARM-64)"),
    ("b6ed5582-440b-4209-b8da-5ff7c419ea3d", "Linux root verity (RISC-V-64)"),
    ("efe0f087-ea8d-4469-821a-4c2a96a8386a", "Linux root verity sign. (RISC-V-64)"),
    ("75250d76-8cc6-458e-bd66-bd47cc81a812", "Linux /usr (x86)"),
    ("8f461b0d-14ee-4e81-9aa9-049b6fb97abd", "Linux /usr verity (x86)"),
    ("974a71c0-de41-43c3-be5d-5c5ccd1ad2c0", "Linux /usr verity sign. (x86)"),
    ("8484680c-9521-48c6-9c11-b0720656f69e", "Linux /usr (x86-64)"),
    ("77ff5f63-e7b6-4633-acf4-1565b864c0e6", "Linux /usr verity (x86-64)"),
    ("e7bb33fb-06cf-4e81-8273-e543b413e2e2", "Linux /usr verity sign. (x86-64)"),
    ("7d0359a3-02b3-4f0a-865c-654403e70625", "Linux /usr (ARM)"),
    ("c215d751-7bcd-4649-be90-6627490a4c05", "Linux /usr verity (ARM)"),
    ("d7ff812f-37d1-4902-a810-d76ba57b975a", "Linux /usr verity sign. (ARM)"),
    ("b0e01050-ee5f-4390-949a-9101b17104e9", "Linux /usr (ARM-64)"),
    ("6e11a4e7-fbca-4ded-b9e9-e1a512bb664e", "Linux /usr verity (ARM-64)"),
    ("c23ce4ff-44bd-4b00-b2d4-b41b3419e02a", "Linux /usr verity sign. (ARM-64)"),
    ("beaec34b-8442-439b-a40b-984381ed097d", "Linux /usr (RISC-V-64)"),
    ("8f1056be-9b05-47c4-81d6-be53128e5b54", "Linux /usr verity (RISC-V-64)"),
    ("d2f9000a-7a18-453f-b5cd-4d32f77a7b32", "Linux /usr verity sign. (RISC-V-64)"),
    ("44479540-f297-41b2-9af7-d131d5f0458a", "Linux root (x86)"),
    ("4f68bce3-e8cd-4db1-96e7-fbcaf984b709", "Linux root (x86-64)"),
    ("69dad710-2ce4-4e3c-b16c-21a1d49abed3", "Linux root (ARM)"),
    ("b921b045-1df0-41c3-af44-4c6f280d3fae", "Linux root (ARM-64)"),
    ("72ec70a6-cf74-40e6-bd49-4bda08e8f224", "Linux root (RISC-V-64)"),
    ("ebd0a0a2-b9e5-4433-87c0-68b6b72699c7", "Microsoft basic data"),
    ("e3c9e316-0b5c-4db8-817d-f92df00215ae", "Microsoft reserved"),
    ("516e7cb6-6ecf-11d6-8ff8-00022d09712b", "FreeBSD UFS"),
    ("516e7cb5-6ecf-11d6-8ff8-00022d09712b", "FreeBSD swap"),
    ("83bd6b9d-7f41-11dc-be0b-001560b84f0f", "FreeBSD boot"),
];

/// Types in master boot records.
const MBR: [(u8, &str); 11] = [
    (0x01, "FAT12"),
    (0x04, "FAT16 <32M"),
    (0x06, "FAT16"),
    (0x0b, "W95 FAT32"),
    (0x0c, "W95 FAT32 (LBA)"),
    (0x0e, "W95 FAT16 (LBA)"),
    (0x82, "Linux swap / Solaris"),
    (0x83, "Linux"),
    (0x8e, "Linux LVM"),
    (0xa5, "FreeBSD"),
    (0xef, "EFI (FAT-12/16/32)"),
];

impl Kind {
    /// Its name; `None` for an unknown type.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::Gpt(guid) => {
                let text = guid.to_string();
                GPT.iter().find(|(known, _)| *known == text).map(|(_, name)| *name)
            }
            Self::Mbr(byte) => MBR.iter().find(|(known, _)| *known == byte).map(|(_, name)| *name),
        }
    }

    /// Whether it is reserved for the root of a system.
    pub(crate) fn is_root(self) -> bool {
        self.name().is_some_and(|name| name.starts_with("Linux root ("))
    }

    /// Whether it may contain any Linux file system.
    pub(crate) fn is_linux(self) -> bool {
        matches!(self.name(), Some("Linux filesystem" | "Linux"))
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.name(), self) {
            (Some(name), _) => f.write_str(name),
            (None, Self::Gpt(guid)) => fmt::Display::fmt(guid, f),
            (None, Self::Mbr(byte)) => write!(f, "type {byte:02x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guids_are_read_as_they_are_written() {
        for (text, _) in GPT {
            assert_eq!(text.parse::<Guid>().unwrap().to_string(), text);
        }
        let linux = Guid::of_type("Linux filesystem").unwrap().to_string();
        assert_eq!(linux, "0fc63daf-8483-4772-8e79-3d69d8477de4");
        assert_eq!(Guid::of_type("Linux"), None);
        let derived = Guid::derived("root", b"bytes");
        assert_eq!(derived.to_string().as_bytes()[14], b'8');
        assert_ne!(derived, Guid::derived("esp", b"bytes"));
        let guid = "C12A7328-F81F-11D2-BA4B-00A0C93EC93B".parse::<Guid>().unwrap();
        assert_eq!(guid.0[..6], [0x28, 0x73, 0x2a, 0xc1, 0x1f, 0xf8]);
        for wrong in ["", "c12a7328", "c12a7328-f81f-11d2-ba4b-00a0c93ec93", "ä"] {
            assert!(wrong.parse::<Guid>().is_err());
        }
    }
}
