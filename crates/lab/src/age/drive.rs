//! The run: passes operations from the stream to the file system and takes samples.

use super::AgeError;
use super::op::{FileId, Op};
use super::profile::Profile;
use super::schedule::Schedule;
use super::score::Score;
use super::stream::Stream;
use super::subject::{Applied, Subject};
use seekless_units::{ByteLen, Nanos};
use serde::Serialize;
use std::collections::BTreeSet;
use std::ops::ControlFlow;

/// Parameters of a run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Settings {
    /// How many operations.
    pub ops: u64,
    /// Target fullness, as a share of the space available to users: more than 0, less than 1.
    pub fullness: f64,
    /// The seed of all random choices.
    pub seed: u64,
    /// Number of samples over the run; 1 at least. A run that is ended early has up to twice as
    /// many.
    pub samples: u32,
}

/// How things are at one moment.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Sample {
    /// Operations so far.
    pub operations: u64,
    /// Virtual days so far.
    pub days: f64,
    /// The used share of the space available to users.
    pub fullness: f64,
    /// Files that are there.
    pub files: u64,
    /// Directories that are there.
    pub directories: u64,
    /// The layout score, from 0 to 1; `None` before any file has two blocks, and
    /// where layouts cannot be told.
    pub layout_score: Option<f64>,
    /// Pieces that a file lies in, on average.
    pub extents_per_file: Option<f64>,
    /// From the end of a file to the beginning of the one made next in the same
    /// directory: bytes on the disk, on average.
    pub directory_spread: Option<u64>,
}

/// Operations done, by kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct OperationTally {
    /// Files made.
    pub created: u64,
    /// Times that a file was appended to.
    pub appended: u64,
    /// Files removed, those included that a rename took the place of.
    pub deleted: u64,
    /// Times that a file was cut.
    pub truncated: u64,
    /// Names that files got besides their first.
    pub linked: u64,
    /// Such names that were left out, where a file has one only.
    pub links_left_out: u64,
    /// Renames.
    pub renamed: u64,
    /// Directories made.
    pub directories_made: u64,
    /// Directories removed.
    pub directories_removed: u64,
    /// Bytes written to files.
    pub bytes_written: u64,
    /// Operations for which there was no room at first.
    pub no_space: u64,
    /// Files that died before their time, for want of room.
    pub early_deaths: u64,
}

/// Why a run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// All operations are done.
    Done,
    /// It was told to stop.
    Interrupted,
    /// There was no room for the next operation, and nothing left to remove.
    NoRoom,
}

/// Result of a run.
pub struct Aged {
    /// Samples, from the beginning to the end.
    pub samples: Vec<Sample>,
    /// Operations done.
    pub tally: OperationTally,
    /// Operations after which the target was reached; `None` if it was not.
    pub reached: Option<u64>,
    /// The lowest and highest fullness seen after that.
    pub held: Option<(f64, f64)>,
    /// Why it ended.
    pub end: End,
    /// The stream, with the files that it expects to exist.
    pub stream: Stream,
}

struct AgeingRun<'a> {
    subject: &'a mut dyn Subject,
    stream: Stream,
    settings: Settings,
    schedule: Schedule,
    score: Score,
    /// Files that have changed since their layout was asked for.
    changed: BTreeSet<FileId>,
    done: u64,
    /// Virtual time to which the file system has been taken.
    now: Nanos,
    tally: OperationTally,
    samples: Vec<Sample>,
    reached: Option<u64>,
    held: Option<(f64, f64)>,
}

/// Most virtual time that goes by without a look at whether the run shall end:
/// a month.
const MOST_AT_ONCE: u64 = 30 * 86_400 * 1_000_000_000;

