//! Measured figures as dots on one logarithmic scale, with marks for published figures, as a part
//! of an HTML page. They are no bars: a length is meaningless on such a scale.

use crate::table::{counted, escape};
use std::fmt::Write;

/// Width of the drawing, height of a line of dots, and space between rows, in CSS pixels.
const WIDTH: f64 = 680.0;
const BAR: f64 = 12.0;
const SPACE: f64 = 10.0;
/// Space for a number beside a dot.
const NUMBER: f64 = 40.0;
/// Start of the scale, behind the labels, and its end.
const LEFT: f64 = 110.0;
const RIGHT: f64 = 630.0;

/// A measured figure.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Value {
    /// The figure; more than zero.
    pub value: f64,
    /// The smallest and the largest of several.
    pub range: Option<(f64, f64)>,
    /// The figure published by others.
    pub published: Option<f64>,
}

/// A row of a dot chart: the dots of one subject, one for each series that has a value.
#[derive(Clone, PartialEq, Debug)]
pub struct DotRow {
    /// The subject.
    pub label: String,
    /// In the order of the chart's series.
    pub values: Vec<Option<Value>>,
}

/// A group of rows.
#[derive(Clone, PartialEq, Debug)]
pub struct Group {
    /// The common subject.
    pub label: String,
    /// From top to bottom.
    pub rows: Vec<DotRow>,
}

/// A dot chart: rows of dots on one scale.
#[derive(Clone, PartialEq, Debug)]
pub struct DotChart {
    /// The name of each dot of a row; a single one is not shown.
    pub series: Vec<String>,
    /// The figure without a gain or loss, marked by a line.
    pub base: Option<f64>,
    /// The groups, each of which can be folded.
    pub groups: Vec<Group>,
    /// Whether all of them are folded initially.
    pub folded: bool,
}

/// A logarithmic scale, since figures from 1 to 60 and more are shown together.
struct Scale {
    low: f64,
    high: f64,
}

impl DotChart {
    /// The chart as HTML; empty if there is nothing to draw.
    #[must_use]
    pub fn html(&self) -> String {
        let mut html = String::new();
        let Some(scale) = Scale::of(self) else { return html };
        self.legend(&mut html);
        if self.folded {
            let groups = counted(self.groups.len() as u64, "group");
            let _ = writeln!(html, "<details><summary>{groups}</summary>");
        }
        html.push_str("<div class=\"charts\">\n");
        for group in &self.groups {
            let label = escape(&group.label);
            let _ = writeln!(html, "<details open><summary>{label}</summary>");
            self.draw(group, &scale, &mut html);
            html.push_str("</details>\n");
        }
        html.push_str(if self.folded { "</div></details>\n" } else { "</div>\n" });
        html
    }

    fn values(&self) -> impl Iterator<Item = &Value> {
        self.groups.iter().flat_map(|group| &group.rows).flat_map(|row| &row.values).flatten()
    }

    /// The style class of a series: the last one is the subject of the chart.
    fn class(&self, series: usize) -> &'static str {
        match series {
            at if at + 1 == self.series.len() => "new",
            0 => "old",
            _ => "mid",
        }
    }

    fn legend(&self, html: &mut String) {
        html.push_str("<p class=\"legend\">");
        if self.series.len() > 1 {
            for (at, name) in self.series.iter().enumerate() {
                let class = self.class(at);
                let _ = write!(html, "<span><i class=\"bar-{class}\"></i>{}</span>", escape(name));
            }
        }
        if self.values().any(|value| value.published.is_some()) {
            html.push_str("<span><i class=\"published\"></i>as published</span>");
        }
        if self.values().any(|value| value.range.is_some_and(|(low, high)| low < high)) {
            html.push_str("<span><i class=\"range\"></i>from the lowest to the highest of several runs</span>");
        }
        html.push_str("</p>\n");
    }

    fn draw(&self, group: &Group, scale: &Scale, html: &mut String) {
        let step = BAR * self.series.len() as f64 + SPACE;
        let bottom = step * group.rows.len() as f64 + 4.0;
        let _ = writeln!(
            html,
            "<svg class=\"chart\" viewBox=\"0 0 {WIDTH} {:.0}\" role=\"img\" aria-label=\"{}\">",
            bottom + 18.0,
            escape(&group.label)
        );
        ticks(scale, bottom, html);
        if let Some(base) = self.base {
            let x = scale.x(base);
            let _ = writeln!(html, "<path class=\"base\" d=\"M{x:.1} 0V{bottom:.1}\"/>");
        }
        for (at, row) in group.rows.iter().enumerate() {
            let top = step * at as f64 + SPACE / 2.0;
            let middle = top + (step - SPACE) / 2.0 + 4.0;
            let (x, label) = (LEFT - 8.0, escape(&row.label));
            let _ = write!(html, "<text x=\"{x}\" y=\"{middle:.1}\" class=\"end\">{label}</text>");
            for (series, value) in row.values.iter().enumerate() {
                let top = top + BAR * series as f64;
                if let Some(value) = value {
                    self.bar(&row.label, series, value, top, scale, html);
                }
            }
        }
        html.push_str("</svg>\n");
    }

    fn bar(
        &self,
        label: &str,
        series: usize,
        value: &Value,
        top: f64,
        scale: &Scale,
        html: &mut String,
    ) {
        let end = scale.x(value.value);
        let published = value.published.map(|value| format!(", published {value}"));
        let name = self.series.get(series).map_or("", |name| name);
        let _ = write!(
            html,
            "<g><title>{}, {}: {:.2}{}</title>\
             <circle class=\"bar-{}\" cx=\"{end:.1}\" cy=\"{:.1}\" r=\"{:.1}\"/>",
            escape(label),
            escape(name),
            value.value,
            published.unwrap_or_default(),
            self.class(series),
            top + BAR / 2.0,
            BAR / 2.0 - 1.0,
        );
        let mut right = end + BAR / 2.0 - 1.0;
        if let Some((low, high)) = value.range.filter(|(low, high)| low < high) {
            let (low, high, y) = (scale.x(low), scale.x(high), top + BAR / 2.0);
            let _ = write!(
                html,
                "<path class=\"range\" d=\"M{low:.1} {y:.1}H{high:.1}m0 -3v6M{low:.1} {:.1}v6\"/>",
                y - 3.0
            );
            right = right.max(high);
        }
        if let Some(published) = value.published {
            let x = scale.x(published);
            let _ = write!(html, "<path class=\"published\" d=\"M{x:.1} {top:.1}v{BAR:.1}\"/>");
            // The number is beside the dot, but not over the mark.
            if x > right - 6.0 && x < right + NUMBER {
                right = x;
            }
        }
        let (x, y) = (right + 6.0, top + BAR - 2.0);
        let _ = writeln!(html, "<text x=\"{x:.1}\" y=\"{y:.1}\">{}</text></g>", shown(value.value));
    }
}

