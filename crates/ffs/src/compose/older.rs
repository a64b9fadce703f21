//! The places that files of older volumes have for their last fragments, and directories for their
//! entries.

use super::demand::TreeDemand;
use super::directory::places_in;
use super::map::OWN_LBNS;
use super::tails::{Holes, Part, Piece, Tails};
use crate::group::Group;
use crate::image::FfsImage;
use crate::inode::Inode;
use crate::make::geometry::Geometry;
use crate::ondisk::DIRECT;
use crate::superblock::{Format, Super};
use crate::volume::Volume;
use seekless_fs::plan::{ObjectId, OlderFile};
use seekless_fs::tree::NodeId;
use seekless_fs::{FileKind, FsError, Inspect};
use seekless_units::{BlockNo, ByteLen, GroupNo};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The files of older volumes that those of a tree continue.
pub(super) struct OlderFiles<'a> {
    images: &'a [Arc<FfsImage>],
    /// By node.
    files: &'a [Option<OlderFile>],
}

/// A run of fragments within a block.
#[derive(Clone, Copy)]
struct Span {
    start: u64,
    len: u32,
}

impl Span {
    fn frags(self) -> impl Iterator<Item = u64> {
        self.start..self.start + u64::from(self.len)
    }
}

/// A piece that may stay where it is.
struct Candidate {
    piece: Piece,
    /// Where it lies, as far as it has fragments there.
    old: Span,
}

impl Candidate {
    /// All fragments that it needs, if they lie in the same block.
    fn whole(&self, frag: u32) -> Option<Span> {
        let within = (self.old.start % u64::from(frag)) as u32;
        let len = self.piece.frags;
        (within + len <= frag).then_some(Span { start: self.old.start, len })
    }
}

impl<'a> OlderFiles<'a> {
    pub(super) fn new(images: &'a [Arc<FfsImage>], files: &'a [Option<OlderFile>]) -> Self {
        Self { images, files }
    }

    fn file(&self, id: NodeId) -> Option<(&'a FfsImage, OlderFile)> {
        let file = self.files.get(id.index()).copied().flatten()?;
        Some((self.images.get(file.image)?.as_ref(), file))
    }

    /// The inodes of the first volume that files continue, by node.
    pub(super) fn numbers(&self) -> Vec<u32> {
        let number = |file: &Option<OlderFile>| match file {
            Some(file) if file.image == 0 => file.ino.get(),
            _ => 0,
        };
        self.files.iter().map(number).collect()
    }

    /// The places of a directory's entries; `None` for a directory that no older volume has.
    pub(super) fn places(&self, id: NodeId) -> Result<Option<HashMap<Vec<u8>, usize>>, FsError> {
        let Some((image, file)) = self.file(id) else { return Ok(None) };
        let volume = image.volume();
        let inode = volume.dir_inode(file.ino)?;
        if inode.len > volume.sb.size * u64::from(volume.sb.fsize) {
            return Ok(None);
        }
        let mut bytes = vec![0; inode.len as usize];
        volume.read_mapped(&inode, ByteLen::ZERO, &mut bytes)?;
        Ok(places_in(&volume.sb, &bytes))
    }

    /// Fixes the last fragments of files, and blocks of attributes, where they lie if a volume of
    /// this shape has them free. `holes` gets the free fragments between them: those that the first
    /// volume used, or all.
    pub(super) fn fixed(
        &self,
        demand: &TreeDemand<'_>,
        geometry: &Geometry,
        fills_all: bool,
    ) -> Result<(Tails, Holes), FsError> {
        let mut claims = KeptFragments { geometry, taken: HashSet::new(), whole: HashSet::new() };
        let mut tails = Tails::default();
        let mut grown = Vec::new();
        for (number, image) in self.images.iter().enumerate() {
            if !has_units_of(&image.volume().sb, geometry) {
                continue;
            }
            for id in demand.tree.ids() {
                let Some((image, file)) = self.file(id).filter(|(_, file)| file.image == number)
                else {
                    continue;
                };
                for candidate in candidates(demand, id, image.volume(), file)? {
                    claims.keep(candidate, &mut tails, &mut grown);
                }
                claims.keep_area(demand, id, image.volume(), file, &mut tails)?;
            }
            if number + 1 < self.images.len() {
                self.claim_blocks(number, demand, &mut claims)?;
            }
        }
        for candidate in grown {
            claims.keep_grown(&candidate, &mut tails);
        }
        let mut first = self.images.first().map(|image| UsedFragments::new(image.volume()));
        let mut holes = Holes::default();
        for (block, _) in tails.fixed() {
            let used = match &mut first {
                Some(first) if !fills_all => first.of_block(block, geometry)?,
                _ => u8::MAX,
            };
            claims.holes(block, used).iter().for_each(|hole| holes.add(hole.start, hole.len));
        }
        Ok((tails, holes))
    }

