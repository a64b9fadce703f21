//! Journals as FreeBSD's kernel writes them, by the description of their records alone.

use super::volume::{Fields, Node, Parsed, put};
use rand_core::RngCore;
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeSet;

pub(crate) type Record = [u8; 32];

pub(crate) const ADD: u64 = 1;
pub(crate) const REMOVE: u64 = 2;
pub(crate) const NEW: u64 = 3;
pub(crate) const FREE: u64 = 4;
const MOVE: u64 = 5;
const CUT: u64 = 6;
const SYNCED: u64 = 7;

pub(crate) fn reference(op: u64, ino: u32, (dir, at): (u32, u64), links: u16, mode: u16) -> Record {
    let mut record = [0; 32];
    put(&mut record, 0, 4, op);
    put(&mut record, 4, 4, u64::from(ino));
    put(&mut record, 8, 4, u64::from(dir));
    put(&mut record, 12, 2, u64::from(links));
    put(&mut record, 14, 2, u64::from(mode));
    put(&mut record, 16, 8, at);
    record
}

pub(crate) fn block(op: u64, ino: u32, part: i64, (start, frags): (u64, u16), old: u16) -> Record {
    let mut record = [0; 32];
    put(&mut record, 0, 4, op);
    put(&mut record, 4, 4, u64::from(ino));
    put(&mut record, 8, 8, start);
    put(&mut record, 16, 8, part.cast_unsigned());
    put(&mut record, 24, 2, u64::from(frags));
    put(&mut record, 26, 2, u64::from(old));
    record
}

fn moved(ino: u32, dir: u32, from: u64, to: u64) -> Record {
    let mut record = [0; 32];
    put(&mut record, 0, 4, MOVE);
    put(&mut record, 4, 4, u64::from(ino));
    put(&mut record, 8, 4, u64::from(dir));
    put(&mut record, 16, 8, from);
    put(&mut record, 24, 8, to);
    record
}

fn length(op: u64, ino: u32, len: u64) -> Record {
    let mut record = [0; 32];
    put(&mut record, 0, 4, op);
    put(&mut record, 4, 4, u64::from(ino));
    put(&mut record, 8, 8, len);
    record
}

/// The record of a file that was cut.
pub(crate) fn cut(ino: u32, len: u64) -> Record {
    length(CUT, ino, len)
}

/// The record of a file that was made durable.
pub(crate) fn synced(ino: u32) -> Record {
    length(SYNCED, ino, 0)
}

/// The inode of a record that cuts a file, or says that it is durable; and whether it cuts.
pub(crate) fn cut_of(record: &Record) -> Option<(u32, bool)> {
    let op = u64::from(record[0]);
    let ino = u32::from_le_bytes(record[4..8].try_into().unwrap());
    matches!(op, CUT | SYNCED).then_some((ino, op == CUT))
}

/// The records of an operation, from the volume before and after it.
pub(crate) fn records(before: &Parsed, after: &Parsed) -> Vec<Record> {
    let mut records = Vec::new();
    let none = Node { mode: 0, links: 0, size: 0, blocks: Default::default() };
    let inodes: BTreeSet<u32> = before.nodes.keys().chain(after.nodes.keys()).copied().collect();
    // Of an end of a file that lies in a block of its own, the engine may have allocated all, and
    // given the rest back.
    let whole = 8;
    let others = [before, after].map(|parsed| {
        let all = parsed.nodes.iter().flat_map(|(&ino, node)| {
            node.blocks.iter().map(move |(&part, &(start, _))| (start / whole, (ino, part)))
        });
        all.collect::<BTreeSet<_>>()
    });
    let mut ends = Vec::new();
    for (&ino, node) in &after.nodes {
        for (&part, &(start, frags)) in &node.blocks {
            let is_there = |all: &BTreeSet<(u64, (u32, i64))>| {
                all.range((start / whole, (0, i64::MIN))..(start / whole + 1, (0, i64::MIN)))
                    .count()
            };
            let is_alone = is_there(&others[0]) == 0 && is_there(&others[1]) == 1;
            if is_alone && start % whole == 0 && u64::from(frags) < whole {
                ends.push(block(NEW, ino, part, (start, whole as u16), 0));
            }
        }
    }
    records.extend(ends);
    for &ino in &inodes {
        let was = before.nodes.get(&ino).unwrap_or(&none);
        let is = after.nodes.get(&ino).unwrap_or(&none);
        block_records(ino, was, is, &mut records);
    }
    name_records(before, after, &mut records);
    records
}

