//! An image that is written as a raw one first, to a file without a name, and then converted.

use super::qemu::QemuFormat;
use super::{file_of_length, qemu, simg};
use crate::error::Error;
use crate::output::{Output, directory_of};
use crate::stop::Stop;
use seekless_device::BlockDevice;
use seekless_units::ByteLen;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A format that is converted to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Conversion {
    /// By `qemu-img`.
    Qemu(QemuFormat),
    Simg,
}

impl Conversion {
    /// The format in a sentence.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Qemu(format) => format.name(),
            Self::Simg => "sparse image",
        }
    }

    /// Why contents are not cloned.
    pub(super) fn copies(self) -> &'static str {
        match self {
            Self::Qemu(_) => "the image is written by qemu-img, which copies",
            Self::Simg => "Android sparse images are copied, chunk by chunk",
        }
    }
}

pub(super) struct ConvertedTarget {
    pub(super) conversion: Conversion,
    raw: File,
    output: Output,
    path: PathBuf,
}

impl ConvertedTarget {
    /// Begins an image. Impossible requests are refused before anything is built.
    pub(super) fn begin(
        path: &Path,
        output: Output,
        conversion: Conversion,
    ) -> Result<Self, Error> {
        if let Conversion::Qemu(format) = conversion {
            qemu::require_converter(path, format)?;
        }
        let dir = directory_of(path);
        let raw = tempfile::tempfile_in(dir).map_err(|error| Error::io(dir.display(), &error))?;
        Ok(Self { conversion, raw, output, path: path.into() })
    }

    /// The file to convert, extended to `len` bytes.
    pub(super) fn device(&self, len: ByteLen) -> Result<Arc<dyn BlockDevice>, Error> {
        file_of_length(&self.raw, len, &self.path)
    }

    /// Converts the file, and gives the result its name. The conversion ends after a request to stop.
    pub(super) fn finish(self, stop: &Stop) -> Result<(), Error> {
        let Self { conversion, raw, output, path } = self;
        match conversion {
            Conversion::Qemu(format) => qemu::convert(&raw, &output, &path, format, stop)?,
            Conversion::Simg => simg::convert(raw, &output, &path, stop)?,
        }
        output.finish()
    }
}
