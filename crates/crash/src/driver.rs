//! Runs a script on a file system whose device keeps a log.

mod operations;

use crate::history::{Deed, FileId, History, Passing, Scope};
use crate::log::Log;
use crate::recorder::{Completion, Recorder};
use crate::script::{Line, Op, Script};
use crate::target::{Live, Target};
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;
use seekless_cache::{Config, Counters, Discipline};
use seekless_device::{BlockDevice, MemoryDevice, VirtualClock};
use seekless_fs::{FileKind, FsError};
use seekless_units::{ByteLen, GroupNo, Lba};
use std::sync::Arc;

/// Every byte of a free block when a workload begins. No write of a workload has it, nor zeros: so
/// bytes read from a block that was never written are recognised.
pub const POISON: u8 = 0xFD;

/// Random rounds of writing before everything is synced, once an order was dropped.
const ROUNDS: u32 = 24;

/// Why a workload could not be done.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// An operation failed.
    #[error("{script}: {}`{op}`: {source}", line_of(.line))]
    Operation {
        /// The script's name.
        script: String,
        /// Its line; 0 where it is of no text.
        line: u32,
        /// The operation.
        op: String,
        /// Why.
        source: Box<FsError>,
    },
    /// Making or opening the file system failed.
    #[error("making or opening the file system: {0}")]
    Volume(#[from] FsError),
}

fn line_of(line: &u32) -> String {
    if *line == 0 { String::new() } else { format!("line {line}: ") }
}

/// The image that a workload begins with, and its files.
#[derive(Clone, Debug)]
pub struct Base {
    /// Its bytes.
    pub image: Arc<[u8]>,
    /// Its files: moment 0 of a workload's history.
    pub history: History,
}

/// How a workload is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunOptions {
    /// How the cache behaves.
    pub config: Config,
    /// Once an order was dropped ([`Config::drop_order`]), blocks are written so
    /// that the loss can show, in the way of this number.
    pub after_drop: Option<u64>,
    /// When the device completes asynchronous writes.
    pub completion: Completion,
}

impl RunOptions {
    /// A small cache with a discipline, on a device without a queue.
    #[must_use]
    pub fn new(discipline: Discipline) -> Self {
        let mut config = Config::new(discipline);
        config.capacity = ByteLen::new(1 << 20);
        Self { config, after_drop: None, completion: Completion::AtOnce }
    }
}

/// A workload's log, history and promises.
#[derive(Clone, Debug)]
pub struct Run {
    /// The image it began with.
    pub base: Arc<[u8]>,
    /// The log of the device.
    pub log: Log,
    /// The operations done, and their promises.
    pub history: History,
    /// The cache's counters.
    pub counters: Counters,
    /// Steps in the log when an order was dropped.
    pub dropped_at: Option<usize>,
}

/// Makes the image that a workload begins with: an empty file system with the results of `setup`,
/// all on the disk.
///
/// # Errors
/// [`RunError`].
pub fn prepare(target: &dyn Target, name: &str, setup: &[Line]) -> Result<Base, RunError> {
    let len = usize::try_from(target.image_len().get()).unwrap_or(0);
    let device = Arc::new(MemoryDevice::new(vec![0; len]));
    target.make(device.as_ref())?;
    poison(target, &device)?;
    let how = RunOptions::new(target.prepared_under());
    let mut driver = Driver::new(target, device.clone(), None, &how, None)?;
    for line in setup {
        driver.line(name, line)?;
    }
    driver.live.operate().unmount()?;
    let history = driver.history.settled();
    Ok(Base { image: bytes_of(device.as_ref())?.into(), history })
}

/// Fills all that is free with [`POISON`].
fn poison(target: &dyn Target, device: &Arc<MemoryDevice>) -> Result<(), FsError> {
    let image = target.open(Arc::clone(device) as Arc<dyn BlockDevice>)?;
    let size = u64::from(image.geometry().block_size);
    for group in (0..image.geometry().groups).map(GroupNo::new) {
        for run in image.group(group)?.free {
            let at = Lba::containing(ByteLen::new(run.start.get() * size));
            let len = usize::try_from(run.len * size).unwrap_or(0);
            device.write(at, &vec![POISON; len])?;
        }
    }
    Ok(())
}

fn bytes_of(device: &dyn BlockDevice) -> Result<Vec<u8>, FsError> {
    let mut bytes = vec![0; usize::try_from(device.len().get()).unwrap_or(0)];
    device.read(Lba::ZERO, &mut bytes)?;
    Ok(bytes)
}

/// Does the body of a script, from opening the file system to closing it.
///
/// # Errors
/// [`RunError`].
pub fn record(
    target: &dyn Target,
    base: &Base,
    script: &Script,
    how: &RunOptions,
) -> Result<Run, RunError> {
    let device = Arc::new(MemoryDevice::new(base.image.to_vec()));
    let recorder = Arc::new(Recorder::new(device, how.completion));
    let mut driver = Driver::new(
        target,
        recorder.clone(),
        Some(recorder.clone()),
        how,
        Some(base.history.clone()),
    )?;
    for line in &script.body {
        driver.line(&script.name, line)?;
    }
    driver.finish(&script.name)?;
    let counters = *driver.live.counters();
    let dropped_at = driver.dropped_at;
    let log = Log { whole: target.whole(), ..recorder.take() };
    Ok(Run { base: base.image.clone(), log, history: driver.history, counters, dropped_at })
}