fn block_records(ino: u32, was: &Node, is: &Node, records: &mut Vec<Record>) {
    for (&part, &(start, frags)) in &is.blocks {
        match was.blocks.get(&part) {
            Some(&(old, count)) if old == start && count >= frags => {}
            Some(&(old, count)) if old == start => {
                records.push(block(NEW, ino, part, (start, frags), count));
            }
            _ => records.push(block(NEW, ino, part, (start, frags), 0)),
        }
    }
    if is.mode != 0 && is.size < was.size && is.size > 0 {
        records.push(length(CUT, ino, is.size));
    }
    // The kernel journals the numbers in the inode, and not those in index blocks.
    for (&part, &(start, frags)) in &was.blocks {
        let is_kept =
            is.blocks.get(&part).is_some_and(|&(now, count)| now == start && count >= frags);
        let is_moved = is.blocks.contains_key(&part);
        // The kernel clears numbers in index blocks when the blocks are free on the disk; the engine
        // does before, and would need these records.
        let is_cut = is.mode != 0 && is.size > 0;
        let is_in_inode = part < 12 && was.is_root(part);
        if !is_kept && (is_in_inode || is_moved || is_cut) {
            records.push(block(FREE, ino, part, (start, frags), 0));
        }
    }
}

impl Node {
    /// Whether the number of a part is in the inode: not below another index block.
    fn is_root(&self, part: i64) -> bool {
        if part >= -2 {
            return part < 12;
        }
        // The first index block of each level that the file has.
        let level = -part % 4;
        let same_level = self.blocks.range(..-2).filter(|(other, _)| -**other % 4 == level);
        let first = same_level.map(|(&part, _)| -part).min();
        let above = self.blocks.range(..-2).any(|(&other, _)| {
            -other % 4 > level && -other - (-other % 4) <= -part - level && other != part
        });
        first == Some(-part) && !above
    }
}

fn name_records(before: &Parsed, after: &Parsed, records: &mut Vec<Record>) {
    let mut links: std::collections::BTreeMap<u32, u16> =
        before.nodes.iter().map(|(&ino, node)| (ino, node.links)).collect();
    let mode = |ino: u32| after.nodes.get(&ino).or(before.nodes.get(&ino)).unwrap().mode;
    let mut added: Vec<_> = after.names.iter().collect();
    added.retain(|(slot, (ino, ..))| before.names.get(slot).is_none_or(|(was, ..)| was != ino));
    let mut removed: Vec<_> = before.names.iter().collect();
    removed.retain(|(slot, (ino, ..))| after.names.get(slot).is_none_or(|(is, ..)| is != ino));
    // A name that stays in its directory has moved.
    let same = |(slot, (ino, _, name)): &(&(u32, u64), &super::volume::Name),
                (other, (to, _, called)): &(&(u32, u64), &super::volume::Name)| {
        slot.0 == other.0 && ino == to && name == called
    };
    for old in &removed {
        if let Some(new) = added.iter().find(|new| same(old, new)) {
            records.push(moved(old.1.0, old.0.0, old.0.1, new.0.1));
        }
    }
    let (all_added, all_removed) = (added.clone(), removed.clone());
    added.retain(|new| !all_removed.iter().any(|old| same(old, new)));
    removed.retain(|old| !all_added.iter().any(|new| same(old, new)));
    let is_dot = |name: &[u8]| name == b"." || name == b"..";
    added.sort_by_key(|(_, (_, _, name))| is_dot(name));
    removed.sort_by_key(|(_, (_, _, name))| is_dot(name));
    for (slot, (ino, ..)) in added {
        let count = links.entry(*ino).or_default();
        records.push(reference(ADD, *ino, *slot, *count, mode(*ino)));
        *count += 1;
    }
    for (slot, (ino, ..)) in removed {
        let count = links.entry(*ino).or_default();
        records.push(reference(REMOVE, *ino, *slot, *count, mode(*ino)));
        *count = count.checked_sub(1).unwrap_or_else(|| {
            panic!("{ino} {slot:?} {:?} {:?}", before.nodes.get(ino), after.nodes.get(ino))
        });
    }
}

/// How a journal is laid out.
pub(crate) struct Style<'a> {
    pub(crate) sector: usize,
    /// The number of the first segment that counts.
    pub(crate) first: u64,
    /// Where it begins, in sectors of the file.
    pub(crate) start: usize,
    pub(crate) random: &'a mut Pcg64Mcg,
    /// Records of segments that must not count: of the same mount, but not needed any more; behind a
    /// gap; of another mount; torn.
    pub(crate) poison: &'a [Record],
}

