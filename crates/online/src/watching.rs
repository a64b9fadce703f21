//! `seekless watch`: listens to opens, stores habits, and moves files when the policy of
//! [`seekless_layout::habits`] proposes it.

mod config;
mod daemon;
mod files;
mod learn;
mod listener;
mod request;
mod store;
mod work;

pub use config::Config;
pub use daemon::Daemon;
pub use files::Names;
pub use learn::{Learned, learn};
pub use request::Running;
use store::Lock;
pub use store::{ROOT, Store};
pub use work::{Done, Worker};

use seekless_layout::habits::Seconds;
use std::time::SystemTime;

/// Seconds since 1970.
pub fn now() -> Seconds {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
