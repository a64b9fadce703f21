//! Opening an image by path: the table of all formats.

use crate::args::OpenArgs;
use crate::failure::Failure;
use seekless_device::FileDevice;
use seekless_fs::Inspect;
use seekless_fs::format::{Format, OpenOptions};
use std::path::Path;
use std::sync::Arc;

/// Every format, in probing order.
pub(crate) const FORMATS: &[Format] = &[seekless_ext::FORMAT, seekless_ffs::FORMAT];

/// Opens an image file or device for reading.
pub(crate) fn open(path: &Path, args: OpenArgs) -> Result<Arc<dyn Inspect>, Failure> {
    let device = FileDevice::open(path).map_err(|error| Failure::io(path.display(), &error))?;
    seekless_fs::format::open(FORMATS, Arc::new(device), open_options(args))
        .map_err(|error| Failure::from(error).about(path.display()))
}

/// The options as the formats take them.
pub(crate) fn open_options(args: OpenArgs) -> OpenOptions {
    OpenOptions { ignore_checksums: args.ignore_checksums, skip_journal: args.skip_journal }
}
