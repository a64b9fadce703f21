//! An experiment's file.

mod check;
mod claim;
mod kind;
mod place;
mod sweep;

pub use claim::{Assumption, Claim, ClaimFigure};
pub use kind::FormatKind;
pub use sweep::Sweep;

use crate::quantity::{self, BlockPolicyName, DisciplineName, DriveName, PolicyName, Size, Span};
use crate::tree::TreeSpec;
use place::Fault;
use seekless_model::SpecError;
use serde::Deserialize;

/// An experiment: every workload on every system, under every policy and every
/// discipline, with every seed.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Its name; results carry it. Names have 64 letters, digits, `.`,
    /// `_` and `-` at most, the first a letter or digit.
    #[serde(deserialize_with = "quantity::name")]
    pub name: String,
    /// Its purpose, in a line.
    pub summary: String,
    /// Where its figures come from.
    #[serde(default)]
    pub sources: Vec<String>,
    /// Policies for directories; for clusters, of FAT. With two, the first is the old one
    /// and the second the new.
    pub policies: Vec<PolicyName>,
    /// How the order of systems is set against the published one.
    #[serde(default)]
    pub ranking: Option<Ranking>,
    /// Update disciplines.
    pub disciplines: Vec<DisciplineName>,
    /// Seeds of trees and of the policies' random choices; one run for each.
    pub seeds: Vec<u64>,
    /// How often each seed's tree is run; repetitions have other random choices of policies and
    /// begin at another moment.
    #[serde(default = "once")]
    pub repetitions: u64,
    /// Systems it is run on.
    #[serde(rename = "system")]
    pub systems: Vec<System>,
    /// Workloads.
    #[serde(rename = "workload")]
    pub workloads: Vec<Workload>,
    /// Published figures.
    #[serde(default)]
    pub published: Vec<Published>,
    /// Sentences that it is to bear out, beside the published figures.
    #[serde(default, rename = "claim")]
    pub claims: Vec<Claim>,
    /// Values that no source states.
    #[serde(default, rename = "assumption")]
    pub assumptions: Vec<Assumption>,
}

/// A machine with a file system.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct System {
    /// Its name.
    #[serde(deserialize_with = "quantity::name")]
    pub name: String,
    /// The drive's preset.
    pub drive: DriveName,
    /// Whether the drive says that a write is done when it has only accepted
    /// it; as the preset has it when not given.
    #[serde(default)]
    pub write_cache: Option<bool>,
    /// Whether a write that lies within one which the drive has only accepted
    /// takes its place; as the preset has it when not given.
    #[serde(default)]
    pub replace_writes: Option<bool>,
    /// Requests that the host keeps sorted for the drive; callers with more have to wait.
    pub queue: u32,
    /// Bytes on the drive in front of the volume, in whole sectors; none when not given.
    #[serde(default)]
    pub offset: Option<Size>,
    /// Volumes, each made alike on a drive of its own: one, or two for workloads that
    /// copy from one to the other.
    #[serde(default = "one")]
    pub volumes: u32,
    /// The file system.
    pub format: Format,
    /// The buffer cache.
    pub cache: CacheSpec,
    /// The processor.
    pub cpu: Cpu,
    /// Instead of one system, one for each combination of these.
    #[serde(default)]
    pub sweep: Option<Sweep>,
    /// The keys and values that the sweep gave this one.
    #[serde(skip)]
    pub swept: Vec<(String, String)>,
}

