//! A line that shows which parts of a whole have a property.

/// The cells of a line, from none to all.
const SHADES: [char; 5] = ['·', '░', '▒', '▓', '█'];
/// A cell without parts.
const EMPTY: char = ' ';

/// Draws parts in order, each `Some` with whether it has the property or `None` where there is
/// nothing, in at most `width` cells: a cell is darker the more of its parts have it, `·` where
/// none has, `█` where all have, and blank where there is nothing.
///
/// ```
/// use seekless_report::strip::draw;
///
/// let parts = [Some(false), Some(false), Some(true), Some(false), Some(true), Some(true), None];
/// assert_eq!(draw(&parts, 7), "··█·██ ");
/// assert_eq!(draw(&parts, 4), "·▒█ ");
/// ```
#[must_use]
pub fn draw(parts: &[Option<bool>], width: usize) -> String {
    if parts.is_empty() || width == 0 {
        return String::new();
    }
    let each = parts.len().div_ceil(width);
    let shade = |cell: &[Option<bool>]| {
        let known = cell.iter().flatten().count();
        let dark = cell.iter().flatten().filter(|&&has| has).count();
        match (known, dark) {
            (0, _) => EMPTY,
            (_, 0) => SHADES[0],
            (known, dark) if known == dark => SHADES[4],
            (known, dark) => SHADES[1 + (dark * 3 / known).min(2)],
        }
    };
    parts.chunks(each).map(shade).collect()
}
