//! What the cache of a mount counted, as `mount -v` and `vmstat -m` print it.

use seekless_cache::{Counters, Kind};
use serde_json::{Map, Value, json};

/// For people: a line of `mount -v`'s counts, the limits of soft updates, and a
/// line for each kind of dependency that was ever made.
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
    let made = of_kinds(counters).filter(|(_, _, made)| *made > 0);
    lines.extend(made.map(|(name, live, made)| format!("{name:>12} {live:>9} {made:>9}")));
    lines.join("\n")
}

/// For programs.
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
    })
}

/// Each kind's name, how many there are, and how many were made.
fn of_kinds(counters: &Counters) -> impl Iterator<Item = (&'static str, u64, u64)> {
    let counts = counters.live.into_iter().zip(counters.made);
    Kind::ALL.into_iter().zip(counts).map(|(kind, (live, made))| (kind.name(), live, made))
}
