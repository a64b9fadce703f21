//! The forward pass: contents in the order in which they lie on the disk, then
//! inodes, groups, and the superblock last.

use super::base::OlderMetadata;
use super::demand::{Shape, TreeDemand, device_word};
use super::directory::{self, NewEntry};
use super::inode::{self, Record};
use super::map;
use super::tails::{Home, Part, Piece, Shared, TailPlace};
use super::take_fixed;
use crate::checksum::crc32c;
use crate::inode::bsd_flags;
use crate::make::encode::Encoder;
use crate::make::geometry::Geometry;
use crate::make::group::{Counts, GroupBuilder};
use crate::make::{MakeOptions, Version};
use crate::superblock::Order;
use rayon::prelude::*;
use seekless_device::BlockDevice;
use seekless_fs::forward::{self, Contents, Forward};
use seekless_fs::plan::{Demand, ObjectId, Plan};
use seekless_fs::source::Content;
use seekless_fs::tree::{NodeId, Payload};
use seekless_fs::{FileKind, FsError};
use seekless_placement::{GroupSummary, Totals};
use seekless_units::{BlockNo, ByteLen, Extent, Ino, Lba, Lbn, SECTOR};

/// Everything is decided; only the writing is left.
pub(super) struct Writer<'a> {
    pub(super) demand: &'a TreeDemand<'a>,
    pub(super) geometry: &'a Geometry,
    pub(super) options: &'a MakeOptions,
    pub(super) plan: &'a Plan,
    pub(super) device: &'a dyn BlockDevice,
    pub(super) progress: &'a (dyn Fn(u64) + Sync),
    /// The metadata of an older volume, in whose places these are.
    pub(super) base: Option<OlderMetadata<'a>>,
    /// The inodes of the older volume that files continue, by node.
    pub(super) older_inodes: &'a [u32],
}