    /// Claims the whole blocks of a volume's files: fragments of later volumes do not take them.
    fn claim_blocks(
        &self,
        number: usize,
        demand: &TreeDemand<'_>,
        claims: &mut KeptFragments<'_>,
    ) -> Result<(), FsError> {
        let frag = u64::from(claims.geometry.frag);
        for id in demand.tree.ids() {
            let Some((image, file)) = self.file(id).filter(|(_, file)| file.image == number) else {
                continue;
            };
            let map = image.block_map(file.ino)?;
            let runs = map.runs.iter().filter(|_| file.keeps_blocks).map(|run| run.extent);
            let index = map.index.iter().map(|index| index.block.get() / frag);
            claims.whole.extend(index);
            for run in runs {
                let blocks = run.start.get().div_ceil(frag)..run.end().get() / frag;
                claims.whole.extend(blocks);
            }
        }
        Ok(())
    }
}

/// Fragments that pieces keep.
struct KeptFragments<'a> {
    geometry: &'a Geometry,
    taken: HashSet<u64>,
    /// Whole blocks of files of earlier volumes.
    whole: HashSet<u64>,
}

impl KeptFragments<'_> {
    fn is_free(&self, at: u64) -> bool {
        let block = at / u64::from(self.geometry.frag);
        self.geometry.is_data(at) && !self.taken.contains(&at) && !self.whole.contains(&block)
    }

    /// Takes fragments, all or none.
    fn take(&mut self, span: Span) -> bool {
        let free = span.frags().all(|at| self.is_free(at));
        if free {
            self.taken.extend(span.frags());
        }
        free
    }

    fn fix(&self, piece: Piece, start: u64, tails: &mut Tails) {
        let frag = u64::from(self.geometry.frag);
        tails.fix(piece, BlockNo::new(start / frag), (start % frag) as u32);
    }

    /// Keeps a piece that fits into its own fragments; others first take those, until all have.
    fn keep(&mut self, candidate: Candidate, tails: &mut Tails, grown: &mut Vec<Candidate>) {
        let Candidate { piece, old } = &candidate;
        if !self.take(Span { start: old.start, len: old.len.min(piece.frags) }) {
            return;
        }
        if piece.frags <= old.len {
            self.fix(*piece, old.start, tails);
        } else {
            grown.push(candidate);
        }
    }

    /// Keeps a piece that needs fragments behind its own, if they are free; otherwise its own are
    /// free, too.
    fn keep_grown(&mut self, candidate: &Candidate, tails: &mut Tails) {
        let Candidate { piece, old } = candidate;
        old.frags().for_each(|at| {
            self.taken.remove(&at);
        });
        if candidate.whole(self.geometry.frag).is_some_and(|span| self.take(span)) {
            self.fix(*piece, old.start, tails);
        }
    }

    /// Keeps the whole blocks of a file's extended attributes, if it has them all.
    fn keep_area(
        &mut self,
        demand: &TreeDemand<'_>,
        id: NodeId,
        volume: &Volume,
        file: OlderFile,
        tails: &mut Tails,
    ) -> Result<(), FsError> {
        let needed = demand.area_shape(id).blocks;
        if needed == 0 {
            return Ok(());
        }
        let (inode, _) = volume.live_inode(file.ino)?;
        let frag = self.geometry.frag;
        let whole = |n: u64| {
            let span = area_span(&volume.sb, &inode, n)?;
            (span.len == frag && span.start.is_multiple_of(frag.into())).then_some(span)
        };
        let Some(spans) = (0..needed).map(whole).collect::<Option<Vec<Span>>>() else {
            return Ok(());
        };
        if spans.iter().all(|span| span.frags().all(|at| self.is_free(at))) {
            spans.iter().for_each(|&span| self.taken.extend(span.frags()));
            let block = |span: &Span| BlockNo::new(span.start / u64::from(frag));
            let object = ObjectId::new(id.index() as u32);
            tails.fix_area(object, spans.iter().map(block).collect());
        }
        Ok(())
    }

    /// The runs of free fragments among those of a block with a bit in `of`.
    fn holes(&self, block: BlockNo, of: u8) -> Vec<Span> {
        let frag = self.geometry.frag;
        let all = Span { start: block.get() * u64::from(frag), len: frag };
        let mut holes: Vec<Span> = Vec::new();
        let has_bit = |at: u64| of >> (at - all.start) & 1 == 1;
        for at in all.frags().filter(|&at| has_bit(at) && self.is_free(at)) {
            match holes.last_mut() {
                Some(last) if last.start + u64::from(last.len) == at => last.len += 1,
                _ => holes.push(Span { start: at, len: 1 }),
            }
        }
        holes
    }
}

