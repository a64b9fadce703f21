//! ext2, ext3 and ext4: reading, planning and writing images.
//!
//! One module per on-disk concept. On-disk structures stay inside the crate;
//! what leaves it are the types of `seekless-fs`.

mod build;
mod checksum;
mod features;
mod hash;
#[allow(dead_code, reason = "the full vocabulary of the format, used or not")]
mod ondisk;

pub use build::Builder;
pub use build::options::Options as BuildOptions;
pub use features::Features;

use seekless_device::BlockDevice;
use seekless_fs::FsError;
use seekless_fs::format::{Format, Probe};

/// The row of the ext family in the table of formats.
pub const FORMAT: Format =
    Format { name: "ext", probe, open: |_, _| Err(FsError::Unsupported("reading".into())) };

fn probe(_device: &dyn BlockDevice) -> Probe {
    Probe::No
}
