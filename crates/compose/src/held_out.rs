//! The cost of a run of a program that was not recorded.
//!
//! A layout has the order of the runs that it was made for, and no two runs of a program with
//! several threads or processes have the same. So each of several recordings of a program is left
//! out in turn: the layout is planned by all others, and the one left out is replayed on it, in its
//! own order (leave-one-out cross-validation; Stone, "Cross-Validatory Choice and Assessment of
//! Statistical Predictions", J. R. Stat. Soc. B 36, 1974).

use crate::rearrange::{Rearrangeable, Rearrangement};
use seekless_fs::FsError;
use seekless_fs::plan::ObjectId;
use seekless_images::Error;
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
/// how many percent more: recorders delay a program, and its threads then take turns more often. Of
/// the 100 runs that `bench/ranges.sh` counted, 98 lie in the range (`docs/score.md`).
const FEWER_PERCENT: u64 = 15;
const MORE_PERCENT: u64 = 5;

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
        assert!(programs.len() == traces.len() && traces.len() == replays.len());
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
        if groups.is_empty() || image.ext().is_none() {
            return Ok(Vec::new());
        }
        let relayout = image.relayout().map_err(|error| self.about(error))?;
        if relayout.cluster_blocks() > 1 {
            return Ok(Vec::new());
        }
        let inodes = replays.iter().flat_map(|replay| {
            let requested = replay.requests.iter().map(|request| request.ino);
            replay.inodes.iter().copied().chain(requested)
        });
        let objects: HashMap<Ino, ObjectId> =
            inodes.filter_map(|ino| relayout.object(ino).map(|object| (ino, object))).collect();
        let old = image.inspect();
        let one = |at: usize| -> Result<Score, FsError> {
            // A copy of the trace would give the layout the order of the trace itself.
            let others = replays.iter().zip(traces).filter(|(_, events)| **events != traces[at]);
            let others = others.map(|(replay, _)| replay);
            let plan = self.plan(relayout.as_ref(), old.geometry().block_size, others)?;
            let planned = Relocated::new(old, Planned::new(relayout.demand(), &plan, &objects));
            let chunk = [self.storage.chunk];
            score(&planned, &traces[at], Machine::default(), &chunk).map(|(score, _)| score)
        };
        let mut held_out = Vec::new();
        for recordings in groups {
            match recordings.iter().map(|&at| one(at)).collect() {
                Ok(scores) => held_out.push(HeldOut { recordings, scores }),
                Err(FsError::NoSpace(why)) => {
                    warn!("{}: no range of other runs: {why}", self.image.display());
                }
                Err(error) => return Err(self.about(error)),
            }
        }
        Ok(held_out)
    }
}
