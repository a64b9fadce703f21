//! A bounded picture of a phase's requests: when the drive began each, and
//! where on the disk.
//!
//! A grid of columns of time and rows of place counts requests by kind. Time
//! begins with the phase; when it outgrows the columns, they are folded in two
//! and become twice as wide. So the picture takes the same room however long
//! the phase is, and no request is missing in it.

use seekless_units::Nanos;
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// Columns of time.
pub const COLUMNS: usize = 160;
/// Rows of place.
pub const ROWS: usize = 64;
/// How long a column is to begin with.
const FIRST_COLUMN: Nanos = Nanos::new(1_000_000);

/// The kind of a request, and whether a process waited for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestKind {
    /// A read; a process always waits for it.
    Read,
    /// A synchronous write.
    SyncWrite,
    /// An asynchronous write.
    AsyncWrite,
}

impl RequestKind {
    /// All of them, in the order in which they are counted.
    pub const ALL: [Self; 3] = [Self::Read, Self::SyncWrite, Self::AsyncWrite];

    /// How it is written down.
    const fn letter(self) -> char {
        match self {
            Self::Read => 'r',
            Self::SyncWrite => 's',
            Self::AsyncWrite => 'a',
        }
    }
}

/// The number of requests of each kind, in the order of [`RequestKind::ALL`].
pub type RequestCounts = [u32; 3];

/// Requests in one column and row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bin {
    /// Which column, from 0.
    pub column: usize,
    /// Which row, from 0 at the start of the disk.
    pub row: usize,
    /// How many requests; never none.
    pub counts: RequestCounts,
}

/// The picture of a phase that is over: only the bins that hold something.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(try_from = "Stored", into = "Stored")]
pub struct SeekPlot {
    column: Nanos,
    sectors: u64,
    bins: Vec<Bin>,
}

impl SeekPlot {
    /// How long a column is.
    #[must_use]
    pub fn column(&self) -> Nanos {
        self.column
    }

    /// How many sectors all rows are together.
    #[must_use]
    pub fn sectors(&self) -> u64 {
        self.sectors
    }

    /// Its bins, row after row.
    #[must_use]
    pub fn bins(&self) -> &[Bin] {
        &self.bins
    }

    /// How many requests of each kind there are, in the order of [`RequestKind::ALL`].
    #[must_use]
    pub fn totals(&self) -> [u64; 3] {
        [0, 1, 2].map(|kind| self.bins.iter().map(|bin| u64::from(bin.counts[kind])).sum())
    }
}

/// A picture that is being made.
pub(crate) struct Plotter {
    /// When the phase began.
    origin: Nanos,
    /// The first request that counts for the phase.
    first: u64,
    /// The first that no longer does, when the phase is over.
    end: u64,
    column: Nanos,
    sectors: u64,
    bins: Vec<RequestCounts>,
}

impl Plotter {
    /// The picture of a phase that begins at a moment, with a request, on a
    /// disk of so many sectors.
    pub(crate) fn new(origin: Nanos, first: u64, sectors: u64) -> Self {
        let bins = vec![[0; 3]; COLUMNS * ROWS];
        let (end, sectors) = (u64::MAX, sectors.max(1));
        Self { origin, first, end, column: FIRST_COLUMN, sectors, bins }
    }

    /// A request that the drive begins at a moment, and its first sector. One
    /// from before the phase or after it is none of it.
    pub(crate) fn note(&mut self, number: u64, at: Nanos, sector: u64, kind: RequestKind) {
        if !(self.first..self.end).contains(&number) {
            return;
        }
        let since = at.saturating_since(self.origin);
        while since / self.column.get() >= COLUMNS as u64 {
            self.fold();
        }
        let column = (since / self.column.get()) as usize;
        let bin = &mut self.bins[row(sector, self.sectors) * COLUMNS + column][kind as usize];
        // No run is long enough for it to overflow.
        *bin += 1;
    }

    /// Makes columns twice as wide.
    fn fold(&mut self) {
        for row in self.bins.chunks_exact_mut(COLUMNS) {
            for column in 0..COLUMNS {
                let pair = [2 * column, 2 * column + 1].map(|from| row.get(from).copied());
                let [a, b] = pair.map(Option::unwrap_or_default);
                row[column] = [0, 1, 2].map(|kind| a[kind] + b[kind]);
            }
        }
        self.column += self.column.get();
    }

