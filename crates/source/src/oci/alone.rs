//! The archive of one layer alone, as a tree for overlayfs.
//!
//! The layers below are not known. Each whiteout becomes a mark, even if it hides nothing, and
//! directories without an entry have the attributes of missing ones (module [`tar`]).

use super::apart::{Marks, WHITEOUT, Whiteouts, whiteout_attr};
use super::stack::{Whiteout, is_metadata, whiteout};
use crate::archive::{ArchiveSource, Contents};
use crate::options::TreeOptions;
use crate::tar::{self, Emptiness, Spooled};
use crate::unpack::Unpacker;
use seekless_fs::tree::{Entry, NewPayload, NodeId, Payload, TreeBuilder};
use seekless_fs::{FileKind, FsError};
use std::collections::HashSet;

/// Opens the archive of a layer, with its whiteouts in a form.
///
/// # Errors
/// As for archives; [`FsError::Unsupported`] for a device that is a whiteout to overlayfs, and for an
/// archive that hides all files below it, for which overlayfs has no mark.
pub(crate) fn open_alone(
    archive: Spooled,
    name: &str,
    options: &TreeOptions,
    whiteouts: Whiteouts,
) -> Result<ArchiveSource, FsError> {
    let mut unpacker = Unpacker::new(options.clone());
    let mut contents = Contents::default();
    let layer = contents.add_archive(archive, name.into())?;
    tar::read_into(&mut unpacker, &mut contents, layer, Emptiness::Checked, |_| true)?;
    if let Some(prefix) = whiteouts.prefix() {
        Marks { prefix, layer: name }.replace_whiteouts(unpacker.builder())?;
    }
    Ok(ArchiveSource::new(unpacker.finish()?, contents))
}

impl Marks<'_> {
    /// Replaces the whiteouts of an archive by marks.
    fn replace_whiteouts(self, builder: &mut TreeBuilder) -> Result<(), FsError> {
        // First the attributes of the archive are escaped; the marks must not be.
        for (dir, entry) in self.escape_all(builder)? {
            let name = builder.name(&entry).to_vec();
            builder.remove(dir, &name);
            match whiteout(&name) {
                _ if is_metadata(&name) => {}
                Some(Whiteout::Opaque(_)) => self.make_opaque(builder, dir)?,
                Some(Whiteout::Name(_, hidden)) if !hidden.is_empty() => {
                    self.hide(builder, dir, hidden, entry.node)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Escapes the attributes of all files. Returns the whiteouts, each with its directory.
    ///
    /// # Errors
    /// [`FsError::Unsupported`] for a file that is a mark.
    fn escape_all(self, builder: &mut TreeBuilder) -> Result<Vec<(NodeId, Entry)>, FsError> {
        let listing = builder.listing();
        let (mut dirs, mut at) = (vec![(NodeId::ROOT, Vec::new())], 0);
        let (mut seen, mut whiteouts) = (HashSet::from([NodeId::ROOT]), Vec::new());
        self.escape(builder, NodeId::ROOT)?;
        while let Some((dir, path)) = dirs.get(at).cloned() {
            at += 1;
            for entry in listing.of(dir) {
                let name = builder.name(entry);
                if is_metadata(name) || whiteout(name).is_some() {
                    whiteouts.push((dir, *entry));
                    continue;
                }
                let path = [&path[..], name, b"/"].concat();
                let node = builder.node(entry.node);
                if node.kind == FileKind::CharDevice && node.payload == Payload::Device(WHITEOUT) {
                    let shown = path.strip_suffix(b"/").unwrap_or(&path);
                    return Err(self.refused(&String::from_utf8_lossy(shown)));
                }
                if node.kind == FileKind::Directory {
                    dirs.push((entry.node, path));
                }
                if seen.insert(entry.node) {
                    self.escape(builder, entry.node)?;
                }
            }
        }
        Ok(whiteouts)
    }

    /// Marks a name as hidden. The mark has the time of the removed whiteout.
    fn hide(
        self,
        builder: &mut TreeBuilder,
        dir: NodeId,
        hidden: &[u8],
        removed: NodeId,
    ) -> Result<(), FsError> {
        match builder.child(dir, hidden) {
            // The directory of the archive replaces the hidden one.
            Some(own) if builder.node(own).kind == FileKind::Directory => {
                self.make_opaque(builder, own)
            }
            Some(_) => Ok(()),
            None => {
                let attr = whiteout_attr(builder.attr(removed).mtime);
                builder.add(dir, hidden, attr, NewPayload::Device(WHITEOUT)).map(drop)
            }
        }
    }

    fn make_opaque(self, builder: &mut TreeBuilder, dir: NodeId) -> Result<(), FsError> {
        if dir == NodeId::ROOT {
            let what = "it hides all files of the layers below, for which overlayfs has no mark";
            return Err(FsError::Unsupported(format!("{}: {what}", self.layer)));
        }
        let mark = self.opaque();
        let others = builder.xattrs(dir).iter().filter(|xattr| xattr.name != mark.name).cloned();
        let xattrs = others.chain([mark.clone()]).collect();
        builder.set_xattrs(dir, xattrs)
    }

    fn escape(self, builder: &mut TreeBuilder, node: NodeId) -> Result<(), FsError> {
        let xattrs = builder.xattrs(node);
        if !xattrs.iter().any(|xattr| xattr.name.starts_with(self.prefix)) {
            return Ok(());
        }
        let escaped = self.escaped(xattrs);
        builder.set_xattrs(node, escaped)
    }
}
