//! Objects of a tree to be placed: one for every file, numbered like its node.

use super::attributes;
use super::directory::{self, NamePlaces, Places};
use super::map::{OWN_LBNS, indirect_blocks};
use super::options::BuildOptions;
use super::tails::{Holes, Part, Piece, Tails};
use crate::inode::raw_device;
use crate::make::options::Version;
use crate::ondisk::{DIRECT, ROOT};
use rayon::prelude::*;
use seekless_fs::plan::{Demand, ObjectId, Placed, Run};
use seekless_fs::source::{Segment, Source};
use seekless_fs::term::Text;
use seekless_fs::tree::{NodeId, Payload, Tree, inode_walk, walk};
use seekless_fs::{DeviceNumber, FileKind, FsError, Xattr};
use seekless_units::{Ino, Lbn};
use std::collections::HashMap;

/// Most names of a file (`UFS_LINK_MAX`); a directory's subdirectories count.
const MOST_LINKS: u32 = 32767;
/// Longest target of a symlink (`MAXPATHLEN`, with its zero byte).
const LONGEST_TARGET: u64 = 1023;

/// The demand of a tree under the rules of a volume.
pub(super) struct TreeDemand<'a> {
    pub(super) source: &'a dyn Source,
    pub(super) tree: &'a Tree,
    pub(super) version: Version,
    pub(super) bsize: u32,
    pub(super) fsize: u32,
    /// Areas of extended attributes, by attribute set of the tree.
    areas: Vec<Vec<u8>>,
    /// Runs of whole blocks; node i's are `runs[start[i]..start[i + 1]]`.
    runs: Vec<Run>,
    start: Vec<u32>,
    pub(super) tails: Tails,
    /// Places of entries, of directories that an older volume has.
    directories: HashMap<NodeId, Places>,
}

/// A length as whole blocks and a last one of some fragments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Shape {
    pub(super) blocks: u64,
    /// Fragments behind them; fewer than a block's.
    pub(super) frags: u32,
}

impl<'a> TreeDemand<'a> {
    pub(super) fn new(
        source: &'a dyn Source,
        options: &BuildOptions,
        hot: &[ObjectId],
    ) -> Result<Self, FsError> {
        let make = &options.make;
        let mut demand = Self {
            source,
            tree: source.tree(),
            version: make.version,
            bsize: make.block_size,
            fsize: make.fragment_size,
            areas: Vec::new(),
            runs: Vec::new(),
            start: vec![0],
            tails: Tails::default(),
            directories: HashMap::new(),
        };
        demand.encode_attributes(options)?;
        demand.tree.ids().try_for_each(|id| demand.check(id))?;
        demand.pack_tails(hot, Tails::default(), &mut Holes::default());
        demand.find_runs()?;
        Ok(demand)
    }

    /// Gives directories the places of entries that they have in an older volume.
    pub(super) fn keep_directories(
        &mut self,
        older: &(dyn Fn(NodeId) -> Result<Option<NamePlaces>, FsError> + Sync),
    ) -> Result<(), FsError> {
        let dirs: Vec<NodeId> = self.tree.ids().collect();
        let kept = dirs.par_iter().with_min_len(64).filter_map(|&id| {
            if self.tree.node(id).kind != FileKind::Directory {
                return None;
            }
            let places = match older(id) {
                Ok(places) => places?,
                Err(error) => return Some(Err(error)),
            };
            let entries = self.tree.children(id).iter();
            let names: Vec<&[u8]> = entries.map(|entry| self.tree.name(entry)).collect();
            Some(Ok((id, Places::keeping(&names, &places))))
        });
        self.directories = kept.collect::<Result<_, FsError>>()?;
        Ok(())
    }

    /// The places of a directory's entries, if an older volume has it.
    pub(super) fn places(&self, id: NodeId) -> Option<&Places> {
        self.directories.get(&id)
    }

    /// Packs the last fragments again: `fixed` has those that have their place already, `holes` the
    /// free fragments between them.
    pub(super) fn pack_around(
        &mut self,
        fixed: Tails,
        holes: &mut Holes,
        hot: &[ObjectId],
    ) -> Result<(), FsError> {
        self.pack_tails(hot, fixed, holes);
        (self.runs, self.start) = (Vec::new(), vec![0]);
        self.find_runs()
    }