    /// The picture as it is now.
    pub(crate) fn finish(&self) -> SeekPlot {
        let some = self.bins.iter().enumerate().filter(|(_, counts)| **counts != [0; 3]);
        let bin = |(at, counts): (usize, &RequestCounts)| Bin {
            column: at % COLUMNS,
            row: at / COLUMNS,
            counts: *counts,
        };
        SeekPlot { column: self.column, sectors: self.sectors, bins: some.map(bin).collect() }
    }
}

/// Which of several pictures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlotId(usize);

/// Pictures that are being made at once: of a phase and a part of it, or of one
/// whose last requests still wait.
#[derive(Default)]
pub(crate) struct Plots(Vec<Option<Plotter>>);

impl Plots {
    pub(crate) fn begin(&mut self, plotter: Plotter) -> PlotId {
        self.0.push(Some(plotter));
        PlotId(self.0.len() - 1)
    }

    /// Requests from a number on are none of a picture's.
    pub(crate) fn end(&mut self, plot: PlotId, end: u64) {
        if let Some(Some(plotter)) = self.0.get_mut(plot.0) {
            plotter.end = end;
        }
    }

    pub(crate) fn note(&mut self, number: u64, at: Nanos, sector: u64, kind: RequestKind) {
        let made = self.0.iter_mut().flatten();
        made.for_each(|plotter| plotter.note(number, at, sector, kind));
    }

    /// A picture that is done; one that was taken before is empty.
    pub(crate) fn take(&mut self, plot: PlotId) -> SeekPlot {
        let plotter = self.0.get_mut(plot.0).and_then(Option::take);
        plotter.map(|plotter| plotter.finish()).unwrap_or_default()
    }
}

/// The row of a sector. Sectors beyond the disk are in the last.
fn row(sector: u64, sectors: u64) -> usize {
    let row = u128::from(sector) * ROWS as u128 / u128::from(sectors);
    usize::try_from(row).unwrap_or(ROWS).min(ROWS - 1)
}

/// A picture as a result's file has it. Bins follow each other, row after row,
/// with a blank between: how many bins on (left out where it is the next), then
/// a letter for each kind and how many (left out where it is one).
#[derive(Serialize, Deserialize)]
struct Stored {
    columns: usize,
    rows: usize,
    column_ns: u64,
    sectors: u64,
    bins: String,
}

impl From<SeekPlot> for Stored {
    fn from(plot: SeekPlot) -> Self {
        let mut next = 0;
        let mut bins = String::new();
        for bin in &plot.bins {
            let at = bin.row * COLUMNS + bin.column;
            put(&mut bins, at - next, bin.counts);
            next = at + 1;
        }
        bins.pop();
        let column_ns = plot.column.get();
        Self { columns: COLUMNS, rows: ROWS, column_ns, sectors: plot.sectors, bins }
    }
}

/// Writes a bin down, after so many that are empty.
fn put(text: &mut String, skipped: usize, counts: RequestCounts) {
    if skipped > 0 {
        let _ = write!(text, "{}", skipped + 1);
    }
    for (kind, count) in RequestKind::ALL.into_iter().zip(counts).filter(|(_, count)| *count > 0) {
        text.push(kind.letter());
        if count > 1 {
            let _ = write!(text, "{count}");
        }
    }
    text.push(' ');
}

impl TryFrom<Stored> for SeekPlot {
    type Error = String;

    fn try_from(stored: Stored) -> Result<Self, String> {
        if (stored.columns, stored.rows) != (COLUMNS, ROWS) {
            return Err(format!("a seek plot of {} x {} bins", stored.columns, stored.rows));
        }
        let mut next = 0;
        let mut bins = Vec::new();
        for word in stored.bins.split_ascii_whitespace() {
            let (on, counts) =
                take(word).ok_or_else(|| format!("'{word}' is not a bin of a seek plot"))?;
            let at = on.checked_add(next).filter(|at| (1..=COLUMNS * ROWS).contains(at));
            let at = at.ok_or_else(|| format!("'{word}' is outside of its seek plot"))? - 1;
            bins.push(Bin { column: at % COLUMNS, row: at / COLUMNS, counts });
            next = at + 1;
        }
        Ok(Self { column: Nanos::new(stored.column_ns), sectors: stored.sectors, bins })
    }
}

