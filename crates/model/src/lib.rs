//! Timing models of storage devices: completion times of requests.
//!
//! Pure: requests with their arrival times go in, completion times come out. No I/O and no clock of
//! its own; the same requests yield the same times on every machine. Time is virtual, in
//! [`Nanos`](seekless_units::Nanos) since the start of the run.
//!
//! - [`request`]: requests and completions
//! - [`device`]: the trait of all models, for many requests in flight
//! - [`mod@preset`]: the built-in devices, and devices from parameter files
//! - [`hdd`], [`ssd`], [`volume`], [`lazy`], [`null`]: the models
//! - [`disksim`]: drives from DiskSim's parameter files
//! - [`validate`]: comparison of a model with a measured trace
//! - [`closed_loop`]: jobs with a number of requests in flight, as fio runs them
//! - [`published`]: comparison of a model with published results of fio
//!
//! ```
//! use seekless_model::preset::preset;
//! use seekless_model::{DeviceModel, Request};
//! use seekless_units::{Lba, Nanos};
//!
//! let mut volume = preset("gp3")?;
//! let done = volume.serve(Nanos::ZERO, Request::read(Lba::new(0), 8))?;
//! assert!(done > Nanos::ZERO);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod closed_loop;
pub mod device;
pub mod disksim;
pub mod hdd;
mod in_flight;
pub mod lazy;
pub mod null;
pub mod preset;
pub mod published;
pub mod random;
pub mod request;
mod spec;
pub mod ssd;
mod tokens;
pub mod validate;
pub mod volume;

pub use device::{DeviceModel, Refused};
pub use preset::{SpecError, from_toml, preset};
pub use request::{Completion, Op, Request, Tag};
