//! A volume in use on a modelled disk.

use super::make::{Making, drive};
use super::{CacheTally, Setup, TODAY};
use crate::disk::{Disk, Log};
use crate::experiment::{FormatKind, System};
use crate::quantity;
use seekless_cache::{Ages, Config, Counters, Discipline, Role, Roles};
use seekless_device::{SparseDevice, VirtualClock};
use seekless_ext::ExtLive;
use seekless_fat::FatLive;
use seekless_ffs::FfsLive;
use seekless_fs::FsError;
use seekless_fs::operate::Operate;
use seekless_units::{Ino, Nanos};
use std::sync::Arc;

/// What BSD's kernels write later whatever the mount says: `ffs_alloc.c` and `ffs_update` end
/// in `bdwrite`.
const LATE_IN_BSD: [Role; 6] = [
    Role::InodeBitmapSet,
    Role::InodeBitmapClear,
    Role::BitmapSet,
    Role::BitmapClear,
    Role::Attributes,
    Role::Summary,
];

/// What BSD's kernels write later when contents move (`ffs_balloc.c`).
const MOVES: [Role; 2] = [Role::DataMove, Role::PointerMove];

/// What FreeBSD's ext2fs waited for under `async` too: `ext2_lookup.c` and `ext2_balloc.c` of
/// 2005 end in `bwrite`.
const AT_ONCE_IN_EXT2FS: [Role; 6] = [
    Role::DirectoryInit,
    Role::EntryAdd,
    Role::EntryAddDirectory,
    Role::EntryChange,
    Role::EntryRemove,
    Role::IndirectInit,
];

/// A file system in use.
enum Engine {
    Ffs(Box<FfsLive>),
    Ext(Box<ExtLive>),
    Fat(Box<FatLive>),
}

/// How a volume is mounted.
struct Mount {
    config: Config,
    kind: FormatKind,
    /// The policy for directories and perhaps that for other inodes, or that for clusters.
    policy: String,
    blocks: Option<String>,
    seed: u64,
    reallocblks: bool,
}

impl Mount {
    fn open(&self, disk: &Arc<Disk>, clock: &Arc<VirtualClock>) -> Result<Engine, FsError> {
        let (disk, clock) = (disk.clone(), clock.clone());
        if self.kind.is_fat() {
            let options = seekless_fat::LiveOptions {
                clusters: Some(self.policy.clone()),
                seed: self.seed,
                zone: 0,
                force: false,
                wall: Box::new(|| TODAY),
            };
            return Ok(Engine::Fat(Box::new(FatLive::open(disk, clock, self.config, options)?)));
        }
        let (directories, inodes) = quantity::both_policies(&self.policy);
        let (directories, inodes) = (directories.into(), inodes.map(Into::into));
        if self.kind.is_ext() {
            let options = seekless_ext::LiveOptions {
                directories,
                inodes,
                blocks: self.blocks.clone(),
                seed: self.seed,
                force: false,
                delays: None,
                moves_dirs: true,
                wall: Box::new(|| TODAY),
            };
            let mut live = ExtLive::open(disk, clock, self.config, options)?;
            live.commit_beside();
            return Ok(Engine::Ext(Box::new(live)));
        }
        let options = seekless_ffs::LiveOptions {
            directories,
            inodes,
            blocks: self.blocks.clone(),
            seed: self.seed,
            reallocblks: self.reallocblks,
            force: false,
            ignore_checksums: false,
            wall: Box::new(|| TODAY),
        };
        Ok(Engine::Ffs(Box::new(FfsLive::open(disk, clock, self.config, options)?)))
    }
}

/// A mounted volume, and its drive.
pub(super) struct Volume {
    pub(super) disk: Arc<Disk>,
    engine: Engine,
    mount: Mount,
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
        Making::of(&system.format)?.make(&image)?;
        let disk = Arc::new(Disk::new(image, drive(system)?, clock.clone(), system.queue, log));
        let mount = Mount {
            config: config(system, setup),
            kind: system.format.kind,
            policy: setup.policy.into(),
            blocks: system.format.blocks.as_ref().map(|blocks| blocks.0.clone()),
            seed: setup.chance.seed,
            reallocblks: system.format.reallocblks,
        };
        let engine = mount.open(&disk, clock)?;
        Ok(Self { disk, engine, mount, past: CacheTally::default() })
    }

    pub(super) fn live(&mut self) -> &mut dyn Operate {
        match &mut self.engine {
            Engine::Ffs(live) => live.as_mut(),
            Engine::Ext(live) => live.as_mut(),
            Engine::Fat(live) => live.as_mut(),
        }
    }

    pub(super) fn root(&self) -> Ino {
        match &self.engine {
            Engine::Ffs(live) => live.root(),
            Engine::Ext(live) => live.root(),
            Engine::Fat(live) => live.root(),
        }
    }

    fn counters(&self) -> &Counters {
        match &self.engine {
            Engine::Ffs(live) => live.counters(),
            Engine::Ext(live) => live.counters(),
            Engine::Fat(live) => live.counters(),
        }
    }

    /// What its caches counted.
    pub(super) fn tally(&self) -> CacheTally {
        self.past.with(self.counters())
    }

    /// When the syncer has something to do next.
    pub(super) fn next_due(&self) -> Option<Nanos> {
        match &self.engine {
            Engine::Ffs(live) => live.next_due(),
            Engine::Ext(live) => live.next_due(),
            Engine::Fat(live) => live.next_due(),
        }
    }

    /// Sorts names as the system lists them whose file system it is.
    pub(super) fn sort_as_listed<T>(
        &mut self,
        dir: Ino,
        names: &mut [T],
        name: impl Fn(&T) -> &[u8],
    ) -> Result<(), FsError> {
        let Engine::Ext(live) = &mut self.engine else { return Ok(()) };
        let (format, core) = live.parts();
        if let Some(order) = format.listing_order(core, dir)? {
            names.sort_by_cached_key(|one| order.key(name(one)));
        }
        Ok(())
    }

    /// Unmounts it.
    pub(super) fn close(&mut self) -> Result<(), FsError> {
        self.live().unmount()?;
        Ok(self.disk.drain()?)
    }

    /// Mounts it again, once it is closed, with an empty cache.
    pub(super) fn reopen(&mut self, clock: &Arc<VirtualClock>) -> Result<(), FsError> {
        self.past = self.tally();
        self.engine = self.mount.open(&self.disk, clock)?;
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
    config.home_after = system.cache.home_after;
    config.barriers = false;
    let limits = &mut config.limits;
    limits.tickdelay = setup.workload.tickdelay.unwrap_or(limits.tickdelay);
    limits.max_softdeps = setup.workload.max_softdeps.unwrap_or(limits.max_softdeps);
    config
}
