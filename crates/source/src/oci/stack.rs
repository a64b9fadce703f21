//! The layers of an image laid over each other, with their whiteouts.

use crate::archive::{ArchiveSource, Contents, Layer};
use crate::options::{Notices, TreeOptions};
use crate::tar::{self, Emptiness, read_into};
use crate::unpack::Unpacker;
use seekless_fs::FsError;
use seekless_fs::tree::{NodeId, TreeBuilder};
use std::collections::HashSet;

/// The archive of a layer.
#[derive(Clone)]
pub(super) struct LayerArchive {
    /// Decompressed.
    pub(super) archive: tar::Spooled,
    /// Its name in messages.
    pub(super) name: String,
    /// The SHA-256 of the archive as the image has it, compressed or not, in hexadecimal.
    pub(super) digest: String,
}

/// The archives of an image's layers, the lowest first, and the root file system that they give.
pub(crate) struct Layers {
    pub(super) archives: Vec<LayerArchive>,
    pub(super) whole: Box<ArchiveSource>,
    /// The diff IDs of the image's configuration, to be compared with the archives. `None` if they
    /// have been, or if the configuration has none, as that of an artifact.
    pub(super) diff_ids: Result<Option<Vec<String>>, FsError>,
}

impl Layers {
    /// Layers that `each` gives one after the other. A layer is read while `each` prepares the next
    /// ones.
    ///
    /// # Errors
    /// Those of `each`, and as for archives.
    pub(super) fn gather(
        options: &TreeOptions,
        each: impl FnOnce(&mut dyn FnMut(LayerArchive) -> Result<(), FsError>) -> Result<(), FsError>,
    ) -> Result<Self, FsError> {
        let mut archives = Vec::new();
        let mut stack = Stack::new(Unpacker::new(options.clone()));
        each(&mut |layer| {
            archives.push(layer.clone());
            stack.add(layer).map(|_| ())
        })?;
        Ok(Self { archives, whole: Box::new(stack.finish()?), diff_ids: Ok(None) })
    }

    /// The root file system: all layers over one another.
    pub(crate) fn whole(self) -> ArchiveSource {
        *self.whole
    }

    /// The root file systems of the first layer alone, of the first two, and so on; the last has
    /// all layers. Only the last one has told notices. An image without layers has one, without
    /// files.
    ///
    /// # Errors
    /// As for archives.
    pub(crate) fn steps(self, options: &TreeOptions) -> Result<Vec<ArchiveSource>, FsError> {
        let silent = TreeOptions { notices: Notices(|_| {}), ..options.clone() };
        let below = (1..self.archives.len()).map(|count| self.lowest(count, &silent));
        let mut steps = below.collect::<Result<Vec<_>, FsError>>()?;
        steps.push(*self.whole);
        Ok(steps)
    }

    /// The first `count` layers over one another.
    fn lowest(&self, count: usize, options: &TreeOptions) -> Result<ArchiveSource, FsError> {
        let mut stack = Stack::new(Unpacker::new(options.clone()));
        for layer in &self.archives[..count] {
            stack.add(layer.clone())?;
        }
        stack.finish()
    }
}

/// Layers laid over each other.
pub(super) struct Stack {
    pub(super) unpacker: Unpacker,
    pub(super) contents: Contents,
}

impl Stack {
    pub(super) fn new(unpacker: Unpacker) -> Self {
        Self { unpacker, contents: Contents::default() }
    }

    /// Adds the next layer. Returns the directories whose entries it hides all.
    pub(super) fn add(&mut self, layer: LayerArchive) -> Result<HashSet<NodeId>, FsError> {
        let layer = self.contents.add_archive(layer.archive, layer.name)?;
        let opaque = apply_whiteouts(&mut self.unpacker, &mut self.contents, layer)?;
        let wanted = |path: &[u8]| !is_metadata(path) && whiteout(path).is_none();
        read_into(&mut self.unpacker, &mut self.contents, layer, Emptiness::Known, wanted)?;
        Ok(opaque)
    }

    fn finish(self) -> Result<ArchiveSource, FsError> {
        Ok(ArchiveSource::new(self.unpacker.finish()?, self.contents))
    }
}

/// The names hidden by a whiteout.
pub(super) enum Whiteout<'a> {
    /// All entries of the directory.
    Opaque(&'a [u8]),
    /// One name in the directory.
    Name(&'a [u8], &'a [u8]),
}

/// Whether a path is one of aufs' own metadata, or below.
pub(super) fn is_metadata(path: &[u8]) -> bool {
    let mut names = path.split(|&byte| byte == b'/');
    names.any(|name| name.starts_with(b".wh..wh.") && name != b".wh..wh..opq")
}

pub(super) fn whiteout(path: &[u8]) -> Option<Whiteout<'_>> {
    let (dir, name) = match path.iter().rposition(|&byte| byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (&b""[..], path),
    };
    match name.strip_prefix(b".wh.")? {
        b".wh..opq" => Some(Whiteout::Opaque(dir)),
        hidden => Some(Whiteout::Name(dir, hidden)),
    }
}

/// Removes the names that a layer hides from the layers below. Returns the directories that it
/// empties.
fn apply_whiteouts(
    unpacker: &mut Unpacker,
    contents: &mut Contents,
    layer: Layer,
) -> Result<HashSet<NodeId>, FsError> {
    let mut opaque: HashSet<NodeId> = HashSet::new();
    let mut hidden: Vec<(NodeId, Vec<u8>)> = Vec::new();
    tar::paths(contents, layer, &mut |path| match whiteout(path).filter(|_| !is_metadata(path)) {
        Some(Whiteout::Opaque(dir)) => opaque.extend(unpacker.directory(dir)),
        Some(Whiteout::Name(dir, name)) => {
            if let Some(dir) = unpacker.directory(dir) {
                hidden.push((dir, name.to_vec()));
            }
        }
        None => {}
    })?;
    let builder: &mut TreeBuilder = unpacker.builder();
    for (dir, name) in hidden {
        builder.remove(dir, &name);
    }
    if !opaque.is_empty() {
        builder.clear(&opaque);
    }
    Ok(opaque)
}
