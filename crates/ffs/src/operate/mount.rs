//! Opening an image for changes, and closing it again.

use super::allocator::Allocator;
use super::copies::Copies;
use super::groups::{CylinderGroups, Trust};
use super::map::Core;
use super::policies::PolicyNames;
use super::recovery::{self, is_clean};
use super::seal::Sealer;
use super::typed::Typed;
use super::{Ffs, LiveOptions};
use crate::journal::{self, Recovered};
use crate::ondisk::{DIRECTORY_UNIT, ROOT, flag};
use crate::origin::Origin;
use crate::superblock::Super;
use crate::superblock_edit::SuperblockMut;
use hashbrown::HashSet;
use seekless_cache::{Cache, Config, Discipline};
use seekless_device::{BlockDevice, Clock};
use seekless_fs::FsError;
use seekless_fs::term::{Term, Text};
use seekless_live::{Limits, Progress};
use seekless_units::{GroupNo, Ino};
use std::sync::Arc;

impl Ffs {
    /// Opens an image, and changes nothing of it but for a recovery by its journal.
    pub(super) fn open_image(
        device: Arc<dyn BlockDevice>,
        clock: Arc<dyn Clock>,
        config: Config,
        options: LiveOptions,
    ) -> Result<(Self, Core), FsError> {
        let mut sb = Super::read(device.as_ref(), options.ignore_checksums)?;
        match journal::recover(&device, &sb)? {
            Recovered::Yes => sb = Super::read(device.as_ref(), options.ignore_checksums)?,
            // No crash explains that, and soft updates promise nothing for other damage.
            Recovered::Damaged(error) if options.recover && !options.force => {
                let text = format!("its journal is damaged ({error}): run ");
                return Err(FsError::Refused(Text::from(text).then(Term::Repair).then(" first")));
            }
            Recovered::Damaged(_) | Recovered::No => {}
        }
        let sb = Arc::new(sb);
        let progress =
            if options.recover { recovery::begin(&sb, config.discipline)? } else { Progress::None };
        check_state(&sb, options.force || progress == Progress::UnderWay)?;
        if config.discipline.journal_mode().is_some() {
            let what = format!("{} on UFS (use softdep, normal, sync or async)", config.discipline);
            return Err(FsError::Unsupported(what));
        }
        let origin = Arc::new(Origin::with_listed(device, &sb, options.ignore_checksums)?);
        check_order(&origin, config.discipline)?;
        let device: Arc<dyn BlockDevice> = origin.clone();
        let mut cache = Cache::new(Arc::clone(&device), clock, sb.bsize, sb.fsize, config)?;
        if let Some(seal) = Sealer::of(&sb) {
            cache.blocks_mut().set_seal(seal);
        }
        let names = PolicyNames {
            directories: options.directories,
            inodes: options.inodes,
            blocks: options.blocks,
            seed: options.seed,
            reallocblks: options.reallocblks,
        };
        let policies = names.policies(&sb)?;
        let trust = match progress {
            Progress::UnderWay => Trust::Maps,
            _ if options.ignore_checksums => Trust::All,
            _ => Trust::Hashes,
        };
        let mut groups = CylinderGroups::new(Arc::clone(&sb), trust);
        let mut core = Core::new(cache, options.wall);
        groups.read_summaries(&mut core)?;
        let format = Self {
            limits: limits(&sb),
            codec: Typed(Arc::clone(&sb)),
            allocator: Allocator::new(Arc::clone(&sb), groups, policies),
            policies: names,
            copies: Copies::new(Arc::clone(&sb), origin),
            sb,
            verified_inodes: HashSet::new(),
            ignore_checksums: options.ignore_checksums,
            progress,
            quota_files: Vec::new(),
        };
        Ok((format, core))
    }

