//! One definition: a file of `repart.d`.

use super::GRAIN;
use seekless_partition::{Architecture, Attributes, Designator, Discoverable, Guid};
use seekless_source::{Graft, ListError};
use seekless_units::{ByteLen, parse_size};
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// A partition to be made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Definition {
    /// The file.
    pub path: PathBuf,
    /// Its type.
    pub kind: Guid,
    /// The purpose of the type; none for a type that the specification does not have.
    pub designator: Option<Designator>,
    /// Its label; as long as none is set, the identifier of the type.
    pub label: String,
    has_label: bool,
    /// Its identifier, if one is set.
    pub uuid: Option<Guid>,
    /// Sizes of the partition.
    pub sizes: Sizes,
    /// Sizes of the free space behind it.
    pub padding: Sizes,
    /// Its contents.
    pub contents: Contents,
    /// Its attributes.
    pub attributes: Attributes,
    /// Its part in a hash tree of dm-verity.
    pub verity: Option<(VerityRole, String)>,
}

/// Limits of a size, and its share of space that is to be distributed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sizes {
    /// The least, in bytes; `None` for that of the contents, and 10M of a partition.
    pub least: Option<ByteLen>,
    /// The most, in bytes.
    pub most: Option<ByteLen>,
    /// The share, from 0 to 1,000,000.
    pub weight: u32,
}

/// The contents of a partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Contents {
    /// Zeros, or a hash tree.
    Nothing,
    /// The bytes of a file or device.
    Blocks(PathBuf),
    /// A file system with parts of the source, and empty directories.
    Files {
        /// The format.
        format: FileSystem,
        /// Parts of the source.
        parts: Vec<Graft>,
        /// Directories that are made where nothing is.
        directories: Vec<Vec<u8>>,
    },
    /// Swap space.
    Swap,
}

/// A format of a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileSystem {
    /// ext2.
    Ext2,
    /// ext3.
    Ext3,
    /// ext4.
    Ext4,
    /// FAT, with the width that mkfs.fat chooses.
    Vfat,
}

impl FileSystem {
    /// The name that `Format=` has for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ext2 => "ext2",
            Self::Ext3 => "ext3",
            Self::Ext4 => "ext4",
            Self::Vfat => "vfat",
        }
    }
}

/// The part of a partition in a hash tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VerityRole {
    /// It has the data.
    Data,
    /// It has the tree.
    Hash,
}

/// The value of `Format=`.
#[derive(Clone, Copy)]
enum WantedFormat {
    Files(FileSystem),
    Swap,
    Empty,
}

/// The settings of a file, as far as they are given.
#[derive(Default)]
struct Settings {
    kind: Option<(Guid, String)>,
    label: Option<String>,
    uuid: Option<Guid>,
    sizes: (Option<ByteLen>, Option<ByteLen>, Option<u32>),
    padding: (Option<ByteLen>, Option<ByteLen>, Option<u32>),
    blocks: Option<PathBuf>,
    format: Option<WantedFormat>,
    parts: Vec<Graft>,
    directories: Vec<Vec<u8>>,
    flags: Option<u64>,
    no_auto: Option<bool>,
    read_only: Option<bool>,
    grows: Option<bool>,
    verity: Option<VerityRole>,
    match_key: Option<String>,
}

/// The reason for which a line is refused.
enum Refusal {
    Malformed(String),
    Unsupported(String),
}

impl From<String> for Refusal {
    fn from(why: String) -> Self {
        Self::Malformed(why)
    }
}

/// Reads a file.
///
/// # Errors
/// [`ListError`] with the line.
pub(super) fn read(path: &Path, architecture: Architecture) -> Result<Definition, ListError> {
    let io = |error| ListError::Io { path: path.into(), error };
    Definition::parse(path, &std::fs::read_to_string(path).map_err(io)?, architecture)
}

