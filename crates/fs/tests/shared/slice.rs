//! How much of a campaign a test runs.

/// `short`, by default; with `SEEKLESS_TESTS=all` in the environment `all`, which is larger as a
/// count, and smaller as a step from one case to the next.
pub(crate) fn some_or_all<T>(short: T, all: T) -> T {
    if std::env::var_os("SEEKLESS_TESTS").is_some_and(|tests| tests == "all") { all } else { short }
}
