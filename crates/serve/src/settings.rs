//! Settings of soft updates and of the cache: of a mount (`-o`), and while it lasts
//! ([`Adjustment`]).

use seekless_cache::Config;
use seekless_host::tuning_request::Adjustment;
use seekless_units::{ByteLen, parse_size};

/// Minimum size of the cache: a few blocks of the largest size, with their cylinder groups and
/// indirect blocks.
const LEAST_CACHE: ByteLen = ByteLen::new(1 << 20);

/// Minimum of `max_undo`: several changes of whole blocks.
const LEAST_UNDO: ByteLen = ByteLen::new(256 << 10);

/// Minimum of `tickdelay`, as in soft updates.
const LEAST_TICKS: u64 = 2;

/// Maximum of `tickdelay`: 30 seconds, after which all blocks that were dirty before are due. A sleep
/// locks the file system, and delays a change of settings as well.
const MOST_TICKS: u64 = 3000;

/// A setting, with a value in its range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Setting {
    /// Maximum number of pending changes.
    MaxSoftdeps(u32),
    /// Ticks (1/100 s) for which callers are delayed above a limit.
    Tickdelay(u32),
    /// Maximum number of bytes kept to undo pending changes with.
    MaxUndo(ByteLen),
    /// Bytes of the block cache.
    Cache(ByteLen),
}

impl Setting {
    /// The names of all settings.
    pub const NAMES: [&str; 4] = ["max_softdeps", "tickdelay", "max_undo", "cache"];

    /// A setting by its name. `None` for another name.
    ///
    /// # Errors
    /// The message to show, with the name and the range of its values.
    #[must_use]
    pub fn parse(name: &str, value: &str) -> Option<Result<Self, String>> {
        let number = |of: fn(u64) -> Option<Self>, range: &str| {
            let setting = value.parse().ok().and_then(of);
            setting.ok_or_else(|| format!("{name} must be a number from {range}"))
        };
        let size = |of: fn(u64) -> Option<Self>, least: ByteLen| {
            let size = parse_size(value).map_err(|error| format!("{name}: {error}"))?;
            of(size.get()).ok_or_else(|| format!("{name} must be at least {}K", least.get() >> 10))
        };
        Some(match name {
            "max_softdeps" => number(Self::max_softdeps, &format!("1 to {}", u32::MAX)),
            "tickdelay" => number(Self::tickdelay, &format!("{LEAST_TICKS} to {MOST_TICKS}")),
            "max_undo" => size(Self::max_undo, LEAST_UNDO),
            "cache" => size(Self::cache, LEAST_CACHE),
            _ => return None,
        })
    }

    fn max_softdeps(most: u64) -> Option<Self> {
        u32::try_from(most).ok().filter(|most| *most > 0).map(Self::MaxSoftdeps)
    }

    fn tickdelay(ticks: u64) -> Option<Self> {
        let is_possible = (LEAST_TICKS..=MOST_TICKS).contains(&ticks);
        u32::try_from(ticks).ok().filter(|_| is_possible).map(Self::Tickdelay)
    }

    fn max_undo(bytes: u64) -> Option<Self> {
        Some(ByteLen::new(bytes)).filter(|bytes| *bytes >= LEAST_UNDO).map(Self::MaxUndo)
    }

    fn cache(bytes: u64) -> Option<Self> {
        Some(ByteLen::new(bytes)).filter(|bytes| *bytes >= LEAST_CACHE).map(Self::Cache)
    }

    /// The settings of a request. `None` if a value is out of its range.
    pub(crate) fn of(asked: &Adjustment) -> Option<Vec<Self>> {
        let each = [
            asked.max_softdeps.map(Self::max_softdeps),
            asked.tickdelay.map(Self::tickdelay),
            asked.max_undo.map(Self::max_undo),
            asked.cache.map(Self::cache),
        ];
        each.into_iter().flatten().collect()
    }

