//! A boot over time as an SVG file: the load of the processor and of the disk, and the times in
//! which each process waited for the disk (after bootchart, Z. Mahkovec 2004).

use crate::axis;
use crate::table::escape;
use seekless_units::Nanos;
use std::fmt::Write;
use std::ops::Range;

/// Width of the picture and of the names at its left, in CSS pixels.
const WIDTH: f64 = 1000.0;
const LEFT: f64 = 170.0;
const FRAME: f64 = WIDTH - LEFT - 12.0;
/// Height of the title, of a graph, of a process's row, and of the scale below.
const TITLE: f64 = 26.0;
const GRAPH: f64 = 54.0;
const ROW: f64 = 14.0;
const SCALE: f64 = 34.0;
/// Columns of a graph.
const COLUMNS: usize = 400;
/// Maximum number of rows; those that waited longest are shown.
const ROWS: usize = 60;
/// Maximum number of characters of a name.
const NAME: usize = 24;

const STYLE: &str = "text{font:11px sans-serif;fill:#1c2330}.e{text-anchor:end}.m{text-anchor:middle}\
.g{stroke:#d8dce3;fill:none}.c{fill:#7fb069}.d{fill:#2f55d4}.l{fill:#e8ebf0}.r{fill:#a9cf97}.w{fill:#d0263f}";

/// A process.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Process {
    /// Its name.
    pub name: String,
    /// When it worked, or waited for something other than the disk.
    pub runs: Vec<Range<Nanos>>,
    /// When it waited for the disk.
    pub waits: Vec<Range<Nanos>>,
}

impl Process {
    fn all(&self) -> impl Iterator<Item = &Range<Nanos>> {
        self.runs.iter().chain(&self.waits)
    }

    fn first(&self) -> Nanos {
        self.all().map(|span| span.start).min().unwrap_or_default()
    }

    fn waited(&self) -> u64 {
        joined(self.waits.iter()).iter().map(length).sum()
    }
}

/// The processes of a boot over time, from its cold start.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BootChart {
    /// Subject of the picture.
    pub title: String,
    /// Its length.
    pub total: Nanos,
    /// In any order.
    pub processes: Vec<Process>,
}