/// Writes a segment at a sector of the journal, and returns the sectors that it takes.
struct Segment<'a> {
    number: u64,
    oldest: u64,
    time: u64,
    records: &'a [Record],
}

impl Segment<'_> {
    fn bytes(&self, sector: usize) -> Vec<u8> {
        let each = sector / 32 - 1;
        let sectors = self.records.len().div_ceil(each).max(1);
        let mut bytes = vec![0; sectors * sector];
        for n in 0..sectors {
            let head = &mut bytes[n * sector..];
            put(head, 0, 8, self.number);
            put(head, 8, 8, self.oldest);
            put(head, 16, 2, self.records.len() as u64);
            put(head, 18, 2, sectors as u64);
            put(head, 24, 8, self.time);
        }
        for (n, record) in self.records.iter().enumerate() {
            let at = n / each * sector + 32 + n % each * 32;
            bytes[at..at + 32].copy_from_slice(record);
        }
        bytes
    }
}

/// Puts a journal of one segment of sectors of 512 bytes, with the number 9, into a volume.
pub(crate) fn one_segment(bytes: &mut [u8], records: &[Record]) {
    let fields = Fields::of(bytes);
    let (_, places) = fields.journal(bytes);
    let time = fields.mount_time(bytes);
    let segment = Segment { number: 9, oldest: 9, time, records };
    let content = segment.bytes(512);
    assert!(content.len() <= fields.bsize && fields.fsize == 512, "a segment is at most a block");
    for &place in &places {
        bytes[place..place + 512].fill(0);
    }
    for (&place, part) in places.iter().zip(content.chunks(512)) {
        bytes[place..place + 512].copy_from_slice(part);
    }
}

/// Puts a journal with these records, in order, into a volume.
pub(crate) fn put_journal(bytes: &mut [u8], records: &[Record], style: Style<'_>) {
    let fields = Fields::of(bytes);
    let (ino, places) = fields.journal(bytes);
    fields.patch_journal_inode(bytes, seekless_units::Ino::new(ino));
    fields.set_journaled(bytes, true);
    let time = fields.mount_time(bytes);
    let Style { sector, first, start, random, poison } = style;
    let sectors = places.len() * fields.fsize / sector;
    let at_sector = |n: usize| {
        let byte = n % sectors * sector;
        places[byte / fields.fsize] + byte % fields.fsize
    };
    // Segments do not go over the end of a run.
    let follows =
        |n: usize| !n.is_multiple_of(sectors) && at_sector(n) == at_sector(n - 1) + sector;
    let mut at = start;
    let mut write = |bytes: &mut [u8], segment: &Segment<'_>, kept: usize| {
        let content = segment.bytes(sector);
        let count = content.len() / sector;
        while (1..count).any(|n| !follows(at + n)) {
            at += 1;
        }
        for (n, part) in content.chunks(sector).enumerate().take(kept) {
            bytes[at_sector(at + n)..][..sector].copy_from_slice(part);
        }
        at += count;
    };
    let all = usize::MAX;
    let mut number = first;
    let stale = |number, time| Segment { number, oldest: first - 1, time, records: poison };
    write(bytes, &stale(first - 1, time), all);
    write(bytes, &stale(first + 1, time - 1), all);
    let mut rest = records;
    while !rest.is_empty() {
        let most = rest.len().min(fields.bsize / sector * (sector / 32 - 1));
        let count = 1 + random.next_u64() as usize % most.min(40);
        let (now, later) = rest.split_at(count);
        write(bytes, &Segment { number, oldest: first, time, records: now }, all);
        (rest, number) = (later, number + 1);
        if random.next_u64().is_multiple_of(8) {
            write(bytes, &Segment { number, oldest: first, time, records: &[] }, all);
            number += 1;
        }
    }
    if records.is_empty() {
        return write(bytes, &Segment { number, oldest: number, time, records: &[] }, all);
    }
    let gap = number + 1;
    write(bytes, &Segment { number: gap, oldest: first, time, records: poison }, all);
    let long: Vec<Record> = poison.iter().cycle().take(sector / 32 + 3).copied().collect();
    if !long.is_empty() {
        write(bytes, &Segment { number, oldest: first, time, records: &long }, 1);
    }
}
