//! Figures side by side, as text and as HTML.

use seekless_units::{ByteLen, format_size};
use std::fmt::Write;

/// A value and its unit.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Figure {
    /// A number of items.
    Count(u64),
    /// A length.
    Bytes(ByteLen),
    /// A fraction of a whole, from 0 to 1.
    Share(f64),
    /// A deviation, in percent.
    Percent(f64),
    /// A time in seconds.
    Seconds(f64),
    /// A number with one decimal.
    Number(f64),
    /// Unknown.
    Missing,
}

impl Figure {
    fn number(self) -> f64 {
        match self {
            Self::Count(count) => count as f64,
            Self::Bytes(len) => len.get() as f64,
            Self::Share(value)
            | Self::Percent(value)
            | Self::Seconds(value)
            | Self::Number(value) => value,
            Self::Missing => f64::NAN,
        }
    }

    /// Text for people.
    #[must_use]
    pub fn text(self) -> String {
        match self {
            Self::Count(count) => grouped(count),
            Self::Bytes(len) => format_size(len),
            Self::Share(share) => format!("{share:.3}"),
            Self::Percent(percent) => format!("{percent:+.1}%"),
            Self::Seconds(seconds) if seconds < 1.0 => format!("{:.3} ms", seconds * 1000.0),
            Self::Seconds(seconds) => format!("{seconds:.3} s"),
            Self::Number(value) => format!("{value:.1}"),
            Self::Missing => "-".into(),
        }
    }
}

/// A number with separated thousands: `1,234,567`.
#[must_use]
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number with a noun, in the plural with `s` except for one: `1 seek`, `1,234 seeks`.
#[must_use]
pub fn counted(number: u64, name: &str) -> String {
    format!("{} {name}{}", grouped(number), if number == 1 { "" } else { "s" })
}

/// One line of a table.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// The subject of the figures.
    pub label: String,
    /// One per column.
    pub figures: Vec<Figure>,
}

/// Rows of figures under named columns.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Table {
    /// The columns' names; the labels' column has none.
    pub columns: Vec<String>,
    /// The rows.
    pub rows: Vec<Row>,
    /// Whether a further column compares the last one with the previous one.
    pub ratio: bool,
}

impl Table {
    /// A table without rows.
    #[must_use]
    pub fn new(columns: Vec<String>, ratio: bool) -> Self {
        Self { columns, rows: Vec::new(), ratio }
    }

    /// Adds a row.
    pub fn push(&mut self, label: impl Into<String>, figures: Vec<Figure>) {
        self.rows.push(Row { label: label.into(), figures });
    }

    /// The cells, header first, as text.
    fn cells(&self) -> Vec<Vec<String>> {
        let mut header = vec![String::new()];
        header.extend(self.columns.iter().cloned());
        if self.ratio {
            header.push("ratio".into());
        }
        let mut lines = vec![header];
        for row in &self.rows {
            let mut line = vec![row.label.clone()];
            line.extend(row.figures.iter().map(|figure| figure.text()));
            if self.ratio {
                line.push(ratio(&row.figures));
            }
            lines.push(line);
        }
        lines
    }

    /// Aligned text: labels to the left, figures to the right.
    #[must_use]
    pub fn text(&self) -> String {
        let lines = self.cells();
        let width = |column: usize| {
            let cells = lines.iter().filter_map(|line| line.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..lines[0].len()).map(width).collect();
        let mut text = String::new();
        for line in &lines {
            let mut shown = String::new();
            for (at, (cell, width)) in line.iter().zip(&widths).enumerate() {
                if at == 0 {
                    let _ = write!(shown, "{cell:<width$}");
                } else {
                    let _ = write!(shown, "  {cell:>width$}");
                }
            }
            text.push_str(shown.trim_end());
            text.push('\n');
        }
        text
    }

    /// An HTML table.
    #[must_use]
    pub fn html(&self) -> String {
        let mut html = String::from("<table>\n");
        for (at, line) in self.cells().iter().enumerate() {
            let cell = if at == 0 { "th" } else { "td" };
            html.push_str("<tr>");
            for (column, text) in line.iter().enumerate() {
                let tag = if column == 0 { "th" } else { cell };
                let _ = write!(html, "<{tag}>{}</{tag}>", escape(text));
            }
            html.push_str("</tr>\n");
        }
        html.push_str("</table>\n");
        html
    }
}

/// The last figure divided by the previous one.
fn ratio(figures: &[Figure]) -> String {
    let [.., before, after] = figures else { return String::new() };
    let (before, after) = (before.number(), after.number());
    if before == after {
        return "1.00".into();
    }
    match after / before {
        ratio if !ratio.is_finite() => "-".into(),
        ratio if ratio > 0.0 && ratio < 0.1 => format!("{ratio:.4}"),
        ratio => format!("{ratio:.2}"),
    }
}

/// Escapes text for HTML, in elements and in quoted attributes.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            '\t' | '\n' | '\r' => html.push(c),
            // XML 1.0 has no way to write these.
            '\u{fffe}' | '\u{ffff}' => html.push('\u{fffd}'),
            c if c.is_control() => html.push('\u{fffd}'),
            c => html.push(c),
        }
    }
    html
}

/// Adds tables to a page, each with its title and a note, which may be empty.
pub(crate) fn sections(tables: &[(String, Table, String)], html: &mut String) {
    for (title, table, note) in tables {
        let _ = write!(html, "<section><h2>{}</h2>\n{}", escape(title), table.html());
        if !note.is_empty() {
            let _ = writeln!(html, "<p class=\"note\">{}</p>", escape(note));
        }
        html.push_str("</section>\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_line_up_and_compare() {
        let mut table = Table::new(vec!["old.img".into(), "new.img".into()], true);
        table.push("seeks", vec![Figure::Count(2615), Figure::Count(60)]);
        table.push("bytes", vec![Figure::Bytes(ByteLen::new(1 << 20)); 2]);
        table.push("missing", vec![Figure::Count(0), Figure::Count(3)]);
        let expected = "         old.img  new.img   ratio\n\
                        seeks      2,615       60  0.0229\n\
                        bytes         1M       1M    1.00\n\
                        missing        0        3       -\n";
        assert_eq!(table.text(), expected);
    }

    #[test]
    fn thousands_are_apart() {
        let shown: Vec<String> =
            [0, 999, 1000, 1_234_567].iter().map(|&number| grouped(number)).collect();
        assert_eq!(shown, ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn labels_are_no_markup() {
        let mut table = Table::new(vec!["<b>".into()], false);
        table.push("<script>\"&'", vec![Figure::Share(0.5)]);
        let html = table.html();
        assert!(html.contains("<th>&lt;script&gt;&quot;&amp;&#39;</th><td>0.500</td>"), "{html}");
        assert!(!html.contains("<b>") && !html.contains("<script>"));
    }
}
