//! Directory entries: short ones, and the long names in front of them.

use crate::name;
use crate::ondisk::{
    ENTRY_SIZE, LAST_PIECE, LongEntry, MOST_PIECES, NAME_UNITS, PIECE_UNITS, ShortEntry, attr,
    first, lower,
};
use crate::time::Stamp;
use seekless_fs::Timestamp;
use seekless_fs::field::parse;

/// The contents of a slot of a directory.
#[derive(Clone, Copy)]
pub(crate) enum Slot {
    /// Neither this slot nor any behind it is in use.
    End,
    Deleted,
    /// A piece of a long name.
    Long(LongEntry),
    /// The volume's label.
    Label(ShortEntry),
    Short(ShortEntry),
}

impl Slot {
    /// The slot in these bytes; `None` when they are too few.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let entry: ShortEntry = parse(bytes, 0)?;
        let [initial, ..] = entry.DIR_Name;
        Some(match initial {
            first::END => Self::End,
            first::DELETED => Self::Deleted,
            _ if entry.DIR_Attr & attr::LONG_NAME_MASK == attr::LONG_NAME => {
                Self::Long(parse(bytes, 0)?)
            }
            _ if entry.DIR_Attr & attr::VOLUME_ID != 0 => Self::Label(entry),
            _ => Self::Short(entry),
        })
    }
}

const _: () = assert!(size_of::<ShortEntry>() == ENTRY_SIZE);

impl ShortEntry {
    pub(crate) fn is_directory(&self) -> bool {
        self.DIR_Attr & attr::DIRECTORY != 0
    }

    /// The first cluster; the upper half counts on FAT32 only.
    pub(crate) fn first_cluster(&self, is_fat32: bool) -> u32 {
        let low = u32::from(self.DIR_FstClusLO.get());
        let high = if is_fat32 { u32::from(self.DIR_FstClusHI.get()) } else { 0 };
        high << 16 | low
    }

    /// Whether this is the entry of a directory for itself (1) or for its parent (2), by its name.
    pub(crate) fn dots(&self) -> Option<u8> {
        match &self.DIR_Name {
            b".          " => Some(1),
            b"..         " => Some(2),
            _ => None,
        }
    }

    pub(crate) fn modified(&self) -> Timestamp {
        let (date, time) = (self.DIR_WrtDate.get(), self.DIR_WrtTime.get());
        Stamp { date, time, fine: 0 }.moment()
    }

    /// The day of the last access; without one, as in other systems, the time of the last change.
    pub(crate) fn accessed(&self) -> Timestamp {
        match self.DIR_LstAccDate.get() {
            0 => self.modified(),
            date => Stamp { date, time: 0, fine: 0 }.moment(),
        }
    }

    pub(crate) fn created(&self) -> Option<Timestamp> {
        let (date, time) = (self.DIR_CrtDate.get(), self.DIR_CrtTime.get());
        let fine = self.DIR_CrtTimeTenth;
        (date != 0).then(|| Stamp { date, time, fine }.moment())
    }

    /// The name as it is shown without a long one.
    pub(crate) fn shown(&self) -> Vec<u8> {
        name::short(&self.DIR_Name, self.DIR_NTRes & (lower::BASE | lower::EXTENSION))
    }
}

/// Puts long names together, slot by slot.
#[derive(Default)]
pub(crate) struct LongName {
    /// Units, of the name's last piece first as they are read.
    pieces: Vec<[u16; PIECE_UNITS]>,
    /// The number of the piece that comes next; 0 before the short entry.
    next: u8,
    checksum: u8,
    /// The slot of the first piece on the disk.
    start: u32,
    /// Whether there were pieces of an incomplete name.
    torn: bool,
}

/// The slots with the long name in front of a short entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LongNameSlots {
    /// The long name, if it is whole and belongs to the entry.
    pub(crate) name: Option<Vec<u16>>,
    /// The first slot that belongs to the entry.
    pub(crate) start: u32,
    /// Whether there are pieces without an entry in front of it.
    pub(crate) torn: bool,
}

impl LongName {
    /// Takes a piece in slot `at`.
    pub(crate) fn piece(&mut self, at: u32, piece: &LongEntry) {
        let number = piece.LDIR_Ord & !LAST_PIECE;
        if piece.LDIR_Ord & LAST_PIECE != 0 {
            self.torn |= !self.pieces.is_empty();
            self.pieces.clear();
            if number == 0 || number > MOST_PIECES {
                (self.torn, self.next) = (true, 0);
                return;
            }
            (self.next, self.checksum, self.start) = (number, piece.LDIR_Chksum, at);
        } else if self.pieces.is_empty()
            || number != self.next
            || piece.LDIR_Chksum != self.checksum
        {
            self.tear();
            return;
        }
        self.pieces.push(units(piece));
        debug_assert!(self.pieces.len() <= usize::from(MOST_PIECES), "a name has 20 pieces");
        match number.checked_sub(1) {
            Some(next) => self.next = next,
            None => self.tear(),
        }
    }

    fn tear(&mut self) {
        self.torn = true;
        self.pieces.clear();
        self.next = 0;
    }

    /// Anything between the pieces and a short entry tears the name.
    pub(crate) fn gap(&mut self) -> bool {
        let torn = self.torn || !self.pieces.is_empty();
        *self = Self::default();
        torn
    }

    /// The slots that belong to the short entry in slot `at`.
    pub(crate) fn finish(&mut self, at: u32, entry: &ShortEntry) -> LongNameSlots {
        let taken = std::mem::take(self);
        let mut head = LongNameSlots { name: None, start: at, torn: taken.torn };
        if taken.pieces.is_empty() {
            return head;
        }
        if taken.next != 0 || taken.checksum != name::checksum(&entry.DIR_Name) {
            head.torn = true;
            return head;
        }
        let mut units: Vec<u16> = taken.pieces.iter().rev().flatten().copied().collect();
        if let Some(end) = units.iter().position(|&unit| unit == 0) {
            units.truncate(end);
        }
        if units.len() > NAME_UNITS || !name::is_usable(&units) {
            head.torn = true;
            return head;
        }
        debug_assert!(taken.start < at, "the pieces stand in front of the entry");
        (head.name, head.start) = (Some(units), taken.start);
        head
    }
}

fn units(piece: &LongEntry) -> [u16; PIECE_UNITS] {
    let mut units = [0; PIECE_UNITS];
    let all = piece.LDIR_Name1.iter().chain(&piece.LDIR_Name2).chain(&piece.LDIR_Name3);
    for (to, from) in units.iter_mut().zip(all) {
        *to = from.get();
    }
    units
}