impl Writer<'_> {
    /// Writes the whole image.
    pub(super) fn run(&self) -> Result<(), FsError> {
        self.write_data()?;
        self.write_fixed()?;
        let depths = self.depths();
        let mut by_group: Vec<Vec<NodeId>> = vec![Vec::new(); self.geometry.ncg as usize];
        for id in self.demand.tree.ids() {
            by_group[(self.ino(id).get() / self.geometry.ipg) as usize].push(id);
        }
        by_group
            .into_par_iter()
            .enumerate()
            .try_for_each(|(group, ids)| self.write_table(group as u32, &ids, &depths))?;
        match &self.base {
            Some(base) => self.write_older_groups(base),
            None => self.write_groups(),
        }
    }

    /// Writes from a fragment on.
    fn put(&self, frag: u64, bytes: &[u8]) -> Result<(), FsError> {
        let at = ByteLen::new(frag * u64::from(self.geometry.fsize));
        self.device.write(Lba::containing(at), bytes)?;
        (self.progress)(bytes.len() as u64);
        Ok(())
    }

    fn ino(&self, id: NodeId) -> Ino {
        self.plan.inodes[id.index()]
    }

    fn encoder(&self) -> Encoder<'_> {
        Encoder { geometry: self.geometry, options: self.options }
    }

    // ---- contents -------------------------------------------------------

    fn write_data(&self) -> Result<(), FsError> {
        Forward {
            block_size: self.geometry.bsize,
            device: self.device,
            progress: self.progress,
            contents: self,
        }
        .run(forward::pieces(self.plan))
    }

    fn directory(&self, id: NodeId) -> Vec<u8> {
        let tree = self.demand.tree;
        let entries: Vec<NewEntry<'_>> = tree
            .children(id)
            .iter()
            .map(|entry| NewEntry {
                name: tree.name(entry),
                ino: self.ino(entry.node),
                kind: tree.node(entry.node).kind,
            })
            .collect();
        let parent = self.ino(tree.parent(id));
        let order = if self.options.big_endian { Order::Big } else { Order::Little };
        directory::encode(self.ino(id), parent, &entries, self.demand.places(id), order)
    }

    /// Fills `out` with a node's data from byte `offset` on, and zeros behind them.
    fn fill_node(&self, id: NodeId, offset: u64, out: &mut [u8]) -> Result<(), FsError> {
        let node = self.demand.tree.node(id);
        let mut copy = |bytes: &[u8]| {
            let rest = bytes.get(offset as usize..).unwrap_or_default();
            let len = rest.len().min(out.len());
            out[..len].copy_from_slice(&rest[..len]);
            out[len..].fill(0);
        };
        match node.kind {
            FileKind::Directory => copy(&self.directory(id)),
            FileKind::Symlink => copy(self.demand.tree.target(node)),
            _ => {
                let len = (node.size - offset.min(node.size)).min(out.len() as u64) as usize;
                let mut content = self.demand.source.open(id)?;
                content.read_at(offset, &mut out[..len])?;
                // Each part of a file must be of the version that was walked, so that all are of
                // one.
                content.verify()?;
                out[len..].fill(0);
            }
        }
        Ok(())
    }

    /// Writes the pieces that lie where they lie in an older volume; nothing between them.
    fn write_fixed(&self) -> Result<(), FsError> {
        let (frag, fsize) = (u64::from(self.geometry.frag), self.geometry.fsize as usize);
        let blocks: Vec<_> = self.demand.tails.fixed().collect();
        blocks.into_par_iter().with_min_len(16).try_for_each(|(block, pieces)| {
            let mut pieces = pieces.to_vec();
            pieces.sort_unstable_by_key(|&(_, at)| at);
            let mut bytes = vec![0; self.geometry.bsize as usize];
            self.fill_pieces(&pieces, &mut bytes)?;
            let joined = |one: &(Piece, u32), next: &(Piece, u32)| one.1 + one.0.frags == next.1;
            for run in pieces.chunk_by(joined) {
                let from = run.first().map_or(0, |&(_, at)| at);
                let end = run.last().map_or(0, |&(piece, at)| at + piece.frags);
                let bytes = &bytes[from as usize * fsize..end as usize * fsize];
                self.put(block.get() * frag + u64::from(from), bytes)?;
            }
            Ok(())
        })
    }

    /// Fills a block that several objects share.
    fn fill_shared(&self, shared: &Shared, out: &mut [u8]) -> Result<(), FsError> {
        out.fill(0);
        self.fill_pieces(&shared.pieces, out)
    }

    fn fill_pieces(&self, pieces: &[(Piece, u32)], out: &mut [u8]) -> Result<(), FsError> {
        let fsize = self.geometry.fsize as usize;
        for &(Piece { object, part, frags, own_lbn }, at) in pieces {
            let out = &mut out[at as usize * fsize..][..frags as usize * fsize];
            let id = NodeId::new(object.index() as u32);
            match part {
                Part::Data => {
                    self.fill_node(id, own_lbn * u64::from(self.geometry.bsize), out)?;
                }
                Part::Attributes => {
                    let blocks = self.demand.area_shape(id).blocks as usize;
                    let rest = &self.demand.area(id)[blocks * self.geometry.bsize as usize..];
                    out[..rest.len()].copy_from_slice(rest);
                }
            }
        }
        Ok(())
    }

    // ---- inodes ----------------------------------------------------------

    /// The depth of each directory below the root.
    fn depths(&self) -> Vec<u32> {
        let tree = self.demand.tree;
        let mut depths = vec![0; tree.nodes().len()];
        for object in self.demand.walk_order() {
            let id = NodeId::new(object.index() as u32);
            if id != NodeId::ROOT && tree.node(id).kind == FileKind::Directory {
                depths[id.index()] = depths[tree.parent(id).index()] + 1;
            }
        }
        depths
    }

    /// Writes the used part of a group's inodes.
    fn write_table(&self, group: u32, ids: &[NodeId], depths: &[u32]) -> Result<(), FsError> {
        let g = self.geometry;
        let (first, size) = (group * g.ipg, g.inode_size() as usize);
        let generations = match &self.base {
            Some(base) => base.generations(group)?,
            None => Vec::new(),
        };
        let last = ids.iter().map(|&id| self.ino(id).get() - first).max();
        let stale = generations.iter().rposition(|&number| number != 0).map(|slot| slot as u32);
        let Some(last) = last.max(stale) else { return Ok(()) };
        let used = (last + 1) as usize * size;
        let mut page = self.encoder().page(used.next_multiple_of(g.bsize as usize));
        // The next file with a number has another generation than the one before it.
        for (slot, &number) in generations.iter().enumerate().take(last as usize + 1) {
            inode::put_generation(g.version, &mut page, slot * size, number);
        }
        for &id in ids {
            let slot = (self.ino(id).get() - first) as usize;
            let mut record = self.record(id, depths[id.index()])?;
            if let Some(&old @ 1..) = generations.get(slot) {
                let is_same = self.older_inodes.get(id.index()) == Some(&self.ino(id).get());
                record.generation = if is_same { old } else { old.wrapping_add(1).max(1) };
            }
            let at = slot * size;
            debug_assert!(at + size <= page.bytes.len(), "the inode lies in the group's table");
            record.encode(g.version, &mut page, at);
            self.encoder().seal_inode(&mut page, at);
        }
        self.put(g.in_group(group, g.iblkno), &page.bytes)
    }

    fn record(&self, id: NodeId, depth: u32) -> Result<Record, FsError> {
        let (tree, g) = (self.demand.tree, self.geometry);
        let node = tree.node(id);
        let object = ObjectId::new(id.index() as u32);
        let Shape { blocks, frags } = self.demand.shape(id);
        let mut room = self.plan.overhead(object);
        let attributes = self.attributes(id, &mut room)?;
        let own = self.plan.data(object).iter().copied();
        let cut = |mut placed: seekless_fs::plan::Placed| {
            // Behind its own blocks there may be a shared one.
            placed.extent.len = placed.extent.len.min(blocks - placed.lbn.get().min(blocks));
            placed
        };
        let own: Vec<_> = own.map(cut).filter(|placed| placed.extent.len > 0).collect();
        let mut map = map::build(&own, g, self.options.big_endian, &mut room);
        debug_assert!(room.next().is_none(), "every block that was planned has a use");
        for (at, bytes) in &map.blocks {
            self.put(at.get(), bytes)?;
        }
        if let Some(tail) = self.demand.tails.of(object) {
            debug_assert_eq!(tail.frags, frags, "the tail has its place");
            map.direct[blocks as usize] = self.place(tail);
        }
        if let Payload::Device(number) = node.payload {
            map.direct[0] = device_word(number, g.version).expect("checked with the tree");
        }
        let data: u64 = own.iter().map(|placed| placed.extent.len).sum();
        let area = self.demand.area_shape(id);
        let whole = (data + map.blocks.len() as u64 + area.blocks) * u64::from(g.frag);
        let loose = u64::from(frags + area.frags);
        let fast = node.kind == FileKind::Symlink && self.demand.is_fast(node.size);
        let ino = self.ino(id);
        let sectors = (whole + loose) * u64::from(g.fsize / 512);
        if g.version == Version::Ufs1 && u32::try_from(sectors).is_err() {
            let path = tree.shown_path(id);
            let why = "2 TiB or more of blocks, which UFS1 cannot address (UFS2 can)";
            return Err(FsError::NoSpace(format!("{path}: {why}")));
        }
        Ok(Record {
            mode: node.kind.mode_bits() | node.perm,
            links: self.demand.links(id),
            uid: node.uid,
            gid: node.gid,
            size: if fast { node.size } else { self.demand.len(id) },
            sectors,
            mtime: node.mtime,
            times: tree.other_times(node),
            generation: crc32c(
                &[self.options.id[1].to_le_bytes(), ino.get().to_le_bytes()].concat(),
            ) | 1,
            flags: bsd_flags(node.flags),
            depth,
            direct: map.direct,
            indirect: map.indirect,
            target: fast.then(|| tree.target(node).to_vec()),
            attributes,
        })
    }

    /// Writes the whole blocks of a node's area of extended attributes; returns its length and its
    /// places.
    fn attributes(
        &self,
        id: NodeId,
        room: &mut dyn Iterator<Item = BlockNo>,
    ) -> Result<(u32, [u64; 2]), FsError> {
        let area = self.demand.area(id);
        let shape = self.demand.area_shape(id);
        let bsize = self.geometry.bsize as usize;
        let mut places = [0; 2];
        let fixed = self.demand.tails.area(ObjectId::new(id.index() as u32));
        for (n, piece) in area.chunks(bsize).enumerate().take(shape.blocks as usize) {
            let block = match fixed {
                Some(blocks) => blocks[n],
                None => room.next().expect("a block was planned"),
            };
            let at = block.get() * u64::from(self.geometry.frag);
            let mut block = piece.to_vec();
            block.resize(bsize, 0);
            self.put(at, &block)?;
            places[n] = at;
        }
        if let Some(tail) = self.demand.tails.of_attributes(ObjectId::new(id.index() as u32)) {
            places[shape.blocks as usize] = self.place(tail);
        }
        Ok((area.len() as u32, places))
    }

    /// The first fragment of a piece in a shared block.
    fn place(&self, tail: &TailPlace) -> u64 {
        let block = match tail.home {
            Home::Owned(owner, lbn) => self.block_of(owner, lbn),
            Home::Fixed(block) => block.get(),
        };
        block * u64::from(self.geometry.frag) + u64::from(tail.at)
    }

    /// The place of a logical block by the plan.
    fn block_of(&self, object: ObjectId, lbn: Lbn) -> u64 {
        let placed = self.plan.data(object);
        let at = placed.partition_point(|placed| placed.lbn <= lbn);
        let placed = &placed[at.checked_sub(1).expect("every block is placed")];
        debug_assert!(lbn < placed.lbn + placed.extent.len, "block {lbn} is placed");
        placed.extent.start.get() + (lbn - placed.lbn)
    }

    // ---- groups ----------------------------------------------------------

    fn groups(&self) -> Vec<GroupBuilder> {
        let g = self.geometry;
        let mut groups: Vec<GroupBuilder> = (0..g.ncg)
            .map(|number| {
                let mut group = GroupBuilder::new(g, number);
                take_fixed(g, &mut group);
                group
            })
            .collect();
        let (fpg, frag) = (u64::from(g.fpg), u64::from(g.frag));
        let data = self.plan.data.iter().map(|placed| placed.extent);
        for Extent { start, len } in data.chain(self.plan.overhead.iter().copied()) {
            let (mut at, end) = (start.get() * frag, (start.get() + len) * frag);
            while at < end {
                let stop = end.min((at / fpg + 1) * fpg);
                groups[(at / fpg) as usize].take_frags(at % fpg, stop - at);
                at = stop;
            }
        }
        for shared in &self.demand.tails.blocks {
            let at = self.block_of(shared.owner, shared.lbn) * frag + u64::from(shared.used);
            let unused = u64::from(g.frag - shared.used);
            // Behind a full block there is no space of this group.
            if unused > 0 {
                groups[(at / fpg) as usize].release_frags(at % fpg, unused);
            }
        }
        for (block, pieces) in self.demand.tails.fixed() {
            for &(piece, at) in pieces {
                let at = block.get() * frag + u64::from(at);
                groups[(at / fpg) as usize].take_frags(at % fpg, u64::from(piece.frags));
            }
        }
        let areas = self.demand.tree.ids().map(|id| ObjectId::new(id.index() as u32));
        for block in areas.filter_map(|object| self.demand.tails.area(object)).flatten() {
            let at = block.get() * frag;
            groups[(at / fpg) as usize].take_frags(at % fpg, frag);
        }
        for id in self.demand.tree.ids() {
            let ino = self.ino(id).get();
            let group = &mut groups[(ino / g.ipg) as usize];
            group.take_inode(ino % g.ipg);
            group.directories += u32::from(self.demand.tree.node(id).kind == FileKind::Directory);
        }
        groups
    }

    fn write_groups(&self) -> Result<(), FsError> {
        let (g, encoder) = (self.geometry, self.encoder());
        let groups = self.groups();
        let counts: Vec<Counts> = groups.iter().map(|group| group.counts(g)).collect();
        for group in &groups {
            let copy = encoder.copy(&counts, group.number);
            self.put(g.in_group(group.number, g.sblkno), &copy)?;
            self.put(g.in_group(group.number, g.cblkno), &encoder.group(group))?;
        }
        self.put(u64::from(g.dblkno), &encoder.summaries(&counts))?;
        if let Some((at, sector)) = encoder.recovery() {
            self.device.write(Lba::containing(ByteLen::new(at)), &sector)?;
        }
        // The superblock last: it makes the device a file system.
        let superblock = encoder.superblock(&counts, g.superblock_at());
        self.device.write(Lba::containing(ByteLen::new(g.superblock_at())), &superblock)?;
        (self.progress)(superblock.len() as u64);
        Ok(())
    }
}

