//! Reads parts of a lazily fetched volume ahead of its user, in the order in which they will be
//! needed.
//!
//! A [`FetchList`] has the parts, as `seekless trace export --format chunks` (or `ranges`) writes
//! them. A [`Prefetcher`] reads them with several readers. It reads no further ahead of the user than
//! a window of bytes, and leaves out parts that the user has passed, if it is told how far the user
//! is ([`User`]).
//!
//! Of this project it depends on sizes only: a small program is made of it, for an initramfs or a
//! host that starts virtual machines.
//!
//! ```
//! use seekless_prefetch::{FetchList, Prefetcher};
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("volume");
//! # std::fs::write(&path, vec![7; 1 << 20])?;
//! let list = "# seekless chunks 1 volume=1048576 chunk=65536 traces=1\n65536 65536 0 100\n";
//! let list = FetchList::parse(list.as_bytes())?;
//! let volume = seekless_prefetch::open_volume(&path)?;
//! let fetched = Prefetcher::new(&list).run(&volume)?;
//! assert_eq!((fetched.parts, fetched.bytes), (1, 65_536));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod list;
mod run;
mod user;

pub use list::{Fetch, FetchList, ListError};
pub use run::{Failed, Fetched, OtherVolume, Prefetcher, open_volume};
pub use user::{DeviceReads, User};
