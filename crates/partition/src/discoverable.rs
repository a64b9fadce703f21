//! Types of partitions by the identifiers of the Discoverable Partitions Specification.

use crate::Guid;

/// An architecture that types of partitions name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Architecture {
    /// x86 with 32 bits.
    X86,
    /// x86 with 64 bits.
    X86_64,
    /// ARM with 32 bits.
    Arm,
    /// ARM with 64 bits.
    Arm64,
    /// RISC-V with 64 bits.
    Riscv64,
}

impl Architecture {
    /// Its name in identifiers.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::X86 => "x86",
            Self::X86_64 => "x86-64",
            Self::Arm => "arm",
            Self::Arm64 => "arm64",
            Self::Riscv64 => "riscv64",
        }
    }
}

/// A type of partitions that the specification has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Discoverable {
    /// Its identifier, such as `root-x86-64`.
    pub identifier: &'static str,
    guid: &'static str,
    /// The purpose of the partition.
    pub designator: Designator,
}

/// The purpose of a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Designator {
    /// The EFI system partition.
    Esp,
    /// The extended boot partition.
    Xbootldr,
    /// Swap space.
    Swap,
    /// File systems that are mounted where the specification says, writable unless marked.
    Mounted,
    /// A hash tree of dm-verity.
    Verity,
    /// The signature of a hash tree.
    VeritySignature,
    /// A file system whose place the system does not know.
    Other,
}

impl Designator {
    /// Whether the flag "no automatic mount" has a meaning.
    #[must_use]
    pub const fn knows_no_auto(self) -> bool {
        matches!(self, Self::Swap) || self.knows_read_only()
    }

    /// Whether the flag "read-only" has a meaning.
    #[must_use]
    pub const fn knows_read_only(self) -> bool {
        matches!(self, Self::Xbootldr | Self::Mounted | Self::Verity | Self::VeritySignature)
    }

    /// Whether the flag "grow the file system" has a meaning.
    #[must_use]
    pub const fn knows_growth(self) -> bool {
        matches!(self, Self::Xbootldr | Self::Mounted)
    }
}

impl Discoverable {
    /// The type of an identifier; `root` and `usr` without an architecture are those of
    /// `architecture`, as systemd-repart has them.
    #[must_use]
    pub fn find(identifier: &str, architecture: Architecture) -> Option<&'static Self> {
        let found = |wanted: &str| TYPES.iter().find(|known| known.identifier == wanted);
        found(identifier).or_else(|| {
            let (base, suffix) = match identifier.split_once('-') {
                Some((base, suffix)) => (base, format!("-{suffix}")),
                None => (identifier, String::new()),
            };
            found(&format!("{base}-{}{suffix}", architecture.name()))
        })
    }

    /// The type with a GUID.
    #[must_use]
    pub fn of(guid: Guid) -> Option<&'static Self> {
        let text = guid.to_string();
        TYPES.iter().find(|known| known.guid == text)
    }

    /// Its GUID.
    ///
    /// # Panics
    /// Never: a test reads all of them.
    #[must_use]
    pub fn guid(&self) -> Guid {
        self.guid.parse().expect("the table has GUIDs")
    }
}

const fn row(identifier: &'static str, guid: &'static str, designator: Designator) -> Discoverable {
    Discoverable { identifier, guid, designator }
}

