//! Every directory, its entries and their names.

use super::chains::{Claimed, delete};
use super::names::{self, Names};
use super::{Checker, Pending, problems, set_first, sums};
use crate::entry::{LongName, LongNameSlots, Slot};
use crate::name;
use crate::ondisk::{ENTRY_SIZE, LongEntry, MOST_ENTRIES, ShortEntry, attr, first};
use crate::table::Link;
use crate::time::{EARLIEST, Stamp};
use seekless_fs::field::{index, parse};
use seekless_fs::{FsError, Location};
use seekless_units::{BlockNo, Ino};
use zerocopy::{FromZeros, IntoBytes};

/// A slot with its byte on the device.
type At = (u64, ShortEntry);

/// An entry whose clusters are to be checked.
pub(super) struct Found {
    ino: Ino,
    /// Its place.
    byte: u64,
    entry: ShortEntry,
    /// The pieces of its long name.
    pieces: Vec<At>,
    /// The first cluster of its directory, as in `..`.
    above: u32,
}

impl Checker {
    /// Walks the tree, one directory after the other.
    pub(super) fn check_tree(&mut self) -> Result<(), FsError> {
        let root = Ino::new(1);
        let start = self.boot().root_cluster;
        let mut clusters = Vec::new();
        if start != 0 {
            let place = Location::of("boot sector").in_block(BlockNo::ZERO);
            if self.fat.raw(start) & self.boot().width.mask() == 0 {
                let what = format!("cluster {start} of the root directory is free");
                self.found(problems::ROOT_CLUSTER, what, place);
                self.fat.end(start);
            }
            clusters = self.claim(root, start, None, place).clusters;
            self.limit_directory(&mut clusters, place);
            if clusters.is_empty() {
                // A bad cluster: it cannot be repaired.
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
        loop {
            while let Some(dir) = self.pending.pop_front() {
                self.report.tally.directories += 1;
                self.check_directory(&dir)?;
            }
            let Some(misled) = self.misled.pop_front() else { break };
            self.check_clusters(&misled);
        }
        self.report.tally.inodes = u64::from(self.files);
        Ok(())
    }

    /// Cuts off the clusters of a directory past the most entries that there may be: no system
    /// makes one so long, and most do not read it.
    fn limit_directory(&mut self, clusters: &mut Vec<u32>, place: Location) {
        let most = u64::from(MOST_ENTRIES) * 32;
        let most = index(most.div_ceil(self.boot().cluster_bytes()));
        let Some(last) = most.checked_sub(1).and_then(|last| clusters.get(last).copied()) else {
            return;
        };
        if clusters.len() <= most {
            return;
        }
        let what = format!("the directory has {} clusters, limit {most}", clusters.len());
        self.found(problems::DIRECTORY_TOO_LONG, what, place);
        for cluster in clusters.drain(most..) {
            debug_assert!(self.claimed.get(index(cluster)), "cluster {cluster} was claimed");
            self.claimed.clear(index(cluster));
        }
        self.fat.end(last);
    }

    /// The slots of a directory, in order.
    fn slots(&self, dir: &Pending) -> Result<Vec<At>, FsError> {
        let mut sectors: Vec<BlockNo> = Vec::new();
        if dir.first == 0 {
            let (start, len) = self.boot().fixed_root();
            sectors.extend((0..len).map(|n| start + n));
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
                at += 32;
            }
        }
        Ok(slots)
    }

    fn check_directory(&mut self, dir: &Pending) -> Result<(), FsError> {
        let is_root = dir.entry.is_none();
        let mut slots = self.slots(dir)?;
        let mut from = 0;
        if !is_root {
            if !self.check_dots(dir, &mut slots) {
                return Ok(());
            }
            from = 2;
        }
        self.check_hidden(dir, &slots);
        let is_fat32 = self.boot().root_cluster != 0;
        let others = slots.iter().filter(|(_, entry)| !is_free(entry) && entry.is_directory());
        self.siblings = others.map(|(_, entry)| entry.first_cluster(is_fat32)).collect();
        let mut names = Names::default();
        let mut long = LongName::default();
        // Pieces of a name without an entry so far.
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
                // Bits that are invalid in pieces: some systems take it for a file.
                Some(Slot::Long(piece)) if entry.DIR_Attr != attr::LONG_NAME => {
                    let what = "a piece of a long name has attributes of other entries";
                    let place = self.entry_place(dir.ino, byte);
                    self.found(problems::NAME_PIECES, what.to_string(), place);
                    let mut entry = entry;
                    entry.DIR_Attr = attr::LONG_NAME;
                    self.put_entry(byte, entry.as_bytes());
                    long.piece(u32::try_from(pieces.len()).unwrap_or(u32::MAX), &piece);
                    pieces.push((byte, entry));
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
                        continue;
                    }
                    let place = self.entry_place(dir.ino, byte);
                    if is_root && is_plain {
                        let what = "a label where none belongs".to_string();
                        self.found(problems::ENTRY_LABEL, what, place);
                        self.edit(byte, &label, delete);
                        continue;
                    }
                    let what = "a file that is marked as a label".to_string();
                    self.found(problems::ENTRY_LABEL, what, place);
                    let mut short = label;
                    short.DIR_Attr &= !attr::VOLUME_ID;
                    self.put_entry(byte, short.as_bytes());
                    self.check_entry(dir, (byte, short), &[], None, &mut names)?;
                }
                Some(Slot::Short(short)) => {
                    let mut head =
                        long.finish(u32::try_from(pieces.len()).unwrap_or(u32::MAX), &short);
                    if head.name.is_none() {
                        self.mend_sums(dir.ino, &mut pieces, &short, &mut head);
                    }
                    // Pieces in front of the entry's own belong to nothing.
                    let mut own = match head.name {
                        Some(_) => pieces.split_off(index(head.start).min(pieces.len())),
                        None => Vec::new(),
                    };
                    self.orphans(dir.ino, &mut pieces);
                    self.clear_fields(dir.ino, &mut own);
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

    /// Gives the pieces in front of a short entry its checksum, if they are its long name.
    fn mend_sums(
        &mut self,
        dir: Ino,
        pieces: &mut [At],
        short: &ShortEntry,
        head: &mut LongNameSlots,
    ) {
        let parsed = pieces.iter().filter_map(|(_, piece)| parse(piece.as_bytes(), 0));
        let parsed: Vec<LongEntry> = parsed.collect();
        let Some(mended) = sums::mended(&parsed, short) else { return };
        let start = pieces.len() - mended.count;
        head.name = Some(mended.units);
        head.start = u32::try_from(start).unwrap_or(u32::MAX);
        let sum = name::checksum(&short.DIR_Name);
        let own = pieces.iter_mut().zip(&parsed).skip(start);
        let wrong: Vec<_> = own.filter(|(_, piece)| piece.LDIR_Chksum != sum).collect();
        if let Some(((byte, _), piece)) = wrong.first() {
            let what = format!("{} pieces of a long name have wrong checksums", wrong.len());
            let place = self.entry_place(dir, *byte);
            self.found(problems::NAME_CHECKSUM, what, place);
            self.report.set_values(piece.LDIR_Chksum.into(), sum.into());
        }
        for ((byte, entry), piece) in wrong {
            *entry = sums::sealed(piece, short);
            self.put_entry(*byte, entry.as_bytes());
        }
    }

    /// Clears the first cluster and the type in the pieces of a long name. Microsoft's description
    /// requires zeros there.
    fn clear_fields(&mut self, dir: Ino, pieces: &mut [At]) {
        for (byte, entry) in pieces {
            let Some(mut piece) = parse::<LongEntry>(entry.as_bytes(), 0) else { continue };
            let (cluster, kind) = (piece.LDIR_FstClusLO.get(), piece.LDIR_Type);
            if cluster == 0 && kind == 0 {
                continue;
            }
            let what = format!("a piece of a long name has cluster {cluster}, and type {kind}");
            let place = self.entry_place(dir, *byte);
            self.found(problems::NAME_FIELDS, what, place);
            (piece.LDIR_FstClusLO, piece.LDIR_Type) = (0.into(), 0);
            *entry = zerocopy::transmute!(piece);
            self.put_entry(*byte, entry.as_bytes());
        }
    }

    /// Deletes pieces of names without an entry.
    fn orphans(&mut self, dir: Ino, pieces: &mut Vec<At>) {
        if let Some((byte, _)) = pieces.first() {
            let what = format!("{} pieces of a long name that belong to no entry", pieces.len());
            let place = self.entry_place(dir, *byte);
            self.found(problems::NAME_PIECES, what, place);
        }
        for (byte, piece) in pieces.drain(..) {
            self.edit(byte, &piece, delete);
        }
    }

    /// Checks the entries of a directory for itself and its parent. Returns false if the clusters
    /// do not contain a directory.
    fn check_dots(&mut self, dir: &Pending, slots: &mut [At]) -> bool {
        let (Some(&one), Some(&two)) = (slots.first(), slots.get(1)) else { return false };
        let is_fat32 = self.boot().root_cluster != 0;
        if !self.is_directory(dir, slots) {
            let place = self.entry_place(dir.ino, one.0);
            let what = "it contains no directory: its name is lost, and so are those in it";
            self.found(problems::DIRECTORY_GARBAGE, what.to_string(), place);
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
            let (byte, entry) = slot;
            let place = self.entry_place(dir.ino, byte);
            let name = if number == 1 { "." } else { ".." };
            let has_name = entry.dots() == Some(number);
            let is_other = !is_free(&entry) && !is_dot(&entry, number, wanted, is_fat32);
            let is_garbage = is_unused_behind_dots(slots) && !self.is_possible(&entry);
            if !has_name && is_other && !is_garbage {
                self.move_down(dir, slot, name, slots);
            } else if !has_name || !entry.is_directory() {
                let what = format!("the entry {name} is missing");
                self.found(problems::DIRECTORY_DOT, what, place);
            } else if is_odd_dot(&entry) {
                let what = format!("the entry {name} has a length, or attributes of other entries");
                self.found(problems::DIRECTORY_DOT, what, place);
            } else {
                let found = entry.first_cluster(is_fat32);
                if found == wanted {
                    continue;
                }
                if number == 1 {
                    let what = format!(". has cluster {found} instead of {wanted}");
                    self.found(problems::DIRECTORY_DOT, what, place);
                } else {
                    let what = format!(".. has cluster {found} instead of {wanted}");
                    self.found(problems::DIRECTORY_DOT_DOT, what, place);
                }
                self.edit(byte, &entry, |entry| set_first(entry, wanted));
                continue;
            }
            let fresh = dot(number, wanted);
            self.put_entry(byte, fresh.as_bytes());
        }
        true
    }

    /// Whether the clusters of an entry for a directory contain one. One sign suffices: an entry
    /// for itself or for its parent, two slots that were never used, entries most of which are
    /// possible, or nothing behind the first two: clusters of directories begin as zeros.
    fn is_directory(&self, dir: &Pending, slots: &[At]) -> bool {
        let (Some((_, one)), Some((_, two))) = (slots.first(), slots.get(1)) else { return false };
        let is_fat32 = self.boot().root_cluster != 0;
        if is_free(one) && is_free(two)
            || is_dot(one, 1, dir.first, is_fat32)
            || is_dot(two, 2, dir.above, is_fat32)
            || is_unused_behind_dots(slots)
        {
            return true;
        }
        let (mut sound, mut used) = (0usize, 0usize);
        for (_, entry) in slots.iter().filter(|(_, entry)| !is_free(entry)) {
            used += 1;
            sound += usize::from(self.is_possible(entry));
        }
        // The first two are the damaged ones.
        sound > 0 && sound >= ((used - used.min(2)) * 3).div_ceil(4)
    }

    /// Whether a slot in use may be an entry, or a piece of a long name.
    fn is_possible(&self, entry: &ShortEntry) -> bool {
        let is_fat32 = self.boot().root_cluster != 0;
        match Slot::parse(entry.as_bytes()) {
            Some(Slot::Long(piece)) => {
                entry.DIR_Attr == attr::LONG_NAME
                    && piece.LDIR_Type == 0
                    && piece.LDIR_FstClusLO.get() == 0
            }
            Some(Slot::Short(short)) => {
                let first = short.first_cluster(is_fat32);
                short.DIR_Attr & !attr::LONG_NAME_MASK == 0
                    && !names::is_bad(&short, true)
                    && (first == 0 || self.boot().is_cluster(first))
            }
            _ => false,
        }
    }

    /// Moves an entry at the place of `.` or `..` to a free slot of its directory. If there is
    /// none, its name is lost.
    fn move_down(&mut self, dir: &Pending, (byte, entry): At, name: &str, slots: &mut [At]) {
        let place = self.entry_place(dir.ino, byte);
        let free = slots.iter_mut().skip(2).find(|(_, entry)| is_free(entry));
        let is_entry = matches!(Slot::parse(entry.as_bytes()), Some(Slot::Short(_)));
        let what = match free {
            Some(slot) if is_entry => {
                slot.1 = entry;
                let to = slot.0;
                self.put_entry(to, entry.as_bytes());
                format!("another entry stands in the place of {name}: it is moved behind them")
            }
            _ => {
                format!("another entry stands in the place of {name}, and is lost: no slot is free")
            }
        };
        self.found(problems::DIRECTORY_DOT, what, place);
    }

    fn read_entry(&self, byte: u64) -> Option<ShortEntry> {
        let sector = u64::from(self.boot().sector);
        debug_assert!(byte.is_multiple_of(32), "a slot begins at byte {byte}");
        let bytes = self.volume.sector(BlockNo::new(byte / sector)).ok()?;
        parse(&bytes, index(byte % sector))
    }

    /// Checks entries behind the end mark of a directory, which only some systems see.
    fn check_hidden(&mut self, dir: &Pending, slots: &[At]) {
        let is_end = |slot: &At| slot.1.DIR_Name.first() == Some(&first::END);
        let from = if dir.entry.is_none() { 0 } else { 2 };
        let Some(end) = slots.iter().skip(from).position(is_end) else { return };
        let end = end + from;
        let in_use = |slot: &At| {
            !matches!(slot.1.DIR_Name.first(), None | Some(&first::END | &first::DELETED))
        };
        let Some(last) = slots.iter().rposition(in_use).filter(|&last| last > end) else { return };
        if let Some((byte, _)) = slots.get(end) {
            let place = self.entry_place(dir.ino, *byte);
            let what = "entries behind the mark of the directory's end".to_string();
            self.found(problems::DIRECTORY_HIDDEN, what, place);
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
        debug_assert!(pieces.len() <= 20, "a long name has {} pieces", pieces.len());
        debug_assert_eq!(long.is_some(), !pieces.is_empty(), "pieces have a name");
        let place = self.entry_place(dir.ino, byte);
        let is_fat32 = self.boot().root_cluster != 0;
        if entry.dots().is_some() {
            let first = entry.first_cluster(is_fat32);
            let has_own = first != 0 && first != dir.first && first != dir.above;
            if !has_own && entry.DIR_FileSize.get() == 0 {
                let what = "an entry . or .. where none belongs".to_string();
                self.found(problems::ENTRY_DOTS, what, place);
                self.remove(byte, &entry, pieces);
                return Ok(());
            }
            // A file whose name was damaged: `check_names` gives it another.
        }
        self.check_names(dir, (byte, entry), pieces, long, names);
        let most = || FsError::Unsupported("4 G files or more".into());
        self.files = self.files.checked_add(1).ok_or_else(most)?;
        let ino = Ino::new(self.files);
        let mut entry = entry;
        if let Some(what) = self.mistaken(dir, &entry)? {
            self.found(problems::ENTRY_KIND, what.to_string(), place);
            self.edit(byte, &entry, |entry| entry.DIR_Attr ^= attr::DIRECTORY);
            entry.DIR_Attr ^= attr::DIRECTORY;
        }
        let above = if dir.entry.is_none() { 0 } else { dir.first };
        let found = Found { ino, byte, entry, pieces: pieces.to_vec(), above };
        if self.is_misled(&entry)? {
            self.misled.push_back(found);
        } else {
            self.check_clusters(&found);
        }
        Ok(())
    }

    /// Whether an entry may lead to the clusters of another: a file to more or fewer than its length
    /// needs, a directory to none with an entry for itself. Others with these clusters come first.
    /// Chains are followed for as many clusters as the volume has.
    fn is_misled(&mut self, entry: &ShortEntry) -> Result<bool, FsError> {
        let is_fat32 = self.boot().root_cluster != 0;
        let start = entry.first_cluster(is_fat32);
        if !self.boot().is_cluster(start) {
            return Ok(false);
        }
        if !entry.is_directory() {
            let size = u64::from(entry.DIR_FileSize.get());
            let wanted = size.div_ceil(self.boot().cluster_bytes());
            let all = u64::from(self.boot().clusters);
            if wanted > all || self.followed > all {
                return Ok(wanted > all);
            }
            self.followed += wanted;
            return Ok(!self.has_clusters(start, wanted));
        }
        let bytes = self.volume.sector(self.boot().sector_of(start))?;
        let one = parse::<ShortEntry>(&bytes, 0);
        Ok(one.is_none_or(|one| !is_dot(&one, 1, start, is_fat32)))
    }

    /// Checks the clusters of an entry. Those of a directory are checked later.
    fn check_clusters(&mut self, found: &Found) {
        let Found { ino, byte, ref entry, ref pieces, above } = *found;
        if !entry.is_directory() {
            self.check_file(ino, byte, entry);
            return;
        }
        let place = self.entry_place(ino, byte);
        if entry.DIR_FileSize.get() != 0 {
            let what = format!("a directory with a length of {}", entry.DIR_FileSize.get());
            self.found(problems::DIRECTORY_LENGTH, what, place);
            self.report.set_values(entry.DIR_FileSize.get().into(), 0);
            self.edit(byte, entry, |entry| entry.DIR_FileSize = 0.into());
        }
        let start = entry.first_cluster(self.boot().root_cluster != 0);
        let Claimed { mut clusters, .. } = self.claim(ino, start, None, place);
        self.limit_directory(&mut clusters, place);
        if clusters.is_empty() {
            self.remove(byte, entry, pieces);
            return;
        }
        debug_assert_eq!(clusters.first(), Some(&start), "the chain begins with its first");
        self.count(&clusters);
        self.pending.push_back(Pending { ino, first: start, above, clusters, entry: Some(byte) });
    }

    /// The fault of an entry that says directory and leads to a file, or the other way round: a
    /// directory has no length and begins with entries for itself and its parent; a file has as
    /// many clusters as its length needs.
    fn mistaken(&self, dir: &Pending, entry: &ShortEntry) -> Result<Option<&'static str>, FsError> {
        let is_fat32 = self.boot().root_cluster != 0;
        let start = entry.first_cluster(is_fat32);
        let size = u64::from(entry.DIR_FileSize.get());
        if !self.boot().is_cluster(start) {
            return Ok(None);
        }
        if (size == 0) == entry.is_directory() {
            return Ok(None);
        }
        let bytes = self.volume.sector(self.boot().sector_of(start))?;
        let slot = |number: usize| parse::<ShortEntry>(&bytes, number * ENTRY_SIZE);
        let (Some(one), Some(two)) = (slot(0), slot(1)) else { return Ok(None) };
        let has_dots = one.dots() == Some(1) && one.first_cluster(is_fat32) == start;
        let has_dots =
            has_dots && two.dots() == Some(2) && one.is_directory() && two.is_directory();
        // It must not have a name of its own.
        let above = if dir.entry.is_none() { 0 } else { dir.first };
        let is_here = two.first_cluster(is_fat32) == above && !self.siblings.contains(&start);
        let is_lost = is_here && !self.claimed.get(index(start));
        Ok(match entry.is_directory() {
            false if has_dots && is_lost => Some("a directory that is marked as a file"),
            true if !has_dots && !is_dot(&one, 1, start, is_fat32) => {
                let wanted = size.div_ceil(self.boot().cluster_bytes());
                self.has_clusters(start, wanted).then_some("a file that is marked as a directory")
            }
            _ => None,
        })
    }

    /// Whether a chain has exactly `wanted` clusters.
    fn has_clusters(&self, start: u32, wanted: u64) -> bool {
        let (mut here, mut found) = (start, 1u64);
        while let Link::Next(next) = self.fat.link(self.boot(), here) {
            here = next;
            found += 1;
            if found > wanted {
                return false;
            }
        }
        found == wanted && self.fat.link(self.boot(), here) == Link::End
    }

    /// Invalid and duplicate names get another short one; a duplicate long name is dropped.
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
            self.found(problems::NAME_DUPLICATE_LONG, what, place);
            for (byte, piece) in pieces {
                self.edit(*byte, piece, delete);
            }
            pieces = &[];
        }
        let shown = || String::from_utf8_lossy(&name::short(&entry.DIR_Name, 0)).into_owned();
        if is_bad {
            let what = format!("the short name '{}' is none", shown().escape_debug());
            self.found(problems::NAME_SHORT, what, place);
        } else if names.take_short(entry.DIR_Name) {
            return;
        } else {
            let what = format!("the short name '{}' was met before in its directory", shown());
            self.found(problems::NAME_DUPLICATE, what, place);
        }
        let Some(new) = names.make_up(b"REC") else { return };
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

/// Whether a slot is not in use.
fn is_free(entry: &ShortEntry) -> bool {
    matches!(entry.DIR_Name.first(), None | Some(&first::END | &first::DELETED))
}

/// Whether all slots behind those of `.` and `..` are zeros.
fn is_unused_behind_dots(slots: &[At]) -> bool {
    let behind = slots.get(2..).unwrap_or_default();
    !behind.is_empty()
        && behind.iter().all(|(_, slot)| slot.as_bytes().iter().all(|&byte| byte == 0))
}

/// Whether an entry is that of a directory for itself (1) or for its parent (2): by its name, or,
/// if that is damaged, by its cluster.
fn is_dot(entry: &ShortEntry, number: u8, wanted: u32, is_fat32: bool) -> bool {
    let name = dot(number, 0).DIR_Name;
    let same = name.iter().zip(&entry.DIR_Name).filter(|(one, other)| one == other).count();
    let leads_there = entry.first_cluster(is_fat32) == wanted && entry.DIR_FileSize.get() == 0;
    same == name.len() || leads_there && (entry.is_directory() || same + 2 >= name.len())
}

/// Whether a `.` or `..` has fields that such entries do not have: fsck.fat removes it.
fn is_odd_dot(entry: &ShortEntry) -> bool {
    entry.DIR_FileSize.get() != 0
        || entry.DIR_NTRes & names::NO_SHORT_NAME != 0
        || entry.DIR_Attr & attr::VOLUME_ID != 0
}

/// An entry of a directory for itself (1) or for its parent.
pub(super) fn dot(number: u8, cluster: u32) -> ShortEntry {
    let stamp = Stamp::of(EARLIEST);
    let mut entry = ShortEntry::new_zeroed();
    entry.DIR_Name = if number == 1 { *b".          " } else { *b"..         " };
    entry.DIR_Attr = attr::DIRECTORY;
    entry.DIR_WrtDate = stamp.date.into();
    set_first(&mut entry, cluster);
    entry
}
