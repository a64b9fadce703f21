//! Every directory, its entries and their names.

use super::chains::{Claimed, delete};
use super::names::{self, Names};
use super::{Checker, Pending, set_first};
use crate::entry::{LongName, Slot};
use crate::name;
use crate::ondisk::{ENTRY_SIZE, LongEntry, MOST_ENTRIES, ShortEntry, attr, first};
use crate::time::{EARLIEST, Stamp};
use seekless_fs::field::{index, parse};
use seekless_fs::{FsError, Location};
use seekless_units::{BlockNo, Ino};
use zerocopy::{FromZeros, IntoBytes};

/// A slot with its byte on the device.
type At = (u64, ShortEntry);

impl Checker {
    /// Walks the tree, a directory after the other.
    pub(super) fn check_tree(&mut self) -> Result<(), FsError> {
        let root = Ino::new(1);
        let start = self.boot().root_cluster;
        let mut clusters = Vec::new();
        if start != 0 {
            let place = Location::of("boot sector").in_block(BlockNo::ZERO);
            if self.fat.raw(start) & self.boot().width.mask() == 0 {
                let what = format!("cluster {start} of the root directory is free");
                self.unexpected("root.cluster", what, place);
                self.fat.end(start);
            }
            clusters = self.claim(root, start, None, place).clusters;
            self.limit_directory(&mut clusters, place);
            if clusters.is_empty() {
                // A bad cluster: nothing can be done here.
                self.is_blind = true;
                return Ok(());
            }
            self.count(&clusters);
            self.root_last = clusters.last().copied();
        }
        self.pending.push_back(Pending {
            ino: root,
            first: start,
            above: 0,
            clusters,
            entry: None,
        });
        while let Some(dir) = self.pending.pop_front() {
            self.report.tally.directories = self.report.tally.directories.saturating_add(1);
            self.check_directory(&dir)?;
        }
        self.report.tally.inodes = u64::from(self.files);
        Ok(())
    }

    /// Cuts off what a directory has behind the most entries that there may be: no system
    /// makes one so long, and most do not read it.
    fn limit_directory(&mut self, clusters: &mut Vec<u32>, place: Location) {
        let most = u64::from(MOST_ENTRIES).saturating_mul(32);
        let most = index(most.div_ceil(self.boot().cluster_bytes()));
        let Some(last) = most.checked_sub(1).and_then(|last| clusters.get(last).copied()) else {
            return;
        };
        if clusters.len() <= most {
            return;
        }
        let what = format!("the directory has {} clusters, limit {most}", clusters.len());
        self.unexpected("directory.too-long", what, place);
        for cluster in clusters.drain(most..) {
            self.claimed.clear(index(cluster));
        }
        self.fat.end(last);
    }

    /// The slots of a directory, in order.
    fn slots(&self, dir: &Pending) -> Result<Vec<At>, FsError> {
        let mut sectors: Vec<BlockNo> = Vec::new();
        if dir.first == 0 {
            let (start, len) = self.boot().fixed_root();
            sectors.extend((0..len).map(|n| start.saturating_add(n)));
        }
        for &cluster in &dir.clusters {
            sectors.extend(self.sectors_of(cluster));
        }
        let mut slots = Vec::new();
        for sector in sectors {
            let bytes = self.volume.sector(sector)?;
            let mut at = self.boot().byte_of(sector).get();
            for slot in bytes.chunks_exact(ENTRY_SIZE) {
                if let Some(entry) = parse::<ShortEntry>(slot, 0) {
                    slots.push((at, entry));
                }
                at = at.saturating_add(32);
            }
        }
        Ok(slots)
    }