impl Definition {
    /// Reads the text of a file, whose path is shown in errors. Types are those of the architecture.
    ///
    /// ```
    /// use seekless_compose::definitions::Definition;
    /// use seekless_partition::Architecture;
    ///
    /// let text = "[Partition]\nType=root\nWeight=heavy\n";
    /// let error = Definition::parse("root.conf".as_ref(), text, Architecture::X86_64).unwrap_err();
    /// assert_eq!(error.to_string(), "root.conf, line 3: Weight=: a number from 0 to 1000000");
    /// ```
    ///
    /// # Errors
    /// [`ListError::Line`] for a malformed line, [`ListError::Unsupported`] for a setting that is not
    /// supported.
    pub fn parse(path: &Path, text: &str, architecture: Architecture) -> Result<Self, ListError> {
        let refused = |line: usize, why: Refusal| {
            let path = path.to_path_buf();
            match why {
                Refusal::Malformed(why) => ListError::Line { path, line, why },
                Refusal::Unsupported(why) => ListError::Unsupported { path, line, why },
            }
        };
        let mut settings = Settings::default();
        let (mut is_in_section, mut last) = (false, 1);
        for (line, text) in logical_lines(text) {
            last = line;
            match text.as_str() {
                "" => {}
                "[Partition]" => is_in_section = true,
                text if text.starts_with('[') => {
                    let why = format!("the section {text}: definitions have [Partition] only");
                    return Err(refused(line, why.into()));
                }
                text => {
                    let pair = text.split_once('=').filter(|_| is_in_section);
                    let Some((name, value)) = pair else {
                        let why = "neither a setting in [Partition] nor a comment".to_owned();
                        return Err(refused(line, why.into()));
                    };
                    let set = settings.set(name.trim(), value.trim(), architecture);
                    set.map_err(|why| refused(line, why))?;
                }
            }
        }
        if !is_in_section {
            return Err(refused(last, "no section [Partition]".to_owned().into()));
        }
        settings.definition(path).map_err(|why| refused(last, why))
    }
}

/// Lines with their numbers, without comments; a backslash at the end joins a line with the next, as
/// in systemd.syntax(7).
fn logical_lines(text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut is_joined = false;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.starts_with(['#', ';']) {
            continue;
        }
        let (line, goes_on) = match line.strip_suffix('\\') {
            Some(line) => (line, true),
            None => (line, false),
        };
        match found.last_mut().filter(|_| is_joined) {
            Some((_, joined)) => {
                joined.push(' ');
                joined.push_str(line);
            }
            None => found.push((number, line.into())),
        }
        is_joined = goes_on;
    }
    found
}

impl Settings {
    fn set(&mut self, name: &str, value: &str, architecture: Architecture) -> Result<(), Refusal> {
        let text = || {
            let has_specifier = value.replace("%%", "").contains('%');
            match has_specifier {
                true => Err(Refusal::Unsupported(format!("{name}=: specifiers (%)"))),
                false => Ok(value.replace("%%", "%")),
            }
        };
        let size = || Ok::<_, Refusal>(Some(parse_size(value)?));
        let weight = || match value.parse() {
            Ok(weight) if weight <= 1_000_000 => Ok(Some(weight)),
            _ => Err(Refusal::Malformed(format!("{name}=: a number from 0 to 1000000"))),
        };
        match name {
            "Type" => self.kind = Some(kind(value, architecture)?),
            "Label" => self.label = Some(text()?),
            "UUID" => self.uuid = Some(uuid(value)?),
            "SizeMinBytes" => self.sizes.0 = size()?,
            "SizeMaxBytes" => self.sizes.1 = size()?,
            "Weight" => self.sizes.2 = weight()?,
            "PaddingMinBytes" => self.padding.0 = size()?,
            "PaddingMaxBytes" => self.padding.1 = size()?,
            "PaddingWeight" => self.padding.2 = weight()?,
            "CopyBlocks" => self.blocks = Some(blocks(&text()?)?),
            "Format" => self.format = Some(format(value)?),
            "CopyFiles" => self.parts.push(part(&text()?)?),
            "MakeDirectories" => {
                for path in text()?.split_whitespace() {
                    self.directories.push(inside(path)?);
                }
            }
            "Encrypt" if value == "off" || boolean(name, value) == Ok(false) => {}
            "Verity" => self.verity = verity(value)?,
            "VerityMatchKey" => self.match_key = Some(text()?),
            // Of an image that does not exist yet, all partitions are made, and none is removed.
            "FactoryReset" => _ = boolean(name, value)?,
            "Flags" => self.flags = Some(flags(value)?),
            "NoAuto" => self.no_auto = Some(boolean(name, value)?),
            "ReadOnly" => self.read_only = Some(boolean(name, value)?),
            "GrowFileSystem" => self.grows = Some(boolean(name, value)?),
            // The name of the file that --split of systemd-repart makes.
            "SplitName" => _ = value,
            "Priority"
            | "Encrypt"
            | "Minimize"
            | "ExcludeFiles"
            | "ExcludeFilesTarget"
            | "Subvolumes"
            | "DefaultSubvolume"
            | "Compression"
            | "CompressionLevel"
            | "MountPoint"
            | "EncryptedVolume"
            | "VerityDataBlockSizeBytes"
            | "VerityHashBlockSizeBytes"
            | "SupplementFor"
            | "MakeSymlinks"
            | "TPM2PCRs"
            | "AddValidateFS"
            | "FileSystemSectorSize"
            | "BlockDeviceReplicate" => {
                return Err(Refusal::Unsupported(format!("{name}= is not supported")));
            }
            name => return Err(Refusal::Malformed(format!("{name}= is no setting"))),
        }
        Ok(())
    }

