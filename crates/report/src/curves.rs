//! Figures that change over a run, as curves: an SVG, a page, a line of text.

use crate::table::{Table, escape};
use std::fmt::Write;

const STYLE: &str = include_str!("page.css");
/// The drawing, and in it the place of the curves.
const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = 740.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 250.0;
/// Colours of the curves, that can be told apart on white and on black.
const COLOURS: [&str; 6] = ["#4660c9", "#d0433f", "#1f9d57", "#b05a00", "#8b3fd1", "#667085"];

/// A curve.
#[derive(Clone, PartialEq, Debug)]
pub struct Curve {
    /// What it is of.
    pub label: String,
    /// Points, from left to right.
    pub points: Vec<(f64, f64)>,
}

/// Curves over one axis.
#[derive(Clone, PartialEq, Debug)]
pub struct Chart {
    /// The heading.
    pub title: String,
    /// What the axis below is of, and in which unit.
    pub across: String,
    /// Lowest and highest value that there is room for; of the curves when
    /// `None`.
    pub range: Option<(f64, f64)>,
    /// The curves.
    pub curves: Vec<Curve>,
}

/// A page of charts and tables, each table with its heading, that needs nothing
/// else.
#[must_use]
pub fn html(title: &str, subtitle: &str, charts: &[Chart], tables: &[(String, Table)]) -> String {
    let title = escape(title);
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<header>\n\
         <h1>{title}</h1>\n<p>{}</p>\n</header>\n",
        escape(subtitle)
    );
    for chart in charts {
        let _ = writeln!(
            html,
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\" \
             style=\"max-width:{WIDTH}px;width:100%;font-size:12px;display:block\">",
            escape(&chart.title)
        );
        draw(chart, ("var(--text)", "var(--line)"), &mut html);
        html.push_str("</svg>\n");
    }
    html.push_str("<div class=\"tables\">\n");
    for (title, table) in tables {
        let _ = write!(html, "<section><h2>{}</h2>\n{}</section>\n", escape(title), table.html());
    }
    html.push_str("</div>\n</body>\n</html>\n");
    html
}

/// Charts below each other, as one SVG of its own.
#[must_use]
pub fn svg(charts: &[Chart]) -> String {
    let height = HEIGHT * charts.len() as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"white\"/>\n"
    );
    for (at, chart) in charts.iter().enumerate() {
        let _ = writeln!(svg, "<g transform=\"translate(0 {})\">", HEIGHT * at as f64);
        draw(chart, ("#1c2330", "#d6dbe3"), &mut svg);
        svg.push_str("</g>\n");
    }
    svg.push_str("</svg>\n");
    svg
}

/// Values as a line of text, each by the height of a block; one from the lowest
/// to the highest of all.
#[must_use]
pub fn sparkline(values: &[f64], width: usize) -> String {
    const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let Some((low, high)) = bounds(values.iter().copied()) else { return String::new() };
    let width = width.min(values.len());
    let at = |column: usize| values[column * (values.len() - 1) / width.saturating_sub(1).max(1)];
    let block = |value: f64| {
        let share = if high > low { (value - low) / (high - low) } else { 0.0 };
        BLOCKS[((share * 8.0) as usize).min(7)]
    };
    (0..width).map(|column| block(at(column))).collect()
}

fn bounds(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let finite = values.filter(|value| value.is_finite());
    finite.fold(None, |bounds: Option<(f64, f64)>, value| {
        let (low, high) = bounds.unwrap_or((value, value));
        Some((low.min(value), high.max(value)))
    })
}

/// An axis: what it begins and ends with, and how far its marks are apart.
struct Axis {
    low: f64,
    high: f64,
    step: f64,
}

impl Axis {
    /// One that has room for all values, and begins and ends with a mark.
    fn new((low, high): (f64, f64), marks: f64) -> Self {
        let span = if high > low { high - low } else { high.abs().max(1.0) };
        let rough = span / marks;
        let power = 10f64.powf(rough.log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|n| n * power);
        let step = steps.into_iter().find(|step| *step >= rough * 0.999).unwrap_or(rough);
        let low = (low / step + 1e-9).floor() * step;
        let high = (high / step - 1e-9).ceil() * step;
        Self { low, high: if high > low { high } else { low + step }, step }
    }

    fn share(&self, value: f64) -> f64 {
        ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }

    fn marks(&self) -> impl Iterator<Item = f64> {
        let count = ((self.high - self.low) / self.step).round() as u32;
        (0..=count).map(|n| self.low + f64::from(n) * self.step)
    }

    /// A mark's value, with as many digits as tell marks apart.
    fn text(&self, value: f64) -> String {
        let digits = (-self.step.log10().floor()).clamp(0.0, 6.0) as usize;
        format!("{value:.digits$}")
    }
}

