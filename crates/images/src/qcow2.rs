//! qcow2 images and Android sparse images are read by all commands, and changed by none.

use crate::error::{Error, ErrorKind};
use crate::simg;
use seekless_device::FileDevice;
use seekless_fs::FsError;
use seekless_qcow2::Qcow2Error;
use std::path::Path;

pub(crate) fn failed(error: Qcow2Error, path: &Path) -> Error {
    match error {
        Qcow2Error::Open { path, source } => Error::io(path.display(), &source),
        Qcow2Error::Unsupported(why) => {
            Error::new(ErrorKind::Unsupported, why).about(path.display())
        }
        Qcow2Error::Device(error) => Error::from(FsError::from(error)).about(path.display()),
    }
}

/// Whether a file is a qcow2 image, if it can be opened.
fn is_qcow2(path: &Path) -> bool {
    FileDevice::open(path).is_ok_and(|file| seekless_qcow2::is_image(&file))
}

/// Refuses a qcow2 image and an Android sparse image. `what` is the second half of the message: why
/// it is refused.
///
/// # Errors
/// [`ErrorKind::Unsupported`].
pub fn refuse_converted(path: &Path, what: &str) -> Result<(), Error> {
    if simg::is_simg(path) {
        let why = format!("{}: is an Android sparse image, {what}", path.display());
        return Err(Error::new(ErrorKind::Unsupported, why).hint("convert it with simg2img"));
    }
    if !is_qcow2(path) {
        return Ok(());
    }
    let why = format!("{}: is a qcow2 image, {what}", path.display());
    let hint = "convert it with qemu-img convert -O raw, or connect it to a device with qemu-nbd";
    Err(Error::new(ErrorKind::Unsupported, why).hint(hint))
}

/// Refuses to change a qcow2 image.
pub(crate) fn refuse_change(path: &Path) -> Result<(), Error> {
    refuse_converted(path, "which is only read here")
}