    fn definition(self, path: &Path) -> Result<Definition, Refusal> {
        let unsupported = |why: &str| Err(Refusal::Unsupported(why.into()));
        let (kind, label) = match self.kind {
            Some(kind) => kind,
            None => kind_of("linux-generic"),
        };
        let known = Discoverable::of(kind);
        let designator = known.map(|known| known.designator);
        let has_files = !self.parts.is_empty() || !self.directories.is_empty();
        let contents = match (self.blocks, self.format) {
            (Some(_), Some(_)) => return malformed("CopyBlocks= excludes Format="),
            (Some(_), None) if has_files => {
                return malformed("CopyBlocks= excludes CopyFiles= and MakeDirectories=");
            }
            (Some(blocks), None) => Contents::Blocks(blocks),
            (None, Some(WantedFormat::Swap | WantedFormat::Empty)) if has_files => {
                return malformed("a partition without a file system has no files");
            }
            (None, Some(WantedFormat::Swap)) => Contents::Swap,
            (None, Some(WantedFormat::Empty)) => Contents::Nothing,
            (None, None) if !has_files => Contents::Nothing,
            (None, format) => {
                let boot = matches!(designator, Some(Designator::Esp | Designator::Xbootldr));
                let format = match format {
                    Some(WantedFormat::Files(format)) => format,
                    _ if boot => FileSystem::Vfat,
                    _ => FileSystem::Ext4,
                };
                let (parts, directories) = (self.parts, self.directories);
                Contents::Files { format, parts, directories }
            }
        };
        let verity = match (self.verity, self.match_key) {
            (None, None) => None,
            (None, Some(_)) => return malformed("VerityMatchKey= needs Verity="),
            (Some(_), None) => return malformed("Verity= needs VerityMatchKey="),
            (Some(VerityRole::Hash), Some(_)) if contents != Contents::Nothing => {
                return malformed("Verity=hash excludes Format=, CopyBlocks= and CopyFiles=");
            }
            (Some(VerityRole::Data), Some(_)) if contents == Contents::Nothing => {
                return malformed("Verity=data needs Format=, CopyBlocks= or CopyFiles=");
            }
            (Some(role), Some(key)) => Some((role, key)),
        };
        let knows = |knows: fn(Designator) -> bool| designator.is_some_and(knows);
        let knows_growth = knows(Designator::knows_growth);
        if self.no_auto.is_some() && !knows(Designator::knows_no_auto) {
            return unsupported("NoAuto= has no meaning for this type");
        }
        if self.read_only.is_some() && !knows(Designator::knows_read_only) {
            return unsupported("ReadOnly= has no meaning for this type");
        }
        if self.grows.is_some() && !knows_growth {
            return unsupported("GrowFileSystem= has no meaning for this type");
        }
        let is_tree = matches!(designator, Some(Designator::Verity | Designator::VeritySignature));
        let mut attributes = Attributes(self.flags.unwrap_or_default());
        let settings = [
            (Attributes::NO_AUTO, self.no_auto),
            (Attributes::READ_ONLY, self.read_only.or(is_tree.then_some(true))),
        ];
        for (bit, is_set) in settings {
            attributes = is_set.map_or(attributes, |is_set| attributes.with(bit, is_set));
        }
        let grows = knows_growth && self.read_only != Some(true);
        let grows = self.grows.or(grows.then_some(true));
        let bit = Attributes::GROW;
        attributes = grows.map_or(attributes, |grows| attributes.with(bit, grows));
        Ok(Definition {
            path: path.into(),
            kind,
            designator,
            has_label: self.label.is_some(),
            label: self.label.unwrap_or(label),
            uuid: self.uuid,
            sizes: sizes("Size", self.sizes, 1000)?,
            padding: sizes("Padding", self.padding, 0)?,
            contents,
            attributes,
            verity,
        })
    }
}

