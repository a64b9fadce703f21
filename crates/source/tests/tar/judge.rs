//! The trees that GNU tar and bsdtar extract from an archive, compared with the tree read from it.

use crate::skip::skip;
use seekless_fs::source::Source;
use seekless_source::{DirectorySource, OpenOptions, TreeOptions, manifest, open};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Names and their attributes, each attribute by its keyword in a manifest.
pub(crate) type Listing = BTreeMap<String, BTreeMap<String, String>>;

/// A judge's result for an archive.
#[derive(Debug)]
pub(crate) struct Verdict {
    pub(crate) listing: Listing,
    /// Its error message, if any.
    pub(crate) complaint: Option<String>,
}

/// The two judges, each with a directory to extract in.
pub(crate) struct Judges {
    dir: PathBuf,
    /// Start time in seconds since 1970: later times were not in an archive.
    begun: i64,
}

/// Messages about sound archives.
const REMARKS: &[&str] = &[
    "Removing leading",
    "Ignoring unknown extended header keyword",
    "in the future",
    "implausibly old time stamp",
    "Extracting contiguous files as regular files",
    "Substituting `.' for empty member name",
    "A lone zero block",
];

impl Judges {
    pub(crate) fn new(dir: &Path) -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Self { dir: dir.to_path_buf(), begun: now.unwrap().as_secs() as i64 - 5 }
    }

    /// Whether both are installed and may set owners and make devices in a directory.
    pub(crate) fn can_ask(dir: &Path) -> bool {
        let is_installed = |name: &&str| {
            Command::new(name).arg("--version").output().is_ok_and(|out| out.status.success())
        };
        if !["tar", "bsdtar"].iter().all(is_installed) {
            skip("bsdtar is not installed");
            return false;
        }
        if fs::metadata(dir).unwrap().uid() != 0 {
            skip("owners and devices cannot be extracted without root");
            return false;
        }
        true
    }

    /// The results of GNU tar and bsdtar.
    pub(crate) fn ask(&self, archive: &Path) -> [Verdict; 2] {
        let gnu = ["tar", "--numeric-owner", "--acls", "--xattrs", "--xattrs-include=*", "-xpf"];
        let bsd = ["bsdtar", "--numeric-owner", "-xpf"];
        [self.extract(&gnu, archive), self.extract(&bsd, archive)]
    }

    fn extract(&self, command: &[&str], archive: &Path) -> Verdict {
        let at = self.dir.join(command[0]);
        let _ = fs::remove_dir_all(&at);
        fs::create_dir(&at).unwrap();
        let script = "umask 022; exec \"$@\"";
        let output = Command::new("timeout")
            .args(["60", "sh", "-c", script, "sh"])
            .args(command)
            .arg(archive)
            .arg("-C")
            .arg(&at)
            .env("LC_ALL", "C.UTF-8")
            .env("TZ", "UTC")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let is_remark = |line: &&str| REMARKS.iter().any(|remark| line.contains(remark));
        let complaints: Vec<&str> = said.lines().filter(|line| !is_remark(line)).collect();
        let complaint = match (output.status.success(), complaints.is_empty()) {
            (true, true) => None,
            _ => Some(format!("{}: {}", output.status, complaints.join(" | "))),
        };
        let source = DirectorySource::open(&at, &TreeOptions::default()).unwrap();
        let mut listing = listing(&source);
        for fields in listing.values_mut() {
            let time = fields.get("time").and_then(|time| time.split('.').next()?.parse().ok());
            if time.is_none_or(|time: i64| time >= self.begun && time < self.begun + 1_000_000) {
                fields.insert("time".into(), UNTOLD.into());
            }
        }
        Verdict { listing, complaint }
    }
}

/// The value of an attribute that an archive lacks.
const UNTOLD: &str = "untold";

fn listing(source: &dyn Source) -> Listing {
    let mut text = Vec::new();
    manifest::write(source, &mut text, &|_| {}).unwrap();
    let text = String::from_utf8(text).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let mut words = line.split(' ');
            let path = words.next().unwrap().to_string();
            let fields = words.map(|word| word.split_once('=').unwrap());
            (path, fields.map(|(key, value)| (key.into(), value.into())).collect())
        })
        .collect()
}