/// Ages a file system. `watch` is called after each operation, and at least once
/// a virtual month, with how many operations there have been; it may end the run.
///
/// # Errors
/// [`AgeError::TooFull`] for a file system that has no room below the target;
/// [`AgeError::FileSystem`].
pub fn age(
    profile: &Profile,
    subject: &mut dyn Subject,
    settings: Settings,
    watch: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<Aged, AgeError> {
    let room = subject.room()?;
    let fullness = room.fullness();
    // The largest file or tree is half a percentage point.
    if fullness + 0.01 > settings.fullness {
        return Err(AgeError::TooFull { fullness, target: settings.fullness });
    }
    let exact = subject.is_exact();
    let stream = Stream::new(profile.clone(), settings.seed, settings.fullness, &room, exact);
    let mut run = AgeingRun {
        subject,
        stream,
        settings,
        schedule: Schedule::new(&settings),
        score: Score::default(),
        changed: BTreeSet::new(),
        done: 0,
        now: Nanos::ZERO,
        tally: OperationTally::default(),
        samples: Vec::new(),
        reached: None,
        held: None,
    };
    let end = run.go(watch)?;
    if run.samples.last().is_none_or(|last| last.operations != run.done) {
        run.sample()?;
    }
    run.tally.early_deaths = run.stream.early_deaths();
    let AgeingRun { samples, tally, reached, held, stream, .. } = run;
    Ok(Aged { samples, tally, reached, held, end, stream })
}

impl AgeingRun<'_> {
    fn go(&mut self, watch: &mut dyn FnMut(u64) -> ControlFlow<()>) -> Result<End, AgeError> {
        self.sample()?;
        while self.done < self.settings.ops {
            let Some(op) = self.stream.next_op() else { return Ok(End::NoRoom) };
            if self.advance(watch)?.is_break() {
                return Ok(End::Interrupted);
            }
            if !self.perform(&op)? {
                return Ok(End::NoRoom);
            }
            if watch(self.done).is_break() {
                return Ok(End::Interrupted);
            }
        }
        Ok(End::Done)
    }

    /// Lets time go on to the operation that is next.
    fn advance(
        &mut self,
        watch: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, AgeError> {
        let to = self.stream.now();
        while to.saturating_since(self.now) > MOST_AT_ONCE {
            self.now += MOST_AT_ONCE;
            self.subject.advance(self.now)?;
            if watch(self.done).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        self.now = to;
        self.subject.advance(to)?;
        Ok(ControlFlow::Continue(()))
    }

    /// Does an operation; where there is no room for it others go first. False when nothing is left
    /// to remove.
    fn perform(&mut self, op: &Op) -> Result<bool, AgeError> {
        loop {
            match self.subject.apply(op)? {
                Applied::Full => {}
                Applied::Done => break,
                Applied::LeftOut => return self.leave_out().map(|()| true),
            }
            self.tally.no_space += 1;
            if !self.stream.evict() {
                return Ok(false);
            }
            while let Some(death) = self.stream.next_death() {
                if self.subject.apply(&death)? != Applied::Done {
                    return Ok(false);
                }
                self.note(&death)?;
            }
        }
        self.note(op)?;
        Ok(true)
    }

    /// An operation that such a file system has not got: it counts, so that runs on others
    /// have the same operations under the same numbers.
    fn leave_out(&mut self) -> Result<(), AgeError> {
        self.stream.left_out();
        self.tally.links_left_out += 1;
        self.count_one()
    }

    /// Records the changes of an operation.
    fn note(&mut self, op: &Op) -> Result<(), AgeError> {
        self.stream.done();
        self.tally.count(op);
        match op {
            Op::Create { file, .. } | Op::Append { file, .. } | Op::Truncate { file, .. } => {
                self.touched(*file)?;
            }
            Op::Rename { replaces: Some(file), .. } | Op::Delete { file, .. } => {
                self.changed.remove(file);
                self.score.set(*file, None);
            }
            _ => {}
        }
        self.count_one()
    }

    /// Counts an operation and passes the file system's current room to the stream.
    fn count_one(&mut self) -> Result<(), AgeError> {
        self.done += 1;
        let room = self.subject.room()?;
        self.stream.told(&room);
        self.look(room.fullness());
        if self.schedule.is_due(self.done) {
            self.sample()?;
            self.schedule.thin(&mut self.samples);
        }
        Ok(())
    }

    fn touched(&mut self, file: FileId) -> Result<(), AgeError> {
        if self.subject.is_exact() {
            let layout = self.subject.layout(file)?;
            self.score.set(file, layout);
        } else {
            self.changed.insert(file);
        }
        Ok(())
    }

    fn look(&mut self, fullness: f64) {
        if self.reached.is_none() && self.stream.is_full() {
            self.reached = Some(self.done);
        }
        if self.reached.is_some() {
            let (low, high) = self.held.unwrap_or((fullness, fullness));
            self.held = Some((low.min(fullness), high.max(fullness)));
        }
    }

    fn sample(&mut self) -> Result<(), AgeError> {
        if !self.changed.is_empty() {
            self.subject.settle()?;
            for file in std::mem::take(&mut self.changed) {
                let layout = self.subject.layout(file)?;
                self.score.set(file, layout);
            }
        }
        let fullness = self.subject.room()?.fullness();
        self.samples.push(Sample {
            operations: self.done,
            days: days(self.stream.now()),
            fullness,
            files: self.stream.files().count() as u64,
            directories: self.stream.directories() as u64,
            layout_score: self.score.score(),
            extents_per_file: self.score.extents_per_file(),
            directory_spread: self.score.spread(self.stream.files()).map(ByteLen::get),
        });
        Ok(())
    }
}

fn days(at: Nanos) -> f64 {
    at.get() as f64 / 86_400e9
}

impl OperationTally {
    fn count(&mut self, op: &Op) {
        match op {
            Op::MakeDir { .. } => self.directories_made += 1,
            Op::RemoveDir { .. } => self.directories_removed += 1,
            Op::Create { len, .. } => {
                self.created += 1;
                self.bytes_written += len.get();
            }
            Op::Append { len, .. } => {
                self.appended += 1;
                self.bytes_written += len.get();
            }
            Op::Truncate { .. } => self.truncated += 1,
            Op::Link { .. } => self.linked += 1,
            Op::Unlink { .. } => {}
            Op::Rename { replaces, .. } => {
                self.renamed += 1;
                self.deleted += u64::from(replaces.is_some());
            }
            Op::Delete { .. } => self.deleted += 1,
        }
    }
}
