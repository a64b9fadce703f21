//! Conditions under which an image can be changed safely: everything else is refused by the name
//! that e2fsprogs has for it, and can still be opened read-only.

use super::LiveOptions;
use crate::features::Features;
use crate::ondisk::{compat, incompat, ro_compat};
use crate::superblock::Super;
use seekless_cache::{Discipline, JournalMode};
use seekless_fs::FsError;
use seekless_fs::term::{Term, Text};
use seekless_placement::block::Ext4Goal;

/// Features that are supported for changes.
const KNOWN: Features = Features {
    compat: compat::DIR_PREALLOC
        | compat::EXT_ATTR
        | compat::RESIZE_INODE
        | compat::DIR_INDEX
        | compat::SPARSE_SUPER2
        | compat::HAS_JOURNAL
        | compat::FAST_COMMIT
        | compat::ORPHAN_FILE,
    incompat: incompat::FILETYPE
        | incompat::META_BG
        | incompat::FLEX_BG
        | incompat::EXTENTS
        | incompat::CSUM_SEED
        | incompat::BIT64
        | incompat::LARGEDIR
        | incompat::INLINE_DATA,
    ro_compat: ro_compat::SPARSE_SUPER
        | ro_compat::METADATA_CSUM
        | ro_compat::GDT_CSUM
        | ro_compat::LARGE_FILE
        | ro_compat::HUGE_FILE
        | ro_compat::EXTRA_ISIZE
        | ro_compat::DIR_NLINK,
};

/// Features with checksums that lie in another block than the structures they cover.
const SUMS: u32 = ro_compat::METADATA_CSUM | ro_compat::GDT_CSUM;

/// Refuses features that cannot be changed safely, and states that an image, if need be a recovered
/// one, must not be in. With `force`, one that is not clean is not refused.
///
/// # Errors
/// [`FsError::Unsupported`] for features, and for a discipline that cannot be used with them;
/// [`FsError::Invalid`] for an image that is not clean, unless that is forced.
pub(super) fn check(sb: &Super, force: bool, discipline: Discipline) -> Result<(), FsError> {
    features(sb, discipline)?;
    // With a journal, the next mount clears a list of orphans.
    let listed = sb.raw.s_last_orphan.get() != 0 && !sb.has_compat(compat::HAS_JOURNAL);
    if !(sb.is_clean() || force) || listed {
        return Err(not_clean());
    }
    Ok(())
}

/// Whether allocation is delayed: if requested, and by default with the goals of ext4 where
/// possible.
///
/// # Errors
/// [`FsError::Unsupported`] if it is impossible: on volumes without extents, and under disciplines
/// that log contents or write at once.
pub(super) fn delays(
    sb: &Super,
    options: &LiveOptions,
    discipline: Discipline,
) -> Result<bool, FsError> {
    let logs = discipline.journal_mode() == Some(JournalMode::Data);
    let refused = if !sb.has_incompat(incompat::EXTENTS) {
        Some("delalloc on an image without extent".to_string())
    } else if logs || discipline.orders_writes() {
        Some(format!(
            "delalloc with {discipline} (journal=ordered, journal=writeback and async can be used)"
        ))
    } else {
        None
    };
    match (options.delays, refused) {
        (Some(true), Some(why)) => Err(FsError::Unsupported(why)),
        (Some(delays), _) => Ok(delays),
        (None, refused) => {
            let blocks = options.blocks.as_deref().unwrap_or_default();
            Ok(refused.is_none() && blocks.split('=').next() == Some(Ext4Goal::NAME))
        }
    }
}

pub(super) fn not_clean() -> FsError {
    let text = Text::from("the file system is not clean: run ").then(Term::Preen);
    FsError::Refused(text.then(" first, or mount it with ").then(Term::ForcedMount))
}

/// Refuses features that are not supported; nothing is written to an image that has them, not even
/// by a recovery.
///
/// # Errors
/// As [`check`].
pub(super) fn features(sb: &Super, discipline: Discipline) -> Result<(), FsError> {
    let has = Features::of(&sb.raw);
    let passing =
        Features { compat: 0, incompat: incompat::RECOVER, ro_compat: ro_compat::ORPHAN_PRESENT };
    let unknown = Features {
        compat: has.compat & !KNOWN.compat,
        incompat: has.incompat & !(KNOWN.incompat | passing.incompat),
        ro_compat: has.ro_compat & !(KNOWN.ro_compat | passing.ro_compat),
    };
    let names = unknown.names();
    if !names.is_empty() {
        return Err(FsError::Unsupported(format!(
            "changing an image with {} (it can be mounted read-only)",
            names.join(", ")
        )));
    }
    match (sb.has_compat(compat::HAS_JOURNAL), discipline.journal_mode()) {
        (true, None) => Err(FsError::Unsupported(format!(
            "{discipline} on an image with a journal (use journal=ordered, journal=writeback or \
             journal=data)"
        ))),
        (false, Some(_)) => Err(FsError::Unsupported(format!(
            "{discipline} on an image without a journal (use softdep, normal, sync or async)"
        ))),
        (false, None) if discipline == Discipline::SoftUpdates => ordered(sb),
        // Contents move between inodes and blocks, with the name of an attribute.
        (false, None) if discipline.orders_writes() && sb.has_incompat(incompat::INLINE_DATA) => {
            Err(FsError::Unsupported(format!(
                "{discipline} on an image with inline_data (async can be used, or a journal)"
            )))
        }
        _ => Ok(()),
    }
}

/// Refuses features that cannot be changed under soft updates.
fn ordered(sb: &Super) -> Result<(), FsError> {
    let has = Features::of(&sb.raw);
    // A sum and the structure it covers cannot be written in an order that passes a check.
    let sums = Features { ro_compat: has.ro_compat & SUMS, ..Features::default() }.names();
    if !sums.is_empty() {
        return Err(FsError::Unsupported(format!(
            "softdep on an image with {}: its checksums cannot be written in order",
            sums.join(", ")
        )));
    }
    if sb.has_incompat(incompat::INLINE_DATA) {
        return Err(FsError::Unsupported(
            "softdep on an image with inline_data (async can be used, or a journal)".into(),
        ));
    }
    // Extents are moved to make room for others: no order of the sectors of a block
    // leaves a tree that is sound.
    if sb.has_incompat(incompat::EXTENTS) {
        return Err(FsError::Unsupported(
            "softdep on an image with extent (sync, normal and async can be used)".into(),
        ));
    }
    Ok(())
}
