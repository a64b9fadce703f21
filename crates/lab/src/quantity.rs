//! Sizes, spans of time and names as an experiment's file gives them. Each checks its own value
//! while it is parsed, so that an error has its line.

use seekless_cache::Discipline;
use seekless_units::{ByteLen, Nanos, parse_size, parse_span};
use serde::de::Error;
use serde::{Deserialize, Deserializer};

/// A size: `8K`, `7928M`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size(pub ByteLen);

/// A span of time: `100us`, `2ms`, `30s`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span(pub Nanos);

/// The name of an update discipline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DisciplineName(pub Discipline);

/// The name of a policy for directories; behind a `+` may be that of one for all other
/// inodes. Of FAT, which places nothing else, it is one for clusters. Which there are is a
/// matter of the format.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PolicyName(pub String);

/// The name of a policy for blocks. Which there are is a matter of the format.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlockPolicyName(pub String);

/// The name of a built-in drive.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DriveName(pub String);

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        parse_size(&String::deserialize(from)?).map(Self).map_err(D::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        parse_span(&String::deserialize(from)?).map(Self).map_err(D::Error::custom)
    }
}

impl<'de> Deserialize<'de> for DisciplineName {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map(Self).map_err(D::Error::custom)
    }
}

impl<'de> Deserialize<'de> for PolicyName {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from).map(Self)
    }
}

impl<'de> Deserialize<'de> for BlockPolicyName {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from).map(Self)
    }
}

impl<'de> Deserialize<'de> for DriveName {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = String::deserialize(from)?;
        seekless_model::preset::text(&name).map_err(D::Error::custom)?;
        Ok(Self(name))
    }
}

/// Most bytes of a name. Three of them, and the other fields that tell runs apart, fit in the name
/// of a file.
pub(crate) const NAME_MOST: usize = 64;

/// The name of an experiment, a system or a workload: fit for the name of a
/// file, and for a cell's with `/` between.
pub(crate) fn name<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let name = String::deserialize(from)?;
    let fit = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let begins = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    if begins && name.len() <= NAME_MOST && name.chars().all(fit) {
        return Ok(name);
    }
    Err(D::Error::custom(format!(
        "invalid name: must be 1 to {NAME_MOST} of A-Z a-z 0-9 . _ -, beginning with a letter or digit"
    )))
}
