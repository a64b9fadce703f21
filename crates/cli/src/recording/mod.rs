//! Recording what programs touch on a file system that the kernel has mounted.

pub(crate) mod boot;
mod collect;
mod destination;
pub(crate) mod install;
mod naming;
mod subject;

pub(crate) use collect::{Collected, ReadAhead, Recorder, Source, Whose};
pub(crate) use destination::{is_stdout, store};
pub(crate) use naming::Names;
pub(crate) use subject::{End, Subject};

use crate::failure::Failure;
use seekless_host::caches::{self, Caches};
use seekless_host::mounts::Mount;
use seekless_host::tracefs::{self, Filter, Instance, Root, Who};
use seekless_layout::recording::{Assembled, Pages};
use seekless_units::Ino;
use std::collections::HashSet;

/// The inodes of a file system that are in memory, found by dropping them.
pub(crate) fn loaded(mount: &Mount) -> Result<HashSet<Ino>, Failure> {
    let filter = Filter {
        sources: vec![tracefs::Source::Evicted],
        device: Some(mount.device),
        who: Who::AllBut(Vec::new()),
        buffer_kib: 16 << 10,
    };
    let mut instance = Instance::new(&Root::find()?, &filter)?;
    instance.start()?;
    caches::drop_clean(Caches::Names)?;
    instance.stop()?;
    let mut events = Vec::new();
    instance.read(&mut events)?;
    let evicted = |event: tracefs::Traced| match event.what {
        tracefs::What::Evicted { ino } => u32::try_from(ino).ok().map(Ino::new),
        _ => None,
    };
    Ok(events.into_iter().filter_map(evicted).collect())
}

/// Puts names to what was collected.
pub(crate) fn assemble(
    collected: Collected,
    mount: &Mount,
    pages: Pages,
    kept_caches: bool,
) -> Result<Assembled, Failure> {
    let loaded = match collected.source {
        Source::Tracefs if !kept_caches && mount.fs_type.starts_with("ext") => loaded(mount)?,
        _ => HashSet::new(),
    };
    let mut names = Names::new(mount, &collected)?;
    Ok(names.assemble(collected, pages, &loaded, kept_caches))
}
