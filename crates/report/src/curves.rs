//! Figures that change over a run, as curves: an SVG, a part of an HTML page, a line of text.

use crate::axis::ticks;
use crate::table::escape;
use std::fmt::Write;

/// The size of the drawing, and the frame of the curves in it.
const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = 740.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 250.0;
/// Colours of the curves, distinguishable on white and on black.
const COLOURS: [&str; 6] = ["#4660c9", "#d0433f", "#1f9d57", "#b05a00", "#8b3fd1", "#667085"];

/// A curve.
#[derive(Clone, PartialEq, Debug)]
pub struct Curve {
    /// The subject.
    pub label: String,
    /// Points, from left to right.
    pub points: Vec<(f64, f64)>,
}

/// Curves over one axis.
#[derive(Clone, PartialEq, Debug)]
pub struct Chart {
    /// The heading.
    pub title: String,
    /// Subject and unit of the horizontal axis.
    pub across: String,
    /// The highest value on the vertical axis; that of the curves if `None`. The lowest is zero.
    pub most: Option<f64>,
    /// The curves.
    pub curves: Vec<Curve>,
}

/// A chart as a part of an HTML page.
#[must_use]
pub fn html(chart: &Chart) -> String {
    let title = escape(&chart.title);
    let mut html = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title}\" \
         style=\"max-width:{WIDTH}px;width:100%;font-size:12px;display:block\">\n"
    );
    draw(chart, ("var(--text)", "var(--line)"), &mut html);
    html.push_str("</svg>\n");
    html
}

/// Charts below each other, as one standalone SVG.
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

/// Values as a line of text, each as a block whose height is scaled from the lowest to the highest
/// value.
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

/// Maxima of both axes, which begin at zero.
struct Frame {
    across: f64,
    up: f64,
}

impl Frame {
    /// A frame for a chart's curves; `None` if they have no points.
    fn of(chart: &Chart) -> Option<Self> {
        let all = || chart.curves.iter().flat_map(|curve| curve.points.iter());
        let (_, across) = bounds(all().map(|point| point.0))?;
        let (_, up) = bounds(all().map(|point| point.1))?;
        let above = |most: f64| if most > 0.0 { most } else { 1.0 };
        Some(Self { across: above(across), up: above(chart.most.unwrap_or(up)) })
    }

    fn x(&self, value: f64) -> f64 {
        LEFT + (value / self.across).clamp(0.0, 1.0) * (RIGHT - LEFT)
    }

    fn y(&self, value: f64) -> f64 {
        BOTTOM - (value / self.up).clamp(0.0, 1.0) * (BOTTOM - TOP)
    }

    fn draw(&self, chart: &Chart, (text, line): (&str, &str), svg: &mut String) {
        for mark in ticks(self.up, 5) {
            let at = self.y(mark);
            let _ = writeln!(
                svg,
                "<path d=\"M{LEFT} {at:.1}H{RIGHT}\" stroke=\"{line}\"/>\
                 <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"{text}\">{mark}</text>",
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
        for mark in ticks(self.across, 6) {
            below(self.x(mark), 16.0, &mark.to_string());
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
    // Beside the title, where there are no curves.
    let mut legend = format!("<text x=\"{RIGHT}\" y=\"18\" text-anchor=\"end\">");
    for (curve, colour) in chart.curves.iter().zip(COLOURS.iter().cycle()) {
        let point = |&(a, b): &(f64, f64)| format!("{:.1},{:.1}", frame.x(a), frame.y(b));
        let points: Vec<String> = curve.points.iter().map(point).collect();
        let label = escape(&curve.label);
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.8\">\
             <title>{label}</title></polyline>",
            points.join(" ")
        );
        let _ = write!(legend, "<tspan dx=\"14\" fill=\"{colour}\">{label}</tspan>");
    }
    let _ = writeln!(svg, "{legend}</text>");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(points: &[(f64, f64)]) -> Chart {
        let curves = vec![Curve { label: "a<b".into(), points: points.to_vec() }];
        Chart { title: "<t>".into(), across: "operations".into(), most: Some(1.0), curves }
    }

    #[test]
    fn points_lie_where_the_axes_say() {
        let svg = svg(&[chart(&[(0.0, 0.0), (600.0, 0.5), (1200.0, 1.0)])]);
        assert!(svg.contains("points=\"56.0,250.0 398.0,142.0 740.0,34.0\""), "{svg}");
        assert!(svg.contains("a&lt;b") && svg.contains("&lt;t&gt;") && !svg.contains("<t>"));
        assert!(svg.contains(">0.8</text>") && svg.contains(">1200</text>"), "{svg}");
        let part = html(&chart(&[(0.0, 0.5)]));
        assert!(part.contains("aria-label=\"&lt;t&gt;\"") && part.contains("a&lt;b"));
    }

    #[test]
    fn nothing_to_draw_draws_nothing() {
        assert!(!svg(&[chart(&[])]).contains("polyline"));
        let flat = svg(&[Chart { most: None, ..chart(&[(1.0, 3.0), (2.0, 3.0)]) }]);
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