impl Writer<'_> {
    /// Writes the metadata in the places of an older volume, in the same bytes as far as they need
    /// not change.
    fn write_older_groups(&self, base: &OlderMetadata<'_>) -> Result<(), FsError> {
        let g = self.geometry;
        let groups = self.groups();
        let mut summaries = Vec::with_capacity(groups.len());
        let counts: Vec<Counts> = groups.iter().map(|group| group.counts(g)).collect();
        for counts in &counts {
            summaries.push(GroupSummary {
                ndir: counts.directories,
                nbfree: counts.free_blocks,
                nifree: counts.free_inodes,
                nffree: counts.free_frags,
            });
        }
        let totals: Totals = summaries.iter().copied().collect();
        for (group, counts) in groups.iter().zip(&counts) {
            let copy = base.copy(group.number, totals)?;
            self.put(g.in_group(group.number, g.sblkno), &copy)?;
            let used = (0..g.ipg).rev().find(|&slot| group.uses_inode(slot));
            let head = base.head(group, counts, used.map_or(0, |slot| slot + 1))?;
            self.put(g.in_group(group.number, g.cblkno), &head)?;
        }
        self.put(g.summaries().start.get(), &base.summaries(&summaries)?)?;
        // The superblock last: it makes the device a file system.
        let front = base.front(totals)?;
        let at = g.superblock_at() as usize;
        let (boot, superblock) = front.split_at(at);
        for (n, piece) in boot.chunks(SECTOR as usize).enumerate() {
            if piece.iter().any(|&byte| byte != 0) {
                self.device.write(Lba::new(n as u64), piece)?;
            }
        }
        self.device.write(Lba::containing(ByteLen::new(at as u64)), superblock)?;
        (self.progress)(front.len() as u64);
        Ok(())
    }
}

