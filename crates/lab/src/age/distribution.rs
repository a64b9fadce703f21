//! The random quantities of a profile: sizes, spans of virtual time, counts. Each checks its own
//! values while it is parsed, so that an error has its line.

use seekless_model::random::Random;
use seekless_units::{ByteLen, Nanos, parse_size};
use serde::de::Error;
use serde::{Deserialize, Deserializer};

const SECOND: u64 = 1_000_000_000;
/// A century is more than any file system here lives.
const MOST_SECONDS: f64 = 100.0 * 365.25 * 86_400.0;
/// The widest spread: beyond it a draw is as good as any number.
const MOST_SPREAD: f64 = 6.0;

/// A size greater than zero: `4K`, `1.5M`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PositiveSize(pub ByteLen);

/// A span of virtual time: `5ms`, `90s`, `15min`, `6h`, `30d`, `2w`, `1y`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VirtualSpan(pub Nanos);

/// A part of the whole, from 0 to 1.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Share(pub f64);

/// How much more of one thing than of another: from 0, to a million.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Weight(pub f64);

impl<'de> Deserialize<'de> for PositiveSize {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        match parse_size(&text).map_err(D::Error::custom)? {
            ByteLen::ZERO => Err(D::Error::custom(format!("'{text}' is zero"))),
            len => Ok(Self(len)),
        }
    }
}