    fn encode_attributes(&mut self, options: &BuildOptions) -> Result<(), FsError> {
        self.areas = vec![Vec::new(); self.tree.xattr_sets()];
        let mut done = vec![false; self.areas.len()];
        for id in self.tree.ids() {
            let node = self.tree.node(id);
            let set = self.tree.xattr_set(node);
            if std::mem::replace(&mut done[set], true) {
                continue;
            }
            let xattrs = self.tree.xattrs(node);
            let in_file = |why: String| format!("{}: {why}", self.tree.shown_path(id));
            let refused = |xattr: &Xattr| {
                let about = format!("unsupported: {}: ", self.tree.shown_path(id));
                FsError::Refused(Text::from(about).then(attributes::refusal(xattr)))
            };
            if self.version == Version::Ufs1 {
                if let Some(first) = xattrs.first().filter(|_| !options.drop_xattrs) {
                    return Err(refused(first));
                }
                continue;
            }
            let area = attributes::encode(xattrs, options.make.big_endian, options.drop_xattrs)
                .map_err(refused)?;
            if area.len() as u64 > 2 * u64::from(self.bsize) {
                return Err(FsError::NoSpace(in_file(format!(
                    "extended attributes of {} bytes do not fit in two blocks of {}",
                    area.len(),
                    self.bsize
                ))));
            }
            self.areas[set] = area;
        }
        Ok(())
    }

    /// Refuses files that the format cannot store.
    fn check(&self, id: NodeId) -> Result<(), FsError> {
        let node = self.tree.node(id);
        let about = |why: String| format!("{}: {why}", self.tree.shown_path(id));
        let links = self.links(id);
        if links > MOST_LINKS {
            return Err(FsError::NoSpace(about(format!("{links} links, limit {MOST_LINKS}"))));
        }
        if node.kind == FileKind::Symlink && node.size > LONGEST_TARGET {
            return Err(FsError::NoSpace(about(format!(
                "a link target of {} bytes, limit {LONGEST_TARGET}",
                node.size
            ))));
        }
        if let Payload::Device(number) = node.payload
            && device_word(number, self.version).is_none()
        {
            let DeviceNumber { major, minor } = number;
            return Err(FsError::Unsupported(about(format!(
                "device {major}:{minor} does not fit in a UFS1 inode (UFS2 supports it)"
            ))));
        }
        let pointers = self.pointers();
        let blocks = DIRECT as u64 + pointers + pointers.pow(2) + pointers.pow(3);
        let longest = (blocks * u64::from(self.bsize)).min(i64::MAX as u64);
        if self.len(id) >= longest {
            return Err(FsError::NoSpace(about(format!(
                "{} bytes exceed the maximum file size ({longest})",
                node.size
            ))));
        }
        Ok(())
    }

    /// Names of a file; for a directory, with its `.` and the `..` of its subdirectories.
    pub(super) fn links(&self, id: NodeId) -> u32 {
        let node = self.tree.node(id);
        if node.kind != FileKind::Directory {
            return node.names;
        }
        let entries = self.tree.children(id).iter();
        let is_dir = |entry: &&seekless_fs::tree::Entry| {
            self.tree.node(entry.node).kind == FileKind::Directory
        };
        entries.filter(is_dir).count() as u32 + 2
    }

    /// Block numbers in an indirect block.
    fn pointers(&self) -> u64 {
        u64::from(self.bsize) / if self.version == Version::Ufs1 { 4 } else { 8 }
    }

    pub(super) fn frag(&self) -> u32 {
        self.bsize / self.fsize
    }

    /// Bytes of a node that are stored in blocks.
    pub(super) fn len(&self, id: NodeId) -> u64 {
        let node = self.tree.node(id);
        match node.kind {
            FileKind::Directory if self.directories.contains_key(&id) => {
                self.directories[&id].len()
            }
            FileKind::Directory => {
                let entries = self.tree.children(id).iter();
                directory::len(entries.map(|entry| self.tree.name(entry).len()))
            }
            FileKind::Symlink if !self.is_fast(node.size) => node.size,
            FileKind::Regular => node.size,
            _ => 0,
        }
    }

