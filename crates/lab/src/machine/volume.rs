//! A volume in use on a modelled disk.

use super::make::{drive, maker};
use super::{CacheTally, Setup, TODAY};
use crate::disk::{Disk, Log};
use crate::experiment::System;
use seekless_cache::{Ages, Config, Discipline, Role, Roles};
use seekless_device::{SparseDevice, VirtualClock};
use seekless_formats::{Argument, InUse, KnownFormat, Mounting, Planner};
use seekless_fs::FsError;
use seekless_fs::operate::Operate;
use seekless_layout::planner;
use seekless_placement::inode::LinkedAreas;
use seekless_units::{Ino, Nanos};
use std::sync::Arc;

/// Roles that BSD's kernels write later whatever the mount says: `ffs_alloc.c` and `ffs_update` end
/// in `bdwrite`.
const LATE_IN_BSD: [Role; 6] = [
    Role::InodeBitmapSet,
    Role::InodeBitmapClear,
    Role::BitmapSet,
    Role::BitmapClear,
    Role::Attributes,
    Role::Summary,
];

/// Roles that BSD's kernels write later when contents move (`ffs_balloc.c`).
const MOVES: [Role; 2] = [Role::DataMove, Role::PointerMove];

/// Roles that FreeBSD's ext2fs waited for under `async` too: `ext2_lookup.c` and `ext2_balloc.c` of
/// 2005 end in `bwrite`.
const AT_ONCE_IN_EXT2FS: [Role; 6] = [
    Role::DirectoryInit,
    Role::EntryAdd,
    Role::EntryAddDirectory,
    Role::EntryChange,
    Role::EntryRemove,
    Role::IndirectInit,
];

/// Mounts a volume.
fn open(
    known: &KnownFormat,
    mounting: &Mounting,
    disk: &Arc<Disk>,
    clock: &Arc<VirtualClock>,
) -> Result<Box<dyn InUse>, FsError> {
    let (disk, clock) = (disk.clone(), clock.clone());
    let mut live = (known.open_live)(disk, clock, mounting, Box::new(|| TODAY))?;
    live.commit_beside();
    Ok(live)
}

/// How a volume is mounted: under a policy for directories and perhaps one for other
/// inodes, or one for clusters.
fn mounting(system: &System, setup: &Setup<'_>) -> Mounting {
    let format = &system.format;
    let fresh = Mounting::new(config(system, setup));
    let mut arguments = Vec::new();
    let mut add = |name: &str, value: Option<&str>| arguments.push(Argument::new(name, value));
    let has = |name| format.kind.known().mount_parameter(name).is_some();
    if has("clusters") {
        add("clusters", Some(setup.policy));
        if system.cache.load_fats {
            add("loadfats", None);
        }
    } else {
        let (directories, inodes) = seekless_formats::both_policies(setup.policy);
        add("dirs", Some(directories));
        if let Some(inodes) = inodes {
            add("inodes", Some(inodes));
        }
        if let Some(blocks) = &format.blocks {
            add("blocks", Some(&blocks.0));
        }
        if !format.reallocblks && has("noreallocblks") {
            add("noreallocblks", None);
        }
    }
    let areas = setup.workload.linked_areas.then(LinkedAreas::default);
    let (discipline, seed) = (Some(setup.discipline), setup.chance.seed);
    Mounting { discipline, seed, arguments, areas, ..fresh }
}

/// A mounted volume, and its drive.
pub(super) struct Volume {
    pub(super) disk: Arc<Disk>,
    live: Box<dyn InUse>,
    known: &'static KnownFormat,
    mounting: Mounting,
    /// Of mounts that are over.
    past: CacheTally,
}

