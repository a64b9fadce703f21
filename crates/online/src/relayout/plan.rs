//! The present state of a volume, the moves to make, and the cost of traces on it.

use super::expected::Expected;
use super::survey::{Reason, Survey};
use super::target::{TRIES, Target};
use seekless_ext::ExtImage;
use seekless_fs::plan::in_place::StepLimits;
use seekless_fs::plan::{ObjectId, Placed, Space};
use seekless_fs::{FsError, Inspect};
use seekless_host::running;
use seekless_images::Error;
use seekless_layout::planner::in_place::{InPlace, Progress};
use seekless_layout::planner::planned::Relocated;
use seekless_layout::planner::scattered::{blocks_in, gather};
use seekless_layout::planner::{Storage, Touch, touches};
use seekless_layout::replay::{Machine, Purpose, Replayed, replay_for_layout};
use seekless_layout::score::{Score, by_purpose, score};
use seekless_layout::trace::Events;
use seekless_units::{ByteLen, Extent, Ino};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Maximum number of bytes copied by one step, after which the file system is written back.
const STEP: u64 = 64 << 20;

/// Maximum number of files changed by one step.
const STEP_FILES: usize = 4096;

/// Minimum number of blocks of a step.
const LEAST: u64 = 64;

/// A snapshot of a volume's layout: the reads of the traces and their costs on it.
pub struct VolumeSnapshot {
    /// The volume, read from its device.
    pub image: Arc<ExtImage>,
    pub(crate) survey: Survey,
    /// The replayed reads of each trace to lay out by.
    pub replays: Vec<Replayed>,
    pub(crate) touches: Vec<Touch>,
    /// Requests of the traces to judge by.
    pub costs: Costs,
}

impl VolumeSnapshot {
    /// Examines a mounted volume. `left` contains files that are known to stay.
    ///
    /// # Errors
    /// If it cannot be read in several tries.
    pub(crate) fn new(
        target: &Target,
        lay: &[Events],
        judge: &[Events],
        storage: Storage,
        left: &BTreeMap<Ino, Reason>,
    ) -> Result<Self, Error> {
        let mut tries = 1..=TRIES;
        loop {
            match Self::once(target, lay, judge, storage, left) {
                Err(error) if may_be_torn(&error) && tries.next().is_some() => {}
                seen => return seen.map_err(|error| target.about(error)),
            }
        }
    }

    fn once(
        target: &Target,
        lay: &[Events],
        judge: &[Events],
        storage: Storage,
        left: &BTreeMap<Ino, Reason>,
    ) -> Result<Self, FsError> {
        let image = target.look()?;
        let running = running::programs_of(target.mount.device);
        let survey = Survey::new(&image, left, &running)?;
        let replays = replay_for_layout(image.as_ref(), lay)?;
        let touches = touches(&replays, &|ino| survey.object(ino), 1);
        let block_size = image.geometry().block_size.into();
        let blocks = |object| blocks_in(&survey, object);
        let (touches, _) = gather(touches, storage, block_size, &blocks);
        let costs = Costs::new(image.as_ref(), judge, storage.chunk, &survey.stay)?;
        Ok(Self { image, survey, replays, touches, costs })
    }

    /// Size of a block in bytes.
    #[must_use]
    pub fn block_size(&self) -> u64 {
        u64::from(self.image.geometry().block_size)
    }
}

/// Whether an error may result from reading states of different moments.
fn may_be_torn(error: &FsError) -> bool {
    matches!(
        error,
        FsError::Corrupt { .. }
            | FsError::NotDirectory(_)
            | FsError::NotFound(_)
            | FsError::Invalid(_)
            | FsError::Marks(_)
    )
}

/// Counts of one kind of requests.
#[derive(Clone, Copy, Default, Debug)]
pub struct Row {
    /// Number of requests.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Number of requests that do not begin where the previous one ended.
    pub seeks: u64,
}

impl Row {
    pub(crate) fn add(&mut self, requests: u64, bytes: u64, seeks: u64) {
        self.requests += requests;
        self.bytes += bytes;
        self.seeks += seeks;
    }
}

