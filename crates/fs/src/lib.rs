//! Interfaces of file-system formats, and their common types.
//!
//! A format crate implements the narrow traits here: [`Inspect`] to read an image, and the pair of
//! [`plan::Demand`] and a writer to build one. Nothing here depends on a format; nothing here
//! prints or reads the environment.
//!
//! - [`acl`]: access control lists, and the mode of files that have them
//! - [`attr`]: attributes, times, extended attributes
//! - [`bits`]: a bitmap over a large index range
//! - [`check`]: findings of a check of an image; [`corrections`]: of one in use
//! - [`error`]: typed errors with locations; [`term`]: parameters that they name
//! - [`mod@format`]: the table of formats
//! - [`growth`]: volumes that become larger
//! - [`inspect`]: reading an image, and the locations of its parts
//! - [`operate`]: changing an image while it is in use
//! - [`tree`]: a whole directory tree in compact form, ready to be written
//! - [`field`]: bounds-checked access to the bytes of on-disk structures
//! - [`quota`]: usage and limits of users, groups and projects
//! - [`read_cache`]: a bounded cache of metadata blocks
//! - [`snapshot`]: earlier states that a volume keeps of itself
//! - [`source`]: the source of such a tree's contents
//! - [`mapped`]: contents found by a block map
//! - [`patches`]: the writer of repairs
//! - [`plan`]: every inode number and extent of an image, decided at once
//! - [`forward`]: writing a plan's data, in disk order

pub mod acl;
pub mod attr;
pub mod bits;
pub mod check;
pub mod corrections;
pub mod error;
pub mod extents;
pub mod field;
pub mod format;
pub mod forward;
pub mod growth;
pub mod inspect;
pub mod mapped;
pub mod operate;
pub mod patches;
pub mod plan;
pub mod quota;
pub mod read_cache;
pub mod snapshot;
pub mod source;
pub mod term;
pub mod tree;

pub use attr::{Attr, DeviceNumber, FileKind, Timestamp, Xattr, inode_flag};
pub use error::{ArchiveFault, Corruption, FsError, Location};
pub use inspect::{
    BlockMap, DirEntry, Fixed, FixedKind, Geometry, GroupSummary, IndexBlock, InodeLocation,
    Inspect, Mapping,
};
