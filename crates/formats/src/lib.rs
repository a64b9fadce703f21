//! The table of formats: operations on an image independent of its format, looked up in one place.
//! Mounts, experiments, ageing, crash searches and checks find a format here; features of a single
//! format are in its crate.
//!
//! - `table`: the rows, and the selection of an image's row
//! - `mounting`: opening of images for changes, and file systems in use
//! - `ext`, `ffs`, `fat`: the operations of each row

mod ext;
mod fat;
mod ffs;
mod mounting;
mod table;

pub use ext::EXT;
pub use fat::FAT;
pub use ffs::FFS;
pub use mounting::{InUse, Mounting, Wall, sort_as_listed};
pub use seekless_fat::LostChains;
pub use table::{FORMATS, KnownFormat, READERS, claim, claim_among, to_check};