fn malformed<T>(why: &str) -> Result<T, Refusal> {
    Err(Refusal::Malformed(why.into()))
}

/// The type of an identifier of the table.
fn kind_of(identifier: &str) -> (Guid, String) {
    let known = Discoverable::find(identifier, Architecture::X86_64);
    let known = known.expect("the table has the identifier");
    (known.guid(), known.identifier.into())
}

fn kind(value: &str, architecture: Architecture) -> Result<(Guid, String), Refusal> {
    if let Some(known) = Discoverable::find(value, architecture) {
        return Ok((known.guid(), known.identifier.into()));
    }
    match value.parse() {
        Ok(guid) => {
            let identifier = Discoverable::of(guid).map(|known| known.identifier.to_owned());
            Ok((guid, identifier.unwrap_or_else(|| guid.to_string())))
        }
        Err(()) => Err(Refusal::Malformed(format!("Type=: no type is called {value}"))),
    }
}

fn uuid(value: &str) -> Result<Guid, Refusal> {
    if value == "null" {
        return Ok(Guid([0; 16]));
    }
    value.parse().map_err(|()| Refusal::Malformed(format!("UUID=: {value} is no UUID")))
}

fn boolean(name: &str, value: &str) -> Result<bool, String> {
    match value {
        "1" | "yes" | "y" | "true" | "t" | "on" => Ok(true),
        "0" | "no" | "n" | "false" | "f" | "off" => Ok(false),
        _ => Err(format!("{name}=: {value} is neither yes nor no")),
    }
}

fn flags(value: &str) -> Result<u64, Refusal> {
    let number = match (value.strip_prefix("0x"), value.strip_prefix("0b")) {
        (Some(digits), _) => u64::from_str_radix(digits, 16),
        (None, Some(digits)) => u64::from_str_radix(digits, 2),
        (None, None) => value.parse(),
    };
    number.map_err(|_| Refusal::Malformed(format!("Flags=: {value} is no number of 64 bits")))
}

fn verity(value: &str) -> Result<Option<VerityRole>, Refusal> {
    match value {
        "off" => Ok(None),
        "data" => Ok(Some(VerityRole::Data)),
        "hash" => Ok(Some(VerityRole::Hash)),
        "signature" => Err(Refusal::Unsupported("Verity=signature is not supported".into())),
        _ => Err(Refusal::Malformed(format!("Verity=: {value} is none of off, data and hash"))),
    }
}

fn format(value: &str) -> Result<WantedFormat, Refusal> {
    let formats = [FileSystem::Ext2, FileSystem::Ext3, FileSystem::Ext4, FileSystem::Vfat];
    match value {
        "swap" => Ok(WantedFormat::Swap),
        "empty" => Ok(WantedFormat::Empty),
        value => match formats.into_iter().find(|format| format.name() == value) {
            Some(format) => Ok(WantedFormat::Files(format)),
            None => Err(Refusal::Unsupported(format!("Format={value} is not supported"))),
        },
    }
}

fn blocks(value: &str) -> Result<PathBuf, Refusal> {
    match value {
        "auto" => Err(Refusal::Unsupported("CopyBlocks=auto is not supported".into())),
        value if value.starts_with('/') => Ok(value.into()),
        value => Err(Refusal::Malformed(format!("CopyBlocks=: {value} is no absolute path"))),
    }
}

/// A pair of paths, between which a colon stands; one path is both.
fn part(value: &str) -> Result<Graft, Refusal> {
    let (from, to) = value.split_once(':').unwrap_or((value, value));
    if to.contains(':') {
        return Err(Refusal::Unsupported("CopyFiles= with options is not supported".into()));
    }
    Ok(Graft { from: inside(from)?, to: inside(to)? })
}

