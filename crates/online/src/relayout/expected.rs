//! The expected state of a volume after a plan.

use super::survey::Survey;
use seekless_fs::plan::{ObjectId, Placed};
use seekless_fs::{
    Attr, BlockMap, DirEntry, FsError, Geometry, GroupSummary, InodeLocation, Inspect, Mapping,
    Xattr,
};
use seekless_layout::planner::planned::mappings;
use seekless_units::{ByteLen, GroupNo, Ino, Lbn};
use std::collections::HashMap;
use std::ops::ControlFlow;

/// An image in which some files have other locations.
pub(crate) struct Expected<'a> {
    image: &'a dyn Inspect,
    moved: HashMap<Ino, Vec<Mapping>>,
}

impl<'a> Expected<'a> {
    /// Creates a view of `image` with the data of these objects at the given locations.
    pub(crate) fn new(
        image: &'a dyn Inspect,
        survey: &Survey,
        moved: &HashMap<ObjectId, Vec<Placed>>,
    ) -> Self {
        let place = |(&object, data): (&ObjectId, &Vec<Placed>)| {
            let file = survey.file(object);
            (file.ino, mappings(data, &file.runs))
        };
        Self { image, moved: moved.iter().map(place).collect() }
    }
}

impl Inspect for Expected<'_> {
    fn geometry(&self) -> &Geometry {
        self.image.geometry()
    }

    fn root(&self) -> Ino {
        self.image.root()
    }

    fn attr(&self, ino: Ino) -> Result<Attr, FsError> {
        self.image.attr(ino)
    }

    fn xattrs(&self, ino: Ino) -> Result<Vec<Xattr>, FsError> {
        self.image.xattrs(ino)
    }

    fn read_link(&self, ino: Ino) -> Result<Vec<u8>, FsError> {
        self.image.read_link(ino)
    }

    fn read(&self, ino: Ino, offset: ByteLen, buf: &mut [u8]) -> Result<usize, FsError> {
        // Nothing has been moved.
        self.image.read(ino, offset, buf)
    }

    fn lookup(&self, dir: Ino, name: &[u8]) -> Result<Option<Ino>, FsError> {
        self.image.lookup(dir, name)
    }

    fn read_dir(
        &self,
        dir: Ino,
        after: u64,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<(), FsError> {
        self.image.read_dir(dir, after, visit)
    }

    fn block_map(&self, ino: Ino) -> Result<BlockMap, FsError> {
        let mut map = self.image.block_map(ino)?;
        if let Some(runs) = self.moved.get(&ino) {
            // Blocks behind the end of the file stay.
            let end = runs.last().map_or(0, |run| run.lbn.get() + run.extent.len);
            let beyond = map.runs.iter().filter(|run| run.lbn.get() >= end).copied();
            map.runs = runs.iter().copied().chain(beyond).collect();
        }
        Ok(map)
    }

    fn inode_location(&self, ino: Ino) -> Result<InodeLocation, FsError> {
        self.image.inode_location(ino)
    }

    fn lookup_blocks(&self, dir: Ino, name: &[u8]) -> Result<Vec<Lbn>, FsError> {
        self.image.lookup_blocks(dir, name)
    }

    fn unindexed_blocks(&self, dir: Ino) -> Result<Option<Vec<Lbn>>, FsError> {
        self.image.unindexed_blocks(dir)
    }

    fn listing_blocks(&self, dir: Ino) -> Result<Vec<Lbn>, FsError> {
        self.image.listing_blocks(dir)
    }

    fn group(&self, group: GroupNo) -> Result<GroupSummary, FsError> {
        self.image.group(group)
    }
}
