//! Roles of a FAT volume's bytes; a byte that fits no role is an error.

use crate::order::state::{LAZY, Part, SECTOR, changed_sectors, u16_at, u32_at};
use std::collections::BTreeMap;
use std::ops::Range;

/// A directory entry's size, in bytes.
const ENTRY: usize = 32;

/// Where the structures of a volume are. Sectors have 512 bytes.
pub(super) struct Volume<'a> {
    image: &'a [u8],
    bits: usize,
    tables: [usize; 2],
    table_len: usize,
    root: Range<usize>,
    root_cluster: usize,
    info: usize,
    data: usize,
    cluster: usize,
    clusters: usize,
}

/// What the bytes of a volume are used for.
#[derive(Default)]
pub(super) struct Roles {
    /// By cluster: the file's path, which of its clusters, and whether it is a
    /// directory's.
    pub(super) clusters: BTreeMap<usize, (String, usize, bool)>,
    /// By the place of an entry or a slot of a long name.
    entries: BTreeMap<usize, String>,
    /// Length of files, by the last cluster.
    pub(super) ends: BTreeMap<usize, usize>,
}

impl<'a> Volume<'a> {
    pub(super) fn new(image: &'a [u8]) -> Self {
        assert_eq!(u16_at(image, 11), SECTOR, "sectors of 512 bytes only");
        let (sectors, per_table) = match u16_at(image, 22) {
            0 => (u32_at(image, 32), u32_at(image, 36)),
            len => (u16_at(image, 19).max(u32_at(image, 32)), len),
        };
        let table_len = per_table * SECTOR;
        let first = u16_at(image, 14) * SECTOR;
        let root = first + 2 * table_len;
        let data = root + u16_at(image, 17) * ENTRY;
        let cluster = usize::from(image[13]) * SECTOR;
        let clusters = (sectors * SECTOR - data) / cluster;
        let bits = match clusters {
            0..4085 => 12,
            4085..65525 => 16,
            _ => 32,
        };
        Self {
            image,
            bits,
            tables: [first, first + table_len],
            table_len,
            root: root..data,
            root_cluster: if bits == 32 { u32_at(image, 44) } else { 0 },
            info: if bits == 32 { u16_at(image, 48) * SECTOR } else { 0 },
            data,
            cluster,
            clusters,
        }
    }

    /// What the first table says of a cluster.
    fn next(&self, cluster: usize) -> usize {
        let at = self.tables[0] + cluster * self.bits / 8;
        match self.bits {
            12 => u16_at(self.image, at) >> (cluster % 2 * 4) & 0xFFF,
            16 => u16_at(self.image, at),
            _ => u32_at(self.image, at) & 0x0FFF_FFFF,
        }
    }

    pub(super) fn bytes(&self, cluster: usize) -> Range<usize> {
        let at = self.data + (cluster - 2) * self.cluster;
        at..at + self.cluster
    }

    /// The clusters that no chain has, in order.
    pub(super) fn free(&self) -> impl Iterator<Item = usize> {
        (2..self.clusters + 2).filter(|&cluster| self.next(cluster) == 0)
    }

    fn chain(&self, first: usize) -> Vec<usize> {
        let end = (1 << self.bits.min(28)) - 8;
        let (mut chain, mut at) = (Vec::new(), first);
        while at >= 2 && at < end {
            chain.push(at);
            assert!(chain.len() <= self.clusters, "a chain without end");
            at = self.next(at);
        }
        chain
    }

    pub(super) fn roles(&self) -> Roles {
        let mut roles = Roles::default();
        let places = match self.root_cluster {
            0 => vec![self.root.clone()],
            first => self.directory("/", first, &mut roles),
        };
        self.walk("", &places, &mut roles);
        roles
    }

    fn directory(&self, path: &str, first: usize, roles: &mut Roles) -> Vec<Range<usize>> {
        let chain = self.chain(first);
        let role = |(n, &cluster)| (cluster, (path.to_string(), n, true));
        roles.clusters.extend(chain.iter().enumerate().map(role));
        chain.into_iter().map(|cluster| self.bytes(cluster)).collect()
    }

