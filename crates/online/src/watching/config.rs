//! The configuration of the daemon: a TOML file. Every key has a default.

use seekless_images::{Error, ErrorKind};
use seekless_layout::habits::{IdleRules, Rules};
use seekless_units::{ByteLen, parse_size};
use serde::{Deserialize, Deserializer};
use std::io;
use std::path::Path;

/// Default path.
const DEFAULT: &str = "/etc/seekless/watch.toml";

/// The whole file.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Bounds of an episode.
    pub record: Record,
    /// When habits are forgotten.
    pub forget: Forget,
    /// When files are moved, and how much.
    #[serde(rename = "move")]
    pub moving: Moving,
    /// When the machine is idle.
    pub idle: WhenIdle,
    /// Limits of data kept in memory.
    pub memory: Memory,
}

/// The definition of an episode.
#[derive(Deserialize, Clone, Debug)]
#[serde(deny_unknown_fields, default)]
pub struct Record {
    /// Names of programs whose opens are ignored.
    pub ignore: Vec<String>,
    gap: Span,
    longest: Span,
    least_files: Count,
    most_files: Count,
    alike: Percent,
}

/// The speed of forgetting.
#[derive(Deserialize, Clone, Debug)]
#[serde(deny_unknown_fields, default)]
pub struct Forget {
    half_life: Span,
}

/// The conditions and limits of moving.
#[derive(Deserialize, Clone, Debug)]
#[serde(deny_unknown_fields, default)]
pub struct Moving {
    budget: Size,
    fullest: Percent,
    weight: Figure,
    price: Size,
    least_seeks: Figure,
    least_gain: Percent,
    retry: Span,
    /// Alignment of a habit's region.
    pub chunk: Chunk,
}

/// When the machine is idle.
#[derive(Deserialize, Clone, Debug)]
#[serde(deny_unknown_fields, default)]
pub struct WhenIdle {
    io_pressure: Percent,
    cpu_pressure: Percent,
    load: Figure,
    opens: Figure,
    battery: bool,
    quiet: Span,
    /// Interval of the check.
    pub check: Span,
}

/// Limits of data kept in memory.
#[derive(Deserialize, Clone, Debug)]
#[serde(deny_unknown_fields, default)]
pub struct Memory {
    habits: Count,
    files: Count,
    open_files: Count,
}

impl Default for Record {
    fn default() -> Self {
        let rules = Rules::default();
        Self {
            ignore: ["updatedb", "mlocate", "plocate"].map(String::from).to_vec(),
            gap: Span(rules.gap),
            longest: Span(rules.longest),
            least_files: Count(rules.least_files),
            most_files: Count(rules.most_files),
            alike: Percent(rules.alike),
        }
    }
}

impl Default for Forget {
    fn default() -> Self {
        Self { half_life: Span(Rules::default().half_life) }
    }
}

impl Default for Moving {
    fn default() -> Self {
        let rules = Rules::default();
        Self {
            budget: Size(ByteLen::new(rules.budget)),
            fullest: Percent(rules.fullest),
            weight: Figure(rules.weight),
            price: Size(ByteLen::new(rules.price)),
            least_seeks: Figure(rules.least_seeks),
            least_gain: Percent(rules.least_gain),
            retry: Span(rules.retry),
            chunk: Chunk(ByteLen::new(512 << 10)),
        }
    }
}

impl Default for WhenIdle {
    fn default() -> Self {
        let rules = IdleRules::default();
        Self {
            io_pressure: Percent(rules.io_pressure / 100.0),
            cpu_pressure: Percent(rules.cpu_pressure / 100.0),
            load: Figure(rules.load),
            opens: Figure(rules.opens),
            battery: rules.battery,
            quiet: Span(rules.quiet),
            check: Span(10),
        }
    }
}

impl Default for Memory {
    fn default() -> Self {
        let rules = Rules::default();
        Self {
            habits: Count(rules.most_habits),
            files: Count(rules.most_entries),
            open_files: Count(rules.most_open),
        }
    }
}

impl Config {
    /// Reads the file of this name, or the default one, which may be missing.
    ///
    /// # Errors
    /// If it is missing, or invalid: with line and column.
    pub fn load(path: Option<&Path>) -> Result<Self, Error> {
        let file = path.unwrap_or(Path::new(DEFAULT));
        match std::fs::read_to_string(file) {
            Err(error) if path.is_none() && error.kind() == io::ErrorKind::NotFound => {
                Ok(Self::default())
            }
            text => Self::parse(&text.map_err(|error| Error::io(file.display(), &error))?)
                .map_err(|why| Error::new(ErrorKind::Usage, format!("{}: {why}", file.display()))),
        }
    }

