//! Formats the counters of a mount's cache, like `mount -v` and `vmstat -m` of FreeBSD.

use seekless_cache::{Config, Counters, Discipline, JournalCounters, Kind, Limits};
use serde_json::{Map, Value, json};
use std::fmt::Write as _;

/// The settings and counters of a mounted volume, as text or as JSON. Limits of soft updates only
/// where it is mounted with them.
pub(crate) fn of_mounted(config: &Config, counters: &Counters, as_json: bool) -> String {
    let Limits { max_softdeps, max_undo, tickdelay } = config.limits;
    let (name, cache) = (config.discipline.name(), config.capacity);
    let has_soft_updates = config.discipline == Discipline::SoftUpdates;
    if as_json {
        let mut shown = json(counters);
        shown["discipline"] = json!(name);
        shown["cache"] = json!(cache.get());
        if has_soft_updates {
            shown["max_softdeps"] = json!(max_softdeps);
            shown["tickdelay"] = json!(tickdelay);
            shown["max_undo"] = json!(max_undo.get());
        }
        return shown.to_string();
    }
    let mut shown = format!("{name}: cache {cache}");
    if has_soft_updates {
        let _ = write!(
            shown,
            ", max_softdeps {max_softdeps}, tickdelay {tickdelay}, max_undo {max_undo}"
        );
    }
    shown + "\n" + &text(counters)
}

/// The counters as text: writes and reads, the limits of soft updates, the journal, and a line for
/// each kind of dependency that was ever created.
pub(crate) fn text(counters: &Counters) -> String {
    let mut lines = vec![
        format!("writes: sync {} async {}", counters.sync_writes, counters.async_writes),
        format!("reads: {}, of blocks found in the cache {}", counters.reads, counters.hits),
        format!(
            "softdep: most at once {}, rush_requests {}, max_limit_hit {}, slept {} ms, writes rolled back {}",
            counters.most_softdeps,
            counters.rush_requests,
            counters.max_limit_hit,
            counters.slept.get() / 1_000_000,
            counters.rolled_back_writes
        ),
    ];
    lines.extend(journal_text(&counters.journal));
    let made = of_kinds(counters).filter(|(_, _, made)| *made > 0);
    lines.extend(made.map(|(name, live, made)| format!("{name:>12} {live:>9} {made:>9}")));
    lines.join("\n")
}

/// The counters as JSON.
pub(crate) fn json(counters: &Counters) -> Value {
    let kinds: Map<String, Value> = of_kinds(counters)
        .map(|(name, live, made)| (name.to_string(), json!({ "in_use": live, "made": made })))
        .collect();
    json!({
        "sync_writes": counters.sync_writes,
        "async_writes": counters.async_writes,
        "written_bytes": counters.written_bytes,
        "reads": counters.reads,
        "read_bytes": counters.read_bytes,
        "hits": counters.hits,
        "flushes": counters.flushes,
        "rollbacks": counters.rollbacks,
        "rolled_back_writes": counters.rolled_back_writes,
        "max_limit_hit": counters.max_limit_hit,
        "rush_requests": counters.rush_requests,
        "slept_ns": counters.slept.get(),
        "most_softdeps": counters.most_softdeps,
        "most_undo_bytes": counters.most_undo.get(),
        "dependencies": kinds,
        "journal": journal_json(&counters.journal),
    })
}

/// Counters of the journal; `None` if all are 0.
fn journal_text(journal: &JournalCounters) -> Option<String> {
    let JournalCounters { timed_commits, asked_commits, full_commits, forced_commits, .. } =
        journal;
    let JournalCounters { logged, revokes, ordered, frozen, .. } = journal;
    let JournalCounters { checkpoints, checkpointed, retired, waits, blocking_waits, .. } = journal;
    (*journal != JournalCounters::default()).then(|| {
        format!(
            "journal: commits {} (timed {timed_commits}, asked {asked_commits}, full {full_commits}, \
             forced {forced_commits}), blocks logged {logged}, copied for it {frozen}, revoked \
             {revokes}, of contents before it {ordered}\n\
             log: checkpoints {checkpoints}, blocks written home for them {checkpointed}, \
             transactions left out {retired}, waits for room {waits}, waits for a commit with \
             the file system locked {blocking_waits}",
            journal.commits()
        )
    })
}

fn journal_json(journal: &JournalCounters) -> Value {
    json!({
        "timed_commits": journal.timed_commits,
        "asked_commits": journal.asked_commits,
        "full_commits": journal.full_commits,
        "forced_commits": journal.forced_commits,
        "logged": journal.logged,
        "frozen": journal.frozen,
        "revokes": journal.revokes,
        "ordered": journal.ordered,
        "checkpoints": journal.checkpoints,
        "checkpointed": journal.checkpointed,
        "retired": journal.retired,
        "waits": journal.waits,
        "blocking_waits": journal.blocking_waits,
    })
}

/// Each kind's name, the number in use, and the number ever created.
fn of_kinds(counters: &Counters) -> impl Iterator<Item = (&'static str, u64, u64)> {
    let counts = counters.live.into_iter().zip(counters.made);
    Kind::ALL.into_iter().zip(counts).map(|(kind, (live, made))| (vmstat_name(kind), live, made))
}

/// The name of a kind of dependency in `vmstat -m` of FreeBSD (`softdep.h`).
const fn vmstat_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Directory => "pagedep",
        Kind::Inode => "inodedep",
        Kind::NewBlock => "newblk",
        Kind::Bitmap => "bmsafemap",
        Kind::Pointer => "allocdirect",
        Kind::IndirectBlock => "indirdep",
        Kind::IndirectPointer => "allocindir",
        Kind::FreeFragments => "freefrag",
        Kind::FreeBlocks => "freeblks",
        Kind::FreeInode => "freefile",
        Kind::NameAdded => "diradd",
        Kind::DirectoryMade => "mkdir",
        Kind::NameRemoved => "dirrem",
    }
}
