//! The table of formats: what can be done with an image whatever its format is, looked
//! up in one place. Mounts, experiments, ageing, crash searches and checks find a format
//! here; what only one format has they ask of its crate.
//!
//! - `table`: the rows, and which of them an image belongs to
//! - `mounting`: how an image is opened for changes, and what is in use then
//! - `ext`, `ffs`, `fat`: what each row does

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
pub use table::{FORMATS, Known, READERS, claim, to_check};