/// Whether blocks and fragments of a volume are those of a shape.
fn has_units_of(sb: &Super, geometry: &Geometry) -> bool {
    (sb.bsize, sb.fsize) == (geometry.bsize, geometry.fsize)
}

/// The fragments that a volume uses.
struct UsedFragments<'a> {
    volume: &'a Volume,
    /// The group that was looked at last.
    group: Option<(GroupNo, Group)>,
}

impl<'a> UsedFragments<'a> {
    fn new(volume: &'a Volume) -> Self {
        Self { volume, group: None }
    }

    /// A bit for each used fragment of a block of a volume with the same units; none in another one.
    fn of_block(&mut self, block: BlockNo, geometry: &Geometry) -> Result<u8, FsError> {
        let sb = &self.volume.sb;
        if !has_units_of(sb, geometry) {
            return Ok(0);
        }
        let start = block.get() * u64::from(sb.frag);
        let mut used = 0;
        for (bit, at) in (start..start + u64::from(sb.frag)).enumerate() {
            if at >= sb.size {
                break;
            }
            let number = GroupNo::new((at / u64::from(sb.fpg)) as u32);
            let group = match self.group.take() {
                Some((own, group)) if own == number => group,
                _ => self.volume.cylinder_group(number)?,
            };
            used |= u8::from(!group.is_free((at % u64::from(sb.fpg)) as u32)) << bit;
            self.group = Some((number, group));
        }
        Ok(used)
    }
}

/// The pieces of a file that have a place in an older volume.
fn candidates(
    demand: &TreeDemand<'_>,
    id: NodeId,
    volume: &Volume,
    file: OlderFile,
) -> Result<Vec<Candidate>, FsError> {
    let pieces: Vec<Piece> = demand.pieces(id).collect();
    if pieces.is_empty() {
        return Ok(Vec::new());
    }
    let (inode, kind) = volume.live_inode(file.ino)?;
    let has_blocks = match kind {
        FileKind::Regular | FileKind::Directory => true,
        FileKind::Symlink => inode.short_target(&volume.sb).is_none(),
        _ => false,
    };
    let old = |piece: &Piece| match piece.part {
        Part::Data if has_blocks && file.keeps_blocks => {
            data_span(&volume.sb, &inode, piece.own_lbn)
        }
        Part::Data => None,
        Part::Attributes => area_span(&volume.sb, &inode, demand.area_shape(id).blocks),
    };
    let candidate = |piece: Piece| Some(Candidate { old: old(&piece)?, piece });
    Ok(pieces.into_iter().filter_map(candidate).collect())
}

/// The fragments of a direct block of a file.
fn data_span(sb: &Super, inode: &Inode, lbn: u64) -> Option<Span> {
    debug_assert!(lbn < OWN_LBNS, "a block of the file's own");
    if lbn >= DIRECT as u64 {
        return None;
    }
    span(sb, inode.direct_block(lbn)?.get(), inode.len.checked_sub(lbn * u64::from(sb.bsize))?)
}

/// The fragments of a block of extended attributes.
fn area_span(sb: &Super, inode: &Inode, n: u64) -> Option<Span> {
    if sb.format == Format::Ufs1 {
        return None;
    }
    let start = *inode.ext_blocks.get(n as usize)?;
    span(sb, start, u64::from(inode.ext_len).checked_sub(n * u64::from(sb.bsize))?)
}

/// The fragments for so many bytes, a block's at most.
fn span(sb: &Super, start: u64, bytes: u64) -> Option<Span> {
    let len = bytes.div_ceil(u64::from(sb.fsize)).min(u64::from(sb.frag)) as u32;
    (start != 0 && len > 0).then_some(Span { start, len })
}

/// The runs of free fragments of fixed blocks, in order: the first, and how many.
pub(super) fn free_in_fixed(demand: &TreeDemand<'_>, geometry: &Geometry) -> Vec<(u64, u64)> {
    let frag = u64::from(geometry.frag);
    let mut free: Vec<(u64, u64)> = Vec::new();
    for (block, pieces) in demand.tails.fixed() {
        let start = block.get() * frag;
        let is_free = |&at: &u64| {
            let within = (at - start) as u32;
            let has = |&(piece, from): &(Piece, u32)| (from..from + piece.frags).contains(&within);
            geometry.is_data(at) && !pieces.iter().any(has)
        };
        for at in (start..start + frag).filter(is_free) {
            match free.last_mut() {
                Some((first, len)) if *first + *len == at => *len += 1,
                _ => free.push((at, 1)),
            }
        }
    }
    free
}
