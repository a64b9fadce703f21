//! Parameters of a cache, and its counters.

use crate::change::{Age, Kind, Role, Roles};
use crate::discipline::Discipline;
use seekless_units::{ByteLen, Nanos};

/// How long dirty blocks may wait, in seconds of the syncer's wheel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ages {
    /// Inodes, bitmaps and indirect blocks (`metadelay`).
    pub inode: u32,
    /// Directories (`dirdelay`).
    pub directory: u32,
    /// Contents of files (`filedelay`).
    pub file: u32,
}

impl Ages {
    /// 10, 15 and 30 seconds, as the soft updates documents have it.
    pub const CLASSIC: Self = Self { inode: 10, directory: 15, file: 30 };
    /// 28, 29 and 30 seconds, as later FreeBSD has it (`vfs_subr.c`).
    pub const FREEBSD: Self = Self { inode: 28, directory: 29, file: 30 };

    pub(crate) const fn of(&self, age: Age) -> u32 {
        match age {
            Age::File => self.file,
            Age::Directory => self.directory,
            Age::Inode => self.inode,
        }
    }
}

/// Limits of the graph of changes, and how long a caller sleeps when it is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Changes and deferred actions that may be in the graph (`max_softdeps`).
    pub max_softdeps: usize,
    /// Bytes kept to undo changes with.
    pub max_undo: ByteLen,
    /// How long a caller sleeps when the syncer does not keep up, in ticks of
    /// a hundredth of a second; 2 at least (`tickdelay`).
    pub tickdelay: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_softdeps: 400_000, max_undo: ByteLen::new(64 << 20), tickdelay: 2 }
    }
}

/// How a cache shall behave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// When changes are written.
    pub discipline: Discipline,
    /// Bytes of blocks that are kept.
    pub capacity: ByteLen,
    /// Buffers that may be dirty: blocks, or the files' parts of them where these are
    /// buffers of their own. With three quarters of them dirty the oldest are written until
    /// half are left, as with FreeBSD's `hidirtybuffers`. `None`: no limit but the age.
    pub dirty: Option<usize>,
    /// Most bytes that neighbouring dirty blocks are gathered into for one
    /// write.
    pub cluster: ByteLen,
    /// How long dirty blocks may wait.
    pub ages: Ages,
    /// When the graph is full.
    pub limits: Limits,
    /// Each file's part of a block is a buffer of its own, as in the caches of
    /// 4.4BSD, which know blocks by file and place in it: it is written by
    /// itself, and takes whole pages of so many bytes. `None`: fragments of a
    /// block are one buffer.
    pub page: Option<ByteLen>,
    /// Changes that are written later although the discipline writes them at once. Where others
    /// depend on them, a crash may break the discipline's promises.
    pub later: Roles,
    /// Changes that are written at once although the discipline writes them later.
    pub at_once: Roles,
    /// A write of a block is never torn between two of its sectors, as the kernels of the time took
    /// for granted: directories of ext2 need no care for that. For comparisons of times; a real
    /// device gives no such promise.
    pub whole_blocks: bool,
    /// Seconds after which all blocks that were committed meanwhile go home from the
    /// journal, as a kernel's writeback brings them (`dirty_expire_centisecs`, 30
    /// seconds). `None`: once their room in the log is wanted.
    pub home_after: Option<u32>,
    /// The device may keep writes in a volatile cache, and in any order: flush
    /// it before anything that depends on a write is written.
    pub barriers: bool,
    /// Forget one order between changes, as if the format had not asked for it: the one with this
    /// number, counted as [`Counters::orders`] does. For tests of whether a search of crash states
    /// would notice.
    pub drop_order: Option<u64>,
}

impl Config {
    /// Whether a change of this role is written before the call returns.
    #[must_use]
    pub const fn writes_at_once(&self, role: Role) -> bool {
        let at_once = self.discipline.writes_at_once(role) && !self.later.contain(role);
        at_once || self.at_once.contain(role)
    }

    /// A cache of 64 MiB and clusters of 128 KiB.
    #[must_use]
    pub fn new(discipline: Discipline) -> Self {
        Self {
            discipline,
            capacity: ByteLen::new(64 << 20),
            dirty: None,
            cluster: ByteLen::new(128 << 10),
            ages: Ages::CLASSIC,
            limits: Limits::default(),
            page: None,
            later: Roles::NONE,
            at_once: Roles::NONE,
            whole_blocks: false,
            home_after: None,
            barriers: true,
            drop_order: None,
        }
    }
}

