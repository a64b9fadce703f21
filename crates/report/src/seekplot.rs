//! Locations of requests on a disk over time: pictures side by side on the same scales, as SVG for
//! an HTML page, with colours from its style.

use crate::axis;
use crate::table::{escape, grouped};
use seekless_units::{ByteLen, Nanos};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Size of one picture, in CSS pixels, and the frame within.
const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 286.0;
const LEFT: f64 = 46.0;
const TOP: f64 = 8.0;
const FRAME: (f64, f64) = (WIDTH - LEFT - 10.0, HEIGHT - TOP - 36.0);
/// A picture this many times shorter than the longest is drawn again, wider.
const NARROW: f64 = 4.0;
/// Kinds of requests, in the order of their counts: name in the style, and name for people.
const KINDS: [(&str, &str); 3] =
    [("r", "reads"), ("s", "synchronous writes"), ("a", "asynchronous writes")];
/// Minimum numbers of requests for each level of darkness.
const LEVELS: [u64; 4] = [1, 2, 10, 100];

/// Requests in one column of time and row of location: reads, synchronous and asynchronous writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bin {
    /// Number of the column, from 0.
    pub column: u32,
    /// Number of the row, from 0 at the start of the disk.
    pub row: u32,
    /// Number of requests, by kind.
    pub counts: [u64; 3],
}

/// The requests of one measurement.
#[derive(Clone, PartialEq, Debug)]
pub struct Plot {
    /// The subject.
    pub label: String,
    /// A note beside it.
    pub note: String,
    /// Duration of a column.
    pub column: Nanos,
    /// Number of rows of the disk.
    pub rows: u32,
    /// Size of the disk.
    pub disk: ByteLen,
    /// Time at which the commands that caused the requests ended.
    pub commands: Nanos,
    /// Row after row; no cell twice.
    pub bins: Vec<Bin>,
}

impl Plot {
    /// The same plot with this many columns and rows merged.
    fn coarser(&self, columns: u32, rows: u32) -> Self {
        let mut bins: BTreeMap<(u32, u32), [u64; 3]> = BTreeMap::new();
        for bin in &self.bins {
            let sum = bins.entry((bin.row / rows, bin.column / columns)).or_default();
            *sum = [0, 1, 2].map(|kind| sum[kind] + bin.counts[kind]);
        }
        let bin = |((row, column), counts)| Bin { column, row, counts };
        Self {
            column: Nanos::new(self.column.get() * u64::from(columns)),
            rows: self.rows.div_ceil(rows),
            bins: bins.into_iter().map(bin).collect(),
            ..self.clone()
        }
    }

    /// End of the last column or of the commands, in seconds.
    fn seconds(&self) -> f64 {
        let columns = self.bins.iter().map(|bin| bin.column + 1).max().unwrap_or(0);
        let end = self.column.get() * u64::from(columns);
        end.max(self.commands.get()) as f64 / 1e9
    }

    fn totals(&self) -> [u64; 3] {
        [0, 1, 2].map(|kind| self.bins.iter().map(|bin| bin.counts[kind]).sum())
    }
}

/// Pictures of the same disk side by side, on the same scales. A picture that would be too narrow
/// is added again, on a scale of its own. Each is `coarse` times coarser than possible.
#[must_use]
pub fn side_by_side(plots: &[Plot], coarse: u32) -> String {
    let longest = plots.iter().map(Plot::seconds).fold(0.0, f64::max);
    let widest = plots.iter().map(|plot| plot.column.get()).max().unwrap_or(1);
    let coarse = coarse.max(1);
    let mut html = String::from("<div class=\"seekplots\">\n");
    for plot in plots {
        let columns = (widest / plot.column.get().max(1)).max(1);
        let columns = u32::try_from(columns).unwrap_or(u32::MAX) * coarse;
        figure(&plot.coarser(columns, coarse), longest, &plot.note, &mut html);
    }
    for plot in plots.iter().filter(|plot| plot.seconds() * NARROW < longest) {
        let wider = longest / plot.seconds();
        let note = format!("the same, {wider:.0} times as wide");
        figure(&plot.coarser(coarse, coarse), plot.seconds(), &note, &mut html);
    }
    html.push_str("</div>\n");
    html
}

/// Explanation of colours and darkness.
#[must_use]
pub fn legend() -> String {
    let mut html = String::from("<p class=\"legend\">");
    for (class, name) in KINDS {
        let _ = write!(html, "<span><i class=\"io-{class}\"></i>{name}</span>");
    }
    html.push_str("<span>paler: fewer requests (1, 2, 10, 100 and more)</span>");
    html.push_str("<span><i class=\"io-end\"></i>end of the commands; remaining data is written later</span></p>\n");
    html
}