/// How the file system is made, in the terms of `newfs`, `mke2fs` or `mkfs.fat`.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Format {
    /// Which format.
    pub kind: FormatKind,
    /// Length of the volume.
    pub size: Size,
    /// Bytes in a block; of UFS and ext, which must have it.
    #[serde(default)]
    pub block: Option<Size>,
    /// Bytes in a fragment; only of UFS, which must have it.
    #[serde(default)]
    pub fragment: Option<Size>,
    /// Most blocks in a cylinder group; only of UFS.
    pub blocks_per_group: Option<u32>,
    /// Bytes of space for each inode.
    pub bytes_per_inode: Option<Size>,
    /// The policy for blocks, whichever is that for directories; of UFS and ext, which
    /// must have it.
    #[serde(default)]
    pub blocks: Option<BlockPolicyName>,
    /// Gather new blocks into clusters; only of UFS.
    #[serde(default)]
    pub reallocblks: bool,
    /// The expected length of files (`newfs -g`); only of UFS.
    #[serde(default)]
    pub avgfilesize: Option<Size>,
    /// How many files are expected in a directory (`newfs -h`); only of UFS.
    #[serde(default)]
    pub avgfpdir: Option<u32>,
    /// Bytes in an inode (`mke2fs -I`); only of ext, which must have it.
    #[serde(default)]
    pub inode_size: Option<Size>,
    /// Length of the journal (`mke2fs -J size=`); only of ext3 and ext4, by the volume's
    /// size when not given.
    #[serde(default)]
    pub journal: Option<Size>,
    /// Features that differ from those of the kind, as for `mke2fs -O`; only of ext.
    #[serde(default)]
    pub features: Option<String>,
    /// Bytes in a cluster (`mkfs.fat -s`, in bytes); only of FAT, which must have it.
    #[serde(default)]
    pub cluster: Option<Size>,
    /// Bytes in a sector (`mkfs.fat -S`), the unit in which FATs are cached; only of FAT, 512 when
    /// not given.
    #[serde(default)]
    pub sector: Option<Size>,
    /// Number of FATs (`mkfs.fat -f`); only of FAT, two when not given.
    #[serde(default)]
    pub fats: Option<u32>,
}

/// The buffer cache.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheSpec {
    /// Bytes of blocks it holds.
    pub size: Size,
    /// Most bytes gathered into one write.
    pub cluster: Size,
    /// Buffers that may be dirty; with three quarters of them dirty the oldest are written
    /// until half are left. No limit when not given.
    #[serde(default)]
    pub dirty: Option<u32>,
    /// Seconds that dirty blocks of inodes, directories and files may wait.
    pub ages: [u32; 3],
    /// Each file's part of a block is a buffer of its own, written by itself,
    /// and takes whole pages of so many bytes. Without it fragments of a
    /// block are one buffer.
    #[serde(default)]
    pub page: Option<Size>,
    /// Seconds after which blocks that a journal has committed go home, as Linux's
    /// writeback brings them (30); once their room is wanted when not given.
    #[serde(default)]
    pub home_after: Option<u32>,
    /// Bitmaps and times are written later under `sync` too, as BSD does.
    #[serde(default)]
    pub delay_bitmaps: bool,
    /// Contents that move are written later under `normal` and `sync` too, as BSD does.
    #[serde(default)]
    pub delay_moves: bool,
    /// Names and new indirect blocks are written at once under `async` too, as FreeBSD's
    /// ext2fs did.
    #[serde(default)]
    pub names_at_once: bool,
    /// Directories of ext2 are filled as if no write of a block were ever torn: entries follow
    /// each other in the order in which they were made under `normal` and `sync` too.
    #[serde(default)]
    pub whole_blocks: bool,
    /// The FATs are in memory from the mount on, as BSD's kernels read them then; of no
    /// account to other formats.
    #[serde(default)]
    pub load_fats: bool,
    /// Archives read files as FreeBSD's kernels ask for it.
    #[serde(default)]
    pub cluster_read: bool,
}

/// Costs of the processor.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cpu {
    /// A system call that changes names or attributes.
    pub change: Span,
    /// A system call that looks something up.
    pub look: Span,
    /// Bytes a second copied between user and cache.
    pub copy: Size,
    /// Bytes a second that an archive is unpacked to.
    pub unpack: Size,
    /// Starting a program and its end; nothing when not given.
    #[serde(default)]
    pub spawn: Option<Span>,
    /// Bytes of source a second that are compiled; no time when not given.
    #[serde(default)]
    pub compile: Option<Size>,
}

