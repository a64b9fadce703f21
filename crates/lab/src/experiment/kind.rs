//! The formats that experiments know: those of the table of formats.

use seekless_formats::{KnownFormat, Version};
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use std::fmt;

/// A version of a format.
#[derive(Clone, Copy)]
pub struct FormatKind {
    known: &'static KnownFormat,
    version: &'static Version,
}

impl FormatKind {
    /// Its row in the table of formats.
    #[must_use]
    pub const fn known(self) -> &'static KnownFormat {
        self.known
    }

    /// Which version it is.
    #[must_use]
    pub const fn version(self) -> &'static Version {
        self.version
    }

    /// Its name in experiments.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.version.name
    }
}

impl fmt::Debug for FormatKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl PartialEq for FormatKind {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for FormatKind {}

impl<'de> Deserialize<'de> for FormatKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        let found = seekless_formats::version(&name);
        let (known, version) = found.ok_or_else(|| {
            let names: Vec<String> =
                seekless_formats::versions().map(|known| format!("`{}`", known.name)).collect();
            let names = names.join(", ");
            D::Error::custom(format!("unknown variant `{name}`, expected one of {names}"))
        })?;
        Ok(Self { known, version })
    }
}