    /// Goes on with the volume as it is on the device now, whose inodes and blocks are where they
    /// were. All changes were written.
    pub(super) fn reopen(&mut self, core: &mut Core) -> Result<(), FsError> {
        let below = Arc::clone(self.copies.device().below());
        let mut sb = Super::read(below.as_ref(), self.ignore_checksums)?;
        // As it will be when it is closed.
        (sb.flags, sb.clean) = (self.sb.flags, self.sb.clean);
        let sb = Arc::new(sb);
        let origin = Arc::new(Origin::with_listed(below, &sb, self.ignore_checksums)?);
        let device: Arc<dyn BlockDevice> = origin.clone();
        core.cache.blocks_mut().replace_device(device);
        if let Some(seal) = Sealer::of(&sb) {
            core.cache.blocks_mut().set_seal(seal);
        }
        let trust = match self.progress {
            // A group that was not used since the recovery may still be as the crash has left it.
            Progress::UnderWay | Progress::Sound => Trust::Maps,
            _ if self.ignore_checksums => Trust::All,
            Progress::None | Progress::NeedsCheck => Trust::Hashes,
        };
        let mut groups = CylinderGroups::new(Arc::clone(&sb), trust);
        groups.read_summaries(core)?;
        let policies = self.policies.policies(&sb)?;
        self.limits = limits(&sb);
        self.codec = Typed(Arc::clone(&sb));
        self.allocator = Allocator::new(Arc::clone(&sb), groups, policies);
        self.copies = Copies::new(Arc::clone(&sb), origin);
        self.verified_inodes = HashSet::new();
        self.sb = sb;
        Ok(())
    }

    /// Writes the superblock: in use, or clean as it was found.
    pub(super) fn write_superblock(&mut self, core: &mut Core, close: bool) -> Result<(), FsError> {
        let is_current = self.allocator.groups().is_current();
        debug_assert!(!close || is_current, "the superblock is written after the summaries");
        let secs = core.now().secs;
        let softdep = core.cache.blocks().config().discipline == Discipline::SoftUpdates;
        let (mut flags, mut clean) = recovery::closed(self.progress, &self.sb);
        if !close {
            (flags, clean) = (self.sb.flags, false);
            // By this, a checker decides which findings it may repair unasked.
            flags = if softdep { flags | flag::SOFT_UPDATES } else { flags & !flag::SOFT_UPDATES };
            flags |= flag::UNCLEAN;
            if self.progress == Progress::NeedsCheck {
                flags |= flag::NEEDS_FSCK;
            }
        }
        let device = self.copies.device().as_ref();
        let mut bytes = SuperblockMut::read(&self.sb, device)?;
        bytes.set_flags(flags);
        bytes.set_totals(*self.allocator.groups().counts().totals());
        bytes.set_time(secs);
        bytes.set_clean(clean);
        if !close {
            // No change is written to it.
            bytes.retire_journal(secs);
        }
        if self.copies.may_be_listed() {
            bytes.list_snapshots(&self.copies.listed());
        }
        bytes.write(device, false)?;
        device.flush()?;
        Ok(())
    }
}

/// After a crash, a volume with snapshots is corrected while it is in use, which only soft updates
/// allow for.
fn check_order(origin: &Origin, discipline: Discipline) -> Result<(), FsError> {
    if origin.snapshots() > 0 && discipline != Discipline::SoftUpdates {
        let what = format!("{discipline} on a volume with snapshots (use softdep)");
        return Err(FsError::Unsupported(what));
    }
    Ok(())
}

fn limits(sb: &Super) -> Limits {
    Limits {
        root: Ino::new(ROOT),
        inodes: sb.inodes(),
        block: sb.bsize,
        unit: sb.fsize,
        name_max: 255,
        // The maximum of `di_nlink`.
        link_max: 32767,
        // `MAXPATHLEN`, its final zero left out.
        target_max: 1023,
        dir_max: (sb.size * u64::from(sb.fsize)).min(u64::from(u32::MAX)),
        dir_unit: DIRECTORY_UNIT,
        moves_dirs: true,
    }
}

fn check_state(sb: &Super, force: bool) -> Result<(), FsError> {
    sb.check_writable_beside_snapshots()?;
    let no = |what: &str| Err(FsError::Unsupported(what.to_string()));
    if !sb.typed_entries {
        return no(
            "changing directories in the format from before 4.4BSD (fsck_ffs -c converts them)",
        );
    }
    let aligned = |at: u32| at.is_multiple_of(sb.frag);
    let shifted = sb.in_group(GroupNo::new(1), 0).get();
    let starts = [sb.fpg, sb.cblkno, sb.iblkno, sb.dblkno];
    if !starts.into_iter().all(aligned) || !shifted.is_multiple_of(u64::from(sb.frag)) {
        return no("changing a volume whose cylinder groups do not start at a block boundary");
    }
    if !is_clean(sb) && !force {
        let text = Text::from("the file system is not clean: run ").then(Term::Preen);
        let text = text.then(" first, or mount it with ").then(Term::ForcedMount);
        return Err(FsError::Refused(text));
    }
    Ok(())
}
