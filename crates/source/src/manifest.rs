//! The contents of a source as an `mtree(5)` listing: equal for equal trees, whatever their source.
//!
//! One line per name, a directory before its entries, the names of a directory sorted by their
//! bytes. Paths and other texts are escaped as in `mtree`: a byte that is not a plain printable one
//! is `\` and three octal digits. Keywords, in this order:
//!
//! | keyword | of | value |
//! |---|---|---|
//! | `type` | all | `file`, `dir`, `link`, `char`, `block`, `fifo`, `socket` |
//! | `mode` | all | permissions, octal, four digits |
//! | `uid`, `gid` | all | numbers |
//! | `nlink` | all but directories | names within the tree |
//! | `size` | files | bytes |
//! | `link` | symlinks | target |
//! | `device` | device nodes | `linux,MAJOR,MINOR` |
//! | `time` | all | last change, seconds and nine digits of nanoseconds |
//! | `sha256digest` | files of up to 64 GiB | of the contents |
//! | `sha256nonzero` | longer files | see [`NONZERO_FROM`] |
//! | `hardlink` | second and later names | the first name in the listing |
//! | `xattr.NAME` | all | value in Base64, sorted by name |
//!
//! Left out: sizes and link counts of directories and the other times, which depend on the storage
//! of a tree; and `lost+found` in the root when it is empty, mode 0700 and owned by root, since
//! `mke2fs` adds it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rayon::prelude::*;
use seekless_fs::source::Source;
use seekless_fs::tree::{Entry, Node, NodeId, Payload, Tree};
use seekless_fs::{FileKind, FsError};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Mutex;

/// Longer files are so sparse that hashing their zeros would take hours. Their digest covers the
/// blocks of 4096 bytes with bytes other than zero, each preceded by its offset as 8 little-endian
/// bytes, so it is independent of the storage of the file and of its holes.
pub const NONZERO_FROM: u64 = 64 << 30;

const BLOCK: usize = 4096;
const BUF: usize = 256 << 10;

type Sum = [u8; 32];

