//! Contents stored in archives.

use crate::tar::Spooled;
use crate::unpack::Unpacked;
use rayon::prelude::*;
use rustix::io::Errno;
use seekless_fs::FsError;
use seekless_fs::source::{Content, Segment, Source};
use seekless_fs::tree::{NodeId, Payload, Tree};
use std::collections::HashSet;
use std::fs::File;
use std::sync::Arc;

/// The files of one archive, or of several archives as layers.
#[derive(Debug)]
pub struct ArchiveSource {
    tree: Tree,
    implied: HashSet<NodeId>,
    contents: Arc<Contents>,
}

impl ArchiveSource {
    pub(crate) fn new(
        Unpacked { tree, implied }: Unpacked,
        contents: impl Into<Arc<Contents>>,
    ) -> Self {
        Self { tree, implied, contents: contents.into() }
    }
}

/// The index of an archive in a [`Contents`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layer(u16);

/// Flag in a key: the other bits are an index in the table of sparse files.
const SPARSE: u64 = 1 << 63;

/// Number of bits in a key for an offset in an archive: 256 TiB.
const OFFSET_BITS: u32 = 48;

impl Layer {
    /// The key of contents that are contiguous at `offset`.
    pub(crate) fn key(self, offset: u64) -> u64 {
        u64::from(self.0) << OFFSET_BITS | offset
    }
}

#[derive(Debug)]
pub(crate) struct Archive {
    pub(crate) file: Arc<File>,
    /// Offset of the archive in the file.
    pub(crate) base: u64,
    pub(crate) name: String,
    pub(crate) len: u64,
}

/// A sparse file, whose bytes are stored contiguously from `base` on.
#[derive(Debug)]
struct SparseFile {
    layer: Layer,
    base: u64,
    runs: Vec<(u64, u64)>,
}

#[derive(Debug, Default)]
pub(crate) struct Contents {
    archives: Vec<Archive>,
    sparse: Vec<SparseFile>,
}

impl Drop for Contents {
    /// Closes all archives at once: to free the blocks of unpacked ones takes a while.
    fn drop(&mut self) {
        std::mem::take(&mut self.archives).into_par_iter().for_each(drop);
    }
}

impl Contents {
    pub(crate) fn add_archive(
        &mut self,
        Spooled { file, base, len }: Spooled,
        name: String,
    ) -> Result<Layer, FsError> {
        let layer = u16::try_from(self.archives.len()).ok().filter(|&layer| layer < 1 << 15);
        let Some(layer) = layer.filter(|_| len < 1 << OFFSET_BITS) else {
            return Err(FsError::Unsupported(format!("{name}: too many layers or bytes")));
        };
        self.archives.push(Archive { file, base, name, len });
        Ok(Layer(layer))
    }

    pub(crate) fn archive(&self, layer: Layer) -> &Archive {
        &self.archives[usize::from(layer.0)]
    }

    /// The key of the `nth` sparse file of the next call of [`Contents::add_sparse`].
    pub(crate) fn sparse_key(&self, nth: usize) -> u64 {
        SPARSE | (self.sparse.len() + nth) as u64
    }

    /// Adds sparse files: offset of the stored bytes, and runs.
    pub(crate) fn add_sparse(&mut self, layer: Layer, files: Vec<(u64, Vec<(u64, u64)>)>) {
        let files = files.into_iter();
        self.sparse.extend(files.map(|(base, runs)| SparseFile { layer, base, runs }));
    }

    fn sparse_file(&self, key: u64) -> Option<&SparseFile> {
        if key & SPARSE == 0 { None } else { self.sparse.get((key & !SPARSE) as usize) }
    }
}

impl Source for ArchiveSource {
    fn tree(&self) -> &Tree {
        &self.tree
    }

    fn is_implied(&self, dir: NodeId) -> bool {
        self.implied.contains(&dir)
    }

    fn segments(&self, node: NodeId) -> Result<Vec<Segment>, FsError> {
        let node = self.tree.node(node);
        if node.size == 0 {
            return Ok(Vec::new());
        }
        let sparse = match node.payload {
            Payload::Content(key) => self.contents.sparse_file(key),
            _ => None,
        };
        Ok(match sparse {
            Some(file) => touching_joined(&file.runs),
            None => vec![Segment { offset: 0, len: node.size }],
        })
    }

    fn open(&self, node: NodeId) -> Result<Box<dyn Content + '_>, FsError> {
        let Payload::Content(key) = self.tree.node(node).payload else {
            let path = self.tree.shown_path(node);
            return Err(FsError::Invalid(format!("{path}: not a regular file")));
        };
        if let Some(sparse) = self.contents.sparse_file(key) {
            let archive = self.contents.archive(sparse.layer);
            return Ok(Box::new(SparseContent { archive, sparse }));
        }
        let archive = &self.contents.archives[(key >> OFFSET_BITS) as usize];
        Ok(Box::new(PlainContent { archive, base: key & ((1 << OFFSET_BITS) - 1) }))
    }
}

fn touching_joined(runs: &[(u64, u64)]) -> Vec<Segment> {
    let mut segments: Vec<Segment> = Vec::with_capacity(runs.len());
    for &(offset, len) in runs {
        match segments.last_mut() {
            Some(last) if last.offset + last.len == offset => last.len += len,
            _ => segments.push(Segment { offset, len }),
        }
    }
    segments
}

impl Archive {
    fn read(&self, at: u64, mut buf: &mut [u8]) -> Result<(), FsError> {
        let mut at = self.base + at;
        while !buf.is_empty() {
            match rustix::io::pread(&self.file, &mut *buf, at) {
                Ok(0) => return Err(FsError::SourceChanged(self.name.clone())),
                Ok(n) => {
                    at += n as u64;
                    buf = &mut buf[n..];
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(FsError::io(&self.name, error.into())),
            }
        }
        Ok(())
    }
}

struct PlainContent<'a> {
    archive: &'a Archive,
    base: u64,
}

impl Content for PlainContent<'_> {
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), FsError> {
        self.archive.read(self.base + offset, buf)
    }
}

struct SparseContent<'a> {
    archive: &'a Archive,
    sparse: &'a SparseFile,
}

impl Content for SparseContent<'_> {
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), FsError> {
        buf.fill(0);
        let end = offset + buf.len() as u64;
        let mut stored = self.sparse.base;
        for &(start, len) in &self.sparse.runs {
            let (from, to) = (start.max(offset), (start + len).min(end));
            if from < to {
                let part = &mut buf[(from - offset) as usize..(to - offset) as usize];
                self.archive.read(stored + (from - start), part)?;
            }
            stored += len;
        }
        Ok(())
    }
}
