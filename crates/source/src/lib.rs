//! Where the files of an image come from.

pub mod directory;
pub mod options;

pub use directory::DirectorySource;
pub use options::{Excludes, IdMap, IdRange, TreeOptions};
