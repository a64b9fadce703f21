//! An image in use: operations begin and end here, and space is found when there is none.

use crate::directories::Directories;
use crate::directories::departures::Departures;
use crate::directories::index::Indexes;
use crate::discards::discard;
#[cfg(feature = "faults")]
use crate::fault::Fault;
use crate::features::Recovery;
use crate::link_order::OrderedLinks;
use crate::links_last::LinksLast;
use crate::namespace::Namespace;
use crate::volume::Volume;
use crate::{Core, Format, ListingKey, Named, Names};
use seekless_cache::{CommitReason, Commits, Config, Counters};
use seekless_device::{BlockDevice, Clock};
use seekless_fs::FsError;
use seekless_fs::corrections::Correction;
use seekless_units::{Ino, Nanos};
use std::sync::Arc;

/// An image in use.
pub struct Live<F: Format> {
    pub(crate) volume: Volume<F>,
    indexes: Indexes,
    departures: Departures,
    pub(crate) device: Arc<dyn BlockDevice>,
}

impl<F: Named> Live<F> {
    /// Opens an image for changes and marks it as in use.
    ///
    /// # Errors
    /// [`FsError::Unsupported`] for features that the format cannot maintain; [`FsError::Invalid`]
    /// for an image that is not clean, unless that is forced, and for unknown policies;
    /// [`FsError::Corrupt`]; [`FsError::Device`].
    pub fn open(
        device: Arc<dyn BlockDevice>,
        clock: Arc<dyn Clock>,
        config: Config,
        options: F::Options,
    ) -> Result<Self, FsError> {
        let (format, core) = F::open(Arc::clone(&device), clock, config, options)?;
        let device = format.device().unwrap_or(device);
        let mut live = Self {
            volume: Volume::new(format, core),
            indexes: Indexes::default(),
            departures: Departures::default(),
            device,
        };
        let root = live.volume.format.limits().root;
        live.volume.dir_node(root)?;
        live.volume.mark_in_use()?;
        live.clear_orphans()?;
        Ok(live)
    }

    /// The format, and the data its code works on: for changes that only the format has, and for
    /// tests of it.
    pub fn parts(&mut self) -> (&mut F, &mut Core<F::Map>) {
        (&mut self.volume.format, &mut self.volume.core)
    }

    /// Has commits of a journal performed beside operations, by the cache itself: for
    /// devices that take writes without waiting for them, and one thread.
    pub fn commit_beside(&mut self) {
        self.volume.core.cache.transactions().set_commits(Commits::Beside);
    }

    /// Tells the device of blocks that are freed, if that is `wanted`, or without a wish if the
    /// volume asks for it: once the disk has them as free and with that nothing that leads to them
    /// ([`Operate::discard_some`](seekless_fs::operate::Operate::discard_some)). Where changes keep
    /// no order (`async`), a crash may leave names whose contents were discarded.
    pub fn discard_freed(&mut self, wanted: Option<bool>) {
        if wanted.unwrap_or_else(|| self.volume.format.asks_for_discards()) {
            self.volume.discard_freed();
        }
    }

    /// Tells the device of some blocks that were freed; whether there were any. A device that fails
    /// at it is told of no more.
    pub(crate) fn discard_next(&mut self) -> Result<bool, FsError> {
        let Some(runs) = self.volume.next_discard()? else { return Ok(false) };
        let unit = u64::from(self.volume.format.limits().unit);
        for run in runs {
            if let Err(error) = discard(&*self.device, unit, run) {
                self.volume.keep_freed();
                return Err(error);
            }
        }
        Ok(true)
    }

    /// The order in which the system of the format lists a directory; `None` where it lists names
    /// as they lie.
    ///
    /// # Errors
    /// [`FsError::Corrupt`]; [`FsError::Device`].
    pub fn listing_key(&mut self, dir: Ino) -> Result<Option<ListingKey>, FsError> {
        self.volume.format.listing_key(&mut self.volume.core, dir)
    }

