//! `seekless manifest`: lists a tree with digests, or compares two trees.

use crate::args::{Global, OpenArgs};
use crate::failure::Failure;
use crate::show;
use crate::source::{self, SourceArgs};
use crate::written::Written;
use clap::Args;
use seekless_images::output;
use seekless_source::manifest;
use serde_json::{Map, Value};
use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// List a file tree with digests (mtree format), or compare two trees
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  seekless manifest disk.img
  seekless manifest rootfs/ -o rootfs.mtree
  seekless manifest --json disk.img | jq -r .path
  seekless manifest --compare rootfs/ disk.img
  seekless manifest --compare rootfs.mtree disk.img
  seekless manifest --compare old.img cloud.img --partition 1
  zcat rootfs.tar.gz | seekless manifest -

PATH is an image (raw, qcow2 or on a block device), a directory, a tar archive (- for standard input), an OCI
image layout or docker://NAME in a registry. --compare also accepts manifests. Equal trees have equal manifests.
With --json, standard output has one object per entry, with the keywords of mtree as
keys; a file written with -o is in mtree format.")]
pub(crate) struct ManifestArgs {
    /// Image, directory, archive or container image to list
    #[arg(value_name = "PATH", required_unless_present = "compare")]
    path: Option<PathBuf>,
    /// Write to FILE instead of standard output
    #[arg(short, long, value_name = "FILE", conflicts_with = "compare")]
    output: Option<PathBuf>,
    /// Compare two trees and print the lines that differ (exit code 1 if any do); if only
    /// one of them is a disk with partitions, --partition is for that one
    #[arg(long, num_args = 2, value_names = ["A", "B"], conflicts_with = "path")]
    compare: Option<Vec<PathBuf>>,
    #[command(flatten)]
    source: SourceArgs,
    #[command(flatten)]
    open: OpenArgs,
}

impl ManifestArgs {
    /// The files and directories that are read.
    fn inputs(&self) -> impl Iterator<Item = &PathBuf> {
        self.path.iter().chain(self.source.pattern_files())
    }
}

pub(crate) fn run(args: &ManifestArgs, global: &Global) -> Result<ExitCode, Failure> {
    match (args.compare.as_deref(), &args.path) {
        (Some([left, right]), _) => compare(args, left, right, global),
        (_, Some(path)) => list(args, path, global),
        _ => Err(Failure::usage("nothing to list: PATH or --compare is required")),
    }
}

fn list(args: &ManifestArgs, path: &Path, global: &Global) -> Result<ExitCode, Failure> {
    if let Some(output) = &args.output {
        output::refuse_inputs(output, args.inputs())?;
    }
    let text = read(args, &args.source, path, global)?;
    match &args.output {
        Some(output) => {
            output::replace(output, args.inputs(), |out| out.write_all(text.as_bytes()))?;
            let entries = text.lines().filter(|line| is_entry(line)).count();
            Written::file(output).with("names", entries as u64).tell(global);
        }
        None if global.json => print(&as_json(&text))?,
        None => print(&text)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The entries of a manifest, one JSON object per line: `path`, and the keywords of
/// `mtree` as keys.
fn as_json(text: &str) -> String {
    text.lines().filter(|line| is_entry(line)).map(|line| format!("{}\n", entry(line))).collect()
}

/// Whether a line of a manifest is neither empty nor a comment.
fn is_entry(line: &str) -> bool {
    !line.starts_with('#') && !line.is_empty()
}

/// An entry. A word without `=` becomes a key with the value `true`.
fn entry(line: &str) -> Value {
    let mut words = line.split_ascii_whitespace();
    let path = show::json_bytes(&unescaped(words.next().unwrap_or_default()));
    let (mut entry, mut xattrs) = (Map::new(), Map::new());
    entry.insert("path".into(), path);
    for word in words {
        let Some((key, value)) = word.split_once('=') else {
            entry.insert(word.into(), true.into());
            continue;
        };
        if let Some(name) = key.strip_prefix("xattr.") {
            let name = String::from_utf8_lossy(&unescaped(name)).into_owned();
            xattrs.insert(name, value.into());
            continue;
        }
        let value = match (key, value.parse::<u64>()) {
            ("uid" | "gid" | "nlink" | "size", Ok(number)) => number.into(),
            ("link" | "hardlink", _) => show::json_bytes(&unescaped(value)),
            _ => value.into(),
        };
        entry.insert(key.into(), value);
    }
    if !xattrs.is_empty() {
        entry.insert("xattrs".into(), xattrs.into());
    }
    entry.into()
}

/// The bytes that `mtree` writes as a backslash and three octal digits.
fn unescaped(text: &str) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, behind @ ..] = rest {
        let code = behind.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) if *first == b'\\' => {
                plain.push(byte);
                rest = behind.get(3..).unwrap_or_default();
            }
            _ => {
                plain.push(*first);
                rest = behind;
            }
        }
    }
    plain
}

