//! Laying an image out anew.

use crate::{Error, LaidOutFor, Progress, Reflink, Score, Stop, Trace};
use seekless_compose::base::Likeness;
use seekless_compose::held_out::{Bounds, HeldOut};
use seekless_compose::rearrange::{self, Rearrangement};
use seekless_fs::format::OpenOptions;
use seekless_fs::{FsError, Inspect};
use seekless_images::{Place, Target, Unwatched};
use seekless_layout::planner::Storage;
use seekless_layout::replay::{Machine, replay_for_layout};
use seekless_layout::score;
use seekless_layout::trace::Events;
use seekless_units::ByteLen;
use serde::Serialize;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A new layout of an ext2/3/4 or FAT image, with older images of a UFS image too: the blocks that traces read are stored together, in
/// the order of first access; of several traces, blocks that more of them read come first. The new
/// image is the same file system, with the same UUID, label, features and contents.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use seekless::{Build, Optimize, Trace, compare};
///
/// # let work = tempfile::tempdir()?;
/// # let tree = work.path().join("tree");
/// # let (old, new) = (work.path().join("old.img"), work.path().join("new.img"));
/// # std::fs::create_dir(&tree)?;
/// for n in 0..200 {
///     std::fs::write(tree.join(format!("{n:03}")), vec![n as u8; 20_000])?;
/// }
/// Build::of([&tree]).write(&old)?;
/// let trace = Trace::of_paths(["/150", "/003", "/077"]);
/// let optimized = Optimize::of(&old).trace(trace).chunk(64 << 10).write(&new)?;
/// let gain = &optimized.traces[0];
/// assert!(gain.after.seeks < gain.before.seeks);
/// // One recording gives no range for other runs.
/// assert!(optimized.other_runs.is_empty());
/// assert!(compare(&seekless::open(&old)?, &seekless::open(&new)?)?.is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Optimize {
    image: PathBuf,
    place: Place,
    traces: Vec<Trace>,
    chunk: u64,
    storage: LaidOutFor,
    reflink: Reflink,
    like: Vec<PathBuf>,
    move_budget: u64,
    holds_out: bool,
    replaces: bool,
    progress: Arc<dyn Progress>,
    stop: Stop,
}

/// The cost of a trace on the old image and on the new one.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct Gain {
    /// On the old image.
    pub before: Score,
    /// On the new image.
    pub after: Score,
    /// With [`Optimize::hold_out`]: on a layout that only the other traces give.
    pub held_out: Option<Score>,
}

/// The cost to expect of a run of a program that was not recorded: each of several recordings of
/// one command is replayed on the layout that the other traces give.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct OtherRun {
    /// Indices of the recordings, in the order in which the traces were given.
    pub recordings: Vec<usize>,
    /// Seeks; see `docs/score.md` for how often runs lie outside.
    pub seeks: RangeInclusive<u64>,
    /// Chunks of a lazily fetched volume.
    pub chunks: RangeInclusive<u64>,
}

/// The result of a rearrangement.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct Optimized {
    /// Of each trace, in the order in which they were given.
    pub traces: Vec<Gain>,
    /// Of each command with several recordings, for ext images without bigalloc.
    pub other_runs: Vec<OtherRun>,
}

/// The scores of the traces on the old image, of recordings that were left out, and of each trace
/// on the layout by the others.
struct Rearranged {
    before: Vec<Score>,
    held_out: Vec<HeldOut>,
    without: Vec<Score>,
}

impl Optimize {
    /// An image file or block device. It is not changed.
    pub fn of(image: impl AsRef<Path>) -> Self {
        Self {
            image: image.as_ref().to_path_buf(),
            place: Place::default(),
            traces: Vec::new(),
            chunk: 512 << 10,
            storage: LaidOutFor::Disk,
            reflink: Reflink::Auto,
            like: Vec::new(),
            move_budget: 0,
            holds_out: false,
            replaces: false,
            progress: Arc::new(Unwatched),
            stop: Stop::new(),
        }
    }

    /// The partition that is rearranged, as in [`Open::partition`](crate::Open::partition); the
    /// rest of the disk is copied.
    #[must_use]
    pub fn partition(mut self, partition: impl Into<String>) -> Self {
        self.place.partition = Some(partition.into());
        self
    }

