//! Lists of extended attributes, as they are changed.

use seekless_fs::operate::XattrMode;
use seekless_fs::{FsError, Xattr};

/// Sets an attribute in a list or, without a value, removes it.
///
/// # Errors
/// [`FsError::Exists`], [`FsError::NoAttribute`].
pub fn change_list(
    all: &mut Vec<Xattr>,
    name: &[u8],
    value: Option<&[u8]>,
    mode: XattrMode,
) -> Result<(), FsError> {
    let shown = || String::from_utf8_lossy(name).into_owned();
    let there = all.iter().position(|xattr| xattr.name == name);
    match (there, mode) {
        (Some(_), XattrMode::Create) => return Err(FsError::Exists(shown())),
        (None, XattrMode::Replace) => return Err(FsError::NoAttribute(shown())),
        (Some(at), _) => drop(all.remove(at)),
        (None, _) if value.is_none() => return Err(FsError::NoAttribute(shown())),
        (None, _) => {}
    }
    all.extend(value.map(|value| Xattr { name: name.to_vec(), value: value.to_vec() }));
    Ok(())
}