/// A workload.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// Its name.
    #[serde(deserialize_with = "quantity::name")]
    pub name: String,
    /// Its kind.
    pub kind: WorkloadKind,
    /// The tree it is done with; [`WorkloadKind::Postmark`] has none.
    #[serde(default = "TreeSpec::none")]
    pub tree: TreeSpec,
    /// Of [`WorkloadKind::Torture`]: the tree that is copied and removed.
    #[serde(default)]
    pub copied: Option<TreeSpec>,
    /// Of [`WorkloadKind::TreeThenFiles`]: files are made in an order of chance,
    /// not directory by directory.
    #[serde(default)]
    pub shuffled: bool,
    /// Of [`WorkloadKind::TreeThenFiles`]: files are made in turn, the first of each
    /// directory, then the second of each, and so on.
    #[serde(default)]
    pub in_turn: bool,
    /// With `in_turn`: remount the volume once each directory has this many files.
    #[serde(default)]
    pub remount_after: Option<u32>,
    /// On ext with `dir-reserve-hashed`: the second areas of directories are known after a
    /// remount, as with a link in the format.
    #[serde(default)]
    pub linked_areas: bool,
    /// Of [`WorkloadKind::TreeThenFiles`]: the volume is checked before it is read, in a phase
    /// `check`.
    #[serde(default)]
    pub check: bool,
    /// Of [`WorkloadKind::CopyInOrder`]: reading a file changes its time of access, as
    /// it did by default before Linux 2.6.30.
    #[serde(default)]
    pub atime: bool,
    /// Of [`WorkloadKind::Archive`]: how many copy at the same time, each its part of the
    /// directories, files and bytes; one when not given.
    #[serde(default)]
    pub writers: Option<u32>,
    /// Of [`WorkloadKind::Archive`]: bytes of the archive's records, at whose ends writes
    /// end: a multiple of 512, `tar`'s 10,240 when not given.
    #[serde(default)]
    pub record: Option<Size>,
    /// Of [`WorkloadKind::Archive`]: use of the volume before.
    #[serde(default)]
    pub aged: Option<Postmark>,
    /// Of [`WorkloadKind::Postmark`]: the work of each writer.
    #[serde(default)]
    pub pool: Option<Postmark>,
    /// Of [`WorkloadKind::Postmark`]: the files are made, the transactions done and the remaining
    /// files removed in a phase each, between which dirty data is written in no phase's time.
    #[serde(default)]
    pub by_phase: bool,
    /// Of [`WorkloadKind::Walk`]: its phase `part` reads one of this many files.
    #[serde(default)]
    pub part: Option<u32>,
    /// Each phase ends with `sync`, in its time. Of all kinds but [`WorkloadKind::Andrew`],
    /// [`WorkloadKind::Torture`] and [`WorkloadKind::Snapshots`].
    #[serde(default)]
    pub sync: bool,
    /// The volume is remounted before each phase, so that its caches are cold. Of the same kinds.
    #[serde(default)]
    pub cold: bool,
    /// Of [`WorkloadKind::Snapshots`]: snapshots of the volume that are there already.
    #[serde(default)]
    pub snapshots: Option<u32>,
    /// Of [`WorkloadKind::Torture`]: how often the benchmark is run.
    #[serde(default)]
    pub rounds: Option<u32>,
    /// Only under these disciplines.
    #[serde(default)]
    pub disciplines: Option<Vec<DisciplineName>>,
    /// Only on these systems.
    #[serde(default)]
    pub systems: Option<Vec<String>>,
    /// Only under these policies, of those of the experiment.
    #[serde(default)]
    pub policies: Option<Vec<PolicyName>>,
    /// How long the syncer has after a phase, in no phase's time, before the remaining dirty blocks
    /// are written at once; no time when not given.
    #[serde(default)]
    pub linger: Option<Span>,
    /// How long callers sleep when the graph of changes is full, in hundredths
    /// of a second (`tickdelay`).
    #[serde(default)]
    pub tickdelay: Option<u32>,
    /// Most changes in the graph (`max_softdeps`).
    #[serde(default)]
    pub max_softdeps: Option<usize>,
}

/// The operations on a tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkloadKind {
    /// It is unpacked, then removed: phases `untar` and `rm`. Blocks dirty between them are written
    /// in no phase's time.
    UntarRm,
    /// Its files are made as device nodes: phase `make`.
    MakeNodes,
    /// It is there already and is removed: phase `rm`.
    Remove,
    /// The Andrew benchmark on a program's source that is there already: phases
    /// `mkdir`, `copy`, `scan`, `read`, `compile` and `all`.
    Andrew,
    /// Three tests at once: the Andrew benchmark `rounds` times, as often
    /// `copied` copied and removed, half as often all names looked at. Phase `all`.
    Torture,
    /// Its directories are made, then its files, then the volume is remounted, and the tree read
    /// and removed: phases `mkdir`, `files`, `read` and `rm`, and `check` in front of `read` if the
    /// workload has it.
    TreeThenFiles,
    /// On two volumes: its one directory is made on the first, copied to the second and
    /// back in the order in which it is listed, and that copy copied to the second
    /// again; then both directories of the first are removed. Caches are cold before
    /// each but the way back and the last: phases `make`, `cp-first`, `back`, `cp-second`,
    /// `rm-copy` and `rm-first`.
    CopyInOrder,
    /// It is copied from a cache by a pair of archivers, perhaps in several parts at the same time,
    /// then remounted and read in the order in which it is listed: phases `tarcp` and `tar`.
    Archive,
    /// Postmark, by one process or several at once, each in a pool of its own: phase
    /// `postmark`, or with `by_phase` the phases `create`, `transactions` and `delete`, without the
    /// making of the directories.
    Postmark,
    /// A tree that is there already is walked, each time with cold caches: its names (`find`), the
    /// inodes of all files too (`find -size`), one file of several is read (`tar` of a list), and all
    /// files are: phases `find`, `stat`, `part` and `read`.
    Walk,
    /// A volume with snapshots that keep a tree: another tree is unpacked, that one is removed, one
    /// more snapshot is taken behind a backlog of changes, and all snapshots are removed: phases
    /// `untar`, `rm`, `sync`, `take` and `remove`.
    Snapshots,
}