/// Our result for an archive: its tree, or the refusal.
pub(crate) fn ours(archive: &Path) -> Result<Listing, String> {
    let source = open(archive, &OpenOptions::default()).map_err(|error| error.to_string())?;
    let mut listing = listing(source.as_ref());
    let tree = source.tree();
    let mut told: BTreeSet<String> = BTreeSet::new();
    for id in tree.ids().filter(|&id| !source.is_implied(id)) {
        let path = tree.path(id);
        let shown = if path.is_empty() { ".".into() } else { format!("./{}", escaped(&path)) };
        told.insert(shown);
    }
    for (path, fields) in &mut listing {
        // Linux supports such attributes only on these.
        if !matches!(&*fields["type"], "dir" | "file") {
            fields.retain(|key, _| !key.starts_with("xattr.user."));
        }
        if fields["type"] == "dir" && !told.contains(path) {
            fields.insert("time".into(), UNTOLD.into());
        }
        // ext4 supports times up to 2446.
        if let Some(time) = fields.get_mut("time")
            && let Some(secs) = time.split('.').next().and_then(|secs| secs.parse::<i64>().ok())
        {
            let kept = secs.clamp(-(1 << 31), (1 << 34) - (1 << 31) - 1);
            if kept != secs {
                *time = format!("{kept}.000000000");
            }
        }
    }
    Ok(listing)
}

/// Escapes a path as in a manifest.
fn escaped(path: &[u8]) -> String {
    path.iter()
        .map(|&byte| match byte {
            b'\\' | b'#' | b'=' | b'"' => format!("\\{byte:03o}"),
            _ if byte.is_ascii_graphic() => char::from(byte).to_string(),
            _ => format!("\\{byte:03o}"),
        })
        .collect()
}

/// Names and attributes in which we differ from both judges.
pub(crate) fn differences(ours: &Listing, judges: &[Verdict; 2]) -> Vec<String> {
    let mut differences = Vec::new();
    let trees: Vec<&Listing> =
        std::iter::once(ours).chain(judges.iter().map(|judge| &judge.listing)).collect();
    let paths: BTreeSet<&String> = trees.iter().flat_map(|tree| tree.keys()).collect();
    for path in paths {
        let found: Vec<Option<&BTreeMap<String, String>>> =
            trees.iter().map(|tree| tree.get(path)).collect();
        let is_there = |nth: usize| found[nth].is_some();
        if is_there(0) != is_there(1) && is_there(0) != is_there(2) {
            let whose = if is_there(0) { "only ours" } else { "not ours" };
            differences.push(format!("{path}: {whose}"));
            continue;
        }
        let Some(mine) = found[0] else { continue };
        let (gnu, bsd) = (found[1], found[2]);
        let theirs: Vec<&BTreeMap<String, String>> = [gnu, bsd].into_iter().flatten().collect();
        let keys: BTreeSet<&String> =
            theirs.iter().flat_map(|fields| fields.keys()).chain(mine.keys()).collect();
        for key in keys {
            let value = mine.get(key);
            let matches = |fields: &&BTreeMap<String, String>| {
                let other = fields.get(key);
                let is_untold = |value: Option<&String>| value.is_some_and(|v| v == UNTOLD);
                other == value || (key == "time" && (is_untold(value) || is_untold(other)))
            };
            // Only bsdtar reads `LIBARCHIVE.xattr`, and none after a record that it rejects.
            let know: Vec<_> = match key.as_str() {
                "xattr.user.l\\040m" if judges[1].complaint.is_some() => continue,
                "xattr.user.l\\040m" => bsd.into_iter().collect(),
                _ => theirs.clone(),
            };
            if !know.is_empty() && !know.iter().any(matches) {
                let shown: Vec<_> = know.iter().map(|fields| fields.get(key)).collect();
                differences.push(format!("{path}: {key}: ours {value:?}, theirs {shown:?}"));
            }
        }
    }
    differences
}
