//! Figures over two keys as coloured fields: a heat map.

use crate::table::escape;
use std::fmt::Write;

/// Width and height of a field, and space for labels, in CSS pixels.
const FIELD: (f64, f64) = (72.0, 30.0);
const LEFT: f64 = 104.0;
const TOP: f64 = 64.0;
const BOTTOM: f64 = 8.0;
/// Distance between maps side by side.
const GAP: f64 = 28.0;

/// Figures by two keys; lower is better.
#[derive(Clone, PartialEq, Debug)]
pub struct Heat {
    /// The subject.
    pub title: String,
    /// The key from left to right, and its values.
    pub columns: (String, Vec<String>),
    /// The key from top to bottom, and its values.
    pub rows: (String, Vec<String>),
    /// Row by row, one per column; all above zero. `None` for fields that were not measured.
    pub values: Vec<Vec<Option<f64>>>,
}

impl Heat {
    fn width(&self) -> f64 {
        LEFT + FIELD.0 * self.columns.1.len() as f64
    }

    fn height(&self) -> f64 {
        TOP + FIELD.1 * self.rows.1.len() as f64 + BOTTOM
    }

    /// The smallest and the largest figure.
    fn range(&self) -> (f64, f64) {
        let known = self.values.iter().flatten().flatten();
        known.fold((f64::MAX, 0.0), |(low, high), &value| (value.min(low), value.max(high)))
    }

    /// The map as lines of text, with aligned fields.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text =
            format!("{}\n{:>12}", self.title, format!("{} \\ {}", self.rows.0, self.columns.0));
        let first = text.lines().last().map_or(12, |line| line.chars().count());
        self.columns.1.iter().for_each(|column| _ = write!(text, " {column:>9}"));
        for (row, values) in self.rows.1.iter().zip(&self.values) {
            let _ = write!(text, "\n{row:>first$}");
            values.iter().for_each(|value| _ = write!(text, " {:>9}", figure(*value)));
        }
        text.push('\n');
        text
    }
}

/// A number with three significant digits, or a dash.
fn figure(value: Option<f64>) -> String {
    match value {
        None => "-".into(),
        Some(value) if value >= 100.0 => format!("{value:.0}"),
        Some(value) if value >= 10.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.2}"),
    }
}

/// Position of a figure between the best and the worst of a map, from 0 to 1 by its logarithm: a
/// factor of two has the same distance everywhere.
fn share(value: f64, (low, high): (f64, f64)) -> f64 {
    // A range of less than a tenth is widened to a tenth.
    let span = (high / low).ln().max(0.1);
    ((value / low).ln() / span).clamp(0.0, 1.0)
}

/// From green by yellow to red, light enough for dark text.
fn colour(share: f64) -> String {
    format!("hsl({:.0} 65% 72%)", 130.0 * (1.0 - share))
}

/// Maps side by side, `across` in a row, as a standalone SVG drawing. Each has its own colours:
/// green is its best.
#[must_use]
pub fn svg(maps: &[Heat], across: usize) -> String {
    let across = across.max(1);
    let width = maps.iter().map(Heat::width).fold(0.0, f64::max) + GAP;
    let height = maps.iter().map(Heat::height).fold(0.0, f64::max) + GAP;
    let whole_width = width * across.min(maps.len()) as f64;
    let whole_height = height * maps.len().div_ceil(across) as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {whole_width} {whole_height}\" \
         width=\"{whole_width}\" height=\"{whole_height}\" role=\"img\" \
         font-family=\"system-ui, 'DejaVu Sans', sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
    );
    for (at, map) in maps.iter().enumerate() {
        let (x, y) = ((at % across) as f64 * width, (at / across) as f64 * height);
        let _ = writeln!(svg, "<g transform=\"translate({x} {y})\">");
        draw(map, &mut svg);
        svg.push_str("</g>\n");
    }
    svg.push_str("</svg>\n");
    svg
}

fn draw(map: &Heat, svg: &mut String) {
    let mut label = |x: f64, y: f64, anchor: &str, style: &str, text: &str| {
        let _ = writeln!(
            svg,
            "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\" {style}>{}</text>",
            escape(text)
        );
    };
    let faint = "fill=\"#667085\"";
    label(4.0, 16.0, "start", "font-weight=\"600\" font-size=\"13\"", &map.title);
    label(LEFT, 36.0, "start", faint, &format!("{} \u{2192}", map.columns.0));
    label(LEFT - 8.0, 54.0, "end", faint, &format!("{} \u{2193}", map.rows.0));
    for (at, column) in map.columns.1.iter().enumerate() {
        label(LEFT + FIELD.0 * (at as f64 + 0.5), 54.0, "middle", "", column);
    }
    for (at, row) in map.rows.1.iter().enumerate() {
        label(LEFT - 8.0, TOP + FIELD.1 * (at as f64 + 0.5) + 4.0, "end", "", row);
    }
    let range = map.range();
    for (row, values) in map.values.iter().enumerate() {
        for (column, value) in values.iter().enumerate() {
            field(svg, (row, column), *value, range);
        }
    }
}

fn field(svg: &mut String, (row, column): (usize, usize), value: Option<f64>, range: (f64, f64)) {
    let (x, y) = (LEFT + FIELD.0 * column as f64, TOP + FIELD.1 * row as f64);
    let fill = value.map_or("#eeeeee".into(), |value| colour(share(value, range)));
    let (width, height) = (FIELD.0 - 2.0, FIELD.1 - 2.0);
    let _ = writeln!(
        svg,
        "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"3\" fill=\"{fill}\"/>\
         <text x=\"{}\" y=\"{}\" text-anchor=\"middle\" fill=\"#1c2330\">{}</text>",
        x + width / 2.0,
        y + height / 2.0 + 4.0,
        figure(value)
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map() -> Heat {
        let names = |names: [&str; 2]| names.map(String::from).to_vec();
        Heat {
            title: "read <s>".into(),
            columns: ("avgfpdir".into(), names(["4", "64"])),
            rows: ("size".into(), names(["1K", "16K"])),
            values: vec![vec![Some(1.0), Some(10.0)], vec![Some(100.0), None]],
        }
    }

    #[test]
    fn colours_go_by_proportion() {
        let range = map().range();
        assert_eq!(range, (1.0, 100.0));
        assert!((share(10.0, range) - 0.5).abs() < 1e-9);
        assert_eq!(
            (colour(0.0), colour(1.0)),
            ("hsl(130 65% 72%)".into(), "hsl(0 65% 72%)".into())
        );
        // Small differences are not exaggerated.
        assert!(share(1.01, (1.0, 1.01)) < 0.2);
    }

    #[test]
    fn every_field_is_drawn() {
        let svg = svg(&[map(), map(), map()], 2);
        assert_eq!(svg.matches("rx=\"3\"").count(), 12);
        assert_eq!(svg.matches("#eeeeee").count(), 3, "what was not measured is grey");
        assert!(svg.contains("read &lt;s&gt;") && !svg.contains("<s>"));
        assert_eq!(svg.matches("<g transform").count(), svg.matches("</g>").count());
    }

    #[test]
    fn text_has_rows_and_columns() {
        let text = map().text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4);
        assert!(lines[1].ends_with("        4        64"), "{text}");
        assert!(lines[3].ends_with("100         -"), "{text}");
        let widths: Vec<usize> = lines[1..].iter().map(|line| line.chars().count()).collect();
        assert!(widths.windows(2).all(|pair| pair[0] == pair[1]), "{widths:?}");
    }
}