/// The cost of traces on a volume.
#[derive(Clone, Debug)]
pub struct Costs {
    /// By trace.
    pub scores: Vec<Score>,
    /// Requests of all traces, by purpose.
    pub purposes: BTreeMap<Purpose, Row>,
    /// Requests of all traces for contents of files that stay, by reason.
    pub staying: BTreeMap<Reason, Row>,
}

impl Costs {
    /// Seeks of all traces.
    pub fn seeks(&self) -> u64 {
        self.purposes.values().map(|row| row.seeks).sum()
    }

    /// Scores traces on an image.
    ///
    /// # Errors
    /// [`FsError::Corrupt`].
    pub(crate) fn new(
        image: &dyn Inspect,
        traces: &[Events],
        chunk: ByteLen,
        stay: &BTreeMap<Ino, Reason>,
    ) -> Result<Self, FsError> {
        let bs = u64::from(image.geometry().block_size);
        let mut costs =
            Self { scores: Vec::new(), purposes: BTreeMap::new(), staying: BTreeMap::new() };
        for events in traces {
            let (scored, replayed) = score(image, events, Machine::for_score(), &[chunk])?;
            costs.scores.push(scored);
            for (purpose, (requests, blocks, seeks)) in by_purpose(&replayed.requests) {
                costs.purposes.entry(purpose).or_default().add(requests, blocks * bs, seeks);
            }
            let mut head = None;
            for request in &replayed.requests {
                let seeks = head.is_some_and(|head| head != request.extent.start);
                head = Some(request.extent.end());
                let reason = stay.get(&request.ino);
                if let Some(reason) = reason.filter(|_| !request.purpose.is_metadata()) {
                    let row = costs.staying.entry(*reason).or_default();
                    row.add(1, request.extent.len * bs, u64::from(seeks));
                }
            }
        }
        Ok(costs)
    }
}

/// Limits of a step, given the free space.
pub(crate) fn limits(free: &[Extent], block_size: u64) -> StepLimits {
    let room = free.iter().map(|run| run.len).sum::<u64>();
    // A step copies at most as many blocks as can make way at once.
    let blocks = (STEP / block_size).min(room.max(LEAST));
    StepLimits { blocks, objects: STEP_FILES, groups: usize::MAX }
}

/// A simulated plan.
pub(crate) struct Trial {
    pub(crate) progress: Progress,
    pub(crate) region: Extent,
    /// The planned locations of moved data.
    pub(crate) data: HashMap<ObjectId, Vec<Placed>>,
}

impl Trial {
    /// Simulates a plan with the given free blocks. `budget` is in blocks.
    ///
    /// # Errors
    /// [`FsError::NoSpace`] if free and movable space does not suffice.
    pub(crate) fn new(
        seen: &VolumeSnapshot,
        space: &Space,
        align: u64,
        budget: Option<u64>,
    ) -> Result<Self, FsError> {
        let limits = limits(&space.free, seen.block_size());
        let mut plan = InPlace::new(&seen.survey, space, &seen.touches, align, budget, limits)?;
        let mut data = HashMap::new();
        while let Some(step) = plan.next_step()? {
            for changed in step.changed {
                data.insert(changed.object, changed.data);
            }
        }
        Ok(Self { progress: plan.progress(), region: plan.region(), data })
    }

    /// Number of blocks that would be moved.
    pub(crate) fn moved(&self) -> u64 {
        self.progress.moved_in + self.progress.moved_out
    }

    /// The expected cost of the traces.
    ///
    /// # Errors
    /// [`FsError::Corrupt`].
    pub(crate) fn costs(
        &self,
        seen: &VolumeSnapshot,
        traces: &[Events],
        chunk: ByteLen,
    ) -> Result<Costs, FsError> {
        let places = Expected::new(&seen.survey, &self.data);
        Costs::new(&Relocated::new(seen.image.as_ref(), places), traces, chunk, &seen.survey.stay)
    }
}
