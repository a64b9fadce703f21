//! The cost of a run of a program that was not recorded.
//!
//! A layout has the order of the runs that it was made for, and no two runs of a program with
//! several threads or processes have the same. So each of several recordings of a program is left
//! out in turn: the layout is planned by all others, and the one left out is replayed on it, in its
//! own order (leave-one-out cross-validation; Stone, "Cross-Validatory Choice and Assessment of
//! Statistical Predictions", J. R. Stat. Soc. B 36, 1974).

use crate::rearrange::{Rearrangeable, Rearrangement};
use seekless_fs::plan::{ObjectId, Rearrange};
use seekless_fs::term::{Term, Text};
use seekless_fs::{FsError, Inspect};
use seekless_images::{Error, ErrorKind};
use seekless_layout::planner::planned::{Planned, Relocated};
use seekless_layout::replay::{Machine, Replayed};
use seekless_layout::score::{Score, score};
use seekless_layout::trace::{Events, Program};
use seekless_units::Ino;
use std::collections::{BTreeMap, HashMap};
use tracing::warn;

/// The recordings of one program, and the score of each where the layout is made by the others.
#[derive(Clone, PartialEq, Debug)]
pub struct HeldOut {
    /// Indices of the recordings among the traces, in order; two at least.
    pub recordings: Vec<usize>,
    /// The score of each of them.
    pub scores: Vec<Score>,
}

/// A range of figures, inclusive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// The lowest.
    pub least: u64,
    /// The highest.
    pub most: u64,
}

/// The most recordings of a program that are left out: each needs a plan of the whole volume.
const MOST: usize = 8;

/// By how many percent fewer seeks a run may make than the recordings that were left out, and by
/// how many percent more: recorders delay a program, and its threads then race less. Chosen by the
/// 60 runs that `bench/ranges.sh` counted (`docs/score.md`), all of which lie in the range.
const FEWER_PERCENT: u64 = 8;
const MORE_PERCENT: u64 = 15;

impl HeldOut {
    /// A figure of all of them.
    #[must_use]
    pub fn bounds(&self, figure: impl Fn(&Score) -> u64) -> Bounds {
        let figures = || self.scores.iter().map(&figure);
        let least = figures().min().expect("a group has at least two recordings");
        Bounds { least, most: figures().max().expect("a group has at least two recordings") }
    }

    /// The seeks to expect of a run that was not recorded.
    #[must_use]
    pub fn expected_seeks(&self) -> Bounds {
        let Bounds { least, most } = self.bounds(|score| score.seeks);
        Bounds {
            least: least * (100 - FEWER_PERCENT) / 100,
            most: (most * (100 + MORE_PERCENT)).div_ceil(100),
        }
    }
}

/// Traces of an ext image, and the layouts that all of them but one give.
struct LeaveOneOut<'a> {
    rearrangement: &'a Rearrangement<'a>,
    old: &'a dyn Inspect,
    relayout: Box<dyn Rearrange + 'a>,
    objects: HashMap<Ino, ObjectId>,
    traces: &'a [Events],
    replays: &'a [Replayed],
}

impl<'a> LeaveOneOut<'a> {
    /// Whether layouts of an image can be planned without being written: ext without bigalloc.
    fn supports(image: &dyn Rearrangeable) -> bool {
        image.ext().is_some() && image.inspect().geometry().cluster_blocks == 1
    }

    /// `None` for an image that is not supported.
    fn new(
        rearrangement: &'a Rearrangement<'a>,
        image: &'a dyn Rearrangeable,
        traces: &'a [Events],
        replays: &'a [Replayed],
    ) -> Result<Option<Self>, Error> {
        assert_eq!(traces.len(), replays.len(), "a replay for each trace");
        if !Self::supports(image) {
            return Ok(None);
        }
        let relayout = image.relayout().map_err(|error| rearrangement.about(error))?;
        let inodes = replays.iter().flat_map(|replay| {
            let requested = replay.requests.iter().map(|request| request.ino);
            replay.inodes.iter().copied().chain(requested)
        });
        let objects =
            inodes.filter_map(|ino| relayout.object(ino).map(|object| (ino, object))).collect();
        let old = image.inspect();
        Ok(Some(Self { rearrangement, old, relayout, objects, traces, replays }))
    }

