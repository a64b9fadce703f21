//! FAT in use: the format behind the operations of `seekless-live`, and names, which are the files
//! themselves here.
//!
//! - `format`: the answers, each by one of the parts; `options`, `mount`: opening; `marks`: marks
//!   of a volume in use;
//! - `clusters`: clusters taken and given back, by way of `cluster_map`, their use in memory,
//!   and `allocation_table`, the entries of the FATs; `map`, `chain`: the clusters of a file;
//! - `unnamed`: how many chains a crash may leave without a name;
//! - `inodes`: files from their entries, and as entries again; `numbers`: their numbers, which last
//!   as long as the volume is open; `stamps`: their times;
//! - `directories`: directories in memory, each a `directory`; `layout`: where their slots lie;
//! - `slots`: entries put into directories and taken out, in which order; `departures`, `reach`:
//!   pending changes that these wait for;
//! - `contents`: contents of files;
//! - `namespace`: operations on names, which `names` offers to `seekless-live`.

mod allocation_table;
mod chain;
mod cluster_map;
mod clusters;
mod contents;
mod departures;
mod directories;
mod directory;
mod format;
mod inodes;
mod layout;
mod map;
mod marks;
mod mount;
mod names;
mod namespace;
mod numbers;
mod options;
mod reach;
mod slots;
mod stamps;
mod unnamed;

pub use format::Fat;
pub use options::LiveOptions;

use seekless_live::Live;

/// A FAT image in use.
pub type FatLive = Live<Fat>;
