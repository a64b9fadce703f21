//! Destinations of an image: a file, an image of a format for virtual machines or fastboot, or a block
//! device.
//!
//! Files appear whole or not at all. A block device is written in place: first it is zeroed as far
//! as the image reaches, so that its old contents are gone, and its beginning is written last, so
//! that a device with an incomplete image shows no file system.

mod block;
mod converted;
mod copy;
mod qemu;
mod reflink;
mod simg;
mod streamed;
mod vhd;

pub use copy::{copy_of_table, copy_range};
pub use reflink::{Cloning, CloningFile, ReflinkMode};

use crate::error::{Error, ErrorKind};
use crate::output::{Output, input_file, is_input};
use crate::progress::Progress;
use crate::stop::Stop;
use block::BlockTarget;
use converted::{Conversion, ConvertedTarget};
use qemu::QemuFormat;
use reflink::CloningDevice;
use seekless_device::{BlockDevice, FileDevice, Window};
use seekless_fs::FsError;
use seekless_host::block_device::{backing_file, number, overlap};
use seekless_host::mounts::DeviceNumber;
use seekless_units::{ByteLen, Lba};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use streamed::StreamTarget;

/// The format of an image's file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OutputFormat {
    /// The bytes of the image.
    Raw,
    /// A qcow2 image, converted by `qemu-img`.
    Qcow2,
    /// An Android sparse image.
    Simg,
    /// A fixed VHD image: the bytes of the image, and a footer.
    Vhd,
    /// A dynamic VHDX image, converted by `qemu-img`.
    Vhdx,
    /// A sparse VMDK image, converted by `qemu-img`.
    Vmdk,
}

impl OutputFormat {
    /// The format that a name ends in.
    fn named(path: &Path) -> Self {
        match path.extension().and_then(OsStr::to_str) {
            Some("qcow2") => Self::Qcow2,
            Some("simg") => Self::Simg,
            Some("vhd") => Self::Vhd,
            Some("vhdx") => Self::Vhdx,
            Some("vmdk") => Self::Vmdk,
            _ => Self::Raw,
        }
    }
}

/// An image being written.
pub struct Target {
    path: PathBuf,
    sink: Sink,
    /// The device last returned by [`Target::device`].
    given: Mutex<Option<Arc<dyn BlockDevice>>>,
    /// The file, if contents are cloned.
    cloning: Option<Arc<Cloning>>,
    stop: Stop,
}

enum Sink {
    File(Output),
    /// A file that gets a footer.
    Vhd(Output),
    Converted(ConvertedTarget),
    Device(BlockTarget),
    Stream(StreamTarget),
}

impl Target {
    /// Begins writing to `path`, from `inputs`: files, directories and devices. Without `force` it
    /// must not exist, or be a block device without recognised contents. Without a format, the end
    /// of the name decides: `.qcow2`, `.simg`, `.vhd`, `.vhdx` or `.vmdk`.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] for a target that is one of the inputs, that lies inside one, or that is
    /// a device which contains one;
    /// [`ErrorKind::System`] if the target has contents already, or a device or an image is in use;
    /// [`ErrorKind::Unsupported`] without `qemu-img`; I/O errors.
    pub fn create<P: AsRef<Path>>(
        path: &Path,
        force: bool,
        format: Option<OutputFormat>,
        inputs: impl IntoIterator<Item = P>,
    ) -> Result<Self, Error> {
        let sink = if let Some(own) = number(path) {
            refuse_devices(own, path, inputs)?;
            if format.is_some_and(|format| format != OutputFormat::Raw) {
                let what = format!("{}: block devices take raw images", path.display());
                return Err(Error::usage(what));
            }
            Sink::Device(BlockTarget::open(path, force)?)
        } else {
            let output = Output::create(path, force, inputs)?;
            let converted =
                |output, to| ConvertedTarget::begin(path, output, to).map(Sink::Converted);
            match format.unwrap_or_else(|| OutputFormat::named(path)) {
                OutputFormat::Raw => Sink::File(output),
                OutputFormat::Vhd => Sink::Vhd(output),
                OutputFormat::Qcow2 => converted(output, Conversion::Qemu(QemuFormat::Qcow2))?,
                OutputFormat::Vhdx => converted(output, Conversion::Qemu(QemuFormat::Vhdx))?,
                OutputFormat::Vmdk => converted(output, Conversion::Qemu(QemuFormat::Vmdk))?,
                OutputFormat::Simg => converted(output, Conversion::Simg)?,
            }
        };
        Ok(Self::new(path, sink))
    }

    /// Begins writing to standard output, unless that is a terminal.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] for a terminal and for a format other than raw; I/O errors.
    pub fn standard_output(format: Option<OutputFormat>, temp_dir: &Path) -> Result<Self, Error> {
        if format.is_some_and(|format| format != OutputFormat::Raw) {
            return Err(Error::usage("standard output takes raw images"));
        }
        let sink = Sink::Stream(StreamTarget::begin(temp_dir)?);
        // Until the image is complete, errors are about this file.
        let name = format!("temporary file in {}", temp_dir.display());
        Ok(Self::new(name.as_ref(), sink))
    }