fn figure(plot: &Plot, seconds: f64, note: &str, html: &mut String) {
    let [reads, sync, later] = plot.totals().map(grouped);
    let says = format!("{reads} reads, {sync} synchronous writes, {later} asynchronous");
    let _ = write!(
        html,
        "<figure><figcaption><b>{label}</b> {note}</figcaption>\n\
         <svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{label}: {says}\">\n",
        label = escape(&plot.label),
        note = escape(note),
    );
    axes(plot, seconds, html);
    let columns = seconds * 1e9 / plot.column.get().max(1) as f64;
    let (across, up) = (FRAME.0 / columns.max(1e-9), FRAME.1 / f64::from(plot.rows.max(1)));
    let _ = writeln!(html, "<g transform=\"translate({LEFT} {TOP})scale({across:.5} {up:.5})\">");
    paths(plot, html);
    html.push_str("</g>\n");
    end_of_commands(plot, seconds, html);
    hints(plot, across, html);
    html.push_str("</svg></figure>\n");
}

fn axes(plot: &Plot, seconds: f64, html: &mut String) {
    let (right, bottom) = (LEFT + FRAME.0, TOP + FRAME.1);
    let (unit, size) = axis::size_unit(plot.disk);
    let mut lines = String::new();
    for tick in axis::ticks(seconds, 6) {
        let x = LEFT + tick / seconds.max(1e-9) * FRAME.0;
        let _ = write!(lines, "M{x:.1} {TOP}V{bottom}");
        let y = bottom + 15.0;
        let _ = write!(html, "<text x=\"{x:.1}\" y=\"{y}\" class=\"mid\">{tick}</text>");
    }
    for tick in axis::ticks(size, 4) {
        let y = bottom - tick / size.max(1e-9) * FRAME.1;
        let _ = write!(lines, "M{LEFT} {y:.1}H{right}");
        let (x, y) = (LEFT - 6.0, y + 4.0);
        let _ = write!(html, "<text x=\"{x}\" y=\"{y:.1}\" class=\"end\">{tick}</text>");
    }
    let (middle, below) = (LEFT + FRAME.0 / 2.0, bottom + 31.0);
    let _ = writeln!(
        html,
        "<path class=\"rule\" d=\"{lines}\"/>\
         <text x=\"{middle}\" y=\"{below}\" class=\"mid\">seconds; upwards: place on the disk, {unit}</text>"
    );
}

/// Cells of equal appearance, by kind, darkness and number of kinds in a bin.
type Looks = BTreeMap<(usize, usize, usize), Vec<(u32, usize, u32)>>;

/// Draws bins as lines: neighbours of equal appearance are joined. A bin with several kinds is
/// divided among them.
fn paths(plot: &Plot, html: &mut String) {
    let mut looks = Looks::new();
    for bin in &plot.bins {
        let some = || (0..3).filter(|kind| bin.counts[*kind] > 0);
        let kinds = some().count();
        for (slice, kind) in some().enumerate() {
            let level = LEVELS.iter().filter(|from| **from <= bin.counts[kind]).count();
            looks.entry((kinds, kind, level)).or_default().push((bin.row, slice, bin.column));
        }
    }
    for ((kinds, kind, level), mut places) in looks {
        places.sort_unstable();
        let class = KINDS[kind].0;
        let lines = lines(&places, kinds, plot.rows);
        let _ = writeln!(html, "<path class=\"io-{class} n{kinds} l{level}\" d=\"{lines}\"/>");
    }
}

/// Sorted cells as the lines of a path.
fn lines(places: &[(u32, usize, u32)], kinds: usize, rows: u32) -> String {
    let mut text = String::new();
    let mut pen = None;
    let stretches = places.chunk_by(|a, b| (a.0, a.1, a.2 + 1) == (b.0, b.1, b.2));
    for stretch in stretches {
        let ((row, slice, column), len) = (stretch[0], stretch.len() as u32);
        match pen {
            Some((r, s, at)) if (r, s) == (row, slice) => {
                let _ = write!(text, "m{} 0h{len}", column - at);
            }
            _ => {
                let y =
                    f64::from(rows.saturating_sub(row + 1)) + (slice as f64 + 0.5) / kinds as f64;
                let _ = write!(text, "M{column} {}h{len}", (y * 100.0).round() / 100.0);
            }
        }
        pen = Some((row, slice, column + len));
    }
    text
}

fn end_of_commands(plot: &Plot, seconds: f64, html: &mut String) {
    let end = plot.commands.get() as f64 / 1e9;
    let (x, bottom) = (LEFT + end / seconds.max(1e-9) * FRAME.0, TOP + FRAME.1);
    let _ = writeln!(html, "<path class=\"io-end\" d=\"M{x:.1} {TOP}V{bottom}\"/>");
}

