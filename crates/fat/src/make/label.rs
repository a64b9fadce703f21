//! Labels of volumes.

use crate::name;
use seekless_fs::FsError;

/// A label as it is stored, `None` for no label: an empty one, blanks, or `NO NAME`, which stands
/// for it in the boot sector.
///
/// # Errors
/// [`FsError::Invalid`] for labels that are too long or have invalid characters.
pub(crate) fn encode(label: &[u8]) -> Result<Option<[u8; 11]>, FsError> {
    let shown = || String::from_utf8_lossy(label).into_owned();
    let bad = |why: &str| Err(FsError::Invalid(format!("label '{}': {why}", shown())));
    let Ok(text) = std::str::from_utf8(label) else { return bad("not UTF-8") };
    let mut stored = [b' '; 11];
    if text.chars().count() > stored.len() {
        return bad("longer than 11 characters");
    }
    for (to, c) in stored.iter_mut().zip(text.chars()) {
        if c < ' ' || "*?.,;:/\\|+=<>[]\"".contains(c) {
            return bad("characters below 0x20 and *?.,;:/\\|+=<>[]\" are not allowed");
        }
        let Some(byte) = name::to_oem(c) else {
            return bad("has a character that code page 850 does not have");
        };
        *to = byte;
    }
    if stored == [b' '; 11] || stored == *b"NO NAME    " {
        return Ok(None);
    }
    if stored.first() == Some(&b' ') {
        return bad("must not begin with a blank");
    }
    Ok(Some(stored))
}