    /// Contents are copied, unless they are asked to be cloned.
    fn new(path: &Path, sink: Sink) -> Self {
        let stop = Stop::new();
        Self { path: path.into(), sink, given: Mutex::new(None), cloning: None, stop }
    }

    /// Lets contents be cloned. Only regular files share blocks with others.
    ///
    /// # Errors
    /// With [`ReflinkMode::Always`], [`ErrorKind::Unsupported`] with the reason for which nothing
    /// can be cloned; I/O errors.
    pub fn with_reflink(mut self, mode: ReflinkMode) -> Result<Self, Error> {
        let impossible = |why| Cloning::impossible(mode, &self.path, why);
        self.cloning = match &self.sink {
            Sink::File(output) | Sink::Vhd(output) => {
                Cloning::begin(mode, &output.file()?, &self.path)?
            }
            Sink::Converted(target) => impossible(target.conversion.copies())?,
            Sink::Device(_) => impossible("the output is a block device, not a regular file")?,
            Sink::Stream(_) => impossible("the image is copied to standard output")?,
        };
        Ok(self)
    }

    /// Lets the work be stopped: after the request the target is neither written nor completed.
    #[must_use]
    pub fn with_stop(mut self, stop: Stop) -> Self {
        self.stop = stop;
        self
    }

    /// For standard output only: the file from which the image is copied there.
    ///
    /// # Errors
    /// I/O errors.
    pub fn streamed(&self) -> Result<Option<File>, Error> {
        match &self.sink {
            Sink::Stream(target) => target.file().map(Some),
            _ => Ok(None),
        }
    }

    /// The target's name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Size of a device; a file has none.
    pub fn capacity(&self) -> Option<ByteLen> {
        match &self.sink {
            Sink::Device(device) => Some(device.len()),
            Sink::File(_) | Sink::Vhd(_) | Sink::Converted(_) | Sink::Stream(_) => None,
        }
    }

    /// Whether a device has been changed.
    pub fn is_touched(&self) -> bool {
        matches!(&self.sink, Sink::Device(device) if device.is_touched())
    }

    /// Refuses blocks of `block` bytes if the device has larger sectors, on which no kernel mounts
    /// them; `hint` is added to the error.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] with the size of a sector.
    pub fn refuse_blocks(&self, block: u32, hint: &str) -> Result<(), Error> {
        match &self.sink {
            Sink::Device(device) if block < device.sector() => {
                let (path, sector) = (self.path.display(), device.sector());
                let what =
                    format!("{path}: has sectors of {sector} bytes, the image blocks of {block}");
                Err(Error::new(ErrorKind::Unsupported, what).hint(hint))
            }
            _ => Ok(()),
        }
    }

    /// Refuses a file system that does not begin with the target's first byte where the bytes around
    /// it would not stay.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for a block device, and for a qcow2 or sparse image that exists.
    pub fn refuse_offset(&self) -> Result<(), Error> {
        let (why, hint) = match &self.sink {
            Sink::Device(_) => (
                "a device is written from its beginning".to_owned(),
                "write to the device of the partition, or of losetup --offset",
            ),
            Sink::Vhd(_) if self.path.exists() => {
                ("the other contents of a VHD image do not stay".into(), "write to a raw image")
            }
            Sink::Converted(target) if self.path.exists() => {
                let name = target.conversion.name();
                (format!("the other contents of a {name} do not stay"), "write to a raw image")
            }
            _ => return Ok(()),
        };
        let what = format!("{}: a file system at an offset: {why}", self.path.display());
        Err(Error::new(ErrorKind::Unsupported, what).hint(hint))
    }