/// Writes the listing. `progress` is called with numbers of bytes read.
///
/// # Errors
/// The source's errors, and [`FsError::Io`] when writing to `out` fails.
pub fn write(
    source: &dyn Source,
    out: &mut dyn Write,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<(), FsError> {
    let sums = digests(source, progress)?;
    let mut listing =
        ManifestListing { tree: source.tree(), sums: &sums, first: HashMap::new(), out };
    listing.write().map_err(|error| FsError::io("manifest", error))
}

/// The digests of all regular files, by node.
fn digests(
    source: &dyn Source,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<HashMap<NodeId, Sum>, FsError> {
    let tree = source.tree();
    let files: Vec<NodeId> =
        tree.ids().filter(|&id| matches!(tree.node(id).payload, Payload::Content(_))).collect();
    let sums = Mutex::new(HashMap::with_capacity(files.len()));
    files.par_chunks(64).try_for_each(|part| {
        let mut buf = vec![0; BUF];
        for &id in part {
            let sum = digest(source, id, &mut buf, progress)?;
            sums.lock().unwrap_or_else(|poison| poison.into_inner()).insert(id, sum);
        }
        Ok::<(), FsError>(())
    })?;
    Ok(sums.into_inner().unwrap_or_else(|poison| poison.into_inner()))
}

fn digest(
    source: &dyn Source,
    id: NodeId,
    buf: &mut [u8],
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Sum, FsError> {
    let size = source.tree().node(id).size;
    let mut hasher = Hasher { sha: Sha256::new(), nonzero_only: size > NONZERO_FROM };
    if size == 0 {
        return Ok(hasher.sha.finalize().into());
    }
    let segments = source.segments(id)?;
    let mut content = source.open(id)?;
    let mut at = 0;
    for segment in segments {
        // Segments may begin and end inside a block; blocks are hashed whole.
        let start = segment.offset / BLOCK as u64 * BLOCK as u64;
        let end = segment.offset.saturating_add(segment.len);
        let end = end.checked_next_multiple_of(BLOCK as u64).unwrap_or(size).min(size);
        let start = start.max(at);
        hasher.zeros(start - at);
        at = start;
        while at < end {
            let n = (end - at).min(buf.len() as u64) as usize;
            content.read_at(at, &mut buf[..n])?;
            hasher.bytes(at, &buf[..n]);
            progress(n as u64);
            at += n as u64;
        }
    }
    hasher.zeros(size - at);
    content.verify()?;
    Ok(hasher.sha.finalize().into())
}

struct Hasher {
    sha: Sha256,
    nonzero_only: bool,
}

impl Hasher {
    fn bytes(&mut self, at: u64, bytes: &[u8]) {
        if !self.nonzero_only {
            self.sha.update(bytes);
            return;
        }
        for (block, offset) in bytes.chunks(BLOCK).zip((at..).step_by(BLOCK)) {
            if block.iter().any(|&byte| byte != 0) {
                self.sha.update(offset.to_le_bytes());
                self.sha.update(block);
            }
        }
    }

    fn zeros(&mut self, mut len: u64) {
        const ZEROS: [u8; 16 << 10] = [0; 16 << 10];
        while !self.nonzero_only && len > 0 {
            let n = len.min(ZEROS.len() as u64);
            self.sha.update(&ZEROS[..n as usize]);
            len -= n;
        }
    }
}

struct ManifestListing<'a> {
    tree: &'a Tree,
    sums: &'a HashMap<NodeId, Sum>,
    /// The first listed path of files with several names.
    first: HashMap<NodeId, String>,
    out: &'a mut dyn Write,
}

impl ManifestListing<'_> {
    fn write(&mut self) -> io::Result<()> {
        writeln!(self.out, "#mtree")?;
        self.line(".", NodeId::ROOT)?;
        let tree = self.tree;
        let mut stack = vec![(".".to_string(), tree.children(NodeId::ROOT).iter())];
        loop {
            let at_root = stack.len() == 1;
            let Some((dir, entries)) = stack.last_mut() else { return Ok(()) };
            let Some(&entry) = entries.next() else {
                stack.pop();
                continue;
            };
            if at_root && self.is_plain_lost_and_found(&entry) {
                continue;
            }
            // A slash in a name is a byte of an encrypted name.
            let name = escaped(self.tree.name(&entry)).replace('/', "\\057");
            let path = format!("{dir}/{name}");
            self.line(&path, entry.node)?;
            let children = tree.children(entry.node);
            if !children.is_empty() {
                stack.push((path, children.iter()));
            }
        }
    }

    fn is_plain_lost_and_found(&self, entry: &Entry) -> bool {
        let node = self.tree.node(entry.node);
        self.tree.name(entry) == b"lost+found"
            && node.kind == FileKind::Directory
            && (node.perm, node.uid, node.gid) == (0o700, 0, 0)
            && self.tree.children(entry.node).is_empty()
            && self.tree.xattrs(node).is_empty()
    }

    fn line(&mut self, path: &str, id: NodeId) -> io::Result<()> {
        let node = self.tree.node(id);
        let Node { perm, uid, gid, names, size, mtime, .. } = node;
        let kind = type_name(node.kind);
        write!(self.out, "{path} type={kind} mode={perm:04o} uid={uid} gid={gid}")?;
        if node.kind != FileKind::Directory {
            write!(self.out, " nlink={names}")?;
        }
        match node.payload {
            Payload::Content(_) => write!(self.out, " size={size}")?,
            Payload::Target(_) => write!(self.out, " link={}", escaped(self.tree.target(node)))?,
            Payload::Device(number) => {
                write!(self.out, " device=linux,{},{}", number.major, number.minor)?;
            }
            Payload::None => {}
        }
        write!(self.out, " time={}.{:09}", mtime.secs, mtime.nanos)?;
        if let Some(sum) = self.sums.get(&id) {
            let keyword = if *size > NONZERO_FROM { "sha256nonzero" } else { "sha256digest" };
            write!(self.out, " {keyword}={}", hex(sum))?;
        }
        if *names > 1 {
            match self.first.get(&id) {
                Some(first) => write!(self.out, " hardlink={first}")?,
                None => drop(self.first.insert(id, path.to_string())),
            }
        }
        for xattr in self.tree.xattrs(node) {
            let value = STANDARD.encode(&xattr.value);
            write!(self.out, " xattr.{}={value}", escaped(&xattr.name))?;
        }
        writeln!(self.out)
    }
}

fn type_name(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Regular => "file",
        FileKind::Directory => "dir",
        FileKind::Symlink => "link",
        FileKind::CharDevice => "char",
        FileKind::BlockDevice => "block",
        FileKind::Fifo => "fifo",
        FileKind::Socket => "socket",
    }
}

fn hex(sum: &Sum) -> String {
    sum.iter().fold(String::with_capacity(64), |mut text, byte| {
        for nibble in [byte >> 4, byte & 15] {
            text.push(char::from_digit(u32::from(nibble), 16).unwrap_or('0'));
        }
        text
    })
}

/// Escapes a text as in `mtree`.
fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        if byte.is_ascii_graphic() && !matches!(byte, b'\\' | b'#' | b'=' | b'"') {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("\\{byte:03o}"));
        }
    }
    text
}

/// A line that is missing in one of two listings, or differs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// The line in the first listing.
    pub left: Option<String>,
    /// The line in the second.
    pub right: Option<String>,
}

/// Compares two listings name by name, in the order of the names.
#[must_use]
pub fn compare(left: &str, right: &str) -> Vec<Difference> {
    let mut lines: std::collections::BTreeMap<&str, (Option<&str>, Option<&str>)> =
        std::collections::BTreeMap::new();
    let content = |text| str::lines(text).filter(|line| !line.starts_with('#') && !line.is_empty());
    let path = |line: &'_ str| line.find(' ').unwrap_or(line.len());
    for line in content(left) {
        lines.entry(&line[..path(line)]).or_default().0 = Some(line);
    }
    for line in content(right) {
        lines.entry(&line[..path(line)]).or_default().1 = Some(line);
    }
    let owned = |line: Option<&str>| line.map(str::to_string);
    lines
        .into_values()
        .filter(|(left, right)| left != right)
        .map(|(left, right)| Difference { left: owned(left), right: owned(right) })
        .collect()
}
