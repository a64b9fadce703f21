//! Snapshots made by hand from the description of their format, without code of the project:
//! FreeBSD's `ffs_snapshot.c`, `fs.h` and `dinode.h`.

/// Bytes of a volume, and the fields that lead to its parts.
pub(crate) struct Raw<'a> {
    pub(crate) bytes: &'a mut [u8],
    is_big: bool,
    is_ufs2: bool,
    at: usize,
}

/// Flags of a file: a snapshot.
const SF_SNAPSHOT: u64 = 0x0020_0000;

impl<'a> Raw<'a> {
    pub(crate) fn new(bytes: &'a mut [u8]) -> Self {
        const UFS2: u32 = 0x1954_0119;
        for (at, magic) in [(65536, UFS2), (8192, UFS2), (8192, 0x0001_1954)] {
            let is_ufs2 = magic == UFS2;
            let stored = &bytes[at + 1372..at + 1376];
            for is_big in [false, true] {
                let magic = if is_big { magic.to_be_bytes() } else { magic.to_le_bytes() };
                if stored == magic {
                    return Self { bytes, is_big, is_ufs2, at };
                }
            }
        }
        panic!("no superblock")
    }

    /// A number of `len` bytes.
    pub(crate) fn get(&self, at: usize, len: usize) -> u64 {
        let bytes = self.bytes[at..at + len].iter();
        let add = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        if self.is_big { bytes.fold(0, add) } else { bytes.rev().fold(0, add) }
    }

    pub(crate) fn put(&mut self, at: usize, len: usize, number: u64) {
        for n in 0..len {
            let shift = if self.is_big { len - 1 - n } else { n } * 8;
            self.bytes[at + n] = (number >> shift) as u8;
        }
    }

    fn field(&self, at: usize) -> usize {
        self.get(self.at + at, 4) as usize
    }

    pub(crate) fn block_size(&self) -> usize {
        self.field(48)
    }

    fn fragment(&self) -> usize {
        self.field(52)
    }

    fn fragments(&self) -> u64 {
        self.get(self.at + 1080, 8)
    }

    fn per_block(&self) -> u64 {
        self.field(56) as u64
    }

    /// Blocks of the image in a snapshot.
    fn blocks(&self) -> u64 {
        self.fragments().div_ceil(self.per_block())
    }

    /// Whether a fragment is free by its group's map. No group's metadata are shifted.
    fn is_free(&self, fragment: u64) -> bool {
        let per_group = self.field(188) as u64;
        let group = fragment / per_group * per_group + self.field(12) as u64;
        let map = group as usize * self.fragment();
        let map = map + self.get(map + 96, 4) as usize;
        let within = (fragment % per_group) as usize;
        self.bytes[map + within / 8] & 1 << (within % 8) != 0
    }

    /// The first byte of an inode.
    pub(crate) fn inode(&self, ino: u64) -> usize {
        let (per_group, size) = (self.field(184) as u64, if self.is_ufs2 { 256 } else { 128 });
        let group = (ino / per_group) as usize * self.field(188);
        (group + self.field(16)) * self.fragment() + (ino % per_group) as usize * size
    }

    /// The place of a number in the inode's map, and its length.
    fn number_at(&self, ino: u64, n: usize) -> (usize, usize) {
        let (map, len) = if self.is_ufs2 { (112, 8) } else { (40, 4) };
        (self.inode(ino) + map + n * len, len)
    }

    fn block(&self, fragment: u64) -> std::ops::Range<usize> {
        let start = fragment as usize * self.fragment();
        start..(start + self.block_size()).min(self.bytes.len())
    }

    /// Sets the map of a file, with indirect blocks from `pool` for all blocks up to the last one.
    fn set_map(&mut self, ino: u64, numbers: &[u64], pool: &mut Vec<u64>) {
        for n in 0..15 {
            let (at, len) = self.number_at(ino, n);
            self.put(at, len, numbers.get(n).copied().filter(|_| n < 12).unwrap_or(0));
        }
        let each = self.block_size() / if self.is_ufs2 { 8 } else { 4 };
        let mut rest = numbers.get(12..).unwrap_or_default();
        for level in 1..=3 {
            let span = each.pow(level);
            let (mine, others) = rest.split_at(rest.len().min(span));
            rest = others;
            if !mine.is_empty() {
                let (at, len) = self.number_at(ino, 11 + level as usize);
                let tree = self.tree(mine, span / each, pool);
                self.put(at, len, tree);
            }
        }
        assert!(rest.is_empty(), "three levels suffice");
    }