    /// Whether a target of this length is stored in place of the block numbers.
    pub(super) fn is_fast(&self, target: u64) -> bool {
        target < if self.version == Version::Ufs1 { 60 } else { 120 }
    }

    /// The shape of a node's data.
    pub(super) fn shape(&self, id: NodeId) -> Shape {
        let len = self.len(id);
        let blocks = len.div_ceil(u64::from(self.bsize));
        if blocks > DIRECT as u64 {
            return Shape { blocks, frags: 0 };
        }
        self.cut(len)
    }

    fn cut(&self, len: u64) -> Shape {
        let (blocks, rest) = (len / u64::from(self.bsize), len % u64::from(self.bsize));
        let frags = rest.div_ceil(u64::from(self.fsize)) as u32;
        if frags == self.frag() {
            return Shape { blocks: blocks + 1, frags: 0 };
        }
        debug_assert!(frags < self.frag(), "a tail is shorter than a block");
        Shape { blocks, frags }
    }

    /// A node's area of extended attributes.
    pub(super) fn area(&self, id: NodeId) -> &[u8] {
        &self.areas[self.tree.xattr_set(self.tree.node(id))]
    }

    /// How it falls into blocks.
    pub(super) fn area_shape(&self, id: NodeId) -> Shape {
        self.cut(self.area(id).len() as u64)
    }

    fn pack_tails(&mut self, hot: &[ObjectId], mut tails: Tails, holes: &mut Holes) {
        let mut cold: Vec<NodeId> = Vec::with_capacity(self.tree.nodes().len());
        walk(self.tree, &|dir| self.tree.children(dir), |id| cold.push(id));
        let mut packed = vec![false; self.tree.nodes().len()];
        let mut once = |id: &NodeId| !std::mem::replace(&mut packed[id.index()], true);
        let ids = hot.iter().map(|object| NodeId::new(object.index() as u32));
        let hot: Vec<NodeId> = ids.filter(&mut once).collect();
        let cold: Vec<NodeId> = cold.into_iter().filter(once).collect();
        let frag = self.frag();
        for (order, is_hot) in [(&hot, true), (&cold, false)] {
            for directories in [true, false] {
                let of_kind = |id: &&NodeId| {
                    (self.tree.node(**id).kind == FileKind::Directory) == directories
                };
                let pieces = order.iter().filter(of_kind).flat_map(|&id| self.pieces(id));
                let pieces: Vec<Piece> = pieces.filter(|piece| !tails.has(piece)).collect();
                // Those that traces read lie together.
                let fill = |piece: &Piece| !is_hot && holes.fill(piece, frag, &mut tails);
                let (_, left): (Vec<Piece>, Vec<Piece>) = pieces.into_iter().partition(fill);
                tails.pack(left.into_iter(), frag);
            }
        }
        self.tails = tails;
    }

    /// The pieces of a node that go into shared blocks.
    pub(super) fn pieces(&self, id: NodeId) -> impl Iterator<Item = Piece> {
        let object = ObjectId::new(id.index() as u32);
        let (data, area) = (self.shape(id), self.area_shape(id));
        let data = Piece { object, part: Part::Data, own_lbn: data.blocks, frags: data.frags };
        let area = Piece { object, part: Part::Attributes, own_lbn: OWN_LBNS, frags: area.frags };
        [data, area].into_iter().filter(|piece| piece.frags > 0)
    }

    fn find_runs(&mut self) -> Result<(), FsError> {
        let ids: Vec<NodeId> = self.tree.ids().collect();
        let found: Vec<Vec<Run>> = ids
            .par_iter()
            .with_min_len(256)
            .map(|&id| self.node_runs(id))
            .collect::<Result<_, _>>()?;
        for runs in found {
            self.runs.extend(runs);
            self.start.push(self.runs.len() as u32);
        }
        debug_assert_eq!(self.start.len(), self.objects() + 1, "a start for each, and an end");
        Ok(())
    }