    /// The score of the trace `at` on the layout that the others give.
    fn score(&self, at: usize, machine: Machine) -> Result<Score, FsError> {
        let Self { old, traces, .. } = self;
        let relayout = self.relayout.as_ref();
        // A copy of the trace would give the layout the order of the trace itself.
        let others = self.replays.iter().zip(*traces).filter(|(_, events)| **events != traces[at]);
        let others = others.map(|(replay, _)| replay);
        let plan = self.rearrangement.plan(relayout, old.geometry().block_size, others)?;
        let planned = Planned::new(relayout.demand(), &relayout.space(), &plan, &self.objects);
        let chunk = [self.rearrangement.storage.chunk];
        score(&Relocated::new(*old, planned), &traces[at], machine, &chunk).map(|(score, _)| score)
    }
}

impl Rearrangement<'_> {
    /// Scores the first eight recordings of each program, each on the layout that all other traces
    /// give. Recordings with the same command are of one program; traces without a command are of
    /// none, and traces with the same events count once. `replays` are those of the traces as
    /// [`Rearrangement::rearrange`] leaves them. None for formats other than ext, with bigalloc, and
    /// for a program without which the volume would have too little space for its maps (a warning).
    ///
    /// # Errors
    /// As [`Rearrangement::rearrange`].
    pub fn held_out(
        &self,
        image: &dyn Rearrangeable,
        programs: &[Program],
        traces: &[Events],
        replays: &[Replayed],
    ) -> Result<Vec<HeldOut>, Error> {
        assert_eq!(programs.len(), traces.len(), "a program for each trace");
        let mut groups: BTreeMap<&Program, Vec<usize>> = BTreeMap::new();
        for (at, program) in programs.iter().enumerate().filter(|(_, it)| it.is_known()) {
            let group = groups.entry(program).or_default();
            if group.len() < MOST && group.iter().all(|&other| traces[other] != traces[at]) {
                group.push(at);
            }
        }
        let mut groups: Vec<Vec<usize>> =
            groups.into_values().filter(|group| group.len() > 1).collect();
        groups.sort_unstable();
        if groups.is_empty() {
            return Ok(Vec::new());
        }
        let Some(others) = LeaveOneOut::new(self, image, traces, replays)? else {
            return Ok(Vec::new());
        };
        let mut held_out = Vec::new();
        for recordings in groups {
            match recordings.iter().map(|&at| others.score(at, Machine::default())).collect() {
                Ok(scores) => held_out.push(HeldOut { recordings, scores }),
                Err(FsError::NoSpace(why)) => {
                    warn!("{}: no range of other runs: {why}", self.image.display());
                }
                Err(error) => return Err(self.about(error)),
            }
        }
        Ok(held_out)
    }

    /// Refuses to leave out each trace in turn where [`Rearrangement::without_each`] cannot.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] for fewer than two different traces;
    /// [`ErrorKind::Unsupported`] for formats other than ext, and with
    /// bigalloc.
    pub fn refuse_hold_out(
        &self,
        image: &dyn Rearrangeable,
        traces: &[Events],
    ) -> Result<(), Error> {
        let refused = |why| Text::from(Term::HoldOut).then(why);
        if traces.windows(2).all(|pair| pair[0] == pair[1]) {
            return Err(Error::usage(refused(" needs two traces with different events")));
        }
        if !LeaveOneOut::supports(image) {
            let why = refused(" supports ext images without bigalloc only");
            return Err(Error::new(ErrorKind::Unsupported, why).about(self.image.display()));
        }
        Ok(())
    }

    /// Scores each trace on the layout that the other traces give, whatever their commands, as
    /// [`Machine::for_score`] replays it. `replays` as for [`Rearrangement::held_out`].
    ///
    /// # Errors
    /// As [`Rearrangement::rearrange`].
    ///
    /// # Panics
    /// Where [`Rearrangement::refuse_hold_out`] refuses the image.
    pub fn without_each(
        &self,
        image: &dyn Rearrangeable,
        traces: &[Events],
        replays: &[Replayed],
    ) -> Result<Vec<Score>, Error> {
        let others = LeaveOneOut::new(self, image, traces, replays)?;
        let others = others.expect("the caller has checked that the image is supported");
        let score = |at| others.score(at, Machine::for_score()).map_err(|error| self.about(error));
        (0..traces.len()).map(score).collect()
    }
}