/// Types for which systemd has identifiers, of five architectures.
const TYPES: [Discoverable; 39] = [
    row("esp", "c12a7328-f81f-11d2-ba4b-00a0c93ec93b", Designator::Esp),
    row("xbootldr", "bc13c2ff-59e6-4262-a352-b275fd6f7172", Designator::Xbootldr),
    row("swap", "0657fd6d-a4ab-43c4-84e5-0933c84b4f4f", Designator::Swap),
    row("home", "933ac7e1-2eb4-4f13-b844-0e14e2aef915", Designator::Mounted),
    row("srv", "3b8f8425-20e0-4f3b-907f-1a25a76f98e8", Designator::Mounted),
    row("var", "4d21b016-b534-45c2-a9fb-5c16e091fd2d", Designator::Mounted),
    row("tmp", "7ec6f557-3bc5-4aca-b293-16ef5df639d1", Designator::Mounted),
    row("user-home", "773f91ef-66d4-49b5-bd83-d683bf40ad16", Designator::Other),
    row("linux-generic", "0fc63daf-8483-4772-8e79-3d69d8477de4", Designator::Other),
    row("root-x86", "44479540-f297-41b2-9af7-d131d5f0458a", Designator::Mounted),
    row("root-x86-verity", "d13c5d3b-b5d1-422a-b29f-9454fdc89d76", Designator::Verity),
    row("root-x86-verity-sig", "5996fc05-109c-48de-808b-23fa0830b676", Designator::VeritySignature),
    row("root-x86-64", "4f68bce3-e8cd-4db1-96e7-fbcaf984b709", Designator::Mounted),
    row("root-x86-64-verity", "2c7357ed-ebd2-46d9-aec1-23d437ec2bf5", Designator::Verity),
    row(
        "root-x86-64-verity-sig",
        "41092b05-9fc8-4523-994f-2def0408b176",
        Designator::VeritySignature,
    ),
    row("root-arm", "69dad710-2ce4-4e3c-b16c-21a1d49abed3", Designator::Mounted),
    row("root-arm-verity", "7386cdf2-203c-47a9-a498-f2ecce45a2d6", Designator::Verity),
    row("root-arm-verity-sig", "42b0455f-eb11-491d-98d3-56145ba9d037", Designator::VeritySignature),
    row("root-arm64", "b921b045-1df0-41c3-af44-4c6f280d3fae", Designator::Mounted),
    row("root-arm64-verity", "df3300ce-d69f-4c92-978c-9bfb0f38d820", Designator::Verity),
    row(
        "root-arm64-verity-sig",
        "6db69de6-29f4-4758-a7a5-962190f00ce3",
        Designator::VeritySignature,
    ),
    row("root-riscv64", "72ec70a6-cf74-40e6-bd49-4bda08e8f224", Designator::Mounted),
    row("root-riscv64-verity", "b6ed5582-440b-4209-b8da-5ff7c419ea3d", Designator::Verity),
    row(
        "root-riscv64-verity-sig",
        "efe0f087-ea8d-4469-821a-4c2a96a8386a",
        Designator::VeritySignature,
    ),
    row("usr-x86", "75250d76-8cc6-458e-bd66-bd47cc81a812", Designator::Mounted),
    row("usr-x86-verity", "8f461b0d-14ee-4e81-9aa9-049b6fb97abd", Designator::Verity),
    row("usr-x86-verity-sig", "974a71c0-de41-43c3-be5d-5c5ccd1ad2c0", Designator::VeritySignature),
    row("usr-x86-64", "8484680c-9521-48c6-9c11-b0720656f69e", Designator::Mounted),
    row("usr-x86-64-verity", "77ff5f63-e7b6-4633-acf4-1565b864c0e6", Designator::Verity),
    row(
        "usr-x86-64-verity-sig",
        "e7bb33fb-06cf-4e81-8273-e543b413e2e2",
        Designator::VeritySignature,
    ),
    row("usr-arm", "7d0359a3-02b3-4f0a-865c-654403e70625", Designator::Mounted),
    row("usr-arm-verity", "c215d751-7bcd-4649-be90-6627490a4c05", Designator::Verity),
    row("usr-arm-verity-sig", "d7ff812f-37d1-4902-a810-d76ba57b975a", Designator::VeritySignature),
    row("usr-arm64", "b0e01050-ee5f-4390-949a-9101b17104e9", Designator::Mounted),
    row("usr-arm64-verity", "6e11a4e7-fbca-4ded-b9e9-e1a512bb664e", Designator::Verity),
    row(
        "usr-arm64-verity-sig",
        "c23ce4ff-44bd-4b00-b2d4-b41b3419e02a",
        Designator::VeritySignature,
    ),
    row("usr-riscv64", "beaec34b-8442-439b-a40b-984381ed097d", Designator::Mounted),
    row("usr-riscv64-verity", "8f1056be-9b05-47c4-81d6-be53128e5b54", Designator::Verity),
    row(
        "usr-riscv64-verity-sig",
        "d2f9000a-7a18-453f-b5cd-4d32f77a7b32",
        Designator::VeritySignature,
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_lead_to_types_that_have_names() {
        for known in &TYPES {
            let guid = known.guid();
            assert_eq!(guid.to_string(), known.guid);
            assert!(crate::Kind::Gpt(guid).name().is_some(), "{}", known.identifier);
            assert_eq!(Discoverable::of(guid), Some(known));
            assert_eq!(Discoverable::find(known.identifier, Architecture::X86), Some(known));
        }
        let of = |text: &str| Discoverable::find(text, Architecture::Arm64).map(|it| it.identifier);
        assert_eq!(of("root"), Some("root-arm64"));
        assert_eq!(of("usr-verity"), Some("usr-arm64-verity"));
        assert_eq!(of("root-x86-64"), Some("root-x86-64"));
        assert_eq!((of("rooty"), of(""), of("root-alpha")), (None, None, None));
    }

    /// systemd's own table, where it is installed.
    #[test]
    fn systemd_has_the_same_types() {
        let output = std::process::Command::new("systemd-id128").arg("show").output();
        let Ok(output) = output else { return };
        let text = String::from_utf8_lossy(&output.stdout);
        let mut compared = 0;
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let (Some(identifier), Some(id)) = (words.next(), words.next()) else { continue };
            if let Some(known) = TYPES.iter().find(|known| known.identifier == identifier) {
                assert_eq!(known.guid.replace('-', ""), id, "{identifier}");
                compared += 1;
            }
        }
        assert!(compared == TYPES.len() || compared == 0, "{compared} of {}", TYPES.len());
    }
}