/// An absolute path, relative to the root.
fn inside(path: &str) -> Result<Vec<u8>, Refusal> {
    let names: Vec<&str> = path.split('/').filter(|name| !matches!(*name, "" | ".")).collect();
    if !path.starts_with('/') || names.contains(&"..") {
        return Err(Refusal::Malformed(format!("{path} is no absolute path without ..")));
    }
    Ok(names.join("/").into_bytes())
}

fn sizes(
    what: &str,
    (least, most, weight): (Option<ByteLen>, Option<ByteLen>, Option<u32>),
    share: u32,
) -> Result<Sizes, Refusal> {
    let up = |len: ByteLen| len.get().checked_next_multiple_of(GRAIN).map(ByteLen::new);
    let least = match least.map(up) {
        Some(None) => return malformed(&format!("{what}MinBytes= is too large")),
        Some(least) => least,
        None => None,
    };
    let most = most.map(|most| ByteLen::new(most.get() / GRAIN * GRAIN));
    if let (Some(least), Some(most)) = (least, most)
        && least > most
    {
        return malformed(&format!("{what}MinBytes= is larger than {what}MaxBytes="));
    }
    Ok(Sizes { least, most, weight: weight.unwrap_or(share) })
}

/// Refuses hash trees without data, and data without hash trees.
///
/// # Errors
/// [`ListError`] for the file that lacks the other.
pub(super) fn pair(definitions: &[Definition]) -> Result<(), ListError> {
    let count = |role: VerityRole, key: &str| {
        let has = |one: &&Definition| one.verity == Some((role, key.to_owned()));
        definitions.iter().filter(has).count()
    };
    for one in definitions {
        let Some((_, key)) = &one.verity else { continue };
        let (data, hash) = (count(VerityRole::Data, key), count(VerityRole::Hash, key));
        if (data, hash) != (1, 1) {
            let why = format!(
                "VerityMatchKey={key}: one partition has the data and one the tree, here {data} and {hash}"
            );
            return Err(ListError::Line { path: one.path.clone(), line: 1, why });
        }
    }
    Ok(())
}

