//! Errors with kind and location.

use crate::term::Text;
use seekless_device::DeviceError;
use seekless_units::{BlockNo, GroupNo, Ino};
use std::fmt;
use std::io;

/// A location on an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Location {
    /// The on-disk structure, in the format's own terms (`inode`, `extent header`).
    pub structure: &'static str,
    /// The group that contains it.
    pub group: Option<GroupNo>,
    /// The inode that contains it.
    pub ino: Option<Ino>,
    /// The block that contains it.
    pub block: Option<BlockNo>,
    /// The byte within that block, or within the structure.
    pub offset: Option<u32>,
}

impl Location {
    /// A location given only by its structure.
    #[must_use]
    pub const fn of(structure: &'static str) -> Self {
        Self { structure, group: None, ino: None, block: None, offset: None }
    }

    /// The same location, in an inode.
    #[must_use]
    pub const fn in_inode(mut self, ino: Ino) -> Self {
        self.ino = Some(ino);
        self
    }

    /// The same location, in a group.
    #[must_use]
    pub const fn in_group(mut self, group: GroupNo) -> Self {
        self.group = Some(group);
        self
    }

    /// The same location, in a block.
    #[must_use]
    pub const fn in_block(mut self, block: BlockNo) -> Self {
        self.block = Some(block);
        self
    }

    /// The same location, at a byte offset.
    #[must_use]
    pub const fn at_offset(mut self, offset: u32) -> Self {
        self.offset = Some(offset);
        self
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.structure)?;
        if let Some(group) = self.group {
            write!(f, ", group {group}")?;
        }
        if let Some(ino) = self.ino {
            write!(f, ", inode {ino}")?;
        }
        if let Some(block) = self.block {
            write!(f, ", block {block}")?;
        }
        if let Some(offset) = self.offset {
            write!(f, ", byte {offset}")?;
        }
        Ok(())
    }
}

/// The kind of corruption of a structure.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Corruption {
    /// A magic number is not the expected one.
    #[error("bad magic number {found:#x}")]
    Magic {
        /// The value found.
        found: u64,
    },
    /// A stored checksum differs from the computed one.
    #[error("checksum {stored:#010x} does not match the contents ({computed:#010x})")]
    Checksum {
        /// The stored checksum.
        stored: u32,
        /// The checksum computed from the contents.
        computed: u32,
    },
    /// A field's value is out of range.
    #[error("{field} is {value}, limit {limit}")]
    Range {
        /// The field's on-disk name.
        field: &'static str,
        /// Its value.
        value: u64,
        /// The bound it breaks.
        limit: u64,
    },
    /// A field's value is invalid.
    #[error("{field} has the invalid value {value:#x}")]
    Invalid {
        /// The field's on-disk name.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// A structure refers back to itself.
    #[error("structure refers back to itself")]
    Cycle,
    /// The image ends before the structure does.
    #[error("the structure extends past the end of the image")]
    Truncated,
}

/// The kind of fault in an archive.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ArchiveFault {
    /// A header's checksum does not match: garbage or damage.
    #[error("header checksum does not match")]
    Checksum,
    /// Zeros in place of the first entry, more of them than an empty archive has.
    #[error("it begins with zeros but is not an empty archive")]
    Zeros,
    /// The archive ends within an entry.
    #[error("the archive ends within an entry")]
    Truncated,
    /// A field is not a number, or one out of bounds.
    #[error("{0} is not a valid number")]
    Number(&'static str),
    /// A record of a PAX header does not parse.
    #[error("malformed PAX record")]
    Pax,
    /// A sparse file's map does not fit the file.
    #[error("invalid map of a sparse file")]
    SparseMap,
    /// A path leads out of the archive, or is invalid.
    #[error("{0}: not a path within the archive")]
    Path(String),
    /// A hard link to a missing file or to a directory.
    #[error("{0}: hard link to {1}, which does not exist")]
    Link(String, String),
    /// An entry below a file that is not a directory.
    #[error("{0}: a parent of this path is not a directory")]
    Parent(String),
    /// Compressed data that cannot be decompressed.
    #[error("broken {format} data: {what}")]
    Compression {
        /// The compression's name.
        format: &'static str,
        /// The decompressor's message.
        what: String,
    },
    /// A fault of the first bytes of a file in which nothing else is of an archive either.
    #[error("{0}")]
    Foreign(Box<ArchiveFault>),
    /// A fault of an entry, with the entry's path.
    #[error("{0}: {1}")]
    Entry(String, Box<ArchiveFault>),
    /// Any other fault, in words.
    #[error("{0}")]
    Other(String),
}

impl ArchiveFault {
    /// Adds the path of the entry, if the fault contains none.
    #[must_use]
    pub fn of_entry(self, path: &[u8]) -> Self {
        match self {
            Self::Path(_) | Self::Link(..) | Self::Parent(_) | Self::Entry(..) => self,
            fault if path.is_empty() => fault,
            fault => Self::Entry(String::from_utf8_lossy(path).into_owned(), Box::new(fault)),
        }
    }

    /// Whether the archive is sound but refused.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Path(_) => true,
            Self::Entry(_, fault) => fault.is_refusal(),
            _ => false,
        }
    }
}