    /// Adds it to a request.
    pub fn add_to(self, asked: &mut Adjustment) {
        match self {
            Self::MaxSoftdeps(most) => asked.max_softdeps = Some(most.into()),
            Self::Tickdelay(ticks) => asked.tickdelay = Some(ticks.into()),
            Self::MaxUndo(bytes) => asked.max_undo = Some(bytes.get()),
            Self::Cache(bytes) => asked.cache = Some(bytes.get()),
        }
    }

    /// Sets it in a configuration.
    pub(crate) fn apply(self, config: &mut Config) {
        match self {
            Self::MaxSoftdeps(most) => config.limits.max_softdeps = most as usize,
            Self::Tickdelay(ticks) => config.limits.tickdelay = ticks,
            Self::MaxUndo(bytes) => config.limits.max_undo = bytes,
            Self::Cache(bytes) => config.capacity = bytes,
        }
    }

    /// Whether it applies only to soft updates.
    pub(crate) const fn is_of_soft_updates(self) -> bool {
        !matches!(self, Self::Cache(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seekless_cache::Discipline;

    #[test]
    fn a_setting_out_of_its_range_is_named_with_the_range() {
        let parse = |name: &str, value: &str| Setting::parse(name, value).unwrap();
        assert_eq!(parse("max_softdeps", "4496"), Ok(Setting::MaxSoftdeps(4496)));
        assert_eq!(parse("tickdelay", "2"), Ok(Setting::Tickdelay(2)));
        assert_eq!(parse("tickdelay", "3000"), Ok(Setting::Tickdelay(3000)));
        assert_eq!(parse("max_undo", "256K"), Ok(Setting::MaxUndo(LEAST_UNDO)));
        assert_eq!(parse("cache", "1M"), Ok(Setting::Cache(LEAST_CACHE)));
        for (name, value, range) in [
            ("max_softdeps", "0", "from 1 to 4294967295"),
            ("max_softdeps", "4294967296", "from 1 to 4294967295"),
            ("max_softdeps", "many", "from 1 to 4294967295"),
            ("tickdelay", "1", "from 2 to 3000"),
            ("tickdelay", "3001", "from 2 to 3000"),
            ("tickdelay", "-2", "from 2 to 3000"),
            ("max_undo", "262143", "at least 256K"),
            ("max_undo", "much", "is not a size"),
            ("cache", "1023K", "at least 1024K"),
            ("cache", "", "is not a size"),
        ] {
            let message = parse(name, value).unwrap_err();
            assert!(message.starts_with(name) && message.contains(range), "{message}");
        }
        assert!(Setting::parse("tickdelays", "2").is_none());
    }

    #[test]
    fn a_request_has_the_settings_that_were_added() {
        let all = [("max_softdeps", "7"), ("tickdelay", "9"), ("max_undo", "1M"), ("cache", "3M")];
        assert_eq!(all.map(|(name, _)| name), Setting::NAMES);
        let mut asked = Adjustment::default();
        let (mut by_parts, mut whole) =
            (Config::new(Discipline::SoftUpdates), Config::new(Discipline::SoftUpdates));
        for (name, value) in all {
            let setting = Setting::parse(name, value).unwrap().unwrap();
            assert_eq!(setting.is_of_soft_updates(), name != "cache");
            setting.add_to(&mut asked);
            setting.apply(&mut by_parts);
        }
        for setting in Setting::of(&asked).unwrap() {
            setting.apply(&mut whole);
        }
        assert_eq!(whole, by_parts);
        assert_eq!((whole.limits.max_softdeps, whole.limits.tickdelay), (7, 9));
        assert_eq!((whole.limits.max_undo.get(), whole.capacity.get()), (1 << 20, 3 << 20));
        // Another client of the server may send any value.
        for wrong in [
            Adjustment { max_softdeps: Some(0), ..asked },
            Adjustment { max_softdeps: Some(1 << 32), ..asked },
            Adjustment { tickdelay: Some(1), ..asked },
            Adjustment { tickdelay: Some((1 << 32) + 2), ..asked },
            Adjustment { max_undo: Some(0), ..asked },
            Adjustment { cache: Some(0), ..asked },
        ] {
            assert_eq!(Setting::of(&wrong), None, "{wrong:?}");
        }
    }
}
