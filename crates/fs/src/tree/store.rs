//! Storage for data that nodes and entries refer to by number: names, link targets, times and sets
//! of extended attributes.

use super::{ByteRef, NewPayload, Node, NodeAttr, OtherTimes, Payload};
use crate::attr::inode_flag;
use crate::attr::{FileKind, Xattr};
use crate::error::FsError;
use std::collections::HashMap;

/// Maximum length of a symlink target, one less than `PATH_MAX`.
const TARGET_MAX: usize = 4095;

#[derive(Debug)]
pub(super) struct Store {
    pub(super) bytes: Vec<u8>,
    pub(super) times: Vec<OtherTimes>,
    pub(super) xattrs: Vec<Vec<Xattr>>,
    xattr_index: HashMap<Vec<Xattr>, u32>,
    /// Whether names and targets may contain bytes that are invalid in paths.
    pub(super) raw_names: bool,
}

impl Store {
    pub(super) fn new() -> Self {
        Self {
            bytes: Vec::new(),
            times: Vec::new(),
            xattrs: vec![Vec::new()],
            xattr_index: HashMap::new(),
            raw_names: false,
        }
    }

    /// A store that has these sets of extended attributes, the first of which is empty.
    pub(super) fn with_xattrs(sets: &[Vec<Xattr>]) -> Self {
        let numbered = sets.iter().cloned().zip(0..);
        Self { xattrs: sets.to_vec(), xattr_index: numbered.collect(), ..Self::new() }
    }

    /// Stores a name or target. Returns its offset.
    pub(super) fn bytes(&mut self, bytes: &[u8]) -> Result<u32, FsError> {
        let at = u32::try_from(self.bytes.len())
            .map_err(|_| FsError::NoSpace("names and link targets exceed 4G".into()))?;
        self.bytes.extend_from_slice(bytes);
        Ok(at)
    }

    /// Stores the other times. Returns their number, 0 for none.
    pub(super) fn times(&mut self, times: Option<OtherTimes>) -> u32 {
        match times {
            Some(times) => {
                self.times.push(times);
                self.times.len() as u32
            }
            None => 0,
        }
    }

    /// Stores a set of extended attributes; equal sets get the same number.
    pub(super) fn xattrs(&mut self, mut xattrs: Vec<Xattr>) -> Result<u32, FsError> {
        if xattrs.is_empty() {
            return Ok(0);
        }
        for xattr in &xattrs {
            if xattr.name.len() > 255 || !xattr.name.contains(&b'.') {
                return Err(FsError::Invalid(format!(
                    "invalid extended attribute name {:?}",
                    String::from_utf8_lossy(&xattr.name)
                )));
            }
        }
        xattrs.sort();
        xattrs.dedup_by(|later, earlier| later.name == earlier.name);
        if let Some(&set) = self.xattr_index.get(&xattrs) {
            return Ok(set);
        }
        let set = self.xattrs.len() as u32;
        self.xattrs.push(xattrs.clone());
        self.xattr_index.insert(xattrs, set);
        Ok(set)
    }

    /// Creates a node without names.
    pub(super) fn node(
        &mut self,
        name: &[u8],
        attr: NodeAttr,
        payload: NewPayload<'_>,
    ) -> Result<Node, FsError> {
        let mut size = if attr.kind == FileKind::Regular { attr.size } else { 0 };
        let payload = match payload {
            NewPayload::None => Payload::None,
            NewPayload::Content(key) => Payload::Content(key),
            NewPayload::Device(number) => Payload::Device(number),
            NewPayload::Target(target) => {
                if target.is_empty()
                    || target.len() > TARGET_MAX
                    || (!self.raw_names && target.contains(&0))
                {
                    return Err(FsError::Invalid(format!(
                        "symlink {}: a target of {} bytes is not allowed",
                        String::from_utf8_lossy(name),
                        target.len()
                    )));
                }
                size = target.len() as u64;
                let offset = self.bytes(target)?;
                Payload::Target(ByteRef { offset, len: target.len() as u16 })
            }
        };
        let times = self.times(attr.times);
        Ok(Node {
            payload,
            size,
            mtime: attr.mtime,
            uid: attr.uid,
            gid: attr.gid,
            names: 0,
            times,
            xattrs: 0,
            first_entry: u32::MAX,
            flags: attr.flags & inode_flag::KEPT,
            perm: attr.perm & 0o7777,
            kind: attr.kind,
        })
    }
}
