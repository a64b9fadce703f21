//! Roles of an ext volume's bytes. The volumes have one group; a byte that fits no
//! role is an error.

use crate::order::state::{LAZY, Part, SECTOR, changed_sectors, u16_at, u32_at};
use std::collections::BTreeMap;
use std::ops::Range;

/// The first byte of a field and the one after the last, from the start of an inode.
type Span = (usize, usize);

/// Fields of an inode: their names and where they are.
const FIELDS: &[(&str, &[Span])] = &[
    ("size", &[(4, 8), (0x6C, 0x70)]),
    ("dtime", &[(20, 24)]),
    ("links", &[(26, 28)]),
    ("count", &[(28, 32)]),
    ("flags", &[(32, 36)]),
    ("pointers", &[(40, 100)]),
];

/// Bytes of an inode that nothing waits for: times, version, generation.
const LAZY_FIELDS: &[Span] = &[(8, 20), (36, 40), (100, 104)];

/// Where the structures of a volume are.
struct Volume<'a> {
    image: &'a [u8],
    block: usize,
    inode: usize,
    table: usize,
    inodes: usize,
}

/// What the blocks and inodes of a volume are used for.
#[derive(Default)]
struct Roles {
    /// By block number: the inode, and what it has the block for.
    blocks: BTreeMap<usize, (usize, Role)>,
    /// A path of each inode.
    paths: BTreeMap<usize, String>,
}

#[derive(Clone, Debug, PartialEq)]
enum Role {
    Entries,
    /// A block of a directory with an index, by its number in the directory.
    Indexed(usize),
    /// A block of contents, by its number in the file.
    Contents(usize),
    /// A block of a file's map, by its level: those of level 1 name contents.
    Map(usize),
    Attributes,
}

impl<'a> Volume<'a> {
    fn new(image: &'a [u8]) -> Self {
        let block = 1024 << u32_at(image, 1024 + 24);
        assert!(u32_at(image, 1024 + 4) <= u32_at(image, 1024 + 32), "more than one group");
        let descriptors = block * (u32_at(image, 1024 + 20) + 1);
        Self {
            image,
            block,
            inode: u16_at(image, 1024 + 88),
            table: u32_at(image, descriptors + 8),
            inodes: u32_at(image, 1024),
        }
    }

    fn inode_at(&self, ino: usize) -> usize {
        self.table * self.block + (ino - 1) * self.inode
    }

    /// The blocks of an inode's data in order, and those of its map by level.
    fn data(&self, ino: usize) -> (Vec<usize>, Vec<(usize, usize)>) {
        let at = self.inode_at(ino);
        let (mut data, mut map) = (Vec::new(), Vec::new());
        let is_link = u16_at(self.image, at) >> 12 == 0o12;
        let attribute = usize::from(u32_at(self.image, at + 0x68) != 0) * self.block / 512;
        if is_link && u32_at(self.image, at + 28) == attribute {
            return (data, map);
        }
        if u32_at(self.image, at + 32) & 0x8_0000 != 0 {
            self.extents(at + 40, &mut data, &mut map);
        } else {
            for n in 0..12 {
                data.push(u32_at(self.image, at + 40 + 4 * n));
            }
            for level in 1..=3 {
                self.indirect(u32_at(self.image, at + 84 + 4 * level), level, &mut data, &mut map);
            }
        }
        (data, map)
    }

    fn indirect(
        &self,
        block: usize,
        level: usize,
        data: &mut Vec<usize>,
        map: &mut Vec<(usize, usize)>,
    ) {
        if block == 0 {
            return;
        }
        map.push((block, level));
        for n in 0..self.block / 4 {
            let next = u32_at(self.image, block * self.block + 4 * n);
            if level == 1 {
                data.push(next);
            } else {
                self.indirect(next, level - 1, data, map);
            }
        }
    }

    fn extents(&self, at: usize, data: &mut Vec<usize>, map: &mut Vec<(usize, usize)>) {
        assert_eq!(u16_at(self.image, at), 0xF30A, "an extent header");
        let depth = u16_at(self.image, at + 6);
        for n in 1..=u16_at(self.image, at + 2) {
            let at = at + 12 * n;
            if depth > 0 {
                let block = u32_at(self.image, at + 4);
                map.push((block, depth));
                self.extents(block * self.block, data, map);
                continue;
            }
            data.resize(u32_at(self.image, at), 0);
            let start = u32_at(self.image, at + 8);
            data.extend(start..start + u16_at(self.image, at + 4));
        }
    }

    /// The names in a block of a directory, each with its inode and place.
    fn entries(&self, block: usize) -> Vec<(usize, String, usize)> {
        let (start, end) = (block * self.block, (block + 1) * self.block);
        let (mut at, mut found) = (start, Vec::new());
        while at < end {
            let (ino, len) = (u32_at(self.image, at), u16_at(self.image, at + 4));
            assert!(len >= 8 && at + len <= end, "a record of {len} bytes");
            let name = &self.image[at + 8..at + 8 + usize::from(self.image[at + 6])];
            if ino != 0 {
                found.push((at, String::from_utf8_lossy(name).into_owned(), ino));
            }
            at += len;
        }
        found
    }

    fn roles(&self) -> Roles {
        let mut roles = Roles::default();
        self.walk(2, String::new(), &mut roles);
        roles
    }

