//! A system as packages and their files: paths and lengths, without contents.
//!
//! A file begins with the line `# seekless system 1`; each further line is one of
//! these, its fields separated by tabs, paths from the root:
//!
//! - `p NAME`: a package begins; `-` for files made on the machine
//! - `d PATH`: a directory
//! - `f PATH LENGTH`: a regular file and its bytes
//! - `h PATH OTHER`: another name of a file before it
//! - `s PATH TARGET`: a symlink

use std::str::FromStr;

/// The first line of such a file.
const HEADER: &str = "# seekless system 1";

/// A system: the packages that are installed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InstalledSystem {
    /// In the order of their first installation.
    pub packages: Vec<Package>,
}

/// A package, installed at once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Its entries, in the order of its archive.
    pub entries: Vec<PackageEntry>,
}

/// An entry of a package: a file, directory or link. Paths begin with `/` and never lead upwards.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PackageEntry {
    /// A directory; several packages may have it.
    Directory(String),
    /// A regular file and its length in bytes.
    File(String, u64),
    /// Another name of a file.
    Link(String, String),
    /// A symlink and where it leads.
    Symlink(String, String),
}

/// The package of the files made on the machine.
pub const LOCAL: &str = "-";

/// The longest file that such a system may have.
const LONGEST: u64 = 1 << 40;

/// An error in a line of a system's file.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct SystemError {
    /// Which line, from 1.
    pub line: usize,
    /// The error.
    pub why: &'static str,
}

fn is_path(path: &str) -> bool {
    path.strip_prefix('/').is_some_and(|rest| {
        rest.split('/').all(|part| !matches!(part, "" | "." | "..") && !part.contains('\0'))
    })
}

impl PackageEntry {
    fn parse(line: &str) -> Result<Self, &'static str> {
        let fields: Vec<&str> = line.split('\t').collect();
        let entry = match *fields {
            ["d", path] => Self::Directory(path.into()),
            ["f", path, len] => {
                let len: u64 = len.parse().map_err(|_| "the length is not a number")?;
                if len > LONGEST {
                    return Err("the file is longer than 1T");
                }
                Self::File(path.into(), len)
            }
            ["h", path, other] if is_path(other) => Self::Link(path.into(), other.into()),
            ["s", path, target] if !target.is_empty() && !target.contains('\0') => {
                Self::Symlink(path.into(), target.into())
            }
            _ => return Err("not a package, a directory, a file, a link or a symlink"),
        };
        if is_path(entry.path()) { Ok(entry) } else { Err("not a path from the root") }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Self::Directory(path)
            | Self::File(path, _)
            | Self::Link(path, _)
            | Self::Symlink(path, _) => path,
        }
    }
}

impl FromStr for InstalledSystem {
    type Err = SystemError;

    fn from_str(text: &str) -> Result<Self, SystemError> {
        let mut packages: Vec<Package> = Vec::new();
        let mut lines = (1..).zip(text.lines());
        if lines.next().is_none_or(|(_, line)| line != HEADER) {
            return Err(SystemError { line: 1, why: "not the file of a system" });
        }
        for (line, text) in lines {
            let failed = |why| SystemError { line, why };
            if let Some(name) = text.strip_prefix("p\t") {
                if name.is_empty() || name.contains(['/', '\t', '\0']) {
                    return Err(failed("not the name of a package"));
                }
                packages.push(Package { name: name.into(), entries: Vec::new() });
                continue;
            }
            let entry = PackageEntry::parse(text).map_err(failed)?;
            let package = packages.last_mut().ok_or_else(|| failed("no package has begun"))?;
            package.entries.push(entry);
        }
        Ok(Self { packages })
    }
}

impl Package {
    /// Bytes of its files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let len =
            |entry: &PackageEntry| if let PackageEntry::File(_, len) = entry { *len } else { 0 };
        self.entries.iter().map(len).sum()
    }

    /// Whether there is an archive to install it from.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.name == LOCAL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let text = "# seekless system 1\np\tbase\nd\t/usr\nf\t/usr/a b\t5\nh\t/usr/c\t/usr/a b\n\
                    p\t-\ns\t/bin\tusr/bin\n";
        let system: InstalledSystem = text.parse().unwrap();
        assert_eq!(system.packages.len(), 2);
        assert_eq!(system.packages[0].bytes(), 5);
        assert_eq!(system.packages[0].entries[1].path(), "/usr/a b");
        assert!(system.packages[1].is_local() && !system.packages[0].is_local());
    }

    #[test]
    fn what_leads_out_or_is_cut_off_is_refused() {
        for (line, text) in [
            (1, ""),
            (1, "p\tbase\n"),
            (2, "# seekless system 1\nd\t/usr\n"),
            (3, "# seekless system 1\np\tbase\nd\t/../etc\n"),
            (3, "# seekless system 1\np\tbase\nf\t/a\n"),
            (3, "# seekless system 1\np\tbase\nf\t/a\t99999999999999999\n"),
            (3, "# seekless system 1\np\tbase\nh\t/a\t../b\n"),
            (2, "# seekless system 1\np\ta/b\n"),
        ] {
            assert_eq!(text.parse::<InstalledSystem>().unwrap_err().line, line, "{text:?}");
        }
    }
}