/// A number with three significant digits.
fn shown(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

fn ticks(scale: &Scale, bottom: f64, html: &mut String) {
    for tick in scale.ticks() {
        let (x, y) = (scale.x(tick), bottom + 13.0);
        let _ = writeln!(
            html,
            "<path class=\"rule\" d=\"M{x:.1} 0V{bottom:.1}\"/>\
             <text x=\"{x:.1}\" y=\"{y:.1}\" class=\"mid\">{tick}</text>"
        );
    }
}

impl Scale {
    fn of(chart: &DotChart) -> Option<Self> {
        let figures = chart.values().flat_map(|value| {
            let range = value.range.map_or([value.value; 2], |(low, high)| [low, high]);
            [Some(value.value), value.published, Some(range[0]), Some(range[1]), chart.base]
        });
        let some = figures.flatten().filter(|figure| figure.is_finite() && *figure > 0.0);
        let (low, high) = some.fold((f64::MAX, 0.0f64), |(l, h), f| (l.min(f), h.max(f)));
        if low > high {
            return None;
        }
        let low = 10f64.powf(low.log10().floor());
        let high = 10f64.powf(high.log10().ceil()).max(low * 10.0);
        Some(Self { low, high })
    }

    fn x(&self, value: f64) -> f64 {
        let share = (value / self.low).ln() / (self.high / self.low).ln();
        LEFT + share.clamp(0.0, 1.0) * (RIGHT - LEFT)
    }

    /// Powers of ten.
    fn ticks(&self) -> impl Iterator<Item = f64> {
        let end = self.high * 1.01;
        std::iter::successors(Some(self.low), |tick| Some(tick * 10.0))
            .take_while(move |t| *t <= end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(rows: Vec<DotRow>, base: Option<f64>) -> DotChart {
        let series = vec!["old".into(), "new".into()];
        DotChart { series, base, groups: vec![Group { label: "g&".into(), rows }], folded: false }
    }

    fn row(label: &str, values: [(f64, Option<f64>); 2]) -> DotRow {
        let value = |(value, published)| Some(Value { value, range: None, published });
        DotRow { label: label.into(), values: values.map(value).to_vec() }
    }

    #[test]
    fn published_values_are_marked_where_they_are() {
        let rows = vec![row("a<b", [(10.0, Some(100.0)), (1.0, None)])];
        let html = chart(rows, None).html();
        assert!(html.contains("a&lt;b") && html.contains("g&amp;"));
        // Two powers of ten: 10 is in the middle, 100 at the end.
        assert!(html.contains("class=\"bar-old\" cx=\"370.0\" cy=\"11.0\""), "{html}");
        assert!(html.contains("class=\"published\" d=\"M630.0 "), "{html}");
        assert_eq!(html.matches("<path class=\"published\"").count(), 1);
    }

    #[test]
    fn a_line_marks_where_nothing_is_gained() {
        let html = chart(vec![row("a", [(0.1, None), (10.0, None)])], Some(1.0)).html();
        assert!(html.contains("class=\"bar-old\" cx=\"110.0\" cy=\"11.0\""), "{html}");
        assert!(html.contains("class=\"bar-new\" cx=\"630.0\" cy=\"23.0\""), "{html}");
        assert!(html.contains("class=\"base\" d=\"M370.0 0V"), "{html}");
        assert!(!html.contains("<rect"), "a length means nothing on a logarithmic scale");
    }

    #[test]
    fn several_runs_have_a_range() {
        let value = Value { value: 10.0, range: Some((1.0, 100.0)), published: None };
        let rows = vec![DotRow { label: "a".into(), values: vec![None, Some(value)] }];
        let html = chart(rows, None).html();
        assert!(html.contains("class=\"range\" d=\"M110.0 23.0H630.0"), "{html}");
        assert_eq!(html.matches("<circle").count(), 1);
    }

    #[test]
    fn nothing_to_draw_is_no_chart() {
        assert_eq!(chart(Vec::new(), None).html(), "");
    }
}
