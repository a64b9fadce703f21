//! Images of an earlier run that are used again.
//!
//! An image is used again if its entry in the list of that run names the same inputs, and its file
//! still has the digest that the entry has. The inputs are not compared option by option: their
//! digest is made from the layer's tree, to which options such as patterns and owners have been
//! applied already, from the chain ID, which stands for the bytes of contents, from the options of the
//! volume, from the accesses that lay it out, and from the version of the program.

use super::LIST;
use crate::formats::Options;
use seekless_device::{BlockDevice, FileDevice};
use seekless_fs::FsError;
use seekless_fs::tree::{Payload, Tree};
use seekless_images::output::{in_the_way, to_replace};
use seekless_images::{Error, ErrorKind, Stop};
use seekless_layout::planner::Storage;
use seekless_layout::trace::Events;
use seekless_units::{ByteLen, Lba};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

/// Bytes of a list that are read: more than 500 layers need.
const LONGEST_LIST: u64 = 16 << 20;

/// Bytes read at once: whole sectors.
const PIECE: usize = 1 << 20;

/// All that the image of a layer depends on.
pub(super) struct Inputs<'a> {
    pub(super) chain_id: &'a str,
    pub(super) tree: &'a Tree,
    pub(super) options: &'a Options,
    pub(super) traces: &'a [Events],
    pub(super) storage: Storage,
}

impl Inputs<'_> {
    /// Their SHA-256: `sha256:` and hexadecimal digits. Equal inputs give equal images.
    pub(super) fn digest(&self) -> String {
        let mut hash = Fields(Sha256::new());
        hash.bytes(env!("CARGO_PKG_VERSION").as_bytes());
        hash.bytes(self.chain_id.as_bytes());
        hash.bytes(format!("{:?}", self.options).as_bytes());
        hash.tree(self.tree);
        hash.bytes(format!("{:?}", self.storage).as_bytes());
        hash.number(self.traces.len() as u64);
        for events in self.traces {
            hash.number(events.len() as u64);
            events.iter().for_each(|event| hash.bytes(format!("{event:?}").as_bytes()));
        }
        shown(hash.0)
    }
}

/// A digest of fields, each with its length or of a fixed one.
struct Fields(Sha256);

impl Fields {
    fn number(&mut self, number: impl Into<u64>) {
        self.0.update(number.into().to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.update(bytes);
    }

    /// Names, attributes and the places of contents in the archives.
    fn tree(&mut self, tree: &Tree) {
        self.number(tree.nodes().len() as u64);
        for node in tree.nodes() {
            let others = tree.other_times(node);
            self.number(node.kind.mode_bits() | node.perm);
            for field in [node.uid, node.gid, node.flags] {
                self.number(field);
            }
            for time in [node.mtime, others.atime, others.ctime, others.crtime] {
                self.0.update(time.secs.to_le_bytes());
                self.number(time.nanos);
            }
            self.number(node.size);
            match node.payload {
                Payload::None => {}
                Payload::Content(key) => self.number(key),
                Payload::Target(_) => self.bytes(tree.target(node)),
                Payload::Device(device) => {
                    self.number(device.major);
                    self.number(device.minor);
                }
            }
            let xattrs = tree.xattrs(node);
            self.number(xattrs.len() as u64);
            for xattr in xattrs {
                self.bytes(&xattr.name);
                self.bytes(&xattr.value);
            }
        }
        for id in tree.ids() {
            let children = tree.children(id);
            self.number(children.len() as u64);
            for entry in children {
                self.bytes(tree.name(entry));
                self.number(entry.node.index() as u64);
            }
        }
    }
}

/// The list of an earlier run.
#[derive(Default)]
pub(super) struct Earlier {
    /// By the name of the image.
    images: HashMap<String, Listed>,
}

/// An image in the list.
struct Listed {
    /// The digest of its inputs.
    inputs: String,
    /// The digest of its bytes.
    sha256: String,
    /// Its length.
    bytes: u64,
}

/// The file in the place of a layer's image.
pub(super) enum Present {
    /// No file.
    Missing,
    /// The image of an earlier run with the same inputs, and the digest of its bytes.
    Same(String),
    /// The image of an earlier run with other inputs.
    Outdated,
    /// Another file than the list describes, or one that it does not describe.
    Foreign {
        /// Whether the list has an entry for it.
        is_listed: bool,
    },
}

impl Earlier {
    /// Reads the list in a directory; `None` if there is none. Entries without digests are left out:
    /// those of runs without `reuses`, and of older versions of the program.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] for a file that is not a list of layers; I/O errors.
    pub(super) fn read(directory: &Path) -> Result<Option<Self>, Error> {
        let path = directory.join(LIST);
        let io = |error| Error::io(path.display(), &error);
        let file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file.map_err(io)?,
        };
        let mut text = Vec::new();
        file.take(LONGEST_LIST).read_to_end(&mut text).map_err(io)?;
        let list: Option<Value> = serde_json::from_slice(&text).ok();
        let layers = list.as_ref().and_then(|list| list.get("layers")?.as_array());
        let Some(layers) = layers else {
            let what = format!("{}: not a list of layers", path.display());
            return Err(Error::new(ErrorKind::Corrupt, what).hint(to_replace()));
        };
        let listed = |layer: &Value| {
            let field = |name: &str| layer.get(name)?.as_str().map(String::from);
            let (inputs, sha256) = (field("inputs")?, field("sha256")?);
            let bytes = layer.get("bytes")?.as_u64()?;
            Some((field("file")?, Listed { inputs, sha256, bytes }))
        };
        Ok(Some(Self { images: layers.iter().filter_map(listed).collect() }))
    }

