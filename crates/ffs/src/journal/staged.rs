//! A volume with changes that are not written yet.

use super::bitmaps::Groups;
use super::parts::FilePart;
use super::records::Owner;
use crate::inode::Inode;
use crate::inode_edit::InodeMut;
use crate::ondisk::DIRECTORY_UNIT;
use crate::volume::Volume;
use seekless_fs::field::{index, invalid, wide};
use seekless_fs::{FsError, Location};
use seekless_units::{BlockNo, Extent, Ino};
use std::collections::BTreeMap;

/// A volume as it will be.
pub(super) struct Staged {
    pub(super) volume: Volume,
    pub(super) groups: Groups,
    /// Contents of changed fragments of directories, index blocks and the ends of files.
    fragments: BTreeMap<u64, Vec<u8>>,
    /// The bytes of changed inodes.
    inodes: BTreeMap<Ino, Vec<u8>>,
    /// The owners of index blocks and blocks of directories that were read as a whole.
    claimed: BTreeMap<BlockNo, Owner>,
}

impl Staged {
    pub(super) fn new(volume: Volume) -> Self {
        Self {
            volume,
            groups: Groups::default(),
            fragments: BTreeMap::new(),
            inodes: BTreeMap::new(),
            claimed: BTreeMap::new(),
        }
    }

    /// The contents of a run of fragments, which lies in the volume.
    ///
    /// # Errors
    /// Errors of the device.
    pub(super) fn contents(&self, run: Extent) -> Result<Vec<u8>, FsError> {
        debug_assert!(run.end().get() <= self.volume.sb.size, "{run} was checked");
        let fsize = index(self.volume.sb.fsize);
        let mut bytes = vec![0; index(run.len) * fsize];
        self.volume.read_bytes(run.start, 0, &mut bytes)?;
        for (&fragment, changed) in self.fragments.range(run.start.get()..run.end().get()) {
            let at = index(fragment - run.start.get()) * fsize;
            let to = bytes.iter_mut().skip(at);
            to.zip(changed).for_each(|(to, &byte)| *to = byte);
        }
        Ok(bytes)
    }

    /// The unit of [`DIRECTORY_UNIT`] bytes that contains a byte of a fragment, which lies in the
    /// volume. A record leads to one entry or one block number: no more of the fragment is read.
    ///
    /// # Errors
    /// Errors of the device.
    pub(super) fn unit(&self, fragment: BlockNo, within: u64) -> Result<Vec<u8>, FsError> {
        debug_assert!(within < u64::from(self.volume.sb.fsize), "byte {within} of a fragment");
        let start = within - within % wide(DIRECTORY_UNIT);
        let mut unit = vec![0; DIRECTORY_UNIT];
        match self.fragments.get(&fragment.get()) {
            Some(changed) => {
                let from = changed.iter().skip(index(start));
                unit.iter_mut().zip(from).for_each(|(to, &byte)| *to = byte);
            }
            None => self.volume.read_bytes(fragment, start, &mut unit)?,
        }
        Ok(unit)
    }

    /// Changes the contents of a run of fragments.
    pub(super) fn put_contents(&mut self, run: Extent, bytes: &[u8]) {
        debug_assert_eq!(wide(bytes.len()), run.len * u64::from(self.volume.sb.fsize), "all of it");
        for (fragment, bytes) in (run.start.get()..).zip(bytes.chunks(index(self.volume.sb.fsize)))
        {
            self.fragments.insert(fragment, bytes.to_vec());
        }
    }

    /// An inode; one of zeros if it was never written.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] when the inode, or its group's head, cannot be believed.
    pub(super) fn inode(&mut self, ino: Ino) -> Result<Inode, FsError> {
        let sb = &self.volume.sb;
        if let Some(bytes) = self.inodes.get(&ino) {
            return Inode::decode(sb, ino, bytes);
        }
        if !self.groups.is_written(&self.volume, ino)? {
            return Inode::decode(sb, ino, &vec![0; index(sb.inode_size())]);
        }
        self.volume.inode(ino)
    }

    /// Notes the part of a file for which a block is read as a whole. Each block is read for one part
    /// only, so that the blocks bound the work of a recovery, whatever their pointers are.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] when it was read for another part, or for another file.
    pub(super) fn claim(
        &mut self,
        ino: Ino,
        part: FilePart,
        block: BlockNo,
    ) -> Result<(), FsError> {
        let owner = Owner { ino, part };
        if *self.claimed.entry(block).or_insert(owner) != owner {
            let place = Location::of("block map").in_inode(ino).in_block(block);
            return Err(invalid("owners of a block", 2, place));
        }
        Ok(())
    }

    /// Changes an inode.
    ///
    /// # Errors
    /// Errors of the device.
    pub(super) fn change(
        &mut self,
        ino: Ino,
        with: impl FnOnce(&mut InodeMut<'_>),
    ) -> Result<(), FsError> {
        let sb = &self.volume.sb;
        let bytes = match self.inodes.remove(&ino) {
            Some(bytes) => bytes,
            None => {
                let place = sb.inode_place(ino)?;
                let mut bytes = vec![0; index(sb.inode_size())];
                self.volume.read_bytes(place.block, wide(place.skip), &mut bytes)?;
                bytes
            }
        };
        let mut inode = InodeMut::of(sb, bytes);
        with(&mut inode);
        let bytes = inode.sealed();
        self.inodes.insert(ino, bytes);
        Ok(())
    }

    /// The changed fragments, by number.
    pub(super) fn changed_fragments(&self) -> &BTreeMap<u64, Vec<u8>> {
        &self.fragments
    }

    /// The changed inodes, by number.
    pub(super) fn changed_inodes(&self) -> &BTreeMap<Ino, Vec<u8>> {
        &self.inodes
    }
}
