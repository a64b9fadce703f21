//! Recovery of a volume that was in use under soft updates, while it is in use again.

use super::Ffs;
use super::map::Core;
use crate::ondisk::flag;
use crate::superblock::Super;
use seekless_cache::{Discipline, Role};
use seekless_fs::corrections::Correction;
use seekless_fs::term::{Term, Text};
use seekless_fs::{FsError, Location};
use seekless_live::{Part, Progress, Recovery, Table};
use seekless_units::{GroupNo, Ino};

/// The progress of a volume that is to be recovered while it is in use.
///
/// # Errors
/// [`FsError::Refused`] if it cannot be.
pub(super) fn begin(sb: &Super, discipline: Discipline) -> Result<Progress, FsError> {
    let refuse = |why: &str| {
        let text = Text::from(why).then(": run ").then(Term::Preen).then(" first");
        Err(FsError::Refused(text))
    };
    if is_clean(sb) {
        return Ok(Progress::None);
    }
    if sb.flags & flag::NEEDS_FSCK != 0 {
        return refuse("it is marked as one that must be checked before it is used");
    }
    if sb.flags & flag::SOFT_UPDATES == 0 {
        return refuse(
            "only a volume that was in use with soft updates can be used before it is checked",
        );
    }
    if discipline != Discipline::SoftUpdates {
        return refuse("only with soft updates can it be used before it is checked");
    }
    Ok(Progress::UnderWay)
}

/// The flags of the superblock of a closed volume, and whether it is clean.
pub(super) fn closed(progress: Progress, sb: &Super) -> (u32, bool) {
    match progress {
        // The marks of an image that was not clean stay for fsck.
        Progress::None | Progress::UnderWay => (sb.flags, is_clean(sb)),
        Progress::Sound => (sb.flags & !flag::UNCLEAN, true),
        Progress::NeedsCheck => (sb.flags | flag::NEEDS_FSCK, false),
    }
}

pub(crate) fn is_clean(sb: &Super) -> bool {
    sb.clean && sb.flags & (flag::UNCLEAN | flag::NEEDS_FSCK) == 0
}

impl Recovery<super::map::Map> for Ffs {
    fn is_under_way(&self) -> bool {
        self.progress == Progress::UnderWay
    }

    fn recount(
        &mut self,
        core: &mut Core,
        group: GroupNo,
        surplus_directories: i64,
    ) -> Result<(), FsError> {
        let wrong = || {
            let at = Location::of("cylinder group").in_group(group);
            seekless_fs::field::invalid("cs_ndir", surplus_directories.unsigned_abs(), at)
        };
        let ndir = i32::try_from(-surplus_directories).map_err(|_| wrong())?;
        let groups = self.allocator.groups_mut();
        if self.progress != Progress::UnderWay {
            // They were believed until now.
            groups.recount(core, group)?;
        }
        groups.add_directories(core, group, ndir)
    }

    fn put_sectors(&mut self, core: &mut Core, ino: Ino) -> Result<(), FsError> {
        if core.node(ino)?.restrictions.snapshot {
            // All that it has were counted.
            self.copies.device().forget_gained(ino);
        }
        // Too high or too low, it harms nothing but the shown size.
        self.put_part(core, ino, Part::Map, Role::LinkDrop, &[], None).map(drop)
    }

    fn end(&mut self, sound: bool) {
        self.progress.end(sound);
    }

    fn accept_check(&self) -> Result<(), FsError> {
        match self.progress {
            Progress::None | Progress::Sound => Ok(()),
            Progress::UnderWay => Err(FsError::Refused("it is being recovered".into())),
            Progress::NeedsCheck => {
                Err(FsError::Refused("it must be checked when it is not in use".into()))
            }
        }
    }

    fn has(&self, correction: &Correction) -> bool {
        match *correction {
            Correction::FreeRun(run) => {
                let end = run.start.get().checked_add(run.len);
                run.len > 0 && end.is_some_and(|end| end <= self.sb.size)
            }
            Correction::Recount { group, .. } => group.get() < self.sb.ncg,
            Correction::RemoveName { dir: ino, .. }
            | Correction::SetParent { dir: ino, .. }
            | Correction::Connect { dir: ino, .. }
            | Correction::Delete(ino)
            | Correction::DropLinks { ino, .. }
            | Correction::Shorten(ino)
            | Correction::Sectors(ino)
            | Correction::RaiseLinks { ino, .. }
            | Correction::FreeInode(ino) => ino >= Ino::new(2) && ino.get() < self.sb.inodes(),
        }
    }

    fn end_check(&mut self, sound: bool) {
        self.progress = match sound {
            true if self.progress == Progress::None && is_clean(&self.sb) => Progress::None,
            true => Progress::Sound,
            false => Progress::NeedsCheck,
        };
    }
}