    fn check_directory(&mut self, dir: &Pending) -> Result<(), FsError> {
        let is_root = dir.entry.is_none();
        let slots = self.slots(dir)?;
        let mut from = 0;
        if !is_root {
            if !self.check_dots(dir, &slots) {
                return Ok(());
            }
            from = 2;
        }
        self.check_hidden(dir, &slots);
        let mut names = Names::default();
        let mut long = LongName::default();
        // Pieces of a name that no entry has taken yet.
        let mut pieces: Vec<At> = Vec::new();
        for (byte, entry) in slots.into_iter().skip(from) {
            match Slot::parse(entry.as_bytes()) {
                None | Some(Slot::End | Slot::Deleted) => {
                    self.orphans(dir.ino, &mut pieces);
                    long.gap();
                    if is_root {
                        self.root_free.push(byte);
                    }
                }
                // Bits that pieces do not have: to some systems it is a file.
                Some(Slot::Long(_)) if entry.DIR_Attr != attr::LONG_NAME => {
                    self.orphans(dir.ino, &mut pieces);
                    long.gap();
                    self.orphans(dir.ino, &mut vec![(byte, entry)]);
                }
                Some(Slot::Long(piece)) => {
                    long.piece(u32::try_from(pieces.len()).unwrap_or(u32::MAX), &piece);
                    pieces.push((byte, entry));
                }
                Some(Slot::Label(label)) => {
                    self.orphans(dir.ino, &mut pieces);
                    long.gap();
                    let is_fat32 = self.boot().root_cluster != 0;
                    let is_plain = !names::is_bad_label(&label.DIR_Name)
                        && label.DIR_Attr & attr::DIRECTORY == 0
                        && label.first_cluster(is_fat32) == 0
                        && label.DIR_FileSize.get() == 0;
                    if is_root && is_plain && self.root_label.is_none() {
                        self.root_label = Some(label.DIR_Name);
                    } else {
                        let what = "a label where none belongs".to_string();
                        let place = self.entry_place(dir.ino, byte);
                        self.unexpected("entry.label", what, place);
                        self.edit(byte, &label, delete);
                    }
                }
                Some(Slot::Short(short)) => {
                    let head = long.finish(u32::try_from(pieces.len()).unwrap_or(u32::MAX), &short);
                    // Those in front of what belongs to the entry belong to nothing.
                    let own = match head.name {
                        Some(_) => pieces.split_off(index(head.start).min(pieces.len())),
                        None => Vec::new(),
                    };
                    self.orphans(dir.ino, &mut pieces);
                    self.check_entry(dir, (byte, short), &own, head.name.as_deref(), &mut names)?;
                }
            }
        }
        self.orphans(dir.ino, &mut pieces);
        if is_root {
            self.root_names = names;
        }
        Ok(())
    }

    /// Pieces of names that no entry has.
    fn orphans(&mut self, dir: Ino, pieces: &mut Vec<At>) {
        if let Some((byte, _)) = pieces.first() {
            let what = format!("{} pieces of a long name that belong to no entry", pieces.len());
            let place = self.entry_place(dir, *byte);
            self.expected("name.pieces", what, place);
        }
        for (byte, piece) in pieces.drain(..) {
            self.edit(byte, &piece, delete);
        }
    }

    /// The entries of a directory for itself and for the one above. Returns whether it is
    /// a directory at all.
    fn check_dots(&mut self, dir: &Pending, slots: &[At]) -> bool {
        let (Some(one), Some(two)) = (slots.first(), slots.get(1)) else { return false };
        let dots = |slot: &At| slot.1.dots();
        let is_free = |slot: &At| {
            matches!(slot.1.DIR_Name.first(), None | Some(&first::END | &first::DELETED))
        };
        let fits = |slot: &At, number: u8| dots(slot) == Some(number) || is_free(slot);
        if !fits(one, 1) || !fits(two, 2) {
            let place = self.entry_place(dir.ino, one.0);
            let what = "it does not begin with entries for itself and the one above".to_string();
            self.unexpected("directory.garbage", what, place);
            // What is there instead is not known: it becomes a file without a name.
            for &cluster in &dir.clusters {
                self.claimed.clear(index(cluster));
            }
            if let Some(byte) = dir.entry
                && let Some(entry) = self.read_entry(byte)
            {
                self.edit(byte, &entry, delete);
            }
            return false;
        }
        for (slot, number, wanted) in [(one, 1, dir.first), (two, 2, dir.above)] {
            let (byte, entry) = *slot;
            let is_fat32 = self.boot().root_cluster != 0;
            let is_there = dots(slot) == Some(number) && entry.is_directory();
            let place = self.entry_place(dir.ino, byte);
            if !is_there {
                let name = if number == 1 { "." } else { ".." };
                let what = format!("the entry {name} is missing");
                self.unexpected("directory.dot", what, place);
                let fresh = dot(number, wanted);
                self.put_entry(byte, fresh.as_bytes());
            } else if entry.first_cluster(is_fat32) != wanted {
                let found = entry.first_cluster(is_fat32);
                if number == 1 {
                    let what = format!(". has cluster {found} instead of {wanted}");
                    self.unexpected("directory.dot", what, place);
                } else {
                    let what = format!(".. has cluster {found} instead of {wanted}");
                    self.expected("directory.dot-dot", what, place);
                }
                self.edit(byte, &entry, |entry| set_first(entry, wanted));
            }
        }
        true
    }

    fn read_entry(&self, byte: u64) -> Option<ShortEntry> {
        let sector = u64::from(self.boot().sector);
        let block = BlockNo::new(byte.checked_div(sector)?);
        let bytes = self.volume.sector(block).ok()?;
        parse(&bytes, index(byte.checked_rem(sector)?))
    }

