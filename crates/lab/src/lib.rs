//! Experiments on file systems, measured in virtual time.
//!
//! An experiment is data: which trees are unpacked and removed, on which systems, under which
//! policies and update disciplines. A run drives the live engine over an image in memory; its
//! requests are charged to a modelled disk, its computing to a modelled processor. A run is a
//! function of the experiment, its seed and this version, and of nothing else.
//!
//! - [`experiment`]: the file of an experiment; [`builtin`]: the built-in ones
//! - [`quantity`]: sizes, spans and names in such files
//! - [`tree`]: the trees that are unpacked, generated from a seed
//! - [`seekplot`]: when and where a phase's requests were, in bounded room
//! - [`disk`]: an image whose requests take time on a modelled drive
//! - [`machine`]: the engine on such a disk, with a processor
//! - [`workload`]: operations, in phases
//! - [`repetition`]: differences between repetitions of a run
//! - [`run`]: one run and its measurements
//! - [`pool`]: several runs at once
//! - [`plan`]: which runs an experiment consists of
//! - [`store`]: runs kept in a directory as they finish
//! - [`table`]: all runs, a row for each phase; [`parquet`]: the same as such a file
//! - [`cells`]: runs compared with each other and with published figures
//! - [`grids`]: the cells of a sweep, laid out by its keys
//! - [`rank`]: how well two orders agree; [`ranking`]: which pairs of systems are in the
//!   published one
//! - [`sensitivity`]: how claims fare when assumptions change
//! - [`age`]: file systems used for a long time in a short one
//! - [`boots`]: the cost of ageing for a boot, on file systems of the kernel
//!
//! # Example
//!
//! ```
//! use seekless_lab::builtin;
//!
//! assert!(builtin::names().any(|name| name == "dirpref"));
//! builtin::experiment("dirpref")?;
//! assert!(builtin::experiment("dirprefs").is_err());
//! # Ok::<(), seekless_lab::LabError>(())
//! ```

pub mod age;
pub mod boots;
pub mod builtin;
pub mod cells;
pub mod disk;
pub mod experiment;
pub mod grids;
pub mod machine;
pub mod parquet;
pub mod parts;
pub mod plan;
pub mod pool;
pub mod quantity;
mod queue;
pub mod rank;
pub mod ranking;
pub mod repetition;
pub mod run;
pub mod seekplot;
pub mod sensitivity;
pub mod store;
pub mod table;
pub mod tree;
pub mod workload;

use seekless_fs::FsError;

/// Why an experiment could not be run or its results not be used.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// An experiment's file is invalid.
    #[error(transparent)]
    Spec(#[from] seekless_model::SpecError),
    /// The file system failed.
    #[error("{run}: {source}")]
    FileSystem {
        /// In which run.
        run: String,
        /// How.
        source: FsError,
    },
    /// The log of requests could not be written to its end.
    #[error("the request log: {0}")]
    Log(std::io::Error),
    /// Results could not be read or written.
    #[error("{path}: {source}")]
    Io {
        /// Of which file.
        path: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// A damaged file of results.
    #[error("{path}: not a result: {why}")]
    Damaged {
        /// Which file.
        path: String,
        /// The error in it.
        why: String,
    },
    /// Results that do not go together.
    #[error("{0}")]
    Mismatch(String),
    /// The name asked for does not exist.
    #[error("{0}")]
    Unknown(String),
}
