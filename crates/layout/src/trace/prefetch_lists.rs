//! Lists of files that runtimes of containers fetch before a container starts, in
//! the form that the tools of each take.

use super::{Events, Op, first_touches};
use std::collections::HashSet;
use std::io::{self, Write};

/// A list that a runtime's tools take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PrefetchList {
    /// The standard input of `nydus-image create --prefetch-policy`: a path a line, with a leading
    /// slash (`builder/src/core/prefetch.rs`).
    Nydus,
    /// The records of `ctr-remote image optimize --record-out`, which `nerdctl image
    /// convert --estargz-record-in` reads: an object a line, of which only `path` is
    /// used, without a leading slash (`analyzer/recorder/recorder.go` of the stargz
    /// snapshotter).
    Stargz,
    /// The file of `soci create --prefetch-files-json`: an array of paths
    /// (`cmd/soci/commands/internal/prefetch.go`). Versions before May 2026 find only those without
    /// a leading slash.
    Soci,
    /// The list of files that overlaybd reads as `recordTracePath`: a path a line, of
    /// few kinds of characters (`src/prefetch.cpp`, `DynamicPrefetcher`).
    Overlaybd,
}

/// Paths that a list has no place for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Unlisted {
    /// Those with characters that the format cannot hold, or that its readers skip.
    pub unwritable: usize,
    /// Those past the length up to which the list is read.
    pub beyond_limit: usize,
}

/// overlaybd refuses lists that are longer (`MAX_FILE_SIZE`).
const OVERLAYBD_MAX: usize = 65_536;

impl PrefetchList {
    /// Writes the list, in the order of `paths`, and counts the paths that it cannot contain.
    ///
    /// # Errors
    /// When `out` does not take it.
    pub fn write(self, paths: &[&[u8]], out: &mut dyn Write) -> io::Result<Unlisted> {
        let mut taken: Vec<&str> = paths.iter().filter_map(|path| self.takes(path)).collect();
        let mut unlisted = Unlisted { unwritable: paths.len() - taken.len(), beyond_limit: 0 };
        if self == Self::Overlaybd {
            let fitting = fitting(&taken, OVERLAYBD_MAX);
            unlisted.beyond_limit = taken.len() - fitting;
            taken.truncate(fitting);
        }
        match self {
            Self::Nydus | Self::Overlaybd => {
                taken.iter().try_for_each(|path| writeln!(out, "{path}"))?;
            }
            Self::Stargz => {
                let record = |path: &&str| serde_json::json!({ "path": relative(path) });
                taken.iter().map(record).try_for_each(|record| writeln!(out, "{record}"))?;
            }
            Self::Soci => {
                let paths: Vec<&str> = taken.iter().map(|path| relative(path)).collect();
                serde_json::to_writer_pretty(&mut *out, &paths)?;
                writeln!(out)?;
            }
        }
        Ok(unlisted)
    }

    /// The path, where the list can hold it and its readers take it.
    fn takes(self, path: &[u8]) -> Option<&str> {
        let path = std::str::from_utf8(path).ok()?;
        // Readers trim each line before they look at it.
        let is_trimmed = |path: &str| path.trim() == path;
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
        let is_taken = match self {
            Self::Nydus => path.starts_with('/') && is_trimmed(path) && !path.contains('\n'),
            Self::Stargz => true,
            Self::Soci => is_trimmed(relative(path)),
            Self::Overlaybd => path.chars().all(is_plain),
        };
        (is_taken && !relative(path).is_empty()).then_some(path)
    }
}

fn relative(path: &str) -> &str {
    path.trim_start_matches('/')
}

/// How many of the paths fit into a list of so many bytes, from the first on.
fn fitting(paths: &[&str], max: usize) -> usize {
    let ends = paths.iter().scan(0, |end, path| {
        *end += path.len() + 1;
        Some(*end)
    });
    ends.take_while(|end| *end <= max).count()
}

/// The files that were opened, read, run or mapped, in the order of their first touch, without
/// those that the trace itself shows to be directories: listed ones, and those on the way of other
/// paths. A list that names a directory means all that is in it.
#[must_use]
pub fn first_files(events: &Events) -> Vec<&[u8]> {
    let mut directories: HashSet<&[u8]> = HashSet::from([&b"/"[..]]);
    for event in events.iter().filter(|event| *event.op != Op::Device) {
        let mut path = event.path;
        if *event.op == Op::Readdir {
            directories.insert(path);
        }
        while let Some(slash) = path.iter().rposition(|&byte| byte == b'/') {
            path = &path[..slash];
            if path.is_empty() || !directories.insert(path) {
                break;
            }
        }
    }
    let mut files = first_touches(events, false);
    files.retain(|path| !directories.contains(path));
    files
}

