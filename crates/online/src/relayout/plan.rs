//! What a volume is like now, what shall be moved, and what traces cost on it.

use super::expected::Expected;
use super::survey::{Reason, Survey};
use super::target::{TRIES, Target};
use seekless_ext::ExtImage;
use seekless_fs::plan::in_place::Limits;
use seekless_fs::plan::{ObjectId, Placed, Space};
use seekless_fs::{FsError, Inspect};
use seekless_host::running;
use seekless_images::Error;
use seekless_layout::planner::in_place::{InPlace, Progress};
use seekless_layout::planner::{Touch, touches};
use seekless_layout::replay::{Machine, Purpose, Replayed, replay_for_layout};
use seekless_layout::score::{Score, by_purpose, score};
use seekless_layout::trace::Event;
use seekless_units::{ByteLen, Extent, Ino};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// What one step copies at most: bytes. Then the file system is written back.
const STEP: u64 = 64 << 20;

/// Files that one step changes at most.
const STEP_FILES: usize = 4096;

/// Fewer blocks than this are not worth a step.
const LEAST: u64 = 64;

/// A volume as it was a moment ago.
pub struct Seen {
    /// The volume, as its device shows it.
    pub image: Arc<ExtImage>,
    pub(crate) survey: Survey,
    /// The reads of each trace that is laid out by.
    pub replays: Vec<Replayed>,
    pub(crate) touches: Vec<Touch>,
    /// Requests of the traces that it is judged by.
    pub costs: Costs,
}

impl Seen {
    /// Looks at a mounted volume. `left` are files that are known to stay.
    ///
    /// # Errors
    /// When it cannot be read, again and again.
    pub(crate) fn new(
        target: &Target,
        lay: &[Vec<Event>],
        judge: &[Vec<Event>],
        chunk: ByteLen,
        left: &BTreeMap<Ino, Reason>,
    ) -> Result<Self, Error> {
        let mut tries = 1..=TRIES;
        loop {
            match Self::once(target, lay, judge, chunk, left) {
                Err(error) if may_be_torn(&error) && tries.next().is_some() => {}
                seen => return seen.map_err(|error| target.about(error)),
            }
        }
    }

    fn once(
        target: &Target,
        lay: &[Vec<Event>],
        judge: &[Vec<Event>],
        chunk: ByteLen,
        left: &BTreeMap<Ino, Reason>,
    ) -> Result<Self, FsError> {
        let image = target.look()?;
        let running = running::programs_of(target.mount.device);
        let survey = Survey::new(&image, left, &running)?;
        let replays = replay_for_layout(image.as_ref(), lay)?;
        let touches = touches(&replays, &|ino| survey.object(ino), 1);
        let costs = Costs::new(image.as_ref(), judge, chunk, &survey.stay)?;
        Ok(Self { image, survey, replays, touches, costs })
    }

    /// Size of a block in bytes.
    #[must_use]
    pub fn block_size(&self) -> u64 {
        u64::from(self.image.geometry().block_size)
    }
}

/// Whether an error may come from reading what was not all of one moment.
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

/// Requests of a kind.
#[derive(Clone, Copy, Default, Debug)]
pub struct Row {
    /// Requests.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Those that do not begin where the one before ended.
    pub seeks: u64,
}

impl Row {
    pub(crate) fn add(&mut self, requests: u64, bytes: u64, seeks: u64) {
        self.requests += requests;
        self.bytes += bytes;
        self.seeks += seeks;
    }
}

/// What traces cost on a volume.
#[derive(Clone, Debug)]
pub struct Costs {
    /// By trace.
    pub scores: Vec<Score>,
    /// Of all traces, by what the requests are for.
    pub purposes: BTreeMap<Purpose, Row>,
    /// Of all traces, those for contents of files that stay.
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
        traces: &[Vec<Event>],
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

/// How much a step may take where so much is free.
pub(crate) fn limits(free: &[Extent], block_size: u64) -> Limits {
    let room = free.iter().map(|run| run.len).sum::<u64>();
    // Parts of files that are no larger than what can make way at once.
    let blocks = (STEP / block_size).min(room.max(LEAST));
    Limits { blocks, objects: STEP_FILES, groups: usize::MAX }
}

/// A plan gone through without doing anything.
pub(crate) struct Trial {
    pub(crate) progress: Progress,
    pub(crate) region: Extent,
    /// Where the data of what moves will lie.
    pub(crate) data: HashMap<ObjectId, Vec<Placed>>,
}

impl Trial {
    /// What would be done with these free blocks. `budget` is in blocks.
    ///
    /// # Errors
    /// [`FsError::NoSpace`] when what is free and can be moved does not suffice.
    pub(crate) fn new(
        seen: &Seen,
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

    /// Blocks that would be moved.
    pub(crate) fn moved(&self) -> u64 {
        self.progress.moved_in + self.progress.moved_out
    }

    /// What the traces will cost.
    ///
    /// # Errors
    /// [`FsError::Corrupt`].
    pub(crate) fn costs(
        &self,
        seen: &Seen,
        traces: &[Vec<Event>],
        chunk: ByteLen,
    ) -> Result<Costs, FsError> {
        let expected = Expected::new(seen.image.as_ref(), &seen.survey, &self.data);
        Costs::new(&expected, traces, chunk, &seen.survey.stay)
    }
}