impl Volume {
    /// Makes a volume, in no time, and mounts it.
    pub(super) fn new(
        system: &System,
        setup: &Setup<'_>,
        clock: &Arc<VirtualClock>,
        log: Option<Log>,
    ) -> Result<Self, FsError> {
        let image = SparseDevice::new(system.format.size.0);
        let plan: Planner<'_> = &|demand, space| planner::plan(demand, space, &[], 1);
        maker(&system.format)?.make(&image, plan)?;
        let disk = Arc::new(Disk::new(image, drive(system)?, clock.clone(), system.queue, log));
        let mounting = mounting(system, setup);
        // The disk is not asked for its format: that would take time.
        let known = system.format.kind.known();
        let live = open(known, &mounting, &disk, clock)?;
        Ok(Self { disk, live, known, mounting, past: CacheTally::default() })
    }

    pub(super) fn live(&mut self) -> &mut dyn Operate {
        self.live.as_mut()
    }

    pub(super) fn root(&self) -> Ino {
        self.live.root()
    }

    /// Its caches' counters.
    pub(super) fn tally(&self) -> CacheTally {
        self.past.with(self.live.counters())
    }

    /// When the syncer has something to do next.
    pub(super) fn next_due(&self) -> Option<Nanos> {
        self.live.next_due()
    }

    /// Sorts names as the system lists them whose file system it is.
    pub(super) fn sort_as_listed<T>(
        &mut self,
        dir: Ino,
        names: &mut [T],
        name: impl Fn(&T) -> &[u8],
    ) -> Result<(), FsError> {
        seekless_formats::sort_as_listed(self.live.as_mut(), dir, names, name)
    }

    /// Unmounts it.
    pub(super) fn close(&mut self) -> Result<(), FsError> {
        self.live().unmount()?;
        Ok(self.disk.drain()?)
    }

    /// Removes all of its snapshots, once it is closed.
    pub(super) fn remove_snapshots(&self) -> Result<(), FsError> {
        let lacks = || FsError::Unsupported(format!("snapshots of {}", self.known.family));
        let snapshots = self.known.snapshots.ok_or_else(lacks)?;
        (snapshots.remove)(self.disk.clone(), None, TODAY)?;
        Ok(self.disk.drain()?)
    }

    /// Checks it, once it is closed. The processor's work on that takes no time.
    pub(super) fn check(&self) -> Result<(), FsError> {
        let found = (self.known.experiment.check)(self.disk.clone())?;
        match found.findings.first() {
            Some(finding) => Err(FsError::Invalid(format!("the check found: {}", finding.what))),
            None => Ok(()),
        }
    }

    /// Mounts it again, once it is closed, with an empty cache.
    pub(super) fn reopen(&mut self, clock: &Arc<VirtualClock>) -> Result<(), FsError> {
        self.past = self.tally();
        self.live = open(self.known, &self.mounting, &self.disk, clock)?;
        Ok(())
    }
}

fn config(system: &System, setup: &Setup<'_>) -> Config {
    let mut config = Config::new(setup.discipline);
    config.capacity = system.cache.size.0;
    config.cluster = system.cache.cluster.0;
    config.dirty = system.cache.dirty.map(|dirty| dirty as usize);
    let [inode, directory, file] = system.cache.ages;
    config.ages = Ages { inode, directory, file };
    config.page = system.cache.page.map(|size| size.0);
    let roles = |asked: bool, roles: &[Role]| if asked { Roles::of(roles) } else { Roles::NONE };
    config.later = roles(system.cache.delay_bitmaps, &LATE_IN_BSD);
    config.later = config.later.and(roles(system.cache.delay_moves, &MOVES));
    let names = system.cache.names_at_once && setup.discipline == Discipline::Async;
    config.at_once = roles(names, &AT_ONCE_IN_EXT2FS);
    config.whole_blocks = system.cache.whole_blocks;
    config.home_after = system.cache.home_after;
    config.barriers = false;
    let limits = &mut config.limits;
    limits.tickdelay = setup.workload.tickdelay.unwrap_or(limits.tickdelay);
    limits.max_softdeps = setup.workload.max_softdeps.unwrap_or(limits.max_softdeps);
    config
}