    /// A trace to lay out by. One at least is needed.
    #[must_use]
    pub fn trace(mut self, trace: Trace) -> Self {
        self.traces.push(trace);
        self
    }

    /// As [`Build::chunk`](crate::Build::chunk).
    #[must_use]
    pub fn chunk(mut self, bytes: u64) -> Self {
        self.chunk = bytes;
        self
    }

    /// As [`Build::laid_out_for`](crate::Build::laid_out_for).
    #[must_use]
    pub fn laid_out_for(mut self, storage: LaidOutFor) -> Self {
        self.storage = storage;
        self
    }

    /// As [`Build::reflink`](crate::Build::reflink).
    #[must_use]
    pub fn reflink(mut self, reflink: Reflink) -> Self {
        self.reflink = reflink;
        self
    }

    /// Keeps the files of an older image of the same format, or of its layout list, where they lie
    /// there, as [`Build::like`](crate::Build::like). The new image has the shape, the UUID or
    /// volume ID and the label of the older one. UFS images are rearranged with this only.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use seekless::{Build, Optimize, Trace};
    ///
    /// # let work = tempfile::tempdir()?;
    /// # let tree = work.path().join("tree");
    /// # let [old, new, like] = ["old", "new", "like"].map(|name| work.path().join(name));
    /// # std::fs::create_dir(&tree)?;
    /// # let large: Vec<u8> = (0u32..1 << 20).flat_map(u32::to_le_bytes).collect();
    /// # std::fs::write(tree.join("large"), large)?;
    /// Build::of([&tree]).write(&old)?;
    /// std::fs::write(tree.join("added"), "text")?;
    /// Build::of([&tree]).write(&new)?;
    /// Optimize::of(&new).trace(Trace::of_paths(["/added"])).like(&old).write(&like)?;
    /// let images = seekless::sharing(&[&old, &like], 4096)?;
    /// assert!(images[1].new < images[1].chunks / 10);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn like(mut self, image: impl AsRef<Path>) -> Self {
        self.like.push(image.as_ref().to_path_buf());
        self
    }

    /// As [`Build::move_budget`](crate::Build::move_budget).
    #[must_use]
    pub fn move_budget(mut self, bytes: u64) -> Self {
        self.move_budget = bytes;
        self
    }

    /// Also scores each trace on a layout that only the other traces give: the gain to expect for
    /// input that was not recorded. For ext images without bigalloc, and without older images.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use seekless::{Build, Optimize, Trace};
    ///
    /// # let work = tempfile::tempdir()?;
    /// # let tree = work.path().join("tree");
    /// # let (old, new) = (work.path().join("old.img"), work.path().join("new.img"));
    /// # std::fs::create_dir(&tree)?;
    /// for n in 0..200 {
    ///     std::fs::write(tree.join(format!("{n:03}")), vec![n as u8; 20_000])?;
    /// }
    /// Build::of([&tree]).write(&old)?;
    /// let optimize = Optimize::of(&old)
    ///     .trace(Trace::of_paths(["/150", "/003", "/077"]))
    ///     .trace(Trace::of_paths(["/150", "/003", "/099"]));
    /// let gain = optimize.hold_out().write(&new)?.traces.remove(0);
    /// let held_out = gain.held_out.expect("it was requested");
    /// assert!(gain.after.seeks < held_out.seeks && held_out.seeks < gain.before.seeks);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn hold_out(mut self) -> Self {
        self.holds_out = true;
        self
    }

    /// Replaces a file that is there, or the contents of a block device. An input is never
    /// replaced, except a trace, which was loaded before.
    #[must_use]
    pub fn replace(mut self) -> Self {
        self.replaces = true;
        self
    }

    /// Tells this how far the work is.
    #[must_use]
    pub fn progress(mut self, progress: Arc<dyn Progress>) -> Self {
        self.progress = progress;
        self
    }

    /// As [`Build::stop`](crate::Build::stop).
    #[must_use]
    pub fn stop(mut self, stop: Stop) -> Self {
        self.stop = stop;
        self
    }

    /// Writes the new image, as [`Build::write`](crate::Build::write) does.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind) without a trace,
    /// [`ErrorKind::Unsupported`](crate::ErrorKind) for another format,
    /// [`ErrorKind::Corrupt`](crate::ErrorKind) for an image that is damaged,
    /// [`ErrorKind::NoSpace`](crate::ErrorKind), [`ErrorKind::System`](crate::ErrorKind).
    pub fn write(&self, path: impl AsRef<Path>) -> Result<Optimized, Error> {
        let path = path.as_ref();
        self.stop.during(path.display(), || self.lay_out(path))
    }

    fn lay_out(&self, path: &Path) -> Result<Optimized, Error> {
        if self.traces.is_empty() {
            return Err(Error::usage("no trace to lay out by"));
        }
        if self.chunk == 0 {
            return Err(Error::usage("a chunk of 0 bytes"));
        }
        let inputs = self.like.iter().chain([&self.image]);
        let target = Target::create(path, self.replaces, None, inputs)?;
        let target = target.with_reflink(self.reflink.into())?.with_stop(self.stop.clone());
        let chunk = ByteLen::new(self.chunk);
        let rearrangement = Rearrangement {
            image: &self.image,
            place: &self.place,
            target: &target,
            written: path,
            storage: Storage { kind: self.storage.into(), chunk },
            progress: self.progress.as_ref(),
        };
        let traces: Vec<_> = self.traces.iter().map(|trace| trace.events.clone()).collect();
        let Rearranged { before, held_out, without } = self.rearrange(&rearrangement, &traces)?;
        let new = rearrangement.open_written()?;
        let after = self.scores(new.as_ref(), &traces);
        let after = after.map_err(|error| Error::from(error).about(path.display()))?;
        rearrangement.complete()?;
        target.finish()?;
        let mut without = without.into_iter();
        let gain = |(before, after)| Gain { before, after, held_out: without.next() };
        let range = |bounds: Bounds| bounds.least..=bounds.most;
        let other_run = |it: HeldOut| OtherRun {
            seeks: range(it.expected_seeks()),
            chunks: range(it.bounds(|score| score.chunks[&chunk.get()])),
            recordings: it.recordings,
        };
        Ok(Optimized {
            traces: before.into_iter().zip(after).map(gain).collect(),
            other_runs: held_out.into_iter().map(other_run).collect(),
        })
    }

    /// Writes the new image.
    fn rearrange(
        &self,
        rearrangement: &Rearrangement<'_>,
        traces: &[Events],
    ) -> Result<Rearranged, Error> {
        let about = |error| Error::from(error).about(self.image.display());
        let (place, options) = (&self.place, OpenOptions::default());
        let older = rearrange::older_images(&self.image, place, &self.like, options)?;
        let move_budget = ByteLen::new(self.move_budget);
        let likeness = Likeness { move_budget, ..Likeness::default() };
        if let Some(older) = older {
            if self.holds_out {
                return Err(Error::usage("`hold_out` excludes `like`"));
            }
            let rebuilt = rearrangement.rebuild_on(&older, likeness, traces, options)?;
            let before = self.scores(rebuilt.old.as_ref(), traces).map_err(about)?;
            return Ok(Rearranged { before, held_out: Vec::new(), without: Vec::new() });
        }
        let old = rearrange::open(&self.image, place, options)?;
        let block = old.inspect().geometry().block_size;
        rearrangement.target.refuse_blocks(block, "a new image with larger blocks fits it")?;
        if self.holds_out {
            rearrangement.refuse_hold_out(old.as_ref(), traces)?;
        }
        let mut replays = replay_for_layout(old.inspect(), traces).map_err(about)?;
        rearrangement.rearrange(old.as_ref(), &mut replays)?;
        let programs: Vec<_> = self.traces.iter().map(|trace| trace.program.clone()).collect();
        let held_out = rearrangement.held_out(old.as_ref(), &programs, traces, &replays)?;
        let without = match self.holds_out {
            true => rearrangement.without_each(old.as_ref(), traces, &replays)?,
            false => Vec::new(),
        };
        let before = self.scores(old.inspect(), traces).map_err(about)?;
        Ok(Rearranged { before, held_out, without })
    }

    /// Scores of the traces on an image.
    fn scores(&self, image: &dyn Inspect, traces: &[Events]) -> Result<Vec<Score>, FsError> {
        let chunk = ByteLen::new(self.chunk);
        let score = |events: &Events| {
            score::score(image, events, Machine::for_score(), &[chunk]).map(|(score, _)| score)
        };
        traces.iter().map(score).collect()
    }
}
