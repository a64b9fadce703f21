//! Errors that say what is wrong and where.

use seekless_device::DeviceError;
use seekless_units::{BlockNo, GroupNo, Ino};
use std::fmt;
use std::io;

/// Where on an image something was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Location {
    /// The on-disk structure, in the format's own terms (`inode`, `extent header`).
    pub structure: &'static str,
    /// The group it belongs to.
    pub group: Option<GroupNo>,
    /// The inode it belongs to.
    pub ino: Option<Ino>,
    /// The block it lies in.
    pub block: Option<BlockNo>,
    /// The byte within that block, or within the structure.
    pub offset: Option<u32>,
}

impl Location {
    /// A place known only by its structure.
    #[must_use]
    pub const fn of(structure: &'static str) -> Self {
        Self { structure, group: None, ino: None, block: None, offset: None }
    }

    /// The same place, in an inode.
    #[must_use]
    pub const fn in_inode(mut self, ino: Ino) -> Self {
        self.ino = Some(ino);
        self
    }

    /// The same place, in a group.
    #[must_use]
    pub const fn in_group(mut self, group: GroupNo) -> Self {
        self.group = Some(group);
        self
    }

    /// The same place, in a block.
    #[must_use]
    pub const fn in_block(mut self, block: BlockNo) -> Self {
        self.block = Some(block);
        self
    }

    /// The same place, at a byte offset.
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

/// What is wrong with a structure.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Corruption {
    /// A magic number is not the expected one.
    #[error("bad magic number {found:#x}")]
    Magic {
        /// What stands there.
        found: u64,
    },
    /// A stored checksum differs from the computed one.
    #[error("checksum {stored:#010x} does not match the contents ({computed:#010x})")]
    Checksum {
        /// On disk.
        stored: u32,
        /// Of what is on disk.
        computed: u32,
    },
    /// A field's value lies outside what it may be.
    #[error("{field} is {value}, limit {limit}")]
    Range {
        /// The field's on-disk name.
        field: &'static str,
        /// Its value.
        value: u64,
        /// The bound it breaks.
        limit: u64,
    },
    /// A field's value makes no sense.
    #[error("{field} has the invalid value {value:#x}")]
    Invalid {
        /// The field's on-disk name.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// A structure leads back to itself.
    #[error("structure refers back to itself")]
    Cycle,
    /// The image ends before the structure does.
    #[error("the structure extends past the end of the image")]
    Truncated,
}

/// What is wrong with an archive.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ArchiveFault {
    /// A header's checksum does not match: garbage, or damage.
    #[error("header checksum does not match")]
    Checksum,
    /// Zeros, where an archive has its first entry: and more than those that an
    /// empty archive is made of.
    #[error("it begins with zeros but is not an empty archive")]
    Zeros,
    /// The archive ends within an entry.
    #[error("the archive ends within an entry")]
    Truncated,
    /// A field does not hold a number, or one that is out of bounds.
    #[error("{0} is not a valid number")]
    Number(&'static str),
    /// A record of a PAX header does not parse.
    #[error("malformed PAX record")]
    Pax,
    /// A sparse file's map does not fit the file.
    #[error("invalid map of a sparse file")]
    SparseMap,
    /// A path leads out of the archive, or is no path.
    #[error("{0}: not a path within the archive")]
    Path(String),
    /// A hard link to something that is not there, or is a directory.
    #[error("{0}: hard link to {1}, which does not exist")]
    Link(String, String),
    /// An entry below something that is not a directory.
    #[error("{0}: a parent of this path is not a directory")]
    Parent(String),
    /// Compressed data that cannot be unpacked.
    #[error("broken {format} data: {what}")]
    Compression {
        /// The compression's name.
        format: &'static str,
        /// What the decompressor says.
        what: String,
    },
    /// Something that is wrong with an entry, by its path.
    #[error("{0}: {1}")]
    Entry(String, Box<ArchiveFault>),
    /// Anything else, in words.
    #[error("{0}")]
    Other(String),
}

impl ArchiveFault {
    /// The fault with the path of the entry that has it, where it does not tell one itself.
    #[must_use]
    pub fn of_entry(self, path: &[u8]) -> Self {
        match self {
            Self::Path(_) | Self::Link(..) | Self::Parent(_) | Self::Entry(..) => self,
            fault if path.is_empty() => fault,
            fault => Self::Entry(String::from_utf8_lossy(path).into_owned(), Box::new(fault)),
        }
    }