    fn tree(&mut self, numbers: &[u64], step: usize, pool: &mut Vec<u64>) -> u64 {
        let fragment = pool.pop().expect("a block for numbers");
        let block = self.block(fragment);
        let len = if self.is_ufs2 { 8 } else { 4 };
        self.bytes[block.clone()].fill(0);
        let each = self.block_size() / len;
        for (n, part) in numbers.chunks(step).enumerate() {
            assert!(n < each);
            let number = if step == 1 { part[0] } else { self.tree(part, step / each, pool) };
            self.put(block.start + n * len, len, number);
        }
        fragment
    }

    /// Blocks for the numbers of so many blocks.
    fn trees(&self, blocks: usize) -> usize {
        let each = self.block_size() / if self.is_ufs2 { 8 } else { 4 };
        let (mut rest, mut trees) = (blocks.saturating_sub(12), 0);
        for levels in 1..=3 {
            let mine = rest.min(each.pow(levels));
            trees += (1..=levels).map(|level| mine.div_ceil(each.pow(level))).sum::<usize>();
            rest -= mine;
        }
        trees
    }

    /// All blocks of a file, data and numbers.
    fn blocks_of(&self, ino: u64) -> Vec<u64> {
        let number = |n| {
            let (at, len) = self.number_at(ino, n);
            self.get(at, len)
        };
        let mut found: Vec<u64> = (0..12).map(number).filter(|&number| number != 0).collect();
        for level in 1..=3 {
            self.add_tree(number(11 + level), level, &mut found);
        }
        found
    }

    fn add_tree(&self, fragment: u64, level: usize, found: &mut Vec<u64>) {
        if fragment == 0 {
            return;
        }
        found.push(fragment);
        if level == 0 {
            return;
        }
        let len = if self.is_ufs2 { 8 } else { 4 };
        for at in self.block(fragment).step_by(len) {
            self.add_tree(self.get(at, len), level - 1, found);
        }
    }

    /// Turns an ordinary file into a snapshot of an earlier state of the volume, `before`. The file
    /// has whole blocks only, and none is equal to the block that `before` has there. `free` is the
    /// number for blocks that were free. Returns the numbers of blocks taken over and copied.
    pub(crate) fn keep(&mut self, ino: u64, before: &mut [u8], free: u64) -> (usize, usize) {
        let then = Raw::new(before);
        let (blocks, per_block) = (self.blocks(), self.per_block());
        let is_used = |at: u64| {
            let end = then.fragments().min((at + 1) * per_block);
            (at * per_block..end).any(|fragment| !then.is_free(fragment))
        };
        let mut pool = self.blocks_of(ino);
        let mut numbers = vec![0; blocks as usize];
        // Blocks that the volume used then, and that are the file's now, are taken over.
        pool.retain(|&fragment| {
            let at = fragment / per_block;
            let is_taken = is_used(at) && (at + 1) * per_block <= then.fragments();
            if is_taken {
                numbers[at as usize] = fragment;
            }
            !is_taken
        });
        let taken = numbers.iter().filter(|&&number| number != 0).count();
        let list = pool.pop().expect("a block for the list");
        let mut own: Vec<u64> = pool.split_off(pool.len() - self.trees(blocks as usize + 1));
        let mut copied: Vec<u64> = Vec::new();
        // The last block, which may end behind the volume, is always copied; then blocks that
        // changed, then others until the file's blocks are used up. A copy of a free block does no
        // harm.
        let is_same = |at: u64| {
            let block = self.block(at * per_block);
            self.bytes[block.clone()] == then.bytes[block]
        };
        let last = blocks - 1;
        let at_once = self.copied_at_once();
        let is_first = |at: u64| at < 12 && is_used(at) || at_once.contains(&at);
        let must_be = |at: u64| at == last || is_first(at) || is_used(at) && !is_same(at);
        let mut wanted: Vec<u64> = (0..blocks).filter(|&at| numbers[at as usize] == 0).collect();
        wanted.sort_by_key(|&at| (!must_be(at), !is_used(at)));
        let must = wanted.iter().filter(|&&at| must_be(at)).count();
        let all = wanted.len();
        assert!((must..=all).contains(&pool.len()), "{} blocks for {must} of {all}", pool.len());
        for (&at, &fragment) in wanted.iter().zip(&pool) {
            numbers[at as usize] = fragment;
            copied.push(at);
        }
        for at in 0..blocks {
            match numbers[at as usize] {
                0 if !is_used(at) => numbers[at as usize] = free,
                0 => {}
                fragment => {
                    let (to, from) = (self.block(fragment), then.block(at * per_block));
                    self.bytes[to][..from.len()].copy_from_slice(&then.bytes[from]);
                }
            }
        }
        numbers.push(list);
        let listed = self.block(list).start;
        let copies = copied.len();
        // One block of the list, which is a hint.
        copied.truncate(self.block_size() / 8 - 1);
        copied.sort_unstable();
        self.put(listed, 8, copied.len() as u64 + 1);
        for (n, &at) in copied.iter().enumerate() {
            self.put(listed + 8 + n * 8, 8, at);
        }
        self.set_map(ino, &numbers, &mut own);
        assert!(own.is_empty(), "{} blocks for numbers are left", own.len());
        self.finish(ino, blocks * self.block_size() as u64 + (copied.len() as u64 + 1) * 8);
        (taken, copies)
    }