    /// The cache's counters.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        self.volume.core.cache.blocks().counters()
    }

    /// When [`Operate::tick`](seekless_fs::operate::Operate::tick) has something
    /// to do next, by the clock; `None` when nothing waits for its time.
    #[must_use]
    pub fn next_due(&self) -> Option<Nanos> {
        let expiry = self.volume.core.delayed.next_expiry();
        self.volume.core.cache.next_due().into_iter().chain(expiry).min()
    }

    /// Writes some of the blocks that hold something that may be written, those
    /// that are picked: any of them may be written at any time. False when there
    /// were none.
    ///
    /// # Errors
    /// [`FsError::Device`]; [`FsError::ReadOnly`] after a write has failed.
    pub fn write_some(&mut self, pick: impl FnMut(u64) -> bool) -> Result<bool, FsError> {
        let any = self.volume.core.cache.write_some(pick)?;
        self.run_actions()?;
        Ok(any)
    }

    /// Ends the recovery of a volume that was opened for that, when all corrections have been made:
    /// it is marked clean when it is closed. If it is not `sound`, it is marked at once as one that
    /// must be checked.
    ///
    /// # Errors
    /// [`FsError::Device`].
    pub fn end_recovery(&mut self, sound: bool) -> Result<(), FsError> {
        let Some(recovery) = self.recovery() else { return Ok(()) };
        recovery.end(sound);
        if sound { Ok(()) } else { self.volume.mark_in_use() }
    }

    /// Allows no change from now on, since one that was made through [`Live::parts`] has failed half
    /// way: the volume is not marked clean.
    pub fn fail(&mut self, error: &FsError) {
        self.volume.fail(error);
    }

    /// The recovery of a volume that was opened for that.
    pub fn recovery(&mut self) -> Option<&mut F::Recovery> {
        self.volume.format.recovery()
    }

    /// Makes a correction that a check of a snapshot of it, from when it was opened, asks for. Each
    /// is made once.
    ///
    /// # Errors
    /// As any change; [`FsError::Unsupported`] if it is not being recovered.
    pub fn correct(&mut self, correction: &Correction) -> Result<(), FsError> {
        if !self.recovery().is_some_and(|recovery| recovery.is_under_way()) {
            return Err(FsError::Unsupported("corrections: it is not being recovered".into()));
        }
        self.change(|live| F::Names::correct(live, correction))
    }

    /// Flushes the device.
    ///
    /// # Errors
    /// [`FsError::Device`].
    pub(crate) fn flush_device(&self) -> Result<(), FsError> {
        Ok(self.device.flush()?)
    }

    /// Breaks a rule from now on.
    #[cfg(feature = "faults")]
    pub fn set_fault(&mut self, fault: Fault) {
        self.volume.core.set_fault(fault);
    }

    /// An operation that makes changes: due work is done before, and ready actions after. When
    /// space runs out, pending frees are done, and the operation tried again.
    pub(crate) fn change<R>(
        &mut self,
        operation: impl FnMut(&mut Self) -> Result<R, FsError>,
    ) -> Result<R, FsError> {
        let done = self.attempt(Self::reclaim, operation);
        self.volume.noted(done)
    }

    /// As [`Live::change`]; `reclaim` gets more room when there is none, and says whether
    /// there may be some now.
    pub(crate) fn attempt<R>(
        &mut self,
        reclaim: impl FnOnce(&mut Self) -> Result<bool, FsError>,
        mut operation: impl FnMut(&mut Self) -> Result<R, FsError>,
    ) -> Result<R, FsError> {
        self.volume.check_open()?;
        self.volume.core.cache.begin()?;
        self.run_actions()?;
        loop {
            match self.volume.format.before_change(&mut self.volume.core) {
                Ok(true) => self.run_actions()?,
                Ok(false) => break,
                Err(full @ FsError::NoSpace(_)) => return self.end_operation().and(Err(full)),
                Err(error) => return Err(error),
            }
        }
        self.volume.drop_nodes();
        self.volume.core.settle_quotas();
        let mut done = operation(self);
        if matches!(done, Err(FsError::NoSpace(_))) && reclaim(self)? {
            self.volume.core.settle_quotas();
            done = operation(self);
        }
        if let Err(error) = &done
            && !self.is_undone(error)
        {
            self.volume.core.cache.abort(&error.to_string());
            return done.map_err(met_here);
        }
        self.end_operation().and(done).map_err(met_here)
    }

    /// Allocates delayed contents, for which more is reserved than they need, and does frees that
    /// wait only for the disk. False when there was nothing.
    fn reclaim(&mut self) -> Result<bool, FsError> {
        if self.volume.core.delayed.is_empty() {
            return self.reclaim_freed();
        }
        // The operation has undone its changes, and begins again.
        self.end_operation()?;
        match self.write_back_all() {
            Err(FsError::NoSpace(_)) => {}
            done => done?,
        }
        self.volume.core.cache.begin()?;
        self.reclaim_freed().map(|_| true)
    }

    /// Does frees that wait only for the disk. False when there was nothing.
    pub(crate) fn reclaim_freed(&mut self) -> Result<bool, FsError> {
        if self.volume.core.cache.is_journalled() {
            if self.volume.core.cache.quarantined().is_empty() {
                return Ok(false);
            }
            // The operation has undone its changes, and begins again.
            self.end_operation()?;
            self.volume.core.cache.transactions().commit(CommitReason::Forced)?;
            self.volume.core.cache.begin()?;
            return Ok(true);
        }
        if self.volume.core.pending.is_empty() {
            return Ok(false);
        }
        self.write_changes()?;
        Ok(true)
    }

    /// Writes all there is, over as many rounds as that takes.
    ///
    /// # Errors
    /// [`FsError::Device`]; [`FsError::NoSpace`] if contents are left that have no place.
    pub fn write_everything(&mut self) -> Result<(), FsError> {
        let placed = self.write_back_all();
        self.write_changes().and(placed)
    }

    /// Writes all that was changed in the cache.
    pub(crate) fn write_changes(&mut self) -> Result<(), FsError> {
        loop {
            self.volume.core.cache.sync()?;
            self.run_actions()?;
            self.volume.format.put_summaries(&mut self.volume.core)?;
            if !self.volume.core.cache.is_dirty() {
                return Ok(());
            }
        }
    }
}

impl<F: OrderedLinks> Live<F> {
    /// The entries of directories.
    pub(crate) fn directories(&mut self) -> Directories<'_, F> {
        Directories::new(&mut self.volume, &mut self.indexes, &mut self.departures)
    }

    /// Names, in the order of FFS.
    pub(crate) fn namespace(&mut self) -> Namespace<'_, F> {
        Namespace::new(self)
    }

    /// Names, in the order that e2fsck needs.
    pub(crate) fn links_last(&mut self) -> LinksLast<'_, F> {
        LinksLast::new(self)
    }
}

/// It began while changes were possible: that they are no more was met on the
/// way, and is the failure of the device itself.
fn met_here(error: FsError) -> FsError {
    match error {
        FsError::ReadOnly(why) => FsError::io("the image", std::io::Error::other(why)),
        other => other,
    }
}