    fn walk(&self, path: &str, places: &[Range<usize>], roles: &mut Roles) {
        let mut long: Vec<usize> = Vec::new();
        let entries = places.iter().flat_map(|range| range.clone().step_by(ENTRY));
        for at in entries {
            let entry = &self.image[at..at + ENTRY];
            match (entry[0], entry[11]) {
                (0, _) => return,
                (0xE5, _) => long.clear(),
                (_, 0x0F) => long.push(at),
                (_, attributes) => {
                    let name = match long.is_empty() {
                        true => short(entry),
                        false => self.long(&long),
                    };
                    let child = format!("{path}/{name}");
                    for slot in long.drain(..) {
                        roles.entries.insert(slot, format!("slots of {child}"));
                    }
                    roles.entries.insert(at, format!("entry of {child}"));
                    let first = u16_at(entry, 26) | u16_at(entry, 20) << 16;
                    if attributes & 8 != 0 || name == "." || name == ".." {
                        continue;
                    }
                    if attributes & 0x10 != 0 {
                        let places = self.directory(&child, first, roles);
                        self.walk(&child, &places, roles);
                        continue;
                    }
                    let chain = self.chain(first);
                    if let Some(last) = chain.last() {
                        let before = (chain.len() - 1) * self.cluster;
                        roles.ends.insert(*last, u32_at(entry, 28) - before);
                    }
                    let role = |(n, cluster)| (cluster, (child.clone(), n, false));
                    roles.clusters.extend(chain.into_iter().enumerate().map(role));
                }
            }
        }
    }

    /// The name in slots, of which the last piece is stored first.
    fn long(&self, slots: &[usize]) -> String {
        let units = slots.iter().rev().flat_map(|slot| {
            let places = (1..11).step_by(2).chain((14..26).step_by(2)).chain([28, 30]);
            places.map(move |n| u16_at(self.image, slot + n) as u16)
        });
        let units: Vec<u16> = units.take_while(|&unit| unit != 0).collect();
        String::from_utf16_lossy(&units)
    }
}

/// A name of eight and three characters.
fn short(entry: &[u8]) -> String {
    let base = String::from_utf8_lossy(&entry[..8]).trim_end().to_string();
    match String::from_utf8_lossy(&entry[8..11]).trim_end() {
        "" => base,
        extension => format!("{base}.{extension}"),
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
    let changed = |range: &Range<usize>| before[range.clone()] != after[range.clone()];
    for at in changed_sectors(before, after) {
        let sector = at..at + SECTOR;
        let table =
            old.tables.iter().position(|&start| (start..start + old.table_len).contains(&at));
        if let Some(copy) = table {
            let copy_of = if copy == 1 { "copy of " } else { "" };
            let start = old.tables[copy];
            if old.bits == 12 {
                add(format!("{copy_of}table, sector {}", (at - start) / SECTOR), sector);
                continue;
            }
            let len = old.bits / 8;
            for entry in sector.step_by(len).map(|at| at..at + len).filter(changed) {
                let cluster = (entry.start - start) / len;
                let owner = has.clusters.get(&cluster).or(had.clusters.get(&cluster));
                let name = match (cluster, owner) {
                    (1, _) => format!("{copy_of}flags of the table"),
                    (_, Some((path, n, _))) => format!("{copy_of}link of {path} [{n}]"),
                    _ => panic!("cluster {cluster} is nobody's"),
                };
                add(name, entry);
            }
        } else if at == 0 {
            add("flags of the boot sector".into(), sector);
        } else if at == old.info {
            add("summary".into(), sector);
        } else {
            let cluster =
                if old.root.contains(&at) { 0 } else { (at - old.data) / old.cluster + 2 };
            let owner = has.clusters.get(&cluster).or(had.clusters.get(&cluster));
            let root = (String::from("/"), 0, true);
            let owner = if cluster == 0 { Some(&root) } else { owner };
            let (path, n, directory) =
                owner.unwrap_or_else(|| panic!("cluster {cluster} is nobody's"));
            if !directory {
                add(format!("contents of {path} [{n}]"), sector);
                continue;
            }
            let own = |roles: &Roles| roles.clusters.get(&cluster).is_some_and(|role| role.2);
            if cluster != 0 && !own(&had) {
                add(format!("new entries of {path} [{n}]"), sector);
                continue;
            }
            for entry in sector.step_by(ENTRY).map(|at| at..at + ENTRY).filter(changed) {
                let name = has.entries.get(&entry.start).or(had.entries.get(&entry.start));
                add(
                    name.unwrap_or_else(|| panic!("an entry of {path} is nobody's")).clone(),
                    entry,
                );
            }
        }
    }
    found
}

/// The bytes of a field of an entry, or of the slots of a long name.
pub(super) fn fields(part: &Part, field: &str) -> Option<Vec<Range<usize>>> {
    let ranges: &[(usize, usize)] = match (part.name.split(' ').next()?, field) {
        ("entry", "start") => &[(20, 22), (26, 28)],
        ("entry", "size") => &[(28, 32)],
        ("entry", LAZY) => &[(13, 20), (22, 26)],
        ("slots", "first") => &[(0, ENTRY)],
        _ => return None,
    };
    let start = part.bytes.first()?.start;
    Some(ranges.iter().map(|(from, to)| start + from..start + to).collect())
}
