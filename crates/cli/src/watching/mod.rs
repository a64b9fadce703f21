//! What `seekless watch` does: it listens to opens, keeps what it learns, and moves files
//! when the policy of [`seekless_layout::habits`] says so.

mod config;
mod daemon;
mod files;
mod listener;
mod request;
mod store;
mod work;

pub(crate) use config::Config;
pub(crate) use daemon::Daemon;
pub(crate) use files::Names;
pub(crate) use request::Running;
use store::Lock;
pub(crate) use store::{ROOT, Store};
pub(crate) use work::{Done, Worker};

use seekless_layout::habits::Seconds;
use std::time::SystemTime;

/// Seconds since 1970.
pub(crate) fn now() -> Seconds {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