/// Text for the number of findings besides the one shown.
fn and_more(others: u64) -> String {
    match others {
        0 => String::new(),
        1 => " and 1 finding more".into(),
        _ => format!(" and {others} more findings"),
    }
}

/// The reason for the failure of a file-system operation.
#[derive(Debug, thiserror::Error)]
pub enum FsError {
    /// The image contradicts its format.
    #[error("corrupt image: {kind} ({location})")]
    Corrupt {
        /// The kind of corruption.
        kind: Corruption,
        /// Its location.
        location: Box<Location>,
    },
    /// The marks that identify a format are damaged, with the format and the reason.
    #[error("damaged image: {0}")]
    Marks(String),
    /// A check found damage that prevents work on the image.
    #[error("damaged image: {code}: {what} ({location}){}", and_more(*others))]
    Damaged {
        /// The code of the first finding.
        code: &'static str,
        /// The description of the first finding.
        what: String,
        /// Its location.
        location: Box<Location>,
        /// Number of further findings of that weight.
        others: u64,
    },
    /// An archive contradicts its format.
    #[error("{archive}: byte {offset}: {fault}")]
    Archive {
        /// The archive's name.
        archive: String,
        /// Byte offset in it, after decompression.
        offset: u64,
        /// The kind of fault.
        fault: ArchiveFault,
    },
    /// A container image lacks a part, or its parts contradict each other.
    #[error("{name}: {what}")]
    Container {
        /// The layout or archive.
        name: String,
        /// The fault, in words.
        what: String,
    },
    /// A source image cannot be opened.
    #[error("{name}: {error}")]
    Source {
        /// The image.
        name: String,
        /// The reason.
        #[source]
        error: Box<FsError>,
    },
    /// The image or request needs an unsupported feature.
    #[error("unsupported: {0}")]
    Unsupported(String),
    /// Something does not fit: blocks, inodes, a directory, an attribute.
    #[error("no space: {0}")]
    NoSpace(String),
    /// A disk quota of a user or a group does not allow it.
    #[error("disk quota exceeded: {0}")]
    OverQuota(String),
    /// The path or name does not exist.
    #[error("{0}: no such file or directory")]
    NotFound(String),
    /// A directory was needed.
    #[error("{0}: not a directory")]
    NotDirectory(String),
    /// The name exists already.
    #[error("{0}: already exists")]
    Exists(String),
    /// A directory in place of another kind of file.
    #[error("{0}: is a directory")]
    IsDirectory(String),
    /// A directory that still has entries.
    #[error("{0}: directory not empty")]
    NotEmpty(String),
    /// A name longer than the format allows.
    #[error("a name of {len} bytes exceeds the limit of {limit}")]
    NameTooLong {
        /// Its length in bytes.
        len: usize,
        /// The format's limit in bytes.
        limit: usize,
    },
    /// The link count has reached the format's maximum.
    #[error("inode {0}: too many links")]
    TooManyLinks(Ino),
    /// A file longer than the format can map, or than its fields can represent.
    #[error("{0}: file too large")]
    TooLarge(String),
    /// A forbidden operation: writing to an immutable file, a second name for a directory.
    #[error("{0}: not permitted")]
    NotPermitted(String),
    /// A name that cannot be given in one step: the file must be copied there, as to another file
    /// system.
    #[error("{0}: cannot be moved in one step")]
    CrossDevice(String),
    /// An extended attribute that does not exist.
    #[error("{0}: no such attribute")]
    NoAttribute(String),
    /// The file system is read-only: a write has failed, or it was mounted so.
    #[error("the file system is read-only: {0}")]
    ReadOnly(String),
    /// The request is invalid for this file (reading a directory as a file, ...).
    #[error("{0}")]
    Invalid(String),
    /// The request is refused, in a text that names its parameters.
    #[error("{0}")]
    Refused(Text),
    /// A source file has changed since the layout was planned.
    #[error("{0}: changed while it was being read")]
    SourceChanged(String),
    /// The device under the image failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// An operating-system error, with the operation.
    #[error("{context}: {source}")]
    Io {
        /// The path or action.
        context: String,
        /// The system's error.
        source: io::Error,
    },
}

impl FsError {
    /// Description and location of a finding made from this error. A corruption contributes its
    /// kind and as much of the location as it has; the rest comes from `place`.
    #[must_use]
    pub fn finding(&self, place: Location) -> (String, Location) {
        let Self::Corrupt { kind, location } = self else { return (self.to_string(), place) };
        let location = Location {
            group: location.group.or(place.group),
            ino: location.ino.or(place.ino),
            block: location.block.or(place.block),
            ..**location
        };
        (kind.to_string(), location)
    }

    /// A corruption at a location.
    #[must_use]
    pub fn corrupt(kind: Corruption, location: Location) -> Self {
        Self::Corrupt { kind, location: Box::new(location) }
    }

    /// An I/O error with the operation.
    #[must_use]
    pub fn io(context: impl Into<String>, source: io::Error) -> Self {
        Self::Io { context: context.into(), source }
    }
}
