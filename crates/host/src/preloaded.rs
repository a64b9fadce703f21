//! Metadata as seen through preloaded libraries: fakeroot and pseudo store owners, device nodes and
//! extended attributes themselves and replace the functions of libc that query them. System calls
//! that bypass libc do not see these.

use std::ffi::{CStr, CString};
use std::io;

/// The preloaded library of this process, detected by the environment.
#[must_use]
pub fn library() -> Option<&'static str> {
    let preloaded = std::env::var_os("LD_PRELOAD").unwrap_or_default();
    let preloaded = preloaded.to_string_lossy();
    if preloaded.contains("fakeroot") || std::env::var_os("FAKEROOTKEY").is_some() {
        Some("fakeroot")
    } else if preloaded.contains("pseudo") {
        Some("pseudo")
    } else {
        None
    }
}

/// Whether libraries can be preloaded into this program.
pub const IS_DYNAMIC: bool = !cfg!(target_feature = "crt-static");

/// Names and values of the extended attributes of a file, or of a symlink itself, as libc returns
/// them.
///
/// # Errors
/// The call's error. A file system without attributes is no error and yields none.
pub fn xattrs(path: &[u8]) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let path = CString::new(path)?;
    let names = match list(&path) {
        Err(error) if error.raw_os_error() == Some(libc::ENOTSUP) => return Ok(Vec::new()),
        names => names?,
    };
    let mut found = Vec::new();
    for name in names.split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
        let name = CString::new(name)?;
        match value(&path, &name) {
            Ok(value) => found.push((name.into_bytes(), value)),
            // Removed meanwhile, or listed but without a value.
            Err(error) if error.raw_os_error() == Some(libc::ENODATA) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// Maximum size of an attribute's value and of the list of names.
const MOST: usize = 64 << 10;

fn list(path: &CStr) -> io::Result<Vec<u8>> {
    let mut names = vec![0; MOST];
    // SAFETY: the path ends in a zero byte, and no more than the buffer's length is written.
    let got = unsafe { libc::llistxattr(path.as_ptr(), names.as_mut_ptr().cast(), names.len()) };
    cut(names, got)
}

fn value(path: &CStr, name: &CStr) -> io::Result<Vec<u8>> {
    let mut value = vec![0u8; MOST];
    let (buf, len) = (value.as_mut_ptr().cast(), value.len());
    // SAFETY: path and name end in zero bytes, and no more than `len` bytes are written.
    let got = unsafe { libc::lgetxattr(path.as_ptr(), name.as_ptr(), buf, len) };
    cut(value, got)
}

fn cut(mut bytes: Vec<u8>, got: isize) -> io::Result<Vec<u8>> {
    match usize::try_from(got) {
        Ok(got) => {
            bytes.truncate(got);
            Ok(bytes)
        }
        Err(_) => Err(io::Error::last_os_error()),
    }
}
