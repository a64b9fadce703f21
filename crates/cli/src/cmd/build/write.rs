//! Writing an image whose layout is decided, whatever its format.

use crate::args::Global;
use crate::failure::Failure;
use crate::output::Output;
use crate::progress;
use crate::say::warning;
use seekless_device::FileDevice;
use seekless_ext::Builder;
use seekless_ffs as ufs;
use seekless_fs::FsError;
use seekless_fs::plan::Plan;
use seekless_units::ByteLen;
use std::fmt::Display;
use std::path::Path;

/// A volume whose layout is decided.
pub(crate) trait Built {
    /// Files whose times it cannot hold.
    fn clamped_times(&self) -> usize;
    /// Its length.
    fn size(&self) -> ByteLen;
    /// Writes it.
    fn write(
        &self,
        plan: &Plan,
        device: &FileDevice,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<(), FsError>;
}

macro_rules! built {
    ($builder:ty) => {
        impl Built for $builder {
            fn clamped_times(&self) -> usize {
                self.clamped_times()
            }
            fn size(&self) -> ByteLen {
                self.size()
            }
            fn write(
                &self,
                plan: &Plan,
                device: &FileDevice,
                progress: &(dyn Fn(u64) + Sync),
            ) -> Result<(), FsError> {
                self.write(plan, device, progress)
            }
        }
    };
}

built!(Builder<'_>);
built!(ufs::Builder<'_>);
built!(seekless_fat::Builder<'_>);

/// Writes a planned image to an output file; `source` names what it is made of.
pub(crate) fn write_built(
    builder: &dyn Built,
    plan: &Plan,
    source: &dyn Display,
    output: &Output,
    path: &Path,
    global: &Global,
) -> Result<(), Failure> {
    let clamped = builder.clamped_times();
    if clamped > 0 {
        warning!(
            "{clamped} files have timestamps that their inodes cannot store; the nearest possible times are used"
        );
    }
    let file = output.file()?;
    let io = |error: std::io::Error| Failure::io(path.display(), &error);
    file.set_len(builder.size().get()).map_err(io)?;
    let device = FileDevice::from_file(file, true).map_err(io)?;
    let bar = progress::bytes(global, builder.size());
    builder.write(plan, &device, &|bytes| bar.inc(bytes)).map_err(|error| match error {
        FsError::Device(_) => Failure::from(error).about(path.display()),
        _ => Failure::from(error).about(source),
    })?;
    bar.finish_and_clear();
    Ok(())
}