    /// Blocks that a kernel copies when it takes a snapshot, whether they change or not: those of
    /// the superblock, of the summary area and of the groups' heads.
    fn copied_at_once(&self) -> Vec<u64> {
        let per_group = self.field(188) as u64;
        let groups = self.fragments().div_ceil(per_group);
        let heads = (0..groups).map(|n| (n * per_group + self.field(12) as u64) / self.per_block());
        let first = self.get(self.at + 1096, 8);
        let end = first + self.field(156).div_ceil(self.fragment()) as u64;
        let summaries = first / self.per_block()..end.div_ceil(self.per_block());
        heads.chain(summaries).chain([(self.at / self.block_size()) as u64]).collect()
    }

    /// Sets the length and the flag of a snapshot, and its number in the superblock.
    fn finish(&mut self, ino: u64, len: u64) {
        let inode = self.inode(ino);
        let (size, flags) = if self.is_ufs2 { (16, 88) } else { (8, 100) };
        self.put(inode + size, 8, len);
        self.put(inode + flags, 4, SF_SNAPSHOT);
        let list = self.at + 1116;
        let slot = (0..20).find(|n| self.get(list + n * 4, 4) == 0).expect("room in the list");
        self.put(list + slot * 4, 4, ino);
        self.seal(ino);
    }

    /// Renews the check hashes of an inode and of the superblock, if the volume has them.
    pub(crate) fn seal(&mut self, ino: u64) {
        let hashed = if self.is_ufs2 { self.get(self.at + 1308, 4) } else { 0 };
        let len = self.field(104);
        for (is_hashed, at, len, hash) in
            [(hashed & 4 != 0, self.inode(ino), 256, 244), (hashed & 1 != 0, self.at, len, 1304)]
        {
            if is_hashed {
                self.put(at + hash, 4, 0);
                let sum = !crc32c::crc32c(&self.bytes[at..at + len]);
                self.put(at + hash, 4, sum.into());
            }
        }
    }

    /// Sets an entry of the superblock's list.
    pub(crate) fn list(&mut self, slot: usize, ino: u64) {
        self.put(self.at + 1116 + slot * 4, 4, ino);
        self.seal(ino.min(2));
    }

    /// An entry of the superblock's list.
    pub(crate) fn listed(&self, slot: usize) -> u64 {
        self.get(self.at + 1116 + slot * 4, 4)
    }

