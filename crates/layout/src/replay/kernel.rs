//! Versions of Linux, which differ in their reads.

use super::Machine;
use std::str::FromStr;

/// The first two numbers of a version of Linux.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct KernelVersion(u32, u32);

/// The first version that reads forward at a fault in an executable mapping; earlier ones read
/// around the page.
const FAULTS_FORWARD: KernelVersion = KernelVersion(6, 17);

impl FromStr for KernelVersion {
    type Err = String;

    /// Parses a version as `uname -r` prints it.
    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("'{text}' is not a version of Linux (try 6.1)");
        let (major, rest) = text.split_once('.').ok_or_else(bad)?;
        let minor = rest.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
        Ok(Self(major.parse().map_err(|_| bad())?, minor.parse().map_err(|_| bad())?))
    }
}

impl Machine {
    /// The same machine with another version of Linux.
    #[must_use]
    pub fn with_kernel(self, version: KernelVersion) -> Self {
        Self { executable_forward: version >= FAULTS_FORWARD, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_uname_prints_them() {
        for (text, forward) in [
            ("6.16", false),
            ("6.16.9-arch1-1", false),
            ("6.17", true),
            ("6.17-rc1", true),
            ("5.100", false),
            ("7.0", true),
        ] {
            let machine = Machine::default().with_kernel(text.parse().unwrap());
            assert_eq!(machine.executable_forward, forward, "{text}");
        }
        for text in ["", "6", "six.one", "6.", "v6.1"] {
            assert!(text.parse::<KernelVersion>().is_err(), "{text}");
        }
    }
}