    fn parse(text: &str) -> Result<Self, String> {
        toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start).min(text.len());
            let before = text.get(..at).unwrap_or_default();
            let line = before.matches('\n').count() + 1;
            let column = before.chars().rev().take_while(|char| *char != '\n').count() + 1;
            format!("line {line}, column {column}: {}", error.message())
        })
    }

    /// The rules of the policy.
    pub fn rules(&self) -> Rules {
        let Self { record, forget, moving, idle, memory } = self;
        Rules {
            half_life: forget.half_life.0,
            gap: record.gap.0,
            longest: record.longest.0,
            least_files: record.least_files.0,
            most_files: record.most_files.0,
            alike: record.alike.0,
            weight: moving.weight.0,
            price: moving.price.0.get(),
            least_seeks: moving.least_seeks.0,
            least_gain: moving.least_gain.0,
            budget: moving.budget.0.get(),
            fullest: moving.fullest.0,
            retry: moving.retry.0,
            most_habits: memory.habits.0,
            most_entries: memory.files.0,
            most_open: memory.open_files.0,
            idle: IdleRules {
                io_pressure: idle.io_pressure.0 * 100.0,
                cpu_pressure: idle.cpu_pressure.0 * 100.0,
                load: idle.load.0,
                opens: idle.opens.0,
                battery: idle.battery,
                quiet: idle.quiet.0,
            },
            ..Rules::default()
        }
    }
}

fn wrong<E: serde::de::Error>(why: impl std::fmt::Display) -> E {
    E::custom(why)
}

/// A size such as `512K`, at least 1.
#[derive(Clone, Copy, Debug)]
struct Size(ByteLen);

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match parse_size(&String::deserialize(from)?).map_err(wrong)? {
            ByteLen::ZERO => Err(wrong("a size must be more than 0")),
            size => Ok(Self(size)),
        }
    }
}

/// The unit in which a lazily fetched volume is fetched.
#[derive(Clone, Copy, Debug)]
pub struct Chunk(pub ByteLen);

impl<'de> Deserialize<'de> for Chunk {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        seekless_layout::score::parse_chunk(&text).map(Self).map_err(wrong)
    }
}

/// A duration such as `90s`, `10min`, `2h` or `7d`, at least a second.
#[derive(Clone, Copy, Debug)]
pub struct Span(pub u64);

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let bad = || wrong(format!("'{text}' is not a length of time (try 90s, 10min, 2h, 7d)"));
        let digits = text.trim_end_matches(|char: char| !char.is_ascii_digit());
        let unit = match text[digits.len()..].trim() {
            "s" => 1,
            "min" => 60,
            "h" => 3600,
            "d" => 86_400,
            _ => return Err(bad()),
        };
        let count: u64 = digits.parse().map_err(|_| bad())?;
        match count.checked_mul(unit) {
            None | Some(0) => Err(bad()),
            Some(span) => Ok(Self(span)),
        }
    }
}

/// A percentage, from 0 to 100; stored as a fraction of 1.
#[derive(Clone, Copy, Debug)]
struct Percent(f64);

impl<'de> Deserialize<'de> for Percent {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match f64::deserialize(from)? {
            percent if (0.0..=100.0).contains(&percent) => Ok(Self(percent / 100.0)),
            percent => Err(wrong(format!("{percent} is not from 0 to 100 percent"))),
        }
    }
}

/// A number that is not negative.
#[derive(Clone, Copy, Debug)]
struct Figure(f64);

impl<'de> Deserialize<'de> for Figure {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match f64::deserialize(from)? {
            number if number >= 0.0 && number.is_finite() => Ok(Self(number)),
            number => Err(wrong(format!("{number} is not a number from 0 on"))),
        }
    }
}

/// A count from 1 to 2^24.
#[derive(Clone, Copy, Debug)]
struct Count(usize);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match usize::deserialize(from)? {
            count @ 1..=0x100_0000 => Ok(Self(count)),
            count => Err(wrong(format!("{count} is not from 1 to 16777216"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_file_the_defaults_of_the_policy() {
        let rules = Config::parse("").unwrap().rules();
        assert_eq!(rules, Rules::default());
    }

    #[test]
    fn every_key_is_taken() {
        let text = include_str!("../../../../dist/watch.toml");
        assert_eq!(Config::parse(text).unwrap().rules(), Rules::default(), "as shipped");
        let bare: Vec<&str> =
            text.lines().map(|line| line.strip_prefix("# ").unwrap_or(line)).collect();
        let keys = bare.iter().filter(|line| line.split_once(" = ").is_some());
        assert_eq!(keys.count(), 25, "the file that is shipped names all keys");
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (text, at, why) in [
            ("[move]\nbugdet = \"1G\"\n", "line 2, column 1", "bugdet"),
            ("\n[idel]\n", "line 2, column 2", "idel"),
            ("[move]\n\nbudget = \"many\"\n", "line 3, column 10", "not a size"),
            ("[forget]\nhalf_life = \"7\"\n", "line 2, column 13", "length of time"),
            ("[move]\nfullest = 120\n", "line 2, column 11", "percent"),
            ("[idle]\nload = -1.0\n", "line 2, column 8", "from 0 on"),
            ("[memory]\nhabits = 0\n", "line 2, column 10", "from 1"),
            ("[record]\nignore = 3\n", "line 2, column 10", "sequence"),
            ("[record\n", "line 1", ""),
        ] {
            let told = Config::parse(text).unwrap_err();
            assert!(told.starts_with(at) && told.contains(why), "{text}: {told}");
        }
        let config = Config::parse("[idle]\nquiet = \"2h\"\nload = 1\n").unwrap();
        assert_eq!(config.rules().idle.quiet, 7200);
    }
}