struct Driver {
    live: Box<dyn Live>,
    clock: Arc<VirtualClock>,
    recorder: Option<Arc<Recorder>>,
    history: History,
    open: Option<FileId>,
    /// The format lets names of one directory change places when one is replaced.
    swaps_names: bool,
    /// Names lead to inodes.
    has_inodes: bool,
    /// Every call is durable once it returns.
    synchronous: bool,
    writes: u64,
    after_drop: Option<u64>,
    chaos: Pcg64Mcg,
    dropped_at: Option<usize>,
}

impl Driver {
    fn new(
        target: &dyn Target,
        device: Arc<dyn BlockDevice>,
        recorder: Option<Arc<Recorder>>,
        how: &RunOptions,
        history: Option<History>,
    ) -> Result<Self, RunError> {
        let clock = Arc::new(VirtualClock::new());
        let mut live = target.mount(device, clock.clone(), how.config)?;
        let root = live.operate().root();
        let mut history = history.unwrap_or_else(|| History::new(root));
        if !target.has_inodes() {
            renumber(live.as_mut(), &mut history)?;
        }
        Ok(Self {
            live,
            clock,
            recorder,
            // Writes of the setup and of the body are told apart.
            writes: history.files.len() as u64 * 1000,
            history,
            open: None,
            swaps_names: target.swaps_names(),
            has_inodes: target.has_inodes(),
            synchronous: how.config.discipline == Discipline::Sync,
            after_drop: how.after_drop,
            chaos: Pcg64Mcg::seed_from_u64(how.after_drop.unwrap_or(0)),
            dropped_at: None,
        })
    }

    fn position(&self) -> usize {
        self.recorder.as_ref().map_or(0, |recorder| recorder.position())
    }

    fn line(&mut self, script: &str, line: &Line) -> Result<(), RunError> {
        let failed = |source| RunError::Operation {
            script: script.to_string(),
            line: line.number,
            op: line.op.to_string(),
            source: Box::new(source),
        };
        let began = self.position();
        self.history.begin();
        let passing = self.operation(&line.op).map_err(&failed)?;
        while self.live.operate().discard_some().map_err(&failed)? {}
        self.end(began, line.number, line.op.to_string(), passing);
        self.disturb(began, ROUNDS / 2).map_err(failed)
    }

    fn end(&mut self, began: usize, line: u32, text: String, passing: Passing) {
        let ended = self.position();
        self.history.end(Deed { began, ended, line, text, passing });
        if self.synchronous {
            self.history.promise(Scope::All, ended);
        }
    }

    /// Once an order was dropped: makes its loss visible, by keeping one block late and writing
    /// others.
    fn disturb(&mut self, began: usize, rounds: u32) -> Result<(), FsError> {
        let (Some(dropped), Some(variant)) = (self.live.counters().dropped, self.after_drop) else {
            return Ok(());
        };
        self.dropped_at.get_or_insert(began);
        let late: Vec<u64> = dropped.late.into_iter().flatten().collect();
        let choices = late.len().max(1) as u64;
        let held = late.get((variant % choices) as usize).copied();
        // First all others, then any of them.
        let all = variant / choices == 0;
        for _ in 0..rounds {
            let seed = self.chaos.next_u64();
            let mut rng = Pcg64Mcg::seed_from_u64(seed);
            let mut pick =
                |block: u64| Some(block) != held && (all || rng.next_u64().is_multiple_of(2));
            if !self.live.write_some(&mut pick)? && all {
                break;
            }
        }
        Ok(())
    }

    fn write_some(&mut self, seed: u64) -> Result<bool, FsError> {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        // From one block in four to three in four.
        let odds = rng.next_u64() % 3 + 1;
        self.live.write_some(&mut |_| rng.next_u64() % 4 < odds)
    }

    /// Everything is written, and the file system closed.
    fn finish(&mut self, script: &str) -> Result<(), RunError> {
        let began = self.position();
        self.disturb(began, ROUNDS)?;
        self.line(script, &Line::made(Op::Sync))?;
        let began = self.position();
        self.history.begin();
        self.live.operate().unmount()?;
        self.end(began, 0, "unmount".into(), Passing::default());
        Ok(())
    }
}

/// Renumbers the files of a volume that gives them new numbers each time that it is opened.
fn renumber(live: &mut dyn Live, history: &mut History) -> Result<(), FsError> {
    let mut next = vec![0];
    while let Some(dir) = next.pop() {
        let names = history.names.range((dir, Vec::new())..(dir + 1, Vec::new()));
        let inside: Vec<(Vec<u8>, FileId)> =
            names.filter_map(|(name, values)| Some((name.1.clone(), values.last()?.1?))).collect();
        for (name, file) in inside {
            let found = live.operate().lookup(history.files[dir].ino, &name)?;
            let lost = || FsError::NotFound(name.escape_ascii().to_string());
            history.files[file].ino = found.ok_or_else(lost)?;
            if history.files[file].kind == FileKind::Directory {
                next.push(file);
            }
        }
    }
    Ok(())
}

/// The name of a kind in findings.
pub(crate) fn kind_name(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Regular => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symlink",
        _ => "special file",
    }
}