impl Contents for Writer<'_> {
    fn is_whole(&self, object: ObjectId) -> bool {
        self.demand.is_directory(object)
    }

    /// A tail in a block shared with others is no whole block, so it is not cloned.
    fn open(&self, object: ObjectId) -> Result<Option<Box<dyn Content + '_>>, FsError> {
        let id = NodeId::new(object.index() as u32);
        match self.demand.tree.node(id).kind {
            FileKind::Regular => self.demand.source.open(id).map(Some),
            _ => Ok(None),
        }
    }

    fn fill(&self, object: ObjectId, lbn: u64, out: &mut [u8]) -> Result<(), FsError> {
        let id = NodeId::new(object.index() as u32);
        let bsize = self.geometry.bsize as usize;
        // Its own blocks, and then a shared one.
        let blocks = self.demand.shape(id).blocks;
        let own = blocks - lbn.min(blocks);
        let own = own.min((out.len() / bsize) as u64) as usize * bsize;
        let (data, shared) = out.split_at_mut(own);
        if !data.is_empty() {
            self.fill_node(id, lbn * bsize as u64, data)?;
        }
        for (n, block) in (lbn + (own / bsize) as u64..).zip(shared.chunks_mut(bsize)) {
            let shared = self.demand.tails.owned(object, Lbn::new(n));
            self.fill_shared(shared.expect("a block that is planned has a use"), block)?;
        }
        Ok(())
    }
}