impl<'de> Deserialize<'de> for VirtualSpan {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        parse_span(&String::deserialize(from)?).map(Self).map_err(D::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        number(f64::deserialize(from)?, 1.0).map(Self).map_err(D::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Weight {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        number(f64::deserialize(from)?, 1e6).map(Self).map_err(D::Error::custom)
    }
}

fn number(value: f64, most: f64) -> Result<f64, String> {
    if (0.0..=most).contains(&value) {
        Ok(value)
    } else {
        Err(format!("not in the range 0 to {most}"))
    }
}

/// A span of virtual time as profiles write it.
///
/// # Errors
/// A message for the user if the text has no number, no unit, or exceeds a century.
pub fn parse_span(text: &str) -> Result<Nanos, String> {
    let bad = || format!("'{text}' is not a valid duration (try 5ms, 90s, 15min, 6h, 30d, 2w, 1y)");
    let split = text.find(|c: char| c.is_ascii_alphabetic()).ok_or_else(bad)?;
    let (digits, unit) = text.split_at(split);
    let seconds = match unit {
        "ms" => 1e-3,
        "s" => 1.0,
        "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        "w" => 7.0 * 86_400.0,
        "y" => 365.25 * 86_400.0,
        _ => return Err(bad()),
    };
    let value: f64 = digits.trim().parse().map_err(|_| bad())?;
    let span = value * seconds;
    if (0.0..=MOST_SECONDS).contains(&span) { Ok(nanos(span)) } else { Err(bad()) }
}

fn nanos(seconds: f64) -> Nanos {
    Nanos::new((seconds.min(MOST_SECONDS) * SECOND as f64) as u64)
}

/// A draw from the standard normal distribution: the sum of twelve draws is
/// nearly that, and needs no function that machines may round differently.
fn normal(chance: &mut Random) -> f64 {
    (0..12).map(|_| chance.unit()).sum::<f64>() - 6.0
}

fn log_normal(chance: &mut Random, median: f64, spread: f64) -> f64 {
    median * (spread * normal(chance)).exp()
}

fn check_spread(spread: f64) -> Result<f64, String> {
    number(spread, MOST_SPREAD).map_err(|why| format!("spread: {why}"))
}

/// Lengths of files: log-normal, or by points of the share of files that are no
/// longer.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(try_from = "SizesText")]
pub struct Sizes {
    shape: SizeDistribution,
    most: u64,
}

#[derive(Clone, PartialEq, Debug)]
enum SizeDistribution {
    LogNormal { median: f64, spread: f64 },
    Points(Vec<(f64, f64)>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SizesText {
    median: Option<PositiveSize>,
    spread: Option<f64>,
    points: Option<Vec<(PositiveSize, Share)>>,
    most: Option<PositiveSize>,
}

impl TryFrom<SizesText> for Sizes {
    type Error = String;

    fn try_from(text: SizesText) -> Result<Self, String> {
        let shape = match (text.median, text.spread, text.points) {
            (Some(PositiveSize(median)), spread, None) => {
                let spread = check_spread(spread.unwrap_or(0.0))?;
                SizeDistribution::LogNormal { median: median.get() as f64, spread }
            }
            (None, None, Some(points)) => SizeDistribution::Points(check_points(&points)?),
            _ => return Err("a size needs either a median and a spread, or points".into()),
        };
        Ok(Self { shape, most: text.most.map_or(u64::MAX, |size| size.0.get()) })
    }
}

fn check_points(points: &[(PositiveSize, Share)]) -> Result<Vec<(f64, f64)>, String> {
    let points: Vec<(f64, f64)> =
        points.iter().map(|(size, share)| (size.0.get() as f64, share.0)).collect();
    let rising = points.windows(2).all(|two| two[0].0 < two[1].0 && two[0].1 <= two[1].1);
    match points.last() {
        Some((_, last)) if rising && *last == 1.0 => Ok(points),
        _ => Err("points must increase in size and in share, and end with a share of 1".into()),
    }
}

impl Sizes {
    /// A length in bytes: one at least, `most` at most.
    pub(super) fn draw(&self, chance: &mut Random, most: u64) -> u64 {
        let len = match &self.shape {
            SizeDistribution::LogNormal { median, spread } => log_normal(chance, *median, *spread),
            SizeDistribution::Points(points) => between(points, chance.unit()),
        };
        (len as u64).clamp(1, self.most.min(most).max(1))
    }
}

/// The size at a share, on a line between points in the logarithm of sizes.
fn between(points: &[(f64, f64)], share: f64) -> f64 {
    let after = points.partition_point(|point| point.1 < share);
    let Some(&(high, to)) = points.get(after) else { return 1.0 };
    // The segment before the first point begins at one byte.
    let (low, from) = after.checked_sub(1).map_or((1.0, 0.0), |before| points[before]);
    let part = if to > from { (share - from) / (to - from) } else { 1.0 };
    low * (high / low).powf(part)
}

/// How long something lives or lasts: log-normal; some of it for ever.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
#[serde(try_from = "SpansText")]
pub struct Spans {
    median: f64,
    spread: f64,
    forever: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SpansText {
    median: VirtualSpan,
    #[serde(default)]
    spread: f64,
    #[serde(default)]
    forever: Share,
}

impl TryFrom<SpansText> for Spans {
    type Error = String;

    fn try_from(text: SpansText) -> Result<Self, String> {
        let median = text.median.0.get() as f64 / SECOND as f64;
        Ok(Self { median, spread: check_spread(text.spread)?, forever: text.forever.0 })
    }
}

impl Spans {
    /// A span; `None` for ever.
    pub(super) fn draw(&self, chance: &mut Random) -> Option<Nanos> {
        let forever = chance.unit() < self.forever;
        let span = nanos(log_normal(chance, self.median, self.spread));
        (!forever).then_some(span)
    }

    /// The median lifetime of the entities that do not live for ever.
    pub(super) fn median(&self) -> Nanos {
        nanos(self.median)
    }
}

/// A distribution of counts: log-normal, one at least.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
#[serde(try_from = "CountsText")]
pub struct CountDistribution {
    median: f64,
    spread: f64,
    most: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CountsText {
    median: u32,
    #[serde(default)]
    spread: f64,
    most: Option<u32>,
}

/// No more of anything is done in one go.
const MOST_AT_ONCE: u32 = 1_000_000;

impl TryFrom<CountsText> for CountDistribution {
    type Error = String;

    fn try_from(text: CountsText) -> Result<Self, String> {
        if text.median == 0 || text.median > MOST_AT_ONCE {
            return Err(format!("median: not in the range 1 to {MOST_AT_ONCE}"));
        }
        let most = text.most.unwrap_or(MOST_AT_ONCE).clamp(1, MOST_AT_ONCE);
        Ok(Self { median: f64::from(text.median), spread: check_spread(text.spread)?, most })
    }
}

impl CountDistribution {
    /// Always one.
    pub(super) const ONE: Self = Self { median: 1.0, spread: 0.0, most: 1 };

    pub(super) fn draw(&self, chance: &mut Random) -> u32 {
        (log_normal(chance, self.median, self.spread).round() as u32).clamp(1, self.most)
    }
}

/// A span with a mean, of those between events that know nothing of each other.
pub(super) fn exponential(chance: &mut Random, mean: Nanos) -> Nanos {
    let seconds = mean.get() as f64 / SECOND as f64;
    nanos(-(1.0 - chance.unit()).ln() * seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(text: &str) -> Result<Sizes, String> {
        #[derive(Deserialize)]
        struct One {
            size: Sizes,
        }
        let read: Result<One, _> = toml::from_str(&format!("size = {text}"));
        read.map(|one| one.size).map_err(|error| error.to_string())
    }

    fn drawn(sizes: &Sizes) -> Vec<u64> {
        let mut chance = Random::new(1);
        let mut drawn: Vec<u64> = (0..10_001).map(|_| sizes.draw(&mut chance, 1 << 30)).collect();
        drawn.sort_unstable();
        drawn
    }

    #[test]
    fn half_of_the_sizes_lie_below_the_median() {
        let drawn = drawn(&sizes("{ median = '4K', spread = 1.5 }").unwrap());
        assert!((3800..4400).contains(&drawn[5000]), "{}", drawn[5000]);
        // e to the 1.5: where 84% lie below.
        let ratio = drawn[8413] as f64 / drawn[5000] as f64;
        assert!((4.1..4.9).contains(&ratio), "{ratio}");
    }

    #[test]
    fn points_are_met() {
        let points = sizes("{ points = [['1K', 0.25], ['64K', 0.5], ['1M', 1]] }").unwrap();
        let drawn = drawn(&points);
        let below = |bytes| drawn.iter().filter(|len| **len <= bytes).count();
        assert!((2400..2600).contains(&below(1024)), "{}", below(1024));
        assert!((4900..5100).contains(&below(65536)), "{}", below(65536));
        assert_eq!(below(1 << 20), 10_001);
        assert_eq!(points.draw(&mut Random::new(1), 7), 7.min(drawn[10_000]));
    }

    #[test]
    fn wrong_distributions_are_refused() {
        for wrong in [
            "{ median = '4K', points = [['1K', 1]] }",
            "{ points = [['1K', 0.5]] }",
            "{ points = [['1K', 0.5], ['512', 1]] }",
            "{ points = [] }",
            "{ median = '4Q' }",
            "{ median = '0K' }",
            "{ median = '4K', spread = 7 }",
            "{ medium = '4K' }",
            "{}",
        ] {
            assert!(sizes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn spans_have_units() {
        assert_eq!(parse_span("5ms"), Ok(Nanos::new(5_000_000)));
        assert_eq!(parse_span("1.5h"), Ok(Nanos::new(5400 * SECOND)));
        assert_eq!(parse_span("2w"), Ok(Nanos::new(14 * 86_400 * SECOND)));
        for wrong in ["", "3", "d", "3 days", "-1d", "200y", "NaNs", "5m"] {
            assert!(parse_span(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn some_live_for_ever() {
        let spans =
            SpansText { median: VirtualSpan(nanos(86_400.0)), spread: 1.0, forever: Share(0.3) };
        let spans = Spans::try_from(spans).unwrap();
        let mut chance = Random::new(3);
        let forever = (0..1000).filter(|_| spans.draw(&mut chance).is_none()).count();
        assert!((250..350).contains(&forever), "{forever}");
    }
}