    /// Whether an archive with it is sound, but not one that is taken.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Path(_) => true,
            Self::Entry(_, fault) => fault.is_refusal(),
            _ => false,
        }
    }
}

/// How many findings there are besides the one that is told.
fn and_more(others: u64) -> String {
    match others {
        0 => String::new(),
        1 => " and 1 finding more".into(),
        _ => format!(" and {others} more findings"),
    }
}

/// Why a file-system operation failed.
#[derive(Debug, thiserror::Error)]
pub enum FsError {
    /// The image contradicts its format.
    #[error("corrupt image: {kind} ({location})")]
    Corrupt {
        /// What is wrong.
        kind: Corruption,
        /// Where.
        location: Box<Location>,
    },
    /// What tells a format from others is damaged: which, and why.
    #[error("damaged image: {0}")]
    Marks(String),
    /// A check found what keeps an image from being worked on.
    #[error("damaged image: {code}: {what} ({location}){}", and_more(*others))]
    Damaged {
        /// The code of the first finding.
        code: &'static str,
        /// What it says.
        what: String,
        /// Where.
        location: Box<Location>,
        /// Findings of that weight besides it.
        others: u64,
    },
    /// An archive to be read contradicts its format.
    #[error("{archive}: byte {offset}: {fault}")]
    Archive {
        /// The archive.
        archive: String,
        /// Where in it, after decompression.
        offset: u64,
        /// What is wrong.
        fault: ArchiveFault,
    },
    /// A container image to be read lacks a part, or its parts contradict each
    /// other.
    #[error("{name}: {what}")]
    Container {
        /// The layout or archive.
        name: String,
        /// What is wrong.
        what: String,
    },
    /// An image that contents are to be taken from cannot be opened.
    #[error("{name}: {error}")]
    Source {
        /// The image.
        name: String,
        /// Why not.
        #[source]
        error: Box<FsError>,
    },
    /// The image or request needs something we do not do.
    #[error("unsupported: {0}")]
    Unsupported(String),
    /// Something does not fit: blocks, inodes, a directory, an attribute.
    #[error("no space: {0}")]
    NoSpace(String),
    /// The path or name is not there.
    #[error("{0}: no such file or directory")]
    NotFound(String),
    /// A directory was needed.
    #[error("{0}: not a directory")]
    NotDirectory(String),
    /// The name is there already.
    #[error("{0}: already exists")]
    Exists(String),
    /// A directory, where none may be.
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
    /// As many links as the format can count.
    #[error("inode {0}: too many links")]
    TooManyLinks(Ino),
    /// A file longer than the format can map, or than its fields can say.
    #[error("{0}: file too large")]
    TooLarge(String),
    /// What nobody may do: writing to an immutable file, a second name for a
    /// directory.
    #[error("{0}: not permitted")]
    NotPermitted(String),
    /// A name that cannot be given in one step: the file has to be copied there, as to
    /// another file system.
    #[error("{0}: cannot be moved in one step")]
    CrossDevice(String),
    /// An extended attribute that is not there.
    #[error("{0}: no such attribute")]
    NoAttribute(String),
    /// No more changes: a write has failed, or it was mounted so.
    #[error("the file system is read-only: {0}")]
    ReadOnly(String),
    /// The request makes no sense for this file (reading a directory as a file, ...).
    #[error("{0}")]
    Invalid(String),
    /// A source file is not what it was when the layout was planned.
    #[error("{0}: changed while it was being read")]
    SourceChanged(String),
    /// The device under the image failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The operating system failed, with what was being done.
    #[error("{context}: {source}")]
    Io {
        /// The path or action.
        context: String,
        /// What the system said.
        source: io::Error,
    },
}

impl FsError {
    /// What a finding says of it, and where: of a corruption its kind, at its own
    /// place, as far as that is known, and else at `place`.
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

    /// A corruption at a place.
    #[must_use]
    pub fn corrupt(kind: Corruption, location: Location) -> Self {
        Self::Corrupt { kind, location: Box::new(location) }
    }

    /// An I/O error with what was being done.
    #[must_use]
    pub fn io(context: impl Into<String>, source: io::Error) -> Self {
        Self::Io { context: context.into(), source }
    }
}