    /// Copies the bytes around a file system of `len` bytes at `start` from the file that the target
    /// replaces, if there is one.
    ///
    /// # Errors
    /// I/O errors.
    pub fn keep_around(
        &self,
        start: ByteLen,
        len: ByteLen,
        progress: &dyn Progress,
    ) -> Result<(), Error> {
        if !matches!(self.sink, Sink::File(_)) {
            return Ok(());
        }
        let old = match FileDevice::open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            old => old.map_err(|error| Error::io(self.path.display(), &error))?,
        };
        let (all, end) = (old.len().get(), start.get() + len.get());
        let new = self.device(ByteLen::new(all.max(end)), progress)?;
        let (from, to) = ((&old as &dyn BlockDevice, &*self.path), (new.as_ref(), &*self.path));
        copy_range(from, to, 0, start.get().min(all))?;
        copy_range(from, to, end, all)
    }

    /// The first `len` bytes of the target, zeros where nothing was written. A further call returns
    /// it with another length.
    ///
    /// # Errors
    /// [`ErrorKind::NoSpace`] if a device is smaller; I/O errors.
    pub fn device(
        &self,
        len: ByteLen,
        progress: &dyn Progress,
    ) -> Result<Arc<dyn BlockDevice>, Error> {
        let device: Arc<dyn BlockDevice> = match &self.sink {
            Sink::File(output) | Sink::Vhd(output) => {
                let device = file_of_length(&output.file()?, len, &self.path)?;
                match &self.cloning {
                    Some(cloning) => {
                        Arc::new(CloningDevice::new(device, cloning.target(output.file()?)))
                    }
                    None => device,
                }
            }
            Sink::Stream(target) => file_of_length(&target.file()?, len, &self.path)?,
            Sink::Converted(target) => target.device(len)?,
            Sink::Device(target) => {
                let window = Window::new(target.device(len, progress)?, Lba::ZERO, len);
                let window = window.map_err(|error| {
                    Error::from(FsError::from(error)).about(self.path.display())
                })?;
                Arc::new(window)
            }
        };
        Ok(self.give(device))
    }

    /// A disk with `len` bytes of partitions, zeros where nothing was written, and room behind them
    /// for the end of a partition table: a file with `tail` bytes for that, or all of a device,
    /// whose contents behind the partitions stay except for its end.
    ///
    /// # Errors
    /// As [`device`](Self::device).
    pub fn disk(
        &self,
        len: ByteLen,
        tail: ByteLen,
        progress: &dyn Progress,
    ) -> Result<Arc<dyn BlockDevice>, Error> {
        let all = ByteLen::new(len.get().saturating_add(tail.get()));
        match &self.sink {
            Sink::Device(target) if all <= target.len() => {
                Ok(self.give(target.device(len, progress)?))
            }
            _ => self.device(all, progress),
        }
    }

    /// Notes the device that is written to, which a request to stop ends.
    fn give(&self, device: Arc<dyn BlockDevice>) -> Arc<dyn BlockDevice> {
        let device = self.stop.device(device);
        *self.given.lock().unwrap_or_else(PoisonError::into_inner) = Some(device.clone());
        device
    }

    /// The device last returned by [`Target::device`] or [`Target::disk`], for reading.
    pub fn written(&self) -> Option<Arc<dyn BlockDevice>> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Completes the image: a file gets its name, a device its beginning.
    ///
    /// # Errors
    /// I/O errors; [`ErrorKind::NoSpace`] and [`ErrorKind::System`] of `qemu-img`;
    /// [`ErrorKind::System`] after a request to stop;
    /// [`ErrorKind::Unsupported`] if contents had to be cloned and none were.
    pub fn finish(self) -> Result<(), Error> {
        self.stop.check()?;
        if let Some(cloning) = &self.cloning {
            cloning.finish(&self.path)?;
        }
        match self.sink {
            Sink::File(output) => output.finish(),
            Sink::Vhd(output) => {
                vhd::add_footer(&output, &self.path)?;
                output.finish()
            }
            Sink::Converted(target) => target.finish(&self.stop),
            Sink::Device(target) => target.finish(),
            Sink::Stream(target) => target.finish(),
        }
    }
}

/// Refuses a device that is one of the inputs, or that contains one.
fn refuse_devices<P: AsRef<Path>>(
    own: DeviceNumber,
    path: &Path,
    inputs: impl IntoIterator<Item = P>,
) -> Result<(), Error> {
    let file_of = |device| backing_file(device).and_then(|file| file.canonicalize().ok());
    let behind = file_of(own);
    let is_behind = |file: Option<PathBuf>| behind.is_some() && file == behind;
    for input in inputs {
        let file = input_file(input.as_ref());
        let overlaps = match number(&file) {
            Some(other) => overlap(own, other) || is_behind(file_of(other)),
            None => is_behind(file.canonicalize().ok()),
        };
        if overlaps {
            return Err(is_input(path, input.as_ref()));
        }
    }
    Ok(())
}

/// A file as a device, extended to `len` bytes; messages call it `path`.
fn file_of_length(file: &File, len: ByteLen, path: &Path) -> Result<Arc<dyn BlockDevice>, Error> {
    let io = |error: io::Error| Error::io(path.display(), &error);
    file.set_len(len.get()).map_err(io)?;
    let file = file.try_clone().map_err(io)?;
    Ok(Arc::new(FileDevice::from_file(file, true).map_err(io)?))
}

/// Whether a file has a format that is written and not read: VHDX or VMDK.
#[must_use]
pub fn is_written_only(path: &Path) -> bool {
    let mut head = [0; 8];
    let is_read = FileDevice::open(path).is_ok_and(|file| file.read(Lba::ZERO, &mut head).is_ok());
    is_read && (head == *b"vhdxfile" || head.starts_with(b"KDMV"))
}