impl BootChart {
    /// The picture: a graph of the share of each moment in which a process worked, one of the share
    /// in which the disk did, and a row for each process, in order of their beginnings. Of more
    /// than 60 processes, those that waited longest are shown; a note says how many are left out.
    ///
    /// ```
    /// use seekless_report::bootchart::{BootChart, Process};
    /// use seekless_units::Nanos;
    ///
    /// let at = |ms: u64| Nanos::new(ms * 1_000_000);
    /// let init = Process { name: "init".into(), runs: vec![at(0)..at(30)], waits: vec![at(30)..at(90)] };
    /// let chart = BootChart { title: "disk.img".into(), total: at(90), processes: vec![init] };
    /// let svg = chart.svg();
    /// assert!(svg.starts_with("<svg ") && svg.contains("init: waited 60 ms for the disk"));
    /// ```
    #[must_use]
    pub fn svg(&self) -> String {
        let mut shown: Vec<&Process> = self.processes.iter().collect();
        shown.sort_by_cached_key(|process| (u64::MAX - process.waited(), process.first()));
        let hidden = shown.split_off(shown.len().min(ROWS));
        shown.sort_by_cached_key(|process| process.first());
        let rows = shown.len() as f64 * ROW + if hidden.is_empty() { 0.0 } else { ROW };
        let bottom = TITLE + 2.0 * GRAPH + rows + 6.0;
        let height = bottom + SCALE;
        let title = escape(&self.title);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
             aria-label=\"{title}\">\n<style>{STYLE}</style>\n<rect width=\"{WIDTH}\" \
             height=\"{height}\" fill=\"#fff\"/>\n<text x=\"8\" y=\"17\">{title}</text>\n"
        );
        self.scale(bottom, &mut svg);
        let graphs = [
            ("processor", "c", joined(self.processes.iter().flat_map(|process| &process.runs))),
            ("disk", "d", joined(self.processes.iter().flat_map(|process| &process.waits))),
        ];
        let mut top = TITLE;
        for (name, class, spans) in graphs {
            self.graph((name, class), &spans, top, &mut svg);
            top += GRAPH;
        }
        for process in shown {
            self.row(process, top, &mut svg);
            top += ROW;
        }
        if !hidden.is_empty() {
            let waited: u64 = hidden.iter().map(|process| process.waited()).sum();
            let (count, y) = (hidden.len(), top + ROW - 3.0);
            let _ = writeln!(
                svg,
                "<text x=\"{LEFT}\" y=\"{y}\">and {count} more, which waited {} ms</text>",
                waited / 1_000_000
            );
        }
        svg.push_str("</svg>\n");
        svg
    }

    fn x(&self, at: Nanos) -> f64 {
        LEFT + at.get().min(self.total.get()) as f64 / self.total.get().max(1) as f64 * FRAME
    }

    fn scale(&self, bottom: f64, svg: &mut String) {
        let seconds = self.total.get() as f64 / 1e9;
        for tick in axis::ticks(seconds, 10) {
            let x = LEFT + tick / seconds.max(1e-9) * FRAME;
            let y = bottom + 14.0;
            let _ = writeln!(
                svg,
                "<path class=\"g\" d=\"M{x:.1} {TITLE}V{bottom}\"/><text class=\"m\" x=\"{x:.1}\" \
                 y=\"{y}\">{tick}</text>"
            );
        }
        let y = bottom + 28.0;
        let _ = writeln!(
            svg,
            "<text x=\"{LEFT}\" y=\"{y}\">seconds; green: works or waits for something else; red: \
             waits for the disk</text>"
        );
    }

    /// The share of each column that the spans cover.
    fn shares(&self, spans: &[Range<Nanos>]) -> Vec<f64> {
        let column = (self.total.get() as f64 / COLUMNS as f64).max(1.0);
        let mut shares = vec![0.0; COLUMNS];
        for span in spans {
            let (from, to) = (span.start.get() as f64 / column, span.end.get() as f64 / column);
            let last = (to.ceil() as usize).min(COLUMNS);
            for (at, share) in shares.iter_mut().enumerate().take(last).skip(from as usize) {
                *share += (to.min(at as f64 + 1.0) - from.max(at as f64)).max(0.0);
            }
        }
        shares
    }

    fn graph(
        &self,
        (name, class): (&str, &str),
        spans: &[Range<Nanos>],
        top: f64,
        svg: &mut String,
    ) {
        let base = top + GRAPH - 8.0;
        let (up, across) = (GRAPH - 14.0, FRAME / COLUMNS as f64);
        let worked = spans.iter().map(length).sum::<u64>() as f64 / 1e9;
        let mut line = format!("M{LEFT} {base}");
        for (at, share) in self.shares(spans).into_iter().enumerate() {
            let (x, y) = (LEFT + at as f64 * across, base - share.min(1.0) * up);
            let _ = write!(line, "L{x:.1} {y:.1}H{:.1}", x + across);
        }
        let (right, middle) = (LEFT + FRAME, base - up / 2.0);
        let _ = writeln!(
            svg,
            "<path class=\"{class}\" d=\"{line}V{base}Z\"/><path class=\"g\" d=\"M{LEFT} \
             {base}H{right}\"/><text class=\"e\" x=\"{}\" y=\"{middle:.1}\">{name}, {worked:.2} s</text>",
            LEFT - 6.0
        );
    }

    fn row(&self, process: &Process, top: f64, svg: &mut String) {
        let name: String = process.name.chars().take(NAME).collect();
        let end = process.all().map(|span| span.end).max().unwrap_or_default();
        let (from, to) = (self.x(process.first()), self.x(end));
        let (y, high, text) = (top + 2.0, ROW - 4.0, top + ROW - 3.0);
        let _ = write!(
            svg,
            "<g><title>{}: waited {} ms for the disk</title><text class=\"e\" x=\"{}\" y=\"{text}\">{}\
             </text><rect class=\"l\" x=\"{from:.1}\" y=\"{y}\" width=\"{:.1}\" height=\"{high}\"/>",
            escape(&process.name),
            process.waited() / 1_000_000,
            LEFT - 6.0,
            escape(&name),
            (to - from).max(0.5)
        );
        for (class, spans) in [("r", &process.runs), ("w", &process.waits)] {
            let mut line = String::new();
            for span in self.visible(spans) {
                let (from, to) = (self.x(span.start), self.x(span.end));
                let wide = (to - from).max(0.1);
                let _ = write!(line, "M{from:.1} {y}h{wide:.1}v{high}h-{wide:.1}z");
            }
            if !line.is_empty() {
                let _ = write!(svg, "<path class=\"{class}\" d=\"{line}\"/>");
            }
        }
        svg.push_str("</g>\n");
    }

    /// Spans joined where less than a tenth of a pixel lies between them.
    fn visible(&self, spans: &[Range<Nanos>]) -> Vec<Range<Nanos>> {
        let pixel = self.total.get() as f64 / FRAME / 10.0;
        let mut all: Vec<Range<Nanos>> = Vec::new();
        for span in joined(spans.iter()) {
            match all.last_mut() {
                Some(last) if span.start.saturating_since(last.end) as f64 <= pixel => {
                    last.end = span.end;
                }
                _ => all.push(span),
            }
        }
        all
    }
}

