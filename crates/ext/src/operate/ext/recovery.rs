//! Recovery of a volume that was in use under soft updates, while it is in use again.

use super::Ext;
use crate::ondisk::{OrderedMark, STATE_ERRORS, compat};
use crate::operate::map::{Core, Map};
use crate::superblock::Super;
use seekless_cache::{ChangeId, Discipline, Role};
use seekless_fs::FsError;
use seekless_fs::term::{Term, Text};
use seekless_live::{Linked, Part, Progress, Recovery, Table};
use seekless_units::{GroupNo, Ino};

/// Refuses a volume with a journal, before that is recovered.
///
/// # Errors
/// [`FsError::Unsupported`].
pub(super) fn refuse_journal(sb: &Super) -> Result<(), FsError> {
    if sb.has_compat(compat::HAS_JOURNAL) {
        return Err(FsError::Unsupported(
            "option recover on an image with a journal: it is recovered when it is mounted".into(),
        ));
    }
    Ok(())
}

/// The progress of a volume without a journal that is to be recovered while it is in use.
///
/// # Errors
/// [`FsError::Refused`] if it cannot be.
pub(super) fn begin(sb: &Super, discipline: Discipline) -> Result<Progress, FsError> {
    let refuse = |why: &str| {
        let text = Text::from(why).then(": run ").then(Term::Preen).then(" first");
        Err(FsError::Refused(text))
    };
    if sb.is_clean() {
        return Ok(Progress::None);
    }
    if sb.raw.s_state.get() & STATE_ERRORS != 0 {
        return refuse("it is marked as one that must be checked before it is used");
    }
    if !OrderedMark::is_valid(&sb.raw) {
        return refuse(
            "only a volume that was in use with soft updates, by seekless, can be used before it \
             is checked",
        );
    }
    if discipline != Discipline::SoftUpdates {
        return refuse("only with soft updates can it be used before it is checked");
    }
    Ok(Progress::UnderWay)
}

impl Recovery<Map> for Ext {
    fn is_under_way(&self) -> bool {
        self.progress == Progress::UnderWay
    }

    fn recount(
        &mut self,
        core: &mut Core,
        group: GroupNo,
        surplus_directories: i64,
    ) -> Result<(), FsError> {
        self.maps.space().groups_mut().recount(core, group, surplus_directories)
    }

    fn put_sectors(&mut self, core: &mut Core, ino: Ino) -> Result<(), FsError> {
        self.maps.tables().put_part(core, ino, Part::Map, Role::LinkDrop, &[], None).map(drop)
    }

    fn has_dead_names(&self) -> bool {
        matches!(self.progress, Progress::UnderWay | Progress::NeedsCheck)
    }

    /// A check wants to see when it was deleted.
    fn clear_unused(&mut self, core: &mut Core, ino: Ino) -> Result<ChangeId, FsError> {
        self.put_cleared(core, ino, false, &[])
    }

    fn end(&mut self, sound: bool) {
        self.progress.end(sound);
    }
}
