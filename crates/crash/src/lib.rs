//! Crash states: the possible contents of a device after it lost power, and whether a file system
//! recovers from all of them.
//!
//! A workload is done on a file system whose device keeps a log of writes and flushes. From the log
//! follow all the states that the device may be in after losing power at any time: every write
//! between two flushes may have reached it or not, independently of the others, and so may every
//! sector of it. Each state is recovered as it would be before the next mount, checked, and
//! compared with the operations of the workload and the promises made to it.
//!
//! Nothing here depends on a format: it comes as a [`Target`].
//!
//! - [`log`], [`recorder`], [`dm_log_writes`]: the writes and flushes of a device
//! - [`states`]: its possible states after a crash
//! - [`script`], [`workload`], [`driver`], [`history`]: workloads and their execution
//! - [`oracle`], [`judge`], `recovery`: the allowed states
//! - [`explore`], [`campaign`], [`resume`], [`replay`]: going through it all
//! - [`shrink`]: making a failure small
//! - [`accepted`]: some of the states, for others to judge
//! - [`mutation`]: whether a fault would be seen
//!
//! # Example
//!
//! ```
//! use seekless_crash::script::parse;
//!
//! let script = parse("append", "write old 0 100\nbegin\nappend old 20\nfsync old")?;
//! assert_eq!((script.setup.len(), script.body.len()), (1, 2));
//! let wrong = parse("typo", "begin\nwirte file 1").unwrap_err();
//! assert!(wrong.to_string().contains("wirte"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod accepted;
pub mod campaign;
#[deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::as_conversions
)]
pub mod dm_log_writes;
pub mod driver;
pub mod explore;
pub mod history;
pub mod judge;
pub mod log;
pub mod mutation;
pub mod oracle;
pub mod parts;
pub mod recorder;
mod recovery;
pub mod replay;
pub mod resume;
pub mod script;
pub mod shrink;
pub mod sparse;
pub mod states;
pub mod target;
pub mod workload;

pub use campaign::{Campaign, CampaignError, Settings, UnitResult};
pub use explore::{Extent, Search};
pub use log::{Log, Step};
pub use recorder::Recorder;
pub use script::Script;
pub use target::{Live, Recovered, Target};
