//! Measured figures as bars, with marks where others measured them, as one HTML
//! page that needs nothing else.

use crate::table::{Table, escape};
use std::fmt::Write;

const STYLE: &str = include_str!("page.css");
/// The drawing's width and the height of a bar's line, in CSS pixels.
const WIDTH: f64 = 900.0;
const LINE: f64 = 22.0;
/// Where the bars begin, behind their labels, and where they end.
const LEFT: f64 = 230.0;
const RIGHT: f64 = 830.0;

/// A bar.
#[derive(Clone, PartialEq, Debug)]
pub struct Bar {
    /// What it is of.
    pub label: String,
    /// How long it is; more than zero.
    pub value: f64,
    /// What others measured.
    pub published: Option<f64>,
}

/// Bars on one scale.
#[derive(Clone, PartialEq, Debug)]
pub struct Chart {
    /// The heading.
    pub title: String,
    /// What the bars are, and in which unit.
    pub note: String,
    /// From top to bottom.
    pub bars: Vec<Bar>,
}

/// A page of charts and tables, each table with its heading.
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
    charts.iter().for_each(|chart| draw(chart, &mut html));
    html.push_str("<div class=\"tables\">\n");
    for (title, table) in tables {
        let _ = write!(html, "<section><h2>{}</h2>\n{}</section>\n", escape(title), table.html());
    }
    html.push_str("</div>\n</body>\n</html>\n");
    html
}

/// Figures from 1 to 60 and more stand side by side: the scale is logarithmic.
struct Scale {
    low: f64,
    high: f64,
}

impl Scale {
    fn of(chart: &Chart) -> Option<Self> {
        let bars = chart.bars.iter();
        let values = bars.flat_map(|bar| std::iter::once(bar.value).chain(bar.published));
        let values: Vec<f64> = values.filter(|value| value.is_finite() && *value > 0.0).collect();
        let low = values.iter().copied().reduce(f64::min)?;
        let high = values.iter().copied().reduce(f64::max)?;
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

fn draw(chart: &Chart, html: &mut String) {
    let _ = write!(
        html,
        "<h2>{}</h2>\n<p class=\"note\">{}</p>\n",
        escape(&chart.title),
        escape(&chart.note)
    );
    let Some(scale) = Scale::of(chart) else { return };
    let bottom = LINE * chart.bars.len() as f64 + 4.0;
    let _ = writeln!(
        html,
        "<svg viewBox=\"0 0 {WIDTH} {:.0}\" role=\"img\" aria-label=\"{}\" \
         style=\"max-width:{WIDTH}px;width:100%;font-size:12px\" fill=\"var(--text)\">",
        bottom + 18.0,
        escape(&chart.title)
    );
    for tick in scale.ticks() {
        let x = scale.x(tick);
        let _ = writeln!(
            html,
            "<path d=\"M{x:.1} 0V{bottom:.1}\" stroke=\"var(--line)\"/>\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"var(--faint)\">{tick}</text>",
            bottom + 13.0
        );
    }
    for (at, bar) in chart.bars.iter().enumerate() {
        line(bar, LINE * at as f64 + 3.0, &scale, html);
    }
    html.push_str("</svg>\n");
}

fn line(bar: &Bar, top: f64, scale: &Scale, html: &mut String) {
    let (end, middle) = (scale.x(bar.value), top + LINE / 2.0);
    let published = bar.published.map(|value| format!(", published {value}")).unwrap_or_default();
    let _ = write!(
        html,
        "<g><title>{label}: {value:.2}{published}</title>\
         <text x=\"{:.1}\" y=\"{middle:.1}\" text-anchor=\"end\">{label}</text>\
         <rect x=\"{LEFT}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"var(--hot-m)\"/>\
         <text x=\"{:.1}\" y=\"{middle:.1}\">{value:.2}</text>",
        LEFT - 8.0,
        top + 2.0,
        (end - LEFT).max(1.0),
        LINE - 8.0,
        end.max(bar.published.map_or(LEFT, |value| scale.x(value))) + 6.0,
        label = escape(&bar.label),
        value = bar.value,
    );
    if let Some(value) = bar.published {
        let x = scale.x(value);
        let _ = write!(
            html,
            "<path class=\"published\" d=\"M{x:.1} {:.1}v{:.1}\" stroke=\"var(--data)\" stroke-width=\"3\"/>",
            top - 1.0,
            LINE - 2.0
        );
    }
    html.push_str("</g>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(label: &str, value: f64, published: Option<f64>) -> Bar {
        Bar { label: label.into(), value, published }
    }

    #[test]
    fn published_values_are_marked_where_they_are() {
        let bars = vec![bar("a<b", 10.0, Some(100.0)), bar("c", 1.0, None)];
        let chart = Chart { title: "t".into(), note: "n".into(), bars };
        let html = html("<x>", "s", &[chart], &[]);
        assert!(html.contains("a&lt;b") && html.contains("&lt;x&gt;"));
        // Two powers of ten: 10 is in the middle, 100 at the end.
        assert!(html.contains("width=\"300.0\""), "{html}");
        assert!(html.contains("d=\"M830.0 "), "{html}");
        assert_eq!(html.matches("class=\"published\"").count(), 1);
    }

    #[test]
    fn nothing_to_draw_is_no_chart() {
        let chart = Chart { title: "t".into(), note: String::new(), bars: Vec::new() };
        assert!(!html("x", "", &[chart], &[]).contains("<svg"));
    }
}