    /// Entries behind the mark of a directory's end, which some systems see and others do
    /// not.
    fn check_hidden(&mut self, dir: &Pending, slots: &[At]) {
        let is_end = |slot: &At| slot.1.DIR_Name.first() == Some(&first::END);
        let from = if dir.entry.is_none() { 0 } else { 2 };
        let Some(end) = slots.iter().skip(from).position(is_end) else { return };
        let end = end.saturating_add(from);
        let in_use = |slot: &At| {
            !matches!(slot.1.DIR_Name.first(), None | Some(&first::END | &first::DELETED))
        };
        let Some(last) = slots.iter().rposition(in_use).filter(|&last| last > end) else { return };
        if let Some((byte, _)) = slots.get(end) {
            let place = self.entry_place(dir.ino, *byte);
            let what = "entries behind the mark of the directory's end".to_string();
            self.expected("directory.hidden", what, place);
        }
        let between = slots.iter().take(last).skip(end);
        let ends: Vec<At> = between.filter(|slot| is_end(slot)).copied().collect();
        for (byte, entry) in ends {
            self.edit(byte, &entry, delete);
        }
    }

    fn check_entry(
        &mut self,
        dir: &Pending,
        (byte, entry): At,
        pieces: &[At],
        long: Option<&[u16]>,
        names: &mut Names,
    ) -> Result<(), FsError> {
        let place = self.entry_place(dir.ino, byte);
        if entry.dots().is_some() {
            let what = "an entry . or .. where none belongs".to_string();
            self.unexpected("entry.dots", what, place);
            self.remove(byte, &entry, pieces);
            return Ok(());
        }
        self.check_names(dir, (byte, entry), pieces, long, names);
        self.files = self.files.saturating_add(1);
        let ino = Ino::new(self.files);
        if !entry.is_directory() {
            self.check_file(ino, byte, &entry);
            return Ok(());
        }
        if entry.DIR_FileSize.get() != 0 {
            let what = format!("a directory with a length of {}", entry.DIR_FileSize.get());
            self.unexpected("directory.length", what, place);
            self.edit(byte, &entry, |entry| entry.DIR_FileSize = 0.into());
        }
        let start = entry.first_cluster(self.boot().root_cluster != 0);
        let Claimed { mut clusters, .. } = self.claim(ino, start, None, place);
        self.limit_directory(&mut clusters, place);
        if clusters.is_empty() {
            self.remove(byte, &entry, pieces);
            return Ok(());
        }
        self.count(&clusters);
        let is_root = dir.entry.is_none();
        let above = if is_root { 0 } else { dir.first };
        self.pending.push_back(Pending { ino, first: start, above, clusters, entry: Some(byte) });
        Ok(())
    }

    /// Names that are not allowed get another short one, and so do those that were met
    /// before; a long name that was is dropped.
    fn check_names(
        &mut self,
        dir: &Pending,
        (byte, entry): At,
        pieces: &[At],
        long: Option<&[u16]>,
        names: &mut Names,
    ) {
        let place = self.entry_place(dir.ino, byte);
        let mut pieces = pieces;
        let is_bad = names::is_bad(&entry, long.is_some());
        if !is_bad
            && let Some(long) = long
            && !names.take_long(long)
        {
            let shown = String::from_utf8_lossy(&name::from_units(long)).into_owned();
            let what = format!("the name '{shown}' was met before in its directory");
            self.unexpected("name.duplicate-long", what, place);
            for (byte, piece) in pieces {
                self.edit(*byte, piece, delete);
            }
            pieces = &[];
        }
        let shown = || String::from_utf8_lossy(&name::short(&entry.DIR_Name, 0)).into_owned();
        if is_bad {
            let what = format!("the short name '{}' is none", shown().escape_debug());
            self.unexpected("name.short", what, place);
        } else if names.take_short(entry.DIR_Name) {
            return;
        } else {
            let what = format!("the short name '{}' was met before in its directory", shown());
            self.unexpected("name.duplicate", what, place);
        }
        let Some(new) = names.make_up() else { return };
        self.edit(byte, &entry, |entry| {
            (entry.DIR_Name, entry.DIR_NTRes) = (new, 0);
        });
        // The long name stays: its pieces have the new short name's sum.
        for (byte, piece) in pieces {
            if let Some(mut piece) = parse::<LongEntry>(piece.as_bytes(), 0) {
                piece.LDIR_Chksum = name::checksum(&new);
                self.put_entry(*byte, piece.as_bytes());
            }
        }
    }
}

/// An entry of a directory for itself (1) or for the one above.
fn dot(number: u8, cluster: u32) -> ShortEntry {
    let stamp = Stamp::of(EARLIEST);
    let mut entry = ShortEntry::new_zeroed();
    entry.DIR_Name = if number == 1 { *b".          " } else { *b"..         " };
    entry.DIR_Attr = attr::DIRECTORY;
    entry.DIR_WrtDate = stamp.date.into();
    set_first(&mut entry, cluster);
    entry
}