/// Gives partitions without labels of their own labels that no other has: `root-x86-64-2`.
pub(super) fn name(definitions: &mut [Definition]) {
    let set = definitions.iter().filter(|one| one.has_label).map(|one| one.label.clone());
    let mut taken: HashSet<String> = set.collect();
    for one in definitions.iter_mut().filter(|one| !one.has_label) {
        let numbered = (2..).map(|number| format!("{}-{number}", one.label));
        let free = std::iter::once(one.label.clone()).chain(numbered);
        one.label = free.into_iter().find(|label| !taken.contains(label)).expect("endless");
        taken.insert(one.label.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::property::for_all;
    use proptest::collection::vec;
    use proptest::prelude::any;

    fn read_text(text: &str) -> Result<Definition, String> {
        let path = Path::new("one.conf");
        Definition::parse(path, text, Architecture::X86_64).map_err(|error| {
            error.to_string().split_once("one.conf, ").expect("a place").1.to_owned()
        })
    }

    #[test]
    fn settings_are_read() {
        let one = read_text(
            "# comment\n[Partition]\nType = root\nFormat=ext4\nCopyFiles=/ \nCopyFiles=/a/b:/c\n\
             MakeDirectories=/usr \\\n  ; between\n  /var/lib\nSizeMinBytes=1000K\nSizeMaxBytes=1G\n\
             Weight=333\nPaddingWeight=5\nUUID=null\n",
        );
        let one = one.expect("a definition");
        assert_eq!((one.label.as_str(), one.uuid), ("root-x86-64", Some(Guid([0; 16]))));
        assert_eq!(one.attributes, Attributes::GROW);
        let sizes = Sizes {
            least: Some(ByteLen::new(1000 << 10)),
            most: Some(ByteLen::new(1 << 30)),
            weight: 333,
        };
        assert_eq!((one.sizes, one.padding.weight), (sizes, 5));
        let Contents::Files { format, parts, directories } = one.contents else { panic!() };
        assert_eq!(format, FileSystem::Ext4);
        let graft = |from: &str, to: &str| Graft { from: from.into(), to: to.into() };
        assert_eq!(parts, [graft("", ""), graft("a/b", "c")]);
        assert_eq!(directories, [b"usr".to_vec(), b"var/lib".to_vec()]);
    }

    #[test]
    fn flags_have_the_defaults_of_their_types() {
        let of =
            |text: &str| read_text(&format!("[Partition]\n{text}")).map(|one| one.attributes.0);
        assert_eq!(of("Type=usr"), Ok(1 << 59));
        assert_eq!(of("Type=esp"), Ok(0));
        assert_eq!(of("Type=usr-verity"), Ok(1 << 60));
        assert_eq!(of("Type=usr\nReadOnly=yes"), Ok(1 << 60));
        assert_eq!(of("Type=usr\nReadOnly=yes\nGrowFileSystem=on"), Ok(1 << 60 | 1 << 59));
        assert_eq!(of("Type=swap\nNoAuto=true\nFlags=0x7"), Ok(1 << 63 | 7));
        assert_eq!(of("Type=home\nFlags=0b100"), Ok(1 << 59 | 4));
        assert_eq!(of(""), Ok(0));
    }

    #[test]
    fn lines_that_are_refused_are_named() {
        for (text, line) in [
            ("Type=root\n", "line 1: neither"),
            ("[Partition]\nType=rooty\n", "line 2: Type=: no type is called rooty"),
            ("[Partition]\nColour=red\n", "line 2: Colour= is no setting"),
            ("[Partition]\nEncrypt=tpm2\n", "line 2: Encrypt= is not supported"),
            ("[Partition]\nFormat=btrfs\n", "line 2: Format=btrfs is not supported"),
            ("[Partition]\nLabel=%m\n", "line 2: Label=: specifiers"),
            ("[Partition]\nCopyFiles=a:/b\n", "line 2: a is no absolute path"),
            ("[Partition]\nCopyFiles=/a/../b\n", "line 2: /a/../b is no absolute path"),
            ("[Partition]\nSizeMinBytes=2G\nSizeMaxBytes=1G\n", "line 3: SizeMinBytes= is larger"),
            ("[Partition]\nWeight=1000001\n", "line 2: Weight="),
            ("[Partition]\nFormat=ext4\nCopyBlocks=/x\n", "line 3: CopyBlocks= excludes Format="),
            ("[Partition]\nVerity=data\nFormat=ext4\n", "line 3: Verity= needs VerityMatchKey="),
            ("[Partition]\nType=esp\nReadOnly=yes\n", "line 3: ReadOnly= has no meaning"),
            ("[Transfer]\n", "line 1: the section [Transfer]"),
            ("", "line 1: no section"),
        ] {
            let error = read_text(text).expect_err(text);
            assert!(error.starts_with(line), "{text:?}: {error}");
        }
        assert!(read_text("[Partition]\nEncrypt=off\nVerity=off\nFactoryReset=yes\n").is_ok());
    }

    /// The seeds of the fuzz target, and these with lines cut, doubled and joined, and bytes changed:
    /// they are definitions or errors with a line.
    #[test]
    fn damaged_definitions() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/definitions");
        let mut paths: Vec<_> = std::fs::read_dir(dir).expect("a corpus").collect();
        paths.sort_by_key(|entry| entry.as_ref().expect("an entry").path());
        let seed = |entry: std::io::Result<std::fs::DirEntry>| std::fs::read(entry?.path());
        let seeds: Vec<Vec<u8>> = paths.into_iter().map(|one| seed(one).expect("a seed")).collect();
        assert!(seeds.len() > 3);
        let special = b"\n=[]\\#;/%:0189KMGTE ";
        let change = (any::<u8>(), any::<u16>(), any::<u16>());
        for_all(3000, (0..seeds.len(), vec(change, 0..5)), |(seed, changes)| {
            let mut text = seeds[seed].clone();
            for (kind, place, other) in changes {
                let at = usize::from(place) % text.len();
                let from = usize::from(other) % text.len();
                match kind % 3 {
                    0 => text[at] = special[usize::from(other) % special.len()],
                    1 => {
                        drop(text.splice(
                            at..at,
                            text[from..].iter().take(20).copied().collect::<Vec<_>>(),
                        ))
                    }
                    _ => drop(text.drain(at..text.len().min(at + 1 + from % 4))),
                }
                if text.is_empty() {
                    return;
                }
            }
            let text = String::from_utf8_lossy(&text);
            if let Err(error) = read_text(&text) {
                assert!(error.starts_with("line "), "{text:?}: {error}");
            }
        });
    }
}