    fn walk(&self, ino: usize, path: String, roles: &mut Roles) {
        if roles.paths.contains_key(&ino) {
            return;
        }
        let shown = if path.is_empty() { "/".to_string() } else { path.clone() };
        roles.paths.insert(ino, shown.clone());
        let at = self.inode_at(ino);
        let directory = u16_at(self.image, at) >> 12 == 4;
        let indexed = u32_at(self.image, at + 32) & 0x1000 != 0;
        let (data, map) = self.data(ino);
        for (n, block) in data.iter().enumerate().filter(|(_, block)| **block != 0) {
            let role = match directory {
                true if indexed => Role::Indexed(n),
                true => Role::Entries,
                false => Role::Contents(n),
            };
            roles.blocks.insert(*block, (ino, role));
        }
        roles.blocks.extend(map.into_iter().map(|(block, level)| (block, (ino, Role::Map(level)))));
        let attributes = u32_at(self.image, at + 0x68);
        if attributes != 0 {
            roles.blocks.entry(attributes).or_insert((ino, Role::Attributes));
        }
        if !directory {
            return;
        }
        for block in data.into_iter().filter(|block| *block != 0) {
            for (_, name, ino) in self.entries(block) {
                if name != "." && name != ".." {
                    self.walk(ino, format!("{path}/{name}"), roles);
                }
            }
        }
    }
}

/// The parts in which an image differs from the one before.
pub(super) fn parts(before: &[u8], after: &[u8]) -> Vec<Part> {
    let (old, new) = (Volume::new(before), Volume::new(after));
    let (had, has) = (old.roles(), new.roles());
    let mut found: Vec<Part> = Vec::new();
    let mut add =
        |name: String, range: Range<usize>| match found.iter_mut().find(|part| part.name == name) {
            Some(part) => part.bytes.push(range),
            None => found.push(Part { name, bytes: vec![range] }),
        };
    let descriptors = old.block * (u32_at(before, 1024 + 20) + 1);
    let bitmaps = [u32_at(before, descriptors), u32_at(before, descriptors + 4)];
    let table = old.table * old.block..old.inode_at(old.inodes + 1);
    for at in changed_sectors(before, after) {
        let (block, sector) = (at / old.block, at..at + SECTOR);
        if (1024..2048).contains(&at) {
            add("superblock".into(), sector);
        } else if block == descriptors / old.block {
            add("descriptors".into(), sector);
        } else if bitmaps.contains(&block) {
            let what = if block == bitmaps[0] { "block" } else { "inode" };
            add(format!("{what} bitmap"), sector);
        } else if table.contains(&at) {
            for inode in sector.step_by(old.inode).map(|at| at..at + old.inode) {
                if before[inode.clone()] == after[inode.clone()] {
                    continue;
                }
                let ino = (inode.start - table.start) / old.inode + 1;
                let path = has.paths.get(&ino).or(had.paths.get(&ino));
                let path = path.unwrap_or_else(|| panic!("inode {ino} is nobody's"));
                // A change of times alone waits for nothing.
                let times = |n: usize| {
                    (8..20).contains(&n)
                        || (36..40).contains(&n)
                        || n >= 100 && !(0x68..0x70).contains(&n)
                };
                let changed = |n: &usize| before[inode.start + n] != after[inode.start + n];
                let lazy = (0..old.inode).filter(changed).all(times);
                add(if lazy { "times".into() } else { format!("inode {path}") }, inode);
            }
        } else {
            let role = has.blocks.get(&block).or(had.blocks.get(&block));
            let role = role.unwrap_or_else(|| panic!("block {block} is nobody's"));
            let fresh = had.blocks.get(&block) != Some(role);
            let path = has.paths.get(&role.0).or(had.paths.get(&role.0)).expect("a path");
            let name = match &role.1 {
                Role::Contents(n) => format!("contents of {path} [{n}]"),
                Role::Map(level) => format!("map of {path}, level {level}"),
                Role::Attributes => format!("attributes of {path}"),
                Role::Indexed(n) => format!("block {n} of {path}"),
                Role::Entries if fresh => format!("new entries of {path}"),
                Role::Entries => {
                    let here = |volume: &Volume<'_>| -> Vec<(String, usize)> {
                        let found = volume.entries(block).into_iter();
                        let found = found.filter(|(at, ..)| sector.contains(at));
                        found.map(|(_, name, ino)| (name, ino)).collect()
                    };
                    let (then, now) = (here(&old), here(&new));
                    let gone = then.iter().filter(|entry| !now.contains(entry));
                    let come = now.iter().filter(|entry| !then.contains(entry));
                    let gone = gone.map(|(name, _)| format!(" -{name}"));
                    let changes: String =
                        gone.chain(come.map(|(name, _)| format!(" +{name}"))).collect();
                    format!("entries of {path}{changes}")
                }
            };
            add(name, sector);
        }
    }
    found
}

/// The bytes of a field: of an inode, or a sector of a block.
pub(super) fn fields(part: &Part, field: &str) -> Option<Vec<Range<usize>>> {
    if let Some(number) = field.strip_prefix("sector ") {
        let number: usize = number.parse().ok()?;
        return part.bytes.get(number).map(|range| vec![range.clone()]);
    }
    if field == LAZY && ["superblock", "descriptors", "times"].contains(&&*part.name) {
        return Some(part.bytes.clone());
    }
    if !part.name.starts_with("inode /") {
        return None;
    }
    let start = part.bytes.first()?.start;
    let ranges = match field {
        LAZY => LAZY_FIELDS,
        _ => FIELDS.iter().find(|(name, _)| *name == field)?.1,
    };
    Some(ranges.iter().map(|(from, to)| start + from..start + to).collect())
}