/// Pairs of cells are set against the published ones: which of the two is faster.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ranking {
    /// Only pairs of which the longer published time is longer by this share at least.
    pub apart: f64,
    /// Cells left out, as `system/discipline`.
    #[serde(default)]
    pub except: Vec<String>,
}

/// The operations of Postmark (J. Katcher, *PostMark: A New File System Benchmark*, 1997) on
/// a pool of small files, which stays: each transaction makes or removes a file, and reads
/// or lengthens one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Postmark {
    /// Files of the pool at first.
    pub files: u32,
    /// Directories that they are in.
    pub directories: u32,
    /// Transactions.
    pub transactions: u32,
}

/// Published figures of a phase. Those that were not published are left out.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// On which system.
    pub system: String,
    /// Of which workload.
    pub workload: String,
    /// Under which discipline.
    pub discipline: DisciplineName,
    /// Of which phase.
    pub phase: String,
    /// Seconds under the first policy.
    pub old_s: Option<f64>,
    /// Seconds under the last policy.
    pub new_s: Option<f64>,
    /// The first over the second, as printed.
    pub speedup: Option<f64>,
    /// Synchronous writes.
    pub sync_writes: Option<u64>,
    /// Asynchronous writes.
    pub async_writes: Option<u64>,
    /// Reads and writes together.
    pub requests: Option<u64>,
    /// Times that a caller slept for a full graph.
    pub max_limit_hit: Option<u64>,
    /// Times that the syncer was asked to hurry.
    pub rush_requests: Option<u64>,
}

impl Workload {
    /// The names of its phases, in order.
    #[must_use]
    pub fn phases(&self) -> &'static [&'static str] {
        match self.kind {
            WorkloadKind::TreeThenFiles if self.check => &["mkdir", "files", "check", "read", "rm"],
            WorkloadKind::Postmark if self.by_phase => &["create", "transactions", "delete"],
            kind => kind.phases(),
        }
    }

    /// The systems of an experiment that it is run on.
    pub(crate) fn systems_of<'a>(
        &'a self,
        experiment: &'a Experiment,
    ) -> impl Iterator<Item = &'a System> {
        let wanted = |name: &String| self.systems.as_ref().is_none_or(|all| all.contains(name));
        experiment.systems.iter().filter(move |system| wanted(&system.name))
    }

    /// The disciplines that it is run under.
    pub(crate) fn disciplines_of<'a>(&'a self, experiment: &'a Experiment) -> &'a [DisciplineName] {
        self.disciplines.as_ref().unwrap_or(&experiment.disciplines)
    }

    /// The policies that it is run under.
    pub(crate) fn policies_of<'a>(&'a self, experiment: &'a Experiment) -> &'a [PolicyName] {
        self.policies.as_ref().unwrap_or(&experiment.policies)
    }
}

fn once() -> u64 {
    1
}

fn one() -> u32 {
    1
}

impl Experiment {
    /// Parses the text of a file; `file` is its name for errors.
    ///
    /// # Errors
    /// [`SpecError::Invalid`], with line and key.
    pub fn parse(text: &str, file: &str) -> Result<Self, SpecError> {
        let mut read: Self =
            toml::from_str(text).map_err(|error| SpecError::syntax(&error, text, file))?;
        let told = |fault: Option<Fault>| fault.map_or(Ok(()), |f| Err(f.told(text, file)));
        told(read.fault())?;
        let swept: Vec<Vec<System>> = read.systems.iter().map(sweep::expand).collect();
        told(read.fault_of_swept(&swept))?;
        read.systems = swept.into_iter().flatten().collect();
        told(read.fault_of_whole())?;
        Ok(read)
    }
}