#[cfg(test)]
mod tests {
    use super::super::Event;
    use super::*;
    use seekless_units::Nanos;

    const PATHS: [&[u8]; 5] = [b"/bin/sh", b"/a b/\"q\"", b"/x\ny", b"/\xff", b"/etc/os-release"];

    fn written(list: PrefetchList, paths: &[&[u8]]) -> (String, Unlisted) {
        let mut text = Vec::new();
        let unlisted = list.write(paths, &mut text).unwrap();
        (String::from_utf8(text).unwrap(), unlisted)
    }

    /// As `get_patterns` of nydus-image reads its standard input.
    #[test]
    fn nydus_reads_what_is_written() {
        let (text, unlisted) = written(PrefetchList::Nydus, &PATHS);
        let read: Vec<&str> = text.lines().map(str::trim).collect();
        assert!(read.iter().all(|path| path.starts_with('/')));
        assert_eq!(read, ["/bin/sh", "/a b/\"q\"", "/etc/os-release"]);
        assert_eq!(unlisted, Unlisted { unwritable: 2, beyond_limit: 0 });
        assert_eq!(written(PrefetchList::Nydus, &[b"/ends in a blank ", b"/"]).0, "");
    }

    /// As `readPathsFromRecordFile` of nerdctl reads a record: objects one after the
    /// other.
    #[test]
    fn a_record_of_stargz_is_a_stream_of_objects() {
        let (text, unlisted) = written(PrefetchList::Stargz, &PATHS);
        let records = serde_json::Deserializer::from_str(&text).into_iter::<serde_json::Value>();
        let paths: Vec<String> =
            records.map(|record| record.unwrap()["path"].as_str().unwrap().to_string()).collect();
        assert_eq!(paths, ["bin/sh", "a b/\"q\"", "x\ny", "etc/os-release"]);
        assert_eq!(unlisted.unwritable, 1);
    }

    /// As `loadPrefetchFilesFromJSON` of soci reads its file.
    #[test]
    fn soci_reads_an_array_of_paths() {
        let (text, unlisted) = written(PrefetchList::Soci, &PATHS);
        let paths: Vec<String> = serde_json::from_str(&text).unwrap();
        assert_eq!(paths, ["bin/sh", "a b/\"q\"", "x\ny", "etc/os-release"]);
        assert_eq!(unlisted.unwritable, 1);
        assert_eq!(written(PrefetchList::Soci, &[]).0, "[]\n");
    }

    #[test]
    fn overlaybd_gets_the_characters_and_the_length_that_it_takes() {
        let (text, unlisted) = written(PrefetchList::Overlaybd, &PATHS);
        assert_eq!((text.as_str(), unlisted.unwritable), ("/bin/sh\n/etc/os-release\n", 3));
        let names: Vec<String> = (0..5000).map(|n| format!("/usr/lib/{n:05}")).collect();
        let names: Vec<&[u8]> = names.iter().map(String::as_bytes).collect();
        let (text, unlisted) = written(PrefetchList::Overlaybd, &names);
        assert!(text.len() <= OVERLAYBD_MAX && text.len() + 15 > OVERLAYBD_MAX, "{}", text.len());
        assert_eq!(text.lines().count() + unlisted.beyond_limit, names.len());
        assert!(text.starts_with("/usr/lib/00000\n/usr/lib/00001\n"));
    }

    #[test]
    fn directories_are_not_among_the_files() {
        let event = |op, path: &str| Event::new(Nanos::ZERO, op, path.into());
        let events = [
            event(Op::Open, "/"),
            event(Op::Open, "/etc"),
            event(Op::Readdir, "/etc"),
            event(Op::Open, "/usr"),
            event(Op::Read, "/usr/lib/a"),
            event(Op::Open, "/usr/lib"),
            event(Op::Stat, "/b"),
            event(Op::Exec, "/bin"),
        ];
        let events = events.into_iter().collect();
        assert_eq!(first_files(&events), [&b"/usr/lib/a"[..], b"/bin"]);
    }
}