fn length(span: &Range<Nanos>) -> u64 {
    span.end.saturating_since(span.start)
}

/// Spans in order, those that meet or overlap joined.
fn joined<'a>(spans: impl Iterator<Item = &'a Range<Nanos>>) -> Vec<Range<Nanos>> {
    let mut spans: Vec<Range<Nanos>> = spans.cloned().collect();
    spans.sort_by_key(|span| span.start);
    let mut all: Vec<Range<Nanos>> = Vec::new();
    for span in spans {
        match all.last_mut() {
            Some(last) if span.start <= last.end => last.end = last.end.max(span.end),
            _ => all.push(span),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Nanos {
        Nanos::new(ms * 1_000_000)
    }

    fn process(name: &str, runs: &[(u64, u64)], waits: &[(u64, u64)]) -> Process {
        let spans = |all: &[(u64, u64)]| all.iter().map(|&(from, to)| at(from)..at(to)).collect();
        Process { name: name.into(), runs: spans(runs), waits: spans(waits) }
    }

    #[test]
    fn shares_are_of_columns_and_overlaps_count_once() {
        let chart = BootChart { total: at(400), ..BootChart::default() };
        let spans = [at(0)..at(2), at(1)..at(2), at(10)..at(10), at(399)..at(400)];
        let shares = chart.shares(&joined(spans.iter()));
        assert_eq!(&shares[..3], [1.0, 1.0, 0.0]);
        assert_eq!(shares[399], 1.0);
        assert!((shares.iter().sum::<f64>() - 3.0).abs() < 1e-9);
        let half = chart.shares(&[Nanos::new(2_500_000)..Nanos::new(3_250_000)]);
        assert_eq!((half[2], half[3]), (0.5, 0.25));
    }

    #[test]
    fn rows_are_in_order_and_names_are_escaped() {
        let processes = vec![
            process("late", &[(50, 60)], &[(60, 100)]),
            process("<first>\u{1}", &[(0, 10)], &[(10, 20), (15, 50)]),
        ];
        let svg = BootChart { title: "a & b".into(), total: at(100), processes }.svg();
        assert!(
            svg.contains("&lt;first&gt;\u{fffd}: waited 40 ms") && svg.contains("a &amp; b"),
            "{svg}"
        );
        assert!(svg.find("&lt;first&gt;").unwrap() < svg.find("late").unwrap());
        assert!(svg.contains("disk, 0.08 s") && svg.contains("processor, 0.02 s"), "{svg}");
        // 10 to 50 ms of 100, in 818 pixels from 170 on.
        assert!(svg.contains("class=\"w\" d=\"M251.8 136h327.2v10h-327.2z\""), "{svg}");
    }

    #[test]
    fn what_waited_least_is_left_out() {
        let all = (0..70).map(|n| process(&format!("p{n}."), &[], &[(n, n + n + 1)])).collect();
        let svg = BootChart { title: String::new(), total: at(200), processes: all }.svg();
        assert!(svg.contains(">p69.<") && svg.contains(">p10.<") && !svg.contains(">p9.<"));
        assert!(svg.contains("and 10 more, which waited 55 ms"), "{svg}");
    }

    #[test]
    fn nothing_is_a_picture_too() {
        assert!(BootChart::default().svg().ends_with("</svg>\n"));
    }
}