/// The manifest of a source; a manifest file is returned as it is.
fn read(
    args: &ManifestArgs,
    from: &SourceArgs,
    path: &Path,
    global: &Global,
) -> Result<String, Failure> {
    if let Some(text) = ready_made(path) {
        return text.map_err(|error| Failure::io(path.display(), &error));
    }
    let source = source::open(path, from, args.open.options(), source::Purpose::List, global)?;
    let total = source.tree().nodes().iter().map(|node| node.size).sum();
    let bar = progress(total, global);
    let mut out = Vec::new();
    manifest::write(source.as_ref(), &mut out, &|bytes| bar.inc(bytes))?;
    bar.finish_and_clear();
    Ok(String::from_utf8_lossy(&out).into_owned())
}

fn ready_made(path: &Path) -> Option<io::Result<String>> {
    let mut file = File::open(path).ok().filter(|_| path.is_file())?;
    let mut text = vec![0; 6];
    file.read_exact(&mut text).ok().filter(|()| text == b"#mtree")?;
    Some(file.read_to_end(&mut text).map(|_| String::from_utf8_lossy(&text).into_owned()))
}

fn progress(bytes: u64, global: &Global) -> indicatif::ProgressBar {
    if global.quiet || global.json || !io::stderr().is_terminal() {
        return indicatif::ProgressBar::hidden();
    }
    let bar = indicatif::ProgressBar::new(bytes);
    let style = indicatif::ProgressStyle::with_template("{bar:40} {bytes}/{total_bytes} {eta}");
    bar.with_style(style.unwrap_or_else(|_| indicatif::ProgressStyle::default_bar()))
}

/// Prints; a closed pipe is no error.
fn print(text: &str) -> Result<(), Failure> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::io("standard output", &error))
        }
        _ => Ok(()),
    }
}

fn compare(
    args: &ManifestArgs,
    left: &Path,
    right: &Path,
    global: &Global,
) -> Result<ExitCode, Failure> {
    // A disk is often compared with the source of its partition, to which `--partition` does not
    // apply.
    let is_disk = |path: &Path| seekless_images::partitions_of(path).is_some();
    let of_disks = args.source.names_partition() && (is_disk(left) || is_disk(right));
    let read = |path: &Path| {
        let from =
            if of_disks && !is_disk(path) { args.source.whole() } else { args.source.clone() };
        read(args, &from, path, global)
    };
    let differences = manifest::compare(&read(left)?, &read(right)?);
    let mut text = String::new();
    for difference in &differences {
        let sides = [("-", &difference.left), ("+", &difference.right)];
        if global.json {
            let value = serde_json::json!({ "left": difference.left, "right": difference.right });
            text.push_str(&format!("{value}\n"));
            continue;
        }
        for (mark, line) in sides {
            if let Some(line) = line {
                text.push_str(&format!("{mark}{line}\n"));
            }
        }
    }
    print(&text)?;
    Ok(if differences.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}