/// The contents of each column, as tooltips.
fn hints(plot: &Plot, across: f64, html: &mut String) {
    let mut columns: BTreeMap<u32, (u32, u32, [u64; 3])> = BTreeMap::new();
    for bin in &plot.bins {
        let (low, high, sum) = columns.entry(bin.column).or_insert((bin.row, bin.row, [0; 3]));
        (*low, *high) = ((*low).min(bin.row), (*high).max(bin.row));
        *sum = [0, 1, 2].map(|kind| sum[kind] + bin.counts[kind]);
    }
    let (unit, size) = axis::size_unit(plot.disk);
    let place = |row: u32| size * f64::from(row) / f64::from(plot.rows.max(1));
    let second = |column: u32| f64::from(column) * plot.column.get() as f64 / 1e9;
    html.push_str("<g class=\"hints\">");
    for (column, (low, high, counts)) in columns {
        let x = LEFT + f64::from(column) * across;
        let says: Vec<String> = KINDS
            .iter()
            .zip(counts)
            .filter(|(_, count)| *count > 0)
            .map(|((_, name), count)| format!("{} {name}", grouped(count)))
            .collect();
        let _ = write!(
            html,
            "<rect x=\"{x:.1}\" y=\"{TOP}\" width=\"{across:.2}\" height=\"{}\"><title>{:.3}-{:.3} s: {}; {:.1}-{:.1} {unit}</title></rect>",
            FRAME.1,
            second(column),
            second(column + 1),
            says.join(", "),
            place(low),
            place(high + 1)
        );
    }
    html.push_str("</g>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(label: &str, column_ms: u64, bins: &[(u32, u32, [u64; 3])]) -> Plot {
        let bin = |&(column, row, counts): &(u32, u32, [u64; 3])| Bin { column, row, counts };
        Plot {
            label: label.into(),
            note: "n".into(),
            column: Nanos::new(column_ms * 1_000_000),
            rows: 4,
            disk: ByteLen::new(8 << 30),
            commands: Nanos::new(500_000_000),
            bins: bins.iter().map(bin).collect(),
        }
    }

    #[test]
    fn neighbours_that_look_the_same_are_one_line() {
        let bins = [(0, 0, [1, 0, 0]), (1, 0, [1, 0, 0]), (5, 0, [1, 0, 0]), (2, 3, [2, 0, 500])];
        let mut html = String::new();
        paths(&plot("p", 1, &bins), &mut html);
        assert_eq!(
            html,
            "<path class=\"io-r n1 l1\" d=\"M0 3.5h2m3 0h1\"/>\n\
             <path class=\"io-r n2 l2\" d=\"M2 0.25h1\"/>\n\
             <path class=\"io-a n2 l4\" d=\"M2 0.75h1\"/>\n"
        );
    }

    #[test]
    fn nothing_is_lost_when_it_is_drawn_coarser() {
        let fine = plot("p", 1, &[(0, 0, [1, 2, 3]), (1, 1, [1, 0, 0]), (2, 0, [0, 0, 7])]);
        let coarse = fine.coarser(2, 2);
        assert_eq!(coarse.totals(), fine.totals());
        assert_eq!((coarse.column, coarse.rows, coarse.bins.len()), (Nanos::new(2_000_000), 2, 2));
        assert_eq!(coarse.bins[0], Bin { column: 0, row: 0, counts: [2, 2, 3] });
    }

    #[test]
    fn looks_as_it_did() {
        let old = plot("old-dirpref", 8, &[(0, 0, [3, 0, 0]), (7, 2, [0, 40, 1]), (70, 3, [1; 3])]);
        let new = plot("orlov", 4, &[(2, 1, [0, 0, 200]), (3, 1, [0, 0, 150])]);
        insta::assert_snapshot!(side_by_side(&[old, new], 1));
    }

    #[test]
    fn a_short_one_is_there_once_more() {
        let long = plot("<old>", 64, &[(99, 0, [1, 0, 0])]);
        let short = plot("new", 4, &[(140, 3, [0, 1, 0])]);
        let html = side_by_side(&[long, short], 1);
        assert_eq!(html.matches("<figure>").count(), 3, "{html}");
        assert!(html.contains("&lt;old&gt;") && html.contains("11 times as wide"), "{html}");
        // 140 columns of 4 ms are the ninth of 64 ms.
        assert!(html.contains("class=\"io-s n1 l1\" d=\"M8 0.5h1\""), "{html}");
        assert!(html.contains("0.512-0.576 s: 1 synchronous writes; 6.0-8.0 GiB"), "{html}");
    }
}
