//! What an image must be for its changes to be safe: everything else is refused
//! by the name that e2fsprogs has for it, and can still be opened read-only.

use super::LiveOptions;
use crate::features::Features;
use crate::ondisk::{STATE_VALID, compat, incompat, ro_compat};
use crate::superblock::Super;
use seekless_fs::FsError;

/// Features that are kept up.
const KNOWN: Features = Features {
    compat: compat::DIR_PREALLOC
        | compat::EXT_ATTR
        | compat::RESIZE_INODE
        | compat::DIR_INDEX
        | compat::SPARSE_SUPER2,
    incompat: incompat::FILETYPE | incompat::META_BG | incompat::FLEX_BG,
    ro_compat: ro_compat::SPARSE_SUPER
        | ro_compat::LARGE_FILE
        | ro_compat::EXTRA_ISIZE
        | ro_compat::DIR_NLINK,
};

/// `s_state`: errors were met.
const STATE_ERRORS: u16 = 2;

/// Refuses what cannot be changed safely.
///
/// # Errors
/// [`FsError::Unsupported`] for features; [`FsError::Invalid`] for an image that is
/// not clean, unless that is forced.
pub(super) fn check(sb: &Super, options: &LiveOptions) -> Result<(), FsError> {
    let has = Features::of(&sb.raw);
    let unknown = Features {
        compat: has.compat & !KNOWN.compat,
        incompat: has.incompat & !KNOWN.incompat,
        ro_compat: has.ro_compat & !KNOWN.ro_compat,
    };
    let names = unknown.names();
    if !names.is_empty() {
        return Err(FsError::Unsupported(format!(
            "changing an image with {} (it can be mounted read-only)",
            names.join(", ")
        )));
    }
    let state = sb.raw.s_state.get();
    let clean = state & STATE_VALID != 0 && state & STATE_ERRORS == 0;
    if !(clean || options.force) || sb.raw.s_last_orphan.get() != 0 {
        return Err(FsError::Invalid(
            "the file system is not clean: run seekless check -p first, or mount it with -o force"
                .into(),
        ));
    }
    Ok(())
}