/// Reads a bin: how many bins on, and its counts.
fn take(word: &str) -> Option<(usize, RequestCounts)> {
    let (on, mut rest) = number(word)?;
    let mut counts = [0; 3];
    while let Some(letter) = rest.chars().next() {
        let kind = RequestKind::ALL.into_iter().find(|kind| kind.letter() == letter)?;
        let (count, after) = number(&rest[1..])?;
        counts[kind as usize] = u32::try_from(count).ok()?;
        rest = after;
    }
    (on > 0 && counts != [0; 3]).then_some((on, counts))
}

/// The number that a text begins with, one where there is none, and the rest.
fn number(text: &str) -> Option<(usize, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    Some((if digits.is_empty() { 1 } else { digits.parse().ok()? }, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECTORS: u64 = 6_400_000;

    fn ms(ms: u64) -> Nanos {
        Nanos::new(ms * 1_000_000)
    }

    #[test]
    fn nothing_is_lost_as_time_goes_on() {
        let mut plotter = Plotter::new(ms(50), 10, SECTORS);
        plotter.note(9, ms(50), 0, RequestKind::Read);
        plotter.note(10, ms(50), 0, RequestKind::Read);
        plotter.note(11, ms(50 + 3), SECTORS - 1, RequestKind::SyncWrite);
        plotter.note(12, ms(50 + 159), 100_000, RequestKind::AsyncWrite);
        let early = plotter.finish();
        assert_eq!(early.column(), ms(1));
        let bin = |column, row, counts| Bin { column, row, counts };
        assert_eq!(
            early.bins(),
            [bin(0, 0, [1, 0, 0]), bin(159, 1, [0, 0, 1]), bin(3, 63, [0, 1, 0])]
        );
        // 1,000 columns of 1 ms are 125 of 8 ms.
        plotter.note(13, ms(50 + 1000), 100_000, RequestKind::AsyncWrite);
        let late = plotter.finish();
        assert_eq!((late.column(), late.sectors()), (ms(8), SECTORS));
        assert_eq!(
            late.bins(),
            [
                bin(0, 0, [1, 0, 0]),
                bin(19, 1, [0, 0, 1]),
                bin(125, 1, [0, 0, 1]),
                bin(0, 63, [0, 1, 0])
            ]
        );
        assert_eq!(late.totals(), [1, 1, 2]);
    }

    #[test]
    fn is_written_down_and_read_again() {
        let mut plotter = Plotter::new(Nanos::ZERO, 0, SECTORS);
        for at in 0..2000 {
            let kind = RequestKind::ALL[at as usize % 3];
            plotter.note(at, ms(at * at % 100), at * 3_100 % SECTORS, kind);
        }
        let plot = plotter.finish();
        let text = serde_json::to_string(&plot).unwrap();
        assert_eq!(serde_json::from_str::<SeekPlot>(&text).unwrap(), plot);
        let mut small = Plotter::new(Nanos::ZERO, 0, SECTORS);
        for at in [0, 1, 1, 5] {
            small.note(0, ms(at), 0, RequestKind::Read);
        }
        small.note(0, ms(1), 0, RequestKind::AsyncWrite);
        assert_eq!(Stored::from(small.finish()).bins, "r r2a 4r");
    }

    #[test]
    fn what_is_no_picture_is_refused() {
        let read = |columns, bins: &str| {
            let bins = bins.into();
            SeekPlot::try_from(Stored { columns, rows: ROWS, column_ns: 1, sectors: 1, bins })
        };
        assert!(read(COLUMNS, "r 10239r").is_ok());
        for wrong in ["x", "3", "0r", "r0", "r 10240r", "rr4294967296", "99999999999999999999r"] {
            assert!(read(COLUMNS, wrong).is_err(), "{wrong}");
        }
        assert!(read(COLUMNS - 1, "r").is_err());
    }
}
