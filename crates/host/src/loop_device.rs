//! Loop devices that vanish with their last user (loop(4)).

use crate::HostError;
use crate::mounts::DeviceNumber;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const LOOP_CTL_GET_FREE: libc::Ioctl = 0x4C82;
const LOOP_CONFIGURE: libc::Ioctl = 0x4C0A;

const READ_ONLY: u32 = 1;
const AUTOCLEAR: u32 = 4;
const DIRECT_IO: u32 = 16;

const RIGHTS: &str = "loop devices need root or CAP_SYS_ADMIN: run it with sudo";

/// Number of tries: another process may take the free device first.
const TRIES: u32 = 64;

/// `struct loop_info64` of `include/uapi/linux/loop.h`.
#[repr(C)]
#[derive(Clone, Copy)]
struct LoopInfo {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config` of the same header.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

const _: () = assert!(size_of::<LoopInfo>() == 232 && size_of::<LoopConfig>() == 304);

/// Options of a loop device.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LoopOptions {
    /// The device is read-only.
    pub read_only: bool,
    /// Direct I/O, bypassing the page cache of the backing file.
    pub direct: bool,
    /// Offset of the device in the file: a multiple of 512.
    pub offset: u64,
    /// Bytes of the device; 0 for the rest of the file.
    pub len: u64,
}

/// A file as a block device. The kernel removes the device at its last close or unmount, however
/// this process ends.
#[derive(Debug)]
pub struct LoopDevice {
    file: File,
    path: PathBuf,
}

impl LoopDevice {
    /// Attaches `backing` to a free loop device.
    ///
    /// # Errors
    /// Without the right to, or without loop devices.
    pub fn new(backing: &Path, options: LoopOptions) -> Result<Self, HostError> {
        let what = || format!("loop device on {}", backing.display());
        let failed = |error| HostError::new(what(), error).advise_rights(RIGHTS);
        let image = OpenOptions::new()
            .read(true)
            .write(!options.read_only)
            .open(backing)
            .map_err(failed)?;
        let control =
            OpenOptions::new().read(true).write(true).open("/dev/loop-control").map_err(failed)?;
        for _ in 0..TRIES {
            // SAFETY: takes no argument and touches no memory of ours.
            let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) };
            if number < 0 {
                return Err(failed(io::Error::last_os_error()));
            }
            let path = PathBuf::from(format!("/dev/loop{number}"));
            let file = OpenOptions::new()
                .read(true)
                .write(!options.read_only)
                .open(&path)
                .map_err(failed)?;
            match configure(&file, &image, options) {
                Ok(()) => return Ok(Self { file, path }),
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Err(HostError::lacking(what(), "others keep taking the free ones"))
    }

    /// The device node.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The device number.
    ///
    /// # Errors
    /// The system call's error.
    pub fn number(&self) -> Result<DeviceNumber, HostError> {
        let shown = || self.path.display().to_string();
        let meta = self.file.metadata().map_err(|error| HostError::new(shown(), error))?;
        Ok(DeviceNumber::from_stat(meta.rdev()))
    }

    /// Sets a property of the device's queue (`Documentation/ABI/stable/sysfs-block`), such as
    /// `read_ahead_kb`.
    ///
    /// # Errors
    /// If the kernel refuses the value.
    pub fn set_queue(&self, property: &str, value: u64) -> Result<(), HostError> {
        let name = self.path.file_name().unwrap_or_default();
        let path = Path::new("/sys/block").join(name).join("queue").join(property);
        std::fs::write(&path, value.to_string())
            .map_err(|error| HostError::new(path.display().to_string(), error))
    }
}

fn configure(device: &File, image: &File, options: LoopOptions) -> io::Result<()> {
    let mut flags = AUTOCLEAR;
    if options.read_only {
        flags |= READ_ONLY;
    }
    if options.direct {
        flags |= DIRECT_IO;
    }
    let info = LoopInfo {
        device: 0,
        inode: 0,
        rdevice: 0,
        offset: options.offset,
        size_limit: options.len,
        number: 0,
        encrypt_type: 0,
        encrypt_key_size: 0,
        flags,
        file_name: [0; 64],
        crypt_name: [0; 64],
        encrypt_key: [0; 32],
        init: [0; 2],
    };
    let fd = u32::try_from(image.as_raw_fd()).map_err(io::Error::other)?;
    let config = LoopConfig { fd, block_size: 512, info, reserved: [0; 8] };
    // SAFETY: the kernel reads one `loop_config`, which `config` is laid out as,
    // and keeps no pointer to it.
    let failed = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE, &raw const config) } < 0;
    if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
}