/// Counters of a cache since it was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Reads of the device.
    pub reads: u64,
    /// Bytes they took.
    pub read_bytes: u64,
    /// Synchronous writes (`mount -v`: sync writes).
    pub sync_writes: u64,
    /// Asynchronous writes (`mount -v`: async writes).
    pub async_writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Flushes of the device.
    pub flushes: u64,
    /// Changes undone in copies of blocks that were written.
    pub rollbacks: u64,
    /// Writes of blocks with something undone.
    pub rolled_back_writes: u64,
    /// Times that a full graph let a caller sleep.
    pub max_limit_hit: u64,
    /// Times that a full graph asked the syncer to hurry.
    pub rush_requests: u64,
    /// Most that was in the graph at once: changes and deferred actions.
    pub most_softdeps: usize,
    /// Most bytes kept to undo changes with.
    pub most_undo: ByteLen,
    /// Blocks read from the cache that were in it.
    pub hits: u64,
    /// Dependencies made, by kind.
    pub made: [u64; Kind::ALL.len()],
    /// Dependencies there are, by kind.
    pub live: [u64; Kind::ALL.len()],
    /// Time that callers slept for a full graph.
    pub slept: Nanos,
    /// Orders recorded: how often a change or an action was made to wait for a
    /// change that was not on the disk.
    pub orders: u64,
    /// The order that was forgotten ([`Config::drop_order`]).
    pub dropped: Option<Dropped>,
    /// The journal's counters.
    pub journal: JournalCounters,
}

/// Counters of a journal since its log was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct JournalCounters {
    /// Transactions committed because the oldest change in them was five seconds
    /// old.
    pub timed_commits: u64,
    /// Because a caller wanted their changes to be durable.
    pub asked_commits: u64,
    /// Because there was no room for another operation in them.
    pub full_commits: u64,
    /// Because the cache, or a checkpoint, needed their blocks.
    pub forced_commits: u64,
    /// Blocks written to the log, without descriptors and the like.
    pub logged: u64,
    /// Blocks revoked.
    pub revokes: u64,
    /// Blocks of contents written before a commit because it shows them.
    pub ordered: u64,
    /// Blocks changed while an earlier state of them was being committed.
    pub frozen: u64,
    /// Times that the start of the log moved on.
    pub checkpoints: u64,
    /// Blocks written home for that; others were at home already.
    pub checkpointed: u64,
    /// Blocks written home before their room was wanted
    /// ([`Config::home_after`](crate::Config::home_after)).
    pub swept: u64,
    /// Transactions left out of the log.
    pub retired: u64,
    /// Times that an operation could not begin before a commit or a checkpoint.
    pub waits: u64,
    /// Waits, with the cache locked, for parts of commits that other callers perform.
    pub blocking_waits: u64,
}

impl JournalCounters {
    /// Transactions committed, for whatever reason.
    #[must_use]
    pub const fn commits(&self) -> u64 {
        self.timed_commits + self.asked_commits + self.full_commits + self.forced_commits
    }
}

/// An order between changes that was forgotten.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dropped {
    /// The change that should have been on the disk first.
    pub before: Role,
    /// The change that should have waited; `None` for an action.
    pub after: Option<Role>,
    /// The other orders imply the same one, by way of other changes: nothing has changed.
    pub implied: bool,
    /// Both are written at once, in the same fragment, whatever the order says.
    pub inseparable: bool,
    /// The waiter changes nothing but bytes of the change it should have waited for: while that is
    /// rolled back, so is the waiter.
    pub covered: bool,
    /// The waiter was taken for being on the disk before it was.
    pub misled: bool,
    /// The waiter was on the disk, or done, before the change that it should have waited for.
    pub shown: bool,
    /// Before that could happen the waiter was given other orders, or taken back, or there was
    /// nothing left to wait for.
    pub moot: bool,
    /// Blocks, by number, of which one has to be late for the loss to show.
    pub late: [Option<u64>; 4],
}

impl Dropped {
    /// Whether the disk can show anything that it could not with the order.
    #[must_use]
    pub const fn matters(&self) -> bool {
        !self.implied
            && !self.inseparable
            && (!self.covered || self.misled)
            && (!self.moot || self.shown)
    }
}
