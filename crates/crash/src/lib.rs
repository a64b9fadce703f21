//! Crash states: what a device may hold after it lost power, and whether a file
//! system recovers from all of it.
//!
//! A workload is done on a file system whose device keeps a log of writes and
//! flushes. From the log follow all the states that the device may be in after
//! losing power at any time: every write between two flushes may have reached it
//! or not, whatever became of the others, and every sector of it. Each state is
//! recovered as it would be before the next mount, checked, and held against what
//! the workload did and what it was promised.
//!
//! Nothing here knows a format: it comes as a [`Target`].
//!
//! - [`log`], [`recorder`], [`dm_log_writes`]: what a device was told
//! - [`states`]: what it may hold
//! - [`script`], [`workload`], [`driver`], [`history`]: what is done
//! - [`oracle`], [`judge`], `recovery`: what may be found then
//! - [`explore`], [`campaign`], [`resume`], [`replay`]: going through it all
//! - [`shrink`]: making a failure small
//! - [`keep`]: some of the states, for others to judge
//! - [`mutation`]: whether a fault would be seen

pub mod campaign;
#[deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::as_conversions,
    clippy::arithmetic_side_effects
)]
pub mod dm_log_writes;
pub mod driver;
pub mod explore;
pub mod history;
pub mod judge;
pub mod keep;
pub mod log;
pub mod mutation;
pub mod oracle;
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