    /// A node's whole blocks, and the shared ones that it owns.
    fn node_runs(&self, id: NodeId) -> Result<Vec<Run>, FsError> {
        let node = self.tree.node(id);
        let blocks = self.shape(id).blocks;
        let mut runs: Vec<Run> = Vec::new();
        let mut add = |from: u64, to: u64| match runs.last_mut() {
            _ if from >= to => {}
            Some(last) if last.lbn.get() + last.len >= from => {
                last.len = last.len.max(to - last.lbn.get());
            }
            _ => runs.push(Run { lbn: Lbn::new(from), len: to - from }),
        };
        if node.kind == FileKind::Regular && node.size > 0 {
            let bs = u64::from(self.bsize);
            for Segment { offset, len } in self.source.segments(id)? {
                add(offset / bs, (offset + len).div_ceil(bs).min(blocks));
            }
            // A file ends with a block, not with a hole: fsck_ffs would truncate it.
            if blocks > 0 {
                add(blocks - 1, blocks);
            }
        } else {
            add(0, blocks);
        }
        let object = ObjectId::new(id.index() as u32);
        for lbn in [blocks, OWN_LBNS] {
            if self.tails.owned(object, Lbn::new(lbn)).is_some() {
                add(lbn, lbn + 1);
            }
        }
        debug_assert!(
            runs.is_sorted_by(|one, next| one.lbn + one.len < next.lbn),
            "the runs of a file are apart"
        );
        Ok(runs)
    }

    /// Blocks that the whole tree needs when no file is split.
    pub(super) fn total_blocks(&self) -> u64 {
        let objects = (0..self.objects()).map(|at| ObjectId::new(at as u32));
        objects
            .map(|object| {
                let mut runs = Vec::new();
                self.runs(object, &mut runs);
                let data: u64 = runs.iter().map(|run| run.len).sum();
                data + self.overhead_blocks(object, &Run::apart(&runs))
            })
            .sum()
    }
}

impl Demand for TreeDemand<'_> {
    fn objects(&self) -> usize {
        self.tree.nodes().len()
    }

    fn fixed_ino(&self, object: ObjectId) -> Option<Ino> {
        (object.index() == NodeId::ROOT.index()).then(|| Ino::new(ROOT))
    }

    fn is_directory(&self, object: ObjectId) -> bool {
        self.tree.nodes()[object.index()].kind == FileKind::Directory
    }

    fn runs(&self, object: ObjectId, runs: &mut Vec<Run>) {
        let at = object.index();
        runs.extend_from_slice(&self.runs[self.start[at] as usize..self.start[at + 1] as usize]);
    }

    fn overhead_blocks(&self, object: ObjectId, data: &[Placed]) -> u64 {
        let runs = data.iter().map(|placed| Run { lbn: placed.lbn, len: placed.extent.len });
        let id = NodeId::new(object.index() as u32);
        let area = match self.tails.area(object) {
            Some(_) => 0,
            None => self.area_shape(id).blocks,
        };
        area + indirect_blocks(runs, self.pointers())
    }

    fn is_pinned(&self, _: ObjectId) -> bool {
        false
    }

    fn walk_order(&self) -> Vec<ObjectId> {
        let mut order = Vec::with_capacity(self.objects());
        let visit = |id: NodeId| order.push(ObjectId::new(id.index() as u32));
        walk(self.tree, &|dir| self.tree.children(dir), visit);
        order
    }

    fn parent(&self, directory: ObjectId) -> Option<ObjectId> {
        let id = NodeId::new(directory.index() as u32);
        (id != NodeId::ROOT).then(|| ObjectId::new(self.tree.parent(id).index() as u32))
    }

    fn inode_order(&self) -> Vec<ObjectId> {
        let walked = inode_walk(self.tree, &|dir| self.tree.children(dir));
        walked.into_iter().map(|id| ObjectId::new(id.index() as u32)).collect()
    }
}

/// The number of a device in an inode; `None` where it does not fit.
pub(super) fn device_word(number: DeviceNumber, version: Version) -> Option<u64> {
    let word = raw_device(number);
    (version == Version::Ufs2 || u32::try_from(word).is_ok()).then_some(word)
}