    /// Compares the file of the name `file` in a directory with the image that these inputs would give.
    /// It is read completely if the list has an entry for it.
    ///
    /// # Errors
    /// I/O errors; the error of the stop.
    pub(super) fn present(
        &self,
        directory: &Path,
        (file, inputs): (&str, &str),
        stop: &Stop,
    ) -> Result<Present, Error> {
        let path = directory.join(file);
        let meta = match path.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Present::Missing),
            meta => meta.map_err(|error| Error::io(path.display(), &error))?,
        };
        let Some(listed) = self.images.get(file) else {
            return Ok(Present::Foreign { is_listed: false });
        };
        if !meta.is_file() || meta.len() != listed.bytes {
            return Ok(Present::Foreign { is_listed: true });
        }
        let device = FileDevice::open(&path).map_err(|error| Error::io(path.display(), &error))?;
        let found = sha256(stop.device(Arc::new(device)).as_ref())
            .map_err(|error| Error::from(error).about(path.display()))?;
        Ok(match found == listed.sha256 {
            false => Present::Foreign { is_listed: true },
            true if listed.inputs == inputs => Present::Same(found),
            true => Present::Outdated,
        })
    }
}

/// The error for a file that is not replaced, since no list of an earlier run describes it so.
pub(super) fn foreign(path: &Path, is_listed: bool) -> Error {
    if !is_listed {
        return in_the_way(path, to_replace());
    }
    let what = format!("{}: not the image that {LIST} describes", path.display());
    Error::new(ErrorKind::System, what).hint(to_replace())
}

/// The SHA-256 of a device's bytes: `sha256:` and hexadecimal digits.
///
/// # Errors
/// Those of the device.
pub(super) fn sha256(device: &dyn BlockDevice) -> Result<String, FsError> {
    let len = device.len().get();
    let mut hash = Sha256::new();
    let mut piece = vec![0; PIECE];
    let mut at = 0;
    while at < len {
        let piece = &mut piece[..PIECE.min(usize::try_from(len - at).unwrap_or(PIECE))];
        device.read(Lba::containing(ByteLen::new(at)), piece)?;
        hash.update(&*piece);
        at += piece.len() as u64;
    }
    Ok(shown(hash))
}

/// A SHA-256 as digests are written: `sha256:` and hexadecimal digits.
pub(super) fn shown(hash: Sha256) -> String {
    let digits: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{digits}")
}