/// Two axes, and where they are drawn.
struct Frame {
    across: Axis,
    up: Axis,
}

impl Frame {
    /// One that has room for a chart's curves; `None` when there is nothing in
    /// them.
    fn of(chart: &Chart) -> Option<Self> {
        let all = || chart.curves.iter().flat_map(|curve| curve.points.iter());
        let across = bounds(all().map(|point| point.0))?;
        let up = bounds(all().map(|point| point.1))?;
        let up = chart.range.unwrap_or(up);
        Some(Self { across: Axis::new(across, 6.0), up: Axis::new(up, 5.0) })
    }

    fn x(&self, value: f64) -> f64 {
        LEFT + self.across.share(value) * (RIGHT - LEFT)
    }

    fn y(&self, value: f64) -> f64 {
        BOTTOM - self.up.share(value) * (BOTTOM - TOP)
    }

    fn draw(&self, chart: &Chart, (text, line): (&str, &str), svg: &mut String) {
        for mark in self.up.marks() {
            let (at, label) = (self.y(mark), self.up.text(mark));
            let _ = writeln!(
                svg,
                "<path d=\"M{LEFT} {at:.1}H{RIGHT}\" stroke=\"{line}\"/>\
                 <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"{text}\">{label}</text>",
                LEFT - 6.0,
                at + 4.0
            );
        }
        let mut below = |at: f64, under: f64, label: &str| {
            let _ = writeln!(
                svg,
                "<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\" fill=\"{text}\">{label}</text>",
                BOTTOM + under
            );
        };
        for mark in self.across.marks() {
            below(self.x(mark), 16.0, &self.across.text(mark));
        }
        below((LEFT + RIGHT) / 2.0, 34.0, &escape(&chart.across));
    }
}

fn draw(chart: &Chart, colours: (&str, &str), svg: &mut String) {
    let _ = writeln!(
        svg,
        "<text x=\"{LEFT}\" y=\"18\" fill=\"{}\" font-weight=\"bold\">{}</text>",
        colours.0,
        escape(&chart.title)
    );
    let Some(frame) = Frame::of(chart) else { return };
    frame.draw(chart, colours, svg);
    for (at, (curve, colour)) in chart.curves.iter().zip(COLOURS.iter().cycle()).enumerate() {
        let point = |&(a, b): &(f64, f64)| format!("{:.1},{:.1}", frame.x(a), frame.y(b));
        let points: Vec<String> = curve.points.iter().map(point).collect();
        let label = escape(&curve.label);
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.8\">\
             <title>{label}</title></polyline>\
             <text x=\"{RIGHT}\" y=\"{}\" text-anchor=\"end\" fill=\"{colour}\">{label}</text>",
            points.join(" "),
            TOP + 14.0 + 15.0 * at as f64
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(points: &[(f64, f64)]) -> Chart {
        let curves = vec![Curve { label: "a<b".into(), points: points.to_vec() }];
        Chart { title: "<t>".into(), across: "operations".into(), range: Some((0.0, 1.0)), curves }
    }

    #[test]
    fn points_lie_where_the_axes_say() {
        let svg = svg(&[chart(&[(0.0, 0.0), (600.0, 0.5), (1200.0, 1.0)])]);
        assert!(svg.contains("points=\"56.0,250.0 398.0,142.0 740.0,34.0\""), "{svg}");
        assert!(svg.contains("a&lt;b") && svg.contains("&lt;t&gt;") && !svg.contains("<t>"));
        assert!(svg.contains(">0.8</text>") && svg.contains(">1200</text>"), "{svg}");
        let page = html("x", "s", &[chart(&[(0.0, 0.5)])], &[]);
        assert!(page.contains("<svg") && page.contains("a&lt;b"));
    }

    #[test]
    fn nothing_to_draw_draws_nothing() {
        assert!(!svg(&[chart(&[])]).contains("polyline"));
        let flat = svg(&[Chart { range: None, ..chart(&[(1.0, 3.0), (2.0, 3.0)]) }]);
        assert!(flat.contains("polyline") && !flat.contains("NaN"), "{flat}");
        assert_eq!(sparkline(&[], 10), "");
    }

    #[test]
    fn a_sparkline_goes_from_the_lowest_to_the_highest() {
        assert_eq!(sparkline(&[0.0, 1.0, 2.0], 10), "▁▅█");
        assert_eq!(sparkline(&[5.0], 10), "▁");
        let many: Vec<f64> = (0..100).map(f64::from).collect();
        assert_eq!(sparkline(&many, 8), "▁▂▃▄▅▆▇█");
    }
}