    /// Sets a field of the superblock.
    pub(crate) fn superblock(&mut self, at: usize, len: usize, value: u64) {
        self.put(self.at + at, len, value);
        self.seal(2);
    }

    /// Sets the flags of a file.
    pub(crate) fn set_flags(&mut self, ino: u64, flags: u64) {
        let at = self.inode(ino) + if self.is_ufs2 { 88 } else { 100 };
        self.put(at, 4, flags);
        self.seal(ino);
    }

    /// Makes a snapshot an ordinary file: its marks become holes.
    pub(crate) fn unmark(&mut self, ino: u64) {
        let is_mark = |number| matches!(number, 1 | 2);
        for n in 0..12 {
            if is_mark(self.number(ino, n)) {
                self.set_number(ino, n, 0);
            }
        }
        let len = if self.is_ufs2 { 8 } else { 4 };
        let mut trees = Vec::new();
        for level in 1..=3 {
            self.add_trees(self.number(ino, 11 + level), level, &mut trees);
        }
        let places: Vec<usize> =
            trees.into_iter().flat_map(|tree| self.block(tree).step_by(len)).collect();
        for at in places {
            if is_mark(self.get(at, len)) {
                self.put(at, len, 0);
            }
        }
        self.set_flags(ino, 0);
    }

    /// The blocks of numbers of a tree.
    fn add_trees(&self, fragment: u64, level: usize, found: &mut Vec<u64>) {
        if fragment == 0 || level == 0 {
            return;
        }
        found.push(fragment);
        let len = if self.is_ufs2 { 8 } else { 4 };
        if level > 1 {
            for at in self.block(fragment).step_by(len) {
                self.add_trees(self.get(at, len), level - 1, found);
            }
        }
    }

    /// The block with the head of the last group.
    pub(crate) fn head_block(&self) -> u64 {
        let per_group = self.field(188) as u64;
        let last = (self.fragments() - 1) / per_group * per_group;
        (last + self.field(12) as u64) / self.per_block()
    }

    /// Sets the number for a block in the first indirect block of a file.
    pub(crate) fn set_numbered(&mut self, ino: u64, at: u64, number: u64) {
        let len = if self.is_ufs2 { 8 } else { 4 };
        let tree = self.block(self.number(ino, 12)).start;
        assert!((12..12 + self.block_size() as u64 / len as u64).contains(&at), "block {at}");
        self.put(tree + (at as usize - 12) * len, len, number);
    }

    /// A number in the inode's map.
    pub(crate) fn number(&self, ino: u64, n: usize) -> u64 {
        let (at, len) = self.number_at(ino, n);
        self.get(at, len)
    }

    /// Places in the superblock, heads of groups, inodes and maps of these snapshots, and the
    /// inodes of the root and its directories.
    pub(crate) fn metadata(&self, snapshots: &[u64]) -> Vec<usize> {
        let inodes = [2, 3, 4].iter().chain(snapshots).map(|&ino| self.inode(ino));
        let inodes = inodes.flat_map(|at| at..at + 256);
        let list = (self.at + 1100..self.at + 1220).chain(self.at..self.at + 220);
        let mut trees = Vec::new();
        for &ino in snapshots {
            for level in 1..=3 {
                self.add_trees(self.number(ino, 11 + level), level, &mut trees);
            }
        }
        let maps = trees.into_iter().flat_map(|tree| self.block(tree).step_by(8).take(200));
        let group = self.field(12) * self.fragment();
        inodes.chain(list).chain(maps).chain(group..group + 180).collect()
    }

    /// Sets a number in the inode's map.
    pub(crate) fn set_number(&mut self, ino: u64, n: usize, number: u64) {
        let (at, len) = self.number_at(ino, n);
        self.put(at, len, number);
        self.seal(ino);
    }

    /// The parts of an earlier state that were in use, by fragment: a snapshot has these.
    pub(crate) fn used(&self) -> impl Iterator<Item = std::ops::Range<usize>> + '_ {
        let used = (0..self.fragments()).filter(|&fragment| !self.is_free(fragment));
        used.map(|fragment| {
            let start = fragment as usize * self.fragment();
            start..start + self.fragment()
        })
    }
}
